"""Solvers: how to minimize a functional over a space, and the certificate of the answer.

>>> SOLVERS["fista"]
Fista(max_iter=20000, check_every=10, restart=True)
>>> STATUSES["solved"]
'the gap is at most tol'
"""

from __future__ import annotations

from ksos.solvers.cones import (
    ConePair,
    ScaledPair,
    SchurSystem,
    cone_divide,
    cone_product,
    cone_step,
    longest_step,
)
from ksos.solvers.constrained import follow_central_path, known_to, nearest
from ksos.solvers.constrained_problem import ConstrainedProblem, Multipliers, restored
from ksos.solvers.first_order import Fista, FrankWolfe, ProjectedGradient, lipschitz
from ksos.solvers.interior_point import (
    ConicProgram,
    InteriorPoint,
    central_path,
    minimum_on_face,
    optimum_on_face,
)
from ksos.solvers.lbfgs import LBFGS, Secants, descend, descend_until, lowest
from ksos.solvers.loop import STATUSES, Progress, Solution, Solver, Stepper, iterate
from ksos.solvers.low_rank import FactorHessian, LowRank
from ksos.solvers.minimize import (
    SOLVERS,
    Auto,
    as_solver,
    check_options,
    minimize,
    quick_mmd_fit,
    regularization_path,
)
from ksos.solvers.newton import Minimum, Value, newton, proven_minimum
from ksos.solvers.spectraplex import (
    DENSE,
    centre,
    certify,
    factor,
    graded_bound,
    lowest_bound,
    lowest_eigenpairs,
    project,
    project_simplex,
)

__all__ = [
    "DENSE",
    "LBFGS",
    "SOLVERS",
    "STATUSES",
    "Auto",
    "ConePair",
    "ConicProgram",
    "ConstrainedProblem",
    "FactorHessian",
    "Fista",
    "FrankWolfe",
    "InteriorPoint",
    "LowRank",
    "Minimum",
    "Multipliers",
    "Progress",
    "ProjectedGradient",
    "ScaledPair",
    "SchurSystem",
    "Secants",
    "Solution",
    "Solver",
    "Stepper",
    "Value",
    "as_solver",
    "central_path",
    "centre",
    "certify",
    "check_options",
    "cone_divide",
    "cone_product",
    "cone_step",
    "descend",
    "descend_until",
    "factor",
    "follow_central_path",
    "graded_bound",
    "iterate",
    "known_to",
    "lipschitz",
    "longest_step",
    "lowest",
    "lowest_bound",
    "lowest_eigenpairs",
    "minimize",
    "minimum_on_face",
    "nearest",
    "newton",
    "optimum_on_face",
    "project",
    "project_simplex",
    "proven_minimum",
    "quick_mmd_fit",
    "regularization_path",
    "restored",
]
