"""Rows far outside of the features that a regressor was fitted to are predicted, and said to be far."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, NamedTuple

import numpy as np
from sklearn.utils import _safe_indexing

from ksos.feature_names import said, warn_caller

__all__ = ["FeatureRange"]

_RANGES = 2.0  # so many times the range of a feature beyond its ends


class FeatureRange(NamedTuple):
    """The least and the largest value of every feature; NaN where it is not a number, or all of it is missing."""

    low: np.ndarray
    high: np.ndarray
    names: tuple[str, ...] | None

    @classmethod
    def of(cls, X: Any, names: Sequence[str] | None) -> FeatureRange:
        columns = [_numbers(X, k) for k in range(X.shape[1])]
        ends = np.array([(c[seen].min(), c[seen].max()) if (seen := np.isfinite(c)).any() else (np.nan, np.nan) for c in columns])
        return cls(ends[:, 0], ends[:, 1], None if names is None else tuple(map(str, names)))

    def warn_if_far(self, X: Any) -> None:
        """One warning, which names the feature that lies farthest outside."""
        slack = _RANGES * (self.high - self.low)
        worst, text, rows = 0.0, "", np.zeros(X.shape[0], dtype=bool)
        for k in np.flatnonzero(slack > 0.0):
            column = _numbers(X, int(k))
            excess = np.nan_to_num(np.maximum(self.low[k] - column, column - self.high[k]), nan=0.0)
            rows |= excess > slack[k]
            if (ratio := float(np.max(excess, initial=0.0) / slack[k])) > max(worst, 1.0):
                worst, value = ratio, column[int(np.argmax(excess))]
                text = f"{said(int(k), self.names)} = {value:g}, fitted from {self.low[k]:g} to {self.high[k]:g}"
        if rows.any():
            warn_caller(
                f"{int(rows.sum())} of {rows.size} rows are far outside of the data, first row {int(np.argmax(rows))}: {text}; there a "
                "regressor guesses, and the law says nothing of its error"
            )


def _numbers(X: Any, k: int) -> np.ndarray:
    """A column as floats; NaN where it holds something else."""
    try:
        return np.asarray(_safe_indexing(X, k, axis=1), dtype=np.float64)
    except (TypeError, ValueError):
        return np.full(X.shape[0], np.nan)
