"""Rules for the bandwidth: all of them scale with the data, count weighted samples as repeated ones, and do not see a shift."""

from __future__ import annotations

import warnings

import numpy as np

from ksos._validation import as_bandwidth
from ksos.bandwidth.leave_one_out import left_out, widest_good
from ksos.bandwidth.median_distance import median
from ksos.bandwidth.normal_reference import scott, silverman
from ksos.bandwidth.rule import Rule
from ksos.kernels import Gaussian, Kernel
from ksos.measures import Lebesgue, Measure

__all__ = ["RULES", "bandwidth_rule", "widest_good"]


def bandwidth_rule(
    name: str,
    points: np.ndarray,
    weights: np.ndarray,
    rng: np.random.Generator,
    *,
    kernel: Kernel | None = None,
    measure: Measure | None = None,
) -> np.ndarray:
    """The bandwidth that rule ``name`` gives for distinct ``points`` with ``weights`` (sum 1): a scalar or one entry per feature.

    Zero spread gives 1, with a warning. Only "auto" looks at ``kernel`` (its bandwidth aside; default: Gaussian) and at ``measure``
    (default: Lebesgue).
    """
    with np.errstate(over="ignore"):
        extent = np.ptp(points, axis=0)
    if not np.all(np.isfinite(extent)):
        raise ValueError(f"bandwidth={name!r}: differences between the samples overflow; rescale the data or pass a number as bandwidth")
    spread = RULES[name](points, weights, rng, Gaussian(1.0) if kernel is None else kernel, Lebesgue() if measure is None else measure)
    if np.any(spread == 0.0):
        where = "the points have" if spread.ndim == 0 else f"feature(s) {np.flatnonzero(spread == 0.0).tolist()} have"
        warnings.warn(f"bandwidth={name!r}: {where} no spread; the bandwidth is set to 1 there", UserWarning, stacklevel=2)
    return as_bandwidth(np.where(spread == 0.0, 1.0, spread), f"bandwidth={name!r}: rescale the data: their bandwidth")


RULES: dict[str, Rule] = {
    "auto": left_out,
    "median": median,
    "scott": scott,
    "silverman": silverman,
}
"""Every rule by name."""
