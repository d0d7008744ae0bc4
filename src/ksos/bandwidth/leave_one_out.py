"""The bandwidth with which left-out samples are predicted well."""

from __future__ import annotations

import numpy as np
from scipy.special import logsumexp

from ksos._memory import row_blocks
from ksos._validation import as_bandwidth
from ksos.bandwidth.normal_reference import robust_silverman
from ksos.integrals import closed_form
from ksos.kernels import Kernel
from ksos.measures import Discrete, Measure

__all__ = ["left_out", "widest_good"]

_MOST_POINTS = 600
_MOST_DISTANCES, _FEWEST_POINTS = 1 << 21, 100  # to the nodes of a discrete measure
_BLOCK_ELEMENTS = 1 << 18
_FARTHEST = 1e100  # nats: its square is a float
_MULTIPLES = tuple(2.0 ** (0.5 * k) for k in range(-16, 3))
_OUTLYING, _WITHIN, _MOST_NATS = 10.0, 1.0, 4.0
_WIDER = 0.4


def left_out(points: np.ndarray, weights: np.ndarray, rng: np.random.Generator, kernel: Kernel, measure: Measure) -> np.ndarray:
    """(1 + 0.4/d) times the η per feature for which the bumps k_η(·,x_j)²/∫k_η(x,x_j)²dρ around all other samples predict each sample well.

    The features share one multiple of their own spreads in Silverman's rule: the widest that is nearly the best (:func:`widest_good`).
    Samples that even the widest of all leaves far from the others do not count, so that a few outliers do not widen it. Beyond 600
    distinct points (fewer where a discrete ρ has thousands of nodes): on a subset of them, always the same, corrected for its size. A sum
    of squares is sharper than that kernel density estimate and takes a wider kernel, the less so the more features there are.
    """
    n, d = points.shape
    unit = robust_silverman(points, weights)
    if n < 2:
        return unit
    correction, most = 1.0, _MOST_POINTS
    if isinstance(measure, Discrete):
        most = min(most, max(_FEWEST_POINTS, _MOST_DISTANCES // measure.points.shape[0]))
    if n > most:
        chosen = np.sort(np.random.default_rng(0).choice(n, most, replace=False))  # what a default gives must not be a matter of chance
        points, weights, correction = points[chosen], weights[chosen] / weights[chosen].sum(), (most / n) ** (1.0 / (d + 4))
    scale = as_bandwidth(np.where(unit > 0.0, unit, 1.0), "bandwidth='auto': rescale the data: their bandwidth")

    def logs(multiple: float) -> np.ndarray:
        return _predictions(points, weights, kernel.with_sigma(multiple * scale), measure)

    known = {multiple: logs(multiple) for multiple in _MULTIPLES}
    counted = _without_outliers(known[max(_MULTIPLES)], weights)
    best = max(known, key=lambda multiple: float(counted @ known[multiple]))
    for k in range(-3, 8):
        known[best * 2.0 ** (k / 8.0)] = logs(best * 2.0 ** (k / 8.0))
    multiples = sorted(known)
    multiple = multiples[widest_good(np.stack([known[multiple] for multiple in multiples]), counted, _WITHIN)]
    return np.asarray((1.0 + _WIDER / d) * correction * multiple * unit)


def _predictions(points: np.ndarray, weights: np.ndarray, kernel: Kernel, measure: Measure) -> np.ndarray:
    """The log-density of each sample under the kernel density estimate of all the others."""
    bumps = np.log(weights) + _log_bumps(points, kernel, measure)
    np.fill_diagonal(bumps, -np.inf)
    highest = bumps.max(axis=1)
    return np.asarray(highest + np.log(np.exp(bumps - highest[:, None]).sum(axis=1)))


def _log_bumps(points: np.ndarray, kernel: Kernel, measure: Measure) -> np.ndarray:
    """log k(x_i,x_j)²/∫k(x,x_j)²dρ; of a discrete ρ at the node nearest to x_i, for between the nodes it bounds no density."""
    if not isinstance(measure, Discrete):
        return np.asarray(_log_square(kernel, points, points) - closed_form(kernel, measure, points.shape[1]).log_diagonal(points))
    closed_form(kernel, measure, points.shape[1])  # says what does not fit
    nearest, log_masses = np.empty(points.shape[0], dtype=int), np.empty(points.shape[0])
    for rows in row_blocks(points.shape[0], measure.points.shape[0], _BLOCK_ELEMENTS):
        at_nodes = _log_square(kernel, points[rows], measure.points)
        nearest[rows] = np.argmax(at_nodes, axis=1)
        log_masses[rows] = logsumexp(at_nodes + np.log(measure.weights), axis=1)
    return _log_square(kernel, measure.points[nearest], points) - log_masses


def _log_square(kernel: Kernel, X: np.ndarray, Y: np.ndarray) -> np.ndarray:
    return np.asarray(2.0 * np.maximum(kernel.log(X, Y), -_FARTHEST))


def _without_outliers(logs: np.ndarray, weights: np.ndarray) -> np.ndarray:
    """The weights of the samples (sum 1), 0 for those more than ten nats less likely than the weighted median."""
    order = np.argsort(logs, kind="stable")
    middle = logs[order][np.searchsorted(np.cumsum(weights[order]), 0.5 * weights.sum())]
    counted = np.where(logs >= middle - _OUTLYING, weights, 0.0)
    return np.asarray(counted / counted.sum())


def widest_good(logs: np.ndarray, weights: np.ndarray, within: float) -> int:
    """The last row of ``logs`` (bandwidths in ascending order, held-out samples) whose mean is nearly the best.

    Nearly: behind by at most ``within`` standard errors of the difference, and by at most four nats over all samples, for a standard error
    may be large because of a few samples. A bandwidth that is too narrow costs far more on fresh samples, in its tails, than one that is
    too wide; the held-out samples, being few, may not know.
    """
    logs = np.maximum(logs, -_FARTHEST)
    scores = logs @ weights
    behind = logs[int(np.argmax(scores))] - logs
    loss = behind @ weights
    one_sample = float(weights @ weights)  # 1/n for equal weights
    error = np.sqrt(np.maximum((behind - loss[:, None]) ** 2 @ weights, 0.0) * one_sample)
    return int(np.flatnonzero(loss <= np.minimum(within * error, _MOST_NATS * one_sample))[-1])
