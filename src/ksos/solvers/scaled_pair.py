"""A primal-dual pair (C, M) in its common scaling: C = RΛRᵀ and M = R⁻ᵀΛR⁻¹ with one diagonal Λ (Nesterov and Todd)."""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np

from ksos._array import Array, eye, inner, like, namespace

__all__ = ["ScaledPair", "diagonal", "longest_step"]


@dataclass(frozen=True)
class ScaledPair:
    """Two positive definite matrices that are never formed but to be looked at.

    Near the optimum both are close to singular, C on the range of M and M on the range of C. In the scaled coordinates
    C̃ = R⁻¹CR⁻ᵀ and M̃ = RᵀMR they are the same well-conditioned Λ, so steps are taken there, and R absorbs them as products:
    small eigenvalues keep all their digits.
    """

    R: Array
    inverse: Array
    """R⁻¹, updated alongside: R is too ill-conditioned to invert at the end."""
    values: Array
    """The diagonal of Λ."""

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

    @property
    def mu(self) -> float:
        """⟨C, M⟩/r, the mean of the products of matching eigenvalues."""
        return inner(self.values, self.values) / self.values.shape[0]

    def moved(self, step: float, dC: Array, dM: Array) -> ScaledPair:
        """The pair after (C̃, M̃) ← (Λ, Λ) + step·(dC, dM), both of which must stay positive definite."""
        xp, Lambda = namespace(dC), diagonal(self.values)
        lower_C, lower_M = xp.linalg.cholesky(Lambda + step * dC), xp.linalg.cholesky(Lambda + step * dM)
        U, values, Vt = xp.linalg.svd(lower_M.T @ lower_C)
        root = xp.sqrt(values)
        return ScaledPair(self.R @ (lower_C @ (Vt.T / root)), ((U / root).T @ lower_M.T) @ self.inverse, values)


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
