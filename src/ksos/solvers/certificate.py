"""The certificate of optimality: gap(C) = ⟨∇f(C), C⟩ − λ_min(∇f(C)) ≥ f(C) − f*, valid for any
feasible C and any convex f.

It rests on the lowest eigenvalue of a symmetric matrix: as a proven lower bound here, and with its
vector for the directions of solvers.
"""

from __future__ import annotations

from contextlib import suppress
from dataclasses import replace
from typing import NamedTuple

import numpy as np
from scipy.linalg import eigh
from scipy.sparse.linalg import ArpackNoConvergence, eigsh

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

__all__ = ["DENSE", "Certificate", "certify", "certify_integrals"]
__all__ += ["graded_bound", "lowest_bound", "lowest_eigenpairs"]

DENSE = 400  # up to this size, dense eigenvalues: accurate to rounding, hence a bound by themselves
_UNIT = 2.0**-52  # the rounding unit of doubles
_LANCZOS_TOLERANCE = 1e-9  # relative: a direction needs no more, and certificates add a proof
_KRYLOV_BLOCKS = 12  # products with G before a restart: beyond, keeping them orthogonal costs more
_LEAST_RESTARTS = 40  # of small matrices, whose dense eigenvalues wait behind
_ROWS_PER_RESTART = 25  # more restarts than r/25 cost more products than dense eigenvalues


def lowest_eigenpairs(G: Array, n: int, dense: int = DENSE) -> tuple[np.ndarray, Array]:
    """The ``n`` lowest eigenvalues, ascending, and their vectors as columns: by Lanczos iterations
    if there are more than ``dense``.
    """
    if G.shape[0] > dense:
        found = _by_arpack(G, n) if is_numpy(G) else _by_block_lanczos(G, n)
        if found is not None:
            return found
    if is_numpy(G):
        with suppress(np.linalg.LinAlgError):  # clustered eigenvalues: a driver without shortcuts
            return eigh(G, subset_by_index=[0, n - 1], check_finite=False)
    values, vectors = namespace(G).linalg.eigh(G)
    return to_numpy(values[:n]), vectors[:, :n]


def _by_arpack(G: np.ndarray, n: int) -> tuple[np.ndarray, np.ndarray] | None:
    """None if eigenvalues are so clustered that the dense route is quicker: it always works, and
    costs about r products with G.
    """
    r = G.shape[0]
    start, vectors_kept = np.random.default_rng(0).standard_normal(r), min(r, 4 * n + 40)
    restarts = max(4, r // (vectors_kept - n))
    try:
        values, vectors = eigsh(
            G, k=n, which="SA", v0=start, tol=_LANCZOS_TOLERANCE, maxiter=restarts, ncv=vectors_kept
        )
    except ArpackNoConvergence:
        return None
    order = np.argsort(values)
    return values[order], vectors[:, order]


def _by_block_lanczos(G: Array, n: int) -> tuple[np.ndarray, Array] | None:
    """Rayleigh–Ritz on span{V, GV, …}, fully orthogonalised and restarted from its best vectors:
    few large products, as a GPU likes them.

    None if it has not converged after so many restarts that the dense route is quicker.
    """
    xp, r = namespace(G), G.shape[0]
    block = min(n + 4, r // (_KRYLOV_BLOCKS + 1))
    if block < n:
        return None
    V = like(np.random.default_rng(0).standard_normal((r, block)), G)
    for _ in range(max(_LEAST_RESTARTS, r // _ROWS_PER_RESTART)):
        basis, _ = xp.linalg.qr(V)
        latest = basis
        for _ in range(_KRYLOV_BLOCKS - 1):
            latest = G @ latest
            for _ in range(2):  # twice is enough (Kahan and Parlett)
                latest = latest - basis @ (basis.T @ latest)
            latest, _ = xp.linalg.qr(latest)
            basis = xp.concat([basis, latest], axis=1)
        image = G @ basis
        small = to_numpy(basis.T @ image)
        values, vectors = np.linalg.eigh(
            0.5 * (small + small.T)
        )  # on the host, where small matrices are quicker
        U, values = like(vectors[:, :block], G), values[:block]
        V = basis @ U
        residual = image @ U[:, :n] - V[:, :n] * like(values[:n], G)
        size = float(np.abs(values).max()) + float(np.abs(np.diagonal(small)).max())
        if (
            float(xp.max(xp.sqrt(xp.sum(residual * residual, axis=0))))
            <= np.sqrt(_LANCZOS_TOLERANCE) * 1e-3 * size
        ):
            return (
                values[:n],
                V[:, :n],
            )  # eigenvalues are then off by the square of the residual over their distance to the others
    return None


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
        with suppress(*linalg_errors()):
            L = xp.linalg.cholesky(G - (theta - delta) * identity)
            if bool(xp.all(xp.isfinite(xp.linalg.diagonal(L)))):
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
        with suppress(*linalg_errors()):
            L = xp.linalg.cholesky((G - t * identity) / d[:, None] / d[None, :] - eta * identity)
            if bool(xp.all(xp.isfinite(xp.linalg.diagonal(L)))):
                return t - eta * abs(t)
        delta *= 4.0
    return -np.inf


class Certificate(NamedTuple):
    """What is known of a feasible point, whatever produced it."""

    objective: float
    gap: float
    unknown: float = 0.0
    """What quadrature and rounding in the integrals may change the objective by, which the gap
    counts twice.
    """


def certify(objective: Objective, point: Point, slack: float = 1e-10) -> Certificate:
    """Objective and gap at a feasible point: one gradient, one extreme eigenvalue (bounded to
    ``slack`` when r is large).
    """
    G = objective.gradient(point)
    gap = inner(G, point.C) - (lowest_bound(G, slack) if point.lowest is None else point.lowest)
    return Certificate(
        objective.value(point), max(gap, 0.0)
    )  # below 0 it is rounding: the true gap is not negative


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
