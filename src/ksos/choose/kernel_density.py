"""The bandwidth that suits a kernel density estimate p = Σ_i a_i k(·,x_i)²/∫k(x,x_i)²dρ, by held-out samples."""

from __future__ import annotations

import numpy as np
from scipy.special import logsumexp

from ksos._deadline import Deadline
from ksos._memory import row_blocks
from ksos.bandwidth import bandwidth_rule, widest_good
from ksos.choose.mixtures import MOST_FULL
from ksos.data.samples import random_folds
from ksos.integrals import closed_form
from ksos.kernels import Kernel
from ksos.measures import Measure
from ksos.metric import takes_metrics

__all__ = ["bandwidth_unit", "best_multiple", "kernel_density_logpdf", "whitened"]

_BLOCK_ELEMENTS = 1 << 20  # of kernel values at a time: 8 MB
# Samples of the scan and its folds: the chosen multiple is then known to an eighth of an octave.
_SCAN_POINTS, _SCAN_FOLDS = 800, 10
_WITHIN = 0.2  # standard errors: among multiples as good as the best, the widest is the safest
_COARSE, _FINE = 2.0**0.5, 2.0**0.125
_SINGULAR = 1e-6
"""Of the largest eigenvalue: the least that a metric may have, so that its inverse keeps ten digits."""


def bandwidth_unit(
    family: Kernel,
    measure: Measure,
    points: np.ndarray,
    weights: np.ndarray,
    scale: np.ndarray,
    rng: np.random.Generator,
    deadline: Deadline,
) -> Kernel:
    """The kernel whose bandwidth suits a kernel density estimate: what bandwidths are multiples of.

    Gaussian kernels without a boundary have the metric of the covariance of the samples, others a
    bandwidth per feature. ``scale`` is the unit of every feature.
    """
    d = points.shape[1]
    if takes_metrics(family, measure) and 1 < d <= MOST_FULL and points.shape[0] > 1:
        y = (points - points[points.shape[0] // 2]) / scale
        y = y - weights @ y
        values, Q = np.linalg.eigh((y * weights[:, None]).T @ y)
        least = _SINGULAR * max(values[-1], 1e-300)
        values = np.maximum(values, least) if values[-1] > 0.0 else np.ones_like(values)
        # the unit of Silverman's rule
        unit = 2.0 * ((d + 2) / 4.0 / float(weights @ weights)) ** (-1.0 / (d + 4))
        kernel = family.with_sigma(unit**2 * (Q * values) @ Q.T * (scale[:, None] * scale))
    else:
        kernel = family.with_sigma(np.broadcast_to(bandwidth_rule("silverman", points, weights, rng), (d,)))
    if points.shape[0] < 2:
        return kernel
    return kernel.scaled(best_multiple(points, weights, kernel, measure, rng, deadline))


def whitened(kernel: Kernel, points: np.ndarray) -> np.ndarray:
    """The points in coordinates in which the kernel has bandwidth one, around one of them."""
    away = points - points[points.shape[0] // 2]
    if kernel.full:
        return np.asarray(away @ np.linalg.inv(np.linalg.cholesky(kernel.sigma)).T)
    return np.asarray(away / kernel.sigma_vector(points.shape[1]))


def kernel_density_logpdf(kernel: Kernel, measure: Measure, points: np.ndarray, weights: np.ndarray, X: np.ndarray) -> np.ndarray:
    """The log-density of the estimate at the rows of ``X``."""
    log_masses = closed_form(kernel, measure, points.shape[1]).log_diagonal(points)
    heights = np.where(np.isfinite(log_masses), np.log(weights) - log_masses, -np.inf)  # a discrete measure may not see a narrow kernel
    out = np.empty(X.shape[0])
    for rows in row_blocks(X.shape[0], points.shape[0], _BLOCK_ELEMENTS):
        out[rows] = logsumexp(2.0 * kernel.log(X[rows], points) + heights, axis=1)
    return out


def best_multiple(
    points: np.ndarray, weights: np.ndarray, kernel: Kernel, measure: Measure, rng: np.random.Generator, deadline: Deadline
) -> float:
    """The multiple of the kernel's bandwidth with which the kernel density estimate predicts held-out samples best.

    A coarse scan over three powers of two and a fine one around its winner; beyond 800 samples on a random subset, corrected for its size.
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
            out[fold.test] = kernel_density_logpdf(scaled, measure, points[fold.train], fold.train_weights, points[fold.test])
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
