"""Rules that would suit samples of one normal distribution."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np

from ksos.bandwidth.rule import Rule
from ksos.bandwidth.spreads import deviations, spreads
from ksos.kernels import Kernel
from ksos.measures import Measure

__all__ = ["robust_silverman", "scott", "silverman"]


def _normal_reference(
    constant: Callable[[int], float],
) -> Rule:
    """η = 2h with h = constant(d)·n^{−1/(d+4)}·(standard deviation), per feature: a squared Gaussian kernel then has deviation h."""

    def rule(points: np.ndarray, weights: np.ndarray, rng: np.random.Generator, kernel: Kernel, measure: Measure) -> np.ndarray:
        d = points.shape[1]
        n = 1.0 / float(weights @ weights)  # the effective sample size
        return np.asarray(2.0 * constant(d) * n ** (-1.0 / (d + 4)) * deviations(points, weights))

    return rule


scott = _normal_reference(lambda d: 1.0)
silverman = _normal_reference(lambda d: ((d + 2) / 4.0) ** (-1.0 / (d + 4)))


def robust_silverman(points: np.ndarray, weights: np.ndarray) -> np.ndarray:
    """Silverman's rule with spreads that do not see outliers."""
    d, n = points.shape[1], 1.0 / float(weights @ weights)
    return 2.0 * ((d + 2) / 4.0 * n) ** (-1.0 / (d + 4)) * spreads(points, weights)
