"""Penalties on the operator A = Σ B_ij φ(x̃_i)⊗φ(x̃_j), its trace as in the paper and its
Hilbert–Schmidt norm, and expectations.
"""

from __future__ import annotations

import math
from typing import Any

import numpy as np

from ksos.functionals.base import (
    LARGEST_EXPONENT,
    Bound,
    BoundLinear,
    BoundTerm,
    Constraint,
    EmbeddingQuadratic,
    Functional,
    Pair,
)
from ksos.ground import Array, as_finite, eye, inner, like, to_numpy
from ksos.observables import KernelFunction, Observable, as_observable
from ksos.space import MeanEmbedding, SoSSpace


class ScaledFunctional(Functional):
    """``relative=True`` counts in units of 1/w₀ (w₀ = max_i ∫k(x,x̃_i)²dρ), which makes the value
    independent of the data's scale.
    """

    def __init__(self, *, relative: bool = False) -> None:
        self.relative = bool(relative)

    def unit(self, space: SoSSpace) -> float:
        """What the value in relative units is multiplied by."""
        exponent = 0.0 if self.relative else -space.log_unit
        if exponent > LARGEST_EXPONENT:
            raise ValueError(
                f"{self!r} overflows: the natural unit of the space is exp({space.log_unit:.4g});"
                " use relative=True"
            )
        return math.exp(exponent)

    def __repr__(self) -> str:
        return f"{type(self).__name__}({'relative=True' if self.relative else ''})"


class Trace(ScaledFunctional):
    """tr A = tr(BK), the paper's penalty: the nuclear norm, which favors few squares.

    >>> 1e-3 * Trace(relative=True)
    0.001 * Trace(relative=True)
    """

    def bind(self, space: SoSSpace) -> BoundTerm:
        return BoundLinear(self.unit(space) * space.trace_matrix)


class Frobenius(ScaledFunctional):
    """‖A‖²_HS = tr(BKBK).

    >>> 1e-3 * Frobenius()
    0.001 * Frobenius()
    """

    def bind(self, space: SoSSpace) -> BoundTerm:
        return _BoundFrobenius(self.unit(space) * space.trace_matrix)


class _BoundFrobenius(BoundTerm):
    quadratic = twice_differentiable = True

    def __init__(self, N: Array) -> None:
        self.N = N

    def value(self, a: Array | None, C: Array) -> float:
        M = self.N @ C
        return inner(M, M.T)

    def gradient(self, a: Array | None, C: Array) -> Pair:
        product = self.N @ C @ self.N
        return None, product + product.T

    def hessian(self, a: Array | None, C: Array, da: Array | None, dC: Array) -> Pair | None:
        return self.gradient(da, dC)

    def conic_form(self) -> EmbeddingQuadratic | None:
        return EmbeddingQuadratic(N=self.N)

    def factor_hessian(self, F: Array) -> Array | None:
        M = self.N @ F
        crossed = M[:, None, None, :] * M.T[None, :, :, None]
        return 4.0 * (crossed + self.N[:, None, :, None] * (F.T @ M).T[None, :, None, :])


class Expectation(Functional):
    r"""The expectation of a function of x, E_p[f] = ⟨M, C⟩ with M = ∫ f ψψᵀ dρ.

    ``Expectation(f) == c``, ``<= c`` and ``>= c`` are constraints: moments, and with a
    :class:`~ksos.observables.BoxIndicator` probabilities. Being linear, it may also be scaled by a
    negative number: ``-Expectation(f)`` is to be maximized.

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
        if not constant:
            return term
        return BoundLinear(term.D + constant * eye(space.rank, space.T), term.integration_error)

    def bind_excess(self, space: SoSSpace, bound: float) -> BoundTerm:
        term, constant = self._around_the_support(space)
        return Functional.bind_excess(Bound(term), space, bound - constant)

    # E_p[f − c], and c: since ∫ψψᵀdρ = I, a large constant has the matrix c·I to the last digit,
    # and a bound need not contain it.
    def _around_the_support(self, space: SoSSpace) -> tuple[BoundLinear, float]:
        X, T = to_numpy(space.support_points), to_numpy(space.T)
        f, constant = self.f, 0.0
        # with jitter ∫ψψᵀdρ is not I, and with labels f depends on them: nothing to take out
        if space.jitter == 0.0 and space.labels is None:
            f, constant = f.without_constant(X)
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
