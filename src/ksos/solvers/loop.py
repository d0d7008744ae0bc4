"""The loop, written once: a solver only says how to start and how to step."""

from __future__ import annotations

import time
from abc import ABC, abstractmethod
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, ClassVar

import numpy as np

from ksos._array import Array, linalg_errors, namespace
from ksos.functionals.base import BoundTerm
from ksos.functionals.objective import Objective, Point
from ksos.solvers.certificate import Certificate, certify
from ksos.solvers.solution import Progress

__all__ = ["Limits", "Outcome", "Stepper", "run"]

_ROUNDING = 1e-14
_EXTRA_DIGITS, _EXTRA_SIZE = 1e-4, 400  # more digits where they cost next to nothing


class Stepper(ABC):
    """An iterative algorithm on the spectraplex."""

    default_max_iter: ClassVar[int]
    check_every: int
    extra_steps: ClassVar[int] = 0
    """How many more steps to take, once the gap is at most tol, for four more digits: worth it where each one brings some."""
    patience: ClassVar[int] = 400
    """Certificates in a row without a better gap or objective after which rounding has the last word."""

    def refusal(self, term: BoundTerm) -> str | None:
        """What the functional lacks and which solver to take instead; None where this one can take it: for most, a gradient is enough."""
        return None

    @abstractmethod
    def init(self, objective: Objective, C: Array) -> Any:
        """The state at a feasible start."""

    @abstractmethod
    def step(self, objective: Objective, state: Any) -> Any:
        """The next state."""

    @abstractmethod
    def point(self, state: Any) -> Point:
        """The feasible point of a state."""


@dataclass(frozen=True)
class Limits:
    """When to stop."""

    tol: float
    max_iter: int
    time_limit: float | None = None


@dataclass(frozen=True)
class Outcome:
    """The best point of a run and why it ended."""

    point: Point
    status: str
    n_iter: int
    history: list[Progress]
    keyboard: bool = False
    """Whether it was Ctrl-C that ended it."""


class _StopRequested(Exception):
    """A callback has returned a true value."""


def run(
    stepper: Stepper,
    objective: Objective,
    C: Array,
    limits: Limits,
    callback: Callable[[Progress], Any] | None,
    report: Callable[[Progress], Any] | None,
) -> Outcome:
    """Iterate until the certified gap is at most ``limits.tol`` or a limit comes first; always return the point with the least gap.

    ``callback`` gets every :class:`Progress`; a true return value stops the run, as Ctrl-C does: both give status "interrupted".
    """
    began = time.perf_counter()
    best_point, best_gap, least, since_best = Point(C, None), np.inf, np.inf, 0
    history: list[Progress] = []
    n_iter, status = 0, "max_iter"

    def check(n_iter: int, point: Point) -> bool:
        """Certify a point; whether the run may end with it."""
        nonlocal best_point, best_gap, least, since_best
        certificate: Certificate = certify(objective, point)
        since_best += 1
        if certificate.objective < least - _ROUNDING * abs(certificate.objective):
            least, since_best = certificate.objective, 0
        if certificate.gap < best_gap:
            best_point, best_gap, since_best = point, certificate.gap, 0
        history.append(Progress(n_iter, certificate.objective, certificate.gap, time.perf_counter() - began))
        if report is not None:
            report(history[-1])
        if callback is not None and callback(history[-1]):
            raise _StopRequested
        return certificate.gap <= limits.tol

    try:
        if check(0, objective.point(C)):
            return Outcome(best_point, "solved", 0, history)
        state = stepper.init(objective, C)
        solved, extra = False, stepper.extra_steps if objective.size <= _EXTRA_SIZE else 0
        while n_iter < limits.max_iter and not (solved and (extra == 0 or best_gap <= _EXTRA_DIGITS * limits.tol)):
            state = stepper.step(objective, state)
            n_iter += 1
            extra -= solved
            late = limits.time_limit is not None and time.perf_counter() - began > limits.time_limit
            if n_iter % stepper.check_every == 0 or late or n_iter == limits.max_iter:
                point = stepper.point(state)
                if not _finite(point.C):
                    status = "numerical_error"
                    break
                solved = check(n_iter, point) or solved
                if since_best > stepper.patience:
                    status = "solved_inaccurate"
                    break
            if late:
                status = "time_limit"
                break
    except (KeyboardInterrupt, _StopRequested) as stop:
        return Outcome(best_point, "interrupted", n_iter, history, keyboard=isinstance(stop, KeyboardInterrupt))
    except linalg_errors():
        status = "numerical_error"
    if best_gap <= limits.tol:
        status = "solved"
    return Outcome(best_point, status, n_iter, history)


def _finite(C: Array) -> bool:
    xp = namespace(C)
    return bool(xp.all(xp.isfinite(C)))
