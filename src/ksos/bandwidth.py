"""Rules for the bandwidth: all of them scale with the data, count weighted samples as repeated ones, and do not see a shift."""

from __future__ import annotations

import math
import warnings
from collections.abc import Callable

import numpy as np
from scipy.spatial.distance import pdist

from ksos._validation import as_bandwidth

__all__ = ["RULES", "bandwidth_rule"]

_MOST_POINTS = 3000  # 4.5 million pairs


def bandwidth_rule(name: str, points: np.ndarray, weights: np.ndarray, rng: np.random.Generator) -> np.ndarray:
    """The bandwidth that rule ``name`` gives for distinct ``points`` with ``weights`` (sum 1): a scalar or one entry per feature.

    Zero spread gives 1, with a warning.
    """
    with np.errstate(over="ignore"):
        extent = np.ptp(points, axis=0)
    if not np.all(np.isfinite(extent)):
        raise ValueError(f"bandwidth={name!r}: differences between the samples overflow; rescale the data or pass a number as bandwidth")
    spread = RULES[name](points, weights, rng)
    if np.any(spread == 0.0):
        where = "the points have" if spread.ndim == 0 else f"feature(s) {np.flatnonzero(spread == 0.0).tolist()} have"
        warnings.warn(f"bandwidth={name!r}: {where} no spread; the bandwidth is set to 1 there", UserWarning, stacklevel=2)
    return as_bandwidth(np.where(spread == 0.0, 1.0, spread), f"bandwidth={name!r}: rescale the data: their bandwidth")


def _median(points: np.ndarray, weights: np.ndarray, rng: np.random.Generator) -> np.ndarray:
    """Weighted median of the distances between distinct points, the pair (i, j) weighing a_i a_j.

    Beyond 3000 distinct points: of a random subset of them.
    """
    if points.shape[0] > _MOST_POINTS:
        chosen = np.sort(rng.choice(points.shape[0], _MOST_POINTS, replace=False))
        points, weights = points[chosen], weights[chosen]
    if points.shape[0] < 2:
        return np.zeros(())
    exponent = _exponent(np.ptp(points, axis=0).max())  # distances of 1e±150 are squared in a unit near the largest
    median = _weighted_median(pdist(np.ldexp(points, -exponent)), weights)
    if median < 1e-150:  # there the squares have underflowed: take a unit near the median, found from distances that need no squares
        exponent = _exponent(_weighted_median(pdist(points, "chebyshev"), weights))
        with np.errstate(over="ignore"):
            median = _weighted_median(pdist(np.clip(np.ldexp(points, -exponent), -1e150, 1e150)), weights)
    return np.asarray(np.ldexp(median, exponent))


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


def _normal_reference(constant: Callable[[int], float]) -> Callable[[np.ndarray, np.ndarray, np.random.Generator], np.ndarray]:
    """η = 2h with h = constant(d)·n^{−1/(d+4)}·(standard deviation), per feature: a squared Gaussian kernel then has deviation h."""

    def rule(points: np.ndarray, weights: np.ndarray, rng: np.random.Generator) -> np.ndarray:
        d = points.shape[1]
        n = 1.0 / float(weights @ weights)  # the effective sample size
        scale = np.ptp(points, axis=0)  # features of 1e±150 are squared in units of this; 0 for a constant one
        unit = (points - points[0]) / np.where(scale > 0.0, scale, 1.0)
        deviation = scale * np.sqrt(weights @ (unit - weights @ unit) ** 2)
        return np.asarray(2.0 * constant(d) * n ** (-1.0 / (d + 4)) * deviation)

    return rule


RULES: dict[str, Callable[[np.ndarray, np.ndarray, np.random.Generator], np.ndarray]] = {
    "median": _median,
    "scott": _normal_reference(lambda d: 1.0),
    "silverman": _normal_reference(lambda d: ((d + 2) / 4.0) ** (-1.0 / (d + 4))),
}
"""Every rule by name."""
