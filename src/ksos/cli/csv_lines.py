"""The lines of a CSV file, one at a time in bounded memory, split into cells; every fault is named by its row and column."""

from __future__ import annotations

import csv
from collections.abc import Iterator
from typing import BinaryIO

from ksos.cli.errors import InputError, cell_error

__all__ = ["MAX_LINE_BYTES", "csv_rows"]

MAX_LINE_BYTES = 1 << 20
"""A longer line is refused: no table of numbers needs it, and a file without line ends must not fill the memory."""

_FOREIGN_BEGINNINGS = {
    b"\xef\xbb\xbf": "begins with a byte-order mark; save it as UTF-8 without BOM",
    b"\xff\xfe": "is encoded as UTF-16; save it as UTF-8 without BOM",
    b"\xfe\xff": "is encoded as UTF-16; save it as UTF-8 without BOM",
    b"\x93NUMPY": "is NPY, which cannot be read from the standard input; give its path",
    b"PK\x03\x04": "is an archive (a spreadsheet or NPZ); export its table as CSV or NPY",
    b"\x1f\x8b": "is compressed; decompress it first",
}


def csv_rows(stream: BinaryIO, source: str, delimiter: str) -> Iterator[tuple[int, str, list[str]]]:
    """Yield (row, line, cells) for each line of ``stream``; empty lines may only stand at the end.

    Every line is a row of its own, so a row's number is its line number in the file: a cell that goes on in the next line cannot be a
    number anyway, and is refused where it begins.
    """
    empty_row = None
    for row, line in _text_lines(stream, source, delimiter):
        if not line.strip() and delimiter not in line:
            empty_row = empty_row or row
            continue
        if empty_row is not None:
            raise cell_error(source, empty_row, 1, "the line is empty, but data follow it; remove the line or fill it")
        yield row, line, _cells(line, row, source, delimiter)


def _text_lines(stream: BinaryIO, source: str, delimiter: str) -> Iterator[tuple[int, str]]:
    """Yield (row, line without its end) of UTF-8 text."""
    row = 0
    while raw := stream.readline(MAX_LINE_BYTES + 1):
        row += 1
        if row == 1:
            _refuse_foreign_beginning(raw, source)
        if len(raw) > MAX_LINE_BYTES:
            column = _column(raw.decode(errors="replace"), None, delimiter)
            raise cell_error(
                source,
                row,
                column,
                f"the line is longer than {MAX_LINE_BYTES:,} bytes; is this CSV, one record per line? NPY holds wider tables",
            )
        try:
            line = raw.decode("utf-8")
        except UnicodeDecodeError as error:
            column = _column(raw[: error.start].decode("utf-8"), None, delimiter)
            what = f"byte 0x{raw[error.start]:02x} is not UTF-8 text; save the file as UTF-8"
            raise cell_error(source, row, column, what) from None
        line = line.removesuffix("\n").removesuffix("\r")
        for forbidden, what in (("\0", "a NUL byte; is this file CSV text?"), ("\r", "a bare carriage return; end lines with LF or CRLF")):
            if forbidden in line:
                raise cell_error(source, row, _column(line, line.index(forbidden), delimiter), f"the line contains {what}")
        yield row, line


def _refuse_foreign_beginning(raw: bytes, source: str) -> None:
    for beginning, what in _FOREIGN_BEGINNINGS.items():
        if raw.startswith(beginning):
            raise cell_error(source, 1, 1, f"the file {what}")


def _cells(line: str, row: int, source: str, delimiter: str) -> list[str]:
    if '"' not in line:  # then a reader would do no more, at twice the time
        return line.split(delimiter)
    try:
        return next(csv.reader([line], delimiter=delimiter, strict=True, skipinitialspace=delimiter != " "))
    except csv.Error:
        raise _quote_error(line, row, source, delimiter) from None


def _quote_error(line: str, row: int, source: str, delimiter: str) -> InputError:
    """What a CSV reader could not split: an open quote, text after a closing quote, or a cell beyond the reader's own limit."""
    quoted = False
    for position, character in enumerate(line):
        if character == '"':
            quoted = not quoted
            following = line[position + 1 : position + 2]
            if not quoted and following not in ("", '"', delimiter):
                return cell_error(source, row, _column(line, position, delimiter), "text follows the closing quote of the cell")
    column = _column(line, None, delimiter)
    if quoted:
        return cell_error(source, row, column, "the quote of this cell is not closed on its line; cells must not contain line breaks")
    return cell_error(source, row, column, "the cell is too long to be a number")


def _column(line: str, position: int | None, delimiter: str) -> int:
    """The column, counted from 1, in which the character at ``position`` stands (None: the end of the line)."""
    column, quoted = 1, False
    for character in line[:position]:
        if character == '"':
            quoted = not quoted
        elif character == delimiter and not quoted:
            column += 1
    return column
