"""Units of the features: coordinates in which samples have standard deviations near one, and a
warning for samples that lie on a plane.
"""

from __future__ import annotations

import warnings
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from ksos.ground.names import said
from ksos.measures import GaussianMixture
from ksos.space.bandwidth import bandwidth_rule, robust_silverman

__all__ = ["FARTHEST", "Units", "warn_if_flat"]

FARTHEST = 1e3
"""Standard deviations: where EM sees outliers, so that squares keep their digits."""
_FLAT = 1e-10  # of the largest variance
_NOTICEABLE, _MOST_NAMED = 0.1, 4  # part of a flat direction that a feature has; features named


@dataclass(frozen=True)
class Units:
    """Coordinates (x − shift)/scale in which the features have standard deviations near one."""

    shift: np.ndarray
    scale: np.ndarray
    still: np.ndarray
    """Which features are constant."""

    @classmethod
    def of(
        cls, points: np.ndarray, weights: np.ndarray, rng: np.random.Generator, names: Any = None
    ) -> Units:
        """Standard deviations, or robust ones where outliers made them; 1 for a constant feature,
        with a warning.
        """
        d, n = points.shape[1], 1.0 / float(weights @ weights)
        factor = 2.0 * ((d + 2) / 4.0 * n) ** (-1.0 / (d + 4))
        rule = bandwidth_rule("silverman", points, weights, rng, names=names)
        deviation = np.array(np.broadcast_to(rule, (d,))) / factor
        robust, still = robust_silverman(points, weights) / factor, np.ptp(points, axis=0) == 0.0
        # a standard deviation 20 times the robust one is that of a few outliers, not of the data
        scale = np.where(still, 1.0, np.where(deviation > 20.0 * robust, robust, deviation))
        middle, far = points[points.shape[0] // 2], FARTHEST * scale
        return cls(middle + weights @ np.clip(points - middle, -far, far), scale, still)

    def of_points(self, X: np.ndarray) -> np.ndarray:
        return (X - self.shift) / self.scale

    @property
    def log_volume(self) -> float:
        """Log-densities in the coordinates of the data are less by this."""
        return float(np.sum(np.log(self.scale)))

    def to_data(self, mixture: GaussianMixture) -> GaussianMixture:
        """A mixture in these coordinates, in those of the data."""
        spread = self.scale[:, None] * self.scale
        means = self.shift + mixture.means * self.scale
        return GaussianMixture(mixture.weights, means, mixture.covariances * spread)


def warn_if_flat(
    points: np.ndarray, weights: np.ndarray, names: Sequence[str] | None = None
) -> None:
    """Warn if the samples, in the units of their features, lie on a plane: they have no density."""
    centered = points - weights @ points
    moves = np.any(points != points[0], axis=0)
    moving, centered = int(moves.sum()), centered[:, moves]
    if not moving or points.shape[0] < 2:
        return
    values, Q = np.linalg.eigh((centered * weights[:, None]).T @ centered)
    flat = values < _FLAT * max(values[-1], 1e-300)
    if flat.any():
        which = np.flatnonzero(moves)[np.abs(Q[:, flat]).max(axis=1) > _NOTICEABLE]
        named = [said(int(k), names) for k in which[:_MOST_NAMED]]
        several = ", ".join(named + ["…"] * (which.size > _MOST_NAMED))
        enough = centered.shape[0] > moving
        why = f"{several} are linearly dependent" if enough else "there are few samples"
        warnings.warn(
            f"the samples do not vary in {int(flat.sum())} of {moving} directions ({why}), so they "
            "have no density; the result has the width of its covariance floors there",
            UserWarning,
            stacklevel=6,
        )
