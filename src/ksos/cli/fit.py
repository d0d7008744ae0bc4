"""Fit a kernel sum-of-squares density to the rows of a table and save it, with the certificate of its optimality on the screen.

With --search, held-out rows choose the kind of density, its bandwidth and its regularization. With --target, it is the density of one
column given the others, and ksos predict answers from it.
"""

from __future__ import annotations

import argparse
import inspect
import os
import warnings
from collections.abc import Callable
from dataclasses import replace
from typing import Any

from sklearn.exceptions import ConvergenceWarning

from ksos import KernelSoSDensity, KernelSoSDensityCV, MeanEmbedding, Progress
from ksos._validation import as_weights
from ksos.bandwidth import RULES
from ksos.cli import values
from ksos.cli.boxes import add_box, box_measure
from ksos.cli.columns import column_names
from ksos.cli.conditional_fit import fit_conditional
from ksos.cli.console import DONE, NOT_CONVERGED, Console, InputError, UsageError, described, excerpt, require_writable
from ksos.cli.samples import open_samples
from ksos.cli.streams import Stream
from ksos.cli.tables import Table, add_table_arguments
from ksos.estimators.density import MOST_SUPPORT_POINTS, OBJECTIVES, PENALTIES
from ksos.functionals import SquaredL2
from ksos.kernels import KERNELS, Gaussian
from ksos.measures import Box
from ksos.solvers import SOLVERS
from ksos.solvers.minimize import as_solver
from ksos.support import SELECTIONS

__all__ = ["add_arguments", "run"]

REFERENCES = ("normal", "mixture", "none")
CRITERIA = ("log_likelihood", "l2", "mmd")
_DEFAULTS = {name: parameter.default for name, parameter in inspect.signature(KernelSoSDensity).parameters.items()}
_DEFAULTS["max_iter"] = None  # which the solver carries
_SEARCHED = set(inspect.signature(KernelSoSDensityCV).parameters)


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Add what ``ksos fit`` understands: one option per parameter of the estimators that words can express."""
    add_table_arguments(parser, several=True)
    text = "the file for the density; ksos score, sample and inspect read it"
    parser.add_argument("-o", "--output", required=True, metavar="MODEL", help=text)
    text = "name or 1-based number of the column whose density given the others is wanted; ksos predict reads that model"
    parser.add_argument("--target", metavar="COLUMN", help=text)
    text = "with --target: names or numbers of columns of text that are to be kept, as categories (needs pandas)"
    parser.add_argument("--categories", type=values.columns, metavar="LIST", help=text)
    text = "a file from which a fit that was killed goes on; the rows are then read in chunks, and it is removed when the model is written"
    parser.add_argument("--checkpoint", metavar="FILE", help=text)
    parser.add_argument("--json", action="store_true", help="one JSON object on the standard output")
    text = "a line on stderr whenever the gap has halved (a terminal shows progress anyway)"
    parser.add_argument("--verbose", action="store_true", help=text)
    names = ("density", "objective", "search", "solver")
    model, objective, search, solver = (parser.add_argument_group(f"the {name}") for name in names)

    def add(group: Any, flag: str, metavar: str, text: str, parse: Any = None, *, choices: Any = None, parameter: str = "") -> None:
        parameter = parameter or flag.removeprefix("--").replace("-", "_")
        listed = "" if choices is None else f": {', '.join(choices)}"
        default = "" if _DEFAULTS.get(parameter) is None else f" (default: {_DEFAULTS[parameter]})"
        settings: dict[str, Any] = {"type": parse} if choices is None else {"choices": list(choices)}
        group.add_argument(flag, dest=parameter, default=argparse.SUPPRESS, metavar=metavar, help=f"{text}{listed}{default}", **settings)

    per_feature = "a number, or one per feature separated by commas"
    add(model, "--kernel", "NAME", "the model kernel", choices=KERNELS)
    add(model, "--bandwidth", "SIGMA", f"{', '.join(RULES)}, {per_feature}", values.word_or(list(RULES), values.numbers))
    add(model, "--support", "NAME", "how to choose the support points among the rows", choices=SELECTIONS)
    text = f"the most support points to use (default: all distinct rows, up to {MOST_SUPPORT_POINTS}, of very many rows half as many again)"
    add(model, "--n-support", "M", text, values.count)
    text = "a law that is fitted first and that the squares correct; with --search the default is all kinds"
    add(model, "--reference", "NAME", text, choices=REFERENCES)
    add_box(model.add_argument, "the box on which the density lives")
    text = "the distance to the data; l2 is in at most three features"
    add(objective, "--objective", "NAME", text, choices=dict.fromkeys([*OBJECTIVES, "l2"]))
    text = f"bandwidth of the kernel that measures MMD, {per_feature} (default: the model's)"
    add(objective, "--embedding-bandwidth", "SIGMA", text, values.numbers)
    add(objective, "--landmarks", "L", "project embeddings on this many random rows (default: on the support points)", values.count)
    add(objective, "--penalty", "NAME", "what is regularized", choices=PENALTIES)
    add(objective, "--regularization", "LAMBDA", "its weight, a number or auto", values.word_or(["auto"], values.number))
    add(objective, "--relative-regularization", "LAMBDA", "instead of it: its weight in units of w0, as in a search", values.number)
    search.add_argument("--search", action="store_true", help="let held-out rows choose what else would be set by hand; takes longer")
    add(search, "--criterion", "NAME", "what held-out rows judge by; l2 resists outliers (default: log_likelihood)", choices=CRITERIA)
    add(
        search,
        "--folds",
        "K",
        "into how many parts the rows are split (default: 5; 10 for at most 200 rows)",
        values.whole(2),
        parameter="cv",
    )
    add(solver, "--solver", "NAME", "the algorithm", choices=["auto", *SOLVERS])
    text = "the gap to the optimum at which to stop (default: 1e-5 for the likelihood, 1e-4 with --search, else 1e-8)"
    add(solver, "--tol", "GAP", text, float)
    add(solver, "--max-iter", "N", "the most iterations (default: the solver's own limit)", values.count)
    add(solver, "--time-limit", "SECONDS", "the most seconds in the solver (default: no limit)", float)
    add(solver, "--seed", "SEED", "of every random choice (default: a new one each time)", values.seed, parameter="random_state")


def run(arguments: argparse.Namespace, console: Console) -> int:
    """Carry out ``ksos fit``; the model is written whether or not the solver converged, or was interrupted."""
    given = _parameters(arguments)
    if arguments.target is not None:
        return fit_conditional(arguments, given, console)
    if arguments.categories is not None:
        raise UsageError("--categories is for a fit with --target: a density is one of numbers")
    require_writable(arguments.output)
    require_writable(arguments.checkpoint)
    if arguments.search and arguments.checkpoint is not None:
        raise UsageError("--checkpoint is for a fit without --search")
    table = open_samples(arguments, console, in_chunks=arguments.checkpoint is not None)
    table.require_different_names()
    measure = box_measure(arguments, column_names(table.names, table.n_features))
    if isinstance(table, Table) and measure is not None:
        _require_inside(measure, table)
    if given.get("objective") == "l2" and "l2" not in OBJECTIVES:
        if isinstance(table, Stream):
            raise UsageError("--objective l2 needs all rows in memory; give one CSV or NPY file, or another objective")
        given["objective"] = SquaredL2(_embedded(table), relative=True)
    warnings.simplefilter("ignore", ConvergenceWarning)  # said below, with what became of the model
    estimator: KernelSoSDensity | KernelSoSDensityCV
    told: dict[str, Any] = {}
    if arguments.search:
        estimator = KernelSoSDensityCV(measure=measure, **given)
    else:
        steps = {"max_iter": given.pop("max_iter")} if "max_iter" in given else {}
        watched = {"callback": _watcher(console, arguments.verbose), **steps}
        given["solver"] = replace(as_solver(given.get("solver", "auto")), **watched)
        estimator = KernelSoSDensity(measure=measure, **given)
        told = {"checkpoint": arguments.checkpoint}
    try:
        estimator.fit(table.samples, sample_weight=table.weights, **told)
    except KeyboardInterrupt:
        if "distribution_" in vars(estimator):  # the best so far
            estimator.distribution_.with_feature_names(table.names).save(arguments.output)
            console.note(f"{arguments.output} holds the best density found")
        raise
    estimator.distribution_.with_feature_names(table.names).save(arguments.output)
    if arguments.checkpoint is not None:
        os.remove(arguments.checkpoint)
    if isinstance(table, Stream):
        table.reading.finish(table.source)
    n, d = table.n_samples, table.n_features
    if isinstance(estimator, KernelSoSDensityCV):
        fitted, status, how = estimator.best_estimator_, estimator.status_, _searched(estimator)
    else:
        fitted, status, how = estimator, estimator.solution_.status, {}
    names = {"feature_names": None if table.names is None else list(table.names)}
    value = {"output": arguments.output, "n_samples": n, "n_features": d, **names, **_summary(fitted), **how, "status": status}
    console.answer(arguments.json, value, _report(estimator, fitted, arguments.output, n))
    if status == "solved":
        return DONE
    early = f"{status}: the search ended before everything was tried; raise --time-limit"
    message = fitted.solution_.message if status == fitted.solution_.status else early
    console.note(f"not converged: {message}; {arguments.output} holds the best density found")
    return NOT_CONVERGED


def _embedded(table: Table) -> MeanEmbedding:
    """The rows as a distribution; the least-squares criterion asks for points and weights alone, so any kernel will do."""
    return MeanEmbedding(table.points, as_weights(table.weights, table.points.shape[0], "weights"), kernel=Gaussian(1.0))


def _parameters(arguments: argparse.Namespace) -> dict[str, Any]:
    """The parameters of the estimator, as far as they were given."""
    given = {name: value for name, value in vars(arguments).items() if name in {*_DEFAULTS, *_SEARCHED} and name != "verbose"}
    known, other = (_SEARCHED, "is what --search chooses by itself") if arguments.search else (set(_DEFAULTS), "needs --search")
    for name in given:
        if name not in known:
            flag = {"cv": "folds", "random_state": "seed"}.get(name, name).replace("_", "-")
            raise UsageError(f"--{flag} {other}; leave it out" if arguments.search else f"--{flag} {other}")
    if arguments.search and given.get("objective") == "l2":
        raise UsageError("a search judges by l2 with --criterion l2; its --objective is likelihood or squared_mmd")
    if given.get("reference") == "none":
        given["reference"] = None
    return given


def _require_inside(box: Box, table: Table) -> None:
    """Refuse rows that count where the density would have to be 0, as the estimator does, but by their place in the file."""
    n = table.points.shape[0]
    counts = True if table.weights is None else table.weights > 0.0
    outside = (~box.contains(table.points) & counts).nonzero()[0]
    if outside.size:
        index = int(outside[0])
        x = table.points[index]
        k = int(((x < box.low) | (x > box.high)).argmax())
        feature = f"feature {k + 1}" if table.names is None else excerpt(table.names[k])
        raise InputError(
            f"{table.source}, row {table.rows[index]}: {feature} is {x[k]}, outside [{box.low[k]}, {box.high[k]}]; "
            f"{outside.size} of {n} rows lie outside the box: widen --low and --high, or remove the rows"
        )


def _summary(estimator: KernelSoSDensity) -> dict[str, Any]:
    """What a program may want to know of the fit; of a search, of the best one that it corrects or mixes."""
    solution, d = estimator.solution_, estimator.n_features_in_
    sizes = {"n_support": estimator.support_points_.shape[0], "n_landmarks": estimator.landmarks_.shape[0], "rank": solution.rank}
    parts = {"kernel": described(solution.distribution.kernel, d), "measure": described(solution.distribution.measure, d)}
    bandwidths = {"bandwidth": estimator.bandwidth_.tolist(), "embedding_bandwidth": estimator.embedding_bandwidth_.tolist()}
    rest = {"regularization": estimator.regularization_, **solution.summary(), "time": solution.time}
    return {**sizes, **parts, **bandwidths, **rest}


def _searched(estimator: KernelSoSDensityCV) -> dict[str, Any]:
    """What held-out rows said."""
    return {"held_out_score": float(estimator.best_score_), "relative_regularization": float(estimator.relative_regularization_)}


def _report(estimator: KernelSoSDensity | KernelSoSDensityCV, fitted: KernelSoSDensity, output: str, n: int | None) -> list[str]:
    """The same for a reader, in two or three lines."""
    density, solution = fitted.solution_.distribution, fitted.solution_
    (m, d), rows = density.support_points.shape, "the rows of the checkpoint" if n is None else f"{n} rows"
    if isinstance(estimator, KernelSoSDensity):
        lines = [f"{output}: a density in d = {d} from {rows}: {m} support points, rank {density.rank}, {density.kernel!r}"]
    else:
        lines = [f"{output}: a density in d = {d} from {rows}: {estimator.distribution_!r}"]
        lines.append(f"held-out score {estimator.best_score_:.6g} per row; the best of its sums of squares has {m} support points:")
    return [
        *lines,
        f"{solution.status} by {solution.solver} in {solution.n_iter} iterations, {solution.time:.2f} s: "
        f"objective {solution.objective:.6e}, gap {solution.gap:.1e}",
    ]


def _watcher(console: Console, verbose: bool) -> Callable[[Progress], None] | None:
    """What prints the progress of the solver in lines that stay, if they were asked for; a terminal shows it anyway."""
    least = float("inf")

    def lasting(progress: Progress) -> None:
        nonlocal least
        if progress.gap <= 0.5 * least:
            least = progress.gap
            where = f"iteration {progress.n_iter}, objective {progress.objective:.6e}"
            console.note(f"{where}, gap {progress.gap:.1e}, {progress.time:.1f} s")

    return lasting if verbose else None
