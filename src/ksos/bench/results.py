"""What is known of one contestant on one problem, and the value f* that all are measured against."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from typing import Any

from ksos.bench.problem import Setting

__all__ = ["TARGETS", "Row", "Run", "optimum"]

TARGETS = (1e-4, 1e-6, 1e-8)
"""f − f* to be reached."""


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
    """One contestant on one problem."""

    contestant: str
    setting: Setting
    runs: list[Run] = field(default_factory=list)
    status: str = ""
    peak: float | None = None
    """Bytes by which the process grew, at most, above what its imports took."""
    limit: float = 120.0

    def time_to(self, target: float, f_star: float) -> float | None:
        """Seconds until f − f* ≤ target, in the run that was fastest; None: never."""
        times = [next((t for t, f in run.looks if f - f_star <= target), None) for run in self.runs]
        return min((t for t in times if t is not None), default=None)

    def whole_call(self, target: float, f_star: float) -> float | None:
        """Seconds of the fastest run whose answer is within the target, from the points to what the user gets, certificate and all."""
        answered = [run.seconds for run in self.runs if run.looks and run.looks[-1][1] - f_star <= target]
        return min((s for s in answered if s is not None), default=None)

    def time_spent(self) -> float | None:
        """Seconds of the longest run: where a target was not reached, it takes at least this long; None: no run came that far."""
        at_limit = self.limit if self.status.startswith("killed at the limit") else None
        ends = [at_limit if run.seconds is None else run.seconds for run in self.runs]
        return max((seconds for seconds in ends if seconds is not None), default=None)

    def best(self) -> float | None:
        """The lowest objective that the referee saw at the end of a run."""
        return min((run.looks[-1][1] for run in self.runs if run.looks), default=None)

    def as_dict(self, f_star: float | None) -> dict[str, Any]:
        """For JSON."""
        best = self.best()
        return {
            "contestant": self.contestant,
            "m": self.setting.m,
            "d": self.setting.d,
            "sigma": self.setting.sigma,
            "lambda": self.setting.lam,
            "status": self.status,
            "seconds_to": {f"{target:g}": None if f_star is None else self.time_to(target, f_star) for target in TARGETS},
            "whole_call": None if f_star is None else self.whole_call(TARGETS[-1], f_star),
            "seconds_spent": self.time_spent(),
            "objective": best,
            "excess": None if best is None or f_star is None else best - f_star,
            "f_star": f_star,
            "peak_bytes": self.peak,
            "runs": [vars(run) for run in self.runs],
        }


def optimum(rows: Iterable[Row]) -> float | None:
    """f*, from below: the largest objective − gap that the referee certified, over all runs of all contestants on one problem.

    Every such number is a proven lower bound of the optimum, so that f − f* is never reported smaller than it is.

    >>> row = Row("one", Setting(25, 2, 1.0), [Run(1e-8, [(0.1, 2.0), (0.2, 1.5)], 0.2, "solved", 0.25)])
    >>> optimum([row])
    1.25
    """
    return max((run.looks[-1][1] - run.gap for row in rows for run in row.runs if run.looks and run.gap is not None), default=None)


def ranked(rows: Sequence[Row], f_star: float | None) -> Row | None:
    """The row that reached the last target first."""
    reached = [(t, i) for i, row in enumerate(rows) if f_star is not None and (t := row.time_to(TARGETS[-1], f_star)) is not None]
    return rows[min(reached)[1]] if reached else None
