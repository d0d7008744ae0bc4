"""Constrained problems: an augmented Lagrangian around the solvers of the spectraplex, certified by the Lagrangian's gap.

For multipliers w (w_i ≥ 0 on inequalities) and any C, the optimum is at least L(C) − [⟨∇L(C), C⟩ − λ_min(∇L(C))], L = f + Σ w_i g_i: the
certificate of the unconstrained problem, applied to the Lagrangian. A feasible point gives the other side.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from ksos._array import Array, inner, like, namespace, to_numpy
from ksos.functionals.objective import Objective, Point
from ksos.solvers.augmented import Augmented
from ksos.solvers.conic import ConicProgram, central_path
from ksos.solvers.constrained_problem import ConstrainedProblem, Prices
from ksos.solvers.loop import Limits, Outcome, Stepper, run
from ksos.solvers.restoration import restored
from ksos.solvers.solution import Progress
from ksos.solvers.spectraplex import centre, factor

__all__ = ["FEASIBLE", "ConstrainedOutcome", "follow_central_path", "solve_constrained"]

FEASIBLE = 1e-11
"""A violation, in units of a constraint's size, that is rounding."""

_MOST_ROUNDS = 60
_FIRST_PENALTY, _LATER_PENALTY, _PENALTY_GROWTH, _LARGEST_PENALTY = 10.0, 100.0, 10.0, 1e10
_ENOUGH = 0.1  # a round that brings the violation below this fraction of the last one needs no larger penalty
_PATIENCE = 4  # rounds in a row without a smaller gap after which rounding has the last word
_LOOK = 1e3  # the interior point's iterates are certified from a mean product of this many times the tolerance on
_AFTERWARDS = 500  # steps that the rounds may take after the interior point has found a feasible point: what it leaves is rounding
_NEAR_THE_RIM = 1e-4  # in units of a constraint's size
_NO_TIME = 1e-3
_VANISHING = 1e-7
_RUNAWAY = 1e12
_DOUBTFUL = 1e3  # a penalty from which on a violation that stays raises the question whether anything is feasible


@dataclass(frozen=True)
class ConstrainedOutcome:
    """The best point, the multipliers that bound the optimum from below, and why the rounds ended."""

    G: Array
    """A factor of the point; feasible unless ``violation`` says otherwise."""
    prices: Prices
    objective: float
    bound: float
    """The Lagrangian's lower bound at GGᵀ with these prices."""
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
        limits: Limits,
        callback: Callable[[Progress], Any] | None,
        report: Callable[[Progress], Any] | None,
    ) -> None:
        self.problem, self.steppers, self.limits, self.stage = problem, steppers, limits, 0
        self.callback, self.report = callback, report
        self.began = time.perf_counter()
        self.history: list[Progress] = []
        self.n_iter = 0
        self.best: ConstrainedOutcome | None = None
        self.last_step: int | None = None
        """After so many steps the rounds end for want of progress."""

    @property
    def left(self) -> Limits:
        """What of the limits is left."""
        seconds, most = self.limits.time_limit, self.limits.max_iter
        rest = None if seconds is None else max(seconds - (time.perf_counter() - self.began), 1e-3)
        most = most if self.last_step is None else min(most, self.last_step)
        return replace(self.limits, max_iter=max(most - self.n_iter, 1), time_limit=rest)

    @property
    def exhausted(self) -> bool:
        """Whether the steps that were left after the interior point have been taken."""
        return self.last_step is not None and self.n_iter >= self.last_step

    def after_the_path(self) -> None:
        """Few more steps, where the interior point has found a feasible point."""
        if self.best is not None and self.best.violation <= FEASIBLE:
            self.last_step = self.n_iter + _AFTERWARDS

    def inner(self, objective: Objective, C: Array, tol: float, *, to_the_end: bool) -> Outcome:
        """One unconstrained problem, by the current stepper; who has used up its steps gives way to the next one, here or next time."""
        while True:
            (stepper, most), limits = self.steppers[self.stage], replace(self.left, tol=tol)
            if most is not None:
                limits = replace(limits, max_iter=min(limits.max_iter, most))
            outcome = run(stepper, objective, C, limits, None, None)
            self.n_iter += outcome.n_iter
            if (
                outcome.status != "max_iter"
                or self.n_iter >= self.limits.max_iter
                or self.exhausted
                or self.stage + 1 == len(self.steppers)
            ):
                return outcome
            self.stage, C = self.stage + 1, outcome.point.C
            if not to_the_end:
                return outcome

    def announced(self) -> bool:
        """Tell the listeners of the latest progress; whether one of them wants to stop."""
        return any(listener is not None and bool(listener(self.history[-1])) for listener in (self.report, self.callback))

    def resumed(self) -> tuple[Array, np.ndarray]:
        """Where the rounds go on after the interior point: its best point, without what will vanish with μ, and the multipliers."""
        assert self.best is not None
        G = self.best.G
        weights = to_numpy(namespace(G).sum(G * G, axis=0))  # the columns of a factor are orthogonal: its eigenvalues
        kept = [j for j, weight in enumerate(weights.tolist()) if weight > _VANISHING]
        G = G[:, kept[0] :] if kept else G  # they ascend
        feasible = self.best.violation <= FEASIBLE
        return G @ G.T / inner(G, G), self.best.prices.weights if feasible else np.zeros(len(self.problem.bounds))

    @property
    def solved(self) -> bool:
        """Whether the best point is feasible and its gap small enough."""
        return self.best is not None and self.best.violation <= FEASIBLE and self.best.gap <= self.limits.tol

    def record(self, point: Point, prices: Prices, *, along_the_path: bool = False) -> bool:
        """Bring the point to the constraints and bound its gap; whether it is the best so far."""
        G = factor(point.C)
        feasible = restored(self.problem, G)
        G = G if feasible is None else feasible
        at = self.problem.point(G @ G.T)
        if along_the_path and feasible is not None:
            G, at = self._at_the_rim(G, at, prices)
        known = [prices] if self.best is None else [prices, self.best.prices]  # rounding may have spoilt the latest ones
        prices, bound = self.problem.best_prices(known, at, G)
        value = self.problem.value(at)
        found = ConstrainedOutcome(G, prices, value, bound, self.problem.violation(at), "max_iter", self.n_iter, self.history)
        found = replace(found, along_the_path=along_the_path)
        self.history.append(Progress(self.n_iter, value, found.gap if feasible is not None else np.inf, time.perf_counter() - self.began))
        better = self.best is None or _rank(found, feasible is not None) < _rank(self.best, self.best.violation <= FEASIBLE)
        if better:
            self.best = found
        return better

    def _at_the_rim(self, G: Array, at: Point, prices: Prices) -> tuple[Array, Point]:
        """The point, or the one at the rim of the constraints that have a price, where f is lower: rounding keeps the path inside."""
        bounds, values = self.problem.bounds, self.problem.excesses(at)
        active = [i for i, bound in enumerate(bounds) if not bound.equality and -_NEAR_THE_RIM * bound.size < values[i] < 0.0]
        worth = [i for i in active if prices.weights[i] * abs(values[i]) > 0.01 * self.limits.tol]
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
    limits: Limits,
    callback: Callable[[Progress], Any] | None,
    report: Callable[[Progress], Any] | None,
    program: ConicProgram | None = None,
    *,
    path_first: bool = False,
) -> ConstrainedOutcome:
    """Rounds of minimising the augmented Lagrangian, then moving the multipliers to those of the minimiser.

    ``steppers`` come with the number of steps that each may take in one round; who needs more gives way for good: to the interior point
    along the central path of ``program``, where there is one, and to the next stepper if that does not close the gap. With
    ``path_first`` the path comes before the first round.
    """
    rounds = _Rounds(problem, steppers, limits, callback, report)
    try:
        return _play(rounds, C, program, path_first=path_first)
    except KeyboardInterrupt:
        if rounds.best is None:
            rounds.record(problem.point(C), Prices(np.zeros(len(problem.bounds))))
        return rounds.ended("interrupted", keyboard=True)


def follow_central_path(problem: ConstrainedProblem, program: ConicProgram, limits: Limits) -> ConstrainedOutcome | None:
    """The interior point alone: its best point, whether or not that closes the gap; None where it finds nothing that is feasible."""
    rounds = _Rounds(problem, [], limits, None, None)
    try:
        found = _along_the_path(rounds, program)
    except KeyboardInterrupt:
        found = None if rounds.best is None else rounds.ended("interrupted", keyboard=True)
        if found is None:
            raise
    if found is None and rounds.best is not None:
        found = rounds.ended("solved_inaccurate")
    return found if found is not None and found.violation <= FEASIBLE else None


def _play(rounds: _Rounds, C: Array, program: ConicProgram | None, *, path_first: bool) -> ConstrainedOutcome:
    problem, limits = rounds.problem, rounds.limits
    sizes = np.array([bound.size for bound in problem.bounds])
    unit = max(problem.size, 1e-12)
    w, penalty = np.zeros(sizes.shape[0]), _FIRST_PENALTY
    last_violation, inner_tol, since_best, doubted = np.inf, 1e-2 * unit, 0, False
    least_gap = least_violation = np.inf
    if path_first and program is not None:
        if (found := _along_the_path(rounds, program)) is not None:
            return found
        rounds.after_the_path()
        program = None
        if rounds.last_step is not None:
            C, w = rounds.resumed()
            penalty, inner_tol = _LATER_PENALTY, 10.0 * limits.tol
    for _ in range(_MOST_ROUNDS):
        objective, stage = problem.augmented(w, penalty * unit / sizes**2), rounds.stage
        outcome = rounds.inner(objective, C, max(inner_tol, 0.1 * limits.tol), to_the_end=program is None)
        C, point = outcome.point.C, problem.point(outcome.point.C)
        assert isinstance(objective.term, Augmented)
        w = objective.term.updated(point.a, C)
        violation = problem.violation(point)
        rounds.record(point, Prices(w))
        gap = rounds.history[-1].gap
        since_best = 0 if gap < least_gap or violation < 0.5 * least_violation else since_best + 1
        least_gap, least_violation = min(gap, least_gap), min(violation, least_violation)
        assert rounds.best is not None
        feasible = rounds.best.violation <= FEASIBLE
        if rounds.announced():
            return rounds.ended("interrupted")
        if outcome.status == "interrupted":
            return rounds.ended("interrupted", keyboard=outcome.keyboard)
        if rounds.solved:
            return rounds.ended("solved")
        if outcome.status in ("time_limit", "numerical_error"):
            return rounds.ended(outcome.status)
        if rounds.n_iter >= limits.max_iter:
            return rounds.ended("max_iter")
        if not feasible and not doubted and penalty >= _DOUBTFUL and violation > _ENOUGH * last_violation:
            doubted = True
            if (empty := _proof_of_emptiness(rounds, C)) is not None:
                return empty
        if program is not None and (rounds.stage > stage or since_best > _PATIENCE):
            if (found := _along_the_path(rounds, program)) is not None:
                return found
            rounds.after_the_path()
            C, w, program, penalty, inner_tol, since_best = *rounds.resumed(), None, max(penalty, _LATER_PENALTY), 10.0 * limits.tol, 0
        if since_best > _PATIENCE or rounds.exhausted:
            break
        if violation > _ENOUGH * last_violation:
            penalty = min(penalty * _PENALTY_GROWTH, _LARGEST_PENALTY)
        last_violation, inner_tol = violation, 0.1 * inner_tol
    return rounds.ended("solved_inaccurate")


def _along_the_path(rounds: _Rounds, program: ConicProgram) -> ConstrainedOutcome | None:
    """Follow the central path until the gap has closed; None where rounding ends it before."""
    problem, worse, sizes = rounds.problem, 0, np.array([bound.size for bound in rounds.problem.bounds])
    worth_a_look = _LOOK * rounds.limits.tol / max(problem.size, 1e-200)
    point, prices = problem.point(centre(problem.space.rank, problem.space.T)), Prices(np.zeros(len(problem.bounds)))
    for C, prices, mu in central_path(program):
        rounds.n_iter += 1
        point, seconds = problem.point(like(C, problem.space.T)), rounds.left.time_limit
        late, over = seconds is not None and seconds <= _NO_TIME, rounds.n_iter >= rounds.limits.max_iter
        if float(np.abs(prices.weights * sizes).max()) > _RUNAWAY * max(problem.size, 1e-200):  # as they do where nothing is feasible
            break
        if mu * C.shape[0] > worth_a_look and not late and not over:
            continue
        worse = 0 if rounds.record(point, prices, along_the_path=True) else worse + 1
        if rounds.announced():
            return rounds.ended("interrupted")
        if rounds.solved:
            return rounds.ended("solved")
        if late or over:
            return rounds.ended("time_limit" if late else "max_iter")
        if worse > _PATIENCE:
            break
    if rounds.best is None:
        rounds.record(point, prices)
    return None


def _proof_of_emptiness(rounds: _Rounds, C: Array) -> ConstrainedOutcome | None:
    """Minimise the violation; where multipliers then prove that it is positive everywhere, say so."""
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
    return ConstrainedOutcome(G, Prices(w), problem.value(at), np.inf, problem.violation(at), "infeasible", rounds.n_iter, rounds.history)
