"""F as sums of terms. To add a functional: one file with one subclass of :class:`Functional`."""

from __future__ import annotations

from ksos.functionals.base import BoundTerm, Functional
from ksos.functionals.mmd import MMD, SquaredMMD
from ksos.functionals.penalties import Frobenius, Trace

__all__ = ["MMD", "BoundTerm", "Frobenius", "Functional", "SquaredMMD", "Trace"]
