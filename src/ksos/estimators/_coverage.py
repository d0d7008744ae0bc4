"""Few support points need wider kernels than many samples would."""

from __future__ import annotations

import numpy as np

from ksos.integrals import closed_form
from ksos.kernels import Kernel
from ksos.measures import Measure
from ksos.support import unexplained

__all__ = ["wide_enough"]

_UNEXPLAINED, _STEPS = 0.3, 4
_PER_SUPPORT_POINT = 10  # samples looked at: memory and time follow the support points, however many samples there are


def wide_enough(kernel: Kernel, points: np.ndarray, weights: np.ndarray, measure: Measure, m: int) -> Kernel:
    """The kernel, widened until ``m`` of the n points represent at least 70 % of the others, or by (n/m)^{1/(d+4)}.

    What suits n bumps leaves gaps between m of them; the latter is how much wider the bumps of a kernel density estimate of m samples are.
    """
    n, d = points.shape
    if n <= m:
        return kernel
    sigma, most = kernel.sigma, (n / m) ** (1.0 / (d + 4))
    if n > _PER_SUPPORT_POINT * m:
        chosen = np.sort(np.random.default_rng(0).choice(n, _PER_SUPPORT_POINT * m, replace=False))  # always the same: no matter of chance
        points, weights = points[chosen], weights[chosen] / weights[chosen].sum()
    for step in range(_STEPS + 1):
        kernel = kernel.with_sigma(most ** (step / _STEPS) * sigma)
        if unexplained(points, weights, m, closed_form(kernel, measure, d)) <= _UNEXPLAINED:
            break
    return kernel
