"""Which columns of a table are meant: by name or by number, chosen or left out, and those of a
model.
"""

from __future__ import annotations

import csv
import io
import shlex
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from difflib import get_close_matches

from ksos.cli.console import InputError, cell_error, excerpt

__all__ = ["Choice", "Columns", "column_names", "find_features", "named_by_position", "option"]


@dataclass(frozen=True)
class Choice:
    """What was asked for: the ``columns`` to use, in this order, or those to ``exclude`` (neither:
    all), and that of the ``weights``.

    ``features`` are the names of a model's features: without another choice, a table with a header
    gives these columns. ``categories`` are columns whose cells are words, whatever is in them.
    """

    columns: Sequence[str] | None = None
    exclude: Sequence[str] | None = None
    weights: str | None = None
    features: Sequence[str] | None = None
    categories: Sequence[str] = ()

    @property
    def words(self) -> list[str]:
        """All names and numbers in it."""
        weights = [] if self.weights is None else [self.weights]
        return [*(self.columns or ()), *(self.exclude or ()), *weights, *self.categories]


class Columns:
    """The ``width`` columns of a table, with ``names`` if there is a header, in ``row``; ``source``
    names it in errors.
    """

    def __init__(self, source: str, width: int, names: Sequence[str] | None, row: int = 1) -> None:
        self.source, self.width, self.names, self.row = (
            source,
            width,
            None if names is None else tuple(names),
            row,
        )

    def select(self, choice: Choice, skip: Sequence[int] = ()) -> tuple[list[int], list[int]]:
        """Positions, from 0, of the features and of the weights; those to ``skip`` are left out
        unless they are chosen.

        >>> columns = Columns("data.csv", 3, ["x", "y", "w"])
        >>> columns.select(Choice(weights="w")), columns.select(Choice(["y", "1"])), columns.select(Choice(exclude=["y"]))
        (([0, 1], [2]), ([1, 0], []), ([0, 2], []))
        """
        weighing = [] if choice.weights is None else [self.position(choice.weights)]
        if choice.columns is not None:
            features = self._distinct(choice.columns, "--columns")
            if both := [position for position in features if position in weighing]:
                raise InputError(
                    f"{self.source}: {self.shown(both[0])} cannot be both a feature and the"
                    " weights; leave it out of --columns"
                )
        else:
            out = {*weighing, *skip, *self._distinct(choice.exclude or (), "--exclude")}
            features = [position for position in range(self.width) if position not in out]
            if choice.features is not None and self.names is not None and choice.exclude is None:
                features = self._of_model(choice.features)
            for position in features:
                if self.unnamed(position):
                    what = "the header gives it no name (an index?); leave it out with --exclude"
                    raise cell_error(
                        self.source,
                        self.row,
                        position + 1,
                        f"{what} {position + 1} or --clean, or choose columns with --columns",
                    )
        if not features:
            raise InputError(
                f"{self.source}: no column is left for the data; all hold the weights, or text, or"
                " are left out by --exclude"
            )
        return features, weighing

    def position(self, column: str) -> int:
        """The position, from 0, of a column by its 1-based number or its name."""
        if named_by_position(column) and (
            1 <= int(column) <= self.width or column not in (self.names or ())
        ):
            if 1 <= int(column) <= self.width:
                return int(column) - 1
            raise InputError(
                f"{self.source} has columns 1 to {self.width}; there is no column {column}"
            )
        if self.names is None:
            what = (
                f"has no header, so there is no column {excerpt(column)}; choose columns by number,"
                f" 1 to {self.width}"
            )
            raise InputError(f"{self.source} {what}")
        found = [position for position, name in enumerate(self.names) if name == column]
        if len(found) == 1:
            return found[0]
        if found:
            listed = " and ".join(str(position + 1) for position in found)
            raise InputError(
                f"{self.source}: columns {listed} are both named {excerpt(column)}; choose one by"
                " its number"
            )
        shown = ", ".join(excerpt(name) for name in self.names[:20]) + (
            ", …" if self.width > 20 else ""
        )
        raise InputError(
            f"{self.source} has no column {excerpt(column)}; its columns are"
            f" {shown}{_meant(column, self.names)}"
        )

    def unnamed(self, position: int) -> bool:
        """Whether there is a header, and no name in it for this column."""
        return self.names is not None and not self.names[position]

    def shown(self, position: int) -> str:
        """A column in an error: its number, and its name if it has one."""
        return f"column {position + 1}" + (
            f" ({excerpt(self.names[position])})" if self.names else ""
        )

    def option(self, flag: str, positions: Iterable[int]) -> str:
        """What to type on the command line to name these columns: by name if that is clear, else by
        number.
        """
        words = []
        for position in positions:
            name = "" if self.names is None else self.names[position]
            clear = (
                name
                and not named_by_position(name)
                and self.names is not None
                and self.names.count(name) == 1
            )
            words.append(name if clear else str(position + 1))
        return option(flag, words)

    def _distinct(self, words: Sequence[str], flag: str) -> list[int]:
        found: list[int] = []
        for position in map(self.position, words):
            if position in found:
                raise InputError(
                    f"{self.source}: {self.shown(position)} is chosen twice by {flag}"
                    f" {','.join(words)}"
                )
            found.append(position)
        return found

    def _of_model(self, features: Sequence[str]) -> list[int]:
        assert self.names is not None
        if missing := [name for name in features if name not in self.names]:
            shown = ", ".join(map(excerpt, missing))
            there = ", ".join(map(excerpt, self.names[:20]))
            what = (
                f"has no column {shown}, as the model has; its columns are"
                f" {there}{', …' if self.width > 20 else ''}"
            )
            raise InputError(f"{self.source} {what}; rename them, or choose columns with --columns")
        return [self.position(name) for name in features]


def named_by_position(column: str) -> bool:
    """Whether ``column`` is a 1-based number."""
    return column.isascii() and column.isdigit()


def option(flag: str, words: Sequence[str]) -> str:
    """A list as it is typed in a shell.

    >>> option("--exclude", ["name", "speed, m/s"])
    '--exclude \\'name,"speed, m/s"\\''
    """
    text = io.StringIO()
    csv.writer(text, lineterminator="").writerow(words)
    return f"{flag} {shlex.quote(text.getvalue())}"


def _meant(word: str, names: Sequence[str]) -> str:
    """The name that a word is close to, also in other letters."""
    close = get_close_matches(word.lower(), [name.lower() for name in names], 1)
    return (
        f"; did you mean {excerpt(next(name for name in names if name.lower() == close[0]))}?"
        if close
        else ""
    )


def column_names(names: Sequence[str] | None, d: int) -> list[str]:
    """What d columns or features are called: by their names, or x1, x2, … if they have none.

    >>> column_names(None, 2)
    ['x1', 'x2']
    """
    return [f"x{k + 1}" for k in range(d)] if names is None else list(names)


def find_features(words: Sequence[str], names: Sequence[str], flag: str) -> list[int]:
    """The positions, counted from 0, of the features that ``words`` name, each at most once; a
    number is a position counted from 1.

    >>> find_features(["2", "x1"], ["x1", "x2", "x3"], "--features")
    [1, 0]
    """
    found: list[int] = []
    for word in words:
        if word in names and not (named_by_position(word) and int(word) <= len(names)):
            place = list(names).index(word)
        elif named_by_position(word) and 1 <= int(word) <= len(names):
            place = int(word) - 1
        else:
            there = (
                f"{', '.join(names[:20])}{', …' if len(names) > 20 else ''} (by number, 1 to"
                f" {len(names)})"
            )
            raise InputError(
                f"{flag}: there is no feature {excerpt(word)}; there are"
                f" {there}{_meant(word, names)}"
            )
        if place in found:
            raise InputError(f"{flag} names {names[place]} twice")
        found.append(place)
    return found
