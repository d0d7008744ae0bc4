"""Solution: the density, its certificate, and how it was found."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any, NamedTuple

from ksos._array import Array
from ksos.density import SoSDensity
from ksos.space import SoSSpace

__all__ = ["STATUSES", "Progress", "Solution"]

STATUSES = {
    "solved": "the gap is at most tol",
    "solved_inaccurate": "no further progress in floating point, with the gap above tol; raise tol (gap_relative tells how far it is)",
    "max_iter": "the iteration limit came first; raise max_iter or tol",
    "time_limit": "the time limit came first; raise time_limit or tol",
    "interrupted": "stopped from outside; the best point so far is kept",
    "numerical_error": "a matrix routine failed; the last certified point is kept; raise tol_model or the regularisation",
}


class Progress(NamedTuple):
    """One line of the history, and what a callback receives."""

    n_iter: int
    objective: float
    gap: float
    time: float


@dataclass(frozen=True)
class Solution:
    """The result of :func:`ksos.minimize`."""

    distribution: SoSDensity
    """The density found: always valid, whatever the status."""
    objective: float
    """f at the point found."""
    gap: float
    """f(C) − f* ≤ gap, recomputed from scratch at the point returned."""
    gap_relative: float
    """gap / |objective|."""
    projected_mmd_bound: float | None
    """With a squared MMD in f: the projected MMD between this density and the optimal one is at most this."""
    status: str
    """One of :data:`STATUSES`."""
    solver: str
    """What ran."""
    n_iter: int
    history: list[Progress] = field(repr=False)
    space: SoSSpace = field(repr=False)
    parameter_factor: Array = field(repr=False)
    """G with C = GGᵀ: the point in the whitened parameters of the space."""
    time: float = 0.0
    """Seconds in the solver."""
    keyboard_interrupt: bool = False
    """Of an interrupted run: whether by Ctrl-C, and not by a callback's return value."""

    @property
    def rank(self) -> int:
        """The number of squares of the density."""
        return self.distribution.rank

    @property
    def message(self) -> str:
        """The status in a sentence, with the gap."""
        return f"{self.solver}: {self.status} after {self.n_iter} iterations, gap {self.gap:.2e}: {STATUSES[self.status]}"

    def summary(self) -> dict[str, Any]:
        """What ran and what is certified, as plain numbers and words."""
        names = ("status", "solver", "n_iter", "objective", "gap", "gap_relative", "projected_mmd_bound")
        return {name: getattr(self, name) for name in names}

    @property
    def parameter(self) -> Array:
        """C = GGᵀ."""
        return self.parameter_factor @ self.parameter_factor.T
