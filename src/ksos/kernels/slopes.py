"""The derivative of each kernel's formula: what gradients of a density are made of."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
from scipy.special import kve

from ksos.kernels.base import Kernel
from ksos.kernels.gaussian import Gaussian
from ksos.kernels.laplace import Laplace
from ksos.kernels.matern import Matern

__all__ = ["SLOPES", "log_profile_slope"]

_FAR = 1e9  # K_{ν−1}/K_ν = 1 − O(1/r); the library function gives up much farther out


def log_profile_slope(kernel: Kernel, t: np.ndarray) -> np.ndarray:
    """d log κ/dt at the squared scaled distances t; 0 at the tip of a kernel with a kink, where the two one-sided slopes cancel.

    >>> log_profile_slope(Gaussian(3.0), np.array([0.0, 2.0]))
    array([-1., -1.])
    """
    if type(kernel) not in SLOPES:
        known = ", ".join(sorted(k.__name__ for k in SLOPES))
        raise TypeError(f"gradients are known for the kernels {known}; got {kernel!r}; add its derivative to ksos.kernels.slopes.SLOPES")
    with np.errstate(all="ignore"):
        return SLOPES[type(kernel)](kernel, t)


def _gaussian(kernel: Kernel, t: np.ndarray) -> np.ndarray:
    return np.full(t.shape, -1.0)


def _laplace(kernel: Kernel, t: np.ndarray) -> np.ndarray:
    return np.where(t > 0.0, -0.5 / np.sqrt(t), 0.0)


def _matern(kernel: Any, t: np.ndarray) -> np.ndarray:
    """−K_{ν−1}(r)/(2r K_ν(r)), from (r^ν K_ν)' = −r^ν K_{ν−1}."""
    nu, r = kernel.nu, np.sqrt(t)
    above = kve(nu, r)
    ratio = np.where(r > _FAR, 1.0, kve(nu - 1.0, r) / above)
    # K_ν overflows at small r; there the slope is that of κ = 1 − r²/(4(ν−1)) + …, or at ν ≤ 1 infinite, hence a kink
    at_zero = -0.25 / (nu - 1.0) if nu > 1.0 else 0.0
    return np.where((r == 0.0) | np.isinf(above), at_zero, -0.5 * ratio / np.minimum(r, 1e300))


SLOPES: dict[type[Kernel], Callable[[Kernel, np.ndarray], np.ndarray]] = {Gaussian: _gaussian, Laplace: _laplace, Matern: _matern}
"""Every kernel's derivative."""
