"""Product Laplace and half-integer Matérn kernels × {Lebesgue, Box}: per feature, exponentials
times polynomials between the centres.

On the line, a product of factors κ(r) = e^{−r}·polynomial(r) keeps this form between neighbouring
centres.
"""

from __future__ import annotations

import functools
import itertools
import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Self, cast

import numpy as np

from ksos.ground.arrays import on_host
from ksos.ground.memory import row_blocks
from ksos.integrals.base import Integrals
from ksos.kernels import Kernel, Laplace, Matern
from ksos.quadrature import laguerre, legendre

__all__ = ["ExponentialBox", "ExponentialLebesgue", "LineIntegral"]

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
    """A stretch without a centre inside, walked from its ``near`` end, where e^{height − decay·s},
    0 ≤ s ≤ 1, is largest.
    """

    near: np.ndarray
    side: np.ndarray | float  # +1 where the walk goes right, −1 where it goes left
    height: np.ndarray
    length: np.ndarray | float
    decay: np.ndarray | float
    start: list[
        np.ndarray
    ]  # scaled distances |x − c_i|/σ_i at the near end, of the factors that have a polynomial
    change: list[np.ndarray | float]  # what these distances gain along the whole walk

    def select(self, chosen: np.ndarray) -> Self:
        """The chosen entries, as flat arrays."""
        fields, n = (
            (self.near, self.side, self.height, self.length, self.decay, *self.start, *self.change),
            len(self.start),
        )
        near, side, height, length, decay, *rest = (
            np.broadcast_to(field, chosen.shape)[chosen] for field in fields
        )
        return type(self)(near, side, height, length, decay, rest[:n], rest[n:])


class LineIntegral:
    r"""∫_low^high Π_i κ_i(|x − c_i|/σ_i) dx with κ_i(r) = e^{−r} Σ_k q_ik r^k, for arrays of
    centres c_i that broadcast together.

    ``factors`` are pairs (σ_i, q_i); the ends may be infinite. Only differences of coordinates
    enter, so a common shift of centres and ends costs no digits, and no sum here cancels.

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
        """The length on which the product decays outside all centres; lengths and masses of pieces
        are in this unit.
        """
        self.low, self.high = float(low), float(high)
        self._curved = [i for i, (_, polynomial) in enumerate(factors) if len(polynomial) > 1]
        self._polynomials = [np.asarray(factors[i][1], dtype=np.float64) for i in self._curved]

    def log(self, *centres: np.ndarray) -> np.ndarray:
        """The logarithm of the integral."""
        with np.errstate(all="ignore"):
            found = [self._mass(piece) for piece in self._pieces(centres)]
            top = functools.reduce(np.maximum, [height for height, _ in found])
            total = sum(mass * np.exp(height - top) for height, mass in found)
            return np.asarray(top + (np.log(total) + math.log(self.unit)))

    def moments(self, *centres: np.ndarray, origin: float) -> tuple[np.ndarray, np.ndarray]:
        """E[x − origin] and E[(x − origin)²] under the law proportional to the integrand."""
        with np.errstate(all="ignore"):
            pieces = list(self._pieces(centres))
            found = [_integrate(piece, self._polynomials, moments=True) for piece in pieces]
            top = functools.reduce(np.maximum, [height for height, _ in found])
            weights = [np.exp(height - top) * mass for height, (mass, _, _) in found]
            total = sum(weights)
            first, second = np.zeros(()), np.zeros(())
            for piece, weight, (_, (_, way, root_mean_square_way)) in zip(
                pieces, weights, found, strict=True
            ):
                share, end = weight / total, piece.near - origin
                walked = piece.side * self.unit * way
                square = end * (end + 2.0 * walked) + (self.unit * root_mean_square_way) ** 2
                first = first + share * (end + walked)
                second = second + np.where(
                    share > 0.0, share * square, 0.0
                )  # beyond 1e154 squares are inf: 0·inf must not spoil the rest
            return first, second

    def _mass(self, piece: _Piece) -> tuple[np.ndarray, np.ndarray]:
        if self._polynomials:
            height, (mass,) = _integrate(piece, self._polynomials, moments=False)
            return height, mass
        decay = np.asarray(piece.decay)
        return piece.height, piece.length * np.where(decay > 0.0, -np.expm1(-decay) / decay, 1.0)

    def _pieces(self, centres: Sequence[np.ndarray]) -> Iterator[_Piece]:
        """The two outer pieces, then those between neighbouring centres (of length 0 where centres
        coincide or lie beyond an end).
        """
        points = _sorted([np.clip(centre, self.low, self.high) for centre in centres])
        distances = [
            [
                np.minimum(np.abs(point - centre) / width, _FAR)
                for centre, width in zip(centres, self.bandwidths, strict=True)
            ]
            for point in points
        ]
        heights = [-sum(distance) for distance in distances]
        for end, side, limit in ((0, -1.0, self.low), (-1, 1.0, self.high)):
            length = (
                _FAR
                if math.isinf(limit)
                else np.minimum(np.abs(limit - points[end]) / self.unit, _FAR)
            )
            start = [distances[end][i] for i in self._curved]
            change = [length * (self.unit / self.bandwidths[i]) for i in self._curved]
            yield _Piece(points[end], side, heights[end], length, length, start, change)
        for here, there in itertools.pairwise(range(len(points))):
            rise = heights[there] - heights[here]
            rightwards = rise <= 0.0
            sides, near = (
                np.where(rightwards, 1.0, -1.0),
                np.where(rightwards, points[here], points[there]),
            )
            height, length = (
                np.maximum(heights[here], heights[there]),
                np.minimum((points[there] - points[here]) / self.unit, _FAR),
            )
            start = [
                np.where(rightwards, distances[here][i], distances[there][i]) for i in self._curved
            ]
            change = [sides * (distances[there][i] - distances[here][i]) for i in self._curved]
            yield _Piece(near, sides, height, length, np.abs(rise), start, change)


def _integrate(
    piece: _Piece, polynomials: list[np.ndarray], moments: bool
) -> tuple[np.ndarray, list[np.ndarray]]:
    """The piece as e^{height}·mass and, with ``moments``, mean and root mean square of the way
    walked: (height, [mass, …]).
    """
    degree = sum(len(polynomial) - 1 for polynomial in polynomials) + 2 * moments
    fast = np.asarray(piece.decay > degree + 4.0)
    if fast.all() or not fast.any():
        return _by_nodes(piece, polynomials, moments, degree, bool(fast.all()))
    shape = np.broadcast_shapes(fast.shape, piece.height.shape)
    fast = np.broadcast_to(fast, shape)
    height, answers = np.empty(shape), [np.empty(shape) for _ in range(3 if moments else 1)]
    for chosen, is_fast in ((fast, True), (~fast, False)):
        height[chosen], found = _by_nodes(
            piece.select(chosen), polynomials, moments, degree, is_fast
        )
        for answer, values in zip(answers, found, strict=True):
            answer[chosen] = values
    return height, answers


def _by_nodes(
    piece: _Piece, polynomials: list[np.ndarray], moments: bool, degree: int, fast: bool
) -> tuple[np.ndarray, list[np.ndarray]]:
    """:func:`_integrate` for pieces that all decay fast, or all slowly.

    Evaluating the factors at nodes, rather than multiplying their polynomials out, never cancels,
    whatever the degree: for slow decay Gauss–Legendre is exact to rounding; for fast decay
    Gauss–Laguerre is exact, with the part behind the far end, then small, taken off.
    """
    decay = np.asarray(piece.decay)
    unit = np.asarray(piece.length / decay if fast else piece.length)
    height, rays = piece.height, []
    for polynomial, start, change in zip(polynomials, piece.start, piece.change, strict=True):
        rays.append(_Ray(polynomial, start, change / decay if fast else change))
        height = height + rays[-1].log_scale
    total, first, second = np.zeros(()), np.zeros(()), np.zeros(())
    for s, value in _fast(decay, degree) if fast else _slow(decay, degree):
        for ray in rays:
            value = value * ray(s)
        total = total + value
        if moments:
            first = first + value * s
            second = second + value * s * s
    return height, (
        [
            unit * total,
            unit * (first / total),
            unit * np.sqrt(second / total),
        ]
        if moments
        else [unit * total]
    )


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


def _slow(decay: np.ndarray, degree: int) -> Iterator[tuple[np.ndarray | float, np.ndarray]]:
    """(s, weight) with ∫_0^1 P(s) e^{−decay·s} ds = Σ weight·P(s), to rounding for decay ≤ degree +
    4.
    """
    for t, weight in zip(*(part.tolist() for part in legendre(12 + 2 * degree // 3)), strict=True):
        s = 0.5 * (t + 1.0)
        yield s, 0.5 * weight * np.exp(-s * decay)


def _fast(decay: np.ndarray, degree: int) -> Iterator[tuple[np.ndarray | float, np.ndarray]]:
    """(t, weight) with ∫_0^decay P(t) e^{−t} dt = Σ weight·P(t): ∫_0^∞ P(t) e^{−t} dt minus
    e^{−decay} ∫_0^∞ P(decay + t) e^{−t} dt.
    """
    nodes, weights = (part.tolist() for part in laguerre(degree // 2 + 1))
    for t, weight in zip(nodes, weights, strict=True):
        yield t, np.asarray(weight)
    if np.min(decay) < _GONE:
        end = np.minimum(decay, _GONE)
        rest = -np.exp(-end)
        for t, weight in zip(nodes, weights, strict=True):
            yield end + t, weight * rest


def _sorted(points: list[np.ndarray]) -> list[np.ndarray]:
    """The points in increasing order, entry by entry."""
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
    >>> W = np.exp(ExponentialLebesgue(Laplace(1.0), Lebesgue(), 1).log_gram(np.zeros((1, 1)), np.ones((1, 1))))
    >>> bool(np.isclose(W[0, 0], 2 * np.exp(-1)))  # ∫ e^{−|x|−|x−1|} dx = (1 + 1) e^{−1}
    True
    """

    def _line(self, feature: int, *kernels: Kernel) -> LineIntegral:
        factors = []
        for kernel in kernels:
            coefficients = cast("Laplace | Matern", kernel).polynomial
            factors.append(
                (kernel.sigma_vector(self.n_features)[feature], cast("np.ndarray", coefficients))
            )
        return LineIntegral(factors, *self.measure.boundary(feature))

    @on_host
    def log_mean(self, X: np.ndarray) -> np.ndarray:
        out = np.zeros(X.shape[0])
        for k in range(self.n_features):
            out += self._line(k, self.kernel).log(X[:, k])
        return out

    @on_host
    def log_gram(self, X: np.ndarray, Y: np.ndarray) -> np.ndarray:
        lines = [self._line(k, self.kernel, self.kernel) for k in range(self.n_features)]
        out = np.zeros((X.shape[0], Y.shape[0]))
        for rows in row_blocks(X.shape[0], Y.shape[0], _BLOCK_ELEMENTS):
            for k, line in enumerate(lines):
                out[rows] += line.log(*_ordered(X[rows, k][:, None], Y[:, k][None, :]))
        return out

    @on_host
    def log_triple(self, X: np.ndarray, Z: np.ndarray, embedding_kernel: Kernel) -> np.ndarray:
        lines = [
            self._line(k, self.kernel, self.kernel, embedding_kernel)
            for k in range(self.n_features)
        ]
        m, n_landmarks = X.shape[0], Z.shape[0]
        out = np.empty((m, m, n_landmarks))
        first, second = np.triu_indices(m)  # u_ijr = u_jir: one half is computed
        for pairs in row_blocks(first.shape[0], n_landmarks, _BLOCK_ELEMENTS):
            i, j = first[pairs], second[pairs]
            block = np.zeros((i.shape[0], n_landmarks))
            for k, line in enumerate(lines):
                block += line.log(*_ordered(X[i, k][:, None], X[j, k][:, None]), Z[:, k][None, :])
            out[i, j] = block
            out[j, i] = block
        return out

    def moments(self, X: np.ndarray, feature: int) -> tuple[np.ndarray, np.ndarray]:
        line, x = self._line(feature, self.kernel, self.kernel), X[:, feature]
        first, second = np.empty((x.shape[0], x.shape[0])), np.empty((x.shape[0], x.shape[0]))
        for rows in row_blocks(x.shape[0], x.shape[0], _BLOCK_ELEMENTS):
            first[rows], second[rows] = line.moments(
                *_ordered(x[rows, None], x[None, :]), origin=float(x[0])
            )
        return first, second


class ExponentialBox(ExponentialLebesgue):
    """The same on Π_k [low_k, high_k], sides possibly infinite: centres beyond the boundary break
    the line there.
    """


def _ordered(x: np.ndarray, y: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """The smaller and the larger: the two centres of one kernel are interchangeable, and so the
    answers are symmetric to the last bit.
    """
    return np.minimum(x, y), np.maximum(x, y)
