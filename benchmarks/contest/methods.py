"""The methods that are timed: every solver of this package, the paper's algorithm, and CVXPY in
four forms.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from functools import partial

import numpy as np

from contest import baselines
from contest.problem import TOLERANCE, Setting
from contest.referee import OutOfTimeError, Watch
from ksos import SoSSpace
from ksos.functionals import SquaredMMD, Trace
from ksos.kernels import Gaussian
from ksos.solvers import SOLVERS, Progress, minimize

__all__ = ["METHODS", "QUICK", "Method", "solve_ours"]

_TOLERANCES = (1e-8, 1e-9)
_NO_LIMIT = 10_000_000  # iterations: only the clock counts


def solve_ours(name: str, setting: Setting, X: np.ndarray, tol: float, watch: Watch) -> str:
    """One fit with the solver ``name``, from points to the density, whitening and tensor included;
    returns its status.
    """
    space = SoSSpace(Gaussian(setting.sigma), X, tol_model=TOLERANCE, tol_embedding=TOLERANCE)
    L = space.T / np.sqrt(setting.unit)

    def look(progress: Progress) -> None:
        watch.look(L, np.asarray(progress.parameter))

    try:
        functional = SquaredMMD(X) + setting.lam * Trace()
        solution = minimize(
            functional, space, solver=name, tol=tol, max_iter=_NO_LIMIT, callback=look
        )
    except OutOfTimeError:
        return "time_limit"
    watch.look(solution.distribution.factor, np.eye(solution.rank), last=True)
    return solution.status


@dataclass(frozen=True)
class Method:
    """One way to solve the problem.

    ``solve(setting, X, tol, watch)`` makes one run from the points to an answer, shows it to
    ``watch``, and returns a status; ``tolerances`` are tried in turn, each in a fresh run, until
    the last target is reached.
    """

    solve: Callable[[Setting, np.ndarray, float, Watch], str]
    tolerances: tuple[float, ...]
    title: str
    prepare: Callable[[], object] = lambda: None
    """Import what the runs need; raises, with the suggested fix, where that is missing."""


METHODS: dict[str, Method] = {
    **{name: Method(partial(solve_ours, name), _TOLERANCES, f"ksos, {name}") for name in SOLVERS},
    "published": Method(baselines.solve_published, (baselines.STOPPING,), "the paper's algorithm"),
    **{
        f"{solver}_{formulation}": Method(
            partial(baselines.solve_conic, solver, formulation),
            baselines.TOLERANCES[solver],
            f"CVXPY {'SCS' if solver == 'scs' else solver.capitalize()}, {formulation}",
            baselines.require_cvxpy,
        )
        for formulation in baselines.FORMULATIONS
        for solver in baselines.TOLERANCES
    },
}
"""Every method by name."""

QUICK = [
    name
    for name in (
        "low_rank",
        "interior_point",
        "fista",
        "published",
        "clarabel_whitened",
        "scs_whitened",
    )
    if name in METHODS
]
"""Those of a preview."""
