"""Expectations with an estimate of their error: closed forms, sums over nodes, adaptive cubature,
or clouds of points; and the entropy.
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Callable, Iterator, Sequence
from typing import Any, TypeVar

import numpy as np
from scipy.special import ndtri

from ksos.density import normals
from ksos.density.corrected import Corrected
from ksos.density.estimate import Estimate, coarsest
from ksos.density.questions.line import axis_ends
from ksos.density.questions.moments import term_moment
from ksos.density.square import Square
from ksos.density.standard import Standard, standardize
from ksos.density.terms import Term, Terms
from ksos.ground.arrays import Array, like, namespace, to_numpy
from ksos.ground.run import Run
from ksos.integrals import closed_form
from ksos.integrals.regions import cells, importance_rules
from ksos.integrals.triple import apply_triple
from ksos.kernels import Gaussian, Kernel
from ksos.observables import (
    BoxIndicator,
    KernelFunction,
    NumericFunction,
    Observable,
    Polynomial,
    as_observable,
)
from ksos.quadrature import NODES_PER_CELL, cells as box_cells, integrate, sobol, tensor_grid

__all__ = [
    "Work",
    "affordable",
    "embedded",
    "entropy",
    "expectation",
    "finite",
    "mean_of",
    "square_clouds",
    "term_clouds",
]

Function = Callable[[np.ndarray], np.ndarray]
Integrand = Callable[[np.ndarray, np.ndarray], np.ndarray]
"""g(y, log p(y)) at points in standard coordinates, with the log-density in those coordinates."""
Cloud = tuple[np.ndarray, np.ndarray, np.ndarray]
"""(points, log p at them, masses that sum to one)."""
Work = dict[str, Any]
"""rtol, max_evaluations, rng."""
T = TypeVar("T")

# beyond, cells are too many and points take their place
_CUBATURE_FEATURES = 3
# clouds whose spread is the error of a mean: enough for a standard error, few enough to be long
_GROUPS = 8
# sides of cells in lengths of the kernel, from fine to coarse, by the number of features
_CELL_LENGTHS = {1: (1.0, 4.0), 2: (1.5, 4.0), 3: (2.5, 5.0)}
# for cubature, documented: two seconds for a hundred support points
_CUBATURE_EVALUATIONS = 2_000_000
# of all clouds, documented: errors of about 1e-4
_CLOUD_POINTS = 65_536
# kernel values: about two seconds
_KERNEL_VALUES = 2.5e8
# values of normal densities by the number of features: about two seconds
_NORMAL_VALUES = {1: 2e8, 2: 1.2e8, 3: 1e8}
# fewer evaluations would make no rule, however long each of them takes
_LEAST_EVALUATIONS = 20_000
# a grid must leave this many times its own evaluations for refinement
_REFINED = 4
# an evaluation costs this many values of normal densities beside its own
_OVERHEAD = 40.0
# cells per axis over one normal density, 17 standard deviations long
_CELLS = {1: 16, 2: 7, 3: 4}
# grids that the cubature of one normal density must be able to evaluate: one and its refinements
_FEWEST_GRIDS = 4
# standard deviations of a normal density beyond which its mass is 1e-17
_REACH = 8.5
# standard deviations per cell of a common grid, on which a normal density is a polynomial to 1e-5
_CELL_DEVIATIONS = 2.5
# the same for kernels, which are as wide in their bandwidths
_CELL_BANDWIDTHS = 2.5
# standard deviations that a common grid reaches: a mass of 1e-15 is beyond
_CELL_REACH = 8.0
# a smaller share of points that count: exact samples take the place of weighted points
_LEAST_EFFICIENCY = 0.01
# the accuracy of a term counts with its weight, up to this
_LEAST_RTOL = 1e-2
# of an entropy, evaluations for a term at least: each of eight clouds has 256 points
_FEWEST_VALUES = 2048
# of logarithms: an entropy of 0 has no relative error
_ROUNDING = 1e-13


def expectation(p: Terms, f: Any, work: Work) -> Estimate:
    """E[f(x)]: the sum over the terms, each as accurate as its weight asks for."""
    f, rng = as_observable(f), np.random.default_rng(work["rng"])
    f.check_features(p.n_features)
    rtol, found = work["rtol"], []
    for weight, term in p.parts:
        goal = max(rtol, min(rtol / (weight * len(p.parts)), _LEAST_RTOL))
        found.append((weight, _term_expectation(term, f, goal, work["max_evaluations"], rng)))
    return _total(found)


def entropy(p: Terms, work: Work) -> Estimate:
    """−∫ p log p dρ; every term takes evaluations of all terms, and has a share by its weight."""
    if (square := p.square) is not None:
        standard = standardize(square)
        found = _square_average(standard, lambda _, log_p: -log_p, **work, atol=_ROUNDING)
        return Estimate(found + standard.log_volume, found.error, found.method)
    f, rng, parts = finite(lambda X: -p.logpdf(X)), np.random.default_rng(work["rng"]), []
    cost = sum(term.value_cost for _, term in p.parts)
    # an error in a term counts as its weight: of the work it has a share ∝ √w
    roots = sum(math.sqrt(weight) for weight, _ in p.parts)
    for weight, term in p.parts:
        most = work["max_evaluations"]
        if most is None and p.measure.atoms is None:
            whole = affordable(cost + term.value_cost, p.n_features)
            most = max(_FEWEST_VALUES, int(math.sqrt(weight) / roots * whole))
        goal = min(work["rtol"] / weight, _LEAST_RTOL)
        parts.append((weight, _term_expectation(term, f, goal, most, rng)))
    return _total(parts)


def _total(found: list[tuple[float, Estimate]]) -> Estimate:
    """Σ w·estimate: errors of rules add up, and the word is that of the least exact term."""
    value = sum(weight * one for weight, one in found)
    error = sum(abs(weight) * one.error for weight, one in found)
    return Estimate(value, error, coarsest(one.method for _, one in found))


def finite(g: Function) -> NumericFunction:
    """g, with 0 where it is infinite: there the density has no mass."""
    return NumericFunction(lambda X: np.nan_to_num(g(X), nan=0.0, posinf=0.0, neginf=0.0))


def affordable(value_cost: float, d: int) -> int:
    """As many evaluations as a few seconds allow, each being so many values of normal densities."""
    most = _NORMAL_VALUES[min(d, 3)] / (value_cost + _OVERHEAD)
    return int(np.clip(most, _LEAST_EVALUATIONS, _CUBATURE_EVALUATIONS))


def _term_expectation(
    term: Term, f: Observable, rtol: float, most: int | None, rng: np.random.Generator
) -> Estimate:
    """E[f] of a term: closed form where there is one."""
    if isinstance(term, Corrected):
        return _total([(scale, _of_one(term, one, rtol, most, rng)) for scale, one in f.parts()])
    if not any(isinstance(one, NumericFunction) for _, one in f.parts()):
        M = f.matrix(term.kernel, term.support_points, term.measure, term.log_unit)
        value, error = M.expectation(term.unit_factor @ term.unit_factor.T)
        return Estimate(value, error, "closed form" if term.measure.atoms is None else "sum")
    standard = standardize(term)
    work: Work = {"rtol": rtol, "max_evaluations": most, "rng": rng}
    return _square_average(standard, lambda y, _: f(standard.points(y)), **work)


def term_clouds(
    term: Term, n_points: int, rng: np.random.Generator
) -> tuple[list[tuple[np.ndarray, np.ndarray]], str]:
    """Eight clouds of points with masses that stand for a term, and how they were made."""
    if isinstance(term, Corrected):
        return _corrected_clouds(term, n_points, rng)
    if (atoms := term.measure.atoms) is not None:
        return [(atoms.points, term.node_masses())] * _GROUPS, "sum"
    standard = standardize(term)
    found, method = square_clouds(standard.square, n_points, rng)
    return [(standard.points(y), masses) for y, _, masses in found], method


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


# A square, in standard coordinates


def _square_average(
    standard: Standard,
    g: Integrand,
    *,
    rtol: float,
    atol: float = 1e-300,
    max_evaluations: int | None,
    rng: Any,
) -> Estimate:
    """E[g]; where the density vanishes, g is not asked."""
    p, d = standard.square, standard.square.n_features
    if (atoms := p.measure.atoms) is not None:
        masses = p.node_masses()
        seen = masses > 0.0
        nodes = atoms.points[seen]
        return Estimate(float(masses[seen] @ g(nodes, p.logpdf(nodes))), 0.0, "sum")
    most = _CUBATURE_EVALUATIONS if max_evaluations is None else max_evaluations
    if d <= _CUBATURE_FEATURES:
        if max_evaluations is None:
            values = int(_KERNEL_VALUES / p.support_points.shape[0])
            most = min(most, max(_LEAST_EVALUATIONS, values))
        # a grid that is not refined knows less of its error than a cloud
        short = max_evaluations is None and d == _CUBATURE_FEATURES and most < _CUBATURE_EVALUATIONS
        n_cells = (most // _REFINED if short else most) // NODES_PER_CELL[d]
        # larger cells, and at last cells with kinks inside, make the rule converge more slowly, and
        # its error says so
        for length, split_kinks in itertools.product(_CELL_LENGTHS[d], (True, False)):
            found = cells(p.integrals, p.support_points, length, n_cells, split_kinks=split_kinks)
            if found is not None:
                f = _integrand(p, g)
                done = integrate(f, *found, rtol=rtol, atol=atol, max_evaluations=most)
                return Estimate(done.value, done.error, "quadrature")
    n_points = _CLOUD_POINTS if max_evaluations is None else max_evaluations
    clouds, method = square_clouds(p, n_points, rng)
    return mean_of([float(masses @ g(y, log_p)) for y, log_p, masses in clouds], method)


def mean_of(parts: list[float], method: str) -> Estimate:
    """The mean of independent estimates, and its standard error."""
    error = float(np.std(parts, ddof=1)) / math.sqrt(len(parts))
    return Estimate(float(np.mean(parts)), error, method)


def _integrand(p: Square, g: Integrand) -> Function:
    """g·p·dρ/dx."""
    boundaries = p.measure.boundaries(p.n_features)

    def f(y: np.ndarray) -> np.ndarray:
        y = np.clip(y, *boundaries)  # the last node of a cell must not round out of the box
        log_p = p.logpdf(y)
        mass = np.exp(log_p + p.measure.log_density(y))
        seen, out = mass > 0.0, np.zeros(y.shape[0])
        out[seen] = mass[seen] * g(y[seen], log_p[seen])
        return out

    return f


def square_clouds(
    p: Square, n_points: int, rng: Any, *, least_efficiency: float = _LEAST_EFFICIENCY
) -> tuple[list[Cloud], str]:
    """Independent clouds of about ``n_points`` together, and how they were made.

    Scrambled Sobol' points of the mixture of the densities ∝ k(x, x̃_i)²dρ carry the weights
    p/mixture, which are bounded. If the columns of the factor cancel so much that few points count,
    exact samples take their place.
    """
    from ksos.density.sampling import draw  # samplers ask questions themselves

    generator = np.random.default_rng(rng)
    seed, found, efficiency = int(generator.integers(2**32)), list[Cloud](), 0.0
    for y, log_weights in importance_rules(p.integrals, p.support_points, n_points, seed):
        Run.current().tell(f"points {len(found) + 1} of {_GROUPS}", len(found), _GROUPS)
        log_p = p.logpdf(y)
        log_mass = log_p + log_weights
        top = float(log_mass.max())
        if not np.isfinite(top):
            efficiency = 0.0
            break
        mass = np.exp(log_mass - top)
        efficiency += _share_that_counts(mass)
        seen = mass > 0.0
        found.append((y[seen], log_p[seen], mass[seen] / mass.sum()))
    if efficiency >= least_efficiency:
        return found, "quasi-Monte Carlo"
    groups = np.array_split(draw(p, n_points, generator), _GROUPS)
    return [(y, p.logpdf(y), np.full(len(y), 1.0 / len(y))) for y in groups], "sampling"


def _share_that_counts(masses: np.ndarray) -> float:
    """Of one of the clouds: its effective share of the points of all."""
    return float(masses.sum()) ** 2 / float(np.sum(masses**2)) / (masses.shape[0] * _GROUPS)


# A corrected reference


def _of_one(
    p: Corrected, f: Observable, rtol: float, most: int | None, rng: np.random.Generator
) -> Estimate:
    """E[f] of one observable."""
    from ksos.density.questions.mass import term_masses  # which takes clouds from here

    d = p.n_features
    if isinstance(f, Polynomial):
        about = np.array([f.centre.get(k, 0.0) for k in range(d)])
        powers = [(value, dict(monomial)) for monomial, value in f.terms.items()]
        every = [(value, tuple(by.get(k, 0) for k in range(d))) for value, by in powers]
        return Estimate(sum(value * term_moment(p, exponents, about) for value, exponents in every))
    if isinstance(f, KernelFunction) and isinstance(f.kernel, Gaussian):
        return Estimate(float(embedded(p, f.kernel, f.points) @ f.weights))
    if isinstance(f, BoxIndicator):
        values, errors, method = term_masses(p, f.box.low[None, :], f.box.high[None, :])
        return Estimate(float(values[0]), float(errors[0]), method)
    function = f if isinstance(f, NumericFunction) else NumericFunction(f)
    return _corrected_average(p, function, rtol, most, rng)


def _corrected_average(
    p: Corrected, g: Function, rtol: float, most: int | None, rng: np.random.Generator
) -> Estimate:
    """E_p[g] = Σ_c w_c ∫ f·g dN_c: cubature in up to three features, quasi-Monte Carlo beyond.

    Many normal densities, or densities so different in width that no grid suits all of them, leave
    cubature too few values: they take quasi-Monte Carlo too.
    """
    (weights, means, covariances), d = p.normals, p.n_features
    everything = affordable(p.value_cost, d) if most is None else most
    if d <= _CUBATURE_FEATURES:
        at_once = _on_common_cells(p, g, rtol, everything)
        if at_once is not None:
            return at_once
    each = everything // weights.shape[0]
    if d > _CUBATURE_FEATURES or each < _FEWEST_GRIDS * _CELLS[d] ** d * NODES_PER_CELL[d]:
        n_points = min(everything, _CLOUD_POINTS) if most is None else most
        groups, method = _corrected_clouds(p, n_points, rng)
        return mean_of([float(masses @ g(X)) for X, masses in _told(groups)], method)
    pieces = []
    for weight, mean, covariance in _told(list(zip(weights, means, covariances, strict=True))):
        L = np.linalg.cholesky(covariance)

        def integrand(z: np.ndarray, mean: np.ndarray = mean, L: np.ndarray = L) -> np.ndarray:
            X = mean + z @ L.T
            with np.errstate(under="ignore"):
                mass = np.exp(p.log_ratio(X) - 0.5 * np.sum(z * z, axis=1))
                mass /= (2.0 * math.pi) ** (0.5 * d)
            return _where_positive(mass, g, X)

        narrowest = float(np.min(p.bandwidths / np.sqrt(np.diagonal(covariance))))
        largest = max(_CELLS[d], (each / NODES_PER_CELL[d] / _REFINED) ** (1.0 / d))
        count = int(np.clip(_CELLS[d] / min(narrowest, 1.0), _CELLS[d], largest))
        edges = np.linspace(-_REACH, _REACH, count + 1)
        start, stop = tensor_grid([edges[:-1]] * d), tensor_grid([edges[1:]] * d)
        found = integrate(integrand, start, stop, rtol=rtol, atol=1e-15, max_evaluations=each)
        pieces.append((float(weight), Estimate(found.value, found.error, "quadrature")))
    return _total(pieces)


def _where_positive(mass: np.ndarray, g: Function, X: np.ndarray) -> np.ndarray:
    seen, out = mass > 0.0, np.zeros(X.shape[0])
    out[seen] = mass[seen] * g(X[seen])
    return out


def _told(pieces: Sequence[T]) -> Iterator[T]:
    """The pieces of a sum, one after the other, with progress."""
    for i, piece in enumerate(pieces):
        Run.current().tell(f"{i + 1} of {len(pieces)}", i, len(pieces))
        yield piece


def _on_common_cells(p: Corrected, g: Function, rtol: float, most: int) -> Estimate | None:
    """E_p[g] over one grid that suits all normal densities; None if it had too many cells."""
    d, (_, means, covariances) = p.n_features, p.normals
    ends = [axis_ends(p, k, _CELL_DEVIATIONS, _CELL_BANDWIDTHS) for k in range(d)]
    reach = _CELL_REACH * np.sqrt(np.diagonal(covariances, axis1=1, axis2=2))
    axes, n_cells = [(axis[:-1], axis[1:]) for axis in ends], most // (4 * NODES_PER_CELL[d])
    found = box_cells(axes, means - reach, means + reach, n_cells)
    if found is None:
        return None

    def integrand(X: np.ndarray) -> np.ndarray:
        with np.errstate(under="ignore"):
            return _where_positive(np.exp(p.log_by_volume(X)), g, X)

    done = integrate(integrand, *found, rtol=rtol, atol=1e-15, max_evaluations=most)
    return Estimate(done.value, done.error, "quadrature")


def _corrected_clouds(
    p: Corrected, n_points: int, rng: np.random.Generator
) -> tuple[list[tuple[np.ndarray, np.ndarray]], str]:
    """Sobol' points of ρ with the weights f; exact samples if f varies so much that few count.

    Half of the points are shared out by the weights of the normal densities, half by weight times
    variance: a wide one of small weight adds as much to a second moment as the others do.
    """
    from ksos.density.sampling import draw_corrected  # samplers ask questions themselves

    # densities that are neighbors in this order are alike in their levels
    order = np.argsort(p.reference.log_density(p.normals.means))
    weights, means, covariances = (part[order] for part in p.normals)
    # variances in units of the narrowest ones, so that no feature is larger than the others
    variances = np.diagonal(covariances, axis1=1, axis2=2)
    spread = weights * np.max(variances / variances.min(axis=0), axis=1)
    shares = 0.5 * (weights / weights.sum() + spread / spread.sum())
    roots, cumulative = np.linalg.cholesky(covariances), np.cumsum(shares)
    n, d, found, efficiency = max(32, n_points // _GROUPS), p.n_features, [], 0.0
    for _ in range(_GROUPS):
        unit = np.clip(sobol(n, d + 1, rng), 2.0**-40, 1.0 - 2.0**-40)
        which = np.searchsorted(cumulative, unit[:, 0], side="right")
        which = np.minimum(which, weights.shape[0] - 1)
        X = means[which] + np.einsum("nij,nj->ni", roots[which], ndtri(unit[:, 1:]))
        f = (weights / shares)[which]
        if p.n_corrections or p.interval is not None:
            f = f * np.exp(p.log_ratio(X))
        efficiency += _share_that_counts(f)
        found.append((X, f / f.sum()))
    if efficiency >= _LEAST_EFFICIENCY:
        return found, "quasi-Monte Carlo"
    samples = np.array_split(draw_corrected(p, n_points, rng), _GROUPS)
    return [(X, np.full(X.shape[0], 1.0 / X.shape[0])) for X in samples], "sampling"
