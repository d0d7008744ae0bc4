"""The kernel density estimate p = Σ_i a_i k(·,x_i)²/∫k(x,x_i)²dρ, the sum of squares whose B is diagonal, and its best bandwidth."""

from __future__ import annotations

import numpy as np
from scipy.special import logsumexp

from ksos._deadline import Deadline
from ksos._memory import row_blocks
from ksos.bandwidth import widest_good
from ksos.density import SoSDensity
from ksos.estimators._samples import random_folds
from ksos.integrals import closed_form
from ksos.kernels import Kernel
from ksos.measures import Measure

__all__ = ["best_multiple", "bump_density", "bump_logpdf"]

_BLOCK_ELEMENTS = 1 << 20
_SCAN_POINTS, _SCAN_FOLDS = 1600, 10
_WITHIN = 0.2  # standard errors
_COARSE, _FINE = 2.0**0.5, 2.0**0.125


def bump_density(kernel: Kernel, measure: Measure, points: np.ndarray, weights: np.ndarray) -> SoSDensity:
    """The estimate as a density of the class; with a Gaussian kernel of bandwidth η its bumps are Gaussians of deviation η/2."""
    log_diagonal = closed_form(kernel, measure, points.shape[1]).log_diagonal(points)
    log_unit = float(log_diagonal.max())
    return SoSDensity.from_units(kernel, points, np.diag(np.sqrt(weights) * np.exp(0.5 * (log_unit - log_diagonal))), log_unit, measure)


def bump_logpdf(kernel: Kernel, measure: Measure, points: np.ndarray, weights: np.ndarray, X: np.ndarray) -> np.ndarray:
    """Its log-density at the rows of ``X``, without any matrix of the size of B."""
    log_masses = closed_form(kernel, measure, points.shape[1]).log_diagonal(points)
    heights = np.where(np.isfinite(log_masses), np.log(weights) - log_masses, -np.inf)  # a discrete measure may not see a narrow bump
    out = np.empty(X.shape[0])
    for rows in row_blocks(X.shape[0], points.shape[0], _BLOCK_ELEMENTS):
        out[rows] = logsumexp(2.0 * kernel.log(X[rows], points) + heights, axis=1)
    return out


def best_multiple(
    points: np.ndarray, weights: np.ndarray, kernel: Kernel, measure: Measure, rng: np.random.Generator, deadline: Deadline
) -> float:
    """The multiple of the kernel's bandwidth with which the kernel density estimate predicts held-out samples best.

    A coarse scan over three powers of two and a fine one around its winner; beyond 1600 samples on a random subset, corrected for its size.
    After the deadline the best so far counts.
    """
    correction = 1.0
    if points.shape[0] > _SCAN_POINTS:
        chosen = np.sort(rng.choice(points.shape[0], _SCAN_POINTS, replace=False))
        correction = (_SCAN_POINTS / points.shape[0]) ** (1.0 / (points.shape[1] + 4.0))
        points, weights = points[chosen], weights[chosen] / weights[chosen].sum()
    folds = random_folds(weights, min(_SCAN_FOLDS, points.shape[0]), rng)
    known: dict[float, np.ndarray] = {}

    def look(multiple: float) -> None:
        if known and deadline.passed:
            return
        scaled, out = kernel.with_sigma(multiple * kernel.sigma), np.empty(points.shape[0])
        for fold in folds:
            out[fold.test] = bump_logpdf(scaled, measure, points[fold.train], fold.train_weights, points[fold.test])
        known[multiple] = np.maximum(out, -1e300)

    for k in (0, -1, 1, -2, 2, -3, -4):
        look(_COARSE**k)
    while True:
        best = max(sorted(known), key=lambda multiple: float(weights @ known[multiple]))
        if best == min(known) and best > 2.0**-6 and not deadline.passed:
            look(best / _COARSE)
        elif best == max(known) and best < 2.0**3 and not deadline.passed:
            look(best * _COARSE)
        else:
            break
    for k in range(-2, 5):
        look(best * _FINE**k)
    multiples = sorted(known)
    return multiples[widest_good(np.stack([known[multiple] for multiple in multiples]), weights, _WITHIN)] * correction
