"""The dual with its constraint at sampled points, after Zhu, Jitkrittum, Diehl & Schölkopf, "Kernel
distributionally robust optimization".

    min over θ, f_0 and f in the RKHS of  f_0 + mean f(z_i) + ε‖f‖ + Σ ρ_j θ_j²   such that   ℓ(θ,
    ζ_j) ≤ f_0 + f(ζ_j)  at all ζ_j,

where the ζ_j are the samples and points drawn uniformly in the domain, and f is in the span of the
kernels at those points.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

from benchmarks.robust.losses import ParametricLoss

__all__ = ["semi_infinite"]

_RANKS = (1e-10, 1e-9, 1e-8, 1e-7)
"""Eigenvalues of the kernel matrix below so much of the largest are left out; more of them where
the solver gives up. The answers agree to six digits and more.
"""


def semi_infinite(
    loss: ParametricLoss,
    Z: np.ndarray,
    radii: list[float],
    kernel: Callable[[np.ndarray, np.ndarray], np.ndarray],
    zeta: np.ndarray,
) -> list[np.ndarray]:
    """θ for every radius; the programme is compiled once."""
    points = np.concatenate([Z, zeta])
    values, V = np.linalg.eigh(kernel(points, points))
    programmes: dict[float, Callable[[float], tuple[str, np.ndarray | None]]] = {}
    out = []
    for radius in radii:
        rough: np.ndarray | None = None
        for rank in _RANKS:
            if rank not in programmes:
                kept = values > rank * values[-1]
                programmes[rank] = _programme(
                    loss, points, Z.shape[0], V[:, kept] * np.sqrt(values[kept])
                )
            status, theta = programmes[rank](radius)
            rough = theta if rough is None else rough
            if status == "optimal":
                rough = theta
                break
        if rough is None:
            raise RuntimeError(f"CLARABEL has no answer at radius {radius:g}")
        out.append(rough)
    return out


def _programme(
    loss: ParametricLoss, points: np.ndarray, n_samples: int, root: np.ndarray
) -> Callable[[float], tuple[str, Any]]:
    """radius ↦ (the solver's status, θ or None); f at the points is root·c with ‖f‖ = ‖c‖."""
    import cvxpy

    theta, c, f0 = (
        cvxpy.Variable(loss.alpha.shape[0]),
        cvxpy.Variable(root.shape[1]),
        cvxpy.Variable(),
    )
    radius = cvxpy.Parameter(nonneg=True)
    objective = f0 + cvxpy.sum(root[:n_samples] @ c) / n_samples + radius * cvxpy.norm(c)
    if np.any(loss.alpha > 0.0):
        objective += cvxpy.sum_squares(cvxpy.multiply(np.sqrt(loss.alpha), theta))
    problem = cvxpy.Problem(
        cvxpy.Minimize(objective), [loss.expression(theta, points) <= f0 + root @ c]
    )

    def solve(value: float) -> tuple[str, Any]:
        radius.value = value
        try:
            problem.solve(solver="CLARABEL")
        except cvxpy.error.SolverError:
            return "failed", None
        return problem.status, None if theta.value is None else np.array(theta.value)

    return solve
