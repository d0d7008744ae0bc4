"""ksos.minimize with constraints: is anything feasible, the rounds, the certified solution.

The rounds are those of the augmented Lagrangian [Hestenes1969, Powell1969] around the solvers of
the spectraplex. The interior point, if it can take the problem, comes before or after them. The gap
is that of :meth:`ConstrainedProblem.lower_bound`: the unconstrained certificate, applied to the
Lagrangian.
"""

from __future__ import annotations

import math
import sys
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field, replace
from functools import partial
from typing import Any, NamedTuple

import numpy as np

from ksos.functionals import MMD, BoundBall, Constraint, Objective, Point, SquaredMMD
from ksos.ground.arrays import Array, inner, namespace, norm, to_numpy
from ksos.ground.run import Run
from ksos.solvers.certificate import certify
from ksos.solvers.constrained_problem import (
    FEASIBLE,
    Augmented,
    ConstrainedProblem,
    Multipliers,
    restored,
)
from ksos.solvers.interior_point import ConicProgram, InteriorPoint, central_path
from ksos.solvers.loop import Outcome, Solver, Stepper, Watch, iterate
from ksos.solvers.low_rank import LowRank
from ksos.solvers.solution import Progress, Solution
from ksos.solvers.spectraplex import centre, factor
from ksos.space.embedding_map import SMALL_TENSOR
from ksos.space.space import SoSSpace

__all__ = [
    "ConstrainedOutcome",
    "Goal",
    "Nearest",
    "as_constraints",
    "assembled",
    "follow_central_path",
    "known_to",
    "minimize_constrained",
    "nearest",
]

_MOST_ROUNDS = 60  # with ten times the penalty in each, rounding ends them long before
_FIRST_PENALTY = 10.0  # of one size of a constraint, in units of how much f varies
_LATER_PENALTY = 100.0  # after the interior point, whose multipliers are nearly right
_PENALTY_GROWTH = 10.0  # per round that did not help: as in [Nocedal2006], chapter 17
_LARGEST_PENALTY = 1e10  # beyond, the Hessian loses the digits of f
# a round that brings the violation below this fraction of the last one needs no larger penalty
_ENOUGH = 0.1
_PATIENCE = 4  # rounds in a row without a smaller gap after which rounding has the last word
# the interior point's iterates are certified from a mean product of this many times the tolerance
# on
_LOOK = 1e3
# steps that the rounds may take after the interior point has found a feasible point: what it leaves
# is rounding
_AFTERWARDS = 500
_NEAR_THE_BOUNDARY = 1e-4  # in units of a constraint's size
_VANISHING = 1e-7  # mass of a column that vanishes with μ: the root of what doubles resolve
_RUNAWAY = 1e12  # multipliers, in units of f: they grow without end where nothing is feasible
# a penalty, or a multiplier, from which on a violation that stays raises the question whether
# anything is feasible
_DOUBTFUL = 1e3
# floating-point operations: if a step costs no more, some milliseconds, the interior point comes
# first
_CHEAP_STEP = 2e8
_MOST_STEPS = 50  # of Newton's method in one round: more are taken only if there is no low rank
_DIGITS = (1e-3, 1e-6, 1e-9, 1e-12)  # of a squared distance, as many as its radius needs
_WORDED = 1e-5  # relative: the digits of a least radius that a message shows
_ROUND = LowRank(extra_steps=0)  # Newton's method for one round of many
Why = tuple[str, float | None]  # a note, and the least radius of a ball


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


class Goal(NamedTuple):
    """When to stop."""

    tol: float
    rtol: float
    max_iter: int | None
    watch: Watch | None


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
    steppers, space, tol = list(solver.inner_solvers(objective)), objective.space, goal.tol
    name, run = steppers[0].name, Run.current()
    C = centre(space.rank, space.T) if start is None else start.C
    if isinstance(steppers[0], (LowRank, InteriorPoint)) and space.tensor_size <= SMALL_TENSOR:
        # Newton steps feel rounding that changes from point to point
        objective = objective.on_tensor()
    problem = run.complete(lambda: ConstrainedProblem(objective, constraints))
    if space.rank == 1:
        return partial(_only_density, problem, name, tol)
    program, by_path = None, isinstance(solver, InteriorPoint)
    if by_path or solver.name == "auto":
        program = run.complete(lambda: ConicProgram.of(problem))
    if by_path:
        if program is None:
            raise ValueError(
                f"solver={name!r} cannot take {name_of_f} with these constraints: it takes squared"
                " MMDs, Frobenius penalties and linear terms, MMD balls and expectations; use"
                " solver='low_rank' or 'fista'"
            )
        steppers = [_ROUND]
    elif reason := steppers[0].refusal(problem.augmented(0.0 * problem.sizes, problem.sizes).term):
        raise ValueError(f"solver={name!r} cannot take {name_of_f} with constraints: it {reason}")
    steppers = [
        replace(stepper, extra_steps=0) if isinstance(stepper, LowRank) else stepper
        for stepper in steppers
    ]
    limit = goal.max_iter
    if limit is None:
        limit = max(_ROUND.max_iter, steppers[-1].max_iter)
    stages = [(stepper, None if stepper is steppers[-1] else _MOST_STEPS) for stepper in steppers]
    rounds = Rounds(problem, stages, tol, limit, goal.rtol, goal.watch, program)
    if isinstance(solver, InteriorPoint):
        rounds.fraction = solver.step_fraction
    try:
        if (note := _unattainable(problem)) is not None:
            return partial(_solution, problem, violating(problem, C), name, tol, (note, None))
        warm = start is not None
        cheap = program is not None and program.cost <= _CHEAP_STEP and not warm
        for ball in _balls(constraints):
            found = nearest(ball, space, C, limit)
            if found.lower > ball.bound:
                outcome = violating(problem, found.outcome.point.C)
                why = _too_small(ball, found.lower)
                return partial(_solution, problem, outcome, name, tol, why)
            if not warm:
                C, warm = found.outcome.point.C, True
        outcome = solve_constrained(rounds, C, path_first=by_path or cheap)
    except KeyboardInterrupt:
        run.interrupt()
        if rounds.best is None or rounds.latest is not None:
            rounds.record(problem.point(C if rounds.latest is None else rounds.latest))
        outcome = rounds.ended("interrupted")
    return partial(_certified, rounds, outcome, name)


def _certified(rounds: Rounds, outcome: ConstrainedOutcome, name: str) -> Solution:
    """The solution; for a problem without one, the reason too."""
    name = "interior_point" if outcome.along_the_path else name
    why: Why = ("", None)
    if outcome.status == "infeasible":
        why = _why(rounds.problem, outcome, rounds.tol, rounds.max_iter)
    tol = max(rounds.tol, rounds.rtol * abs(outcome.objective))
    return _solution(rounds.problem, outcome, name, tol, why)


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


def nearest(ball: Constraint, space: SoSSpace, C: Array, max_iter: int) -> Nearest:
    """Minimise the distance to the centre, to as many digits as it takes to tell whether it is
    below the radius.
    """
    objective = _squared_distance(ball, space)
    square, tol = ball.bound**2, _DIGITS[0] * ball.bound**2
    for digits in _DIGITS:
        outcome = iterate(LowRank(), objective, C, max(digits * square, tol), max_iter)
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


def _why(
    problem: ConstrainedProblem, outcome: ConstrainedOutcome, tol: float, max_iter: int
) -> Why:
    """What to say of constraints that can be met one by one but not together, and the least radius
    of a ball among them.
    """
    if len(balls := _balls(problem.given)) == 1 and len(problem.given) > 1:
        distance = _squared_distance(balls[0], problem.space)
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
    run = Run.current()
    if run.interrupted and status != "infeasible":
        status = "interrupted"
    more |= {
        "time": run.elapsed,
        "keyboard_interrupt": run.interrupted,
        "integration_error": base.term.integration_error,
    }
    bound = None if gap is None else base.projected_mmd_bound(gap)
    return Solution(
        value, gap, bound, status, name, outcome.n_iter, outcome.history, base.space, G, **more
    )


@dataclass(frozen=True)
class ConstrainedOutcome:
    """The best point, the multipliers that bound the optimum from below, and why the rounds ended."""

    G: Array  # a factor of the point; feasible unless ``violation`` says otherwise
    multipliers: Multipliers
    objective: float
    bound: float  # the Lagrangian's lower bound at GGᵀ with these multipliers
    violation: float
    status: str = "max_iter"
    n_iter: int = 0
    history: list[Progress] = field(default_factory=list)
    along_the_path: bool = False  # whether the interior point has found it

    @property
    def gap(self) -> float:
        """f at the point minus the bound."""
        return max(self.objective - self.bound, 0.0)

    @property
    def feasible(self) -> bool:
        """Whether only rounding violates the constraints."""
        return self.violation <= FEASIBLE

    def rank(self, feasible: bool) -> tuple[bool, float]:
        """The better one of two outcomes has the lower rank."""
        return (False, self.gap) if feasible else (True, self.violation)


@dataclass
class Rounds:
    """What is to be solved, how, and what the rounds have found so far."""

    problem: ConstrainedProblem
    steppers: Sequence[
        tuple[Stepper, int | None]
    ]  # with the number of steps that each may take in one round
    tol: float
    max_iter: int
    rtol: float = 0.0
    watch: Watch | None = None
    # what the interior point follows the path of; None if it cannot, or has done so
    program: ConicProgram | None = None
    fraction: float = InteriorPoint.step_fraction
    stage: int = 0
    n_iter: int = 0
    history: list[Progress] = field(default_factory=list)
    best: ConstrainedOutcome | None = None
    latest: Array | None = None  # where the latest unconstrained problem has ended
    last_step: int = sys.maxsize  # after so many steps the rounds end for want of progress

    def inner(
        self, objective: Objective, C: Array, tol: float, *, to_the_end: bool
    ) -> tuple[Outcome, Point, np.ndarray]:
        """One unconstrained problem, by the current solver (the next one if its steps run out):
        outcome, point and its multipliers.
        """
        assert isinstance(objective.term, Augmented)
        while True:
            stepper, most = self.steppers[self.stage]
            most_in_all = min(self.max_iter, self.last_step)
            left = max(most_in_all - self.n_iter, 1)
            outcome = iterate(stepper, objective, C, tol, left if most is None else min(left, most))
            self.n_iter, self.latest = self.n_iter + outcome.n_iter, outcome.point.C
            if (
                outcome.status != "max_iter"
                or self.n_iter >= most_in_all
                or self.stage + 1 == len(self.steppers)
            ):
                break
            self.stage, C = self.stage + 1, outcome.point.C
            if not to_the_end:
                break
        point = self.problem.point(outcome.point.C)
        return outcome, point, objective.term.updated(point.a, point.C)

    def finished(self, C: Array) -> ConstrainedOutcome | None:
        """Show the latest progress to the callback; the end, if it wants to stop or the problem is
        solved.
        """
        if self.watch is not None and self.watch(
            replace(self.history[-1], parameter=C, space=self.problem.space)
        ):
            return self.ended("interrupted")
        return self.ended("solved") if self.solved else None

    def resumed(self) -> tuple[Array, np.ndarray]:
        """Where the rounds go on after the interior point: its best point, without what will vanish
        with μ, and the multipliers.
        """
        assert self.best is not None
        G = self.best.G
        weights = to_numpy(
            namespace(G).sum(G * G, axis=0)
        )  # the columns of a factor are orthogonal: its eigenvalues
        kept = [j for j, weight in enumerate(weights.tolist()) if weight > _VANISHING]
        G = G[:, kept[0] :] if kept else G  # they ascend
        return G @ G.T / inner(G, G), (
            self.best.multipliers.weights if self.best.feasible else 0.0 * self.problem.sizes
        )

    @property
    def solved(self) -> bool:
        """Whether the best point is feasible and its gap small enough."""
        best = self.best
        return (
            best is not None
            and best.feasible
            and best.gap <= max(self.tol, self.rtol * abs(best.objective))
        )

    def record(
        self, point: Point, multipliers: Multipliers | None = None, *, along_the_path: bool = False
    ) -> bool:
        """Bring the point to the constraints and bound its gap; whether it is the best so far."""
        multipliers = multipliers or Multipliers(0.0 * self.problem.sizes)
        G = factor(point.C)
        feasible = restored(self.problem, G)
        G = G if feasible is None else feasible
        at = self.problem.point(G @ G.T)
        if along_the_path and feasible is not None:
            G, at = self._at_the_boundary(G, at, multipliers)
        # rounding may have spoilt the latest ones
        known = [multipliers] if self.best is None else [multipliers, self.best.multipliers]
        multipliers, bound = self.problem.best_multipliers(known, at, G)
        value, violation = self.problem.value(at), self.problem.violation(at)
        found = ConstrainedOutcome(
            G, multipliers, value, bound, violation, along_the_path=along_the_path
        )
        gap = found.gap if feasible is not None else np.inf
        self.history.append(Progress(self.n_iter, value, gap, Run.current().elapsed))
        better = self.best is None or found.rank(feasible is not None) < self.best.rank(
            self.best.feasible
        )
        self.best = found if better else self.best
        return better

    def _at_the_boundary(
        self, G: Array, at: Point, multipliers: Multipliers
    ) -> tuple[Array, Point]:
        """The point, or the one on the boundary of the active constraints if f is lower there:
        rounding keeps the path inside.
        """
        bounds, values = self.problem.constraints, self.problem.excesses(at)
        active = [
            i
            for i, bound in enumerate(bounds)
            if not bound.equality and -_NEAR_THE_BOUNDARY * bound.size < values[i] < 0.0
        ]
        worth = [i for i in active if multipliers.weights[i] * abs(values[i]) > 0.01 * self.tol]
        moved = restored(self.problem, G, worth) if worth else None
        if moved is None:
            return G, at
        there = self.problem.point(moved @ moved.T)
        return (moved, there) if self.problem.value(there) < self.problem.value(at) else (G, at)

    def ended(self, status: str) -> ConstrainedOutcome:
        """The best point, with a status."""
        assert self.best is not None
        return replace(self.best, status=status, n_iter=self.n_iter, history=self.history)


def follow_central_path(
    problem: ConstrainedProblem, program: ConicProgram, tol: float, max_iter: int
) -> ConstrainedOutcome | None:
    """The interior point alone: its best point, whether or not that closes the gap; None if it
    finds nothing that is feasible.
    """
    rounds = Rounds(problem, [], tol, max_iter, program=program)
    try:
        found = _along_the_path(rounds)
    except KeyboardInterrupt:
        Run.current().interrupt()
        found = None if rounds.best is None else rounds.ended("interrupted")
    if found is None and rounds.best is not None:
        found = rounds.ended("solved_inaccurate")
    return found if found is not None and found.feasible else None


def solve_constrained(rounds: Rounds, C: Array, *, path_first: bool = False) -> ConstrainedOutcome:
    """Rounds of minimizing the augmented Lagrangian, then moving the multipliers to those of the
    minimizer.

    A stepper that needs more steps than it may take is replaced for good: by the interior point, if
    it has a program, and by the next stepper if that does not close the gap. With ``path_first``
    the interior point comes before the first round.
    """
    problem, tol, unit = rounds.problem, rounds.tol, max(rounds.problem.size, 1e-12)
    w, penalty = 0.0 * problem.sizes, _FIRST_PENALTY
    last_violation, inner_tol, since_best, doubted = np.inf, 1e-2 * unit, 0, False
    least_gap = least_violation = np.inf
    if path_first and rounds.program is not None:
        if (found := _along_the_path(rounds)) is not None:
            return found
        if rounds.n_iter >= rounds.last_step:
            return rounds.ended("solved_inaccurate")
        if rounds.last_step < sys.maxsize:
            C, w = rounds.resumed()
            penalty, inner_tol = _LATER_PENALTY, 10.0 * tol
    for _ in range(_MOST_ROUNDS):
        augmented, stage = problem.augmented(w, penalty * unit / problem.sizes**2), rounds.stage
        outcome, point, w = rounds.inner(
            augmented, C, max(inner_tol, 0.1 * tol), to_the_end=rounds.program is None
        )
        C, violation = point.C, problem.violation(point)
        rounds.record(point, Multipliers(w))
        gap = rounds.history[-1].gap
        since_best = 0 if gap < least_gap or violation < 0.5 * least_violation else since_best + 1
        least_gap, least_violation = min(gap, least_gap), min(violation, least_violation)
        assert rounds.best is not None
        if (found := rounds.finished(C)) is not None:
            return found
        if outcome.status in ("time_limit", "numerical_error", "interrupted"):
            return rounds.ended(outcome.status)
        if rounds.n_iter >= rounds.max_iter:
            return rounds.ended("max_iter")
        if (
            not rounds.best.feasible
            and not doubted
            and penalty >= _DOUBTFUL
            and violation > _ENOUGH * last_violation
        ):
            doubted = True
            if (empty := _proof_of_emptiness(rounds, C)) is not None:
                return empty
        if rounds.program is not None and (rounds.stage > stage or since_best > _PATIENCE):
            if (found := _along_the_path(rounds)) is not None:
                return found
            C, w, penalty, inner_tol, since_best = (
                *rounds.resumed(),
                max(penalty, _LATER_PENALTY),
                10.0 * tol,
                0,
            )
        if since_best > _PATIENCE or rounds.n_iter >= rounds.last_step:
            break
        if violation > _ENOUGH * last_violation:
            penalty = min(penalty * _PENALTY_GROWTH, _LARGEST_PENALTY)
        last_violation, inner_tol = violation, 0.1 * inner_tol
    return rounds.ended("solved_inaccurate")


def _along_the_path(rounds: Rounds) -> ConstrainedOutcome | None:
    """Follow the central path until the gap has closed; None if rounding ends it before."""
    problem, program, worse = rounds.problem, rounds.program, 0
    size = max(problem.size, 1e-200)
    assert program is not None
    point, multipliers, rounds.program = problem.middle, None, None
    for C, multipliers, mu in central_path(program, rounds.fraction):
        rounds.n_iter += 1
        point = problem.point(C)
        late, over = Run.current().over, rounds.n_iter >= rounds.max_iter
        largest = float(np.abs(multipliers.weights * problem.sizes).max()) / size
        if largest > _DOUBTFUL and problem.proven_empty(
            multipliers, point
        ):  # they grow along a ray that proves it (Farkas)
            return (
                _least_violation(rounds, C, multipliers)
                if rounds.steppers
                else violating(problem, C)
            )
        if largest > _RUNAWAY:
            break
        if mu * C.shape[0] > _LOOK * rounds.tol / size and not late and not over:
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
    if (
        rounds.best is not None and rounds.best.feasible
    ):  # few more steps, and none if only rounding keeps the gap open
        known = rounds.best.gap <= problem.rounding(rounds.best.multipliers)
        rounds.last_step = rounds.n_iter + (0 if known else _AFTERWARDS)
    return None


def _proof_of_emptiness(rounds: Rounds, C: Array) -> ConstrainedOutcome | None:
    """The point of least violation, if the multipliers there prove that no point meets the
    constraints.
    """
    found = _least_violation(rounds, C)
    return (
        found
        if rounds.problem.proven_empty(found.multipliers, rounds.problem.point(found.G @ found.G.T))
        else None
    )


def _least_violation(
    rounds: Rounds, C: Array, proof: Multipliers | None = None
) -> ConstrainedOutcome:
    """Minimise the violation: roughly, if a proof that nothing is feasible is there, else far
    enough for the multipliers to be one.
    """
    objective, precision = rounds.problem.infeasibility(), 1e-6 if proof is None else 1e-2
    _, point, w = rounds.inner(
        objective, C, precision * objective.value(objective.point(C)), to_the_end=True
    )
    proof = Multipliers(w) if proof is None else proof
    return replace(
        violating(rounds.problem, point.C),
        multipliers=proof,
        n_iter=rounds.n_iter,
        history=rounds.history,
    )


def violating(problem: ConstrainedProblem, C: Array) -> ConstrainedOutcome:
    """A point of an infeasible problem."""
    G = factor(C)
    point = problem.point(G @ G.T)
    return ConstrainedOutcome(
        G,
        Multipliers(0.0 * problem.sizes),
        problem.value(point),
        np.inf,
        problem.violation(point),
        "infeasible",
    )
