"""Which of the data become support points: at random, by k-means++ seeding, or by pivoted Cholesky."""

from __future__ import annotations

import math
from collections.abc import Callable

import numpy as np

from ksos._array import Array, namespace, to_numpy
from ksos._deadline import set_up_is_over
from ksos._memory import FLOAT_BYTES, require_memory
from ksos.integrals import Integrals
from ksos.pivoted_cholesky import choose_pivots

__all__ = ["SELECTIONS", "pivoted_cholesky", "select_support", "unexplained"]

Selection = Callable[[Array, np.ndarray, int, Integrals, float, np.random.Generator], np.ndarray]


def select_support(
    name: str, points: Array, weights: np.ndarray, m: int, integrals: Integrals, tol: float, rng: np.random.Generator
) -> Array:
    """At most ``m`` of the distinct ``points``, chosen by the rule ``name``."""
    xp, chosen = namespace(points), SELECTIONS[name](points, weights, min(m, points.shape[0]), integrals, tol, rng)
    return xp.take(points, xp.asarray(chosen, device=points.device), axis=0)


def _kmeans(points: Array, weights: np.ndarray, m: int, integrals: Integrals, tol: float, rng: np.random.Generator) -> np.ndarray:
    from sklearn.cluster import kmeans_plusplus  # heavy to import, and needed only here

    points = to_numpy(points)
    middle = np.quantile(points, 0.5, axis=0, method="lower")
    scaled = (points - middle) / integrals.kernel.sigma_vector(points.shape[1])
    scaled /= max(np.abs(scaled).max(), 1e-300)  # a tiny bandwidth must not make squared distances overflow
    seed = np.random.RandomState(int(rng.integers(2**31)))
    _, chosen = kmeans_plusplus(scaled, m, sample_weight=weights, random_state=seed)
    return np.unique(chosen)


def pivoted_cholesky(points: Array, m: int, integrals: Integrals, tol: float) -> np.ndarray:
    """Indices of at most ``m`` points, each the one that the functions k(·, x̃) chosen so far represent worst in L²(ρ).

    This is the Cholesky factorisation of W = ∫kk dρ with complete pivoting; it stops when the largest squared residual is at most ``tol``
    times the largest W_ii: what is left out then lies below the truncation of the space. With a time limit it may stop earlier.
    """
    return _pivots(points, m, integrals, tol)[0]


def unexplained(points: Array, weights: np.ndarray, m: int, integrals: Integrals) -> float:
    """The share of ∫k(x, x_i)²dρ that ``m`` pivots leave open, averaged over the points with their ``weights``."""
    return float(weights @ to_numpy(_pivots(points, min(m, points.shape[0]), integrals, 0.0)[1]))


def _pivots(points: Array, m: int, integrals: Integrals, tol: float) -> tuple[np.ndarray, Array]:
    """The indices, and the residual of every point relative to its own W_ii."""
    n = points.shape[0]
    remedy = 'use support="random" or "kmeans", or fewer n_support'
    require_memory(n * m * FLOAT_BYTES, f"pivoted Cholesky of {n} points with {m} pivots", remedy, beside=points)
    xp, log_diagonal = namespace(points), integrals.log_diagonal(points)
    log_unit = float(xp.max(log_diagonal))
    if not math.isfinite(log_unit):
        raise ValueError(f"the kernel vanishes on {integrals.measure!r} at every sample: no density can be made of them")
    diagonal = xp.exp(log_diagonal - log_unit)

    def column(i: int) -> Array:
        return xp.exp(integrals.log_gram(points[i : i + 1, :], points)[0, :] - log_unit)

    found = choose_pivots(column, diagonal, tol, m, enough=set_up_is_over)
    return np.sort(np.array(found.chosen, dtype=int)), found.residual / xp.clip(diagonal, 1e-300, None)


SELECTIONS: dict[str, Selection] = {
    "auto": lambda points, weights, m, integrals, tol, rng: pivoted_cholesky(points, m, integrals, tol),
    "pivoted": lambda points, weights, m, integrals, tol, rng: pivoted_cholesky(points, m, integrals, tol),
    "random": lambda points, weights, m, integrals, tol, rng: np.sort(rng.choice(points.shape[0], m, replace=False)),
    "kmeans": _kmeans,
}
"""Every rule by name."""
