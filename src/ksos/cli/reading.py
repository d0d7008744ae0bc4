"""The table that a command reads: its options, and its columns in the order of a model."""

from __future__ import annotations

import argparse
from collections.abc import Sequence

from ksos import SoSDensity, SoSMixture
from ksos.cli import values
from ksos.cli.console import Console, UsageError
from ksos.data import Stream, Table, TableOptions, excerpt, open_table

__all__ = [
    "READING",
    "add_reading_options",
    "add_table_arguments",
    "column_names",
    "in_model_order",
    "open_samples",
    "table_options",
]

READING = ("columns", "exclude", "weights", "clean", "drop_missing", "header", "delimiter")
READING += ("decimal", "encoding")
"""The options that :func:`add_reading_options` adds."""


def add_table_arguments(
    parser: argparse.ArgumentParser, *, several: bool = False, weighted: bool = True
) -> None:
    """Add DATA, which may be ``several`` files, and how to read it."""
    text = (
        "numbers, one row per sample: a file of CSV (also compressed), NPY, Parquet or Arrow, a"
        " folder of them, a pattern like 'd/*.csv'; - reads CSV from the standard input"
    )
    parser.add_argument("data", nargs="+" if several else None, metavar="DATA", help=text)
    add_reading_options(parser, weighted=weighted)


def add_reading_options(parser: argparse.ArgumentParser, *, weighted: bool = True) -> None:
    """Add how to read a table; ``weighted``: whether rows can have weights."""
    add = parser.add_argument_group("reading the table").add_argument
    text = (
        "names or 1-based numbers of the columns to use, separated by commas (default: all but the"
        " weights)"
    )
    add("--columns", type=values.columns, metavar="LIST", help=text)
    text = "names or numbers of columns to drop, such as text, dates or an index; may be repeated"
    add("--exclude", type=values.columns, action="extend", metavar="LIST", help=text)
    if weighted:
        text = "name or 1-based number of the column that holds the weights of the rows"
        add("--weights", type=str.strip, metavar="COLUMN", help=text)
    else:
        parser.set_defaults(weights=None)
    text = (
        "drop columns of text and dates, an index, columns with most cells missing, and rows with"
        " missing cells, and report which"
    )
    add("--clean", action="store_true", help=text)
    text = "drop rows with a missing cell (empty, NA, NaN, ?, -) in a column that is used"
    add("--drop-missing", action="store_true", help=text)
    text = "whether row 1 of a CSV file holds names (default: it does if it holds no number)"
    add("--header", action=argparse.BooleanOptionalAction, default=None, help=text)
    text = (
        "what separates the cells of a CSV file; 'tab' for tabulators (default: detected, and"
        " reported if it is not a comma)"
    )
    add("--delimiter", type=values.delimiter, metavar="CHARACTER", help=text)
    text = "what stands before the decimals, . or , (default: detected, and reported if a comma)"
    add("--decimal", choices=[".", ","], metavar="CHARACTER", help=text)
    text = "encoding of a CSV file, such as latin-1 (default: by its byte-order mark, else UTF-8)"
    add("--encoding", type=values.encoding, metavar="NAME", help=text)


def table_options(
    arguments: argparse.Namespace,
    features: Sequence[str] | None = None,
    categories: Sequence[str] | None = None,
) -> TableOptions:
    """What :func:`add_reading_options` added, for the ``features`` of a model, if there is one."""
    if arguments.columns is not None and arguments.exclude is not None:
        raise UsageError("give either --columns or --exclude")
    given = {name: vars(arguments)[name] for name in READING}
    return TableOptions(**given, features=features, categories=categories)


def open_samples(
    arguments: argparse.Namespace,
    console: Console,
    density: SoSDensity | SoSMixture | None = None,
    *,
    in_chunks: bool = False,
) -> Table | Stream:
    """DATA, whole or in chunks, with the features of a ``density`` in its order."""
    if density is None:
        return open_table(
            arguments.data, table_options(arguments), console.note, in_chunks=in_chunks
        )
    names = density.feature_names
    table = open_table(arguments.data, table_options(arguments, names), console.note)
    return in_model_order(table, names, density.n_features, arguments, console)


def in_model_order(
    table: Table | Stream,
    names: Sequence[str] | None,
    d: int,
    arguments: argparse.Namespace,
    console: Console,
) -> Table | Stream:
    """The columns that are features of the model in MODEL, in the order of the model."""
    listed = "" if names is None else ", " + ", ".join(map(excerpt, names))
    if names is None or table.names is None or not set(names) <= set(table.names):
        if table.n_features != d:
            raise ValueError(
                f"{table.source} gives {table.n_features} columns, but the model in"
                f" {arguments.model} has {d} features{listed}; choose the columns with --columns"
            )
        if names is not None and table.names is not None:
            raise ValueError(
                f"{table.source}: the columns are {', '.join(map(excerpt, table.names))}, but the"
                f" features of {arguments.model} are{listed.removeprefix(',')}; rename the columns"
            )
        if names is not None:
            console.warning(
                f"{table.source} has no header: its columns are taken for {', '.join(names)}, in"
                " this order"
            )
        return table
    extra = [name for name in table.header or () if name not in names and name != arguments.weights]
    if extra and arguments.columns is None and arguments.exclude is None:
        console.note(
            f"{table.source}: dropped columns that are no features of the model:"
            f" {', '.join(map(excerpt, extra))}"
        )
    return table.take([table.names.index(name) for name in names])


def column_names(names: Sequence[str] | None, d: int) -> list[str]:
    """What d columns are called: by their names, or x1, x2, … if they have none."""
    return [f"x{k + 1}" for k in range(d)] if names is None else list(names)
