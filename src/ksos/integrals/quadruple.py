"""Order-4 integrals of Gaussian kernels: sums over four support points, as products of matrices, never as arrays of four indices.

A product of four Gaussians factorises over pairs of points. So do ∫ p q dρ and ⟨w_p, w_q⟩ = ∬ p(x) q(y) k_σ(x, y) dρ(x) dρ(y), the note's
lemma on RKHS norms, and each is a sum Σ_ijkl P_ij Q_kl E_ik E_il E_jk E_jl.
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from typing import Any

import numpy as np

from ksos._memory import row_blocks
from ksos.exceptions import IntegralNotAvailableError
from ksos.integrals import closed_form
from ksos.integrals.base import Integrals
from ksos.integrals.gaussian import GaussianLebesgue
from ksos.kernels import Kernel
from ksos.kernels.distances import squared_distances
from ksos.measures import Measure

__all__ = ["ProductIntegral", "SquareIntegral", "density_inner", "density_inner_matrix"]

_BLOCK_ELEMENTS = 1 << 18  # what a processor's cache holds
_MOST_OPERATIONS = 3e11


def _pair_sums(E: np.ndarray, Q: np.ndarray) -> Iterator[tuple[np.ndarray, np.ndarray, np.ndarray]]:
    """(i, j, Σ_kl E_ik E_jk Q_kl E_il E_jl) for blocks of the pairs i ≤ j."""
    first, second = np.triu_indices(E.shape[0])
    for rows in row_blocks(first.shape[0], Q.shape[0], _BLOCK_ELEMENTS):
        i, j = first[rows], second[rows]
        M = E[i] * E[j]
        yield i, j, np.einsum("nk,nk->n", M @ Q, M)


def _four_fold(P: np.ndarray, E: np.ndarray, Q: np.ndarray) -> float:
    """Σ_ijkl P_ij Q_kl E_ik E_il E_jk E_jl for symmetric P and Q: half of the pairs (i, j) is enough."""
    return sum(float((np.where(i == j, 1.0, 2.0) * P[i, j]) @ values) for i, j, values in _pair_sums(E, Q))


class ProductIntegral:
    r"""(A, B) ↦ ∫ (k(x)ᵀAk(x)) (k'(x)ᵀBk'(x)) dρ(x) / e^{log_scale}, for Gaussian kernels k at X and k' at Y on R^d.

    What does not depend on A and B is formed once.
    """

    def __init__(self, integrals: GaussianLebesgue, X: np.ndarray, other: Kernel, Y: np.ndarray) -> None:
        product = integrals.product(integrals.kernel, integrals.kernel, other, other)
        self.E = np.exp(-squared_distances(X, Y, product.pair_bandwidth(0, 2)))
        weights = []
        for i, Z in ((0, X), (2, Y)):
            away = integrals.log_to_centre(product, i, Z)
            weights.append(np.exp(-squared_distances(Z, Z, product.pair_bandwidth(i, i + 1)) + away[:, None] + away))
        self.left, self.right = weights
        self.log_scale = product.log_volume + integrals.log_constant

    def __call__(self, A: np.ndarray, B: np.ndarray) -> float:
        return _four_fold(A * self.left, self.E, B * self.right)


class SquareIntegral:
    r"""B ↦ ∫(k(x)ᵀBk(x))²dρ(x) for support points X, in units of exp(``log_unit``): m⁴ operations (a tenth of a second for 250 points)."""

    def __init__(self, integrals: GaussianLebesgue, X: np.ndarray, log_unit: float) -> None:
        m = X.shape[0]
        if float(m) ** 4 > _MOST_OPERATIONS:
            raise IntegralNotAvailableError(
                f"∫p² over {m} support points in {X.shape[1]} features would take {float(m) ** 4:.1e} operations per fit; use fewer "
                f"support points, such as n_support={int(0.8 * _MOST_OPERATIONS**0.25) // 100 * 100}, or another criterion"
            )
        self.product = ProductIntegral(integrals, X, integrals.kernel, X)
        self.c = math.exp(self.product.log_scale - log_unit)

    def __call__(self, B: np.ndarray) -> float:
        """The integral for a symmetric ``B``."""
        return self.c * self.product(B, B)


def density_inner(p: Any, q: Any, kernel: Kernel) -> float:
    """⟨w_p, w_q⟩ of two densities whose kernel × measure are Gaussian × {Lebesgue, Normal}: m²m'² operations.

    Each is a signed mixture with weights P_ij, means ½(ξ_i + ξ_j) and one width. The squared distance of two means is a signed sum of the
    six distances between ξ_i, ξ_j, ξ'_k, ξ'_l, so the exponentials are those of pairs.
    """
    (log_W, xi, width), F = _pair_bumps(p.kernel, p.measure, p.support_points, p.log_unit, kernel), p.unit_factor
    E, Q, tau, log_c = _against(q, kernel, xi, width)
    P = (F @ F.T) * np.exp(log_W + squared_distances(xi, xi, tau))
    return _four_fold(P, E, Q) * math.exp(log_c)


def density_inner_matrix(q: Any, kernel: Kernel, model: Kernel, measure: Measure, X: np.ndarray, log_unit: float) -> np.ndarray:
    """V with ⟨w_p, w_q⟩ = ⟨B, V⟩ for every density p = Σ B_ij k(·, x_i)k(·, x_j) of the model, B in units of exp(log_unit): O(m⁴)."""
    log_W, xi, width = _pair_bumps(model, measure, X, log_unit, kernel)
    E, Q, tau, log_c = _against(q, kernel, xi, width)
    V = np.zeros_like(log_W)
    for i, j, values in _pair_sums(E, Q):
        V[i, j] = V[j, i] = values
    return V * np.exp(log_W + squared_distances(xi, xi, tau) + log_c)


def _against(q: Any, kernel: Kernel, xi: np.ndarray, width: np.ndarray) -> tuple[np.ndarray, np.ndarray, np.ndarray, float]:
    """(E, Q, τ, log c) for the inner product of bumps at ``xi`` with a density q."""
    log_W, xi_q, width_q = _pair_bumps(q.kernel, q.measure, q.support_points, q.log_unit, kernel)
    sigma = kernel.sigma_vector(xi.shape[1])
    tau = np.sqrt((width / sigma) ** 2 + (width_q / sigma) ** 2 + 1.0) * sigma
    origin = xi_q[:1]
    E = np.exp(-squared_distances(xi - origin, xi_q - origin, 2.0 * tau))
    Q = (q.unit_factor @ q.unit_factor.T) * np.exp(log_W + squared_distances(xi_q, xi_q, 2.0 * tau))
    return E, Q, 2.0 * tau, float(np.sum(np.log(sigma / tau)))


def _pair_bumps(model: Kernel, rho: Measure, X: np.ndarray, log_unit: float, kernel: Kernel) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """(log W, ξ, A^{−1/2}) in natural units: k(·, x_i)k(·, x_j)dρ = W_ij N(½(ξ_i + ξ_j), ½A^{−1})."""
    integrals: Integrals = closed_form(model, rho, X.shape[1], kernel)
    normals = integrals.pair_normals(X)
    if normals is None or not integrals.pairwise:
        raise IntegralNotAvailableError(
            f"the exact MMD of a density with {model!r} on {rho!r} has no closed form; pass landmarks= for the projected MMD, or "
            "use a discrete measure"
        )
    return integrals.log_gram(X, X) - log_unit, *normals
