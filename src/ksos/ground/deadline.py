"""One deadline for all stages of a public call."""

from __future__ import annotations

import math
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from typing import Any

import numpy as np

from ksos.ground.run import Run, Setup, TimeUp
from ksos.ground.validation import as_positive

SetUp = Setup

__all__ = [
    "Deadline",
    "SetUp",
    "TimeUp",
    "as_time_limit",
    "ended_by",
    "require_time",
    "running",
    "set_up",
    "set_up_is_over",
]

_LATE = 0.25  # of the time limit: by so much a step that cannot be interrupted may end after it
_TRIAL, _TRIALS = 512, 2  # the size of the matrices whose product tells how fast the machine is


_ended: ContextVar[Callable[[], bool]] = ContextVar("ended", default=lambda: False)


@contextmanager
def ended_by(end: Callable[[], bool]) -> Iterator[None]:
    """Inside, every deadline has passed as soon as ``end`` says so: a way to cancel all stages of a
    call, from another thread.

    >>> import threading
    >>> end = threading.Event()
    >>> with ended_by(end.is_set):
    ...     before, _, after = Deadline().passed, end.set(), Deadline().passed
    >>> before, after, Deadline().passed
    (False, True, False)
    """
    token = _ended.set(end)
    try:
        with Run(cancelled=end):
            yield
    finally:
        _ended.reset(token)


class Deadline:
    """When a call must end, counted from when the deadline was made. Every stage of the call looks
    at the same one.

    >>> ticks = iter([0.0, 1.5, 2.5])
    >>> deadline = Deadline(2.0, clock=lambda: next(ticks))
    >>> deadline.passed, deadline.passed
    (False, True)
    """

    def __init__(
        self, seconds: float | None = None, clock: Callable[[], float] = time.perf_counter
    ) -> None:
        self._clock, self._began = clock, clock()
        self._seconds = math.inf if seconds is None else as_positive(seconds, "time_limit")

    @classmethod
    def of(cls, time_limit: Any) -> Deadline:
        """The deadline of a ``time_limit`` argument: a number of seconds from now, None for no
        limit, or a deadline that is running.
        """
        return time_limit if isinstance(time_limit, Deadline) else cls(time_limit)

    def stage(self) -> Deadline:
        """The same end, with the time counted from now: for a call that is a stage of another one."""
        out = Deadline(clock=self._clock)
        out._seconds = self.remaining
        return out

    @property
    def elapsed(self) -> float:
        """Seconds since the deadline was made."""
        return self._clock() - self._began

    @property
    def remaining(self) -> float:
        """Seconds left; infinite without a limit, negative once the deadline has passed."""
        return -math.inf if _ended.get()() else self._seconds - self.elapsed

    @property
    def used(self) -> float:
        """The share of the time that has gone; 0 without a limit."""
        return math.inf if _ended.get()() else self.elapsed / self._seconds

    @property
    def passed(self) -> bool:
        """Whether the time is up."""
        return self.remaining < 0.0

    def allows(self, seconds: float) -> bool:
        """Whether a step of so long, which cannot be interrupted, may begin: it ends at most a
        quarter of the limit late.
        """
        return not _ended.get()() and (
            math.isinf(self._seconds) or seconds <= self.remaining + _LATE * self._seconds
        )

    def speed(self) -> float:
        """Floating-point operations per second of matrix products, as this machine has them now."""
        M, fastest = np.ones((_TRIAL, _TRIAL)), math.inf
        for _ in range(_TRIALS):
            began = self._clock()
            M @ M
            fastest = min(fastest, self._clock() - began)
        return 2.0 * _TRIAL**3 / max(fastest, 1e-9)

    def operations(self, share: float) -> float:
        """How many floating-point operations of matrix products fit in a ``share`` of the time
        left; infinite without a limit.
        """
        return (
            math.inf
            if math.isinf(self._seconds)
            else max(share * self.remaining, 0.0) * self.speed()
        )


def require_time(operations: float, what: str) -> None:
    """As in Run."""
    Run.current().require_time(operations, what)


@contextmanager
def running(deadline: Deadline) -> Iterator[None]:
    """As in Run."""
    with Run(as_time_limit(deadline)):
        yield


@contextmanager
def set_up(deadline: Deadline, share: float, least: float = 0.0) -> Iterator[Any]:
    """As in Run."""
    with (
        Run(as_time_limit(deadline), clock=deadline._clock) as run,
        run.setup(share, least) as stage,
    ):
        stage.deadline = deadline  # type: ignore[attr-defined]
        yield stage


def set_up_is_over(done: float, *, cuts: bool = True) -> bool:
    """As in Run."""
    return Run.current().setup_is_over(done, cuts=cuts)


def as_time_limit(time_limit: Any) -> Any:
    """A running deadline as the seconds that are left of it; anything else as it is."""
    if not isinstance(time_limit, Deadline):
        return time_limit
    left = time_limit.remaining
    return None if left == math.inf else max(left, 1e-300)
