"""A discrete measure: any kernel can be integrated against it. Quadrature and quasi-Monte-Carlo
rules on a box are made here.
"""

from __future__ import annotations

import functools
import math
from collections.abc import Callable
from typing import Any, Self

import numpy as np

from ksos.ground import FLOAT_BYTES, Array, as_count, as_points, as_vector, require_memory
from ksos.measures.base import Atoms, Box, Measure
from ksos.quadrature import composite, sobol, tensor_grid

_QUADRATURE_FEATURES = 3  # 40 nodes per feature are 64,000 in three features, 2.6 million in four


class Discrete(Measure):
    """ρ = Σ_j w_j δ_{x_j} with positive weights; densities are relative to it: the node x_j has
    mass w_j p(x_j).

    Parameters
    ----------
    points : array (N, d)
    weights : array of N positive floats, optional
        Default 1/N each.
    """

    name = "discrete"

    def __init__(self, points: Any, weights: Any = None) -> None:
        self.points = as_points(points, "points", copy=True)
        n = self.points.shape[0]
        self.weights = (
            np.full(n, 1.0 / n) if weights is None else as_vector(weights, "weights", length=n)
        )
        if np.any(self.weights <= 0.0):
            raise ValueError(
                f"weights must be positive; entry {int(np.argmin(self.weights))} is"
                f" {self.weights.min():g}"
            )
        self.n_features = self.points.shape[1]

    @classmethod
    def quadrature(cls, box: Box, n_nodes: int | Any = 40) -> Self:
        """Tensor Gauss–Legendre rule on a bounded ``box`` (d ≤ 3), ``n_nodes`` per feature (or one
        number for each).

        >>> rule = Discrete.quadrature(Box([0.0], [1.0]), 5)
        >>> round(float(rule.weights @ rule.points[:, 0] ** 4), 12)  # ∫₀¹ x⁴ dx
        0.2
        """
        d = _bounded_features(box)
        if d > _QUADRATURE_FEATURES:
            raise ValueError(
                f"tensor quadrature is for at most {_QUADRATURE_FEATURES} features; got {d}; use"
                " Discrete.qmc instead"
            )
        counts = [as_count(int(n), "n_nodes") for n in np.broadcast_to(n_nodes, (d,))]
        total = math.prod(counts)
        require_memory(
            total * (d + 1) * FLOAT_BYTES,
            f"a rule with {total:.3g} nodes",
            "take fewer nodes per feature",
        )
        rules = [composite(box.low[k : k + 1], box.high[k : k + 1], counts[k]) for k in range(d)]
        return cls(
            tensor_grid([nodes for nodes, _ in rules]),
            functools.reduce(np.multiply.outer, [w for _, w in rules]).ravel(),
        )

    @classmethod
    def qmc(cls, box: Box, n_points: int = 1024, rng: Any = 0) -> Self:
        """``n_points`` scrambled Sobol' points on a bounded ``box``, any d. ``rng`` is a seed or
        a Generator. The default always gives the same points.
        """
        d = _bounded_features(box)
        n_points = as_count(n_points, "n_points")
        unit = sobol(n_points, d, np.random.default_rng(rng))
        volume = float(np.prod(box.high - box.low))
        return cls(box.low + (box.high - box.low) * unit, np.full(n_points, volume / n_points))

    @property
    def atoms(self) -> Atoms:
        return Atoms(self.points, self.weights)

    def log_mass(self, d: int) -> float:
        return math.log(float(self.weights.sum()))

    def log_density(self, X: Array) -> Array:
        raise TypeError("a Discrete measure has no density")

    def restrict(self, features: Any) -> Self:
        return type(self)(self.points[:, np.asarray(features)], self.weights)

    def image(self, transform: Callable[[np.ndarray], np.ndarray], scale: np.ndarray) -> Measure:
        return type(self)(transform(self.points), self.weights)

    def linear_image(self, A: np.ndarray, b: np.ndarray) -> Measure:
        return type(self)(self.points @ A.T + b, self.weights)

    def parameters(self) -> dict[str, Any]:
        return {"points": self.points, "weights": self.weights}

    def __repr__(self) -> str:
        return f"Discrete({self.points.shape[0]} nodes in {self.points.shape[1]} features)"


def _bounded_features(box: Box) -> int:
    if not isinstance(box, Box) or box.region is None:
        raise ValueError(f"a bounded Box is needed; got {box!r}")
    return int(box.low.shape[0])
