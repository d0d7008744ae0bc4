"""How a command ends: its exit codes, and the two errors that the command line itself raises."""

from __future__ import annotations

__all__ = ["BAD_INPUT", "DONE", "INTERRUPTED", "NOT_CONVERGED", "USAGE", "InputError", "UsageError", "cell_error", "excerpt"]

DONE = 0
BAD_INPUT = 1
USAGE = 2
NOT_CONVERGED = 3
INTERRUPTED = 130  # what a shell reports for a process ended by Ctrl-C


class InputError(ValueError):
    """Something is wrong with a file that the command reads or writes."""


class UsageError(Exception):
    """Something is wrong with the command line itself."""


def cell_error(source: str, row: int, column: int, what: str, name: str | None = None) -> InputError:
    """An error at a row and a column, both counted from 1; ``name`` is the column's name where there is one.

    >>> print(cell_error("data.csv", 3, 2, "the cell is empty", "height"))
    data.csv, row 3, column 2 ('height'): the cell is empty
    """
    named = "" if name is None else f" ({excerpt(name)})"
    return InputError(f"{source}, row {row}, column {column}{named}: {what}")


def excerpt(text: str, length: int = 40) -> str:
    """``text`` as a short quotation on one line, whatever is in it."""
    return repr(text if len(text) <= length else text[: length - 1] + "…")
