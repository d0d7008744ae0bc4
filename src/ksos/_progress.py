"""How long a call will still take, and the lines that say so: one wording for fits, searches and the command line."""

from __future__ import annotations

import math
import time
from collections.abc import Callable

__all__ = ["Convergence", "left_in_words", "report"]

_FEWEST = 2


class Convergence:
    """The seconds until a gap that falls as it has fallen lately reaches its goal.

    >>> gaps = Convergence(goal=1e-8)
    >>> gaps.left(0.0, 1.0), round(gaps.left(1.0, 1e-2), 6), round(gaps.left(2.0, 1e-4), 6)
    (None, 3.0, 2.0)
    """

    def __init__(self, goal: float) -> None:
        self.goal = goal
        self._seen: list[tuple[float, float]] = []

    def left(self, seconds: float, gap: float) -> float | None:
        """After so many seconds with this gap: how many more; None where nothing is known, or the gap does not fall.

        Looked at is the second half of the time, for the first steps of a solver are unlike its last ones.
        """
        least = min(gap, self._seen[-1][1]) if self._seen else gap
        self._seen.append((seconds, least))
        if least <= self.goal:
            return 0.0
        if len(self._seen) < _FEWEST or not math.isfinite(least):
            return None
        then, before = next(pair for pair in self._seen if pair[0] >= 0.5 * seconds or pair is self._seen[-2])
        if not (before > least and seconds > then):
            return None
        return math.log(least / self.goal) * (seconds - then) / math.log(before / least) if math.isfinite(before) else None


def left_in_words(seconds: float | None) -> str:
    """What follows a line of progress.

    >>> left_in_words(None), left_in_words(4.21), left_in_words(150.0)
    ('', '; about 4.2 s left', '; about 3 min left')
    """
    if seconds is None or not math.isfinite(seconds):
        return ""
    return f"; about {seconds:.1f} s left" if seconds < 100.0 else f"; about {math.ceil(seconds / 60.0)} min left"


def report(verbose: int, clock: Callable[[], float] = time.perf_counter) -> Callable[[str], None]:
    """Prints a stage of a fit with the seconds since the call began if it is ``verbose``; in terminals, notebooks and files alike."""
    began = clock()

    def say(what: str) -> None:
        if verbose:
            print(f"[fit] {what}  {clock() - began:.2f} s", flush=True)

    return say
