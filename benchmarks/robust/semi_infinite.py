"""The dual with its constraint at sampled points, after Zhu, Jitkrittum, Diehl & Schölkopf, "Kernel distributionally robust optimization".

    min over θ, f_0 and f in the RKHS of  f_0 + mean f(z_i) + ε‖f‖ + Σ ρ_j θ_j²   such that   ℓ(θ, ζ_j) ≤ f_0 + f(ζ_j)  at all ζ_j,

where the ζ_j are the samples and points drawn uniformly in the domain, and f is in the span of the kernels at those points.
"""

from __future__ import annotations

from collections.abc import Callable

import numpy as np

from benchmarks.robust.losses import ParametricLoss

__all__ = ["semi_infinite"]

_RANKS = (1e-10, 1e-9, 1e-8, 1e-7)
"""Eigenvalues of the kernel matrix below so much of the largest are left out; more of them where the solver gives up. The answers agree to
six digits and more."""


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
    programmes: dict[float, Callable[[float], np.ndarray | None]] = {}
    out = []
    for radius in radii:
        for rank in _RANKS:
            if rank not in programmes:
                kept = values > rank * values[-1]
                programmes[rank] = _programme(loss, points, Z.shape[0], V[:, kept] * np.sqrt(values[kept]))
            theta = programmes[rank](radius)
            if theta is not None:
                out.append(theta)
                break
        else:
            raise RuntimeError(f"CLARABEL has no answer at radius {radius:g}")
    return out


def _programme(loss: ParametricLoss, points: np.ndarray, n_samples: int, root: np.ndarray) -> Callable[[float], np.ndarray | None]:
    """radius ↦ θ, None where the solver gives up; f at the points is root·c with ‖f‖ = ‖c‖."""
    import cvxpy

    theta, c, f0 = cvxpy.Variable(loss.ridge.shape[0]), cvxpy.Variable(root.shape[1]), cvxpy.Variable()
    radius = cvxpy.Parameter(nonneg=True)
    objective = f0 + cvxpy.sum(root[:n_samples] @ c) / n_samples + radius * cvxpy.norm(c)
    if np.any(loss.ridge > 0.0):
        objective += cvxpy.sum_squares(cvxpy.multiply(np.sqrt(loss.ridge), theta))
    problem = cvxpy.Problem(cvxpy.Minimize(objective), [loss.expression(theta, points) <= f0 + root @ c])

    def solve(value: float) -> np.ndarray | None:
        radius.value = value
        try:
            problem.solve(solver="CLARABEL")
        except cvxpy.error.SolverError:
            return None
        return np.array(theta.value) if problem.status == "optimal" else None

    return solve
