"""The loop, written once: a solver is an immutable object with options that only says how to start
and how to step.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, fields, replace
from typing import Any, ClassVar, NamedTuple

import numpy as np

from ksos.functionals import BoundTerm, Objective, Point
from ksos.ground.arrays import Array, is_numpy, linalg_errors, namespace
from ksos.ground.run import Run, TimeUp
from ksos.ground.validation import as_callback, as_count
from ksos.solvers.certificate import certify
from ksos.solvers.solution import Progress

__all__ = ["Outcome", "Solver", "Stage", "Stepper", "Watch", "iterate"]

Watch = Callable[[Progress], Any]
"""Called with every certificate; a true answer stops the run."""

_ROUNDING = 1e-14  # a lower objective by less is rounding: some fifty units in the last place
_MAY_BE_ZERO = {"extra_steps", "face_columns", "dense_unknowns"}
_FIRST_STEP = 3.0  # certificates: about what the first step takes at least
# A run whose gap has not halved for long is given up: for twice as long as it took to get there,
# and for more certificates and seconds than a healthy run of benchmarks/solvers ever needs.
_HALVINGS = 2.0  # times the seconds until the last halving
_CERTIFICATES = 8  # certificates, since one of them may be unlucky
_SECONDS = 5.0  # seconds, so that short runs are never given up
_EXTRA_DIGITS = 1e-4  # of the goal: four more digits, where they cost next to nothing
_EXTRA_SIZE = 400  # the largest r of such extra steps: above, a dense eigenvalue takes 10 ms


@dataclass(frozen=True, kw_only=True)
class Solver(ABC):
    """How to minimize. Solvers are frozen dataclasses: those with the same options are equal.

    ``callback`` is called with a :class:`~ksos.solvers.Progress` at every certificate. A true
    return value stops the run. ``minimize`` prefers its own ``callback`` and ``max_iter``, if they
    are given.

    >>> from ksos.solvers import LowRank
    >>> how: Solver = LowRank(max_columns=40)
    >>> how == LowRank(max_columns=40), how.name
    (True, 'low_rank')
    """

    name: ClassVar[str]
    callback: Watch | None = field(default=None, repr=False)

    def __post_init__(self) -> None:
        as_callback(self.callback, f"callback of {type(self).__name__}")
        for option in fields(self):
            value = vars(self)[option.name]
            if option.type == "int" or (option.type == "int | None" and value is not None):
                as_count(
                    value,
                    f"{option.name} of {type(self).__name__}",
                    minimum=0 if option.name in _MAY_BE_ZERO else 1,
                )

    @abstractmethod
    def plan(self, objective: Objective) -> Sequence[Stage]:
        """The algorithms to run in turn, each from where the one before has stopped."""

    def inner_solvers(self, objective: Objective) -> Sequence[Stepper]:
        """Those that minimise the augmented Lagrangian of a constrained problem."""
        return [stage.solver for stage in self.plan(objective)]


class Stage(NamedTuple):
    """An algorithm, how many steps it is given (None: its own limit), and why it was chosen."""

    solver: Stepper
    steps: int | None
    why: str


class Stepper(Solver):
    """An iterative algorithm on the spectraplex."""

    max_iter: int  # how many steps it takes where the user does not say
    extra_steps: int = 0
    """How many more steps to take, once the gap is at most tol, for four more digits: worth it
    where each one brings some.
    """
    max_columns: int | None = None  # of a factor: with such a limit the gap may stay open
    check_every: int | None = None
    advice: ClassVar[str] = ""  # what to say where its steps were not enough

    @property
    def certifies_ends(self) -> bool:
        """Whether the start is certified, which may be all there is to do, and the end once more."""
        return True

    @property
    def patience(self) -> int:
        """After how many certificates in a row without a better gap or objective no more can be
        gained.
        """
        return 400 if self.max_columns is None else 20

    def plan(self, objective: Objective) -> Sequence[Stage]:
        """Itself."""
        return [Stage(self, None, "asked for")]

    def refusal(self, term: BoundTerm) -> str | None:
        """What the functional lacks and which solver to take instead; None if this one can take it:
        for most, a gradient is enough.
        """
        return None

    def prepared(self, objective: Objective) -> Objective:
        """The objective in the form that suits the algorithm."""
        return objective

    def interval(self, objective: Objective) -> int:
        """How many steps to take from one certificate to the next."""
        return self.check_every or 1

    @abstractmethod
    def init(self, objective: Objective, start: Point) -> Any:
        """The state at a feasible start."""

    @abstractmethod
    def step(self, objective: Objective, state: Any) -> Any:
        """The next state."""

    def is_stuck(self, state: Any) -> bool:
        """Whether another algorithm, if there is one, had better go on."""
        return False

    def is_quick(self, state: Any) -> bool:
        """Whether steps beyond the tolerance cost next to nothing."""
        return True

    def point(self, state: Any) -> Point:
        """The feasible point of a state."""
        return state.point


@dataclass(frozen=True)
class Outcome:
    """The best point of a run and why it ended."""

    point: Point
    status: str
    n_iter: int
    history: list[Progress]


class _StopRequested(Exception):
    """A callback has returned a true value."""


class _Record:
    """The certificates of a run so far: its best point, and how long there has been no better one."""

    def __init__(self, objective: Objective, start: Point, tol: float, rtol: float) -> None:
        self.objective, self.tol, self.rtol = objective, tol, rtol
        self.point, self.gap, self.goal = start, np.inf, tol
        self.history: list[Progress] = []
        self.least, self.since_best = np.inf, 0
        self.half, self.since_half, self.when_half = np.inf, 0, 0.0
        self.watching = False  # whether a callback runs, whose errors are not ours

    def check(self, n_iter: int, point: Point, watch: Watch | None) -> bool:
        """Certify a point. Whether the run may end with it."""
        objective, gap, _ = certify(self.objective, point)
        elapsed = Run.current().elapsed
        self.since_best += 1
        if objective < self.least - _ROUNDING * abs(objective):
            self.least, self.since_best = objective, 0
        if gap < self.gap:
            self.point, self.gap, self.since_best = point, gap, 0
        self.since_half += 1
        if self.gap <= 0.5 * self.half:
            self.half, self.since_half, self.when_half = self.gap, 0, elapsed
        self.goal = max(self.tol, self.rtol * abs(objective))
        self.history.append(Progress(n_iter, objective, gap, elapsed))
        if watch is not None:
            self.watching = True
            if watch(replace(self.history[-1], parameter=point.C, space=self.objective.space)):
                raise _StopRequested
            self.watching = False
        return gap <= self.goal

    def slow(self) -> bool:
        """Whether the last halving of the gap was so long ago that the next is not worth waiting for."""
        patient = _HALVINGS * self.when_half + _SECONDS
        return self.since_half > _CERTIFICATES and Run.current().elapsed - self.when_half > patient


def iterate(
    solver: Stepper,
    objective: Objective,
    start: Array | Point,
    tol: float,
    max_iter: int | None = None,
    *,
    rtol: float = 0.0,
    watch: Watch | None = None,
    others: bool = False,
) -> Outcome:
    """Iterate until the certified gap is at most ``tol`` or ``rtol``·|f|, or a limit comes first;
    always return the point of least gap.

    A step that would end long after the time limit of the call is not begun. A true answer of
    ``watch`` stops the run, as Ctrl-C does: both give status "interrupted". If there are ``others``
    to go on, a solver that is stuck ends with "max_iter".
    """
    call = Run.current()
    limit, every = solver.max_iter if max_iter is None else max_iter, solver.interval(objective)
    first = start if isinstance(start, Point) else Point(start, None)
    record = _Record(objective, first, tol, rtol)
    n_iter, status, xp = 0, "max_iter", namespace(first.C)
    try:
        longest = 0.0  # seconds of a step
        if solver.certifies_ends:
            if is_numpy(first.C):
                call.require_time(objective.operations, "a first certificate")
            began = call.elapsed
            first = objective.point(first.C, first.F)
            first = replace(first, G=objective.gradient(first))
            if record.check(0, first, watch):
                return Outcome(record.point, "solved", 0, record.history)
            longest = _FIRST_STEP * (call.elapsed - began)
        if call.over or not call.allows(longest):
            return Outcome(record.point, "time_limit", 0, record.history)
        state = solver.init(objective, first)
        solved, extra = False, solver.extra_steps if objective.size <= _EXTRA_SIZE else 0
        while n_iter < limit and not (
            solved
            and (
                extra == 0
                or record.gap <= _EXTRA_DIGITS * record.goal
                or not solver.is_quick(state)
            )
        ):
            began = call.elapsed
            state = solver.step(objective, state)
            took = call.elapsed - began
            longest = took if n_iter == 0 else max(longest, took)
            n_iter += 1
            extra -= solved
            late = call.over or not call.allows(longest)
            if n_iter % every and not late and n_iter < limit:
                continue
            point = solver.point(state)
            if not bool(xp.all(xp.isfinite(point.C))):
                status = "numerical_error"
                break
            solved = record.check(n_iter, point, watch) or solved
            # a run of a given number of steps has an end in any case
            if record.since_best > solver.patience or (max_iter is None and record.slow()):
                status = "solved_inaccurate"
                break
            if late:
                status = "time_limit"
                break
            if others and not solved and solver.is_stuck(state):
                break
    except KeyboardInterrupt:
        call.interrupt()
        return Outcome(record.point, "interrupted", n_iter, record.history)
    except _StopRequested:
        return Outcome(record.point, "interrupted", n_iter, record.history)
    except TimeUp:
        if not record.history:
            raise
        status = "time_limit"
    except linalg_errors():
        if record.watching:
            raise
        status = "numerical_error"
    if record.gap <= record.goal:
        status = "solved"
    return Outcome(record.point, status, n_iter, record.history)
