"""Warnings for conditions and rows that are far outside of the data."""

from __future__ import annotations

import math
import warnings
from collections.abc import Sequence
from typing import Any, NamedTuple

import numpy as np
from sklearn.utils import _safe_indexing

from ksos.density.corrected import Corrected
from ksos.density.terms import Terms
from ksos.ground.names import said, warn_caller

__all__ = ["FeatureRange", "warn_if_far"]

# nats lost: of one feature of a normal distribution, 22 standard deviations
_FEW_NATS = 200.0
_PER_FEATURE = 50.0
# support points at which densities are compared
_MOST_POINTS = 500
# ranges of a feature beyond its ends: the default regressors are flat or linear there
_FAR = 2.0


def warn_if_far(p: Terms, found: Terms, given: list[int], values: np.ndarray, words: str) -> None:
    r"""Warn if ``found``, the distribution of ``p`` given x_S = v, is the tail of a kernel and
    nothing else.

    Compared are the largest values of p itself and of p(v, x_R): for a normal distribution their
    logarithms differ by z²/2, z being the distance of v in standard deviations. The difference does
    not depend on the scale of any feature. A reference may have heavy tails, where the density
    falls far less: over references, z is measured in standard deviations of the reference.
    """
    if p.measure.atoms is not None:
        return
    rest = [k for k in range(p.n_features) if k not in given]
    own, others = (_some(one.support_points) for one in (p, found))
    completed = np.empty((others.shape[0], p.n_features))
    completed[:, given] = values
    completed[:, rest] = np.clip(others, *found.measure.boundaries(len(rest)))
    highest, there = (float(np.max(p.log_by_volume(rows))) for rows in (own, completed))
    lost = max(highest - there, 0.5 * _reference_distance(p, given, values) ** 2)
    if lost > _FEW_NATS + _PER_FEATURE * len(given):
        distance = "no distance that floats hold"
        if math.isfinite(lost):
            distance = f"{math.sqrt(2.0 * lost):.2g} standard deviations of a normal distribution"
        warn_caller(
            f"the condition {words} is far outside of the data: the density there is that at"
            f" {distance}; the answer is the tail of the nearest kernel, no more"
        )


def _reference_distance(p: Terms, given: list[int], values: np.ndarray) -> float:
    """The largest distance of a value from the mean of its feature in standard deviations of the
    references; 0 if a term has none.
    """
    every = []
    for weight, term in p.parts:
        if not isinstance(term, Corrected):
            return 0.0
        own = np.diagonal(term.normals.covariances, axis1=1, axis2=2)[:, given]
        every.append((weight * term.normals.weights, term.normals.means[:, given], own))
    weights, means, variances = (np.concatenate([one[i] for one in every]) for i in range(3))
    middle = weights @ means
    variance = weights @ (variances + (means - middle) ** 2)
    return float(np.max(np.abs(values - middle) / np.sqrt(variance)))


def _some(points: np.ndarray) -> np.ndarray:
    """At most so many of the points, evenly through their list."""
    return points[:: -(-points.shape[0] // _MOST_POINTS)]


class FeatureRange(NamedTuple):
    """Least and largest value of every feature, NaN where it holds no numbers."""

    low: np.ndarray
    high: np.ndarray
    names: Sequence[str] | None

    @classmethod
    def of(cls, X: Any, names: Sequence[str] | None) -> FeatureRange:
        """The range of every column of ``X``."""
        columns = np.stack([_floats(X, k) for k in range(X.shape[1])])
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", RuntimeWarning)  # a column without a number is NaN
            ends = np.nanmin(columns, axis=1), np.nanmax(columns, axis=1)
        return cls(*ends, None if names is None else [str(name) for name in names])

    def warn_if_far(self, X: Any) -> None:
        """Warn once, naming the feature that lies farthest outside."""
        slack = _FAR * (self.high - self.low)
        columns = np.stack([_floats(X, k) for k in range(X.shape[1])], axis=1)
        with np.errstate(invalid="ignore", divide="ignore"):
            excess = np.maximum(self.low - columns, columns - self.high) / slack
        excess = np.where(slack > 0.0, np.nan_to_num(excess, nan=0.0), 0.0)
        rows = np.flatnonzero(excess.max(axis=1, initial=0.0) > 1.0)
        if rows.size:
            row, k = np.unravel_index(int(np.argmax(excess)), excess.shape)
            warn_caller(
                f"{rows.size} of {X.shape[0]} rows are far outside of the data, first row "
                f"{rows[0]}: {said(int(k), self.names)} = {columns[row, k]:g}, fitted from "
                f"{self.low[k]:g} to {self.high[k]:g}; there a regressor extrapolates, and the "
                "distribution does not know its error"
            )


def _floats(X: Any, k: int) -> np.ndarray:
    """Column ``k`` as floats, NaN where it holds something else."""
    try:
        return np.asarray(_safe_indexing(X, k, axis=1), dtype=np.float64)
    except (TypeError, ValueError):
        return np.full(X.shape[0], np.nan)
