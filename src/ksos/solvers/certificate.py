"""The certificate of optimality: gap(C) = ⟨∇f(C), C⟩ − λ_min(∇f(C)) ≥ f(C) − f*, valid for any
feasible C and any convex f.
"""

from __future__ import annotations

from dataclasses import replace
from typing import NamedTuple

from ksos.functionals.objective import Objective, Point
from ksos.ground.arrays import inner, namespace, norm
from ksos.solvers.eigenvalues import graded_bound, lowest_bound

__all__ = ["Certificate", "certify", "certify_integrals"]

_UNIT = 2.0**-52


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
