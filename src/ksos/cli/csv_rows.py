"""The rows of a CSV file, split into cells and read as numbers; a fault is named by row and column."""

from __future__ import annotations

import csv
import math
from collections.abc import Iterator, Sequence
from typing import NamedTuple

import numpy as np

from ksos.cli.cells import as_number, is_missing, is_number, what_is_wrong
from ksos.cli.console import InputError, cell_error
from ksos.cli.dialect import Dialect
from ksos.cli.text_lines import TextLines

__all__ = ["CsvRows", "NotANumberError", "Row"]


class Row(NamedTuple):
    """One record: the number in the file, counted from 1, of the line on which it begins, and its
    cells.
    """

    number: int
    cells: list[str]


class NotANumberError(ValueError):
    """A cell that is neither a number nor missing."""

    def __init__(self, row: int, position: int, cell: str, what: str) -> None:
        super().__init__(what)
        self.row, self.position, self.cell = row, position, cell


class CsvRows:
    """The rows of the CSV text in ``lines``. A quoted cell may go on in the next line; empty lines
    may only stand at the end.
    """

    def __init__(self, lines: TextLines, dialect: Dialect) -> None:
        self.lines, self.dialect = lines, dialect
        lines.delimiter = dialect.delimiter
        self.words: dict[int, dict[str, int]] = {}
        """Columns whose cells are words, by position: the words so far, numbered; a cell is then
        the number of its word.
        """
        self._raw: list[str] = []  # the lines of the record that is being read
        self._empty: int | None = None

    def rows(self, end: float = math.inf) -> Iterator[Row]:
        """Yield the rows that begin before line ``end``."""
        delimiter = self.dialect.delimiter
        records = csv.reader(self._fed(), delimiter=delimiter, strict=True, skipinitialspace=True)
        while (number := self.lines.number) < end:
            self._raw.clear()
            try:
                cells = next(records)
            except StopIteration:
                return
            except csv.Error:
                raise self._quote_error(number) from None
            if len(cells) < 2 and not "".join(cells).strip():
                self._empty = self._empty or number
                continue
            if self._empty is not None:
                raise cell_error(
                    self.lines.source,
                    self._empty,
                    1,
                    "the line is empty, but data follow it; remove the line or fill it",
                )
            yield Row(number, cells)

    def numbers(
        self, chosen: Sequence[int], width: int, names: Sequence[str] | None
    ) -> Iterator[tuple[np.ndarray, np.ndarray]]:
        """Yield (numbers of lines, numbers in the ``chosen`` columns) of many rows at a time; what
        is missing is NaN.
        """
        while (text := self.lines.block()) is not None:
            first = self.lines.number
            if (quick := self._quick(text, chosen, width)) is not None:
                self.lines.skip()
                yield np.arange(first, first + quick.shape[0]), quick
                continue
            found, places = [], []
            for row in self.rows(end=first + text.count("\n")):
                found.append(self.numbers_of(row, chosen, width, names))
                places.append(row.number)
            yield (
                np.array(places, dtype=np.int64),
                np.array(found, dtype=np.float64).reshape(len(found), len(chosen)),
            )

    def numbers_of(
        self, row: Row, chosen: Sequence[int], width: int, names: Sequence[str] | None
    ) -> list[float]:
        """The numbers in the ``chosen`` cells of a row that must have ``width`` cells."""
        if (found := len(row.cells)) != width:
            column = min(found, width) + 1
            what = (
                f"the row has {found} cell{'s' * (found != 1)}, but row 1 has {width}"
                f" cell{'s' * (width != 1)}{self._hint()}"
            )
            what += "; if row 1 is a title, remove it" if row.number == 2 and found > width else ""
            raise cell_error(
                self.lines.source,
                row.number,
                column,
                what,
                names[column - 1] if names and column <= width else None,
            )
        return [self._number(row, position) for position in chosen]

    def _number(self, row: Row, position: int) -> float:
        cell = row.cells[position]
        if position in self.words:
            words = self.words[position]
            return (
                math.nan if is_missing(cell) else float(words.setdefault(cell.strip(), len(words)))
            )
        try:
            value = as_number(cell, self.dialect.decimal)
        except ValueError:
            value = math.nan
        if math.isfinite(value):
            return value
        if is_missing(cell):
            return math.nan
        raise NotANumberError(row.number, position, cell, what_is_wrong(cell, self.dialect.decimal))

    def _quick(self, text: str, chosen: Sequence[int], width: int) -> np.ndarray | None:
        """The numbers of a block in which every row is as it should be; None if some may not be."""
        delimiter, decimal = self.dialect
        if decimal == delimiter or delimiter == " " or self._empty is not None or self.words:
            return None
        if '"' in text or "_" in text or not text.isascii():
            return None
        if decimal != ".":
            if "." in text:
                return None
            text = text.replace(decimal, ".")
        lines = text[:-1].split("\n")
        if any(line.count(delimiter) != width - 1 for line in lines):
            return None
        cells = text[:-1].replace("\n", delimiter).split(delimiter)
        try:
            columns = [np.array(list(map(float, cells[position::width]))) for position in chosen]
        except ValueError:
            return None
        found = np.stack(columns, axis=1)
        return found if np.isfinite(found).all() else None

    def _fed(self) -> Iterator[str]:
        for line in self.lines:
            self._raw.append(line)
            yield (line.strip() if self.dialect.delimiter == " " else line) + "\n"

    def _hint(self) -> str:
        """What to pass when the line looks as if something else separated its cells."""
        line = "".join(self._raw)
        for other, shown in {",": "','", ";": "';'", "\t": "tab", "|": "'|'"}.items():
            if other != self.dialect.delimiter and other in line:
                return f"; if {shown} separates the cells, pass --delimiter {shown}"
        words = line.split()
        if self.dialect.delimiter not in line and len(words) > 1 and all(map(is_number, words)):
            return "; if spaces separate the cells, pass --delimiter ' '"
        return ""

    def _quote_error(self, number: int) -> InputError:
        """What a CSV reader could not split: an open quote, text after a closing quote, or a cell
        beyond the reader's own limit.
        """
        line, quoted, opened = "\n".join(self._raw), False, 0
        for position, character in enumerate(line):
            if character == '"':
                quoted, opened = not quoted, opened if quoted else position
                if not quoted and line[position + 1 : position + 2] not in (
                    "",
                    '"',
                    "\n",
                    self.dialect.delimiter,
                ):
                    what = "text follows the closing quote of the cell"
                    return cell_error(
                        self.lines.source, number, self.lines.column(line[:position]), what
                    )
        if quoted and len(line) <= csv.field_size_limit():
            what = "the quote of this cell is not closed; close it, or take it away"
            return cell_error(self.lines.source, number, self.lines.column(line[:opened]), what)
        cells = line.split(self.dialect.delimiter)
        longest = cells.index(max(cells, key=len)) + 1
        return cell_error(self.lines.source, number, longest, "the cell is too long to be a number")
