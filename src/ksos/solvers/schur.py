"""The Schur system of an interior-point step: (q+1) × (q+1), formed with few large matrix products."""

from __future__ import annotations

import numpy as np
from scipy.linalg import cho_factor, cho_solve

__all__ = ["SchurSystem"]

_BLOCK_BYTES = 4e6  # of the tensor at a time: what a processor's cache holds between the two products
_JITTERS = (0.0, 1e-15, 1e-13, 1e-11)


class SchurSystem:
    """VVᵀ + ridge, where the rows of V are the scaled matrices RᵀA_kR (k = 1..q) and −RᵀR, each as a vector.

    A symmetric matrix becomes a vector of its lower triangle, off-diagonal entries times √2, so that inner products stay what they are
    and cost half.
    """

    def __init__(self, tensor: np.ndarray, R: np.ndarray, ridge: float) -> None:
        """``ridge`` is added on the first q entries of the diagonal."""
        q, r, _ = tensor.shape
        self.size = r
        rows, columns = np.tril_indices(r)
        self._positions = rows * r + columns
        self._weights = np.where(rows == columns, 1.0, np.sqrt(2.0))
        self.V = np.empty((q + 1, rows.shape[0]))
        block = max(1, int(_BLOCK_BYTES / (8 * r * r)))
        for start in range(0, q, block):
            part = tensor[start : start + block]
            half = (part.reshape(-1, r) @ R).reshape(part.shape)
            scaled = np.matmul(R.T, half).reshape(part.shape[0], r * r)
            np.take(scaled, self._positions, axis=1, out=self.V[start : start + part.shape[0]], mode="clip")
        self.V[q] = -(R.T @ R).ravel()[self._positions]
        self.V *= self._weights
        H = self.V @ self.V.T
        H[np.diag_indices(q)] += ridge
        self._scale = 1.0 / np.sqrt(np.diagonal(H))
        self._factor = _cholesky(H * np.multiply.outer(self._scale, self._scale))

    def apply(self, K: np.ndarray) -> np.ndarray:
        """(⟨RᵀA_kR, K⟩)_k and −⟨RᵀR, K⟩ for a symmetric K."""
        return np.asarray(self.V @ (K.ravel()[self._positions] * self._weights))

    def adjoint(self, x: np.ndarray) -> np.ndarray:
        """Σ_k x_k RᵀA_kR − x_{q+1} RᵀR."""
        out = np.zeros(self.size * self.size)
        out[self._positions] = (x @ self.V) / self._weights
        lower = out.reshape(self.size, self.size)
        return lower + np.tril(lower, -1).T

    def solve(self, right: np.ndarray) -> np.ndarray:
        """(VVᵀ + ridge)⁻¹ right."""
        return np.asarray(self._scale * cho_solve(self._factor, self._scale * right, check_finite=False))


def _cholesky(H: np.ndarray) -> tuple[np.ndarray, bool]:
    """The factor of a matrix with unit diagonal that rounding may have made indefinite: the least jitter that works."""
    for jitter in _JITTERS:
        try:
            factor = cho_factor(H + jitter * np.eye(H.shape[0]), lower=True, check_finite=False)
        except np.linalg.LinAlgError:
            continue
        if np.all(np.isfinite(np.diagonal(factor[0]))):  # some libraries let NaN pass
            return factor
    raise np.linalg.LinAlgError("the Schur matrix is not positive definite")
