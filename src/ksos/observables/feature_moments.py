"""Moments of any order of one feature under the laws ∝ k(x, X_i) k(x, X_j) dρ, for kernels that are products over the features."""

from __future__ import annotations

import math
from collections.abc import Iterator

import numpy as np

from ksos._memory import row_blocks
from ksos.integrals import Integrals
from ksos.quadrature import legendre

__all__ = ["feature_moments"]

_ORDER = 48
_BLOCK_ELEMENTS = 1 << 14
_GONE = 45.0
"""e^{−45} is below rounding beside 1."""


def feature_moments(integrals: Integrals, X: np.ndarray, feature: int, order: int, centre: float) -> list[np.ndarray]:
    """E[(x_k − centre)^n] for n = 0..order, k = ``feature``, each of shape (m, m)."""
    if not np.any(np.isfinite(integrals.measure.boundary(feature))):
        normals = integrals.pair_normals(X, np.full(X.shape[1], centre))
        if normals is not None:
            return _of_normal_laws(normals[0][:, feature], float(normals[1][feature]), order)
    m = X.shape[0]
    out = [np.ones((m, m)), *(np.empty((m, m)) for _ in range(order))]
    for rows in row_blocks(m, m, _BLOCK_ELEMENTS):
        block = _by_nodes(integrals, X[rows, feature][:, None], X[:, feature][None, :], feature, order, centre)
        for n in range(1, order + 1):
            out[n][rows] = block[n]
    return [0.5 * (moment + moment.T) for moment in out]


def _of_normal_laws(xi: np.ndarray, width: float, order: int) -> list[np.ndarray]:
    """E[x^{n+1}] = E[x]·E[x^n] + n·Var·E[x^{n−1}], every law being normal with the same variance."""
    mean, variance = 0.5 * (xi[:, None] + xi), 0.5 * width**2
    out = [np.ones_like(mean), mean]
    for n in range(1, order):
        out.append(mean * out[n] + n * variance * out[n - 1])
    return out[: order + 1]


def _by_nodes(integrals: Integrals, x: np.ndarray, y: np.ndarray, k: int, order: int, centre: float) -> list[np.ndarray]:
    """Ratios of Gauss–Legendre sums over pieces without a kink, each cut where the integrand has vanished: positive terms, to rounding."""
    nodes, weights = legendre(_ORDER)
    nodes = 0.5 * (nodes + 1.0)
    kernel, sigma = integrals.kernel, float(integrals.kernel.sigma_vector(integrals.n_features)[k])
    sums: list[np.ndarray | float] = [0.0] * (order + 1)
    pieces = list(_pieces(integrals, x, y, k, sigma, order))
    logs = []
    for start, length in pieces:
        t = start[..., None] + length[..., None] * nodes  # in bandwidths, relative to x
        other = t - ((y - x) / sigma)[..., None]
        logs.append(kernel.log_profile(t * t) + kernel.log_profile(other * other))
    peak = np.max([log.max(axis=-1) for log in logs], axis=0)
    for (start, length), log in zip(pieces, logs, strict=True):
        weight = length[..., None] * weights * np.exp(log - peak[..., None])
        position = (x - centre)[..., None] + sigma * (start[..., None] + length[..., None] * nodes)
        for n in range(order + 1):
            sums[n] = sums[n] + weight.sum(axis=-1)
            weight = weight * position
    return [np.asarray(total / sums[0]) for total in sums]


def _pieces(
    integrals: Integrals, x: np.ndarray, y: np.ndarray, k: int, sigma: float, order: int
) -> Iterator[tuple[np.ndarray, np.ndarray]]:
    """(start, length) of the pieces of the law of x and y, in bandwidths and relative to x."""
    drop = _GONE + 4.0 * order
    low, high = ((np.full_like(x, end) - x) / sigma for end in integrals.measure.boundary(k))
    gap = (y - x) / sigma
    low, high = np.broadcast_arrays(low, high)[0] + 0.0 * gap, np.broadcast_arrays(low, high)[1] + 0.0 * gap
    if integrals.kernel.smooth:
        # e^{−t²−(t−gap)²}: a parabola of curvature 2 about gap/2, seen from its highest point within the boundary
        peak = np.clip(0.5 * gap, low, high)
        slope = 4.0 * np.abs(peak - 0.5 * gap)
        reach = (-slope + np.sqrt(slope**2 + 8.0 * drop)) / 4.0
        start, stop = np.maximum(peak - reach, low), np.minimum(peak + reach, high)
        yield start, stop - start
        return
    left, right = np.clip(np.minimum(gap, 0.0), low, high), np.clip(np.maximum(gap, 0.0), low, high)
    # κ(r) = e^{−r}·polynomial of degree p: beyond the centres, the product falls at the rate 2 once the polynomial has had its say
    reach = 0.5 * drop + 2.0 * math.sqrt(drop)
    start = np.maximum(left - reach, low)
    yield start, left - start
    yield left, right - left
    yield right, np.minimum(right + reach, high) - right
