"""One BLAS thread for small matrices, where more of them only wait for each other; safe when fits run in several Python threads."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from contextlib import contextmanager
from functools import cache
from typing import Any

from threadpoolctl import ThreadpoolController

__all__ = ["SMALL_MATRIX", "one_blas_thread"]

SMALL_MATRIX = 1000
"""Below this size there is one thread: matrix products and eigendecompositions are hardly slower, below 500 even faster, and the order of
their sums, and so every answer to the last digits that its tolerance leaves open, does not depend on how many threads there are."""

_lock = threading.Lock()
_inside = 0
_limit: Any = None


@cache
def _controller() -> ThreadpoolController:
    return ThreadpoolController()  # looks at every loaded library: once is enough


@contextmanager
def one_blas_thread(size: int) -> Iterator[None]:
    """Run on one BLAS thread if matrices are of size ``size`` < 1000, and restore the number of threads afterwards.

    The number of threads belongs to the process, not to the Python thread: the first one in lowers it, the last one out restores it.
    """
    if size >= SMALL_MATRIX:
        yield
        return
    global _inside, _limit
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
