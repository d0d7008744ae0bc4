"""Where distributions may go: the region of a domain, support points that cover it with its rim, and a bandwidth that suits them."""

from __future__ import annotations

import itertools
import math

import numpy as np

from ksos.integrals import closed_form
from ksos.kernels import Kernel
from ksos.measures import Box, Discrete, Measure, Normal
from ksos.support import pivoted_cholesky

__all__ = ["MOST_SUPPORT_POINTS", "finest_bandwidth", "grid", "region", "scattered", "support_cover"]

MOST_SUPPORT_POINTS = {1: 64, 2: 144, 3: 125}
"""Of the default support, by dimension; in more dimensions 200."""
_OTHERWISE = 200
_SPACING = 0.45
"""Between support points, in bandwidths: closer ones add little beyond the truncation of the space."""
_FINEST = 1.0 / 3.0
"""Of the default bandwidth of the model, in bandwidths of the embedding."""
_GRID_FEATURES = 3
_PAD, _NORMAL_PAD = 1.0, 3.0
_TAKEN = 1e-10


def most_support_points(d: int, n_support: int | None) -> int:
    """The cap on the number of support points."""
    return MOST_SUPPORT_POINTS.get(d, _OTHERWISE) if n_support is None else n_support


def region(measure: Measure, points: np.ndarray, sigma: np.ndarray) -> Box:
    """The box in which support points and landmarks lie: the domain's own walls, and where there are none the data and a bandwidth more."""
    if isinstance(measure, Discrete):
        points, pad = measure.points, np.zeros_like(sigma)
    else:
        pad = _PAD * sigma
    low, high = points.min(axis=0) - pad, points.max(axis=0) + pad
    if isinstance(measure, Normal):
        mean, scale = measure.normal_factor(points.shape[1])
        low, high = np.minimum(low, mean - _NORMAL_PAD * scale), np.maximum(high, mean + _NORMAL_PAD * scale)
    walls = np.array([measure.boundary(k) for k in range(points.shape[1])])
    low, high = (np.where(np.isfinite(wall), wall, side) for wall, side in ((walls[:, 0], low), (walls[:, 1], high)))
    flat = ~(low < high)  # nodes in a plane, or data beyond the only wall
    return Box(np.where(flat, np.minimum(low, high) - sigma, low), np.where(flat, np.maximum(low, high) + sigma, high))


def finest_bandwidth(box: Box, sigma: np.ndarray, most: int) -> np.ndarray:
    """One bandwidth per feature: a third of the embedding's, or as fine as ``most`` support points can carry across the box, or the
    embedding's own, as in the note, where they are too few for that. Beyond three features: half of the embedding's.
    """
    d = sigma.shape[0]
    if d > _GRID_FEATURES:  # no grid covers a box of many features, and narrow densities are what few landmarks can see exactly
        return 0.5 * sigma
    per_side = max(math.floor(most ** (1.0 / d) + 1e-9), 2)
    return np.clip((box.high - box.low) / ((per_side - 1) * _SPACING), _FINEST * sigma, sigma)


def support_cover(kernel: Kernel, measure: Measure, box: Box, data: np.ndarray, most: int) -> np.ndarray:
    """Support points across the box, rim included: a grid where one fits.

    Where none does, the bandwidth is narrower than so few points can carry across the box. Up to three features, half of them then go to
    the data, which the densities near the centre of the ball must resemble, and the others make a wider grid; beyond, they are scattered.
    """
    d = data.shape[1]
    integrals = closed_form(kernel, measure, d)
    if isinstance(measure, Discrete):
        nodes = np.unique(measure.points, axis=0)
        return nodes if nodes.shape[0] <= most else nodes[pivoted_cholesky(nodes, most, integrals, _TAKEN)]
    counts = _counts(box, _SPACING * kernel.sigma_vector(d))
    if d <= _GRID_FEATURES and math.prod(counts) <= most:
        return grid(box, counts)
    inside = np.unique(data[measure.contains(data)], axis=0)
    near = inside[pivoted_cholesky(inside, (most + 1) // 2, integrals, _TAKEN)] if inside.shape[0] else inside
    if d <= _GRID_FEATURES and (wide := _widest_counts(box, kernel.sigma_vector(d), most - near.shape[0])):
        return np.unique(np.concatenate([near, grid(box, wide)]), axis=0)
    far = scattered(box, 8 * most)
    return np.concatenate([near, far[pivoted_cholesky(far, max(most - near.shape[0], 1), integrals, _TAKEN)]])


def _counts(box: Box, spacing: np.ndarray) -> list[int]:
    """How many equidistant points, walls included, are at most ``spacing`` apart in each feature."""
    ratio = np.minimum((box.high - box.low) / spacing, 1e6)
    return [max(2, math.ceil(r * (1.0 - 1e-12)) + 1) for r in ratio]


def _widest_counts(box: Box, sigma: np.ndarray, most: int) -> list[int] | None:
    """The counts of the finest grid of at most ``most`` points whose spacing is about the same in bandwidths; None where none has a rim."""
    counts = [2] * sigma.shape[0]
    if math.prod(counts) > most:
        return None
    sides = (box.high - box.low) / sigma
    while True:
        k = int(np.argmax(sides / (np.array(counts) - 1)))
        finer = [n + (j == k) for j, n in enumerate(counts)]
        if math.prod(finer) > most:
            return counts
        counts = finer


def grid(box: Box, counts: list[int]) -> np.ndarray:
    """The tensor grid with so many equidistant points per feature, walls included.

    >>> grid(Box([0.0, 0.0], [1.0, 2.0]), [2, 3])[:3].tolist()
    [[0.0, 0.0], [0.0, 1.0], [0.0, 2.0]]
    """
    axes = [np.linspace(low, high, n) for low, high, n in zip(box.low, box.high, counts, strict=True)]
    return np.stack([axis.ravel() for axis in np.meshgrid(*axes, indexing="ij")], axis=1)


def scattered(box: Box, n: int) -> np.ndarray:
    """Sobol' points of the box, some of them moved to a wall, and its corners as long as they are few: the same on every call."""
    from scipy.stats import qmc  # heavy to import, and needed only here

    d = box.low.shape[0]
    n = 1 << max(4, math.ceil(math.log2(max(n, 2))))
    unit = qmc.Sobol(d + 2, rng=np.random.default_rng(0)).random(n)
    inner, which, how = unit[:, :d].copy(), (unit[:, d] * d).astype(int), unit[:, d + 1]
    rows = np.flatnonzero(how < 0.5)
    inner[rows, which[rows]] = (how[rows] < 0.25).astype(float)
    if 2**d <= n // 4:
        inner = np.concatenate([np.array(list(itertools.product((0.0, 1.0), repeat=d))), inner])
    return np.clip(box.low + (box.high - box.low) * inner, box.low, box.high)
