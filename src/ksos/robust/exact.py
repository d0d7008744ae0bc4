"""From the projected ball to the exact one: the exact MMD of an answer, and the small step that makes it feasible."""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass

from ksos.density import SoSDensity
from ksos.embedding import MeanEmbedding, mmd
from ksos.robust.ball import BallPoint, BallProblem
from ksos.solvers.spectraplex import factor

__all__ = ["ExactPoint", "exact_mmd", "exactly", "first_root", "made_feasible"]

_DEEPER, _MOST_DEEPENINGS = 4.0, 12


@dataclass(frozen=True)
class ExactPoint:
    """A density with its exact distance to the data."""

    point: BallPoint
    density: SoSDensity
    mmd: float
    mass: float
    """∫ψᵀCψ dρ: what rounding makes of one, and what the density has been divided by."""


def exact_mmd(p: SoSDensity, data: MeanEmbedding) -> float:
    """MMD(p, data), exactly."""
    return mmd(p, data, data.kernel)


def exactly(problem: BallProblem, point: BallPoint, measure: Callable[[SoSDensity], float]) -> ExactPoint:
    """The density of a point and its exact distance."""
    G, space = factor(point.C), problem.space
    density = space.density(G)
    unit = SoSDensity.from_units(space.kernel, space.support_points, space.T @ G, space.log_unit, space.measure)
    return ExactPoint(point, density, measure(density), unit.mass())


def made_feasible(
    problem: BallProblem,
    found: ExactPoint,
    multiplier: float,
    radius: float,
    measure: Callable[[SoSDensity], float],
    tol: float = 1e-4,
) -> ExactPoint | None:
    """The point itself where its exact MMD is at most the radius, else its mixture with one deeper in the ball; None where none is in it.

    Squared distances of mixtures are quadratic in the weight: three of them give the weight that is needed. The deeper point need not be
    the best of its kind, so that ``tol`` may be rough.
    """
    if found.mmd <= radius:
        return found
    u = max(multiplier, 1e-6)
    for _ in range(_MOST_DEEPENINGS):
        u *= _DEEPER
        point, _ = problem.penalised(u, found.point.C, tol)
        deeper = exactly(problem, point, measure)
        if deeper.mmd < radius:
            break
    else:
        return None
    middle = exactly(problem, problem.mixed(found.point, deeper.point, 0.5), measure)
    t = first_root(found.mmd**2, middle.mmd**2, deeper.mmd**2, radius**2)
    for digits in range(9, 0, -1):
        mixed = exactly(problem, problem.mixed(found.point, deeper.point, t), measure)
        if mixed.mmd <= radius:
            return mixed
        t = min(t * (1.0 + 10.0**-digits) + 10.0 ** -(digits + 5), 1.0)  # rounding: a little more
    return deeper


def first_root(start: float, middle: float, end: float, goal: float) -> float:
    """The smaller t with q(t) = goal, for the parabola q through (0, start), (½, middle), (1, end), where start > goal > end."""
    curvature, slope = 2.0 * (start + end) - 4.0 * middle, 4.0 * middle - 3.0 * start - end
    excess = start - goal
    root = -slope + math.sqrt(max(slope * slope - 4.0 * curvature * excess, 0.0))
    return min(max(2.0 * excess / root if root > 0.0 else 1.0, 0.0), 1.0)
