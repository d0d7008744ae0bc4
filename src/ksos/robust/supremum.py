"""The largest value of a function on a box: proven by branch and bound, or searched for."""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np

from ksos.measures import Box
from ksos.observables import Observable
from ksos.robust.cover import scattered
from ksos.robust.enclosures import Enclosure

__all__ = ["Supremum", "proven_supremum", "searched_supremum"]

_FIRST_CELLS, _MOST_CELLS, _MOST_PENDING = 4096, 600_000, 200_000
_STARTS, _SEARCHED = 8, 8192


@dataclass(frozen=True)
class Supremum:
    """sup f on a domain: at least ``attained``, which is f at the point ``at``; where ``proven``, at most ``bound``."""

    bound: float
    attained: float
    at: np.ndarray
    proven: bool


def proven_supremum(bounds: Enclosure, box: Box, tol: float, max_cells: int = _MOST_CELLS) -> Supremum:
    """Cut the box into cells and drop those whose bound is below what is attained elsewhere, until bound and value agree to ``tol``.

    Whatever the number of cells, the bound holds; with too few it is not sharp.

    >>> from ksos.observables import Polynomial
    >>> from ksos.robust.enclosures import enclosure
    >>> found = proven_supremum(enclosure(Polynomial([0.0, 1.0, -1.0])), Box([0.0], [2.0]), 1e-6)  # x − x², at most 1/4
    >>> bool(0.25 <= found.bound <= 0.25 + 1e-6), found.at.round(2).tolist()
    (True, [0.5])
    """
    d, width = box.low.shape[0], box.high - box.low
    per_side = max(1, int(_FIRST_CELLS ** (1.0 / d)))
    edges = [np.arange(per_side) / per_side for _ in range(d)]
    corner = np.stack([axis.ravel() for axis in np.meshgrid(*edges, indexing="ij")], axis=1)
    half = np.full_like(corner, 0.5 / per_side)
    centre, best, at, dropped, seen = corner + half, -math.inf, box.low, -math.inf, 0
    ceiling = math.inf
    while True:
        x = np.clip(box.low + width * centre, box.low, box.high)
        # a centre is rounded: its cell is widened by as much
        reach = width * half + 4.0 * np.finfo(float).eps * np.maximum(np.abs(box.low), np.abs(box.high))
        found = bounds(x, reach)
        upper = found.upper(reach)
        seen += centre.shape[0]
        if found.value.max() > best:
            best, at = float(found.value.max()), x[int(np.argmax(found.value))]
        keep = upper > best + tol
        dropped = max(dropped, float(upper[~keep].max(initial=-math.inf)))
        if not np.any(keep):
            return Supremum(max(dropped, best), best, at, True)
        ceiling = max(dropped, float(upper[keep].max()))
        pieces = 2 ** min(d, 2)
        if seen + pieces * int(keep.sum()) > max_cells or keep.sum() > _MOST_PENDING:
            return Supremum(max(ceiling, best), best, at, True)
        centre, half = _split(centre[keep], half[keep], found.slope[keep] * width)


def _split(centre: np.ndarray, half: np.ndarray, slope: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Each cell in two along its longest side, or in four along the two longest; of equal sides the steepest come first."""
    n, d = centre.shape
    order = np.lexsort((-np.abs(slope), -half), axis=1)
    for axis in range(min(d, 2)):
        k = np.tile(order[:, axis], centre.shape[0] // n)
        rows = np.arange(centre.shape[0])
        half = half.copy()
        half[rows, k] *= 0.5
        left, right = centre.copy(), centre.copy()
        left[rows, k] -= half[rows, k]
        right[rows, k] += half[rows, k]
        centre, half = np.concatenate([left, right]), np.concatenate([half, half])
    return centre, half


def searched_supremum(f: Observable, box: Box, candidates: np.ndarray) -> Supremum:
    """The best of many points and of local searches from the best of them: an estimate from below."""
    from scipy.optimize import minimize

    X = np.concatenate([scattered(box, _SEARCHED), candidates[np.all((candidates >= box.low) & (candidates <= box.high), axis=1)]])
    values = f(X)
    width = box.high - box.low
    best, at, scale = float(values.max()), X[int(np.argmax(values))], max(float(np.ptp(values)), 1e-300)
    for i in np.argsort(-values)[:_STARTS]:
        found = minimize(
            lambda t: -float(f(np.clip(box.low + width * t, box.low, box.high)[None, :])[0]) / scale,
            (X[i] - box.low) / width,
            method="L-BFGS-B",
            bounds=[(0.0, 1.0)] * width.shape[0],
        )
        x = np.clip(box.low + width * found.x, box.low, box.high)
        value = float(f(x[None, :])[0])
        if value > best:
            best, at = value, x
    return Supremum(best, best, at, False)
