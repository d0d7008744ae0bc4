"""Expectations with an estimate of their error: closed forms, sums over nodes, adaptive cubature,
or clouds of points; the entropy, and the level of a highest-density region.
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Callable, Iterator
from typing import Any

import numpy as np
from scipy.special import ndtri

from ksos.density import normals
from ksos.density.corrected import Corrected
from ksos.density.estimate import Estimate, coarsest
from ksos.density.questions.line import axis_ends, line
from ksos.density.questions.moments import term_moment
from ksos.density.square import Square
from ksos.density.standard import standardize
from ksos.density.terms import Term, Terms
from ksos.ground import Array, Run, like, namespace, to_numpy
from ksos.integrals import apply_triple, cells, closed_form, importance_rules
from ksos.kernels import Gaussian, Kernel
from ksos.observables import (
    BoxIndicator,
    KernelFunction,
    NumericFunction,
    Observable,
    Polynomial,
    as_observable,
)
from ksos.quadrature import NODES_PER_CELL, cells as box_cells, integrate, sobol, weighted_level

Integrand = Callable[[np.ndarray, np.ndarray], np.ndarray]
"""g(x, log p(x)), p being by volume; on atoms, where there is no volume, relative to them."""
Cells = tuple[np.ndarray, np.ndarray]
Cloud = tuple[np.ndarray, np.ndarray, np.ndarray]
"""(points, log p at them, masses that sum to one)."""
Work = dict[str, Any]
"""rtol, max_evaluations, rng."""

_CUBATURE_FEATURES = 3  # beyond, cells are too many and points take their place
_GROUPS = 8  # clouds whose spread is the error of a mean: eight give it to 1/√(2·7), a quarter
# sides of cells in lengths of the kernel, from fine to coarse, by the number of features
_CELL_LENGTHS = {1: (1.0, 4.0), 2: (1.5, 4.0), 3: (2.5, 5.0)}
_CELL_DEVIATIONS = 2.5  # sides of cells: polynomials give a normal density to 1e-5 on them
_CUBATURE_EVALUATIONS = 2_000_000  # documented: two seconds for a hundred support points
_CLOUD_POINTS = 65_536  # of all clouds, documented: errors of about 1e-4
# values of normal densities by the number of features: about two seconds
_NORMAL_VALUES = {1: 2e8, 2: 1.2e8, 3: 1e8}
_LEAST_EVALUATIONS = 20_000  # fewer evaluations would make no rule, however long each of them takes
_REFINED = 4  # a grid must leave this many times its own evaluations for refinement
_OVERHEAD = 40.0  # an evaluation costs this many values of normal densities beside its own
_CELL_REACH = 8.0  # standard deviations that a common grid reaches: a mass of 1e-15 is beyond
_LEAST_EFFICIENCY = 0.01  # share of points that count: below, exact samples replace weighted points
_LEAST_RTOL = 1e-2  # the accuracy of a term counts with its weight, up to this
_FEWEST_VALUES = 2048  # evaluations of each term at least: eight clouds of 256 points
_ROUNDING = 1e-13  # of logarithms: an entropy of 0 has no relative error


def expectation(p: Terms, f: Any, work: Work) -> Estimate:
    """E[f(x)]: the sum over the terms, each as accurate as its weight asks for."""
    f, rng = as_observable(f), np.random.default_rng(work["rng"])
    f.check_features(p.n_features)
    rtol, found = work["rtol"], []
    for weight, term in p.parts:
        goal = max(rtol, min(rtol / (weight * len(p.parts)), _LEAST_RTOL))
        for scale, one in f.parts():
            mean = _closed_form(term, one)
            if mean is None:
                mean = _term_average(term, _of_points(one), goal, work["max_evaluations"], rng)
            found.append((weight * scale, mean))
    return total(found)


def _of_points(f: Observable) -> Integrand:
    return lambda X, _: f(X)


def entropy(p: Terms, work: Work) -> Estimate:
    """−∫ p log p dρ."""
    thorough = p.square is None  # clouds of anything else take all the points there is time for
    return average(p, lambda X, log_p: -p.relative(X, log_p), work, thorough=thorough)


def average(p: Terms, g: Integrand, work: Work, *, thorough: bool = False) -> Estimate:
    """E[g(x, log p(x))]; every term takes evaluations of all terms, and has a share by its weight.

    An error in a term counts as its weight: of the work it has a share ∝ √w. ``thorough`` takes as
    many points as cubature would.
    """
    rng, alone, found = np.random.default_rng(work["rng"]), len(p.parts) == 1, []
    cost = sum(term.value_cost for _, term in p.parts)
    roots = sum(math.sqrt(weight) for weight, _ in p.parts)

    def integrand(X: np.ndarray, log_p: np.ndarray) -> np.ndarray:
        return g(X, log_p if alone else p.log_by_volume(X))

    for weight, term in p.parts:
        most = work["max_evaluations"]
        if most is None and (thorough or not alone):
            whole = affordable(cost + term.value_cost, p.n_features)
            most = max(_FEWEST_VALUES, int(math.sqrt(weight) / roots * whole))
        goal = work["rtol"] if alone else min(work["rtol"] / weight, _LEAST_RTOL)
        found.append((weight, _term_average(term, integrand, goal, most, rng, _ROUNDING)))
    return total(found)


def total(found: list[tuple[float, Estimate]]) -> Estimate:
    """Σ w·estimate: errors of rules add up, and the word is that of the least exact term."""
    value = sum(weight * one for weight, one in found)
    error = sum(abs(weight) * one.error for weight, one in found)
    return Estimate(value, error, coarsest(one.method for _, one in found))


def affordable(value_cost: float, d: int) -> int:
    """As many evaluations as a few seconds allow, each being so many values of normal densities."""
    most = _NORMAL_VALUES[min(d, 3)] / (value_cost + _OVERHEAD)
    return int(np.clip(most, _LEAST_EVALUATIONS, _CUBATURE_EVALUATIONS))


def _closed_form(term: Term, f: Observable) -> Estimate | None:
    """E[f] of a term where it is known."""
    from ksos.density.questions.mass import term_masses  # which takes clouds from here

    if isinstance(f, NumericFunction):
        return None
    if isinstance(term, Square):
        M = f.matrix(term.kernel, term.support_points, term.measure, term.log_unit)
        value, error = M.expectation(term.unit_factor @ term.unit_factor.T)
        return Estimate(value, error, "closed form" if term.measure.atoms is None else "sum")
    if isinstance(f, Polynomial):
        features = range(term.n_features)
        mean = [
            term_moment(term, tuple(row), 0.0 * row) for row in np.eye(len(features), dtype=int)
        ]
        near, about = f.about(np.array([mean]))
        powers = [(value, dict(monomial)) for monomial, value in near.terms.items()]
        every = [(value, tuple(by.get(k, 0) for k in features)) for value, by in powers]
        return Estimate(sum(value * term_moment(term, each, about) for value, each in every))
    if isinstance(f, KernelFunction) and isinstance(f.kernel, Gaussian):
        return Estimate(float(embedded(term, f.kernel, f.points) @ f.weights))
    if isinstance(f, BoxIndicator):
        values, errors, method = term_masses(term, f.box.low[None, :], f.box.high[None, :])
        return Estimate(float(values[0]), float(errors[0]), method)
    return None


def embedded(term: Term, kernel: Kernel, Z: Array) -> Array:
    """∫ k(x, Z_r) p(x) dx of a term, shape (ℓ,)."""
    if isinstance(term, Corrected):
        if not isinstance(kernel, Gaussian):
            raise ValueError(
                "the embedding of a corrected reference is known for Gaussian kernels; got"
                f" {kernel!r}"
            )
        metric = kernel.matrix(term.n_features)
        seen = normals.embedded(term.groups(), metric, to_numpy(Z), term.interval)
        return like(seen * math.exp(-term.log_inside), Z)
    integrals = closed_form(term.kernel, term.measure, term.n_features, kernel)
    F = like(term.unit_factor, Z)
    if term.unit_constant is not None:
        F = namespace(Z).concat([like(term.unit_constant, Z)[None, :], F], axis=0)
    X = like(term.support_points, Z)
    return apply_triple(integrals, X, F @ F.T, term.log_unit, Z, kernel)


def _term_average(
    term: Term,
    g: Integrand,
    rtol: float,
    most: int | None,
    rng: np.random.Generator,
    atol: float = 1e-300,
) -> Estimate:
    """E[g] of a term; where its density vanishes, g is not asked."""
    d = term.n_features
    if term.measure.atoms is not None:
        (cloud, *_), method = term_clouds(term, 0, rng)
        return Estimate(_mean(g, cloud), 0.0, method)
    whole = affordable(term.value_cost, d) if most is None else most
    if d <= _CUBATURE_FEATURES:
        # a grid that is not refined knows less of its error than a cloud
        short = most is None and d == _CUBATURE_FEATURES and whole < _CUBATURE_EVALUATIONS
        refined = _REFINED if short or isinstance(term, Corrected) else 1
        n_cells = whole // (refined * NODES_PER_CELL[d])
        p, points, log_volume = _chart(term)

        def integrand(y: np.ndarray) -> np.ndarray:
            log_p = p.log_by_volume(np.clip(y, *p.measure.boundaries(d)))
            with np.errstate(under="ignore"):
                mass = np.exp(log_p)
            seen, out = mass > 0.0, np.zeros(y.shape[0])
            out[seen] = mass[seen] * g(points(y[seen]), log_p[seen] - log_volume)
            return out

        found = next((one for one in _grids(p, n_cells) if one is not None), None)
        if found is not None:
            done = integrate(integrand, *found, rtol=rtol, atol=atol, max_evaluations=whole)
            return Estimate(done.value, done.error, "quadrature")
    if most is None:
        whole = _CLOUD_POINTS if isinstance(term, Square) else min(whole, _CLOUD_POINTS)
    clouds, method = term_clouds(term, whole, rng)
    return mean_of([_mean(g, cloud) for cloud in clouds], method)


def _mean(g: Integrand, cloud: Cloud) -> float:
    X, log_p, masses = cloud
    return float(masses @ g(X, log_p))


def mean_of(parts: list[float], method: str) -> Estimate:
    """The mean of independent estimates, and its standard error."""
    error = float(np.std(parts, ddof=1)) / math.sqrt(len(parts))
    return Estimate(float(np.mean(parts)), error, method)


def _chart(term: Term) -> tuple[Term, Callable[[np.ndarray], np.ndarray], float]:
    """(the term in coordinates y, x of y, log of the volume in x of a unit of volume in y)."""
    if isinstance(term, Corrected):
        return term, lambda y: y, 0.0
    standard, ends = standardize(term), term.measure.boundaries(term.n_features)

    def points(y: np.ndarray) -> np.ndarray:
        return np.clip(standard.points(y), *ends)  # rounding must not carry them out of the box

    return standard.square, points, standard.log_unit_volume


def _grids(p: Term, most: int) -> Iterator[Cells | None]:
    """Grids of at most so many cells that hold all of p, from fine to coarse; None for one that
    would have more.

    On larger cells, and at last on cells with kinks inside, a rule converges more slowly, and
    its error shows it.
    """
    d = p.n_features
    if isinstance(p, Square):
        for length, split in itertools.product(_CELL_LENGTHS[d], (True, False)):
            yield cells(p.integrals, p.support_points, length, most, split_kinks=split)
        return
    means = p.normals.means
    reach = _CELL_REACH * np.sqrt(np.diagonal(p.normals.covariances, axis1=1, axis2=2))
    ends = [axis_ends(p, k, _CELL_DEVIATIONS, _CELL_DEVIATIONS) for k in range(d)]
    axes = [(axis[:-1], axis[1:]) for axis in ends]
    yield box_cells(axes, means - reach, means + reach, most)


def term_clouds(
    term: Term, n_points: int, rng: np.random.Generator, least: float = _LEAST_EFFICIENCY
) -> tuple[list[Cloud], str]:
    """Independent clouds of about ``n_points`` together, and how they were made.

    Sobol' points of a distribution that is easy to draw from carry the weights by which the term
    differs from it. If it differs so much that few points count, exact samples take their place.
    """
    if isinstance(term, Square) and (atoms := term.measure.atoms) is not None:
        masses = term.node_masses()
        X, masses = atoms.points[masses > 0.0], masses[masses > 0.0]
        return [(X, term.logpdf(X), masses)] * _GROUPS, "sum"
    found, efficiency = list[Cloud](), 0.0
    for X, log_p, log_masses in _weighted_points(term, n_points, rng):
        Run.current().tell(f"points {len(found) + 1} of {_GROUPS}", len(found), _GROUPS)
        top = float(log_masses.max())
        if not np.isfinite(top):
            efficiency = 0.0
            break
        masses = np.exp(log_masses - top)
        count = float(masses.sum()) ** 2 / float(np.sum(masses**2))
        efficiency += count / (masses.shape[0] * _GROUPS)
        seen = masses > 0.0
        found.append((X[seen], log_p[seen], masses[seen] / masses.sum()))
    if efficiency >= least:
        return found, "quasi-Monte Carlo"
    from ksos.density.sampling import draw_term  # samplers ask questions themselves

    groups = np.array_split(draw_term(term, n_points, rng), _GROUPS)
    return [(X, term.log_by_volume(X), np.full(len(X), 1.0 / len(X))) for X in groups], "sampling"


def _weighted_points(term: Term, n_points: int, rng: np.random.Generator) -> Iterator[Cloud]:
    """(points, log p, logarithms of masses) of each cloud.

    Of a square, scrambled points of the mixture of the densities ∝ k(x, x̃_i)²dρ; of a corrected
    one, those of its normal densities. Half of these are shared out by weight, half by weight times
    variance: a wide one of small weight adds as much to a second moment as the others do.
    """
    if isinstance(term, Square):
        p, points, log_volume = _chart(term)
        assert isinstance(p, Square)
        seed = int(rng.integers(2**32))
        for y, log_weights in importance_rules(p.integrals, p.support_points, n_points, seed):
            log_p = p.logpdf(y)
            by_volume = log_p + p.measure.log_density(y) - log_volume
            yield points(y), by_volume, log_p + log_weights
        return
    # densities that are neighbors in this order are alike in their levels
    order = np.argsort(term.reference.log_density(term.normals.means))
    weights, means, covariances = (part[order] for part in term.normals)
    # variances in units of the narrowest ones, so that no feature is larger than the others
    variances = np.diagonal(covariances, axis1=1, axis2=2)
    spread = weights * np.max(variances / variances.min(axis=0), axis=1)
    shares = 0.5 * (weights / weights.sum() + spread / spread.sum())
    constant = not term.n_corrections and term.interval is None  # then it is its reference
    roots, cumulative = np.linalg.cholesky(covariances), np.cumsum(shares)
    for _ in range(_GROUPS):
        n = max(32, n_points // _GROUPS)
        unit = np.clip(sobol(n, term.n_features + 1, rng), 2.0**-40, 1.0 - 2.0**-40)
        which = np.searchsorted(cumulative, unit[:, 0], side="right")
        which = np.minimum(which, weights.shape[0] - 1)
        X = means[which] + np.einsum("nij,nj->ni", roots[which], ndtri(unit[:, 1:]))
        log_p = term.log_by_volume(X)
        log_ratio = 0.0 if constant else log_p - term.reference.log_density(X)
        yield X, log_p, np.log(weights / shares)[which] + log_ratio


# Levels of highest-density regions


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
    counts = np.maximum(_FEWEST_VALUES, (roots / roots.sum() * most).astype(int))
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
