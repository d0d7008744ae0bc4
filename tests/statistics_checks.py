"""Statistical tests with a stated false-alarm rate: Dvoretzky–Kiefer–Wolfowitz bounds and a χ² test
on cells.
"""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
from scipy.stats import chi2

__all__ = ["FALSE_ALARM", "chi_square_passes", "dkw_passes_at"]

FALSE_ALARM = 1e-6


def dkw_passes_at(
    samples: np.ndarray, cdf: Callable[[np.ndarray], np.ndarray], n_thresholds: int = 60
) -> bool:
    """Whether |F_n − F| ≤ √(log(2/α)/(2n)) at quantiles of the samples: a right sampler fails with
    probability at most α = 1e-6.
    """
    n = samples.shape[0]
    thresholds = np.unique(np.quantile(samples, np.linspace(0.0, 1.0, n_thresholds + 2)[1:-1]))
    empirical = np.searchsorted(np.sort(samples), thresholds, side="right") / n
    return bool(
        np.max(np.abs(empirical - cdf(thresholds)))
        <= np.sqrt(np.log(2.0 / FALSE_ALARM) / (2.0 * n))
    )


def chi_square_passes(counts: np.ndarray, probabilities: np.ndarray) -> bool:
    """Pearson's χ² at level 1e-6 on cells with known probabilities."""
    expected = counts.sum() * probabilities
    statistic = float(np.sum((counts - expected) ** 2 / expected))
    return bool(statistic <= chi2.ppf(1.0 - FALSE_ALARM, counts.shape[0] - 1))
