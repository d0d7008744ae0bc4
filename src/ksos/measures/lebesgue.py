"""Lebesgue measure on R^d."""

from __future__ import annotations

from typing import Any, Self

import numpy as np

from ksos.measures.base import Measure

__all__ = ["Lebesgue"]


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
