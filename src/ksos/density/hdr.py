"""Highest-density regions {p ≥ t}: the level t at which they hold a given mass."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING, Any

import numpy as np
from scipy.optimize import brentq

from ksos.density.cdf import line_law
from ksos.density.expectation import Estimate, affordable, clouds
from ksos.density.modes import log_and_gradient
from ksos.density.moments import node_masses
from ksos.density.standard import standardize
from ksos.integrals.regions import cells
from ksos.quadrature import Panels, increasing_root, legendre, tensor_grid

if TYPE_CHECKING:
    from ksos.density.sos import SoSDensity

__all__ = ["highest_density_level"]

_NODES, _UNSEEN = 16, -80.0  # of a panel; what lies e⁻⁸⁰ below the top has no mass
_ROUNDING, _REAL = 1e-15, 1e-4
_ROUNDS, _PARTS, _UNREFINED = 6, 4, 0.1
_GRID_FEATURES, _CLOUD_POINTS = 3, 65_536
_SAMPLES, _SAMPLE_GROUPS = 1 << 15, 16


def highest_density_level(p: SoSDensity, mass: float, rng: Any, *, most_nodes: int = 1 << 18) -> Estimate:
    """t with P(p(x) ≥ t) = mass; of a discrete law the largest t whose region holds at least that much."""
    standard = standardize(p)
    density = standard.density
    if (atoms := density.measure.atoms) is not None:
        log_p = density.logpdf(atoms.points)
        log_level, spread, method = _weighted_level(log_p, node_masses(density), mass), 0.0, "sum"
    elif density.n_features == 1:
        log_level, spread, method = _on_a_line(density, mass), 0.0, "quadrature"
    else:
        log_level, spread, method = _by_points(density, mass, rng, most_nodes)
    with np.errstate(over="ignore", under="ignore"):
        level = float(np.exp(log_level - standard.log_volume))
    return Estimate(level, level * spread, method)


def _weighted_level(log_p: np.ndarray, masses: np.ndarray, mass: float) -> float:
    order = np.argsort(-log_p, kind="stable")
    cumulated = np.cumsum(masses[order])
    at = int(np.searchsorted(cumulated, mass * cumulated[-1] * (1.0 - 1e-14), side="left"))
    return float(log_p[order[min(at, order.shape[0] - 1)]])


def _on_a_line(p: SoSDensity, mass: float) -> float:
    """By the ends of the intervals where p ≥ t, and the distribution function at them.

    Between its extrema p crosses a level at most once, so that no part of the region is overlooked.
    """
    law = line_law(p)
    grid = np.clip(_monotone_pieces(p, law.panels), *p.measure.boundary(0))
    log_p = p.logpdf(grid[:, None])
    at_grid = law.cdf(grid[None, :])[0]

    def excess(log_level: float) -> float:
        above = log_p >= log_level
        change = np.flatnonzero(above[1:] != above[:-1])
        rising = above[change + 1]
        ends = law.cdf(_crossings(p, grid[change], grid[change + 1], rising, log_level)[None, :])[0]
        total = float(np.sum(np.where(rising, -ends, ends)))
        return total + (at_grid[-1] if above[-1] else 0.0) - (at_grid[0] if above[0] else 0.0) - mass

    top = float(log_p.max())
    low = _weighted_level(log_p, np.diff(np.r_[0.0, at_grid]), mass)
    step = 0.1
    while excess(low) < 0.0 and step < 1e3:
        low, step = low - step, 2.0 * step
    return float(brentq(excess, low, top + 1.0, xtol=1e-13, rtol=1e-14)) if excess(low) > 0.0 else low


def _monotone_pieces(p: SoSDensity, panels: Panels) -> np.ndarray:
    """The ends of panels and the extrema of p between them, in increasing order.

    On a panel p is the polynomial through 16 nodes to rounding: its extrema are the real roots of the derivative [Trefethen2013].
    """
    x, middle = np.polynomial.chebyshev.chebpts1(_NODES), panels.start + panels.half
    log_p = p.logpdf((middle[:, None] + panels.half[:, None] * x).reshape(-1, 1)).reshape(-1, _NODES)
    highest = log_p.max(axis=1)
    pieces = [panels.start, panels.start + 2.0 * panels.half]
    if not np.any(seen := highest > highest.max() + _UNSEEN):
        return np.unique(np.concatenate(pieces))
    with np.errstate(under="ignore"):
        values = np.exp(log_p[seen] - highest[seen, None])
    series = np.linalg.solve(np.polynomial.chebyshev.chebvander(x, _NODES - 1), values.T)
    slopes = np.polynomial.chebyshev.chebder(series)
    for at, half, slope in zip(middle[seen], panels.half[seen], slopes.T, strict=True):
        roots = np.polynomial.chebyshev.chebroots(np.polynomial.chebyshev.chebtrim(slope, _ROUNDING * np.abs(slope).max()))
        real = roots.real[(np.abs(roots.imag) < _REAL) & (np.abs(roots.real) < 1.0)]
        pieces.append(at + half * real)
    return np.unique(np.concatenate(pieces))


def _crossings(p: SoSDensity, low: np.ndarray, high: np.ndarray, rising: np.ndarray, log_level: float) -> np.ndarray:
    """Where log p = log_level between ``low`` and ``high``, entry by entry."""
    sign = np.where(rising, 1.0, -1.0)

    def excess(i: np.ndarray, y: np.ndarray) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
        log_p, gradient = log_and_gradient(p, y[:, None])
        return sign[i] * (log_p - log_level), sign[i] * gradient[:, 0], np.zeros(i.shape)

    return increasing_root(excess, low, high, 0.5 * (low + high), step=1e-13 * (1.0 + np.abs(low)))


def _by_points(p: SoSDensity, mass: float, rng: Any, most_nodes: int) -> tuple[float, float, str]:
    """(log t, its error, method): a quantile of p over the midpoints of cells, or over clouds of points."""
    if p.n_features == _GRID_FEATURES and affordable(p, _ROUNDS * most_nodes) < _ROUNDS * most_nodes:
        # exact samples are more accurate than the grid that there is time for
        samples = np.array_split(p.rvs(_SAMPLES, np.random.default_rng(rng)), _SAMPLE_GROUPS)
        parts = [float(np.quantile(p.logpdf(rows), 1.0 - mass)) for rows in samples]
        return float(np.mean(parts)), float(np.std(parts, ddof=1)) / math.sqrt(len(parts)), "sampling"
    if p.n_features <= _GRID_FEATURES:
        length, most, found = 0.5, most_nodes >> p.n_features, None
        coarse = cells(p.integrals, p.support_points, length, most, split_kinks=False)
        if coarse is not None:  # with a side of the cells that makes about as many as allowed
            length *= (coarse[0].shape[0] / (0.4 * most)) ** (1.0 / p.n_features)
            found = cells(p.integrals, p.support_points, length, most, split_kinks=False)
        if found is not None:
            return *_on_cells(p, mass, *found, most_nodes), "quadrature"
    found_clouds, method = clouds(p, _CLOUD_POINTS, rng)
    parts = [_smooth_level(log_p, masses, mass) for _, log_p, masses in found_clouds]
    return float(np.mean(parts)), float(np.std(parts, ddof=1)) / math.sqrt(len(parts)), method


def _on_cells(p: SoSDensity, mass: float, start: np.ndarray, stop: np.ndarray, most_nodes: int) -> tuple[float, float]:
    """(log t, its error): cells that the boundary {p = t} may cross are cut finer, and cut again; the last change is the error.

    A cell is two Gauss nodes per axis with their masses: that of a cell which lies inside is exact to fourth order.
    """
    d, level, error = p.n_features, -np.inf, np.inf
    log_p, masses = np.empty(0), np.empty(0)
    signs = tensor_grid([0.5 * legendre(2)[0]] * d)
    for _ in range(_ROUNDS):
        middle, side = 0.5 * (start + stop), stop - start
        nodes = (middle[:, None, :] + side[:, None, :] * signs).reshape(-1, d)
        cell_log_p = p.logpdf(nodes)
        cell_masses = np.exp(cell_log_p + p.measure.log_density(nodes)) * np.repeat(np.prod(side, axis=1), 2**d) / 2**d
        new = _smooth_level(np.r_[log_p, cell_log_p], np.r_[masses, cell_masses], mass)
        level, error = new, abs(new - level)
        at_middle, gradient = log_and_gradient(p, middle)
        crossed = np.abs(at_middle - level) <= 0.5 * np.sum(np.abs(gradient) * side, axis=1) + 2.0 * np.max(side, axis=1) ** 2
        parts = int((most_nodes / max(1, 2**d * int(crossed.sum()))) ** (1.0 / d))
        if parts < 2:
            break
        done = np.repeat(~crossed, 2**d)
        log_p, masses = np.r_[log_p, cell_log_p[done]], np.r_[masses, cell_masses[done]]
        start, stop = _cut(start[crossed], side[crossed], min(parts, _PARTS))
    return level, error if np.isfinite(error) else _UNREFINED


def _cut(start: np.ndarray, side: np.ndarray, parts: int) -> tuple[np.ndarray, np.ndarray]:
    """Every cell cut into ``parts`` along each axis."""
    d = start.shape[1]
    places = tensor_grid([np.arange(parts)] * d)
    fine = side / parts
    corner = (start[:, None, :] + places * fine[:, None, :]).reshape(-1, d)
    return corner, corner + np.repeat(fine, places.shape[0], axis=0)


def _smooth_level(log_p: np.ndarray, masses: np.ndarray, mass: float) -> float:
    """The level between those of neighbouring points, each of which stands for the half of its mass above and the half below."""
    order = np.argsort(-log_p, kind="stable")
    cumulated = np.cumsum(masses[order]) - 0.5 * masses[order]
    return float(np.interp(mass * masses.sum(), cumulated, log_p[order]))
