"""T with Tᵀ M T = I for a positive semi-definite matrix M: by truncated eigendecomposition, or by
the paper's Cholesky factor.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import numpy as np

from ksos.ground.arrays import (
    Array,
    eye,
    is_numpy,
    like,
    linalg_errors,
    namespace,
    triangular_inverse,
)
from ksos.ground.pivoted_cholesky import VERY_MANY_POINTS, definite_root, thin_root
from ksos.ground.run import Run
from ksos.ground.threads import one_blas_thread
from ksos.ground.validation import as_choice

__all__ = ["ROUTES", "Whitening", "untruncated", "whiten", "whiten_columns"]

# directions of most mass that come last: as many as the faces on which solvers first look
_LEADING = 16
# of the matrix, from random vectors: cosines to the leading eigenvectors are then above 0.9
_POWERS = 4


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


def _by_thin_root(L: np.ndarray, tol: float) -> Whitening:
    """M = LLᵀ with L = UΣVᵀ has the eigenvectors U and the eigenvalues Σ²: T = UΣ⁻¹, eigenvalues
    ascending as elsewhere.
    """
    U, sigma, _ = np.linalg.svd(L, full_matrices=False)
    kept = int(np.count_nonzero(sigma**2 > tol * sigma[0] ** 2))
    return Whitening(np.ascontiguousarray((U[:, :kept] / sigma[:kept])[:, ::-1]), 0.0)


def _by_eigenvectors(M: Array, tol: float) -> Whitening:
    """M = QΛQᵀ, T = QΛ^{−1/2} on the eigenvalues above tol·Λ_max; the others are dropped
    from the space.
    """
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


def _by_cholesky(M: Array, tol: float) -> Whitening:
    """M + jitter·I = RᵀR, T = R⁻¹ (the paper's Remark); the jitter starts at tol times the mean
    diagonal and grows until R exists.
    """
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
