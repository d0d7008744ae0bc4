"""The samples that a command asks for: a table, whole or in chunks, with the features of a model in
the order of the model.
"""

from __future__ import annotations

import argparse
import os
from typing import Protocol

from ksos import SoSDensity, SoSMixture
from ksos.cli.console import Console, InputError, excerpt
from ksos.cli.streams import Stream, is_many
from ksos.cli.tables import Table, read_table, table_options

__all__ = ["open_samples", "read_table_for"]

# a larger CSV or NPY file is not read whole, unless it must be to be cleaned
_WHOLE_BYTES = 1 << 28


def open_samples(
    arguments: argparse.Namespace,
    console: Console,
    *,
    density: SoSDensity | SoSMixture | None = None,
    in_chunks: bool = False,
) -> Table | Stream:
    """DATA, whole if it is one file of moderate size, else in chunks; with the features of a
    ``density`` in the order of the model.
    """
    options, paths = (
        table_options(arguments, None if density is None else density.feature_names),
        arguments.data,
    )
    cleaned = options.clean or options.drop_missing
    large = (
        paths[0] != "-"
        and os.path.isfile(paths[0])
        and os.path.getsize(paths[0]) > _WHOLE_BYTES
        and not cleaned
    )
    samples = (
        Stream.open(paths, options, console)
        if in_chunks or large or is_many(paths)
        else read_table(paths[0], options, console.note)
    )
    order = None if density is None else _model_order(samples, density, arguments, console)
    return samples if order is None else samples.take(order)


def read_table_for(
    density: SoSDensity | SoSMixture, arguments: argparse.Namespace, console: Console
) -> Table:
    """The table DATA, with the features of the ``density`` in MODEL in its order; columns are put
    in order by their names.
    """
    table = read_table(
        arguments.data, table_options(arguments, density.feature_names), console.note
    )
    order = _model_order(table, density, arguments, console)
    return table if order is None else table.take(order)


class _Found(Protocol):
    """What is known of a table whose columns were chosen."""

    @property
    def source(self) -> str: ...
    @property
    def names(self) -> tuple[str, ...] | None: ...
    @property
    def header(self) -> tuple[str, ...] | None: ...
    @property
    def n_features(self) -> int: ...


def _model_order(
    table: _Found, density: SoSDensity | SoSMixture, arguments: argparse.Namespace, console: Console
) -> list[int] | None:
    """Where the features of the ``density`` in MODEL are among the columns of the table; None where
    they are in their order.
    """
    names, d = density.feature_names, density.n_features
    if table.n_features != d:
        raise InputError(
            f"{table.source} gives {table.n_features} columns, but the density in {arguments.model}"
            f" has {d} features{'' if names is None else ', ' + ', '.join(map(excerpt, names))};"
            " choose the columns with --columns"
        )
    if names is None:
        return None
    if table.names is None:
        console.warning(
            f"{table.source} has no header: its columns are taken for {', '.join(names)}, in this"
            " order"
        )
        return None
    if sorted(table.names) != sorted(names):
        pairs = next(
            (found, name)
            for found, name in zip(table.names, names, strict=True)
            if found not in names or name not in table.names
        )
        what = (
            f"the columns are {', '.join(map(excerpt, table.names))}, but the features of"
            f" {arguments.model} are"
        )
        raise InputError(
            f"{table.source}: {what} {', '.join(map(excerpt, names))} ({pairs[0]} is not"
            f" {pairs[1]}); rename the columns"
        )
    left = [name for name in table.header or () if name not in names and name != arguments.weights]
    if left and arguments.columns is None and arguments.exclude is None:
        console.note(
            f"{table.source}: columns that are no features of the model are left out:"
            f" {', '.join(map(excerpt, left))}"
        )
    return None if table.names == tuple(names) else [table.names.index(name) for name in names]
