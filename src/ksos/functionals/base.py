"""The functional protocol: F as a sum of scaled terms, each bound to a space before it is
evaluated; and the objective that they make, as a solver sees it.

A term sees a point of the spectraplex in two forms, the parameter C and the coordinates a = A(C) of
its embedding, and gives its gradient in whichever of the two it lives in: the costly maps A and A*
are applied once for the whole sum.
"""

from __future__ import annotations

import math
from abc import ABC, abstractmethod
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Any

from ksos.ground import Array, as_finite, as_nonnegative, inner, namespace, row_blocks, zeros
from ksos.space import SMALL_TENSOR, EmbeddingMap, SoSSpace

_LARGEST_FACTOR = 1e100  # cube root of the largest float: a product of three such stays finite
LARGEST_EXPONENT = 600.0  # nats: e^600 = 4e260 leaves room below the largest float, 2e308

#: Something in the embedding (a vector of R^q) and something in the parameter (an r × r matrix).
#: None stands for zero.
Pair = tuple[Array | None, Array | None]


@dataclass(frozen=True)
class EmbeddingQuadratic:
    """The form of a functional that has a small conic dual: s‖a‖² − 2⟨b, a⟩ + ⟨D, C⟩ + tr(CNCN).

    A constant may be missing. Sums and multiples keep the form.

    >>> import numpy as np
    >>> distance = EmbeddingQuadratic(1.0, np.ones(2))
    >>> total = distance + 3.0 * EmbeddingQuadratic(0.5, np.ones(2), np.eye(1))
    >>> total.scale, total.b.tolist(), total.D.tolist()
    (2.5, [4.0, 4.0], [[3.0]])
    """

    scale: float = 0.0  # s ≥ 0
    # in R^q: s·z for the squared distance s‖a − z‖². None stands for zero, here and below.
    b: Array | None = None
    D: Array | None = None  # symmetric, r × r
    N: Array | None = None  # symmetric, r × r; on one space always a multiple of the same matrix
    # False: the form of another function, which has the same minima on every convex set
    exact: bool = True

    def __add__(self, other: EmbeddingQuadratic) -> EmbeddingQuadratic:
        N = other.N if self.N is None else self.N
        if self.N is not None and other.N is not None:  # tr(CMCM) + tr(CNCN) with N a multiple of M
            N = (1.0 + (inner(self.N, other.N) / inner(self.N, self.N)) ** 2) ** 0.5 * self.N
        b, D = plus(self.b, 1.0, other.b), plus(self.D, 1.0, other.D)
        return EmbeddingQuadratic(self.scale + other.scale, b, D, N)

    def __rmul__(self, factor: float) -> EmbeddingQuadratic:
        b, D = plus(None, factor, self.b), plus(None, factor, self.D)
        N = plus(None, factor**0.5, self.N)
        return EmbeddingQuadratic(factor * self.scale, b, D, N, self.exact)


class BoundTerm(ABC):
    """A convex function of (a, C) on one space.

    >>> from ksos import SoSSpace
    >>> from ksos.functionals import Trace
    >>> from ksos.kernels import Gaussian
    >>> space = SoSSpace(Gaussian(1.0), [[0.0], [1.0]])
    >>> term: BoundTerm = Trace(relative=True).bind(space)
    >>> term.linear, term.uses_embedding, term.value(None, space.T[:1].T @ space.T[:1]) > 0
    (True, False, True)
    """

    #: Whether the term looks at a = A(C).
    uses_embedding = False
    #: Whether the second derivative is the same everywhere.
    quadratic = False
    #: Whether :meth:`hessian` has an answer.
    twice_differentiable = False
    #: Whether it is linear in C, up to a constant.
    linear = False
    #: Whether the term is convex, so that gradients certify minima.
    convex = True
    #: Whether :meth:`factor_gradient` forms no r × r matrix.
    matrix_free = False
    #: c such that F − c‖a‖² is still convex: it turns a gap into a bound on distances between
    #: embeddings.
    embedding_convexity = 0.0
    #: How far the term may be off on the spectraplex because of a quadrature rule, estimated.
    #: 0 for closed forms.
    integration_error = 0.0

    @property
    def operations(self) -> float:
        """Floating-point operations of a value and a gradient, beyond those of the embedding."""
        return 0.0

    @abstractmethod
    def value(self, a: Array | None, C: Array) -> float:
        """F at the point."""

    @abstractmethod
    def gradient(self, a: Array | None, C: Array) -> Pair:
        """(∂F/∂a, ∂F/∂C): a vector of R^q and a symmetric r × r matrix; None stands for zero."""

    def hessian(self, a: Array | None, C: Array, da: Array | None, dC: Array) -> Pair | None:
        """The second derivative at (a, C) applied to the direction (da, dC); None when the term has
        none to offer.

        ``da`` may hold several directions as columns, shape (q, n), for the part that lives in the
        embedding.
        """
        return None

    def factor_hessian(self, F: Array) -> Array | None:
        """∂²/∂C² seen through C = FFᵀ: the form E ↦ ⟨E, 2·∂²F(FEᵀ + EFᵀ)·F⟩ as an array (r, k, r,
        k); None stands for zero.
        """
        return None

    def factor_gradient(
        self, a: Array | None, F: Array
    ) -> tuple[float, Array | None, Array | None]:
        """The value, ∂F/∂a and the product ∂F/∂C·F at C = FFᵀ, a = A(C); None stands for zero."""
        C = F @ F.T
        in_embedding, in_parameter = self.gradient(a, C)
        return self.value(a, C), in_embedding, None if in_parameter is None else in_parameter @ F

    def linear_parts(self) -> list[tuple[float, BoundLinear]]:
        """The linear terms in it that say something of its curvature, each with its factor."""
        return []

    def conic_form(self) -> EmbeddingQuadratic | None:
        """The term, or a function with the same minima, in the form of a conic program; None if
        it has no such form.
        """
        return None

    @property
    def embedding_quadratic(self) -> EmbeddingQuadratic | None:
        """The term as a squared distance of embeddings plus a linear function of C, or None."""
        form = self.conic_form()
        return form if form is not None and form.exact and form.N is None else None


class BoundLinear(BoundTerm):
    """⟨D, C⟩.

    ``curved=False``: D is a sum over samples, which says nothing of the curvature of f, so that no
    solver preconditions with it.
    """

    quadratic = twice_differentiable = linear = matrix_free = True

    def __init__(self, D: Array, integration_error: float = 0.0, *, curved: bool = True) -> None:
        self.D, self.integration_error, self.curved = D, integration_error, curved

    # remembered: along a path of regularizations only the factor of the penalty changes
    @cached_property
    def spectrum(self) -> tuple[Array, Array]:
        """The eigenvalues and eigenvectors of D."""
        values, vectors = namespace(self.D).linalg.eigh(self.D)
        return values, vectors

    def value(self, a: Array | None, C: Array) -> float:
        return inner(self.D, C)

    def gradient(self, a: Array | None, C: Array) -> Pair:
        return None, self.D

    def hessian(self, a: Array | None, C: Array, da: Array | None, dC: Array) -> Pair | None:
        return None, None

    def conic_form(self) -> EmbeddingQuadratic | None:
        return EmbeddingQuadratic(D=self.D)

    def factor_gradient(
        self, a: Array | None, F: Array
    ) -> tuple[float, Array | None, Array | None]:
        product = self.D @ F
        return inner(F, product), None, product

    def linear_parts(self) -> list[tuple[float, BoundLinear]]:
        return [(1.0, self)] if self.curved else []


class PointwiseTerm(BoundTerm):
    """φ(p(x_1), …, p(x_n)), a sum of functions of one density value each: p(x_i) = ψ_iᵀCψ_i,
    ``psi`` having the rows ψ_i.
    """

    twice_differentiable = True
    psi: Array

    @abstractmethod
    def value_at(self, p: Array) -> float:
        """φ."""

    @abstractmethod
    def slopes(self, p: Array) -> tuple[Array, Array]:
        """∂φ/∂p_i and ∂²φ/∂p_i²."""

    @property
    def operations(self) -> float:
        return 4.0 * self.psi.shape[0] * self.psi.shape[1] ** 2

    def value(self, a: Array | None, C: Array) -> float:
        return self.value_at(density_values(self.psi, C))

    def gradient(self, a: Array | None, C: Array) -> Pair:
        return None, from_values(self.psi, self.slopes(density_values(self.psi, C))[0])

    def hessian(self, a: Array | None, C: Array, da: Array | None, dC: Array) -> Pair | None:
        curvature = self.slopes(density_values(self.psi, C))[1]
        return None, from_values(self.psi, curvature * density_values(self.psi, dC))

    def factor_hessian(self, F: Array) -> Array | None:
        """E ↦ 4 Σ_i φ''_i (ψ_iᵀEv_i)², v_i = Fᵀψ_i, in blocks of points."""
        xp, (r, k), V = namespace(F), F.shape, self.psi @ F
        out = zeros((r * k, r * k), F)
        roots = 2.0 * xp.sqrt(self.slopes(xp.sum(V * V, axis=1))[1])
        for part in row_blocks(self.psi.shape[0], r * k, 1 << 22):  # 32 MB at a time
            J = value_rows(roots[part][:, None] * self.psi[part, :], V[part, :])
            out += J.T @ J
        return xp.reshape(out, (r, k, r, k))

    def factor_gradient(
        self, a: Array | None, F: Array
    ) -> tuple[float, Array | None, Array | None]:
        V = self.psi @ F
        p = namespace(F).sum(V * V, axis=1)
        return self.value_at(p), None, self.psi.T @ (self.slopes(p)[0][:, None] * V)


def density_values(psi: Array, C: Array) -> Array:
    """ψ_iᵀCψ_i for every row of ``psi``."""
    return namespace(C).sum((psi @ C) * psi, axis=1)


def from_values(psi: Array, g: Array) -> Array:
    """Σ_i g_i ψ_iψ_iᵀ: the adjoint of :func:`density_values`."""
    return psi.T @ (g[:, None] * psi)


def value_rows(psi: Array, V: Array) -> Array:
    """The rows ψ_i ⊗ v_i, of length rk."""
    return namespace(V).reshape(psi[:, :, None] * V[:, None, :], (-1, psi.shape[1] * V.shape[1]))


class Functional(ABC):
    """A convex functional of a distribution; add with ``+``, scale with ``*`` by a non-negative
    number; ``F <= c`` is a constraint.

    >>> from ksos.functionals import SquaredMMD, Trace
    >>> fit: Functional = SquaredMMD([[0.0], [1.0]]) + 1e-3 * Trace()
    >>> fit
    1 * SquaredMMD(2 samples) + 0.001 * Trace()
    """

    #: The gap that is small in the units of the functional, for a default ``tol``. 0: unknown.
    natural_tol: float = 0.0

    @abstractmethod
    def bind(self, space: SoSSpace) -> BoundTerm:
        """The functional as a function on the spectraplex of ``space``."""

    def terms(self) -> Sequence[tuple[float, Functional]]:
        """The functional as Σ scale·term."""
        return [(1.0, self)]

    def __add__(self, other: Any) -> Functional:
        if isinstance(other, Functional):
            return ScaledSum([*self.terms(), *other.terms()])
        return self if isinstance(other, (int, float)) and other == 0 else NotImplemented

    __radd__ = __add__  # so that the built-in sum() works

    def __mul__(self, scale: Any) -> Functional:
        scale = as_nonnegative(scale, "the factor of a functional (a negative one is not convex)")
        if scale > _LARGEST_FACTOR:
            raise ValueError(
                f"the factor of a functional must be at most {_LARGEST_FACTOR:g}, or its values"
                f" leave the range of floats; got {scale:g}"
            )
        return ScaledSum([(scale * factor, term) for factor, term in self.terms()])

    __rmul__ = __mul__

    def __le__(self, bound: Any) -> Constraint:
        return Constraint(self, "<=", bound)

    def __ge__(self, bound: Any) -> Constraint:
        raise TypeError(
            f"{self!r} >= {bound!r} is not a convex constraint; only an Expectation may be bounded"
            " from below or fixed"
        )

    def bind_excess(self, space: SoSSpace, bound: float) -> BoundTerm:
        """A convex g with g ≤ 0 where F ≤ ``bound``, and near the boundary g = F − ``bound`` to
        first order.
        """
        return _BoundSum([(1.0, self.bind(space))], -bound)


class Bound(Functional):
    """A term that is bound already, as a functional: its sums over the data are taken once, however
    often it is minimized.

    >>> from ksos import SoSSpace, minimize
    >>> from ksos.functionals import SquaredMMD, Trace
    >>> from ksos.kernels import Gaussian
    >>> space = SoSSpace(Gaussian(1.0), [[0.0], [1.0]])
    >>> data = Bound(SquaredMMD([[0.2], [0.9]]).bind(space))
    >>> [minimize(data + scale * Trace(), space).status for scale in (1e-2, 1e-3)]
    ['solved', 'solved']
    """

    def __init__(self, term: BoundTerm, name: str = "") -> None:
        self.term, self.name = term, name or type(term).__name__.lstrip("_")

    def bind(self, space: SoSSpace) -> BoundTerm:
        return self.term

    def __repr__(self) -> str:
        return self.name


class Constraint:
    """F(p) ≤ c; for an expectation, which is linear in p, also F(p) = c and F(p) ≥ c. Written as
    comparisons.

    >>> from ksos.functionals import Expectation
    >>> from ksos.observables import coordinate
    >>> Expectation(coordinate(0)) == 0.5
    Expectation(Polynomial(x0)) == 0.5
    """

    def __init__(self, functional: Functional, sense: str, bound: Any) -> None:
        self.functional, self.sense = functional, sense
        self.bound = as_finite(bound, f"the bound of {functional!r} {sense} …")

    @property
    def equality(self) -> bool:
        """Whether F(p) = c is asked for."""
        return self.sense == "=="

    def bind(self, space: SoSSpace) -> BoundTerm:
        """g on the spectraplex of ``space``: the constraint is g ≤ 0, or g = 0."""
        if self.sense == ">=":
            return (self.functional * -1.0).bind_excess(space, -self.bound)
        return self.functional.bind_excess(space, self.bound)

    def __bool__(self) -> bool:
        raise TypeError(
            "a constraint is neither true nor false; pass both sides of a double inequality on"
            f" their own, such as {self!r}"
        )

    def __repr__(self) -> str:
        return f"{self.functional!r} {self.sense} {self.bound:g}"


class ScaledSum(Functional):
    """Σ_t scale_t · F_t."""

    def __init__(self, terms: Sequence[tuple[float, Functional]]) -> None:
        self._terms = list(terms)
        self.natural_tol = max(
            (scale * term.natural_tol for scale, term in self._terms), default=0.0
        )

    def terms(self) -> Sequence[tuple[float, Functional]]:
        return self._terms

    def bind(self, space: SoSSpace) -> BoundTerm:
        return _BoundSum([(scale, term.bind(space)) for scale, term in self._terms])

    def __repr__(self) -> str:
        return " + ".join(f"{scale:g} * {term!r}" for scale, term in self._terms)


class _BoundSum(BoundTerm):
    def __init__(self, terms: Sequence[tuple[float, BoundTerm]], constant: float = 0.0) -> None:
        # a term of factor 0 must not cost anything, nor take away what the others have
        self.parts = [(scale, term) for scale, term in terms if scale > 0.0]
        self.constant = constant
        own = [term for _, term in self.parts]
        self.uses_embedding = any(term.uses_embedding for term in own)
        for flag in ("convex", "quadratic", "linear", "twice_differentiable", "matrix_free"):
            setattr(self, flag, all(getattr(term, flag) for term in own))
        for number in ("embedding_convexity", "integration_error"):
            setattr(self, number, sum(scale * getattr(term, number) for scale, term in self.parts))

    @property
    def operations(self) -> float:
        return sum(term.operations for _, term in self.parts)

    def value(self, a: Array | None, C: Array) -> float:
        return sum(scale * term.value(a, C) for scale, term in self.parts) + self.constant

    def gradient(self, a: Array | None, C: Array) -> Pair:
        return weighted_sum((scale, term.gradient(a, C)) for scale, term in self.parts)

    def hessian(self, a: Array | None, C: Array, da: Array | None, dC: Array) -> Pair | None:
        products = [(scale, term.hessian(a, C, da, dC)) for scale, term in self.parts]
        known = [(scale, product) for scale, product in products if product is not None]
        return weighted_sum(known) if len(known) == len(products) else None

    def factor_hessian(self, F: Array) -> Array | None:
        forms = ((scale, (term.factor_hessian(F), None)) for scale, term in self.parts)
        return weighted_sum(forms)[0]

    def factor_gradient(
        self, a: Array | None, F: Array
    ) -> tuple[float, Array | None, Array | None]:
        found = [(scale, *term.factor_gradient(a, F)) for scale, term in self.parts]
        pairs = ((scale, (slope, image)) for scale, _, slope, image in found)
        return sum(scale * value for scale, value, _, _ in found), *weighted_sum(pairs)

    def linear_parts(self) -> list[tuple[float, BoundLinear]]:
        return [
            (scale * factor, part)
            for scale, term in self.parts
            for factor, part in term.linear_parts()
        ]

    def conic_form(self) -> EmbeddingQuadratic | None:
        forms = [(scale, term.conic_form()) for scale, term in self.parts]
        known = [scale * form for scale, form in forms if form is not None]
        if len(known) == 1 == len(forms):
            return known[0]
        # minima of a sum are not those of its parts: only exact forms add up
        exact = len(known) == len(forms) and all(form.exact for form in known)
        return sum(known, EmbeddingQuadratic()) if exact else None


def weighted_sum(pairs: Iterable[tuple[float, Pair]], start: Pair = (None, None)) -> Pair:
    """start + Σ scale·pair; what has the scale 0 is not looked at."""
    for scale, (first, second) in pairs:
        if scale != 0.0:
            start = plus(start[0], scale, first), plus(start[1], scale, second)
    return start


def paired(pair: Pair, a: Array | None, C: Array) -> float:
    """The inner product of a pair with (a, C)."""
    in_embedding = 0.0 if pair[0] is None or a is None else inner(pair[0], a)
    return in_embedding + (0.0 if pair[1] is None else inner(pair[1], C))


def plus(total: Array | None, scale: float, part: Array | None) -> Array | None:
    """total + scale·part, where None stands for zero."""
    if part is None:
        return total
    return scale * part if total is None else total + scale * part


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

    ``stored``: whether A is used as a stored tensor.
    """

    term: BoundTerm
    space: SoSSpace
    stored: bool = False

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
        return self.space.compressed_map if self.stored else self.space.map

    @property
    def operations(self) -> float:
        """Floating-point operations of a certificate: the embedding and its adjoint, the terms, and
        the lowest eigenvalue.
        """
        embedding = self.map.operations if self.term.uses_embedding else 0.0
        return embedding + self.term.operations + 2.0 * float(self.space.rank) ** 3

    def with_term(self, term: BoundTerm) -> Objective:
        """Another function on the same space, with the same map."""
        return replace(self, term=term)

    def on_tensor(self) -> Objective:
        """The same function, with A as a stored tensor."""
        return replace(self, stored=True)

    def rounded_well(self) -> Objective:
        """The same function, with A as a stored tensor if that is small and rounds less than A as
        the space has it.
        """
        small = self.space.tensor_size <= SMALL_TENSOR and self.term.uses_embedding
        better = small and not self.stored and not self.space.map.rounds_well
        return self.on_tensor() if better else self

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

    # ∂f/∂a if A has been formed by integrals that round.
    def _noisy_slope(self, point: Point) -> Array | None:
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

    def curvature(self, direction: Point) -> float | None:
        """⟨d, ∇²f d⟩ without applying A*, for a quadratic f; else None."""
        a, C = direction.a, direction.C
        product = self.term.hessian(a, C, a, C) if self.term.quadratic else None
        return None if product is None else paired(product, a, C)

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
        return zeros((self.space.rank, self.space.rank), self.space.T) if total is None else total
