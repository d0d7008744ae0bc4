"""The expectation of a function of x: linear in the distribution, so it may be minimised, bounded on either side, or fixed."""

from __future__ import annotations

from typing import Any

import numpy as np

from ksos._array import like, to_numpy
from ksos._validation import as_finite
from ksos.embedding import MeanEmbedding
from ksos.functionals.base import BoundTerm, Constraint, Functional
from ksos.functionals.penalties import BoundLinear
from ksos.observables import KernelFunction, Observable, as_observable
from ksos.space import SoSSpace

__all__ = ["Expectation"]


class Expectation(Functional):
    r"""E_p[f] = ⟨M, C⟩ with M = ∫ f ψψᵀ dρ.

    ``Expectation(f) == c``, ``<= c`` and ``>= c`` are constraints: moments, and with a :class:`~ksos.observables.BoxIndicator`
    probabilities. Being linear, it may also be scaled by a negative number: ``-Expectation(f)`` is to be maximised.

    Parameters
    ----------
    f : Observable, MeanEmbedding or callable
        A polynomial, a kernel function, the indicator of a box: closed forms. Any other function of an array (n, d): quadrature, with an
        error estimate that the solution reports.

    Examples
    --------
    >>> from ksos.observables import coordinate
    >>> 2 * Expectation(coordinate(0) ** 2)
    Expectation(Polynomial(2·x0²))
    """

    def __init__(self, f: Any) -> None:
        self.f: Observable = KernelFunction(f.points, f.weights, kernel=f.kernel) if isinstance(f, MeanEmbedding) else as_observable(f)

    def bind(self, space: SoSSpace) -> BoundTerm:
        X, T = to_numpy(space.support_points), to_numpy(space.T)
        M = self.f.matrix(space.kernel, X, space.measure, space.log_unit, T)
        return BoundLinear(like(M.values, space.T), M.worst_error())

    def __mul__(self, scale: Any) -> Functional:
        return Expectation(self.f * as_finite(scale, "the factor of an expectation"))

    __rmul__ = __mul__

    def __neg__(self) -> Functional:
        return self * -1.0

    def __eq__(self, bound: object) -> Any:
        if isinstance(bound, (int, float, np.integer, np.floating)) and not isinstance(bound, bool):
            return Constraint(self, "==", bound)
        return self is bound

    __hash__ = Functional.__hash__

    def __ge__(self, bound: Any) -> Constraint:
        return Constraint(self, ">=", bound)

    def __repr__(self) -> str:
        return f"Expectation({self.f!r})"
