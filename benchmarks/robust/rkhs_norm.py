"""The relaxation by an RKHS norm, after Staib & Jegelka, "Distributionally robust optimization and
generalization in kernel methods".

If distributions may be any vectors of the RKHS, the worst case in an MMD ball is mean ℓ + ε‖ℓ_θ‖.
The norm of the loss is not known; from its values at the samples it is estimated as ‖ℓ_θ‖² ≈ ℓᵀ(K +
nμI)⁻¹ℓ. That is not convex in θ: a descent from ERM, as the authors do.
"""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
from scipy.optimize import minimize

from benchmarks.robust.erm import erm
from benchmarks.robust.losses import ParametricLoss

__all__ = ["rkhs_norm"]


def rkhs_norm(
    loss: ParametricLoss,
    Z: np.ndarray,
    radii: list[float],
    kernel: Callable[[np.ndarray, np.ndarray], np.ndarray],
    mu: float = 1e-3,
) -> list[np.ndarray]:
    """argmin of mean ℓ + ε√(ℓᵀ(K + nμ)⁻¹ℓ) + Σ ρ_j θ_j², for every radius."""
    n, alpha = Z.shape[0], loss.alpha
    inverse = np.linalg.inv(kernel(Z, Z) + n * mu * np.eye(n))
    start = erm(loss, Z)

    def at(radius: float) -> np.ndarray:
        def objective(theta: np.ndarray) -> tuple[float, np.ndarray]:
            values, gradients = loss.values(theta, Z), loss.gradients(theta, Z)
            weighted = inverse @ values
            size = float(np.sqrt(max(values @ weighted, 1e-300)))
            slope = (
                gradients.mean(axis=0)
                + radius * (weighted @ gradients) / size
                + 2.0 * alpha * theta
            )
            return float(values.mean() + radius * size + alpha @ theta**2), slope

        return np.asarray(
            minimize(objective, start, jac=True, method="L-BFGS-B", options={"maxiter": 2000}).x
        )

    return [at(radius) for radius in radii]
