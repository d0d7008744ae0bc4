"""Kullback–Leibler divergence, and the L² distance of two densities."""

from __future__ import annotations

import math
from typing import cast

import numpy as np

from ksos.density.corrected import Corrected
from ksos.density.estimate import Estimate
from ksos.density.normals import Group, inner_product
from ksos.density.questions.expectation import Work, average, expectation
from ksos.density.square import Square
from ksos.density.standard import standardize
from ksos.density.terms import Term, Terms
from ksos.exceptions import IntegralNotAvailableError
from ksos.ground.memory import row_blocks
from ksos.integrals import GaussianLebesgue, ProductIntegral, intervals, kinks
from ksos.kernels import Gaussian
from ksos.observables import NumericFunction
from ksos.quadrature import composite, cut

_ROUNDING = 1e-13  # of logarithms
_MOST_PAIRS = 1e9  # of normal densities: some seconds
_ORDER = 12  # nodes of a panel, so short that products of four kernels are right to rounding
_PANELS_PER_LENGTH = 1.5  # of the kernel: a product of four varies twice as fast as k²
_LOG_LEVEL = -22.0  # e^−22 of k: its fourth power, and the square of p, is far below rounding
_BLOCK_ELEMENTS = 1 << 20  # numbers held at a time

_Form = tuple[Square, np.ndarray]
"""(p, B): the function k(x)ᵀ B k(x) e^{−log_unit} with the kernel, the points and the unit of p,
and with B of any sign.
"""


def kl_divergence(p: Terms, q: Terms, work: Work) -> Estimate:
    """∫ log(dP/dQ) dP ≥ 0; infinite where P has mass and Q cannot have any."""
    _check_features(p, q)
    discrete = p.measure.atoms is not None, q.measure.atoms is not None
    if any(discrete) and p.measure != q.measure:
        raise ValueError(
            f"a density on {p.measure!r} and one on {q.measure!r} have no common reference measure;"
            " give both the same Discrete measure"
        )
    (low, high), (other_low, other_high) = (one.measure.boundaries(p.n_features) for one in (p, q))
    if np.any(low < other_low) or np.any(high > other_high):
        return Estimate(math.inf)
    missed = []

    def log_ratio(X: np.ndarray, log_p: np.ndarray) -> np.ndarray:
        log_q = q.log_by_volume(X)
        missed.append(bool(np.any(beyond := np.isneginf(log_q))))
        return np.where(beyond, 0.0, log_p - log_q)

    found = average(p, log_ratio, work)
    if any(missed):
        return Estimate(math.inf)
    # a divergence of 0 has no relative error
    return Estimate(max(float(found), 0.0), found.error + _ROUNDING, found.method)


def _check_features(p: Terms, q: Terms) -> None:
    if p.n_features != q.n_features:
        raise ValueError(
            f"the other density has {q.n_features} features, but this one has {p.n_features}"
        )


def l2_distance(p: Terms, q: Terms, max_operations: float) -> float:
    """(∫ (p − q)² dρ)^{1/2}: from pairs of normal densities, or as E_p[p − q] − E_q[p − q].

    Two squares have a rule of their own, in which densities that nearly agree keep their digits.
    """
    _check_features(p, q)
    if p.measure != q.measure and not (p.measure.by_volume and q.measure.by_volume):
        raise ValueError(
            f"∫(p − q)²dρ needs one reference measure; this density is on {p.measure!r}, the other"
            f" on {q.measure!r}; make both on the same"
        )
    if (atoms := p.measure.atoms) is not None:
        difference = p.logpdf(atoms.points), q.logpdf(atoms.points)
        return math.sqrt(
            float(atoms.weights @ (np.exp(difference[0]) - np.exp(difference[1])) ** 2)
        )
    a, b = p.square, q.square
    if a is not None and b is not None:
        return between_squares(a, b, max_operations)
    groups = [_all_normal_groups(one) for one in (p, q)] if p.measure.by_volume else [None, None]
    if groups[0] is not None and groups[1] is not None:
        n = sum(group.weights.size for group in [*groups[0], *groups[1]])
        if float(n) ** 2 <= min(max_operations, _MOST_PAIRS):
            both = [*groups[0], *(group._replace(weights=-group.weights) for group in groups[1])]
            return math.sqrt(max(inner_product(both, both), 0.0))

    def difference_at(X: np.ndarray) -> np.ndarray:
        return np.asarray(np.exp(p.logpdf(X)) - np.exp(q.logpdf(X)))

    work: Work = {"rtol": 1e-10, "max_evaluations": None, "rng": 0}
    f = NumericFunction(difference_at)
    return math.sqrt(max(float(expectation(p, f, work) - expectation(q, f, work)), 0.0))


def normal_groups(term: Term) -> list[Group] | None:
    """A term as a signed sum of normal densities; None if it is none."""
    if isinstance(term, Corrected):
        return list(term.groups()) if term.interval is None else None
    return [term.normal_sum()] if term.is_normal_sum else None


def _all_normal_groups(p: Terms) -> list[Group] | None:
    """The same of a whole density."""
    out: list[Group] = []
    for weight, term in p.parts:
        if (groups := normal_groups(term)) is None:
            return None
        out += [group._replace(weights=weight * group.weights) for group in groups]
    return out


def between_squares(
    p: Square, q: Square, max_operations: float, *, most_nodes: int = 1_000_000
) -> float:
    """(∫ (p − q)² dρ)^{1/2} of two squares by volume.

    In few features the square is summed over a Gauss–Legendre grid that is exact to rounding: all
    terms are positive, and densities that nearly agree keep their digits. If the grid would have
    more than ``most_nodes`` nodes, ∫p² − 2∫pq + ∫q² from the order-4 integrals takes its place.
    """
    keep_features = (
        not (isinstance(p.kernel, Gaussian) and isinstance(q.kernel, Gaussian))
        or p.measure != q.measure
    )
    standard = standardize(p, q, keep_features=keep_features)
    a, b = standard.same_coordinates(p), standard.same_coordinates(q)
    axes = [_axis(a, b, k) for k in range(p.n_features)]
    if math.prod(x.shape[0] for x, _ in axes) <= most_nodes:
        square = _on_grid(a, b, axes)
        log_square = math.log(square) if square > 0.0 else -math.inf
    else:
        log_square = _log_square(a, b, axes, max_operations)
    with np.errstate(over="ignore", under="ignore"):
        return float(np.exp(0.5 * (log_square - standard.log_volume)))


def _on_grid(a: Square, b: Square, axes: list[tuple[np.ndarray, np.ndarray]]) -> float:
    shape = tuple(x.shape[0] for x, _ in axes)
    total = 0.0
    for rows in row_blocks(
        math.prod(shape), max(a.support_points.shape[0], b.support_points.shape[0]), _BLOCK_ELEMENTS
    ):
        index = np.unravel_index(np.arange(rows.start, rows.stop), shape)
        y = np.stack([x[i] for (x, _), i in zip(axes, index, strict=True)], axis=1)
        w = math.prod(weights[i] for (_, weights), i in zip(axes, index, strict=True))
        difference = np.exp(a.logpdf(y)) - np.exp(b.logpdf(y))
        # two densities by volume are both 0 where they are not defined: there is nothing to cut off
        if not a.measure.by_volume:
            w = w * np.exp(a.measure.log_density(y))
        total += float(np.sum(w * difference**2))
    return total


def _axis(a: Square, b: Square, k: int) -> tuple[np.ndarray, np.ndarray]:
    """Nodes and weights of one feature for products of both kernels: panels end at kinks and where
    either density ends.
    """
    sources = [(p.integrals, p.support_points) for p in (a, b)]
    low, high, smooth = intervals(sources, k, _LOG_LEVEL, origin=0.0)
    ends = [end for source in sources for end in intervals([source], k, _LOG_LEVEL, origin=0.0)[:2]]
    return composite(
        *cut(
            low,
            high,
            smooth / _PANELS_PER_LENGTH,
            np.concatenate([kinks(sources, k, origin=0.0), *ends]),
        ),
        _ORDER,
    )


def _log_square(
    a: Square, b: Square, axes: list[tuple[np.ndarray, np.ndarray]], max_operations: float
) -> float:
    """log ∫(a − b)²: of the difference of the forms if they share their support, else of three
    terms.
    """
    A, B = (p.unit_factor @ p.unit_factor.T for p in (a, b))
    terms: list[tuple[float, _Form, _Form]] = [
        (1.0, (a, A), (a, A)),
        (1.0, (b, B), (b, B)),
        (-2.0, (a, A), (b, B)),
    ]
    if (
        a.kernel == b.kernel
        and a.measure == b.measure
        and np.array_equal(a.support_points, b.support_points)
    ):
        D = a, A - B * math.exp(min(a.log_unit - b.log_unit, 700.0))
        terms = [(1.0, D, D)]
    pairwise = a.measure == b.measure and a.integrals.pairwise and b.integrals.pairwise
    cost = sum(float(F.size) * G.size for _, (_, F), (_, G) in terms) * (
        1.0 if pairwise else sum(x.shape[0] for x, _ in axes) / 2.0
    )
    if cost > max_operations:
        raise ValueError(
            f"the L² distance of densities with {A.shape[0]} and {B.shape[0]} support points is"
            f" predicted to take {cost:.2g} operations, more than"
            f" max_operations={max_operations:.2g}; compress the densities first, or raise"
            " max_operations"
        )
    found = [
        (factor, *(_pairwise(f, g) if pairwise else _by_lines(f, g, axes)))
        for factor, f, g in terms
    ]
    top = max(log_scale for *_, log_scale in found)
    square = sum(factor * value * math.exp(log_scale - top) for factor, value, log_scale in found)
    return math.log(square) + top if square > 0.0 else -math.inf


def _pairwise(f: _Form, g: _Form) -> tuple[float, float]:
    """∫fg dρ = value·e^{log_scale} for Gaussian kernels on R^d: every factor belongs to a pair of
    points.
    """
    (p, P), (q, Q) = f, g
    integral = ProductIntegral(
        cast("GaussianLebesgue", p.integrals), p.support_points, q.kernel, q.support_points
    )
    return integral(P, Q), integral.log_scale - p.log_unit - q.log_unit


def _by_lines(f: _Form, g: _Form, axes: list[tuple[np.ndarray, np.ndarray]]) -> tuple[float, float]:
    """The same for any product kernels on boxes and R^d: ∫ k_i k_j k'_k k'_l is a product of sums
    over the nodes of a line.
    """
    for p, _ in (f, g):
        if p.kernel.full:
            raise IntegralNotAvailableError(
                f"∫(p − q)²dρ of densities with {f[0].kernel!r} on {f[0].measure!r} and"
                f" {g[0].kernel!r} on {g[0].measure!r} has no closed form in so many features; give"
                " both Gaussian kernels and one measure"
            )
    (i, j), (s, t) = (np.triu_indices(B.shape[0]) for _, B in (f, g))
    P, Q = np.where(i == j, 1.0, 2.0) * f[1][i, j], np.where(s == t, 1.0, 2.0) * g[1][s, t]
    lines = []
    for feature, (x, w) in enumerate(axes):
        inside, values = np.ones(x.shape[0], dtype=bool), []
        for p, _ in (f, g):
            inside &= p.measure.restrict([feature]).contains(x[:, None])
            values.append(p.kernel.restrict([feature])(x[:, None], p.support_points[:, [feature]]))
        lines.append((*values, w * inside))
    total = 0.0
    for rows in row_blocks(
        i.shape[0], s.shape[0] + max(w.shape[0] for *_, w in lines), _BLOCK_ELEMENTS
    ):
        terms = np.broadcast_to(Q, (rows.stop - rows.start, s.shape[0]))
        for left, right, w in lines:
            terms = terms * (
                (left[:, i[rows]] * left[:, j[rows]] * w[:, None]).T @ (right[:, s] * right[:, t])
            )
        total += float(P[rows] @ terms.sum(axis=1))
    return total, -f[0].log_unit - g[0].log_unit
