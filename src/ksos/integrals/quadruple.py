"""Order-4 integrals of Gaussian kernels: sums over four support points, as products of matrices,
never as arrays of four indices.

A product of four Gaussians factorises over pairs of points. So do ∫ p q dρ and ⟨w_p, w_q⟩ = ∬ p(x)
q(y) k_σ(x, y) dρ(x) dρ(y), the note's lemma on RKHS norms, and each is a sum Σ_ijkl P_ij Q_kl E_ik
E_il E_jk E_jl.
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import numpy as np

from ksos.exceptions import IntegralNotAvailableError
from ksos.ground.memory import row_blocks
from ksos.integrals import closed_form
from ksos.integrals.base import Integrals
from ksos.integrals.gaussian import GaussianLebesgue
from ksos.integrals.metric import GaussianMetric, axes_of
from ksos.kernels import Gaussian, Kernel
from ksos.kernels.distances import central_point, squared_distances
from ksos.measures import Lebesgue, Measure

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
    """Σ_ijkl P_ij Q_kl E_ik E_il E_jk E_jl for symmetric P and Q: half of the pairs (i, j) is
    enough.
    """
    return sum(
        float((np.where(i == j, 1.0, 2.0) * P[i, j]) @ values) for i, j, values in _pair_sums(E, Q)
    )


class ProductIntegral:
    r"""(A, B) ↦ ∫ (k(x)ᵀAk(x)) (k'(x)ᵀBk'(x)) dρ(x) / e^{log_scale}, for Gaussian kernels k at X
    and k' at Y on R^d.

    What does not depend on A and B is formed once.
    """

    def __init__(
        self,
        integrals: GaussianLebesgue | GaussianMetric,
        X: np.ndarray,
        other: Kernel,
        Y: np.ndarray,
    ) -> None:
        log_volume = 0.0
        if not isinstance(integrals, GaussianLebesgue) or other.full:
            axes, origin = axes_of(integrals.kernel, X.shape[1], other), central_point(X)
            integrals, other = (
                GaussianLebesgue(Gaussian(1.0), Lebesgue(), X.shape[1]),
                Gaussian(axes.bandwidths[1]),
            )
            X, Y, log_volume = (
                axes.coordinates(X, origin),
                axes.coordinates(Y, origin),
                axes.log_volume,
            )
        product = integrals.product(integrals.kernel, integrals.kernel, other, other)
        self.E = np.exp(-squared_distances(X, Y, product.pair_bandwidth(0, 2)))
        weights = []
        for i, Z in ((0, X), (2, Y)):
            away = integrals.log_to_centre(product, i, Z)
            weights.append(
                np.exp(
                    -squared_distances(Z, Z, product.pair_bandwidth(i, i + 1))
                    + away[:, None]
                    + away
                )
            )
        self.left, self.right = weights
        self.log_scale = product.log_volume + integrals.log_constant + log_volume

    def __call__(self, A: np.ndarray, B: np.ndarray) -> float:
        return _four_fold(A * self.left, self.E, B * self.right)


class SquareIntegral:
    r"""B ↦ ∫(k(x)ᵀBk(x))²dρ(x) for support points X, in units of exp(``log_unit``): m⁴ operations
    (a tenth of a second for 250 points).
    """

    def __init__(
        self, integrals: GaussianLebesgue | GaussianMetric, X: np.ndarray, log_unit: float
    ) -> None:
        m = X.shape[0]
        if float(m) ** 4 > _MOST_OPERATIONS:
            raise IntegralNotAvailableError(
                f"∫p² over {m} support points in {X.shape[1]} features would take"
                f" {float(m) ** 4:.1e} operations per fit; use fewer support points, such as"
                f" n_support={int(0.8 * _MOST_OPERATIONS**0.25) // 100 * 100}, or another criterion"
            )
        self.product = ProductIntegral(integrals, X, integrals.kernel, X)
        self.c = math.exp(self.product.log_scale - log_unit)

    def __call__(self, B: np.ndarray) -> float:
        """The integral for a symmetric ``B``."""
        return self.c * self.product(B, B)


def density_inner(p: Any, q: Any, kernel: Kernel) -> float:
    """⟨w_p, w_q⟩ of two densities whose kernel × measure are Gaussian × {Lebesgue, Normal}: m²m'²
    operations.

    Each is a signed mixture with weights P_ij, means ½(ξ_i + ξ_j) and one width. The squared
    distance of two means is a signed sum of the six distances between ξ_i, ξ_j, ξ'_k, ξ'_l, so the
    exponentials are those of pairs.
    """
    bumps, F = _pair_bumps(p.kernel, p.measure, p.support_points, p.log_unit, kernel), p.unit_factor
    E, Q, log_P, log_c = _against(q, kernel, bumps)
    return _four_fold((F @ F.T) * np.exp(log_P), E, Q) * math.exp(log_c)


def density_inner_matrix(
    q: Any, kernel: Kernel, model: Kernel, measure: Measure, X: np.ndarray, log_unit: float
) -> np.ndarray:
    """V with ⟨w_p, w_q⟩ = ⟨B, V⟩ for every density p = Σ B_ij k(·, x_i)k(·, x_j) of the model, B in
    units of exp(log_unit): O(m⁴).
    """
    E, Q, log_P, log_c = _against(q, kernel, _pair_bumps(model, measure, X, log_unit, kernel))
    V = np.zeros_like(log_P)
    for i, j, values in _pair_sums(E, Q):
        V[i, j] = V[j, i] = values
    return V * np.exp(log_P + log_c)


@dataclass(frozen=True)
class _Bumps:
    """k(·, x_i)k(·, x_j)dρ = W_ij N(½(ξ_i + ξ_j), ½A^{−1}), in natural units."""

    log_W: np.ndarray
    xi: np.ndarray
    width: np.ndarray
    """A^{−1/2} per feature, shape (d,); or A^{−1} with a metric, shape (d, d)."""


def _against(
    q: Any, kernel: Kernel, bumps: _Bumps
) -> tuple[np.ndarray, np.ndarray, np.ndarray, float]:
    """(E, Q, log P, log c) for the inner product of bumps with a density q: every distance is one
    of the metric 4(A^{−1} + A'^{−1} + S).
    """
    of_q, d = (
        _pair_bumps(q.kernel, q.measure, q.support_points, q.log_unit, kernel),
        bumps.xi.shape[1],
    )
    origin = of_q.xi[:1]
    xi, xi_q = bumps.xi - origin, of_q.xi - origin
    if bumps.width.ndim == of_q.width.ndim == 1 and not kernel.full:
        sigma = kernel.sigma_vector(d)
        tau = np.sqrt((bumps.width / sigma) ** 2 + (of_q.width / sigma) ** 2 + 1.0) * sigma
        log_c = float(np.sum(np.log(sigma / tau)))
    else:
        parts = [
            np.diag(width**2) if width.ndim == 1 else width for width in (bumps.width, of_q.width)
        ]
        L, S = (
            np.linalg.cholesky(parts[0] + parts[1] + kernel.matrix(d)),
            np.linalg.cholesky(kernel.matrix(d)),
        )
        log_c = float(np.sum(np.log(np.diagonal(S)) - np.log(np.diagonal(L))))
        V, tau = np.linalg.inv(L), np.ones(d)
        xi, xi_q = xi @ V.T, xi_q @ V.T
    E = np.exp(-squared_distances(xi, xi_q, 2.0 * tau))
    Q = (q.unit_factor @ q.unit_factor.T) * np.exp(
        of_q.log_W + squared_distances(xi_q, xi_q, 2.0 * tau)
    )
    return E, Q, bumps.log_W + squared_distances(xi, xi, 2.0 * tau), log_c


def _pair_bumps(
    model: Kernel, rho: Measure, X: np.ndarray, log_unit: float, kernel: Kernel
) -> _Bumps:
    closed_form(model, rho, X.shape[1], kernel)  # whether there is one for both kernels together
    integrals: Integrals = closed_form(model, rho, X.shape[1])
    metric, normals = integrals.pair_metric(), integrals.pair_normals(X)
    if metric is not None:
        normals = X, metric
    if normals is None or not integrals.pairwise:
        raise IntegralNotAvailableError(
            f"the exact MMD of a density with {model!r} on {rho!r} has no closed form; pass"
            " landmarks= for the projected MMD, or use a discrete measure"
        )
    return _Bumps(integrals.log_gram(X, X) - log_unit, *normals)
