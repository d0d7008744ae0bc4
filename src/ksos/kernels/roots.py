"""Roots of a kernel matrix M: thin ones by pivoted Cholesky, M ≈ LLᵀ from few columns of M
[Harbrecht2012], which also chooses points; and the whitening T with TᵀMT = I, by truncated
eigendecomposition or by the paper's Cholesky factor.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np

from ksos.ground import (
    Array,
    Run,
    as_choice,
    eye,
    is_numpy,
    like,
    linalg_errors,
    namespace,
    one_blas_thread,
    triangular_inverse,
    zeros,
)

MANY_POINTS = 500
"""With fewer points than this a thin root does not pay."""

VERY_MANY_POINTS = 1500
"""From this many on, one Cholesky factorization first asks whether there is anything to drop.
"""

_NEGLIGIBLE = 1e-15  # of the largest diagonal entry: what is dropped is the rounding of M itself
_SMALL_SHARE = 3  # L costs m·h² and saves (1 − h/m) of M's products: beyond m/3 it does not pay
_MOST_COLUMNS = 1000  # the search then takes about a second, for 10,000 points: more does not pay
_FIRST_LOOK = 32  # columns: next to nothing beside a factorization, and a low rank shows by then
_LEADING = 16  # directions of most mass, which come last: the number of faces solvers look at first
_POWERS = 4  # of M, from random vectors: cosines to the leading eigenvectors are then above 0.9


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


@dataclass(frozen=True)
class Whitening:
    """T (m, r) with TᵀMT = I, or Tᵀ(M + jitter·I)T = I: ``jitter`` is what the Cholesky route added
    to the diagonal, and 0 for the eigendecomposition.
    """

    T: Array
    jitter: float


def whiten(M: Array, tol: float, route: str = "eigh") -> Whitening:
    """Whiten ``M``, neglecting what lies below ``tol`` times its largest eigenvalue."""
    with one_blas_thread(M.shape[0]):
        return ROUTES[as_choice(route, "whitening", ROUTES)](M, tol)


def whiten_columns(
    column: Callable[[int], Array],
    diagonal: Array,
    matrix: Callable[[], Array],
    tol: float,
    route: str,
) -> Whitening:
    """The same for a kernel matrix of many points, given by its columns: through its thin root, so
    that the cost follows the rank.

    ``matrix`` forms M where there are few points, or where they have no low rank.
    """
    if route == "eigh" and (root := thin_root(column, diagonal)) is not None:
        return _by_thin_root(root, tol)
    return whiten(matrix(), tol, route)


# M = LLᵀ with L = UΣVᵀ has the eigenvectors U and the eigenvalues Σ²: T = UΣ⁻¹, eigenvalues
# ascending as elsewhere.
def _by_thin_root(L: np.ndarray, tol: float) -> Whitening:
    U, sigma, _ = np.linalg.svd(L, full_matrices=False)
    kept = int(np.count_nonzero(sigma**2 > tol * sigma[0] ** 2))
    return Whitening(np.ascontiguousarray((U[:, :kept] / sigma[:kept])[:, ::-1]), 0.0)


# M = QΛQᵀ, T = QΛ^{−1/2} on the eigenvalues above tol·Λ_max; the others are dropped from the space.
def _by_eigenvectors(M: Array, tol: float) -> Whitening:
    xp, m = namespace(M), M.shape[0]
    if m >= VERY_MANY_POINTS:
        _require_time(M, 2.0, "whitening")
        if (found := untruncated(M, tol)) is not None:
            return found
    _require_time(M, 9.0, "eigendecomposition")
    values, Q = xp.linalg.eigh(M)
    # eigenvalues ascend: the kept ones come last
    first = int(xp.sum(xp.astype(values <= tol * values[-1], xp.int64)))
    return Whitening(Q[:, first:] / xp.sqrt(values[first:]), 0.0)


def _require_time(M: Array, cubes: float, what: str) -> None:
    m = M.shape[0]
    if is_numpy(M):
        Run.current().require_time(cubes * m**3, f"the {what} of a kernel matrix of {m} points")


def untruncated(M: Array, tol: float) -> Whitening | None:
    """T = R⁻¹Q with M = RᵀR and an orthogonal Q, if no eigenvalue is below the tolerance; None
    otherwise.

    Then nothing is dropped, and the space is that of the eigenvectors, for a fraction of their
    work: O(m³) in large products. Q turns the last directions to those of most mass, where
    eigenvectors have them: Ritz vectors V with VᵀMV = Λ from powers of M [Halko2011], so that A =
    RVΛ^{−1/2} has orthonormal columns. Let E be the last columns of the identity, and PZ the polar
    decomposition of EᵀA. The reflection Q = I − B(I + P)⁻¹Bᵀ with B = E + AZᵀ takes E to −AZᵀ.
    """
    if (root := definite_root(M, tol)) is None:
        return None
    xp, m, h, (lower, inverse) = namespace(M), M.shape[0], _LEADING, root
    V, _ = xp.linalg.qr(like(np.random.default_rng(0).standard_normal((m, 2 * h)), M))
    for _ in range(_POWERS):
        V, _ = xp.linalg.qr(M @ V)
    small = V.T @ (M @ V)
    values, U = xp.linalg.eigh(0.5 * (small + small.T))
    leading = (V @ U[:, h:]) / xp.sqrt(values[h:])
    A = lower.T @ leading
    left, sizes, right = xp.linalg.svd(A[m - h :, :], full_matrices=False)
    B = A @ (left @ right).T
    B[m - h :, :] += eye(h, M)
    T = inverse - (inverse @ B) @ (((left / (1.0 + sizes)) @ left.T) @ B.T)
    T[:, m - h :] = leading
    return Whitening(T, 0.0)


# M + jitter·I = RᵀR, T = R⁻¹ (the paper's Remark); the jitter starts at tol times the mean diagonal
# and grows until R exists.
def _by_cholesky(M: Array, tol: float) -> Whitening:
    xp, identity = namespace(M), eye(M.shape[0], M)
    jitter = max(tol, 1e-15) * float(xp.mean(xp.linalg.diagonal(M)))
    while True:
        try:
            lower = xp.linalg.cholesky(M + jitter * identity)
            break
        except linalg_errors():
            jitter *= 10.0
    return Whitening(triangular_inverse(lower).T, jitter)


ROUTES = {"eigh": _by_eigenvectors, "cholesky": _by_cholesky}
