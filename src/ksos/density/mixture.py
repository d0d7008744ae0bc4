"""Mixtures of densities over one kernel and one measure."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

import numpy as np
from scipy.linalg import block_diag

from ksos._validation import as_weights
from ksos.density._assemble import assemble
from ksos.density.sos import SoSDensity

__all__ = ["mixture"]


def mixture(densities: Iterable[SoSDensity], weights: Any = None) -> SoSDensity:
    r"""The density Σ_a w_a p_a of densities that share kernel and measure: B = Σ_a w_a B_a, block by block.

    Parameters
    ----------
    densities : sequence of SoSDensity
        All with the same kernel, bandwidth and measure.
    weights : array of floats, optional
        Non-negative, scaled to sum one; default: equal ones.

    >>> from ksos.kernels import Gaussian
    >>> left, right = (SoSDensity(Gaussian(2.0), [[x]], [[1.0]], normalize=True) for x in (-3.0, 3.0))
    >>> p = mixture([left, right], [1, 3])
    >>> p.mean().round(12)
    array([1.5])
    >>> p
    SoSDensity(d=1, m=2, rank=2, kernel=Gaussian(sigma=2.0), measure=Lebesgue())
    """
    parts = list(densities) if isinstance(densities, Iterable) else [densities]
    for p in parts:
        if not isinstance(p, SoSDensity):
            raise TypeError(f"densities must be a list of SoSDensity; got {p!r}")
    if not parts:
        raise ValueError("densities must hold at least one density; got none")
    given, parts = parts[0], [p.on_host() for p in parts]
    first = parts[0]
    for a, p in enumerate(parts):
        _check_same(first, p, a)
    shares = as_weights(weights, len(parts), "weights")
    used = [(p, w) for p, w in zip(parts, shares, strict=True) if w > 0.0]
    points = np.concatenate([p.support_points for p, _ in used])
    log_rows = np.concatenate([np.full(p.support_points.shape[0], 0.5 * (np.log(w) - p.log_unit)) for p, w in used])
    F = block_diag(*(p.unit_factor for p, _ in used))
    return assemble(first, first.kernel, points, first.measure, F, log_rows).on_device_of(given)


def _check_same(first: SoSDensity, other: SoSDensity, number: int) -> None:
    d, what = first.n_features, None
    if other.n_features != d:
        what = f"{d} features", f"{other.n_features}"
    elif first.kernel.with_sigma(first.kernel.sigma_vector(d)) != other.kernel.with_sigma(other.kernel.sigma_vector(d)):
        what = f"{first.kernel!r}", f"{other.kernel!r}"
    elif first.measure.for_features(d) != other.measure.for_features(d):
        what = f"{first.measure!r}", f"{other.measure!r}"
    if what is not None:
        raise ValueError(f"a mixture needs one kernel and one measure: density 0 has {what[0]}, but density {number} has {what[1]}")
