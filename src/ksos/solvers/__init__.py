"""The spectraplex, the loop, and one file per algorithm.

>>> SOLVERS["fista"]
Fista(max_iter=20000, check_every=10, restart=True)
>>> STATUSES["solved"]
'the gap is at most tol'
"""

from __future__ import annotations

from ksos.solvers.first_order import Fista, FrankWolfe, ProjectedGradient
from ksos.solvers.interior_point import InteriorPoint
from ksos.solvers.lbfgs import LBFGS
from ksos.solvers.loop import Solver
from ksos.solvers.low_rank import LowRank
from ksos.solvers.minimize import SOLVERS, Auto, minimize, regularization_path
from ksos.solvers.solution import STATUSES, Progress, Solution

__all__ = [
    "LBFGS",
    "SOLVERS",
    "STATUSES",
    "Auto",
    "Fista",
    "FrankWolfe",
    "InteriorPoint",
    "LowRank",
    "Progress",
]
__all__ += ["ProjectedGradient", "Solution", "Solver", "minimize", "regularization_path"]
