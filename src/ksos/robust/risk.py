"""The risk of a parameter θ under a density, ⟨M_θ, C⟩ + Σ_j ρ_j θ_j², and its minimum over θ as a concave function of C."""

from __future__ import annotations

from abc import ABC, abstractmethod

import numpy as np

from ksos._array import Array
from ksos.functionals.base import BoundTerm, Functional, Pair
from ksos.robust.convex_in_theta import ThetaMinimum
from ksos.space import SoSSpace

__all__ = ["LeastRisk", "Risk"]


class Risk(ABC):
    """θ ↦ E_p[ℓ(θ, x)] + Σ_j ρ_j θ_j², convex, for every density of one space."""

    n_parameters: int
    differentiable = True
    """Whether ``matrix`` is that of the loss itself, and not of a smoother one."""
    ridge: np.ndarray
    """ρ, shape (p,)."""

    def penalty(self, theta: np.ndarray) -> float:
        """Σ_j ρ_j θ_j²."""
        return float(self.ridge @ theta**2)

    @abstractmethod
    def least(self, C: np.ndarray) -> ThetaMinimum:
        """The minimum over θ at C."""

    @abstractmethod
    def proven_least(self, C: np.ndarray, tol: float) -> float:
        """A certified lower bound of that minimum, to about ``tol``; −∞ where there is none."""

    @abstractmethod
    def matrix(self, theta: np.ndarray) -> np.ndarray:
        """M_θ = ∫ ℓ(θ, x) ψψᵀ dρ, shape (r, r)."""

    def true_matrix(self, theta: np.ndarray) -> np.ndarray:
        """M_θ of the loss itself, where ``matrix`` is that of a smoother one."""
        return self.matrix(theta)

    @abstractmethod
    def slopes(self, theta: np.ndarray, F: np.ndarray) -> np.ndarray:
        """(∂M_θ/∂θ_j)·F, shape (p, r, k)."""

    @abstractmethod
    def curvature(self, theta: np.ndarray, C: np.ndarray) -> np.ndarray:
        """Σ_n m_n ∂²ℓ/∂θ² under C, shape (p, p), without that of the penalty."""

    @abstractmethod
    def slope_products(self, theta: np.ndarray, C: np.ndarray) -> np.ndarray:
        """⟨∂M_θ/∂θ_j, C⟩, shape (p,)."""

    @abstractmethod
    def slope_sum(self, theta: np.ndarray, v: np.ndarray) -> np.ndarray:
        """Σ_j v_j ∂M_θ/∂θ_j, shape (r, r)."""


class LeastRisk(Functional, BoundTerm):
    """−h(C)/unit with h(C) = min_θ ⟨M_θ, C⟩ + Σ ρ_j θ_j²: convex, with gradient −M_θ/unit at the minimiser θ(C).

    Its second derivative is dC ↦ Σ_jk (∂_jM)(H⁻¹)_jk⟨∂_kM, dC⟩, H being that of the risk in θ.
    """

    twice_differentiable = True

    def __init__(self, risk: Risk, unit: float) -> None:
        self.risk, self.unit = risk, unit
        self._seen: tuple[np.ndarray, ThetaMinimum] | None = None
        self._root: tuple[ThetaMinimum, np.ndarray] | None = None

    def bind(self, space: SoSSpace) -> BoundTerm:
        return self

    def at(self, C: np.ndarray) -> ThetaMinimum:
        """θ(C) and h(C)."""
        if self._seen is None or not np.array_equal(self._seen[0], C):
            self._seen = (C.copy(), self.risk.least(C))
        return self._seen[1]

    def value(self, a: Array | None, C: Array) -> float:
        return -self.at(C).value / self.unit

    def gradient(self, a: Array | None, C: Array) -> Pair:
        return None, -self.risk.matrix(self.at(C).theta) / self.unit

    def _inverse_root(self, found: ThetaMinimum) -> np.ndarray:
        """R with RRᵀ = H⁻¹; directions without curvature are left out."""
        if self._root is None or self._root[0] is not found:
            values, V = np.linalg.eigh(found.curvature)
            kept = values > 1e-13 * max(float(values[-1]), 1e-300)
            self._root = found, np.asarray(V[:, kept] / np.sqrt(values[kept]))
        return self._root[1]

    def hessian(self, a: Array | None, C: Array, da: Array | None, dC: Array) -> Pair | None:
        if da is not None and da.ndim == 2:
            return None, None  # several directions of the embedding: all of it is in factor_hessian
        found = self.at(C)
        R = self._inverse_root(found)
        v = R @ (R.T @ self.risk.slope_products(found.theta, dC))
        return None, self.risk.slope_sum(found.theta, v) / self.unit

    def factor_hessian(self, F: Array) -> Array | None:
        (r, k), found = F.shape, self.at(F @ F.T)
        N = self.risk.slopes(found.theta, F).reshape(-1, r * k)
        half = self._inverse_root(found).T @ N
        return np.asarray((4.0 / self.unit) * (half.T @ half)).reshape(r, k, r, k)
