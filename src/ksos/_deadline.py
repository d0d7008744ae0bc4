"""One deadline for all stages of a public call."""

from __future__ import annotations

import math
import time
from collections.abc import Callable
from typing import Any

from ksos._validation import as_positive

__all__ = ["Deadline"]


class Deadline:
    """When a call must end, counted from when the deadline was made. Every stage of the call looks at the same one.

    >>> ticks = iter([0.0, 1.5, 2.5])
    >>> deadline = Deadline(2.0, clock=lambda: next(ticks))
    >>> deadline.passed, deadline.passed
    (False, True)
    """

    def __init__(self, seconds: float | None = None, clock: Callable[[], float] = time.perf_counter) -> None:
        self._clock, self._began = clock, clock()
        self._seconds = math.inf if seconds is None else as_positive(seconds, "time_limit")

    @classmethod
    def of(cls, time_limit: Any) -> Deadline:
        """The deadline of a ``time_limit`` argument: a number of seconds from now, None for no limit, or a deadline that is running."""
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
        return self._seconds - self.elapsed

    @property
    def passed(self) -> bool:
        """Whether the time is up."""
        return self.remaining < 0.0
