"""The law of a density in one dimension as polynomials on panels: distribution function and quantiles to rounding, in both tails.

Panels are so short that the density is, to rounding, the polynomial through 16 Gauss–Legendre nodes. All terms are positive: nothing of
the cancellation in Σ B_ij W_ij is left, and the masses of the tails keep their relative digits.
"""

from __future__ import annotations

import itertools
from typing import TYPE_CHECKING

import numpy as np
from numpy.polynomial import legendre

from ksos._memory import row_blocks

if TYPE_CHECKING:
    from ksos.density.sos import SoSDensity

__all__ = ["LineLaw", "merged_windows"]

_NODES, _WEIGHTS = legendre.leggauss(16)
_INNER_NODES, _INNER_WEIGHTS = legendre.leggauss(8)  # exact for the panel's polynomial
_ORDER = _NODES.shape[0]
_TO_LEGENDRE = np.linalg.inv(legendre.legvander(_NODES, _ORDER - 1))
_LOG_LEVEL = -32.0  # inside all panels are equally long; outside k falls by e per panel, down to the last level
_LAST_LEVEL = -330.0  # its square is about the smallest number there is
_PANELS_PER_LENGTH = 4
_BLOCK_ELEMENTS = 1 << 18


class LineLaw:
    """The distribution of a density of one feature, in standard coordinates."""

    def __init__(self, p: SoSDensity) -> None:
        self.start, self.half = _panels(p)
        nodes = (self.start + self.half)[:, None] + self.half[:, None] * _NODES
        x = nodes.reshape(-1, 1)
        values = np.exp(p.logpdf(x) + p.measure.log_density(x)).reshape(nodes.shape)
        self.series = values @ _TO_LEGENDRE.T
        masses = np.maximum(values @ _WEIGHTS, 0.0) * self.half
        self.below = np.r_[0.0, np.cumsum(masses)]
        """The mass to the left of panel j, for all panels and behind the last one."""
        self.above = np.r_[np.cumsum(masses[::-1])[::-1], 0.0]
        """The mass to the right of the start of panel j."""
        self.total = float(self.below[-1])
        self.walls = p.measure.walls(0)

    def cdf(self, y: np.ndarray) -> np.ndarray:
        """P(x ≤ y) of the entries of ``y``."""
        return self._mass(y, lower=True)

    def sf(self, y: np.ndarray) -> np.ndarray:
        """P(x > y), with the relative digits that 1 − cdf has lost in the upper tail."""
        return self._mass(y, lower=False)

    def _mass(self, y: np.ndarray, *, lower: bool) -> np.ndarray:
        out = np.empty(y.shape[0])
        for rows in row_blocks(y.shape[0], _ORDER + 1, _BLOCK_ELEMENTS):
            j = np.clip(np.searchsorted(self.start, y[rows], side="right") - 1, 0, self.start.shape[0] - 1)
            s = np.clip((y[rows] - self.start[j]) / self.half[j] - 1.0, -1.0, 1.0)
            part = self.half[j] * _side(self.series[j], s, lower)
            whole = self.below[j + 1] - self.below[j] if lower else self.above[j] - self.above[j + 1]
            before = self.below[j] if lower else self.above[j + 1]
            out[rows] = before + np.where(s == (1.0 if lower else -1.0), whole, np.clip(part, 0.0, whole))
        return np.minimum(out / self.total, 1.0)

    def ppf(self, q: np.ndarray) -> np.ndarray:
        """The y with cdf(y) = q, entry by entry; the walls of the measure at 0 and 1."""
        out = np.empty(q.shape[0])
        lower = q <= 0.5  # 1 − q is exact above: quantiles near 1 are as good as those near 0
        for rows in row_blocks(q.shape[0], 2 * (_ORDER + 1), _BLOCK_ELEMENTS):
            for side in (True, False):
                chosen = np.flatnonzero(lower[rows] == side) + rows.start
                share = q[chosen] if side else 1.0 - q[chosen]
                out[chosen] = self._quantile(share * self.total, lower=side)
        out[q == 0.0], out[q == 1.0] = self.walls
        return np.clip(out, *self.walls)

    def _quantile(self, target: np.ndarray, *, lower: bool) -> np.ndarray:
        """Where the mass on one side reaches ``target``."""
        n = self.start.shape[0]
        if lower:
            j = np.clip(np.searchsorted(self.below, target, side="left") - 1, 0, n - 1)
            rest = target - self.below[j]
        else:
            j = np.clip(n - np.searchsorted(self.above[::-1], target, side="left"), 0, n - 1)
            rest = target - self.above[j + 1]
        s = _root(self.series[j], rest / self.half[j], lower=lower)
        return np.asarray(self.start[j] + self.half[j] * (s + 1.0))


def _side(series: np.ndarray, s: np.ndarray, lower: bool) -> np.ndarray:
    """∫_{−1}^{s} (or ∫_{s}^{1}) of the Legendre series in the rows, by nodes inside the stretch itself: never a difference."""
    half = 0.5 * (1.0 + s if lower else 1.0 - s)
    away = half[:, None] * (1.0 + _INNER_NODES)
    return np.asarray(half * (_values(series, away - 1.0 if lower else 1.0 - away) @ _INNER_WEIGHTS))


def _values(series: np.ndarray, s: np.ndarray) -> np.ndarray:
    """Σ_j series_ij P_j(s_i…), by Clenshaw's recurrence."""
    c = series.reshape(series.shape[0], *([1] * (s.ndim - 1)), series.shape[1])
    above, here = np.zeros(s.shape), np.broadcast_to(c[..., -1], s.shape)
    for j in range(series.shape[1] - 2, -1, -1):
        here, above = c[..., j] + (2.0 * j + 1.0) / (j + 1.0) * s * here - (j + 1.0) / (j + 2.0) * above, here
    return np.asarray(here)


def _root(series: np.ndarray, target: np.ndarray, *, lower: bool) -> np.ndarray:
    """s ∈ [−1, 1] where the integral from one side reaches ``target``: Newton's method, safeguarded by bisection."""
    out = np.zeros(target.shape)
    open_, low, high, s = np.arange(target.shape[0]), np.full(target.shape, -1.0), np.full(target.shape, 1.0), out.copy()
    for _ in range(60):
        reached = _side(series, s, lower)
        error = reached - target if lower else target - reached
        low, high = np.where(error < 0.0, s, low), np.where(error < 0.0, high, s)
        with np.errstate(divide="ignore", invalid="ignore", over="ignore"):
            newton = s - error / _values(series, s)
        step = np.where((newton > low) & (newton < high), newton, 0.5 * (low + high))
        out[open_] = step
        going = np.abs(step - s) >= 1e-14
        if not np.any(going):
            break
        series, target, low, high, s, open_ = (part[going] for part in (series, target, low, high, step, open_))
    return out


def merged_windows(p: SoSDensity, feature: int, log_level: float) -> tuple[np.ndarray, np.ndarray, float]:
    """Disjoint intervals of a feature, in increasing order, that hold all of the density, and a length on which it is smooth."""
    start, end, smooth = p.integrals.windows(p.support_points, feature, log_level)
    start, end = start + p.support_points[0, feature], end + p.support_points[0, feature]
    order = np.argsort(start)
    start, end = start[order], np.maximum.accumulate(end[order])
    gaps = start[1:] > end[:-1]
    return start[np.r_[True, gaps]], end[np.r_[gaps, True]], smooth


def _panels(p: SoSDensity) -> tuple[np.ndarray, np.ndarray]:
    """Starts and half lengths."""
    first, last, smooth = merged_windows(p, 0, _LOG_LEVEL)
    kinks = np.empty(0) if p.kernel.smooth else np.unique(p.support_points[:, 0])
    step = smooth / _PANELS_PER_LENGTH
    left, right = _tails(p, step)
    pieces = [left]
    for a, b in zip(first, last, strict=True):
        ends = np.r_[a, kinks[(kinks > a) & (kinks < b)], b]
        for u, v in itertools.pairwise(ends):
            pieces.append(np.linspace(u, v, 1 + max(1, int(np.ceil((v - u) / step)))))
    pieces.append(right)
    start, stop = (np.concatenate([piece[side] for piece in pieces]) for side in (slice(None, -1), slice(1, None)))
    keep = stop > start
    return start[keep], 0.5 * (stop - start)[keep]


def _tails(p: SoSDensity, step: float) -> tuple[np.ndarray, np.ndarray]:
    """The ends of the panels of both tails, in increasing order, each panel so short that k falls by a factor e at most."""
    smooth = p.kernel.smooth
    levels = np.linspace(_LOG_LEVEL, _LAST_LEVEL, 76 if smooth else 2)
    step = step if smooth else _PANELS_PER_LENGTH * step  # e^{−r}: one bandwidth is as far as any other
    ends = []
    for level in levels:
        start, end, _ = p.integrals.windows(p.support_points, 0, float(level))
        ends.append((start.min() + p.support_points[0, 0], end.max() + p.support_points[0, 0]))
    sides = []
    for side in zip(*ends, strict=True):
        pieces = [np.linspace(u, v, 1 + max(4 if smooth else 1, int(np.ceil(abs(v - u) / step)))) for u, v in itertools.pairwise(side)]
        sides.append(np.unique(np.concatenate(pieces)))
    return sides[0], sides[1]
