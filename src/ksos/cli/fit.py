"""Fit a kernel sum-of-squares density to the rows of a table and save it, with the certificate of its optimality on the screen."""

from __future__ import annotations

import argparse
import warnings
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

from ksos.cli.console import Console
from ksos.cli.describe import described
from ksos.cli.errors import DONE, NOT_CONVERGED, InputError, excerpt
from ksos.cli.fit_options import add_fit_options, box_measure, estimator_parameters
from ksos.cli.output import require_writable
from ksos.cli.table import read_table
from ksos.cli.table_arguments import add_table_arguments, table_options

if TYPE_CHECKING:
    from ksos import KernelSoSDensity, Progress
    from ksos.cli.table_types import Table
    from ksos.measures import Box

__all__ = ["add_arguments", "run"]

_SECONDS_BETWEEN_UPDATES = 0.1


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Add what ``ksos fit`` understands."""
    add_table_arguments(parser)
    parser.add_argument(
        "-o", "--output", required=True, metavar="MODEL", help="the file for the density; ksos score, sample and inspect read it"
    )
    parser.add_argument("--json", action="store_true", help="one JSON object on the standard output")
    parser.add_argument(
        "--verbose", action="store_true", help="a line on stderr whenever the gap has halved (a terminal shows progress anyway)"
    )
    add_fit_options(parser)


def run(arguments: argparse.Namespace, console: Console) -> int:
    """Carry out ``ksos fit``; the model is written whether or not the solver converged."""
    from sklearn.exceptions import ConvergenceWarning

    from ksos import KernelSoSDensity

    require_writable(arguments.output)
    table = read_table(arguments.data, table_options(arguments))
    n, d = table.points.shape
    measure = box_measure(arguments, d)
    if measure is not None:
        _require_inside(measure, table)
    estimator = KernelSoSDensity(measure=measure, callback=_watcher(console, arguments.verbose), **estimator_parameters(arguments))
    warnings.simplefilter("ignore", ConvergenceWarning)  # said below, with what became of the model
    estimator.fit(table.points, sample_weight=table.weights)
    estimator.distribution_.save(arguments.output)
    solution = estimator.solution_
    if arguments.json:
        console.json({"output": arguments.output, "n_samples": n, "n_features": d, **_summary(estimator)})
    else:
        console.result(_report(estimator, arguments.output, n))
    if solution.status == "solved":
        return DONE
    console.note(f"not converged: {solution.message}; {arguments.output} holds the best density found")
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
    solution = estimator.solution_
    return {
        "n_support": estimator.support_points_.shape[0],
        "n_landmarks": estimator.landmarks_.shape[0],
        "rank": solution.rank,
        "kernel": described(estimator.distribution_.kernel, estimator.n_features_in_),
        "measure": described(estimator.distribution_.measure, estimator.n_features_in_),
        "bandwidth": estimator.bandwidth_.tolist(),
        "embedding_bandwidth": estimator.embedding_bandwidth_.tolist(),
        "regularization": estimator.regularization_,
        **solution.summary(),
        "time": solution.time,
    }


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
    """What shows the progress of the solver: a line that is overwritten on a terminal, lasting lines where they were asked for."""
    if verbose:
        return _lasting_lines(console)
    return (lambda progress: console.status(_progress_line(progress), at_most_every=_SECONDS_BETWEEN_UPDATES)) if console.watched else None


def _lasting_lines(console: Console) -> Callable[[Progress], None]:
    least = float("inf")

    def show(progress: Progress) -> None:
        nonlocal least
        if progress.gap <= 0.5 * least:
            least = progress.gap
            console.note(_progress_line(progress))

    return show


def _progress_line(progress: Progress) -> str:
    return f"iteration {progress.n_iter}, objective {progress.objective:.6e}, gap {progress.gap:.1e}, {progress.time:.1f} s"
