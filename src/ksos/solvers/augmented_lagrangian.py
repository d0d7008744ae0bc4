"""Constrained problems: the augmented Lagrangian [Hestenes1969, Powell1969] around the solvers of the spectraplex, certified by its gap.

For multipliers w (w_i ≥ 0 on inequalities) and any C, the optimum is at least L(C) − [⟨∇L(C), C⟩ − λ_min(∇L(C))], L = f + Σ w_i g_i: the
certificate of the unconstrained problem, applied to the Lagrangian. A feasible point gives the other side.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

import numpy as np

from ksos._array import Array, inner, namespace, to_numpy
from ksos.functionals.objective import Objective, Point
from ksos.solvers.constrained_problem import FEASIBLE, Augmented, ConstrainedProblem, Multipliers, restored
from ksos.solvers.interior_point import ConicProgram, InteriorPoint, central_path
from ksos.solvers.loop import Outcome, Stepper, Watch, run
from ksos.solvers.solution import Progress
from ksos.solvers.spectraplex import centre, factor

__all__ = ["ConstrainedOutcome", "follow_central_path", "solve_constrained"]

_MOST_ROUNDS = 60
_FIRST_PENALTY, _LATER_PENALTY, _PENALTY_GROWTH, _LARGEST_PENALTY = 10.0, 100.0, 10.0, 1e10
_ENOUGH = 0.1  # a round that brings the violation below this fraction of the last one needs no larger penalty
_PATIENCE = 4  # rounds in a row without a smaller gap after which rounding has the last word
_LOOK = 1e3  # the interior point's iterates are certified from a mean product of this many times the tolerance on
_AFTERWARDS = 500  # steps that the rounds may take after the interior point has found a feasible point: what it leaves is rounding
_NEAR_THE_BOUNDARY = 1e-4  # in units of a constraint's size
_VANISHING = 1e-7
_RUNAWAY = 1e12
_DOUBTFUL = 1e3  # a penalty from which on a violation that stays raises the question whether anything is feasible


@dataclass(frozen=True)
class ConstrainedOutcome:
    """The best point, the multipliers that bound the optimum from below, and why the rounds ended."""

    G: Array
    """A factor of the point; feasible unless ``violation`` says otherwise."""
    multipliers: Multipliers
    objective: float
    bound: float
    """The Lagrangian's lower bound at GGᵀ with these multipliers."""
    violation: float
    status: str
    n_iter: int
    history: list[Progress]
    keyboard: bool = False
    along_the_path: bool = False
    """Whether the interior point has found it."""

    @property
    def gap(self) -> float:
        """f at the point minus the bound."""
        return max(self.objective - self.bound, 0.0)


class _Rounds:
    """What the rounds have found so far."""

    def __init__(
        self,
        problem: ConstrainedProblem,
        steppers: Sequence[tuple[Stepper, int | None]],
        tol: float,
        max_iter: int,
        rtol: float = 0.0,
        watch: Watch | None = None,
    ) -> None:
        self.problem, self.steppers, self.tol, self.max_iter, self.rtol, self.watch = problem, steppers, tol, max_iter, rtol, watch
        self.deadline, self.stage, self.n_iter = problem.base.deadline, 0, 0
        self.history: list[Progress] = []
        self.best: ConstrainedOutcome | None = None
        self.latest: Array | None = None
        """Where the latest unconstrained problem has ended."""
        self.last_step: int | None = None
        """After so many steps the rounds end for want of progress."""

    @property
    def exhausted(self) -> bool:
        """Whether the steps that were left after the interior point have been taken."""
        return self.last_step is not None and self.n_iter >= self.last_step

    def after_the_path(self) -> None:
        """Few more steps if the interior point has found a feasible point, and none if only rounding keeps its gap open."""
        if self.best is not None and self.best.violation <= FEASIBLE:
            known = self.best.gap <= self.problem.rounding(self.best.multipliers)
            self.last_step = self.n_iter + (0 if known else _AFTERWARDS)

    def inner(self, objective: Objective, C: Array, tol: float, *, to_the_end: bool) -> Outcome:
        """One unconstrained problem, by the current solver; if that runs out of steps, the next one takes over, now or next time."""
        while True:
            stepper, most = self.steppers[self.stage]
            left = max((self.max_iter if self.last_step is None else min(self.max_iter, self.last_step)) - self.n_iter, 1)
            outcome = run(stepper, objective, C, tol, left if most is None else min(left, most))
            self.n_iter, self.latest = self.n_iter + outcome.n_iter, outcome.point.C
            if outcome.keyboard:
                raise KeyboardInterrupt
            if outcome.status != "max_iter" or self.n_iter >= self.max_iter or self.exhausted or self.stage + 1 == len(self.steppers):
                return outcome
            self.stage, C = self.stage + 1, outcome.point.C
            if not to_the_end:
                return outcome

    def stopped(self, C: Array) -> bool:
        """Show the latest progress to the callback; whether it wants to stop."""
        return self.watch is not None and bool(self.watch(replace(self.history[-1], parameter=C, space=self.problem.space)))

    def resumed(self) -> tuple[Array, np.ndarray]:
        """Where the rounds go on after the interior point: its best point, without what will vanish with μ, and the multipliers."""
        assert self.best is not None
        G = self.best.G
        weights = to_numpy(namespace(G).sum(G * G, axis=0))  # the columns of a factor are orthogonal: its eigenvalues
        kept = [j for j, weight in enumerate(weights.tolist()) if weight > _VANISHING]
        G = G[:, kept[0] :] if kept else G  # they ascend
        feasible = self.best.violation <= FEASIBLE
        return G @ G.T / inner(G, G), self.best.multipliers.weights if feasible else np.zeros(len(self.problem.constraints))

    @property
    def solved(self) -> bool:
        """Whether the best point is feasible and its gap small enough."""
        best = self.best
        return best is not None and best.violation <= FEASIBLE and best.gap <= max(self.tol, self.rtol * abs(best.objective))

    def record(self, point: Point, multipliers: Multipliers, *, along_the_path: bool = False) -> bool:
        """Bring the point to the constraints and bound its gap; whether it is the best so far."""
        G = factor(point.C)
        feasible = restored(self.problem, G)
        G = G if feasible is None else feasible
        at = self.problem.point(G @ G.T)
        if along_the_path and feasible is not None:
            G, at = self._at_the_boundary(G, at, multipliers)
        known = [multipliers] if self.best is None else [multipliers, self.best.multipliers]  # rounding may have spoilt the latest ones
        multipliers, bound = self.problem.best_multipliers(known, at, G)
        value = self.problem.value(at)
        violation, history = self.problem.violation(at), self.history
        found = ConstrainedOutcome(G, multipliers, value, bound, violation, "max_iter", self.n_iter, history, along_the_path=along_the_path)
        history.append(Progress(self.n_iter, value, found.gap if feasible is not None else np.inf, self.deadline.elapsed))
        better = self.best is None or _rank(found, feasible is not None) < _rank(self.best, self.best.violation <= FEASIBLE)
        if better:
            self.best = found
        return better

    def _at_the_boundary(self, G: Array, at: Point, multipliers: Multipliers) -> tuple[Array, Point]:
        """The point, or the one on the boundary of the active constraints if f is lower there: rounding keeps the path inside."""
        bounds, values = self.problem.constraints, self.problem.excesses(at)
        active = [i for i, bound in enumerate(bounds) if not bound.equality and -_NEAR_THE_BOUNDARY * bound.size < values[i] < 0.0]
        worth = [i for i in active if multipliers.weights[i] * abs(values[i]) > 0.01 * self.tol]
        moved = restored(self.problem, G, worth) if worth else None
        if moved is None:
            return G, at
        there = self.problem.point(moved @ moved.T)
        return (moved, there) if self.problem.value(there) < self.problem.value(at) else (G, at)

    def ended(self, status: str, keyboard: bool = False) -> ConstrainedOutcome:
        """The best point, with a status."""
        assert self.best is not None
        return replace(self.best, status=status, n_iter=self.n_iter, history=self.history, keyboard=keyboard)


def _rank(outcome: ConstrainedOutcome, feasible: bool) -> tuple[bool, float]:
    return (False, outcome.gap) if feasible else (True, outcome.violation)


def solve_constrained(
    problem: ConstrainedProblem,
    steppers: Sequence[tuple[Stepper, int | None]],
    C: Array,
    tol: float,
    max_iter: int,
    *,
    rtol: float = 0.0,
    watch: Watch | None = None,
    program: ConicProgram | None = None,
    path_first: bool = False,
    fraction: float = InteriorPoint.step_fraction,
) -> ConstrainedOutcome:
    """Rounds of minimising the augmented Lagrangian, then moving the multipliers to those of the minimiser.

    ``steppers`` come with the number of steps that each may take in one round. One that needs more is replaced for good: by the interior
    point along the central path of ``program``, if there is one, and by the next stepper if that does not close the gap. With
    ``path_first`` the path comes before the first round.
    """
    rounds = _Rounds(problem, steppers, tol, max_iter, rtol, watch)
    try:
        return _play(rounds, C, program, path_first, fraction)
    except KeyboardInterrupt:
        if rounds.best is None or rounds.latest is not None:
            latest = C if rounds.latest is None else rounds.latest
            rounds.record(problem.point(latest), Multipliers(np.zeros(len(problem.constraints))))
        return rounds.ended("interrupted", keyboard=True)


def follow_central_path(problem: ConstrainedProblem, program: ConicProgram, tol: float, max_iter: int) -> ConstrainedOutcome | None:
    """The interior point alone: its best point, whether or not that closes the gap; None if it finds nothing that is feasible."""
    rounds = _Rounds(problem, [], tol, max_iter)
    try:
        found = _along_the_path(rounds, program)
    except KeyboardInterrupt:
        if rounds.best is None:
            raise
        found = rounds.ended("interrupted", keyboard=True)
    if found is None and rounds.best is not None:
        found = rounds.ended("solved_inaccurate")
    return found if found is not None and found.violation <= FEASIBLE else None


def _play(rounds: _Rounds, C: Array, program: ConicProgram | None, path_first: bool, fraction: float) -> ConstrainedOutcome:
    problem, tol = rounds.problem, rounds.tol
    sizes = np.array([constraint.size for constraint in problem.constraints])
    unit = max(problem.size, 1e-12)
    w, penalty = np.zeros(sizes.shape[0]), _FIRST_PENALTY
    last_violation, inner_tol, since_best, doubted = np.inf, 1e-2 * unit, 0, False
    least_gap = least_violation = np.inf
    if path_first and program is not None:
        if (found := _along_the_path(rounds, program, fraction)) is not None:
            return found
        rounds.after_the_path()
        program = None
        if rounds.exhausted:
            return rounds.ended("solved_inaccurate")
        if rounds.last_step is not None:
            C, w = rounds.resumed()
            penalty, inner_tol = _LATER_PENALTY, 10.0 * tol
    for _ in range(_MOST_ROUNDS):
        objective, stage = problem.augmented(w, penalty * unit / sizes**2), rounds.stage
        outcome = rounds.inner(objective, C, max(inner_tol, 0.1 * tol), to_the_end=program is None)
        C, point = outcome.point.C, problem.point(outcome.point.C)
        assert isinstance(objective.term, Augmented)
        w = objective.term.updated(point.a, C)
        violation = problem.violation(point)
        rounds.record(point, Multipliers(w))
        gap = rounds.history[-1].gap
        since_best = 0 if gap < least_gap or violation < 0.5 * least_violation else since_best + 1
        least_gap, least_violation = min(gap, least_gap), min(violation, least_violation)
        assert rounds.best is not None
        feasible = rounds.best.violation <= FEASIBLE
        if rounds.stopped(C):
            return rounds.ended("interrupted")
        if rounds.solved:
            return rounds.ended("solved")
        if outcome.status in ("time_limit", "numerical_error"):
            return rounds.ended(outcome.status)
        if rounds.n_iter >= rounds.max_iter:
            return rounds.ended("max_iter")
        if not feasible and not doubted and penalty >= _DOUBTFUL and violation > _ENOUGH * last_violation:
            doubted = True
            if (empty := _proof_of_emptiness(rounds, C)) is not None:
                return empty
        if program is not None and (rounds.stage > stage or since_best > _PATIENCE):
            if (found := _along_the_path(rounds, program, fraction)) is not None:
                return found
            rounds.after_the_path()
            C, w, program, penalty, inner_tol, since_best = *rounds.resumed(), None, max(penalty, _LATER_PENALTY), 10.0 * tol, 0
        if since_best > _PATIENCE or rounds.exhausted:
            break
        if violation > _ENOUGH * last_violation:
            penalty = min(penalty * _PENALTY_GROWTH, _LARGEST_PENALTY)
        last_violation, inner_tol = violation, 0.1 * inner_tol
    return rounds.ended("solved_inaccurate")


def _along_the_path(rounds: _Rounds, program: ConicProgram, fraction: float = InteriorPoint.step_fraction) -> ConstrainedOutcome | None:
    """Follow the central path until the gap has closed; None if rounding ends it before."""
    problem, worse, sizes = rounds.problem, 0, np.array([constraint.size for constraint in rounds.problem.constraints])
    worth_a_look = _LOOK * rounds.tol / max(problem.size, 1e-200)
    point, multipliers = problem.point(centre(problem.space.rank, problem.space.T)), Multipliers(np.zeros(sizes.shape[0]))
    for C, multipliers, mu in central_path(program, fraction):
        rounds.n_iter += 1
        point, late, over = problem.point(C), rounds.deadline.passed, rounds.n_iter >= rounds.max_iter
        if float(np.abs(multipliers.weights * sizes).max()) > _RUNAWAY * max(problem.size, 1e-200):  # as they do if nothing is feasible
            break
        if mu * C.shape[0] > worth_a_look and not late and not over:
            continue
        worse = 0 if rounds.record(point, multipliers, along_the_path=True) else worse + 1
        if rounds.stopped(C):
            return rounds.ended("interrupted")
        if rounds.solved:
            return rounds.ended("solved")
        if late or over:
            return rounds.ended("time_limit" if late else "max_iter")
        if worse > _PATIENCE:
            break
    if rounds.best is None:
        rounds.record(point, multipliers)
    return None


def _proof_of_emptiness(rounds: _Rounds, C: Array) -> ConstrainedOutcome | None:
    """Minimise the violation; if multipliers then prove that it is positive everywhere, say so."""
    problem = rounds.problem
    objective = problem.infeasibility()
    least = objective.value(objective.point(C))
    outcome = rounds.inner(objective, C, 1e-6 * least, to_the_end=True)
    point = problem.point(outcome.point.C)
    assert isinstance(objective.term, Augmented)
    w = objective.term.updated(point.a, point.C)
    if problem.certified_violation(w, point) <= 0.0:
        return None
    G = factor(point.C)
    at = problem.point(G @ G.T)
    return ConstrainedOutcome(
        G, Multipliers(w), problem.value(at), np.inf, problem.violation(at), "infeasible", rounds.n_iter, rounds.history
    )
