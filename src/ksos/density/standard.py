"""Standard coordinates y = (x − origin)/σ, in which the bandwidth is 1 and the data sit around 0:
numerics see no scale and no shift.

With a metric S = LLᵀ they are y = L⁻¹(x − origin): there the kernel is a product over features, and
every question that does not depend on the axes is asked there.
"""

from __future__ import annotations

from dataclasses import dataclass, replace

import numpy as np

from ksos.density.square import Square, central_first, feature_scales
from ksos.integrals.gaussian import Axes, axes_of
from ksos.kernels import Gaussian, Kernel

_FARTHEST = 1e300  # a point this many bandwidths away stays a number
_GAP = 4096.0  # bandwidths left of a gap of over 8192: on either side of its middle, kernels are 0
_ROUNDING = 64.0 * float(np.finfo(np.float64).eps)  # per feature: a correlation below it is none


def kernel_image(kernel: Kernel, A: np.ndarray) -> Kernel:
    """What k is in the coordinates Ax: of another bandwidth, or the Gaussian kernel with metric
    ASAᵀ. Features that A does not mix stay uncorrelated.
    """
    d, scale = A.shape[1], np.abs(np.diagonal(A))
    if not kernel.full and np.count_nonzero(A) == np.count_nonzero(scale):
        one = kernel.sigma.ndim == 0 and np.ptp(scale) == 0.0
        return kernel.with_sigma(scale[0] * kernel.sigma if one else scale * kernel.sigma_vector(d))
    if not isinstance(kernel, Gaussian):
        raise ValueError(
            f"{kernel!r} in coordinates that mix features is no such kernel: only Gaussian kernels"
            " take any matrix; use one of them, or scale feature by feature"
        )
    root = A @ np.linalg.cholesky(kernel.matrix(d)) if kernel.full else A * kernel.sigma_vector(d)
    S = root @ root.T
    sizes = np.sqrt(np.diagonal(S))
    S[np.abs(S) <= d * _ROUNDING * sizes[:, None] * sizes] = 0.0
    return Gaussian(S)


class Fold:
    """One feature: y = (x − origin)/σ, with wide gaps between the support points shortened.

    Kernels across such a gap vanish, before and after, so that no integral of a density changes;
    but nodes around an outlier can now be told from each other. Every cluster of points is measured
    from one of its own, which loses no digits.
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
        return np.where(
            nearer, ahead, np.where(after > j, np.minimum(y, self.stop[j] + 0.5 * _GAP), y)
        )

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

    square: Square
    """Its first support point is 0; support points without any weight are dropped."""
    folds: list[Fold]
    """One per feature."""
    scale: np.ndarray
    log_volume: float
    """log p(x) = log square(y) − log_volume."""
    origin: np.ndarray
    axes: Axes | None = None
    """Those of a metric; the folds are theirs then, and the scale is 1."""

    def coordinates(self, X: np.ndarray) -> np.ndarray:
        """y of the rows of ``X``, entries of which may be infinite if there is no metric."""
        X = X if self.axes is None else self.axes.coordinates(X, self.origin)
        return np.stack([fold.fold(X[:, k]) for k, fold in enumerate(self.folds)], axis=1)

    def points(self, Y: np.ndarray) -> np.ndarray:
        """x of the rows of ``Y``."""
        X = np.stack([fold.unfold(Y[:, k]) for k, fold in enumerate(self.folds)], axis=1)
        return X if self.axes is None else self.origin + X @ self.matrix.T

    @property
    def log_unit_volume(self) -> float:
        """log of the volume in x of a unit of volume in y."""
        return float(np.sum(np.log(self.scale))) if self.axes is None else self.axes.log_volume

    @property
    def matrix(self) -> np.ndarray:
        """∂x/∂y, where nothing was shortened."""
        return np.diag(self.scale) if self.axes is None else np.linalg.inv(self.axes.V)

    def same_coordinates(self, other: Square, kernel: Kernel | None = None) -> Square:
        """Another density in these coordinates, with the gaps that were shortened shortened; its
        kernel there may be known.
        """
        axes, to_standard = self.axes, 1.0 / self.scale
        if kernel is None:
            kernel = kernel_image(other.kernel, np.diag(to_standard) if axes is None else axes.V)
        if axes is None:
            measure = other.measure.image(self.coordinates, to_standard)
        else:
            measure = other.measure.linear_image(axes.V, -(axes.V @ self.origin))
        return replace(
            other,
            kernel=kernel,
            support_points=self.coordinates(other.support_points),
            log_unit=other.log_unit - (self.log_unit_volume if other.measure.by_volume else 0.0),
            measure=measure,
        )


def standardize(
    p: Square, *others: Square, shorten: bool = True, keep_features: bool = False
) -> Standard:
    """``p`` in standard coordinates around a support point from the middle; gaps are those that the
    ``others`` have as well.

    With a metric, the axes are those in which the kernel of the first other density is a product
    over the features as well. With ``keep_features``, y_k depends on x_k alone: boxes stay boxes,
    and a metric becomes one with a unit diagonal. On a discrete measure, which has no volume, this
    is always so.
    """
    d, scale = p.n_features, feature_scales(p.kernel, p.n_features)
    used = np.any(p.unit_factor != 0.0, axis=1)
    used[0] |= not np.any(used)
    X, F = p.support_points[used], p.unit_factor[used]
    order = central_first(X, scale)
    everywhere, origin = np.concatenate([X, *(q.support_points for q in others)]), X[order[0]]
    shorten = shorten and p.measure.by_volume  # the other measures are not the same everywhere
    axes, zero = None, origin
    if any(q.kernel.full for q in (p, *others)) and p.measure.atoms is None and not keep_features:
        axes = axes_of(p.kernel, d, *(q.kernel for q in others[:1]))
        everywhere, zero, scale = axes.coordinates(everywhere, origin), np.zeros(d), np.ones(d)
    folds = [
        Fold(x, float(first), float(sigma), shorten=shorten)
        for x, first, sigma in zip(everywhere.T, zero, scale, strict=True)
    ]
    frame = Standard(p, folds, scale, 0.0, origin, axes)
    kernel = p.kernel.with_sigma(1.0) if axes is None and not p.kernel.full else None
    kernel = Gaussian(1.0) if axes is not None else kernel
    kept = replace(p, support_points=X[order], unit_factor=F[order])
    log_volume = frame.log_unit_volume if p.measure.by_volume else 0.0
    return replace(frame, square=frame.same_coordinates(kept, kernel), log_volume=log_volume)
