"""A stopwatch that stands still while the referee looks."""

from __future__ import annotations

import time
from collections.abc import Callable

import numpy as np

from ksos.bench.score import Referee

__all__ = ["CLOCKS", "OutOfTimeError", "Watch"]

CLOCKS: dict[str, Callable[[], float]] = {"wall": time.perf_counter, "cpu": time.process_time}
"""On one thread and an idle machine they agree; on a busy one the processor's time leaves out what others took."""

_SPACING = 1.03  # iterates are judged at times that grow by this factor: the times reported are too long by at most 3 %
_FIRST = 1e-3


class OutOfTimeError(Exception):
    """The limit came before the contestant's own stop."""


class Watch:
    """The time of one run, and what the referee saw of it.

    Parameters
    ----------
    referee : Referee
    limit : float
        Seconds; :meth:`look` raises :class:`OutOfTimeError` after them.
    tell : callable
        Called with (seconds, objective) at every look.
    clock : callable
        One of :data:`CLOCKS`.
    """

    def __init__(
        self, referee: Referee, limit: float, tell: Callable[[float, float], None], clock: Callable[[], float] = CLOCKS["wall"]
    ) -> None:
        self.referee, self.limit, self.tell, self.clock = referee, limit, tell, clock
        self.C: np.ndarray | None = None
        """The feasible point of the last look."""
        self.objective = np.inf
        self._spent, self._next, self._since = 0.0, 0.0, clock()

    @property
    def seconds(self) -> float:
        """Time of the contestant so far."""
        return self._spent + (self.clock() - self._since)

    @property
    def left(self) -> float:
        """Seconds until the limit."""
        return max(self.limit - self.seconds, 0.0)

    def look(self, L: np.ndarray | None, C: np.ndarray, *, last: bool = False) -> None:
        """Judge B = LCLᵀ if it is time for that, or if it is the answer; the clock stands still meanwhile."""
        now = self.seconds
        if last or now >= self._next:
            self._spent = now
            self._next = max(now * _SPACING, now + _FIRST)
            self.C = self.referee.feasible(L, C)
            self.objective = self.referee.value(self.C)
            self.tell(now, self.objective)
            self._since = self.clock()
        if not last and now > self.limit:
            raise OutOfTimeError
