"""Penalties on the operator A = Σ B_ij φ(x̃_i)⊗φ(x̃_j): its trace, as in the note, and its
Hilbert–Schmidt norm.
"""

from __future__ import annotations

import math

from ksos.functionals.base import BoundTerm, EmbeddingQuadratic, Functional, Pair
from ksos.ground.arrays import Array, inner
from ksos.space.space import SoSSpace

__all__ = ["BoundLinear", "Frobenius", "ScaledFunctional", "Trace", "UncurvedLinear"]


class ScaledFunctional(Functional):
    """``relative=True`` counts in units of 1/w₀ (w₀ = max_i ∫k(x,x̃_i)²dρ), which makes the value
    independent of the data's scale.
    """

    def __init__(self, *, relative: bool = False) -> None:
        self.relative = bool(relative)

    def unit(self, space: SoSSpace) -> float:
        """What the value in relative units is multiplied by."""
        exponent = 0.0 if self.relative else -space.log_unit
        if exponent > 600.0:
            raise ValueError(
                f"{self!r} overflows: the natural unit of the space is exp({space.log_unit:.4g});"
                " use relative=True"
            )
        return math.exp(exponent)

    def __repr__(self) -> str:
        return f"{type(self).__name__}({'relative=True' if self.relative else ''})"


class Trace(ScaledFunctional):
    """tr A = tr(BK) (the note's λ tr A; the nuclear norm, which favours few squares).

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


class BoundLinear(BoundTerm):
    """⟨D, C⟩."""

    quadratic = twice_differentiable = linear = matrix_free = True
    _spectrum: tuple[Array, Array] | None = None  # remembered, once asked for

    def __init__(self, D: Array, integration_error: float = 0.0) -> None:
        self.D, self.integration_error = D, integration_error

    def restrict(self, columns: slice) -> BoundTerm | None:
        return BoundLinear(self.D[columns, columns])

    def value(self, a: Array | None, C: Array) -> float:
        return inner(self.D, C)

    def gradient(self, a: Array | None, C: Array) -> Pair:
        return None, self.D

    def hessian(self, a: Array | None, C: Array, da: Array | None, dC: Array) -> Pair | None:
        return None, None

    def as_quadratic(self) -> EmbeddingQuadratic | None:
        return EmbeddingQuadratic(D=self.D)

    def factor_gradient(
        self, a: Array | None, F: Array
    ) -> tuple[float, Array | None, Array | None]:
        product = self.D @ F
        return inner(F, product), None, product

    def linear_part(self) -> Array | None:
        return self.D

    def linear_spectrum(self) -> tuple[Array, Array] | None:
        self._spectrum = super().linear_spectrum() if self._spectrum is None else self._spectrum
        return self._spectrum


class UncurvedLinear(BoundLinear):
    """⟨D, C⟩ for sums over samples. D says nothing of the curvature, so that no solver should
    precondition with it.
    """

    def linear_part(self) -> Array | None:
        return None


class _BoundFrobenius(BoundTerm):
    quadratic = twice_differentiable = True

    def __init__(self, N: Array) -> None:
        self.N = N

    def restrict(self, columns: slice) -> BoundTerm | None:
        return _BoundFrobenius(self.N[columns, columns])

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
