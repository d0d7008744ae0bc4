"""As many threads as processors are free: one for small work, where more only wait for each other,
and none beyond what a busy machine or a quota leaves. Safe when fits run in several Python threads.
"""

from __future__ import annotations

import os
import re
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from functools import cache
from pathlib import Path
from typing import Any

import joblib
from threadpoolctl import ThreadpoolController

SMALL_MATRIX = 1000
"""Below this size there is one thread: matrix products and eigendecompositions are hardly slower,
below 500 even faster, and the order of their sums, and so every answer to the last digits that its
tolerance leaves open, does not depend on how many threads there are."""

MANY_ROWS = 100_000
"""Below this number of rows a scikit-learn regressor runs on one thread. Boosted trees of 30,000
rows and 10 features then take half a second. With two threads on two busy cores they take seven,
because every OpenMP thread waits, spinning, for one that does not run."""

_REMEMBERED_SECONDS = 0.1  # counting takes up to 1 ms, and a machine stays busy longer than this

_lock = threading.Lock()
_limits: list[int] = []  # what the calls in progress ask for
_before: list[int] = []  # the threads of each library without them
_counted = -1e9, 1  # when processors were counted, and how many were free


@cache
def _libraries(api: str) -> list[Any]:
    # looks at every loaded library: once is enough, since scikit-learn's is loaded with ksos
    return list(ThreadpoolController().select(user_api=api).lib_controllers)


# of a container, its quota, which neither BLAS nor os.cpu_count sees
_allowed = cache(joblib.cpu_count)


def free_processors() -> int:
    """How many processors this process may use that no other program keeps busy, at least one."""
    global _counted
    now = time.monotonic()
    if now - _counted[0] > _REMEMBERED_SECONDS:
        idle = (os.cpu_count() or 1) - _busy_elsewhere()
        _counted = now, max(1, min(int(_allowed()), idle))
    return _counted[1]


# How many threads of other programs run or wait for a processor; 0 if nobody counts them.
def _busy_elsewhere() -> int:
    try:
        running = int(Path("/proc/loadavg").read_text().split()[3].partition("/")[0])
        if running <= 1:  # this one
            return 0
        states = [path.read_text() for path in Path("/proc/self/task").glob("*/stat")]
    except (OSError, IndexError, ValueError):
        return 0
    # threads of ours that wait for each other run as well
    own = sum(re.search(r"\) R", state) is not None for state in states)
    return max(0, running - max(own, 1))


# Run on at most so many threads of BLAS and OpenMP.
#
# Those of BLAS belong to the process, not to the Python thread: the least limit of all calls in
# progress holds, and the last one out restores what was. OpenMP keeps its number for every Python
# thread, so there is nothing to count.
@contextmanager
def _at_most(threads: int) -> Iterator[None]:
    libraries = _libraries("openmp")
    own = [library.num_threads for library in libraries]
    with _lock:
        _limits.append(threads)
        _apply()
    for library, most in zip(libraries, own, strict=True):
        library.set_num_threads(min(most, threads))
    try:
        yield
    finally:
        with _lock:
            _limits.remove(threads)
            _apply()
        for library, most in zip(libraries, own, strict=True):
            library.set_num_threads(most)


def _apply() -> None:
    libraries = _libraries("blas")
    if not _before:
        _before.extend(library.num_threads for library in libraries)
    for library, most in zip(libraries, _before, strict=True):
        library.set_num_threads(min([most, *_limits]))
    if not _limits:
        _before.clear()


@contextmanager
def spare_threads() -> Iterator[None]:
    """Run on as many threads as there are free processors.

    OpenBLAS lets threads wait for each other. With two threads on two busy cores, small products
    take seven times as long as with one.
    """
    free = free_processors()
    if free >= (os.cpu_count() or 1):
        yield
        return
    with _at_most(free):
        yield


@contextmanager
def one_blas_thread(size: int) -> Iterator[None]:
    """Run on one thread if matrices are of size ``size`` < 1000, otherwise on as many as there
    are free processors, and restore the number of threads afterwards.
    """
    with _at_most(1) if size < SMALL_MATRIX else spare_threads():
        yield


@contextmanager
def few_threads(rows: int) -> Iterator[None]:
    """Run a regressor on one thread if it has fewer than 100,000 ``rows``, otherwise on as many as
    there are free processors.
    """
    with _at_most(1 if rows < MANY_ROWS else free_processors()):
        yield
