"""Averages E_p[g] of any function: sums over nodes, adaptive cubature, or clouds of points, each with an estimate of its error."""

from __future__ import annotations

import itertools
import math
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

import numpy as np

from ksos.density.cells import cells
from ksos.density.clouds import clouds
from ksos.density.cubature import NODES_PER_CELL, integrate
from ksos.density.estimate import Estimate
from ksos.density.moments import node_masses
from ksos.density.standard import Standard, standardize
from ksos.measures import Discrete
from ksos.observables import NumericFunction, as_observable

if TYPE_CHECKING:
    from ksos.density.sos import SoSDensity

__all__ = ["Integrand", "average", "expectation"]

Integrand = Callable[[np.ndarray, np.ndarray], np.ndarray]
"""g(y, log p(y)) at points in standard coordinates, log p being the logarithm of the density in those coordinates."""

_CUBATURE_FEATURES = 3
_CELL_LENGTHS = {1: (1.0, 4.0), 2: (1.5, 4.0), 3: (2.5, 5.0)}
_CUBATURE_EVALUATIONS, _CLOUD_POINTS = 2_000_000, 65_536


def expectation(p: SoSDensity, f: Any, *, rtol: float, max_evaluations: int | None, rng: Any) -> Estimate:
    """E_p[f]: ⟨B, ∫ f k kᵀ dρ⟩ in closed form where f has one, else by :func:`average`."""
    f = as_observable(f)
    f.check_features(p.n_features)
    if not any(isinstance(part, NumericFunction) for _, part in f.parts()):
        M = f.matrix(p.kernel, p.support_points, p.measure, p.log_unit)
        value, error = M.expectation(p.unit_factor @ p.unit_factor.T)
        return Estimate(value, error, "sum" if isinstance(p.measure, Discrete) else "closed form")
    standard = standardize(p)
    return average(standard, lambda y, _: f(standard.points(y)), rtol=rtol, max_evaluations=max_evaluations, rng=rng)


def average(standard: Standard, g: Integrand, *, rtol: float, atol: float = 1e-300, max_evaluations: int | None, rng: Any) -> Estimate:
    """E_p[g]; where p vanishes, g is not asked."""
    p, d = standard.density, standard.density.n_features
    if isinstance(p.measure, Discrete):
        mass = node_masses(p)
        seen = mass > 0.0
        nodes = p.measure.points[seen]
        return Estimate(float(mass[seen] @ g(nodes, p.logpdf(nodes))), 0.0, "sum")
    if d <= _CUBATURE_FEATURES:
        most = _CUBATURE_EVALUATIONS if max_evaluations is None else max_evaluations
        # larger cells, and at last cells with kinks inside, make the rule converge more slowly, and its error says so
        for length, split_kinks in itertools.product(_CELL_LENGTHS[d], (True, False)):
            start_stop = cells(p, length, most // NODES_PER_CELL[d], split_kinks=split_kinks)
            if start_stop is not None:
                found = integrate(_integrand(p, g), *start_stop, rtol=rtol, atol=atol, max_evaluations=most)
                return Estimate(found.value, found.error, "quadrature")
    return _over_clouds(p, g, _CLOUD_POINTS if max_evaluations is None else max_evaluations, rng)


def _integrand(p: SoSDensity, g: Integrand) -> Callable[[np.ndarray], np.ndarray]:
    """g·p·dρ/dx."""
    walls = np.array([p.measure.walls(k) for k in range(p.n_features)])

    def f(y: np.ndarray) -> np.ndarray:
        y = np.clip(y, walls[:, 0], walls[:, 1])  # the last node of a cell must not round out of the box
        log_p = p.logpdf(y)
        mass = np.exp(log_p + p.measure.log_density(y))
        seen = mass > 0.0
        out = np.zeros(y.shape[0])
        out[seen] = mass[seen] * g(y[seen], log_p[seen])
        return out

    return f


def _over_clouds(p: SoSDensity, g: Integrand, n_points: int, rng: Any) -> Estimate:
    """The mean over independent clouds of points, with its standard error."""
    found, method = clouds(p, n_points, rng)
    means = np.array([masses @ g(y, log_p) for y, log_p, masses in found])
    return Estimate(float(means.mean()), float(means.std(ddof=1)) / math.sqrt(means.shape[0]), method)
