"""Find the worst distribution for a loss within a distance of the rows of a table, and the expected
loss there.

The distance is the maximum mean discrepancy (MMD) to the rows. Distributions and MMD are those of
the columns that the loss reads, or, with --columns, of the columns listed there. The loss is a
formula in the names of the columns, or in x1, x2, ... by position where no column of the file is
called so, with + - * / **, comparisons (1 if they hold, else 0), abs, sqrt, exp, log, log1p, sin,
cos, tan, tanh, min, max, pi and e; it is parsed, never run.
"""

from __future__ import annotations

import argparse
import math
import warnings
from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import numpy as np

from ksos import Ball, WorstCase, worst_case
from ksos.cli import values
from ksos.cli.boxes import add_box, box_measure
from ksos.cli.console import DONE, NOT_CONVERGED, Console, UsageError, described, require_writable
from ksos.cli.formula import parse_formula
from ksos.cli.reading import add_table_arguments, column_names, table_options
from ksos.data import read_table
from ksos.ground.arrays import to_numpy
from ksos.ground.validation import as_bandwidth
from ksos.kernels import Gaussian

__all__ = ["add_arguments", "run"]

_OPTIONS = ("penalty", "bandwidth", "n_support", "tol", "rtol", "time_limit")
"""Those that :func:`ksos.worst_case` takes as they are."""


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Add what ``ksos worst-case`` understands."""
    add_table_arguments(parser)
    add = parser.add_argument
    add(
        "--loss",
        required=True,
        metavar="FORMULA",
        help="what to maximise the expectation of, such as 'x1**2 + abs(x2)'",
    )
    radius = values.word_or(["bootstrap"], values.number)
    add("--radius", type=radius, metavar="R", help="of the ball, in MMD: a number, or bootstrap")
    add(
        "--penalty",
        type=float,
        metavar="GAMMA",
        help="instead of a radius: maximise loss - GAMMA * MMD squared",
    )
    add(
        "-o",
        "--output",
        metavar="MODEL",
        help="save the worst density; ksos query, sample and plot read it",
    )
    add(
        "--json",
        action="store_true",
        help="one JSON object on the standard output; an infinite bound is null",
    )
    add = parser.add_argument_group("the distributions").add_argument
    add_box(add, "the box on which they live")
    add(
        "--bandwidth",
        type=values.numbers,
        metavar="SIGMA",
        help="of the densities (default: as the support points allow)",
    )
    text = (
        "of the kernel that measures MMD (default: --bandwidth, or else the median distance of the"
        " rows)"
    )
    add("--embedding-bandwidth", type=values.numbers, metavar="SIGMA", help=text)
    add("--n-support", type=values.count, metavar="M", help="the most support points")
    add = parser.add_argument_group("the radius by the bootstrap").add_argument
    add("--confidence", type=float, default=0.95, metavar="P", help="the level (default: 0.95)")
    add(
        "--seed",
        type=values.seed,
        metavar="SEED",
        help="of the resamples (default: a new one each time)",
    )
    add = parser.add_argument_group("the solver").add_argument
    add(
        "--tol",
        type=float,
        metavar="GAP",
        help="the gap at which to stop, in units of the loss (default: by --rtol only)",
    )
    add(
        "--rtol",
        type=float,
        default=1e-8,
        metavar="GAP",
        help="the same in units of its spread (default: 1e-8)",
    )
    add(
        "--time-limit",
        type=float,
        metavar="SECONDS",
        help="the most seconds in the solver (default: no limit)",
    )


def run(arguments: argparse.Namespace, console: Console) -> int:
    """Carry out ``ksos worst-case``."""
    if (arguments.radius is None) == (arguments.penalty is None):
        raise UsageError("give either --radius or --penalty")
    require_writable(arguments.output)
    table = read_table(arguments.data, table_options(arguments), console.note)
    n, d = table.points.shape
    loss = parse_formula(
        arguments.loss, d, table.names, table.header, all_features=arguments.columns is not None
    )
    table, all_names = table.take(loss.features), column_names(table.names, d)
    names = [all_names[k] for k in loss.features]
    measure = box_measure(arguments, names, all_names)
    given = {name: vars(arguments)[name] for name in _OPTIONS}
    sigma = arguments.embedding_bandwidth or arguments.bandwidth
    ball = Ball(
        table.points,
        math.inf if arguments.radius is None else arguments.radius,
        weights=table.weights,
        kernel=None if sigma is None else Gaussian(as_bandwidth(sigma, n_features=len(names))),
        domain=measure,
        confidence=arguments.confidence,
        rng=arguments.seed,
    )
    for said in ("the loss ", "worst_case: "):
        warnings.filterwarnings(
            "ignore", message=said
        )  # of the library: said below, in the user's words
    worst = worst_case(loss.observable, ball, **given)
    if worst.upper_bound_kind == "infinite" and math.isfinite(loss.highest):
        worst = replace(worst, upper_bound=loss.highest, upper_bound_kind="rigorous")
    if (
        math.isinf(loss.highest)
        and not (measure is not None and measure.bounded)
        and worst.space is not None
    ):
        console.warning(_where(to_numpy(worst.space.support_points), names))
    density, written = worst.distribution, None
    if arguments.output is not None and density is not None and worst.value is not None:
        density.with_feature_names(table.names).save(arguments.output)
        written = arguments.output
    summary = {
        "loss": arguments.loss,
        "columns": names,
        "n_samples": n,
        "n_features": len(names),
        **_summary(worst, len(names)),
    }
    console.answer(
        arguments.json,
        {**summary, "output": written},
        _report(worst, names if len(names) < d else None, written),
    )
    if worst.status == "solved":
        if arguments.output is not None and written is None:
            console.note(f"{worst.note}; {arguments.output} is not written")
        return DONE
    console.note(f"not converged: {worst.message}")
    return NOT_CONVERGED


def _where(points: np.ndarray, names: Sequence[str]) -> str:
    """Which box of support points the value depends on if the loss has no bound."""
    sides = zip(names, points.min(axis=0).tolist(), points.max(axis=0).tolist(), strict=True)
    box = ", ".join(f"{name} from {low:.6g} to {high:.6g}" for name, low, high in sides)
    return (
        "the loss has no bound that is known, so the value is that of densities with support"
        f" points in {box}; --low and --high set it"
    )


def _summary(worst: WorstCase, d: int) -> dict[str, Any]:
    """What a program may want to know of the answer."""
    density = worst.distribution
    more: dict[str, Any] = {
        "embedding_kernel": described(worst.embedding_kernel, d),
        "note": worst.note,
        "time": worst.time,
    }
    if density is not None:
        more |= {"kernel": described(density.kernel, d), "measure": described(density.measure, d)}
        more |= {"n_support": density.support_points.shape[0], "rank": density.rank}
    return {**worst.summary(), **more}


def _report(worst: WorstCase, read: Sequence[str] | None, written: str | None) -> list[str]:
    """The same for a reader; ``read`` are the columns that the loss reads, if there are others."""
    if worst.value is None:
        return [
            f"{worst.status}: no density within radius {worst.radius:g}"
            + (f"; {worst.note}" if worst.note else "")
        ]
    if worst.penalty is None:
        what = f"within MMD {worst.radius:g} of the rows"
    else:
        what = f"at penalty {worst.penalty:g} (objective {worst.objective:.6g})"
    lines = [f"worst expected loss {worst.value:.6g} {what}, at MMD {worst.mmd:.6g}"]
    if worst.empirical_value is not None:
        lines[0] += f"; the rows themselves: {worst.empirical_value:.6g}"
    if worst.upper_bound_kind == "infinite":
        bound = (
            "over all distributions it is infinite: the loss is unbounded (--low and --high say"
            " where distributions may go)"
        )
    else:
        bound = f"no distribution exceeds {worst.upper_bound:.6g}" + (
            " (an estimate)" if worst.upper_bound_kind == "estimate" else ""
        )
    lines.append(f"gap {worst.gap:.1e} among the densities of this space; {bound}")
    if worst.integration_error > 0.0 and "integrals" not in worst.note:
        lines.append(
            f"the integrals of the loss are known to {worst.integration_error:.1e}, estimated,"
            " which the gap counts"
        )
    lines += [f"note: {worst.note}"] if worst.note else []
    if read is not None:
        lines.append(
            f"distributions and MMD are those of {', '.join(read)}, which the loss reads (--columns"
            " takes more columns)"
        )
    return [*lines, *([f"{written}: the worst density"] if written else [])]
