"""The laws of one feature when the others are known, for many rows at once: moments, distribution function, quantiles.

Given the others, p(y | x) ∝ ‖Fᵀ(δ(x) ∘ k(y))‖² with δ_i = k(x, x̃_i): a smooth function of y between the kernel's kinks, and never
negative. It is evaluated at Gauss–Legendre nodes on panels that hold all the mass; integrals are sums over nodes, and a quantile is a
root of the antiderivative of one panel's polynomial.
"""

from __future__ import annotations

import itertools
from collections.abc import Iterator
from typing import TYPE_CHECKING

import numpy as np
from numpy.polynomial import legendre

from ksos.measures import Discrete

if TYPE_CHECKING:
    from ksos.density.sos import SoSDensity

__all__ = ["ConditionalLine"]

_ORDER = 16
_NODES, _WEIGHTS = legendre.leggauss(_ORDER)
_PANEL = 1.0  # in units of the length on which the kernel is smooth: there a polynomial through 16 nodes is right to 1e-12
_TO_SERIES = np.linalg.inv(legendre.legvander(_NODES, _ORDER - 1))
_LOG_LEVEL = -32.0  # where kernel values are negligible; squared, and with room for large signed weights
_BLOCK = 1 << 22  # numbers held at a time
_ROOT_STEPS = 80


class ConditionalLine:
    """p(x_k | the other features) of a joint density with a separable kernel, k = ``feature``.

    Every method takes rows ``X`` (n, d − 1) that hold the other features, in their order.

    >>> from ksos.density.sos import SoSDensity
    >>> from ksos.kernels import Gaussian
    >>> p = SoSDensity(Gaussian(2.0), [[0.0, 0.0], [3.0, 3.0]], [[1.0], [1.0]], normalize=True)  # one blob, or two, on the diagonal
    >>> mean, deviation = ConditionalLine(p, 1).moments(np.array([[0.0], [1.5], [3.0]]))
    >>> mean.round(3), deviation.round(3)
    (array([0.126, 1.5  , 2.874]), array([1.104, 1.643, 1.104]))
    """

    def __init__(self, density: SoSDensity, feature: int) -> None:
        if isinstance(density.measure, Discrete):
            raise ValueError(f"the conditional laws of a density on {density.measure!r} are not continuous; use p.conditional instead")
        given = [j for j in range(density.n_features) if j != feature]
        self._given_kernel, self._given_points = density.kernel.restrict(given), density.support_points[:, given]
        y = density.support_points[:, feature]
        middle = int(np.argpartition(y, y.shape[0] // 2)[y.shape[0] // 2])
        self.origin = float(y[middle])  # positions are relative to it: exact for data far from zero
        edges = _panels(density, feature, middle)
        self._start, self._half = edges[:, 0], 0.5 * (edges[:, 1] - edges[:, 0])
        self._nodes = ((self._start + self._half)[:, None] + self._half[:, None] * _NODES).ravel()
        self._weights = (self._half[:, None] * _WEIGHTS).ravel()
        self._walls, self._log_unit = density.measure.walls(feature), density.log_unit
        log_k = density.kernel.restrict([feature]).log((y - self.origin)[:, None], self._nodes[:, None])
        log_k += 0.5 * density.measure.restrict([feature]).log_density(self._nodes[:, None] + self.origin)
        peaks = log_k.max(axis=1)
        lengths = np.sqrt(np.einsum("ij,ij->i", density.unit_factor, density.unit_factor))
        with np.errstate(divide="ignore"):
            self._log_lengths = np.log(lengths) + peaks
        self._factor, self._bumps = _split(density.unit_factor / np.where(lengths > 0.0, lengths, 1.0)[:, None])
        self._k = np.exp(log_k - np.where(np.isfinite(peaks), peaks, 0.0)[:, None])

    def moments(self, X: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        """Mean and standard deviation of the feature for every row."""
        mean, deviation = np.empty(X.shape[0]), np.empty(X.shape[0])
        for rows, values in self._laws(X):
            masses = values * self._weights
            masses /= masses.sum(axis=1, keepdims=True)
            mean[rows] = masses @ self._nodes
            spread = self._nodes[None, :] - mean[rows, None]
            deviation[rows] = np.sqrt(np.einsum("ij,ij->i", masses, spread**2))
        return self.origin + mean, deviation

    def log_mass(self, X: np.ndarray) -> np.ndarray:
        """log ∫ p(x, y) dρ(y) for every row x: what turns the joint density into the conditional one."""
        out = np.empty(X.shape[0])
        for rows, values in self._laws(X):
            out[rows] = np.log(values @ self._weights) + 2.0 * self._log_delta(X[rows])[1][:, 0]
        return out - self._log_unit

    def quantile(self, X: np.ndarray, levels: np.ndarray) -> np.ndarray:
        """y with P(feature ≤ y | row) = level, for ``levels`` in [0, 1] of shape (n, any); 0 and 1 give the ends of where the mass is."""
        out = np.empty(levels.shape)
        for rows, values in self._laws(X):
            panels, cumulative = self._cumulative(values)
            target = levels[rows] * cumulative[:, -1:]
            law = np.broadcast_to(np.arange(values.shape[0])[:, None], target.shape)
            below = [np.searchsorted(steps, wanted, side="left") for steps, wanted in zip(cumulative, target, strict=True)]
            panel = np.minimum(np.array(below).reshape(target.shape), self._half.shape[0] - 1)
            before = np.where(panel > 0, cumulative[law, np.maximum(panel - 1, 0)], 0.0)
            share = (target - before) / self._half[panel]
            s = _increasing_root((panels[law, panel] @ _TO_SERIES.T).reshape(-1, _ORDER), share.ravel()).reshape(target.shape)
            out[rows] = self._start[panel] + self._half[panel] * (s + 1.0)
        return np.asarray(np.clip(self.origin + out, *self._walls))  # rounding must not carry an answer out of its box

    def cdf(self, X: np.ndarray, y: np.ndarray) -> np.ndarray:
        """P(feature ≤ y_i | row i), shape (n,)."""
        position, out = y - self.origin, np.empty(X.shape[0])
        for rows, values in self._laws(X):
            panels, cumulative = self._cumulative(values)
            law, t = np.arange(values.shape[0]), position[rows]
            panel = np.clip(np.searchsorted(self._start, t, side="right") - 1, 0, self._half.shape[0] - 1)
            before = np.where(panel > 0, cumulative[law, np.maximum(panel - 1, 0)], 0.0)
            s = np.clip((t - self._start[panel]) / self._half[panel] - 1.0, -1.0, 1.0)
            series = legendre.legint(panels[law, panel] @ _TO_SERIES.T, axis=1, lbnd=-1)
            share = np.clip((before + self._half[panel] * _rows_at(series, s)) / cumulative[:, -1], 0.0, 1.0)
            out[rows] = np.where(t <= self._start[0], 0.0, np.where(t >= self._start[-1] + 2.0 * self._half[-1], 1.0, share))
        return out

    def _laws(self, X: np.ndarray) -> Iterator[tuple[slice, np.ndarray]]:
        """Blocks of rows with p(node, row) in a unit of each row's own, shape (rows, nodes)."""
        m, rank = self._factor.shape
        step = max(1, min(512, _BLOCK // max(self._nodes.shape[0], m)))
        together = max(1, _BLOCK // (max(step, m) * max(rank, 1)))
        squares = self._k**2 if np.any(self._bumps) else None
        for start in range(0, X.shape[0], step):
            rows = slice(start, min(start + step, X.shape[0]))
            log_delta, peak = self._log_delta(X[rows])
            delta = np.exp(log_delta - peak)
            values = np.empty((delta.shape[0], self._nodes.shape[0]))
            for first in range(0, self._nodes.shape[0], together):
                k = self._k[:, first : first + together]
                tilted = (k[:, :, None] * self._factor[:, None, :]).reshape(m, -1)
                amplitudes = (delta @ tilted).reshape(delta.shape[0], k.shape[1], rank)
                values[:, first : first + together] = np.einsum("iqa,iqa->iq", amplitudes, amplitudes)
            if squares is not None:
                values += (delta**2 * self._bumps) @ squares
            self._require_mass(values, X, rows)
            yield rows, values

    def _log_delta(self, X: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        """How much each support point counts for each row, and the largest of each row: logarithms, (n, m) and (n, 1)."""
        log_delta = self._given_kernel.log(X, self._given_points) + self._log_lengths
        peak = log_delta.max(axis=1, keepdims=True)
        return log_delta, np.where(np.isfinite(peak), peak, 0.0)

    def _require_mass(self, values: np.ndarray, X: np.ndarray, rows: slice) -> None:
        empty = np.flatnonzero(~(values.max(axis=1) > 0.0))
        if empty.size:
            row = rows.start + int(empty[0])
            raise ValueError(f"the density of the conditions vanishes at row {row}: {X[row].tolist()}; there is no conditional law there")

    def _cumulative(self, values: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        """The values by panel, and the mass up to the end of every panel."""
        panels = values.reshape(values.shape[0], -1, _ORDER)
        return panels, np.cumsum((panels @ _WEIGHTS) * self._half, axis=1)


def _split(factor: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """M, the columns that mix support points, and the summed squares of those that hold one point each: FFᵀ = MMᵀ + diag(bumps).

    A kernel density estimate is nothing but such columns, and a matrix product with all of them would be mostly zeros.
    """
    single = np.count_nonzero(factor, axis=0) <= 1
    return np.ascontiguousarray(factor[:, ~single]), np.sum(factor[:, single] ** 2, axis=1)


def _panels(density: SoSDensity, feature: int, middle: int) -> np.ndarray:
    """Panels [start, end], relative to support point ``middle``, that hold all the mass of the feature and end at the kernel's kinks."""
    order = np.r_[middle, np.delete(np.arange(density.support_points.shape[0]), middle)]
    X = density.support_points[order]
    start, end, smooth_length = density.integrals.windows(X, feature, _LOG_LEVEL)
    by_start = np.argsort(start)
    start, reached = start[by_start], np.maximum.accumulate(end[by_start])
    gaps = start[1:] > reached[:-1]
    x = np.unique(X[:, feature] - X[0, feature])
    pieces = []
    for a, b in zip(start[np.r_[True, gaps]], reached[np.r_[gaps, True]], strict=True):
        kinks = np.array([a, b]) if density.kernel.smooth else np.unique(np.r_[a, x[(x > a) & (x < b)], b])
        for p, q in itertools.pairwise(kinks):
            pieces.append(np.linspace(p, q, 1 + max(1, int(np.ceil((q - p) / (_PANEL * smooth_length))))))
    return np.concatenate([np.stack([piece[:-1], piece[1:]], axis=1) for piece in pieces])


def _increasing_root(series: np.ndarray, target: np.ndarray) -> np.ndarray:
    """s ∈ [−1, 1] with ∫_{−1}^s of the Legendre series of each row = target, by Newton's method safeguarded with bisection."""
    antiderivative = legendre.legint(series, axis=1, lbnd=-1)
    low, high = np.full(target.shape, -1.0), np.full(target.shape, 1.0)
    s = np.zeros(target.shape)
    for _ in range(_ROOT_STEPS):
        error = _rows_at(antiderivative, s) - target
        low, high = np.where(error < 0.0, s, low), np.where(error < 0.0, high, s)
        with np.errstate(all="ignore"):
            newton = s - error / _rows_at(series, s)
        step = np.where((newton > low) & (newton < high), newton, 0.5 * (low + high))
        if np.all(np.abs(step - s) < 1e-14):
            return step
        s = step
    return s


def _rows_at(series: np.ndarray, s: np.ndarray) -> np.ndarray:
    """Σ_j series_ij P_j(s_i), one argument per row."""
    return np.einsum("ij,ij->i", series, legendre.legvander(s, series.shape[1] - 1))
