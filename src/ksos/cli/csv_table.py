"""Numbers from CSV text: the header detected or declared, every row of one width, every chosen cell a finite number."""

from __future__ import annotations

import math
from array import array
from collections.abc import Sequence
from typing import BinaryIO

from ksos.cli.columns import named_by_position, select_columns
from ksos.cli.csv_lines import csv_rows
from ksos.cli.errors import InputError, cell_error, excerpt
from ksos.cli.table_types import Table, TableOptions

__all__ = ["read_csv"]

_OTHER_DELIMITERS = {";": "';'", "\t": "tab", "|": "'|'"}


def read_csv(stream: BinaryIO, source: str, options: TableOptions) -> Table:
    """The chosen columns of the CSV text in ``stream``; ``source`` names it in errors."""
    delimiter = options.delimiter or ","
    rows = csv_rows(stream, source, delimiter)
    first = next(rows, None)
    if first is None:
        raise cell_error(source, 1, 1, "the file is empty; rows of numbers were expected")
    _, line, cells = first
    width = len(cells)
    names = [cell.strip() for cell in cells] if _has_header(line, cells, source, options) else None
    chosen = select_columns(source, width, names, options.columns, options.weights)

    numbers = array("d")
    if names is None:
        numbers.extend(_row_numbers(chosen.all, None, first, source, delimiter))
    for row in rows:
        number, line, cells = row
        if len(cells) != width:
            column = min(len(cells), width) + 1
            what = f"the row has {_count(len(cells))}, but row 1 has {_count(width)}{_delimiter_hint(line, delimiter)}"
            raise cell_error(source, number, column, what, names[column - 1] if names and column <= width else None)
        numbers.extend(_row_numbers(chosen.all, names, row, source, delimiter))
    if not numbers:
        raise cell_error(source, 2, 1, "only a header, no row of numbers follows it; pass --no-header if row 1 is data")
    chosen_names = None if names is None else tuple(names[position] for position in chosen.features)
    return _table(source, numbers, len(chosen.all), chosen.weights is not None, chosen_names)


def _table(source: str, numbers: array[float], width: int, weighted: bool, names: tuple[str, ...] | None) -> Table:
    import numpy as np

    matrix = np.frombuffer(numbers, dtype=np.float64).reshape(-1, width)
    if not weighted:
        return Table(source, matrix, names, None)
    return Table(source, np.ascontiguousarray(matrix[:, :-1]), names, matrix[:, -1].copy())


def _has_header(line: str, cells: list[str], source: str, options: TableOptions) -> bool:
    """Whether row 1 holds names: where the chosen cells are all words it does, where all are numbers it does not."""
    if options.header is not None:
        return options.header
    asked = [*(options.columns or ()), *([] if options.weights is None else [options.weights])]
    if not all(map(named_by_position, asked)):
        return True  # a column chosen by its name
    if options.columns is None:
        positions = list(range(len(cells)))
    else:
        positions = [int(column) - 1 for column in asked if 1 <= int(column) <= len(cells)]
    numeric = [_is_number(cells[position]) for position in positions]
    if any(numeric) and not all(numeric):
        position = positions[numeric.index(False)]
        what = f"{_not_a_number(cells[position])}, although other cells of the row are; pass --header if row 1 holds names"
        raise cell_error(source, 1, position + 1, what + _delimiter_hint(line, options.delimiter or ","))
    return not any(numeric)


def _row_numbers(
    positions: Sequence[int], names: Sequence[str] | None, row: tuple[int, str, list[str]], source: str, delimiter: str
) -> list[float]:
    """The numbers in the chosen cells of one row."""
    _, line, cells = row
    if line.isascii() and "_" not in line:  # float() would also read 1_000 and the digits of other scripts
        try:
            numbers = [float(cells[position]) for position in positions]
        except ValueError:
            raise _first_fault(positions, names, row, source, delimiter) from None
    elif all(_is_number(cells[position]) for position in positions):
        numbers = [float(cells[position]) for position in positions]
    else:
        raise _first_fault(positions, names, row, source, delimiter)
    if not all(map(math.isfinite, numbers)):
        raise _first_fault(positions, names, row, source, delimiter)
    return numbers


def _first_fault(
    positions: Sequence[int], names: Sequence[str] | None, row: tuple[int, str, list[str]], source: str, delimiter: str
) -> InputError:
    """The error of the first chosen cell, from the left, that is not a finite number."""
    number, line, cells = row
    position = next(p for p in sorted(positions) if not (_is_number(cells[p]) and math.isfinite(float(cells[p]))))
    if _is_number(cells[position]):
        what = f"{excerpt(cells[position])} is not finite; remove the row or fill the cell"
    else:
        what = _not_a_number(cells[position]) + _delimiter_hint(line, delimiter)
    return cell_error(source, number, position + 1, what, names[position] if names else None)


def _is_number(cell: str) -> bool:
    if "_" in cell or not cell.isascii():
        return False
    try:
        float(cell)
    except ValueError:
        return False
    return True


def _not_a_number(cell: str) -> str:
    if not cell.strip():
        return "the cell is empty; remove the row or fill it"
    if _is_number(cell.replace(",", ".", 1)):
        return f"{excerpt(cell)} is not a number; write the decimals after a point, not a comma"
    return f"{excerpt(cell)} is not a number"


def _delimiter_hint(line: str, delimiter: str) -> str:
    """What to pass when the line looks as if something else separated its cells."""
    for other, shown in _OTHER_DELIMITERS.items():
        if other != delimiter and other in line:
            return f"; if {shown} separates the cells, pass --delimiter {shown}"
    words = line.split()
    if delimiter not in line and len(words) > 1 and all(map(_is_number, words)):
        return "; if spaces separate the cells, pass --delimiter ' '"
    return ""


def _count(cells: int) -> str:
    return f"{cells} cell{'' if cells == 1 else 's'}"
