"""The solvers of this package as contestants: from points to the density returned, whitening and tensor included."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import numpy as np

from ksos.bench.problem import TOLERANCE, Setting
from ksos.bench.watch import OutOfTimeError, Watch
from ksos.functionals import SquaredMMD, Trace
from ksos.kernels import Gaussian
from ksos.solvers import SOLVERS, minimize
from ksos.space import SoSSpace

__all__ = ["TOLERANCES", "solve"]

TOLERANCES = (1e-8, 1e-9)
_NO_LIMIT = 10_000_000  # iterations: only the clock counts


def solve(name: str, setting: Setting, X: np.ndarray, tol: float, watch: Watch) -> str:
    """One fit with the solver ``name``; returns its status."""
    space = SoSSpace(Gaussian(setting.sigma), X, tol_model=TOLERANCE, tol_embedding=TOLERANCE)
    try:
        with _observed(name, space, setting, watch):
            solution = minimize(SquaredMMD(X) + setting.lam * Trace(), space, solver=name, tol=tol, max_iter=_NO_LIMIT)
    except OutOfTimeError:
        return "time_limit"
    watch.look(solution.distribution.factor, np.eye(solution.rank), last=True)
    return solution.status


@contextmanager
def _observed(name: str, space: SoSSpace, setting: Setting, watch: Watch) -> Iterator[None]:
    """Let the referee see the points that the solver certifies: its line in the table of solvers leads to an observed one meanwhile."""
    original = SOLVERS[name]
    L = space.T / np.sqrt(setting.unit)
    SOLVERS[name] = _Line(original, L, watch)  # type: ignore[assignment, unused-ignore]
    try:
        yield
    finally:
        SOLVERS[name] = original


class _Line:
    """The line of the table: makes observed solvers, and answers every other question as the class it stands for."""

    def __init__(self, original: Any, L: np.ndarray, watch: Watch) -> None:
        self._original, self._L, self._watch = original, L, watch

    def __call__(self) -> Any:
        return _Observed(self._original(), self._L, self._watch)

    def __getattr__(self, name: str) -> Any:
        return getattr(self._original, name)


class _Observed:
    """A solver that shows its points to the referee and otherwise is the one it stands for."""

    def __init__(self, solver: Any, L: np.ndarray, watch: Watch) -> None:
        self._solver, self._L, self._watch = solver, L, watch

    def __getattr__(self, name: str) -> Any:
        return getattr(self._solver, name)

    def point(self, state: Any) -> Any:
        point = self._solver.point(state)
        self._watch.look(self._L, point.C)
        return point
