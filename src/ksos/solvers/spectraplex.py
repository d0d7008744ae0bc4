"""The spectraplex {C ⪰ 0, tr C = 1}: projection (Algorithm 1 of the paper), factors C = FFᵀ whose
columns come and go, and the certificate of optimality

    gap(C) = ⟨∇f(C), C⟩ − λ_min(∇f(C)) ≥ f(C) − f*,

valid for any feasible C and any convex f. It rests on the lowest eigenvalue of a symmetric matrix:
as a proven lower bound, and with its vector for the directions of solvers.
"""

from __future__ import annotations

from contextlib import suppress
from dataclasses import replace
from typing import NamedTuple

import numpy as np
from scipy.linalg import eigh
from scipy.sparse.linalg import ArpackNoConvergence, LinearOperator, eigsh

from ksos.functionals import Objective, Point
from ksos.ground.arrays import (
    Array,
    eye,
    inner,
    is_numpy,
    like,
    linalg_errors,
    namespace,
    norm,
    to_numpy,
)

DENSE = 400  # up to this size, dense eigenvalues: accurate to rounding, hence a bound by themselves
_UNIT = 2.0**-52  # the rounding unit of doubles
_LANCZOS_TOLERANCE = 1e-9  # relative: a direction needs no more, and certificates add a proof

_ON_THE_HOST = np.zeros(0)  # an array of the default backend


def center(r: int, reference: Array = _ON_THE_HOST) -> Array:
    """I/r, on the device of ``reference``."""
    return eye(r, reference) / r


def project(M: Array) -> Array:
    """Algorithm 1: the nearest point of the spectraplex, by projecting the eigenvalues of ``M`` on
    the simplex.
    """
    values, U = namespace(M).linalg.eigh(M)
    weights = project_simplex(to_numpy(values))
    first = int(np.count_nonzero(weights == 0.0))  # they ascend, as the eigenvalues do
    G = U[:, first:] * like(np.sqrt(weights[first:]), U)
    return G @ G.T


def project_simplex(values: np.ndarray) -> np.ndarray:
    """The nearest point of {x ≥ 0, Σx = 1} to ``values``, by sorting.

    >>> project_simplex(np.array([0.5, 0.1, 1.1])).round(6).tolist()
    [0.2, 0.0, 0.8]
    """
    # a common shift changes nothing, and 1 must not vanish beside large numbers
    values = values - values.max()
    descending = np.sort(values)[::-1]
    thresholds = (np.cumsum(descending) - 1.0) / np.arange(1, values.shape[0] + 1)
    last = np.nonzero(descending > thresholds)[0][-1]
    return np.maximum(values - thresholds[last], 0.0)


def factor(C: Array, negligible: float = 1e-14) -> Array:
    """G with C = GGᵀ and ‖G‖² = 1: one column per eigenvalue, in ascending order, without those
    below ``negligible`` of the largest.
    """
    xp, middle = namespace(C), center(C.shape[0], C)
    if bool(xp.all(middle == C)):  # where every run begins, and one without time ends
        return xp.sqrt(middle)
    values, U = xp.linalg.eigh(C)
    host = to_numpy(values)
    first = int(np.count_nonzero(host <= negligible * host[-1]))
    G = U[:, first:] * like(np.sqrt(host[first:]), U)
    return G / norm(G)


def pruned(F: Array, negligible: float, most: int | None = None) -> Array:
    """The same FFᵀ, scaled to ‖F‖ = 1, with orthogonal columns: those of more mass than
    ``negligible``, at most the ``most`` largest.
    """
    U, s, _ = namespace(F).linalg.svd(F / norm(F), full_matrices=False)
    kept = max(1, int(np.count_nonzero(to_numpy(s) ** 2 > negligible)))
    kept = kept if most is None else min(kept, most)
    F = U[:, :kept] * s[:kept]
    return F / norm(F)


def grown(F: Array, V: Array, t: float) -> Array:
    """The factor of (1 − t)FFᵀ + t·VVᵀ: new columns beside the old ones."""
    return namespace(F).concat([(1.0 - t) ** 0.5 * F, t**0.5 * V], axis=1)


def step_along(
    objective: Objective, point: Point, toward: Point, slope: float, longest: float
) -> float:
    """t ≤ 1 for which f is least at point + t·toward, if f is quadratic; else the first of longest,
    longest/2, … that gains 0.3 of t·slope, what the linear model of f does.
    """
    if (curvature := objective.curvature(toward)) is not None:
        return min(1.0, slope / curvature) if curvature > 0.0 else 1.0
    value, t = objective.value(point), longest
    while t > 1e-12 and objective.value(point + t * toward) > value - 0.3 * t * slope:
        t *= 0.5
    return t


def lowest_eigenpairs(G: Array, n: int, dense: int = DENSE) -> tuple[np.ndarray, Array]:
    """The ``n`` lowest eigenvalues, ascending, and their vectors as columns: by Lanczos iterations
    if there are more than ``dense``.
    """
    r = G.shape[0]
    if r > dense:
        # Products are taken where G is, and the rest on the host. So many restarts cost about r
        # products: eigenvalues that are still too clustered are found sooner by a dense routine.
        kept = min(r, 4 * n + 40)
        image = LinearOperator((r, r), lambda v: to_numpy(G @ like(v.ravel(), G)), dtype=np.float64)
        start = np.random.default_rng(0).standard_normal(r)
        options = {"tol": _LANCZOS_TOLERANCE, "maxiter": max(4, r // (kept - n)), "ncv": kept}
        with suppress(ArpackNoConvergence):
            values, vectors = eigsh(
                G if is_numpy(G) else image, k=n, which="SA", v0=start, **options
            )
            order = np.argsort(values)
            return values[order], like(vectors[:, order], G)
    if is_numpy(G):
        with suppress(np.linalg.LinAlgError):  # clustered eigenvalues: a driver without shortcuts
            return eigh(G, subset_by_index=[0, n - 1], check_finite=False)
    values, vectors = namespace(G).linalg.eigh(G)
    return to_numpy(values[:n]), vectors[:, :n]


def lowest_bound(
    G: Array, slack: float, dense: int = DENSE, estimate: float | None = None
) -> float:
    """A lower bound of λ_min(G), proven in floating point.

    Small matrices: the dense eigenvalue, whose rounding is of order ε‖G‖. Large ones: a Lanczos
    value θ only bounds λ_min from above; but if G − (θ − δ)I has a Cholesky factor then λ_min ≥ θ −
    δ up to the rounding of that factor, r·ε·‖G‖, which is subtracted too. δ starts at ``slack`` and
    grows until the factor exists. ``estimate``: θ, if it is known.
    """
    xp, r = namespace(G), G.shape[0]
    if r <= dense:
        return float(xp.linalg.eigvalsh(G)[0])
    theta = float(lowest_eigenpairs(G, 1, dense)[0][0]) if estimate is None else estimate
    size = float(xp.max(xp.sum(xp.abs(G), axis=1)))
    rounding = 2.0 * r * np.finfo(np.float64).eps * size
    delta, identity = max(slack, rounding), eye(r, G)
    while delta < size:
        if _is_definite(G - (theta - delta) * identity):
            return theta - delta - rounding
        delta *= 10.0
    return float(xp.linalg.eigvalsh(G)[0])


def graded_bound(G: Array, estimate: float, widest: float) -> float:
    """A lower bound of λ_min(G) whose rounding is relative to the entries in each direction, not to
    the largest of them; or −∞.

    Let t < G_ii and D² = diag(G) − tI. If D⁻¹(G − tI)D⁻¹ − ηI has a Cholesky factor, with η of a
    few r·ε, then G + E ⪰ tI for every E with
    |E_ij| ≤ ε·D_i D_j: scaling by a diagonal changes nothing in what rounding does to a factor
    [Higham2002]. The ε|t| that G_ii − t itself may be off by is subtracted. t starts next to
    ``estimate`` ≥ λ_min and falls, at most by ``widest``, until the factor exists.
    """
    xp, r = namespace(G), G.shape[0]
    diagonal, identity = xp.linalg.diagonal(G), eye(r, G)
    theta, eta = min(estimate, float(xp.min(diagonal))), 4.0 * r * float(np.finfo(np.float64).eps)
    delta = max(eta * abs(theta), float(np.finfo(np.float64).tiny))
    while delta < widest:
        t = theta - delta
        d = xp.sqrt(diagonal - t)
        if _is_definite((G - t * identity) / d[:, None] / d[None, :] - eta * identity):
            return t - eta * abs(t)
        delta *= 4.0
    return -np.inf


def _is_definite(M: Array) -> bool:
    """Whether M has a Cholesky factor in floating point."""
    xp = namespace(M)
    with suppress(*linalg_errors()):
        return bool(xp.all(xp.isfinite(xp.linalg.diagonal(xp.linalg.cholesky(M)))))
    return False


class Certificate(NamedTuple):
    """What is known of a feasible point, whatever produced it."""

    objective: float
    gap: float
    #: What quadrature and rounding in the integrals may change the objective by, which the gap
    #: counts twice.
    unknown: float = 0.0


def certify(objective: Objective, point: Point, slack: float = 1e-10) -> Certificate:
    """Objective and gap at a feasible point: one gradient, one extreme eigenvalue (bounded to
    ``slack`` when r is large).
    """
    G = objective.gradient(point)
    gap = inner(G, point.C) - (lowest_bound(G, slack) if point.lowest is None else point.lowest)
    # below 0 it is rounding: the true gap is not negative
    return Certificate(objective.value(point), max(gap, 0.0))


def certify_integrals(objective: Objective, point: Point, tol: float) -> Certificate:
    """The same for the functional itself, not for what quadrature and rounding have made of it.

    If f̃ is off by δ on the spectraplex, f(C) − f* ≤ (f̃(C) + δ) − (f̃* − δ) ≤ gap + 2δ. And the
    gap is a difference of eigenvalues, each known to a rounding unit of the largest. A strong
    penalty makes that one huge in directions in which C has no mass; where the gap would then be
    above ``tol``, the bound whose rounding is relative to each direction is asked for too, and the
    smaller of both gaps counts. Likewise for rounding in the integrals: if ∇f is off by at most ±E,
    f(C) − f* ≤ ⟨∇f + E, C⟩ − λ_min(∇f − E).
    """
    known = replace(point, G=objective.gradient(point))
    found = certify(objective, known)
    if point.C.shape[0] == 1:  # there is no other density
        return Certificate(found.objective, 0.0)
    unknown, unit = objective.uncertainty(point), _UNIT * abs(found.objective)
    rounding = 2.0 * _UNIT * norm(known.G)
    gap = found.gap + rounding
    if gap + unit + 2.0 * unknown > tol and found.gap <= max(tol, rounding):
        gap = min(gap, _graded_gap(known, gap))
        if (E := objective.rounding_matrix(point)) is not None:
            lower = replace(known, G=known.G - E, lowest=None)
            widest = certify(objective, lower).gap + rounding
            graded = min(widest, _graded_gap(lower, widest)) + 2.0 * inner(E, point.C)
            extra = max(0.5 * (graded - gap), 0.0) + objective.term.integration_error
            unknown = min(unknown, extra)
    return Certificate(found.objective, gap + unit + 2.0 * unknown, unknown)


def _graded_gap(point: Point, widest: float) -> float:
    """The gap with rounding relative to the entries in each direction: of ⟨∇f, C⟩ it is a unit of
    Σ|∇f_ij||C_ij|.
    """
    xp, G = namespace(point.C), point.G
    assert G is not None
    along = inner(G, point.C)
    return max(along - graded_bound(G, along, widest), 0.0) + 2.0 * _UNIT * inner(
        xp.abs(G), xp.abs(point.C)
    )
