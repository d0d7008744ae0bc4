"""From the shares of a search to the density: every part fitted to all samples, in the coordinates of the data."""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

import numpy as np

from ksos._deadline import Deadline
from ksos.density import SoSDensity
from ksos.estimators._mixture_stack import Units
from ksos.estimators._quick_likelihood import quick_likelihood_path
from ksos.estimators._reference_search import PLAIN_MULTIPLE, Choice, ReferenceSearch, strength_unit
from ksos.functionals import NegativeLogLikelihood, Trace
from ksos.kernels import Gaussian
from ksos.measures import GaussianMixture, Lebesgue
from ksos.solvers import Solution, minimize
from ksos.space import SoSSpace

__all__ = ["Answer", "answer"]

_SMALLEST_SHARE = 0.005
_NEGLIGIBLE = 1e-13
_MIDDLE = 3
"""The λ of a correction that nothing has been found out about: it hardly changes the reference."""


class Answer(NamedTuple):
    """The parts of the density with their shares, and the certified fit among them."""

    densities: list[SoSDensity]
    shares: np.ndarray
    solution: Solution
    relative_regularization: float
    """λ of the certified fit, in the natural unit of its space."""
    bandwidth: int
    strength: int
    """Which of the search's bandwidths and λ it has."""
    weights: dict[float | str, float]
    score: float


def answer(search: ReferenceSearch, units: Units, points: np.ndarray, tol: float | None, deadline: Deadline) -> Answer:
    """Fit the parts of the best stack to all samples; after the deadline those that are missing are left out."""
    search.steps.begin("fit to all samples")
    choice, m, count = search.best(), len(search.mixtures.fits), len(search.strengths)
    i, shares, rest = choice.bandwidth, choice.shares, 1.0 - choice.single_share
    mixed, corrections, others = shares[:m], shares[m : m + count] if i is not None else np.zeros(count), shares[m + count :]
    bandwidth = len(search.multiples) - 1 if i is None else i
    strength = min(_MIDDLE, count - 1) if i is None else int(np.argmax(search.scores[i]))
    bumps, plain = others[: len(search.bumps)], others[len(search.bumps) :]
    together = max(choice.single_share + rest * float(mixed.sum() + bumps.sum()), search.mixtures.least)
    found = [(_reference_part(search, units, choice, mixed, bumps), together)]

    kernel, support = _kernel(search.metric.kernel(search.multiples[bandwidth]), units), points[search.support(None)]
    space = SoSSpace(kernel, support, units.measure(search.mixtures.reference()), constant=True)
    unit, kept = strength_unit(space, support), np.where(corrections >= _SMALLEST_SHARE, corrections, 0.0)
    used = sorted({*np.flatnonzero(kept).tolist(), strength})
    path = quick_likelihood_path(space, points, search.weights, [unit * search.strengths[k] for k in range(used[-1] + 1)])
    factors = {k: F for k, F in enumerate(path) if k in used}
    functional = NegativeLogLikelihood(points, search.weights) + unit * search.strengths[strength] * Trace(relative=True)
    start = factors[strength] @ factors[strength].T
    solution = minimize(functional, space, tol=tol, start=start, time_limit=deadline)
    factors[strength] = np.asarray(solution.parameter_factor)
    corrected = [k for k in used if kept[k] > 0.0]
    if corrected:
        found.append((_blend(space, [factors[k] for k in corrected], kept[corrected]), rest * float(kept.sum())))
    if plain.sum() >= _SMALLEST_SHARE and not deadline.passed and not solution.keyboard_interrupt:
        found.append((_plain_part(search, units, points, plain), rest * float(plain.sum())))
    total = sum(share for _, share in found)
    weights: dict[float | str, float] = {search.strengths[k]: rest * float(kept[k]) / total for k in corrected}
    weights["kernel_density"] = rest * float(bumps.sum()) / total
    weights["mixtures"] = found[0][1] / total - weights["kernel_density"]
    if search.plain:
        weights["lebesgue"] = max(1.0 - sum(weights.values()), 0.0)
    regularization = unit * search.strengths[strength]
    parts = [density for density, _ in found], np.array([share for _, share in found]) / total
    return Answer(*parts, solution, regularization, bandwidth, strength, weights, choice.score)


def _kernel(kernel: Gaussian, units: Units) -> Gaussian:
    """A kernel of the units, in the coordinates of the data."""
    d = units.scale.shape[0]
    return Gaussian(kernel.sigma_vector(d) * units.scale if not kernel.full else kernel.sigma * units.scale[:, None] * units.scale)


def _reference_part(search: ReferenceSearch, units: Units, choice: Choice, mixed: np.ndarray, bumps: np.ndarray) -> SoSDensity:
    """The mixtures and the kernel density estimates, which are mixtures too: the density 1 relative to the mixture of them all."""
    law, d, rest = search.mixtures.law(mixed, choice.single, choice.single_share), units.scale.shape[0], 1.0 - choice.single_share
    parts = [(law.weights * max(choice.single_share + rest * float(mixed.sum()), search.mixtures.least), law.means, law.covariances)]
    for multiple, share in zip(search.bumps, bumps, strict=False):
        if share >= _SMALLEST_SHARE:  # k² is a normal law of covariance S/4
            covariance = 0.25 * search.metric.kernel(multiple).matrix(d)
            parts.append((rest * share * search.weights, search.points, np.repeat(covariance[None], search.points.shape[0], axis=0)))
    measure = units.measure(GaussianMixture(*(np.concatenate([part[k] for part in parts]) for k in range(3))))
    return SoSDensity.from_units(Gaussian(units.scale), measure.means[:1], np.zeros((1, 1)), 0.0, measure, np.ones(1))


def _plain_part(search: ReferenceSearch, units: Units, points: np.ndarray, shares: np.ndarray) -> SoSDensity:
    """The fits over Lebesgue, along their path of λ."""
    space = SoSSpace(_kernel(search.metric.kernel(PLAIN_MULTIPLE), units), points[search.plain_support()], Lebesgue())
    factors = list(quick_likelihood_path(space, points, search.weights, search.plain_strengths))
    return _blend(space, factors, shares)


def _blend(space: SoSSpace, factors: Sequence[np.ndarray], shares: np.ndarray) -> SoSDensity:
    """Σ_j shares_j p_j of densities of one space, as one density with few squares."""
    columns = [np.sqrt(share) * F for F, share in zip(factors, shares, strict=True)]
    U, s, _ = np.linalg.svd(np.concatenate(columns, axis=1), full_matrices=False)
    keep = s**2 > _NEGLIGIBLE * s[0] ** 2
    density: SoSDensity = space.density(U[:, keep] * s[keep] / np.linalg.norm(s[keep]))
    return density
