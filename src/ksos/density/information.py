"""Entropy and Kullback–Leibler divergence."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING, Any

import numpy as np

from ksos.density.averages import average
from ksos.density.estimate import Estimate
from ksos.density.standard import standardize
from ksos.measures import Discrete

if TYPE_CHECKING:
    from ksos.density.sos import SoSDensity

__all__ = ["entropy", "kl_divergence"]

_ROUNDING = 1e-13  # of logarithms: a divergence of 0 has no relative error


def entropy(p: SoSDensity, *, rtol: float, max_evaluations: int | None, rng: Any) -> Estimate:
    """−∫ p log p dρ."""
    standard = standardize(p)
    found = average(standard, lambda _, log_p: -log_p, rtol=rtol, atol=_ROUNDING, max_evaluations=max_evaluations, rng=rng)
    return found.shifted(standard.log_volume)


def kl_divergence(p: SoSDensity, q: SoSDensity, *, rtol: float, max_evaluations: int | None, rng: Any) -> Estimate:
    """∫ log(dP/dQ) dP ≥ 0; infinite where P has mass and Q cannot have any."""
    if p.n_features != q.n_features:
        raise ValueError(f"the other density has {q.n_features} features, but this one has {p.n_features}")
    same = p.measure == q.measure
    if not same and (isinstance(p.measure, Discrete) or isinstance(q.measure, Discrete)):
        raise ValueError(
            f"a density on {p.measure!r} and one on {q.measure!r} have no common reference measure; give both the same Discrete measure"
        )
    walls = ([measure.walls(k) for k in range(p.n_features)] for measure in (p.measure, q.measure))
    if any(inner[0] < outer[0] or inner[1] > outer[1] for inner, outer in zip(*walls, strict=True)):
        return Estimate(math.inf)
    standard = standardize(p)
    if standard.plain:
        own, other = standard.density.measure, standard.same_coordinates(q)
    else:  # log q far away depends on the true distance, which the folded coordinates have shortened
        own, other = p.measure, q

    def log_ratio(y: np.ndarray, log_p: np.ndarray) -> np.ndarray:
        if not standard.plain:
            y, log_p = standard.points(y), log_p - standard.log_volume
        out = log_p - other.logpdf(y)
        return out if same else out + own.log_density(y) - other.measure.log_density(y)

    found = average(standard, log_ratio, rtol=rtol, atol=_ROUNDING, max_evaluations=max_evaluations, rng=rng)
    return Estimate(max(float(found), 0.0), found.error, found.method)
