"""Weighted points that stand for a density in many features: low-discrepancy points where importance weights allow, else samples."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np

from ksos.observables.importance import importance_rules

if TYPE_CHECKING:
    from ksos.density.sos import SoSDensity

__all__ = ["Cloud", "clouds"]

_GROUPS = 8
_LEAST_EFFICIENCY = 0.01

Cloud = tuple[np.ndarray, np.ndarray, np.ndarray]
"""(points, log p at them, masses that sum to one)."""


def clouds(p: SoSDensity, n_points: int, rng: Any) -> tuple[list[Cloud], str]:
    """Independent clouds of about ``n_points`` together, whose spread tells the error of a mean, and the word for how they were made.

    Scrambled Sobol' points of the mixture of the laws ∝ k(x, x̃_i)²dρ carry the weights p/mixture, which are bounded. Where the columns of
    the factor cancel so much that hardly any point counts, exact samples take their place.
    """
    generator = np.random.default_rng(rng)
    seed = int(generator.integers(2**32))
    found = []
    efficiency = 0.0
    for y, log_weights in importance_rules(p.integrals, p.support_points, n_points, seed):
        log_p = p.logpdf(y)
        log_mass = log_p + log_weights
        top = float(log_mass.max())
        if not np.isfinite(top):
            efficiency = 0.0
            break
        mass = np.exp(log_mass - top)
        efficiency += float(mass.sum()) ** 2 / float(np.sum(mass**2)) / (mass.shape[0] * _GROUPS)
        seen = mass > 0.0
        found.append((y[seen], log_p[seen], mass[seen] / mass.sum()))
    if efficiency >= _LEAST_EFFICIENCY:
        return found, "quasi-Monte Carlo"
    samples = p.rvs(n_points, generator)
    groups = np.array_split(samples, _GROUPS)
    return [(y, p.logpdf(y), np.full(y.shape[0], 1.0 / y.shape[0])) for y in groups], "sampling"
