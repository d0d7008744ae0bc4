"""Predict the target of a table, row by row, from a model of ksos fit --target: mean, quantiles,
intervals, as CSV.

With --clean or --drop-missing, rows may be left out: the first column is then the number of the row
in the file, the header being row 1.
"""

from __future__ import annotations

import argparse
from dataclasses import replace

import numpy as np

from ksos.cli import values
from ksos.cli.console import Console, UsageError
from ksos.cli.reading import add_table_arguments, table_options
from ksos.cli.sample import csv_lines
from ksos.data import Table, excerpt, read_table
from ksos.estimators.conditional import METHODS
from ksos.estimators.conditional_file import StoredConditional, load_conditional

__all__ = ["add_arguments", "run"]


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Add what ``ksos predict`` understands."""
    parser.add_argument("model", metavar="MODEL", help="a file written by ksos fit --target")
    add_table_arguments(parser, weighted=False)
    add = parser.add_argument
    text = "quantiles of the target, such as 0.05,0.5,0.95 (default: the mean alone)"
    add("--quantiles", type=values.probabilities, metavar="LIST", help=text)
    add(
        "--interval",
        type=values.number,
        metavar="LEVEL",
        help="an interval that holds the target with this probability, such as 0.9",
    )
    text = (
        "of the interval: from the density, or calibrated on held-out rows so that it covers at"
        " least as often as it says"
    )
    add("--method", choices=METHODS, help=f"{text} (default: density)")
    add(
        "--trust",
        action="store_true",
        help="read a model whose regressors are not scikit-learn's: it may run any code",
    )
    add("--json", action="store_true", help="one JSON object on the standard output")


def run(arguments: argparse.Namespace, console: Console) -> int:
    """Carry out ``ksos predict``."""
    if arguments.method is not None and arguments.interval is None:
        raise UsageError(
            "--method is that of an interval; give --interval too, such as --interval 0.9"
        )
    stored = load_conditional(arguments.model, trust=arguments.trust)
    table = _table_for(stored, arguments, console)
    for (column, known), words in zip(
        stored.categories, filter(None, table.words or ()), strict=True
    ):  # both in the model's order
        if new := [word for word in words if word not in known]:
            listed = ", ".join(map(excerpt, new[:5])) + ", …" * (len(new) > 5)
            console.warning(
                f"{table.source}: {column} is {listed}, which the fit has not seen; such cells"
                " count as missing"
            )
    X = table.as_frame() if stored.named else table.points
    found = {"mean": stored.estimator.predict(X)}
    if arguments.quantiles is not None:
        q = stored.estimator.predict_quantile(X, arguments.quantiles)
        found |= {f"q{level:g}": q[:, k] for k, level in enumerate(arguments.quantiles)}
    if arguments.interval is not None:
        ends = stored.estimator.predict_interval(
            X, arguments.interval, method=arguments.method or "density"
        )
        found |= {"low": ends[:, 0], "high": ends[:, 1]}
    value = {
        "target": stored.target,
        "n_samples": table.n_samples,
        **{name: column.tolist() for name, column in found.items()},
    }
    lines = csv_lines(np.column_stack(list(found.values())), [*found])
    if arguments.clean or arguments.drop_missing:
        value["row"] = table.rows.tolist()
        lines = (f"{row},{line}" for row, line in zip(["row", *value["row"]], lines, strict=True))
    return console.answer(arguments.json, value, lines)


def _table_for(stored: StoredConditional, arguments: argparse.Namespace, console: Console) -> Table:
    """The columns of the model in its order, by name where there are names; the target may be among
    them and is left out.
    """
    d = stored.estimator.n_features_in_
    table = read_table(
        arguments.data,
        table_options(arguments, stored.columns, [name for name, _ in stored.categories]),
        console.note,
    )
    if (
        stored.columns is not None
        and table.names is not None
        and set(stored.columns) <= set(table.names)
    ):
        return table.take([table.names.index(name) for name in stored.columns])
    if table.points.shape[1] != d:
        listed = "" if stored.columns is None else ", " + ", ".join(map(excerpt, stored.columns))
        raise ValueError(
            f"{table.source} gives {table.points.shape[1]} columns, but the model in"
            f" {arguments.model} predicts {excerpt(stored.target)} from {d}{listed}; choose the"
            " columns with --columns"
        )
    if stored.columns is not None and table.names is not None:
        missing = next(name for name in stored.columns if name not in table.names)
        raise ValueError(
            f"{table.source} has no column {excerpt(missing)}, which the model in {arguments.model}"
            " needs; rename the columns"
        )
    if stored.columns is not None:
        console.warning(
            f"{table.source} has no header: its columns are taken for {', '.join(stored.columns)},"
            " in this order"
        )
        return replace(table, names=stored.columns)
    return table
