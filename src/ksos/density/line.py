"""A density of one feature on its line: its law on panels, and what is asked of it, the panels and
their values being made once.
"""

from __future__ import annotations

import itertools
from functools import cached_property
from typing import TYPE_CHECKING

import numpy as np
from numpy.polynomial import legendre
from scipy.optimize import brentq

from ksos.density.modes import log_and_gradient
from ksos.density.standard import Standard
from ksos.integrals.regions import intervals, kinks
from ksos.quadrature import Panels, PiecewiseLaw, cut, increasing_root, node_basis

if TYPE_CHECKING:
    from ksos.density.sos import SoSDensity

__all__ = ["Line", "line_panels", "weighted_level"]

_ORDER, _PANELS_PER_LENGTH = 16, 4
# inside all panels are equally long; outside k falls by e per panel, down to the last level
_LOG_LEVEL = -32.0
_LAST_LEVEL = -330.0  # its square is about the smallest number there is
_UNSEEN = -80.0  # what lies e⁻⁸⁰ below the top has no mass
_ROUNDING, _REAL, _SMALL = 1e-15, 1e-4, 1e-10


class Line:
    """A density p of one feature by volume, a box or a normal measure, in standard coordinates.

    Beyond the body of the law, where k > e⁻³² for some support point, lies a mass of about e⁻⁶⁴:
    what is no smaller than 1e-10 is asked of the body alone, and panels of the tails, which are
    most of them, are made when something smaller is.
    """

    def __init__(self, standard: Standard, *, tails: bool = False) -> None:
        self.standard, self.p, self.tails = standard, standard.density, tails

    @cached_property
    def whole(self) -> Line:
        """The same with the tails."""
        return self if self.tails else Line(self.standard, tails=True)

    @cached_property
    def _log_p(self) -> tuple[Panels, np.ndarray]:
        """Panels, and log p at their nodes."""
        panels = line_panels(self.p, tails=self.tails)
        return panels, self.p.logpdf(panels.nodes.reshape(-1, 1)).reshape(panels.nodes.shape)

    @cached_property
    def law(self) -> PiecewiseLaw:
        """The law in standard coordinates, with tails to rounding in both of them.

        All terms are positive: nothing of the cancellation in Σ B_ij W_ij is left.
        """
        panels, log_p = self._log_p
        log_density = self.p.measure.log_density(panels.nodes.reshape(-1, 1)).reshape(log_p.shape)
        return PiecewiseLaw(panels, np.exp(log_p + log_density)[None], exact=True)

    def cumulative(self, X: np.ndarray) -> np.ndarray:
        """P(x ≤ X_i), shape (n,)."""
        found = self.law.cdf(self.standard.coordinates(X).T)[0]
        if not self.tails and np.any(small := found < _SMALL):
            found[small] = self.whole.cumulative(X[small])
        return found

    def quantiles(self, q: np.ndarray) -> np.ndarray:
        """Its inverse."""
        if not self.tails and np.any((q < _SMALL) | (q > 1.0 - _SMALL)):
            return self.whole.quantiles(q)
        return self.standard.points(self.law.ppf(q[None, :]).T)[:, 0]

    @cached_property
    def _pieces(self) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
        """Points between which p is monotone, log p and the distribution function at them."""
        grid = np.clip(_monotone_pieces(*self._log_p), *self.p.measure.boundary(0))
        return grid, self.p.logpdf(grid[:, None]), self.law.cdf(grid[None, :])[0]

    def log_level(self, mass: float) -> float:
        """log t with P(p ≥ t) = mass, by the ends of the intervals where p ≥ t, and the
        distribution function at them.

        Between its extrema p crosses a level at most once, so that no part of the region is
        overlooked.
        """
        if not self.tails and not _SMALL < mass < 1.0 - _SMALL:
            return self.whole.log_level(mass)
        p, law, (grid, log_p, at_grid) = self.p, self.law, self._pieces

        def excess(log_level: float) -> float:
            above = log_p >= log_level
            change = np.flatnonzero(above[1:] != above[:-1])
            rising = above[change + 1]
            ends = law.cdf(
                _crossings(p, grid[change], grid[change + 1], rising, log_level)[None, :]
            )[0]
            total = float(np.sum(np.where(rising, -ends, ends)))
            return (
                total
                + (at_grid[-1] if above[-1] else 0.0)
                - (at_grid[0] if above[0] else 0.0)
                - mass
            )

        top = float(log_p.max())
        low = weighted_level(log_p, np.diff(np.r_[0.0, at_grid]), mass)
        step = 0.1
        while excess(low) < 0.0 and step < 1e3:
            low, step = low - step, 2.0 * step
        return (
            float(brentq(excess, low, top + 1.0, xtol=1e-13, rtol=1e-14))
            if excess(low) > 0.0
            else low
        )


def weighted_level(log_p: np.ndarray, masses: np.ndarray, mass: float) -> float:
    """The largest log t whose points with log p ≥ log t hold at least this share of the ``masses``."""
    order = np.argsort(-log_p, kind="stable")
    cumulated = np.cumsum(masses[order])
    at = int(np.searchsorted(cumulated, mass * cumulated[-1] * (1.0 - 1e-14), side="left"))
    return float(log_p[order[min(at, order.shape[0] - 1)]])


def line_panels(p: SoSDensity, *, tails: bool = True) -> Panels:
    """Panels so short that a density of one feature, in standard coordinates, is the polynomial
    through 16 nodes, to rounding.
    """
    source = [(p.integrals, p.support_points)]
    low, high, smooth = intervals(source, 0, _LOG_LEVEL, origin=0.0)
    step = smooth / _PANELS_PER_LENGTH
    start, stop = cut(low, high, step, kinks(source, 0, origin=0.0))
    if tails:
        left, right = _tails(p, step)
        start, stop = (
            np.concatenate([left[:-1], start, right[:-1]]),
            np.concatenate([left[1:], stop, right[1:]]),
        )
    return Panels(start[stop > start], stop[stop > start], _ORDER)


def _tails(p: SoSDensity, step: float) -> tuple[np.ndarray, np.ndarray]:
    """The ends of the panels of both tails, in increasing order, each panel so short that k falls
    by a factor e at most.
    """
    smooth = p.kernel.smooth
    levels = np.linspace(_LOG_LEVEL, _LAST_LEVEL, 76 if smooth else 2)
    # e^{−r}: one bandwidth is as far as any other
    step = step if smooth else _PANELS_PER_LENGTH * step
    ends = [p.integrals.windows(p.support_points, 0, float(level)) for level in levels]
    sides = []
    for side in ([low.min() for low, _, _ in ends], [high.max() for _, high, _ in ends]):
        side = [end + p.support_points[0, 0] for end in side]
        pieces = [
            np.linspace(u, v, 1 + max(4 if smooth else 1, int(np.ceil(abs(v - u) / step))))
            for u, v in itertools.pairwise(side)
        ]
        sides.append(np.unique(np.concatenate(pieces)))
    return sides[0], sides[1]


def _monotone_pieces(panels: Panels, log_p: np.ndarray) -> np.ndarray:
    """The ends of panels and the extrema of p between them, in increasing order; ``log_p`` at the
    nodes.

    On a panel p is the polynomial through 16 nodes to rounding: its extrema are the real roots of
    the derivative [Trefethen2013].
    """
    middle, highest = panels.start + panels.half, log_p.max(axis=1)
    pieces = [panels.start, panels.start + 2.0 * panels.half]
    if not np.any(seen := highest > highest.max() + _UNSEEN):
        return np.unique(np.concatenate(pieces))
    with np.errstate(under="ignore"):
        values = np.exp(log_p[seen] - highest[seen, None])
    slopes = legendre.legder(node_basis(panels.order).to_series @ values.T)
    for at, half, slope in zip(middle[seen], panels.half[seen], slopes.T, strict=True):
        roots = legendre.legroots(legendre.legtrim(slope, _ROUNDING * np.abs(slope).max()))
        real = roots.real[(np.abs(roots.imag) < _REAL) & (np.abs(roots.real) < 1.0)]
        pieces.append(at + half * real)
    return np.unique(np.concatenate(pieces))


def _crossings(
    p: SoSDensity, low: np.ndarray, high: np.ndarray, rising: np.ndarray, log_level: float
) -> np.ndarray:
    """Where log p = log_level between ``low`` and ``high``, entry by entry."""
    sign = np.where(rising, 1.0, -1.0)

    def excess(i: np.ndarray, y: np.ndarray) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
        log_p, gradient = log_and_gradient(p, y[:, None])
        return sign[i] * (log_p - log_level), sign[i] * gradient[:, 0], np.zeros(i.shape)

    return increasing_root(excess, low, high, 0.5 * (low + high), step=1e-13 * (1.0 + np.abs(low)))
