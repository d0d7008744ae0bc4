"""Rules that integrate products of a model's kernels to rounding, so that a basis is formed at
nodes instead of inside of integrals.

An integral ∫ ψ_a ψ_b f dρ with ψ = Tᵀk takes T once at the nodes of such a rule. The closed form of
∫ k_i k_j f dρ takes it from both sides: where T is large, because the space has weak directions,
what cancels there is the square of what cancels here.
"""

from __future__ import annotations

import math
from collections.abc import Sequence

import numpy as np

from ksos.ground import Array, like, namespace, quiet
from ksos.integrals.base import Integrals
from ksos.integrals.regions import Rule, intervals, tensor_rule
from ksos.kernels import Kernel
from ksos.quadrature import composite, cut, tensor_grid

Factor = tuple[Kernel, np.ndarray]
"""A kernel and its centers."""

_MOST_FEATURES = 3  # 24 nodes per feature are 14,000 in three features and 330,000 in four
_FAR = 1e5  # lengths from the first point: nodes farther away have lost digits that matter
_OUTSIDE = 3.0  # lengths beyond a boundary: farther, k² falls too steeply for _NODES_PER_LENGTH
_LEAST_NODES = 16  # for analytic kernels, on an interval: what a short one takes
_NODES_PER_LENGTH = 8.0  # more for each length: a product of three Gaussian functions, to rounding


def exact_rule(
    integrals: Integrals,
    X: np.ndarray,
    others: Sequence[Factor],
    most: float,
    degree: int = 0,
    error: float = 1e-18,
) -> Rule | None:
    """Nodes x − X_0 and log weights for ∫ k(x, X_i) k(x, X_j) f(x) dρ(x); None if this takes more
    than ``most`` nodes, or none is known.

    f is the product of a polynomial of ``degree`` and one factor k_σ(x, z) for each of ``others``.
    The atoms of a discrete measure are the rule that they are. Otherwise, in up to three features,
    the rule is a product of Gauss–Legendre rules: for analytic kernels with so many nodes per
    bandwidth that the error is rounding; else on panels that end at every kink, with about this
    relative ``error`` on each. Nodes are relative to the first support point: far from the origin,
    where points are rounded, their differences are not.
    """
    if (atoms := integrals.measure.atoms) is not None:
        return (
            (atoms.points - X[0], np.log(atoms.weights)) if atoms.points.shape[0] <= most else None
        )
    d, factors = X.shape[1], [(integrals.kernel, X), (integrals.kernel, X), *others]
    if d > _MOST_FEATURES or not all(kernel.separable(d) for kernel, _ in factors):
        return None
    total, axes = 1.0, []
    for k in range(d):
        low, high, length = intervals([(integrals, X)], k)
        length = min(
            length,
            integrals.measure.smooth_length(d)[k],
            *(kernel.sigma_vector(d)[k] for kernel, _ in factors),
        )
        if (
            float((high - low).sum()) / length > most
            or float(np.abs(X[:, k] - X[0, k]).max()) > _FAR * length
        ):
            return None
        bottom, top = integrals.measure.boundary(k)
        # kernels fall steeply far from their points
        if float(max((bottom - X[:, k]).max(), (X[:, k] - top).max())) > _OUTSIDE * length:
            return None
        if all(kernel.smooth for kernel, _ in factors):
            counts = np.ceil(
                _LEAST_NODES + 0.5 * degree + _NODES_PER_LENGTH * (high - low) / length
            ).astype(int)
        else:
            low, high, counts = _between_kinks(
                low,
                high,
                length,
                [(kernel, x[:, k] - X[0, k]) for kernel, x in factors],
                degree,
                error,
            )
        if (total := total * float(counts.sum())) > most:
            return None
        axes.append((low, high, counts.tolist()))
    rules = [composite(*axis) for axis in axes]
    nodes_away = tensor_grid([nodes for nodes, _ in rules])
    return nodes_away, tensor_rule(integrals.measure, X[0], rules)[1]


# Panels without a kink, which grow outside of all centers, where the product of the factors decays;
# and their numbers of nodes.
#
# On a panel every factor is e^{±x/σ} times a polynomial.
def _between_kinks(
    low: np.ndarray,
    high: np.ndarray,
    length: float,
    factors: Sequence[Factor],
    degree: int,
    error: float,
) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    centers = np.concatenate([x for _, x in factors])
    first, last, reach = centers.min(), centers.max(), float((high - low).max())
    steps = length * (2.0 ** np.arange(1.0, 2.0 + math.log2(1.0 + reach / length)) - 1.0)
    inner = cut(low, high, length, np.append(centers, [first, last]))
    outer = cut(low, high, math.inf, np.concatenate([first - steps, last + steps, [first, last]]))
    within = (0.5 * (inner[0] + inner[1]) > first) & (0.5 * (inner[0] + inner[1]) < last)
    beyond = (0.5 * (outer[0] + outer[1]) <= first) | (0.5 * (outer[0] + outer[1]) >= last)
    start, stop = (
        np.concatenate([one[within], other[beyond]])
        for one, other in zip(inner, outer, strict=True)
    )
    away = np.maximum(np.maximum(first - stop, start - last), 0.0) / length
    for kernel, _ in factors:
        degree += len(kernel.polynomial)  # type: ignore[attr-defined]
    return (
        start,
        stop,
        _enough(0.5 * len(factors) * (stop - start) / length, np.exp(-2.0 * away) / error, degree),
    )


# How many Gauss nodes integrate ``left``·e^{−rate·t} times a polynomial over −1 ≤ t ≤ 1 up to one,
# by the terms of its series.
def _enough(rate: np.ndarray, left: np.ndarray, degree: int) -> np.ndarray:
    order = np.zeros(rate.shape)
    while np.any(more := left > 1.0):
        order = np.where(more, order + 1.0, order)
        left = np.where(more, left * rate / np.maximum(order, 1.0), left)
    return np.ceil(0.5 * (order + degree) + 1.0).astype(int)


def basis_at(
    rule: Rule, kernel: Kernel, X: Array, T: Array, log_unit: float, part: slice = slice(None)
) -> Array:
    """√w_n·Tᵀk(x_n) in units of exp(log_unit/2) at the nodes of :func:`exact_rule`, shape (N,
    columns of T).
    """
    nodes, half = like(rule[0][part], T), like(0.5 * (rule[1][part] - log_unit), T)
    with quiet():
        return namespace(T).exp(kernel.log(nodes, X - X[:1, :]) + half[:, None]) @ T
