"""Highest-density regions {p ≥ t}: the level t at which they hold a given mass."""

from __future__ import annotations

from typing import Any

import numpy as np

from ksos.density.estimate import Estimate, coarsest
from ksos.density.questions.expectation import affordable, mean_of, term_clouds
from ksos.density.questions.line import line
from ksos.density.square import Square
from ksos.density.standard import standardize
from ksos.density.terms import Terms
from ksos.integrals.regions import cells
from ksos.quadrature import legendre, tensor_grid, weighted_level

_ROUNDS = 6  # rounds of cutting cells: four digits of the side of a cell at the boundary
_PARTS = 4  # parts per axis of a cell that is cut, at most: more would leave the next round nothing
_MOST_NODES = 1 << 18  # nodes of a grid, whose levels are sorted: 2 MB
_UNREFINED = 0.1  # the error of a level that was not refined, as far as one knows
_KERNEL_VALUES = 2.5e8  # kernel values that a few seconds allow
_GRID_FEATURES = 3  # beyond, cells are too many and clouds of points take their place
_CLOUD_POINTS = 65_536  # points of clouds: errors of about 1e-4 of a mass
_LEAST_POINTS = 2048  # of a term: eight clouds of 256 points each


def highest_density_level(p: Terms, mass: float, rng: Any) -> Estimate:
    """t with P(p(x) ≥ t) = mass; on atoms the largest t whose region holds at least that much."""
    if (atoms := p.measure.atoms) is not None:
        found = Estimate(weighted_level(p.logpdf(atoms.points), p.node_masses, mass), 0.0, "sum")
    elif p.n_features == 1:
        found = Estimate(line(p).log_level(mass), 0.0, "quadrature")
    else:
        on_grid = _on_grid(p.square, mass)
        found = _on_clouds(p, mass, np.random.default_rng(rng)) if on_grid is None else on_grid
    with np.errstate(over="ignore", under="ignore"):
        level = float(np.exp(found))
    return Estimate(level, level * found.error, found.method)


def _on_clouds(p: Terms, mass: float, rng: np.random.Generator) -> Estimate:
    """log t, over clouds of points of all terms."""
    cost = sum(term.value_cost for _, term in p.parts)
    roots = np.sqrt([weight for weight, _ in p.parts])
    most = min(_CLOUD_POINTS, affordable(cost, p.n_features))
    counts = np.maximum(_LEAST_POINTS, (roots / roots.sum() * most).astype(int))
    found = [term_clouds(term, int(n), rng) for (_, term), n in zip(p.parts, counts, strict=True)]
    levels = []
    for clouds in zip(*(clouds for clouds, _ in found), strict=True):
        X, log_p, _ = (np.concatenate(column) for column in zip(*clouds, strict=True))
        masses = [w * cloud[2] for (w, _), cloud in zip(p.parts, clouds, strict=True)]
        log_p = p.relative(X, log_p if len(p.parts) == 1 else p.log_by_volume(X))
        levels.append(_smooth_level(log_p, np.concatenate(masses), mass))
    return mean_of(levels, coarsest(method for _, method in found))


def _on_grid(p: Square | None, mass: float) -> Estimate | None:
    """log t of a square in few features: a quantile of p over the midpoints of cells."""
    if p is None or p.n_features > _GRID_FEATURES:
        return None
    standard, d = standardize(p), p.n_features
    square, length, most = standard.square, 0.5, _MOST_NODES >> d
    source = square.integrals, square.support_points
    long = source[1].shape[0] * _ROUNDS * _MOST_NODES > _KERNEL_VALUES
    if d == _GRID_FEATURES and long:
        return None  # clouds are more accurate than the grid that there is time for
    found = cells(*source, length, most, split_kinks=False)
    if found is not None:  # with a side of the cells that makes about as many as allowed
        length *= (found[0].shape[0] / (0.4 * most)) ** (1.0 / d)
        found = cells(*source, length, most, split_kinks=False)
    if found is None:
        return None
    level, error = _on_cells(square, mass, *found)
    return Estimate(level - standard.log_volume, error, "quadrature")


def _on_cells(p: Square, mass: float, start: np.ndarray, stop: np.ndarray) -> tuple[float, float]:
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
        volumes = np.repeat(np.prod(side, axis=1), 2**d) / 2**d
        cell_masses = np.exp(cell_log_p + p.measure.log_density(nodes)) * volumes
        new = _smooth_level(np.r_[log_p, cell_log_p], np.r_[masses, cell_masses], mass)
        level, error = new, abs(new - level)
        at_middle, gradient = p.log_and_gradient(middle)
        reach = 0.5 * np.sum(np.abs(gradient) * side, axis=1) + 2.0 * np.max(side, axis=1) ** 2
        crossed = np.abs(at_middle - level) <= reach
        parts = int((_MOST_NODES / max(1, 2**d * int(crossed.sum()))) ** (1.0 / d))
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
    """The level between those of neighboring points, each of which stands for the half of its mass
    above and the half below.
    """
    order = np.argsort(-log_p, kind="stable")
    cumulated = np.cumsum(masses[order]) - 0.5 * masses[order]
    return float(np.interp(mass * masses.sum(), cumulated, log_p[order]))
