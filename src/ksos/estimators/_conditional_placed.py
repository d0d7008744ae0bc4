"""The law of one output at one x: a mixture whose distribution function and quantiles come from the table that all rows share."""

from __future__ import annotations

from typing import TYPE_CHECKING, Self

import numpy as np

from ksos.density.mixture import SoSMixture
from ksos.density.sums import Sums

if TYPE_CHECKING:
    from ksos.estimators._conditional_residual import LineTable

__all__ = ["PlacedLaw"]


class PlacedLaw(SoSMixture):
    """The law of y = μ + s·u, with u of the law ``number`` of a table."""

    table: LineTable
    number: int
    location: float
    scale: float

    @classmethod
    def of(cls, law: SoSMixture, table: LineTable, number: int, location: float, scale: float) -> Self:
        """``law`` is that of u."""
        moved = law.affine(scale, location)
        out = cls.from_parts(moved.parts, moved.measure)
        out.table, out.number, out.location, out.scale = table, number, location, scale
        return out

    @property
    def answers(self) -> Sums:
        return _Tabulated(self.unnamed)


class _Tabulated(Sums):
    """The same answers as those for many rows, to the last digit."""

    p: PlacedLaw

    def cumulative(self, X: np.ndarray) -> np.ndarray:
        p = self.p
        return p.table.cdf(np.full(X.shape[0], p.number), (X[:, 0] - p.location) / p.scale)

    def quantiles(self, q: np.ndarray) -> np.ndarray:
        p = self.p
        return p.location + p.scale * p.table.ppf(q, p.number)[0]
