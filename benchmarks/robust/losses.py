"""Losses ℓ(θ, z), convex in θ, in the forms that the rivals need: numbers, derivatives, and an
expression for a modeling language.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from dataclasses import dataclass
from typing import Any

import numpy as np
from scipy.special import expit

__all__ = ["LinearLogistic", "LinearSquare", "ParametricLoss", "UncertainLeastSquares"]


class ParametricLoss(ABC):
    """ℓ(θ, z_i) at the rows z_i of an array, and a ridge Σ α_j θ_j² that every method adds to its
    risk.
    """

    alpha: np.ndarray

    @abstractmethod
    def values(self, theta: np.ndarray, Z: np.ndarray) -> np.ndarray:
        """ℓ at every row."""

    @abstractmethod
    def gradients(self, theta: np.ndarray, Z: np.ndarray) -> np.ndarray:
        """In θ, shape (n, p)."""

    @abstractmethod
    def curvature(self, theta: np.ndarray, Z: np.ndarray, weights: np.ndarray) -> np.ndarray:
        """Σ_i weights_i ∂²ℓ_i/∂θ²."""

    @abstractmethod
    def expression(self, theta: Any, Z: np.ndarray) -> Any:
        """All ℓ_i as one convex expression of CVXPY in the variable θ."""


@dataclass(frozen=True)
class UncertainLeastSquares(ParametricLoss):
    """ℓ(θ, ξ) = ‖(A_0 + ξA_1)θ − b‖² = q_0 + q_1ξ + q_2ξ², each q a quadratic in θ."""

    A0: np.ndarray
    A1: np.ndarray
    b: np.ndarray

    @property
    def alpha(self) -> np.ndarray:  # type: ignore[override]
        """None."""
        return np.zeros(self.A0.shape[1])

    def values(self, theta: np.ndarray, Z: np.ndarray) -> np.ndarray:
        r0, r1, xi = self.A0 @ theta - self.b, self.A1 @ theta, Z[:, 0]
        return np.asarray(r0 @ r0 + 2.0 * (r0 @ r1) * xi + (r1 @ r1) * xi**2)

    def gradients(self, theta: np.ndarray, Z: np.ndarray) -> np.ndarray:
        r0, r1 = self.A0 @ theta - self.b, self.A1 @ theta
        g0, g1, g2 = (
            2.0 * self.A0.T @ r0,
            2.0 * (self.A1.T @ r0 + self.A0.T @ r1),
            2.0 * self.A1.T @ r1,
        )
        return np.asarray(g0 + Z[:, :1] * g1 + Z[:, :1] ** 2 * g2)

    def curvature(self, theta: np.ndarray, Z: np.ndarray, weights: np.ndarray) -> np.ndarray:
        m0, m1, m2 = weights.sum(), weights @ Z[:, 0], weights @ Z[:, 0] ** 2
        cross = self.A0.T @ self.A1
        return np.asarray(
            2.0 * (m0 * self.A0.T @ self.A0 + m1 * (cross + cross.T) + m2 * self.A1.T @ self.A1)
        )

    def expression(self, theta: Any, Z: np.ndarray) -> Any:
        import cvxpy

        r0, r1 = self.A0 @ theta - self.b, self.A1 @ theta
        return cvxpy.hstack([cvxpy.sum_squares(r0 + float(z) * r1) for z in Z[:, 0]])


@dataclass(frozen=True)
class LinearSquare(ParametricLoss):
    """(y − ⟨u(x), θ⟩)² for z = (x, y)."""

    features: Any
    """x ↦ u(x), rows to rows."""
    alpha: np.ndarray

    def _residuals(self, theta: np.ndarray, Z: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        U = self.features(Z[:, :-1])
        return U, Z[:, -1] - U @ theta

    def values(self, theta: np.ndarray, Z: np.ndarray) -> np.ndarray:
        return np.asarray(self._residuals(theta, Z)[1] ** 2)

    def gradients(self, theta: np.ndarray, Z: np.ndarray) -> np.ndarray:
        U, r = self._residuals(theta, Z)
        return np.asarray(-2.0 * r[:, None] * U)

    def curvature(self, theta: np.ndarray, Z: np.ndarray, weights: np.ndarray) -> np.ndarray:
        U = self.features(Z[:, :-1])
        return np.asarray(2.0 * U.T @ (weights[:, None] * U))

    def expression(self, theta: Any, Z: np.ndarray) -> Any:
        import cvxpy

        return cvxpy.square(Z[:, -1] - self.features(Z[:, :-1]) @ theta)


@dataclass(frozen=True)
class LinearLogistic(ParametricLoss):
    """log(1 + exp(−y⟨u(x), θ⟩)) for z = (x, y), y = ±1."""

    features: Any
    alpha: np.ndarray

    def _margins(self, theta: np.ndarray, Z: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        U = Z[:, -1:] * self.features(Z[:, :-1])
        return U, U @ theta

    def values(self, theta: np.ndarray, Z: np.ndarray) -> np.ndarray:
        return np.asarray(np.logaddexp(0.0, -self._margins(theta, Z)[1]))

    def gradients(self, theta: np.ndarray, Z: np.ndarray) -> np.ndarray:
        U, margins = self._margins(theta, Z)
        return np.asarray(-expit(-margins)[:, None] * U)

    def curvature(self, theta: np.ndarray, Z: np.ndarray, weights: np.ndarray) -> np.ndarray:
        U, margins = self._margins(theta, Z)
        return np.asarray(U.T @ ((weights * expit(margins) * expit(-margins))[:, None] * U))

    def expression(self, theta: Any, Z: np.ndarray) -> Any:
        import cvxpy

        return cvxpy.logistic(-(Z[:, -1:] * self.features(Z[:, :-1])) @ theta)
