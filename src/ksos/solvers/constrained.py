"""ksos.minimize with constraints: is anything feasible, the way to the optimum, the certified
solution.

The interior point comes first, if it can take the problem. Otherwise, and if rounding keeps its gap
open, rounds of the augmented Lagrangian [Hestenes1969, Powell1969] follow around the solvers of the
spectraplex. The gap is that of :meth:`ConstrainedProblem.lower_bound`: the unconstrained
certificate, applied to the Lagrangian.
"""

from __future__ import annotations

import math
import sys
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace
from functools import partial
from typing import Any, NamedTuple

import numpy as np

from ksos.functionals import (
    MMD,
    BoundBall,
    Constraint,
    Expectation,
    Objective,
    Point,
    SquaredMMD,
)
from ksos.ground.arrays import Array, norm, to_numpy
from ksos.ground.run import Run
from ksos.solvers.constrained_problem import (
    FEASIBLE,
    Augmented,
    ConstrainedProblem,
    Multipliers,
    restored,
)
from ksos.solvers.interior_point import ConicProgram, InteriorPoint, central_path
from ksos.solvers.loop import (
    Outcome,
    Progress,
    Solution,
    Solver,
    Stepper,
    Watch,
    assembled,
    iterate,
    known_to,
)
from ksos.solvers.low_rank import LowRank
from ksos.solvers.spectraplex import center, certify, factor
from ksos.space.embedding_map import SMALL_TENSOR
from ksos.space.space import SoSSpace

_PATIENCE = 4  # rounds in a row without a smaller gap after which rounding has the last word
_DOUBTFUL = 1e3  # penalty or multiplier from which a violation that stays may mean an empty problem
_WORDED = 1e-5  # relative: the digits of a least radius that a message shows
_ROUND = LowRank(extra_steps=0)  # Newton's method for one round of many
Why = tuple[str, float | None]  # a note, and the least radius of a ball


class Goal(NamedTuple):
    """When to stop."""

    tol: float
    rtol: float = 0.0
    max_iter: int | None = None
    watch: Watch | None = None


def minimize_constrained(
    objective: Objective,
    constraints: Sequence[Constraint],
    solver: Solver,
    start: Point | None,
    goal: Goal,
    name_of_f: str,
) -> Callable[[], Solution]:
    """min F over the densities of the space that meet the constraints; ``name_of_f`` is what
    messages call F.

    What is returned certifies the point that was found.
    """
    steppers, space, run = list(solver.inner_solvers(objective)), objective.space, Run.current()
    name = steppers[0].name
    C = center(space.rank, space.T) if start is None else start.C
    if steppers[0].needs is not None and space.tensor_size <= SMALL_TENSOR:
        # Newton steps feel rounding that changes from point to point
        objective = objective.on_tensor()
    problem = run.complete(lambda: ConstrainedProblem(objective, constraints))
    if space.rank == 1:
        return partial(_only_density, problem, name, goal.tol)
    program, by_path = None, isinstance(solver, InteriorPoint)
    if by_path or solver.name == "auto":
        program = run.complete(lambda: ConicProgram.of(problem))
    if by_path and program is None:
        raise ValueError(
            f"solver={name!r} cannot take {name_of_f} with these constraints: it takes squared"
            " MMDs, Frobenius penalties and linear terms, MMD balls and expectations; use"
            " solver='low_rank' or 'fista'"
        )
    if by_path:
        steppers = [_ROUND]
    augmented = problem.augmented(0.0 * problem.sizes, problem.sizes)
    steppers[0].require(augmented.term, f"{name_of_f} with constraints")
    steppers = [
        replace(stepper, extra_steps=0) if isinstance(stepper, LowRank) else stepper
        for stepper in steppers
    ]
    limit = goal.max_iter or max(_ROUND.max_iter, steppers[-1].max_iter)
    rounds = Rounds(problem, steppers, goal._replace(max_iter=limit), C, program)
    if isinstance(solver, InteriorPoint):
        rounds.fraction = solver.step_fraction
    try:
        if (note := _unattainable(problem)) is not None:
            return partial(_solution, problem, violating(problem, C), name, goal.tol, (note, None))
        if start is not None:
            rounds.record(problem.point(C))
        outcome = solve_constrained(rounds)
    except KeyboardInterrupt:
        run.interrupt()
        rounds.record(problem.point(rounds.latest))
        outcome = rounds.ended("interrupted")
    return partial(_certified, rounds, outcome, name)


# the solution; for a problem without one, the reason too
def _certified(rounds: Rounds, outcome: ConstrainedOutcome, name: str) -> Solution:
    name = "interior_point" if outcome.along_the_path else name
    why: Why = ("", None)
    if outcome.status == "infeasible":
        outcome, why = _explained(rounds, outcome)
    return _solution(rounds.problem, outcome, name, rounds.aim(outcome.objective), why)


# the solution in a space with one density: that one, if it meets the constraints
def _only_density(problem: ConstrainedProblem, name: str, tol: float) -> Solution:
    found, middle = violating(problem, problem.middle.C), problem.middle
    p = problem.space.density(found.G)
    samples = to_numpy(p.rvs(100, rng=0))  # a size to a tenth
    why: Why = ("the space has one density only, and that one violates them", None)
    met = True
    for constraint, bound in zip(problem.given, problem.constraints, strict=True):
        # the value may be a difference of larger numbers, whose rounding is not a violation
        known = bound.size + (0.0 if middle.a is None else norm(middle.a))
        unknown = bound.term.integration_error
        for scale, term in constraint.functional.terms():
            if isinstance(term, Expectation):
                known += scale * float(np.abs(term.f(samples)).mean())
                # the bound may be what quadrature over the density has given
                unknown += scale * float(p.expectation(term.f).error)
        excess = bound.excess(bound.term.value(middle.a, middle.C)) * bound.size
        if excess > FEASIBLE * known + unknown:
            met = False
            if isinstance(bound.term, BoundBall):
                why = _too_small(constraint, norm(middle.a - bound.term.z))
    if met:
        return _solution(problem, replace(found, status="solved", violation=0.0), name, tol)
    return _solution(problem, found, name, tol, (_unattainable(problem) or why[0], why[1]))


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
    ball: Constraint, space: SoSSpace, C: Array, max_iter: int | None
) -> tuple[Array, float]:
    """The C whose density is nearest to the center of a ball, to as many digits as it takes to tell
    whether that is below the radius; and a proven lower bound of the distance.
    """
    objective = _squared_distance(ball, space)
    square, tol = ball.bound**2, 0.0
    for digits in (1e-3, 1e-6, 1e-9, 1e-12):  # as many as the radius needs
        outcome = iterate(LowRank(), objective, C, max(digits * square, tol), max_iter)
        C = outcome.point.C
        value, gap, _ = certify(objective, objective.point(C))
        upper, lower = math.sqrt(value), math.sqrt(max(value - gap, 0.0))
        empty = lower > ball.bound
        if upper <= ball.bound or (empty and gap <= _WORDED * value) or outcome.status != "solved":
            break
        # empty, for certain: as many digits as the message shows
        tol = _WORDED * value if empty else 0.0
    return C, lower


def _squared_distance(ball: Constraint, space: SoSSpace) -> Objective:
    assert isinstance(ball.functional, MMD)
    return Objective.of(SquaredMMD(ball.functional.target), space, stored=True)


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


def _explained(rounds: Rounds, outcome: ConstrainedOutcome) -> tuple[ConstrainedOutcome, Why]:
    """What is returned of a problem without a solution: of a ball that is empty the density nearest
    to its center, and the reason, with the least radius of a ball.
    """
    problem, balls = rounds.problem, _balls(rounds.problem.given)
    for ball in balls:
        C, least = nearest(ball, problem.space, problem.middle.C, rounds.goal.max_iter)
        if least > ball.bound:
            return rounds.without_solution(C), _too_small(ball, least)
    if len(balls) == 1 and len(problem.given) > 1:
        others = [constraint for constraint in problem.given if constraint is not balls[0]]
        distance = ConstrainedProblem(_squared_distance(balls[0], problem.space), others)
        goal = Goal(rounds.goal.tol, max_iter=rounds.goal.max_iter)
        found = solve_constrained(Rounds(distance, [LowRank()], goal, problem.middle.C))
        if found.status != "infeasible":
            radius = math.sqrt(max(found.bound, 0.0))
            note = f"given the other constraints, the least radius of {balls[0]!r} that holds a"
            return outcome, (f"{note} density is {radius:.6g} (certified)", radius)
    note = "they can be met one by one, but not together: at best one is violated by"
    return outcome, (f"{note} {outcome.violation:.3g} of its range", None)


# certify afresh at the factor that is returned
def _solution(
    problem: ConstrainedProblem,
    outcome: ConstrainedOutcome,
    name: str,
    tol: float,
    why: Why = ("", None),
) -> Solution:
    point = problem.point(outcome.G @ outcome.G.T)
    value, status, gap, note = problem.value(point), outcome.status, None, why[0]
    # that of the only density of a space may be rounding, which _only_density knows
    violation = problem.violation(point) if problem.space.rank > 1 else outcome.violation
    if status != "infeasible" and violation <= FEASIBLE and problem.frame.term.convex:
        unknown = problem.uncertainty(outcome.multipliers, point)
        bound = problem.lower_bound(outcome.multipliers, point)
        gap = max(value - bound, 0.0) + 2.0 * unknown
        note = note or known_to(unknown, tol)
        status = "solved_inaccurate" if status == "solved" and gap > tol else status
    elif status == "solved":
        status = "stationary"
    return assembled(
        problem.base,
        outcome,
        outcome.G,
        value,
        gap,
        status,
        name,
        multipliers=tuple(outcome.multipliers.weights.tolist()),
        ball_vectors=dict(outcome.multipliers.vectors),
        violation=violation,
        least_radius=why[1],
        note=note,
    )


@dataclass(frozen=True)
class ConstrainedOutcome:
    """The best point, multipliers that bound the optimum from below, and why the rounds ended."""

    G: Array  # a factor of the point; feasible unless ``violation`` says otherwise
    multipliers: Multipliers
    objective: float
    bound: float  # the Lagrangian's lower bound at GGᵀ with these multipliers
    violation: float
    status: str = "max_iter"
    n_iter: int = 0
    history: list[Progress] = field(default_factory=list)
    along_the_path: bool = False  # whether the interior point has found it

    # f at the point minus the bound
    @property
    def gap(self) -> float:
        return max(self.objective - self.bound, 0.0)

    # whether only rounding violates the constraints
    @property
    def feasible(self) -> bool:
        return self.violation <= FEASIBLE


@dataclass
class Rounds:
    """What is to be solved, how, and what has been found so far."""

    problem: ConstrainedProblem
    # the next one takes over for good if the steps of one round run out
    steppers: Sequence[Stepper]
    goal: Goal
    latest: Array  # where the latest unconstrained problem has ended, at first the start
    # what the interior point follows the path of; None if it cannot, or has done so
    program: ConicProgram | None = None
    fraction: float = InteriorPoint.step_fraction
    stage: int = 0
    n_iter: int = 0
    history: list[Progress] = field(default_factory=list)
    best: ConstrainedOutcome | None = None
    last_step: int = sys.maxsize  # after so many steps the rounds end for want of progress

    # one unconstrained problem: outcome, point and its multipliers
    def inner(
        self, objective: Objective, C: Array, tol: float
    ) -> tuple[Outcome, Point, np.ndarray]:
        assert isinstance(objective.term, Augmented)
        limit = min(self.goal.max_iter or sys.maxsize, self.last_step)
        for stage in range(self.stage, len(self.steppers)):
            self.stage, left = stage, max(limit - self.n_iter, 1)
            if stage + 1 < len(self.steppers):
                left = min(left, 50)  # more Newton steps are taken only if there is no low rank
            outcome = iterate(self.steppers[stage], objective, C, tol, left)
            self.n_iter += outcome.n_iter
            C = self.latest = outcome.point.C
            if outcome.status != "max_iter" or self.n_iter >= limit:
                break
        point = self.problem.point(C)
        return outcome, point, objective.term.updated(point.a, C)

    # the gap that is small enough at this value of f
    def aim(self, objective: float) -> float:
        return max(self.goal.tol, self.goal.rtol * abs(objective))

    def finished(self, C: Array) -> ConstrainedOutcome | None:
        """Show the latest progress to the callback; the end, if it wants to stop or the problem is
        solved.
        """
        latest = replace(self.history[-1], parameter=C, space=self.problem.space)
        if self.goal.watch is not None and self.goal.watch(latest):
            return self.ended("interrupted")
        best = self.best
        solved = best is not None and best.feasible and best.gap <= self.aim(best.objective)
        return self.ended("solved") if solved else None

    # bring the point to the constraints and bound its gap; whether it is the best so far
    def record(
        self, point: Point, multipliers: Multipliers | None = None, *, along_the_path: bool = False
    ) -> bool:
        multipliers = multipliers or Multipliers(0.0 * self.problem.sizes)
        G = factor(point.C)
        feasible = restored(self.problem, G)
        G = G if feasible is None else feasible
        at = self.problem.point(G @ G.T)
        # rounding may have spoilt the latest ones
        known = [multipliers] if self.best is None else [multipliers, self.best.multipliers]
        multipliers, bound = self.problem.best_multipliers(known, at, G)
        value, violation = self.problem.value(at), self.problem.violation(at)
        found = ConstrainedOutcome(
            G, multipliers, value, bound, violation, along_the_path=along_the_path
        )
        gap = found.gap if feasible is not None else np.inf
        self.history.append(Progress(self.n_iter, value, gap, Run.current().elapsed))
        # feasible points before others, by their gaps, and the others by what they violate
        rank = (False, found.gap) if feasible is not None else (True, violation)
        best = self.best
        better = best is None or rank < (
            (False, best.gap) if best.feasible else (True, best.violation)
        )
        self.best = found if better else best
        return better

    # a point that violates the constraints least
    def without_solution(self, C: Array, **known: Any) -> ConstrainedOutcome:
        found = violating(self.problem, C)
        return replace(found, n_iter=self.n_iter, history=self.history, **known)

    # the best point, with a status
    def ended(self, status: str) -> ConstrainedOutcome:
        assert self.best is not None
        return replace(self.best, status=status, n_iter=self.n_iter, history=self.history)


def solve_constrained(rounds: Rounds) -> ConstrainedOutcome:
    """The interior point, if it has a program; then rounds of minimizing the augmented Lagrangian
    and moving the multipliers to those of the minimizer.
    """
    problem, tol, C = rounds.problem, rounds.goal.tol, rounds.latest
    unit = max(problem.size, 1e-12)
    # of one size of a constraint, in units of how much f varies
    w, penalty = 0.0 * problem.sizes, 10.0
    last_violation, inner_tol, since_best, doubted = np.inf, 1e-2 * unit, 0, False
    if rounds.program is not None:
        if (found := _along_the_path(rounds)) is not None:
            return found
        if rounds.n_iter >= rounds.last_step:
            return rounds.ended("solved_inaccurate")
        if rounds.best is not None and rounds.best.feasible:
            # whose multipliers are nearly right
            C, w = rounds.best.G @ rounds.best.G.T, rounds.best.multipliers.weights
            penalty, inner_tol = 100.0, 10.0 * tol
    for ball in _balls(problem.given) if rounds.best is None or not rounds.best.feasible else []:
        C, least = nearest(ball, problem.space, C, rounds.goal.max_iter)
        if least > ball.bound:
            return rounds.without_solution(C)
    for _ in range(60):  # with ten times the penalty in each, rounding ends them long before
        augmented = problem.augmented(w, penalty * unit / problem.sizes**2)
        outcome, point, w = rounds.inner(augmented, C, max(inner_tol, 0.1 * tol))
        C, violation = point.C, problem.violation(point)
        since_best = 0 if rounds.record(point, Multipliers(w)) else since_best + 1
        assert rounds.best is not None
        if (found := rounds.finished(C)) is not None:
            return found
        if outcome.status in ("time_limit", "numerical_error", "interrupted"):
            return rounds.ended(outcome.status)
        if rounds.goal.max_iter is not None and rounds.n_iter >= rounds.goal.max_iter:
            return rounds.ended("max_iter")
        stays = violation > 0.1 * last_violation
        if stays and penalty >= _DOUBTFUL and not rounds.best.feasible and not doubted:
            doubted = True
            empty = _least_violation(rounds, C)
            if problem.proven_empty(empty.multipliers, problem.point(empty.G @ empty.G.T)):
                return empty
        if since_best > _PATIENCE or rounds.n_iter >= rounds.last_step:
            break
        if stays:
            # as in [Nocedal2006], chapter 17; beyond 1e10 the Hessian loses the digits of f
            penalty = min(10.0 * penalty, 1e10)
        last_violation, inner_tol = violation, 0.1 * inner_tol
    return rounds.ended("solved_inaccurate")


# follow the central path until the gap has closed; None if rounding ends it before
def _along_the_path(rounds: Rounds) -> ConstrainedOutcome | None:
    problem, program, worse = rounds.problem, rounds.program, 0
    size = max(problem.size, 1e-200)
    assert program is not None
    point, multipliers, rounds.program = problem.middle, None, None
    for C, multipliers, mu in central_path(program, rounds.fraction):
        rounds.n_iter += 1
        point, late = problem.point(C), Run.current().over
        over = rounds.n_iter >= (rounds.goal.max_iter or sys.maxsize)
        largest = float(np.abs(multipliers.weights * problem.sizes).max()) / size
        # where nothing is feasible they grow along a ray that proves it (Farkas)
        if largest > _DOUBTFUL and problem.proven_empty(multipliers, point):
            return _least_violation(rounds, C, multipliers)
        if largest > 1e12:  # and without end if rounding hides the proof
            break
        # iterates are certified once they are within three steps, each worth a digit, of the end
        if mu * C.shape[0] > 1e3 * rounds.goal.tol / size and not late and not over:
            continue
        worse = 0 if rounds.record(point, multipliers, along_the_path=True) else worse + 1
        if (found := rounds.finished(C)) is not None:
            return found
        if late or over:
            return rounds.ended("time_limit" if late else "max_iter")
        if worse > _PATIENCE:
            break
    if rounds.best is None:
        rounds.record(point, multipliers)
    if rounds.best is not None and rounds.best.feasible:
        # few more steps, and none if only rounding keeps the gap open
        known = rounds.best.gap <= problem.rounding(rounds.best.multipliers)
        rounds.last_step = rounds.n_iter + (0 if known else 500)
    return None


def _least_violation(
    rounds: Rounds, C: Array, proof: Multipliers | None = None
) -> ConstrainedOutcome:
    """Minimize the violation: roughly, if a proof that nothing is feasible is there, else far
    enough for the multipliers to be one.
    """
    objective, precision = rounds.problem.infeasibility(), 1e-6 if proof is None else 1e-2
    _, point, w = rounds.inner(objective, C, precision * objective.value(objective.point(C)))
    proof = Multipliers(w) if proof is None else proof
    return rounds.without_solution(point.C, multipliers=proof)


def violating(problem: ConstrainedProblem, C: Array) -> ConstrainedOutcome:
    """A point of an infeasible problem."""
    G = factor(C)
    point, zero = problem.point(G @ G.T), Multipliers(0.0 * problem.sizes)
    value, violation = problem.value(point), problem.violation(point)
    return ConstrainedOutcome(G, zero, value, np.inf, violation, "infeasible")
