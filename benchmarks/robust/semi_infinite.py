"""The dual with its constraint at sampled points, after Zhu, Jitkrittum, Diehl & Schölkopf, "Kernel distributionally robust optimization".

    min over θ, f_0 and f in the RKHS of  f_0 + mean f(z_i) + ε‖f‖ + Σ ρ_j θ_j²   such that   ℓ(θ, ζ_j) ≤ f_0 + f(ζ_j)  at all ζ_j,

where the ζ_j are the samples and points drawn uniformly in the domain, and f is in the span of the kernels at those points.
"""

from __future__ import annotations

from collections.abc import Callable

import numpy as np

from benchmarks.robust.losses import ParametricLoss

__all__ = ["semi_infinite"]

_RANK = 1e-10


def semi_infinite(
    loss: ParametricLoss,
    Z: np.ndarray,
    radii: list[float],
    kernel: Callable[[np.ndarray, np.ndarray], np.ndarray],
    zeta: np.ndarray,
) -> list[np.ndarray]:
    """θ for every radius; the programme is compiled once."""
    import cvxpy

    points = np.concatenate([Z, zeta])
    values, V = np.linalg.eigh(kernel(points, points))
    kept = values > _RANK * values[-1]
    root = V[:, kept] * np.sqrt(values[kept])  # f at the points is root·c with ‖f‖ = ‖c‖
    theta, c, f0 = cvxpy.Variable(loss.ridge.shape[0]), cvxpy.Variable(root.shape[1]), cvxpy.Variable()
    radius = cvxpy.Parameter(nonneg=True)
    objective = f0 + cvxpy.sum(root[: Z.shape[0]] @ c) / Z.shape[0] + radius * cvxpy.norm(c)
    if np.any(loss.ridge > 0.0):
        objective += cvxpy.sum_squares(cvxpy.multiply(np.sqrt(loss.ridge), theta))
    problem = cvxpy.Problem(cvxpy.Minimize(objective), [loss.expression(theta, points) <= f0 + root @ c])
    out = []
    for value in radii:
        radius.value = value
        problem.solve(solver="CLARABEL")
        if problem.status not in ("optimal", "optimal_inaccurate"):
            raise RuntimeError(f"CLARABEL ends with status {problem.status!r} at radius {value:g}")
        out.append(np.asarray(theta.value))
    return out
