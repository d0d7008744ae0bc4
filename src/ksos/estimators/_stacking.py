"""Stacking [Wolpert1992]: the shares with which densities, together, predict held-out samples best, and the density that they make."""

from __future__ import annotations

from typing import cast

import numpy as np

from ksos.density import SoSDensity
from ksos.density.mixture import mixture
from ksos.estimators._kernel_density import bump_density
from ksos.integrals import closed_form
from ksos.kernels import Kernel
from ksos.measures import Measure
from ksos.space import SoSSpace
from ksos.support import pivoted_cholesky

__all__ = ["blend", "stack", "stacked_logs"]

_ITERATIONS = 60
_NEGLIGIBLE = 1e-13
_MANY = 0.7


def stack(log_densities: np.ndarray, weights: np.ndarray, iterations: int = _ITERATIONS, start: np.ndarray | None = None) -> np.ndarray:
    """Shares w ≥ 0, Σw = 1, that (nearly) maximise Σ_i a_i log Σ_j w_j p_j(x_i), from held-out log-densities of shape (n, models).

    The expectation–maximisation iteration w_j ← Σ_i a_i w_j p_j(x_i)/p(x_i), which never decreases the likelihood, stopped after 60 rounds
    from equal shares (or those of ``start``): models that predict alike keep their shares, and noise in their scores decides nothing.

    >>> held_out = np.log([[0.2, 0.1], [0.4, 0.1], [0.1, 0.2]])
    >>> stack(held_out, np.ones(3) / 3).round(2).tolist()
    [1.0, 0.0]
    """
    out = np.ones(log_densities.shape[1]) if start is None else np.array(start, dtype=np.float64)
    used = out > 0.0  # a share of zero stays zero
    P, w = _relative(log_densities[:, used])[0], out[used] / out[used].sum()
    for _ in range(iterations):
        w = w * ((weights / np.maximum(P @ w, 1e-300)) @ P)
        w /= w.sum()
    out[used] = w
    return out


def stacked_logs(log_densities: np.ndarray, shares: np.ndarray) -> np.ndarray:
    """log Σ_j w_j p_j(x_i), shape (n,)."""
    P, peak = _relative(log_densities)
    with np.errstate(divide="ignore"):
        return np.asarray(np.log(P @ shares) + peak)


def _relative(log_densities: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Densities in units of the largest of each sample; a sample that no model can see says nothing about them."""
    peak = log_densities.max(axis=1)
    seen = np.isfinite(peak)
    P = np.exp(np.where(seen[:, None], log_densities - np.where(seen, peak, 0.0)[:, None], 0.0))
    return P, np.where(seen, peak, -1e300)


def blend(
    kernel: Kernel, measure: Measure, points: np.ndarray, weights: np.ndarray, parts: list[SoSDensity], shares: np.ndarray, rank: int
) -> SoSDensity:
    """Σ_j shares_j·parts_j + shares_last·(the kernel density estimate over the samples), as one density.

    Where few samples span all the others up to rounding (``rank`` says how many to expect), it is written on those and as few squares as
    it has; else on all.
    """
    integrals = closed_form(kernel, measure, points.shape[1])
    bumps = bump_density(kernel, measure, points, weights)
    most = int(_MANY * points.shape[0])
    chosen = pivoted_cholesky(points, most, integrals, 1e-12) if rank < most else np.arange(most)
    if chosen.shape[0] == most:
        return cast("SoSDensity", mixture([*parts, bumps], shares))  # of one kernel and measure
    space = SoSSpace(kernel, points[chosen], measure)
    columns = []
    for p, share in zip([*parts, bumps], shares, strict=True):
        W = np.exp(integrals.log_gram(points[chosen], p.support_points) - space.log_unit)
        columns.append(np.sqrt(share) * np.exp(0.5 * (space.log_unit - p.log_unit)) * (space.T.T @ (W @ p.unit_factor)))
    U, s, _ = np.linalg.svd(np.concatenate(columns, axis=1), full_matrices=False)
    keep = s**2 > _NEGLIGIBLE * s[0] ** 2
    return space.density(U[:, keep] * s[keep] / np.linalg.norm(s[keep]))
