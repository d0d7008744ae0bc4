"""What does not belong among samples: columns of text, an index, missing cells. Refused with the
remedy, or left out and said.
"""

from __future__ import annotations

import csv
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass

import numpy as np

from ksos.cli.cells import is_decorated, is_missing, is_number
from ksos.cli.columns import Columns
from ksos.cli.console import InputError, cell_error
from ksos.cli.csv_rows import NotANumberError
from ksos.cli.dialect import Dialect

__all__ = ["Cleaner", "Say", "sample_rows"]

Say = Callable[[str], None]
_INDEX_ROWS = 10  # in fewer, a column may count the rows by chance
_MOST_MISSING = 0.5  # of the cells of a column that is kept
_SHOWN = 6


def sample_rows(lines: Sequence[str], dialect: Dialect, width: int) -> list[list[str]]:
    """The cells of the first lines of a file, as far as they can be split into ``width``."""
    found: list[list[str]] = []
    try:
        for row in csv.reader(
            (f"{line}\n" for line in lines),
            delimiter=dialect.delimiter,
            strict=True,
            skipinitialspace=True,
        ):
            found.append(row)
    except csv.Error:
        pass  # the sample may end within a cell
    return [row for row in found if len(row) == width]


@dataclass(frozen=True)
class Cleaner:
    """The rules for the ``columns`` of one table, of which some may be left out if the ``choice``
    is free.

    With ``clean``, what does not belong is left out, with ``drop`` rows with missing cells; what is
    left out goes to ``say``. ``words`` are columns of words, which are kept as such; None: here
    columns are numbers alone.
    """

    columns: Columns
    choice: bool
    clean: bool
    drop: bool
    say: Say
    words: Mapping[int, Mapping[str, int]] | None = None

    def text_columns(self, sample: Sequence[Sequence[str]], decimal: str) -> list[int]:
        """Those of whose cells, as far as they are not missing, most are no numbers; and those
        without a name in a header.
        """
        found = []
        for position in range(self.columns.width):
            cells = [row[position] for row in sample if not is_missing(row[position])]
            numbers = sum(is_number(cell, decimal) for cell in cells)
            if self.columns.unnamed(position) or 2 * numbers < len(cells):
                found.append(position)
        return found

    def decorated_columns(self, sample: Sequence[Sequence[str]], decimal: str) -> list[int]:
        """Those of whose cells most are numbers with signs that are not read."""
        cells = [
            [row[position] for row in sample if not is_missing(row[position])]
            for position in range(self.columns.width)
        ]
        return [
            k
            for k, column in enumerate(cells)
            if 2 * sum(is_decorated(cell, decimal) for cell in column) > len(column)
        ]

    def leave_out(self, positions: Sequence[int], why: str) -> None:
        """Say which columns are left out."""
        if positions:
            shown = ", ".join(map(self.columns.shown, positions[:_SHOWN])) + (
                f" and {len(positions) - _SHOWN} more" if len(positions) > _SHOWN else ""
            )
            kept = (
                f" ({self.columns.option('--categories', positions)} keeps text)"
                if self.words is not None and "text" in why
                else ""
            )
            self.say(f"{self.columns.source}: columns {why} are left out: {shown}{kept}")

    def not_a_number(
        self, error: NotANumberError, text: Sequence[int], chosen: Sequence[int]
    ) -> InputError:
        """What to do about a cell that is no number; ``text`` are the columns of text."""
        named = None if self.columns.names is None else self.columns.names[error.position]
        if error.position in text:
            out = [position for position in text if position in chosen]
            left = "columns of text and dates" if len(out) > 1 else "the column"
            remedy = (
                f"leave out {left} with {self.columns.option('--exclude', out)}, or with --clean"
            )
            if self.words is not None:
                remedy += (
                    f", or keep text as categories with {self.columns.option('--categories', out)}"
                )
        else:
            remedy = (
                "correct the cell, or leave out the column with"
                f" {self.columns.option('--exclude', [error.position])}"
            )
        return cell_error(
            self.columns.source, error.row, error.position + 1, f"{error}; {remedy}", named
        )

    def without_index(self, features: list[int], matrix: np.ndarray) -> list[int]:
        """The features but for a column that counts the rows from 0 or 1: it says nothing of where
        samples lie.
        """
        n, kept = matrix.shape[0], []
        for k, position in enumerate(features):
            start = matrix[0, k]
            if (
                n < _INDEX_ROWS
                or position in (self.words or ())
                or start not in (0.0, 1.0)
                or not np.array_equal(matrix[:, k], start + np.arange(n))
            ):
                kept.append(position)
            elif self.clean:
                self.leave_out([position], "that count the rows")
            else:
                what = (
                    f"it counts the rows ({start:.0f}, {start + 1:.0f}, {start + 2:.0f}, …), which"
                    " is an index and no measurement"
                )
                remedy = (
                    f"leave it out with {self.columns.option('--exclude', [position])} or --clean,"
                    " or list it in --columns"
                )
                raise InputError(
                    f"{self.columns.source}, {self.columns.shown(position)}: {what}; {remedy}"
                )
        return kept

    def say_marks(self, features: Sequence[int], matrix: np.ndarray) -> None:
        """Say where a number such as −999 stands in several rows of a column, farther from all
        others than these are from each other.
        """
        for k, position in enumerate(features):
            column = matrix[:, k][np.isfinite(matrix[:, k])]
            ends = {float(column.min()), float(column.max())} if column.size else set()
            for mark in (
                end
                for end in ends
                if end.is_integer() and abs(end) > 90.0 and not f"{abs(end):.0f}".strip("9")
            ):
                rest = column[column != mark]
                if (
                    rest.size
                    and column.size - rest.size > 1
                    and np.min(np.abs(rest - mark)) > np.ptp(rest) > 0.0
                ):
                    rows = (
                        f"is {mark:g} in {column.size - rest.size} rows, far from all others,"
                        f" {rest.min():g} to {rest.max():g}"
                    )
                    remedy = "if that marks missing cells, empty them and pass --drop-missing"
                    self.say(
                        f"{self.columns.source}: {self.columns.shown(position)} {rows}; {remedy}"
                    )

    def without_gaps(self, features: list[int], matrix: np.ndarray) -> list[int]:
        """With ``clean``: the features but for those of which more than half of the cells are
        missing.
        """
        if not self.clean:
            return features
        missing = np.isnan(matrix).mean(axis=0)
        out = [position for k, position in enumerate(features) if missing[k] > _MOST_MISSING]
        self.leave_out(out, "with most cells missing")
        return [position for position in features if position not in out]

    def complete(self, chosen: Sequence[int], rows: np.ndarray, matrix: np.ndarray) -> np.ndarray:
        """Which of the ``rows`` (their numbers in the file) are complete in the ``chosen`` columns;
        raises unless others may be dropped.
        """
        missing = np.isnan(matrix)
        complete = ~missing.any(axis=1)
        n, lost = rows.size, int((~complete).sum())
        if not lost:
            return complete
        counts = missing.sum(axis=0)
        of = ", ".join(
            f"{self.columns.shown(chosen[k])}: {counts[k]}"
            for k in np.argsort(-counts, kind="stable")[:_SHOWN]
            if counts[k]
        )
        if (self.drop or self.clean) and lost < n:
            self.say(
                f"{self.columns.source}: {lost} of {n} rows have missing cells and are left out"
                f" ({of})"
            )
            return complete
        row = int(missing.any(axis=1).argmax())
        k = int(missing[row].argmax())
        remedies = [] if lost == n else ["--drop-missing leaves out the rows"]
        if self.choice:
            remedies.append(
                f"{self.columns.option('--exclude', [chosen[k] for k in counts.nonzero()[0]])}"
                " leaves out the columns"
            )
        remedy = ", ".join(remedies) or "fill them"
        what = f"the cell is missing; {lost} of {n} rows have missing cells ({of}): {remedy}"
        named = None if self.columns.names is None else self.columns.names[chosen[k]]
        raise cell_error(self.columns.source, int(rows[row]), chosen[k] + 1, what, named)
