"""The unit of bandwidths: the kernel that suits a kernel density estimate, by left-out samples."""

from __future__ import annotations

import numpy as np

from ksos.choose.mixtures import MOST_FULL
from ksos.kernels import Kernel
from ksos.measures import Measure
from ksos.space.bandwidth import bandwidth_rule, predict_left_out, subset_and_factor, takes_metrics

__all__ = ["bandwidth_unit", "whitened"]

# Of the largest eigenvalue: the least that a metric may have, so that its inverse keeps ten digits.
_SINGULAR = 1e-6


def bandwidth_unit(
    family: Kernel,
    measure: Measure,
    points: np.ndarray,
    weights: np.ndarray,
    scale: np.ndarray,
    rng: np.random.Generator,
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
        kernel = family.with_sigma(
            np.broadcast_to(bandwidth_rule("silverman", points, weights, rng), (d,))
        )
    if points.shape[0] < 2:
        return kernel
    few, few_weights, factor = subset_and_factor(points, weights, measure)
    return kernel.scaled(factor * predict_left_out(few, few_weights, kernel, measure).multiple)


def whitened(kernel: Kernel, points: np.ndarray) -> np.ndarray:
    """The points in coordinates in which the kernel has bandwidth one, around one of them."""
    away = points - points[points.shape[0] // 2]
    if kernel.full:
        return np.asarray(away @ np.linalg.inv(np.linalg.cholesky(kernel.sigma)).T)
    return np.asarray(away / kernel.sigma_vector(points.shape[1]))
