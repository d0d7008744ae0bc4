"""The spectraplex, the loop, and one file per algorithm.

>>> SOLVERS["fista"]
Fista(max_iter=20000, check_every=10, restart=True)
>>> STATUSES["solved"]
'the gap is at most tol'
"""

from __future__ import annotations

from ksos.solvers.certificate import (
    DENSE,
    certify,
    graded_bound,
    lowest_bound,
    lowest_eigenpairs,
)
from ksos.solvers.cones import (
    ConePair,
    ScaledPair,
    SchurSystem,
    cone_divide,
    cone_product,
    cone_step,
    longest_step,
)
from ksos.solvers.constrained import nearest
from ksos.solvers.constrained_problem import ConstrainedProblem, Multipliers, restored
from ksos.solvers.first_order import Fista, FrankWolfe, ProjectedGradient, lipschitz
from ksos.solvers.interior_point import (
    ConicProgram,
    InteriorPoint,
    central_path,
    minimum_on_face,
    optimum_on_face,
)
from ksos.solvers.lbfgs import LBFGS, Secants, descend, lowest
from ksos.solvers.loop import Solver, Stepper, iterate
from ksos.solvers.low_rank import FactorHessian, LowRank
from ksos.solvers.minimize import SOLVERS, Auto, minimize, regularization_path
from ksos.solvers.newton import Minimum, proven_minimum
from ksos.solvers.solution import STATUSES, Progress, Solution
from ksos.solvers.spectraplex import centre, factor, project, project_simplex

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
# what other rooms and the tests use besides
__all__ += ["DENSE", "certify", "graded_bound", "lowest_bound", "lowest_eigenpairs"]
__all__ += ["ConePair", "ScaledPair", "SchurSystem", "cone_divide", "cone_product", "cone_step"]
__all__ += ["ConicProgram", "central_path", "longest_step", "minimum_on_face", "optimum_on_face"]
__all__ += ["ConstrainedProblem", "Multipliers", "nearest", "restored"]
__all__ += ["FactorHessian", "Minimum", "Secants", "Stepper", "descend", "iterate", "lipschitz"]
__all__ += ["centre", "factor", "lowest", "project", "project_simplex", "proven_minimum"]
