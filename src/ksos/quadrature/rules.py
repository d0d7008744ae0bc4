"""Gauss rules, made once for each number of nodes; composite rules on a line; tensor products of
rules.
"""

from __future__ import annotations

import functools
import operator
from collections.abc import Sequence
from functools import cache

import numpy as np

__all__ = ["composite", "laguerre", "legendre", "log_outer", "tensor_grid"]

Rule = tuple[np.ndarray, np.ndarray]
"""Nodes and weights."""


@cache
def legendre(n: int) -> Rule:
    """The Gauss–Legendre rule on [−1, 1]: exact for polynomials of degree 2n − 1 [GolubWelsch1969].

    >>> t, w = legendre(3)
    >>> round(float(w @ t**4), 12)  # ∫ t⁴ dt = 2/5
    0.4
    """
    return _frozen(np.polynomial.legendre.leggauss(n))


@cache
def laguerre(n: int) -> Rule:
    """The Gauss–Laguerre rule for ∫_0^∞ f(t) e^{−t} dt: exact for polynomials of degree 2n − 1."""
    return _frozen(np.polynomial.laguerre.laggauss(n))


def _frozen(rule: Rule) -> Rule:
    """The rule is shared by all callers: nobody may write to it."""
    for part in rule:
        part.setflags(write=False)
    return rule


def composite(start: np.ndarray, stop: np.ndarray, counts: int | Sequence[int]) -> Rule:
    """Gauss–Legendre on each of the intervals [start_j, stop_j], with ``counts`` nodes (one number
    for all, or one for each).
    """
    half = 0.5 * (stop - start)
    if isinstance(counts, int):
        t, w = legendre(counts)
        return (start[:, None] + half[:, None] * (1.0 + t)).ravel(), (half[:, None] * w).ravel()
    rules = [legendre(n) for n in counts]
    nodes = [a + h * (1.0 + t) for a, h, (t, _) in zip(start, half, rules, strict=True)]
    return np.concatenate(nodes), np.concatenate(
        [h * w for h, (_, w) in zip(half, rules, strict=True)]
    )


def tensor_grid(axes: Sequence[np.ndarray]) -> np.ndarray:
    """All points with coordinates from the axes, shape (N, d); the last axis runs fastest.

    >>> tensor_grid([np.array([0.0, 1.0]), np.array([5.0, 6.0])]).tolist()
    [[0.0, 5.0], [0.0, 6.0], [1.0, 5.0], [1.0, 6.0]]
    """
    return np.stack([part.ravel() for part in np.meshgrid(*axes, indexing="ij")], axis=1)


def log_outer(weights: Sequence[np.ndarray]) -> np.ndarray:
    """The logarithms of the products of positive weights, one for each point of a
    :func:`tensor_grid`, shape (N,).
    """
    logs = [np.log(w).reshape(-1, *[1] * (len(weights) - 1 - k)) for k, w in enumerate(weights)]
    return np.asarray(functools.reduce(operator.add, logs)).ravel()
