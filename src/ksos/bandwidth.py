"""Rules for the bandwidth: all of them scale with the data, count weighted samples as repeated ones, and do not see a shift."""

from __future__ import annotations

import math
import warnings
from collections.abc import Callable

import numpy as np
from scipy.spatial.distance import pdist, squareform

from ksos._validation import as_bandwidth

__all__ = ["RULES", "bandwidth_rule"]

_MOST_POINTS = 3000  # 4.5 million pairs
_UNLIKE = 10.0
_LEFT_OUT_POINTS, _FEW_POINTS, _OUTLYING = 1000, 20, 10.0
_WIDER = 1.4


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

    Where spreads of features differ by more than a factor of ten, distances are taken in units of them and there is one bandwidth per
    feature: a scalar would not see the features of small spread. Beyond 3000 distinct points: of a random subset of them.
    """
    spreads = _spreads(points, weights)
    known = spreads[spreads > 0.0]
    if known.size and known.max() > _UNLIKE * known.min():
        units = np.where(spreads > 0.0, spreads, np.median(known))
        return np.asarray(_median_distance((points - np.median(points, axis=0)) / units, weights, rng) * units)
    return _median_distance(points, weights, rng)


def _median_distance(points: np.ndarray, weights: np.ndarray, rng: np.random.Generator) -> np.ndarray:
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
        return np.asarray(2.0 * constant(d) * n ** (-1.0 / (d + 4)) * _deviations(points, weights))

    return rule


def _deviations(points: np.ndarray, weights: np.ndarray) -> np.ndarray:
    """The standard deviation of each feature."""
    scale = np.ptp(points, axis=0)  # features of 1e±150 are squared in units of this; 0 for a constant one
    unit = (points - points[0]) / np.where(scale > 0.0, scale, 1.0)
    return np.asarray(scale * np.sqrt(weights @ (unit - weights @ unit) ** 2))


_silverman = _normal_reference(lambda d: ((d + 2) / 4.0) ** (-1.0 / (d + 4)))


def _left_out(points: np.ndarray, weights: np.ndarray, rng: np.random.Generator) -> np.ndarray:
    """1.4 times the η per feature for which each sample is best predicted by Gaussians of deviation η/2 around all the others.

    The features share one multiple of their own spreads in Silverman's rule; samples far from all others count for a bounded amount, so
    that a few outliers do not widen it. Beyond 1000 distinct points: on a random subset, corrected for its size. A sum of squares is
    sharper than that kernel density estimate and takes a wider kernel: hence the 1.4. Fewer than 20 points: Silverman's rule itself.
    """
    n, d = points.shape
    unit = _robust_silverman(points, weights)
    if n < _FEW_POINTS:
        return unit
    wanted, unit = unit, np.where(unit > 0.0, unit, 1.0)
    correction = 1.0
    if n > _LEFT_OUT_POINTS:
        chosen = np.sort(rng.choice(n, _LEFT_OUT_POINTS, replace=False))
        points, weights, correction = points[chosen], weights[chosen], (_LEFT_OUT_POINTS / n) ** (1.0 / (d + 4))
    with np.errstate(over="ignore"):
        squared = pdist(np.clip((points - np.median(points, axis=0)) / unit, -1e150, 1e150), "sqeuclidean")
    D = squareform(np.minimum(squared, 1e300))
    np.fill_diagonal(D, np.inf)  # leave each out
    scores: dict[float, float] = {}
    for step in (2.0**0.5, 2.0**0.125):
        best = max(scores, key=scores.__getitem__, default=1.0)
        for k in range(-7, 3) if step > 1.4 else (-2, -1, 1, 2):
            scores[best * step**k] = _bounded_score(D, weights, best * step**k, d)
    return np.asarray(_WIDER * correction * max(scores, key=scores.__getitem__) * wanted)


def _bounded_score(D: np.ndarray, weights: np.ndarray, multiple: float, d: int) -> float:
    """The mean log-density of the samples under all the others, η = multiple in units of D; none counts as less than the median − 10."""
    peak = D.min(axis=1)
    values = np.log(np.exp((peak[:, None] - D) * (2.0 / multiple**2)) @ weights) - peak * (2.0 / multiple**2) - d * math.log(multiple)
    order = np.argsort(values, kind="stable")
    middle = values[order][np.searchsorted(np.cumsum(weights[order]), 0.5 * weights.sum())]
    return float(weights @ np.maximum(values, middle - _OUTLYING))


def _robust_silverman(points: np.ndarray, weights: np.ndarray) -> np.ndarray:
    """Silverman's rule with spreads that do not see outliers."""
    d, n = points.shape[1], 1.0 / float(weights @ weights)
    return 2.0 * ((d + 2) / 4.0 * n) ** (-1.0 / (d + 4)) * _spreads(points, weights)


def _spreads(points: np.ndarray, weights: np.ndarray) -> np.ndarray:
    """Per feature the lesser of standard deviation and (interquartile range)/1.349, where the latter is not zero."""
    deviation = _deviations(points, weights)
    order = np.argsort(points, axis=0, kind="stable")
    x, w = np.take_along_axis(points, order, axis=0), weights[order]
    x = x - x[x.shape[0] // 2]  # a middle one: an outlier would take the digits of all others
    cumulative = np.cumsum(w, axis=0) - 0.5 * w
    low, high = (np.array([np.interp(level, cumulative[:, k], x[:, k]) for k in range(points.shape[1])]) for level in (0.25, 0.75))
    return np.where(high > low, np.minimum((high - low) / 1.349, deviation), deviation)


RULES: dict[str, Callable[[np.ndarray, np.ndarray, np.random.Generator], np.ndarray]] = {
    "auto": _left_out,
    "median": _median,
    "scott": _normal_reference(lambda d: 1.0),
    "silverman": _silverman,
}
"""Every rule by name."""
