"""Risks of squares of residuals that are affine in θ: everything in closed form from the second moments of some functions u(x).

ℓ(θ, (x, label)) = Σ_c ⟨t_c, u(x)⟩²,   t_c = E_c θ + s_{label,c},        E_p ℓ = Σ_labels Σ_c t_cᵀ Q t_c,   Q_ab = ∫ u_a u_b dp.
"""

from __future__ import annotations

import math

import numpy as np

from ksos.robust.convex_in_theta import ThetaMinimum
from ksos.robust.risk import Risk

__all__ = ["SquareRisk", "least_squares"]


class SquareRisk(Risk):
    """The risk from the matrices V_ab = ∫ u_a u_b ψψᵀ dρ.

    ``V``: (P, P, r, r); ``E``: (outputs, P, p); ``s``: (labels, outputs, P). With several labels C has one block of r directions each.
    """

    def __init__(self, V: np.ndarray, E: np.ndarray, s: np.ndarray, ridge: np.ndarray) -> None:
        self.V, self.E, self.s, self.ridge = V, E, s, ridge
        self.n_parameters = E.shape[2]
        self._rows = V.reshape(V.shape[0] ** 2, -1)

    def _blocks(self) -> list[slice]:
        r = self.V.shape[2]
        return [slice(y * r, (y + 1) * r) for y in range(self.s.shape[0])]

    def second_moments(self, C: np.ndarray) -> np.ndarray:
        """Q per label, shape (labels, P, P)."""
        P = self.V.shape[0]
        Q = np.stack([(self._rows @ C[block, block].ravel()).reshape(P, P) for block in self._blocks()])
        return 0.5 * (Q + Q.transpose(0, 2, 1))

    def least(self, C: np.ndarray) -> ThetaMinimum:
        return least_squares(self.second_moments(C), self.E, self.s, self.ridge)

    def proven_least(self, C: np.ndarray, tol: float) -> float:
        found = self.least(C)
        # a quadratic: at θ̂ its minimum is ¼gᵀH⁺g·2 below, and there is one because Q ⪰ 0; g is rounding
        values, V = np.linalg.eigh(found.curvature)
        kept = values > 1e-13 * max(float(values[-1]), 1e-300)
        if values[0] < -1e-9 * max(float(values[-1]), 1e-300):
            return -math.inf  # moments that no distribution has: rounding has taken over
        along = V[:, kept].T @ found.gradient
        return found.value - 0.5 * float(np.sum(along**2 / values[kept]))

    def _coefficients(self, theta: np.ndarray) -> np.ndarray:
        """t, shape (labels, outputs, P)."""
        return np.asarray(self.E @ theta + self.s)

    def _assembled(self, weights: np.ndarray) -> np.ndarray:
        """blockdiag Σ_ab weights_ab V_ab, weights (labels, P, P)."""
        r = self.V.shape[2]
        out = np.zeros((weights.shape[0] * r,) * 2)
        for block, w in zip(self._blocks(), weights, strict=True):
            M = (w.ravel() @ self._rows).reshape(r, r)
            out[block, block] = 0.5 * (M + M.T)
        return out

    def matrix(self, theta: np.ndarray) -> np.ndarray:
        t = self._coefficients(theta)
        return self._assembled(np.einsum("lca,lcb->lab", t, t))

    def slopes(self, theta: np.ndarray, F: np.ndarray) -> np.ndarray:
        t, (P, r) = self._coefficients(theta), (self.V.shape[0], self.V.shape[2])
        out = np.empty((self.n_parameters, *F.shape))
        for label, block in enumerate(self._blocks()):
            image = (self.V.reshape(P * P * r, r) @ F[block]).reshape(P, P, -1)
            # Σ_c Σ_ab 2 E_caj t_cb V_ab F
            weights = 2.0 * np.einsum("caj,cb->jab", self.E, t[label])
            out[:, block] = (weights.reshape(self.n_parameters, -1) @ image.reshape(P * P, -1)).reshape(self.n_parameters, r, -1)
        return out

    def curvature(self, theta: np.ndarray, C: np.ndarray) -> np.ndarray:
        Q = self.second_moments(C).sum(axis=0)
        return np.asarray(2.0 * np.einsum("cai,ab,cbj->ij", self.E, Q, self.E, optimize=True))

    def slope_products(self, theta: np.ndarray, C: np.ndarray) -> np.ndarray:
        t = self._coefficients(theta)
        moved = np.matmul(t, self.second_moments(C)).sum(axis=0)  # Σ_labels t_c Q, shape (outputs, P)
        return np.asarray(2.0 * np.tensordot(moved, self.E, axes=2))

    def slope_sum(self, theta: np.ndarray, v: np.ndarray) -> np.ndarray:
        weights = 2.0 * np.einsum("ca,lcb->lab", self.E @ v, self._coefficients(theta))
        return self._assembled(0.5 * (weights + weights.transpose(0, 2, 1)))


def least_squares(Q: np.ndarray, E: np.ndarray, s: np.ndarray, ridge: np.ndarray) -> ThetaMinimum:
    """min over θ of Σ_{label,c} (E_cθ + s)ᵀQ(E_cθ + s) + Σ ρ_j θ_j², Q (labels, P, P)."""
    QE = np.einsum("ab,cbj->caj", Q.sum(axis=0), E)
    H = 2.0 * np.einsum("cai,caj->ij", E, QE) + 2.0 * np.diag(ridge)
    H = 0.5 * (H + H.T)
    b = 2.0 * np.einsum("caj,lab,lcb->j", E, Q, s, optimize=True)
    values, V = np.linalg.eigh(H)
    kept = values > 1e-14 * max(float(values[-1]), 1e-300)
    theta = np.zeros(H.shape[0])
    for _ in range(2):  # the second pass corrects the rounding of the first
        theta = theta - V[:, kept] @ ((V[:, kept].T @ (H @ theta + b)) / values[kept])
    t = E @ theta + s
    value = float(np.einsum("lca,lab,lcb->", t, Q, t, optimize=True) + ridge @ theta**2)
    return ThetaMinimum(theta, value, H @ theta + b, lambda: H)
