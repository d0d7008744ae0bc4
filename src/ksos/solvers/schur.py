"""The Schur system of an interior-point step: (q+1) × (q+1), formed with few large matrix products."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import suppress

import numpy as np

from ksos.ground.arrays import (
    Array,
    cholesky_solver,
    eye,
    flat,
    is_numpy,
    like,
    linalg_errors,
    namespace,
    zeros,
)

__all__ = ["SchurSystem"]

# of the tensor at a time: what a processor's cache holds between the two products
_BLOCK_BYTES = 4e6
_DEVICE_BLOCK_BYTES = 1e9  # a GPU wants few large products instead
_JITTERS = (0.0, 1e-15, 1e-13, 1e-11)


class SchurSystem:
    """VVᵀ + ridge, where the rows of V are the scaled matrices P∘RᵀA_kR (k = 1..q) and −P∘RᵀR, each
    as a vector.

    A symmetric matrix becomes a vector of its lower triangle, off-diagonal entries times √2, so
    that inner products stay what they are and cost half.
    """

    def __init__(
        self,
        tensor: Array,
        R: Array,
        ridge: np.ndarray,
        damping: Array | None = None,
        block_bytes: float | None = None,
    ) -> None:
        """``ridge``: a (q+1) × (q+1) matrix, or its diagonal. ``damping``: P, symmetric, r × r; by
        default all ones.

        ``block_bytes``: how much of the tensor is worked on at a time; by default what suits the
        device.
        """
        xp, (q, r, _) = namespace(tensor), tensor.shape
        self.size = r
        rows, columns = np.tril_indices(r)
        lower = np.zeros((r, r), dtype=np.int64)
        lower[rows, columns] = lower[columns, rows] = np.arange(rows.shape[0])
        self._positions = xp.asarray(rows * r + columns, device=tensor.device)
        self._lower = xp.asarray(
            lower.ravel(), device=tensor.device
        )  # which entry of the triangle stands at each place of the matrix
        self._weights = like(np.where(rows == columns, 1.0, np.sqrt(2.0)), tensor)
        self.V = zeros((q + 1, rows.shape[0]), tensor)
        block = max(
            1,
            int(
                (block_bytes or (_BLOCK_BYTES if is_numpy(tensor) else _DEVICE_BLOCK_BYTES))
                / (8 * r * r)
            ),
        )
        for start in range(0, q, block):
            part = tensor[start : min(start + block, q), :, :]
            half = xp.reshape(xp.reshape(part, (-1, r)) @ R, part.shape)
            self.V[start : start + part.shape[0], :] = self._triangles(
                xp.reshape(xp.matmul(R.T, half), (part.shape[0], r * r))
            )
        self.V[q, :] = -flat(self._triangles(xp.reshape(R.T @ R, (1, r * r))))
        self.V *= self._weights
        if damping is not None:
            self.V *= flat(self._triangles(xp.reshape(damping, (1, r * r))))
        H = self.V @ self.V.T
        H += like(np.diag(ridge) if ridge.ndim == 1 else ridge, H)
        self._scale = 1.0 / xp.sqrt(xp.linalg.diagonal(H))
        self._solve = _cholesky(H * (self._scale[:, None] * self._scale[None, :]))

    def _triangles(self, rows: Array) -> Array:
        """The lower triangles of matrices given as rows."""
        if is_numpy(rows):
            return np.take(
                rows, self._positions, axis=1, mode="clip"
            )  # twice as fast as with a check of the indices
        return namespace(rows).take(rows, self._positions, axis=1)

    def apply(self, K: Array) -> Array:
        """(⟨P∘RᵀA_kR, K⟩)_k and −⟨P∘RᵀR, K⟩ for a symmetric K."""
        return self.V @ (flat(self._triangles(namespace(K).reshape(K, (1, -1)))) * self._weights)

    def adjoint(self, x: Array) -> Array:
        """P∘(Σ_k x_k RᵀA_kR − x_{q+1} RᵀR)."""
        xp = namespace(x)
        return xp.reshape(
            xp.take((x @ self.V) / self._weights, self._lower), (self.size, self.size)
        )

    def solve(self, right: Array) -> Array:
        """(VVᵀ + ridge)⁻¹ right."""
        return self._scale * self._solve(self._scale * right)


def _cholesky(H: Array) -> Callable[[Array], Array]:
    """The inverse of a matrix with unit diagonal that rounding may have made indefinite: with the
    least jitter that works.
    """
    for jitter in _JITTERS:
        with suppress(*linalg_errors()):
            return cholesky_solver(H + jitter * eye(H.shape[0], H))
    raise np.linalg.LinAlgError("the Schur matrix is not positive definite")
