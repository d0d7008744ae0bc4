"""A Gaussian reference measure."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Self

import numpy as np

from ksos.ground.arrays import Array, like, namespace
from ksos.ground.validation import as_bandwidth, as_metric, as_vector
from ksos.measures.base import Measure, Normals

__all__ = ["Normal", "log_normal"]


def log_normal(X: Array, mean: np.ndarray, covariance: np.ndarray) -> Array:
    """log N(x; mean, covariance) at the rows x of ``X``, shape (n,).

    >>> log_normal(np.zeros((1, 2)), np.zeros(2), np.eye(2)).round(6).tolist()  # −log 2π
    [-1.837877]
    """
    xp, L = namespace(X), np.linalg.cholesky(covariance)
    Y = (X - like(mean, X)) @ like(np.linalg.inv(L).T, X)
    return -0.5 * xp.vecdot(Y, Y) - float(
        np.sum(np.log(np.diagonal(L))) + 0.5 * mean.shape[0] * np.log(2.0 * np.pi)
    )


class Normal(Measure):
    """The probability measure N(mean, diag(scale²)) or N(mean, covariance). Relative to it, p = 1
    is the normal distribution itself.

    Parameters
    ----------
    mean : float or array of d floats
    scale : float, array of d floats, or symmetric positive definite matrix (d, d)
        Standard deviation, or the covariance matrix. Two scalars leave d open.

    >>> Normal([0.0, 0.0], [[1.0, 0.5], [0.5, 1.0]]).log_density(np.array([[0.0, 0.0]])).round(6)
    array([-1.694036])
    """

    name = "normal"

    def __init__(self, mean: Any = 0.0, scale: Any = 1.0) -> None:
        self.mean = np.array(mean, dtype=np.float64)
        if self.mean.ndim:
            as_vector(self.mean, "mean")
        elif not np.isfinite(self.mean):
            raise ValueError(f"mean must be finite; got {mean!r}")
        covariance = as_metric(scale, "scale")
        if covariance is None:
            self.scale = as_bandwidth(scale, "scale")
        else:
            variances = np.diagonal(covariance)
            independent = np.array_equal(covariance, np.diag(variances))
            self.scale = as_bandwidth(np.sqrt(variances), "scale") if independent else covariance
        lengths = {a.shape[0] for a in (self.mean, self.scale) if a.ndim}
        if len(lengths) > 1:
            raise ValueError(
                f"mean has {self.mean.shape[0]} features but scale has {self.scale.shape[0]}"
            )
        self.n_features = lengths.pop() if lengths else None

    @property
    def by_components(self) -> bool:
        return bool(self.scale.ndim == 2)

    def normals(self, d: int) -> Normals:
        self.check_features(d)
        mean = np.broadcast_to(self.mean, (d,))
        covariance = (
            self.scale if self.by_components else np.diag(np.broadcast_to(self.scale, (d,)) ** 2)
        )
        return Normals(np.ones(1), mean[None, :], covariance[None, :, :])

    def log_mass(self, d: int) -> float:
        return 0.0

    def normal_factor(self, d: int) -> tuple[np.ndarray, np.ndarray]:
        self.check_features(d)
        if self.by_components:
            raise ValueError(
                "a normal distribution with one standard deviation per feature is needed here, not"
                f" a covariance matrix; got {self!r}"
            )
        return np.broadcast_to(self.mean, (d,)), np.broadcast_to(self.scale, (d,))

    def smooth_length(self, d: int) -> np.ndarray:
        if self.by_components:
            return np.sqrt(2.0 / np.diagonal(np.linalg.inv(self.scale)))
        return np.sqrt(2.0) * self.normal_factor(d)[1]

    def log_density(self, X: Array) -> Array:
        if self.by_components:
            return log_normal(X, np.broadcast_to(self.mean, (X.shape[1],)), self.scale)
        xp, (mean, scale) = namespace(X), (like(v, X) for v in self.normal_factor(X.shape[1]))
        return xp.sum(
            -0.5 * ((X - mean) / scale) ** 2 - xp.log(scale) - 0.5 * float(np.log(2.0 * np.pi)),
            axis=1,
        )

    def restrict(self, features: Any) -> Self:
        index = np.asarray(features)
        mean = self.mean[index] if self.mean.ndim else self.mean
        if self.by_components:
            return type(self)(mean, self.scale[np.ix_(index, index)])
        return type(self)(mean, self.scale[index] if self.scale.ndim else self.scale)

    def image(self, transform: Callable[[np.ndarray], np.ndarray], scale: np.ndarray) -> Measure:
        mean = transform(np.broadcast_to(self.mean, scale.shape)[None, :])[0]
        with np.errstate(over="ignore", under="ignore"):
            return type(self)(
                mean,
                (
                    self.scale * scale[:, None] * scale
                    if self.by_components
                    else np.abs(scale) * self.scale
                ),
            )

    def linear_image(self, A: np.ndarray, b: np.ndarray) -> Measure:
        _, means, covariances = self.normals(b.shape[0])
        return type(self)(A @ means[0] + b, A @ covariances[0] @ A.T)

    def for_features(self, d: int) -> Measure:
        return self if self.by_components else type(self)(*self.normal_factor(d))

    def parameters(self) -> dict[str, Any]:
        return {"mean": self.mean, "scale": self.scale}
