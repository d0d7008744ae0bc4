"""Units of features and of bandwidths: coordinates in which samples have standard deviations near
one, and the kernel that suits a kernel density estimate.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, NamedTuple

import numpy as np

from ksos.choose.mixtures import MOST_FULL
from ksos.ground import said, warn_caller
from ksos.kernels import Kernel
from ksos.measures import GaussianMixture, Measure
from ksos.space import (
    bandwidth_rule,
    predict_left_out,
    robust_silverman,
    subset_and_factor,
    takes_metrics,
)

FARTHEST = 1e3  # Standard deviations: where EM sees outliers, so that squares keep their digits.
_OUTLIERS = 20.0  # standard over robust deviation, few outliers: with a Student ν = 2.5 it is 2
_FLAT = 1e-10  # of the largest variance: below it, far above a covariance's rounding, is no width
_NOTICEABLE = 0.1  # The warning names the features with at least this part of a flat direction ...
_MOST_NAMED = 4  # ... and no more than fit on a line.
_SINGULAR = 1e-6  # of the largest eigenvalue, for a metric: its inverse then keeps ten digits
_CORRECTION = 1.6  # deviations, at 100 samples: a trade-off, as narrower ones follow accidents


class Units(NamedTuple):
    """Coordinates (x − shift)/scale in which the features have standard deviations near one, and
    which features are constant.
    """

    shift: np.ndarray
    scale: np.ndarray
    still: np.ndarray

    @classmethod
    def of(
        cls, points: np.ndarray, weights: np.ndarray, rng: np.random.Generator, names: Any = None
    ) -> Units:
        """Standard deviations, or robust ones if outliers made them. The scale of a constant
        feature is 1, with a warning.
        """
        d = points.shape[1]
        factor = _silverman(d, weights)
        rule = bandwidth_rule("silverman", points, weights, rng, names=names)
        deviation = np.array(np.broadcast_to(rule, (d,))) / factor
        robust, still = robust_silverman(points, weights) / factor, np.ptp(points, axis=0) == 0.0
        scale = np.where(deviation > _OUTLIERS * robust, robust, deviation)
        scale = np.where(still, 1.0, scale)
        middle, far = points[points.shape[0] // 2], FARTHEST * scale
        return cls(middle + weights @ np.clip(points - middle, -far, far), scale, still)

    def of_points(self, X: np.ndarray) -> np.ndarray:
        """X in these coordinates."""
        return (X - self.shift) / self.scale

    def to_data(self, mixture: GaussianMixture) -> GaussianMixture:
        """A mixture in these coordinates, in those of the data."""
        covariances = mixture.covariances * (self.scale[:, None] * self.scale)
        return GaussianMixture(
            mixture.weights, self.shift + mixture.means * self.scale, covariances
        )


# The bandwidth of Silverman's rule in standard deviations: 2h, as kernels have no factor ½.
def _silverman(d: int, weights: np.ndarray) -> float:
    return float(2.0 * ((d + 2) / 4.0 / float(weights @ weights)) ** (-1.0 / (d + 4)))


def correction_bandwidth(
    points: np.ndarray, weights: np.ndarray, count: int, names: Any = None
) -> np.ndarray:
    """The bandwidth of the kernels that correct a reference, one per feature.

    It follows the number n of distinct samples, ``count``, as n^{−1/(d+6)}: a correction is
    smoother than a density.
    """
    scale = Units.of(points, weights, np.random.default_rng(0), names).scale
    return np.asarray(_CORRECTION * (100.0 / count) ** (1.0 / (points.shape[1] + 6)) * scale)


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
    n, d = points.shape
    if takes_metrics(family, measure) and 1 < d <= MOST_FULL and n > 1:
        y = (points - points[n // 2]) / scale
        y = y - weights @ y
        values, Q = np.linalg.eigh((y * weights[:, None]).T @ y)
        least = _SINGULAR * max(values[-1], 1e-300)
        values = np.maximum(values, least) if values[-1] > 0.0 else np.ones_like(values)
        metric = _silverman(d, weights) ** 2 * (Q * values) @ Q.T
        kernel = family.with_sigma(metric * (scale[:, None] * scale))
    else:
        rule = bandwidth_rule("silverman", points, weights, rng)
        kernel = family.with_sigma(np.broadcast_to(rule, (d,)))
    if n < 2:
        return kernel
    few, few_weights, factor = subset_and_factor(points, weights, measure)
    return kernel.scaled(factor * predict_left_out(few, few_weights, kernel, measure).multiple)


def whitened(kernel: Kernel, points: np.ndarray) -> np.ndarray:
    """The points in coordinates in which the kernel has bandwidth one, around one of them."""
    away = points - points[points.shape[0] // 2]
    if kernel.full:
        return np.asarray(away @ np.linalg.inv(np.linalg.cholesky(kernel.sigma)).T)
    return np.asarray(away / kernel.sigma_vector(points.shape[1]))


def warn_if_flat(
    points: np.ndarray, weights: np.ndarray, names: Sequence[str] | None = None
) -> None:
    """Warn if the samples, in the units of their features, lie on a plane: they have no density."""
    moves = np.flatnonzero(np.any(points != points[0], axis=0))
    if not moves.size:
        return
    centered = (points - weights @ points)[:, moves]
    values, Q = np.linalg.eigh((centered * weights[:, None]).T @ centered)
    flat = values < _FLAT * max(values[-1], 1e-300)
    if flat.any():
        which = moves[np.abs(Q[:, flat]).max(axis=1) > _NOTICEABLE]
        named = [said(int(k), names) for k in which[:_MOST_NAMED]]
        several = ", ".join(named + ["…"] * (which.size > _MOST_NAMED))
        enough = centered.shape[0] > moves.size
        why = f"{several} are linearly dependent" if enough else "there are few samples"
        warn_caller(
            f"the samples do not vary in {int(flat.sum())} of {moves.size} directions ({why}), so "
            "they have no density; the result has the width of its covariance floors there"
        )
