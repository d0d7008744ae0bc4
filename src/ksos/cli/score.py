"""Print the mean log-density of the rows of a table under a saved density, or the log-density of
each row.
"""

from __future__ import annotations

import argparse
import math
from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from ksos import SoSDensity, SoSMixture
from ksos.cli.console import DONE, Console, strict_json
from ksos.cli.reading import add_table_arguments, open_samples
from ksos.data import Stream, Table
from ksos.density.io import load

__all__ = ["add_arguments", "run"]


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Add what ``ksos score`` understands."""
    parser.add_argument("model", metavar="MODEL", help="a file written by ksos fit")
    add_table_arguments(parser, several=True)
    text = (
        "one log-density per row instead of their mean; with --clean or --drop-missing as CSV,"
        " beside the number of its row in the file"
    )
    parser.add_argument("--per-row", action="store_true", help=text)
    parser.add_argument(
        "--json",
        action="store_true",
        help="one JSON object on the standard output; a logarithm of 0 is null",
    )


def run(arguments: argparse.Namespace, console: Console) -> int:
    """Carry out ``ksos score``; scores are written as they are computed, so that memory holds one
    chunk of rows.
    """
    density = load(arguments.model)
    table = open_samples(arguments, console, density)
    numbered = arguments.clean or arguments.drop_missing  # rows may be left out
    scores = _Scores(density.with_feature_names(None), table, numbered)  # the columns are in order
    if arguments.per_row:
        console.result(scores.as_json() if arguments.json else scores.each())
    else:
        for _ in scores.parts():
            pass
        console.answer(arguments.json, scores.summary, [repr(scores.mean)])
    if isinstance(table, Stream):
        console.note(table.report() or "")
    if scores.zeros and not arguments.json:
        console.warning(f"{scores.zeros} of {scores.count} rows have density 0 (logarithm -inf)")
    return DONE


@dataclass
class _Scores:
    """The log-densities of the rows of a table, and what is known of all of them in the end."""

    density: SoSDensity | SoSMixture
    table: Table | Stream
    numbered: bool
    count: int = 0
    zeros: int = 0
    _sums: list[float] = field(default_factory=list)
    _masses: list[float] = field(default_factory=list)

    def parts(self) -> Iterator[tuple[np.ndarray, np.ndarray]]:
        """The log-densities and the numbers of their rows, a chunk at a time."""
        for points, weights, rows in self.table.parts():
            scores = self.density.logpdf(points)
            masses = np.ones(scores.shape[0]) if weights is None else weights
            if np.any(masses < 0.0):
                raise ValueError(
                    f"{self.table.source}: weights must not be negative; one of them is"
                    f" {masses.min():g}"
                )
            counted = masses > 0.0  # 0 times −inf is no number
            self._sums.append(float(masses[counted] @ scores[counted]))
            self._masses.append(float(masses.sum()))
            self.count, self.zeros = (
                self.count + scores.shape[0],
                self.zeros + int(np.sum(np.isneginf(scores))),
            )
            yield scores, rows

    @property
    def mean(self) -> float:
        """Weighted by the rows' weights."""
        if not (total := math.fsum(self._masses)) > 0.0:
            raise ValueError(f"{self.table.source}: weights must not be zero everywhere")
        return math.fsum(self._sums) / total

    @property
    def summary(self) -> dict[str, Any]:
        """What a program may want to know of all rows."""
        return {
            "mean_log_density": self.mean,
            "n_samples": self.count,
            "n_zero_density": self.zeros,
        }

    def each(self) -> Iterator[str]:
        """One line per row, those of a chunk together."""
        if self.numbered:
            yield "row,log_density"
        for part, rows in self.parts():
            lines = map(repr, part.tolist())
            yield (
                "\n".join(f"{row},{line}" for row, line in zip(rows.tolist(), lines, strict=True))
                if self.numbered
                else "\n".join(lines)
            )

    def as_json(self) -> Iterator[str]:
        """One object in several lines, the scores before what is known of all of them."""
        begin, numbers = '{"log_density": [', list[int]()
        for part, rows in self.parts():
            yield begin + strict_json(part.tolist())[1:-1]
            begin = ", "
            numbers.extend(rows.tolist() if self.numbered else [])
        yield (
            "], " + strict_json({**({"row": numbers} if self.numbered else {}), **self.summary})[1:]
        )
