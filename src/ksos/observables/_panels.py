"""Tensor Gauss–Legendre rules on the region where the kernels of some support points live, finer and finer."""

from __future__ import annotations

import itertools
import math
from collections.abc import Iterator, Sequence

import numpy as np

from ksos._array import to_numpy
from ksos.integrals import Integrals
from ksos.measures import Measure

__all__ = ["merged_intervals", "panel_rules", "tensor_rule"]

_NODES, _WEIGHTS = np.polynomial.legendre.leggauss(8)
_LOG_LEVEL = -32.0  # of k, whose square is below rounding there even beside the large entries of a whitening matrix
_MOST_HALVINGS = 12


def panel_rules(sources: Sequence[tuple[Integrals, np.ndarray]], max_nodes: int) -> Iterator[tuple[np.ndarray, np.ndarray]]:
    """(nodes, log weights) against the measure that the sources (a kernel with its support points each) share.

    Panels are about a bandwidth long, then half as long, …: at least two rules, or none at all.

    Panels end where the kernel has a kink, as far as the number of nodes allows: it is analytic inside them. There is no rule where two
    of them would take more than ``max_nodes`` nodes.
    """
    integrals, X = sources[0]
    d = X.shape[1]
    most = max(2, int(max_nodes ** (1.0 / d) / (2.0 * _NODES.shape[0])))
    axes = [_panels(sources, k, most) for k in range(d)]
    for halvings in range(_MOST_HALVINGS):
        total = math.prod(_NODES.shape[0] * start.shape[0] * 2 ** max(halvings, 1) for start, _ in axes)
        if total > max_nodes:
            return
        yield tensor_rule(integrals.measure, X[0], [_nodes_of(*_halved(start, length, halvings)) for start, length in axes])


def merged_intervals(
    sources: Sequence[tuple[Integrals, np.ndarray]], k: int, log_level: float = _LOG_LEVEL
) -> tuple[list[tuple[float, float]], float]:
    """Of feature k, relative to the first point: the windows of all support points, merged, and the length on which kernels are smooth.

    An outlier must not make the space between a matter of quadrature.
    """
    origin = sources[0][1][0, k]
    ends: list[tuple[float, float]] = []
    lengths = []
    for integrals, X in sources:
        low, high, smooth = integrals.windows(X, k, log_level)  # relative to the first of its own points
        move = X[0, k] - origin
        ends += zip((to_numpy(low) + move).tolist(), (to_numpy(high) + move).tolist(), strict=True)
        lengths.append(smooth)
    out: list[tuple[float, float]] = []
    for a, b in sorted(ends):
        if out and a <= out[-1][1]:
            out[-1] = (out[-1][0], max(b, out[-1][1]))
        elif a < b:
            out.append((a, b))
    return out, min(lengths)


def _panels(sources: Sequence[tuple[Integrals, np.ndarray]], k: int, most: int) -> tuple[np.ndarray, np.ndarray]:
    """Starts and lengths of panels that cover the windows of all support points, relative to X_0k: about ``most`` of them, if they can."""
    origin = sources[0][1][0, k]
    stretches, length = merged_intervals(sources, k)
    breaks = [X[:, k] - origin for integrals, X in sources if not integrals.kernel.smooth]
    kinks = np.unique(np.concatenate([np.empty(0), *breaks]))
    if kinks.shape[0] >= most // 2:
        kinks = np.empty(0)  # too many to honour: the error estimate will tell
    while True:
        starts, widths = [], []
        for a, b in stretches:
            ends = np.r_[a, kinks[(kinks > a) & (kinks < b)], b]
            for left, right in itertools.pairwise(ends.tolist()):
                n = max(1, math.ceil((right - left) / length))
                starts.append(left + (right - left) / n * np.arange(n))
                widths.append(np.full(n, (right - left) / n))
        total = sum(part.shape[0] for part in starts)
        if total <= most or total == len(starts):
            return np.concatenate(starts), np.concatenate(widths)
        length *= 1.5


def _halved(start: np.ndarray, length: np.ndarray, times: int) -> tuple[np.ndarray, np.ndarray]:
    pieces = 2**times
    short = length / pieces
    return (start[:, None] + short[:, None] * np.arange(pieces)).ravel(), np.repeat(short, pieces)


def tensor_rule(measure: Measure, origin: np.ndarray, axes: Sequence[tuple[np.ndarray, np.ndarray]]) -> tuple[np.ndarray, np.ndarray]:
    """Nodes and log weights against the measure, from a rule for each feature with its nodes relative to ``origin``."""
    log_weights = np.zeros(1)
    for _, weights in axes:
        log_weights = np.add.outer(log_weights, np.log(weights)).ravel()
    grids = np.meshgrid(*(zero + nodes for zero, (nodes, _) in zip(origin, axes, strict=True)), indexing="ij")
    points = np.stack([grid.ravel() for grid in grids], axis=1)
    low, high = (np.array([measure.walls(k)[side] for k in range(points.shape[1])]) for side in (0, 1))
    points = np.clip(points, low, high)  # rounding may have put one beyond a wall
    return points, log_weights + measure.log_density(points)


def _nodes_of(start: np.ndarray, length: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    half = 0.5 * length[:, None]
    return (start[:, None] + half + half * _NODES).ravel(), (half * _WEIGHTS).ravel()
