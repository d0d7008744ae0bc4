"""Intervals with a guarantee: split conformal prediction."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, NamedTuple

import numpy as np
from sklearn.utils import _safe_indexing

from ksos._deadline import Deadline
from ksos.estimators._conditional_location import (
    Location, LocationScale, Split, cross_fit, fit_scales,
)
from ksos.feature_names import warn_caller

__all__ = ["SplitConformal", "fit_conformal"]


class SplitConformal(NamedTuple):
    """y ∈ μ(x) + s(x)·[l − Q, h + Q], where μ, s, l and h do not depend on the rows that give Q.

    l and h are quantiles of the scaled residuals of the training rows, ``trained`` (rows, k). Q is
    the ⌈level·(m + 1)⌉-th smallest max(l − v_i, v_i − h) of the m rows ``held_out`` (m, k). If
    these and a new row are exchangeable, the interval holds the new y with probability at least
    ``level``, on average over the data, for any distribution and any regressor [Romano2019].
    """

    place: LocationScale
    trained: np.ndarray
    held_out: np.ndarray

    def interval(self, X: Any, level: float) -> np.ndarray:
        """(n, 2, k): for every output by itself."""
        mu, s = self.place(X)
        ends = [0.5 * (1.0 - level), 0.5 * (1.0 + level)]
        low, high = np.quantile(self.trained, ends, axis=0)
        scores = np.sort(np.maximum(low - self.held_out, self.held_out - high), axis=0)
        m = scores.shape[0]
        rank = int(np.ceil(level * (m + 1) - 1e-9))  # 0.9·10 is a little more than nine
        if rank > m:
            warn_caller(
                f"{m} rows calibrate the intervals, enough up to level {m / (m + 1.0):.3g}: at "
                f"{level:g} they are infinite; give more rows"
            )
        Q = scores[rank - 1] if rank <= m else np.full(mu.shape[1], np.inf)
        middle = 0.5 * (low + high)  # an interval that would be empty is a point
        low, high = np.minimum(low - Q, middle), np.maximum(high + Q, middle)
        return np.stack([mu + s * low, mu + s * high], axis=1)


def fit_conformal(
    locations: Sequence[Any], scales: Sequence[Any], of_prediction: Sequence[Any],
    location: Location, X: Any, targets: np.ndarray, masses: np.ndarray, splits: list[Split],
    floor: np.ndarray, rng: np.random.Generator, deadline: Deadline,
) -> SplitConformal:
    """The first fold calibrates. μ, s and the quantiles come from the other rows alone, of which
    two halves predict each other."""
    train, test = splits[0]
    if location.first is None:  # fitted before: any row is new to it
        train, test = _halves(np.concatenate(splits[0]), rng)
    one, other = _halves(train, rng)
    swaps = [(one, other), (other, one)] if one.size else [(train, train)]
    place, mu = location, location.held_out
    if location.first is not None:
        nested = cross_fit(locations, X, targets, masses, swaps, deadline)
        place, mu = location.without_first_fold(nested.shares), nested.held_out
    held = np.zeros(masses.size, dtype=bool)
    held[train] = ~np.isnan(mu[train, 0])
    inside, mu = np.where(held, masses, 0.0), np.where(held[:, None], mu, 0.0)
    residuals = targets - mu
    found, s = fit_scales(
        scales, of_prediction, X, mu, residuals, inside, swaps, floor, deadline
    )
    placed = LocationScale(place, found)
    mu_test, s_test = placed(_safe_indexing(X, test))
    return SplitConformal(placed, (residuals / s)[held], (targets[test] - mu_test) / s_test)


def _halves(rows: np.ndarray, rng: np.random.Generator) -> Split:
    order = rng.permutation(rows)
    return order[: order.size // 2], order[order.size // 2 :]
