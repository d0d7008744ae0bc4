"""Intervals with a guarantee, and the error of regressors that see all rows."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, NamedTuple

import numpy as np
from sklearn.utils import _safe_indexing

from ksos.data.samples import Split
from ksos.estimators._conditional_location import Location, LocationScale, cross_fit, fit_scales
from ksos.ground.deadline import Deadline
from ksos.ground.names import warn_caller

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
    locations: Sequence[Any],
    scales: Sequence[Any],
    of_prediction: Sequence[Any],
    location: Location,
    X: Any,
    targets: np.ndarray,
    masses: np.ndarray,
    splits: list[Split],
    floor: np.ndarray,
    rng: np.random.Generator,
    deadline: Deadline,
) -> tuple[SplitConformal, np.ndarray]:
    """The first fold calibrates. μ, s and the quantiles come from the other rows alone, of which
    two halves predict each other.

    Also the factor of the scale of every output by which regressors that are fitted to all rows
    are better than those of the folds.
    """
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
    found, s = fit_scales(scales, of_prediction, X, mu, residuals, inside, swaps, floor, deadline)
    placed = LocationScale(place, found)
    mu_test, s_test = placed(_safe_indexing(X, test))
    conformal = SplitConformal(placed, (residuals / s)[held], (targets[test] - mu_test) / s_test)
    if location.first is None:
        return conformal, np.ones(targets.shape[1])
    part = train.size / (train.size + test.size)
    return conformal, _gain(residuals[held], (targets - location.held_out)[held], part)


def _gain(half: np.ndarray, fold: np.ndarray, part: float) -> np.ndarray:
    """Error of fits to all rows in units of that of fits to a ``part`` of them, by output.

    The squared error of a fit to a share f of the rows goes like σ² + c/f [Cortes1993]. ``half``
    are residuals of fits to half of the part, ``fold`` those of fits to the part. Both are cut at
    the 95% quantile, so that a few of them do not decide, and the factor is between 0.8 and 1.
    """
    if half.shape[0] < 30:
        return np.ones(half.shape[1])  # two mean squares are not known to better than a quarter
    most = np.nanquantile(np.abs(fold), 0.95, axis=0)
    before, after = (np.nanmean(np.minimum(np.abs(r), most) ** 2, axis=0) for r in (half, fold))
    found = 1.0 - (1.0 - part) * (before - after) / np.maximum(after, 1e-300)
    return np.sqrt(np.clip(found, 0.64, 1.0))


def _halves(rows: np.ndarray, rng: np.random.Generator) -> Split:
    order = rng.permutation(rows)
    return order[: order.size // 2], order[order.size // 2 :]
