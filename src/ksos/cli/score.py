"""Print the mean log-density of the rows of a table under a saved density, or the log-density of each row."""

from __future__ import annotations

import argparse

import numpy as np

from ksos import load
from ksos._validation import as_weights
from ksos.cli.console import Console
from ksos.cli.tables import add_table_arguments, read_table_for

__all__ = ["add_arguments", "run"]


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Add what ``ksos score`` understands."""
    parser.add_argument("model", metavar="MODEL", help="a file written by ksos fit")
    add_table_arguments(parser)
    parser.add_argument("--per-row", action="store_true", help="one log-density per row instead of their mean")
    parser.add_argument("--json", action="store_true", help="one JSON object on the standard output; a logarithm of 0 is null")


def run(arguments: argparse.Namespace, console: Console) -> int:
    """Carry out ``ksos score``."""
    density = load(arguments.model)
    table = read_table_for(density, arguments, console)
    n = table.points.shape[0]
    weights = as_weights(table.weights, n, "weights")
    log_density = density.with_feature_names(None).logpdf(table.points)  # the columns are in order
    counted = weights > 0.0  # 0 times −inf is no number
    mean = float(np.sum(weights[counted] * log_density[counted]))
    zeros = int(np.sum(np.isneginf(log_density)))
    if zeros and not arguments.json:
        console.warning(f"{zeros} of {n} rows have density 0 (logarithm -inf)")
    value = {"mean_log_density": mean, "n_samples": n, "n_zero_density": zeros}
    each = log_density.tolist() if arguments.per_row else None
    return console.answer(arguments.json, value if each is None else {**value, "log_density": each}, map(repr, each or [mean]))
