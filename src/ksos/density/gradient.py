"""The gradient of the log-density."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from ksos._memory import row_blocks
from ksos.density._assemble import unit_rows
from ksos.kernels.distances import feature_squares, squared_distances

if TYPE_CHECKING:
    from ksos.density.sos import SoSDensity

__all__ = ["log_and_gradient"]

_BLOCK_ELEMENTS = 1 << 16


def log_and_gradient(p: SoSDensity, X: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """log p, shape (n,), and ∇ log p = 2 Σ_i (Fψ)_i k_i ∇log k_i / ‖ψ‖² with ψ = Fᵀk(x), shape (n, d); 0 where the density vanishes.

    The largest term of each sum Σ_i F_i k(x, x̃_i) is taken out first: it cancels, and nothing underflows far away.
    """
    points, kernel = p.support_points, p.kernel
    F, log_lengths = unit_rows(p.unit_factor)
    n, d = X.shape
    sigma = kernel.sigma_vector(d)
    log_p, gradient = np.full(n, -np.inf), np.zeros((n, d))
    inside = p.measure.contains(X)
    with np.errstate(over="ignore", under="ignore", invalid="ignore", divide="ignore"):
        for rows in row_blocks(n, max(points.shape[0], F.shape[1]), _BLOCK_ELEMENTS):
            x = X[rows]
            log_terms = kernel.log(x, points) + log_lengths
            peak = log_terms.max(axis=1)
            peak = np.where(np.isfinite(peak), peak, 0.0)
            k = np.exp(log_terms - peak[:, None])
            psi = k @ F
            square = np.einsum("ij,ij->i", psi, psi)
            weight = k * (psi @ F.T)
            whole = None if kernel.product or d == 1 else kernel.slope(squared_distances(x, points, sigma))
            seen = inside[rows] & (square > 0.0)
            log_p[rows] = np.where(seen, np.log(square) + 2.0 * peak - p.log_unit, -np.inf)
            for j, squares in enumerate(feature_squares(x, points, sigma)):
                slope = kernel.slope(squares) if whole is None else whole
                # ∂_j log k = 2·slope·(x_j − x̃_ij)/σ_j²; a weight of 0 silences distances whose square is infinite
                away = (x[:, j][:, None] - points[:, j]) / sigma[j]
                total = np.sum(np.where(weight != 0.0, weight * slope * away, 0.0), axis=1)
                gradient[rows, j] = np.where(seen, 4.0 * (total / square) / sigma[j], 0.0)
    return log_p, gradient
