"""Expectations E_p[g] with an estimate of their error: closed forms, sums over nodes, adaptive
cubature, or clouds of points.
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Callable, Iterable
from typing import TYPE_CHECKING, Any, Self

import numpy as np

from ksos.density.moments import node_masses
from ksos.density.standard import Standard, standardize
from ksos.ground.progress import tell
from ksos.integrals.regions import cells, importance_rules
from ksos.observables import NumericFunction, as_observable
from ksos.quadrature import NODES_PER_CELL, integrate

if TYPE_CHECKING:
    from ksos.density.sos import SoSDensity

__all__ = [
    "Cloud",
    "Estimate",
    "Integrand",
    "Masses",
    "affordable",
    "average",
    "clouds",
    "coarsest",
    "expectation",
]

Integrand = Callable[[np.ndarray, np.ndarray], np.ndarray]
"""g(y, log p(y)) at points in standard coordinates, log p being the logarithm of the density in
those coordinates.
"""
Cloud = tuple[np.ndarray, np.ndarray, np.ndarray]
"""(points, log p at them, masses that sum to one)."""

_CUBATURE_FEATURES, _GROUPS = 3, 8
_CELL_LENGTHS = {1: (1.0, 4.0), 2: (1.5, 4.0), 3: (2.5, 5.0)}
_CUBATURE_EVALUATIONS, _CLOUD_POINTS = 2_000_000, 65_536
_KERNEL_VALUES, _LEAST_EVALUATIONS, _REFINED = 2.5e8, 20_000, 4


class Estimate(float):
    """A float with an estimate of its error beside it; everything that takes a float takes it.

    Attributes
    ----------
    error : float
        Estimated absolute error: of a closed form or a sum 0, or rounding where it is more than
        1e-11, of quadrature the sum of the differences between two rules, of sampling one standard
        error.
    method : str
        "closed form", "sum", "quadrature", "sampling" or "quasi-Monte Carlo".

    >>> value = Estimate(1.5, 1e-9, "quadrature")
    >>> value
    1.5 ± 1e-09 (quadrature)
    >>> value + 1, value.error
    (2.5, 1e-09)
    """

    error: float
    method: str

    def __new__(cls, value: float, error: float = 0.0, method: str = "closed form") -> Self:
        out = super().__new__(cls, value)
        out.error, out.method = float(error), method
        return out

    def __repr__(self) -> str:
        return f"{float(self)!r} ± {self.error:.2g} ({self.method})"

    def __format__(self, specification: str) -> str:
        return format(float(self), specification)

    def __reduce__(self) -> Any:
        return type(self), (float(self), self.error, self.method)


Masses = tuple[np.ndarray, np.ndarray, str]
"""Probabilities of boxes, estimates of their errors, 0 for what is exact to rounding, and the word
for how they were found.
"""


def coarsest(methods: Iterable[str]) -> str:
    """The word of the least exact of several methods."""
    return max(
        methods, key=("closed form", "sum", "quadrature", "quasi-Monte Carlo", "sampling").index
    )


def expectation(
    p: SoSDensity, f: Any, *, rtol: float, max_evaluations: int | None, rng: Any
) -> Estimate:
    """E_p[f]: ⟨B, ∫ f k kᵀ dρ⟩ in closed form if f has one, else by :func:`average`."""
    f = as_observable(f)
    f.check_features(p.n_features)
    if not any(isinstance(part, NumericFunction) for _, part in f.parts()):
        M = f.matrix(p.kernel, p.support_points, p.measure, p.log_unit)
        value, error = M.expectation(p.unit_factor @ p.unit_factor.T)
        return Estimate(value, error, "closed form" if p.measure.atoms is None else "sum")
    standard = standardize(p)
    return average(
        standard,
        lambda y, _: f(standard.points(y)),
        rtol=rtol,
        max_evaluations=max_evaluations,
        rng=rng,
    )


def affordable(p: SoSDensity, most: int) -> int:
    """At most so many evaluations of p, or as many as a few seconds allow: a value takes a kernel
    value per support point.
    """
    return min(most, max(_LEAST_EVALUATIONS, int(_KERNEL_VALUES / p.support_points.shape[0])))


def average(
    standard: Standard,
    g: Integrand,
    *,
    rtol: float,
    atol: float = 1e-300,
    max_evaluations: int | None,
    rng: Any,
) -> Estimate:
    """E_p[g]; where p vanishes, g is not asked."""
    p, d = standard.density, standard.density.n_features
    if (atoms := p.measure.atoms) is not None:
        mass = node_masses(p)
        seen = mass > 0.0
        nodes = atoms.points[seen]
        return Estimate(float(mass[seen] @ g(nodes, p.logpdf(nodes))), 0.0, "sum")
    if d <= _CUBATURE_FEATURES:
        most = affordable(p, _CUBATURE_EVALUATIONS) if max_evaluations is None else max_evaluations
        # of many support points there must be time to refine a grid: one that is not refined knows
        # less of its error than a cloud
        short = max_evaluations is None and d == _CUBATURE_FEATURES and most < _CUBATURE_EVALUATIONS
        grid = most // _REFINED if short else most
        # larger cells, and at last cells with kinks inside, make the rule converge more slowly, and
        # its error says so
        for length, split_kinks in itertools.product(_CELL_LENGTHS[d], (True, False)):
            start_stop = cells(
                p.integrals,
                p.support_points,
                length,
                grid // NODES_PER_CELL[d],
                split_kinks=split_kinks,
            )
            if start_stop is not None:
                found = integrate(
                    _integrand(p, g), *start_stop, rtol=rtol, atol=atol, max_evaluations=most
                )
                return Estimate(found.value, found.error, "quadrature")
    found_clouds, method = clouds(
        p, _CLOUD_POINTS if max_evaluations is None else max_evaluations, rng
    )
    means = np.array([masses @ g(y, log_p) for y, log_p, masses in found_clouds])
    return Estimate(
        float(means.mean()), float(means.std(ddof=1)) / math.sqrt(means.shape[0]), method
    )


def _integrand(p: SoSDensity, g: Integrand) -> Callable[[np.ndarray], np.ndarray]:
    """g·p·dρ/dx."""
    boundaries = p.measure.boundaries(p.n_features)

    def f(y: np.ndarray) -> np.ndarray:
        y = np.clip(y, *boundaries)  # the last node of a cell must not round out of the box
        log_p = p.logpdf(y)
        mass = np.exp(log_p + p.measure.log_density(y))
        seen = mass > 0.0
        out = np.zeros(y.shape[0])
        out[seen] = mass[seen] * g(y[seen], log_p[seen])
        return out

    return f


def clouds(
    p: SoSDensity, n_points: int, rng: Any, *, least_efficiency: float = 0.01
) -> tuple[list[Cloud], str]:
    """Independent clouds of about ``n_points`` together, whose spread tells the error of a mean,
    and the word for how they were made.

    Scrambled Sobol' points of the mixture of the laws ∝ k(x, x̃_i)²dρ carry the weights p/mixture,
    which are bounded. If the columns of the factor cancel so much that a smaller share of the
    points counts than ``least_efficiency``, exact samples take their place.
    """
    generator = np.random.default_rng(rng)
    seed = int(generator.integers(2**32))
    found, efficiency = list[Cloud](), 0.0
    for y, log_weights in importance_rules(p.integrals, p.support_points, n_points, seed):
        tell(f"points {len(found) + 1} of {_GROUPS}", len(found), _GROUPS)
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
    if efficiency >= least_efficiency:
        return found, "quasi-Monte Carlo"
    samples = p.rvs(n_points, generator)
    groups = np.array_split(samples, _GROUPS)
    return [(y, p.logpdf(y), np.full(y.shape[0], 1.0 / y.shape[0])) for y in groups], "sampling"
