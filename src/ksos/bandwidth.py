"""Rules for the bandwidth: all of them scale with the data, count weighted samples as repeated ones, and do not see a shift."""

from __future__ import annotations

import warnings
from collections.abc import Callable

import numpy as np
from scipy.spatial.distance import pdist

__all__ = ["RULES", "bandwidth_rule"]

_MOST_POINTS = 3000  # 4.5 million pairs


def bandwidth_rule(name: str, points: np.ndarray, weights: np.ndarray, rng: np.random.Generator) -> np.ndarray:
    """The bandwidth that rule ``name`` gives for distinct ``points`` with ``weights`` (sum 1): a scalar or one entry per feature.

    Zero spread gives 1, with a warning.
    """
    scale = np.abs(points - points[0]).max()  # distances of 1e±150 are squared in units of this
    if scale == 0.0:
        spread = np.zeros(() if name == "median" else points.shape[1])
    else:
        spread = scale * RULES[name]((points - points[0]) / scale, weights, rng)
    if np.any(spread <= 0.0):
        where = "the points have" if spread.ndim == 0 else f"feature(s) {np.flatnonzero(spread <= 0.0).tolist()} have"
        warnings.warn(f"bandwidth={name!r}: {where} no spread; the bandwidth is set to 1 there", UserWarning, stacklevel=2)
    return np.where(spread > 0.0, spread, 1.0)


def _median(points: np.ndarray, weights: np.ndarray, rng: np.random.Generator) -> np.ndarray:
    """Weighted median of the distances between distinct points, the pair (i, j) weighing a_i a_j.

    Beyond 3000 distinct points: of a random subset of them.
    """
    if points.shape[0] > _MOST_POINTS:
        chosen = np.sort(rng.choice(points.shape[0], _MOST_POINTS, replace=False))
        points, weights = points[chosen], weights[chosen]
    if points.shape[0] < 2:
        return np.zeros(())
    i, j = np.triu_indices(points.shape[0], 1)
    return np.asarray(_weighted_median(pdist(points), weights[i] * weights[j]))


def _weighted_median(values: np.ndarray, weights: np.ndarray) -> float:
    """The middle of the interval of minimisers of Σ w_i|v_i − t|: for equal weights, NumPy's median."""
    order = np.argsort(values)
    values, cumulative = values[order], np.cumsum(weights[order])
    half = 0.5 * cumulative[-1]
    slack = 1e-12 * cumulative[-1]  # rounding of the cumulative sum must not decide between one middle value and two
    low, high = np.searchsorted(cumulative, [half - slack, half + slack])
    return float(0.5 * (values[low] + values[min(high, values.shape[0] - 1)]))


def _normal_reference(constant: Callable[[int], float]) -> Callable[[np.ndarray, np.ndarray, np.random.Generator], np.ndarray]:
    """η = 2h with h = constant(d)·n^{−1/(d+4)}·(standard deviation), per feature: a squared Gaussian kernel then has deviation h."""

    def rule(points: np.ndarray, weights: np.ndarray, rng: np.random.Generator) -> np.ndarray:
        d = points.shape[1]
        n = 1.0 / float(weights @ weights)  # the effective sample size
        centred = points - weights @ points
        deviation = np.sqrt(weights @ centred**2)
        deviation[np.ptp(points, axis=0) == 0.0] = 0.0  # a constant feature, whatever rounding says
        return np.asarray(2.0 * constant(d) * n ** (-1.0 / (d + 4)) * deviation)

    return rule


RULES: dict[str, Callable[[np.ndarray, np.ndarray, np.random.Generator], np.ndarray]] = {
    "median": _median,
    "scott": _normal_reference(lambda d: 1.0),
    "silverman": _normal_reference(lambda d: ((d + 2) / 4.0) ** (-1.0 / (d + 4))),
}
"""Every rule by name."""
