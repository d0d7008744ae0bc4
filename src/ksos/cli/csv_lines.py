"""The lines of a CSV file, one at a time in bounded memory, split into cells and read as numbers; a fault is named by row and column."""

from __future__ import annotations

import csv
import math
from collections.abc import Iterator, Sequence
from contextlib import suppress
from typing import BinaryIO, NamedTuple

from ksos.cli.console import InputError, cell_error, excerpt

__all__ = ["MAX_LINE_BYTES", "CsvLines", "Row", "is_number", "not_a_number"]

MAX_LINE_BYTES = 1 << 20
"""A longer line is refused: no table of numbers needs it, and a file without line ends must not fill the memory."""

_BYTE_ORDER_MARK = b"\xef\xbb\xbf"
_FOREIGN_BEGINNINGS = {
    b"\xff\xfe": "is encoded as UTF-16; save it as UTF-8",
    b"\xfe\xff": "is encoded as UTF-16; save it as UTF-8",
    b"\x93NUMPY": "is NPY, which cannot be read from the standard input; give its path",
    b"PK\x03\x04": "is an archive (a spreadsheet or NPZ); export its table as CSV or NPY",
}
_OTHER_DELIMITERS = {";": "';'", "\t": "tab", "|": "'|'"}
_FORBIDDEN = {"\0": "a NUL byte; is this file CSV text?", "\r": "a bare carriage return; end lines with LF or CRLF"}


class Row(NamedTuple):
    """One line: its number in the file, counted from 1, its text, and its cells."""

    number: int
    line: str
    cells: list[str]


class CsvLines:
    """The rows of the CSV text in ``stream``; ``source`` names it in errors.

    Every line is a row of its own, so the number of a row is its line number in the file. A cell that continues on the next line cannot be
    a number, and is refused where it begins.
    """

    def __init__(self, stream: BinaryIO, source: str, delimiter: str) -> None:
        self.stream, self.source, self.delimiter = stream, source, delimiter

    def __iter__(self) -> Iterator[Row]:
        """Yield the rows; empty lines may only stand at the end."""
        empty = None
        for number, line in self._text():
            if not line.strip() and self.delimiter not in line:
                empty = empty or number
                continue
            if empty is not None:
                raise cell_error(self.source, empty, 1, "the line is empty, but data follow it; remove the line or fill it")
            yield Row(number, line, self._cells(line, number))

    def numbers(self, row: Row, positions: Sequence[int], names: Sequence[str] | None) -> list[float]:
        """The numbers in the cells at ``positions``; the error is that of the first one, from the left, that is no finite number."""
        cells = [row.cells[position] for position in positions]
        # float() would also read 1_000 and the digits of other scripts; a look at the whole line is quicker than one at each cell
        if (row.line.isascii() and "_" not in row.line) or all(map(is_number, cells)):
            with suppress(ValueError):
                found = [float(cell) for cell in cells]
                if all(map(math.isfinite, found)):
                    return found
        position = next(p for p in sorted(positions) if not (is_number(row.cells[p]) and math.isfinite(float(row.cells[p]))))
        cell = row.cells[position]
        if is_number(cell):
            what = f"{excerpt(cell)} is not finite; remove the row or fill the cell"
        else:
            what = not_a_number(cell) + self.hint(row.line)
        raise cell_error(self.source, row.number, position + 1, what, names[position] if names else None)

    def hint(self, line: str) -> str:
        """What to pass when the line looks as if something else separated its cells."""
        for other, shown in _OTHER_DELIMITERS.items():
            if other != self.delimiter and other in line:
                return f"; if {shown} separates the cells, pass --delimiter {shown}"
        words = line.split()
        if self.delimiter not in line and len(words) > 1 and all(map(is_number, words)):
            return "; if spaces separate the cells, pass --delimiter ' '"
        return ""

    def _text(self) -> Iterator[tuple[int, str]]:
        """Yield (number, line without its end) of UTF-8 text, with or without a byte-order mark."""
        number = 0
        while raw := self.stream.readline(MAX_LINE_BYTES + 1):
            number += 1
            if number == 1:
                raw = raw.removeprefix(_BYTE_ORDER_MARK)
                for beginning, what in _FOREIGN_BEGINNINGS.items():
                    if raw.startswith(beginning):
                        raise cell_error(self.source, 1, 1, f"the file {what}")
            if len(raw) > MAX_LINE_BYTES:
                what = f"the line is longer than {MAX_LINE_BYTES:,} bytes; is this CSV, one record per line? NPY holds wider tables"
                raise cell_error(self.source, number, self._column(raw.decode(errors="replace")), what)
            try:
                line = raw.decode("utf-8").removesuffix("\n").removesuffix("\r")
            except UnicodeDecodeError as error:
                what = f"byte 0x{raw[error.start]:02x} is not UTF-8 text; save the file as UTF-8"
                raise cell_error(self.source, number, self._column(raw[: error.start].decode("utf-8")), what) from None
            for forbidden, what in _FORBIDDEN.items():
                if forbidden in line:
                    raise cell_error(self.source, number, self._column(line[: line.index(forbidden)]), f"the line contains {what}")
            yield number, line

    def _cells(self, line: str, number: int) -> list[str]:
        if '"' not in line:  # then a reader would do no more, at twice the time
            return line.split(self.delimiter)
        try:
            return next(csv.reader([line], delimiter=self.delimiter, strict=True, skipinitialspace=self.delimiter != " "))
        except csv.Error:
            raise self._quote_error(line, number) from None

    def _quote_error(self, line: str, number: int) -> InputError:
        """What a CSV reader could not split: an open quote, text after a closing quote, or a cell beyond the reader's own limit."""
        quoted = False
        for position, character in enumerate(line):
            if character == '"':
                quoted = not quoted
                if not quoted and line[position + 1 : position + 2] not in ("", '"', self.delimiter):
                    return cell_error(self.source, number, self._column(line[:position]), "text follows the closing quote of the cell")
        what = "the quote of this cell is not closed on its line; cells must not contain line breaks"
        return cell_error(self.source, number, self._column(line), what if quoted else "the cell is too long to be a number")

    def _column(self, line: str) -> int:
        """The column, counted from 1, in which the text after ``line`` stands."""
        column, quoted = 1, False
        for character in line:
            if character == '"':
                quoted = not quoted
            elif character == self.delimiter and not quoted:
                column += 1
        return column


def is_number(cell: str) -> bool:
    """Whether a cell is a number as CSV files write it."""
    if "_" in cell or not cell.isascii():
        return False
    try:
        float(cell)
    except ValueError:
        return False
    return True


def not_a_number(cell: str) -> str:
    """What is wrong with a cell that is no number."""
    if not cell.strip():
        return "the cell is empty; remove the row or fill it"
    comma = "; write the decimals after a point, not a comma" if is_number(cell.replace(",", ".", 1)) else ""
    return f"{excerpt(cell)} is not a number{comma}"
