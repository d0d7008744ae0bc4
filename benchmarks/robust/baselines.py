"""Rivals for least squares with an uncertain parameter: ERM, the relaxation by an RKHS norm, the semi-infinite dual at sampled points.

All take the loss as ℓ(θ, ξ) = ‖(A_0 + ξA_1)θ − b‖² and solve for θ.

* ERM: the mean over the samples.
* Staib & Jegelka (2019): sup over an MMD ball of E[ℓ] ≤ mean + ε‖ℓ_θ‖_H; their penalty is an RKHS norm of the loss as a function of ξ, here
  estimated as they do from its values at the samples: ‖ℓ_θ‖² ≈ ℓᵀ(K + nμI)⁻¹ℓ.
* Zhu, Jitkrittum, Diehl & Schölkopf (2021), kernel distributionally robust optimisation: min over θ, f_0, f in the RKHS of
  f_0 + mean f(ξ_i) + ε‖f‖ such that ℓ(θ, ζ_j) ≤ f_0 + f(ζ_j) at sampled ζ_j, f in the span of kernels at samples and ζ's.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from scipy.optimize import minimize

__all__ = ["UncertainLeastSquares", "erm", "rkhs_norm", "semi_infinite"]


@dataclass(frozen=True)
class UncertainLeastSquares:
    """ℓ(θ, ξ) = ‖(A_0 + ξA_1)θ − b‖² = q_0 + q_1ξ + q_2ξ², each q a quadratic in θ."""

    A0: np.ndarray
    A1: np.ndarray
    b: np.ndarray

    def losses(self, theta: np.ndarray, xi: np.ndarray) -> np.ndarray:
        """At every ξ."""
        r0, r1 = self.A0 @ theta - self.b, self.A1 @ theta
        return r0 @ r0 + 2.0 * (r0 @ r1) * xi + (r1 @ r1) * xi**2

    def gradients(self, theta: np.ndarray, xi: np.ndarray) -> np.ndarray:
        """In θ, shape (n, p)."""
        r0, r1 = self.A0 @ theta - self.b, self.A1 @ theta
        g0, g1, g2 = 2.0 * self.A0.T @ r0, 2.0 * (self.A1.T @ r0 + self.A0.T @ r1), 2.0 * self.A1.T @ r1
        return g0 + xi[:, None] * g1 + xi[:, None] ** 2 * g2

    def curvature(self, xi: np.ndarray, weights: np.ndarray) -> np.ndarray:
        """Σ_n weights_n ∂²ℓ/∂θ²: the same at every θ."""
        m0, m1, m2 = weights.sum(), weights @ xi, weights @ xi**2
        cross = self.A0.T @ self.A1
        return np.asarray(2.0 * (m0 * self.A0.T @ self.A0 + m1 * (cross + cross.T) + m2 * self.A1.T @ self.A1))


def erm(problem: UncertainLeastSquares, xi: np.ndarray) -> np.ndarray:
    """argmin of the mean loss: linear equations."""
    H = sum((problem.A0 + x * problem.A1).T @ (problem.A0 + x * problem.A1) for x in xi)
    g = sum((problem.A0 + x * problem.A1).T @ problem.b for x in xi)
    return np.asarray(np.linalg.lstsq(np.asarray(H), np.asarray(g), rcond=None)[0])


def rkhs_norm(problem: UncertainLeastSquares, xi: np.ndarray, radius: float, sigma: float, mu: float = 1e-3) -> np.ndarray:
    """argmin of mean + ε·√(ℓᵀ(K + nμ)⁻¹ℓ): not convex in θ, so a descent from ERM, as the authors do."""
    K = np.exp(-((xi[:, None] - xi[None, :]) ** 2) / sigma**2)
    inverse = np.linalg.inv(K + xi.shape[0] * mu * np.eye(xi.shape[0]))

    def objective(theta: np.ndarray) -> tuple[float, np.ndarray]:
        values, gradients = problem.losses(theta, xi), problem.gradients(theta, xi)
        weighted = inverse @ values
        size = float(np.sqrt(max(values @ weighted, 1e-300)))
        return float(values.mean()) + radius * size, gradients.mean(axis=0) + radius * (weighted @ gradients) / size

    return np.asarray(minimize(objective, erm(problem, xi), jac=True, method="L-BFGS-B").x)


def semi_infinite(
    problem: UncertainLeastSquares, xi: np.ndarray, radius: float, sigma: float, zeta: np.ndarray, start: np.ndarray | None = None
) -> np.ndarray:
    """The sampled dual, as a second-order cone programme."""
    import cvxpy

    points = np.unique(np.concatenate([xi, zeta]))
    K = np.exp(-((points[:, None] - points[None, :]) ** 2) / sigma**2)
    values, V = np.linalg.eigh(K)
    kept = values > 1e-10 * values[-1]
    root = V[:, kept] * np.sqrt(values[kept])  # f at the points is root·c with ‖f‖ = ‖c‖
    theta, c, f0 = cvxpy.Variable(problem.A0.shape[1]), cvxpy.Variable(root.shape[1]), cvxpy.Variable()
    f = root @ c
    at = np.searchsorted(points, xi)
    r0, r1 = problem.A0 @ theta - problem.b, problem.A1 @ theta
    constraints = [cvxpy.sum_squares(r0 + float(z) * r1) <= f0 + f[j] for j, z in enumerate(points)]
    objective = f0 + cvxpy.sum(f[at]) / xi.shape[0] + radius * cvxpy.norm(c)
    cvxpy.Problem(cvxpy.Minimize(objective), constraints).solve(solver="CLARABEL")
    return np.asarray(theta.value)
