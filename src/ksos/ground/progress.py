"""How far a call is and how long it will still take: one wording, and one line, for fits, searches
and the command line.

On a terminal, and in a notebook, a call of more than two seconds shows a line that is overwritten
and in the end taken away. Elsewhere (pipes, files, tests, processes of a pool) nothing is written.
``KSOS_PROGRESS=0`` in the environment turns it off; ``verbose=1`` prints lines that stay instead.
"""

from __future__ import annotations

import math
import os
import shutil
import sys
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, suppress
from contextvars import ContextVar
from multiprocessing import current_process
from typing import Any, Protocol

__all__ = [
    "Convergence",
    "Line",
    "Steps",
    "is_shown",
    "left_in_words",
    "overwritable",
    "report",
    "shortened",
    "shown",
    "tell",
]
__all__ += ["tell_rows", "tell_stopping"]

_FEWEST = 2
_SILENT_SECONDS, _SECONDS_BETWEEN, _SECONDS_BETWEEN_NEWS = 2.0, 0.25, 0.1
ERASE = "\r\x1b[K"


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
        """After so many seconds with this gap: how many more; None where nothing is known, or the
        gap does not fall.

        Looked at is the second half of the time, for the first steps of a solver are unlike its
        last ones.
        """
        least = min(gap, self._seen[-1][1]) if self._seen else gap
        self._seen.append((seconds, least))
        if least <= self.goal:
            return 0.0
        if len(self._seen) < _FEWEST or not math.isfinite(least):
            return None
        then, before = next(
            pair for pair in self._seen if pair[0] >= 0.5 * seconds or pair is self._seen[-2]
        )
        if not (before > least and seconds > then):
            return None
        return (
            math.log(least / self.goal) * (seconds - then) / math.log(before / least)
            if math.isfinite(before)
            else None
        )


def left_in_words(seconds: float | None) -> str:
    """What follows a line of progress.

    >>> left_in_words(None), left_in_words(4.21), left_in_words(150.0)
    ('', '; about 4.2 s left', '; about 3 min left')
    """
    if seconds is None or not math.isfinite(seconds):
        return ""
    return (
        f"; about {seconds:.1f} s left"
        if seconds < 100.0
        else f"; about {math.ceil(seconds / 60.0)} min left"
    )


def report(verbose: int, clock: Callable[[], float] = time.perf_counter) -> Callable[[str], None]:
    """Prints a stage of a fit with the seconds since the call began if it is ``verbose``, and else
    tells it to the line that is shown.
    """
    began = clock()

    def say(what: str) -> None:
        if verbose:
            print(f"[fit] {what}  {clock() - began:.2f} s", flush=True)
        else:
            tell(what)

    return say


# --- the line ---


class Line(Protocol):
    """Where progress is shown: ``what`` is done and for how long, ``when``; each takes the place of
    the one before.
    """

    def write(self, what: str, when: str) -> None: ...

    def erase(self) -> None: ...


def overwritable(stream: Any) -> bool:
    """Whether a stream is a terminal on which a line can be overwritten, and progress is wanted."""
    return (
        _wanted()
        and stream is not None
        and bool(stream.isatty())
        and os.environ.get("TERM") != "dumb"
    )


def _wanted() -> bool:
    return os.environ.get("KSOS_PROGRESS", "1").strip().lower() not in ("0", "off", "no", "false")


def shortened(what: str, when: str = "") -> str:
    """Both on one line of the terminal; the time is never cut off."""
    columns = max(shutil.get_terminal_size().columns - 1, 1)
    if not when or len(what) + len(when) <= columns:
        return (what + when)[:columns]
    return (what[: max(columns - len(when) - 1, 0)] + "…" + when)[-columns:]


class _Stream:
    """A line on stderr. The cursor goes back to its beginning, so that whatever else is written
    there does not follow it.
    """

    def __init__(self, stream: Any, notebook: bool) -> None:
        self._stream, self._notebook, self._last = stream, notebook, 0

    def write(self, what: str, when: str) -> None:
        if self._notebook:  # where a line is overwritten, but not erased
            text, self._last = f"{what}{when}".ljust(self._last), len(what + when)
            self._put(f"\r{text}")
        else:
            self._put(f"{ERASE}{shortened(what, when)}\r")

    def erase(self) -> None:
        self._put("\r" + " " * self._last + "\r" if self._notebook else ERASE)

    def _put(self, text: str) -> None:
        with suppress(OSError, ValueError):  # a terminal that has gone away
            self._stream.write(text)
            self._stream.flush()


def _in_notebook() -> bool:
    """Whether an IPython kernel runs this: it has loaded what is asked here."""
    ipython = sys.modules.get("IPython")
    shell = None if ipython is None or "ipykernel" not in sys.modules else ipython.get_ipython()
    return shell is not None and type(shell).__name__ == "ZMQInteractiveShell"


def _line() -> Line | None:
    """The line of this process, if somebody can see it."""
    if (
        current_process().name != "MainProcess"
        or threading.current_thread() is not threading.main_thread()
    ):
        return None  # those of a pool, and of a server, work for somebody else
    if overwritable(sys.stderr):
        return _Stream(sys.stderr, notebook=False)
    return _Stream(sys.stderr, notebook=True) if _wanted() and _in_notebook() else None


class _Level:
    """What one of the calls inside each other has told."""

    def __init__(self, now: float) -> None:
        self.began = self.at = self.stepped = now
        self.doing, self.done, self.total, self.step = "", 0.0, 0.0, 1.0
        self.foreseen: float | None = None
        self.seen = False

    def tell(
        self,
        doing: str,
        done: float | None,
        total: float | None,
        step: float,
        left: float | None,
        now: float,
    ) -> None:
        self.doing, self.foreseen, self.at = doing, left, now
        if done is not None and total is not None:
            self.done, self.total, self.step, self.stepped = done, total, step, now

    def left(self, now: float, inner: float | None) -> float | None:
        """The seconds left: foreseen, or as many for each unit as those before took; ``inner`` are
        those of the call inside.
        """
        if self.foreseen is not None:
            return max(self.foreseen - (now - self.at), 0.0)
        if self.total == 0.0:
            return inner
        if inner is not None:
            then = self.done + self.step
            return inner + (now - self.began + inner) * max(self.total - then, 0.0) / then
        if self.done > 0.0:
            return max(
                (self.stepped - self.began) * (self.total - self.done) / self.done
                - (now - self.stepped),
                0.0,
            )
        return None


class _Shown:
    """The line while it is shown: what is told is written at once, and the time that passes by a
    thread.
    """

    def __init__(
        self, name: str, line: Line | None, after: float, clock: Callable[[], float]
    ) -> None:
        self.name, self.line, self.after, self.clock = name, line, after, clock
        self.began, self.levels = clock(), []  # type: float, list[_Level]
        self._lock, self._over, self._written = threading.RLock(), threading.Event(), -math.inf
        self.stopping = False
        if line is not None:
            threading.Thread(target=self._tick, daemon=True, name="ksos-progress").start()

    def _tick(self) -> None:
        self._over.wait(self.after)
        while not self._over.wait(_SECONDS_BETWEEN):
            self.write()

    def words(self) -> tuple[str, str]:
        """What is done, and the times."""
        now, left = self.clock(), None
        for level in reversed(self.levels):
            left = level.left(now, left)
        doing = (
            ["stopping, to keep the best so far"]
            if self.stopping
            else [level.doing for level in self.levels]
        )
        what = ": ".join(filter(None, [self.name, *doing])) or "working"
        return what, (
            f", {now - self.began:.0f} s" if now - self.began >= 1.0 else ""
        ) + left_in_words(None if self.stopping else left)

    def write(self) -> None:
        """Write the line, unless it is too early, or it was written just now; what a call says
        first is written in any case.
        """
        with self._lock:
            if not self.levels:
                return
            now, level = self.clock(), self.levels[-1]
            news = level.doing and not level.seen
            early = now - self.began < (self.after if level.doing else _SILENT_SECONDS)
            if (
                self.line is None
                or self._over.is_set()
                or early
                or (now - self._written < _SECONDS_BETWEEN_NEWS and not news)
            ):
                return
            level.seen, self._written = True, now
            self.line.write(*self.words())

    def end(self) -> None:
        with self._lock:
            self._over.set()
            if self.line is not None and self._written > -math.inf:
                self.line.erase()


_current: ContextVar[_Shown | None] = ContextVar("shown", default=None)
_free = threading.Lock()


@contextmanager
def shown(
    name: str = "",
    doing: str = "",
    *,
    verbose: int = 0,
    line: Line | None = None,
    after: float = _SILENT_SECONDS,
    clock: Callable[[], float] = time.perf_counter,
) -> Iterator[None]:
    """Inside, what is told is shown on a line, once the call takes longer than ``after`` seconds.

    Calls inside each other share the line of the outermost, and so do threads: there is one line at
    a time. A call that is ``verbose`` speaks for itself, and for those inside it.
    """
    outer = _current.get()
    if outer is not None:
        with _level(outer, doing):
            yield
        return
    if not _free.acquire(blocking=False):
        yield
        return
    try:
        current = _Shown(name, (line or _line()) if not verbose else None, after, clock)
        token = _current.set(current)
        try:
            with _level(current, doing):
                yield
        finally:
            current.end()
            _current.reset(token)
    finally:
        _free.release()


@contextmanager
def _level(current: _Shown, doing: str) -> Iterator[None]:
    level = _Level(current.clock())
    level.doing = doing
    current.levels = [*current.levels, level]  # never changed while the line is written
    try:
        yield
    finally:
        current.levels = current.levels[:-1]


def is_shown() -> bool:
    """Whether anybody looks at what is told."""
    current = _current.get()
    return current is not None and current.line is not None


def tell(
    doing: str,
    done: float | None = None,
    total: float | None = None,
    step: float = 1.0,
    *,
    left: float | None = None,
) -> None:
    """Say what the innermost call does now: so much ``done`` of a ``total``, and how much the next
    ``step`` is, in any unit of cost, or how many seconds are ``left``.

    Of an infinite total nothing is known, whatever the calls inside know of their part.
    """
    current = _current.get()
    if current is not None and current.line is not None and current.levels:
        current.levels[-1].tell(doing, done, total, step, left, current.clock())
        current.write()


def tell_rows(done: int, total: int) -> None:
    """Say how many rows there are of all."""
    tell(f"{done} of {total} rows", done, total)


def tell_stopping() -> None:
    """Say that Ctrl-C was heard, and that what there is will be kept; the times foretold are void."""
    current = _current.get()
    if current is not None and not current.stopping:
        current.stopping, current._written = True, min(current._written, 0.0)
        current.write()


class Steps:
    """Steps of known cost, told as they begin, so that those that are done foretell the others.

    >>> steps = Steps([2.0, 1.0])
    >>> steps.begin("mixtures of two components"), steps.begin("fit to all samples")
    (None, None)
    """

    def __init__(self, costs: Sequence[float]) -> None:
        self._costs, self._number = list(costs), 0

    def begin(self, doing: str) -> None:
        """Tell the next step."""
        done = sum(self._costs[: self._number])
        tell(
            f"step {self._number + 1} of {len(self._costs)}: {doing}",
            done,
            sum(self._costs),
            self._costs[self._number],
        )
        self._number = min(self._number + 1, len(self._costs) - 1)
