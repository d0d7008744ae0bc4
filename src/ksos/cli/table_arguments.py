"""The options with which a command reads a table, the same wherever one is read."""

from __future__ import annotations

import argparse

from ksos.cli import values
from ksos.cli.table_types import TableOptions

__all__ = ["add_reading_options", "add_table_arguments", "table_options"]


def add_table_arguments(parser: argparse.ArgumentParser) -> None:
    """Add DATA and how to read it."""
    parser.add_argument(
        "data", metavar="DATA", help="a CSV or NPY file of numbers, one row per sample; - reads CSV from the standard input"
    )
    add_reading_options(parser)


def add_reading_options(parser: argparse.ArgumentParser) -> None:
    """Add how to read it."""
    group = parser.add_argument_group("reading the table")
    group.add_argument(
        "--columns",
        type=values.columns,
        metavar="LIST",
        help="names or 1-based numbers of the columns to use, separated by commas (default: all but the weights)",
    )
    group.add_argument("--weights", metavar="COLUMN", help="name or 1-based number of the column that holds the weights of the rows")
    group.add_argument(
        "--header",
        action=argparse.BooleanOptionalAction,
        default=None,
        help="whether row 1 of a CSV file holds names (default: it does if it holds no number)",
    )
    group.add_argument(
        "--delimiter",
        type=values.delimiter,
        metavar="CHARACTER",
        help="what separates the cells of a CSV file; 'tab' for tabulators (default: ',')",
    )


def table_options(arguments: argparse.Namespace) -> TableOptions:
    """What :func:`add_table_arguments` was told."""
    weights = None if arguments.weights is None else arguments.weights.strip()
    return TableOptions(arguments.columns, weights, arguments.header, arguments.delimiter)
