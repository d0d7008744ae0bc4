"""Constrained problems: the augmented Lagrangian [Hestenes1969, Powell1969] around the solvers of
the spectraplex, certified by its gap.

The bound of the gap from below is :meth:`ConstrainedProblem.lower_bound`: the unconstrained
certificate, applied to the Lagrangian.
"""

from __future__ import annotations

import sys
from collections.abc import Sequence
from dataclasses import dataclass, field, replace

import numpy as np

from ksos.functionals.objective import Objective, Point
from ksos.ground.arrays import Array, inner, namespace, to_numpy
from ksos.solvers.constrained_problem import (
    FEASIBLE,
    Augmented,
    ConstrainedProblem,
    Multipliers,
    restored,
)
from ksos.solvers.interior_point import ConicProgram, InteriorPoint, central_path
from ksos.solvers.loop import Outcome, Stepper, Watch, run
from ksos.solvers.solution import Progress
from ksos.solvers.spectraplex import factor

__all__ = ["ConstrainedOutcome", "Rounds", "follow_central_path", "solve_constrained", "violating"]

_MOST_ROUNDS = 60
_FIRST_PENALTY, _LATER_PENALTY, _PENALTY_GROWTH, _LARGEST_PENALTY = 10.0, 100.0, 10.0, 1e10
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
_VANISHING, _RUNAWAY = 1e-7, 1e12
# a penalty, or a multiplier, from which on a violation that stays raises the question whether
# anything is feasible
_DOUBTFUL = 1e3


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
    keyboard: bool = False
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
            outcome = run(stepper, objective, C, tol, left if most is None else min(left, most))
            self.n_iter, self.latest = self.n_iter + outcome.n_iter, outcome.point.C
            if outcome.keyboard:
                raise KeyboardInterrupt
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
        self, point: Point, multipliers: Multipliers, *, along_the_path: bool = False
    ) -> bool:
        """Bring the point to the constraints and bound its gap; whether it is the best so far."""
        G = factor(point.C)
        feasible = restored(self.problem, G)
        G = G if feasible is None else feasible
        at = self.problem.point(G @ G.T)
        if along_the_path and feasible is not None:
            G, at = self._at_the_boundary(G, at, multipliers)
        # rounding may have spoilt the latest ones
        known = [multipliers] if self.best is None else [multipliers, self.best.multipliers]
        multipliers, bound = self.problem.best_multipliers(known, at, G)
        value, violation, elapsed = (
            self.problem.value(at),
            self.problem.violation(at),
            self.problem.base.deadline.elapsed,
        )
        found = ConstrainedOutcome(
            G, multipliers, value, bound, violation, along_the_path=along_the_path
        )
        self.history.append(
            Progress(self.n_iter, value, found.gap if feasible is not None else np.inf, elapsed)
        )
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

    def ended(self, status: str, keyboard: bool = False) -> ConstrainedOutcome:
        """The best point, with a status."""
        assert self.best is not None
        return replace(
            self.best, status=status, n_iter=self.n_iter, history=self.history, keyboard=keyboard
        )


def solve_constrained(rounds: Rounds, C: Array, *, path_first: bool = False) -> ConstrainedOutcome:
    """Rounds of minimising the augmented Lagrangian, then moving the multipliers to those of the
    minimiser.

    A stepper that needs more steps than it may take is replaced for good: by the interior point, if
    it has a program, and by the next stepper if that does not close the gap. With ``path_first``
    the interior point comes before the first round.
    """
    try:
        return _play(rounds, C, path_first)
    except KeyboardInterrupt:
        if rounds.best is None or rounds.latest is not None:
            latest = C if rounds.latest is None else rounds.latest
            rounds.record(rounds.problem.point(latest), Multipliers(0.0 * rounds.problem.sizes))
        return rounds.ended("interrupted", keyboard=True)


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
        if rounds.best is None or not rounds.best.feasible:
            raise
        found = rounds.ended("interrupted", keyboard=True)
    if found is None and rounds.best is not None:
        found = rounds.ended("solved_inaccurate")
    return found if found is not None and found.feasible else None


def _play(rounds: Rounds, C: Array, path_first: bool) -> ConstrainedOutcome:
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
        if outcome.status in ("time_limit", "numerical_error"):
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
    problem, program, worse, size = (
        rounds.problem,
        rounds.program,
        0,
        max(rounds.problem.size, 1e-200),
    )
    assert program is not None
    point, multipliers, rounds.program = problem.middle, Multipliers(0.0 * problem.sizes), None
    for C, multipliers, mu in central_path(program, rounds.fraction):
        rounds.n_iter += 1
        point, late, over = (
            problem.point(C),
            problem.base.deadline.passed,
            rounds.n_iter >= rounds.max_iter,
        )
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
