"""The stack of mixtures that a mixed table is corrected from: numeric and categorical columns, with
missing cells.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from ksos.choose.bandwidth import Units
from ksos.choose.mixtures import Mixtures, Samples, mixture_path, student_scales
from ksos.choose.reference import FLOORS, FREEDOM, LADDER, MERGED, Fit, Stack, Step
from ksos.data import Fold
from ksos.density import MixedReference
from ksos.measures import merged_cells

__all__ = ["MixedStack", "units_of"]

# Levels of a column at which fits start: with more, few rows are left for each.
_MOST_LEVELS = 6
# Clusters in each level at a start.
_CLUSTERS = (1, 2, 3)
# Rows for each cluster, on average, that make such a start worth its time.
_ROWS = 8

# In rows: levels may nearly tell the component, or depend on it little. The two are worth 0.02 nats
# each where they are right, in benchmarks/mixed_tables.py.
_SMOOTHINGS = (0.1, 10.0)

# Patterns of missing numeric cells, each of which takes time in every step of every fit: with more,
# fits with one start and at most eight components have to do.
_MANY_PATTERNS = 50


def units_of(u: np.ndarray, masses: np.ndarray, rng: np.random.Generator) -> Units:
    """The units of numeric columns with missing cells, from what is observed of each."""
    d = u.shape[1]
    shift, scale, still = np.zeros(d), np.ones(d), np.ones(d, dtype=bool)
    for k in range(d):
        seen = ~np.isnan(u[:, k])
        if seen.any():
            weights = masses[seen] / masses[seen].sum()
            one = Units.of(u[seen][:, [k]], weights, rng)
            shift[k], scale[k], still[k] = one.shift[0], one.scale[0], one.still[0]
    return Units(shift, scale, still)


class MixedStack(Stack):
    """The stack of a table of numeric cells ``u`` and codes ``c``, with ``counts`` levels in each
    categorical column.

    Beside the starts of numeric tables there are those at the levels of a column: components that
    belong to a class.
    """

    def __init__(
        self,
        u: np.ndarray,
        c: np.ndarray,
        counts: tuple[int, ...],
        weights: np.ndarray,
        folds: Sequence[Fold],
        units: Units,
    ) -> None:
        self.codes, self.counts = c, counts
        super().__init__(u, weights, folds, units)

    def _samples(self, y: np.ndarray) -> Samples:
        return Samples.of_cells(y, self.codes, self.counts)

    @property
    def plan(self) -> list[Step]:
        steps, n = super().plan, self.codes.shape[0]
        for column, count in enumerate(self.counts):
            if 2 <= count <= _MOST_LEVELS:
                sizes = [count * s for s in _CLUSTERS if count * s * _ROWS <= n]
                most = max(self.sizes)
                steps += [Step(size, 0, FLOORS, False, column) for size in sizes if size <= most]
        cells = self.samples[0][0].cells
        if cells is not None and len(cells.parts) > _MANY_PATTERNS:
            return [s for s in steps if s.start == 0 and s.floors is FLOORS and s.components <= 8]
        return steps

    def _variants(self, mixtures: Mixtures, samples: Samples) -> list[Mixtures]:
        if not self.counts:
            return [mixtures]
        more = [mixtures.smoothed(samples, self.masses, rows) for rows in _SMOOTHINGS]
        return [mixtures, *more]

    # Student distributions and the wide one around the mean of what is observed, with levels that
    # depend on nothing.
    def _tails(self, samples: Samples, axes: np.ndarray | None, floor: np.ndarray) -> list[Fit]:
        centers = np.zeros((self.masses.shape[0], 1), dtype=int)
        (one,) = mixture_path(samples, self.masses, centers, [floor])
        mean, covariance = one.means[:, 0], one.covariances[:, 0]

        def scaled(shares: np.ndarray, scales: np.ndarray) -> Fit:
            found = Mixtures.of_scales(shares, scales, mean, covariance)
            return Fit(found._replace(chances=np.repeat(one.chances, scales.size, axis=1)))

        fits = [scaled(LADDER**-2.0 / np.sum(LADDER**-2.0), LADDER)]
        for freedom in FREEDOM:
            shares, scales = student_scales(freedom)
            # of the same variance as the rows
            fits.append(scaled(shares, scales * np.sqrt((freedom - 2.0) / freedom)))
        return fits

    def _mixture(self, weights: np.ndarray, rows: Sequence[int]) -> MixedReference:
        return self._in_data(*self._components(weights, rows))

    def _in_data(
        self, weights: np.ndarray, means: np.ndarray, covariances: np.ndarray, chances: np.ndarray
    ) -> MixedReference:
        scale = self.units.scale
        ends = np.cumsum(self.counts).tolist()
        columns = [
            chances[:, end - n : end] / chances[:, end - n : end].sum(axis=1, keepdims=True)
            for end, n in zip(ends, self.counts, strict=True)
        ]
        return MixedReference(
            weights / weights.sum(),
            self.units.shift + means * scale,
            covariances * (scale[:, None] * scale),
            tuple(columns),
        )

    def _merged(self, mixture: MixedReference) -> MixedReference:
        found = mixture
        chances = np.concatenate([np.empty((found.weights.shape[0], 0)), *found.chances], axis=1)
        scale = self.units.scale
        parts = merged_cells(
            found.weights,
            (found.means - self.units.shift) / scale,
            found.covariances / (scale[:, None] * scale),
            chances,
            MERGED,
            LADDER.size,
        )
        return self._in_data(*parts)
