"""ksos.minimize with constraints: is anything feasible, the rounds, the solution with its
Lagrangian gap.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from dataclasses import replace
from typing import Any, NamedTuple

from ksos.functionals.base import Constraint
from ksos.functionals.mmd import MMD, BoundBall, SquaredMMD
from ksos.functionals.objective import Objective, Point
from ksos.ground.arrays import Array, norm
from ksos.ground.deadline import Deadline
from ksos.solvers.augmented_lagrangian import (
    ConstrainedOutcome,
    Rounds,
    solve_constrained,
    violating,
)
from ksos.solvers.certificate import certify
from ksos.solvers.constrained_problem import FEASIBLE, ConstrainedProblem
from ksos.solvers.interior_point import ConicProgram, InteriorPoint
from ksos.solvers.loop import Outcome, Solver, Watch, run
from ksos.solvers.low_rank import LowRank
from ksos.solvers.solution import Solution
from ksos.solvers.spectraplex import centre
from ksos.space.embedding_map import SMALL_TENSOR
from ksos.space.space import SoSSpace

__all__ = [
    "Goal",
    "Nearest",
    "as_constraints",
    "assembled",
    "known_to",
    "minimize_constrained",
    "nearest",
]

# floating-point operations: if a step costs no more, the interior point comes first
_CHEAP_STEP = 2e8
_MOST_STEPS = 50  # of Newton's method in one round: more are taken only if there is no low rank
_DIGITS, _WORDED = (1e-3, 1e-6, 1e-9, 1e-12), 1e-5
Why = tuple[str, float | None]  # a note, and the least radius of a ball
_ROUND = LowRank(extra_steps=0)  # Newton's method for one round of many


def as_constraints(constraints: Any) -> tuple[Constraint, ...]:
    """One constraint or several, as a tuple."""
    listed = tuple(constraints) if isinstance(constraints, Iterable) else (constraints,)
    for constraint in listed:
        if not isinstance(constraint, Constraint):
            raise TypeError(
                "constraints are written within(MMD(target), radius), Expectation(f) == c, F <= c"
                " or Expectation(f) >= c (for a combination of functions: Expectation(f + 2 * g)"
                f" == c); got {constraint!r}"
            )
    return listed


def minimize_constrained(
    objective: Objective,
    constraints: Sequence[Constraint],
    solver: Solver,
    start: Point | None,
    goal: Goal,
    shown: str,
) -> Solution:
    """min F over the densities of the space that meet the constraints; ``shown`` is what messages
    call F.
    """
    steppers, space, tol, warm = (
        list(solver.inner_solvers(objective)),
        objective.space,
        goal.tol,
        start is not None,
    )
    name, C = steppers[0].name, centre(space.rank, space.T) if start is None else start.C
    if isinstance(steppers[0], (LowRank, InteriorPoint)) and space.tensor_size <= SMALL_TENSOR:
        # Newton steps feel rounding that changes from point to point
        objective = objective.on_tensor()
    try:
        problem, interrupted = ConstrainedProblem(objective, constraints), False
    except KeyboardInterrupt:
        problem, interrupted = ConstrainedProblem(objective, constraints), True
    try:
        if interrupted:
            raise KeyboardInterrupt
        if space.rank == 1:
            return _only_density(problem, name, tol)
        program = (
            ConicProgram.of(problem)
            if isinstance(solver, InteriorPoint) or solver.name == "auto"
            else None
        )
        if isinstance(solver, InteriorPoint):
            if program is None:
                raise ValueError(
                    f"solver={name!r} cannot take {shown} with these constraints: it takes squared"
                    " MMDs, Frobenius penalties and linear terms, MMD balls and expectations; use"
                    " solver='low_rank' or 'fista'"
                )
            steppers = [_ROUND]
        elif reason := steppers[0].refusal(
            problem.augmented(0.0 * problem.sizes, problem.sizes).term
        ):
            raise ValueError(f"solver={name!r} cannot take {shown} with constraints: it {reason}")
        steppers = [
            replace(stepper, extra_steps=0) if isinstance(stepper, LowRank) else stepper
            for stepper in steppers
        ]
        limit = (
            max(_ROUND.max_iter, steppers[-1].max_iter) if goal.max_iter is None else goal.max_iter
        )
        path_first = isinstance(solver, InteriorPoint) or (
            program is not None and program.cost <= _CHEAP_STEP and not warm
        )
        if (note := _unattainable(problem)) is not None:
            return _solution(problem, violating(problem, C), name, tol, (note, None))
        for ball in _balls(constraints):
            found = nearest(ball, space, C, limit, objective.deadline)
            if found.outcome.keyboard:
                raise KeyboardInterrupt
            if found.lower > ball.bound:
                return _solution(
                    problem,
                    violating(problem, found.outcome.point.C),
                    name,
                    tol,
                    _too_small(ball, found.lower),
                )
            C, warm = (C, warm) if warm else (found.outcome.point.C, True)
    except KeyboardInterrupt:
        return _solution(
            problem, replace(violating(problem, C), status="interrupted", keyboard=True), name, tol
        )
    stages = [(stepper, None if stepper is steppers[-1] else _MOST_STEPS) for stepper in steppers]
    fraction = (
        solver.step_fraction if isinstance(solver, InteriorPoint) else InteriorPoint.step_fraction
    )
    rounds = Rounds(problem, stages, tol, limit, goal.rtol, goal.watch, program, fraction)
    outcome = solve_constrained(rounds, C, path_first=path_first)
    name = "interior_point" if outcome.along_the_path else name
    try:
        why = _why(problem, outcome, tol, limit) if outcome.status == "infeasible" else ("", None)
        return _solution(problem, outcome, name, max(tol, goal.rtol * abs(outcome.objective)), why)
    except (
        KeyboardInterrupt
    ):  # the point is there; only its certificate or the least radius is missing
        status = outcome.status if outcome.status == "infeasible" else "interrupted"
        return _solution(problem, replace(outcome, status=status, keyboard=True), name, tol)


class Goal(NamedTuple):
    """When to stop."""

    tol: float
    rtol: float
    max_iter: int | None
    watch: Watch | None


class Nearest(NamedTuple):
    """The density of the space that is nearest to the centre of a ball, and what is proven of its
    distance.
    """

    outcome: Outcome
    lower: float  # no density of the space is closer than this
    upper: float


def _only_density(problem: ConstrainedProblem, name: str, tol: float) -> Solution:
    """Of a space with one density: that one, if it meets the constraints; else none does."""
    found = violating(problem, problem.middle.C)
    why: Why = ("", None)
    if found.violation <= FEASIBLE:
        return _solution(problem, replace(found, status="solved"), name, tol)
    for i, ball in enumerate(problem.given):
        term = problem.constraints[i].term
        if (
            isinstance(term, BoundBall)
            and (distance := norm(problem.middle.a - term.z)) > ball.bound
        ):
            why = _too_small(ball, distance)
    note = (
        _unattainable(problem)
        or why[0]
        or "the space has one density only, and that one violates them"
    )
    return _solution(problem, found, name, tol, (note, why[1]))


def _too_small(ball: Constraint, radius: float) -> Why:
    return (
        (
            f"the least radius of {ball!r} that holds a density of this space is {radius:.6g}"
            " (certified)"
        ),
        radius,
    )


def _balls(constraints: Sequence[Constraint]) -> list[Constraint]:
    return [constraint for constraint in constraints if isinstance(constraint.functional, MMD)]


def nearest(
    ball: Constraint, space: SoSSpace, C: Array, max_iter: int, deadline: Deadline | None = None
) -> Nearest:
    """Minimise the distance to the centre, to as many digits as it takes to tell whether it is
    below the radius.
    """
    objective = _squared_distance(ball, space, deadline)
    square, tol = ball.bound**2, _DIGITS[0] * ball.bound**2
    for digits in _DIGITS:
        outcome = run(LowRank(), objective, C, max(digits * square, tol), max_iter)
        C = outcome.point.C
        value, gap, _ = certify(objective, objective.point(C))
        upper, lower = math.sqrt(value), math.sqrt(max(value - gap, 0.0))
        if (
            upper <= ball.bound
            or (lower > ball.bound and gap <= _WORDED * value)
            or outcome.status != "solved"
        ):
            break
        # empty, for certain: as many digits as the message shows
        tol = _WORDED * value if lower > ball.bound else 0.0
    return Nearest(outcome, lower, upper)


def _squared_distance(ball: Constraint, space: SoSSpace, deadline: Deadline | None) -> Objective:
    assert isinstance(ball.functional, MMD)
    return Objective.of(SquaredMMD(ball.functional.target), space, stored=True, deadline=deadline)


def _unattainable(problem: ConstrainedProblem) -> str | None:
    """In words, the first constraint on an expectation that no density of the space meets by
    itself; None if each one can be met.
    """
    for i, constraint in enumerate(problem.given):
        if not problem.constraints[i].term.linear:
            continue
        (low, high), slack = problem.attainable(i), 1e-12 * problem.constraints[i].size
        if low > slack or (constraint.equality and high < -slack):
            sign = -1.0 if constraint.sense == ">=" else 1.0
            ends = sorted((constraint.bound + sign * low, constraint.bound + sign * high))
            return (
                f"{constraint!r} cannot be met: over the densities of this space it takes values"
                f" from {ends[0]:.6g} to {ends[1]:.6g}"
            )
    return None


def _why(
    problem: ConstrainedProblem, outcome: ConstrainedOutcome, tol: float, max_iter: int
) -> Why:
    """What to say of constraints that can be met one by one but not together, and the least radius
    of a ball among them.
    """
    if len(balls := _balls(problem.given)) == 1 and len(problem.given) > 1:
        distance = _squared_distance(balls[0], problem.space, problem.base.deadline)
        others = ConstrainedProblem(
            distance, [constraint for constraint in problem.given if constraint is not balls[0]]
        )
        least = solve_constrained(
            Rounds(others, [(LowRank(), None)], tol, max_iter), problem.middle.C
        )
        if least.status != "infeasible":
            radius = math.sqrt(max(least.bound, 0.0))
            return (
                (
                    f"given the other constraints, the least radius of {balls[0]!r} that holds a"
                    f" density is {radius:.6g} (certified)"
                ),
                radius,
            )
    return (
        (
            "they can be met one by one, but not together: at best one is violated by"
            f" {outcome.violation:.3g} of its range"
        ),
        None,
    )


def _solution(
    problem: ConstrainedProblem,
    outcome: ConstrainedOutcome,
    name: str,
    tol: float,
    why: Why = ("", None),
) -> Solution:
    """Certify afresh at the factor that is returned."""
    point = problem.point(outcome.G @ outcome.G.T)
    value, violation, status, gap = (
        problem.value(point),
        problem.violation(point),
        outcome.status,
        None,
    )
    if status != "infeasible" and violation <= FEASIBLE and problem.frame.term.convex:
        unknown = problem.uncertainty(outcome.multipliers, point)
        gap = max(value - problem.lower_bound(outcome.multipliers, point), 0.0) + 2.0 * unknown
        why = (why[0] or known_to(unknown, tol), why[1])
        status = "solved_inaccurate" if status == "solved" and gap > tol else status
    elif status == "solved":
        status = "stationary"
    weights, vectors = (
        tuple(outcome.multipliers.weights.tolist()),
        dict(outcome.multipliers.vectors),
    )
    more = {
        "multipliers": weights,
        "ball_vectors": vectors,
        "violation": violation,
        "least_radius": why[1],
        "note": why[0],
    }
    return assembled(problem.base, outcome, outcome.G, value, gap, status, name, **more)


def known_to(uncertainty: float, tol: float) -> str:
    """What to say of integrals that are not known well enough for ``tol``."""
    return (
        f"the integrals are known to {uncertainty:.1e} only, which the gap counts twice"
        if 2.0 * uncertainty > tol
        else ""
    )


def assembled(
    base: Objective,
    outcome: Outcome | ConstrainedOutcome,
    G: Array,
    value: float,
    gap: float | None,
    status: str,
    name: str,
    **more: Any,
) -> Solution:
    """The solution at the factor G; ``more`` are those of its fields that not every problem has."""
    more |= {
        "time": base.deadline.elapsed,
        "keyboard_interrupt": outcome.keyboard,
        "integration_error": base.term.integration_error,
    }
    bound = None if gap is None else base.projected_mmd_bound(gap)
    return Solution(
        value, gap, bound, status, name, outcome.n_iter, outcome.history, base.space, G, **more
    )
