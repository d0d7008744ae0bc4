"""T with Tᵀ M T = I for a positive semi-definite matrix M: by truncated eigendecomposition, or by the note's Cholesky factor."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from scipy.linalg import solve_triangular

from ksos._threads import one_blas_thread
from ksos._validation import as_choice

__all__ = ["ROUTES", "Whitening", "whiten"]


@dataclass(frozen=True)
class Whitening:
    """The result of :func:`whiten`."""

    T: np.ndarray
    """(m, r), with TᵀMT = I (for the Cholesky route: Tᵀ(M + jitter·I)T = I)."""
    jitter: float
    """What was added to the diagonal; 0 for the eigendecomposition."""

    @property
    def rank(self) -> int:
        """r: the number of directions kept."""
        return int(self.T.shape[1])


def whiten(M: np.ndarray, tol: float, route: str = "eigh") -> Whitening:
    """Whiten ``M``, neglecting what lies below ``tol`` times its largest eigenvalue."""
    with one_blas_thread(M.shape[0]):
        return ROUTES[as_choice(route, "whitening", ROUTES)](M, tol)


def _by_eigenvectors(M: np.ndarray, tol: float) -> Whitening:
    """M = QΛQᵀ, T = QΛ^{−1/2} on the eigenvalues above tol·Λ_max; the others are left out of the space."""
    values, Q = np.linalg.eigh(M)
    keep = values > tol * values[-1]
    return Whitening(Q[:, keep] / np.sqrt(values[keep]), 0.0)


def _by_cholesky(M: np.ndarray, tol: float) -> Whitening:
    """M + jitter·I = RᵀR, T = R⁻¹ (the note's Remark); the jitter starts at tol times the mean diagonal and grows until R exists."""
    identity = np.eye(M.shape[0])
    jitter = max(tol, 1e-15) * float(np.mean(np.diagonal(M)))
    while True:
        try:
            lower = np.linalg.cholesky(M + jitter * identity)
            break
        except np.linalg.LinAlgError:
            jitter *= 10.0
    return Whitening(solve_triangular(lower, identity, lower=True).T, jitter)


ROUTES = {"eigh": _by_eigenvectors, "cholesky": _by_cholesky}
