"""Which columns of a table are features and which one holds the weights."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from ksos.cli.errors import InputError, excerpt

__all__ = ["Selection", "named_by_position", "select_columns"]


@dataclass(frozen=True)
class Selection:
    """Positions of columns, counted from 0: the features in their order, and the weights."""

    features: tuple[int, ...]
    weights: int | None

    @property
    def all(self) -> tuple[int, ...]:
        """Every column that must hold numbers."""
        return self.features if self.weights is None else (*self.features, self.weights)


def named_by_position(column: str) -> bool:
    """Whether ``column`` is a 1-based number; such a word is never looked up as a name."""
    return column.isascii() and column.isdigit()


def select_columns(
    source: str, width: int, names: Sequence[str] | None, columns: Sequence[str] | None = None, weights: str | None = None
) -> Selection:
    """Find ``columns`` (None: all but the weights) and ``weights`` among ``width`` columns that may have ``names``.

    >>> select_columns("data.csv", 3, ["x", "y", "w"], weights="w")
    Selection(features=(0, 1), weights=2)
    >>> select_columns("data.csv", 3, ["x", "y", "w"], ["y", "1"])
    Selection(features=(1, 0), weights=None)
    """
    weight_position = None if weights is None else _position(source, width, names, weights)
    if columns is None:
        features = [position for position in range(width) if position != weight_position]
        for position in features:
            if names is not None and not names[position]:
                raise InputError(
                    f"{source}, row 1, column {position + 1}: the header gives it no name (an index?); choose the columns with --columns"
                )
    else:
        features = [_position(source, width, names, column) for column in columns]
    seen: set[int] = set()
    for position in features:
        if position in seen:
            raise InputError(f"{source}: column {position + 1} is chosen twice by --columns {','.join(columns or ())}")
        if position == weight_position:
            raise InputError(f"{source}: column {position + 1} cannot be both a feature and the weights; leave it out of --columns")
        seen.add(position)
    if not features:
        raise InputError(f"{source}: no column is left for the data; the only one holds the weights")
    return Selection(tuple(features), weight_position)


def _position(source: str, width: int, names: Sequence[str] | None, column: str) -> int:
    if named_by_position(column):
        if 1 <= int(column) <= width:
            return int(column) - 1
        raise InputError(f"{source} has columns 1 to {width}; there is no column {column}")
    if names is None:
        raise InputError(f"{source} has no header, so there is no column {excerpt(column)}; choose columns by number, 1 to {width}")
    found = [position for position, name in enumerate(names) if name == column]
    if len(found) == 1:
        return found[0]
    if found:
        listed = " and ".join(str(position + 1) for position in found)
        raise InputError(f"{source}: columns {listed} are both named {excerpt(column)}; choose one by its number")
    shown = ", ".join(excerpt(name) for name in names[:20])
    raise InputError(f"{source} has no column {excerpt(column)}; its columns are {shown}{', …' if width > 20 else ''}")
