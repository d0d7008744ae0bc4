"""One thread for small work, where more threads only wait for each other. Safe when fits run in
several Python threads."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from contextlib import contextmanager
from functools import cache
from typing import Any

from threadpoolctl import ThreadpoolController

__all__ = ["MANY_ROWS", "SMALL_MATRIX", "few_threads", "one_blas_thread"]

SMALL_MATRIX = 1000
"""Below this size there is one thread: matrix products and eigendecompositions are hardly slower,
below 500 even faster, and the order of their sums, and so every answer to the last digits that its
tolerance leaves open, does not depend on how many threads there are."""

MANY_ROWS = 100_000
"""Below this number of rows a scikit-learn regressor runs on one thread. Boosted trees of 30,000
rows and 10 features then take half a second. With two threads on two busy cores they take seven,
because every OpenMP thread waits, spinning, for one that does not run."""

_lock = threading.Lock()
_inside = 0  # how many calls are running on one thread
_limit: Any = None


@cache
def _controller() -> ThreadpoolController:
    # looks at every loaded library: once is enough
    return ThreadpoolController()


@contextmanager
def one_blas_thread(size: int) -> Iterator[None]:
    """Run on one BLAS thread if matrices are of size ``size`` < 1000, and restore the number of
    threads afterwards.

    The number of threads belongs to the process, not to the Python thread: the first one in lowers
    it, the last one out restores it.
    """
    if size >= SMALL_MATRIX:
        yield
        return
    global _inside, _limit
    # fits in several threads of Python share the setting of the process
    with _lock:
        if _inside == 0:
            _limit = _controller().limit(limits=1, user_api="blas")
        _inside += 1
    try:
        yield
    finally:
        with _lock:
            _inside -= 1
            if _inside == 0:
                _limit.restore_original_limits()


@cache
def _openmp() -> ThreadpoolController:
    # asked only when regressors are imported, whose libraries it looks for
    return ThreadpoolController().select(user_api="openmp")


@contextmanager
def few_threads(rows: int) -> Iterator[None]:
    """Run a regressor on one thread of BLAS and OpenMP if it has fewer than 100,000 ``rows``.

    OpenMP keeps its number of threads for every Python thread, so there is nothing to count.
    """
    if rows >= MANY_ROWS:
        yield
        return
    with one_blas_thread(0), _openmp().limit(limits=1):
        yield
