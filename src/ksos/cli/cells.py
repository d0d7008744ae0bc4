"""What one cell of a table is: a number, missing, a date or text."""

from __future__ import annotations

import math
import re

from ksos.cli.console import excerpt

__all__ = [
    "MISSING",
    "as_number",
    "is_date",
    "is_decorated",
    "is_missing",
    "is_number",
    "what_is_wrong",
]

MISSING = frozenset(["", "na", "n/a", "#n/a", "nan", "null", "none", "?", "-", "."])
"""What stands in a cell, in lower or upper case, of which the number is not known."""

_DATE = re.compile(
    r"\d{1,4}[-/.]\d{1,2}[-/.]\d{1,4}(["
    r" T].*)?|\d{4}[-/]\d{1,2}|\d{4}Q[1-4]|\d{1,2}:\d{2}(:\d{2}(\.\d*)?)?"
    r"|(.* )?(jan|feb|mar|apr|may|jun|jul|aug|sep|oct|nov|dec)[a-z]* .*\d.*",
    re.IGNORECASE,
)
_DECORATED = re.compile(
    r"[-+]?[$€£¥]?\s?[-+]?[0-9]{1,3}([.,' \u00a0\u202f]?[0-9]{3})*([.,][0-9]+)?\s?[%$€£¥]?"
)


def is_missing(cell: str) -> bool:
    """Whether a cell says that its number is not known.

    >>> [is_missing(cell) for cell in ("", "NA", "?", "0")]
    [True, True, True, False]
    """
    return cell.strip().lower() in MISSING


def is_number(cell: str, decimal: str = ".") -> bool:
    """Whether a cell is a number as CSV files write it, with decimals after ``decimal``; NaN is
    none.
    """
    try:
        return not math.isnan(as_number(cell, decimal))
    except ValueError:
        return False


def is_date(cell: str) -> bool:
    """Whether a cell looks like a date or a time.

    >>> is_date("2020-01-31"), is_date("Jan 1 2000"), is_date("1.5")
    (True, True, False)
    """
    return _DATE.fullmatch(cell.strip()) is not None


def is_decorated(cell: str, decimal: str = ".") -> bool:
    """Whether a cell is a number to people alone: with separators of thousands, a currency or a
    percent sign.

    >>> [is_decorated(cell) for cell in ("1,234.50", "$12.04", "7 %", "1.5", "a7")]
    [True, True, True, False, False]
    """
    return (
        _DECORATED.fullmatch(cell.strip()) is not None
        and not is_number(cell, decimal)
        and not is_date(cell)
    )


def as_number(cell: str, decimal: str = ".") -> float:
    """The number in a cell; a ValueError if there is none. float() alone would also read 1_000 and
    the digits of other scripts.

    >>> as_number(" 1,5", ",")
    1.5
    """
    if "_" in cell or not cell.isascii() or (decimal != "." and "." in cell):
        raise ValueError(cell)
    return float(cell if decimal == "." else cell.replace(decimal, "."))


def what_is_wrong(cell: str, decimal: str = ".") -> str:
    """What to say of a cell that is neither a finite number nor missing."""
    if is_number(cell, decimal):
        return f"{excerpt(cell)} is not finite"
    if is_date(cell):
        return f"{excerpt(cell)} is a date or a time, not a number"
    other = "," if decimal == "." else "."
    if cell.count(other) == 1 and is_number(cell, other):
        return (
            f"{excerpt(cell)} is not a number; if '{other}' stands before the decimals, pass"
            f" --decimal '{other}'"
        )
    if is_decorated(cell, decimal):
        return (
            f"{excerpt(cell)} has signs of thousands, currency or percent, which are not read; take"
            " them away"
        )
    return f"{excerpt(cell)} is not a number"
