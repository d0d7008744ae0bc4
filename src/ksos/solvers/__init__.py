"""Solvers: how to minimize a functional over a space, and the certificate of the answer.

>>> SOLVERS["fista"]
Fista(max_iter=20000, check_every=10, restart=True)
>>> STATUSES["solved"]
'the gap is at most tol'
"""

from __future__ import annotations

from ksos.solvers.cones import (
    ConePair as ConePair,
    ScaledPair as ScaledPair,
    SchurSystem as SchurSystem,
    cone_divide as cone_divide,
    cone_product as cone_product,
    cone_step as cone_step,
    longest_step as longest_step,
)
from ksos.solvers.constrained import (
    nearest as nearest,
)
from ksos.solvers.constrained_problem import (
    ConstrainedProblem as ConstrainedProblem,
    Multipliers as Multipliers,
    restored as restored,
)
from ksos.solvers.first_order import Fista, FrankWolfe, ProjectedGradient
from ksos.solvers.interior_point import (
    ConicProgram as ConicProgram,
    InteriorPoint,
    central_path as central_path,
    minimum_on_face as minimum_on_face,
    optimum_on_face as optimum_on_face,
)
from ksos.solvers.lbfgs import (
    LBFGS,
    Secants as Secants,
    descend as descend,
    descend_until as descend_until,
    lowest as lowest,
)
from ksos.solvers.loop import (
    STATUSES,
    Progress,
    Solution,
    Solver,
    Stepper as Stepper,
    iterate as iterate,
    known_to as known_to,
)
from ksos.solvers.low_rank import FactorHessian as FactorHessian, LowRank
from ksos.solvers.minimize import (
    SOLVERS,
    Auto,
    as_solver as as_solver,
    check_options as check_options,
    fit_to_cells as fit_to_cells,
    minimize,
    regularization_path,
)
from ksos.solvers.newton import (
    Minimum as Minimum,
    Value as Value,
    newton as newton,
    proven_minimum as proven_minimum,
)
from ksos.solvers.spectraplex import (
    DENSE as DENSE,
    center as center,
    certify as certify,
    factor as factor,
    graded_bound as graded_bound,
    lowest_bound as lowest_bound,
    lowest_eigenpairs as lowest_eigenpairs,
    project as project,
    project_simplex as project_simplex,
)

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
    "ProjectedGradient",
    "Solution",
    "Solver",
    "minimize",
    "regularization_path",
]
