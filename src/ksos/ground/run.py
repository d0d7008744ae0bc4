"""One object for a public call: when it must end, how far it is, and whether Ctrl-C was pressed.

Every public function opens a :class:`Run`. Whatever it calls finds it with ``Run.current()``, so
that no signature carries a deadline or a progress bar. Runs inside each other share one line of
progress, and none ends later than the one around it.

On a terminal, and in a notebook, a call of more than two seconds shows a line that is overwritten
and finally erased. Elsewhere (pipes, files, tests, processes of a pool) nothing is written.
``KSOS_PROGRESS=0`` in the environment turns it off. ``verbose=1`` prints lines that stay instead.
"""

from __future__ import annotations

import math
import os
import shutil
import sys
import threading
import time
import weakref
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from contextvars import ContextVar, Token
from multiprocessing import current_process
from typing import Any, TypeVar

import numpy as np

from ksos.ground.threads import spare_threads
from ksos.ground.validation import as_positive

T = TypeVar("T")
_LATE = 0.25
"""A step that cannot be interrupted may end late by this part of the limit: documented for
``time_limit``, since most calls would otherwise stop far too early.
"""
_SHORT = 5e9  # floating-point operations: a tenth of a second at 50 GFLOPS, not worth a check
_TRIAL_SIZE = 512  # of the matrices whose product measures the machine: 5 ms, and out of the cache
_SILENT_SECONDS = 2.0  # shorter calls show nothing: a line that flashes only distracts
_SECONDS_BETWEEN = 0.25  # between two looks at the clock: the seconds on the line seem to run
_SECONDS_BETWEEN_NEWS = 0.1  # between two lines: nobody reads faster, and terminals are slow


class TimeUp(Exception):
    """A step that cannot be interrupted would end long after the time limit."""


_current: ContextVar[weakref.ref[Run] | None] = ContextVar("run", default=None)
"""Weak: if Ctrl-C hits between the end of a call and ``Run.__exit__``, the run that was never
closed dies with the frame that held it, and no later call finds it.
"""


class Run:
    """A public call while it is running.

    ``time_limit``: seconds from now, None for no limit. ``name`` and ``doing`` begin the line of
    progress, which appears ``after`` so many seconds on ``line``: an object that can ``write(what,
    when)``, in place of the text before, and ``erase()``. A ``verbose`` run prints by itself, so
    that neither it nor the runs inside have a line. ``listener`` gets what the call and those
    inside tell, as text. ``canceled`` is asked whether to stop, such as the ``is_set`` of an event
    that another thread sets.

    >>> ticks = iter([0.0, 1.5, 2.5])
    >>> with Run(2.0, clock=lambda: next(ticks)) as run:
    ...     run.over, run.over
    (False, True)
    """

    def __init__(
        self,
        time_limit: float | None = None,
        name: str = "",
        doing: str = "",
        *,
        verbose: int = 0,
        after: float = _SILENT_SECONDS,
        canceled: Callable[[], bool] | None = None,
        line: Any = None,
        listener: Callable[[str], None] | None = None,
        clock: Callable[[], float] | None = None,
    ) -> None:
        outer = self._outer = _innermost()
        self._listener: Callable[[str], None] | None = listener
        if listener is None and outer is not None:
            self._listener = outer._listener
        self._clock: Callable[[], float] = clock or (
            time.perf_counter if outer is None else outer._clock
        )
        self._began = self._clock()
        self._end, self._canceled = math.inf, canceled
        if time_limit is not None:
            self._end = self._began + as_positive(time_limit, "time_limit")
        self._setup: Setup | None = None
        if outer is not None:
            self._end = min(self._end, outer._end)
            self._canceled, self._setup = canceled or outer._canceled, outer._setup
        self.verbose = verbose
        self.interrupted: bool = outer is not None and outer.interrupted
        """Whether Ctrl-C was pressed inside, or before, and something was kept all the same."""
        self._name, self._after, self._line = name, after, line
        self._display: _Display | None = None
        self.doing = doing
        self._foreseen: float | None = None
        # whether the line has ever shown what this run does
        self._written = False
        self._token: Token[weakref.ref[Run] | None] | None = None

    @classmethod
    def current(cls) -> Run:
        """The innermost call that is running. Outside of all: one without a limit or a line."""
        return _innermost() or cls()

    def __enter__(self) -> Run:
        if self._outer is not None:
            self._display = None if self.verbose else self._outer._display
        elif not self.verbose and (line := self._line or _default_line()) is not None:
            self._display = _Display(line, self._name, self._after, self._clock)
        if self._display is not None:
            self._display.innermost = weakref.ref(self)
        self._token = _current.set(weakref.ref(self))
        self._threads = spare_threads()
        self._threads.__enter__()
        return self

    def __exit__(self, *error: object) -> None:
        self._threads.__exit__(None, None, None)
        if self._token is not None:
            _current.reset(self._token)
        if self._display is not None and self._outer is not None:
            self._display.innermost = weakref.ref(self._outer)
        elif self._display is not None:
            self._display.close()

    @property
    def elapsed(self) -> float:
        """Seconds since the call began."""
        return self._clock() - self._began

    @property
    def remaining(self) -> float:
        """Seconds left: infinite without a limit, negative once the run is over."""
        if self._canceled is not None and self._canceled():
            return -math.inf
        return self._end - self._clock()

    @property
    def used(self) -> float:
        """The share of the time that has gone: 0 without a limit."""
        if self._canceled is not None and self._canceled():
            return math.inf
        # a run that was interrupted may have no time at all
        seconds = self._end - self._began
        return self.elapsed / seconds if seconds > 0.0 else math.inf

    @property
    def over(self) -> bool:
        """Whether all stages must end: the time is up, or the call was canceled or interrupted."""
        return self.remaining < 0.0

    def limit(self, share: float = 1.0) -> float | None:
        """The ``time_limit`` of a part of this call that may take a ``share`` of the time left.

        None without a limit, and else positive. Workers in other processes get it, since they
        cannot see this run.
        """
        # a run that was canceled has no end, but its parts must not begin
        if math.isinf(self._end):
            return None if self.remaining > 0.0 else sys.float_info.min
        return max(share * self.remaining, sys.float_info.min)

    def allows(self, seconds: float) -> bool:
        """Whether a step of so long, which cannot be interrupted, may begin: it ends at most a
        quarter of the limit late.
        """
        remaining = self.remaining
        return remaining == math.inf or seconds <= remaining + _LATE * (self._end - self._began)

    def speed(self) -> float:
        """Floating-point operations per second of matrix products, as this machine has them now."""
        # measured, not assumed: other processes may keep the cores busy
        M, fastest = np.ones((_TRIAL_SIZE, _TRIAL_SIZE)), math.inf
        # the first product wakes the threads up
        for _ in range(2):
            began = self._clock()
            M @ M
            fastest = min(fastest, self._clock() - began)
        return float(2.0 * _TRIAL_SIZE**3 / max(fastest, 1e-9))

    def operations(self, share: float) -> float:
        """How many floating-point operations of matrix products fit in a ``share`` of the time
        left: infinite without a limit.
        """
        remaining = self.remaining
        return math.inf if remaining == math.inf else max(share * remaining, 0.0) * self.speed()

    def require_time(self, operations: float, what: str) -> None:
        """Raise :class:`TimeUp` if so many floating-point operations in one piece end too late."""
        if operations <= _SHORT or self.remaining == math.inf:
            return
        seconds = operations / self.speed()
        if not self.allows(seconds):
            raise TimeUp(f"{what} takes about {seconds:.2g} s")

    @contextmanager
    def setup(self, share: float, least: float = 0.0) -> Iterator[Setup]:
        """Inside, long loops that can end early do so once a ``share`` of the time that was left
        has gone, and ``least`` of their work is done.

        >>> ticks = iter([0.0, 0.0, 1.0, 5.0])
        >>> with Run(10.0, clock=lambda: next(ticks)) as run, run.setup(0.3) as stage:
        ...     run.setup_is_over(0.5), run.setup_is_over(0.5), stage.cut
        (False, True, True)
        """
        before = self._setup
        self._setup = stage = Setup(self, share, least)
        try:
            yield stage
        finally:
            self._setup = before

    def setup_is_over(self, done: float, *, cuts: bool = True) -> bool:
        """Whether a loop of the setup must end now, with so much of its work done (0 to 1). False
        without a limit.

        ``cuts``: whether something is missing then, and not only less refined.
        """
        stage = self._setup
        if stage is None or done < stage.least or stage.run.used <= stage.until:
            return False
        stage.cut = stage.cut or cuts
        return True

    def interrupt(self, grace: float = 0.0) -> None:
        """End this run and those around it: Ctrl-C was caught, and there is something to keep.

        What remains to be done for an answer may take ``grace`` seconds.
        """
        # outward alone: runs inside have ended with the exception
        run: Run | None = self
        end = self._clock() + grace
        while run is not None:
            run.interrupted, run._end = True, min(run._end, end)
            run = run._outer
        if self._display is not None:
            self._display.stop()

    def complete(self, finish: Callable[[], T]) -> T:
        """``finish()`` in spite of one Ctrl-C: then the run is interrupted, and it is called again.

        For short ends of long calls, such as the certificate of a point that was found.
        """
        try:
            return finish()
        except KeyboardInterrupt:
            self.interrupt()
            return finish()

    @property
    def has_listener(self) -> bool:
        """Whether a listener gets the reports."""
        return self._listener is not None

    @property
    def shown(self) -> bool:
        """Whether reports are shown: on a line of progress, or by a listener."""
        return self._display is not None or self._listener is not None

    def tell(self, doing: str, done: float | None = None, total: float | None = None) -> None:
        """Show what the call does now, and how long it takes if so much is ``done`` of a ``total``
        of work, in any unit.
        """
        if self._listener is not None:
            self._listener(doing)
        if self._display is None:
            return
        self.doing, self._foreseen = doing, None
        if total:
            self._foreseen = self._began + self.elapsed * total / done if done else math.inf
        self._display.write()

    def tell_rows(self, done: int, total: int) -> None:
        """Show how many rows there are of all."""
        self.tell(f"{done} of {total} rows", done, total)

    def report(self, label: str, what: str) -> None:
        """Print a stage and the seconds since the call began if it is ``verbose``, else show it."""
        if self.verbose:
            print(f"[{label}] {what}  {self.elapsed:.2f} s", flush=True)
        else:
            self.tell(what)


class Setup:
    """What a call does before it can solve anything, and the share of the time that it may take."""

    def __init__(self, run: Run, share: float, least: float) -> None:
        self.run, self.least = run, least
        self.until = (1.0 - share) * run.used + share
        self.cut = False
        """Whether a loop has ended early."""


class Steps:
    """Steps of known cost, shown as they begin: those that are done foretell the others.

    >>> steps = Steps([2.0, 1.0])
    >>> steps.begin("mixtures of two components"), steps.begin("fit to all samples")
    (None, None)
    """

    def __init__(self, costs: Sequence[float]) -> None:
        self._costs, self._number = list(costs), 0

    def begin(self, doing: str) -> None:
        """Tell the next step."""
        k = self._number
        what = f"step {k + 1} of {len(self._costs)}: {doing}"
        Run.current().tell(what, sum(self._costs[:k]), sum(self._costs))
        self._number = min(k + 1, len(self._costs) - 1)


class _Display:
    """The line of progress of the outermost run: news are written at once, and the seconds that
    pass by a thread.

    It knows the runs by weak references alone: see ``_current``.
    """

    def __init__(self, line: Any, name: str, after: float, clock: Callable[[], float]) -> None:
        self._line, self._name, self._after, self._clock = line, name, after, clock
        self._began, self._last, self._stopping = clock(), -math.inf, False
        self._lock, self._closed = threading.RLock(), threading.Event()
        self.innermost: Callable[[], Run | None] = lambda: None
        beat = threading.Thread(
            target=_tick, args=(weakref.ref(self), self._closed, after), daemon=True
        )
        beat.start()

    def write(self) -> None:
        """Write the line, unless it is too early, or it was written just now. What a call says
        first is written in any case.
        """
        with self._lock:
            run, now = self.innermost(), self._clock()
            if run is None or self._closed.is_set():
                return
            early = now - self._began < (self._after if run.doing else _SILENT_SECONDS)
            news = run.doing and not run._written
            if early or (now - self._last < _SECONDS_BETWEEN_NEWS and not news):
                return
            run._written, self._last = True, now
            self._line.write(*self._words(run, now))

    # What is done, and the times.
    def _words(self, run: Run | None, now: float) -> tuple[str, str]:
        end = math.inf
        doing: list[str] = []
        while run is not None:
            # a call knows the end of those inside it as well
            end = end if run._foreseen is None else run._foreseen
            doing.append(run.doing)
            run = run._outer
        if self._stopping:
            end, doing = math.inf, ["stopping, to keep the best so far"]
        what = ": ".join(filter(None, [self._name, *reversed(doing)])) or "working"
        seconds = now - self._began
        when = f", {seconds:.0f} s" if seconds >= 1.0 else ""
        return what, when + f"; about {max(end - now, 0.0):.0f} s left" * (end < math.inf)

    def stop(self) -> None:
        """Show that Ctrl-C was heard, and that what there is will be kept."""
        if not self._stopping:
            self._stopping, self._last = True, min(self._last, 0.0)
            self.write()

    def close(self) -> None:
        """Take the line away for good."""
        with self._lock:
            self._closed.set()
            if self._last > -math.inf:
                self._line.erase()


# Write the line now and then, as long as there is one.
def _tick(display: weakref.ref[_Display], closed: threading.Event, after: float) -> None:
    closed.wait(after)
    while not closed.wait(_SECONDS_BETWEEN):
        if (alive := display()) is None:
            return
        alive.write()
        del alive


class _Line:
    """A line on stderr, which terminals and notebooks overwrite."""

    # the cursor goes back to the beginning, so that what else is written does not follow
    def write(self, what: str, when: str = "") -> None:
        line = shortened(what, when).ljust(_columns())
        print(f"\r{line}", end="\r", file=sys.stderr, flush=True)

    def erase(self) -> None:
        self.write("")


def _innermost() -> Run | None:
    reference = _current.get()
    return None if reference is None else reference()


# The line of this process, if somebody can see it.
def _default_line() -> Any:
    # processes of a pool, and threads of a server, work for somebody else
    alone = threading.current_thread() is threading.main_thread()
    if not alone or current_process().name != "MainProcess":
        return None
    ipython = sys.modules.get("IPython") if "ipykernel" in sys.modules else None
    notebook = ipython is not None and ipython.get_ipython() is not None
    return _Line() if overwritable(sys.stderr) or (notebook and _wanted()) else None


def overwritable(stream: Any) -> bool:
    """Whether a stream is a terminal on which a line can be overwritten, and progress is wanted."""
    terminal = stream is not None and stream.isatty() and os.environ.get("TERM") != "dumb"
    return bool(terminal) and _wanted()


def _wanted() -> bool:
    return os.environ.get("KSOS_PROGRESS", "1").strip().lower() not in ("0", "off", "no", "false")


def _columns() -> int:
    # one less than there are: a terminal goes on to the next line after its last column
    return max(shutil.get_terminal_size().columns - 1, 1)


def shortened(what: str, when: str = "") -> str:
    """Both on one line of the terminal. The times are never cut off."""
    columns = _columns()
    if not when or len(what) + len(when) <= columns:
        return (what + when)[:columns]
    return (what[: max(columns - len(when) - 1, 0)] + "…" + when)[-columns:]
