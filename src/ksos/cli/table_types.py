"""What a command asks of a data file, and what it gets."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    import numpy as np

__all__ = ["Table", "TableOptions"]


@dataclass(frozen=True)
class TableOptions:
    """How to read a table: which columns, which one as weights, whether there is a header (None: detect), what separates the cells."""

    columns: Sequence[str] | None = None
    weights: str | None = None
    header: bool | None = None
    delimiter: str | None = None


@dataclass(frozen=True)
class Table:
    """Finite numbers: points (n, d), the names of their d columns and the weights (n), where there are such; ``source`` for errors."""

    source: str
    points: np.ndarray
    names: tuple[str, ...] | None
    weights: np.ndarray | None

    def row(self, index: int) -> int:
        """The row of the file, counted from 1, that ``points[index]`` came from; a header is row 1, and no row is left out."""
        return index + (1 if self.names is None else 2)
