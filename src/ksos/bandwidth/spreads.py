"""How far the samples of each feature spread."""

from __future__ import annotations

import numpy as np

__all__ = ["deviations", "spreads"]


def deviations(points: np.ndarray, weights: np.ndarray) -> np.ndarray:
    """The standard deviation of each feature."""
    scale = np.ptp(points, axis=0)  # features of 1e±150 are squared in units of this; 0 for a constant one
    unit = (points - points[0]) / np.where(scale > 0.0, scale, 1.0)
    return np.asarray(scale * np.sqrt(weights @ (unit - weights @ unit) ** 2))


def spreads(points: np.ndarray, weights: np.ndarray) -> np.ndarray:
    """Per feature the lesser of standard deviation and (interquartile range)/1.349, where the latter is not zero."""
    deviation = deviations(points, weights)
    order = np.argsort(points, axis=0, kind="stable")
    x, w = np.take_along_axis(points, order, axis=0), weights[order]
    x = x - x[x.shape[0] // 2]  # a middle one: an outlier would take the digits of all others
    cumulative = np.cumsum(w, axis=0) - 0.5 * w
    low, high = (np.array([np.interp(level, cumulative[:, k], x[:, k]) for k in range(points.shape[1])]) for level in (0.25, 0.75))
    return np.where(high > low, np.minimum((high - low) / 1.349, deviation), deviation)
