"""``ksos fit --target COLUMN``: the density of one column given the others."""

from __future__ import annotations

import argparse
import warnings
from collections.abc import Mapping
from typing import Any

import numpy as np
from sklearn.exceptions import ConvergenceWarning

from ksos import KernelSoSConditional
from ksos.cli.columns import column_names, find_features
from ksos.cli.console import DONE, Console, InputError, UsageError, require_writable
from ksos.cli.tables import read_table, table_options
from ksos.estimators.conditional_file import StoredConditional, save_conditional

__all__ = ["fit_conditional"]

_ALLOWED = ("time_limit", "random_state")


def fit_conditional(
    arguments: argparse.Namespace, given: Mapping[str, Any], console: Console
) -> int:
    """Fit :class:`ksos.KernelSoSConditional` to the table and write all of it; ``given`` are the parameters of a density that were set."""
    for name in given:
        if name not in _ALLOWED:
            raise UsageError(
                f"--{name.replace('_', '-')} is for a density without --target; leave it out"
            )
    if (
        arguments.search
        or arguments.checkpoint is not None
        or arguments.low is not None
        or arguments.high is not None
    ):
        raise UsageError(
            "--search, --checkpoint, --low and --high are for a density without --target; leave them out"
        )
    require_writable(arguments.output)
    table = read_table(
        arguments.data,
        table_options(arguments, categories=arguments.categories or []),
        console.note,
    )
    table.require_different_names()
    n, d = table.points.shape
    names = column_names(table.names, d)
    (target,) = find_features([arguments.target], names, f"{table.source}: --target")
    if d < 2:
        raise InputError(
            f"{table.source} has one column; a target needs at least one other column to be predicted from"
        )
    if table.words is not None and table.words[target] is not None:
        raise InputError(
            f"{table.source}: --target {names[target]} is among the --categories; a density needs a target of numbers"
        )
    rest = [k for k in range(d) if k != target]
    x, y = table.take(rest), table.take([target]).as_frame()
    console.status(
        f"fitting regressors and the density of {names[target]} given {d - 1} columns ..."
    )
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", ConvergenceWarning)
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
    u = estimator.residual_density_
    depends = "nothing else" if estimator.given_ is None else str(estimator.given_)
    value = {
        "output": arguments.output,
        "n_samples": n,
        "target": names[target],
        "columns": [names[k] for k in rest],
        "shape_depends_on": estimator.given_,
        "transform": estimator.transform_,
    }
    of = (
        names[target] if estimator.transform_ is None else f"{estimator.transform_} {names[target]}"
    )
    lines = [
        f"{arguments.output}: the density of {names[target]} given {d - 1} columns from {n} rows",
        f"scaled residuals of {of}: {u!r}; their shape depends on {depends}",
        f"ask it with: ksos predict {arguments.output} DATA --quantiles 0.05,0.5,0.95",
    ]
    console.answer(arguments.json, value, lines)
    return DONE
