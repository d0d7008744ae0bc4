"""Gauss rules, made once for each number of nodes, and what they are laid on: intervals of a line,
cut into panels; boxes, cut into cells.
"""

from __future__ import annotations

import functools
import math
import operator
from collections.abc import Sequence
from functools import cache

import numpy as np
from scipy.special import roots_legendre

from ksos.ground import row_blocks

Rule = tuple[np.ndarray, np.ndarray]
"""Nodes and weights."""
Intervals = tuple[np.ndarray, np.ndarray]
"""Starts and ends."""

_MASK_ELEMENTS = 1 << 24  # booleans held at a time: 16 megabytes
_MANY_NODES = 500  # NumPy takes n³, half a second beyond; SciPy n², half a digit less at the ends


@cache
def legendre(n: int) -> Rule:
    """The Gauss–Legendre rule on [−1, 1]: exact for polynomials of degree 2n − 1 [GolubWelsch1969].

    >>> t, w = legendre(3)
    >>> round(float(w @ t**4), 12)  # ∫ t⁴ dt = 2/5
    0.4
    """
    few = n <= _MANY_NODES
    return _frozen(np.polynomial.legendre.leggauss(n) if few else roots_legendre(n))


@cache
def laguerre(n: int) -> Rule:
    """The Gauss–Laguerre rule for ∫_0^∞ f(t) e^{−t} dt: exact for polynomials of degree 2n − 1."""
    return _frozen(np.polynomial.laguerre.laggauss(n))


# The rule is shared by all callers: nobody may write to it.
def _frozen(rule: Rule) -> Rule:
    for part in rule:
        part.setflags(write=False)
    return rule


def composite(start: np.ndarray, stop: np.ndarray, counts: int | Sequence[int]) -> Rule:
    """Gauss–Legendre on each of the intervals [start_j, stop_j], with ``counts`` nodes (one number
    for all, or one for each).
    """
    half = 0.5 * (stop - start)
    if isinstance(counts, int):
        t, w = legendre(counts)
        return (start[:, None] + half[:, None] * (1.0 + t)).ravel(), (half[:, None] * w).ravel()
    rules = [legendre(n) for n in counts]
    nodes = [a + h * (1.0 + t) for a, h, (t, _) in zip(start, half, rules, strict=True)]
    return np.concatenate(nodes), np.concatenate(
        [h * w for h, (_, w) in zip(half, rules, strict=True)]
    )


def tensor_grid(axes: Sequence[np.ndarray]) -> np.ndarray:
    """All points with coordinates from the axes, shape (N, d); the last axis runs fastest.

    >>> tensor_grid([np.array([0.0, 1.0]), np.array([5.0, 6.0])]).tolist()
    [[0.0, 5.0], [0.0, 6.0], [1.0, 5.0], [1.0, 6.0]]
    """
    return np.stack([part.ravel() for part in np.meshgrid(*axes, indexing="ij")], axis=1)


def log_outer(weights: Sequence[np.ndarray]) -> np.ndarray:
    """The logarithms of the products of positive weights, one for each point of a
    :func:`tensor_grid`, shape (N,).
    """
    logs = [np.log(w).reshape(-1, *[1] * (len(weights) - 1 - k)) for k, w in enumerate(weights)]
    return np.asarray(functools.reduce(operator.add, logs)).ravel()


def merged(low: np.ndarray, high: np.ndarray) -> Intervals:
    """The union of the intervals [low_i, high_i] as disjoint ones in increasing order.

    >>> [ends.tolist() for ends in merged(np.array([4.0, 0.0, 1.0]), np.array([5.0, 2.0, 3.0]))]
    [[0.0, 4.0], [3.0, 5.0]]
    """
    order = np.argsort(low, kind="stable")
    low, high = low[order], np.maximum.accumulate(high[order])
    gaps = low[1:] > high[:-1]
    return low[np.r_[True, gaps]], high[np.r_[gaps, True]]


def cut(
    low: np.ndarray, high: np.ndarray, length: float, kinks: np.ndarray | None = None
) -> Intervals:
    """Disjoint intervals cut into panels at most ``length`` long; a panel ends wherever there is a
    kink.

    >>> [ends.tolist() for ends in cut(np.array([0.0]), np.array([2.5]), 1.0, np.array([0.5, 7.0]))]
    [[0.0, 0.5, 1.5], [0.5, 1.5, 2.5]]
    """
    at = np.empty(0) if kinks is None else np.unique(kinks)
    ends = [np.r_[a, at[(at > a) & (at < b)], b] for a, b in zip(low, high, strict=True)]
    left, right = (
        np.concatenate([part[side] for part in ends]) for side in (slice(None, -1), slice(1, None))
    )
    counts = np.maximum(1, np.ceil((right - left) / length)).astype(int)
    step, n = np.repeat((right - left) / counts, counts), np.repeat(counts, counts)
    place = np.arange(n.shape[0]) - np.repeat(np.cumsum(counts) - counts, counts)
    left, right = np.repeat(left, counts), np.repeat(right, counts)
    start, stop = left + place * step, np.where(place + 1 == n, right, left + (place + 1) * step)
    longer_than_nothing = stop > start
    return start[longer_than_nothing], stop[longer_than_nothing]


def halved(start: np.ndarray, stop: np.ndarray, times: int) -> Intervals:
    """Every panel cut into 2^times of the same length."""
    pieces = 2**times
    step = (stop - start) / pieces
    left = (start[:, None] + step[:, None] * np.arange(pieces)).ravel()
    return left, left + np.repeat(step, pieces)


class Panels:
    """Panels [start_j, stop_j] of a line with ``order`` Gauss–Legendre nodes each."""

    def __init__(self, start: np.ndarray, stop: np.ndarray, order: int) -> None:
        self.start, self.half, self.order = start, 0.5 * (stop - start), order
        t, w = legendre(order)
        self.nodes = (self.start + self.half)[:, None] + self.half[:, None] * t
        """(panels, order)."""
        self.weights = self.half[:, None] * w

    @classmethod
    def around(cls, values: np.ndarray, length: float, order: int) -> Panels:
        """Panels for a density that was fitted to the ``values`` and varies over ``length``.

        They reach 1e5 ranges beyond the values, so that nothing is left of its tails.
        """
        known = np.sort(values)
        spread = known[-1] - known[0]
        # panels as short as the density varies where values are, and 0.3 of the distance to the
        # nearest value elsewhere: a tail without a scale of its own is smooth on such a panel
        step, far = max(length, spread / 600.0), 1e5 * max(spread, length)
        ends = [known[0] - far]
        while ends[-1] < known[-1] + far:
            at = np.searchsorted(known, ends[-1])
            nearest = np.min(np.abs(known[max(at - 1, 0) : at + 1] - ends[-1]))
            ends.append(ends[-1] + max(step, 0.3 * nearest))
        return cls(np.array(ends[:-1]), np.array(ends[1:]), order)

    def __len__(self) -> int:
        return int(self.start.shape[0])

    def mirrored(self) -> Panels:
        """The panels of −x."""
        return Panels(-(self.start + 2.0 * self.half)[::-1], -self.start[::-1], self.order)


def cells(
    axes: Sequence[Intervals], low: np.ndarray, high: np.ndarray, most: int
) -> tuple[np.ndarray, np.ndarray] | None:
    """(start, stop), each of shape (c, d), of the cells of a grid that at least one of the boxes
    [low_i, high_i] meets.

    ``axes`` holds the panels of each feature, ``low`` and ``high`` have shape (m, d). None if there
    would be more than ``most`` cells.
    """
    shape = tuple(start.shape[0] for start, _ in axes)
    if math.prod(shape) > 16 * most:
        return None
    meets = [
        (low[:, k, None] < stop) & (start < high[:, k, None])
        for k, (start, stop) in enumerate(axes)
    ]
    mask = np.zeros(shape, dtype=bool)
    for rows in row_blocks(low.shape[0], math.prod(shape), _MASK_ELEMENTS):
        block = meets[0][rows]
        for other in meets[1:]:
            block = block[..., None] & other[rows].reshape(
                other[rows].shape[0], *[1] * (block.ndim - 1), -1
            )
        mask |= block.any(axis=0)
    index = np.nonzero(mask)
    if index[0].shape[0] > most:
        return None
    start, stop = (
        np.stack([axis[side][i] for axis, i in zip(axes, index, strict=True)], axis=1)
        for side in (0, 1)
    )
    return start, stop
