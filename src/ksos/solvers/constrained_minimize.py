"""ksos.minimize with constraints: is anything feasible, the rounds, the solution with its Lagrangian gap."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import replace
from typing import Any, NamedTuple

import numpy as np

from ksos._array import Array
from ksos._deadline import Deadline
from ksos.embedding_map import SMALL_TENSOR
from ksos.functionals.base import Constraint, Functional
from ksos.functionals.mmd import MMD, SquaredMMD
from ksos.functionals.objective import Objective, Point
from ksos.solvers.augmented_lagrangian import ConstrainedOutcome, solve_constrained
from ksos.solvers.certificate import certify
from ksos.solvers.constrained_problem import FEASIBLE, ConstrainedProblem, Multipliers
from ksos.solvers.interior_point import ConicProgram, InteriorPoint
from ksos.solvers.loop import Outcome, Solver, Watch, run
from ksos.solvers.low_rank import LowRank
from ksos.solvers.solution import Solution
from ksos.solvers.spectraplex import centre, factor
from ksos.space import SoSSpace

__all__ = ["Nearest", "as_constraints", "minimize_constrained", "nearest"]

_CHEAP_STEP = 2e8  # floating-point operations: if a step costs no more, the interior point comes first
_MOST_STEPS = 50  # of Newton's method in one round: more are taken only if there is no low rank
_DIGITS = (1e-3, 1e-6, 1e-9, 1e-12)
_WORDED = 1e-5
_ROUND = LowRank(extra_steps=0)
"""Newton's method for one round of many."""


def as_constraints(constraints: Any) -> tuple[Constraint, ...]:
    """One constraint or several, as a tuple."""
    if isinstance(constraints, Constraint):
        return (constraints,)
    try:
        listed = tuple(constraints)
    except TypeError:
        listed = (constraints,)
    for constraint in listed:
        if not isinstance(constraint, Constraint):
            raise TypeError(
                "constraints are written within(MMD(target), radius), Expectation(f) == c, F <= c or Expectation(f) >= c "
                f"(for a combination of functions: Expectation(f + 2 * g) == c); got {constraint!r}"
            )
    return listed


def minimize_constrained(
    functional: Functional,
    objective: Objective,
    constraints: Sequence[Constraint],
    solver: Solver,
    start: Point,
    warm: bool,
    tol: float,
    rtol: float,
    max_iter: int | None,
    watch: Watch | None,
) -> Solution:
    """min F over the densities of the space that meet the constraints; ``warm`` says that the start is the user's."""
    steppers = list(solver.inner_solvers(objective))
    name, space, C = steppers[0].name, objective.space, start.C
    if isinstance(steppers[0], (LowRank, InteriorPoint)) and space.tensor_size <= SMALL_TENSOR:
        objective = objective.on_tensor()  # Newton steps feel rounding that changes from point to point
    try:
        problem, interrupted = ConstrainedProblem(objective, constraints), False
    except KeyboardInterrupt:
        problem, interrupted = ConstrainedProblem(objective, constraints), True
    try:
        if interrupted:
            raise KeyboardInterrupt
        fraction = solver.step_fraction if isinstance(solver, InteriorPoint) else InteriorPoint.step_fraction
        program = ConicProgram.of(problem) if isinstance(solver, InteriorPoint) or solver.name == "auto" else None
        if isinstance(solver, InteriorPoint):
            if program is None:
                raise ValueError(
                    f"solver={name!r} cannot take {functional!r} with these constraints: it takes squared MMDs, Frobenius penalties and "
                    "linear terms, MMD balls and expectations; use solver='low_rank' or 'fista'"
                )
            steppers = [_ROUND]
        elif reason := steppers[0].refusal(problem.augmented(np.zeros(len(constraints)), np.ones(len(constraints))).term):
            raise ValueError(f"solver={name!r} cannot take {functional!r} with constraints: it {reason}")
        steppers = [replace(stepper, extra_steps=0) if isinstance(stepper, LowRank) else stepper for stepper in steppers]
        limit = max(_ROUND.max_iter, steppers[-1].max_iter) if max_iter is None else max_iter
        path_first = isinstance(solver, InteriorPoint) or (program is not None and program.cost <= _CHEAP_STEP and not warm)
        if (note := _unattainable(problem, constraints)) is not None:
            return _solution(problem, _violating(problem, C), name, tol, note)
        for ball in _balls(constraints):
            found = nearest(ball, space, C, limit, objective.deadline)
            if found.outcome.keyboard:
                raise KeyboardInterrupt
            if found.lower > ball.bound:
                note = f"the least radius of {ball!r} that holds a density of this space is {found.lower:.6g} (certified)"
                return _solution(problem, _violating(problem, found.outcome.point.C), name, tol, note, found.lower)
            C, warm = (C, warm) if warm else (found.outcome.point.C, True)
    except KeyboardInterrupt:
        return _solution(problem, replace(_violating(problem, C), status="interrupted", keyboard=True), name, tol)
    stages = [(stepper, None if stepper is steppers[-1] else _MOST_STEPS) for stepper in steppers]
    outcome = solve_constrained(
        problem, stages, C, tol, limit, rtol=rtol, watch=watch, program=program, path_first=path_first, fraction=fraction
    )
    name = "interior_point" if outcome.along_the_path else name
    try:
        note, radius = _why(problem, constraints, outcome, tol, limit) if outcome.status == "infeasible" else ("", None)
        return _solution(problem, outcome, name, max(tol, rtol * abs(outcome.objective)), note, radius)
    except KeyboardInterrupt:  # the point is there; only its certificate or the least radius is missing
        status = outcome.status if outcome.status == "infeasible" else "interrupted"
        return _solution(problem, replace(outcome, status=status, keyboard=True), name, tol)


class Nearest(NamedTuple):
    """The density of the space that is nearest to the centre of a ball, and what is proven of its distance."""

    outcome: Outcome
    lower: float
    """No density of the space is closer than this."""
    upper: float


def _balls(constraints: Sequence[Constraint]) -> list[Constraint]:
    return [constraint for constraint in constraints if isinstance(constraint.functional, MMD)]


def nearest(ball: Constraint, space: SoSSpace, C: Array, max_iter: int, deadline: Deadline | None = None) -> Nearest:
    """Minimise the distance to the centre, to as many digits as it takes to tell whether it is below the radius."""
    assert isinstance(ball.functional, MMD)
    objective = Objective.of(SquaredMMD(ball.functional.target), space, stored=True, deadline=deadline)
    square, tol = ball.bound**2, _DIGITS[0] * ball.bound**2
    for digits in _DIGITS:
        outcome = run(LowRank(), objective, C, max(digits * square, tol), max_iter)
        C = outcome.point.C
        certificate = certify(objective, objective.point(C))
        value, gap = certificate.objective, certificate.gap
        upper, lower = math.sqrt(value), math.sqrt(max(value - gap, 0.0))
        if upper <= ball.bound or (lower > ball.bound and gap <= _WORDED * value) or outcome.status != "solved":
            break
        tol = _WORDED * value if lower > ball.bound else 0.0  # empty, for certain: as many digits as the message shows
    return Nearest(outcome, lower, upper)


def _least_radius(ball: Constraint, others: Sequence[Constraint], base: Objective, tol: float, max_iter: int) -> float | None:
    """A radius below which the ball holds no density that meets the other constraints, certified; None if even those cannot be met."""
    assert isinstance(ball.functional, MMD)
    objective = Objective.of(SquaredMMD(ball.functional.target), base.space, stored=True, deadline=base.deadline)
    start = centre(base.space.rank, base.space.T)
    outcome = solve_constrained(ConstrainedProblem(objective, others), [(LowRank(), None)], start, tol, max_iter)
    return None if outcome.status == "infeasible" else math.sqrt(max(outcome.bound, 0.0))


def _unattainable(problem: ConstrainedProblem, constraints: Sequence[Constraint]) -> str | None:
    """In words, the first constraint on an expectation that no density of the space meets by itself; None if each one can be met."""
    for i, constraint in enumerate(constraints):
        interval = problem.attainable(i)
        if interval is None:
            continue
        low, high = interval
        slack = 1e-12 * problem.constraints[i].size
        if low > slack or (constraint.equality and high < -slack):
            sign = -1.0 if constraint.sense == ">=" else 1.0
            ends = sorted((constraint.bound + sign * low, constraint.bound + sign * high))
            return f"{constraint!r} cannot be met: over the densities of this space it takes values from {ends[0]:.6g} to {ends[1]:.6g}"
    return None


def _violating(problem: ConstrainedProblem, C: Array) -> ConstrainedOutcome:
    """A point of an infeasible problem."""
    G = factor(C)
    point = problem.point(G @ G.T)
    multipliers = Multipliers(np.zeros(len(problem.constraints)))
    return ConstrainedOutcome(G, multipliers, problem.value(point), np.inf, problem.violation(point), "infeasible", 0, [])


def _why(
    problem: ConstrainedProblem, constraints: Sequence[Constraint], outcome: ConstrainedOutcome, tol: float, max_iter: int
) -> tuple[str, float | None]:
    """What to say of constraints that can be met one by one but not together."""
    several = _balls(constraints)
    if len(several) == 1 and len(constraints) > 1:
        others = [constraint for constraint in constraints if constraint is not several[0]]
        radius = _least_radius(several[0], others, problem.base, tol, max_iter)
        if radius is not None:
            note = f"given the other constraints, the least radius of {several[0]!r} that holds a density is {radius:.6g} (certified)"
            return note, radius
    return f"they can be met one by one, but not together: at best one is violated by {outcome.violation:.3g} of its range", None


def _solution(
    problem: ConstrainedProblem, outcome: ConstrainedOutcome, name: str, tol: float, note: str = "", radius: float | None = None
) -> Solution:
    """Certify afresh at the factor that is returned."""
    term = problem.base.term
    point = problem.point(outcome.G @ outcome.G.T)
    value, violation, status = problem.value(point), problem.violation(point), outcome.status
    gap: float | None = None
    convex = all(part.convex for part in (term, *(constraint.term for constraint in problem.constraints)))
    if status != "infeasible" and violation <= FEASIBLE and convex:
        gap = max(value - problem.lower_bound(outcome.multipliers, point), 0.0)
        status = "solved_inaccurate" if status == "solved" and gap > tol else status
    elif status == "solved":
        status = "stationary"
    return Solution(
        objective=value,
        gap=gap,
        projected_mmd_bound=None if gap is None else problem.base.projected_mmd_bound(gap),
        status=status,
        solver=name,
        n_iter=outcome.n_iter,
        history=outcome.history,
        space=problem.space,
        parameter_factor=outcome.G,
        time=problem.base.deadline.elapsed,
        keyboard_interrupt=outcome.keyboard,
        multipliers=tuple(outcome.multipliers.weights.tolist()),
        ball_vectors=dict(outcome.multipliers.vectors),
        violation=violation,
        least_radius=radius,
        integration_error=term.integration_error,
        note=note,
    )
