"""Read a table of numbers, CSV (also compressed) or NPY, and refuse everything else in one line that says where the fault is.

The header is detected or declared, every row has one width, every chosen cell is a finite number. Nothing in a file is executed, and a
forged shape allocates nothing.
"""

from __future__ import annotations

import argparse
import bz2
import gzip
import io
import lzma
import os
import sys
import zlib
from array import array
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, BinaryIO, cast

import numpy as np

from ksos import SoSDensity, SoSMixture
from ksos.cli import values
from ksos.cli.console import InputError, UsageError, cell_error, excerpt
from ksos.cli.csv_lines import CsvLines, Row, is_number, not_a_number

__all__ = ["Table", "TableOptions", "add_reading_options", "add_table_arguments", "named_by_position", "read_csv", "read_npy"]
__all__ += ["read_table", "read_table_for", "select_columns", "table_options"]

_NPY_MAGIC = b"\x93NUMPY"
_COMPRESSED: dict[bytes, Any] = {b"\x1f\x8b": gzip.open, b"BZh9": bz2.open, b"\xfd7zXZ\x00": lzma.open}


@dataclass(frozen=True)
class TableOptions:
    """How to read a table: columns (None: all but the weights), the weights, whether there is a header (None: detect), the delimiter."""

    columns: Sequence[str] | None = None
    weights: str | None = None
    header: bool | None = None
    delimiter: str | None = None


@dataclass(frozen=True)
class Table:
    """Finite numbers: points (n, d), and the names of their d columns and the weights (n) if there are any; ``source`` for errors."""

    source: str
    points: np.ndarray
    names: tuple[str, ...] | None
    weights: np.ndarray | None

    def row(self, index: int) -> int:
        """The row of the file, counted from 1, that ``points[index]`` came from; a header is row 1, and no row is left out."""
        return index + (1 if self.names is None else 2)


def add_table_arguments(parser: argparse.ArgumentParser) -> None:
    """Add DATA and how to read it."""
    text = "a CSV (also compressed) or NPY file of numbers, one row per sample; - reads CSV from the standard input"
    parser.add_argument("data", metavar="DATA", help=text)
    add_reading_options(parser)


def add_reading_options(parser: argparse.ArgumentParser) -> None:
    """Add how to read it."""
    add = parser.add_argument_group("reading the table").add_argument
    text = "names or 1-based numbers of the columns to use, separated by commas (default: all but the weights)"
    add("--columns", type=values.columns, metavar="LIST", help=text)
    add("--weights", metavar="COLUMN", help="name or 1-based number of the column that holds the weights of the rows")
    text = "whether row 1 of a CSV file holds names (default: it does if it holds no number)"
    add("--header", action=argparse.BooleanOptionalAction, default=None, help=text)
    text = "what separates the cells of a CSV file; 'tab' for tabulators (default: ',')"
    add("--delimiter", type=values.delimiter, metavar="CHARACTER", help=text)


def table_options(arguments: argparse.Namespace) -> TableOptions:
    """The values of the options that :func:`add_reading_options` added."""
    weights = None if arguments.weights is None else arguments.weights.strip()
    return TableOptions(arguments.columns, weights, arguments.header, arguments.delimiter)


def read_table_for(density: SoSDensity | SoSMixture, arguments: argparse.Namespace) -> Table:
    """The table DATA, which must have a column for each feature of the ``density`` in MODEL."""
    table, d = read_table(arguments.data, table_options(arguments)), density.n_features
    if table.points.shape[1] != d:
        raise InputError(
            f"{table.source} gives {table.points.shape[1]} columns, but the density in {arguments.model} has {d} features; "
            "choose the columns with --columns"
        )
    return table


def read_table(path: str, options: TableOptions | None = None) -> Table:
    """The table in the file ``path``; "-" is CSV from the standard input."""
    options = options or TableOptions()
    if path == "-":
        if sys.stdin is None:
            raise InputError("<stdin>: there is no standard input to read from")
        return read_csv(sys.stdin.buffer, "<stdin>", options)
    if os.path.isdir(path):
        raise InputError(f"{path} is a folder; a CSV or NPY file was expected")
    with open(path, "rb") as stream:
        if not (stream.peek(len(_NPY_MAGIC)).startswith(_NPY_MAGIC) or path.lower().endswith(".npy")):
            return read_csv(stream, path, options)
    if options.header is not None or options.delimiter is not None:
        raise UsageError(f"--header, --no-header and --delimiter are for CSV, but {path} is an NPY file")
    return read_npy(path, options)


def read_csv(stream: BinaryIO, source: str, options: TableOptions) -> Table:
    """The chosen columns of the CSV text in ``stream``, plain or compressed; ``source`` names it in errors."""
    buffered = stream if isinstance(stream, io.BufferedReader) else io.BufferedReader(cast(io.RawIOBase, stream))
    expand = next((expand for magic, expand in _COMPRESSED.items() if buffered.peek(8).startswith(magic)), None)
    if expand is None:
        return _read_lines(buffered, source, options)
    try:
        with expand(buffered, "rb") as text:
            return _read_lines(text, source, options)
    except (EOFError, gzip.BadGzipFile, zlib.error, lzma.LZMAError, OSError) as error:
        raise InputError(f"{source} is compressed, but cannot be decompressed: {error}") from None


def _read_lines(stream: BinaryIO, source: str, options: TableOptions) -> Table:
    lines = CsvLines(stream, source, options.delimiter or ",")
    rows = iter(lines)
    first = next(rows, None)
    if first is None:
        raise cell_error(source, 1, 1, "the file is empty; rows of numbers were expected")
    width = len(first.cells)
    names = [cell.strip() for cell in first.cells] if _has_header(first, lines, options) else None
    features, weights = select_columns(source, width, names, options)
    chosen = [*features, *weights]
    numbers = array("d")
    if names is None:
        numbers.extend(lines.numbers(first, chosen, None))
    for row in rows:
        found = len(row.cells)
        if found != width:
            column = min(found, width) + 1
            what = f"the row has {found} cell{'s' * (found != 1)}, but row 1 has {width} cell{'s' * (width != 1)}{lines.hint(row.line)}"
            raise cell_error(source, row.number, column, what, names[column - 1] if names and column <= width else None)
        numbers.extend(lines.numbers(row, chosen, names))
    if not numbers:
        raise cell_error(source, 2, 1, "only a header, no row of numbers follows it; pass --no-header if row 1 is data")
    matrix = np.frombuffer(numbers, dtype=np.float64).reshape(-1, len(chosen))
    return _table(source, matrix, None if names is None else tuple(names[position] for position in features), bool(weights))


def _has_header(row: Row, lines: CsvLines, options: TableOptions) -> bool:
    """Whether row 1 holds names: it does if the chosen cells are all words, it does not if all are numbers."""
    if options.header is not None:
        return options.header
    cells, asked = row.cells, [*(options.columns or ()), *([] if options.weights is None else [options.weights])]
    if not all(map(named_by_position, asked)):
        return True  # a column chosen by its name
    wanted = [int(column) for column in asked if 1 <= int(column) <= len(cells)] if options.columns else range(1, len(cells) + 1)
    numeric = [is_number(cells[column - 1]) for column in wanted]
    if any(numeric) and not all(numeric):
        column = wanted[numeric.index(False)]
        what = f"{not_a_number(cells[column - 1])}, although other cells of the row are; pass --header if row 1 holds names"
        raise cell_error(lines.source, 1, column, what + lines.hint(row.line))
    return not any(numeric)


def read_npy(path: str, options: TableOptions) -> Table:
    """The chosen columns of the matrix in the NPY file ``path``."""
    try:
        # a mapped file has the size it claims, or mapping fails: the shape in the header is not trusted with an allocation
        stored = np.load(path, mmap_mode="r", allow_pickle=False)
    except (OSError, MemoryError):
        raise
    except Exception as error:  # a damaged header ends in whatever its parser meets first
        raise InputError(f"{path} is not a readable NPY file: {error}") from None
    if not isinstance(stored, np.ndarray) or stored.dtype.kind not in "fiub":
        raise InputError(f"{path} holds {stored.dtype if isinstance(stored, np.ndarray) else 'an archive'}, but real numbers were expected")
    if stored.ndim != 2:
        raise InputError(f"{path} holds an array of shape {stored.shape}, but rows and columns were expected; reshape it to (n, d)")
    if 0 in stored.shape:
        raise cell_error(path, 1, 1, f"the array of shape {stored.shape} is empty; rows of numbers were expected")
    features, weights = select_columns(path, stored.shape[1], None, options)
    chosen = [*features, *weights]
    matrix = np.array(stored[:, chosen], dtype=np.float64, order="C")
    finite = np.isfinite(matrix)
    if not finite.all():
        row, place = np.argwhere(~finite)[0]
        raise cell_error(path, int(row) + 1, chosen[place] + 1, f"{matrix[row, place]} is not finite; remove the row or fill the cell")
    return _table(path, matrix, None, bool(weights))


def _table(source: str, matrix: np.ndarray, names: tuple[str, ...] | None, weighted: bool) -> Table:
    """The table of the chosen columns, the last of which may hold the weights."""
    if not weighted:
        return Table(source, matrix, names, None)
    return Table(source, matrix[:, :-1].copy(), names, matrix[:, -1].copy())


def named_by_position(column: str) -> bool:
    """Whether ``column`` is a 1-based number; such a word is never looked up as a name."""
    return column.isascii() and column.isdigit()


def select_columns(source: str, width: int, names: Sequence[str] | None, options: TableOptions) -> tuple[list[int], list[int]]:
    """Positions, from 0, of the columns asked for and of the weights among ``width`` columns that may have ``names``.

    >>> select_columns("data.csv", 3, ["x", "y", "w"], TableOptions(weights="w"))
    ([0, 1], [2])
    >>> select_columns("data.csv", 3, ["x", "y", "w"], TableOptions(["y", "1"]))
    ([1, 0], [])
    """
    columns, weighing = options.columns, [] if options.weights is None else [_position(source, width, names, options.weights)]
    if columns is None:
        features = [position for position in range(width) if position not in weighing]
        for position in features:
            if names is not None and not names[position]:
                raise cell_error(source, 1, position + 1, "the header gives it no name (an index?); choose the columns with --columns")
    else:
        features = [_position(source, width, names, column) for column in columns]
    seen: set[int] = set()
    for position in features:
        if position in seen:
            raise InputError(f"{source}: column {position + 1} is chosen twice by --columns {','.join(columns or ())}")
        if position in weighing:
            raise InputError(f"{source}: column {position + 1} cannot be both a feature and the weights; leave it out of --columns")
        seen.add(position)
    if not features:
        raise InputError(f"{source}: no column is left for the data; the only one holds the weights")
    return features, weighing


def _position(source: str, width: int, names: Sequence[str] | None, column: str) -> int:
    if named_by_position(column):
        if 1 <= int(column) <= width:
            return int(column) - 1
        raise InputError(f"{source} has columns 1 to {width}; there is no column {column}")
    if names is None:
        raise InputError(f"{source} has no header, so there is no column {excerpt(column)}; choose columns by number, 1 to {width}")
    found = [position for position, name in enumerate(names) if name == column]
    if len(found) == 1:
        return found[0]
    if found:
        listed = " and ".join(str(position + 1) for position in found)
        raise InputError(f"{source}: columns {listed} are both named {excerpt(column)}; choose one by its number")
    shown = ", ".join(excerpt(name) for name in names[:20])
    raise InputError(f"{source} has no column {excerpt(column)}; its columns are {shown}{', …' if width > 20 else ''}")
