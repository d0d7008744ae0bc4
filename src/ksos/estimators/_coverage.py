"""Few support points need wider kernels than many samples would."""

from __future__ import annotations

import numpy as np

from ksos.integrals import closed_form
from ksos.kernels import Kernel
from ksos.measures import Measure
from ksos.support import unexplained

__all__ = ["wide_enough"]

_UNEXPLAINED, _STEPS = 0.3, 4


def wide_enough(kernel: Kernel, points: np.ndarray, weights: np.ndarray, measure: Measure, m: int) -> Kernel:
    """The kernel, widened until ``m`` of the n points represent at least 70 % of the others, or by (n/m)^{1/(d+4)}.

    What suits n bumps leaves gaps between m of them; the latter is how much wider the bumps of a kernel density estimate of m samples are.
    """
    n, d = points.shape
    sigma, most = kernel.sigma, max(1.0, n / m) ** (1.0 / (d + 4))
    for step in range(_STEPS + 1):
        kernel = kernel.with_sigma(most ** (step / _STEPS) * sigma)
        if n <= m or unexplained(points, weights, m, closed_form(kernel, measure, d)) <= _UNEXPLAINED:
            break
    return kernel
