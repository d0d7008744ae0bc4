"""One formula gives every Gaussian integral: the product of exp(−‖(x − x_i)/σ_i‖²) over several factors i."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

__all__ = ["GaussianProduct"]


class GaussianProduct:
    r"""Constants of ∫ Π_i exp(−‖(x−x_i)/σ_i‖²) dx = Π_k √(π/A_k) · exp(−Σ_{i<j} Σ_k (x_ik−x_jk)² α_ik α_jk / A_k).

    Here α_i = 1/σ_i² and A = Σ_i α_i, per feature k. Only ratios of bandwidths are formed, so that bandwidths of 1e±150 are safe.
    """

    def __init__(self, bandwidths: Sequence[np.ndarray]) -> None:
        self.bandwidths = [np.asarray(b, dtype=np.float64) for b in bandwidths]
        first = self.bandwidths[0]
        self.width = first / np.sqrt(sum((first / b) ** 2 for b in self.bandwidths))
        """A^{−1/2} per feature."""
        self.log_volume = float(np.sum(0.5 * np.log(np.pi) + np.log(self.width)))
        """log Π_k √(π/A_k)."""

    def pair_bandwidth(self, i: int, j: int) -> np.ndarray:
        """√(A/(α_i α_j)): factors i and j contribute exp(−‖(x_i − x_j)/this‖²)."""
        return self.bandwidths[i] * (self.bandwidths[j] / self.width)

    def weight(self, i: int) -> np.ndarray:
        """α_i/A: the product is centred at x̄ = Σ_i (α_i/A) x_i."""
        return np.asarray((self.width / self.bandwidths[i]) ** 2)
