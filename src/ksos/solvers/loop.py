"""The loop, written once: a solver is an immutable object with options that only says how to start
and how to step. Beside it are what it shows on its way, and the solution at its end.
"""

from __future__ import annotations

import math
from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, fields, replace
from functools import cached_property
from typing import Any, ClassVar, NamedTuple

import numpy as np

from ksos.density import SoSDensity
from ksos.functionals import BoundTerm, Objective, Point
from ksos.ground import (
    Array,
    Run,
    TimeUp,
    as_callback,
    as_count,
    is_numpy,
    linalg_errors,
    namespace,
)
from ksos.solvers.spectraplex import certify, factor
from ksos.space.space import SoSSpace

_MAY_BE_ZERO = {"extra_steps", "face_columns", "dense_unknowns"}

STATUSES = {
    "solved": "the gap is at most tol",
    "solved_inaccurate": (
        "no further progress, or hardly any, with the gap above tol; raise tol (gap_relative is"
        " how far)"
    ),
    "max_iter": "the iteration limit came first; raise max_iter or tol",
    "time_limit": "the time limit came first; raise time_limit or tol",
    "interrupted": "stopped from outside; the best point so far is kept",
    "numerical_error": (
        "a matrix routine failed; the last certified point is kept; raise tol_model or the"
        " regularization"
    ),
    "infeasible": (
        "no density of the space meets the constraints, which is proven; the density returned"
        " violates them least"
    ),
    "stationary": (
        "no direction improves the point; the functional is not declared convex, so nothing is"
        " certified"
    ),
}


@dataclass(frozen=True)
class Progress:
    """One line of the history, and what a callback receives.

    Attributes
    ----------
    n_iter : int
    objective, gap : float
        At this certificate.
    time : float
        Seconds since the call began.
    parameter, space : array, SoSSpace
        C at this certificate. Only a callback sees it: the history does not keep it.
    distribution : SoSDensity
        The density at this certificate, computed when a callback asks for it.

    Examples
    --------
    >>> import ksos
    >>> from ksos.functionals import SquaredMMD
    >>> space = ksos.SoSSpace(ksos.kernels.Gaussian(1.0), [[0.0], [1.0]])
    >>> seen = []
    >>> solution = ksos.minimize(SquaredMMD([[0.3]]), space, callback=seen.append)
    >>> isinstance(seen[-1], Progress), seen == solution.history
    (True, True)
    """

    n_iter: int
    objective: float
    gap: float
    time: float
    parameter: Array | None = field(default=None, compare=False, repr=False)
    space: SoSSpace | None = field(default=None, compare=False, repr=False)

    @property
    def distribution(self) -> SoSDensity:
        """The density at this certificate, computed when a callback asks for it."""
        if self.parameter is None or self.space is None:
            raise ValueError(
                "the history keeps no densities; ask for progress.distribution inside a callback"
            )
        return self.space.density(factor(self.parameter))


@dataclass(frozen=True)
class Solution:
    """The result of :func:`ksos.minimize`.

    Attributes
    ----------
    distribution : SoSDensity
        The density found: always valid, whatever the status.
    objective : float
        f at the density.
    gap : float or None
        f(C) − f* ≤ gap, recomputed from scratch at the point returned. With constraints it is that
        of the Lagrangian. None if nothing is certified, because the functional is not declared
        convex or no feasible point was found.
    projected_mmd_bound : float or None
        With a squared MMD in f, the projected MMD between this density and the optimal one is at
        most this.
    status : str
        One of :data:`~ksos.solvers.STATUSES`.
    solver, solver_reason : str
        The solver at the end, and every solver that ran with the reason for its choice.
    n_iter, history : int, list of Progress
        Iterations, and a line for each certificate.
    space, parameter_factor : SoSSpace, array (r, k)
        The space, and G with C = GGᵀ: the point in its whitened parameters.
    time : float
        Seconds of the whole call.
    keyboard_interrupt : bool
        Whether an interrupted run was ended by Ctrl-C, not by a callback.
    multipliers : tuple of float
        One per constraint: −∂f*/∂c for F ≤ c and F = c, ∂f*/∂c for F ≥ c.
    ball_vectors : dict
        For MMD balls, by their position among the constraints: v of R^q, multiplier ``|v|``.
        The gap counts the ball as ``⟨v, A(C) − z⟩ ≤ radius·|v|``, which holds on it for any v.
    violation : float
        By how much the density violates the constraints, each in units of its own range.
    least_radius : float or None
        If an MMD ball is empty, the certified radius below which it holds no density of the space.
    integration_error : float
        Estimate of how far the objective is off because of quadrature. 0 for closed forms.
    note : str
        What else there is to say about the status.

    Examples
    --------
    >>> import ksos
    >>> from ksos.functionals import SquaredMMD, Trace
    >>> space = ksos.SoSSpace(ksos.kernels.Gaussian(1.0), [[0.0], [1.0]])
    >>> solution: Solution = ksos.minimize(SquaredMMD([[0.0], [1.0]]) + 1e-3 * Trace(), space)
    >>> solution.status, solution.gap <= 1e-8, solution.distribution.mean().round(3).tolist()
    ('solved', True, [0.5])
    """

    objective: float
    gap: float | None
    projected_mmd_bound: float | None
    status: str
    solver: str
    n_iter: int
    history: list[Progress] = field(repr=False)
    space: SoSSpace = field(repr=False)
    parameter_factor: Array = field(repr=False)
    time: float = 0.0
    solver_reason: str = ""
    keyboard_interrupt: bool = False
    multipliers: tuple[float, ...] = ()
    ball_vectors: Mapping[int, Any] = field(default_factory=dict, repr=False)
    violation: float = 0.0
    least_radius: float | None = None
    integration_error: float = 0.0
    note: str = ""

    @cached_property
    def distribution(self) -> SoSDensity:
        """The density found: always valid, whatever the status."""
        return self.space.density(self.parameter_factor)

    @property
    def rank(self) -> int:
        """The number of squares of the density."""
        return int(self.parameter_factor.shape[1])

    @property
    def gap_relative(self) -> float | None:
        """``gap / |objective|``."""
        if self.gap is None or self.objective == 0.0:
            return None if self.gap is None else 0.0 if self.gap == 0.0 else math.inf
        return self.gap / abs(self.objective)

    @property
    def message(self) -> str:
        """The status in a sentence, with the gap."""
        gap = "no gap" if self.gap is None else f"gap {self.gap:.2e}"
        note = f"; {self.note}" if self.note else ""
        return (
            f"{self.solver}: {self.status} after {self.n_iter} iterations, {gap}:"
            f" {STATUSES[self.status]}{note}"
        )

    @property
    def dual_bound(self) -> float | None:
        """objective − gap: the certified lower bound of the optimum."""
        return None if self.gap is None else self.objective - self.gap

    def summary(self) -> dict[str, Any]:
        """What ran and what is certified, as plain numbers and words."""
        names = (
            "status",
            "solver",
            "solver_reason",
            "n_iter",
            "objective",
            "gap",
            "gap_relative",
            "projected_mmd_bound",
        )
        return {name: getattr(self, name) for name in names}

    @property
    def parameter(self) -> Array:
        """C = GGᵀ."""
        return self.parameter_factor @ self.parameter_factor.T


def known_to(uncertainty: float, tol: float) -> str:
    """What to say of integrals that are not known well enough for ``tol``."""
    return (
        f"the integrals are known to {uncertainty:.1e} only, which the gap counts twice"
        if 2.0 * uncertainty > tol
        else ""
    )


def assembled(
    base: Objective,
    outcome: Any,
    G: Array,
    value: float,
    gap: float | None,
    status: str,
    name: str,
    **more: Any,
) -> Solution:
    """The solution at the factor G; ``more`` are those of its fields that not every problem has."""
    run = Run.current()
    return Solution(
        value,
        gap,
        None if gap is None else base.projected_mmd_bound(gap),
        "interrupted" if run.interrupted and status != "infeasible" else status,
        name,
        outcome.n_iter,
        outcome.history,
        base.space,
        G,
        time=run.elapsed,
        keyboard_interrupt=run.interrupted,
        integration_error=base.term.integration_error,
        **more,
    )


# Called with every certificate; a true answer stops the run.
Watch = Callable[[Progress], Any]


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
        owner = type(self).__name__
        as_callback(self.callback, f"callback of {owner}")
        for option in fields(self):
            value, least = vars(self)[option.name], 0 if option.name in _MAY_BE_ZERO else 1
            if option.type == "int" or (option.type == "int | None" and value is not None):
                as_count(value, f"{option.name} of {owner}", minimum=least)

    @abstractmethod
    def plan(self, objective: Objective) -> Sequence[Stage]:
        """The algorithms to run in turn, each from where the one before has stopped."""

    def inner_solvers(self, objective: Objective) -> Sequence[Stepper]:
        """Those that minimize the augmented Lagrangian of a constrained problem."""
        return [stage.solver for stage in self.plan(objective)]


class Stage(NamedTuple):
    """An algorithm, how many steps it is given (None: its own limit), and why it was chosen."""

    solver: Stepper
    steps: int | None
    why: str


class Stepper(Solver):
    """An iterative algorithm on the spectraplex."""

    max_iter: int  # how many steps it takes if the user does not set it
    # how many more steps to take, once the gap is at most tol, for four more digits: worth it where
    # each one brings some
    extra_steps: int = 0
    max_columns: int | None = None  # of a factor: with such a limit the gap may stay open
    check_every: int | None = None
    #: The attribute of a :class:`~ksos.functionals.BoundTerm` without which the solver cannot run.
    #: None: gradients are enough.
    needs: ClassVar[str | None] = None
    #: What that is in words, and which solver to take if it is missing.
    needs_in_words: ClassVar[str] = ""
    advice: ClassVar[str] = ""  # what to say if its steps were not enough

    # raise if the functional lacks what the solver needs
    def require(self, term: BoundTerm, name_of_f: str) -> None:
        if self.needs is not None and not getattr(term, self.needs):
            raise ValueError(
                f"solver={self.name!r} cannot take {name_of_f}: it {self.needs_in_words}"
            )

    # whether the start is certified, which may be all there is to do, and the end once more
    @property
    def certifies_ends(self) -> bool:
        return True

    @property
    def patience(self) -> int:
        """After how many certificates in a row without a better gap or objective no more can be
        gained.
        """
        return 400 if self.max_columns is None else 20

    def plan(self, objective: Objective) -> Sequence[Stage]:
        return [Stage(self, None, "asked for")]

    # the objective in the form that suits the algorithm
    def prepared(self, objective: Objective) -> Objective:
        return objective

    # how many steps to take from one certificate to the next
    def interval(self, objective: Objective) -> int:
        return self.check_every or 1

    @abstractmethod
    def init(self, objective: Objective, start: Point) -> Any:
        """The state at a feasible start. A state has a feasible ``point``."""

    @abstractmethod
    def step(self, objective: Objective, state: Any) -> Any:
        """The next state."""

    # whether another algorithm, if there is one, had better go on
    def is_stuck(self, state: Any) -> bool:
        return False

    # whether steps beyond the tolerance cost next to nothing
    def is_quick(self, state: Any) -> bool:
        return True


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
    """The certificates of a run so far, and its best point."""

    def __init__(self, objective: Objective, start: Point, tol: float, rtol: float) -> None:
        self.objective, self.tol, self.rtol = objective, tol, rtol
        self.point, self.gap, self.goal = start, np.inf, tol
        self.history: list[Progress] = []
        self.least, self.since_best = np.inf, 0
        self.half, self.since_half, self.when_half = np.inf, 0, 0.0
        self.watching = False  # whether a callback runs, whose errors are not ours

    # certify a point. Whether the run may end with it
    def check(self, n_iter: int, point: Point, watch: Watch | None) -> bool:
        objective, gap, _ = certify(self.objective, point)
        elapsed = Run.current().elapsed
        self.since_best += 1
        # a lower objective by less is rounding: some fifty units in the last place
        if objective < self.least - 1e-14 * abs(objective):
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

    # whether the gap was last halved so long ago that it is not worth waiting on
    def slow(self) -> bool:
        # Twice as long as it took to get there, and more certificates and seconds than a healthy
        # run of benchmarks/solvers ever needs.
        waited = Run.current().elapsed - self.when_half
        return self.since_half > 8 and waited > 2.0 * self.when_half + 5.0


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
            longest = 3.0 * (call.elapsed - began)  # about what the first step takes at least
        if call.over or not call.allows(longest):
            return Outcome(record.point, "time_limit", 0, record.history)
        state = solver.init(objective, first)
        # above, a dense eigenvalue takes 10 ms, which is too long for extra steps
        solved, extra = False, solver.extra_steps if objective.space.rank <= 400 else 0
        while n_iter < limit:
            if solved and (extra == 0 or not solver.is_quick(state)):
                break
            if solved and record.gap <= 1e-4 * record.goal:  # four more digits are enough
                break
            began = call.elapsed
            state = solver.step(objective, state)
            took = call.elapsed - began
            longest = took if n_iter == 0 else max(longest, took)
            n_iter += 1
            extra -= solved
            late = call.over or not call.allows(longest)
            if n_iter % every and not late and n_iter < limit:
                continue
            point = state.point
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
    except (KeyboardInterrupt, _StopRequested) as stopped:
        if isinstance(stopped, KeyboardInterrupt):
            call.interrupt()
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
