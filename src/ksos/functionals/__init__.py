"""F as sums of terms. To add a functional: one file with one subclass of :class:`Functional`."""

from __future__ import annotations

from ksos.functionals.base import Bound, BoundTerm, Constraint, Functional
from ksos.functionals.basis_sums import BasisSums
from ksos.functionals.checks import GradientCheck, check_gradient
from ksos.functionals.custom import CustomFunctional
from ksos.functionals.expectation import Expectation
from ksos.functionals.l2 import SquaredL2
from ksos.functionals.likelihood import NegativeLogLikelihood
from ksos.functionals.mmd import MMD, SquaredMMD, within
from ksos.functionals.penalties import Frobenius, Trace

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
]
__all__ += [
    "GradientCheck",
    "NegativeLogLikelihood",
    "SquaredL2",
    "SquaredMMD",
    "Trace",
    "check_gradient",
    "within",
]
