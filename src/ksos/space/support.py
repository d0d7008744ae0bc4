"""Which points become support points and landmarks: centers of clusters of the data, samples that
are random or pivots of Cholesky, or points that cover a domain and not only the data.
"""

from __future__ import annotations

import itertools
import math

import numpy as np
from scipy.linalg import solve_triangular

from ksos.ground import (
    CACHE_ELEMENTS,
    FLOAT_BYTES,
    Array,
    Run,
    namespace,
    require_memory,
    row_blocks,
)
from ksos.integrals import Integrals, closed_form
from ksos.kernels import Kernel
from ksos.kernels.roots import VERY_MANY_POINTS, choose_pivots, definite_root
from ksos.measures import Box, Measure
from ksos.quadrature import sobol, tensor_grid

# every rule by name
SELECTIONS = ("auto", "pivoted", "random", "kmeans")

_STEPS = 10  # of Lloyd's algorithm: later ones hardly move a center on the scale of the kernel
_RESOLVED = 1e-10  # on the diagonal of a correlation matrix: directions below it are rounding
_DIGITS = 24  # binary, of a bandwidth: centers are rounded to 1e-7 of it, where the kernel is flat
_FIRST_ANSWER = 70.0  # m³ operations: set-up, one eigendecomposition and some steps of a solver
_SHARE = 0.2  # of the time limit, for a first answer: the rest improves it
_ALWAYS_AFFORDABLE = 250  # support points for which a first answer takes well under a second
_FAR = 1e4  # bandwidths: points farther out are clipped, or they take the digits of the others

_SPACING = 0.45  # bandwidths h of a grid: a finer one adds relative mass e^{−π²/2h²} ≈ 3e-11
# bandwidths of the embedding: a narrower model takes more support points, and is hardly seen
_FINEST = 1.0 / 3.0
_GRID_FEATURES = 3  # features: a grid in more of them has too many points
_PAD = 1.0  # bandwidths beyond the data: there a kernel density estimate has nearly all of its mass
_NORMAL_PAD = 3.0  # standard deviations of a normal measure: 99.7% of its mass
_TAKEN = 1e-10  # squared residual, relative: the default truncation of a space
_GRID_SPACING = 0.35  # bandwidths h between landmarks: squared residuals of e^{−π²/4h²} ≈ 2e-9
_MOST_GRID = 4000  # landmark candidates from each source: pivoting them takes well under a second
_MOST_DATA = 2000  # the heaviest samples, likewise
_SCATTERED = 2048  # a power of two, as Sobol' points need
_REACH = 2.0  # bandwidths beyond support points: e^{−2·2²} is 0.03% of the peak of a square


def select_support(
    name: str,
    points: np.ndarray,
    weights: np.ndarray,
    m: int,
    integrals: Integrals,
    tol: float,
    rng: np.random.Generator,
) -> np.ndarray:
    """At most ``m`` support points for the distinct ``points``, by the rule ``name``."""
    n = points.shape[0]
    m = min(m, n)
    if name == "pivoted":
        return points[pivoted_cholesky(points, m, integrals, tol)]
    if name == "random":
        return points[np.sort(rng.choice(n, m, replace=False))]
    # "auto": always the same centers, without those that add nothing
    auto = name == "auto"
    rng = np.random.default_rng(0) if auto else rng
    centers = cluster_centers(points, weights, m, integrals.kernel, rng)
    return centers[pivoted_cholesky(centers, len(centers), integrals, tol)] if auto else centers


def affordable_size(most: int) -> int:
    """How many of ``most`` support points a fit has time for: a first answer takes 70 m³
    operations, and a fifth of the time at most.
    """
    if most <= _ALWAYS_AFFORDABLE:
        return most
    return max(
        _ALWAYS_AFFORDABLE,
        round(min((Run.current().operations(_SHARE) / _FIRST_ANSWER) ** (1.0 / 3.0), float(most))),
    )


def cluster_centers(
    points: np.ndarray, weights: np.ndarray, m: int, kernel: Kernel, rng: np.random.Generator
) -> np.ndarray:
    """``m`` centers c_j that nearly minimize Σ_i a_i min_j ‖x_i − c_j‖² in the metric of the
    kernel: k-means [Lloyd1982].

    The seeds are samples, each drawn with probability a_i times its squared distance to those
    before it [Arthur2007]. As many centers as points are the points. Centers lie on a grid around a
    sample, far finer than the kernel: data far from 0 have the same ones.
    """
    if m >= points.shape[0]:
        return points
    Z = in_bandwidths(points, kernel)
    centers = _seeds(Z, weights, m, rng)
    nearest = _nearest(Z, centers)
    for _ in range(_STEPS):
        centers = _means(Z, weights, nearest, centers)
        before, nearest = nearest, _nearest(Z, centers)
        if np.array_equal(before, nearest) or Run.current().setup_is_over(1.0, cuts=False):
            break
    origin = np.quantile(points, 0.5, axis=0, method="lower")
    used = np.unique(nearest)
    offsets = _means(points - origin, weights, nearest, np.zeros((m, 1)))[used]
    scales = np.sqrt(np.diagonal(kernel.matrix(points.shape[1])))
    grid = np.ldexp(1.0, np.frexp(scales)[1] - _DIGITS)
    return np.unique(origin + np.round(offsets / grid) * grid, axis=0)


def in_bandwidths(points: np.ndarray, kernel: Kernel) -> np.ndarray:
    """Coordinates in which the kernel is a function of the Euclidean distance, around a median, and
    not farther than 10⁴ from it.
    """
    d, centered = points.shape[1], points - np.quantile(points, 0.5, axis=0, method="lower")
    with np.errstate(over="ignore"):
        if kernel.full:
            centered = centered @ np.linalg.inv(np.linalg.cholesky(kernel.matrix(d))).T
        scaled = centered if kernel.full else centered / kernel.sigma_vector(d)
    return np.asarray(np.clip(scaled, -_FAR, _FAR))


def _seeds(Z: np.ndarray, weights: np.ndarray, m: int, rng: np.random.Generator) -> np.ndarray:
    norms = np.sum(Z * Z, axis=1)
    chosen, distances = np.empty(m, dtype=int), np.full(Z.shape[0], np.inf)
    for k, draw in enumerate(rng.random(m)):
        cumulative = np.cumsum(weights * distances if k and np.any(distances > 0.0) else weights)
        chosen[k] = min(
            np.searchsorted(cumulative, draw * cumulative[-1], side="right"), Z.shape[0] - 1
        )
        new = norms + norms[chosen[k]] - 2.0 * (Z @ Z[chosen[k]])
        distances = np.minimum(distances, np.maximum(new, 0.0))
        distances[chosen[k]] = 0.0
    return Z[chosen]


def _nearest(Z: np.ndarray, centers: np.ndarray) -> np.ndarray:
    """Of each point, the nearest center."""
    out, halves = np.empty(Z.shape[0], dtype=np.intp), 0.5 * np.sum(centers * centers, axis=1)
    for rows in row_blocks(Z.shape[0], centers.shape[0], CACHE_ELEMENTS):
        out[rows] = np.argmin(halves - Z[rows] @ centers.T, axis=1)
    return out


def _means(
    X: np.ndarray, weights: np.ndarray, nearest: np.ndarray, otherwise: np.ndarray
) -> np.ndarray:
    """The weighted mean of the points of each center; a center without points stays where it
    was.
    """
    m = otherwise.shape[0]
    masses = np.bincount(nearest, weights, m)[:, None]
    sums = np.stack([np.bincount(nearest, weights * feature, m) for feature in X.T], axis=1)
    return np.where(masses > 0.0, sums / np.where(masses > 0.0, masses, 1.0), otherwise)


def pivoted_cholesky(points: Array, m: int, integrals: Integrals, tol: float) -> np.ndarray:
    """Indices of at most ``m`` points, each the one that the functions k(·, x̃) chosen so far
    represent worst in L²(ρ).

    This is the Cholesky factorization of W = ∫kk dρ with complete pivoting; it stops when the
    largest squared residual is at most ``tol`` times the largest W_ii: what is dropped then lies
    below the truncation of the space. With a time limit it may stop earlier.
    """
    n, fix = points.shape[0], 'use support="random" or "kmeans", or fewer n_support'
    what = f"pivoted Cholesky of {n} points with {m} pivots"
    require_memory(n * m * FLOAT_BYTES, what, fix, beside=points)
    xp, log_diagonal = namespace(points), integrals.log_diagonal(points)
    log_unit = float(xp.max(log_diagonal))
    if not math.isfinite(log_unit):
        raise ValueError(
            f"the kernel vanishes on {integrals.measure!r} at every sample: no density can be made"
            " of them"
        )
    diagonal = xp.exp(log_diagonal - log_unit)
    # all pivots in one factorization, and not one by one: an eighth of a fit with 1,500 of them
    if m >= n >= VERY_MANY_POINTS:
        W = xp.exp(integrals.log_gram(points, points) - log_unit)
        if definite_root(W, tol) is not None:
            return np.arange(n)

    def column(i: int) -> Array:
        return xp.exp(integrals.log_gram(points[i : i + 1, :], points)[0, :] - log_unit)

    found = choose_pivots(column, diagonal, tol, m, enough=Run.current().setup_is_over)
    return np.sort(np.array(found.chosen, dtype=int))


def unexplained(
    points: np.ndarray, weights: np.ndarray, support: np.ndarray, integrals: Integrals
) -> float:
    """The share of ∫k(x, x_i)²dρ that the functions k(·, x̃) of the ``support`` leave open, in the
    mean over the weighted points.
    """
    own, at_support = integrals.log_diagonal(points), integrals.log_diagonal(support)
    seen, kept = own > -np.inf, at_support > -np.inf
    if not seen.any() or not kept.any():
        return 1.0
    points, weights, own = points[seen], weights[seen], own[seen]
    support, at_support = support[kept], at_support[kept]
    W = np.exp(integrals.log_gram(support, support) - 0.5 * (at_support[:, None] + at_support))
    W += _RESOLVED * np.eye(support.shape[0])
    columns = np.exp(integrals.log_gram(support, points) - 0.5 * (at_support[:, None] + own))
    explained = solve_triangular(np.linalg.cholesky(W), columns, lower=True, check_finite=False)
    return float(weights @ np.maximum(1.0 - np.sum(explained**2, axis=0), 0.0) / weights.sum())


def region(measure: Measure, points: np.ndarray, sigma: np.ndarray) -> Box:
    """The box in which support points and landmarks lie: the domain's own boundary, and where it
    has none the data and a bandwidth more.
    """
    pad = _PAD * sigma
    if measure.atoms is not None:
        points, pad = measure.atoms.points, np.zeros_like(sigma)
    low, high = points.min(axis=0) - pad, points.max(axis=0) + pad
    if (factor := measure.normal_factor(points.shape[1])) is not None:
        mean, reach = factor[0], _NORMAL_PAD * factor[1]
        low, high = np.minimum(low, mean - reach), np.maximum(high, mean + reach)
    ends = zip(measure.boundaries(points.shape[1]), (low, high), strict=True)
    low, high = (np.where(np.isfinite(end), end, side) for end, side in ends)
    flat = ~(low < high)  # nodes in a plane, or data beyond the only boundary
    return Box(
        np.where(flat, np.minimum(low, high) - sigma, low),
        np.where(flat, np.maximum(low, high) + sigma, high),
    )


def finest_bandwidth(box: Box, sigma: np.ndarray, most: int) -> np.ndarray:
    """One bandwidth per feature: a third of the embedding's, or as fine as ``most`` support points
    can carry across the box, or the embedding's own, as in the paper, if they are too few for that.
    Beyond three features: half of the embedding's.
    """
    d = sigma.shape[0]
    # no grid covers a box of many features, and few landmarks see only narrow densities exactly
    if d > _GRID_FEATURES:
        return 0.5 * sigma
    per_side = max(math.floor(most ** (1.0 / d) + 1e-9), 2)
    return np.clip((box.high - box.low) / ((per_side - 1) * _SPACING), _FINEST * sigma, sigma)


def support_cover(
    kernel: Kernel, measure: Measure, box: Box, data: np.ndarray, most: int
) -> np.ndarray:
    """Support points across the box, its boundary included: a grid if one fits.

    If none does, the bandwidth is narrower than so few points can carry across the box. Up to three
    features, half of them then go to the data, which the densities near the center of the ball must
    resemble, and the others make a wider grid; beyond, they are scattered.
    """
    d, sigma = data.shape[1], kernel.sigma_vector(data.shape[1])

    def chosen(points: np.ndarray, n: int) -> np.ndarray:
        return points[pivoted_cholesky(points, n, closed_form(kernel, measure, d), _TAKEN)]

    if measure.atoms is not None:
        nodes = np.unique(measure.atoms.points, axis=0)
        return nodes if nodes.shape[0] <= most else chosen(nodes, most)
    counts = _counts(box, _SPACING * sigma)
    if d <= _GRID_FEATURES and math.prod(counts) <= most:
        return grid(box, counts)
    near = np.unique(data[measure.contains(data)], axis=0)
    near = chosen(near, (most + 1) // 2) if near.shape[0] else near
    left = most - near.shape[0]
    if d <= _GRID_FEATURES and (wide := _widest_counts(box, sigma, left)):
        return np.unique(np.concatenate([near, grid(box, wide)]), axis=0)
    return np.concatenate([near, chosen(scattered(box, 8 * most), max(left, 1))])


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
    counts, found = np.full(sigma.shape[0], 2), None
    while math.prod(counts.tolist()) <= most:
        found = counts.tolist()
        counts[np.argmax((box.high - box.low) / sigma / (counts - 1))] += 1
    return found


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
    d = box.low.shape[0]
    n = 1 << max(4, math.ceil(math.log2(max(n, 2))))
    unit = sobol(n, d + 2, np.random.default_rng(0))
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
    heaviest = data[np.sort(np.argsort(-np.abs(weights), kind="stable")[:_MOST_DATA])]
    # nothing covers a box of many features: landmarks go where the data and the densities are
    if d > _GRID_FEATURES:
        return np.unique(np.concatenate([support, heaviest]), axis=0)
    (lowest, highest), reach = measure.boundaries(d), _REACH * model.sigma_vector(d)
    box = Box(np.maximum(box.low - reach, lowest), np.minimum(box.high + reach, highest))
    counts = _counts(box, _GRID_SPACING * kernel.sigma_vector(d))
    fits = math.prod(counts) <= _MOST_GRID
    covering = grid(box, counts) if fits else scattered(box, _SCATTERED)
    return np.unique(np.concatenate([covering, support, heaviest]), axis=0)


def pivots(kernel: Kernel, candidates: np.ndarray, tol: float, most: int) -> np.ndarray:
    """Indices of candidates, each the one whose feature φ(x) is farthest from the span of those
    before it, until all are within √tol.

    Any distribution on the candidates is then within √tol of its projection.

    >>> from ksos.kernels import Gaussian
    >>> pivots(Gaussian(1.0), np.array([[0.0], [0.0], [1.0]]), 1e-10, 5).tolist()
    [0, 2]
    """
    n = candidates.shape[0]

    def column(i: int) -> np.ndarray:
        return np.asarray(kernel(candidates[i : i + 1], candidates)[0])

    return np.array(choose_pivots(column, np.ones(n), tol, min(most, n)).chosen, dtype=int)
