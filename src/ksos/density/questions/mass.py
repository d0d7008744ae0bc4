"""Probabilities of boxes, also given intervals; the distribution function and its inverse."""

from __future__ import annotations

import math
from typing import NamedTuple

import numpy as np

from ksos.density.corrected import Corrected
from ksos.density.estimate import coarsest
from ksos.density.normals import Group
from ksos.density.questions.condition import in_interval, log_panel_masses, marginal
from ksos.density.questions.line import line, panel_ends
from ksos.density.square import NoMass, Square
from ksos.density.standard import standardize
from ksos.density.terms import Term, Terms
from ksos.ground.memory import row_blocks
from ksos.integrals.normal_boxes import closed, mixture_box_masses, sampled_mass
from ksos.kernels import Gaussian
from ksos.observables import BoxIndicator
from ksos.quadrature import PanelDistribution

Sides = dict[int, tuple[float, float]]

_BLOCK_ELEMENTS = 1 << 17  # boxes times components that are held at a time
_LARGEST = 1e87  # weights of components within a boundary: beyond, floats of single ones underflow
# normal densities in boxes of so many features: about a second
_MOST_TERMS = {2: 3_000_000, 3: 120_000}
_BOX_POINTS = 1 << 17  # draws for all boxes together: about half a second
_LEAST_BOX_POINTS = 1 << 8  # draws for one box at least, whose error would otherwise be a guess
_MOST_BOX_POINTS = 1 << 12  # draws for one box at most: errors of 1e-4, as documented
_DIGITS = 1e-6  # masses below it are sums in which terms cancel: panels of one feature replace them
_ROUNDINGS = 1e-15  # the rounding of a term, of a few operations
_EXACT = 1e-11  # a total rounding above it is reported, as documented


class Masses(NamedTuple):
    """Probabilities of boxes, estimates of their errors (0 if exact to rounding), the method."""

    values: np.ndarray
    errors: np.ndarray
    method: str


def box_masses(p: Terms, low: np.ndarray, high: np.ndarray) -> Masses:
    """P(low_b ≤ x ≤ high_b) of every box b, the sides given as rows."""
    values, errors, methods = np.zeros(low.shape[0]), np.zeros(low.shape[0]), []
    for weight, term in p.parts:
        found = term_masses(term, low, high)
        values, errors = values + weight * found.values, errors + weight * found.errors
        methods.append(found.method)
    return Masses(np.clip(values, 0.0, 1.0), errors, coarsest(methods))


def cumulative(p: Terms, X: np.ndarray) -> np.ndarray:
    """P(x ≤ X_i in every feature), shape (n,)."""
    if p.n_features == 1 and p.measure.atoms is None:
        return np.asarray(line(p).cdf(X.T)[0])
    return box_masses(p, np.full(X.shape, -np.inf), X).values


def quantiles(p: Terms, q: np.ndarray) -> np.ndarray:
    """The smallest x with P(x' ≤ x) ≥ q, entry by entry, of a density of one feature."""
    if (atoms := p.measure.atoms) is None:
        ends, x = p.measure.boundary(0), line(p).ppf(q[None, :])[0]
        x[q == 0.0], x[q == 1.0] = ends
        return np.clip(x, *ends)
    masses = p.node_masses
    seen = np.flatnonzero(masses > 0.0)
    order = seen[np.argsort(atoms.points[seen, 0], kind="stable")]
    cumulated = np.cumsum(masses[order])
    # the last rounding of a level must not reach the next atom
    at = np.searchsorted(cumulated / cumulated[-1], q * (1.0 - 1e-15), side="left")
    return np.asarray(atoms.points[order[np.minimum(at, order.shape[0] - 1)], 0])


def masses_within(p: Terms, low: np.ndarray, high: np.ndarray, sides: Sides) -> Masses:
    """P(low_b ≤ x ≤ high_b | x_T ∈ I) = P(box_b ∩ I)/P(I) of every box b; raises NoMass."""
    is_discrete = p.measure.atoms is not None
    inner, outer = np.array([sides.get(k, (-np.inf, np.inf)) for k in range(p.n_features)]).T
    low, high = np.maximum(low, inner), np.minimum(high, outer)
    hit = np.all(low <= high if is_discrete else low < high, axis=1)
    found, errors = np.zeros(low.shape[0]), np.zeros(low.shape[0])
    (whole,), (error,), method = box_masses(p, inner[None, :], outer[None, :])
    if whole < _DIGITS and not is_discrete:
        log_whole = _log_mass(p, inner, outer)
        if not math.isfinite(log_whole):
            raise NoMass
        logs = [_log_mass(p, a, b) for a, b in zip(low[hit], high[hit], strict=True)]
        found[hit] = [math.exp(min(log - log_whole, 0.0)) for log in logs]
        return Masses(found, errors, "quadrature")
    if whole == 0.0:
        raise NoMass
    masses, uncertain, other = box_masses(p, low[hit], high[hit])
    found[hit] = np.clip(masses / whole, 0.0, 1.0)
    errors[hit] = np.hypot(uncertain, found[hit] * error) / whole
    return Masses(found, errors, coarsest([method, other]))


def _log_mass(p: Terms, low: np.ndarray, high: np.ndarray) -> float:
    """log P(low ≤ x ≤ high), one feature after the other: every step is a sum of positive terms,
    and nothing underflows.
    """
    bounded = np.flatnonzero(np.isfinite(low) | np.isfinite(high))
    if not bounded.size:
        return 0.0
    k = int(bounded[0])
    alone = marginal(p, [k]) if p.n_features > 1 else p
    ends = np.concatenate([panel_ends(term) for _, term in alone.parts])
    _, masses = log_panel_masses(ends, (float(low[k]), float(high[k])), alone.log_by_volume)
    log = float(np.logaddexp.reduce(masses, initial=-np.inf))
    if p.n_features == 1 or not math.isfinite(log):
        return log
    rest = np.arange(p.n_features) != k
    try:
        others = in_interval(p, k, (float(low[k]), float(high[k])))
    except NoMass:
        return -math.inf
    return log + _log_mass(others, low[rest], high[rest])


def term_masses(term: Term, low: np.ndarray, high: np.ndarray) -> Masses:
    """The same of one term."""
    if isinstance(term, Corrected):
        return _corrected_masses(term, low, high)
    exact = np.zeros(low.shape[0])
    if (atoms := term.measure.atoms) is not None:
        masses, out = term.node_masses(), np.empty(low.shape[0])
        for rows in row_blocks(low.shape[0], masses.shape[0], _BLOCK_ELEMENTS):
            out[rows] = _inside(atoms.points, low[rows], high[rows]) @ masses
        return Masses(np.clip(out, 0.0, 1.0), exact, "sum")
    standard = standardize(term, keep_features=True)
    p, low, high = standard.square, standard.coordinates(low), standard.coordinates(high)
    several = low.shape[0] > 1 and isinstance(p.kernel, Gaussian)
    found = _normal_masses(p, low, high) if several or p.kernel.full else None
    if found is None:
        each = [_one_mass(p, a, b) for a, b in zip(low, high, strict=True)]
        found = Masses(np.array(each), exact, "closed form")
    return found


def _inside(X: np.ndarray, low: np.ndarray, high: np.ndarray) -> np.ndarray:
    """Which rows of X lie in which boxes, shape (boxes, n)."""
    inside = np.ones((low.shape[0], X.shape[0]), dtype=bool)
    for k in range(X.shape[1]):
        inside &= (low[:, k, None] <= X[:, k]) & (X[:, k] <= high[:, k, None])
    return inside


def _one_mass(p: Square, low: np.ndarray, high: np.ndarray) -> float:
    """⟨B, ∫_box k kᵀ dρ⟩ in logarithms, so that the mass of a box far away does not underflow."""
    if not np.all(low < high):  # sides that have come to coincide far outside
        return 0.0
    M = BoxIndicator(low, high).matrix(p.kernel, p.support_points, p.measure, p.log_unit).values
    return float(np.clip(np.vdot(p.unit_factor @ p.unit_factor.T, M), 0.0, 1.0))


def _normal_masses(p: Square, low: np.ndarray, high: np.ndarray) -> Masses | None:
    """Those of the signed sum of normal densities that a square with a Gaussian kernel is.

    None if the measure's own box holds so little of them that floats underflow.
    """
    with np.errstate(over="ignore", invalid="ignore"):
        weights, means, covariance = p.normal_sum().seen()
    if not np.abs(weights).max() < _LARGEST:
        return None
    inner, outer = p.measure.boundaries(p.n_features)
    low, high = np.maximum(low, inner), np.minimum(high, outer)
    mass, error = mixture_box_masses(weights, means, covariance, low, high)
    mass = np.where(np.all(low < high, axis=1), np.clip(mass, 0.0, 1.0), 0.0)
    return Masses(mass, error, "quasi-Monte Carlo" if np.any(error) else "closed form")


def _corrected_masses(p: Corrected, low: np.ndarray, high: np.ndarray) -> Masses:
    """Features without a finite side are integrated out first: of a sum of normal densities they
    are dropped. What is left has closed forms in up to three features; where that is too long a
    sum, draws from the normal densities in the box [Genz1992], each weighted by the correction.
    """
    n, d = low.shape
    bounded = [k for k in range(d) if np.any(np.isfinite(low[:, k]) | np.isfinite(high[:, k]))]
    if not bounded:
        return Masses(np.ones(n), np.zeros(n), "closed form")
    if (interval := p.interval) is not None:
        low = np.column_stack([low, np.full(n, interval.low)])
        high = np.column_stack([high, np.full(n, interval.high)])
        values, errors, method = _corrected_masses(p.opened, low, high)
        inside = math.exp(p.log_inside)
        return Masses(np.clip(values / inside, 0.0, 1.0), errors / inside, method)
    if len(bounded) < d:
        shown = [p.shown[k] for k in bounded]
        return _corrected_masses(Corrected(p.joint, shown), low[:, bounded], high[:, bounded])
    if d == 1:
        return Masses(_on_panels(p, low, high), np.zeros(n), "quadrature")
    if not _few_enough(p, n):
        return Masses(*_by_points(p, low, high), "quasi-Monte Carlo")
    values, errors, total = np.zeros(n), np.zeros(n), 0.0
    alone = Group(p.normals.weights / p.normals.weights.sum(), *p.normals[1:])
    for weights, means, covariance in p.groups() if p.n_corrections else [alone]:
        mass, error = mixture_box_masses(weights, means, covariance, low, high)
        values, errors, total = values + mass, errors + error, total + float(weights @ weights)
    rounding = _ROUNDINGS * math.sqrt(total)  # terms of both signs leave this much of their sum
    errors = errors + (rounding if rounding > _EXACT else 0.0)
    return Masses(np.clip(values, 0.0, 1.0), errors, "closed form")


def _few_enough(p: Corrected, n: int) -> bool:
    """Whether the closed forms of n boxes take about a second at most."""
    d, m, shapes = p.n_features, p.n_corrections, p.normals.covariances
    if m:
        shapes = np.concatenate([shapes, p.correction.metric[np.ix_(p.shown, p.shown)][None]])
    terms = p.normals.weights.shape[0] * (1 + m + m * (m + 1) // 2)
    return closed(shapes) and n * terms <= _MOST_TERMS[min(d, 3)]


def _on_panels(p: Corrected, low: np.ndarray, high: np.ndarray) -> np.ndarray:
    """Masses of one feature, from the tail in which they are small."""
    ends = panel_ends(p)
    panels = PanelDistribution.from_log_density(ends, p.log_by_volume)
    a, b = (np.clip(side.T, ends[0], ends[-1]) for side in (low, high))
    below = panels.cdf(b)[0] - panels.cdf(a)[0]
    return np.where(panels.cdf(a)[0] > 0.5, panels.sf(a)[0] - panels.sf(b)[0], below)


def _by_points(p: Corrected, low: np.ndarray, high: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Estimates from draws of all features of the joint density: hidden ones have no sides."""
    n, d, corrects = low.shape[0], p.joint.n_features, p.n_corrections > 0
    sides, (weights, means, covariances) = np.stack([low, high]), p.normals
    if corrects:
        sides = np.stack([np.full((n, d), -np.inf), np.full((n, d), np.inf)])
        sides[0][:, p.shown], sides[1][:, p.shown] = low, high
        weights, means, covariances = p.all_normals
    f = (lambda X: np.exp(p.joint.logpdf(X))) if corrects else None
    n_points = int(np.clip(_BOX_POINTS // n, _LEAST_BOX_POINTS, _MOST_BOX_POINTS))
    shares = weights / weights.sum()
    each = [
        sampled_mass(shares, means, covariances, a, b, f, n_points)
        for a, b in zip(*sides, strict=True)
    ]
    values = np.array([one.mean() for one in each])
    errors = np.array([one.std(ddof=1) / math.sqrt(one.shape[0]) for one in each])
    return np.clip(values, 0.0, 1.0), errors
