"""The median distance between the samples."""

from __future__ import annotations

import math

import numpy as np
from scipy.spatial.distance import pdist

from ksos.bandwidth.spreads import spreads
from ksos.kernels import Kernel
from ksos.measures import Measure

__all__ = ["median"]

_MOST_POINTS = 3000  # 4.5 million pairs
_UNLIKE = 10.0


def median(points: np.ndarray, weights: np.ndarray, rng: np.random.Generator, kernel: Kernel, measure: Measure) -> np.ndarray:
    """Weighted median of the distances between distinct points, the pair (i, j) weighing a_i a_j.

    Where spreads of features differ by more than a factor of ten, distances are taken in units of them and there is one bandwidth per
    feature: a scalar would not see the features of small spread. Beyond 3000 distinct points: of a random subset of them.
    """
    spread = spreads(points, weights)
    known = spread[spread > 0.0]
    if known.size and known.max() > _UNLIKE * known.min():
        units = np.where(spread > 0.0, spread, np.median(known))
        return np.asarray(_median_distance((points - np.median(points, axis=0)) / units, weights, rng) * units)
    return _median_distance(points, weights, rng)


def _median_distance(points: np.ndarray, weights: np.ndarray, rng: np.random.Generator) -> np.ndarray:
    if points.shape[0] > _MOST_POINTS:
        chosen = np.sort(rng.choice(points.shape[0], _MOST_POINTS, replace=False))
        points, weights = points[chosen], weights[chosen]
    if points.shape[0] < 2:
        return np.zeros(())
    exponent = _exponent(np.ptp(points, axis=0).max())  # distances of 1e±150 are squared in a unit near the largest
    middle = _weighted_median(pdist(np.ldexp(points, -exponent)), weights)
    if middle < 1e-150:  # there the squares have underflowed: take a unit near the median, found from distances that need no squares
        exponent = _exponent(_weighted_median(pdist(points, "chebyshev"), weights))
        with np.errstate(over="ignore"):
            middle = _weighted_median(pdist(np.clip(np.ldexp(points, -exponent), -1e150, 1e150)), weights)
    return np.asarray(np.ldexp(middle, exponent))


def _exponent(scale: float) -> int:
    """Of a power of two near ``scale``: dividing by it changes no digit of the points, nor of their differences."""
    return math.frexp(scale)[1]


def _weighted_median(distances: np.ndarray, weights: np.ndarray) -> float:
    """The middle of the interval of minimisers of Σ_{i<j} a_i a_j |d_ij − t|: for equal weights, NumPy's median."""
    if np.all(weights == weights[0]):
        return float(np.median(distances))
    i, j = np.triu_indices(weights.shape[0], 1)
    order = np.argsort(distances)
    values, cumulative = distances[order], np.cumsum((weights[i] * weights[j])[order])
    half = 0.5 * cumulative[-1]
    slack = 1e-12 * cumulative[-1]  # rounding of the cumulative sum must not decide between one middle value and two
    low, high = np.searchsorted(cumulative, [half - slack, half + slack])
    return float(0.5 * (values[low] + values[min(high, values.shape[0] - 1)]))
