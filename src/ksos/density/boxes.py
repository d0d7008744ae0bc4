"""Probabilities of boxes and the distribution function: masses of the components between walls, feature by feature."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np
from scipy.special import erfc

from ksos._memory import row_blocks
from ksos.density.lines import LineLaw
from ksos.density.moments import node_masses
from ksos.density.standard import standardize
from ksos.integrals.gaussian import GaussianLebesgue, GaussianNormal
from ksos.kernels import Gaussian
from ksos.measures import Discrete, Lebesgue, Normal
from ksos.observables import BoxIndicator

if TYPE_CHECKING:
    from ksos.density.sos import SoSDensity

__all__ = ["box_masses", "cumulative", "quantiles"]

_BLOCK_ELEMENTS = 1 << 17
_NEGLIGIBLE = 1e-17
_LOG_RANGE = 200.0


def box_masses(p: SoSDensity, low: np.ndarray, high: np.ndarray) -> np.ndarray:
    """P(low_b ≤ x ≤ high_b) of every box b, the walls given as rows, shape (n,)."""
    if isinstance(p.measure, Discrete):
        return _node_sums(p, low, high)
    standard = standardize(p)
    low, high = standard.coordinates(low), standard.coordinates(high)
    if low.shape[0] > 1 and isinstance(p.kernel, Gaussian):
        found = _gaussian_masses(standard.density, low, high)
        if found is not None:
            return found
    return np.array([_one_mass(standard.density, a, b) for a, b in zip(low, high, strict=True)])


def cumulative(p: SoSDensity, X: np.ndarray) -> np.ndarray:
    """P(x ≤ X_i in every feature), shape (n,)."""
    if p.n_features == 1 and not isinstance(p.measure, Discrete):
        standard = standardize(p)
        return LineLaw(standard.density).cdf(standard.coordinates(X)[:, 0])
    return box_masses(p, np.full(X.shape, -np.inf), X)


def quantiles(p: SoSDensity, q: np.ndarray) -> np.ndarray:
    """The smallest x with P(x' ≤ x) ≥ q, entry by entry, of a density of one feature."""
    if isinstance(p.measure, Discrete):
        mass = node_masses(p)
        seen = np.flatnonzero(mass > 0.0)
        order = seen[np.argsort(p.measure.points[seen, 0], kind="stable")]
        cumulated = np.cumsum(mass[order])
        at = np.searchsorted(cumulated / cumulated[-1], q * (1.0 - 1e-15), side="left")
        return np.asarray(p.measure.points[order[np.minimum(at, order.shape[0] - 1)], 0])
    standard = standardize(p)
    y = LineLaw(standard.density).ppf(q)
    return np.clip(standard.points(y[:, None])[:, 0], *p.measure.walls(0))


def _node_sums(p: SoSDensity, low: np.ndarray, high: np.ndarray) -> np.ndarray:
    assert isinstance(p.measure, Discrete)
    nodes, masses = p.measure.points, node_masses(p)
    out = np.empty(low.shape[0])
    for rows in row_blocks(low.shape[0], nodes.shape[0], _BLOCK_ELEMENTS):
        inside = np.ones((out[rows].shape[0], nodes.shape[0]), dtype=bool)
        for k in range(nodes.shape[1]):
            inside &= (low[rows, k, None] <= nodes[:, k]) & (nodes[:, k] <= high[rows, k, None])
        out[rows] = inside @ masses
    return np.clip(out, 0.0, 1.0)


def _one_mass(p: SoSDensity, low: np.ndarray, high: np.ndarray) -> float:
    """⟨B, ∫_box k kᵀ dρ⟩ in logarithms: also where a box far out holds 1e-300."""
    if not np.all(low < high):  # walls that have come to coincide far outside
        return 0.0
    M = BoxIndicator(low, high).matrix(p.kernel, p.support_points, p.measure, p.log_unit).values
    return float(np.clip(np.vdot(p.unit_factor @ p.unit_factor.T, M), 0.0, 1.0))


def _gaussian_masses(p: SoSDensity, low: np.ndarray, high: np.ndarray) -> np.ndarray | None:
    """Many boxes at once: Σ_ij P_ij Π_k ½[erf(high_k − x̄_ijk) − erf(low_k − x̄_ijk)] over the components that matter.

    None where the measure's own box holds so little of the components that only logarithms can tell.
    """
    d = p.n_features
    free = GaussianNormal(p.kernel, p.measure, d) if isinstance(p.measure, Normal) else GaussianLebesgue(p.kernel, Lebesgue(), d)
    X, F = p.support_points, p.unit_factor
    log_W = free.log_gram(X, X) - p.log_unit
    if float(log_W.max()) > _LOG_RANGE:
        return None
    i, j = np.triu_indices(X.shape[0])
    P = np.where(i == j, 1.0, 2.0) * np.einsum("nr,nr->n", F[i], F[j]) * np.exp(log_W[i, j])
    order = np.argsort(np.abs(P))
    kept = order[np.cumsum(np.abs(P[order])) > _NEGLIGIBLE]
    i, j, P = i[kept], j[kept], P[kept]
    product = free._product(p.kernel, p.kernel)
    walls = np.array([p.measure.walls(k) for k in range(d)])
    low, high = np.maximum(low, walls[:, 0]), np.minimum(high, walls[:, 1])
    out = np.empty(low.shape[0])
    for rows in row_blocks(low.shape[0], P.shape[0], _BLOCK_ELEMENTS):
        terms = np.broadcast_to(P, (out[rows].shape[0], P.shape[0]))
        for k in range(d):
            centre = product.weight(0)[k] * (X[i, k] + X[j, k])
            if free.centre is not None:
                centre = centre + product.weight(2)[k] * free.centre[k]
            terms = terms * _between((low[rows, k, None] - centre) / product.width[k], (high[rows, k, None] - centre) / product.width[k])
        out[rows] = terms.sum(axis=1)
    return np.where(np.all(low < high, axis=1), np.clip(out, 0.0, 1.0), 0.0)


def _between(a: np.ndarray, b: np.ndarray) -> np.ndarray:
    """½[erf(b) − erf(a)] from complementary functions, mirrored so that the end nearer to 0 comes first: tails keep their digits."""
    if np.all(np.isneginf(a)):
        return 0.5 * erfc(-b)
    if np.all(np.isposinf(b)):
        return 0.5 * erfc(a)
    with np.errstate(invalid="ignore"):
        flip = a + b < 0.0
    return 0.5 * (erfc(np.where(flip, -b, a)) - erfc(np.where(flip, -a, b)))
