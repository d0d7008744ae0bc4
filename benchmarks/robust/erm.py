"""Empirical risk minimization: the mean loss of the samples and the ridge, by Newton's method."""

from __future__ import annotations

import numpy as np

from benchmarks.robust.losses import ParametricLoss

__all__ = ["erm"]


def erm(loss: ParametricLoss, Z: np.ndarray) -> np.ndarray:
    """argmin over θ of mean ℓ(θ, z_i) + Σ ρ_j θ_j²."""
    n, alpha = Z.shape[0], loss.alpha
    theta, weights = np.zeros(alpha.shape[0]), np.full(Z.shape[0], 1.0 / n)

    def value(at: np.ndarray) -> float:
        return float(loss.values(at, Z).mean() + alpha @ at**2)

    for _ in range(100):
        gradient = loss.gradients(theta, Z).mean(axis=0) + 2.0 * alpha * theta
        step = np.linalg.lstsq(
            loss.curvature(theta, Z, weights) + 2.0 * np.diag(alpha), -gradient, rcond=1e-12
        )[0]
        descent, length = float(-gradient @ step), 1.0
        if descent <= 1e-14 * (1.0 + abs(value(theta))):
            break
        while (
            value(theta + length * step) > value(theta) - 0.1 * length * descent and length > 1e-8
        ):
            length *= 0.5
        theta = theta + length * step
    return theta
