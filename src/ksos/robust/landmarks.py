"""Landmarks that see most of an embedding: chosen greedily among points that cover the domain."""

from __future__ import annotations

import math

import numpy as np

from ksos.kernels import Kernel
from ksos.measures import Box, Discrete, Measure
from ksos.pivoted_cholesky import choose_pivots
from ksos.robust.cover import grid, scattered

__all__ = ["MOST_LANDMARKS", "SPAN_TOL", "landmark_candidates", "pivots"]

SPAN_TOL, MOST_LANDMARKS = 1e-7, 160
"""The squared distance of a feature φ(x) to the span of the landmarks at which they are enough, and the most that are taken."""

_GRID_SPACING, _MOST_GRID, _MOST_DATA, _SCATTERED = 0.35, 4000, 2000, 2048
_COVERED_FEATURES = 3
_REACH = 2.0  # bandwidths of the model beyond its support points


def landmark_candidates(
    kernel: Kernel, model: Kernel, measure: Measure, box: Box, data: np.ndarray, weights: np.ndarray, support: np.ndarray
) -> np.ndarray:
    """Points across the box and its rim, and as far beyond as densities reach; the support points; the data (the heaviest of many)."""
    d = data.shape[1]
    if isinstance(measure, Discrete):
        return np.unique(np.concatenate([support, data, measure.points[:: max(1, measure.points.shape[0] // _MOST_GRID)]]), axis=0)
    walls = np.array([measure.boundary(k) for k in range(d)])
    reach = _REACH * model.sigma_vector(d)
    box = Box(np.maximum(box.low - reach, walls[:, 0]), np.minimum(box.high + reach, walls[:, 1]))
    ratio = np.minimum((box.high - box.low) / (_GRID_SPACING * kernel.sigma_vector(d)), 1e6)
    counts = [max(2, math.ceil(r) + 1) for r in ratio]
    covering = grid(box, counts) if d <= _COVERED_FEATURES and math.prod(counts) <= _MOST_GRID else scattered(box, _SCATTERED)
    heaviest = np.argsort(-np.abs(weights), kind="stable")[:_MOST_DATA]
    if d > _COVERED_FEATURES:  # nothing covers a box of many features: landmarks go where the data and the densities are
        covering = covering[:0]
    return np.unique(np.concatenate([covering, support, data[np.sort(heaviest)]]), axis=0)


def pivots(kernel: Kernel, candidates: np.ndarray, tol: float, most: int) -> np.ndarray:
    """Indices of candidates, each the one whose feature φ(x) is farthest from the span of those before it, until all are within √tol.

    Any distribution on the candidates is then within √tol of its projection.

    >>> from ksos.kernels import Gaussian
    >>> pivots(Gaussian(1.0), np.array([[0.0], [0.0], [1.0]]), 1e-10, 5).tolist()
    [0, 2]
    """
    n = candidates.shape[0]
    found = choose_pivots(lambda i: kernel(candidates[i : i + 1], candidates)[0], np.ones(n), tol, min(most, n))
    return np.array(found.chosen, dtype=int)
