"""``ksos fit``: a density from the rows of a table; ``ksos predict``: a column given the others."""

import argparse
import contextlib
import math
import os
import warnings
from collections.abc import Iterable
from dataclasses import replace
from functools import partial
from types import SimpleNamespace
from typing import Any

import numpy as np
from sklearn.exceptions import ConvergenceWarning

from ksos import (
    KernelSoSConditional,
    KernelSoSDensity,
    KernelSoSDensityCV,
    MeanEmbedding,
    Solution,
    TableDensity,
)
from ksos.cli import values
from ksos.cli.ask import csv_lines
from ksos.cli.console import DONE, NOT_CONVERGED, Console, UsageError, require_writable
from ksos.cli.options import (
    READING,
    TABLE,
    WEIGHTS,
    box_arguments,
    box_sides,
    column_names,
    composition,
    data_argument,
    in_model_order,
    shortened,
    table_options,
)
from ksos.data import (
    KINDS,
    Stream,
    Table,
    excerpt,
    find_columns,
    open_table,
    read_table,
)
from ksos.estimators import METHODS, MOST_SAMPLES, OBJECTIVES, PENALTIES, load_conditional
from ksos.functionals import SquaredL2
from ksos.ground import Run, as_weights, require_different
from ksos.kernels import KERNELS, Gaussian
from ksos.measures import Box
from ksos.solvers import SOLVERS, Auto
from ksos.space import RULES, SELECTIONS

_PARAMETERS = {"folds": "cv", "seed": "random_state", "kinds": "columns"}
"""Of the estimators, where the option has another name."""


_UNITS = {
    "log_likelihood": "nats per row",
    "l2": "(2p − ∫p², per row)",
    "mmd": "(minus the squared MMD)",
}
_DISTANCES = {"squared_mmd": " (squared MMD)", "mmd": " (MMD)"}
_OTHER = {"search": "mmd", "mmd": "search"}
_method = partial(values.argument, group="how to fit")
_model = partial(values.argument, group="the density")
_search = partial(values.argument, group="options of --method search")
_paper = partial(values.argument, group="options of --method mmd")
_limits = partial(values.argument, group="limits")
# the least number of folds is 2: one would hold out everything
FIT = [
    data_argument(several=True),
    values.argument(
        "-o",
        "--output",
        required=True,
        metavar="MODEL",
        help="the file for the density; ksos score, sample, query, plot and inspect read it",
    ),
    _method(
        "--method",
        choices=list(_OTHER),
        help="search: cross-validation chooses the model (default). mmd: the paper's fit, with the"
        " parameters that you set",
    ),
    values.argument(
        "--target",
        metavar="COLUMN",
        help="name or 1-based number of the column whose density given the others is wanted; ksos"
        " predict reads that model",
    ),
    values.argument(
        "--verbose",
        action="store_true",
        help="add the details of the solver, and print progress on stderr in lines that stay (a"
        " terminal shows progress anyway)",
    ),
    _model(
        "--kernel",
        choices=list(KERNELS),
        metavar="NAME",
        help="the model kernel: %(choices)s (default: gaussian)",
    ),
    _model(
        "--n-support",
        type=values.count,
        metavar="M",
        help="the most support points to use (default: chosen by the method)",
    ),
    _model(
        "--reference",
        choices=["normal", "mixture", "none"],
        metavar="NAME",
        help="a simple density that is fitted first, and that the kernel sum of squares corrects:"
        " %(choices)s (default: mixture; with --method mmd none)",
    ),
    _model(
        "--objective",
        choices=[*OBJECTIVES, "l2"],
        metavar="NAME",
        help="the distance to the data: %(choices)s (default: likelihood, with --method mmd"
        " squared_mmd; mmd and l2 only there)",
    ),
    *box_arguments("the box on which the density lives", "the box"),
    _search(
        "--criterion",
        choices=["log_likelihood", "l2", "mmd"],
        metavar="NAME",
        help="how held-out rows judge a fit: %(choices)s (default: log_likelihood; l2 resists"
        " outliers)",
    ),
    _search(
        "--folds",
        type=values.whole(2),
        metavar="K",
        help="into how many parts the rows are split (default: 5; 10 for at most 200 rows)",
    ),
    _search(
        "--bandwidths",
        type=values.number_list,
        metavar="LIST",
        help="bandwidths to compare, as multiples of the one that suits a kernel density estimate,"
        " separated by commas",
    ),
    _search(
        "--relative-regularizations",
        type=values.number_list,
        metavar="LIST",
        help="weights lambda of the penalty to compare, in units of w0, separated by commas; inf is"
        " the reference itself",
    ),
    _search(
        "--kinds",
        type=values.kinds,
        metavar="LIST",
        help="kinds of columns, such as rain=nonnegative,visits=count,share=0:1,wind=circular:360;"
        f" others: {', '.join(KINDS)} (default: text is categorical, numbers are numeric)",
    ),
    _search(
        "--n-jobs",
        type=values.count,
        metavar="N",
        help="processes that fit the folds, -1 for all processors (default: 1)",
    ),
    _paper(
        "--bandwidth",
        type=values.expected(values.SEVERAL, RULES)(values.one_or_several),
        metavar="SIGMA",
        help=f"{', '.join(RULES)}, a number, or one per column, with commas (default: auto)",
    ),
    _paper(
        "--support",
        choices=SELECTIONS,
        metavar="NAME",
        help="how to choose the support points among the rows: %(choices)s (default: auto)",
    ),
    _paper(
        "--embedding-bandwidth",
        type=values.numbers,
        metavar="SIGMA",
        help="bandwidth of the kernel that measures MMD, a number, or one per column separated by"
        " commas (default: the model's)",
    ),
    _paper(
        "--landmarks",
        type=values.count,
        metavar="L",
        help="project embeddings on this many random rows (default: on the support points)",
    ),
    _paper(
        "--penalty",
        choices=list(PENALTIES),
        metavar="NAME",
        help="what is regularized: %(choices)s (default: trace)",
    ),
    _paper(
        "--regularization",
        type=values.expected("a number", ["auto"])(float),
        metavar="LAMBDA",
        help="its weight lambda, a number or auto (default: auto)",
    ),
    _paper(
        "--relative-regularization",
        type=values.number,
        metavar="LAMBDA",
        help="instead of it: lambda in units of w0, as in the search",
    ),
    _paper(
        "--solver",
        choices=["auto", *SOLVERS],
        metavar="NAME",
        help="the algorithm: %(choices)s (default: auto)",
    ),
    _paper(
        "--max-iter",
        type=values.count,
        metavar="N",
        help="the most iterations (default: the solver's own limit)",
    ),
    _paper(
        "--checkpoint",
        metavar="FILE",
        help="a file from which a fit that was killed goes on; the rows are read in chunks, and it"
        " is removed when the model is written",
    ),
    _limits(
        "--tol",
        type=float,
        metavar="GAP",
        help="the gap to the optimum at which to stop (default: 1e-4; with --method mmd 1e-8, or"
        " 1e-5 for the likelihood)",
    ),
    _limits(
        "--time-limit",
        type=float,
        metavar="SECONDS",
        help="the most seconds for the whole fit (default: no limit)",
    ),
    _limits(
        "--seed",
        type=values.seed,
        metavar="SEED",
        help="of every random choice (default: 0 for the search and --target; with --method mmd a"
        " new one each time)",
    ),
    *READING,
    WEIGHTS,
]


def fit(arguments: argparse.Namespace, console: Console) -> int:
    """Fit a density to the rows of a table, save it, and print what its certificate
    guarantees.

    By default, cross-validation chooses the model (--method search). The paper's
    fit by maximum mean discrepancy, with parameters that you may set yourself, is
    --method mmd. With --target, the model is the density of one column given the
    others, for ksos predict.

    examples:
      ksos fit cars.csv -o cars.ksos --clean
      ksos fit cars.csv -o cars.ksos --columns hp,mpg --drop-missing --method mmd
      ksos fit cars.csv -o mpg.ksos --clean --target mpg
    """
    if arguments.target is not None:
        return _fit_conditional(arguments, console)
    method = arguments.method or "search"
    given = _checked(arguments, method)
    checkpoint = given.pop("checkpoint", None)
    require_writable(arguments.output)
    require_writable(checkpoint)
    plain = {"objective", "criterion", "kernel", "reference"}
    any_kind = method == "search" and plain.isdisjoint(given)
    any_kind = any_kind and arguments.low is None and arguments.high is None
    options = table_options(arguments, any_kind=any_kind)
    table: Any = open_table(arguments.data, options, console.note, in_chunks=checkpoint is not None)
    require_different(table.names or (), f"{table.source} has columns")
    sides = box_sides(arguments, column_names(table.names, table.n_features))
    measure = None if sides is None else Box(*sides)
    if isinstance(table, Table) and measure is not None:
        _require_inside(measure, table)
    if given.get("objective") == "l2":
        given["objective"] = _squared_l2(table)
    estimator: Any
    extra: dict[str, Any] = {}
    given |= {"measure": measure, "verbose": int(arguments.verbose)}
    if method == "search":
        estimator = KernelSoSDensityCV(**given)
    else:
        if "max_iter" in given:
            solver: Any = SOLVERS.get(given.pop("solver", "auto"), Auto())
            given["solver"] = replace(solver, max_iter=given.pop("max_iter"))
        estimator, extra = KernelSoSDensity(**given), {"checkpoint": checkpoint}

    def save() -> None:
        density = estimator.distribution_
        if not isinstance(density, TableDensity):
            density = density.with_feature_names(table.names)
        density.save(arguments.output)

    # what the library prints goes to stderr: the standard output is for the answer
    notes: Any = SimpleNamespace(write=console.note, flush=lambda: None)
    # reported below, with what became of the model
    warnings.simplefilter("ignore", ConvergenceWarning)
    try:
        with contextlib.redirect_stdout(notes):
            as_kinds = any_kind and isinstance(table, Table)
            samples = table.as_frame(whole=True) if as_kinds else table.points
            estimator.fit(samples, sample_weight=table.weights, **extra)
    except ValueError as error:
        if not str(error).startswith("X cannot be modeled"):
            raise
        drop = "--exclude drops columns, --clean all of text and dates"
        raise ValueError(f"{table.source}: {error}; {drop}") from None
    except KeyboardInterrupt:
        if "distribution_" in vars(estimator):
            save()
            console.note(f"{arguments.output} holds the best density found")
        raise
    save()
    if checkpoint is not None:
        os.remove(checkpoint)
    if isinstance(table, Stream):
        console.note(table.report)
    solution = estimator.solution_
    status = estimator.status_ if method == "search" else solution.status
    value = {
        "output": arguments.output,
        "method": method,
        **fit_value(estimator, table, arguments.weights),
        "status": status,
    }
    lines = fit_lines(value, estimator)
    if arguments.verbose:
        lines.append(solver_line(solution))
        if not isinstance(estimator.distribution_, TableDensity):
            lines.append(f"kernel: {solution.space.kernel!r}")
    early = f"{status}: the search ended before everything was tried; raise --time-limit"
    message = solution.message if status == solution.status else early
    lines.append(f"written: {arguments.output}")
    return _answered(arguments, console, value, lines, "" if status == "solved" else message)


def fit_value(estimator: Any, table: Table | Stream, weights: str | None) -> dict[str, Any]:
    """A fit of a density for a program, in full precision."""
    solution, header, names = estimator.solution_, table.header or (), list(table.names or ())
    words = [weights] if weights and names else []
    places = find_columns(words, header, len(header), table.source)
    used = {*names, *(header[k] for k in places)}
    value: dict[str, Any] = {
        "n_samples": table.n_samples,
        "n_dropped": table.n_dropped,
        "n_features": table.n_features,
        "feature_names": names or None,
        "dropped_columns": [name for name in header if names and name not in used],
        **composition(estimator.distribution_),
        "bandwidth": np.asarray(estimator.bandwidth_).tolist(),
        "regularization": float(estimator.regularization_),
    }
    if isinstance(estimator, KernelSoSDensityCV):
        value |= {name: float(number) for name, number in estimator.best_params_.items()}
        corrects = estimator.reference_ is not None
        value |= {
            "held_out_score": float(estimator.best_score_),
            "n_folds": estimator.n_splits_,
            "reference_gap": float(estimator.reference_gap_) if corrects else None,
        }
    else:
        value |= {
            "n_landmarks": estimator.landmarks_.shape[0],
            "embedding_bandwidth": estimator.embedding_bandwidth_.tolist(),
            "relative_regularization": float(estimator.relative_regularization_),
        }
    return {**value, **solution.summary(), "time": solution.time}


def fit_lines(value: dict[str, Any], estimator: Any) -> list[str]:
    """The same for a reader."""
    searched = isinstance(estimator, KernelSoSDensityCV)
    n, m, rank = value["n_components"], value["n_support"], value["rank"]
    names, dropped = value["feature_names"], value["dropped_columns"]
    named = f" ({shortened(names)})" if names else ""
    lost = f"; dropped: {shortened(dropped)}" if dropped else ""
    lines = [rows_line(value, searched), f"columns: {value['n_features']}{named}{lost}"]
    if "kinds" in value:
        listed = [f"{name} {kind}" for name, kind in value["kinds"].items()]
        lines.append(f"kinds: {', '.join(listed)}")
    strength, reference = f"{value['regularization']:.3g}", "a Gaussian"
    if n > 1:
        reference = f"a mixture of {n} Gaussians"
    if searched:
        score = "none, nothing was compared"
        if math.isfinite(value["held_out_score"]):
            unit = _UNITS[estimator.criterion]
            score = f"{value['held_out_score']:.5g} {unit}, {value['n_folds']} folds"
        lines.append(f"held-out score: {score}")
        unit = "w₀" if estimator.reference_ is None else "∫k²dρ"
        strength = f"{value['relative_regularization']:.3g} (units of {unit})"
        if n and estimator.reference in ("auto", "mixture"):
            gap = _bound(value["reference_gap"])
            reference += f", its weights within {gap} nats of the best"
    made = f"a kernel sum of squares of rank {rank}, {m} support point{'s' if m > 1 else ''}"
    made += f", λ = {strength}"
    if n:
        lines.append(f"reference: {reference}")
        made = f"the reference, corrected by {made}"
    if n and not m:
        made = f"the reference itself (λ = ∞), rank {rank}"
    return [*lines, f"density: {made}", certificate_line(estimator)]


def rows_line(value: dict[str, Any], searched: bool = False) -> str:
    """How many rows were read and dropped."""
    n, dropped = value["n_samples"], value["n_dropped"]
    if n is None:
        return "rows: those of the checkpoint"
    of = f" of {n + dropped:,} ({dropped:,} dropped: missing cells)" if dropped else ""
    few = f"; the model is fitted to a subsample of at most {MOST_SAMPLES:,} distinct rows"
    return f"rows: {n:,}{of}{few if searched and n > MOST_SAMPLES else ''}"


def solver_line(solution: Solution) -> str:
    """How the certificate was found."""
    took = f"{solution.status} in {solution.n_iter} iterations and {solution.time:.2f} s"
    return f"solver: {solution.solver}, {took}, objective {solution.objective:.6e}"


def certificate_line(estimator: Any) -> str:
    """How far the saved density can be from the optimum."""
    gap, status = estimator.solution_.gap, estimator.solution_.status
    if gap is None or not math.isfinite(gap):
        return f"certified: not yet, there is no bound on the distance from the optimum ({status})"
    objective = estimator.objective if isinstance(estimator.objective, str) else ""
    unit = " nats" if objective == "likelihood" else ""
    early = "" if status == "solved" else f" ({status})"
    of = _DISTANCES.get(objective, "")
    return f"certified: within {_bound(gap)}{unit} of the optimum{of}{early}"


def _bound(gap: float) -> str:
    return "0" if gap == 0.0 else f"{gap:.1e}"


# The options of these groups that were given, by name.
def _given(arguments: argparse.Namespace, *groups: str) -> dict[str, Any]:
    names = [values.dest(one) for one in FIT if one[0] in groups]
    return {name: value for name in names if (value := vars(arguments)[name]) is not None}


# Options as parameters of an estimator.
def _parameters(given: dict[str, Any]) -> dict[str, Any]:
    return {_PARAMETERS.get(name, name): value for name, value in given.items()}


def _flags(names: Iterable[str]) -> str:
    return ", ".join(f"--{name.replace('_', '-')}" for name in names)


# The parameters of the estimator, if all that were given belong to the method.
def _checked(arguments: argparse.Namespace, method: str) -> dict[str, Any]:
    given = _given(arguments, "the density", f"options of --method {method}", "limits")
    alien = _flags(_given(arguments, f"options of --method {_OTHER[method]}"))
    hint = ""
    if method == "search" and given.get("objective") in ("mmd", "l2"):
        objective = given["objective"]
        alien = f"--objective {objective}"
        hint = f"; a search judges by {objective} with --criterion {objective}"
    if alien:
        belong, them = ("belong", "them") if "," in alien else ("belongs", "it")
        raise UsageError(
            f"{alien} {belong} to --method {_OTHER[method]}, and this is --method {method}; choose"
            f" that method or drop {them}{hint}"
        )
    if given.get("reference") == "none":
        given["reference"] = None
    return _parameters(given)


# The least-squares objective. It depends on points and weights alone: any kernel will do.
def _squared_l2(table: Table | Stream) -> SquaredL2:
    if isinstance(table, Stream):
        raise UsageError(
            "--objective l2 needs all rows in memory; give one CSV or NPY file, or choose"
            " another objective"
        )
    weights = as_weights(table.weights, table.n_samples, "weights")
    return SquaredL2(MeanEmbedding(table.points, weights, kernel=Gaussian(1.0)), relative=True)


# Raise on rows that count where the density would have to be 0.
#
# The estimator does so too, but it does not know their places in the file.
def _require_inside(box: Box, table: Table) -> None:
    counts = True if table.weights is None else table.weights > 0.0
    outside = np.flatnonzero(~box.contains(table.points) & counts)
    if outside.size:
        index = int(outside[0])
        x = table.points[index]
        k = int(((x < box.low) | (x > box.high)).argmax())
        column = f"column {k + 1}" if table.names is None else excerpt(table.names[k])
        raise ValueError(
            f"{table.source}, row {table.rows[index]}: {column} is {x[k]}, outside [{box.low[k]},"
            f" {box.high[k]}]; {outside.size} of {table.n_samples} rows lie outside the box: widen"
            " --low and --high, or remove the rows"
        )


# ``ksos fit --target``: fit the density of one column given the others, and write it.
def _fit_conditional(arguments: argparse.Namespace, console: Console) -> int:
    given = _given(arguments, *(group for group, _, _ in FIT if group not in ("", TABLE)))
    if alien := _flags(name for name in given if name not in ("time_limit", "seed", "kinds")):
        raise UsageError(f"{alien}: for a density without --target; drop it")
    require_writable(arguments.output)
    table = read_table(arguments.data, table_options(arguments, any_kind=True), console.note)
    require_different(table.names or (), f"{table.source} has columns")
    d = table.n_features
    names = column_names(table.names, d)
    (place,) = find_columns([arguments.target], names, d, table.source)
    target = names.pop(place)
    if d < 2:
        raise ValueError(
            f"{table.source} has one column; a target needs at least one other column to be"
            " predicted from"
        )
    x = table.take([k for k in range(d) if k != place]).as_frame(whole=True)
    y = replace(table.take([place]), names=(target,)).as_frame(whole=True)[target]
    Run.current().tell(f"fitting models of {target} given {d - 1} columns ...")
    estimator = KernelSoSConditional(**_parameters(given))
    with warnings.catch_warnings(record=True) as caught:
        estimator.fit(x, y, sample_weight=table.weights)
    late = ""
    for one in caught:
        if issubclass(one.category, ConvergenceWarning):
            late = late or str(one.message)
        else:
            console.warning(str(one.message))
    estimator.save(arguments.output)
    value = {
        "output": arguments.output,
        "n_samples": table.n_samples,
        "n_dropped": table.n_dropped,
        "target": target,
        "columns": names,
    }
    next_line = f"written: {arguments.output} (next: ksos predict {arguments.output} DATA"
    if "classes_" in vars(estimator):
        value |= {
            "levels": estimator.classes_.tolist(),
            "status": "time_limit" if late else "solved",
        }
        of = f"probabilities of {estimator.classes_.size} levels of {target}"
        lines = [rows_line(value), f"{of} given {shortened(names)}", f"{next_line})"]
        return _answered(arguments, console, value, lines, late)
    inner, made = estimator.residual_estimator_, composition(estimator.residual_density_)
    status = "solved" if not late else inner.status_ if inner.status_ != "solved" else "time_limit"
    depends = estimator.given_
    if depends is None:
        shape = "nothing else"
    elif isinstance(depends, str):
        shape = f"the {depends}"
    else:
        shape = ", ".join(names[k] for k in depends)
    transform = "" if estimator.transform_ is None else f" (through {estimator.transform_})"
    of = f"{made['n_components']} Gaussians, " if made["n_components"] else ""
    value |= {
        "transform": estimator.transform_,
        "shape_depends_on": depends,
        **made,
        "gap": inner.solution_.gap,
        "status": status,
    }
    lines = [
        rows_line(value),
        f"density: {target}{transform} given {shortened(names)}",
        f"scaled residuals: {of}rank {made['rank']}; their shape depends on {shape}",
        certificate_line(inner),
        *([solver_line(inner.solution_)] if arguments.verbose else []),
        f"{next_line} --quantiles 0.05,0.5,0.95)",
    ]
    return _answered(arguments, console, value, lines, late)


# Print what was fitted, and what was not, since it was ``late``, in words.
def _answered(
    arguments: argparse.Namespace,
    console: Console,
    value: dict[str, Any],
    lines: list[str],
    late: str,
) -> int:
    console.answer(arguments.json, value, lines)
    if not late:
        return DONE
    console.note(f"not converged: {late}; {arguments.output} holds the best density found")
    return NOT_CONVERGED


PREDICT = [
    values.argument("model", metavar="MODEL", help="a file written by ksos fit --target"),
    data_argument(several=False),
    values.argument(
        "--quantiles",
        type=values.probabilities,
        metavar="LIST",
        help="quantiles of the target, such as 0.05,0.5,0.95 (default: the mean alone)",
    ),
    values.argument(
        "--interval",
        type=values.number,
        metavar="LEVEL",
        help="an interval that holds the target with this probability, such as 0.9",
    ),
    values.argument(
        "--method",
        choices=METHODS,
        help="of the interval: from the density, or calibrated on held-out rows so that it covers"
        " at least that often (default: density)",
    ),
    values.argument(
        "--unseen",
        choices=["raise", "missing"],
        help="what to do about levels that the fit has not seen: raise an error, or take them for"
        " missing cells (default: raise)",
    ),
    values.argument(
        "--trust",
        action="store_true",
        help="read a model whose regressors are not scikit-learn's: it may run any code",
    ),
    *READING,
]


def predict(arguments: argparse.Namespace, console: Console) -> int:
    """Predict the target of a table, row by row, from a model of ksos fit --target: mean,
    quantiles, intervals, as CSV; of a column of levels, their probabilities.

    With --clean or --drop-missing, rows may be dropped: the first column is then the
    number of the row in the file, the header being row 1.

    examples:
      ksos predict mpg.ksos new.csv
      ksos predict mpg.ksos new.csv --quantiles 0.05,0.5,0.95 > predictions.csv
      ksos predict mpg.ksos new.csv --interval 0.9 --method conformal
    """
    if arguments.method is not None and arguments.interval is None:
        raise UsageError(
            "--method is that of an interval; give --interval too, such as --interval 0.9"
        )
    estimator = load_conditional(arguments.model, trusted=arguments.trust)
    if arguments.unseen is not None:
        estimator.set_params(unseen=arguments.unseen)
    own, (target,) = vars(estimator).get("feature_names_in_"), estimator.target_names_ or ("y",)
    columns = None if own is None else tuple(own)
    options = table_options(arguments, features=columns, any_kind=True)
    table = read_table(arguments.data, options, console.note)
    d = estimator.n_features_in_
    table = in_model_order(table, columns, d, arguments, console, used=[target])
    if columns is not None and table.names is None:
        table = replace(table, names=columns)
    X = table.as_frame()
    import pandas  # heavy, and not needed for --help

    value: dict[str, Any] = {"target": target, "n_samples": table.n_samples}
    found: dict[str, Any] = {}
    if arguments.clean or arguments.drop_missing:
        found["row"] = table.rows
    if "classes_" in vars(estimator) and arguments.quantiles is None and arguments.interval is None:
        found["prediction"] = estimator.predict(X)
        chances = zip(estimator.classes_, estimator.predict_proba(X).T, strict=True)
        found |= {f"P({target} = {level})": shares for level, shares in chances}
    else:
        found["mean"] = estimator.predict(X)
    if arguments.quantiles is not None:
        quantiles = estimator.predict_quantile(X, arguments.quantiles)
        found |= {
            f"q{level:g}": q for level, q in zip(arguments.quantiles, quantiles.T, strict=True)
        }
    if arguments.interval is not None:
        method = arguments.method or "density"
        ends = estimator.predict_interval(X, arguments.interval, method=method)
        found |= {"low": ends[:, 0], "high": ends[:, 1]}
    value |= {name: column.tolist() for name, column in found.items()}
    return console.answer(arguments.json, value, csv_lines(pandas.DataFrame(found)))
