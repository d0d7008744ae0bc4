"""``ksos predict``: one column given the others."""

import argparse
from dataclasses import replace

import numpy as np

from ksos.cli import values
from ksos.cli.ask import csv_lines
from ksos.cli.console import Console, UsageError
from ksos.cli.options import READING, data_argument, in_model_order, table_options
from ksos.data import excerpt, read_table
from ksos.estimators.conditional import METHODS
from ksos.estimators.conditional_file import load_conditional

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
        "--trust",
        action="store_true",
        help="read a model whose regressors are not scikit-learn's: it may run any code",
    ),
    *READING,
]
# in a warning about new categories, which must stay one line
_MOST_WORDS = 5


def predict(arguments: argparse.Namespace, console: Console) -> int:
    """Predict the target of a table, row by row, from a model of ksos fit --target: mean,
    quantiles, intervals, as CSV.

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
    stored = load_conditional(arguments.model, trusted=arguments.trust)
    estimator, columns = stored.estimator, stored.columns
    options = table_options(
        arguments, features=columns, categories=[name for name, _ in stored.categories]
    )
    table = read_table(arguments.data, options, console.note)
    table = in_model_order(
        table, columns, estimator.n_features_in_, arguments, console, used=[stored.target]
    )
    if columns is not None and table.names is None:
        table = replace(table, names=columns)
    # both in the model's order
    text = zip(stored.categories, filter(None, table.words or ()), strict=True)
    for (column, known), words in text:
        if new := [word for word in words if word not in known]:
            listed = ", ".join(map(excerpt, new[:_MOST_WORDS])) + ", …" * (len(new) > _MOST_WORDS)
            console.warning(
                f"{table.source}: {column} is {listed}, which the fit has not seen; such cells"
                " count as missing"
            )
    X = table.as_frame() if stored.named else table.points
    found = {"mean": estimator.predict(X)}
    if arguments.quantiles is not None:
        quantiles = estimator.predict_quantile(X, arguments.quantiles)
        found |= {
            f"q{level:g}": q for level, q in zip(arguments.quantiles, quantiles.T, strict=True)
        }
    if arguments.interval is not None:
        method = arguments.method or "density"
        ends = estimator.predict_interval(X, arguments.interval, method=method)
        found |= {"low": ends[:, 0], "high": ends[:, 1]}
    value = {"target": stored.target, "n_samples": table.n_samples}
    value |= {name: column.tolist() for name, column in found.items()}
    lines = csv_lines(np.column_stack(list(found.values())), [*found])
    if arguments.clean or arguments.drop_missing:
        value["row"] = table.rows.tolist()
        lines = (f"{row},{line}" for row, line in zip(["row", *value["row"]], lines, strict=True))
    return console.answer(arguments.json, value, lines)
