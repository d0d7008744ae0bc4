"""Functionals of a distribution, as sums of terms. To add one: a subclass of
:class:`Functional` beside those that are most like it.
"""

from __future__ import annotations

from ksos.functionals.base import (
    Bound,
    BoundLinear,
    BoundTerm,
    Constraint,
    Functional,
    Pair,
    ScaledSum,
    from_values,
    paired,
    plus,
    weighted_sum,
)
from ksos.functionals.custom import CustomFunctional, GradientCheck, check_gradient
from ksos.functionals.l2 import Basis, BasisSums, SquaredL2
from ksos.functionals.likelihood import NegativeLogLikelihood, likelihood_term
from ksos.functionals.linear import Expectation, Frobenius, Trace
from ksos.functionals.mmd import MMD, BoundBall, BoundSquaredMMD, SquaredMMD, within
from ksos.functionals.objective import Objective, Point

__all__ = [
    "MMD",
    "Basis",
    "BasisSums",
    "Bound",
    "BoundBall",
    "BoundLinear",
    "BoundSquaredMMD",
    "BoundTerm",
    "Constraint",
    "CustomFunctional",
    "Expectation",
    "Frobenius",
    "Functional",
    "GradientCheck",
    "NegativeLogLikelihood",
    "Objective",
    "Pair",
    "Point",
    "ScaledSum",
    "SquaredL2",
    "SquaredMMD",
    "Trace",
    "check_gradient",
    "from_values",
    "likelihood_term",
    "paired",
    "plus",
    "weighted_sum",
    "within",
]
