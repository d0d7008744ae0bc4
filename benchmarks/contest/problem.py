"""The problem that every method gets: points, bandwidth, λ; and the sizes and bandwidths of the
full benchmark.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

__all__ = ["BANDWIDTHS", "DIMENSIONS", "QUICK_SIZES", "SIZES", "Setting", "grid"]

SIZES = (25, 50, 100, 200, 400, 1000, 2000)
QUICK_SIZES = (25, 50)
DIMENSIONS = (2, 10)
BANDWIDTHS = {2: (0.5, 1.0, 2.0), 10: (1.0, 2.0, 4.0)}
"""For each dimension three bandwidths, from narrow to wide against the spread of the points."""

TOLERANCE = 1e-10
"""Of both whitenings (τ_W and τ_K)."""


@dataclass(frozen=True)
class Setting:
    """min ‖P(w_data − w_p)‖² + λ tr A with one Gaussian kernel; all m points are data, support
    points and landmarks.

    >>> Setting(50, 2, 1.0).name
    'two moons, m=50, d=2, σ=1'
    """

    m: int
    d: int
    sigma: float

    @property
    def name(self) -> str:
        """For people."""
        return (
            f"{'two moons' if self.d == 2 else 'normal points'}, m={self.m}, d={self.d},"
            f" σ={self.sigma:g}"
        )

    @property
    def unit(self) -> float:
        """w₀ = (πσ²/2)^{d/2}."""
        return (0.5 * math.pi * self.sigma**2) ** (0.5 * self.d)

    @property
    def lam(self) -> float:
        """λ: the paper's 10⁻³ in the plane; elsewhere, where a fixed λ means another thing for
        every σ, 10⁻³ in units of w₀.
        """
        return 1e-3 if self.d == 2 else 1e-3 * self.unit

    def points(self) -> np.ndarray:
        """X, shape (m, d): two moons with noise 0.05 in the plane, standard normal points
        elsewhere; seed 0.
        """
        if self.d != 2:
            return np.random.default_rng(0).standard_normal((self.m, self.d))
        from sklearn.datasets import make_moons

        return np.asarray(make_moons(self.m, noise=0.05, random_state=0)[0])


def grid(
    sizes: Sequence[int], dimensions: Sequence[int], bandwidths: Sequence[float] | None
) -> list[Setting]:
    """Every combination, small sizes first; ``bandwidths=None``: the three of each dimension."""
    tried = {
        d: BANDWIDTHS.get(d, BANDWIDTHS[10]) if bandwidths is None else bandwidths
        for d in dimensions
    }
    return [Setting(m, d, sigma) for d in dimensions for sigma in tried[d] for m in sorted(sizes)]
