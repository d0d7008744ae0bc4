"""Marginals, and the distribution of some features given values or intervals of others."""

from __future__ import annotations

import math
from collections.abc import Callable
from contextlib import suppress
from dataclasses import replace
from typing import cast

import numpy as np
from scipy.linalg import solve_triangular

from ksos.density.corrected import Corrected
from ksos.density.factor import hadamard_factor, unit_rows
from ksos.density.mixed_reference import MixedReference
from ksos.density.normals import Interval
from ksos.density.questions.line import panel_ends
from ksos.density.square import NoMass, Square, assemble
from ksos.density.terms import Part, Term, Terms, Weighted, each
from ksos.exceptions import IntegralNotAvailableError
from ksos.ground import FLOAT_BYTES, require_memory, warn_caller
from ksos.integrals import closed_form
from ksos.kernels import Kernel
from ksos.measures import Atoms, Discrete, GaussianMixture, Lebesgue, Measure
from ksos.observables import BoxIndicator
from ksos.quadrature import Panels, composite

Side = tuple[float, float]

_FAR = -1e3  # below this logarithm, the difference of two of them loses digits that matter
_PRODUCT = 1e-12  # relative: below it, weights of atoms are those of a product of measures
# cuts of a spectrum that are tried in turn, from all digits to none
_CUTS = 10.0 ** np.arange(-13, 0, 2)
_CANCELLATION = 1e5  # of a sum of squares of α: at least eleven of sixteen digits are then left
_MISSED = 1e-3  # of √p, by an interpolant: a factor of 1e6 in the weight of an atom
_NEGLIGIBLE = 1e-10  # of the largest root of p: p is below 1e-20 there and does not matter
_UNSEEN = -40.0  # what is by this logarithm smaller than a sum does not change it
_NODES_PER_LENGTH = 4.5  # Gauss–Legendre, for 1e-9 between normal densities
_MOST_LENGTHS = 200.0  # more lengths would be terms by the thousand, each a density
_FEW_NATS = 200.0  # nats lost: of one feature of a normal distribution, 22 standard deviations
_PER_FEATURE = 50.0  # nats that each feature adds: 10 of its standard deviations
_MOST_POINTS = 500  # support points where densities are compared: the largest hardly grow with more
# a mass below which a sum of terms of both signs, of corrections, has no digits left
_LEAST_LOG_MASS = math.log(1e-4)
# the same without corrections, where all terms are positive: masses of normal densities far out
_LEAST_LOG_NORMALS = math.log(1e-6)


def marginal(p: Terms, keep: list[int]) -> Terms:
    """The density of the features ``keep``, in that order."""
    terms: list[Weighted] = [(w, _marginal(term, keep)) for w, term in p.parts]
    return Terms(terms, _restricted(p, terms, keep))


def _restricted(p: Terms, terms: list[Weighted], keep: list[int]) -> Measure:
    """What a density of these features is relative to."""
    if p.measure.atoms is None:
        return p.measure.restrict(keep)
    measures = [term.measure for _, term in terms]
    if any(other != measures[0] for other in measures):
        raise ValueError(
            f"the marginals of the terms are relative to different measures, {p.measure!r} being"
            " no product; take those of the components, as in [(w, p.marginal(features)) for w, p"
            " in mixture.components]"
        )
    return measures[0]


def at_values(p: Terms, given: list[int], values: np.ndarray) -> Terms:
    """The density of the other features given the values of these; raises NoMass."""
    rest = [k for k in range(p.n_features) if k not in given]
    terms = each(p.parts, lambda term: [given_values(term, given, values)])
    if p.measure.atoms is not None:
        return Terms(terms, terms[0][1].measure)
    normals = p.measure.normals(p.n_features)
    if normals is None or not p.measure.by_components:
        return Terms(terms, p.measure.restrict(rest))
    _, left = MixedReference(*normals, ()).given_values(given, values)
    return Terms(terms, GaussianMixture(*left.normals))


def in_interval(p: Terms, feature: int, side: Side) -> Terms:
    """The density of the other features given this one between two sides; raises NoMass."""
    rest = [k for k in range(p.n_features) if k != feature]
    terms = each(p.parts, lambda term: _within(term, feature, side))
    if p.measure.by_components:
        return Terms(terms, Lebesgue())
    return Terms(terms, _restricted(p, terms, rest))


def conditional_logpdf(p: Terms, X: np.ndarray, given: list[int]) -> np.ndarray:
    """log p(x_R | x_S) = log p(x) − log p_S(x_S) at the rows x of X; −inf − −inf is NaN.

    One marginal serves all rows.
    """
    rest = [k for k in range(p.n_features) if k not in given]
    if p.measure.atoms is not None and len(p.parts) == 1:
        square = cast("Square", p.parts[0][1])
        product = _is_product(p.measure.atoms, given, rest)
        if not (square.kernel.separable(p.n_features) and product):
            with np.errstate(invalid="ignore"):
                return np.asarray(square.logpdf(X) - _at_atoms(square, given, X[:, given]))
    of_given = marginal(p, given)
    log_given = of_given.logpdf(X[:, given])
    with np.errstate(invalid="ignore"):
        out = np.asarray(p.logpdf(X) - log_given)
    if p.square is not None and p.measure.atoms is None:
        # far away both are huge, and only their difference matters
        far = log_given + cast("Square", of_given.weighted[0][1]).log_unit < _FAR
        for row in np.flatnonzero(far & p.measure.contains(X)):
            with suppress(NoMass):
                conditional = at_values(p, given, X[row, given])
                out[row] = conditional.logpdf(X[row : row + 1, rest])[0]
    return out


# What a kernel says of some features beyond what it says of others


class Rest:
    r"""k(x, x̃) = k_S(x_S, x̃_S)·k_R(x_R − Cx_S, x̃_R − Cx̃_S) for features S and the others R.

    A separable kernel has C = 0. A metric, with P its inverse, has C = −P_RR⁻¹P_RS = S_RS S_SS⁻¹,
    and k_R has the metric P_RR⁻¹.
    """

    def __init__(self, kernel: Kernel, given: list[int], rest: list[int]) -> None:
        self.given, self.rest, self.kernel = given, rest, kernel.restrict(rest)
        self.C = np.zeros((len(rest), len(given)))
        if kernel.full:
            n, order = len(given), given + rest
            L = np.linalg.cholesky(kernel.matrix(len(order))[np.ix_(order, order)])
            self.C = solve_triangular(L[:n, :n], L[n:, :n].T, lower=True, trans="T").T
            self.kernel = kernel.with_sigma(L[n:, n:] @ L[n:, n:].T)

    def moved(self, X: np.ndarray, steps: np.ndarray) -> np.ndarray:
        """x_R + C·steps of the rows x of X."""
        return X[:, self.rest] + steps @ self.C.T if np.any(self.C) else X[:, self.rest]


def _marginal(term: Term, keep: list[int]) -> Term:
    if isinstance(term, Corrected):
        return replace(term, shown=[term.shown[k] for k in keep])
    drop, measure = [k for k in range(term.n_features) if k not in keep], term.measure
    if not drop:  # another order of the features
        kernel, points = term.kernel.restrict(keep), term.support_points[:, keep]
        return assemble(kernel, points, measure.restrict(keep), term.unit_factor)[1]
    if measure.atoms is None:
        return _integrate_out(term, keep, drop, measure.restrict(keep))[1]
    projected, log_density = _projected(term, keep)
    if not term.kernel.separable(term.n_features):
        return _interpolant(term.kernel.restrict(keep), projected, log_density)
    _, out = _integrate_out(term, keep, drop, projected)
    if _is_product(measure.atoms, keep, drop):
        return out
    return _with_masses(out, projected, log_density)


def _integrate_out(
    p: Square, keep: list[int], drop: list[int], measure: Measure, box: BoxIndicator | None = None
) -> tuple[float, Square]:
    """k_Sᵀ(B ∘ W_R)k_S for the features R = ``drop``, of higher rank; over a box of R if given.

    With a metric, W_R is the mass matrix of :class:`Rest`, which is W/W_S up to a constant. A box
    takes a separable kernel.
    """
    _require_product(p)
    X, others = p.support_points, Rest(p.kernel, keep, drop)
    integrals = closed_form(others.kernel, p.measure.restrict(drop), len(drop))
    at_drop = others.moved(X, X[0, keep] - X[:, keep])
    log_W = (
        integrals.log_gram(at_drop, at_drop)
        if box is None
        else box.log_gram(others.kernel, at_drop, integrals.measure)
    )
    half = 0.5 * np.diagonal(log_W)
    # elsewhere k_R(·, x̃_i) vanishes on the measure, and the density with it
    alive = np.isfinite(half)
    if not np.any(alive):
        raise NoMass
    rows, log_lengths = unit_rows(p.unit_factor[alive])
    correlations = np.exp(log_W[np.ix_(alive, alive)] - half[alive, None] - half[None, alive])
    factor, log_rows = hadamard_factor(rows, correlations), half[alive] + log_lengths
    return assemble(p.kernel.restrict(keep), X[alive][:, keep], measure, factor, log_rows)


def _hold_fixed(
    p: Square, given: list[int], values: np.ndarray, rest: list[int], measure: Measure
) -> tuple[float, Square]:
    """B ↦ ΔBΔ with Δ = diag(k_S(v, x̃_i)), S = ``given``.

    With a metric, the points move along: x̃_R + C(v − x̃_S).
    """
    _require_product(p)
    kernel, points, log_delta = _held(p, given, values, rest)
    return assemble(kernel, points, measure, p.unit_factor, log_delta)


def _held(
    p: Square, given: list[int], values: np.ndarray, rest: list[int]
) -> tuple[Kernel, np.ndarray, np.ndarray]:
    """The kernel and the points of the other features, and log k_S(v, x̃_i)."""
    X, others = p.support_points, Rest(p.kernel, given, rest)
    log_delta = p.kernel.restrict(given).log(values[None, :], X[:, given])[0]
    return others.kernel, others.moved(X, values - X[:, given]), log_delta


def _require_product(p: Square) -> None:
    kernel, d = p.kernel, p.n_features
    if not kernel.separable(d) and not (kernel.full and p.measure.by_volume):
        raise IntegralNotAvailableError(
            f"{kernel!r} is not a product over its {d} features: marginals and conditionals of its"
            " densities are no kernel sums of squares; pass product=True to the kernel, or use a"
            " discrete measure such as Discrete.quadrature(box, …)"
        )


# Given values


def given_values(term: Term, given: list[int], values: np.ndarray) -> Part:
    """(log p_S(v), the term of the other features given x_S = v); raises NoMass."""
    if isinstance(term, Corrected):
        return _corrected_at(term, given, values)
    rest = [k for k in range(term.n_features) if k not in given]
    if term.measure.atoms is not None:
        return _at_values_on_atoms(term, given, values, rest)
    if not term.measure.restrict(given).contains(values[None, :])[0]:
        raise NoMass
    log_mass, found = _hold_fixed(term, given, values, rest, term.measure.restrict(rest))
    return log_mass - term.log_unit, found


def _corrected_at(p: Corrected, given: list[int], values: np.ndarray) -> Part:
    at = [p.shown[k] for k in given]
    order = np.argsort(at)
    at, values = [at[i] for i in order], values[order]
    joint, rest = p.joint, [k for k in range(p.joint.n_features) if k not in at]
    log, left = MixedReference(*p.all_normals, ()).given_values(at, values)
    kernel, points, log_delta = _held(joint, at, values, rest)
    with np.errstate(under="ignore"):
        F = joint.unit_factor * np.exp(log_delta)[:, None]
    measure = GaussianMixture(*left.normals)
    square = Square(kernel, points, F, joint.log_unit, measure, joint.unit_constant)
    if not (mass := square.mass()) > 0.0:
        raise NoMass
    interval = p.interval
    if interval is not None:
        interval = interval._replace(feature=rest.index(interval.feature))
    shown = [rest.index(p.shown[k]) for k in range(p.n_features) if k not in given]
    out = Corrected(square.scaled_to_one(mass), shown, interval)
    return log + math.log(mass) + out.log_inside - p.log_inside, out


def warn_if_far(p: Terms, found: Terms, given: list[int], values: np.ndarray, words: str) -> None:
    r"""Warn if ``found``, the distribution of ``p`` given x_S = v, is the tail of a kernel and
    nothing else.

    Compared are the largest values of p itself and of p(v, x_R): for a normal distribution their
    logarithms differ by z²/2, z being the distance of v in standard deviations. The difference does
    not depend on the scale of any feature. A reference may have heavy tails, where the density
    falls far less: over references, z is measured in standard deviations of the reference.
    """
    if p.measure.atoms is not None:
        return
    rest = [k for k in range(p.n_features) if k not in given]
    points = [one.support_points for one in (p, found)]
    own, others = (X[:: math.ceil(X.shape[0] / _MOST_POINTS)] for X in points)  # evenly
    completed = np.empty((others.shape[0], p.n_features))
    completed[:, given] = values
    completed[:, rest] = np.clip(others, *found.measure.boundaries(len(rest)))
    highest, there = (float(np.max(p.log_by_volume(rows))) for rows in (own, completed))
    lost = max(highest - there, 0.5 * _reference_distance(p, given, values) ** 2)
    if lost > _FEW_NATS + _PER_FEATURE * len(given):
        distance = "no distance that floats hold"
        if math.isfinite(lost):
            distance = f"{math.sqrt(2.0 * lost):.2g} standard deviations of a normal distribution"
        warn_caller(
            f"the condition {words} is far outside of the data: the density there is that at"
            f" {distance}; the answer is the tail of the nearest kernel, no more"
        )


def _reference_distance(p: Terms, given: list[int], values: np.ndarray) -> float:
    """The largest distance of a value from the mean of its feature in standard deviations of the
    references; 0 if a term has none.
    """
    every = []
    for weight, term in p.parts:
        if not isinstance(term, Corrected):
            return 0.0
        own = np.diagonal(term.normals.covariances, axis1=1, axis2=2)[:, given]
        every.append((weight * term.normals.weights, term.normals.means[:, given], own))
    weights, means, variances = (np.concatenate([one[i] for one in every]) for i in range(3))
    middle = weights @ means
    variance = weights @ (variances + (means - middle) ** 2)
    return float(np.max(np.abs(values - middle) / np.sqrt(variance)))


# Given an interval


def _within(term: Term, feature: int, side: Side) -> list[Part]:
    """(log P, term of the other features) of what the term is a mixture of, the feature being
    between the sides; raises NoMass.
    """
    if isinstance(term, Corrected):
        if term.interval is None:
            inside = Interval(term.shown[feature], *side)
            rest = [k for k in term.shown if k != inside.feature]
            found = replace(term, shown=rest, interval=inside)
            least = _LEAST_LOG_MASS if term.n_corrections else _LEAST_LOG_NORMALS
            if found.log_inside >= least:
                return [(found.log_inside, found)]
        return _at_nodes(term, feature, side)
    if term.kernel.full and term.measure.atoms is None:
        return _at_nodes(term, feature, side)
    rest = [k for k in range(term.n_features) if k != feature]
    if (atoms := term.measure.atoms) is not None:
        x, masses = atoms.points[:, feature], term.node_masses()
        hit = (side[0] <= x) & (x <= side[1])
        if not (whole := float(masses[hit].sum())) > 0.0:
            raise NoMass
        some = replace(term, measure=Discrete(atoms.points[hit], atoms.weights[hit]))
        return [(math.log(whole), _marginal(some.scaled_to_one(), rest))]
    box = BoxIndicator([side[0]], [side[1]])
    log_mass, left = _integrate_out(term, rest, [feature], term.measure.restrict(rest), box)
    return [(log_mass - term.log_unit, left)]


def _at_nodes(term: Term, feature: int, side: Side) -> list[Part]:
    """The terms given the value of the feature, at the nodes of a rule on the part of the interval
    where there is mass.
    """
    line = _marginal(term, [feature])
    ends, logs = log_panel_masses(panel_ends(line), side, line.log_by_volume)
    seen = np.flatnonzero(logs > logs.max(initial=-np.inf) + _UNSEEN)
    if not seen.size:
        return []
    low, high = ends[seen[0]], ends[seen[-1] + 1]
    lengths = (high - low) / term.narrowest(feature)
    if lengths > _MOST_LENGTHS:
        raise ValueError(
            f"between {side[0]:g} and {side[1]:g}, feature {feature} is {lengths:.3g} times as"
            " long as the length on which the density varies; take a shorter interval"
        )
    count = 6 + math.ceil(_NODES_PER_LENGTH * lengths)
    x, w = composite(np.array([low]), np.array([high]), count)
    found: list[Part] = []
    for at, log_weight in zip(x, np.log(w).tolist(), strict=True):
        with suppress(NoMass):
            log, one = given_values(term, [feature], np.array([at]))
            if log_weight + log > logs.max() + _UNSEEN:
                found.append((log_weight + log, one))
    return found


def log_panel_masses(
    ends: np.ndarray, side: Side, log_density: Callable[[np.ndarray], np.ndarray]
) -> tuple[np.ndarray, np.ndarray]:
    """Panels of one feature between two sides: their ends, and the logarithms of their masses."""
    ends = np.unique(np.clip(ends, *side))
    panels = Panels(ends[:-1], ends[1:], 16)  # nodes: right to rounding on panels of this length
    if not len(panels):
        return ends, np.empty(0)
    logs = log_density(panels.nodes.reshape(-1, 1)).reshape(panels.nodes.shape)
    return ends, np.logaddexp.reduce(logs + np.log(panels.weights), axis=1)


# On a discrete measure the result is again a function of the kernel's class and a discrete measure,
# which together carry exactly the masses asked for: B ∘ W_R or ΔBΔ for a separable kernel, whose
# measure takes up what is missing if the atoms are no product; for any other kernel the square of
# the interpolant of √p through the atoms.


def _at_values_on_atoms(p: Square, given: list[int], values: np.ndarray, rest: list[int]) -> Part:
    """A product of measures has the same atoms of ``rest`` for all values: any value will do."""
    nodes = cast("Atoms", p.measure.atoms)
    hit = np.all(nodes.points[:, given] == values, axis=1)
    if not np.any(hit):
        if not _is_product(nodes, given, rest):
            distances = np.sum(np.abs(nodes.points[:, given] - values), axis=1)
            raise NoMass(nodes.points[int(np.argmin(distances))][given])
        hit[:] = True
    points = nodes.points[hit]
    points[:, given] = values
    weights = nodes.weights[hit] / nodes.weights[hit].sum()
    some = replace(p, measure=Discrete(points, weights))
    log_mass = float(np.logaddexp.reduce(some.logpdf(points) + np.log(weights)))
    if p.kernel.separable(p.n_features):
        return log_mass, _hold_fixed(p, given, values, rest, _projected(some, rest)[0])[1]
    return log_mass, _marginal(some, rest)


def _at_atoms(p: Square, given: list[int], values: np.ndarray) -> np.ndarray:
    """The log-density of the ``given`` features, relative to the marginal of the measure, at rows
    that belong to atoms.
    """
    projected, log_density = _projected(p, given)
    n = log_density.shape[0]
    distinct, number = _distinct(np.concatenate([projected.points, values]))
    known = np.full(distinct.shape[0], np.nan)
    known[number[:n]] = log_density
    missing = np.flatnonzero(np.isnan(known[number[n:]]))
    if missing.size:
        row = int(missing[0])
        raise ValueError(
            f"no atom of {p.measure!r} has the given features of {missing.size} of"
            f" {values.shape[0]} rows of X, first of row {row},"
            f" {dict(zip(given, values[row].tolist(), strict=True))}: condition on values of atoms"
        )
    return known[number[n:]]


def _distinct(points: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """The distinct rows, and which of them each row is."""
    distinct, inverse = np.unique(points + 0.0, axis=0, return_inverse=True)
    return distinct, inverse.ravel()


def _projected(p: Square, features: list[int]) -> tuple[Discrete, np.ndarray]:
    """The marginal of the measure, and the log-density of that of p relative to it at its atoms."""
    nodes = cast("Atoms", p.measure.atoms)
    atoms, group = _distinct(nodes.points[:, features])
    weights = np.bincount(group, nodes.weights)
    log_mass = p.logpdf(nodes.points) + np.log(nodes.weights)
    top = float(log_mass.max())
    if not math.isfinite(top):
        raise NoMass
    with np.errstate(divide="ignore"):
        log_density = np.log(np.bincount(group, np.exp(log_mass - top))) + top - np.log(weights)
    return Discrete(atoms, weights), log_density


def _is_product(measure: Atoms, first: list[int], second: list[int]) -> bool:
    """Whether ρ is the product of its marginals on two groups of features."""
    (a, i), (b, j) = (_distinct(measure.points[:, features]) for features in (first, second))
    if a.shape[0] * b.shape[0] > measure.points.shape[0]:
        return False
    table = np.zeros((a.shape[0], b.shape[0]))
    np.add.at(table, (i, j), measure.weights)
    expected = np.outer(table.sum(axis=1), table.sum(axis=0)) / table.sum()
    return bool(np.all(np.abs(table - expected) <= _PRODUCT * expected))


def _with_masses(p: Square, projected: Discrete, log_density: np.ndarray) -> Square:
    """The same function on atoms whose weights make their masses those of ``log_density``.

    B ∘ W_R is nowhere less than the mass of an atom, because W_R sums over all atoms: the weights
    are finite.
    """
    with np.errstate(invalid="ignore", under="ignore"):
        ratio = np.exp(log_density - p.logpdf(projected.points))
        weights = np.where(np.isfinite(log_density), ratio, 0.0) * projected.weights
    carried = weights > 0.0
    measure = Discrete(projected.points[carried], weights[carried])
    return assemble(p.kernel, p.support_points, measure, p.unit_factor)[1]


def _interpolant(kernel: Kernel, measure: Discrete, log_density: np.ndarray) -> Square:
    """(Σ_j α_j k(x, x_j))² with Kα ≈ √p at the atoms; their weights take up what Kα lacks."""
    n = measure.points.shape[0]
    require_memory(
        4 * n * n * FLOAT_BYTES, f"a kernel matrix of {n} atoms", "use a measure with fewer nodes"
    )
    roots = np.exp(0.5 * (log_density - log_density.max()))
    log_total = np.log(measure.weights @ roots**2) + log_density.max()
    alpha = _interpolate_root(kernel(measure.points), measure.weights, roots)
    _, out = assemble(kernel, measure.points, measure, alpha[:, None])
    return _with_masses(out, measure, log_density - log_total)


def _interpolate_root(K: np.ndarray, weights: np.ndarray, roots: np.ndarray) -> np.ndarray:
    """α with Kα as close to ``roots`` as digits allow: the first cut of the spectrum of K whose α
    neither cancels nor misses an atom.

    If there is none, because the values of scattered atoms are rougher than the kernel, α =
    ``roots`` is a smooth majorant of them.
    """
    values, V = np.linalg.eigh(K)
    for cut in _CUTS:
        keep = values > cut * values[-1]
        alpha = V[:, keep] @ ((V[:, keep].T @ roots) / values[keep])
        reached, uncanceled = K @ alpha, K @ np.abs(alpha)
        missed = np.any((reached < _MISSED * roots) & (roots > _NEGLIGIBLE))
        small = weights @ uncanceled**2 <= _CANCELLATION * (weights @ reached**2)
        if small and not missed:
            return np.asarray(alpha)
    return roots
