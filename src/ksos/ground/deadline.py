"""One deadline for all stages of a public call."""

from __future__ import annotations

import math
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from typing import Any

import numpy as np

from ksos.ground.validation import as_positive

__all__ = [
    "Deadline",
    "SetUp",
    "TimeUp",
    "ended_by",
    "require_time",
    "running",
    "set_up",
    "set_up_is_over",
]

_LATE = 0.25  # of the time limit: by so much a step that cannot be interrupted may end after it
_SHORT = 5e9  # floating-point operations: a tenth of a second
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


class TimeUp(Exception):
    """A step that cannot be interrupted would end long after the deadline."""


_running: ContextVar[Deadline | None] = ContextVar("running", default=None)


@contextmanager
def running(deadline: Deadline) -> Iterator[None]:
    """Inside, :func:`require_time` looks at this deadline."""
    token = _running.set(deadline)
    try:
        yield
    finally:
        _running.reset(token)


def require_time(operations: float, what: str) -> None:
    """Raise :class:`TimeUp` if so many floating-point operations in one piece would end too late
    for the call that is running.
    """
    deadline = _running.get()
    if deadline is None or operations <= _SHORT or math.isinf(deadline.remaining):
        return
    seconds = operations / deadline.speed()
    if not deadline.allows(seconds):
        raise TimeUp(f"{what} takes about {seconds:.2g} s")


class SetUp:
    """What a call does before it can solve anything, and the share of the time left that this may
    take.
    """

    def __init__(self, deadline: Deadline, share: float, least: float = 0.0) -> None:
        self.deadline, self.least = deadline, least
        self.until = (1.0 - share) * deadline.used + share
        self.cut = False
        """Whether a loop has ended early."""


_set_up: ContextVar[SetUp | None] = ContextVar("set_up", default=None)


@contextmanager
def set_up(deadline: Deadline, share: float, least: float = 0.0) -> Iterator[SetUp]:
    """Inside, long loops that can end early do so once a ``share`` of the time that was left has
    gone, and ``least`` of their work is done.

    >>> ticks = iter([0.0, 0.0, 1.0, 5.0])
    >>> with set_up(Deadline(10.0, clock=lambda: next(ticks)), 0.3) as stage:
    ...     set_up_is_over(0.5), set_up_is_over(0.5), stage.cut
    (False, True, True)
    """
    stage = SetUp(deadline, share, least)
    token = _set_up.set(stage)
    try:
        yield stage
    finally:
        _set_up.reset(token)


def set_up_is_over(done: float, *, cuts: bool = True) -> bool:
    """Whether a loop of the set-up must end now, with so much of its work done (0 to 1); False
    where there is no limit.

    ``cuts``: whether something is missing then, and not only less refined.
    """
    stage = _set_up.get()
    if stage is None or done < stage.least or stage.deadline.used <= stage.until:
        return False
    stage.cut = stage.cut or cuts
    return True
