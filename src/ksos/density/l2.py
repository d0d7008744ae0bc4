"""The L² distance of two densities: order-4 integrals ∫ k_i k_j k'_k k'_l dρ, and no third kernel."""

from __future__ import annotations

import itertools
import math
from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np
from numpy.polynomial import legendre

from ksos._memory import row_blocks
from ksos.density.lines import merged_windows
from ksos.density.standard import standardize
from ksos.integrals._gaussian_product import GaussianProduct
from ksos.kernels import Gaussian
from ksos.kernels.distances import squared_distances
from ksos.measures import Box, Discrete, Lebesgue, Normal

if TYPE_CHECKING:
    from ksos.density.sos import SoSDensity

__all__ = ["l2_distance"]

_NODES, _WEIGHTS = legendre.leggauss(12)
_LOG_LEVEL = -22.0
_PANELS_PER_LENGTH = 1.5
_MOST_NODES = 1_000_000
_BLOCK_ELEMENTS = 1 << 20


def l2_distance(p: SoSDensity, q: SoSDensity, max_operations: float) -> float:
    """(∫ (p − q)² dρ)^{1/2}.

    In few features the square is summed over a Gauss–Legendre grid that is exact to rounding: all terms are positive, and densities that
    nearly agree keep their digits. Where the grid would be too large, ∫p² − 2∫pq + ∫q² from the order-4 integrals takes its place.
    """
    _check(p, q)
    if isinstance(p.measure, Discrete):
        nodes = p.measure.points
        return math.sqrt(float(p.measure.weights @ (p.pdf(nodes) - q.pdf(nodes)) ** 2))
    standard = standardize(p, q)
    a, b = standard.same_coordinates(p), standard.same_coordinates(q)
    axes = [_axis(a, b, k) for k in range(p.n_features)]
    if math.prod(x.shape[0] for x, _ in axes) <= _MOST_NODES:
        square = _on_grid(a, b, axes)
        log_square = math.log(square) if square > 0.0 else -math.inf
    else:
        log_square = _log_square(a, b, axes, max_operations)
    with np.errstate(over="ignore", under="ignore"):
        return float(np.exp(0.5 * (log_square - standard.log_volume)))


def _check(p: SoSDensity, q: SoSDensity) -> None:
    if p.n_features != q.n_features:
        raise ValueError(f"the other density has {q.n_features} features, but this one has {p.n_features}")
    by_volume = all(isinstance(r.measure, (Lebesgue, Box)) for r in (p, q))
    if p.measure != q.measure and not by_volume:
        raise ValueError(
            f"∫(p − q)²dρ needs one reference measure; this density is on {p.measure!r}, the other on {q.measure!r}; make both on the same"
        )


def _on_grid(a: SoSDensity, b: SoSDensity, axes: list[tuple[np.ndarray, np.ndarray]]) -> float:
    shape = tuple(x.shape[0] for x, _ in axes)
    total = 0.0
    for rows in row_blocks(math.prod(shape), max(a.support_points.shape[0], b.support_points.shape[0]), _BLOCK_ELEMENTS):
        index = np.unravel_index(np.arange(rows.start, rows.stop), shape)
        y = np.stack([x[i] for (x, _), i in zip(axes, index, strict=True)], axis=1)
        w = math.prod(weights[i] for (_, weights), i in zip(axes, index, strict=True))
        difference = np.exp(a.logpdf(y)) - np.exp(b.logpdf(y))
        total += float(np.sum(w * np.exp(_log_density(a, y)) * difference**2))
    return total


def _log_density(a: SoSDensity, y: np.ndarray) -> np.ndarray:
    """log dρ/dx; two densities by volume are both 0 where they are not defined, so that there is nothing to cut off."""
    return a.measure.log_density(y) if isinstance(a.measure, Normal) else np.zeros(y.shape[0])


def _axis(a: SoSDensity, b: SoSDensity, k: int) -> tuple[np.ndarray, np.ndarray]:
    """Nodes and weights of one feature for products of both kernels: panels end at kinks and at walls."""
    windows = [merged_windows(p, k, _LOG_LEVEL) for p in (a, b)]
    first, last = (np.concatenate([window[side] for window in windows]) for side in (0, 1))
    step = min(window[2] for window in windows) / _PANELS_PER_LENGTH
    breaks = np.concatenate([first, last, *(p.support_points[:, k] for p in (a, b) if not p.kernel.smooth)])
    pieces = []
    for u, v in itertools.pairwise(np.unique(breaks)):
        if np.any((first <= u) & (v <= last)):
            edges = np.linspace(u, v, 1 + max(1, int(np.ceil((v - u) / step))))
            pieces.append((edges[:-1], 0.5 * np.diff(edges)))
    start, half = (np.concatenate([piece[side] for piece in pieces])[:, None] for side in (0, 1))
    return (start + half * (1.0 + _NODES)).ravel(), (half * _WEIGHTS).ravel()


@dataclass(frozen=True)
class _Form:
    """k(x)ᵀ B k(x) e^{−log_unit}, with B of any sign."""

    density: SoSDensity
    B: np.ndarray
    log_unit: float


def _log_square(a: SoSDensity, b: SoSDensity, axes: list[tuple[np.ndarray, np.ndarray]], max_operations: float) -> float:
    """log ∫(a − b)²: of the difference of the forms where they share their support, else of three terms."""
    A, B = (_Form(p, p.unit_factor @ p.unit_factor.T, p.log_unit) for p in (a, b))
    if a.kernel == b.kernel and a.measure == b.measure and np.array_equal(a.support_points, b.support_points):
        D = _Form(a, A.B - B.B * math.exp(min(A.log_unit - B.log_unit, 700.0)), A.log_unit)
        terms = [(1.0, D, D)]
    else:
        terms = [(1.0, A, A), (1.0, B, B), (-2.0, A, B)]
    pairwise = a.measure == b.measure and not isinstance(a.measure, Box) and all(isinstance(p.kernel, Gaussian) for p in (a, b))
    cost = sum(float(f.B.size) * g.B.size for _, f, g in terms) * (1.0 if pairwise else sum(x.shape[0] for x, _ in axes) / 2.0)
    if cost > max_operations:
        raise ValueError(
            f"the L² distance of densities with {A.B.shape[0]} and {B.B.shape[0]} support points is predicted to take {cost:.2g} "
            f"operations, more than max_operations={max_operations:.2g}; compress the densities first, or raise max_operations"
        )
    found = [(factor, *(_pairwise(f, g) if pairwise else _by_lines(f, g, axes))) for factor, f, g in terms]
    top = max(log_scale for *_, log_scale in found)
    square = sum(factor * value * math.exp(log_scale - top) for factor, value, log_scale in found)
    return math.log(square) + top if square > 0.0 else -math.inf


def _pairwise(f: _Form, g: _Form) -> tuple[float, float]:
    """∫fg dρ = value·e^{log_scale} for Gaussian kernels on R^d: every factor belongs to a pair of points."""
    p, q, d = f.density, g.density, f.density.n_features
    sigma, tau = p.kernel.sigma_vector(d), q.kernel.sigma_vector(d)
    factors, log_scale = [sigma, sigma, tau, tau], -f.log_unit - g.log_unit
    to_centre = [np.zeros(p.support_points.shape[0]), np.zeros(q.support_points.shape[0])]
    if isinstance(p.measure, Normal):
        mean, spread = p.measure.vectors(d)
        factors.append(math.sqrt(2.0) * spread)
        log_scale -= float(np.sum(0.5 * math.log(2.0 * math.pi) + np.log(spread)))
        product = GaussianProduct(factors)
        to_centre = [squared_distances(r.support_points, mean[None, :], product.pair_bandwidth(i, 4))[:, 0] for r, i in ((p, 0), (q, 2))]
    product = GaussianProduct(factors)
    P, Q = (
        form.B * np.exp(-squared_distances(x, x, product.pair_bandwidth(i, i + 1)) - away[:, None] - away)
        for form, x, i, away in ((f, p.support_points, 0, to_centre[0]), (g, q.support_points, 2, to_centre[1]))
    )
    E = np.exp(-squared_distances(p.support_points, q.support_points, product.pair_bandwidth(0, 2)))
    i, j = np.triu_indices(P.shape[0])
    weights = np.where(i == j, 1.0, 2.0) * P[i, j]
    total = 0.0
    for rows in row_blocks(i.shape[0], Q.shape[0], _BLOCK_ELEMENTS):
        M = E[i[rows]] * E[j[rows]]
        total += float(weights[rows] @ np.einsum("nk,nk->n", M @ Q, M))
    return total, log_scale + product.log_volume


def _by_lines(f: _Form, g: _Form, axes: list[tuple[np.ndarray, np.ndarray]]) -> tuple[float, float]:
    """The same for any product kernels on boxes and R^d: ∫ k_i k_j k'_k k'_l is a product of sums over the nodes of a line."""
    (i, j), (s, t) = np.triu_indices(f.B.shape[0]), np.triu_indices(g.B.shape[0])
    P, Q = np.where(i == j, 1.0, 2.0) * f.B[i, j], np.where(s == t, 1.0, 2.0) * g.B[s, t]
    lines = []
    for feature, (x, w) in enumerate(axes):
        inside, values = np.ones(x.shape[0], dtype=bool), []
        for p in (f.density, g.density):
            inside &= p.measure.restrict([feature]).contains(x[:, None])
            values.append(p.kernel.restrict([feature])(x[:, None], p.support_points[:, [feature]]))
        lines.append((*values, w * inside))
    total = 0.0
    for rows in row_blocks(i.shape[0], s.shape[0] + max(w.shape[0] for *_, w in lines), _BLOCK_ELEMENTS):
        terms = np.broadcast_to(Q, (rows.stop - rows.start, s.shape[0]))
        for left, right, w in lines:
            terms = terms * ((left[:, i[rows]] * left[:, j[rows]] * w[:, None]).T @ (right[:, s] * right[:, t]))
        total += float(P[rows] @ terms.sum(axis=1))
    return total, -f.log_unit - g.log_unit
