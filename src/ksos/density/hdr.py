"""Highest-density regions {p ≥ t}: the level t at which they hold a given mass."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING, Any

import numpy as np

from ksos.density.expectation import Estimate, affordable, clouds
from ksos.density.modes import log_and_gradient
from ksos.density.moments import node_masses
from ksos.density.standard import standardize
from ksos.integrals.regions import cells
from ksos.quadrature import legendre, tensor_grid, weighted_level

if TYPE_CHECKING:
    from ksos.density.sos import SoSDensity

__all__ = ["highest_density_level"]

_ROUNDS, _PARTS, _UNREFINED = 6, 4, 0.1
_GRID_FEATURES, _CLOUD_POINTS = 3, 65_536
_SAMPLES, _SAMPLE_GROUPS = 1 << 15, 16


def highest_density_level(
    p: SoSDensity, mass: float, rng: Any, *, most_nodes: int = 1 << 18
) -> Estimate:
    """t with P(p(x) ≥ t) = mass; of a discrete law the largest t whose region holds at least that
    much.
    """
    standard = standardize(p)
    density = standard.density
    if (atoms := density.measure.atoms) is not None:
        log_p = density.logpdf(atoms.points)
        log_level, spread, method = weighted_level(log_p, node_masses(density), mass), 0.0, "sum"
    elif density.n_features == 1:
        log_level, spread, method = p.line[1].log_level(mass), 0.0, "quadrature"
    else:
        log_level, spread, method = _by_points(density, mass, rng, most_nodes)
    with np.errstate(over="ignore", under="ignore"):
        level = float(np.exp(log_level - standard.log_volume))
    return Estimate(level, level * spread, method)


def _by_points(p: SoSDensity, mass: float, rng: Any, most_nodes: int) -> tuple[float, float, str]:
    """(log t, its error, method): a quantile of p over the midpoints of cells, or over clouds of
    points.
    """
    if (
        p.n_features == _GRID_FEATURES
        and affordable(p, _ROUNDS * most_nodes) < _ROUNDS * most_nodes
    ):
        # exact samples are more accurate than the grid that there is time for
        samples = np.array_split(p.rvs(_SAMPLES, np.random.default_rng(rng)), _SAMPLE_GROUPS)
        parts = [float(np.quantile(p.logpdf(rows), 1.0 - mass)) for rows in samples]
        return (
            float(np.mean(parts)),
            float(np.std(parts, ddof=1)) / math.sqrt(len(parts)),
            "sampling",
        )
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


def _on_cells(
    p: SoSDensity, mass: float, start: np.ndarray, stop: np.ndarray, most_nodes: int
) -> tuple[float, float]:
    """(log t, its error): cells that the boundary {p = t} may cross are cut finer, and cut again;
    the last change is the error.

    A cell is two Gauss nodes per axis with their masses: that of a cell which lies inside is exact
    to fourth order.
    """
    d, level, error = p.n_features, -np.inf, np.inf
    log_p, masses = np.empty(0), np.empty(0)
    signs = tensor_grid([0.5 * legendre(2)[0]] * d)
    for _ in range(_ROUNDS):
        middle, side = 0.5 * (start + stop), stop - start
        nodes = (middle[:, None, :] + side[:, None, :] * signs).reshape(-1, d)
        cell_log_p = p.logpdf(nodes)
        cell_masses = (
            np.exp(cell_log_p + p.measure.log_density(nodes))
            * np.repeat(np.prod(side, axis=1), 2**d)
            / 2**d
        )
        new = _smooth_level(np.r_[log_p, cell_log_p], np.r_[masses, cell_masses], mass)
        level, error = new, abs(new - level)
        at_middle, gradient = log_and_gradient(p, middle)
        crossed = (
            np.abs(at_middle - level)
            <= 0.5 * np.sum(np.abs(gradient) * side, axis=1) + 2.0 * np.max(side, axis=1) ** 2
        )
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
    """The level between those of neighbouring points, each of which stands for the half of its mass
    above and the half below.
    """
    order = np.argsort(-log_p, kind="stable")
    cumulated = np.cumsum(masses[order]) - 0.5 * masses[order]
    return float(np.interp(mass * masses.sum(), cumulated, log_p[order]))
