"""Solution: the density, its certificate, and how it was found."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass, field
from functools import cached_property
from typing import Any

from ksos.density import SoSDensity
from ksos.ground.arrays import Array
from ksos.solvers.spectraplex import factor
from ksos.space.space import SoSSpace

__all__ = ["STATUSES", "Progress", "Solution"]

STATUSES = {
    "solved": "the gap is at most tol",
    "solved_inaccurate": (
        "no further progress, or hardly any, with the gap above tol; raise tol (gap_relative tells"
        " how far it is)"
    ),
    "max_iter": "the iteration limit came first; raise max_iter or tol",
    "time_limit": "the time limit came first; raise time_limit or tol",
    "interrupted": "stopped from outside; the best point so far is kept",
    "numerical_error": (
        "a matrix routine failed; the last certified point is kept; raise tol_model or the"
        " regularisation"
    ),
    "infeasible": (
        "no density of the space meets the constraints, which is proven; the density returned"
        " violates them least"
    ),
    "stationary": (
        "no direction improves the point; the functional is not declared convex, so nothing is"
        " certified"
    ),
}


@dataclass(frozen=True)
class Progress:
    """One line of the history, and what a callback receives.

    >>> import ksos
    >>> from ksos.functionals import SquaredMMD
    >>> space = ksos.SoSSpace(ksos.kernels.Gaussian(1.0), [[0.0], [1.0]])
    >>> gaps = []
    >>> solution = ksos.minimize(SquaredMMD([[0.3]]), space, callback=lambda progress: gaps.append(progress.gap))
    >>> isinstance(solution.history[-1], Progress), len(gaps) > 0
    (True, True)
    """

    n_iter: int
    objective: float
    gap: float
    time: float
    """Seconds since the call began."""
    parameter: Array | None = field(default=None, compare=False, repr=False)
    """C at this certificate. Only a callback sees it: the history does not keep it."""
    space: SoSSpace | None = field(default=None, compare=False, repr=False)

    @property
    def distribution(self) -> SoSDensity:
        """The density at this certificate, computed when a callback asks for it."""
        if self.parameter is None or self.space is None:
            raise ValueError(
                "the history keeps no densities; ask for progress.distribution inside a callback"
            )
        return self.space.density(factor(self.parameter))


@dataclass(frozen=True)
class Solution:
    """The result of :func:`ksos.minimize`.

    >>> import ksos
    >>> from ksos.functionals import SquaredMMD, Trace
    >>> space = ksos.SoSSpace(ksos.kernels.Gaussian(1.0), [[0.0], [1.0]])
    >>> solution: Solution = ksos.minimize(SquaredMMD([[0.0], [1.0]]) + 1e-3 * Trace(), space)
    >>> solution.status, solution.gap <= 1e-8, solution.distribution.mean().round(3).tolist()
    ('solved', True, [0.5])
    """

    objective: float
    """f at the point found."""
    gap: float | None
    """f(C) − f* ≤ gap, recomputed from scratch at the point returned: of the Lagrangian, where
    there are constraints. None if nothing is certified, because the functional is not declared
    convex or no feasible point was found.
    """
    projected_mmd_bound: float | None
    """With a squared MMD in f: the projected MMD between this density and the optimal one is at
    most this.
    """
    status: str
    """One of :data:`STATUSES`."""
    solver: str
    """What ran, at the end."""
    n_iter: int
    history: list[Progress] = field(repr=False)
    space: SoSSpace = field(repr=False)
    parameter_factor: Array = field(repr=False)
    """G with C = GGᵀ: the point in the whitened parameters of the space."""
    time: float = 0.0
    """Seconds of the whole call, the binding of the functional and the certificate at the end
    included.
    """
    solver_reason: str = ""
    """Every solver that ran, in turn, and why it was chosen."""
    keyboard_interrupt: bool = False
    """Of an interrupted run: whether by Ctrl-C, and not by a callback's return value."""
    multipliers: tuple[float, ...] = ()
    """Of a constrained problem, one per constraint: −∂f*/∂c for F ≤ c and F = c, ∂f*/∂c for F ≥ c
    (then, as for ≤, not negative).
    """
    ball_vectors: Mapping[int, Any] = field(default_factory=dict, repr=False)
    """For MMD balls, by their position among the constraints, where the solver has them: v of R^q,
    ``|v|`` being the multiplier. The gap then counts the ball as ``⟨v, A(C) − z⟩ ≤ radius·|v|``,
    which holds on it for any v.
    """
    violation: float = 0.0
    """By how much the density violates the constraints, each in units of its own range."""
    least_radius: float | None = None
    """Of a problem that is infeasible because of an MMD ball: the certified radius below which the
    ball holds no density of the space.
    """
    integration_error: float = 0.0
    """How far the objective may be off because of quadrature, estimated; 0 where all integrals are
    closed forms.
    """
    note: str = ""
    """What else there is to say about the status."""

    @cached_property
    def distribution(self) -> SoSDensity:
        """The density found: always valid, whatever the status."""
        return self.space.density(self.parameter_factor)

    @property
    def rank(self) -> int:
        """The number of squares of the density."""
        return int(self.parameter_factor.shape[1])

    @property
    def gap_relative(self) -> float | None:
        """``gap / |objective|``."""
        if self.gap is None or self.objective == 0.0:
            return None if self.gap is None else 0.0 if self.gap == 0.0 else math.inf
        return self.gap / abs(self.objective)

    @property
    def message(self) -> str:
        """The status in a sentence, with the gap."""
        gap = "no gap" if self.gap is None else f"gap {self.gap:.2e}"
        note = f"; {self.note}" if self.note else ""
        return (
            f"{self.solver}: {self.status} after {self.n_iter} iterations, {gap}:"
            f" {STATUSES[self.status]}{note}"
        )

    @property
    def dual_bound(self) -> float | None:
        """objective − gap: the certified lower bound of the optimum."""
        return None if self.gap is None else self.objective - self.gap

    def summary(self) -> dict[str, Any]:
        """What ran and what is certified, as plain numbers and words."""
        names = (
            "status",
            "solver",
            "solver_reason",
            "n_iter",
            "objective",
            "gap",
            "gap_relative",
            "projected_mmd_bound",
        )
        return {name: getattr(self, name) for name in names}

    @property
    def parameter(self) -> Array:
        """C = GGᵀ."""
        return self.parameter_factor @ self.parameter_factor.T
