"""The solvers of this package as contestants: from points to the density returned, whitening and tensor included."""

from __future__ import annotations

import time
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import numpy as np

from ksos.bench.problem import TOLERANCE, Setting
from ksos.bench.watch import Watch
from ksos.functionals import SquaredMMD, Trace
from ksos.kernels import Gaussian
from ksos.solvers import SOLVERS, minimize
from ksos.space import SoSSpace

__all__ = ["TOLERANCES", "solve"]

TOLERANCES = (1e-8, 1e-9)


def solve(name: str, setting: Setting, X: np.ndarray, tol: float, watch: Watch) -> str:
    """One fit with the solver ``name``; returns its status."""
    space = SoSSpace(Gaussian(setting.sigma), X, tol_model=TOLERANCE, tol_embedding=TOLERANCE)
    with _observed(name, space, setting, watch):
        began, already = time.perf_counter(), watch.seconds
        solution = minimize(
            SquaredMMD(X) + setting.lam * Trace(), space, solver=name, tol=tol, time_limit=max(watch.left, 1e-3), max_iter=10_000_000
        )
        assert time.perf_counter() - began >= watch.seconds - already  # the clock of the race never runs faster than time
    watch.look(solution.distribution.factor, np.eye(solution.rank), last=True)
    return solution.status


@contextmanager
def _observed(name: str, space: SoSSpace, setting: Setting, watch: Watch) -> Iterator[None]:
    """Let the referee see the points that the solver certifies: its line in the table of solvers leads to an observed one meanwhile."""
    original = SOLVERS[name]
    L = space.T / np.sqrt(setting.unit)
    SOLVERS[name] = lambda: _Observed(original(), L, watch)  # type: ignore[assignment, return-value]
    try:
        yield
    finally:
        SOLVERS[name] = original


class _Observed:
    """A solver that shows its points to the referee and otherwise is the one it stands for."""

    def __init__(self, solver: Any, L: np.ndarray, watch: Watch) -> None:
        self._solver, self._L, self._watch = solver, L, watch

    def __getattr__(self, name: str) -> Any:
        return getattr(self._solver, name)

    def point(self, state: Any) -> Any:
        point = self._solver.point(state)
        if self._watch.left > 0.0:  # afterwards the solver's own limit ends the run
            self._watch.look(self._L, point.C)
        return point
