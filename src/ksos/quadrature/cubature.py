"""Adaptive cubature: many cells at once, each judged by nested Clenshaw–Curtis rules per axis
[ClenshawCurtis1960], then halved.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from functools import cache

import numpy as np
from numpy.polynomial import legendre

from ksos.ground import Run, row_blocks
from ksos.quadrature.rules import tensor_grid

Integrand = Callable[[np.ndarray], np.ndarray]
# of the Clenshaw–Curtis rule per axis, by dimension
_INTERVALS = {1: 16, 2: 12, 3: 12}
# a tensor product of the rule with both of its ends
NODES_PER_CELL = {d: (intervals + 1) ** d for d, intervals in _INTERVALS.items()}
_BLOCK_POINTS = 1 << 15  # of an integrand at a time: with some 30 kernels, 8 MB
_SHARE = 0.5  # cells whose errors sum to this share of the tolerance are left alone


@dataclass(frozen=True)
class Integral:
    """∫ f with an estimate of its error."""

    value: float
    error: float
    evaluations: int


def integrate(
    f: Integrand,
    start: np.ndarray,
    stop: np.ndarray,
    *,
    rtol: float,
    atol: float,
    max_evaluations: int,
) -> Integral:
    """∫ f over the union of the cells Π_k [start_ck, stop_ck], d ≤ 3, until the error is at most
    max(atol, rtol·∫|f|) or the work is done.

    >>> cell = np.zeros((1, 2)), np.ones((1, 2))
    >>> limits = {"rtol": 1e-9, "atol": 0.0, "max_evaluations": 10**5}
    >>> found = integrate(lambda x: np.abs(x[:, 0] - 0.3) * x[:, 1], *cell, **limits)
    >>> bool(abs(found.value - 0.145) <= found.error <= 1e-9)
    True
    """
    d = start.shape[1]
    per_cell = NODES_PER_CELL[d]
    values, sizes, errors = _apply(f, start, stop)
    used = per_cell * start.shape[0]
    while True:
        value, total = float(values.sum()), errors.sum(axis=1)
        error, goal = float(total.sum()), max(atol, rtol * float(sizes.sum()))
        Run.current().tell(f"{used} values, error {error:.1g}", used, max_evaluations)
        room = (max_evaluations - used) // (2 * per_cell)
        if error <= goal or room < 1:
            return Integral(value, error + 1e-15 * float(sizes.sum()), used)
        order = np.argsort(-total, kind="stable")
        # the error of this cell and of all better ones
        behind = np.cumsum(total[order][::-1])[::-1]
        worst = order[: max(1, min(room, int(np.sum(behind > _SHARE * goal))))]
        axis = np.argmax(errors[worst], axis=1)
        left, right = stop[worst].copy(), start[worst].copy()
        pick = np.arange(worst.shape[0]), axis
        left[pick] = right[pick] = 0.5 * (start[worst][pick] + stop[worst][pick])
        halves = np.concatenate([start[worst], right]), np.concatenate([left, stop[worst]])
        found = _apply(f, *halves)
        used += per_cell * halves[0].shape[0]
        keep = np.ones(start.shape[0], dtype=bool)
        keep[worst] = False
        start, stop = (
            np.concatenate([old[keep], new]) for old, new in zip((start, stop), halves, strict=True)
        )
        values, sizes, errors = (
            np.concatenate([old[keep], new])
            for old, new in zip((values, sizes, errors), found, strict=True)
        )


# Per cell ∫f and ∫|f|, shape (c,), and the error of the first along each axis, (c, d).
def _apply(
    f: Integrand, start: np.ndarray, stop: np.ndarray
) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    n, d = start.shape
    t, fine, *coarse = _nested_rules(_INTERVALS[d])
    grid = tensor_grid([t] * d)
    values, sizes, errors = np.empty(n), np.empty(n), np.empty((n, d))
    for cells in row_blocks(n, grid.shape[0], _BLOCK_POINTS):
        low, length = start[cells], stop[cells] - start[cells]
        points = low[:, None, :] + length[:, None, :] * grid
        y = f(points.reshape(-1, d)).reshape(-1, *[t.shape[0]] * d)
        volume = np.prod(length, axis=1)
        whole = _contract(y, [fine] * d)
        values[cells], sizes[cells] = volume * whole, volume * _contract(np.abs(y), [fine] * d)
        spread = volume * _contract(np.abs(y - whole.reshape(-1, *[1] * d)), [fine] * d)
        for k in range(d):
            even, odd = (
                np.abs(whole - _contract(y, [rule if j == k else fine for j in range(d)]))
                for rule in coarse
            )
            # at a kink one rule may agree by accident; two hardly do
            difference = volume * np.maximum(even, odd)
            # that is the error of the coarse rules; the one of the fine rule is smaller, by a power
            # where f is smooth
            with np.errstate(divide="ignore", invalid="ignore"):
                ratio = np.where(spread > 0.0, difference / spread, 0.0)
            errors[cells, k] = spread * np.minimum(ratio, (200.0 * ratio) ** 1.5)
    return values, sizes, errors


def _contract(y: np.ndarray, weights: list[np.ndarray]) -> np.ndarray:
    for w in reversed(weights):
        y = y @ w
    return y


# Nodes in [0, 1], the weights of the Clenshaw–Curtis rule on all of them, and of the rules on every
# second, even and odd.
@cache
def _nested_rules(intervals: int) -> tuple[np.ndarray, np.ndarray, np.ndarray, np.ndarray]:
    nodes = -np.cos(np.pi * np.arange(intervals + 1) / intervals)
    rules = []
    for chosen in (slice(None), slice(0, None, 2), slice(1, None, 2)):
        x = nodes[chosen]
        moments = np.zeros(x.shape[0])
        # ∫_{−1}^{1} P_j / 2
        moments[0] = 1.0
        weights = np.zeros(intervals + 1)
        weights[chosen] = np.linalg.solve(legendre.legvander(x, x.shape[0] - 1).T, moments)
        rules.append(weights)
    return 0.5 * (nodes + 1.0), rules[0], rules[1], rules[2]
