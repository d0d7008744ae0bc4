"""Product Laplace and half-integer Matérn kernels × {Lebesgue, Box}: per feature, exponentials
times polynomials between the centers.

On the line, a product of factors κ(r) = e^{−r}·polynomial(r) keeps this form between neighboring
centers.
"""

from __future__ import annotations

import functools
import itertools
import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any, Self, cast

import numpy as np

from ksos.ground import on_host, row_blocks
from ksos.integrals.base import Factor, Integrals
from ksos.kernels import Kernel
from ksos.quadrature import laguerre, legendre

# a LineIntegral holds some thirty arrays of this size at a time: they stay in the cache
_BLOCK_ELEMENTS = 1 << 14
_FAR = 1e150
"""Lengths are held below this many bandwidths, which keeps differences of them finite; an end at
infinity stands here.
"""
_GONE = 700.0
"""e^{−700} times any polynomial of κ is nothing against what the near end of a piece contributes.
"""


@dataclass(frozen=True)
class _Piece:
    """A stretch without a center inside, walked from the end where e^{height − decay·s}, 0 ≤ s ≤ 1,
    is largest.
    """

    near: np.ndarray
    """Where the walk begins, relative to an origin."""
    walk: np.ndarray
    """How far it goes; negative to the left."""
    height: np.ndarray
    length: np.ndarray | float
    """The same as a multiple of the line's unit."""
    decay: np.ndarray | float
    start: Sequence[np.ndarray]
    """Scaled distances |x − c_i|/σ_i at that end, of the factors that have a polynomial."""
    change: Sequence[np.ndarray]
    """What these distances gain along the whole walk."""

    def select(self, chosen: np.ndarray) -> Self:
        """The chosen entries, as flat arrays."""
        fields = self.near, self.walk, self.height, self.length, self.decay
        near, walk, height, length, decay, *rest = (
            np.broadcast_to(field, chosen.shape)[chosen]
            for field in (*fields, *self.start, *self.change)
        )
        n = len(self.start)
        return type(self)(near, walk, height, length, decay, rest[:n], rest[n:])


class LineIntegral:
    r"""∫_low^high Π_i κ_i(|x − c_i|/σ_i) dx with κ_i(r) = e^{−r} Σ_k q_ik r^k, for arrays of
    centers c_i that broadcast together.

    ``factors`` are pairs (σ_i, q_i); the ends may be infinite. Only differences of coordinates
    enter, so a common shift of centers and ends costs no digits, and no sum here cancels.

    >>> line = LineIntegral([(1.0, np.ones(1))])  # ∫ e^{−|x|} dx
    >>> np.exp(line.log(np.zeros(1)))
    array([2.])
    """

    def __init__(
        self,
        factors: Sequence[tuple[float, np.ndarray]],
        low: float = -math.inf,
        high: float = math.inf,
    ) -> None:
        self.bandwidths = [float(bandwidth) for bandwidth, _ in factors]
        self.unit = 1.0 / sum(1.0 / bandwidth for bandwidth in self.bandwidths)
        """The length on which the product decays outside all centers; lengths and masses of pieces
        are in this unit.
        """
        self.low, self.high = float(low), float(high)
        # the centers of two equal factors are interchangeable: in increasing order, answers are
        # symmetric to the last bit
        self.exchangeable = len(factors) > 1 and all(
            np.array_equal(a, b) for a, b in zip(*factors[:2], strict=True)
        )
        self._curved = [i for i, (_, polynomial) in enumerate(factors) if len(polynomial) > 1]
        self._polynomials = [np.asarray(factors[i][1], dtype=np.float64) for i in self._curved]

    def log(self, *centers: np.ndarray) -> np.ndarray:
        """The logarithm of the integral."""
        with np.errstate(all="ignore"):
            top, found = self._integrals(centers, 0.0, 0)
            total = sum(scale * mass for scale, (mass,) in found)
            return np.asarray(top + (np.log(total) + math.log(self.unit)))

    def moments(self, *centers: np.ndarray, origin: float, order: int) -> list[np.ndarray]:
        """E[(x − origin)^n], n = 0 … order, where the distribution is ∝ the integrand."""
        with np.errstate(all="ignore"):
            _, found = self._integrals(centers, origin, order)
            # powers beyond 1e308 are infinite: pieces without mass must not make them NaN
            sums = [
                sum(np.where(scale > 0.0, scale * values[n], 0.0) for scale, values in found)
                for n in range(order + 1)
            ]
            return [np.asarray(value / sums[0]) for value in sums]

    # (top, [(scale, sums)]): ∫ (x − origin)^n is e^{top}·unit times Σ scale·sums_n.
    def _integrals(
        self, centers: Sequence[np.ndarray], origin: float, order: int
    ) -> tuple[np.ndarray, list[tuple[np.ndarray, list[np.ndarray]]]]:
        if self.exchangeable:
            first, second, *rest = centers
            centers = np.minimum(first, second), np.maximum(first, second), *rest
        found = [
            _integrate(piece, self._polynomials, order) for piece in self._pieces(centers, origin)
        ]
        top = functools.reduce(np.maximum, [height for height, _ in found])
        return top, [(np.exp(height - top), sums) for height, sums in found]

    # The two outer pieces, then those between neighboring centers (of length 0 where centers
    # coincide or lie beyond an end).
    def _pieces(self, centers: Sequence[np.ndarray], origin: float) -> Iterator[_Piece]:
        points = _sorted([np.clip(center, self.low, self.high) for center in centers])
        distances = [
            [
                np.minimum(np.abs(point - center) / width, _FAR)
                for center, width in zip(centers, self.bandwidths, strict=True)
            ]
            for point in points
        ]
        heights = [-sum(distance) for distance in distances]
        for end, limit, side in ((0, self.low, -self.unit), (-1, self.high, self.unit)):
            length = np.minimum(np.abs(limit - points[end]) / self.unit, _FAR)
            start = [distances[end][i] for i in self._curved]
            change = [length * (self.unit / self.bandwidths[i]) for i in self._curved]
            near = points[end] - origin
            yield _Piece(near, side * length, heights[end], length, length, start, change)
        for here, there in itertools.pairwise(range(len(points))):
            rise = heights[there] - heights[here]
            rightwards = rise <= 0.0
            height = np.maximum(heights[here], heights[there])
            length = np.minimum((points[there] - points[here]) / self.unit, _FAR)
            ends = [(distances[here][i], distances[there][i]) for i in self._curved]
            start = [np.where(rightwards, left, right) for left, right in ends]
            change = [np.where(rightwards, right - left, left - right) for left, right in ends]
            near = np.where(rightwards, points[here], points[there]) - origin
            walk = np.where(rightwards, self.unit, -self.unit) * length
            yield _Piece(near, walk, height, length, np.abs(rise), start, change)


# (height, sums): ∫ (x − origin)^n over the piece, n = 0 … order, is e^{height}·sums_n.
#
# Evaluating the factors at nodes, rather than multiplying their polynomials out, never cancels,
# whatever the degree: for slow decay Gauss–Legendre is exact to rounding; for fast decay
# Gauss–Laguerre is exact, with the part behind the far end, then small, taken off.
def _integrate(
    piece: _Piece, polynomials: list[np.ndarray], order: int
) -> tuple[np.ndarray, list[np.ndarray]]:
    decay, degree = np.asarray(piece.decay), sum(len(q) - 1 for q in polynomials) + order
    if degree == 0:
        return piece.height, [piece.length * np.where(decay > 0.0, -np.expm1(-decay) / decay, 1.0)]
    fast = np.asarray(decay > degree + 4.0)
    if not fast.all() and fast.any():
        shape = np.broadcast_shapes(fast.shape, piece.height.shape)
        fast = np.broadcast_to(fast, shape)
        height, sums = np.empty(shape), [np.empty(shape) for _ in range(order + 1)]
        for chosen in (fast, ~fast):
            height[chosen], found = _integrate(piece.select(chosen), polynomials, order)
            for out, values in zip(sums, found, strict=True):
                out[chosen] = values
        return height, sums
    is_fast = bool(fast.all())
    # of nodes t, which are s·decay if the decay is fast
    per_node = 1.0 / decay if is_fast else 1.0
    height, rays, walk = piece.height, [], piece.walk * per_node
    for polynomial, start, change in zip(polynomials, piece.start, piece.change, strict=True):
        rays.append(_Ray(polynomial, start, change * per_node))
        height = height + rays[-1].log_scale
    sums = [np.zeros(())] * (order + 1)
    for t, value in _fast(decay, degree) if is_fast else _slow(decay, degree):
        for ray in rays:
            value = value * ray(t)
        for n in range(order + 1):
            sums[n] = sums[n] + value
            value = value * (piece.near + walk * t) if n < order else value
    return height, [piece.length * per_node * value for value in sums]


class _Ray:
    """q(start + step·s), divided by R^degree (its logarithm: ``log_scale``) with R ≥ 1 so large
    that no power overflows.
    """

    def __init__(self, polynomial: np.ndarray, start: np.ndarray, step: np.ndarray | float) -> None:
        size = np.maximum(start + np.maximum(step, 0.0), 1.0)
        self.log_scale = (len(polynomial) - 1) * np.log(size)
        self.start, self.step = start / size, step / size
        self.coefficients: list[np.ndarray] = [polynomial[-1]]
        power = 1.0 / size
        for coefficient in polynomial[-2::-1]:
            self.coefficients.append(coefficient * power)
            power = power / size

    def __call__(self, s: np.ndarray | float) -> np.ndarray:
        r = self.start + self.step * s
        total = self.coefficients[0] * r + self.coefficients[1]
        for coefficient in self.coefficients[2:]:
            total *= r
            total += coefficient
        return total


# (s, weight) with ∫_0^1 P(s) e^{−decay·s} ds = Σ weight·P(s), to rounding for decay ≤ degree + 4.
def _slow(decay: np.ndarray, degree: int) -> Iterator[tuple[np.ndarray | float, np.ndarray]]:
    for t, weight in zip(*(part.tolist() for part in legendre(12 + 2 * degree // 3)), strict=True):
        s = 0.5 * (t + 1.0)
        yield s, 0.5 * weight * np.exp(-s * decay)


# (t, weight) with ∫_0^decay P(t) e^{−t} dt = Σ weight·P(t): ∫_0^∞ P(t) e^{−t} dt minus e^{−decay}
# ∫_0^∞ P(decay + t) e^{−t} dt.
def _fast(decay: np.ndarray, degree: int) -> Iterator[tuple[np.ndarray | float, np.ndarray]]:
    nodes, weights = (part.tolist() for part in laguerre(degree // 2 + 1))
    for t, weight in zip(nodes, weights, strict=True):
        yield t, np.asarray(weight)
    if np.min(decay) < _GONE:
        end = np.minimum(decay, _GONE)
        rest = -np.exp(-end)
        for t, weight in zip(nodes, weights, strict=True):
            yield end + t, weight * rest


# The points in increasing order, entry by entry.
def _sorted(points: list[np.ndarray]) -> list[np.ndarray]:
    points = list(points)
    for last in range(len(points) - 1, 0, -1):
        for i in range(last):
            points[i], points[i + 1] = (
                np.minimum(points[i], points[i + 1]),
                np.maximum(points[i], points[i + 1]),
            )
    return points


class ExponentialLebesgue(Integrals):
    r"""∫ Π_i k_i dx = Π_k ∫_ℝ Π_i κ_i(|x − c_ik|/σ_ik) dx, one line integral per feature k
    (:class:`LineIntegral`).

    The factors may have different bandwidths and different polynomials (Laplace has the constant
    1).

    >>> from ksos.measures import Lebesgue
    >>> from ksos.kernels import Laplace
    >>> integrals = ExponentialLebesgue(Laplace(1.0), Lebesgue(), 1)
    >>> W = np.exp(integrals.log_gram(np.zeros((1, 1)), np.ones((1, 1))))
    >>> bool(np.isclose(W[0, 0], 2 * np.exp(-1)))  # ∫ e^{−|x|−|x−1|} dx = (1 + 1) e^{−1}
    True
    """

    def _line(self, feature: int, *kernels: Kernel) -> LineIntegral:
        factors = [
            (kernel.sigma_vector(self.n_features)[feature], cast("Any", kernel).polynomial)
            for kernel in kernels
        ]
        return LineIntegral(factors, *self.measure.boundary(feature))

    def log_product(self, *factors: Factor) -> np.ndarray:
        kernels, points = zip(*factors, strict=True)
        return self._log_product(kernels, *points)

    # its points are arguments of their own, which may be tensors
    @on_host
    def _log_product(self, kernels: Sequence[Kernel], *points: np.ndarray) -> np.ndarray:
        *others, last = points
        sizes = [X.shape[0] for X in others]
        # u_ijr = u_jir: one half is computed
        pairs = np.triu_indices(sizes[0]) if len(others) == 2 else tuple(map(np.arange, sizes))
        lines = [self._line(k, *kernels) for k in range(self.n_features)]
        out = np.empty((*sizes, last.shape[0]))
        for rows in row_blocks(len(pairs[0]) if pairs else 1, last.shape[0], _BLOCK_ELEMENTS):
            index = tuple(i[rows] for i in pairs)
            block = sum(
                line.log(
                    *(X[i, k][:, None] for X, i in zip(others, index, strict=True)),
                    last[None, :, k],
                )
                for k, line in enumerate(lines)
            )
            out[index] = out[index[::-1]] = block
        return out

    def feature_moments(
        self, X: np.ndarray, feature: int, order: int, center: float
    ) -> list[np.ndarray]:
        line, x, m = self._line(feature, self.kernel, self.kernel), X[:, feature], X.shape[0]
        out = [np.empty((m, m)) for _ in range(order + 1)]
        for rows in row_blocks(m, m, _BLOCK_ELEMENTS):
            found = line.moments(x[rows, None], x[None, :], origin=center, order=order)
            for moment, values in zip(out, found, strict=True):
                moment[rows] = values
        return out


class ExponentialBox(ExponentialLebesgue):
    """The same on Π_k [low_k, high_k], sides possibly infinite: centers beyond the boundary break
    the line there.
    """
