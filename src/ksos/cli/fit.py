"""Fit a kernel sum-of-squares density to the rows of a table and save it, with the certificate of its optimality on the screen."""

from __future__ import annotations

import argparse
import inspect
import warnings
from collections.abc import Callable
from typing import Any

from sklearn.exceptions import ConvergenceWarning

from ksos import KernelSoSDensity, Progress
from ksos.bandwidth import RULES
from ksos.cli import values
from ksos.cli.console import DONE, NOT_CONVERGED, Console, InputError, described, excerpt, require_writable
from ksos.cli.tables import Table, add_table_arguments, read_table, table_options
from ksos.estimators.density import MOST_SUPPORT_POINTS, OBJECTIVES, PENALTIES
from ksos.kernels import KERNELS
from ksos.measures import Box
from ksos.solvers import SOLVERS
from ksos.support import SELECTIONS

__all__ = ["add_arguments", "run"]

_SECONDS_BETWEEN_UPDATES = 0.1
_DEFAULTS = {name: parameter.default for name, parameter in inspect.signature(KernelSoSDensity).parameters.items()}


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Add what ``ksos fit`` understands: one option per parameter of :class:`ksos.KernelSoSDensity` that words can express."""
    add_table_arguments(parser)
    text = "the file for the density; ksos score, sample and inspect read it"
    parser.add_argument("-o", "--output", required=True, metavar="MODEL", help=text)
    parser.add_argument("--json", action="store_true", help="one JSON object on the standard output")
    text = "a line on stderr whenever the gap has halved (a terminal shows progress anyway)"
    parser.add_argument("--verbose", action="store_true", help=text)
    model, objective, solver = (parser.add_argument_group(f"the {name}") for name in ("density", "objective", "solver"))

    def add(group: Any, flag: str, metavar: str, text: str, parse: Any = None, *, choices: Any = None, parameter: str = "") -> None:
        parameter = parameter or flag.removeprefix("--").replace("-", "_")
        listed = "" if choices is None else f": {', '.join(choices)}"
        default = "" if _DEFAULTS[parameter] is None else f" (default: {_DEFAULTS[parameter]})"
        settings: dict[str, Any] = {"type": parse} if choices is None else {"choices": list(choices)}
        group.add_argument(flag, dest=parameter, default=argparse.SUPPRESS, metavar=metavar, help=f"{text}{listed}{default}", **settings)

    per_feature = "a number, or one per feature separated by commas"
    add(model, "--kernel", "NAME", "the model kernel", choices=KERNELS)
    add(model, "--bandwidth", "SIGMA", f"{', '.join(RULES)}, {per_feature}", values.word_or(list(RULES), values.numbers))
    add(model, "--support", "NAME", "how to choose the support points among the rows", choices=SELECTIONS)
    text = f"the most support points to use (default: all distinct rows, up to {MOST_SUPPORT_POINTS}, of very many rows half as many again)"
    add(model, "--n-support", "M", text, values.count)
    values.add_box(model.add_argument, "the box on which the density lives")
    add(objective, "--objective", "NAME", "the distance to the data", choices=OBJECTIVES)
    text = f"bandwidth of the kernel that measures MMD, {per_feature} (default: the model's)"
    add(objective, "--embedding-bandwidth", "SIGMA", text, values.numbers)
    add(objective, "--landmarks", "L", "project embeddings on this many random rows (default: on the support points)", values.count)
    add(objective, "--penalty", "NAME", "what is regularized", choices=PENALTIES)
    add(objective, "--regularization", "LAMBDA", "its weight, a number or auto", values.word_or(["auto"], values.number))
    add(objective, "--relative-regularization", "LAMBDA", "instead of it: its weight in units of w0, as in a search", values.number)
    add(solver, "--solver", "NAME", "the algorithm", choices=["auto", *SOLVERS])
    add(solver, "--tol", "GAP", "the gap to the optimum at which to stop (default: 1e-5 for the likelihood, else 1e-8)", float)
    add(solver, "--max-iter", "N", "the most iterations (default: the solver's own limit)", values.count)
    add(solver, "--time-limit", "SECONDS", "the most seconds in the solver (default: no limit)", float)
    add(solver, "--seed", "SEED", "of every random choice (default: a new one each time)", values.seed, parameter="random_state")


def run(arguments: argparse.Namespace, console: Console) -> int:
    """Carry out ``ksos fit``; the model is written whether or not the solver converged."""
    require_writable(arguments.output)
    table = read_table(arguments.data, table_options(arguments))
    n, d = table.points.shape
    measure = values.box_measure(arguments, d)
    if measure is not None:
        _require_inside(measure, table)
    given = {name: value for name, value in vars(arguments).items() if name in _DEFAULTS and name != "verbose"}
    estimator = KernelSoSDensity(measure=measure, callback=_watcher(console, arguments.verbose), **given)
    warnings.simplefilter("ignore", ConvergenceWarning)  # said below, with what became of the model
    estimator.fit(table.points, sample_weight=table.weights)
    estimator.distribution_.save(arguments.output)
    value = {"output": arguments.output, "n_samples": n, "n_features": d, **_summary(estimator)}
    console.answer(arguments.json, value, _report(estimator, arguments.output, n))
    if estimator.solution_.status == "solved":
        return DONE
    console.note(f"not converged: {estimator.solution_.message}; {arguments.output} holds the best density found")
    return NOT_CONVERGED


def _require_inside(box: Box, table: Table) -> None:
    """Refuse rows that count where the density would have to be 0, as the estimator does, but by their place in the file."""
    n, d = table.points.shape
    box.check_features(d)
    counts = True if table.weights is None else table.weights > 0.0
    outside = (~box.contains(table.points) & counts).nonzero()[0]
    if outside.size:
        index = int(outside[0])
        x = table.points[index]
        k = int(((x < box.low) | (x > box.high)).argmax())
        feature = f"feature {k + 1}" if table.names is None else excerpt(table.names[k])
        raise InputError(
            f"{table.source}, row {table.row(index)}: {feature} is {x[k]}, outside [{box.low[k]}, {box.high[k]}]; "
            f"{outside.size} of {n} rows lie outside the box: widen --low and --high, or remove the rows"
        )


def _summary(estimator: KernelSoSDensity) -> dict[str, Any]:
    """What a program may want to know of the fit."""
    density, solution, d = estimator.distribution_, estimator.solution_, estimator.n_features_in_
    sizes = {"n_support": estimator.support_points_.shape[0], "n_landmarks": estimator.landmarks_.shape[0], "rank": solution.rank}
    parts = {"kernel": described(density.kernel, d), "measure": described(density.measure, d)}
    bandwidths = {"bandwidth": estimator.bandwidth_.tolist(), "embedding_bandwidth": estimator.embedding_bandwidth_.tolist()}
    rest = {"regularization": estimator.regularization_, **solution.summary(), "time": solution.time}
    return {**sizes, **parts, **bandwidths, **rest}


def _report(estimator: KernelSoSDensity, output: str, n: int) -> list[str]:
    """The same for a reader, in two lines."""
    density, solution = estimator.distribution_, estimator.solution_
    m, d = density.support_points.shape
    return [
        f"{output}: a density in d = {d} from {n} rows: {m} support points, rank {density.rank}, {density.kernel!r}",
        f"{solution.status} by {solution.solver} in {solution.n_iter} iterations, {solution.time:.2f} s: "
        f"objective {solution.objective:.6e}, gap {solution.gap:.1e}",
    ]


def _watcher(console: Console, verbose: bool) -> Callable[[Progress], None] | None:
    """What shows the progress of the solver: lines that stay if they were asked for, else one that is overwritten on a terminal."""
    least = float("inf")

    def lasting(progress: Progress) -> None:
        nonlocal least
        if progress.gap <= 0.5 * least:
            least = progress.gap
            console.note(_progress_line(progress))

    def passing(progress: Progress) -> None:
        console.status(_progress_line(progress), at_most_every=_SECONDS_BETWEEN_UPDATES)

    return lasting if verbose else passing if console.watched else None


def _progress_line(progress: Progress) -> str:
    return f"iteration {progress.n_iter}, objective {progress.objective:.6e}, gap {progress.gap:.1e}, {progress.time:.1f} s"
