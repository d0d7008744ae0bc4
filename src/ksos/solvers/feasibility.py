"""Whether anything meets the constraints: the least radius of an MMD ball that holds a density, and what expectations can be."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

from ksos._array import Array
from ksos.functionals.base import Constraint
from ksos.functionals.mmd import MMD, SquaredMMD
from ksos.functionals.objective import Objective
from ksos.solvers.certificate import certify
from ksos.solvers.constrained import solve_constrained
from ksos.solvers.constrained_problem import ConstrainedProblem
from ksos.solvers.loop import Limits, Outcome, run
from ksos.solvers.low_rank import LowRank
from ksos.solvers.spectraplex import centre
from ksos.space import SoSSpace

__all__ = ["Nearest", "balls", "least_radius", "nearest", "unattainable"]

_DIGITS = (1e-3, 1e-6, 1e-9, 1e-12)
_WORDED = 1e-5


@dataclass(frozen=True)
class Nearest:
    """The density of the space that is nearest to the centre of a ball, and what is proven of its distance."""

    outcome: Outcome
    lower: float
    """No density of the space is closer than this."""
    upper: float


def balls(constraints: Sequence[Constraint]) -> list[Constraint]:
    """Those that are MMD balls."""
    return [constraint for constraint in constraints if isinstance(constraint.functional, MMD)]


def nearest(ball: Constraint, space: SoSSpace, C: Array, limits: Limits) -> Nearest:
    """Minimise the distance to the centre, to as many digits as it takes to tell whether it is below the radius."""
    assert isinstance(ball.functional, MMD)
    objective = Objective(SquaredMMD(ball.functional.target), space, compressed=True)
    square, tol = ball.bound**2, _DIGITS[0] * ball.bound**2
    for digits in _DIGITS:
        outcome = run(LowRank(), objective, C, Limits(max(digits * square, tol), limits.max_iter, limits.time_limit), None, None)
        C = outcome.point.C
        certificate = certify(objective, objective.point(C))
        value, gap = certificate.objective, certificate.gap
        upper, lower = math.sqrt(value), math.sqrt(max(value - gap, 0.0))
        if upper <= ball.bound or (lower > ball.bound and gap <= _WORDED * value) or outcome.status != "solved":
            break
        tol = _WORDED * value if lower > ball.bound else 0.0  # empty, for certain: as many digits as the message shows
    return Nearest(outcome, lower, upper)


def least_radius(ball: Constraint, others: Sequence[Constraint], space: SoSSpace, limits: Limits) -> float | None:
    """A radius below which the ball holds no density that meets the other constraints, certified; None where even those cannot be met."""
    assert isinstance(ball.functional, MMD)
    objective = Objective(SquaredMMD(ball.functional.target), space, compressed=True)
    problem = ConstrainedProblem(objective, others)
    outcome = solve_constrained(problem, [(LowRank(), None)], centre(space.rank, space.T), limits, None, None)
    return None if outcome.status == "infeasible" else math.sqrt(max(outcome.bound, 0.0))


def unattainable(problem: ConstrainedProblem, constraints: Sequence[Constraint]) -> str | None:
    """In words, the first constraint on an expectation that no density of the space meets by itself; None where each one can be met."""
    for i, constraint in enumerate(constraints):
        interval = problem.attainable(i)
        if interval is None:
            continue
        low, high = interval
        slack = 1e-12 * problem.bounds[i].size
        if low > slack or (constraint.equality and high < -slack):
            sign = -1.0 if constraint.sense == ">=" else 1.0
            ends = sorted((constraint.bound + sign * low, constraint.bound + sign * high))
            return f"{constraint!r} cannot be met: over the densities of this space it takes values from {ends[0]:.6g} to {ends[1]:.6g}"
    return None
