"""∫p²dρ in closed form: the order-4 integrals of a Gaussian kernel factorise over pairs of points."""

from __future__ import annotations

import math

import numpy as np

from ksos._memory import row_blocks
from ksos.exceptions import IntegralNotAvailableError
from ksos.integrals.gaussian import GaussianLebesgue
from ksos.kernels.distances import squared_distances

__all__ = ["SquareIntegral"]

_BLOCK_ELEMENTS = 1 << 18  # what a processor's cache holds
_MOST_OPERATIONS = 3e11


class SquareIntegral:
    r"""B ↦ ∫(k(x)ᵀBk(x))²dρ(x) for support points X, in units of exp(``log_unit``): what does not depend on B is formed once.

    With one bandwidth all six pairs of a product of four kernels have the same factor E, so that the integral is
    c·Σ_ijkl B_ij B_kl E_ij E_kl E_ik E_il E_jk E_jl: m⁴ operations, as products of matrices (a tenth of a second for 250 points).
    """

    def __init__(self, integrals: GaussianLebesgue, X: np.ndarray, log_unit: float) -> None:
        m = X.shape[0]
        if float(m) ** 4 > _MOST_OPERATIONS:
            raise IntegralNotAvailableError(
                f"∫p² over {m} support points in {X.shape[1]} features would take {float(m) ** 4:.1e} operations per fit; use fewer "
                f"support points, such as n_support={int(0.8 * _MOST_OPERATIONS**0.25) // 100 * 100}, or another criterion"
            )
        product = integrals._product(*[integrals.kernel] * 4)
        self.E = np.exp(-squared_distances(X, X, product.pair_bandwidth(0, 1)))
        away = np.exp(integrals._log_to_centre(product, 0, X))
        self.weights = self.E * away[:, None] * away
        self.c = math.exp(product.log_volume + integrals.log_constant - log_unit)
        self.i, self.j = np.triu_indices(m)
        self.twice = np.where(self.i == self.j, 1.0, 2.0)  # (i, j) stands for (j, i) too

    def __call__(self, B: np.ndarray) -> float:
        """The integral for a symmetric ``B``."""
        Q = B * self.weights
        shares, total = self.twice * Q[self.i, self.j], 0.0
        for rows in row_blocks(shares.shape[0], Q.shape[0], _BLOCK_ELEMENTS):
            M = self.E[self.i[rows]] * self.E[self.j[rows]]
            total += float(shares[rows] @ np.einsum("nk,nk->n", M @ Q, M))
        return self.c * total
