"""Probabilities of boxes, the distribution function and its inverse: masses of the components
between two sides, feature by feature.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, cast

import numpy as np

from ksos.density.expectation import Masses, clouds
from ksos.density.moments import node_masses
from ksos.density.standard import standardize
from ksos.ground.memory import row_blocks
from ksos.integrals import closed_form
from ksos.integrals.erf import gauss_mass
from ksos.integrals.normal_boxes import mixture_box_masses
from ksos.kernels import Gaussian
from ksos.observables import BoxIndicator

if TYPE_CHECKING:
    from ksos.density.sos import SoSDensity

__all__ = ["box_masses", "cumulative", "quantiles"]

_BLOCK_ELEMENTS = 1 << 17
_NEGLIGIBLE, _LOG_RANGE = 1e-17, 200.0
_ROUGH, _CLOUD_POINTS = 1e-3, 1 << 15


def box_masses(p: SoSDensity, low: np.ndarray, high: np.ndarray) -> Masses:
    """P(low_b ≤ x ≤ high_b) of every box b, the sides given as rows, the standard errors, shape
    (n,) each, and the method.
    """
    exact = np.zeros(low.shape[0])
    if p.measure.atoms is not None:
        return _node_sums(p, low, high), exact, "sum"
    standard = standardize(p, keep_features=True)
    low, high = standard.coordinates(low), standard.coordinates(high)
    if p.kernel.full:
        values, errors = _tied_masses(standard.density, low, high)
        return values, errors, "quasi-Monte Carlo" if np.any(errors) else "closed form"
    if low.shape[0] > 1 and isinstance(p.kernel, Gaussian):
        found = _gaussian_masses(standard.density, low, high)
        if found is not None:
            return found, exact, "closed form"
    return (
        np.array([_one_mass(standard.density, a, b) for a, b in zip(low, high, strict=True)]),
        exact,
        "closed form",
    )


def cumulative(p: SoSDensity, X: np.ndarray) -> np.ndarray:
    """P(x ≤ X_i in every feature), shape (n,)."""
    if p.n_features == 1 and p.measure.atoms is None:
        standard, line = p.line
        return line.cdf(standard.coordinates(X).T)[0]
    return box_masses(p, np.full(X.shape, -np.inf), X)[0]


def quantiles(p: SoSDensity, q: np.ndarray) -> np.ndarray:
    """The smallest x with P(x' ≤ x) ≥ q, entry by entry, of a density of one feature."""
    if (atoms := p.measure.atoms) is not None:
        mass = node_masses(p)
        seen = np.flatnonzero(mass > 0.0)
        order = seen[np.argsort(atoms.points[seen, 0], kind="stable")]
        cumulated = np.cumsum(mass[order])
        at = np.searchsorted(cumulated / cumulated[-1], q * (1.0 - 1e-15), side="left")
        return np.asarray(atoms.points[order[np.minimum(at, order.shape[0] - 1)], 0])
    standard, line = p.line
    x = standard.points(line.ppf(q[None, :]).T)[:, 0]
    x[q == 0.0], x[q == 1.0] = p.measure.boundary(0)
    return np.clip(x, *p.measure.boundary(0))


def _node_sums(p: SoSDensity, low: np.ndarray, high: np.ndarray) -> np.ndarray:
    masses = node_masses(p)
    nodes = p.measure.atoms.points  # type: ignore[union-attr]
    out = np.empty(low.shape[0])
    for rows in row_blocks(low.shape[0], nodes.shape[0], _BLOCK_ELEMENTS):
        out[rows] = _inside(nodes, low[rows], high[rows]) @ masses
    return np.clip(out, 0.0, 1.0)


def _inside(X: np.ndarray, low: np.ndarray, high: np.ndarray) -> np.ndarray:
    """Which rows of X lie in which boxes, shape (boxes, n)."""
    inside = np.ones((low.shape[0], X.shape[0]), dtype=bool)
    for k in range(X.shape[1]):
        inside &= (low[:, k, None] <= X[:, k]) & (X[:, k] <= high[:, k, None])
    return inside


def _one_mass(p: SoSDensity, low: np.ndarray, high: np.ndarray) -> float:
    """⟨B, ∫_box k kᵀ dρ⟩ in logarithms, so that the mass of a box far away does not underflow."""
    if not np.all(low < high):  # sides that have come to coincide far outside
        return 0.0
    M = BoxIndicator(low, high).matrix(p.kernel, p.support_points, p.measure, p.log_unit).values
    return float(np.clip(np.vdot(p.unit_factor @ p.unit_factor.T, M), 0.0, 1.0))


def _gaussian_masses(p: SoSDensity, low: np.ndarray, high: np.ndarray) -> np.ndarray | None:
    """Many boxes at once: Σ_ij P_ij Π_k ½[erf(high_k − x̄_ijk) − erf(low_k − x̄_ijk)] over the
    components that matter.

    None if the measure's own box holds so little of the components that floats underflow.
    """
    X, d = p.support_points, p.n_features
    free = closed_form(p.kernel, p.measure.without_boundary, d)
    normals, log_W = free.pair_normals(X), free.log_gram(X, X) - p.log_unit
    if normals is None or float(log_W.max()) > _LOG_RANGE:
        return None
    P, i, j = _components(p.unit_factor, log_W)
    centres, width = 0.5 * (normals[0][i] + normals[0][j]), normals[1]
    inner, outer = p.measure.boundaries(d)
    low, high = np.maximum(low, inner), np.minimum(high, outer)
    out = np.empty(low.shape[0])
    for rows in row_blocks(low.shape[0], P.shape[0], _BLOCK_ELEMENTS):
        terms = np.broadcast_to(P, (out[rows].shape[0], P.shape[0]))
        for k in range(d):
            terms = terms * gauss_mass(
                *((side[rows, k, None] - centres[:, k]) / width[k] for side in (low, high))
            )
        out[rows] = terms.sum(axis=1)
    return np.where(np.all(low < high, axis=1), np.clip(out, 0.0, 1.0), 0.0)


def _components(F: np.ndarray, log_W: np.ndarray) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """(P, i, j): the weights B_ij W_ij of the components that matter, of both orders of a pair
    together.
    """
    i, j = np.triu_indices(F.shape[0])
    P = np.where(i == j, 1.0, 2.0) * np.einsum("nr,nr->n", F[i], F[j]) * np.exp(log_W[i, j])
    order = np.argsort(np.abs(P))
    kept = order[np.cumsum(np.abs(P[order])) > _NEGLIGIBLE]
    return P[kept], i[kept], j[kept]


def _tied_masses(p: SoSDensity, low: np.ndarray, high: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """The same for a metric: every component is a normal law with the covariance S/4."""
    X, integrals = p.support_points, p.integrals
    P, i, j = _components(p.unit_factor, integrals.log_gram(X, X) - p.log_unit)
    covariance = 0.5 * cast("np.ndarray", integrals.pair_metric())
    mass, error = mixture_box_masses(P, 0.5 * (X[i] + X[j]), covariance, low, high)
    if np.any(
        rough := error > _ROUGH
    ):  # components of both signs were drawn: points with positive weights may do better
        values = np.stack(
            [
                _inside(y, low[rough], high[rough]) @ masses
                for y, _, masses in clouds(p, _CLOUD_POINTS, 0)[0]
            ]
        )
        spread = values.std(axis=0, ddof=1) / np.sqrt(values.shape[0])
        better = spread < error[rough]
        mass[rough] = np.where(better, values.mean(axis=0), mass[rough])
        error[rough] = np.where(better, spread, error[rough])
    return np.where(np.all(low < high, axis=1), np.clip(mass, 0.0, 1.0), 0.0), error
