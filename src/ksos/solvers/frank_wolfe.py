"""Frank–Wolfe: towards the lowest eigenvector of ∇f, one rank at a time; needs neither projections nor second derivatives."""

from __future__ import annotations

from dataclasses import dataclass

from ksos._array import Array, inner
from ksos.functionals.objective import Objective, Point
from ksos.solvers.eigenvalues import lowest_eigenpairs
from ksos.solvers.loop import Stepper

__all__ = ["FrankWolfe"]

_GROW, _SHRINK = 2.0, 0.9
_MOST_BACKTRACKS = 60


@dataclass(frozen=True)
class _State:
    point: Point
    L: float
    """The curvature along the last move, the first guess for the next one: unused where f is quadratic."""


class FrankWolfe(Stepper):
    """C ← (1−t)C + t·vvᵀ, v the lowest eigenvector of ∇f(C): the point of the spectraplex where the linear model of f is least.

    A few r × r matrices are all it keeps, and the model's value there is the certificate itself. Its gap falls like 1/n only: a
    cross-check of other solvers, and a way out where nothing else fits in memory.
    """

    default_max_iter = 20_000
    check_every = 10

    def init(self, objective: Objective, C: Array) -> _State:
        """Start at C."""
        return _State(objective.point(C), 1e-6)

    def point(self, state: _State) -> Point:
        """The current iterate: a convex combination of feasible points."""
        return state.point

    def step(self, objective: Objective, state: _State) -> _State:
        """The exact minimum along the segment where f is quadratic; elsewhere that of a parabola, steep enough to lie above f there."""
        C = state.point
        G = objective.gradient(C)
        values, vectors = lowest_eigenpairs(G, 1)
        toward = objective.point(vectors[:, :1] @ vectors[:, :1].T) - C
        slope = inner(G, C.C) - float(values[0])
        if slope <= 0.0:
            return state  # optimal, up to rounding
        curvature = objective.curvature(toward)
        if curvature is not None:
            return _State(C + min(1.0, slope / curvature if curvature > 0.0 else 1.0) * toward, state.L)
        squared, value, L = inner(toward.C, toward.C), objective.value(C), _SHRINK * state.L
        for _ in range(_MOST_BACKTRACKS):
            t = min(1.0, slope / (L * squared))
            new = C + t * toward
            if objective.value(new) <= value - t * slope + 0.5 * L * squared * t * t:
                break
            L *= _GROW
        return _State(new, L)
