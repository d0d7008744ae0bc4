"""Exact sampling, feature by feature: invert the distribution function of x_k given x_1 … x_{k−1}.

Integrating the later features out of p_B is a Hadamard product with their Gram matrices, B ∘ W_{k+1} ∘ … ∘ W_d, which stays positive
semi-definite; conditioning on the earlier ones is a diagonal scaling. So every conditional density is again ‖Lᵀ(δ ∘ k(t))‖², a smooth
function of one variable t between the kernel's kinks. It is integrated on panels short enough for Gauss–Legendre nodes to be exact to
rounding, and its distribution function is inverted on the interpolating polynomial of the panel that holds the sample.
"""

from __future__ import annotations

import itertools
from typing import TYPE_CHECKING

import numpy as np
from numpy.polynomial import legendre

from ksos._memory import FLOAT_BYTES
from ksos.density.moments import central_point_first, node_masses
from ksos.integrals import closed_form
from ksos.kernels._distances import row_blocks
from ksos.measures import Discrete

if TYPE_CHECKING:
    from ksos.density.sos import SoSDensity

__all__ = ["draw"]

_NODES_PER_PANEL = 12
_NODES, _WEIGHTS = legendre.leggauss(_NODES_PER_PANEL)
_TO_LEGENDRE = np.linalg.inv(legendre.legvander(_NODES, _NODES_PER_PANEL - 1))
_LOG_LEVEL = -32.0  # where kernel values are negligible; squared, and with room for large signed weights
_CHUNK_BYTES = 64e6
_DROP = 1e-15


def draw(density: SoSDensity, size: int, rng: np.random.Generator) -> np.ndarray:
    """``size`` independent samples of ``density``, shape (size, d)."""
    if isinstance(density.measure, Discrete):
        nodes = rng.choice(density.measure.points.shape[0], size=size, p=node_masses(density))
        return density.measure.points[nodes]
    density = central_point_first(density)
    d, X = density.n_features, density.support_points
    uniforms = rng.random((size, d))  # all at once: the result does not depend on the chunks
    out = np.empty((size, d))
    stages = [(L, _Panels(density, k)) for k, L in enumerate(_prefix_factors(density))]
    for rows in row_blocks(size, X.shape[0], int(_CHUNK_BYTES / FLOAT_BYTES)):
        log_delta = np.zeros((rows.stop - rows.start, X.shape[0]))  # log Π_{j<k} k_j(x_j, x̃_ij), per sample and support point
        for k, (L, panels) in enumerate(stages):
            inverse = panels.invert(L, log_delta, uniforms[rows, k], shared=k == 0)
            out[rows, k] = np.clip(inverse, *density.measure.walls(k))  # rounding must not carry a sample out of its box
            if k + 1 < d:
                log_delta += density.kernel.restrict([k]).log(out[rows, k : k + 1], X[:, [k]])
    return out


def _prefix_factors(density: SoSDensity) -> list[np.ndarray]:
    """L_k with L_k L_kᵀ = B ∘ W_{k+1} ∘ … ∘ W_d, in arbitrary units: the marginal law of the features 1 … k."""
    L = density.unit_factor
    factors = [L]
    for k in range(density.n_features - 1, 0, -1):
        x = density.support_points[:, [k]]
        log_W = closed_form(density.kernel.restrict([k]), density.measure.restrict([k]), 1).log_gram(x, x)
        values, vectors = np.linalg.eigh(np.exp(log_W - log_W.max()))
        keep = values > _DROP * values[-1]
        R = vectors[:, keep] * np.sqrt(values[keep])
        L = _hadamard_factor(L, R)
        factors.append(L)
    return factors[::-1]


def _hadamard_factor(L: np.ndarray, R: np.ndarray) -> np.ndarray:
    """A factor of (LLᵀ) ∘ (RRᵀ) with few columns, without forming either product: its columns are l_a ∘ r_b."""
    m = L.shape[0]
    triangle = np.zeros((0, m))
    for a in range(L.shape[1]):
        triangle = np.concatenate([triangle, (L[:, [a]] * R).T])
        if triangle.shape[0] > 4 * m:
            triangle = np.asarray(np.linalg.qr(triangle, mode="r"))
    _, s, vt = np.linalg.svd(triangle, full_matrices=False)
    keep = s > _DROP * s[0]
    return np.asarray((s[keep, None] * vt[keep]).T / s[0])


class _Panels:
    """Panels that cover one feature's axis, with the kernel values at their Gauss–Legendre nodes."""

    def __init__(self, density: SoSDensity, k: int) -> None:
        edges = _panel_edges(density, k)
        self.start, self.half = edges[:, 0], 0.5 * (edges[:, 1] - edges[:, 0])
        nodes = (self.start + self.half)[:, None] + self.half[:, None] * _NODES
        self.origin = density.support_points[0, k]  # nodes are kept relative to it: exact for data far from zero
        centres = density.support_points[:, [k]] - self.origin
        log_values = density.kernel.restrict([k]).log(nodes.reshape(-1, 1), centres).T
        log_values = log_values + 0.5 * density.measure.restrict([k]).log_density(nodes.reshape(-1, 1) + self.origin)
        self.values = np.exp(log_values - log_values.max())

    def invert(self, L: np.ndarray, log_delta: np.ndarray, uniforms: np.ndarray, *, shared: bool) -> np.ndarray:
        """x_k with F(x_k | x_1 … x_{k−1}) = uniforms; ``shared``: there is nothing to condition on, so one law serves all samples."""
        out = np.empty(uniforms.shape[0])
        m, rank = L.shape
        if shared:
            density = np.sum((L.T @ self.values) ** 2, axis=0)[None, :]
            return self.origin + self._solve(density, uniforms, np.zeros(uniforms.shape[0], dtype=int))
        per_sample = 8 * (rank * m + 2 * rank * self.values.shape[1])
        step = max(1, int(_CHUNK_BYTES / per_sample))
        for begin in range(0, uniforms.shape[0], step):
            rows = slice(begin, min(begin + step, uniforms.shape[0]))
            delta = np.exp(log_delta[rows] - log_delta[rows].max(axis=1, keepdims=True))
            n = delta.shape[0]
            scaled = (delta[:, None, :] * L.T[None, :, :]).reshape(n * rank, m)
            density = np.sum((scaled @ self.values).reshape(n, rank, -1) ** 2, axis=1)
            out[rows] = self.origin + self._solve(density, uniforms[rows], np.arange(n))
        return out

    def _solve(self, density: np.ndarray, uniforms: np.ndarray, law: np.ndarray) -> np.ndarray:
        """Invert the distribution functions of ``density`` (laws × nodes) at ``uniforms``, sample i following law[i]."""
        values = density.reshape(density.shape[0], -1, _NODES_PER_PANEL)
        cumulative = np.cumsum((values @ _WEIGHTS) * self.half, axis=1)
        target = uniforms * cumulative[law, -1]
        panel = np.minimum(_count_below(cumulative, target, law), self.half.shape[0] - 1)
        before = np.where(panel > 0, cumulative[law, np.maximum(panel - 1, 0)], 0.0)
        share = (target - before) / self.half[panel]  # ∫_{−1}^{s} q(s') ds' must reach this, q being the panel's polynomial
        antiderivative = legendre.legint(values[law, panel] @ _TO_LEGENDRE.T, axis=1, lbnd=-1)
        s = _increasing_root(antiderivative, values[law, panel] @ _TO_LEGENDRE.T, share)
        return np.asarray(self.start[panel] + self.half[panel] * (s + 1.0))


def _count_below(cumulative: np.ndarray, target: np.ndarray, law: np.ndarray) -> np.ndarray:
    """Per sample, how many panels end below its target."""
    if cumulative.shape[0] == 1:
        return np.searchsorted(cumulative[0], target, side="left")
    return np.sum(cumulative[law] < target[:, None], axis=1)


def _increasing_root(antiderivative: np.ndarray, derivative: np.ndarray, target: np.ndarray) -> np.ndarray:
    """s ∈ [−1, 1] with antiderivative(s) = target, by Newton's method safeguarded with bisection; rows are Legendre series."""
    low, high = np.full(target.shape, -1.0), np.full(target.shape, 1.0)
    s = np.zeros(target.shape)
    for _ in range(60):
        error = _legendre_rows(antiderivative, s) - target
        low, high = np.where(error < 0.0, s, low), np.where(error < 0.0, high, s)
        slope = _legendre_rows(derivative, s)
        with np.errstate(divide="ignore", invalid="ignore", over="ignore"):
            newton = s - error / slope
        inside = (newton > low) & (newton < high)
        step = np.where(inside, newton, 0.5 * (low + high))
        if np.all(np.abs(step - s) < 1e-14):
            return step
        s = step
    return s


def _legendre_rows(series: np.ndarray, s: np.ndarray) -> np.ndarray:
    """Σ_j series_ij P_j(s_i), one argument per row."""
    return np.einsum("ij,ij->i", series, legendre.legvander(s, series.shape[1] - 1))


def _panel_edges(density: SoSDensity, k: int) -> np.ndarray:
    """Panels [start, end], relative to the first support point, that hold all the mass of feature k and end at the kernel's kinks."""
    start, end, smooth_length = density.integrals.windows(density.support_points, k, _LOG_LEVEL)
    order = np.argsort(start)
    start, ends = start[order], np.maximum.accumulate(end[order])
    gaps = start[1:] > ends[:-1]
    x = np.unique(density.support_points[:, k] - density.support_points[0, k])
    pieces = []
    for a, b in zip(start[np.r_[True, gaps]], ends[np.r_[gaps, True]], strict=True):
        kinks = np.array([a, b]) if density.kernel.smooth else np.unique(np.r_[a, x[(x > a) & (x < b)], b])
        for p, q in itertools.pairwise(kinks):
            pieces.append(np.linspace(p, q, 1 + max(1, int(np.ceil((q - p) / (0.5 * smooth_length))))))
    return np.concatenate([np.stack([piece[:-1], piece[1:]], axis=1) for piece in pieces])
