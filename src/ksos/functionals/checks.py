"""Are the derivatives of a functional those of its value? Finite differences along random directions of the spectraplex."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from ksos._array import Array, inner, like, norm
from ksos._validation import as_count
from ksos.functionals.base import Functional, Pair
from ksos.functionals.objective import Objective, Point
from ksos.space import SoSSpace

__all__ = ["GradientCheck", "check_gradient"]

_STEPS = (1e-3, 1e-4, 1e-5)


class GradientCheck(NamedTuple):
    """The largest relative differences between derivatives and finite differences: 1e-5 is fine, 1e-2 is a mistake."""

    gradient: float
    hessian: float | None
    """None where the functional has no second derivatives to offer."""


def check_gradient(functional: Functional, space: SoSSpace, *, n_points: int = 4, seed: int = 0) -> GradientCheck:
    """Compare the derivatives of a functional with central differences of its value and of its gradient, at random densities of a space.

    >>> from ksos.functionals import SquaredMMD
    >>> from ksos.kernels import Gaussian
    >>> X = np.linspace(-1.0, 1.0, 5)[:, None]
    >>> check = check_gradient(SquaredMMD(X), SoSSpace(Gaussian(1.0), X))
    >>> check.gradient < 1e-6, check.hessian < 1e-6
    (True, True)
    """
    objective, r = Objective.of(functional, space), space.rank
    rng = np.random.default_rng(seed)
    worst: list[float] = []
    worst_second: list[float] = []
    for _ in range(as_count(n_points, "n_points")):
        C = like(_random_point(rng, r), space.T)
        D = like(_random_point(rng, r), space.T) - C
        point = objective.point(C)
        G = objective.gradient(point)
        slope = inner(G, D)
        size = max(abs(slope), 1e-3 * norm(G) * norm(D), 1e-300)
        worst.append(min(abs(_difference(objective, C, D, h) - slope) / size for h in _STEPS))
        product = objective.term.hessian(point.a, C, (objective.point(D)).a, D) if objective.term.twice_differentiable else None
        if product is not None:
            worst_second.append(_second_error(objective, point, D, product))
    return GradientCheck(max(worst), max(worst_second) if worst_second else None)


def _difference(objective: Objective, C: Array, D: Array, h: float) -> float:
    return (objective.value(objective.point(C + h * D)) - objective.value(objective.point(C - h * D))) / (2.0 * h)


def _second_error(objective: Objective, point: Point, D: Array, product: Pair) -> float:
    """‖∇²f·D − (∇f(C + hD) − ∇f(C − hD))/2h‖ relative to the larger of the two, for the best h."""
    H = objective.pull_back(product)
    errors = []
    for h in _STEPS:
        change = objective.gradient(objective.point(point.C + h * D)) - objective.gradient(objective.point(point.C - h * D))
        size = max(norm(H), norm(change) / (2.0 * h), 1e-8 * norm(objective.gradient(point)), 1e-300)
        errors.append(norm(H - change / (2.0 * h)) / size)
    return float(min(errors))


def _random_point(rng: np.random.Generator, r: int) -> np.ndarray:
    """Half the centre, half a random point of low rank: away from the boundary, so that a step in any direction stays inside."""
    g = rng.standard_normal((r, 2))
    return np.asarray(0.5 * np.eye(r) / r + 0.5 * (g @ g.T) / np.sum(g * g))
