"""Order-4 integrals of Gaussian kernels: sums over four support points, as products of matrices,
never as arrays of four indices.

A product of four Gaussians factorizes over pairs of points. So do ∫ p q dρ and ⟨w_p, w_q⟩ = ∬ p(x)
q(y) k_σ(x, y) dρ(x) dρ(y), the paper's lemma on RKHS norms, and each is a sum Σ_ijkl P_ij Q_kl E_ik
E_il E_jk E_jl.
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from typing import Any, NamedTuple

import numpy as np

from ksos.exceptions import IntegralNotAvailableError
from ksos.ground import row_blocks
from ksos.integrals.base import Integrals
from ksos.integrals.box_pairs import BoxPairs
from ksos.integrals.closed_forms import closed_form
from ksos.integrals.gaussian import GaussianBox, GaussianLebesgue, in_axes
from ksos.kernels import Kernel, squared_distances
from ksos.measures import Lebesgue, Measure

_BLOCK_ELEMENTS = 1 << 18  # what a processor's cache holds
_MOST_OPERATIONS = 3e11  # m⁴ at m = 740: ten seconds per fit, where other criteria take one


# (i, j, Σ_kl E_ik E_jk Q_kl E_il E_jl) for blocks of the pairs i ≤ j.
def _pair_sums(E: np.ndarray, Q: np.ndarray) -> Iterator[tuple[np.ndarray, np.ndarray, np.ndarray]]:
    first, second = np.triu_indices(E.shape[0])
    for rows in row_blocks(first.shape[0], Q.shape[0], _BLOCK_ELEMENTS):
        i, j = first[rows], second[rows]
        M = E[i] * E[j]
        yield i, j, np.einsum("nk,nk->n", M @ Q, M)


# Σ_ijkl P_ij Q_kl E_ik E_il E_jk E_jl for symmetric P and Q: half of the pairs (i, j) is enough.
def _four_fold(P: np.ndarray, E: np.ndarray, Q: np.ndarray) -> float:
    return sum(
        float((np.where(i == j, 1.0, 2.0) * P[i, j]) @ values) for i, j, values in _pair_sums(E, Q)
    )


class ProductIntegral:
    r"""(A, B) ↦ ∫ (k(x)ᵀAk(x)) (k'(x)ᵀBk'(x)) dρ(x) / e^{log_scale}, for Gaussian kernels k at X
    and k' at Y on R^d.

    What does not depend on A and B is formed once.
    """

    def __init__(self, integrals: Integrals, X: np.ndarray, other: Kernel, Y: np.ndarray) -> None:
        plain, kernel, log_volume = integrals, integrals.kernel, 0.0
        if not isinstance(plain, GaussianLebesgue) or other.full:
            axes, _, ((kernel, X), (other, Y)) = in_axes((kernel, X), (other, Y))
            plain, log_volume = GaussianLebesgue(kernel, Lebesgue(), X.shape[1]), axes.log_volume
        product = plain.product(kernel, kernel, other, other)
        self.E = np.exp(product.log_pair(0, X, 2, Y))
        weights = []
        for i, Z in ((0, X), (2, Y)):
            away = plain.log_to_center(product, i, Z)
            weights.append(np.exp(product.log_pair(i, Z, i + 1, Z) + away[:, None] + away))
        self.left, self.right = weights
        self.log_scale = product.log_volume + plain.log_constant + log_volume

    def __call__(self, A: np.ndarray, B: np.ndarray) -> float:
        return _four_fold(A * self.left, self.E, B * self.right)


class SquareIntegral:
    r"""B ↦ ∫(k(x)ᵀBk(x))²dρ(x) for support points X, in units of exp(``log_unit``): m⁴ operations
    (a tenth of a second for 250 points).
    """

    def __init__(self, integrals: Integrals, X: np.ndarray, log_unit: float) -> None:
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

    Each is a signed mixture with weights P_ij, means ½(ξ_i + ξ_j) and one covariance. The squared
    distance of two means is a signed sum of the six distances between ξ_i, ξ_j, ξ'_k, ξ'_l, so the
    exponentials are those of pairs.
    """
    if any(isinstance(side.integrals, GaussianBox) for side in (p, q)):
        (own, left), (other, right) = _on_a_box(p), _on_a_box(q)
        return float(left @ own.inner(other, kernel) @ right)
    pairs = _pairs_of(p.kernel, p.measure, p.support_points, p.log_unit, kernel)
    F, (E, Q, log_P, log_c) = p.unit_factor, _against(q, kernel, pairs)
    return _four_fold((F @ F.T) * np.exp(log_P), E, Q) * math.exp(log_c)


def density_inner_matrix(
    q: Any, kernel: Kernel, model: Kernel, measure: Measure, X: np.ndarray, log_unit: float
) -> np.ndarray:
    """V with ⟨w_p, w_q⟩ = ⟨B, V⟩ for every density p = Σ B_ij k(·, x_i)k(·, x_j) of the model, B in
    units of exp(log_unit): O(m⁴).
    """
    if isinstance(q.integrals, GaussianBox):
        own, (other, masses) = BoxPairs(closed_form(model, measure, X.shape[1]), X), _on_a_box(q)
        values = np.exp(own.log_masses - log_unit) * (own.inner(other, kernel) @ masses)
        return own.matrix(values[:, None])[:, :, 0]
    E, Q, log_P, log_c = _against(q, kernel, _pairs_of(model, measure, X, log_unit, kernel))
    V = np.zeros_like(log_P)
    for i, j, values in _pair_sums(E, Q):
        V[i, j] = V[j, i] = values
    return V * np.exp(log_P + log_c)


def _on_a_box(p: Any) -> tuple[BoxPairs, np.ndarray]:
    """The pairs of a density, and what each of them counts."""
    own = BoxPairs(p.integrals, p.support_points)
    counts = np.where(own.i == own.j, 1.0, 2.0) * np.exp(own.log_masses - p.log_unit)
    return own, counts * (p.unit_factor @ p.unit_factor.T)[own.i, own.j]


class _Pairs(NamedTuple):
    """k(·, x_i)k(·, x_j)dρ = W_ij N(½(ξ_i + ξ_j), ½C)."""

    log_W: np.ndarray
    xi: np.ndarray
    C: np.ndarray


# (E, Q, log P, log c) for the inner product of these pairs with a density q: every distance is one
# of the metric 4(C + C' + S).
def _against(
    q: Any, kernel: Kernel, of_p: _Pairs
) -> tuple[np.ndarray, np.ndarray, np.ndarray, float]:
    of_q = _pairs_of(q.kernel, q.measure, q.support_points, q.log_unit, kernel)
    S = kernel.matrix(of_p.xi.shape[1])
    L = np.linalg.cholesky(of_p.C + of_q.C + S)
    log_c = 0.5 * float(np.linalg.slogdet(S)[1]) - float(np.sum(np.log(np.diagonal(L))))
    x, y = (0.5 * (xi - of_q.xi[:1]) @ np.linalg.inv(L).T for xi in (of_p.xi, of_q.xi))
    ones = np.ones(x.shape[1])
    E = np.exp(-squared_distances(x, y, ones))
    Q = (q.unit_factor @ q.unit_factor.T) * np.exp(of_q.log_W + squared_distances(y, y, ones))
    return E, Q, of_p.log_W + squared_distances(x, x, ones), log_c


def _pairs_of(
    model: Kernel, rho: Measure, X: np.ndarray, log_unit: float, kernel: Kernel
) -> _Pairs:
    # whether there is one for both kernels together
    closed_form(model, rho, X.shape[1], kernel)
    integrals = closed_form(model, rho, X.shape[1])
    normals = integrals.pair_normals(X)
    if normals is None or not integrals.pairwise:
        raise IntegralNotAvailableError(
            f"the exact MMD of a density with {model!r} on {rho!r} has no closed form; pass"
            " landmarks= for the projected MMD, or use a discrete measure"
        )
    xi, root = normals
    metric = np.diag(root**2) if root.ndim == 1 else root @ root.T
    return _Pairs(integrals.log_gram(X, X) - log_unit, xi, metric)
