"""The cones of the interior point: primal-dual pairs of positive definite matrices and of
second-order cones in their common scaling.

The scaling is that of Nesterov and Todd [Nesterov1997]; for the second-order cone {(x₀, x₁) : ‖x₁‖
≤ x₀} see [Alizadeh2003].
"""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np

from ksos.ground.arrays import Array, eye, like, namespace

__all__ = [
    "ConePair",
    "ScaledPair",
    "cone_divide",
    "cone_product",
    "cone_step",
    "diagonal",
    "longest_step",
]


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

    @classmethod
    def central(cls, Q: Array, eigenvalues: np.ndarray) -> ScaledPair:
        """M = Q diag(eigenvalues) Qᵀ, and C = μM⁻¹ with tr C = 1."""
        mu = 1.0 / float(np.sum(1.0 / eigenvalues))
        root = like(np.sqrt(math.sqrt(mu) / eigenvalues), Q)
        return cls(Q * root, (Q / root).T, like(np.full(eigenvalues.shape[0], math.sqrt(mu)), Q))

    @property
    def C(self) -> Array:
        """RΛRᵀ, exactly symmetric and positive semi-definite up to the rounding of one product."""
        F = self.R * namespace(self.R).sqrt(self.values)
        return F @ F.T

    @property
    def M(self) -> Array:
        """R⁻ᵀΛR⁻¹."""
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

    @property
    def _scaling(self) -> tuple[float, np.ndarray]:
        """η and ṽ, with ṽᵀJṽ = 1."""
        dx, dw = _determinant(self.x), _determinant(self.w)
        if not (dx > 0.0 and dw > 0.0):
            raise np.linalg.LinAlgError("rounding has put a pair on the boundary of its cone")
        x, w = self.x / math.sqrt(dx), self.w / math.sqrt(dw)
        mirrored = np.concatenate([w[:1], -w[1:]])
        v = (x + mirrored) / (2.0 * math.sqrt(0.5 * (1.0 + x @ w)))
        return (dx / dw) ** 0.25, v

    def scale(self, y: np.ndarray, *, inverse: bool = False) -> np.ndarray:
        """Wy, or W⁻¹y."""
        eta, v = self._scaling
        sign = -1.0 if inverse else 1.0
        along = v[1:] @ y[1:]
        first = v[0] * y[0] + sign * along
        rest = y[1:] + (sign * y[0] + along / (1.0 + v[0])) * v[1:]
        out = np.concatenate([[first], rest])
        return np.asarray(out / eta if inverse else out * eta)

    @property
    def values(self) -> np.ndarray:
        """λ = Ww."""
        return self.scale(self.w)

    @property
    def curvature(self) -> tuple[float, np.ndarray]:
        """(c, u) with c·I + uuᵀ the lower right block of W⁻²: what dw₁ falls by per dx₁ where x₀ is
        fixed.
        """
        eta, v = self._scaling
        return eta**-2.0, math.sqrt(2.0) / eta * v[1:]


def _determinant(x: np.ndarray) -> float:
    """x₀² − ‖x₁‖², as a product, which keeps its digits near the boundary."""
    length = float(np.linalg.norm(x[1:]))
    return float((x[0] - length) * (x[0] + length))
