"""Fit a density to the rows of a table, save it, and print what its certificate guarantees.

By default, cross-validation chooses the model (--method search). The paper's fit by maximum mean
discrepancy, with parameters that you may set yourself, is --method mmd. With --target, the model is
the density of one column given the others, for ksos predict.
"""

from __future__ import annotations

import argparse
import contextlib
import inspect
import io
import os
import warnings
from collections.abc import Callable
from dataclasses import replace
from typing import Any

from sklearn.exceptions import ConvergenceWarning

from ksos import KernelSoSDensity, KernelSoSDensityCV, MeanEmbedding, Progress
from ksos.choose import SUPPORT
from ksos.cli import values
from ksos.cli.boxes import add_box, box_measure
from ksos.cli.conditional_fit import fit_conditional
from ksos.cli.console import (
    DONE,
    NOT_CONVERGED,
    Console,
    UsageError,
    require_writable,
)
from ksos.cli.fit_report import described_fit, lines_of_fit
from ksos.cli.reading import add_table_arguments, column_names, open_samples
from ksos.data import Stream, Table, excerpt
from ksos.estimators.density import MOST_SUPPORT_POINTS, OBJECTIVES, PENALTIES
from ksos.estimators.search import OBJECTIVES as SEARCH_OBJECTIVES
from ksos.functionals import SquaredL2
from ksos.ground.validation import as_weights
from ksos.kernels import KERNELS, Gaussian
from ksos.measures import Box
from ksos.solvers import SOLVERS
from ksos.solvers.minimize import as_solver
from ksos.space.bandwidth import RULES
from ksos.space.support import SELECTIONS

__all__ = ["add_arguments", "run"]

EXAMPLES = """examples:
  ksos fit cars.csv -o cars.ksos --clean
  ksos fit cars.csv -o cars.ksos --columns hp,mpg --drop-missing --folds 10 --json
  ksos fit cars.csv -o cars.ksos --columns hp,mpg --drop-missing --method mmd --low mpg=0
  ksos fit cars.csv -o mpg.ksos --clean --target mpg"""
METHODS = ("search", "mmd")
REFERENCES = ("normal", "mixture", "none")
CRITERIA = ("log_likelihood", "l2", "mmd")
_PARAMETERS: dict[str, set[str]] = {
    "search": set(inspect.signature(KernelSoSDensityCV).parameters),
    "mmd": {
        *inspect.signature(KernelSoSDensity).parameters,
        "max_iter",
    },  # which the solver carries
}
_FLAGS = {"cv": "folds", "random_state": "seed"}
_SUPPORT_DEFAULT = (
    f"{SUPPORT[True]} with a reference and {SUPPORT[False]} without; with --method mmd up to"
    f" {MOST_SUPPORT_POINTS}"
)


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Add what ``ksos fit`` understands: one option per parameter of the estimators that words can
    express.
    """
    add_table_arguments(parser, several=True)
    text = "the file for the density; ksos score, sample, query, plot and inspect read it"
    parser.add_argument("-o", "--output", required=True, metavar="MODEL", help=text)
    text = (
        "search: cross-validation chooses the model (default). mmd: the paper's fit, with the"
        " parameters that you set"
    )
    parser.add_argument("--method", choices=METHODS, help=text)
    text = (
        "name or 1-based number of the column whose density given the others is wanted; ksos"
        " predict reads that model"
    )
    parser.add_argument("--target", metavar="COLUMN", help=text)
    text = "with --target: names or numbers of columns of text that are to be kept, as categories"
    parser.add_argument("--categories", type=values.columns, metavar="LIST", help=text)
    parser.add_argument(
        "--json",
        action="store_true",
        help="one JSON object on the standard output, where null may be infinite",
    )
    text = (
        "add the details of the solver, and print progress on stderr in lines that stay (a terminal"
        " shows progress anyway)"
    )
    parser.add_argument("--verbose", action="store_true", help=text)
    names = ("the density", "options of --method search", "options of --method mmd", "limits")
    model, search, paper, limits = (parser.add_argument_group(name) for name in names)

    def add(
        group: Any,
        flag: str,
        metavar: str,
        text: str,
        parse: Any = None,
        *,
        choices: Any = None,
        parameter: str = "",
    ) -> None:
        parameter = parameter or flag.removeprefix("--").replace("-", "_")
        listed = "" if choices is None else f": {', '.join(choices)}"
        settings: dict[str, Any] = (
            {"type": parse} if choices is None else {"choices": list(choices)}
        )
        group.add_argument(
            flag,
            dest=parameter,
            default=argparse.SUPPRESS,
            metavar=metavar,
            help=f"{text}{listed}",
            **settings,
        )

    per_feature = "a number, or one per feature separated by commas"
    add(model, "--kernel", "NAME", "the model kernel, gaussian by default", choices=KERNELS)
    add(
        model,
        "--n-support",
        "M",
        f"the most support points to use (default: {_SUPPORT_DEFAULT})",
        values.count,
    )
    text = (
        "a simple density that is fitted first, and that the kernel sum of squares corrects"
        " (default: mixture; with --method mmd none)"
    )
    add(model, "--reference", "NAME", text, choices=REFERENCES)
    text = (
        "the distance to the data, likelihood by default, with --method mmd squared_mmd (mmd and l2"
        " only there)"
    )
    add(model, "--objective", "NAME", text, choices=dict.fromkeys([*OBJECTIVES, "l2"]))
    add_box(model.add_argument, "the box on which the density lives")
    text = "how held-out rows judge a fit, log_likelihood by default; l2 resists outliers"
    add(search, "--criterion", "NAME", text, choices=CRITERIA)
    text = "into how many parts the rows are split (default: 5; 10 for at most 200 rows)"
    add(search, "--folds", "K", text, values.whole(2), parameter="cv")
    text = (
        "bandwidths to compare, as multiples of the one that suits a kernel density estimate,"
        " separated by commas"
    )
    add(search, "--bandwidths", "LIST", text, values.numbers)
    text = (
        "weights lambda of the penalty to compare, in units of w0, separated by commas; inf is the"
        " reference itself"
    )
    add(search, "--relative-regularizations", "LIST", text, values.numbers)
    add(
        search,
        "--n-jobs",
        "N",
        "processes that fit the folds, -1 for all processors (default: 1)",
        values.count,
    )
    add(
        paper,
        "--bandwidth",
        "SIGMA",
        f"{', '.join(RULES)}, {per_feature} (default: auto)",
        values.word_or(list(RULES), values.numbers),
    )
    add(
        paper,
        "--support",
        "NAME",
        "how to choose the support points among the rows, auto by default",
        choices=SELECTIONS,
    )
    text = f"bandwidth of the kernel that measures MMD, {per_feature} (default: the model's)"
    add(paper, "--embedding-bandwidth", "SIGMA", text, values.numbers)
    add(
        paper,
        "--landmarks",
        "L",
        "project embeddings on this many random rows (default: on the support points)",
        values.count,
    )
    add(paper, "--penalty", "NAME", "what is regularized, trace by default", choices=PENALTIES)
    text = "its weight lambda, a number or auto (default: auto)"
    add(paper, "--regularization", "LAMBDA", text, values.word_or(["auto"], values.number))
    add(
        paper,
        "--relative-regularization",
        "LAMBDA",
        "instead of it: lambda in units of w0, as in the search",
        values.number,
    )
    add(paper, "--solver", "NAME", "the algorithm, auto by default", choices=["auto", *SOLVERS])
    add(
        paper,
        "--max-iter",
        "N",
        "the most iterations (default: the solver's own limit)",
        values.count,
    )
    text = (
        "a file from which a fit that was killed goes on; the rows are read in chunks, and it is"
        " removed when the model is written"
    )
    paper.add_argument("--checkpoint", metavar="FILE", help=text)
    text = (
        "the gap to the optimum at which to stop (default: 1e-4; with --method mmd 1e-8, or 1e-5"
        " for the likelihood)"
    )
    add(limits, "--tol", "GAP", text, float)
    add(
        limits,
        "--time-limit",
        "SECONDS",
        "the most seconds for the whole fit (default: no limit)",
        float,
    )
    text = (
        "of every random choice (default: 0 for the search and --target; with --method mmd a new"
        " one each time)"
    )
    add(limits, "--seed", "SEED", text, values.seed, parameter="random_state")


def run(arguments: argparse.Namespace, console: Console) -> int:
    """Carry out ``ksos fit``; the model is written whether or not the solver converged, or was
    interrupted.
    """
    if arguments.target is not None:
        return fit_conditional(arguments, _given(arguments), console)
    if arguments.categories is not None:
        raise UsageError("--categories is for a fit with --target: a density is one of numbers")
    method = arguments.method or METHODS[0]
    given = _parameters(arguments, method)
    require_writable(arguments.output)
    require_writable(arguments.checkpoint)
    table = open_samples(arguments, console, in_chunks=arguments.checkpoint is not None)
    table.require_different_names()
    measure = box_measure(arguments, column_names(table.names, table.n_features))
    if isinstance(table, Table) and measure is not None:
        _require_inside(measure, table)
    if given.get("objective") == "l2":
        if isinstance(table, Stream):
            raise UsageError(
                "--objective l2 needs all rows in memory; give one CSV or NPY file, or another"
                " objective"
            )
        given["objective"] = SquaredL2(_embedded(table), relative=True)
    warnings.simplefilter("ignore", ConvergenceWarning)  # said below, with what became of the model
    estimator: KernelSoSDensity | KernelSoSDensityCV
    told: dict[str, Any] = {}
    if method == "search":
        estimator = KernelSoSDensityCV(measure=measure, verbose=int(arguments.verbose), **given)
    else:
        steps = {"max_iter": given.pop("max_iter")} if "max_iter" in given else {}
        watched = {"callback": _watcher(console, arguments.verbose), **steps}
        given["solver"] = replace(as_solver(given.get("solver", "auto")), **watched)
        estimator = KernelSoSDensity(measure=measure, **given)
        told = {"checkpoint": arguments.checkpoint}
    try:
        with (
            contextlib.redirect_stdout(_Notes(console))
            if arguments.verbose
            else contextlib.nullcontext()
        ):
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
        console.note(table.report() or "")
    solution = estimator.solution_
    status = estimator.status_ if isinstance(estimator, KernelSoSDensityCV) else solution.status
    lines = lines_of_fit(
        estimator, table, arguments.weights, arguments.output, verbose=arguments.verbose
    )
    console.answer(
        arguments.json,
        described_fit(estimator, table, arguments.weights, arguments.output, status),
        lines,
    )
    if status == "solved":
        return DONE
    early = f"{status}: the search ended before everything was tried; raise --time-limit"
    message = solution.message if status == solution.status else early
    console.note(f"not converged: {message}; {arguments.output} holds the best density found")
    return NOT_CONVERGED


def _embedded(table: Table) -> MeanEmbedding:
    """The rows as a distribution; the least-squares criterion asks for points and weights alone, so
    any kernel will do.
    """
    return MeanEmbedding(
        table.points,
        as_weights(table.weights, table.points.shape[0], "weights"),
        kernel=Gaussian(1.0),
    )


def _given(arguments: argparse.Namespace) -> dict[str, Any]:
    """The parameters of estimators that were given, by the names that the estimators have for them."""
    known = _PARAMETERS["search"] | _PARAMETERS["mmd"]
    return {
        name: value
        for name, value in vars(arguments).items()
        if name in known and name != "verbose"
    }


def _parameters(arguments: argparse.Namespace, method: str) -> dict[str, Any]:
    """The same, if all of them belong to the method."""
    given = _given(arguments)
    other = METHODS[1 - METHODS.index(method)]
    alien = [
        _FLAGS.get(name, name).replace("_", "-")
        for name in given
        if name not in _PARAMETERS[method]
    ]
    if method == "search" and arguments.checkpoint is not None:
        alien.append("checkpoint")
    if method == "search" and given.get("objective", SEARCH_OBJECTIVES[0]) not in SEARCH_OBJECTIVES:
        alien.append(f"objective {given['objective']}")
    if alien:
        listed = ", ".join(f"--{flag}" for flag in alien)
        belong, them = ("belongs", "it") if len(alien) == 1 else ("belong", "them")
        hint = "; a search judges by l2 with --criterion l2" if alien == ["objective l2"] else ""
        raise UsageError(
            f"{listed} {belong} to --method {other}, and this is --method {method}; choose that"
            f" method or drop {them}{hint}"
        )
    if given.get("reference") == "none":
        given["reference"] = None
    for name in ("bandwidths", "relative_regularizations"):
        if isinstance(given.get(name), float):
            given[name] = [given[name]]
    return given


class _Notes(io.TextIOBase):
    """What the library prints, as notes on stderr: the standard output is for the answer."""

    def __init__(self, console: Console) -> None:
        self._console, self._begun = console, ""

    def writable(self) -> bool:
        return True

    def write(self, text: str) -> int:
        *lines, self._begun = (self._begun + text).split("\n")
        for line in lines:
            self._console.note(line)
        return len(text)


def _require_inside(box: Box, table: Table) -> None:
    """Refuse rows that count where the density would have to be 0, as the estimator does, but by
    their place in the file.
    """
    n = table.points.shape[0]
    counts = True if table.weights is None else table.weights > 0.0
    outside = (~box.contains(table.points) & counts).nonzero()[0]
    if outside.size:
        index = int(outside[0])
        x = table.points[index]
        k = int(((x < box.low) | (x > box.high)).argmax())
        feature = f"feature {k + 1}" if table.names is None else excerpt(table.names[k])
        raise ValueError(
            f"{table.source}, row {table.rows[index]}: {feature} is {x[k]}, outside [{box.low[k]},"
            f" {box.high[k]}]; {outside.size} of {n} rows lie outside the box: widen --low and"
            " --high, or remove the rows"
        )


def _watcher(console: Console, verbose: bool) -> Callable[[Progress], None] | None:
    """What prints the progress of the solver in lines that stay, if they were asked for; a terminal
    shows it anyway.
    """
    least = float("inf")

    def lasting(progress: Progress) -> None:
        nonlocal least
        if progress.gap <= 0.5 * least:
            least = progress.gap
            where = f"iteration {progress.n_iter}, objective {progress.objective:.6e}"
            console.note(f"{where}, gap {progress.gap:.1e}, {progress.time:.1f} s")

    return lasting if verbose else None
