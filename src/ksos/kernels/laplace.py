"""The Laplace kernel."""

from __future__ import annotations

import numpy as np

from ksos.ground.arrays import Array, namespace
from ksos.kernels.base import Kernel

__all__ = ["Laplace"]


class Laplace(Kernel):
    r"""k(x, y) = exp(−‖(x − y)/σ‖); with ``product=True``, ``exp(−Σ_k |x_k − y_k|/σ_k)``.

    >>> import numpy as np
    >>> x, y = np.zeros((1, 2)), np.ones((1, 2))
    >>> float(Laplace(1.0, product=True).log(x, y)[0, 0])
    -2.0
    """

    name = "laplace"

    @property
    def polynomial(self) -> np.ndarray:
        """κ = e^{−r} Σ_k c_k r^k: the same form as the half-integer Matérn kernels, with one
        coefficient.
        """
        return np.ones(1)

    def log_profile(self, t: Array) -> Array:
        return -namespace(t).sqrt(t)

    def slope(self, t: np.ndarray) -> np.ndarray:
        with np.errstate(all="ignore"):
            return np.where(t > 0.0, -0.5 / np.sqrt(t), 0.0)

    def reach(self, log_level: float) -> float:
        return -log_level
