"""The largest value of an observable on a box: proven by branch and bound [Moore1966], or searched
for.

On a cell with center c and half-widths h a function is bounded in two ways,

    f(x) ≤ f(c) + flat    and    f(x) ≤ f(c) + ⟨slope, x − c⟩ + (x−c)ᵀ curve (x−c) + rest.

A function of an RKHS has |f(x) − f(c)| ≤ ‖f‖·‖φ(x) − φ(c)‖. For the Gaussian kernel, whose
spectral measure is N(0, 2/σ²), derivatives of order k along a unit vector are at most
‖f‖·√(E ω^2k), which bounds Taylor's remainder: rest = ‖f‖·√(10/3)·‖(x − c)/σ‖³, or
‖f‖·√3·‖(x − c)/σ‖² without curve. The maximum of several functions is bounded by the largest of
their bounds.
"""

from __future__ import annotations

import functools
import itertools
import math
import operator
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass

import numpy as np

from ksos.ground import Run, row_blocks
from ksos.kernels import Gaussian, Kernel, Laplace
from ksos.measures import Box
from ksos.observables.base import Observable
from ksos.observables.functions import BoxIndicator, KernelFunction, NumericFunction
from ksos.observables.maximum import Event, Maximum
from ksos.observables.polynomial import Polynomial
from ksos.quadrature import tensor_grid

_FIRST_CELLS = 4096  # in a grid: under 1% of _MOST_CELLS, and fewer would be cut anyway
_MOST_CELLS = 600_000  # in all: they end a search that does not converge, and the bound holds
_MOST_PENDING = 200_000  # at a time: arrays of this many rows for each feature, likewise
_STARTS = 64  # of local searches, all at once: time for the chance of a better estimate
_CURVED_FEATURES = 6  # d²/2 sums for a cell, not d: little beside the kernel values up to here
_FIRST_REACH = 0.05  # steps of a search along the axes, in units of the box: starts are as close
_LAST_REACH = 1e-4  # this leaves an error of about 1e-8 of a smooth function
_MOST_STEPS = 60  # growing by 1.25 and falling to 0.4, a search takes about half as many
_BLOCK_ELEMENTS = 1 << 21  # kernel values at a time: 16 MB
_ROUNDING = 4.0 * float(np.finfo(np.float64).eps)  # per term of a sum, generously


@dataclass(frozen=True)
class Supremum:
    """sup f on a domain: at least ``attained``, which is f at the point ``at``; where ``proven``,
    at most ``bound``.
    """

    bound: float
    attained: float
    at: np.ndarray
    proven: bool


def proven_supremum(
    bounds: Enclosure,
    box: Box,
    tol: float,
    max_cells: int = _MOST_CELLS,
) -> Supremum:
    """Cut the box into cells and drop those whose bound is below what is attained elsewhere, until
    bound and value agree to ``tol``.

    Whatever the number of cells, the bound holds; with too few, or too little time, it is not
    sharp.

    >>> from ksos.observables import Polynomial
    >>> bounds = enclosure(Polynomial([0.0, 1.0, -1.0]))  # x − x², at most 1/4
    >>> found = proven_supremum(bounds, Box([0.0], [2.0]), 1e-6)
    >>> bool(0.25 <= found.bound <= 0.25 + 1e-6), found.at.round(2).tolist()
    (True, [0.5])
    """
    width = box.high - box.low
    wide = width > 0.0  # sides that can be cut
    d = int(wide.sum())
    per_side = np.where(wide, max(1, int(_FIRST_CELLS ** (1.0 / max(d, 1)))), 1)
    corner, run = tensor_grid([np.arange(n) / n for n in per_side]), Run.current()
    half = np.where(wide, 0.5 / per_side, 0.0) + np.zeros_like(corner)
    center, best, at, dropped, seen = corner + half, -math.inf, box.low, -math.inf, 0
    while True:
        x = np.clip(box.low + width * center, box.low, box.high)
        # a center is rounded: its cell is widened by as much
        reach = width * half + 4.0 * np.finfo(float).eps * np.maximum(
            np.abs(box.low), np.abs(box.high)
        )
        found = bounds(x, reach)
        upper = found.upper(reach)
        seen += center.shape[0]
        if found.value.max() > best:
            best, at = float(found.value.max()), x[int(np.argmax(found.value))]
        keep = upper > best + tol
        dropped = max(dropped, float(upper[~keep].max(initial=-math.inf)))
        if not np.any(keep):
            return Supremum(max(dropped, best), best, at, True)
        pieces = 2 ** min(d, 2)
        if seen + pieces * int(keep.sum()) > max_cells or keep.sum() > _MOST_PENDING or run.over:
            return Supremum(max(dropped, float(upper[keep].max()), best), best, at, True)
        center, half = _split(center[keep], half[keep], found.slope[keep] * width, min(d, 2))


# Each cell in two along its longest side, or in four along the two longest; of equal sides the
# steepest come first.
def _split(
    center: np.ndarray, half: np.ndarray, slope: np.ndarray, sides: int
) -> tuple[np.ndarray, np.ndarray]:
    n = center.shape[0]
    order = np.lexsort((-np.abs(slope), -half), axis=1)
    for axis in range(sides):
        k = np.tile(order[:, axis], center.shape[0] // n)
        rows, step = np.arange(center.shape[0]), np.zeros_like(half)
        step[rows, k] = 0.5 * half[rows, k]
        center = np.concatenate([center - step, center + step])
        half = np.concatenate([half - step, half - step])
    return center, half


def searched_supremum(f: Observable, box: Box, candidates: np.ndarray) -> Supremum:
    """The best of the candidates in the box and of local searches from the best of them: an
    estimate from below.
    """
    X = candidates[np.all((candidates >= box.low) & (candidates <= box.high), axis=1)]
    values = f(X)
    X, values = climbed(f, box, X[np.argsort(-values)[:_STARTS]])
    best = int(np.argmax(values))
    return Supremum(float(values[best]), float(values[best]), X[best], False)


def climbed(
    f: Observable, box: Box, starts: np.ndarray, fixed: Sequence[int] = ()
) -> tuple[np.ndarray, np.ndarray]:
    """Points (n, d) that a search along the axes, but for the ``fixed`` ones, reaches from the
    starts in the box, all at once, and the values there. It needs no slope, so that kinks and jumps
    do not matter.

    >>> from ksos.observables import Polynomial
    >>> f = Polynomial([0.0, 1.0, -1.0])  # x − x²
    >>> climbed(f, Box([0.0], [2.0]), np.array([[0.0], [1.5]]))[0].round(3).tolist()
    [[0.5], [0.5]]
    """
    (n, d), width = starts.shape, box.high - box.low
    at, values = starts.copy(), f(starts)
    axes = np.delete(np.eye(d), fixed, axis=0)
    reach, ways = np.full(n, _FIRST_REACH), np.concatenate([axes, -axes])
    for _ in range(_MOST_STEPS):
        moving = np.flatnonzero(reach > _LAST_REACH)
        if moving.size == 0 or Run.current().over:
            break
        steps = reach[moving, None, None] * ways * width
        tried = np.clip(at[moving, None, :] + steps, box.low, box.high)
        found = f(tried.reshape(-1, d)).reshape(moving.size, -1)
        best = np.argmax(found, axis=1)
        highest = found[np.arange(moving.size), best]
        better = highest > values[moving]
        at[moving[better]] = tried[better, best[better]]
        values[moving[better]] = highest[better]
        reach[moving] *= np.where(better, 1.25, 0.4)
    return at, values


@dataclass(frozen=True)
class CellBound:
    """What is known of a function on n cells."""

    value: np.ndarray
    """f(c), shape (n,)."""
    flat: np.ndarray
    slope: np.ndarray
    """(n, d)."""
    curve: np.ndarray
    """(n, d, d), symmetric, or (1, d, d) if it is the same on all cells."""
    rest: np.ndarray

    def __add__(self, other: CellBound) -> CellBound:
        return CellBound(
            self.value + other.value,
            self.flat + other.flat,
            self.slope + other.slope,
            # affine pieces are many, and curves large
            self.curve + other.curve if np.any(other.curve) else self.curve,
            self.rest + other.rest,
        )

    def upper(self, half: np.ndarray) -> np.ndarray:
        """The better of the two bounds, per cell."""
        steep = np.abs(self.slope)
        own = np.einsum("nii->ni", self.curve)
        # feature by feature, |slope|·t + curve·t² is largest at the end or where it turns
        turns = -2.0 * own * half > steep
        top = np.where(turns, -0.25 * steep**2 / np.where(turns, own, 1.0), 0.0)
        top = np.where(turns, top, (steep + own * half) * half)
        mixed = np.einsum("ni,nij,nj->n", half, np.abs(self.curve), half)
        mixed = mixed - np.sum(np.abs(own) * half**2, axis=1)
        return self.value + np.minimum(self.flat, np.sum(top, axis=1) + mixed + self.rest)


@dataclass(frozen=True)
class HighestBound:
    """What is known of the maximum of functions on n cells: the bounds of each of them."""

    each: Sequence[CellBound]

    @property
    def value(self) -> np.ndarray:
        """The maximum at the centers."""
        return np.max([bound.value for bound in self.each], axis=0)

    @property
    def slope(self) -> np.ndarray:
        """The slope of a function that is highest, cell by cell."""
        highest = np.argmax([bound.value for bound in self.each], axis=0)
        return np.stack([bound.slope for bound in self.each])[highest, np.arange(highest.size)]

    def upper(self, half: np.ndarray) -> np.ndarray:
        """The largest of the bounds, per cell."""
        return np.max([bound.upper(half) for bound in self.each], axis=0)


Enclosure = Callable[[np.ndarray, np.ndarray], HighestBound]
"""From centers (n, d) and half-widths (n, d) to bounds."""
_Part = Callable[[np.ndarray, np.ndarray], CellBound]


def enclosure(f: Observable, lipschitz: float | None = None) -> Enclosure | None:
    """The bounds of a function that is made of polynomials, kernel functions, indicators of boxes
    and of events, and at most one maximum; None if some part is unknown.

    ``lipschitz`` is a constant for the parts that are code: |f(x) − f(x')| ≤ L‖x − x'‖.
    """
    parts: list[_Part] = []
    kernel_parts: list[tuple[float, KernelFunction]] = []
    maximum: tuple[float, Maximum] | None = None
    for scale, part in _parts(f):
        if isinstance(part, KernelFunction):
            kernel_parts.append((scale, part))
        elif isinstance(part, Polynomial):
            parts.append(_of_polynomial(scale, part))
        elif isinstance(part, BoxIndicator):
            parts.append(_of_indicator(scale, part))
        elif isinstance(part, Event) and scale > 0.0:
            parts.append(_of_event(scale, part))
        elif isinstance(part, Maximum) and scale > 0.0 and maximum is None:
            maximum = scale, part
        elif lipschitz is not None:
            parts.append(_of_lipschitz(scale, part, lipschitz))
        else:
            return None
    parts.extend(_of_kernel_function(merged) for merged in _merged(kernel_parts))

    def bounds(centers: np.ndarray, half: np.ndarray) -> HighestBound:
        found = [part(centers, half) for part in parts]
        both = [functools.reduce(operator.add, found)] if found else []
        if maximum is None:
            return HighestBound(both)
        pieces = _of_pieces(*maximum, centers, half)
        return HighestBound([functools.reduce(operator.add, [*both, piece]) for piece in pieces])

    return bounds


# f as Σ scale·part, looking through functions that are only wrapped to be integrated by quadrature.
def _parts(f: Observable) -> list[tuple[float, Observable]]:
    out: list[tuple[float, Observable]] = []
    for scale, part in f.parts():
        if isinstance(part, NumericFunction) and isinstance(part.function, Observable):
            out += [(scale * factor, inner) for factor, inner in _parts(part.function)]
        else:
            out.append((scale, part))
    return out


# Functions of one RKHS added up: the norm of a sum is less than the sum of the norms.
def _merged(parts: Sequence[tuple[float, KernelFunction]]) -> list[KernelFunction]:
    by_kernel: dict[Kernel, list[tuple[float, KernelFunction]]] = {}
    for scale, part in parts:
        by_kernel.setdefault(part.kernel, []).append((scale, part))
    return [
        KernelFunction(
            np.concatenate([p.points for _, p in group]),
            np.concatenate([c * p.weights for c, p in group]),
            kernel=kernel,
        )
        for kernel, group in by_kernel.items()
    ]


def _of_kernel_function(f: KernelFunction) -> _Part:
    kernel, Z, w, d = f.kernel, f.points, f.weights, f.points.shape[1]
    sigma = kernel.sigma_vector(d)
    # of a sum of terms that cancel
    noise = _ROUNDING * w.shape[0] * float(np.sum(np.abs(w)))
    size = math.sqrt(max(float(w @ kernel(Z) @ w), 0.0)) + math.sqrt(
        noise * float(np.sum(np.abs(w)))
    )
    # f(x) = ⟨f, φ(x)⟩, and k is at most 1
    highest = min(size, float(np.sum(np.maximum(w, 0.0)))) + noise
    gaussian = isinstance(kernel, Gaussian)
    # of many features no cell is small enough for what curvature gains
    curved = gaussian and d <= _CURVED_FEATURES
    # sums of w·k·(1, z, zzᵀ) give value, slope and curvature at once
    z = (Z - Z[0]) / sigma
    squares = (z[:, :, None] * z[:, None, :]).reshape(-1, d * d)[:, : d * d if curved else 0]
    powers = np.column_stack([np.ones(Z.shape[0]), z, squares])
    spread = 1.0 + float(np.max(np.sum(np.abs(z), axis=1)))

    def log_of(apart: np.ndarray) -> np.ndarray:
        if kernel.product:
            return np.sum(kernel.log_profile(apart**2), axis=-1)
        return kernel.log_profile(np.sum(apart**2, axis=-1))

    def bounds(centers: np.ndarray, half: np.ndarray) -> CellBound:
        n = centers.shape[0]
        sums = np.empty((n, powers.shape[1]))
        for rows in row_blocks(n, Z.shape[0], _BLOCK_ELEMENTS):
            sums[rows] = (kernel(centers[rows], Z) * w) @ powers
        value, first, x = sums[:, 0], sums[:, 1 : d + 1], (centers - Z[0]) / sigma
        slope = 2.0 * (first - value[:, None] * x) / sigma if gaussian else np.zeros((n, d))
        curve = np.zeros((1, d, d))
        if curved:
            cross = x[:, :, None] * (first - 0.5 * value[:, None] * x)[:, None, :]
            around = sums[:, d + 1 :].reshape(n, d, d) - cross - cross.transpose(0, 2, 1)
            curve = 2.0 * around - value[:, None, None] * np.eye(d)
            curve = curve / (sigma[:, None] * sigma)
        reach = half / sigma
        # κ falls with the distance, so ‖φ(x) − φ(c)‖² = 2 − 2k(x, c) is largest at the corners of
        # the cell
        flat = size * np.sqrt(np.maximum(-2.0 * np.expm1(log_of(reach)), 0.0)) + noise
        flat = np.minimum(flat, np.maximum(highest - value, 0.0))
        rest = flat
        if isinstance(kernel, Laplace):
            # ‖φ(x) − φ(c)‖ is a root of the distance, and a bound term by term falls faster: the
            # nearest point of the cell for positive weights, the farthest for negative ones
            for rows in row_blocks(n, Z.shape[0] * d, _BLOCK_ELEMENTS):
                apart = np.abs(centers[rows, None, :] - Z) / sigma
                near = np.exp(log_of(np.maximum(apart - reach[rows, None, :], 0.0)))
                far = np.exp(log_of(apart + reach[rows, None, :]))
                top = near @ np.maximum(w, 0.0) + far @ np.minimum(w, 0.0) + noise
                flat[rows] = np.minimum(flat[rows], np.maximum(top - value[rows], 0.0))
        elif gaussian:
            order, constant = (3, math.sqrt(10.0 / 3.0)) if curved else (2, math.sqrt(3.0))
            distance = np.sqrt(np.sum(reach**2, axis=1))
            rest = size * constant * distance**order + noise * (1.0 + spread * distance) ** 2
        return CellBound(value, flat, slope, curve, rest)

    return bounds


# Taylor's expansion at the center, complete: even powers are not negative, all others are at most
# |coefficient|·h^α.
def _of_polynomial(scale: float, f: Polynomial) -> _Part:
    # in powers of x − the center of the first cells, which are all of the box
    f_near: list[tuple[Polynomial, np.ndarray]] = []

    def bounds(centers: np.ndarray, half: np.ndarray) -> CellBound:
        n = centers.shape[0]
        if not f_near:
            f_near.append(f.about(centers))
        near, center = f_near[0]
        value, slope, size = np.zeros(n), np.zeros_like(centers), np.zeros(n)
        flat, rest, curve = np.zeros(n), np.zeros(n), np.zeros((n, *slope.shape[1:] * 2))
        coefficients: dict[tuple[tuple[int, int], ...], np.ndarray] = {}
        for monomial, c in near.terms.items():
            for powers in itertools.product(*(range(power + 1) for _, power in monomial)):
                term = np.full(n, scale * c)
                for (k, power), j in zip(monomial, powers, strict=True):
                    term = term * math.comb(power, j) * (centers[:, k] - center[k]) ** (power - j)
                key = tuple((k, j) for (k, _), j in zip(monomial, powers, strict=True) if j)
                coefficients[key] = coefficients[key] + term if key in coefficients else term
                # terms may cancel: their rounding does not
                size += np.abs(term) * np.prod([half[:, k] ** j for k, j in key], axis=0)
        for key, coefficient in coefficients.items():
            reach = np.prod([half[:, k] ** j for k, j in key], axis=0)
            if not key:
                value = value + coefficient
            elif len(key) == 1 and key[0][1] == 1:
                slope[:, key[0][0]] += coefficient
            else:
                even = all(j % 2 == 0 for _, j in key)
                bent = (np.maximum(coefficient, 0.0) if even else np.abs(coefficient)) * reach
                flat += bent
                if sum(j for _, j in key) == 2:
                    curve[:, key[0][0], key[-1][0]] += 0.5 * coefficient
                    curve[:, key[-1][0], key[0][0]] += 0.5 * coefficient
                else:
                    rest += bent
        noise = _ROUNDING * (len(coefficients) + 4) * size
        flat += np.sum(np.abs(slope) * half, axis=1) + noise
        return CellBound(value, flat, slope, curve, rest + noise)

    return bounds


# 1 on a cell that meets the box where the sign is +, 0 on a cell that is not inside it where the
# sign is −.
def _of_indicator(scale: float, f: BoxIndicator) -> _Part:
    low, high = f.box.low, f.box.high

    def bounds(centers: np.ndarray, half: np.ndarray) -> CellBound:
        meets = np.all((centers + half >= low) & (centers - half <= high), axis=1)
        inside = np.all((centers - half >= low) & (centers + half <= high), axis=1)
        value = scale * f(centers)
        rest = (scale * meets if scale > 0.0 else scale * inside) - value
        return _jump(value, rest, centers)

    return bounds


# 1 on a cell where the function may be positive.
def _of_event(scale: float, f: Event) -> _Part:
    bounds_of = enclosure(f.function)
    assert bounds_of is not None

    def bounds(centers: np.ndarray, half: np.ndarray) -> CellBound:
        value = scale * f(centers)
        return _jump(value, scale * (bounds_of(centers, half).upper(half) > 0.0) - value, centers)

    return bounds


def _of_lipschitz(scale: float, f: Observable, constant: float) -> _Part:
    def bounds(centers: np.ndarray, half: np.ndarray) -> CellBound:
        rest = abs(scale) * constant * np.sqrt(np.sum(half**2, axis=1))
        return _jump(scale * f(centers), rest, centers)

    return bounds


# Of a function that is at most value + rest, and of which no slope is known.
def _jump(value: np.ndarray, rest: np.ndarray, centers: np.ndarray) -> CellBound:
    curve = np.zeros((1, *centers.shape[1:] * 2))
    return CellBound(value, rest, np.zeros_like(centers), curve, rest)


# The bounds of the pieces of a maximum: Taylor's expansion, complete.
def _of_pieces(
    scale: float, f: Maximum, centers: np.ndarray, half: np.ndarray
) -> Iterator[CellBound]:
    x, d = centers - f.origin, centers.shape[1]
    for constant, linear, curve in zip(f.constants, f.slopes, f.curves, strict=True):
        bent = x @ curve
        size = abs(constant) + (np.abs(x) + half) @ np.abs(linear)
        size = size + np.sum(np.abs(bent) * (np.abs(x) + half), axis=1)
        noise = scale * _ROUNDING * (d + 4) * size
        value = scale * (constant + x @ linear + np.sum(bent * x, axis=1))
        slope = scale * (linear + 2.0 * bent)
        bend = scale * np.einsum("ni,ij,nj->n", half, np.abs(curve), half) + noise
        flat = np.sum(np.abs(slope) * half, axis=1) + bend
        yield CellBound(value, flat, slope, scale * curve[None], noise)
