"""The linear algebra of the interior point: primal-dual pairs of positive definite matrices and of
second-order cones in their common scaling, and the Schur system of a step.

The scaling is that of Nesterov and Todd [Nesterov1997]; for the second-order cone {(x₀, x₁) : ‖x₁‖
≤ x₀} see [Alizadeh2003].
"""

from __future__ import annotations

import math
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass

import numpy as np

from ksos.ground import (
    Array,
    cholesky_solver,
    eye,
    flat,
    is_numpy,
    like,
    linalg_errors,
    namespace,
    row_blocks,
    zeros,
)

_BLOCK_ELEMENTS = 500_000  # of the tensor at a time: 4 MB stay in cache between the two products
_DEVICE_ELEMENTS = 125_000_000  # 1 GB: a GPU wants few large products instead
_JITTERS = (0.0, 1e-15, 1e-13, 1e-11)  # where rounding made a unit diagonal indefinite: the least


@dataclass(frozen=True)
class ScaledPair:
    """C = RΛRᵀ and M = R⁻ᵀΛR⁻¹ with one diagonal Λ: two positive definite matrices that are formed
    only to be looked at.

    Near the optimum both are close to singular, C on the range of M and M on the range of C. In the
    scaled coordinates C̃ = R⁻¹CR⁻ᵀ and M̃ = RᵀMR they are the same well-conditioned Λ, so steps are
    taken there, and R absorbs them as products: small eigenvalues keep all their digits.
    """

    R: Array
    inverse: Array  # R⁻¹, updated alongside: R is too ill-conditioned to invert at the end
    values: Array  # the diagonal of Λ

    # M = Q diag(eigenvalues) Qᵀ, and C = μM⁻¹ with tr C = 1
    @classmethod
    def central(cls, Q: Array, eigenvalues: np.ndarray) -> ScaledPair:
        mu = 1.0 / float(np.sum(1.0 / eigenvalues))
        root = like(np.sqrt(math.sqrt(mu) / eigenvalues), Q)
        return cls(Q * root, (Q / root).T, like(np.full(eigenvalues.shape[0], math.sqrt(mu)), Q))

    # RΛRᵀ, exactly symmetric and positive semi-definite up to the rounding of one product
    @property
    def C(self) -> Array:
        F = self.R * namespace(self.R).sqrt(self.values)
        return F @ F.T

    # R⁻ᵀΛR⁻¹
    @property
    def M(self) -> Array:
        F = self.inverse.T * namespace(self.R).sqrt(self.values)
        return F @ F.T

    def moved(self, step: float, dC: Array, dM: Array) -> ScaledPair:
        """The pair after (C̃, M̃) ← (Λ, Λ) + step·(dC, dM), both of which must stay positive
        definite.
        """
        xp, Lambda = namespace(dC), diagonal(self.values)
        lower_C, lower_M = (
            xp.linalg.cholesky(Lambda + step * dC),
            xp.linalg.cholesky(Lambda + step * dM),
        )
        U, values, Vt = xp.linalg.svd(lower_M.T @ lower_C)
        root = xp.sqrt(values)
        return ScaledPair(
            self.R @ (lower_C @ (Vt.T / root)), ((U / root).T @ lower_M.T) @ self.inverse, values
        )


def diagonal(values: Array) -> Array:
    """The diagonal matrix of a vector."""
    return eye(values.shape[0], values) * values


def longest_step(values: Array, direction: Array) -> float:
    """The largest t with diag(values) + t·direction ⪰ 0, possibly infinite."""
    xp = namespace(values)
    root = xp.sqrt(values)
    lowest = float(xp.linalg.eigvalsh(direction / (root[:, None] * root[None, :]))[0])
    if math.isnan(lowest):
        raise np.linalg.LinAlgError("the direction of a step is not finite")
    return -1.0 / lowest if lowest < 0.0 else math.inf


def cone_product(x: np.ndarray, y: np.ndarray) -> np.ndarray:
    """x ∘ y = (⟨x, y⟩, x₀y₁ + y₀x₁)."""
    return np.concatenate([[x @ y], x[0] * y[1:] + y[0] * x[1:]])


def cone_divide(x: np.ndarray, z: np.ndarray) -> np.ndarray:
    """y with x ∘ y = z."""
    determinant = _determinant(x)
    if not (determinant > 0.0 and x[0] > 0.0):
        raise np.linalg.LinAlgError("rounding has put a pair on the boundary of its cone")
    first = (x[0] * z[0] - x[1:] @ z[1:]) / determinant
    return np.concatenate([[first], (z[1:] - first * x[1:]) / x[0]])


def cone_step(x: np.ndarray, direction: np.ndarray) -> float:
    """The largest t with x + t·direction in the cone, possibly infinite, for x inside."""
    a, b, c = _determinant(direction), x[0] * direction[0] - x[1:] @ direction[1:], _determinant(x)
    inside = b * b - a * c
    candidates = [-x[0] / direction[0]] if direction[0] < 0.0 else []
    if inside >= 0.0:
        root = math.sqrt(inside)
        # the two zeros of a·t² + 2b·t + c, in the form that does not cancel
        large = -(b + math.copysign(root, b))
        candidates += [large / a] if a != 0.0 else []
        candidates += [c / large] if large != 0.0 else []
    return min((t for t in candidates if t > 0.0), default=math.inf)


@dataclass(frozen=True)
class ConePair:
    """x and w inside the cone, with the symmetric W for which W⁻¹x = Ww = λ: W² = η²(2ṽṽᵀ − J), J =
    diag(1, −1, …, −1).
    """

    x: np.ndarray
    w: np.ndarray

    # η and ṽ, with ṽᵀJṽ = 1
    @property
    def _scaling(self) -> tuple[float, np.ndarray]:
        dx, dw = _determinant(self.x), _determinant(self.w)
        if not (dx > 0.0 and dw > 0.0):
            raise np.linalg.LinAlgError("rounding has put a pair on the boundary of its cone")
        x, w = self.x / math.sqrt(dx), self.w / math.sqrt(dw)
        mirrored = np.concatenate([w[:1], -w[1:]])
        v = (x + mirrored) / (2.0 * math.sqrt(0.5 * (1.0 + x @ w)))
        return (dx / dw) ** 0.25, v

    # Wy, or W⁻¹y
    def scale(self, y: np.ndarray, *, inverse: bool = False) -> np.ndarray:
        eta, v = self._scaling
        sign = -1.0 if inverse else 1.0
        along = v[1:] @ y[1:]
        first = v[0] * y[0] + sign * along
        rest = y[1:] + (sign * y[0] + along / (1.0 + v[0])) * v[1:]
        out = np.concatenate([[first], rest])
        return np.asarray(out / eta if inverse else out * eta)

    # λ = Ww
    @property
    def values(self) -> np.ndarray:
        return self.scale(self.w)

    @property
    def curvature(self) -> tuple[float, np.ndarray]:
        """(c, u) with c·I + uuᵀ the lower right block of W⁻²: what dw₁ falls by per dx₁ where x₀ is
        fixed.
        """
        eta, v = self._scaling
        return eta**-2.0, math.sqrt(2.0) / eta * v[1:]


# x₀² − ‖x₁‖², as a product, which keeps its digits near the boundary
def _determinant(x: np.ndarray) -> float:
    length = float(np.linalg.norm(x[1:]))
    return float((x[0] - length) * (x[0] + length))


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
        elements: int | None = None,
    ) -> None:
        """``ridge``: a (q+1) × (q+1) matrix, or its diagonal. ``damping``: P, symmetric, r × r; by
        default all ones.

        ``elements``: how much of the tensor is worked on at a time; by default what suits the
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
        elements = elements or (_BLOCK_ELEMENTS if is_numpy(tensor) else _DEVICE_ELEMENTS)
        for part in row_blocks(q, r * r, elements):
            half = xp.reshape(xp.reshape(tensor[part, :, :], (-1, r)) @ R, (-1, r, r))
            self.V[part, :] = self._triangles(xp.reshape(xp.matmul(R.T, half), (-1, r * r)))
        self.V[q, :] = -flat(self._triangles(xp.reshape(R.T @ R, (1, r * r))))
        self.V *= self._weights
        if damping is not None:
            self.V *= flat(self._triangles(xp.reshape(damping, (1, r * r))))
        H = self.V @ self.V.T
        H += like(np.diag(ridge) if ridge.ndim == 1 else ridge, H)
        self._scale = 1.0 / xp.sqrt(xp.linalg.diagonal(H))
        self._solve = _cholesky(H * (self._scale[:, None] * self._scale[None, :]))

    # the lower triangles of matrices given as rows
    def _triangles(self, rows: Array) -> Array:
        if is_numpy(rows):
            return np.take(
                rows, self._positions, axis=1, mode="clip"
            )  # twice as fast as with a check of the indices
        return namespace(rows).take(rows, self._positions, axis=1)

    # (⟨P∘RᵀA_kR, K⟩)_k and −⟨P∘RᵀR, K⟩ for a symmetric K
    def apply(self, K: Array) -> Array:
        return self.V @ (flat(self._triangles(namespace(K).reshape(K, (1, -1)))) * self._weights)

    # P∘(Σ_k x_k RᵀA_kR − x_{q+1} RᵀR)
    def adjoint(self, x: Array) -> Array:
        xp = namespace(x)
        return xp.reshape(
            xp.take((x @ self.V) / self._weights, self._lower), (self.size, self.size)
        )

    # (VVᵀ + ridge)⁻¹ right
    def solve(self, right: Array) -> Array:
        return self._scale * self._solve(self._scale * right)


def _cholesky(H: Array) -> Callable[[Array], Array]:
    """The inverse of a matrix with unit diagonal that rounding may have made indefinite: with the
    least jitter that works.
    """
    for jitter in _JITTERS:
        with suppress(*linalg_errors()):
            return cholesky_solver(H + jitter * eye(H.shape[0], H))
    raise np.linalg.LinAlgError("the Schur matrix is not positive definite")
