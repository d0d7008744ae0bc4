"""CSV files as numbers: pandas parses the cells, and a fault is named by file, row and column.

A file is decompressed, decoded and cut into blocks of whole rows. Every row must have as many cells
as the first one. A block that pandas cannot read as numbers is read once more, cell by cell, which
finds the cell that is none. Nothing in a file is executed, and memory holds one block at a time.
"""

from __future__ import annotations

import bz2
import codecs
import csv
import gzip
import io
import lzma
import math
import re
import zlib
from collections import Counter
from collections.abc import Callable, Collection, Iterator, Sequence
from contextlib import suppress
from itertools import chain, takewhile
from typing import TYPE_CHECKING, Any, BinaryIO, NamedTuple, cast

import numpy as np

if TYPE_CHECKING:
    import pandas


Say = Callable[[str], None]
"""What gets the lines on what is detected or dropped."""

LONGEST_LINE = 1 << 20
"""Characters of the longest line that is read: no table of numbers needs a megabyte, and a file
without line ends must not fill the memory.
"""

_BLOCK_CHARACTERS = 1 << 20  # pandas takes 1 ms a call, and 10 ms for as many characters of cells
_LOOKED_AT = 1000  # first lines that decide which columns hold text; more rarely changes the answer
_DETECTED_FROM = 100  # first lines that decide on delimiter and decimals: five splits of each
_LONGEST_EXCERPT = 40  # characters of a cell in an error, which must fit on one line of a screen

# what R, pandas, spreadsheets and the UCI archive write for a cell that is not known
_MISSING = ("", "na", "n/a", "#n/a", "nan", "null", "none", "?", "-", ".")
# pandas compares letter by letter, so it is given the usual spellings; the rest is found cell by
# cell
_MISSING_SPELLINGS = sorted(
    {spelling for word in _MISSING for spelling in (word, word.upper(), word.capitalize(), "NaN")}
)
_DELIMITERS = {",": "','", ";": "';'", "\t": "tabs", "|": "'|'", " ": "spaces"}
_DECIMAL_COMMA = re.compile(r"\s*[+-]?\d*,\d+([eE][+-]?\d+)?\s*")
_THOUSANDS = re.compile(r"\s*[+-]?[1-9]\d{0,2}(,\d{3})+\s*")
_DATE = re.compile(
    r"\d{1,4}[-/.]\d{1,2}[-/.]\d{1,4}([ T].*)?|\d{4}[-/]\d{1,2}|\d{4}Q[1-4]"
    r"|\d{1,2}:\d{2}(:\d{2}(\.\d*)?)?"
    r"|(.* )?(jan|feb|mar|apr|may|jun|jul|aug|sep|oct|nov|dec)[a-z]* .*\d.*",
    re.IGNORECASE,
)
_DECORATED = re.compile(
    r"[-+]?[$€£¥]?\s?[-+]?[0-9]{1,3}([.,' \u00a0\u202f]?[0-9]{3})*([.,][0-9]+)?\s?[%$€£¥]?"
)
_COMPRESSED: dict[bytes, Any] = {
    b"\x1f\x8b": gzip.open,
    b"BZh": bz2.open,
    b"\xfd7zXZ\x00": lzma.open,
}
_BYTE_ORDER_MARKS = {
    codecs.BOM_UTF8: "utf-8-sig",
    codecs.BOM_UTF16_LE: "utf-16",
    codecs.BOM_UTF16_BE: "utf-16",
}
_FOREIGN = {
    b"\x93NUMPY": "is NPY, which cannot be read from the standard input; give its path",
    b"\x89KSOS": "is a model of ksos, not a table; ksos score, sample, query and inspect read it",
    b"PK\x03\x04": "is an archive (a spreadsheet or NPZ); export its table as CSV or NPY",
}
_FORBIDDEN = re.compile("[\0\r\udc80-\udcff]")
_NO_TEXT = {
    "\0": "the line contains a NUL byte; is this file CSV text?",
    "\r": "the line contains a bare carriage return; end lines with LF or CRLF",
}
_ENCODE = (
    "save the file as UTF-8, or pass --encoding latin-1 if it is that, in Python"
    " csv={'encoding': 'latin-1'}"
)
_TOO_LONG = (
    f"the line is longer than {LONGEST_LINE:,} bytes; is this CSV, one record per line? NPY holds"
    " wider tables"
)


def cell_error(
    source: str, row: int, column: int, what: str, names: Sequence[str] | None = None
) -> ValueError:
    """An error at a row and a column, both counted from 1; ``names`` are those of the columns.

    >>> print(cell_error("data.csv", 3, 2, "the cell is empty", ("size", "height")))
    data.csv, row 3, column 2 ('height'): the cell is empty
    """
    named = f" ({excerpt(names[column - 1])})" if names and column <= len(names) else ""
    return ValueError(f"{source}, row {row}, column {column}{named}: {what}")


def excerpt(text: str) -> str:
    """``text`` as a short quotation on one line, whatever is in it."""
    return repr(text if len(text) <= _LONGEST_EXCERPT else text[: _LONGEST_EXCERPT - 1] + "…")


def is_position(column: str) -> bool:
    """Whether ``column`` is a 1-based number."""
    return column.isascii() and column.isdigit()


def is_missing(cell: str) -> bool:
    """Whether a cell stands for a number that is not known.

    >>> [is_missing(cell) for cell in ("", "NA", "?", "0")]
    [True, True, True, False]
    """
    return cell.strip().lower() in _MISSING


# The number in a cell, NaN if it is none.
def _as_number(cell: str, decimal: str = ".") -> float:
    # float() would also read 1_000 and the digits of other scripts
    if "_" in cell or not cell.isascii() or (decimal != "." and "." in cell):
        return math.nan
    with suppress(ValueError):
        return float(cell.replace(decimal, "."))
    return math.nan


def is_number(cell: str, decimal: str = ".") -> bool:
    """Whether a cell is a number as CSV files write it, with decimals after ``decimal``."""
    return not math.isnan(_as_number(cell, decimal))


def is_decorated(cell: str, decimal: str = ".") -> bool:
    """Whether only people read a cell as a number: thousands, a currency or a percent sign.

    >>> [is_decorated(cell) for cell in ("1,234.50", "$12.04", "7 %", "1.5", "a7")]
    [True, True, True, False, False]
    """
    cell = cell.strip()
    number = is_number(cell, decimal) or _DATE.fullmatch(cell)
    return _DECORATED.fullmatch(cell) is not None and not number


def what_is_wrong(cell: str, decimal: str = ".") -> str:
    """What a cell is that is neither a finite number nor missing.

    >>> what_is_wrong("Jan 1 2000")
    "'Jan 1 2000' is a date or a time, not a number"
    """
    other = "," if decimal == "." else "."
    if is_number(cell, decimal):
        what = "is not finite"
    elif _DATE.fullmatch(cell.strip()):
        what = "is a date or a time, not a number"
    elif cell.count(other) == 1 and is_number(cell, other):
        what = f"is not a number; if '{other}' stands before the decimals, pass --decimal '{other}'"
    elif is_decorated(cell, decimal):
        what = "has signs of thousands, currency or percent, which are not read; take them away"
    else:
        what = "is not a number"
    return f"{excerpt(cell)} {what}"


# The cells of one line. Several spaces separate as one does.
def _split(line: str, delimiter: str) -> list[str]:
    if delimiter == " ":
        line = line.strip()
    # without quotes, a csv.reader would do no more, at twice the time
    if '"' not in line:
        return line.split(None if delimiter == " " else delimiter)
    return next(csv.reader([line], delimiter=delimiter, skipinitialspace=True))


# The lines that have as many cells as most of them have, as cells.
def _even_rows(lines: Sequence[str], delimiter: str) -> list[list[str]]:
    rows = []
    for line in lines:
        # csv.Error: a cell that is too long
        with suppress(csv.Error):
            rows.append(_split(line, delimiter))
    width = Counter(map(len, rows)).most_common(1)[0][0] if rows else 0
    return [row for row in rows if len(row) == width]


def detect(lines: Sequence[str], delimiter: str | None, decimal: str | None) -> tuple[str, str]:
    """Delimiter and decimal character of a file that begins with ``lines``. What is given stays.

    A delimiter cuts at least half of the lines into the same number of cells, two or more. If
    several do, the one with the largest share of such lines times that of numbers in them is taken,
    the comma first.

    >>> detect(["x;y", "1,5;2", "2,5;3"], None, None)
    (';', ',')
    """
    lines = [line for line in lines if line.strip()]
    best: list[list[str]] = []
    found, most = delimiter or ",", 0.0
    for candidate in _DELIMITERS if delimiter is None else (delimiter,):
        rows = _even_rows(lines, candidate)
        cells = [cell for row in rows[1:] or rows for cell in row]
        numbers = [c for c in cells if is_number(c) or is_missing(c) or _DECIMAL_COMMA.fullmatch(c)]
        numeric = len(numbers) / max(len(cells), 1)
        # 0.01: a file without numbers is still cut where its lines are even
        score = (0.01 + numeric) * len(rows)
        likely = 2 * len(rows) >= len(lines) and len(cells) > len(rows[1:] or rows)
        # words have spaces between them, so that spaces separate only numbers
        words = candidate == " " and numeric < 1.0
        if delimiter is not None or (score > most and likely and not words):
            best, found, most = rows, candidate, score
    cells = [cell for row in best for cell in row]
    # numbers only with a decimal comma; 1,234 alone may also be a thousand
    commas = [cell for cell in cells if _DECIMAL_COMMA.fullmatch(cell)]
    doubtful = all(map(_THOUSANDS.fullmatch, commas))
    points = any("." in cell and is_number(cell) for cell in cells)
    return found, decimal or ("." if doubtful or points else ",")


# Whole records, about a megabyte at a time, without empty lines at the end of the file.
def _blocks(
    stream: BinaryIO, source: str, encoding: str | None, delimiter: str | None
) -> Iterator[str]:
    if not isinstance(stream, io.BufferedReader):
        stream = io.BufferedReader(cast(io.RawIOBase, stream))
    begin = stream.peek(8)
    expand = next((open_ for magic, open_ in _COMPRESSED.items() if begin.startswith(magic)), None)
    expanded: Any = stream if expand is None else expand(stream)
    text: io.TextIOWrapper | None = None
    number, empty = 1, ""

    def fault(before: str, what: str) -> ValueError:
        """An error behind the text ``before``, which begins in row ``number``."""
        line = before.rpartition("\n")[2]
        column = len(_split(line + "x", delimiter or ","))
        return cell_error(source, number + before.count("\n"), column, what)

    try:
        begin = expanded.peek(8)
        for beginning, what in _FOREIGN.items():
            if begin.startswith(beginning):
                raise cell_error(source, 1, 1, f"the file {what}")
        marked = (name for mark, name in _BYTE_ORDER_MARKS.items() if begin.startswith(mark))
        encoding = next(marked, encoding or "utf-8")
        # bytes that are no text become surrogates, and are found with their place in the line
        text = io.TextIOWrapper(expanded, encoding, "surrogateescape", newline="\n")
        while begun := text.read(_BLOCK_CHARACTERS):
            block = empty
            # on to the end of a record: there, quotes are even in number
            while begun:
                block += begun
                if block[-1] != "\n":
                    block += text.readline(LONGEST_LINE + 1)
                if block.count('"') % 2 == 0 or len(block) > 4 * LONGEST_LINE:
                    break
                begun = text.read(_BLOCK_CHARACTERS)
            block = block.replace("\r\n", "\n")
            # most text is ASCII, and known to be: then the search, which takes longer, is not made
            suspect = "\0" in block or "\r" in block or not block.isascii()
            if suspect and (found := _FORBIDDEN.search(block)):
                wrong = f"byte 0x{ord(found[0]) - 0xDC00:02x} is not {encoding.upper()} text"
                what = _NO_TEXT.get(found[0], f"{wrong}; {_ENCODE}")
                raise fault(block[: found.start()], what)
            last = block.rfind("\n", 0, -1) + 1
            # empty lines wait for a line that is none: at the end of the file they are dropped
            filled = block.rstrip("\n ")
            empty = block[len(filled) :].partition("\n")[2] if filled else block
            if max(len(block) - last, len(empty)) > LONGEST_LINE:
                raise fault(block[: last + LONGEST_LINE], _TOO_LONG)
            if filled:
                yield filled + "\n"
                number += filled.count("\n") + 1
    except UnicodeDecodeError:  # of an encoding in which no surrogate can stand for a byte
        what = f"the file is not {str(encoding).upper()} text; {_ENCODE}"
        raise cell_error(source, number, 1, what) from None
    except (EOFError, OSError, zlib.error, lzma.LZMAError) as error:
        if expanded is stream:
            raise
        message = f"{source} is compressed, but cannot be decompressed: {error}"
        raise ValueError(message) from None
    finally:
        if text is not None and not expanded.closed:
            # otherwise the stream, which may be the standard input, would be closed with it
            text.detach()


def _comment_lines(lines: Sequence[str], delimiter: str) -> int:
    """How many of the first lines begin with # and have another number of cells than most lines.

    >>> _comment_lines(["# station 42", "x,y", "1,2", "3,4"], ",")
    1
    >>> _comment_lines(["#x,y", "1,2", "3,4"], ",")
    0
    """
    width = len(next(iter(_even_rows(lines, delimiter)), ()))
    comments = takewhile(
        lambda line: line.startswith("#") and len(line.split(delimiter)) != width, lines
    )
    return len(list(comments))


class Written(NamedTuple):
    """How a CSV file is written; None is to be detected."""

    header: bool | None = None
    delimiter: str | None = None
    decimal: str | None = None
    encoding: str | None = None


class CsvFile:
    """A CSV file of which the first rows have been read; ``source`` names it in errors.

    ``say`` gets what is detected and not usual. Rows are numbered from 1, with the header and the
    lines of comment before it. ``names`` are those of the columns, once :meth:`find_header` has
    found them; ``width`` is how many cells every row has, once the ``first`` one is known;
    ``sample`` are the cells of the first rows below the header, as far as these are sound.
    """

    names: tuple[str, ...] | None = None
    width: int | None = None

    def __init__(
        self, stream: BinaryIO, source: str, written: Written, say: Say = lambda _: None
    ) -> None:
        self.source = source
        blocks = _blocks(stream, source, written.encoding, written.delimiter)
        begin = next(blocks, "")
        if not begin:
            raise cell_error(source, 1, 1, "the file is empty; rows of numbers were expected")
        lines = begin[:-1].split("\n", _LOOKED_AT)[:_LOOKED_AT]
        looked_at = lines[:_DETECTED_FROM]
        self.delimiter, self.decimal = detect(looked_at, written.delimiter, written.decimal)
        if written.delimiter is None and self.delimiter != ",":
            what = _DELIMITERS[self.delimiter]
            say(f"{source}: cells are separated by {what} (else pass --delimiter)")
        if written.decimal is None and self.decimal == ",":
            say(f"{source}: decimals follow a comma (else pass --decimal .)")
        if n_comments := _comment_lines(looked_at, self.delimiter):
            say(
                f"{source}: {n_comments} line{'s' * (n_comments > 1)} of comment at the beginning,"
                f" {excerpt(lines[0])}, dropped"
            )
        self.first_row = n_comments + 1
        # rows keep the numbers that an editor shows
        begin = begin.split("\n", n_comments)[n_comments]
        self._blocks = chain([begin], blocks)
        self.first = next(self._records(begin, self.first_row))
        self.width = len(self.first)
        self.sample: list[list[str]] = []
        with suppress(ValueError):
            self.sample.extend(self._records("\n".join(lines[n_comments:]) + "\n", 1))

    def find_header(
        self, header: bool | None = None, considered: Collection[int] | None = None
    ) -> None:
        """Take the first row for names, if all cells at the positions ``considered`` are words."""
        cells, decimal = self.first, self.decimal
        wanted = range(len(cells)) if considered is None else sorted(considered)
        numeric = [k for k in wanted if is_number(cells[k], decimal)]
        words = [k for k in wanted if k not in numeric and not is_missing(cells[k])]
        if header is None and numeric and words:
            out = ",".join(str(k + 1) for k in words)
            what = (
                f"{what_is_wrong(cells[words[0]], decimal)}, although other cells of the row are"
                " numbers; pass --header if row 1 holds names, --no-header if it holds data, or"
                f" --exclude {out} to drop columns of text"
            )
            raise cell_error(self.source, 1, words[0] + 1, what)
        if header or (header is None and words):
            self.names, self.sample = tuple(map(str.strip, cells)), self.sample[1:]

    def numbers(
        self, chosen: Sequence[int], fix: Callable[[int], str], words: Collection[int] = ()
    ) -> Iterator[pandas.DataFrame]:
        """The ``chosen`` columns of all rows, a block at a time, as numbers, or as ``words``.

        The columns are labeled by position and the rows by number. Missing cells are NaN. ``fix``
        gives what to do about a column with a cell that is no number.
        """
        import pandas

        number = self.first_row
        if self.names is not None:
            n_lines = 1 + sum(cell.count("\n") for cell in self.first)
            begin = next(self._blocks).split("\n", n_lines)[n_lines]
            self._blocks, number = chain([begin], self._blocks), number + 1
        for block in filter(None, self._blocks):
            lines, rows, spaces = block[:-1].split("\n"), None, self.delimiter == " "
            widths = {
                len(line.split()) if spaces else line.count(self.delimiter) + 1 for line in lines
            }
            if '"' in block or widths != {self.width}:
                # this raises an error that names the cell
                rows = list(self._records(block, number))
            found = None if words else self._parsed(block, chosen)
            if found is None:
                # slowly, which finds the cell that is no number, and spellings that pandas lacks
                cells = [
                    [self._value(row[k], number + i, k, fix, k in words) for k in chosen]
                    for i, row in enumerate(rows or self._records(block, number))
                ]
                found = pandas.DataFrame(cells, columns=list(chosen))
            found.index = pandas.RangeIndex(number, number + len(found))
            number += len(found)
            yield found

    # The numbers of a block, if all of its cells are finite numbers or missing.
    def _parsed(self, block: str, chosen: Sequence[int]) -> pandas.DataFrame | None:
        import pandas

        # before pandas 3.1 the last bit of a number was lost by default
        old = tuple(map(int, pandas.__version__.split(".")[:2])) < (3, 1)
        exact: dict[str, Any] = {"float_precision": "round_trip"} if old else {}
        try:
            found = pandas.read_csv(
                io.StringIO(block),
                sep=r"\s+" if self.delimiter == " " else self.delimiter,
                decimal=self.decimal,
                header=None,
                names=range(self.width or 0),
                usecols=sorted(chosen),
                na_values=_MISSING_SPELLINGS,
                keep_default_na=False,
                skip_blank_lines=False,
                skipinitialspace=True,
                low_memory=False,
                **exact,
            )[list(chosen)]
        except ValueError:
            return None
        # columns of True and False, or of text, are not numbers
        if any(kind.kind not in "fiu" for kind in found.dtypes):
            return None
        found = found.astype(np.float64)
        return None if np.isinf(found.to_numpy()).any() else found

    def _value(
        self, cell: str, row: int, position: int, fix: Callable[[int], str], word: bool
    ) -> Any:
        number = cell.strip() if word else _as_number(cell, self.decimal)
        if is_missing(cell):
            return math.nan
        if isinstance(number, float) and not math.isfinite(number):
            what = f"{what_is_wrong(cell, self.decimal)}; {fix(position)}"
            raise cell_error(self.source, row, position + 1, what, self.names)
        return number

    # The cells of every row of a block, which begins with the row ``number``.
    def _records(self, block: str, number: int) -> Iterator[list[str]]:
        lines = block.split("\n")
        stripped = (line.strip() if self.delimiter == " " else line for line in lines[:-1])
        records = csv.reader(
            (f"{line}\n" for line in stripped),
            delimiter=self.delimiter,
            strict=True,
            skipinitialspace=True,
        )
        while True:
            begun = records.line_num
            try:
                cells = next(records, None)
            except csv.Error as error:
                record = "\n".join(lines[begun : records.line_num])
                raise self._quote_error(record, number, str(error)) from None
            if cells is None:
                return
            if self.width != 1 and not "".join(cells).strip() and len(cells) < 2:
                what = "the line is empty, but data follow it; remove the line or fill it"
                raise cell_error(self.source, number, 1, what)
            if self.width not in (None, len(cells) or 1):
                raise self._uneven(cells, number)
            yield cells or [""]
            number += 1

    def _uneven(self, cells: Sequence[str], number: int) -> ValueError:
        found, width = len(cells), self.width or 0
        what = (
            f"the row has {found} cell{'s' * (found != 1)}, but row 1 has {width}"
            f" cell{'s' * (width != 1)}"
        )
        line = self.delimiter.join(cells)
        others = {other: shown for other, shown in _DELIMITERS.items() if other != self.delimiter}
        if other := next((shown for other, shown in others.items() if other in line.strip()), None):
            flag = {"tabs": "tab", "spaces": "' '"}.get(other, other)
            separate = "separate" if flag != other else "separates"
            what += f"; if {other} {separate} the cells, pass --delimiter {flag}"
        if number == 2 and found > width:
            what += "; if row 1 is a title, remove it"
        return cell_error(self.source, number, min(found, width) + 1, what, self.names)

    # What a csv.reader could not split: an open quote, or text after a closing one.
    def _quote_error(self, record: str, number: int, message: str) -> ValueError:
        follows = re.search(rf'"(?:[^"]|"")*"(?=[^"\n{re.escape(self.delimiter)}])', record)
        if "expected after" in message and follows:
            before, what = record[: follows.start()], "text follows the closing quote of the cell"
        elif "field larger" in message:
            before = max(record.split(self.delimiter), key=len)
            before = record.partition(before)[0].rstrip('"')
            what = "the cell is too long to be a number; is its quote closed?"
        else:
            before = record.rpartition('"')[0]
            what = "the quote of this cell is not closed; close it, or take it away"
        return cell_error(self.source, number, len(_split(before + "x", self.delimiter)), what)
