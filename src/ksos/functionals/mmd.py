"""The maximum mean discrepancy to a target, squared and not: the paper's objectives."""

from __future__ import annotations

from typing import Any

from ksos.density import SoSDensity
from ksos.functionals.base import BoundTerm, Constraint, EmbeddingQuadratic, Functional, Pair
from ksos.ground import Array, as_points, as_positive, inner, norm
from ksos.kernels import KernelSums
from ksos.space import LabeledDensity, LabeledEmbedding, MeanEmbedding, SoSSpace

_NO_LENGTH = 1e-150  # its square is still a float: at the target itself nothing is divided by zero
_TARGETS = (MeanEmbedding, KernelSums, SoSDensity, LabeledEmbedding, LabeledDensity)


class SquaredMMD(Functional):
    """‖P(w_p − w_target)‖² = ‖A(C) − z‖², projected on the landmarks of the space (the paper's
    low-rank problem).

    ``target``: samples (n, d), a :class:`~ksos.MeanEmbedding` (weights, signed ones included), an
    :class:`~ksos.SoSDensity`, or :class:`~ksos.KernelSums` of samples that are gone; for a space
    with labels, a labeled embedding or density.

    >>> import ksos
    >>> X = [[-0.5], [0.0], [0.5]]
    >>> space = ksos.SoSSpace(ksos.kernels.Gaussian(1.0), X)
    >>> ksos.minimize(SquaredMMD(X) + 1e-3 * ksos.functionals.Trace(), space).status
    'solved'
    """

    def __init__(self, target: Any) -> None:
        self.target = (
            target if isinstance(target, _TARGETS) else as_points(target, "target", copy=True)
        )

    def bind(self, space: SoSSpace) -> BoundTerm:
        return BoundSquaredMMD(space.coordinates(self.target))

    def __repr__(self) -> str:
        return f"{type(self).__name__}({_short(self.target)})"


class MMD(SquaredMMD):
    """‖P(w_p − w_target)‖, not squared, as the paper's density-fitting equation writes it.

    >>> MMD([[0.0], [1.0]]) <= 0.2  # a ball, as a constraint
    MMD(2 samples) <= 0.2
    """

    def bind(self, space: SoSSpace) -> BoundTerm:
        return _BoundMMD(space.coordinates(self.target))

    def bind_excess(self, space: SoSSpace, bound: float) -> BoundTerm:
        return BoundBall(
            space.coordinates(self.target), as_positive(bound, "the radius of an MMD ball")
        )


def within(distance: MMD, radius: Any) -> Constraint:
    """The ball {p : MMD(p, target) ≤ radius}, as a constraint; the same as ``MMD(target) <=
    radius``.

    >>> within(MMD([[0.0], [1.0]]), 0.2)
    MMD(2 samples) <= 0.2
    """
    if not isinstance(distance, MMD):
        raise TypeError(f"within takes MMD(target), not squared, and a radius; got {distance!r}")
    return Constraint(distance, "<=", as_positive(radius, "radius"))


class _EmbeddingTerm(BoundTerm):
    """A function of a − z alone."""

    uses_embedding = twice_differentiable = True

    def __init__(self, z: Array) -> None:
        self.z = z

    def factor_gradient(
        self, a: Array | None, F: Array
    ) -> tuple[float, Array | None, Array | None]:
        return self.value(a, F), self.gradient(a, F)[0], None


class BoundSquaredMMD(_EmbeddingTerm):
    """‖a − z‖²."""

    quadratic = True
    unit, embedding_convexity = 0.5, 1.0  # the gradient is (a − z)/unit

    def value(self, a: Array | None, C: Array) -> float:
        residual = a - self.z
        return inner(residual, residual)

    def gradient(self, a: Array | None, C: Array) -> Pair:
        return (a - self.z) / self.unit, None

    def hessian(self, a: Array | None, C: Array, da: Array | None, dC: Array) -> Pair | None:
        assert da is not None
        return da / self.unit, None

    def conic_form(self) -> EmbeddingQuadratic | None:
        return EmbeddingQuadratic(0.5 / self.unit, 0.5 / self.unit * self.z)


class _BoundMMD(_EmbeddingTerm):
    def value(self, a: Array | None, C: Array) -> float:
        return norm(a - self.z)

    def gradient(self, a: Array | None, C: Array) -> Pair:
        residual = a - self.z
        # 0 is a subgradient of the norm at 0
        return residual / max(norm(residual), _NO_LENGTH), None

    def hessian(self, a: Array | None, C: Array, da: Array | None, dC: Array) -> Pair | None:
        assert da is not None
        length = max(norm(a - self.z), _NO_LENGTH)
        u = (a - self.z) / length
        along = u @ da
        return (da - (u[:, None] * along[None, :] if da.ndim == 2 else u * along)) / length, None

    def conic_form(self) -> EmbeddingQuadratic | None:
        return EmbeddingQuadratic(1.0, self.z, exact=False)  # of the squared distance


class BoundBall(BoundSquaredMMD):
    """(‖a − z‖² − ε²)/(2ε): smooth at the center of the ball too, and at its boundary as steep as
    the distance itself.
    """

    def __init__(self, z: Array, radius: float) -> None:
        super().__init__(z)
        self.radius = self.unit = radius
        self.embedding_convexity = 0.5 / radius

    def value(self, a: Array | None, C: Array) -> float:
        # factored, since the difference of the squares loses the digits of a small excess
        distance = norm(a - self.z)
        return 0.5 * (distance - self.radius) * (1.0 + distance / self.radius)


def _short(target: Any) -> str:
    shape = getattr(target, "shape", None)
    return f"{shape[0]} samples" if isinstance(shape, tuple) and shape else repr(target)
