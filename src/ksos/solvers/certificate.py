"""The certificate of optimality: gap(C) = ⟨∇f(C), C⟩ − λ_min(∇f(C)) ≥ f(C) − f*, valid for any feasible C and any convex f."""

from __future__ import annotations

from dataclasses import replace
from typing import NamedTuple

from ksos._array import inner, norm
from ksos.functionals.objective import Objective, Point
from ksos.solvers.eigenvalues import lowest_bound

__all__ = ["Certificate", "certify", "certify_integrals"]

_UNIT = 2.0**-52


class Certificate(NamedTuple):
    """What is known of a feasible point, whatever produced it."""

    objective: float
    gap: float


def certify(objective: Objective, point: Point, slack: float = 1e-10) -> Certificate:
    """Objective and gap at a feasible point: one gradient, one extreme eigenvalue (bounded to ``slack`` when r is large)."""
    G = objective.gradient(point)
    gap = inner(G, point.C) - (lowest_bound(G, slack) if point.lowest is None else point.lowest)
    return Certificate(objective.value(point), max(gap, 0.0))  # below 0 it is rounding: the true gap is not negative


def certify_integrals(objective: Objective, point: Point) -> Certificate:
    """The same for the functional itself, not for what quadrature and rounding have made of it.

    If f̃ is off by δ on the spectraplex, f(C) − f* ≤ (f̃(C) + δ) − (f̃* − δ) ≤ gap + 2δ. And the gap is a difference of eigenvalues, each
    known to a rounding unit of the largest.
    """
    known = replace(point, G=objective.gradient(point))
    found = certify(objective, known)
    if point.C.shape[0] == 1:  # there is no other density
        return Certificate(found.objective, 0.0)
    rounding = _UNIT * (abs(found.objective) + 2.0 * norm(known.G))
    return Certificate(found.objective, found.gap + rounding + 2.0 * objective.uncertainty(point))
