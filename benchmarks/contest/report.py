"""The results: what is known of each method, f* that all are measured against, tables for
people, everything as JSON.
"""

from __future__ import annotations

import json
import math
import os
import platform
from collections.abc import Iterable, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path
from typing import Any

import numpy as np

from contest.methods import METHODS
from contest.problem import TOLERANCE, Setting

__all__ = [
    "TARGETS",
    "Row",
    "Run",
    "as_dict",
    "by_setting",
    "headline",
    "optimum",
    "ranked",
    "tables",
    "write_json",
]

TARGETS = (1e-4, 1e-6, 1e-8)
"""f − f* to be reached."""

HOW = (
    "BLAS pinned to one thread; each method on each problem in a process of its own, imports"
    " and a warm-up before the clock; whitening and integrals count; short runs repeated, the"
    " fastest counts; ≥: never reached, it stopped or was stopped then; call: the whole call that"
    " ends within the last target, certificate included"
)
CLOCK = {
    "wall": "seconds on the wall",
    "cpu": "seconds of the processor: what other processes took is left out",
}
F_STAR = "f*: the largest objective − gap that the referee certified (a proven lower bound)"


@dataclass
class Run:
    """One run: the referee's looks as (seconds, objective), and how it ended."""

    tol: float
    looks: list[tuple[float, float]] = field(default_factory=list)
    seconds: float | None = None
    """Of the whole run; None when it was killed."""
    status: str = "killed"
    gap: float | None = None
    """The referee's certificate of the last look."""


@dataclass
class Row:
    """One method on one problem."""

    method: str
    setting: Setting
    runs: list[Run] = field(default_factory=list)
    status: str = ""
    peak: float | None = None
    """Bytes by which the process grew, at most, above what its imports took."""
    limit: float = 120.0

    def time_to(self, target: float, f_star: float | None) -> float | None:
        """Seconds until f − f* ≤ target, in the run that was fastest; None: never, or f* is not
        known.
        """
        if f_star is None:
            return None
        times = [next((t for t, f in run.looks if f - f_star <= target), None) for run in self.runs]
        return min((t for t in times if t is not None), default=None)

    def whole_call(self, target: float, f_star: float | None) -> float | None:
        """Seconds of the fastest run whose answer is within the target, from the points to what the
        user gets, certificate and all.
        """
        answered = [
            run.seconds
            for run in self.runs
            if f_star is not None and run.looks and run.looks[-1][1] - f_star <= target
        ]
        return min((s for s in answered if s is not None), default=None)

    def time_spent(self) -> float | None:
        """Seconds of the longest run: where a target was not reached, it takes at least this long;
        None: no run came that far.
        """
        at_limit = self.limit if self.status.startswith("killed at the limit") else None
        ends = [at_limit if run.seconds is None else run.seconds for run in self.runs]
        return max((seconds for seconds in ends if seconds is not None), default=None)

    def best(self) -> float | None:
        """The lowest objective that the referee saw at the end of a run."""
        return min((run.looks[-1][1] for run in self.runs if run.looks), default=None)

    def as_dict(self, f_star: float | None) -> dict[str, Any]:
        """For JSON."""
        best = self.best()
        shown: dict[str, Any] = {
            "method": self.method,
            **vars(self.setting),
            "lambda": self.setting.lam,
            "status": self.status,
        }
        shown["seconds_to"] = {f"{target:g}": self.time_to(target, f_star) for target in TARGETS}
        shown |= {
            "whole_call": self.whole_call(TARGETS[-1], f_star),
            "seconds_spent": self.time_spent(),
            "objective": best,
        }
        shown |= {
            "excess": None if best is None or f_star is None else best - f_star,
            "f_star": f_star,
            "peak_bytes": self.peak,
        }
        return {**shown, "runs": [vars(run) for run in self.runs]}


def optimum(rows: Iterable[Row]) -> float | None:
    """f*, from below: the largest objective − gap that the referee certified, over all runs of all
    methods on one problem.

    Every such number is a proven lower bound of the optimum, so that f − f* is never reported
    smaller than it is.

    >>> run = Run(1e-8, [(0.1, 2.0), (0.2, 1.5)], 0.2, "solved", 0.25)
    >>> row = Row("one", Setting(25, 2, 1.0), [run])
    >>> optimum([row])
    1.25
    """
    return max(
        (
            run.looks[-1][1] - run.gap
            for row in rows
            for run in row.runs
            if run.looks and run.gap is not None
        ),
        default=None,
    )


def ranked(rows: Sequence[Row], f_star: float | None) -> Row | None:
    """The row that reached the last target first."""
    reached = [
        (t, i) for i, row in enumerate(rows) if (t := row.time_to(TARGETS[-1], f_star)) is not None
    ]
    return rows[min(reached)[1]] if reached else None


def headline(clock: str = "wall") -> list[str]:
    """What was measured and where."""
    machine = f"{platform.machine()}, {os.cpu_count()} cores, "
    return [
        HOW,
        F_STAR,
        CLOCK[clock],
        machine + ", ".join(f"{name} {number}" for name, number in _versions().items()),
    ]


def tables(rows: Sequence[Row]) -> list[str]:
    """The lines of all tables."""
    return [line for setting, here in by_setting(rows) for line in ["", *_table(setting, here)]]


def by_setting(rows: Iterable[Row]) -> list[tuple[Setting, list[Row]]]:
    """Rows grouped by problem, in the order of their first appearance."""
    groups: dict[Setting, list[Row]] = {}
    for row in rows:
        groups.setdefault(row.setting, []).append(row)
    return list(groups.items())


def _table(setting: Setting, rows: list[Row]) -> list[str]:
    f_star = optimum(rows)
    fastest = ranked(rows, f_star)
    best_time = None if fastest is None else fastest.time_to(TARGETS[-1], f_star)
    known = (
        "nobody finished"
        if f_star is None
        else f"f* = {f_star:.9e}, λ = {setting.lam:.3g}, τ = {TOLERANCE:g}"
    )
    heads = "".join(f"{f's to {target:g}':>12}" for target in TARGETS)
    lines = [f"{setting.name}: {known}"]
    lines.append(
        f"{'method':28}{heads}{'ratio':>10}{'call s':>9}{'f/f* − 1':>11}{'peak MB':>9}  status"
    )
    for row in rows:
        best = row.best()
        excess = "" if best is None or f_star is None else f"{best / f_star - 1.0:.1e}"
        memory = "" if row.peak is None else f"{row.peak / 1e6:.0f}"
        times = "".join(f"{_shown(row, target, f_star):>12}" for target in TARGETS)
        call = row.whole_call(TARGETS[-1], f_star)
        ratio = "–" if best_time is None else _shown(row, TARGETS[-1], f_star, best_time)
        numbers = f"{ratio:>10}{'' if call is None else seconds(call):>9}{excess:>11}{memory:>9}"
        lines.append(f"{METHODS[row.method].title:28}{times}{numbers}  {row.status}")
    return lines


def _shown(row: Row, target: float, f_star: float | None, unit: float | None = None) -> str:
    """The time to the target in seconds, or as a multiple of ``unit``."""
    reached, spent = row.time_to(target, f_star), row.time_spent()
    time = spent if reached is None else reached
    if time is None:
        return "–"
    shown = (
        seconds(time)
        if unit is None
        else f"{time / unit:.3g}×"
        if time < 1000.0 * unit
        else f"{time / unit:.0f}×"
    )
    return shown if reached is not None else f"≥{shown}"


def seconds(value: float) -> str:
    """Three digits, no more than a clock on a shared machine deserves.

    >>> seconds(0.012345), seconds(123.4)
    ('0.0123', '123')
    """
    return f"{value:.{max(0, 2 - math.floor(math.log10(max(value, 1e-9))))}f}"


def as_dict(rows: Sequence[Row], clock: str = "wall") -> dict[str, Any]:
    """Everything that was measured."""
    results = [
        row.as_dict(f_star)
        for _, here in by_setting(rows)
        for f_star in [optimum(here)]
        for row in here
    ]
    how: dict[str, Any] = {"how": HOW, "clock": clock, "f_star": F_STAR, "versions": _versions()}
    return {**how, "targets": TARGETS, "tolerance": TOLERANCE, "rows": results}


def write_json(rows: Sequence[Row], path: Path, clock: str = "wall") -> Path:
    """Everything, in one file."""
    path.write_text(json.dumps(as_dict(rows, clock), indent=1) + "\n", encoding="utf-8")
    return path


def _versions() -> dict[str, str]:
    found = {"python": platform.python_version(), "numpy": np.__version__}
    for name in ("scipy", "cvxpy", "clarabel", "scs"):
        with suppress(PackageNotFoundError):
            found[name] = version(name)
    return found
