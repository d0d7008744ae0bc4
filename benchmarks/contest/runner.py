"""What happens inside the process of one method: ``python -m contest.runner '{"method":
…}'``, one JSON object per line.

Imports and a warm-up on another, tiny problem come before the clock starts; whitening and integrals
after.
"""

from __future__ import annotations

import json
import resource
import sys
from contextlib import suppress
from typing import Any

from threadpoolctl import threadpool_limits  # type: ignore[import-untyped, unused-ignore]

from contest.methods import METHODS, Method
from contest.problem import Setting
from contest.referee import CLOCKS, Referee, Watch
from contest.report import TARGETS
from ksos.ground.memory import available_memory

__all__ = ["main"]

_WARM_UP = Setting(8, 2, 0.5)
_REPEATED_BELOW = 2.0  # seconds: short runs are repeated, and the fastest counts
_REPEATS = 5


def main(words: list[str]) -> None:
    """Run one method on one problem."""
    order = json.loads(words[0])
    method, setting = METHODS[order["method"]], Setting(**order["setting"])
    _limit_memory()
    with threadpool_limits(1):
        try:
            _work(method, setting, order["limit"], order["f_star"], order["clock"])
        except MemoryError as error:
            _say(
                event="end",
                status=f"out of memory: {error}" if str(error) else "out of memory",
                peak=None,
            )
        except ImportError as error:
            _say(event="end", status=f"not installed: {error}", peak=None)


def _work(method: Method, setting: Setting, limit: float, f_star: float | None, clock: str) -> None:
    method.prepare()
    X = _WARM_UP.points()
    with suppress(MemoryError):
        method.solve(_WARM_UP, X, 1e-4, Watch(Referee(_WARM_UP, X), 10.0, lambda t, f: None))
    X = setting.points()
    referee = Referee(setting, X)
    before = _peak()
    _say(event="ready")
    for tol in method.tolerances:
        run = _run(method, setting, X, tol, referee, limit, clock)
        for _ in range(min(_REPEATS, int(_REPEATED_BELOW / max(run["seconds"], 1e-3))) - 1):
            _run(method, setting, X, tol, referee, limit, clock)
        reached = (
            f_star is not None
            and run["objective"] is not None
            and run["objective"] - f_star <= TARGETS[-1]
        )
        if reached or run["status"] == "time_limit" or run["seconds"] >= limit:
            break
    _say(event="end", status=run["status"], peak=max(_peak() - before, 0))


def _run(
    method: Method,
    setting: Setting,
    X: Any,
    tol: float,
    referee: Referee,
    limit: float,
    clock: str,
) -> dict[str, Any]:
    _say(event="start", tol=tol)
    watch = Watch(
        referee,
        limit,
        lambda seconds, objective: _say(event="look", seconds=seconds, objective=objective),
        CLOCKS[clock],
    )
    status = method.solve(setting, X, tol, watch)
    run = {
        "seconds": watch.seconds,
        "status": status,
        "objective": None if watch.C is None else watch.objective,
    }
    _say(event="run", **run, gap=None if watch.C is None else referee.gap(watch.C))
    return run


def _limit_memory() -> None:
    """Nine tenths of what is free: a method that wants more fails by itself and takes nobody
    along.
    """
    with suppress(ValueError, OSError):
        resource.setrlimit(
            resource.RLIMIT_DATA, (int(0.9 * available_memory()), resource.RLIM_INFINITY)
        )


def _peak() -> int:
    size = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    return size if sys.platform == "darwin" else 1024 * size


def _say(**event: Any) -> None:
    print(json.dumps(event), flush=True)


if __name__ == "__main__":
    main(sys.argv[1:])
