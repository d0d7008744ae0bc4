"""The loop, written once: a solver is an immutable object with options that only says how to start
and how to step.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, fields, replace
from typing import Any, ClassVar, NamedTuple

import numpy as np

from ksos.functionals.base import BoundTerm
from ksos.functionals.objective import Objective, Point
from ksos.ground.arrays import Array, is_numpy, linalg_errors, namespace
from ksos.ground.deadline import TimeUp, require_time
from ksos.ground.progress import tell_stopping
from ksos.ground.validation import as_callback, as_count
from ksos.solvers.certificate import certify
from ksos.solvers.solution import Progress

__all__ = ["Outcome", "Solver", "Stage", "Stepper", "Watch", "run"]

Watch = Callable[[Progress], Any]
"""Called with every certificate; a true answer stops the run."""

_ROUNDING = 1e-14
_MAY_BE_ZERO = {"extra_steps", "face_columns", "dense_unknowns"}
_FIRST_STEP = 3.0  # certificates: about what the first step takes at least
_HALVINGS, _CERTIFICATES, _SECONDS = (
    2.0,
    8,
    5.0,
)  # without half the gap: twice as long as it took to get there, and more than this
_EXTRA_DIGITS, _EXTRA_SIZE = 1e-4, 400  # more digits where they cost next to nothing


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
    keyboard: bool = False  # whether Ctrl-C ended it


class _StopRequested(Exception):
    """A callback has returned a true value."""


def run(
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

    The time limit is the objective's deadline; a step that would end long after it is not begun. A
    true answer of ``watch`` stops the run, as Ctrl-C does: both give status "interrupted". Where
    there are ``others`` to go on, a solver that is stuck ends with "max_iter".
    """
    limit, every, deadline = (
        solver.max_iter if max_iter is None else max_iter,
        solver.interval(objective),
        objective.deadline,
    )
    best_point, best_gap, goal, least, since_best = (
        start if isinstance(start, Point) else Point(start, None),
        np.inf,
        tol,
        np.inf,
        0,
    )
    history: list[Progress] = []
    n_iter, status, watching, xp = 0, "max_iter", False, namespace(best_point.C)
    half, since_half, when_half = np.inf, 0, 0.0

    def stalled() -> bool:
        """Whether no more can be gained, or so slowly that it is not worth while; a run of so many
        steps has an end in any case.
        """
        patient = _HALVINGS * when_half + _SECONDS
        slow = (
            max_iter is None
            and since_half > _CERTIFICATES
            and deadline.elapsed - when_half > patient
        )
        return slow or since_best > solver.patience

    def check(n_iter: int, point: Point) -> bool:
        """Certify a point; whether the run may end with it."""
        nonlocal \
            best_point, \
            best_gap, \
            goal, \
            least, \
            since_best, \
            watching, \
            half, \
            since_half, \
            when_half
        certificate = certify(objective, point)
        since_best += 1
        if certificate.objective < least - _ROUNDING * abs(certificate.objective):
            least, since_best = certificate.objective, 0
        if certificate.gap < best_gap:
            best_point, best_gap, since_best = point, certificate.gap, 0
        since_half += 1
        if best_gap <= 0.5 * half:
            half, since_half, when_half = best_gap, 0, deadline.elapsed
        goal = max(tol, rtol * abs(certificate.objective))
        history.append(Progress(n_iter, certificate.objective, certificate.gap, deadline.elapsed))
        if watch is not None:
            watching = True
            if watch(replace(history[-1], parameter=point.C, space=objective.space)):
                raise _StopRequested
            watching = False
        return certificate.gap <= goal

    try:
        first, longest = best_point, 0.0
        if solver.certifies_ends:
            if is_numpy(first.C):
                require_time(objective.operations, "a first certificate")
            longest = -deadline.elapsed
            first = objective.point(first.C, first.F)
            first = replace(first, G=objective.gradient(first))
            if check(0, first):
                return Outcome(best_point, "solved", 0, history)
            longest = _FIRST_STEP * (longest + deadline.elapsed)
        if deadline.passed or not deadline.allows(longest):
            return Outcome(best_point, "time_limit", 0, history)
        state = solver.init(objective, first)
        solved, extra = False, solver.extra_steps if objective.size <= _EXTRA_SIZE else 0
        while n_iter < limit and not (
            solved
            and (extra == 0 or best_gap <= _EXTRA_DIGITS * goal or not solver.is_quick(state))
        ):
            began = deadline.elapsed
            state = solver.step(objective, state)
            longest = (
                deadline.elapsed - began if n_iter == 0 else max(longest, deadline.elapsed - began)
            )
            n_iter += 1
            extra -= solved
            late = deadline.passed or not deadline.allows(longest)
            if n_iter % every == 0 or late or n_iter == limit:
                point = solver.point(state)
                if finite := bool(xp.all(xp.isfinite(point.C))):
                    solved = check(n_iter, point) or solved
                status = (
                    "numerical_error"
                    if not finite
                    else "solved_inaccurate"
                    if stalled()
                    else "time_limit"
                    if late
                    else status
                )
                if status != "max_iter" or (others and not solved and solver.is_stuck(state)):
                    break
    except (KeyboardInterrupt, _StopRequested) as stop:
        if isinstance(stop, KeyboardInterrupt):
            tell_stopping()
        return Outcome(
            best_point, "interrupted", n_iter, history, keyboard=isinstance(stop, KeyboardInterrupt)
        )
    except TimeUp:
        if not history:
            raise
        status = "time_limit"
    except linalg_errors():
        if watching:  # the callback's own error
            raise
        status = "numerical_error"
    if best_gap <= goal:
        status = "solved"
    return Outcome(best_point, status, n_iter, history)
