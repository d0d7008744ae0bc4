"""One feature's axis cut into panels on which Gauss–Legendre nodes are exact, and the inversion of a distribution function on a panel."""

from __future__ import annotations

import itertools
from typing import TYPE_CHECKING

import numpy as np
from numpy.polynomial import legendre

from ksos._memory import row_blocks
from ksos.integrals import closed_form

if TYPE_CHECKING:
    from ksos.density.sos import SoSDensity

__all__ = ["NODES_PER_PANEL", "Panels", "invert_on_panel", "panel_edges"]

NODES_PER_PANEL = 12
_NODES, _WEIGHTS = legendre.leggauss(NODES_PER_PANEL)
_TO_SERIES = np.linalg.inv(legendre.legvander(_NODES, NODES_PER_PANEL - 1))  # values at the nodes → coefficients of Legendre polynomials
_INTEGRAL = legendre.legint(np.eye(NODES_PER_PANEL), lbnd=-1, axis=0)  # coefficients of q → coefficients of ∫_{−1}^s q
_UP_TO_NODES = legendre.legvander(_NODES, NODES_PER_PANEL) @ _INTEGRAL @ _TO_SERIES  # values → ∫_{−1}^{node} q
_BRACKETS = np.r_[-1.0, _NODES, 1.0]
_LOG_LEVEL = -32.0  # where kernel values are negligible; squared, and with room for large signed weights
_PANEL_LENGTH = 0.5  # in units of the kernel's width
_STEP = 1e-13
_SAMPLES_AT_ONCE = 1 << 13  # their polynomials stay in the cache
_ROUNDING = 1e-16


class Panels:
    """Panels that cover feature k, with k̂(t, x̃_i) = k(t, x̃_i)·√ρ(t)/‖k(·, x̃_i)‖ at their nodes; lengths are in units of the kernel's width.

    Each k̂(·, x̃_i) has norm one in L²(dt), whatever the kernel's width, the measure and the point.
    """

    def __init__(self, density: SoSDensity, k: int) -> None:
        x = density.support_points[:, [k]]
        self.origin = float(x[0, 0])  # positions are kept relative to it: exact for data far from zero
        edges, self.unit = panel_edges(density, k)
        self.start, self.half = edges[:, 0], 0.5 * (edges[:, 1] - edges[:, 0])
        self.scaled_half = self.half / self.unit
        self.walls = density.measure.walls(k)
        self.kernel, self.centres = density.kernel.restrict([k]), x
        measure = density.measure.restrict([k])
        self.log_norm = 0.5 * closed_form(self.kernel, measure, 1).log_diagonal(x)
        nodes = ((self.start + self.half)[:, None] + self.half[:, None] * _NODES).reshape(-1, 1)
        log_values = self.kernel.log(nodes, x - self.origin) - self.log_norm + 0.5 * np.log(self.unit)
        log_values += 0.5 * measure.log_density(nodes + self.origin)[:, None]
        self.values = np.exp(log_values).reshape(-1, NODES_PER_PANEL, x.shape[0])
        self.root_weights = np.sqrt(self.scaled_half[:, None] * _WEIGHTS)

    def __len__(self) -> int:
        return int(self.start.shape[0])

    def rows(self, panel: int, L: np.ndarray) -> np.ndarray:
        """Rows whose squared products with δ̂ sum to the density at each of the panel's nodes: shape (nodes × rank, m), nodes first."""
        return np.asarray((self.values[panel][:, None, :] * L[None, :, :]).reshape(-1, L.shape[1]))

    def mass_rows(self, panel: int, L: np.ndarray) -> np.ndarray:
        """Rows whose squared products with δ̂ sum to the mass on the panel."""
        return self.rows(panel, L) * np.repeat(self.root_weights[panel], L.shape[0])[:, None]

    @property
    def gram_rows(self) -> np.ndarray:
        """R with RᵀR = ∫k̂k̂ᵀ dt, the Gram matrix of the feature with ones on its diagonal."""
        return np.asarray((self.root_weights[:, :, None] * self.values).reshape(-1, self.values.shape[2]))

    def masses(self, values: np.ndarray) -> np.ndarray:
        """The mass on every panel from the density at all nodes, shape (…, panels, nodes)."""
        return (values @ _WEIGHTS) * self.scaled_half

    def positions(self, panel: np.ndarray, values: np.ndarray, target: np.ndarray, total: np.ndarray) -> np.ndarray:
        """x with mass ``target`` between the start of its ``panel`` and itself; values of the density at that panel's nodes, (n, nodes)."""
        out = np.empty(target.shape)
        for rows in row_blocks(target.shape[0], 1, _SAMPLES_AT_ONCE):
            half, here = self.scaled_half[panel[rows]], panel[rows]
            s = invert_on_panel(values[rows], target[rows] / half, total[rows] / half)
            out[rows] = self.origin + (self.start[here] + self.half[here] * (s + 1.0))
        return np.clip(out, *self.walls)  # rounding must not carry a sample out of its box

    def log_factor(self, x: np.ndarray) -> np.ndarray:
        """log k̂(x, x̃_i) up to a constant per row: what the feature, once drawn, contributes to the laws of the later ones."""
        return np.asarray(self.kernel.log(x[:, None], self.centres) - self.log_norm)


def invert_on_panel(values: np.ndarray, share: np.ndarray, scale: np.ndarray) -> np.ndarray:
    """s ∈ [−1, 1] with ∫_{−1}^s q = share, by Newton's method between brackets; the polynomial q has ``values`` (n, nodes) at the nodes.

    The error of the integral that can still be seen is measured against ``scale``, the whole mass.
    """
    values = np.ascontiguousarray(values.T)
    series = _TO_SERIES @ values
    integral = _INTEGRAL @ series
    reached = np.concatenate([np.zeros((1, share.shape[0])), _UP_TO_NODES @ values, (_WEIGHTS @ values)[None]])
    below = np.clip(np.sum(reached[1:-1] < share, axis=0), 0, NODES_PER_PANEL)
    low, high = _BRACKETS[below], _BRACKETS[below + 1]
    left, right = (np.take_along_axis(reached, index[None], axis=0)[0] for index in (below, below + 1))
    rise = right - left
    part = np.divide(share - left, rise, out=np.full(share.shape, 0.5), where=rise > 0.0)
    s = low + (high - low) * np.clip(part, 0.0, 1.0)
    open_ = np.arange(share.shape[0])
    for _ in range(60):
        t = s[open_]
        error, slope = _series_pair(integral[:, open_], series[:, open_], t)
        error -= share[open_]
        low[open_], high[open_] = np.where(error < 0.0, t, low[open_]), np.where(error < 0.0, high[open_], t)
        newton = t - np.divide(error, slope, out=np.full(t.shape, 2.0), where=slope > np.abs(error) * 1e-3)
        inside = (newton >= low[open_]) & (newton <= high[open_])
        better = np.where(inside, newton, 0.5 * (low[open_] + high[open_]))
        better = np.where(np.abs(error) <= _ROUNDING * scale[open_], t, better)
        s[open_] = better
        open_ = open_[np.abs(better - t) >= _STEP]
        if open_.size == 0:
            break
    return s


def _series_pair(first: np.ndarray, second: np.ndarray, s: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Σ_j first_j P_j(s) and Σ_j second_j P_j(s), column by column; the first has one term more."""
    previous, current = np.ones_like(s), s
    one, two = first[0] + first[1] * s, second[0] + second[1] * s
    for j in range(1, first.shape[0] - 1):
        previous, current = current, ((2 * j + 1) / (j + 1)) * s * current - (j / (j + 1)) * previous
        one += first[j + 1] * current
        if j + 1 < second.shape[0]:
            two += second[j + 1] * current
    return one, two


def panel_edges(density: SoSDensity, k: int) -> tuple[np.ndarray, float]:
    """Panels [start, end], relative to the first support point, that hold all the mass of feature k and end at kinks; and the width."""
    start, end, width = density.integrals.windows(density.support_points, k, _LOG_LEVEL)
    order = np.argsort(start)
    start, ends = start[order], np.maximum.accumulate(end[order])
    gaps = start[1:] > ends[:-1]
    x = np.unique(density.support_points[:, k] - density.support_points[0, k])
    pieces = []
    for a, b in zip(start[np.r_[True, gaps]], ends[np.r_[gaps, True]], strict=True):
        kinks = np.array([a, b]) if density.kernel.smooth else np.unique(np.r_[a, x[(x > a) & (x < b)], b])
        for p, q in itertools.pairwise(kinks):
            pieces.append(np.linspace(p, q, 1 + max(1, int(np.ceil((q - p) / (_PANEL_LENGTH * width))))))
    return np.concatenate([np.stack([piece[:-1], piece[1:]], axis=1) for piece in pieces]), float(width)
