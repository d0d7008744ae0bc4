"""Who takes part: every solver of this package, the paper's algorithm, and CVXPY in four guises."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from functools import partial

import numpy as np

from ksos.bench import conic, ours, published
from ksos.bench.problem import Setting
from ksos.bench.watch import Watch
from ksos.solvers import SOLVERS

__all__ = ["CONTESTANTS", "QUICK", "Contestant"]


@dataclass(frozen=True)
class Contestant:
    """One way to solve the problem.

    ``solve(setting, X, tol, watch)`` makes one run from the points to an answer, shows it to ``watch``, and returns a status;
    ``tolerances`` are tried in turn, each in a fresh run, until the last target is reached.
    """

    solve: Callable[[Setting, np.ndarray, float, Watch], str]
    tolerances: tuple[float, ...]
    title: str
    prepare: Callable[[], object] = lambda: None
    """Import what the runs need; raises, with the remedy, where that is missing."""


CONTESTANTS: dict[str, Contestant] = {
    **{name: Contestant(partial(ours.solve, name), ours.TOLERANCES, f"ksos, {name}") for name in SOLVERS},
    "published": Contestant(published.solve, (published.STOPPING,), "the paper's algorithm"),
    **{
        f"{solver}_{formulation}": Contestant(
            partial(conic.solve, solver, formulation),
            conic.TOLERANCES[solver],
            f"CVXPY {'SCS' if solver == 'scs' else solver.capitalize()}, {formulation}",
            conic.require_cvxpy,
        )
        for formulation in conic.FORMULATIONS
        for solver in conic.TOLERANCES
    },
}
"""Every contestant by name."""

QUICK = [name for name in ("low_rank", "interior_point", "fista", "published", "clarabel_whitened", "scs_whitened") if name in CONTESTANTS]
"""Those of a preview."""
