"""Print the mean log-density of the rows of a table under a saved density, or the
log-density of each row.

Scores of rows are written as they are computed, so that memory holds one chunk
of rows.

examples:
  ksos score cars.ksos new.csv
  ksos score cars.ksos new.csv --drop-missing --per-row > scores.csv
  ksos score cars.ksos 'data/*.parquet' --json
"""

import argparse
import math
from collections.abc import Iterator

import numpy as np

from ksos.cli.console import DONE, Console
from ksos.cli.options import MODEL, READING, WEIGHTS, data_argument, open_samples
from ksos.cli.values import argument
from ksos.data import Stream
from ksos.density import load

ARGUMENTS = [
    MODEL,
    data_argument(several=True),
    argument(
        "--per-row",
        action="store_true",
        help="one log-density per row instead of their mean; with --clean or --drop-missing as CSV,"
        " beside the number of its row in the file",
    ),
    *READING,
    WEIGHTS,
]


def run(arguments: argparse.Namespace, console: Console) -> int:
    """Carry out ``ksos score``."""
    density = load(arguments.model)
    table = open_samples(arguments, console, density)
    density = density.with_feature_names(None)  # the columns are in order
    numbered = arguments.clean or arguments.drop_missing  # rows may be dropped
    as_lines = arguments.per_row and not arguments.json
    n = n_zero = 0
    sums: list[float] = []
    masses: list[float] = []
    kept: dict[str, list[float]] = {"log_density": [], "row": []}

    def lines() -> Iterator[str]:
        nonlocal n, n_zero
        if numbered and as_lines:
            yield "row,log_density"
        for points, weights, rows in table.parts():
            scores = density.logpdf(points)
            weights = np.ones(scores.shape[0]) if weights is None else weights
            if np.any(weights < 0.0):
                raise ValueError(
                    f"{table.source}: weights must not be negative; one of them is"
                    f" {weights.min():g}"
                )
            counted = weights > 0.0  # 0 times −inf is no number
            sums.append(float(weights[counted] @ scores[counted]))
            masses.append(float(weights.sum()))
            n, n_zero = n + scores.shape[0], n_zero + int(np.isneginf(scores).sum())
            if as_lines:
                each = map(repr, scores.tolist())
                if numbered:
                    each = (f"{row},{x}" for row, x in zip(rows.tolist(), each, strict=True))
                yield "\n".join(each)
            elif arguments.per_row:
                kept["log_density"] += scores.tolist()
                kept["row"] += rows.tolist()

    if as_lines:
        console.result(lines())
    else:
        list(lines())
        if not (total := math.fsum(masses)) > 0.0:
            raise ValueError(f"{table.source}: weights must not be zero everywhere")
        mean = math.fsum(sums) / total
        value = {"mean_log_density": mean, "n_samples": n, "n_zero_density": n_zero}
        shown = {name: kept[name] for name in kept if name != "row" or numbered}
        value |= shown if arguments.per_row else {}
        line = f"mean log-density: {mean:.6g} nats per row ({n:,} rows)"
        console.answer(arguments.json, value, [line])
    if isinstance(table, Stream):
        console.note(table.report() or "")
    if n_zero and not arguments.json:
        console.warning(f"{n_zero} of {n} rows have density 0 (logarithm -inf)")
    return DONE
