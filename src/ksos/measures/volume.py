"""Volume: Lebesgue measure on R^d, or on a box."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Self

import numpy as np

from ksos.ground.arrays import Array, like, namespace
from ksos.measures.base import Measure

__all__ = ["Box", "Lebesgue"]


class Lebesgue(Measure):
    """Lebesgue measure on all of R^d: densities in the usual sense.

    >>> Lebesgue().log_density(np.array([[3.0, 4.0]])).tolist(), Lebesgue().bounded
    ([0.0], False)
    """

    name = "lebesgue"
    by_volume = True

    def restrict(self, features: Any) -> Self:
        return self

    def linear_image(self, A: np.ndarray, b: np.ndarray) -> Measure:
        return self

    def parameters(self) -> dict[str, Any]:
        return {}


class Box(Measure):
    """Lebesgue measure on Π_k [low_k, high_k]; sides may be infinite.

    >>> Box([0, 0], [1, 2]).contains(np.array([[0.5, 1.5], [0.5, 3.0]]))
    array([ True, False])
    """

    name = "box"
    by_volume = True

    def __init__(self, low: Any, high: Any) -> None:
        low, high = (np.atleast_1d(np.array(side, dtype=np.float64)) for side in (low, high))
        if low.ndim != 1 or low.shape != high.shape or low.size == 0:
            raise ValueError(
                f"low and high must be vectors of one length; got shapes {low.shape} and"
                f" {high.shape}"
            )
        if not np.all(low < high):
            raise ValueError(
                f"low must be less than high in every feature; got low={low.tolist()},"
                f" high={high.tolist()}"
            )
        self.low, self.high = low, high
        self.n_features = low.shape[0]

    @property
    def region(self) -> Box | None:
        return self if np.all(np.isfinite([self.low, self.high])) else None

    def log_mass(self, d: int) -> float:
        return float(np.sum(np.log(self.high - self.low)))

    @property
    def without_boundary(self) -> Measure:
        return Lebesgue()

    def contains(self, X: Array) -> Array:
        return namespace(X).all((like(self.low, X) <= X) & (like(self.high, X) >= X), axis=1)

    def boundary(self, feature: int) -> tuple[float, float]:
        return float(self.low[feature]), float(self.high[feature])

    def restrict(self, features: Any) -> Self:
        index = np.asarray(features)
        return type(self)(self.low[index], self.high[index])

    def image(self, transform: Callable[[np.ndarray], np.ndarray], scale: np.ndarray) -> Measure:
        a, b = transform(np.stack([self.low, self.high]))
        return type(self)(np.minimum(a, b), np.maximum(a, b))

    def parameters(self) -> dict[str, Any]:
        return {"low": self.low, "high": self.high}
