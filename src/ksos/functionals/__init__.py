"""Functionals of a distribution, as sums of terms. To add one: a subclass of
:class:`Functional` beside those that are most like it.
"""

from __future__ import annotations

from ksos.functionals.base import (
    Bound,
    BoundLinear as BoundLinear,
    BoundTerm,
    Constraint,
    Functional,
    Objective as Objective,
    Pair as Pair,
    Point as Point,
    ScaledSum as ScaledSum,
    density_values as density_values,
    from_values as from_values,
    paired as paired,
    plus as plus,
    weighted_sum as weighted_sum,
)
from ksos.functionals.custom import CustomFunctional, GradientCheck, check_gradient
from ksos.functionals.l2 import Basis as Basis, BasisSums, SquaredL2
from ksos.functionals.likelihood import (
    BoundLikelihood as BoundLikelihood,
    LikelihoodSums as LikelihoodSums,
    NegativeLogLikelihood,
    RowLikelihood as RowLikelihood,
    likelihood_term as likelihood_term,
)
from ksos.functionals.linear import Expectation, Frobenius, Trace
from ksos.functionals.mmd import (
    MMD,
    BoundBall as BoundBall,
    BoundSquaredMMD as BoundSquaredMMD,
    SquaredMMD,
    within,
)

__all__ = [
    "MMD",
    "BasisSums",
    "Bound",
    "BoundTerm",
    "Constraint",
    "CustomFunctional",
    "Expectation",
    "Frobenius",
    "Functional",
    "GradientCheck",
    "NegativeLogLikelihood",
    "SquaredL2",
    "SquaredMMD",
    "Trace",
    "check_gradient",
    "within",
]
