"""Are the derivatives of a functional those of its value? Finite differences along random
directions of the spectraplex.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, NamedTuple

import numpy as np

from ksos.functionals.base import Functional
from ksos.functionals.objective import Objective, Point
from ksos.ground.arrays import inner, like, norm
from ksos.ground.validation import as_count
from ksos.space.space import SoSSpace

__all__ = ["GradientCheck", "check_gradient"]

_STEPS = (1e-3, 1e-4, 1e-5)


class GradientCheck(NamedTuple):
    """The largest relative differences between derivatives and finite differences: 1e-5 is fine,
    1e-2 is a mistake.

    >>> GradientCheck(gradient=3e-9, hessian=None).gradient < 1e-5
    True
    """

    gradient: float
    hessian: float | None
    """None where the functional has no second derivatives to offer."""


def check_gradient(
    functional: Functional, space: SoSSpace, *, n_points: int = 4, seed: int = 0
) -> GradientCheck:
    """Compare the derivatives of a functional with central differences of its value and of its
    gradient, at random densities of a space.

    >>> from ksos.functionals import SquaredMMD
    >>> from ksos.kernels import Gaussian
    >>> X = np.linspace(-1.0, 1.0, 5)[:, None]
    >>> check = check_gradient(SquaredMMD(X), SoSSpace(Gaussian(1.0), X))
    >>> check.gradient < 1e-6, check.hessian < 1e-6
    (True, True)
    """
    objective, rng = Objective.of(functional, space), np.random.default_rng(seed)
    worst: list[float] = []
    worst_second: list[float] = []
    for _ in range(as_count(n_points, "n_points")):
        C, other = (
            objective.point(like(_random_point(rng, space.rank), space.T)) for _ in range(2)
        )
        D = objective.point(other.C - C.C)
        G = objective.gradient(C)
        slope = inner(G, D.C)
        size = max(abs(slope), 1e-3 * norm(G) * norm(D.C), 1e-300)
        worst.append(
            min(
                abs(change - slope) / size
                for change in _differences(objective, objective.value, C, D)
            )
        )
        product = (
            objective.term.hessian(C.a, C.C, D.a, D.C)
            if objective.term.twice_differentiable
            else None
        )
        if product is not None:  # relative to the larger of the two
            H, least = objective.pull_back(product), max(1e-8 * norm(G), 1e-300)
            changes = _differences(objective, objective.gradient, C, D)
            worst_second.append(
                min(norm(H - change) / max(norm(H), norm(change), least) for change in changes)
            )
    return GradientCheck(max(worst), max(worst_second) if worst_second else None)


def _differences(
    objective: Objective, function: Callable[[Point], Any], C: Point, D: Point
) -> list[Any]:
    """(function(C + hD) − function(C − hD))/2h for every h."""
    ends = [
        (h, function(objective.point(C.C + h * D.C)), function(objective.point(C.C - h * D.C)))
        for h in _STEPS
    ]
    return [(there - back) / (2.0 * h) for h, there, back in ends]


def _random_point(rng: np.random.Generator, r: int) -> np.ndarray:
    """Half the centre, half a random point of low rank: away from the boundary, so that a step in
    any direction stays inside.
    """
    g = rng.standard_normal((r, 2))
    return np.asarray(0.5 * np.eye(r) / r + 0.5 * (g @ g.T) / np.sum(g * g))
