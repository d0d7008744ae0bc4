"""``ksos worst-case``: the expected loss where the data may shift."""

import argparse
import math
import warnings
from collections.abc import Sequence
from dataclasses import replace
from functools import partial

from ksos import Ball, WorstCase, robust
from ksos.cli import values
from ksos.cli.console import DONE, NOT_CONVERGED, Console, UsageError, described, require_writable
from ksos.cli.formula import parse_formula
from ksos.cli.options import (
    READING,
    WEIGHTS,
    box_arguments,
    box_sides,
    column_names,
    data_argument,
    table_options,
)
from ksos.data import read_table
from ksos.ground import as_bandwidth, to_numpy
from ksos.kernels import Gaussian
from ksos.measures import Box

_distributions = partial(values.argument, group="the distributions")
_bootstrap = partial(values.argument, group="the radius by the bootstrap")
_solver = partial(values.argument, group="the solver")
WORST_CASE = [
    data_argument(several=False),
    values.argument(
        "--loss",
        required=True,
        metavar="FORMULA",
        help="what to maximize the expectation of, such as 'x1**2 + abs(x2)'",
    ),
    values.argument(
        "--radius",
        type=values.expected("a number", ["bootstrap"])(float),
        metavar="R",
        help="of the ball, in MMD: a number, or bootstrap",
    ),
    values.argument(
        "--penalty",
        type=float,
        metavar="GAMMA",
        help="instead of a radius: maximize loss - GAMMA * MMD squared",
    ),
    values.argument(
        "-o",
        "--output",
        metavar="MODEL",
        help="save the worst density; ksos query, sample and plot read it",
    ),
    *box_arguments("the box on which they live", "the distributions"),
    _distributions(
        "--bandwidth",
        type=values.numbers,
        metavar="SIGMA",
        help="of the densities (default: as the support points allow)",
    ),
    _distributions(
        "--embedding-bandwidth",
        type=values.numbers,
        metavar="SIGMA",
        help="of the kernel that measures MMD (default: --bandwidth, or else the median distance of"
        " the rows)",
    ),
    _distributions("--n-support", type=values.count, metavar="M", help="the most support points"),
    _bootstrap(
        "--confidence",
        type=float,
        # the custom of the sciences
        default=0.95,
        metavar="P",
        help="the level (default: %(default)s)",
    ),
    _bootstrap(
        "--seed",
        type=values.seed,
        metavar="SEED",
        help="of the resamples (default: a new one each time)",
    ),
    _solver(
        "--tol",
        type=float,
        metavar="GAP",
        help="the gap at which to stop, in units of the loss (default: by --rtol only)",
    ),
    _solver(
        "--rtol",
        type=float,
        # half the digits of a float: what a solver reaches in any case
        default=1e-8,
        metavar="GAP",
        help="the same in units of its spread (default: %(default)s)",
    ),
    _solver(
        "--time-limit",
        type=float,
        metavar="SECONDS",
        help="the most seconds in the solver (default: no limit)",
    ),
    *READING,
    WEIGHTS,
]
_OPTIONS = ("penalty", "bandwidth", "n_support", "tol", "rtol", "time_limit")
"""Those that :func:`ksos.worst_case` takes as they are."""


def worst_case(arguments: argparse.Namespace, console: Console) -> int:
    """Find the worst distribution for a loss within a distance of the rows of a table, and
    the expected loss there.

    The distance is the maximum mean discrepancy (MMD) to the rows. Distributions and MMD
    are those of the columns that the loss reads, or, with --columns, of the columns listed
    there. The loss is a formula in the names of the columns, or in x1, x2, ... by position
    where no column of the file is called so, with + - * / **, comparisons (1 if they hold,
    else 0), abs, sqrt, exp, log, log1p, sin, cos, tan, tanh, min, max, pi and e; it is
    parsed, never run.

    examples:
      ksos worst-case cars.csv --clean --loss "mpg < 20" --radius 0.1
      ksos worst-case cars.csv --clean --loss "hp**2" --radius bootstrap --low hp=0
      ksos worst-case cars.csv --clean --loss "abs(mpg - 25)" --penalty 10 -o worst.ksos
    """
    if (arguments.radius is None) == (arguments.penalty is None):
        raise UsageError("give either --radius or --penalty")
    output = arguments.output
    require_writable(output)
    table = read_table(arguments.data, table_options(arguments), console.note)
    d, every = table.n_features, arguments.columns is not None
    loss = parse_formula(arguments.loss, d, table.names, table.header, all_features=every)
    table, all_names = table.take(loss.features), column_names(table.names, d)
    names = [all_names[k] for k in loss.features]
    sides = box_sides(arguments, names, all_names)
    measure = None if sides is None else Box(*sides)
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
    # of the library: reported below, in the words of the command line
    for begin in ("the loss ", "worst_case: "):
        warnings.filterwarnings("ignore", message=begin)
    given = {name: vars(arguments)[name] for name in _OPTIONS}
    worst = robust.worst_case(loss.observable, ball, **given)
    highest, bounded = loss.range[1], measure is not None and measure.bounded
    if worst.upper_bound_kind == "infinite" and math.isfinite(highest):
        worst = replace(worst, upper_bound=highest, upper_bound_kind="rigorous")
    if math.isinf(highest) and not bounded and worst.space is not None:
        points = to_numpy(worst.space.support_points)
        ends = zip(names, points.min(axis=0).tolist(), points.max(axis=0).tolist(), strict=True)
        box = ", ".join(f"{name} from {low:.6g} to {high:.6g}" for name, low, high in ends)
        console.warning(
            "the loss has no bound that is known, so the value is that of densities with support"
            f" points in {box}; --low and --high set it"
        )
    density, written = worst.distribution, None
    if output is not None and density is not None and worst.value is not None:
        density.with_feature_names(table.names).save(output)
        written = output
    value = {
        "loss": arguments.loss,
        "columns": names,
        "n_samples": table.n_samples,
        "n_features": len(names),
        **worst.summary(),
        "embedding_kernel": described(worst.embedding_kernel, len(names)),
        "note": worst.note,
        "time": worst.time,
    }
    if density is not None:
        value |= {
            "kernel": described(density.kernel, len(names)),
            "measure": described(density.measure, len(names)),
            "n_support": density.support_points.shape[0],
            "rank": density.rank,
        }
    lines = _report(worst, names if len(names) < d else None)
    lines += [] if written is None else [f"written: {written} (the worst density)"]
    console.answer(arguments.json, {**value, "output": written}, lines)
    if worst.status != "solved":
        console.note(f"not converged: {worst.message}")
        return NOT_CONVERGED
    if output is not None and written is None:
        console.note(f"{worst.note}; {output} is not written")
    return DONE


# The answer for a reader. ``read``: the columns that the loss reads, if there are others.
def _report(worst: WorstCase, read: Sequence[str] | None) -> list[str]:
    if worst.value is None:
        note = f"; {worst.note}" if worst.note else ""
        return [f"{worst.status}: no density within radius {worst.radius:g}{note}"]
    if worst.penalty is None:
        where, bounded = f"within MMD {worst.radius:g} of the rows", "no distribution exceeds"
    else:
        where = f"at penalty {worst.penalty:g} (objective {worst.objective:.6g})"
        bounded = "the objective does not exceed"
    lines = [f"worst expected loss: {worst.value:.6g} {where}, at MMD {worst.mmd:.6g}"]
    if worst.empirical_value is not None:
        lines.append(f"in the rows themselves: {worst.empirical_value:.6g}")
    estimated = " (an estimate)" if worst.upper_bound_kind == "estimate" else ""
    bound = "infinite, since the loss is unbounded; --low and --high bound the distributions"
    if worst.upper_bound_kind != "infinite":
        bound = f"{bounded} {worst.upper_bound:.6g}{estimated}"
    lines.append(f"over all distributions: {bound}")
    lines.append(f"certified: within {worst.gap:.1e} of the worst density on these support points")
    if worst.integration_error > 0.0 and "integrals" not in worst.note:
        error = f"{worst.integration_error:.1e}"
        lines.append(f"integrals of the loss: known to {error}, estimated, which the gap counts")
    lines += [f"note: {worst.note}"] if worst.note else []
    if read is not None:
        lines.append(f"columns: {', '.join(read)}, which the loss reads (--columns takes more)")
    return lines
