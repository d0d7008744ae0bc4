"""A primal-dual pair (C, M) in its common scaling: C = RΛRᵀ and M = R⁻ᵀΛR⁻¹ with one diagonal Λ (Nesterov and Todd)."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

__all__ = ["ScaledPair", "longest_step"]


@dataclass(frozen=True)
class ScaledPair:
    """Two positive definite matrices that are never formed but to be looked at.

    Near the optimum both are close to singular, C on the range of M and M on the range of C. In the scaled coordinates
    C̃ = R⁻¹CR⁻ᵀ and M̃ = RᵀMR they are the same well-conditioned Λ, so steps are taken there, and R absorbs them as products:
    small eigenvalues keep all their digits.
    """

    R: np.ndarray
    inverse: np.ndarray
    """R⁻¹, updated alongside: R is too ill-conditioned to invert at the end."""
    values: np.ndarray
    """The diagonal of Λ."""

    @classmethod
    def central(cls, Q: np.ndarray, eigenvalues: np.ndarray) -> ScaledPair:
        """M = Q diag(eigenvalues) Qᵀ, and C = μM⁻¹ with tr C = 1."""
        mu = 1.0 / float(np.sum(1.0 / eigenvalues))
        root = np.sqrt(np.sqrt(mu) / eigenvalues)
        return cls(Q * root, (Q / root).T, np.full(eigenvalues.shape[0], np.sqrt(mu)))

    @property
    def C(self) -> np.ndarray:
        """RΛRᵀ, exactly symmetric and positive semi-definite up to the rounding of one product."""
        F = self.R * np.sqrt(self.values)
        return np.asarray(F @ F.T)

    @property
    def M(self) -> np.ndarray:
        """R⁻ᵀΛR⁻¹."""
        F = self.inverse.T * np.sqrt(self.values)
        return np.asarray(F @ F.T)

    @property
    def mu(self) -> float:
        """⟨C, M⟩/r, the mean of the products of matching eigenvalues."""
        return float(self.values @ self.values) / self.values.shape[0]

    def moved(self, step: float, dC: np.ndarray, dM: np.ndarray) -> ScaledPair:
        """The pair after (C̃, M̃) ← (Λ, Λ) + step·(dC, dM), both of which must stay positive definite."""
        Lambda = np.diag(self.values)
        lower_C, lower_M = np.linalg.cholesky(Lambda + step * dC), np.linalg.cholesky(Lambda + step * dM)
        U, values, Vt = np.linalg.svd(lower_M.T @ lower_C)
        root = np.sqrt(values)
        return ScaledPair(self.R @ (lower_C @ (Vt.T / root)), ((U / root).T @ lower_M.T) @ self.inverse, values)


def longest_step(values: np.ndarray, direction: np.ndarray) -> float:
    """The largest t with diag(values) + t·direction ⪰ 0, possibly infinite."""
    root = np.sqrt(values)
    lowest = float(np.linalg.eigvalsh(direction / np.multiply.outer(root, root))[0])
    if np.isnan(lowest):
        raise np.linalg.LinAlgError("the direction of a step is not finite")
    return -1.0 / lowest if lowest < 0.0 else float("inf")
