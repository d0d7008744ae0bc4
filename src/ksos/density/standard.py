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
_APART = 1e9  # bandwidths: across more, floats place a node to 1e-7 of a bandwidth at best
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


@dataclass(frozen=True)
class Standard:
    """A density in standard coordinates, and the way back."""

    square: Square
    """Its first support point is 0; support points without any weight are dropped."""
    scale: np.ndarray
    log_volume: float
    """log p(x) = log square(y) − log_volume."""
    origin: np.ndarray
    axes: Axes | None = None
    """Those of a metric; the scale is 1 then."""

    def coordinates(self, X: np.ndarray) -> np.ndarray:
        """y of the rows of ``X``, entries of which may be infinite if there is no metric."""
        if self.axes is not None:
            return np.asarray(self.axes.coordinates(X, self.origin))
        with np.errstate(over="ignore", under="ignore"):
            Y = (X - self.origin) / self.scale
        return np.where(np.isinf(X), X, np.clip(Y, -_FARTHEST, _FARTHEST))

    def points(self, Y: np.ndarray) -> np.ndarray:
        """x of the rows of ``Y``."""
        with np.errstate(over="ignore", under="ignore"):
            steps = Y * self.scale if self.axes is None else Y @ self.matrix.T
            return np.asarray(self.origin + steps)

    @property
    def log_unit_volume(self) -> float:
        """log of the volume in x of a unit of volume in y."""
        return float(np.sum(np.log(self.scale))) if self.axes is None else self.axes.log_volume

    @property
    def matrix(self) -> np.ndarray:
        """∂x/∂y."""
        return np.diag(self.scale) if self.axes is None else np.linalg.inv(self.axes.V)

    def same_coordinates(self, other: Square, kernel: Kernel | None = None) -> Square:
        """Another density in these coordinates; its kernel there may be known."""
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
    p: Square, *others: Square, on_nodes: bool = True, keep_features: bool = False
) -> Standard:
    """``p`` in standard coordinates around a support point from the middle.

    With a metric, the axes are those in which the kernel of the first other density is a product
    over the features as well. With ``keep_features``, y_k depends on x_k alone: boxes stay boxes,
    and a metric becomes one with a unit diagonal. On a discrete measure, which has no volume, this
    is always so. Where answers come ``on_nodes``, floats must tell these apart everywhere.
    """
    d, scale, axes = p.n_features, feature_scales(p.kernel, p.n_features), None
    used = np.any(p.unit_factor != 0.0, axis=1)
    used[0] |= not np.any(used)
    X, F = p.support_points[used], p.unit_factor[used]
    order = central_first(X, scale)
    if any(q.kernel.full for q in (p, *others)) and p.measure.atoms is None and not keep_features:
        axes = axes_of(p.kernel, d, *(q.kernel for q in others[:1]))
        scale = np.ones(d)
    frame = Standard(p, scale, 0.0, X[order[0]], axes)
    apart = max(
        float(np.abs(frame.coordinates(q)).max()) for q in (X, *(q.support_points for q in others))
    )
    if on_nodes and p.measure.atoms is None and apart > _APART:
        raise ValueError(
            f"support points lie {apart:.2g} bandwidths apart, where floating-point numbers do not"
            " resolve a bandwidth; fit without the outliers, or with a larger bandwidth"
        )
    kernel = p.kernel.with_sigma(1.0) if axes is None and not p.kernel.full else None
    kernel = Gaussian(1.0) if axes is not None else kernel
    kept = replace(p, support_points=X[order], unit_factor=F[order])
    log_volume = frame.log_unit_volume if p.measure.by_volume else 0.0
    return replace(frame, square=frame.same_coordinates(kept, kernel), log_volume=log_volume)
