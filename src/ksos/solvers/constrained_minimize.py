"""ksos.minimize with constraints: is anything feasible, the rounds, the solution with its Lagrangian gap."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import Any

import numpy as np

from ksos._array import Array
from ksos.embedding_map import SMALL_TENSOR
from ksos.functionals.base import Constraint, Functional
from ksos.functionals.objective import Objective
from ksos.solvers.conic import ConicProgram
from ksos.solvers.constrained import FEASIBLE, ConstrainedOutcome, solve_constrained
from ksos.solvers.constrained_problem import ConstrainedProblem, Prices
from ksos.solvers.feasibility import balls, least_radius, nearest, unattainable
from ksos.solvers.interior_point import InteriorPoint
from ksos.solvers.loop import Limits, Stepper
from ksos.solvers.low_rank import LowRank, LowRankToTolerance
from ksos.solvers.solution import Progress, Solution
from ksos.solvers.spectraplex import factor

__all__ = ["as_constraints", "minimize_constrained"]


_CHEAP_STEP = 2e8  # floating-point operations: where a step costs no more, the interior point comes first
_MOST_STEPS = 50  # of Newton's method in one round: more are taken only where there is no low rank


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
    asked: str,
    name: str,
    steppers: Sequence[Stepper],
    C: Array,
    warm: bool,
    limits: Limits,
    callback: Callable[[Progress], Any] | None,
    report: Callable[[Progress], Any] | None,
) -> Solution:
    """min F over the densities of the space that meet the constraints.

    ``asked`` is the solver that the user named, "auto" included, ``name`` that of the first stepper; ``warm`` says that C is a start of the
    user's.
    """
    space, user_start = objective.space, warm
    steppers = [LowRankToTolerance() if isinstance(stepper, LowRank) else stepper for stepper in steppers]
    if isinstance(steppers[0], (LowRank, InteriorPoint)):  # Newton steps feel rounding that changes from point to point
        objective.compressed = space.tensor_size <= SMALL_TENSOR
    problem = ConstrainedProblem(objective, constraints)
    program = ConicProgram.of(problem) if asked in ("auto", "interior_point") else None
    if isinstance(steppers[0], InteriorPoint):
        if program is None:
            raise ValueError(
                f"solver={name!r} cannot take {functional!r} with these constraints: it takes squared MMDs, Frobenius penalties and linear "
                "terms, MMD balls and expectations; use solver='low_rank' or 'fista'"
            )
        steppers = [LowRankToTolerance()]
    elif reason := steppers[0].refusal(problem.augmented(np.zeros(len(constraints)), np.ones(len(constraints))).term):
        raise ValueError(f"solver={name!r} cannot take {functional!r} with constraints: it {reason}")
    if (note := unattainable(problem, constraints)) is not None:
        return _solution(problem, _violating(problem, C), name, limits.tol, note=note)
    for ball in balls(constraints):
        found = nearest(ball, space, C, limits)
        if found.outcome.status == "interrupted":
            stopped = replace(_violating(problem, found.outcome.point.C), status="interrupted", keyboard=found.outcome.keyboard)
            return _solution(problem, stopped, name, limits.tol)
        if found.lower > ball.bound:
            note = f"the least radius of {ball!r} that holds a density of this space is {found.lower:.6g} (certified)"
            return _solution(problem, _violating(problem, found.outcome.point.C), name, limits.tol, note, found.lower)
        C, warm = (C, warm) if warm else (found.outcome.point.C, True)
    path_first = asked == "interior_point" or (program is not None and program.cost <= _CHEAP_STEP and not user_start)
    stages = [(stepper, None if stepper is steppers[-1] else _MOST_STEPS) for stepper in steppers]
    outcome = solve_constrained(problem, stages, C, limits, callback, report, program, path_first=path_first)
    note, radius = "", None
    if outcome.status == "infeasible":
        note, radius = _why(problem, constraints, outcome, limits)
    return _solution(problem, outcome, "interior_point" if outcome.along_the_path else name, limits.tol, note, radius)


def _violating(problem: ConstrainedProblem, C: Array) -> ConstrainedOutcome:
    """A point of an infeasible problem."""
    G = factor(C)
    point = problem.point(G @ G.T)
    prices = Prices(np.zeros(len(problem.bounds)))
    return ConstrainedOutcome(G, prices, problem.value(point), np.inf, problem.violation(point), "infeasible", 0, [])


def _why(
    problem: ConstrainedProblem, constraints: Sequence[Constraint], outcome: ConstrainedOutcome, limits: Limits
) -> tuple[str, float | None]:
    """What to say of constraints that can be met one by one but not together."""
    several = balls(constraints)
    if len(several) == 1 and len(constraints) > 1:
        others = [constraint for constraint in constraints if constraint is not several[0]]
        try:
            radius = least_radius(several[0], others, problem.space, limits)
        except KeyboardInterrupt:  # the answer is there; only the radius is missing
            radius = None
        if radius is not None:
            return (
                f"given the other constraints, the least radius of {several[0]!r} that holds a density is {radius:.6g} (certified)",
                radius,
            )
    return f"they can be met one by one, but not together: at best one is violated by {outcome.violation:.3g} of its range", None


def _solution(
    problem: ConstrainedProblem, outcome: ConstrainedOutcome, name: str, tol: float, note: str = "", radius: float | None = None
) -> Solution:
    """Certify afresh at the factor that is returned."""
    term = problem.base.term
    point = problem.point(outcome.G @ outcome.G.T)
    value, violation, status = problem.value(point), problem.violation(point), outcome.status
    gap: float | None = None
    if status != "infeasible" and violation <= FEASIBLE and all(part.convex for part in (term, *(bound.term for bound in problem.bounds))):
        gap = max(value - problem.lower_bound(outcome.prices, point), 0.0)
        status = "solved_inaccurate" if status == "solved" and gap > tol else status
    elif status == "solved":
        status = "stationary"
    return Solution(
        distribution=problem.space.density(outcome.G),
        objective=value,
        gap=gap,
        gap_relative=None if gap is None else gap / abs(value) if value != 0.0 else (0.0 if gap == 0.0 else float("inf")),
        projected_mmd_bound=None if gap is None else problem.base.projected_mmd_bound(gap),
        status=status,
        solver=name,
        n_iter=outcome.n_iter,
        history=outcome.history,
        space=problem.space,
        parameter_factor=outcome.G,
        time=outcome.history[-1].time if outcome.history else 0.0,
        keyboard_interrupt=outcome.keyboard,
        multipliers=tuple(outcome.prices.weights.tolist()),
        ball_vectors=dict(outcome.prices.vectors),
        violation=violation,
        least_radius=radius,
        integration_error=term.integration_error,
        note=note,
    )
