"""Points that cover a domain, and not only the data: support points with the boundary, landmarks,
and a bandwidth that suits them.
"""

from __future__ import annotations

import itertools
import math

import numpy as np

from ksos.ground.pivoted_cholesky import choose_pivots
from ksos.integrals import closed_form
from ksos.kernels import Kernel
from ksos.measures import Box, Measure
from ksos.quadrature import tensor_grid
from ksos.space.support import pivoted_cholesky

__all__ = [
    "finest_bandwidth",
    "grid",
    "landmark_candidates",
    "pivots",
    "region",
    "scattered",
    "support_cover",
]

# between support points, in bandwidths: closer ones add little beyond the truncation of the space
_SPACING = 0.45
_FINEST = 1.0 / 3.0  # of the default bandwidth of the model, in bandwidths of the embedding
_GRID_FEATURES = 3
_PAD, _NORMAL_PAD = 1.0, 3.0
_TAKEN = 1e-10
_GRID_SPACING, _MOST_GRID, _MOST_DATA, _SCATTERED = 0.35, 4000, 2000, 2048
_REACH = 2.0  # bandwidths of the model beyond its support points


def region(measure: Measure, points: np.ndarray, sigma: np.ndarray) -> Box:
    """The box in which support points and landmarks lie: the domain's own boundary, and where it
    has none the data and a bandwidth more.
    """
    points, pad = (
        (points, _PAD * sigma)
        if measure.atoms is None
        else (measure.atoms.points, np.zeros_like(sigma))
    )
    low, high = points.min(axis=0) - pad, points.max(axis=0) + pad
    if (factor := measure.normal_factor(points.shape[1])) is not None:
        mean, scale = factor
        low, high = (
            np.minimum(low, mean - _NORMAL_PAD * scale),
            np.maximum(high, mean + _NORMAL_PAD * scale),
        )
    ends = zip(measure.boundaries(points.shape[1]), (low, high), strict=True)
    low, high = (np.where(np.isfinite(end), end, side) for end, side in ends)
    flat = ~(low < high)  # nodes in a plane, or data beyond the only boundary
    return Box(
        np.where(flat, np.minimum(low, high) - sigma, low),
        np.where(flat, np.maximum(low, high) + sigma, high),
    )


def finest_bandwidth(box: Box, sigma: np.ndarray, most: int) -> np.ndarray:
    """One bandwidth per feature: a third of the embedding's, or as fine as ``most`` support points
    can carry across the box, or the embedding's own, as in the note, if they are too few for that.
    Beyond three features: half of the embedding's.
    """
    d = sigma.shape[0]
    if (
        d > _GRID_FEATURES
    ):  # no grid covers a box of many features, and narrow densities are what few landmarks can see exactly
        return 0.5 * sigma
    per_side = max(math.floor(most ** (1.0 / d) + 1e-9), 2)
    return np.clip((box.high - box.low) / ((per_side - 1) * _SPACING), _FINEST * sigma, sigma)


def support_cover(
    kernel: Kernel, measure: Measure, box: Box, data: np.ndarray, most: int
) -> np.ndarray:
    """Support points across the box, its boundary included: a grid if one fits.

    If none does, the bandwidth is narrower than so few points can carry across the box. Up to three
    features, half of them then go to the data, which the densities near the centre of the ball must
    resemble, and the others make a wider grid; beyond, they are scattered.
    """
    d = data.shape[1]
    integrals = closed_form(kernel, measure, d)
    if measure.atoms is not None:
        nodes = np.unique(measure.atoms.points, axis=0)
        return (
            nodes
            if nodes.shape[0] <= most
            else nodes[pivoted_cholesky(nodes, most, integrals, _TAKEN)]
        )
    counts = _counts(box, _SPACING * kernel.sigma_vector(d))
    if d <= _GRID_FEATURES and math.prod(counts) <= most:
        return grid(box, counts)
    inside = np.unique(data[measure.contains(data)], axis=0)
    near = (
        inside[pivoted_cholesky(inside, (most + 1) // 2, integrals, _TAKEN)]
        if inside.shape[0]
        else inside
    )
    if d <= _GRID_FEATURES and (
        wide := _widest_counts(box, kernel.sigma_vector(d), most - near.shape[0])
    ):
        return np.unique(np.concatenate([near, grid(box, wide)]), axis=0)
    far = scattered(box, 8 * most)
    return np.concatenate(
        [near, far[pivoted_cholesky(far, max(most - near.shape[0], 1), integrals, _TAKEN)]]
    )


def _counts(box: Box, spacing: np.ndarray) -> list[int]:
    """How many equidistant points, boundary included, are at most ``spacing`` apart in each
    feature.
    """
    ratio = np.minimum((box.high - box.low) / spacing, 1e6)
    return [max(2, math.ceil(r * (1.0 - 1e-12)) + 1) for r in ratio]


def _widest_counts(box: Box, sigma: np.ndarray, most: int) -> list[int] | None:
    """The counts of the finest grid of at most ``most`` points whose spacing is about the same in
    bandwidths; None if there is none.
    """
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
    """The tensor grid with so many equidistant points per feature, boundary included.

    >>> grid(Box([0.0, 0.0], [1.0, 2.0]), [2, 3])[:3].tolist()
    [[0.0, 0.0], [0.0, 1.0], [0.0, 2.0]]
    """
    return tensor_grid(
        [np.linspace(low, high, n) for low, high, n in zip(box.low, box.high, counts, strict=True)]
    )


def scattered(box: Box, n: int, more: np.ndarray | None = None) -> np.ndarray:
    """Sobol' points of the box, some moved to a side, and its corners as long as they are few;
    always the same. Then ``more``.
    """
    from scipy.stats import qmc  # heavy to import, and needed only here

    d = box.low.shape[0]
    n = 1 << max(4, math.ceil(math.log2(max(n, 2))))
    unit = qmc.Sobol(d + 2, rng=np.random.default_rng(0)).random(n)
    inner, which, how = unit[:, :d].copy(), (unit[:, d] * d).astype(int), unit[:, d + 1]
    rows = np.flatnonzero(how < 0.5)
    inner[rows, which[rows]] = (how[rows] < 0.25).astype(float)
    if 2**d <= n // 4:
        inner = np.concatenate([np.array(list(itertools.product((0.0, 1.0), repeat=d))), inner])
    points = np.clip(box.low + (box.high - box.low) * inner, box.low, box.high)
    return points if more is None else np.concatenate([points, more])


def landmark_candidates(
    kernel: Kernel,
    model: Kernel,
    measure: Measure,
    box: Box,
    data: np.ndarray,
    weights: np.ndarray,
    support: np.ndarray,
) -> np.ndarray:
    """Points across the box and its boundary, and as far beyond as densities reach; the support
    points; the data (the heaviest of many).
    """
    d = data.shape[1]
    if measure.atoms is not None:
        nodes = measure.atoms.points
        return np.unique(
            np.concatenate([support, data, nodes[:: max(1, nodes.shape[0] // _MOST_GRID)]]), axis=0
        )
    (lowest, highest), reach = measure.boundaries(d), _REACH * model.sigma_vector(d)
    box = Box(np.maximum(box.low - reach, lowest), np.minimum(box.high + reach, highest))
    counts = _counts(box, _GRID_SPACING * kernel.sigma_vector(d))
    covering = (
        grid(box, counts)
        if d <= _GRID_FEATURES and math.prod(counts) <= _MOST_GRID
        else scattered(box, _SCATTERED)
    )
    heaviest = np.argsort(-np.abs(weights), kind="stable")[:_MOST_DATA]
    if (
        d > _GRID_FEATURES
    ):  # nothing covers a box of many features: landmarks go where the data and the densities are
        covering = covering[:0]
    return np.unique(np.concatenate([covering, support, data[np.sort(heaviest)]]), axis=0)


def pivots(kernel: Kernel, candidates: np.ndarray, tol: float, most: int) -> np.ndarray:
    """Indices of candidates, each the one whose feature φ(x) is farthest from the span of those
    before it, until all are within √tol.

    Any distribution on the candidates is then within √tol of its projection.

    >>> from ksos.kernels import Gaussian
    >>> pivots(Gaussian(1.0), np.array([[0.0], [0.0], [1.0]]), 1e-10, 5).tolist()
    [0, 2]
    """
    n = candidates.shape[0]
    found = choose_pivots(
        lambda i: kernel(candidates[i : i + 1], candidates)[0], np.ones(n), tol, min(most, n)
    )
    return np.array(found.chosen, dtype=int)
