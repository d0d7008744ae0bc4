"""Where the kernels of some support points live, feature by feature, and rules against the measure
on that region.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence

import numpy as np

from ksos.ground import to_numpy
from ksos.integrals.base import Integrals
from ksos.integrals.gaussian import GaussianLebesgue, in_axes
from ksos.measures import Measure
from ksos.quadrature import (
    MixtureRule,
    cells as cells_of,
    composite,
    cut,
    halved,
    legendre,
    log_outer,
    merged,
    tensor_grid,
)

Source = tuple[Integrals, np.ndarray]
"""A kernel, with its integrals, and its support points."""
Rule = tuple[np.ndarray, np.ndarray]
"""Nodes (N, d) and the logarithms of their weights against the measure."""
Intervals = tuple[np.ndarray, np.ndarray]
"""Starts and ends: of intervals of a feature, or (c, d) of cells."""

_LOG_LEVEL = -32.0  # of k: k² = e^{−64} is rounding even beside large entries of a whitening matrix
_SMOOTH_LOG_LEVEL = -22.0  # for p², which holds the fourth power of k
_CELL_LOG_LEVEL = -20.0  # k² is e^{−40} there
_PANEL_ORDER = 8  # low, as integrands may have kinks inside of a panel; halving it is cheap
_MOST_HALVINGS = 12  # 4096 panels per bandwidth: the number of nodes ends the search long before
_NODES_PER_LENGTH = (3.0, 4.5, 6.5, 9.5, 14.0, 20.0)  # half as many again each: a check costs 2/3


def intervals(
    sources: Sequence[Source],
    feature: int,
    log_level: float = _LOG_LEVEL,
    origin: float | None = None,
) -> tuple[np.ndarray, np.ndarray, float]:
    """(starts, ends, length): disjoint intervals of a feature that hold the kernels of all sources,
    and a length on which they are smooth.

    Ends are relative to ``origin`` (default: the first support point). The space between an outlier
    and the others has no nodes.
    """
    zero = sources[0][1][0, feature] if origin is None else origin
    # relative to the first of each source's points
    ends = [integrals.windows(X, feature, log_level) for integrals, X in sources]
    shifts = [X[0, feature] - zero for _, X in sources]
    low, high = merged(
        *(
            np.concatenate([to_numpy(w[s]) + by for w, by in zip(ends, shifts, strict=True)])
            for s in (0, 1)
        )
    )
    return low[high > low], high[high > low], min(length for *_, length in ends)


def kinks(sources: Sequence[Source], feature: int, origin: float | None = None) -> np.ndarray:
    """Where kernels of the sources have kinks along a feature, relative to ``origin`` (default: the
    first support point).
    """
    zero = sources[0][1][0, feature] if origin is None else origin
    return np.unique(
        np.concatenate(
            [
                np.empty(0),
                *(X[:, feature] - zero for integrals, X in sources if not integrals.kernel.smooth),
            ]
        )
    )


def panel_rules(sources: Sequence[Source], max_nodes: int) -> Iterator[Rule]:
    """Tensor rules on panels of about a bandwidth, then half as long, …: at least two rules, or
    none at all.

    Panels end where a kernel has a kink, as far as the number of nodes allows: it is analytic
    inside of them. There is no rule if two of them would take more than ``max_nodes`` nodes.
    """
    (integrals, X), d = sources[0], sources[0][1].shape[1]
    most = max(2, int(max_nodes ** (1.0 / d) / (2.0 * _PANEL_ORDER)))
    axes = [_panels(sources, k, most) for k in range(d)]
    for halvings in range(_MOST_HALVINGS):
        most = max_nodes // _PANEL_ORDER**d
        panels = [halved(*axis, halvings) for axis in axes]
        found = _reached(sources, panels, _LOG_LEVEL, X[0], most if halvings else most >> d)
        if found is None:
            return
        yield _rule_on(integrals.measure, X[0], *found)


def _reached(
    sources: Sequence[Source], panels: list[Intervals], level: float, zero: np.ndarray, most: int
) -> Intervals | None:
    """The cells that hold a part of some kernel: few of them, if kernels are far apart."""
    windows = []
    for integrals, X in sources:
        each = [integrals.windows(X, k, level)[:2] for k in range(len(panels))]
        windows.append(to_numpy(np.array(each)).T + (X[0] - zero))
    low, high = np.moveaxis(np.concatenate(windows), 1, 0)
    return cells_of(panels, low, high, most)


def _rule_on(measure: Measure, origin: np.ndarray, start: np.ndarray, stop: np.ndarray) -> Rule:
    """A product of Gauss–Legendre rules on each cell."""
    d, (t, w) = start.shape[1], legendre(_PANEL_ORDER)
    half = 0.5 * (stop - start)
    points = origin + (start + half)[:, None] + half[:, None] * tensor_grid([t] * d)
    points = np.clip(points.reshape(-1, d), *measure.boundaries(d))
    logs = np.log(half).sum(axis=1)[:, None] + log_outer([w] * d)
    return points, logs.ravel() + measure.log_density(points)


# Panels that cover the region of a feature: about ``most`` of them, if possible.
def _panels(sources: Sequence[Source], feature: int, most: int) -> tuple[np.ndarray, np.ndarray]:
    low, high, length = intervals(sources, feature)
    breaks = kinks(sources, feature)
    if breaks.shape[0] >= most // 2:
        # too many to end panels at: the error estimate shows what this costs
        breaks = np.empty(0)
    fewest = cut(low, high, np.inf, breaks)[0].shape[0]
    while True:
        start, stop = cut(low, high, length, breaks)
        if start.shape[0] <= max(most, fewest):
            return start, stop
        length *= 1.5


def smooth_rules(sources: Sequence[Source], max_nodes: int) -> Iterator[Rule]:
    """Tensor rules for products of four analytic kernels, finer and finer, of at most ``max_nodes``
    nodes.

    There is one Gauss–Legendre rule per interval of a feature: the error falls exponentially with
    its nodes.
    """
    (integrals, X), d = sources[0], sources[0][1].shape[1]
    for density in _NODES_PER_LENGTH:
        axes = []
        for k in range(d):
            low, high, length = intervals(sources, k, _SMOOTH_LOG_LEVEL)
            counts = np.ceil(
                np.minimum(12 + density * (high - low) / length, max_nodes + 1.0)
            ).astype(int)
            if counts.sum() > max_nodes:
                return
            axes.append(composite(low, high, counts.tolist()))
        if math.prod(nodes.shape[0] for nodes, _ in axes) > max_nodes:
            return
        yield tensor_rule(integrals.measure, X[0], axes)


def tensor_rule(
    measure: Measure, origin: np.ndarray, axes: Sequence[tuple[np.ndarray, np.ndarray]]
) -> Rule:
    """Nodes and log weights against the measure, from a rule for each feature with its nodes
    relative to ``origin``.
    """
    points = tensor_grid([zero + nodes for zero, (nodes, _) in zip(origin, axes, strict=True)])
    # rounding may have put one beyond the boundary
    points = np.clip(points, *measure.boundaries(points.shape[1]))
    return points, log_outer([weights for _, weights in axes]) + measure.log_density(points)


def importance_rules(
    integrals: Integrals, X: np.ndarray, max_nodes: int, seed: int
) -> Iterator[Rule]:
    """Quasi-Monte Carlo rules for many features, once per scrambling.

    The points follow the mixture Σ_i q_i/m, q_i ∝ k(x, x̃_i)²ρ or a density with heavier tails. It
    is at least a multiple of every product k_i k_j ρ, so that the weights are bounded.
    """
    normals, d = integrals.pair_normals(X), X.shape[1]
    # in the axes of the metric
    if normals is not None and normals[1].ndim > 1:
        axes, origin, [(kernel, at_X)] = in_axes((integrals.kernel, X))
        plain = GaussianLebesgue(kernel, integrals.measure, d)
        for y, log_weights in importance_rules(plain, at_X, max_nodes, seed):
            yield origin + y @ np.linalg.inv(axes.V).T, log_weights + axes.log_volume
        return
    centers, scale = (
        (X, integrals.kernel.sigma_vector(d))
        if normals is None
        else (normals[0], normals[1] / math.sqrt(2.0))
    )
    law = MixtureRule(centers, scale, *integrals.measure.boundaries(d), normal=normals is not None)
    for nodes, log_weights in law.rules(max_nodes, seed):
        yield nodes, log_weights + integrals.measure.log_density(nodes)


def cells(
    integrals: Integrals, X: np.ndarray, side: float, most: int, *, split_kinks: bool = True
) -> Intervals | None:
    """(start, stop), each of shape (c, d), of cells that hold all of a density, with sides of at
    most ``side`` smooth lengths.

    Cells that no support point reaches are dropped; with ``split_kinks``, a cell ends where the
    kernel has a kink. None if there would be more than ``most``.
    """
    source, axes = [(integrals, X)], []
    for k in range(X.shape[1]):
        low, high, smooth = intervals(source, k, _CELL_LOG_LEVEL, origin=0.0)
        axes.append(
            cut(low, high, side * smooth, kinks(source, k, origin=0.0) if split_kinks else None)
        )
    return _reached(source, axes, _CELL_LOG_LEVEL, np.zeros(X.shape[1]), most)
