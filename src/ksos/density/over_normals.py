"""Integrals of p = f·ρ over normal laws: samples, averages and probabilities, law by law in
coordinates in which it is standard.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Iterator, Sequence
from itertools import chain
from typing import TypeVar

import numpy as np
from scipy.special import ndtri

from ksos.density.corrected import Corrected
from ksos.density.expectation import Estimate, Masses
from ksos.density.normal_sum import Group
from ksos.ground.progress import tell, tell_rows
from ksos.integrals.normal_boxes import closed, mixture_box_masses, sampled_mass
from ksos.measures import GaussianMixture
from ksos.quadrature import (
    NODES_PER_CELL,
    PanelDistribution,
    cells,
    integrate,
    merged,
    sobol,
    tensor_grid,
)

__all__ = [
    "affordable",
    "average",
    "box_masses",
    "by_width",
    "clouds",
    "draw",
    "panel_ends",
]

Function = Callable[[np.ndarray], np.ndarray]
T = TypeVar("T")
C = TypeVar("C", bound=Corrected)

_REACH = 8.5  # deviations: beyond, a normal law has a mass of 1e-17
_TAIL = 38.0  # beyond, its density is no float
_PANELS_PER_DEVIATION, _PANELS_PER_BANDWIDTH, _KERNEL_REACH = 1.0, 2.0, 6.5
_CUBATURE_FEATURES, _GROUPS = 3, 8
_CELLS = {1: 16, 2: 7, 3: 4}
_CELL_DEVIATIONS, _CELL_BANDWIDTHS, _CELL_REACH = 2.5, 2.5, 8.0
_CUBATURE_EVALUATIONS, _CLOUD_POINTS = 2_000_000, 65_536
_LAW_VALUES, _LEAST_EVALUATIONS = (
    {1: 2e8, 2: 1.2e8, 3: 1e8},
    20_000,
)  # by the number of features: about two seconds
_OVERHEAD, _FEWEST_GRIDS = (
    40.0,
    4,
)  # of an evaluation, in values of laws; that the cubature of one law must be able to evaluate
_MOST_TERMS = {
    1: 20_000_000,
    2: 1_500_000,
    3: 60_000,
}  # normal laws in boxes of so many features: about half a second
_COLLAPSED_FEATURES = 2  # up to here, pairs of kernels go on a grid first
_COLLAPSING = 8  # pairs, in the time of one normal law in a box
_NODES = {1: 30, 2: 1000}  # of such a grid, or of the terms that are left without one, as a rule
_TERMS_AT_ONCE = 1 << 13  # in arrays that fit into the cache
_BOX_POINTS, _LEAST_BOX_POINTS, _MOST_BOX_POINTS = 1 << 17, 1 << 8, 1 << 12
_DIGITS, _ROUNDINGS, _EXACT = 1e-6, 1e-15, 1e-11
_LEAST_EFFICIENCY, _LEAST_ACCEPTANCE = 0.01, 1e-6
_PROPOSALS = 1 << 16


def draw(p: Corrected, size: int, rng: np.random.Generator) -> np.ndarray:
    """``size`` independent samples: those of ρ, each kept with probability f(x)/sup f."""
    acceptance = 1.0 / p.bound()
    if acceptance < _LEAST_ACCEPTANCE:
        raise ValueError(
            f"sampling would accept one proposal in {1.0 / acceptance:.3g}: the squares change"
            " their reference too much; fit with a larger regularisation, or without a reference"
        )
    out, filled = np.empty((size, p.n_features)), 0
    log_bound = math.log(p.bound())
    while filled < size:
        tell_rows(filled, size)
        n = min(_PROPOSALS, int(1.1 * (size - filled) / acceptance) + 32)
        X = p.draw_reference(n, rng)
        keep = X[np.log(rng.random(n)) + log_bound <= p.joint.logpdf(X)][: size - filled, p.shown]
        out[filled : filled + keep.shape[0]] = keep
        filled += keep.shape[0]
    return out


def average(
    p: Corrected, g: Function, *, rtol: float, max_evaluations: int | None, rng: np.random.Generator
) -> Estimate:
    """E_p[g] = Σ_c w_c ∫ f·g dN_c, by cubature in up to three features, by quasi-Monte Carlo
    beyond.

    Many laws, or laws so different in width that no grid suits all of them, leave cubature too few
    values: they take quasi-Monte Carlo too.
    """
    (weights, means, covariances), d = p.normals, p.n_features
    everything = affordable(p.value_cost, d) if max_evaluations is None else max_evaluations
    if (
        d <= _CUBATURE_FEATURES
        and (at_once := _on_common_cells(p, g, rtol, everything)) is not None
    ):
        return at_once
    most = everything // weights.shape[0]
    if d > _CUBATURE_FEATURES or most < _FEWEST_GRIDS * _CELLS[d] ** d * NODES_PER_CELL[d]:
        groups, method = clouds(
            p, min(everything, _CLOUD_POINTS) if max_evaluations is None else max_evaluations, rng
        )
        averages = [float(masses @ g(X)) for X, masses in _told(groups)]
        return Estimate(
            float(np.mean(averages)),
            float(np.std(averages, ddof=1)) / math.sqrt(len(averages)),
            method,
        )
    value, error = 0.0, 0.0
    for weight, mean, covariance in _told(list(zip(weights, means, covariances, strict=True))):
        L = np.linalg.cholesky(covariance)

        def integrand(z: np.ndarray, mean: np.ndarray = mean, L: np.ndarray = L) -> np.ndarray:
            X = mean + z @ L.T
            with np.errstate(under="ignore"):
                mass = np.exp(p.log_ratio(X) - 0.5 * np.sum(z * z, axis=1))
                mass /= (2.0 * math.pi) ** (0.5 * d)
            seen, out = mass > 0.0, np.zeros(X.shape[0])
            out[seen] = mass[seen] * g(X[seen])
            return out

        narrowest = float(np.min(p.bandwidths / np.sqrt(np.diagonal(covariance))))
        count = int(
            np.clip(
                _CELLS[d] / min(narrowest, 1.0),
                _CELLS[d],
                max(_CELLS[d], (most / NODES_PER_CELL[d] / 4.0) ** (1.0 / d)),
            )
        )
        edges = np.linspace(-_REACH, _REACH, count + 1)
        start, stop = tensor_grid([edges[:-1]] * d), tensor_grid([edges[1:]] * d)
        found = integrate(integrand, start, stop, rtol=rtol, atol=1e-15, max_evaluations=most)
        value, error = value + float(weight) * found.value, error + float(weight) * found.error
    return Estimate(value, error, "quadrature")


def affordable(value_cost: float, d: int) -> int:
    """As many evaluations as a few seconds allow, each being so many values of normal laws."""
    return int(
        np.clip(
            _LAW_VALUES[min(d, 3)] / (value_cost + _OVERHEAD),
            _LEAST_EVALUATIONS,
            _CUBATURE_EVALUATIONS,
        )
    )


def _told(pieces: Sequence[T]) -> Iterator[T]:
    """The pieces of a sum, one after the other; who waits sees how many are done."""
    for i, piece in enumerate(pieces):
        tell(f"{i + 1} of {len(pieces)}", i, len(pieces))
        yield piece


def _on_common_cells(p: Corrected, g: Function, rtol: float, most: int) -> Estimate | None:
    """E_p[g] over one grid that suits all laws; None if it would have too many cells: laws of very
    different widths.
    """
    d, (_, means, covariances) = p.n_features, p.normals
    ends = [_axis_ends(p, k, _CELL_DEVIATIONS, _CELL_BANDWIDTHS) for k in range(d)]
    reach = _CELL_REACH * np.sqrt(np.diagonal(covariances, axis1=1, axis2=2))
    found = cells(
        [(axis[:-1], axis[1:]) for axis in ends],
        means - reach,
        means + reach,
        most // (4 * NODES_PER_CELL[d]),
    )
    if found is None:
        return None

    def integrand(X: np.ndarray) -> np.ndarray:
        with np.errstate(under="ignore"):
            mass = np.exp(p.log_density(X))
        seen, out = mass > 0.0, np.zeros(X.shape[0])
        out[seen] = mass[seen] * g(X[seen])
        return out

    result = integrate(integrand, *found, rtol=rtol, atol=1e-15, max_evaluations=most)
    return Estimate(result.value, result.error, "quadrature")


def clouds(
    p: Corrected, n_points: int, rng: np.random.Generator
) -> tuple[list[tuple[np.ndarray, np.ndarray]], str]:
    """Independent clouds of about ``n_points`` together, as (points, masses that sum to one):
    Sobol' points of ρ with the weights f.

    If f varies so much that a small share of the points counts, exact samples take their place.
    """
    order = np.argsort(
        p.log_reference(p.normals.means)
    )  # laws that are neighbours here are alike in their levels
    weights, means, covariances = (part[order] for part in p.normals)
    roots, cumulative = np.linalg.cholesky(covariances), np.cumsum(weights) / weights.sum()
    n, d, found, efficiency = max(32, n_points // _GROUPS), p.n_features, [], 0.0
    for _ in range(_GROUPS):
        unit = np.clip(sobol(n, d + 1, rng), 2.0**-40, 1.0 - 2.0**-40)
        which = np.minimum(
            np.searchsorted(cumulative, unit[:, 0], side="right"), weights.shape[0] - 1
        )
        X = means[which] + np.einsum("nij,nj->ni", roots[which], ndtri(unit[:, 1:]))
        f = np.exp(p.log_ratio(X)) if p.n_corrections or p.interval is not None else np.ones(n)
        efficiency += float(f.sum()) ** 2 / float(np.sum(f * f)) / (n * _GROUPS)
        found.append((X, f / f.sum()))
    if efficiency >= _LEAST_EFFICIENCY:
        return found, "quasi-Monte Carlo"
    return [
        (X, np.full(X.shape[0], 1.0 / X.shape[0]))
        for X in np.array_split(draw(p, n_points, rng), _GROUPS)
    ], "sampling"


def panel_ends(p: Corrected, *, tails: bool = True) -> np.ndarray:
    """Of one feature: ends of panels on which the density is, to rounding, a polynomial of degree
    15, in increasing order.
    """
    _, means, covariances = p.normals
    mean, deviation = means[:, 0], np.sqrt(covariances[:, 0, 0])
    inside = _axis_ends(p, 0, 1.0 / _PANELS_PER_DEVIATION, 1.0 / _PANELS_PER_BANDWIDTH)
    if not tails:
        return inside
    outer, ends = (
        np.sqrt(np.arange(_REACH**2, _TAIL**2, 8.0)),
        [],
    )  # the density falls by e⁴ per panel
    for sign in (-1.0, 1.0):
        far = int(np.argmax(sign * mean + _TAIL * deviation))  # of all laws the last one to vanish
        ends.append(mean[far] + sign * deviation[far] * outer)
    return np.unique(
        np.concatenate([ends[0][ends[0] < inside[0]], inside, ends[1][ends[1] > inside[-1]]])
    )


def by_width(p: C) -> list[tuple[float, C]]:
    """Laws of one feature that nothing corrects, those of about the same width together, so that
    each may have panels of its own.
    """
    octave, (weights, means, covariances), joint = (
        np.floor(np.log2(p.deviations[:, 0])),
        p.all_normals,
        p.joint,
    )
    if p.n_corrections or np.all(octave == octave[0]):
        return [(1.0, p)]
    found = []
    for chosen in (octave == one for one in np.unique(octave)):
        law = GaussianMixture(weights[chosen], means[chosen], covariances[chosen])
        part = joint.from_units(
            joint.kernel,
            joint.support_points,
            joint.unit_factor,
            joint.log_unit,
            law,
            joint.unit_constant,
        )
        child, share = (
            type(p)(part, p.shown, p.interval),
            float(weights[chosen].sum() / weights.sum()),
        )
        found.append((share * math.exp(child.log_inside - p.log_inside), child))
    return found


def _axis_ends(p: Corrected, feature: int, deviations: float, bandwidths: float) -> np.ndarray:
    """Ends of panels of a feature: as long as so many deviations of the narrowest law that reaches
    there, or bandwidths of a kernel.
    """
    _, means, covariances = p.normals
    mean, deviation = means[:, feature], np.sqrt(covariances[:, feature, feature])
    low, high, step = (
        mean - _REACH * deviation,
        mean + _REACH * deviation,
        deviations * p.deviations[:, feature],
    )
    used = np.any(p.joint.unit_factor != 0.0, axis=1)
    if p.n_corrections:
        sigma, X = (
            float(np.sqrt(p.metric[p.shown[feature], p.shown[feature]])),
            p.joint.support_points[used, p.shown[feature]],
        )
        reach = _KERNEL_REACH * sigma
        near, far = merged(
            np.clip(X - reach, low.min(), high.max()), np.clip(X + reach, low.min(), high.max())
        )
        low, high, step = (
            np.r_[low, near],
            np.r_[high, far],
            np.r_[step, np.full(near.shape, bandwidths * sigma)],
        )
    low, high = low - step, high + step  # a law ends within the next panel, which may be longer
    ends = np.unique(np.r_[low, high])
    middle = 0.5 * (ends[:-1] + ends[1:])
    reached = (low[:, None] < middle) & (middle < high[:, None])
    finest = np.min(np.where(reached, step[:, None], ends[-1] - ends[0]), axis=0)
    panels = np.r_[0.0, np.cumsum((ends[1:] - ends[:-1]) / finest)]  # up to each end
    wanted = np.linspace(0.0, panels[-1], 1 + math.ceil(panels[-1]))
    return np.asarray(np.interp(wanted, panels, ends))


def box_masses(p: Corrected, low: np.ndarray, high: np.ndarray) -> Masses:
    """P(low_b ≤ x ≤ high_b) of every box b and an estimate of the error, each of shape (n,), and
    the method.

    Features without a finite side are integrated out first: of a sum of normal laws they are left
    out. What is left is a sum of the masses of normal laws, with their closed forms in up to three
    features; where that is too long a sum, draws from the laws in the box [Genz1992], each weighted
    by f. Small masses of one feature come from the law on panels, a sum of positive terms.
    """
    bounded = [
        k for k in range(p.n_features) if np.any(np.isfinite(low[:, k]) | np.isfinite(high[:, k]))
    ]
    if not bounded:
        return np.ones(low.shape[0]), np.zeros(low.shape[0]), "closed form"
    if (interval := p.interval) is not None:
        low, high = (
            np.column_stack([side, np.full(side.shape[0], end)])
            for side, end in ((low, interval.low), (high, interval.high))
        )
        values, errors, method = box_masses(p.opened, low, high)
        return (
            np.clip(values / math.exp(p.log_inside), 0.0, 1.0),
            errors / math.exp(p.log_inside),
            method,
        )
    if len(bounded) < p.n_features:
        return box_masses(p.marginal(bounded), low[:, bounded], high[:, bounded])
    n, d, laws, m = *low.shape, p.normals.weights.shape[0], p.n_corrections
    shapes = np.concatenate(
        [
            p.normals.covariances,
            p.metric[np.ix_(p.shown, p.shown)][None] if m else np.empty((0, d, d)),
        ]
    )
    terms = 1 + m + m * (m + 1) // 2
    at_once = d <= _COLLAPSED_FEATURES
    terms = terms // _COLLAPSING + n * min(terms, m + _NODES[d]) if at_once else n * terms
    if not closed(shapes) or laws * terms > _MOST_TERMS[min(d, 3)]:
        return (
            (*_on_panels(p, low, high), "quadrature")
            if d == 1
            else (*_by_points(p, low, high), "quasi-Monte Carlo")
        )
    values, errors, total = np.zeros(n), np.zeros(n), 0.0
    for weights, means, covariance in _stacks(p):
        mass, error = mixture_box_masses(weights, means, covariance, low, high)
        values, errors, total = values + mass, errors + error, total + float(weights @ weights)
    if d == 1 and np.any(small := values < _DIGITS):
        values[small] = _on_panels(p, low[small], high[small])[0]
    rounding = _ROUNDINGS * math.sqrt(total)  # terms of both signs leave this much of their sum
    return (
        np.clip(values, 0.0, 1.0),
        errors + (rounding if rounding > _EXACT else 0.0),
        "closed form",
    )


def _stacks(p: Corrected) -> Iterable[Group]:
    """The sum of normal laws in few pieces: laws that nothing corrects together, each with its
    covariance.
    """
    if p.n_corrections:
        return _together(p.groups()) if p.n_features <= _COLLAPSED_FEATURES else p.groups()
    weights, means, covariances = p.normals
    return [Group(weights / weights.sum(), means, covariances)]


def _together(groups: Iterable[Group]) -> Iterator[Group]:
    """Groups on their grids, many at a time, each term with its covariance."""
    waiting: list[Group] = []
    for group in chain(groups, [None]):
        waiting += [] if group is None else [group.collapsed()]
        sizes = [one.weights.size for one in waiting]
        if waiting and (group is None or sum(sizes) > _TERMS_AT_ONCE):
            covariances = np.repeat(np.stack([one.covariance for one in waiting]), sizes, axis=0)
            weights, means = (np.concatenate([one[k] for one in waiting]) for k in (0, 1))
            yield Group(weights, means, covariances)
            waiting = []


def _on_panels(p: Corrected, low: np.ndarray, high: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Masses of one feature, from the tail in which they are small."""
    law = PanelDistribution.from_log_density(panel_ends(p), p.log_density)
    a, b = low[:, 0][None, :], high[:, 0][None, :]
    below = law.cdf(b)[0] - law.cdf(a)[0]
    return np.where(law.cdf(a)[0] > 0.5, law.sf(a)[0] - law.sf(b)[0], below), np.zeros(low.shape[0])


def _by_points(p: Corrected, low: np.ndarray, high: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Estimates from draws of all features of the joint law: those that are integrated out have no
    sides.
    """
    n, d, values, errors = (
        low.shape[0],
        p.joint.n_features,
        np.empty(low.shape[0]),
        np.empty(low.shape[0]),
    )
    sides, (weights, means, covariances) = np.empty((2, n, d)), p.all_normals
    sides[0], sides[1] = -np.inf, np.inf
    sides[0][:, p.shown], sides[1][:, p.shown] = low, high
    f = (lambda X: np.exp(p.joint.logpdf(X))) if p.n_corrections else None
    if f is None:
        sides, means, covariances = np.stack([low, high]), p.normals.means, p.normals.covariances
    n_points = int(np.clip(_BOX_POINTS // n, _LEAST_BOX_POINTS, _MOST_BOX_POINTS))
    for b in range(n):
        each = sampled_mass(
            weights / weights.sum(), means, covariances, sides[0, b], sides[1, b], f, n_points
        )
        values[b], errors[b] = each.mean(), each.std(ddof=1) / math.sqrt(each.shape[0])
    return np.clip(values, 0.0, 1.0), errors
