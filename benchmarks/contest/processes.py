"""All methods on all problems, one after the other, each in a process of its own that is ended
at the limit.
"""

from __future__ import annotations

import json
import os
import queue
import subprocess
import sys
import threading
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import ksos
from contest.methods import METHODS
from contest.problem import Setting
from contest.referee import CLOCKS
from contest.report import Row, Run, optimum
from ksos.ground.validation import as_choice

__all__ = ["ONE_THREAD", "run_all", "run_one"]

_THREADED = ("OMP", "OPENBLAS", "MKL", "BLIS", "RAYON")
ONE_THREAD = {**{f"{name}_NUM_THREADS": "1" for name in _THREADED}, "VECLIB_MAXIMUM_THREADS": "1"}
"""The environment of every process: all linear algebra on one thread."""

_START = 60.0  # seconds for imports, warm-up and the referee's own matrices
REFERENCE = "low_rank"
"""Runs first, so that the others know when the last target is reached and need no further
tolerance.
"""

Report = Callable[[Row, float | None], None]
Runner = Callable[[str, Setting, float, float | None, str], Row]


def run_all(
    settings: Sequence[Setting],
    names: Sequence[str],
    limit: float,
    report: Report,
    clock: str = "wall",
    run: Runner | None = None,
) -> list[Row]:
    """Run the methods ``names`` on every problem; ``report(row, f_star)`` is called as each
    ends. ``run``: by default :func:`run_one`.

    Within one dimension and bandwidth, a method that ran out of time or memory at one size is
    not tried at the larger ones.
    """
    as_choice(clock, "clock", CLOCKS)
    chosen = [as_choice(name, "methods", METHODS) for name in dict.fromkeys(names)]
    chosen.sort(key=lambda name: name != REFERENCE)
    rows: list[Row] = []
    beaten: dict[tuple[str, int, float], int] = {}
    for setting in settings:
        here: list[Row] = []
        for name in chosen:
            key = (name, setting.d, setting.sigma)
            if key in beaten:
                row = Row(
                    name, setting, status=f"not tried: failed at m={beaten[key]}", limit=limit
                )
            else:
                row = (run or run_one)(name, setting, limit, optimum(here), clock)
                failed = row.status.startswith(("out of memory", "crashed", "killed", "time_limit"))
                if failed or (row.time_spent() or 0.0) >= row.limit:
                    beaten[key] = setting.m
            here.append(row)
            report(row, optimum(here))
        rows += here
    return rows


def run_one(
    name: str,
    setting: Setting,
    limit: float,
    f_star: float | None,
    clock: str = "wall",
    grace: float = 3.0,
) -> Row:
    """One method on one problem: a crash, a memory blow-up or an endless run becomes a row like
    any other.

    ``grace``: seconds beyond the limit in which a method may end by itself.
    """
    order = {
        "method": name,
        "setting": vars(setting),
        "limit": limit,
        "f_star": f_star,
        "clock": clock,
    }
    sources = [str(Path(file).parents[1]) for file in (ksos.__file__, __file__)]
    environment = {
        **os.environ,
        **ONE_THREAD,
        "PYTHONPATH": os.pathsep.join([*sources, os.environ.get("PYTHONPATH", "")]),
    }
    command = [sys.executable, "-m", "contest.runner", json.dumps(order)]
    row = Row(name, setting, limit=limit)
    with subprocess.Popen(
        command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, env=environment
    ) as process:
        try:
            _listen(process, row, limit, grace)
        finally:
            process.kill()  # no effect on one that has ended
        errors = process.stderr.read() if process.stderr is not None else ""
    if not row.status:
        code = process.returncode
        words = (errors.strip() or "no message").splitlines()[-1][:100]
        row.status = f"crashed: signal {-code}, {words}" if code < 0 else f"crashed: {words}"
    return row


def _listen(process: subprocess.Popen[str], row: Row, limit: float, grace: float) -> None:
    """Fill the row with what the process says, until it ends or has been silent about a run for
    longer than the limit.
    """
    events: queue.Queue[dict[str, Any] | None] = queue.Queue()

    def read() -> None:
        for line in process.stdout or ():
            events.put(json.loads(line))
        events.put(None)

    threading.Thread(target=read, daemon=True).start()
    patience = _START
    try:
        while (event := events.get(timeout=patience)) is not None:
            patience = _receive(event, row, limit, grace)
    except queue.Empty:
        row.status = "killed at the limit" if row.runs else "killed: no start within a minute"


def _receive(event: dict[str, Any], row: Row, limit: float, grace: float) -> float:
    """Take one event in; returns how many seconds the next may take to come."""
    kind = event.pop("event")
    if kind == "start":
        row.runs.append(Run(event["tol"]))
    elif kind == "look":
        row.runs[-1].looks.append((event["seconds"], event["objective"]))
        return limit - float(event["seconds"]) + _START
    elif kind == "run":
        run = row.runs[-1]
        run.seconds, run.status, run.gap = event["seconds"], event["status"], event["gap"]
    elif kind == "end":
        row.status, row.peak = event["status"], event["peak"]
    return limit + grace if kind == "start" else _START
