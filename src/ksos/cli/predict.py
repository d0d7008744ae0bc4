"""``ksos predict``: one column given the others."""

import argparse
from dataclasses import replace
from typing import Any

from ksos.cli import values
from ksos.cli.ask import csv_lines
from ksos.cli.console import Console, UsageError
from ksos.cli.options import READING, data_argument, in_model_order, table_options
from ksos.data import read_table
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
    return console.answer(arguments.json, value, csv_lines(pandas.DataFrame(found), []))
