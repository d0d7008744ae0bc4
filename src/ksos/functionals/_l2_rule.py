"""Quadrature for products of four kernels: as few nodes as analytic kernels allow, since every evaluation of the functional visits all."""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence

import numpy as np

from ksos._array import to_numpy
from ksos.density import SoSDensity
from ksos.exceptions import IntegralNotAvailableError
from ksos.integrals import Integrals, closed_form
from ksos.measures import Discrete
from ksos.observables import merged_intervals, node_rules, tensor_rule
from ksos.space import SoSSpace

__all__ = ["l2_rule"]

_AGREEMENT = 1e-11
_MOST_NODES = 1 << 16
_MOST_FEATURES = 3
_NODES_PER_LENGTH = (3.0, 4.5, 6.5, 9.5, 14.0, 20.0)
_LOG_LEVEL = -22.0  # of k: p² holds its fourth power
_NEGLIGIBLE = 1e-17


def l2_rule(space: SoSSpace, target: SoSDensity | None) -> tuple[np.ndarray, np.ndarray, float]:
    """Nodes, log weights, and how far ∫p²dρ may be off with them, estimated, in units of exp(−log_unit)."""
    if isinstance(space.measure, Discrete):
        return to_numpy(space.measure.points), np.log(to_numpy(space.measure.weights)), 0.0
    d = space.n_features
    sources = [(closed_form(space.kernel, space.measure, d), to_numpy(space.support_points))]
    if target is not None:
        sources.append((target.integrals, to_numpy(target.support_points)))
    smooth = all(integrals.kernel.smooth for integrals, _ in sources)
    found, previous, error = None, math.nan, math.inf
    for nodes, log_weights in () if d > _MOST_FEATURES else _global_rules(sources) if smooth else node_rules(sources, _MOST_NODES):
        squares = np.sum(to_numpy(space.basis(nodes)) ** 2, axis=1)  # p ≤ ‖ψ‖² for every density of the space
        if target is not None:
            squares = np.maximum(squares, to_numpy(target.pdf(nodes)) * math.exp(space.log_unit))
        parts = np.exp(log_weights - space.log_unit) * squares**2
        total = float(parts.sum())
        keep = parts > _NEGLIGIBLE * total
        found, error, previous = (nodes[keep], log_weights[keep]), abs(total - previous), total
        if error <= _AGREEMENT * total:
            break
    if found is None:
        raise IntegralNotAvailableError(
            f"the L² distance on {space.measure!r} with {d} features would need more than {_MOST_NODES} nodes; use a discrete measure "
            "for the space, such as Discrete.qmc(box, …)"
        )
    return *found, error


def _global_rules(sources: Sequence[tuple[Integrals, np.ndarray]]) -> Iterator[tuple[np.ndarray, np.ndarray]]:
    """One Gauss–Legendre rule per stretch of a feature: for analytic kernels the error falls exponentially with its nodes."""
    (integrals, X), d = sources[0], sources[0][1].shape[1]
    for density in _NODES_PER_LENGTH:
        axes = []
        for k in range(d):
            stretches, length = merged_intervals(sources, k, _LOG_LEVEL)
            counts = [math.ceil(12 + density * (b - a) / length) for a, b in stretches]
            rules = [np.polynomial.legendre.leggauss(n) for n in counts]
            halves = [0.5 * (b - a) for a, b in stretches]
            nodes = np.concatenate([a + half * (1.0 + t) for (a, _), half, (t, _) in zip(stretches, halves, rules, strict=True)])
            axes.append((nodes, np.concatenate([half * weights for half, (_, weights) in zip(halves, rules, strict=True)])))
        if math.prod(axis[0].shape[0] for axis in axes) > _MOST_NODES:
            return
        yield tensor_rule(integrals.measure, X[0], axes)
