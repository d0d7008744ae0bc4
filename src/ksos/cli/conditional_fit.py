"""``ksos fit --target COLUMN``: the density of one column given the others."""

from __future__ import annotations

import argparse
import warnings
from collections.abc import Callable, Mapping
from typing import Any

import numpy as np
from sklearn.exceptions import ConvergenceWarning

from ksos import KernelSoSConditional
from ksos.cli.composition import Composition
from ksos.cli.console import DONE, NOT_CONVERGED, Console, UsageError, require_writable
from ksos.cli.fit_report import certificate_line, rows_line, shortened, solver_line
from ksos.cli.reading import column_names, table_options
from ksos.data import Table, find_columns, read_table
from ksos.estimators.conditional_file import StoredConditional, save_conditional

__all__ = ["fit_conditional"]

_ALLOWED = ("time_limit", "random_state")


def fit_conditional(
    arguments: argparse.Namespace, given: Mapping[str, Any], console: Console
) -> int:
    """Fit :class:`ksos.KernelSoSConditional` to the table and write all of it; ``given`` are the
    parameters of a density that were set.
    """
    for name in given:
        if name not in _ALLOWED:
            raise UsageError(
                f"--{name.replace('_', '-')} is for a density without --target; leave it out"
            )
    others = ("method", "checkpoint", "low", "high")
    if alien := [f"--{name}" for name in others if getattr(arguments, name) is not None]:
        raise UsageError(f"{', '.join(alien)}: for a density without --target; leave it out")
    require_writable(arguments.output)
    table = read_table(
        arguments.data,
        table_options(arguments, categories=arguments.categories or []),
        console.note,
    )
    table.require_different_names()
    n, d = table.points.shape
    names = column_names(table.names, d)
    (target,) = find_columns([arguments.target], names, d, table.source)
    if d < 2:
        raise ValueError(
            f"{table.source} has one column; a target needs at least one other column to be"
            " predicted from"
        )
    if table.words is not None and table.words[target] is not None:
        raise ValueError(
            f"{table.source}: --target {names[target]} is among the --categories; a density needs a"
            " target of numbers"
        )
    rest = [k for k in range(d) if k != target]
    x, y = table.take(rest), table.take([target]).as_frame()
    console.status(
        f"fitting regressors and the density of {names[target]} given {d - 1} columns ..."
    )
    late: list[str] = []
    with warnings.catch_warnings():
        warnings.simplefilter("always", ConvergenceWarning)
        warnings.showwarning = _apart(late, warnings.showwarning)
        y = y.ravel() if isinstance(y, np.ndarray) else y[y.columns[0]]
        estimator = KernelSoSConditional(**given).fit(x.as_frame(), y, sample_weight=table.weights)
    labels = [str(k + 1) for k in range(d - 1)] if x.names is None else x.names
    categories = tuple(
        (name, words)
        for name, words in zip(labels, x.words or [None] * (d - 1), strict=True)
        if words is not None
    )
    save_conditional(
        StoredConditional(estimator, x.names, names[target], categories), arguments.output
    )
    inner = estimator.residual_estimator_
    status = "solved" if not late else inner.status_ if inner.status_ != "solved" else "time_limit"
    value = {
        "output": arguments.output,
        "n_samples": n,
        "n_dropped": table.n_dropped,
        "target": names[target],
        "columns": [names[k] for k in rest],
        "transform": estimator.transform_,
        "shape_depends_on": estimator.given_,
        **Composition.of(estimator.residual_density_).described(),
        "gap": inner.solution_.gap,
        "status": status,
    }
    console.answer(
        arguments.json,
        value,
        _lines(estimator, table, names[target], [names[k] for k in rest], arguments),
    )
    if not late:
        return DONE
    console.note(f"not converged: {late[0]}; {arguments.output} holds the best model found")
    return NOT_CONVERGED


def _lines(
    estimator: KernelSoSConditional,
    table: Table,
    target: str,
    columns: list[str],
    arguments: argparse.Namespace,
) -> list[str]:
    """What a reader gets to see."""
    inner, saved = estimator.residual_estimator_, Composition.of(estimator.residual_density_)
    transform = "" if estimator.transform_ is None else f" (through {estimator.transform_})"
    depends = (
        "nothing else"
        if estimator.given_ is None
        else f"the {estimator.given_}"
        if isinstance(estimator.given_, str)
        else None
    )
    if depends is None:
        depends = ", ".join(columns[k] for k in estimator.given_ or ())
    of = f"{saved.n_components} Gaussians, " if saved.n_components else ""
    lines = [
        rows_line(table, searched=False),
        f"density: {target}{transform} given {shortened(columns)}",
        f"scaled residuals: {of}rank {saved.rank}; their shape depends on {depends}",
        certificate_line(inner),
    ]
    if arguments.verbose:
        lines.append(solver_line(inner.solution_))
    return [
        *lines,
        (
            f"written: {arguments.output} (next: ksos predict {arguments.output} DATA --quantiles"
            " 0.05,0.5,0.95)"
        ),
    ]


def _apart(late: list[str], show: Callable[..., None]) -> Callable[..., None]:
    """Shows warnings as before, but for those of convergence, which it keeps."""

    def shown(message: Any, category: Any, *more: Any, **told: Any) -> None:
        if issubclass(category, ConvergenceWarning):
            late.append(str(message))
        else:
            show(message, category, *more, **told)

    return shown
