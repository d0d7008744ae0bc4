"""Pivoted Cholesky: M ≈ LLᵀ from few columns of M [Harbrecht2012]. It chooses points, and gives
kernel matrices of low rank thin roots.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import NamedTuple

import numpy as np

from ksos.ground.arrays import Array, is_numpy, linalg_errors, namespace, triangular_inverse, zeros

__all__ = [
    "VERY_MANY_POINTS",
    "Pivots",
    "choose_pivots",
    "definite_root",
    "thin_root",
]

MANY_POINTS = 500
"""With fewer points than this a thin root does not pay."""

VERY_MANY_POINTS = 1500
"""From this many on, one Cholesky factorization first asks whether there is anything to leave out.
"""

_NEGLIGIBLE = 1e-15  # of the largest diagonal entry: what is dropped is the rounding of M itself
# L costs m·h² operations to find and saves products of (1 − h/m) of M's: beyond a third of m, or
# where the search itself takes about a second (h = 1000 of 10,000 points), it does not pay
_SMALL_SHARE = 3
_MOST_COLUMNS = 1000  # see above
_FIRST_LOOK = 32  # columns: next to nothing beside a factorization, and a low rank shows by then


class Pivots(NamedTuple):
    """The pivots in the order in which they were chosen, Lᵀ with one row per pivot, and the
    diagonal of M − LLᵀ.
    """

    chosen: list[int]
    rows: Array
    residual: Array


def choose_pivots(
    column: Callable[[int], Array],
    diagonal: Array,
    tol: float,
    most: int,
    first_look: int | None = None,
    enough: Callable[[float], bool] | None = None,
) -> Pivots:
    """At most ``most`` pivots of M, each the largest entry on the diagonal of M − LLᵀ, until none
    exceeds ``tol``: O(n·most²).

    ``column`` gives a column of M, whose ``diagonal`` is known. With ``first_look`` the
    factorization stops after that many columns if they leave more than half of the trace: M then
    has no low rank. ``enough`` may end it after 32 columns: it gets how much of the next pivot
    they explain.
    """
    xp, n = namespace(diagonal), diagonal.shape[0]
    rows = zeros((most if first_look is None else min(first_look, most), n), diagonal)
    residual, chosen = diagonal, []
    for k in range(most):
        pivot = int(xp.argmax(residual))
        if float(residual[pivot]) <= tol:
            break
        explained = 1.0 - float(residual[pivot] / diagonal[pivot])
        if enough is not None and k >= _FIRST_LOOK and enough(explained):
            break
        if k == rows.shape[0]:
            if k == first_look and float(xp.sum(residual)) > 0.5 * float(xp.sum(diagonal)):
                break
            rows = xp.concat([rows, zeros((min(k, most - k), n), diagonal)])
        new = column(pivot) - rows[:k, pivot] @ rows[:k, :]
        # the running residual drifts from it; where nothing is left, the row stays zero
        size = float(new[pivot])
        if size > tol:
            rows[k, :] = new / math.sqrt(size)
        residual = xp.clip(residual - rows[k, :] ** 2, 0.0, None)
        residual[pivot] = 0.0
        chosen.append(pivot)
    return Pivots(chosen, rows[: len(chosen), :], residual)


def definite_root(M: Array, tol: float) -> tuple[Array, Array] | None:
    """(Rᵀ, R⁻¹) for M = RᵀR, if no eigenvalue is below ``tol`` times the largest, which is proven;
    else None.

    λ_min ≥ 1/tr(M⁻¹) = 1/‖R⁻¹‖² and λ_max ≤ ‖M‖_∞. Every pivot of M is then above the tolerance
    too, since it is at least λ_min.
    """
    xp = namespace(M)
    try:
        lower = xp.linalg.cholesky(M)
    except linalg_errors():
        return None
    inverse = triangular_inverse(lower).T
    proven = 1.0 / float(xp.sum(inverse * inverse)) > tol * float(xp.max(xp.sum(xp.abs(M), axis=1)))
    return (lower, inverse) if proven else None


def thin_root(column: Callable[[int], np.ndarray], diagonal: np.ndarray) -> np.ndarray | None:
    """L (m, h) with M = LLᵀ to rounding, from h columns of M: O(mh²), and M itself is never formed.

    The rank of a kernel matrix is what the kernel can tell apart, not the number of points. None if
    h would exceed a third of m, or 1000: then M has no low rank worth using. That shows early,
    after 32 columns. None as well if there are few points, or if they are not on the host.
    """
    if not is_numpy(diagonal) or diagonal.shape[0] < MANY_POINTS:
        return None
    tol = _NEGLIGIBLE * float(diagonal.max())
    found = choose_pivots(
        column, diagonal, tol, min(diagonal.shape[0] // _SMALL_SHARE, _MOST_COLUMNS), _FIRST_LOOK
    )
    return None if float(found.residual.max()) > tol else np.ascontiguousarray(found.rows.T)
