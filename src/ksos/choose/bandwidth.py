"""Units of features and of bandwidths: coordinates in which samples have standard deviations near
one, and the kernel that suits a kernel density estimate.
"""

from __future__ import annotations

import warnings
from collections.abc import Sequence
from typing import Any, NamedTuple

import numpy as np

from ksos.ground import said, warn_caller
from ksos.kernels import Kernel
from ksos.measures import Measure
from ksos.space import bandwidth_rule, spreads, standard_deviations, takes_metrics

FARTHEST = 1e3  # Standard deviations: where EM sees outliers, so that squares keep their digits.
_OUTLIERS = 20.0  # standard over robust deviation, few outliers: with a Student ν = 2.5 it is 2
_FLAT = 1e-10  # of the largest variance: below it, far above a covariance's rounding, is no width
_NOTICEABLE = 0.1  # The warning names the features with at least this part of a flat direction ...
_MOST_NAMED = 4  # ... and no more than fit on a line.
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
        # raises where differences overflow, and warns of constant features
        bandwidth_rule("silverman", points, weights, rng, names=names)
        deviation, robust = standard_deviations(points, weights), spreads(points, weights)
        still = np.ptp(points, axis=0) == 0.0
        scale = np.where(deviation > _OUTLIERS * robust, robust, deviation)
        scale = np.where(still, 1.0, scale)
        middle, far = points[points.shape[0] // 2], FARTHEST * scale
        return cls(middle + weights @ np.clip(points - middle, -far, far), scale, still)

    def of_points(self, X: np.ndarray) -> np.ndarray:
        """X in these coordinates."""
        return (X - self.shift) / self.scale


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
    rng: np.random.Generator,
) -> Kernel:
    """The kernel whose bandwidth suits a kernel density estimate: what bandwidths are multiples of.

    Gaussian kernels without a boundary have a metric, others a bandwidth per feature.
    """
    metrics = takes_metrics(family, measure)
    with warnings.catch_warnings():
        # of constant features, which have been reported
        warnings.simplefilter("ignore", UserWarning)
        return family.with_sigma(
            bandwidth_rule(
                "auto", points, weights, rng, kernel=family, measure=measure, metrics=metrics
            )
        )


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
