"""The order-4 integrals of the note's lemma on RKHS norms: ⟨w_p, w_q⟩ = ∬ p(x) q(y) k_σ(x, y) dρ(x) dρ(y), exactly."""

from __future__ import annotations

import math
import warnings
from collections.abc import Iterator
from typing import Any

import numpy as np

from ksos.exceptions import IntegralNotAvailableError
from ksos.integrals import closed_form
from ksos.integrals.gaussian import GaussianLebesgue
from ksos.kernels import Kernel
from ksos.kernels.distances import squared_distances
from ksos.measures import Box, Discrete, Lebesgue, Measure

__all__ = ["density_inner", "density_inner_matrix", "predicted_operations", "quadrature_atoms"]

_BLOCK_ROWS = 4096
_NODES_PER_BANDWIDTH = 8
_TAIL = 6.5  # bandwidths beyond the support points at which an infinite side of a box is cut: exp(−2·6.5²) is below rounding
_MOST_NODES = 40_000
_GRID_PER_BANDWIDTH, _GRID_TAIL = 3.5, 5.5
_LOST_DIGITS, _DUBIOUS = 1e-12, 1e-4


def predicted_operations(m: int, m_other: int) -> float:
    """Floating-point operations of :func:`density_inner`."""
    return float(m) ** 2 * float(m_other) ** 2


def density_inner(p: Any, q: Any, kernel: Kernel, max_operations: float) -> float:
    """⟨w_p, w_q⟩ of two densities whose kernel × measure are Gaussian × {Lebesgue, Normal}.

    Each is a signed mixture with weights P_ij, means ½(ξ_i + ξ_j) and one width. The squared distance of two means is a signed sum of the
    six distances between ξ_i, ξ_j, ξ'_k, ξ'_l, so the four-fold sum is a sequence of matrix products, Σ_i Σ_j P_ij (M Q Mᵀ)_jj with
    M_jk = E_ik E_jk: no four-index array, no exponential in the loop.
    """
    m, m_q = p.support_points.shape[0], q.support_points.shape[0]
    cost = predicted_operations(m, m_q)
    if cost > max_operations:
        raise ValueError(
            f"the exact MMD of densities with {m} and {m_q} support points is predicted to take {cost:.2g} operations, more than "
            f"max_operations={max_operations:.2g}; pass landmarks= for the projected MMD, or raise max_operations"
        )
    B, log_W, xi, width = _signed_mixture(p, kernel)
    B_q, log_W_q, xi_q, width_q = _signed_mixture(q, kernel)
    sigma = kernel.sigma_vector(p.n_features)
    tau = np.sqrt((width / sigma) ** 2 + (width_q / sigma) ** 2 + 1.0) * sigma
    scale = 2.0 * tau
    P = B * np.exp(log_W + squared_distances(xi, xi, scale))
    Q = B_q * np.exp(log_W_q + squared_distances(xi_q, xi_q, scale))
    origin = xi_q[:1]
    E = np.exp(-squared_distances(xi - origin, xi_q - origin, scale))
    total = 0.0
    weights = 2.0 * np.triu(P, 1) + np.diag(np.diagonal(P))  # P is symmetric: j ≥ i is enough
    for rows, values in _upper_rows(E, Q):
        total += float(weights[rows, rows.start :].ravel() @ values)
    return total * float(np.exp(np.sum(np.log(sigma / tau))))


def density_inner_matrix(q: Any, kernel: Kernel, model: Kernel, measure: Measure, X: np.ndarray, log_unit: float) -> np.ndarray:
    """V with ⟨w_p, w_q⟩ = ⟨B, V⟩ for every density p = Σ B_ij k(·, x_i)k(·, x_j) of the model, B in units of exp(log_unit): O(m⁴)."""
    log_W, xi, width = _pair_bumps(model, measure, X, log_unit, kernel)
    B_q, log_W_q, xi_q, width_q = _signed_mixture(q, kernel)
    sigma = kernel.sigma_vector(X.shape[1])
    tau = np.sqrt((width / sigma) ** 2 + (width_q / sigma) ** 2 + 1.0) * sigma
    scale, origin = 2.0 * tau, xi_q[:1]
    Q = B_q * np.exp(log_W_q + squared_distances(xi_q, xi_q, scale))
    E = np.exp(-squared_distances(xi - origin, xi_q - origin, scale))
    V = np.zeros_like(log_W)
    for rows, values in _upper_rows(E, Q):
        V[rows, rows.start :] = values.reshape(rows.stop - rows.start, -1)
    V = np.triu(V) + np.triu(V, 1).T
    return V * np.exp(log_W + squared_distances(xi, xi, scale)) * float(np.exp(np.sum(np.log(sigma / tau))))


def _upper_rows(E: np.ndarray, Q: np.ndarray) -> Iterator[tuple[slice, np.ndarray]]:
    """Σ_kl E_ik E_jk Q_kl E_il E_jl for the rows i of a block and all j from its first row on."""
    m = E.shape[0]
    step = max(1, _BLOCK_ROWS // m)
    for start in range(0, m, step):
        rows = slice(start, min(start + step, m))
        M = (E[rows, None, :] * E[None, start:, :]).reshape(-1, E.shape[1])
        yield rows, np.einsum("jk,jk->j", M @ Q, M)


def _signed_mixture(p: Any, kernel: Kernel) -> tuple[np.ndarray, np.ndarray, np.ndarray, np.ndarray]:
    """(B, log W, ξ, A^{−1/2}) in natural units: p dρ = Σ_ij B_ij W_ij N(½(ξ_i + ξ_j), ½A^{−1})."""
    F = p.unit_factor
    return F @ F.T, *_pair_bumps(p.kernel, p.measure, p.support_points, p.log_unit, kernel)


def _pair_bumps(
    model: Kernel, measure: Measure, X: np.ndarray, log_unit: float, kernel: Kernel
) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """(log W, ξ, A^{−1/2}) in natural units: k(·, x_i)k(·, x_j)dρ = W_ij N(½(ξ_i + ξ_j), ½A^{−1})."""
    integrals = closed_form(model, measure, X.shape[1], kernel)
    if not isinstance(integrals, GaussianLebesgue):
        raise IntegralNotAvailableError(
            f"the exact MMD of a density with {model!r} on {measure!r} has no closed form; pass landmarks= for the projected MMD, or "
            "use a discrete measure"
        )
    product = integrals._product(model, model)
    xi = 2.0 * product.weight(0) * X
    if integrals.centre is not None:
        xi = xi + product.weight(2) * integrals.centre
    return integrals.log_gram(X, X) - log_unit, xi, product.width


def quadrature_atoms(p: Any, kernel: Kernel) -> tuple[np.ndarray, np.ndarray] | None:
    """Points and weights that integrate as p dρ does, to rounding: a discrete measure's nodes, or a rule fine enough for analytic kernels.

    On R^d the closed form is the first choice. Its terms cancel like (Σ|B_ij W_ij|)²; where that costs digits and a grid is affordable, the
    trapezoidal rule, which converges like exp(−1/step²) for a Gaussian mixture and sees only positive values of p, takes its place.
    """
    if isinstance(p.measure, Discrete):
        return p.measure.points, p.measure.weights * p.pdf(p.measure.points)
    if not (p.kernel.smooth and kernel.smooth):
        return None
    if isinstance(p.measure, Box):
        return _box_atoms(p, kernel)
    error = _cancellation(p)
    atoms = _grid_atoms(p, kernel) if isinstance(p.measure, Lebesgue) and error > _LOST_DIGITS else None
    if atoms is None and error > _DUBIOUS:
        warnings.warn(
            f"the weights of this density cancel: its exact squared MMD may be off by {error:.0e}; pass landmarks= for the projected MMD",
            RuntimeWarning,
            stacklevel=2,
        )
    return atoms


def _cancellation(p: Any) -> float:
    """(Σ|B_ij W_ij|)²ε: the rounding error to expect of the closed form."""
    X, F = p.support_points, p.unit_factor
    W = np.exp(closed_form(p.kernel, p.measure, p.n_features).log_gram(X, X) - p.log_unit)
    return float(np.sum(np.abs(F @ F.T) * W)) ** 2 * float(np.finfo(np.float64).eps)


def _grid_atoms(p: Any, kernel: Kernel) -> tuple[np.ndarray, np.ndarray] | None:
    """A uniform grid around the support points; None where it would have too many nodes."""
    eta, sigma = (k.sigma_vector(p.n_features) for k in (p.kernel, kernel))
    step = np.minimum(eta, sigma) / _GRID_PER_BANDWIDTH
    low, high = p.support_points.min(axis=0) - _GRID_TAIL * eta, p.support_points.max(axis=0) + _GRID_TAIL * eta
    counts = np.ceil((high - low) / step) + 1.0
    if float(np.prod(counts)) > _MOST_NODES:
        return None
    axes = [start + size * np.arange(int(n)) for start, size, n in zip(low, step, counts, strict=True)]
    points = np.stack([g.ravel() for g in np.meshgrid(*axes, indexing="ij")], axis=1)
    return points, float(np.prod(step)) * p.pdf(points)


def _box_atoms(p: Any, kernel: Kernel) -> tuple[np.ndarray, np.ndarray]:
    """A Gauss–Legendre rule on the part of a box that holds mass (d ≤ 3)."""
    eta, sigma = (k.sigma_vector(p.n_features) for k in (p.kernel, kernel))
    low = np.maximum(p.measure.low, np.clip(p.support_points.min(axis=0), None, p.measure.high) - _TAIL * eta)
    high = np.minimum(p.measure.high, np.clip(p.support_points.max(axis=0), p.measure.low, None) + _TAIL * eta)
    counts = np.ceil(16 + _NODES_PER_BANDWIDTH * (high - low) / np.minimum(eta, sigma)).astype(int)
    if p.n_features > 3 or math.prod(int(n) for n in counts) > _MOST_NODES:
        raise IntegralNotAvailableError(
            f"the exact MMD of a density on {p.measure!r} would need a quadrature rule with {'×'.join(map(str, counts))} nodes; pass "
            "landmarks= for the projected MMD"
        )
    rule = Discrete.quadrature(Box(low, high), counts)
    return rule.points, rule.weights * p.pdf(rule.points)
