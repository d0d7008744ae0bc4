"""What separates the cells of a CSV file and what stands before the decimals, detected from its
first lines.
"""

from __future__ import annotations

import csv
import re
from collections import Counter
from collections.abc import Sequence
from contextlib import suppress
from typing import NamedTuple

from ksos.cli.cells import is_missing, is_number

__all__ = ["Dialect", "comment_lines", "detect", "split"]

_DELIMITERS = (",", ";", "\t", "|", " ")
_SHOWN = {"\t": "tabs", " ": "spaces"}
_DECIMAL_COMMA = re.compile(r"\s*[+-]?\d*,\d+([eE][+-]?\d+)?\s*")
_THOUSANDS = re.compile(r"\s*[+-]?[1-9]\d{0,2}(,\d{3})+\s*")


class Dialect(NamedTuple):
    """The character between cells, and the one before decimals."""

    delimiter: str = ","
    decimal: str = "."

    def said(self, delimiter: str | None = None, decimal: str | None = None) -> list[str]:
        """What was detected, because it was not given, and is not as usual; with the options that
        overrule it.

        >>> Dialect(";", ",").said(delimiter=";")
        ['decimals follow a comma (else pass --decimal .)']
        """
        shown = _SHOWN.get(self.delimiter, f"'{self.delimiter}'")
        lines = (
            [f"cells are separated by {shown} (else pass --delimiter)"]
            if delimiter is None and self.delimiter != ","
            else []
        )
        return lines + (
            ["decimals follow a comma (else pass --decimal .)"]
            if decimal is None and self.decimal != "."
            else []
        )


def split(line: str, delimiter: str) -> list[str]:
    """The cells of one line; a ``csv.Error`` if its quotes do not match. Several spaces separate as
    one does.
    """
    if delimiter == " ":
        line = line.strip()
    if '"' not in line:  # then a reader would do no more, at twice the time
        return line.split(None if delimiter == " " else delimiter)
    return next(csv.reader([line], delimiter=delimiter, strict=True, skipinitialspace=True))


def detect(
    lines: Sequence[str], delimiter: str | None = None, decimal: str | None = None
) -> Dialect:
    """The dialect of a file that begins with ``lines``; what is given stays.

    A delimiter cuts at least half of the lines into the same number of cells, two or more. Of
    several that do, the one with the largest share of such lines times that of numbers in them is
    taken, and before others the comma.

    >>> detect(["x;y", "1,5;2", "2,5;3"])
    Dialect(delimiter=';', decimal=',')
    """
    lines = [line for line in lines if line.strip()]
    best: list[list[str]] = []
    found, most = delimiter or ",", 0.0
    for candidate in _DELIMITERS if delimiter is None else (delimiter,):
        rows = _even_rows(lines, candidate)
        cells = [cell for row in rows[1:] or rows for cell in row]
        numeric = sum(map(_plausible, cells)) / max(len(cells), 1)
        score = (0.01 + numeric) * len(rows) / max(len(lines), 1)
        unlikely = (
            2 * len(rows) < len(lines) or len(rows[0]) < 2 or (candidate == " " and numeric < 1.0)
            if rows
            else True
        )
        if delimiter is not None or (score > most and not unlikely):  # words have spaces
            best, found, most = rows, candidate, score
    return Dialect(found, decimal or ("," if _has_decimal_commas(best) else "."))


def comment_lines(lines: Sequence[str], delimiter: str) -> int:
    """How many of the first lines begin with # and have another number of cells than most lines.

    >>> comment_lines(["# station 42", "x,y", "1,2", "3,4"], ","), comment_lines(["#x,y", "1,2", "3,4"], ",")
    (1, 0)
    """
    even, count = _even_rows(lines, delimiter), 0
    while (
        count < len(lines)
        and lines[count].startswith("#")
        and even
        and len(lines[count].split(delimiter)) != len(even[0])
    ):
        count += 1
    return count


def _even_rows(lines: Sequence[str], delimiter: str) -> list[list[str]]:
    """The lines that have as many cells as most of them have, as cells."""
    rows = []
    for line in lines:
        with suppress(csv.Error):  # a cell may go on in the next line
            rows.append(split(line, delimiter))
    width, _ = Counter(map(len, rows)).most_common(1)[0] if rows else (0, 0)
    return [row for row in rows if len(row) == width]


def _plausible(cell: str) -> bool:
    return is_number(cell) or is_missing(cell) or _DECIMAL_COMMA.fullmatch(cell) is not None


def _has_decimal_commas(rows: Sequence[Sequence[str]]) -> bool:
    """Whether cells are numbers only with a decimal comma. 1,234 alone may also be a thousand: that
    is not guessed.
    """
    cells = [cell for row in rows for cell in row]
    with_comma = [cell for cell in cells if _DECIMAL_COMMA.fullmatch(cell)]
    if not with_comma or all(map(_THOUSANDS.fullmatch, with_comma)):
        return False
    return not any("." in cell and is_number(cell) for cell in cells)
