r"""Masses of normal distributions with a covariance in boxes.

A feature without sides drops out, and groups of features that the covariance does not correlate are
independent. What is left of a group of one feature is an error function; of two, a closed form in
Owen's function T [Owen1956]; of three, a Gauss–Legendre rule over one feature of the closed form
for the other two: all to 1e-12 and better. Groups of four and more take the sequence of conditional
distributions of [Genz1992] at scrambled Sobol' points, whose spread gives the error.
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Callable, Iterator

import numpy as np
from scipy.sparse.csgraph import connected_components
from scipy.special import ndtr, ndtri, owens_t

from ksos.ground import row_blocks
from ksos.integrals.erf import gauss_mass
from ksos.quadrature import legendre, sobol

_CLOSED_FEATURES = 3  # of a group: four would nest two rules, with more nodes than points are drawn
_FARTHEST = 40.0  # standard deviations: beyond there is no mass in floating point
_REACH = 8.3  # standard deviations: beyond, 1e-16 of a normal distribution is left
_PANEL = 6.0  # standard deviations of a feature given the others: 13 nodes then agree to 1e-13
_PANEL_NODES = 13  # on 6 standard deviations: the tests compare with known orthants, to 1e-13
_MOST_PANELS = 400  # for three features that all but determine each other: drawing is then faster
_SCRAMBLINGS = 8  # independent ones, as in MixtureRule: their spread estimates the error
# per scrambling, for one mass of a whole mixture: time for accuracy, and the error is reported
_POINTS = 1 << 13
# per scrambling, for each of the m² boxes of a matrix, whose errors average out
_POINTS_PER_PAIR = 1 << 8
_BLOCK_ELEMENTS = 1 << 17  # entries at a time: 1 MB stays in the cache


def box_masses(low: np.ndarray, high: np.ndarray, covariance: np.ndarray) -> np.ndarray:
    """P(low_i ≤ t ≤ high_i) for t ~ N(0, covariance), the sides (n, d) being rows; shape (s, n):
    one answer, or s independent estimates.

    The covariance is (d, d), or (n, d, d) with one for each row.

    >>> C = np.array([[1.0, 0.5], [0.5, 1.0]])
    >>> quadrant = box_masses(np.full((1, 2), -np.inf), np.zeros((1, 2)), C)
    >>> bool(abs(quadrant[0, 0] - 1.0 / 3.0) < 1e-15)  # ¼ + arcsin(½)/2π
    True
    """
    C = covariance if covariance.ndim == 3 else covariance[None]
    deviations = np.sqrt(np.diagonal(C, axis1=1, axis2=2))
    low, high, R = (
        low / deviations,
        high / deviations,
        C / deviations[:, :, None] / deviations[:, None, :],
    )
    out = np.zeros((1, low.shape[0]))
    seen = np.all((low < _REACH) & (high > -_REACH), axis=1)
    for features, rows in _by_sides(low, high, _REACH):
        rows, found = rows[seen[rows]], np.ones((1, 1))
        for group in _groups(R[:, features[:, None], features]):
            index = features[group]
            within = _rows(R, rows)[:, index[:, None], index]
            masses = [_line, _plane, _space][group.size - 1] if _closed(within) else _estimates
            found = found * masses(low[rows][:, index], high[rows][:, index], within)
        if found.shape[0] > out.shape[0]:
            out = np.repeat(out, found.shape[0], axis=0)
        out[:, rows] = found
    return out


def closed(covariance: np.ndarray) -> bool:
    """Whether the masses of boxes are known to rounding: no more than three features are correlated
    with each other.
    """
    C = covariance if covariance.ndim == 3 else covariance[None]
    return all(_closed(C[:, group[:, None], group]) for group in _groups(C))


def mixture_box_masses(
    weights: np.ndarray,
    means: np.ndarray,
    covariance: np.ndarray,
    low: np.ndarray,
    high: np.ndarray,
) -> tuple[np.ndarray, np.ndarray]:
    """P(low_b ≤ x ≤ high_b) of every box b under Σ_c w_c N(mean_c, covariance), weights of any
    sign; and the standard errors, (n,) each.

    The covariance is (d, d), or (c, d, d) with one for each component.
    """
    n, d = low.shape
    stack = covariance if covariance.ndim == 3 else covariance[None]
    out, errors = np.empty(n), np.zeros(n)
    if covariance.ndim == 2 and np.count_nonzero(covariance) == d:  # nothing to look for
        centers, *sides = (x / np.sqrt(2.0 * np.diagonal(covariance)) for x in (means, low, high))
        for some in row_blocks(n, weights.shape[0], _BLOCK_ELEMENTS):
            terms = np.broadcast_to(weights, (out[some].shape[0], weights.shape[0]))
            for k in range(d):
                a, b = (side[some, k, None] - centers[:, k] for side in sides)
                terms = terms * gauss_mass(a, b)
            out[some] = terms.sum(axis=1)
        return out, errors
    for features, boxes in _by_sides(low, high, np.inf):
        C = stack[:, features[:, None], features]
        if not closed(C):
            for b in boxes:
                each = sampled_mass(
                    weights, means[:, features], C, low[b, features], high[b, features]
                )
                out[b], errors[b] = each.mean(), each.std(ddof=1) / math.sqrt(each.shape[0])
            continue
        for block in row_blocks(boxes.shape[0], weights.shape[0] * d, _BLOCK_ELEMENTS):
            rows = boxes[block]
            size = rows.shape[0] * weights.shape[0], features.shape[0]
            a, b = (
                (side[rows][:, None, features] - means[:, features]).reshape(size)
                for side in (low, high)
            )
            each_C = C if C.shape[0] == 1 else np.tile(C, (rows.shape[0], 1, 1))
            out[rows] = box_masses(a, b, each_C).reshape(rows.shape[0], -1) @ weights
    return out, errors


# The matrices of some rows; one matrix may stand for all.
def _rows(R: np.ndarray, rows: np.ndarray) -> np.ndarray:
    return R if R.shape[0] == 1 else R[rows]


# (features, boxes): the boxes whose sides are nearer than ``reach`` in just these features.
def _by_sides(
    low: np.ndarray, high: np.ndarray, reach: float
) -> Iterator[tuple[np.ndarray, np.ndarray]]:
    sided = (low > -reach) | (high < reach)
    # one byte for eight features: bytes are sorted faster than rows
    codes = np.packbits(sided, axis=1)
    axis = None if codes.shape[1] == 1 else 0
    _, which = np.unique(codes, return_inverse=True, axis=axis)
    for number in range(int(which.max(initial=-1)) + 1):
        boxes = np.flatnonzero(which.ravel() == number)
        yield np.flatnonzero(sided[boxes[0]]), boxes


# Features in groups that no R correlates.
def _groups(R: np.ndarray) -> list[np.ndarray]:
    correlated = np.any(R != 0.0, axis=0)
    # no search in what is most often asked
    if correlated.size and correlated.all():
        return [np.arange(correlated.shape[0])]
    count, label = connected_components(correlated, directed=False)
    return [np.flatnonzero(label == c) for c in range(count)]


# Whether there is a closed form or a rule: not beyond three features, nor where they all but
# determine each other.
def _closed(C: np.ndarray) -> bool:
    if C.shape[1] != _CLOSED_FEATURES:
        return bool(C.shape[1] < _CLOSED_FEATURES)
    least = np.min(
        np.diagonal(np.linalg.inv(C), axis1=1, axis2=2) * np.diagonal(C, axis1=1, axis2=2), axis=1
    )
    return (
        2.0 * _REACH * math.sqrt(max(float(least.max(initial=1.0)), 1.0)) <= _MOST_PANELS * _PANEL
    )


def _line(a: np.ndarray, b: np.ndarray, _: np.ndarray) -> np.ndarray:
    return gauss_mass(a[:, 0] / math.sqrt(2.0), b[:, 0] / math.sqrt(2.0))


# Sums over the corners, mirrored so that they lie where the distribution function is small.
def _plane(a: np.ndarray, b: np.ndarray, R: np.ndarray) -> np.ndarray:
    sign = np.where(a + b > 0.0, -1.0, 1.0)
    near, far = np.where(sign < 0.0, -a, b), np.where(sign < 0.0, -b, a)
    rho = R[:, 0, 1] * sign[:, 0] * sign[:, 1]
    out, sides = np.zeros(rho.shape), (near, far)
    for i, j in itertools.product((0, 1), repeat=2):
        h, k = sides[i][:, 0], sides[j][:, 1]
        # most corners are so far away that there is nothing to subtract
        seen = (h > -_FARTHEST) & (k > -_FARTHEST)
        if np.any(seen):
            out[seen] += (1.0 if i == j else -1.0) * _quadrant(h[seen], k[seen], rho[seen])
    return np.clip(out, 0.0, 1.0)


# P(t_1 ≤ h, t_2 ≤ k) = ½[Φ(h) + Φ(k)] − T(h, a_h) − T(k, a_k) − ½[hk < 0], a_h = (k − ρh)/(h√(1 −
# ρ²)), for a correlation ρ.
def _quadrant(h: np.ndarray, k: np.ndarray, rho: np.ndarray) -> np.ndarray:
    # no −0
    h, k = (np.clip(side, -_FARTHEST, _FARTHEST) + 0.0 for side in (h, k))
    root = np.sqrt((1.0 - rho) * (1.0 + rho))
    with np.errstate(divide="ignore", invalid="ignore"):
        of_h, of_k = (k - rho * h) / (h * root), (h - rho * k) / (k * root)
    middle = (h == 0.0) & (k == 0.0)
    corner = np.sqrt((1.0 - rho) / (1.0 + rho))
    of_h, of_k = np.where(middle, corner, of_h), np.where(middle, corner, of_k)
    apart = (h * k < 0.0) | ((h * k == 0.0) & (h + k < 0.0))
    return np.asarray(0.5 * (ndtr(h) + ndtr(k)) - owens_t(h, of_h) - owens_t(k, of_k) - 0.5 * apart)


# ∫ φ(z) P(the other two in their intervals | z) dz over the feature z that the others determine the
# least.
def _space(a: np.ndarray, b: np.ndarray, R: np.ndarray) -> np.ndarray:
    precisions = np.diagonal(np.linalg.inv(R), axis1=1, axis2=2)
    first = int(np.argmin(precisions.sum(axis=0)))
    others = [k for k in range(3) if k != first]
    slopes = R[:, others, first]
    rest = np.sqrt((1.0 - slopes) * (1.0 + slopes))
    inner = np.tile(np.eye(2), (R.shape[0], 1, 1))
    inner[:, 0, 1] = inner[:, 1, 0] = (R[:, others[0], others[1]] - slopes[:, 0] * slopes[:, 1]) / (
        rest[:, 0] * rest[:, 1]
    )
    low, high = np.clip(a[:, first], -_REACH, _REACH), np.clip(b[:, first], -_REACH, _REACH)
    a, b = a[:, others], b[:, others]
    for k in range(2):
        # elsewhere the others cannot be in their intervals
        slope, reach = slopes[:, k], _REACH * rest[:, k]
        with np.errstate(divide="ignore", invalid="ignore"):
            ends = np.sort(np.stack([a[:, k] - reach, b[:, k] + reach]) / slope, axis=0)
        low, high = (
            np.where(slope != 0.0, np.maximum(low, ends[0]), low),
            np.where(slope != 0.0, np.minimum(high, ends[1]), high),
        )
    # the standard deviation of z given the others, P^{−1/2}, is the length on which the integrand
    # varies
    panels = np.ceil(np.maximum(high - low, 0.0) * np.sqrt(precisions[:, first]) / _PANEL).astype(
        int
    )
    out = np.zeros(a.shape[0])
    for count in np.unique(panels[panels > 0]):
        rows = np.flatnonzero(panels == count)
        half = 0.5 * (high[rows] - low[rows]) / count
        slope, scale, within = (_rows(part, rows) for part in (slopes, rest, inner))
        for (t, w), panel in itertools.product(
            zip(*legendre(_PANEL_NODES), strict=True), range(count)
        ):
            z = low[rows] + half * (2.0 * panel + 1.0 + t)
            moved, phi = z[:, None] * slope, np.exp(-0.5 * z * z) / math.sqrt(2.0 * math.pi)
            out[rows] += (
                w
                * half
                * phi
                * _plane((a[rows] - moved) / scale, (b[rows] - moved) / scale, within)
            )
    return np.clip(out, 0.0, 1.0)


# (Π_k P(t_k in its interval | t_1 … t_{k−1}), t) along draws of t from these conditional
# distributions, (n,) and (n, d).
#
# Sides and ``unit`` are (n, d), though the product needs no last column of ``unit``; L, the root of
# the covariance, is (n or 1, d, d).
def _sequence(
    a: np.ndarray, b: np.ndarray, L: np.ndarray, unit: np.ndarray
) -> tuple[np.ndarray, np.ndarray]:
    n, d = a.shape
    z, out = np.zeros((n, d)), np.ones(n)
    for k in range(d):
        moved = np.sum(z[:, :k] * L[:, k, :k], axis=1)
        low, high = (a[:, k] - moved) / L[:, k, k], (b[:, k] - moved) / L[:, k, k]
        # into the lower tail, where Φ keeps its digits
        mirror = low > -high
        below, above = ndtr(np.where(mirror, -high, low)), ndtr(np.where(mirror, -low, high))
        out *= above - below
        if k < unit.shape[1]:
            drawn = ndtri(np.clip(below + unit[:, k] * (above - below), 1e-300, 1.0 - 1e-16))
            z[:, k] = np.clip(np.where(mirror, -drawn, drawn), low, high)
    return out, z


# Features in the order of their masses, the smallest first; roots of the covariances in this order;
# the least mass of a feature.
def _ordered(
    a: np.ndarray, b: np.ndarray, C: np.ndarray, weights: np.ndarray
) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    deviations = np.sqrt(2.0 * np.diagonal(C, axis1=1, axis2=2))
    alone = gauss_mass(a / deviations, b / deviations)
    order = np.argsort(np.abs(weights) @ alone, kind="stable")
    return order, np.linalg.cholesky(C[:, order[:, None], order]), alone.min(axis=1)


# Every box by points of its own, the same for all: shape (scramblings, n).
def _estimates(a: np.ndarray, b: np.ndarray, R: np.ndarray) -> np.ndarray:
    order, L, _ = _ordered(a, b, R, np.ones(a.shape[0]))
    a, b = a[:, order], b[:, order]
    out = np.empty((_SCRAMBLINGS, a.shape[0]))
    for s, child in enumerate(np.random.SeedSequence(0).spawn(_SCRAMBLINGS)):
        unit = sobol(_POINTS_PER_PAIR, a.shape[1] - 1, np.random.default_rng(child))
        for rows in row_blocks(a.shape[0], unit.size, _BLOCK_ELEMENTS):
            n, count = rows.stop - rows.start, unit.shape[0]
            low, high = (np.repeat(side[rows], count, axis=0) for side in (a, b))
            root = L if L.shape[0] == 1 else np.repeat(L[rows], count, axis=0)
            out[s, rows] = (
                _sequence(low, high, root, np.tile(unit, (n, 1)))[0].reshape(n, -1).mean(axis=1)
            )
    return out


def sampled_mass(
    weights: np.ndarray,
    means: np.ndarray,
    covariances: np.ndarray,
    low: np.ndarray,
    high: np.ndarray,
    f: Callable[[np.ndarray], np.ndarray] | None = None,
    n_points: int = _POINTS,
) -> np.ndarray:
    """∫_box f(x) Σ_c w_c N_c(x) dx, f = 1 by default; components are drawn as often as |w_c|·(least
    mass of a feature): shape (scramblings,).
    """
    a, b = low - means, high - means
    order, L, bound = _ordered(a, b, covariances, weights)
    cumulated, out = np.cumsum(np.abs(weights) * bound), np.zeros(_SCRAMBLINGS)
    if not cumulated[-1] > 0.0:
        return out
    a, b, d = a[:, order], b[:, order], a.shape[1]
    for s, child in enumerate(np.random.SeedSequence(0).spawn(_SCRAMBLINGS)):
        unit = sobol(n_points, d if f is None else d + 1, np.random.default_rng(child))
        c = np.minimum(
            np.searchsorted(cumulated, unit[:, 0] * cumulated[-1], side="right"),
            weights.shape[0] - 1,
        )
        root = L if L.shape[0] == 1 else L[c]
        mass, z = _sequence(a[c], b[c], root, unit[:, 1:])
        mass = np.sign(weights[c]) * mass / bound[c]
        if f is not None:
            x = np.empty(z.shape)
            x[:, order] = np.einsum("nij,nj->ni", np.broadcast_to(root, (z.shape[0], d, d)), z)
            seen = mass != 0.0
            mass[seen] *= f((means[c] + x)[seen])
        out[s] = cumulated[-1] * float(np.mean(mass))
    return out
