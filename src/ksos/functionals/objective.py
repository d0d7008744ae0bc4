"""An objective: a functional on a space, as a solver sees it."""

from __future__ import annotations

import math
from dataclasses import dataclass, replace
from functools import cached_property

from ksos.functionals.base import BoundTerm, Functional, Pair, paired, plus
from ksos.ground.arrays import Array, zeros
from ksos.space.embedding_map import SMALL_TENSOR, EmbeddingMap
from ksos.space.space import SoSSpace

__all__ = ["Objective", "Point"]


@dataclass(frozen=True)
class Point:
    """A matrix C with the coordinates a = A(C) of its embedding. A is linear, so combinations of
    points cost nothing more.
    """

    C: Array
    a: Array | None
    G: Array | None = None  # ∇f there, where a solver has computed it already
    lowest: float | None = None  # its lowest eigenvalue, likewise
    F: Array | None = None  # C = FFᵀ, where a solver works with a factor of few columns

    def __add__(self, other: Point) -> Point:
        return Point(
            self.C + other.C, None if self.a is None or other.a is None else self.a + other.a
        )

    def __sub__(self, other: Point) -> Point:
        return Point(
            self.C - other.C, None if self.a is None or other.a is None else self.a - other.a
        )

    def __rmul__(self, scale: float) -> Point:
        return Point(scale * self.C, None if self.a is None else scale * self.a)


@dataclass(eq=False)
class Objective:
    """f(C) = F(p_C) with its gradient, and where F is quadratic its Hessian: all that a solver sees
    of a problem.

    ``stored``: whether A is used as a stored tensor. ``columns``: the directions of the space on
    which C lives, all of them by default.
    """

    term: BoundTerm
    space: SoSSpace
    stored: bool = False
    columns: slice | None = None

    @classmethod
    def of(cls, functional: Functional, space: SoSSpace, *, stored: bool = False) -> Objective:
        """The objective of a functional on a space."""
        if not isinstance(functional, Functional):
            raise TypeError(
                f"a functional such as ksos.functionals.SquaredMMD(X) is needed; got {functional!r}"
            )
        return cls(functional.bind(space), space, stored)

    @cached_property
    def map(self) -> EmbeddingMap:
        """A: as the space has it, or as a stored tensor."""
        whole = self.space.compressed_map if self.stored else self.space.map
        return whole if self.columns is None else whole.restrict(self.columns)

    @cached_property
    def size(self) -> int:
        """r: C is r × r."""
        return len(range(self.space.rank)[self.columns or slice(None)])

    @property
    def operations(self) -> float:
        """Floating-point operations of a certificate: the embedding and its adjoint, the terms, and
        the lowest eigenvalue.
        """
        embedding = self.map.operations if self.term.uses_embedding else 0.0
        return embedding + self.term.operations + 2.0 * float(self.size) ** 3

    def with_term(self, term: BoundTerm) -> Objective:
        """Another function on the same space, with the same map."""
        return replace(self, term=term)

    def on_tensor(self) -> Objective:
        """The same function, with A as a stored tensor."""
        return replace(self, stored=True, columns=None)

    def rounded_well(self) -> Objective:
        """The same function, with A as a stored tensor if that is small and rounds less than A as
        the space has it.
        """
        small = self.space.tensor_size <= SMALL_TENSOR and self.term.uses_embedding
        better = small and not self.stored and not self.space.map.rounds_well
        return self.on_tensor() if better else self

    def restricted(self, columns: slice) -> Objective | None:
        """f on the matrices C that live on some of the directions of the space: a small problem
        beside the large one.
        """
        term = self.term.restrict(columns)
        return None if term is None else replace(self, term=term, columns=columns)

    def point(self, C: Array, F: Array | None = None) -> Point:
        """C, with its factor if that is known, and its embedding, which costs one application of A
        (none if no term looks at it).
        """
        if not self.term.uses_embedding:
            return Point(C, None, F=F)
        return Point(C, self.map.apply(C) if F is None else self.map.apply_factor(F), F=F)

    def value(self, point: Point) -> float:
        """f at a point."""
        return self.term.value(point.a, point.C)

    def gradient(self, point: Point) -> Array:
        """∇f, a symmetric r × r matrix; costs one application of A* unless the point knows it."""
        if point.G is not None:
            return point.G
        return self.pull_back(self.term.gradient(point.a, point.C))

    def uncertainty(self, point: Point) -> float:
        """How far f may be off on the spectraplex, near this point, because of quadrature and of
        rounding in the integrals, estimated.
        """
        slope = self._noisy_slope(point)
        return self.term.integration_error + (0.0 if slope is None else self.map.rounding(slope))

    def rounding_matrix(self, point: Point) -> Array | None:
        """E such that ∇f is off by at most ±E because of rounding in the integrals, estimated; None
        if it is negligible.
        """
        slope = self._noisy_slope(point)
        return None if slope is None else self.map.rounding_matrix(slope)

    def _noisy_slope(self, point: Point) -> Array | None:
        """∂f/∂a if A has been formed by integrals that round."""
        noisy = self.term.uses_embedding and self.map.noise is not None
        return self.term.gradient(point.a, point.C)[0] if noisy else None

    def factor_gradient(self, F: Array) -> tuple[float, Array]:
        """f(FFᵀ) and ∇f(FFᵀ)·F, without any r × r matrix where the functional and the map can do
        without.
        """
        a = self.map.apply_factor(F) if self.term.uses_embedding else None
        value, in_embedding, product = self.term.factor_gradient(a, F)
        if in_embedding is not None:
            product = plus(product, 1.0, self.map.adjoint_times(in_embedding, F))
        return value, zeros(F.shape, F) if product is None else product

    def hessian(self, direction: Point) -> Array | None:
        """∇²f applied to a direction, for a quadratic f; else None."""
        product = self._constant_hessian(direction)
        return None if product is None else self.pull_back(product)

    def curvature(self, direction: Point) -> float | None:
        """⟨d, ∇²f d⟩ without applying A*, for a quadratic f; else None."""
        product = self._constant_hessian(direction)
        return None if product is None else paired(product, direction.a, direction.C)

    def _constant_hessian(self, direction: Point) -> Pair | None:
        a, C = direction.a, direction.C
        return self.term.hessian(a, C, a, C) if self.term.quadratic else None

    def projected_mmd_bound(self, gap: float) -> float | None:
        """√(gap/c): how far, in projected MMD, a point with this gap can be from the optimum; None
        without a squared MMD in f.
        """
        c = self.term.embedding_convexity
        return math.sqrt(max(gap, 0.0) / c) if c > 0.0 else None

    def pull_back(self, pair: Pair) -> Array:
        """A derivative in (a, C) as one in C alone: A*(∂a) + ∂C."""
        in_embedding, in_parameter = pair
        pulled = None if in_embedding is None else self.map.adjoint(in_embedding)
        total = plus(pulled, 1.0, in_parameter)
        return zeros((self.size, self.size), self.space.T) if total is None else total
