"""M ≈ LLᵀ with few columns: the kernel matrix of many points has the rank that the kernel can tell apart, not that of their number."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np

__all__ = ["MANY_POINTS", "thin_root"]

MANY_POINTS = 500
"""Fewer points than this are not worth the trouble."""

_NEGLIGIBLE = 1e-15  # of the largest diagonal entry: what is left out is the rounding of M itself
_SMALL_SHARE = 3
_MOST_COLUMNS = 1000
_FIRST_LOOK = 32


def thin_root(column: Callable[[int], np.ndarray], diagonal: np.ndarray) -> np.ndarray | None:
    """L (m, h) with M = LLᵀ to rounding, from h columns of M (pivoted Cholesky): O(mh²), and M itself is never formed.

    None where h would exceed a third of m, or 1000: then M has no low rank worth using. That shows early: where the first 32 columns leave
    more than half of the trace, there is no point in going on.
    """
    m = diagonal.shape[0]
    residual, floor, trace = diagonal.copy(), _NEGLIGIBLE * float(diagonal.max()), float(diagonal.sum())
    rows = np.empty((_FIRST_LOOK, m))
    for k in range(min(m // _SMALL_SHARE, _MOST_COLUMNS)):
        pivot = int(np.argmax(residual))
        if residual[pivot] <= floor:
            return np.ascontiguousarray(rows[:k].T)
        if k == rows.shape[0]:
            if k == _FIRST_LOOK and float(residual.sum()) > 0.5 * trace:
                return None
            rows = np.concatenate([rows, np.empty_like(rows)])
        new = column(pivot) - rows[:k, pivot] @ rows[:k]
        if new[pivot] <= floor:  # the running residual has drifted from the true one: nothing is left there
            new = np.zeros(m)
        else:
            new /= np.sqrt(new[pivot])
        rows[k] = new
        residual = np.maximum(residual - new**2, 0.0)
        residual[pivot] = 0.0
    return None
