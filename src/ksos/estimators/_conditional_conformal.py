"""Intervals whose coverage is guaranteed: split conformal prediction with quantiles of scaled residuals [Romano2019]."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, NamedTuple

import numpy as np

__all__ = ["SplitConformal"]


class SplitConformal(NamedTuple):
    """y ∈ μ(x) + s(x)·[l − Q, h + Q], where neither μ nor s nor l and h know the rows that calibrate Q.

    l and h are quantiles of the scaled residuals v of the training rows, Q the ⌈level·(m + 1)⌉-th smallest max(l − v_i, v_i − h) of the m
    rows held out. If these and a new row are exchangeable, the interval holds the new y with probability at least ``level``, on average
    over the data, whatever their law and however bad the regressors.
    """

    place: Callable[[Any], tuple[np.ndarray, np.ndarray]]
    """μ(x) and s(x) of rows, each (n, k)."""
    trained: np.ndarray
    """Scaled residuals of the training rows, (rows, k)."""
    held_out: np.ndarray
    """And of the rows held out, (m, k)."""

    def least_level(self) -> float:
        """The largest level at which intervals are finite."""
        m = self.held_out.shape[0]
        return m / (m + 1.0)

    def interval(self, X: Any, level: float) -> np.ndarray:
        """(n, 2, k): for every output by itself."""
        mu, s = self.place(X)
        low, high = np.quantile(self.trained, [0.5 * (1.0 - level), 0.5 * (1.0 + level)], axis=0)
        scores = np.sort(np.maximum(low - self.held_out, self.held_out - high), axis=0)
        m = scores.shape[0]
        rank = int(np.ceil(level * (m + 1) - 1e-9))
        Q = scores[rank - 1] if rank <= m else np.full(mu.shape[1], np.inf)
        middle = 0.5 * (low + high)
        low, high = np.minimum(low - Q, middle), np.maximum(high + Q, middle)  # an interval that would be empty is a point
        return np.stack([mu + s * low, mu + s * high], axis=1)
