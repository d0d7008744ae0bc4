"""How much of the mass stays in bumps around the support points: as much as held-out samples bear.

A fit in MMD leaves out samples with few others near them, for a bounded distance hardly sees them: its highest-density regions hold too few
new samples, and the density between such samples is far too low. The kernel density estimate of the same kernel keeps them, but is too
wide where samples are many. (1 − s)·fit + s·bumps has the virtues of both, and s is the share that predicts held-out samples best
[Wolpert1992].
"""

from __future__ import annotations

from collections.abc import Callable

import numpy as np

from ksos._array import like, to_numpy
from ksos._deadline import Deadline
from ksos.density import SoSDensity
from ksos.embedding import MeanEmbedding
from ksos.choose.kernel_density import kernel_density_logpdf as bump_logpdf
from ksos.estimators._subsample import Part
from ksos.functionals import Functional
from ksos.kernels import Kernel
from ksos.solvers import Solution, minimize
from ksos.space import SoSSpace

__all__ = ["held_out_share", "with_bumps"]

SHARES = np.array([0.0, 0.05, 0.1, 0.15, 0.2, 0.25, 0.3, 0.4, 0.5])
"""Of the bumps, from which held-out samples choose."""

_FEWEST, _FOLDS, _ENOUGH = 30, 3, 200  # samples; folds, as many as hold out enough samples
_FARTHEST = -1e100  # nats
_TOL = 1e-5  # of the squared MMD, whose least value is about 1e-3: a held-out score to 1e-3 nats


def with_bumps(density: SoSDensity, part: Part, share: float) -> SoSDensity:
    """(1 − s)p + s·Σ_j a_j k(·,x̃_j)²/∫k(x,x̃_j)²dρ with the support points x̃_j of p; a_j is the mass of the samples nearest to x̃_j."""
    support, u = to_numpy(density.support_points), density.log_unit
    bumps = bump_density(
        density.kernel, density.measure, support, _masses(part.weights, _nearest(density.kernel, part.points, support), support)
    )
    own = bumps.unit_factor * np.exp(0.5 * (u - bumps.log_unit))
    F = np.hstack([np.sqrt(1.0 - share) * to_numpy(density.unit_factor), np.sqrt(share) * own])
    return density.from_units(density.kernel, density.support_points, like(F, density.unit_factor), u, density.measure)


def held_out_share(solution: Solution, part: Part, objective: Callable[[MeanEmbedding], Functional], deadline: Deadline) -> float:
    """The one of a few shares that is the best for samples that neither the fit nor the bumps have seen; 0 for an unfinished fit.

    Each fold is fitted again, from the solution for all samples, with support points that do not know the samples held out: those of
    clusters that hold some are moved to the mean of the others. Folds take turns along the samples ordered by density.
    """
    (points, weights), space = part[:2], solution.space
    kernel, measure, support = space.kernel, space.measure, to_numpy(space.support_points)
    if points.shape[0] < _FEWEST or solution.status not in ("solved", "solved_inaccurate"):
        return 0.0
    nearest, factor = _nearest(kernel, points, support), to_numpy(solution.distribution.unit_factor)
    heights = bump_logpdf(kernel, measure, support, np.maximum(_masses(weights, nearest, support), 1e-300), points)
    turn, logs, held_weights = np.empty(points.shape[0], dtype=int), [], []
    turn[np.argsort(heights, kind="stable")] = np.arange(points.shape[0]) % _FOLDS
    for fold in range(_FOLDS if points.shape[0] < _FOLDS * _ENOUGH else 1):
        out = turn == fold
        inner = weights[~out] / weights[~out].sum()
        centres, kept = _without(points, weights, nearest, support, out)
        theirs = SoSSpace(kernel, centres, measure, space.embedding_kernel)
        G = np.linalg.lstsq(theirs.T, factor[kept], rcond=None)[0]
        start = G if G.shape[1] <= G.shape[0] else G @ G.T
        data = MeanEmbedding(points[~out], inner, kernel=space.embedding_kernel)
        found = minimize(objective(data), theirs, tol=_TOL, start=start, time_limit=deadline)
        if found.keyboard_interrupt:
            raise KeyboardInterrupt(found.message)
        if deadline.passed:
            return 0.0
        masses = _masses(inner, nearest[~out], support)[kept]
        p, bumps = found.distribution.logpdf(points[out]), bump_logpdf(kernel, measure, centres, masses, points[out])
        with np.errstate(divide="ignore"):
            logs.append(np.logaddexp(np.log1p(-SHARES)[:, None] + p, np.log(SHARES)[:, None] + bumps))
        held_weights.append(weights[out])
    return float(SHARES[np.argmax(np.maximum(np.hstack(logs), _FARTHEST) @ np.concatenate(held_weights))])


def _nearest(kernel: Kernel, points: np.ndarray, support: np.ndarray) -> np.ndarray:
    """Of each point, the support point where the kernel is largest."""
    return np.asarray(np.argmax(kernel.log(points, support), axis=1))


def _masses(weights: np.ndarray, nearest: np.ndarray, support: np.ndarray) -> np.ndarray:
    return np.bincount(nearest, weights=weights, minlength=support.shape[0])


def _without(
    points: np.ndarray, weights: np.ndarray, nearest: np.ndarray, support: np.ndarray, out: np.ndarray
) -> tuple[np.ndarray, np.ndarray]:
    """The support points as they are without the samples ``out``, and which of them are left."""
    masses, m = _masses(weights[~out], nearest[~out], support), support.shape[0]
    kept, moved = masses > 0.0, np.bincount(nearest[out], minlength=m) > 0
    origin = support[0]
    sums = [np.bincount(nearest[~out], weights=weights[~out] * feature, minlength=m) for feature in (points[~out] - origin).T]
    means = origin + np.stack(sums, axis=1) / np.where(kept, masses, 1.0)[:, None]
    return np.where(moved[:, None], means, support)[kept], kept
