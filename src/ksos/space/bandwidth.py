"""Rules for the bandwidth: all of them scale with the data, count weighted samples as repeated
ones, and do not see a shift.
"""

from __future__ import annotations

import math
import warnings
from collections.abc import Callable
from typing import Any, NamedTuple

import numpy as np
from numpy.random import Generator
from scipy.spatial.distance import pdist
from scipy.special import logsumexp

from ksos.ground.memory import row_blocks
from ksos.ground.names import quoted
from ksos.ground.validation import as_bandwidth
from ksos.integrals import closed_form
from ksos.kernels import Gaussian, Kernel
from ksos.measures import Lebesgue, Measure

__all__ = ["RULES", "LeftOut", "Rule", "bandwidth_rule", "left_out", "median", "predict_left_out"]
__all__ += [
    "robust_silverman",
    "scott",
    "silverman",
    "spreads",
    "subset_and_factor",
    "widest_good",
    "without_outliers",
]

Rule = Callable[..., np.ndarray]
"""A function of distinct points, their weights, a generator for subsets, the kernel's family and ρ,
and as ``count`` of how many samples the points stand for if they are a part of them: one bandwidth,
or one per feature.
"""

_MOST_POINTS = 600
_MOST_DISTANCES, _FEWEST_POINTS = 1 << 21, 100  # to the nodes of a discrete measure
_BLOCK_ELEMENTS = 1 << 18
_FARTHEST = 1e100  # nats: its square is a float
_MULTIPLES = tuple(2.0 ** (0.5 * k) for k in range(-16, 3))
_OUTLYING, _WITHIN, _MOST_NATS = 10.0, 1.0, 4.0
_WIDER, _WIDEST, _UNSURE = 0.4, 0.25, 1.5
_MOST_MEDIAN_POINTS = 3000  # 4.5 million pairs
_UNLIKE = 10.0


def bandwidth_rule(
    name: str,
    points: np.ndarray,
    weights: np.ndarray,
    rng: Generator,
    *,
    kernel: Kernel | None = None,
    measure: Measure | None = None,
    count: int | None = None,
    names: Any = None,
) -> np.ndarray:
    """The bandwidth that rule ``name`` gives for distinct ``points`` with ``weights`` (sum 1): a
    scalar or one entry per feature.

    Zero spread gives 1, with a warning that says the ``names`` of the features, if there are any.
    ``count``: how many samples the points stand for, if they are a part of them. Only "auto" looks
    at ``kernel`` (its bandwidth aside; default: Gaussian) and at ``measure`` (default: Lebesgue).
    """
    with np.errstate(over="ignore"):
        extent = np.ptp(points, axis=0)
    if not np.all(np.isfinite(extent)):
        raise ValueError(
            f"bandwidth={name!r}: differences between the samples overflow; rescale the data or"
            " pass a number as bandwidth"
        )
    kernel, measure = (
        Gaussian(1.0) if kernel is None else kernel,
        Lebesgue() if measure is None else measure,
    )
    spread = RULES[name](points, weights, rng, kernel, measure, count=count)
    if np.any(spread == 0.0):
        still = np.flatnonzero(spread == 0.0)
        told = still.tolist() if names is None else quoted([str(names[k]) for k in still])
        where = "the points have" if spread.ndim == 0 else f"feature(s) {told} have"
        warnings.warn(
            f"bandwidth={name!r}: {where} no spread; the bandwidth is set to 1 there",
            UserWarning,
            stacklevel=2,
        )
    return as_bandwidth(
        np.where(spread == 0.0, 1.0, spread),
        f"bandwidth={name!r}: rescale the data: their bandwidth",
    )


# --- rules that would suit samples of one normal distribution ---


def _normal_reference(constant: Callable[[int], float]) -> Rule:
    """η = 2h with h = constant(d)·n^{−1/(d+4)}·(standard deviation), per feature: a squared
    Gaussian kernel then has deviation h.
    """

    def rule(
        points: np.ndarray,
        weights: np.ndarray,
        rng: Generator,
        kernel: Kernel,
        measure: Measure,
        *,
        count: int | None = None,
    ) -> np.ndarray:
        d, n = points.shape[1], _effective_size(weights, count)
        return np.asarray(2.0 * constant(d) * n ** (-1.0 / (d + 4)) * _deviations(points, weights))

    return rule


scott = _normal_reference(lambda d: 1.0)
"""Scott's rule [Scott1992]."""
silverman = _normal_reference(lambda d: ((d + 2) / 4.0) ** (-1.0 / (d + 4)))
"""Silverman's rule [Silverman1986]."""


def robust_silverman(
    points: np.ndarray, weights: np.ndarray, count: int | None = None
) -> np.ndarray:
    """Silverman's rule with spreads that do not see outliers; the points may stand for ``count``
    samples.
    """
    d, n = points.shape[1], _effective_size(weights, count)
    return 2.0 * ((d + 2) / 4.0 * n) ** (-1.0 / (d + 4)) * spreads(points, weights)


def _effective_size(weights: np.ndarray, count: int | None) -> float:
    """1/Σa² of all samples, of which those with these ``weights`` are a part."""
    return (1.0 if count is None else count / weights.shape[0]) / float(weights @ weights)


# --- the median distance between the samples ---


def median(
    points: np.ndarray,
    weights: np.ndarray,
    rng: Generator,
    kernel: Kernel,
    measure: Measure,
    *,
    most_points: int = _MOST_MEDIAN_POINTS,
    count: int | None = None,
) -> np.ndarray:
    """Weighted median of the distances between distinct points, the pair (i, j) weighing a_i a_j.

    Where spreads of features differ by more than a factor of ten, distances are taken in units of
    them and there is one bandwidth per feature: a scalar would not see the features of small
    spread. Beyond ``most_points`` distinct points: of a random subset of them.
    """
    spread = spreads(points, weights)
    known = spread[spread > 0.0]
    if known.size and known.max() > _UNLIKE * known.min():
        units = np.where(spread > 0.0, spread, np.median(known))
        return np.asarray(
            _median_distance(
                (points - np.median(points, axis=0)) / units, weights, rng, most_points
            )
            * units
        )
    return _median_distance(points, weights, rng, most_points)


def _median_distance(
    points: np.ndarray, weights: np.ndarray, rng: Generator, most_points: int
) -> np.ndarray:
    if points.shape[0] > most_points:
        chosen = np.sort(rng.choice(points.shape[0], most_points, replace=False))
        points, weights = points[chosen], weights[chosen]
    if points.shape[0] < 2:
        return np.zeros(())
    # distances of 1e±150 are squared in a unit near the largest, a power of two: no digit of the
    # points or of their differences changes
    exponent = math.frexp(np.ptp(points, axis=0).max())[1]
    middle = _weighted_median(pdist(np.ldexp(points, -exponent)), weights)
    if (
        middle < 1e-150
    ):  # there the squares have underflowed: take a unit near the median, found from distances that need no squares
        exponent = math.frexp(_weighted_median(pdist(points, "chebyshev"), weights))[1]
        with np.errstate(over="ignore"):
            middle = _weighted_median(
                pdist(np.clip(np.ldexp(points, -exponent), -1e150, 1e150)), weights
            )
    return np.asarray(np.ldexp(middle, exponent))


def _weighted_median(distances: np.ndarray, weights: np.ndarray) -> float:
    """The middle of the interval of minimisers of Σ_{i<j} a_i a_j |d_ij − t|: for equal weights,
    NumPy's median.
    """
    if np.all(weights == weights[0]):
        return float(np.median(distances))
    i, j = np.triu_indices(weights.shape[0], 1)
    order = np.argsort(distances)
    values, cumulative = distances[order], np.cumsum((weights[i] * weights[j])[order])
    half = 0.5 * cumulative[-1]
    # rounding of the cumulative sum must not decide between one middle value and two
    slack = 1e-12 * cumulative[-1]
    low, high = np.searchsorted(cumulative, [half - slack, half + slack])
    return float(0.5 * (values[low] + values[min(high, values.shape[0] - 1)]))


# --- the bandwidth with which left-out samples are predicted well ---


class LeftOut(NamedTuple):
    """How well bumps of one shape predict left-out samples."""

    multiple: float
    """The widest multiple of the shape that is nearly the best."""
    logs: np.ndarray
    """There, the log-density of each sample under the bumps of the others."""
    counted: np.ndarray
    """The weights of the samples, 0 for outliers."""


def left_out(
    points: np.ndarray,
    weights: np.ndarray,
    rng: Generator,
    kernel: Kernel,
    measure: Measure,
    *,
    most_points: int = _MOST_POINTS,
    unit: np.ndarray | None = None,
    count: int | None = None,
) -> np.ndarray:
    """Somewhat more than the η per feature with which the bumps k_η(·,x_j)²/∫k_η(x,x_j)²dρ around
    all other samples predict each one.

    The features share one multiple of a ``unit``, by default their own spreads in Silverman's rule:
    the widest multiple that is nearly the best (:func:`widest_good`). Samples that even the widest
    of all leaves far from the others do not count, so that a few outliers do not widen it. Beyond
    ``most_points`` distinct points (fewer if a discrete ρ has thousands of nodes), a subset of them
    is used, always the same, corrected for its size and for that of the ``count`` samples that the
    points stand for. A sum of squares is sharper than that kernel density estimate and takes a
    kernel that is wider by min(0.25, max(0.4/d, 1.5/√n)): the less so the more features there are,
    but with few samples enough for highest-density regions that hold their share of new ones.
    """
    unit = robust_silverman(points, weights, count) if unit is None else unit
    if points.shape[0] < 2:
        return unit
    scale = as_bandwidth(
        np.where(unit > 0.0, unit, 1.0), "bandwidth='auto': rescale the data: their bandwidth"
    )
    few, their_weights, factor = subset_and_factor(points, weights, measure, most_points, count)
    return np.asarray(
        factor
        * predict_left_out(few, their_weights, kernel.with_sigma(scale), measure).multiple
        * unit
    )


def subset_and_factor(
    points: np.ndarray,
    weights: np.ndarray,
    measure: Measure,
    most_points: int = _MOST_POINTS,
    count: int | None = None,
) -> tuple[np.ndarray, np.ndarray, float]:
    """The points that are looked at, their weights, and how much wider than their bumps the kernel
    of a sum of squares is.
    """
    n, d = points.shape
    most = most_points
    if (atoms := measure.atoms) is not None:
        most = min(most, max(_FEWEST_POINTS, _MOST_DISTANCES // atoms.points.shape[0]))
    if n > most:
        chosen = np.sort(
            np.random.default_rng(0).choice(n, most, replace=False)
        )  # a default must not depend on chance
        points, weights = points[chosen], weights[chosen] / weights[chosen].sum()
    total = n if count is None else count
    wider = min(_WIDEST, max(_WIDER / d, _UNSURE / math.sqrt(total)))
    return points, weights, (1.0 + wider) * (points.shape[0] / total) ** (1.0 / (d + 4))


def predict_left_out(
    points: np.ndarray, weights: np.ndarray, shape: Kernel, measure: Measure
) -> LeftOut:
    """The widest good multiple of the bandwidth of ``shape``."""

    log_k = shape.log_at_widths(points, points)

    def logs(multiple: float) -> np.ndarray:
        return _predictions(
            points, weights, shape.scaled(multiple), measure, lambda: log_k(multiple)
        )

    known = {multiple: logs(multiple) for multiple in _MULTIPLES}
    counted = without_outliers(known[max(_MULTIPLES)], weights)
    best = max(known, key=lambda multiple: float(counted @ known[multiple]))
    for k in range(-3, 8):
        known[best * 2.0 ** (k / 8.0)] = logs(best * 2.0 ** (k / 8.0))
    multiples = sorted(known)
    chosen = multiples[
        widest_good(np.stack([known[multiple] for multiple in multiples]), counted, _WITHIN)
    ]
    return LeftOut(chosen, known[chosen], counted)


def _predictions(
    points: np.ndarray,
    weights: np.ndarray,
    kernel: Kernel,
    measure: Measure,
    log_k: Callable[[], np.ndarray],
) -> np.ndarray:
    """The log-density of each sample under the kernel density estimate of all the others; ``log_k``
    gives log k between them.
    """
    bumps = _log_bumps(points, kernel, measure, log_k)
    bumps += np.log(weights)
    np.fill_diagonal(bumps, -np.inf)
    highest = bumps.max(axis=1)
    bumps -= highest[:, None]
    return np.asarray(highest + np.log(np.exp(bumps, out=bumps).sum(axis=1)))


def _log_bumps(
    points: np.ndarray, kernel: Kernel, measure: Measure, log_k: Callable[[], np.ndarray]
) -> np.ndarray:
    """log k(x_i,x_j)²/∫k(x,x_j)²dρ; of a discrete ρ at the node nearest to x_i, for between the
    nodes it bounds no density.
    """
    if (atoms := measure.atoms) is None:
        bumps = np.maximum(log_k(), -_FARTHEST)
        bumps *= 2.0
        bumps -= closed_form(kernel, measure, points.shape[1]).log_diagonal(points)
        return bumps
    closed_form(kernel, measure, points.shape[1])  # says what does not fit
    nearest, log_masses = np.empty(points.shape[0], dtype=int), np.empty(points.shape[0])
    for rows in row_blocks(points.shape[0], atoms.points.shape[0], _BLOCK_ELEMENTS):
        at_nodes = _log_square(kernel, points[rows], atoms.points)
        nearest[rows] = np.argmax(at_nodes, axis=1)
        log_masses[rows] = logsumexp(at_nodes + np.log(atoms.weights), axis=1)
    return _log_square(kernel, atoms.points[nearest], points) - log_masses


def _log_square(kernel: Kernel, X: np.ndarray, Y: np.ndarray) -> np.ndarray:
    return np.asarray(2.0 * np.maximum(kernel.log(X, Y), -_FARTHEST))


def without_outliers(logs: np.ndarray, weights: np.ndarray) -> np.ndarray:
    """The weights of the samples (sum 1), 0 for those more than ten nats less likely than the
    weighted median.
    """
    order = np.argsort(logs, kind="stable")
    middle = logs[order][np.searchsorted(np.cumsum(weights[order]), 0.5 * weights.sum())]
    counted = np.where(logs >= middle - _OUTLYING, weights, 0.0)
    return np.asarray(counted / counted.sum())


def widest_good(logs: np.ndarray, weights: np.ndarray, within: float) -> int:
    """The last row of ``logs`` (bandwidths in ascending order, held-out samples) whose mean is
    nearly the best.

    Nearly: behind by at most ``within`` standard errors of the difference, and by at most four nats
    over all samples, for a standard error may be large because of a few samples. A bandwidth that
    is too narrow costs far more on fresh samples, in its tails, than one that is too wide; the
    held-out samples, being few, may not know.
    """
    logs = np.maximum(logs, -_FARTHEST)
    scores = logs @ weights
    behind = logs[int(np.argmax(scores))] - logs
    loss = behind @ weights
    one_sample = float(weights @ weights)  # 1/n for equal weights
    error = np.sqrt(np.maximum((behind - loss[:, None]) ** 2 @ weights, 0.0) * one_sample)
    return int(np.flatnonzero(loss <= np.minimum(within * error, _MOST_NATS * one_sample))[-1])


def _deviations(points: np.ndarray, weights: np.ndarray) -> np.ndarray:
    """The standard deviation of each feature."""
    scale = np.ptp(
        points, axis=0
    )  # features of 1e±150 are squared in units of this; 0 for a constant one
    unit = (points - points[0]) / np.where(scale > 0.0, scale, 1.0)
    return np.asarray(scale * np.sqrt(weights @ (unit - weights @ unit) ** 2))


def spreads(points: np.ndarray, weights: np.ndarray) -> np.ndarray:
    """Per feature the lesser of standard deviation and (interquartile range)/1.349, if the latter
    is not zero.
    """
    deviation = _deviations(points, weights)
    order = np.argsort(points, axis=0, kind="stable")
    x, w = np.take_along_axis(points, order, axis=0), weights[order]
    x = x - x[x.shape[0] // 2]  # a middle one: an outlier would take the digits of all others
    cumulative = np.cumsum(w, axis=0) - 0.5 * w
    low, high = (
        np.array([np.interp(level, cumulative[:, k], x[:, k]) for k in range(points.shape[1])])
        for level in (0.25, 0.75)
    )
    return np.where(high > low, np.minimum((high - low) / 1.349, deviation), deviation)


RULES: dict[str, Rule] = {
    "auto": left_out,
    "median": median,
    "scott": scott,
    "silverman": silverman,
}
"""Every rule by name."""
