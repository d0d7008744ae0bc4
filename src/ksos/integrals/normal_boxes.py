r"""Masses of normal laws with a covariance in boxes.

A feature without sides drops out, and groups of features that the covariance does not tie are independent. What is left of a group of
one feature is an error function; of two, a closed form in Owen's function T [Owen1956]; of three, a Gauss–Legendre rule over one feature
of the closed form for the other two: all to 1e-12 and better. Groups of four and more take the sequence of conditional laws of [Genz1992]
at scrambled Sobol' points, whose spread tells the error.
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Iterator

import numpy as np
from scipy.sparse.csgraph import connected_components
from scipy.special import ndtr, ndtri, owens_t

from ksos._memory import row_blocks
from ksos.integrals.erf import gauss_mass
from ksos.quadrature import legendre, sobol

__all__ = ["box_masses", "mixture_box_masses"]

_CLOSED_FEATURES = 3
_FARTHEST = 40.0  # deviations: beyond there is no mass in floating point
_REACH = 8.3  # beyond, 1e-16 of a normal law is left
_PANEL, _PANEL_NODES, _MOST_PANELS = 6.0, 13, 400
_SCRAMBLINGS, _POINTS, _POINTS_PER_PAIR = 8, 1 << 13, 1 << 8
_BLOCK_ELEMENTS = 1 << 17


def box_masses(low: np.ndarray, high: np.ndarray, covariance: np.ndarray) -> np.ndarray:
    """P(low_i ≤ t ≤ high_i) for t ~ N(0, covariance), the sides (n, d) being rows; shape (s, n): one answer, or s independent estimates.

    >>> quarter = box_masses(np.full((1, 2), -np.inf), np.zeros((1, 2)), np.array([[1.0, 0.5], [0.5, 1.0]]))
    >>> bool(abs(quarter[0, 0] - 1.0 / 3.0) < 1e-15)  # ¼ + arcsin(½)/2π
    True
    """
    deviations = np.sqrt(np.diagonal(covariance))
    low, high, R = low / deviations, high / deviations, covariance / deviations[:, None] / deviations
    out = np.zeros((1, low.shape[0]))
    seen = np.all((low < _REACH) & (high > -_REACH), axis=1)
    for features, rows in _by_sides(low, high, _REACH):
        rows, found = rows[seen[rows]], np.ones((1, 1))
        for group in _groups(R[np.ix_(features, features)]):
            index = features[group]
            a, b, tied = low[rows][:, index], high[rows][:, index], R[np.ix_(index, index)]
            found = found * ([_line, _plane, _space][index.shape[0] - 1] if _closed(tied) else _estimates)(a, b, tied)
        if found.shape[0] > out.shape[0]:
            out = np.repeat(out, found.shape[0], axis=0)
        out[:, rows] = found
    return out


def mixture_box_masses(
    weights: np.ndarray, means: np.ndarray, covariance: np.ndarray, low: np.ndarray, high: np.ndarray
) -> tuple[np.ndarray, np.ndarray]:
    """P(low_b ≤ x ≤ high_b) of every box b under Σ_c w_c N(mean_c, covariance), weights of any sign; and the standard errors, (n,) each."""
    n, d = low.shape
    out, errors = np.empty(n), np.zeros(n)
    for features, boxes in _by_sides(low, high, np.inf):
        C = covariance[np.ix_(features, features)]
        if not all(_closed(C[np.ix_(group, group)]) for group in _groups(C)):
            for b in boxes:
                each = _sampled(weights, low[b, features] - means[:, features], high[b, features] - means[:, features], C)
                out[b], errors[b] = each.mean(), each.std(ddof=1) / math.sqrt(each.shape[0])
            continue
        for block in row_blocks(boxes.shape[0], weights.shape[0] * d, _BLOCK_ELEMENTS):
            rows = boxes[block]
            size = rows.shape[0] * weights.shape[0], features.shape[0]
            a, b = ((side[rows][:, None, features] - means[:, features]).reshape(size) for side in (low, high))
            out[rows] = box_masses(a, b, C).reshape(rows.shape[0], -1) @ weights
    return out, errors


def _by_sides(low: np.ndarray, high: np.ndarray, reach: float) -> Iterator[tuple[np.ndarray, np.ndarray]]:
    """(features, boxes): the boxes whose sides are nearer than ``reach`` in just these features."""
    sided = (low > -reach) | (high < reach)
    codes = np.packbits(sided, axis=1)  # one byte for eight features: bytes are sorted faster than rows
    _, which = np.unique(codes[:, 0], return_inverse=True) if codes.shape[1] == 1 else np.unique(codes, axis=0, return_inverse=True)
    for number in range(int(which.max(initial=-1)) + 1):
        boxes = np.flatnonzero(which.ravel() == number)
        yield np.flatnonzero(sided[boxes[0]]), boxes


def _groups(R: np.ndarray) -> list[np.ndarray]:
    """Features in groups that R does not tie to each other."""
    count, label = connected_components(R != 0.0, directed=False)
    return [np.flatnonzero(label == c) for c in range(count)]


def _closed(C: np.ndarray) -> bool:
    """Whether there is a closed form or a rule: not beyond three features, nor where they all but determine each other."""
    if C.shape[0] < _CLOSED_FEATURES:
        return True
    least = float(np.min(np.diagonal(np.linalg.inv(C)) * np.diagonal(C)))
    return C.shape[0] == _CLOSED_FEATURES and 2.0 * _REACH * math.sqrt(max(least, 1.0)) <= _MOST_PANELS * _PANEL


def _line(a: np.ndarray, b: np.ndarray, _: np.ndarray) -> np.ndarray:
    return gauss_mass(a[:, 0] / math.sqrt(2.0), b[:, 0] / math.sqrt(2.0))


def _plane(a: np.ndarray, b: np.ndarray, R: np.ndarray) -> np.ndarray:
    """Sums over the corners, mirrored so that they lie where the distribution function is small."""
    sign = np.where(a + b > 0.0, -1.0, 1.0)
    near, far = np.where(sign < 0.0, -a, b), np.where(sign < 0.0, -b, a)
    rho = R[0, 1] * sign[:, 0] * sign[:, 1]
    out = _quadrant(near[:, 0], near[:, 1], rho)
    if np.any(first := far[:, 0] > -_FARTHEST):
        out[first] -= _quadrant(far[first, 0], near[first, 1], rho[first])
    if np.any(second := far[:, 1] > -_FARTHEST):
        out[second] -= _quadrant(near[second, 0], far[second, 1], rho[second])
    if np.any(both := first & second):
        out[both] += _quadrant(far[both, 0], far[both, 1], rho[both])
    return np.clip(out, 0.0, 1.0)


def _quadrant(h: np.ndarray, k: np.ndarray, rho: np.ndarray) -> np.ndarray:
    """P(t_1 ≤ h, t_2 ≤ k) = ½[Φ(h) + Φ(k)] − T(h, a_h) − T(k, a_k) − ½[hk < 0], a_h = (k − ρh)/(h√(1 − ρ²)), for a correlation ρ."""
    h, k = (np.clip(side, -_FARTHEST, _FARTHEST) for side in (h, k))
    h, k = (np.where(side == 0.0, 0.0, side) for side in (h, k))  # no −0
    root = np.sqrt((1.0 - rho) * (1.0 + rho))
    with np.errstate(divide="ignore", invalid="ignore"):
        of_h, of_k = (k - rho * h) / (h * root), (h - rho * k) / (k * root)
    middle = (h == 0.0) & (k == 0.0)
    corner = np.sqrt((1.0 - rho) / (1.0 + rho))
    of_h, of_k = np.where(middle, corner, of_h), np.where(middle, corner, of_k)
    apart = (h * k < 0.0) | ((h * k == 0.0) & (h + k < 0.0))
    return np.asarray(0.5 * (ndtr(h) + ndtr(k)) - owens_t(h, of_h) - owens_t(k, of_k) - 0.5 * apart)


def _space(a: np.ndarray, b: np.ndarray, R: np.ndarray) -> np.ndarray:
    """∫ φ(z) P(the other two in their intervals | z) dz over the feature z that the others determine the least."""
    precisions = np.diagonal(np.linalg.inv(R))
    first = int(np.argmin(precisions))
    others = [k for k in range(3) if k != first]
    slopes = R[others, first]
    rest = np.sqrt((1.0 - slopes) * (1.0 + slopes))
    inner = np.eye(2)
    inner[0, 1] = inner[1, 0] = (R[others[0], others[1]] - slopes[0] * slopes[1]) / (rest[0] * rest[1])
    low, high = np.clip(a[:, first], -_REACH, _REACH), np.clip(b[:, first], -_REACH, _REACH)
    a, b = a[:, others], b[:, others]
    for k in np.flatnonzero(slopes):  # elsewhere the others cannot be in their intervals
        ends = np.sort(np.stack([a[:, k] - _REACH * rest[k], b[:, k] + _REACH * rest[k]]) / slopes[k], axis=0)
        low, high = np.maximum(low, ends[0]), np.minimum(high, ends[1])
    # the deviation of z given the others, P^{−1/2}, is the length on which the integrand varies
    panels = np.ceil(np.maximum(high - low, 0.0) * math.sqrt(precisions[first]) / _PANEL).astype(int)
    out = np.zeros(a.shape[0])
    for count in np.unique(panels[panels > 0]):
        rows = np.flatnonzero(panels == count)
        half = 0.5 * (high[rows] - low[rows]) / count
        for (t, w), panel in itertools.product(zip(*legendre(_PANEL_NODES), strict=True), range(count)):
            z = low[rows] + half * (2.0 * panel + 1.0 + t)
            moved, phi = z[:, None] * slopes, np.exp(-0.5 * z * z) / math.sqrt(2.0 * math.pi)
            out[rows] += w * half * phi * _plane((a[rows] - moved) / rest, (b[rows] - moved) / rest, inner)
    return np.clip(out, 0.0, 1.0)


# --- four features and more ---


def _sequence(a: np.ndarray, b: np.ndarray, L: np.ndarray, unit: np.ndarray) -> np.ndarray:
    """Π_k P(t_k in its interval | t_1 … t_{k−1}) along draws of t from these conditional laws, for sides (n, d) and ``unit`` (n, d − 1)."""
    n, d = a.shape
    t, out = np.zeros((n, d)), np.ones(n)
    for k in range(d):
        moved = t[:, :k] @ L[k, :k]
        low, high = (a[:, k] - moved) / L[k, k], (b[:, k] - moved) / L[k, k]
        mirror = low + high > 0.0  # into the lower tail, where Φ keeps its digits
        below, above = ndtr(np.where(mirror, -high, low)), ndtr(np.where(mirror, -low, high))
        out *= above - below
        if k + 1 < d:
            drawn = ndtri(np.clip(below + unit[:, k] * (above - below), 1e-300, 1.0))
            t[:, k] = np.clip(np.where(mirror, -drawn, drawn), low, high)
    return out


def _ordered(a: np.ndarray, b: np.ndarray, C: np.ndarray, weights: np.ndarray) -> tuple[np.ndarray, np.ndarray, np.ndarray, np.ndarray]:
    """Sides with the features in the order of their masses, the smallest first; the root of the covariance; the least mass of a feature."""
    deviations = np.sqrt(2.0 * np.diagonal(C))
    alone = gauss_mass(a / deviations, b / deviations)
    order = np.argsort(np.abs(weights) @ alone, kind="stable")
    return a[:, order], b[:, order], np.linalg.cholesky(C[np.ix_(order, order)]), alone.min(axis=1)


def _estimates(a: np.ndarray, b: np.ndarray, R: np.ndarray) -> np.ndarray:
    """Every box by points of its own, the same for all: shape (scramblings, n)."""
    a, b, L, _ = _ordered(a, b, R, np.ones(a.shape[0]))
    out = np.empty((_SCRAMBLINGS, a.shape[0]))
    for s, child in enumerate(np.random.SeedSequence(0).spawn(_SCRAMBLINGS)):
        unit = sobol(_POINTS_PER_PAIR, a.shape[1] - 1, np.random.default_rng(child))
        for rows in row_blocks(a.shape[0], unit.size, _BLOCK_ELEMENTS):
            n = rows.stop - rows.start
            low, high = (np.repeat(side[rows], unit.shape[0], axis=0) for side in (a, b))
            out[s, rows] = _sequence(low, high, L, np.tile(unit, (n, 1))).reshape(n, -1).mean(axis=1)
    return out


def _sampled(weights: np.ndarray, a: np.ndarray, b: np.ndarray, C: np.ndarray) -> np.ndarray:
    """Σ_c w_c P(a_c ≤ t ≤ b_c), components drawn as often as |w_c|·(least mass of a feature): shape (scramblings,)."""
    a, b, L, bound = _ordered(a, b, C, weights)
    cumulated = np.cumsum(np.abs(weights) * bound)
    if not cumulated[-1] > 0.0:
        return np.zeros(_SCRAMBLINGS)
    out = np.empty(_SCRAMBLINGS)
    for s, child in enumerate(np.random.SeedSequence(0).spawn(_SCRAMBLINGS)):
        unit = sobol(_POINTS, a.shape[1], np.random.default_rng(child))
        c = np.minimum(np.searchsorted(cumulated, unit[:, 0] * cumulated[-1], side="right"), weights.shape[0] - 1)
        out[s] = cumulated[-1] * float(np.mean(np.sign(weights[c]) * _sequence(a[c], b[c], L, unit[:, 1:]) / bound[c]))
    return out
