"""Nodes for losses that are code: a rule fine enough for the densities of a space, and a finer one that tells how good it is."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from ksos._array import to_numpy
from ksos.integrals import closed_form
from ksos.integrals.regions import importance_rules, panel_rules
from ksos.measures import Discrete
from ksos.space import SoSSpace

__all__ = ["Nodes", "nodes_of"]

_TENSOR_FEATURES = 3
_BUDGETS = (1 << 8, 1 << 10, 1 << 12, 1 << 14, 1 << 16)
_AGREE = 1e-8
_SCATTERED = 1 << 16


@dataclass(frozen=True)
class Nodes:
    """Points x_n, and ψ(x_n)√w_n in natural units, so that masses are quadratic in the rows."""

    points: np.ndarray
    psi: np.ndarray
    mass: np.ndarray
    """Σ w_n ψψᵀ: the identity for an exact rule."""


def nodes_of(space: SoSSpace, finer: bool = False) -> Nodes:
    """The coarsest rule on whose Σ w_nψψᵀ the next one agrees to 1e-8; with ``finer``, that next one.

    Up to three features: Gauss–Legendre panels. Beyond: scrambled Sobol' points, of which ``finer`` takes another scrambling.
    """
    measure, X = space.measure, to_numpy(space.support_points)
    if isinstance(measure, Discrete):
        return _at(space, to_numpy(measure.points), np.log(to_numpy(measure.weights)))
    integrals = closed_form(space.kernel, measure, X.shape[1])
    previous: Nodes | None = None
    if X.shape[1] <= _TENSOR_FEATURES:
        for budget in _BUDGETS:
            for points, log_weights in panel_rules([(integrals, X)], budget):
                if previous is not None and points.shape[0] <= previous.points.shape[0]:
                    continue
                nodes = _at(space, points, log_weights)
                if previous is not None and np.abs(nodes.mass - previous.mass).max() <= _AGREE:
                    return nodes if finer else previous
                previous = nodes
    if previous is not None:
        return previous
    rules = importance_rules(integrals, X, _SCATTERED, 1 if finer else 0)
    return _at(space, *next(rules))


def _at(space: SoSSpace, points: np.ndarray, log_weights: np.ndarray) -> Nodes:
    half = 0.5 * (log_weights - space.log_unit)
    with np.errstate(under="ignore"):
        psi = np.exp(space.kernel.log(points, to_numpy(space.support_points)) + half[:, None]) @ to_numpy(space.T)
    return Nodes(points, psi, psi.T @ psi)
