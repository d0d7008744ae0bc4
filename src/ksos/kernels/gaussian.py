"""The Gaussian kernel."""

from __future__ import annotations

import math
from typing import Any, Self

import numpy as np

from ksos._array import Array
from ksos.kernels.base import Kernel

__all__ = ["Gaussian"]


class Gaussian(Kernel):
    r"""k(x, y) = exp(−‖(x − y)/σ‖²), the first of the note's examples.

    >>> import numpy as np
    >>> Gaussian(2.0)(np.array([[0.0]]), np.array([[2.0]])).round(6)
    array([[0.367879]])
    """

    name = "gaussian"
    smooth = True

    def __init__(self, sigma: Any = 1.0) -> None:
        super().__init__(sigma)

    def log_profile(self, t: Array) -> Array:
        return -t

    def slope(self, t: np.ndarray) -> np.ndarray:
        return np.full(t.shape, -1.0)

    def reach(self, log_level: float) -> float:
        return math.sqrt(-log_level)

    def separable(self, d: int) -> bool:
        return True

    def with_sigma(self, sigma: Any) -> Self:
        return type(self)(sigma)

    def parameters(self) -> dict[str, Any]:
        return {"sigma": self.sigma.tolist()}
