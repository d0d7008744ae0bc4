"""Which points become support points: centres of clusters of the data, or of the data themselves
random ones or pivots of Cholesky.
"""

from __future__ import annotations

import math
from collections.abc import Callable

import numpy as np
from scipy.linalg import solve_triangular

from ksos.ground.arrays import Array, namespace
from ksos.ground.deadline import Deadline, set_up_is_over
from ksos.ground.memory import CACHE_ELEMENTS, FLOAT_BYTES, require_memory, row_blocks
from ksos.ground.pivoted_cholesky import VERY_MANY_POINTS, choose_pivots, definite_root
from ksos.integrals import Integrals
from ksos.kernels import Kernel

__all__ = [
    "SELECTIONS",
    "affordable_size",
    "cluster_centres",
    "pivoted_cholesky",
    "select_support",
    "unexplained",
]

Selection = Callable[
    [np.ndarray, np.ndarray, int, Integrals, float, np.random.Generator], np.ndarray
]

_STEPS = 10
_RESOLVED = 1e-10
_DIGITS = 24  # binary ones, of a bandwidth
_FIRST_ANSWER, _SHARE, _ALWAYS_AFFORDABLE = 70.0, 0.2, 250
# bandwidths: beyond, all points are far, and their squares must not take the digits of the others
_FAR = 1e4


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
    return SELECTIONS[name](points, weights, min(m, points.shape[0]), integrals, tol, rng)


def affordable_size(most: int, deadline: Deadline) -> int:
    """How many of ``most`` support points a fit has time for: a first answer takes 70 m³
    operations, and a fifth of the time at most.
    """
    if most <= _ALWAYS_AFFORDABLE:
        return most
    return max(
        _ALWAYS_AFFORDABLE,
        round(min((deadline.operations(_SHARE) / _FIRST_ANSWER) ** (1.0 / 3.0), float(most))),
    )


# --- centres of clusters ---


def cluster_centres(
    points: np.ndarray, weights: np.ndarray, m: int, kernel: Kernel, rng: np.random.Generator
) -> np.ndarray:
    """``m`` centres c_j that nearly minimise Σ_i a_i min_j ‖x_i − c_j‖² in the metric of the
    kernel: k-means [Lloyd1982].

    The seeds are samples, each drawn with probability a_i times its squared distance to those
    before it [Arthur2007]. As many centres as points are the points. Centres lie on a grid around a
    sample, far finer than the kernel: data far from 0 have the same ones.
    """
    if m >= points.shape[0]:
        return points
    Z = _in_bandwidths(points, kernel)
    centres = _seeds(Z, weights, m, rng)
    nearest = _nearest(Z, centres)
    for _ in range(_STEPS):
        for k, feature in enumerate(Z.T):
            centres[:, k] = _means(feature, weights, nearest, centres[:, k])
        before, nearest = nearest, _nearest(Z, centres)
        if np.array_equal(before, nearest) or set_up_is_over(1.0, cuts=False):
            break
    origin = np.quantile(points, 0.5, axis=0, method="lower")
    used = np.unique(nearest)
    offsets = np.stack(
        [_means(feature, weights, nearest, np.zeros(m))[used] for feature in (points - origin).T],
        axis=1,
    )
    grid = np.ldexp(
        1.0, np.frexp(np.sqrt(np.diagonal(kernel.matrix(points.shape[1]))))[1] - _DIGITS
    )
    return np.unique(origin + np.round(offsets / grid) * grid, axis=0)


def _in_bandwidths(points: np.ndarray, kernel: Kernel) -> np.ndarray:
    """Coordinates in which the kernel is a function of the Euclidean distance, around a median, and
    not farther than 10⁴ from it.
    """
    centred = points - np.quantile(points, 0.5, axis=0, method="lower")
    with np.errstate(over="ignore"):
        if kernel.full:
            scaled = centred @ np.linalg.inv(np.linalg.cholesky(kernel.matrix(points.shape[1]))).T
        else:
            scaled = centred / kernel.sigma_vector(points.shape[1])
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


def _nearest(Z: np.ndarray, centres: np.ndarray) -> np.ndarray:
    """Of each point, the nearest centre."""
    out, halves = np.empty(Z.shape[0], dtype=np.intp), 0.5 * np.sum(centres * centres, axis=1)
    for rows in row_blocks(Z.shape[0], centres.shape[0], CACHE_ELEMENTS):
        out[rows] = np.argmin(halves - Z[rows] @ centres.T, axis=1)
    return out


def _means(
    feature: np.ndarray, weights: np.ndarray, nearest: np.ndarray, otherwise: np.ndarray
) -> np.ndarray:
    """The weighted mean of a feature over the points of each centre; a centre without points stays
    where it was.
    """
    m = otherwise.shape[0]
    masses = np.bincount(nearest, weights=weights, minlength=m)
    sums = np.bincount(nearest, weights=weights * feature, minlength=m)
    return np.where(masses > 0.0, sums / np.where(masses > 0.0, masses, 1.0), otherwise)


# --- pivots ---


def pivoted_cholesky(points: Array, m: int, integrals: Integrals, tol: float) -> np.ndarray:
    """Indices of at most ``m`` points, each the one that the functions k(·, x̃) chosen so far
    represent worst in L²(ρ).

    This is the Cholesky factorisation of W = ∫kk dρ with complete pivoting; it stops when the
    largest squared residual is at most ``tol`` times the largest W_ii: what is left out then lies
    below the truncation of the space. With a time limit it may stop earlier.
    """
    n = points.shape[0]
    remedy = 'use support="random" or "kmeans", or fewer n_support'
    require_memory(
        n * m * FLOAT_BYTES,
        f"pivoted Cholesky of {n} points with {m} pivots",
        remedy,
        beside=points,
    )
    xp, log_diagonal = namespace(points), integrals.log_diagonal(points)
    log_unit = float(xp.max(log_diagonal))
    if not math.isfinite(log_unit):
        raise ValueError(
            f"the kernel vanishes on {integrals.measure!r} at every sample: no density can be made"
            " of them"
        )
    diagonal = xp.exp(log_diagonal - log_unit)
    if (
        m >= n >= VERY_MANY_POINTS
        and definite_root(xp.exp(integrals.log_gram(points, points) - log_unit), tol) is not None
    ):
        return np.arange(n)  # in one factorisation, not pivot by pivot

    def column(i: int) -> Array:
        return xp.exp(integrals.log_gram(points[i : i + 1, :], points)[0, :] - log_unit)

    found = choose_pivots(column, diagonal, tol, m, enough=set_up_is_over)
    return np.sort(np.array(found.chosen, dtype=int))


# --- how much a choice leaves open ---


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
    points, weights, own, support, at_support = (
        points[seen],
        weights[seen],
        own[seen],
        support[kept],
        at_support[kept],
    )
    W = np.exp(
        integrals.log_gram(support, support) - 0.5 * (at_support[:, None] + at_support)
    ) + _RESOLVED * np.eye(support.shape[0])
    columns = np.exp(integrals.log_gram(support, points) - 0.5 * (at_support[:, None] + own))
    explained = solve_triangular(np.linalg.cholesky(W), columns, lower=True, check_finite=False)
    return float(weights @ np.maximum(1.0 - np.sum(explained**2, axis=0), 0.0) / weights.sum())


def _automatic(
    points: np.ndarray,
    weights: np.ndarray,
    m: int,
    integrals: Integrals,
    tol: float,
    rng: np.random.Generator,
) -> np.ndarray:
    """Centres, always the same, less those that add nothing; of points that all may be chosen, the
    pivots.
    """
    centres = cluster_centres(points, weights, m, integrals.kernel, np.random.default_rng(0))
    return centres[pivoted_cholesky(centres, centres.shape[0], integrals, tol)]


SELECTIONS: dict[str, Selection] = {
    "auto": _automatic,
    "pivoted": lambda points, weights, m, integrals, tol, rng: points[
        pivoted_cholesky(points, m, integrals, tol)
    ],
    "random": lambda points, weights, m, integrals, tol, rng: points[
        np.sort(rng.choice(points.shape[0], m, replace=False))
    ],
    "kmeans": lambda points, weights, m, integrals, tol, rng: cluster_centres(
        points, weights, m, integrals.kernel, rng
    ),
}
"""Every rule by name."""
