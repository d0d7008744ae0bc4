"""A discrete measure: any kernel can be integrated against it. Quadrature and quasi-Monte-Carlo rules on a box are made here."""

from __future__ import annotations

import math
from functools import lru_cache
from typing import Any, Self

import numpy as np

from ksos._array import Array
from ksos._memory import FLOAT_BYTES, require_memory
from ksos._validation import as_count, as_points, as_vector
from ksos.measures.base import Measure, everywhere
from ksos.measures.box import Box

__all__ = ["Discrete"]

_QUADRATURE_FEATURES = 3


class Discrete(Measure):
    """ρ = Σ_j w_j δ_{x_j} with positive weights; densities are relative to it: the node x_j has mass w_j p(x_j).

    Parameters
    ----------
    points : array (N, d)
    weights : array of N positive floats, optional
        Default 1/N each.
    """

    name = "discrete"

    def __init__(self, points: Any, weights: Any = None) -> None:
        self.points = as_points(points, "points")
        n = self.points.shape[0]
        self.weights = np.full(n, 1.0 / n) if weights is None else as_vector(weights, "weights", length=n)
        if np.any(self.weights <= 0.0):
            raise ValueError(f"weights must be positive; entry {int(np.argmin(self.weights))} is {self.weights.min():g}")
        self.n_features = self.points.shape[1]

    @classmethod
    def quadrature(cls, box: Box, n_nodes: int | Any = 40) -> Self:
        """Tensor Gauss–Legendre rule on a bounded ``box`` (d ≤ 3), ``n_nodes`` per feature (or one number for each).

        >>> rule = Discrete.quadrature(Box([0.0], [1.0]), 5)
        >>> round(float(rule.weights @ rule.points[:, 0] ** 4), 12)  # ∫₀¹ x⁴ dx
        0.2
        """
        d = _bounded_features(box)
        if d > _QUADRATURE_FEATURES:
            raise ValueError(f"tensor quadrature is for at most {_QUADRATURE_FEATURES} features; got {d}; use Discrete.qmc instead")
        counts = [as_count(int(n), "n_nodes") for n in np.broadcast_to(n_nodes, (d,))]
        total = math.prod(counts)
        require_memory(total * (d + 1) * FLOAT_BYTES, f"a rule with {total:.3g} nodes", "take fewer nodes per feature")
        axes, axis_weights = [], []
        for low, high, n in zip(box.low, box.high, counts, strict=True):
            nodes, weights = _legendre(n)
            axes.append(low + (high - low) * 0.5 * (nodes + 1.0))
            axis_weights.append(0.5 * (high - low) * weights)
        points = np.stack([g.ravel() for g in np.meshgrid(*axes, indexing="ij")], axis=1)
        weights = np.ones(1)
        for w in axis_weights:
            weights = np.multiply.outer(weights, w).ravel()
        return cls(points, weights)

    @classmethod
    def qmc(cls, box: Box, n_points: int = 1024, rng: Any = None) -> Self:
        """``n_points`` scrambled Sobol' points on a bounded ``box``, any d; ``rng`` is a seed or a Generator."""
        from scipy.stats import qmc  # heavy to import, and needed only here

        d = _bounded_features(box)
        n_points = as_count(n_points, "n_points")
        sampler = qmc.Sobol(d, rng=np.random.default_rng(rng))
        unit = sampler.random_base2(max(1, math.ceil(math.log2(n_points))))[:n_points]
        volume = float(np.prod(box.high - box.low))
        return cls(box.low + (box.high - box.low) * unit, np.full(n_points, volume / n_points))

    def contains(self, X: Array) -> Array:
        """True: off its nodes the density is read as the function that it is, with which the nodes were weighted."""
        return everywhere(X)

    def log_density(self, X: Array) -> Array:
        raise TypeError("a Discrete measure has no density")

    def restrict(self, features: Any) -> Self:
        return type(self)(self.points[:, np.asarray(features)], self.weights)

    def parameters(self) -> dict[str, Any]:
        return {"points": self.points, "weights": self.weights}

    def __repr__(self) -> str:
        return f"Discrete({self.points.shape[0]} nodes in {self.points.shape[1]} features)"


def _bounded_features(box: Box) -> int:
    if not isinstance(box, Box) or not box.bounded:
        raise ValueError(f"a bounded Box is needed; got {box!r}")
    return int(box.low.shape[0])


@lru_cache(maxsize=64)
def _legendre(n: int) -> tuple[np.ndarray, np.ndarray]:
    """Nodes and weights on [−1, 1]: an eigenvalue problem, which one density after another would ask for."""
    return np.polynomial.legendre.leggauss(n)
