"""Highest-density regions {p ≥ t}: the level t at which they hold a given mass."""

from __future__ import annotations

from typing import Any

import numpy as np

from ksos.density.estimate import Estimate, coarsest
from ksos.density.questions.expectation import affordable, mean_of, term_clouds
from ksos.density.questions.line import line
from ksos.density.terms import Terms
from ksos.quadrature import weighted_level

_CLOUD_POINTS = 65_536  # points of clouds: errors of about 1e-4 of a mass
_LEAST_POINTS = 2048  # of a term: eight clouds of 256 points each


def highest_density_level(p: Terms, mass: float, rng: Any) -> Estimate:
    """t with P(p(x) ≥ t) = mass; on atoms the largest t whose region holds at least that much."""
    if (atoms := p.measure.atoms) is not None:
        found = Estimate(weighted_level(p.logpdf(atoms.points), p.node_masses, mass), 0.0, "sum")
    elif p.n_features == 1:
        found = Estimate(line(p).log_level(mass), 0.0, "quadrature")
    else:
        found = _on_clouds(p, mass, np.random.default_rng(rng))
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


def _smooth_level(log_p: np.ndarray, masses: np.ndarray, mass: float) -> float:
    """The level between those of neighboring points, each of which stands for the half of its mass
    above and the half below.
    """
    order = np.argsort(-log_p, kind="stable")
    cumulated = np.cumsum(masses[order]) - 0.5 * masses[order]
    return float(np.interp(mass * masses.sum(), cumulated, log_p[order]))
