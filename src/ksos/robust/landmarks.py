"""Landmarks rich enough that the projected MMD of an answer is its exact MMD: chosen greedily, more and more of them where it is not."""

from __future__ import annotations

import math

import numpy as np

from ksos._array import to_numpy
from ksos.density import SoSDensity
from ksos.kernels import Kernel
from ksos.measures import Box, Discrete, Measure
from ksos.robust.cover import grid, scattered

__all__ = ["LEVELS", "landmark_candidates", "midpoints", "pivots"]

LEVELS: tuple[tuple[float, int], ...] = ((1e-7, 160), (1e-8, 220), (1e-9, 300), (1e-10, 400), (1e-12, 500))
"""Per round: the squared distance of a feature φ(x) to the span of the landmarks that is left, and the most landmarks."""

_GRID_SPACING, _MOST_GRID, _MOST_DATA, _SCATTERED = 0.35, 4000, 2000, 2048
_COVERED_FEATURES = 3
_MOST_MIDPOINTS, _STARS, _ARM = 1000, 60, 0.6
_REACH = 2.0  # bandwidths of the model beyond its support points


def landmark_candidates(
    kernel: Kernel, model: Kernel, measure: Measure, box: Box, data: np.ndarray, weights: np.ndarray, support: np.ndarray
) -> np.ndarray:
    """Points across the box and its rim, and as far beyond as densities reach; the support points; the data (the heaviest of many)."""
    d = data.shape[1]
    if isinstance(measure, Discrete):
        return np.unique(np.concatenate([support, data, measure.points[:: max(1, measure.points.shape[0] // _MOST_GRID)]]), axis=0)
    walls = np.array([measure.walls(k) for k in range(d)])
    reach = _REACH * model.sigma_vector(d)
    box = Box(np.maximum(box.low - reach, walls[:, 0]), np.minimum(box.high + reach, walls[:, 1]))
    ratio = np.minimum((box.high - box.low) / (_GRID_SPACING * kernel.sigma_vector(d)), 1e6)
    counts = [max(2, math.ceil(r) + 1) for r in ratio]
    covering = grid(box, counts) if d <= _COVERED_FEATURES and math.prod(counts) <= _MOST_GRID else scattered(box, _SCATTERED)
    heaviest = np.argsort(-np.abs(weights), kind="stable")[:_MOST_DATA]
    if d > _COVERED_FEATURES:  # nothing covers a box of many features: landmarks go where the data and the densities are
        covering = covering[:0]
    return np.unique(np.concatenate([covering, support, data[np.sort(heaviest)]]), axis=0)


def midpoints(p: SoSDensity) -> np.ndarray:
    """(x̃_i + x̃_j)/2 for the pairs that carry most of the weight of p: there its embedding lives; and around the heaviest, a star.

    The embedding of a normal law is a wider bump than k, which the same bump half a bandwidth away on either side helps to make.
    """
    X, F = to_numpy(p.support_points), to_numpy(p.unit_factor)
    i, j = np.triu_indices(X.shape[0])
    # the overlap of k_i and k_j is at most k at half their distance, squared
    weight = np.abs((F @ F.T)[i, j]) * np.exp(2.0 * p.kernel.log(0.5 * (X - X[:1]), 0.5 * (X - X[:1]))[i, j])
    heaviest = np.argsort(-weight, kind="stable")[:_MOST_MIDPOINTS]
    middle = X[i[heaviest]] + 0.5 * (X[j[heaviest]] - X[i[heaviest]])
    arms = np.diag(_ARM * p.kernel.sigma_vector(X.shape[1]))
    stars = (middle[:_STARS, None, :] + np.concatenate([arms, -arms])).reshape(-1, X.shape[1])
    return np.concatenate([middle, stars])


def pivots(kernel: Kernel, candidates: np.ndarray, tol: float, most: int) -> np.ndarray:
    """Indices of candidates, each the one whose feature φ(x) is farthest from the span of those before it, until all are within √tol.

    Any distribution on the candidates is then within √tol of its projection.

    >>> from ksos.kernels import Gaussian
    >>> pivots(Gaussian(1.0), np.array([[0.0], [0.0], [1.0]]), 1e-10, 5).tolist()
    [0, 2]
    """
    n = candidates.shape[0]
    residual, L = np.ones(n), np.zeros((min(most, n), n))
    chosen: list[int] = []
    for k in range(L.shape[0]):
        pivot = int(np.argmax(residual))
        if residual[pivot] <= tol:
            break
        column = kernel(candidates[pivot : pivot + 1], candidates)[0] - L[:k, pivot] @ L[:k]
        L[k] = column / math.sqrt(residual[pivot])
        residual = np.clip(residual - L[k] ** 2, 0.0, None)
        residual[pivot] = 0.0
        chosen.append(pivot)
    return np.array(chosen, dtype=int)
