"""A Gaussian reference measure."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Self

import numpy as np

from ksos._array import Array, like, namespace
from ksos._validation import as_bandwidth, as_vector
from ksos.measures.base import Measure

__all__ = ["Normal"]


class Normal(Measure):
    """The probability measure N(mean, diag(scale²)): densities are relative to it, so that p = 1 is the normal distribution itself.

    Parameters
    ----------
    mean : float or array of d floats
    scale : float or array of d floats
        Standard deviation. Two scalars leave d open.
    """

    name = "normal"

    def __init__(self, mean: Any = 0.0, scale: Any = 1.0) -> None:
        self.mean = np.array(mean, dtype=np.float64)
        if self.mean.ndim:
            as_vector(self.mean, "mean")
        elif not np.isfinite(self.mean):
            raise ValueError(f"mean must be finite; got {mean!r}")
        self.scale = as_bandwidth(scale, "scale")
        lengths = {a.shape[0] for a in (self.mean, self.scale) if a.ndim}
        if len(lengths) > 1:
            raise ValueError(f"mean has {self.mean.shape[0]} features but scale has {self.scale.shape[0]}")
        self.n_features = lengths.pop() if lengths else None

    def normal_factor(self, d: int) -> tuple[np.ndarray, np.ndarray]:
        self.check_features(d)
        return np.broadcast_to(self.mean, (d,)), np.broadcast_to(self.scale, (d,))

    def smooth_length(self, d: int) -> np.ndarray:
        return np.sqrt(2.0) * self.normal_factor(d)[1]

    def log_density(self, X: Array) -> Array:
        xp, (mean, scale) = namespace(X), (like(v, X) for v in self.normal_factor(X.shape[1]))
        return xp.sum(-0.5 * ((X - mean) / scale) ** 2 - xp.log(scale) - 0.5 * float(np.log(2.0 * np.pi)), axis=1)

    def restrict(self, features: Any) -> Self:
        index = np.asarray(features)
        return type(self)(*(a[index] if a.ndim else a for a in (self.mean, self.scale)))

    def image(self, transform: Callable[[np.ndarray], np.ndarray], scale: np.ndarray) -> Measure:
        mean, deviation = self.normal_factor(scale.shape[0])
        with np.errstate(over="ignore", under="ignore"):
            return type(self)(transform(mean[None, :])[0], np.abs(scale) * deviation)

    def for_features(self, d: int) -> Measure:
        return type(self)(*self.normal_factor(d))

    def parameters(self) -> dict[str, Any]:
        return {"mean": self.mean, "scale": self.scale}
