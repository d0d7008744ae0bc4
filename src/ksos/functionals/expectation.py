"""The expectation of a function of x: linear in the distribution, so it may be minimised, bounded
on either side, or fixed.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from ksos.functionals.base import Bound, BoundTerm, Constraint, Functional
from ksos.functionals.penalties import BoundLinear
from ksos.ground.arrays import eye, like, to_numpy
from ksos.ground.validation import as_finite
from ksos.observables import KernelFunction, Observable, as_observable
from ksos.space.embedding import MeanEmbedding
from ksos.space.space import SoSSpace

__all__ = ["Expectation"]


class Expectation(Functional):
    r"""E_p[f] = ⟨M, C⟩ with M = ∫ f ψψᵀ dρ.

    ``Expectation(f) == c``, ``<= c`` and ``>= c`` are constraints: moments, and with a
    :class:`~ksos.observables.BoxIndicator` probabilities. Being linear, it may also be scaled by a
    negative number: ``-Expectation(f)`` is to be maximised.

    Parameters
    ----------
    f : Observable, MeanEmbedding or callable
        A polynomial, a kernel function, the indicator of a box: closed forms. Any other function of
        an array (n, d): quadrature, with an error estimate that the solution reports.

    Examples
    --------
    >>> from ksos.observables import coordinate
    >>> 2 * Expectation(coordinate(0) ** 2)
    Expectation(Polynomial(2·x0²))
    """

    def __init__(self, f: Any) -> None:
        self.f: Observable = (
            KernelFunction(f.points, f.weights, kernel=f.kernel)
            if isinstance(f, MeanEmbedding)
            else as_observable(f)
        )

    def bind(self, space: SoSSpace) -> BoundTerm:
        term, constant = self._around_the_support(space)
        return (
            BoundLinear(term.D + constant * eye(space.rank, space.T), term.integration_error)
            if constant
            else term
        )

    def bind_excess(self, space: SoSSpace, bound: float) -> BoundTerm:
        term, constant = self._around_the_support(space)
        return Functional.bind_excess(Bound(term), space, bound - constant)

    def _around_the_support(self, space: SoSSpace) -> tuple[BoundLinear, float]:
        """E_p[f − c], and c: since ∫ψψᵀdρ = I, a large constant has the matrix c·I to the last
        digit, and a bound need not contain it.
        """
        X, T = to_numpy(space.support_points), to_numpy(space.T)
        f, constant = (
            self.f.without_constant(X)
            if space.jitter == 0.0 and space.labels is None
            else (self.f, 0.0)
        )
        M = f.matrix(space.kernel, X, space.measure, space.log_unit, T)
        return BoundLinear(like(M.values, space.T), M.worst_error()), constant

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
