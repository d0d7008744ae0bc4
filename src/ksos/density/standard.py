"""Standard coordinates y = (x − origin)/σ, in which the bandwidth is 1 and the data sit around 0: numerics see no scale and no shift."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

import numpy as np

from ksos.measures import Measure

if TYPE_CHECKING:
    from ksos.density.sos import SoSDensity

__all__ = ["Standard", "central_first", "standardize"]

_FARTHEST = 1e300  # a point this many bandwidths away stays a number
_GAP = 4096.0
"""What is left of a gap of more than twice as many bandwidths: on either side of its middle every kernel is 0 in floating point."""


class Fold:
    """One feature: y = (x − origin)/σ, with wide gaps between the support points shortened.

    Kernels across such a gap vanish, before and after, so that no integral of a density changes; but nodes around an outlier can now be
    told from each other. Every cluster of points is measured from one of its own, which loses no digits.
    """

    def __init__(self, x: np.ndarray, origin: float, sigma: float, *, shorten: bool) -> None:
        x = np.sort(x)
        with np.errstate(over="ignore"):
            wide = (np.diff(x) / sigma > 2.0 * _GAP) & shorten
        self.sigma = sigma
        self.first, self.last = x[np.r_[True, wide]], x[np.r_[wide, True]]
        home = int(np.searchsorted(self.first, origin, side="right")) - 1
        self.anchor = self.first.copy()
        self.anchor[home] = origin
        before, behind = (self._offset(side, slice(None)) for side in (self.first, self.last))
        moved = np.r_[0.0, np.cumsum(behind[:-1] - before[1:] + _GAP)]
        self.moved = moved - moved[home]
        """Where the anchors go."""
        self.start, self.stop = self.moved + before, self.moved + behind

    @property
    def plain(self) -> bool:
        """Whether nothing was shortened."""
        return self.first.shape[0] == 1

    def fold(self, x: np.ndarray) -> np.ndarray:
        """y of the entries of ``x``; what lies deep inside a gap goes to its middle."""
        j = np.maximum(np.searchsorted(self.first, x, side="right") - 1, 0)
        y = self.moved[j] + self._offset(x, j)
        if self.plain:
            return y
        after = np.minimum(j + 1, self.first.shape[0] - 1)
        ahead = self.moved[after] + self._offset(x, after)
        nearer = (after > j) & (ahead > self.start[after] - 0.5 * _GAP)
        return np.where(nearer, ahead, np.where(after > j, np.minimum(y, self.stop[j] + 0.5 * _GAP), y))

    def unfold(self, y: np.ndarray) -> np.ndarray:
        """x of the entries of ``y``."""
        j = np.maximum(np.searchsorted(self.start - 0.5 * _GAP, y, side="right") - 1, 0)
        with np.errstate(over="ignore", under="ignore"):
            return np.asarray(self.anchor[j] + self.sigma * (y - self.moved[j]))

    def _offset(self, x: np.ndarray, j: np.ndarray | slice) -> np.ndarray:
        with np.errstate(over="ignore", under="ignore"):
            y = (x - self.anchor[j]) / self.sigma
        return np.where(np.isinf(x), x, np.clip(y, -_FARTHEST, _FARTHEST))


@dataclass(frozen=True)
class Standard:
    """A density in standard coordinates, and the way back."""

    density: SoSDensity
    """Its first support point is 0; support points without any weight are left out."""
    folds: list[Fold]
    """One per feature."""
    scale: np.ndarray
    log_volume: float
    """log p(x) = log density(y) − log_volume."""

    @property
    def plain(self) -> bool:
        """Whether the coordinates are (x − origin)/σ and nothing else: then distances are true distances."""
        return all(fold.plain for fold in self.folds)

    def coordinates(self, X: np.ndarray) -> np.ndarray:
        """y of the rows of ``X``, entries of which may be infinite."""
        return np.stack([fold.fold(X[:, k]) for k, fold in enumerate(self.folds)], axis=1)

    def points(self, Y: np.ndarray) -> np.ndarray:
        """x of the rows of ``Y``."""
        return np.stack([fold.unfold(Y[:, k]) for k, fold in enumerate(self.folds)], axis=1)

    def same_coordinates(self, other: SoSDensity) -> SoSDensity:
        """Another density in these coordinates, with the gaps that were shortened shortened."""
        log_unit = other.log_unit - _log_volume(other.measure, self.scale)
        kernel = other.kernel.with_sigma(other.kernel.sigma_vector(other.n_features) / self.scale)
        measure = other.measure.image(self.coordinates, 1.0 / self.scale)
        return other.from_units(kernel, self.coordinates(other.support_points), other.unit_factor, log_unit, measure)


def central_first(X: np.ndarray, scale: np.ndarray | float) -> np.ndarray:
    """The order of the points that puts one from the middle in front, from which coordinates are measured.

    An outlier there would cost all the others their digits.
    """
    middle = np.partition(X, X.shape[0] // 2, axis=0)[X.shape[0] // 2]
    with np.errstate(over="ignore"):
        first = int(np.argmin(np.abs((X - middle) / scale).max(axis=1)))
    return np.argsort(np.arange(X.shape[0]) != first, kind="stable")


def standardize(p: SoSDensity, *others: SoSDensity, shorten: bool = True) -> Standard:
    """``p`` in standard coordinates around a support point from the middle; gaps are those that the ``others`` have as well."""
    scale = p.kernel.sigma_vector(p.n_features)
    used = np.any(p.unit_factor != 0.0, axis=1)
    X, F = p.support_points[used], p.unit_factor[used]
    order = central_first(X, scale)
    everywhere = np.concatenate([X, *(q.support_points for q in others)])
    shorten = shorten and p.measure.by_volume  # the other measures are not the same everywhere
    folds = [Fold(x, float(zero), float(sigma), shorten=shorten) for x, zero, sigma in zip(everywhere.T, X[order[0]], scale, strict=True)]
    log_volume = _log_volume(p.measure, scale)
    frame = Standard(p, folds, scale, log_volume)
    kernel, measure, points = p.kernel.with_sigma(1.0), p.measure.image(frame.coordinates, 1.0 / scale), frame.coordinates(X[order])
    return replace(frame, density=p.from_units(kernel, points, F[order], p.log_unit - log_volume, measure))


def _log_volume(measure: Measure, scale: np.ndarray) -> float:
    """log Π σ_k where densities are relative to volume; the other measures move along with their density."""
    return float(np.sum(np.log(scale))) if measure.by_volume else 0.0
