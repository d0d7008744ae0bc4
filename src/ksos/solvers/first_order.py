"""First-order methods on the spectraplex: projected gradient, FISTA and Frank–Wolfe. They need
gradients only.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np

from ksos.functionals import Objective, Point
from ksos.ground.arrays import inner, like, norm
from ksos.ground.run import Run
from ksos.solvers.loop import Stepper
from ksos.solvers.spectraplex import lowest_eigenpairs, project

__all__ = ["Fista", "FrankWolfe", "ProjectedGradient", "lipschitz"]

_MARGIN = 1.02  # power iteration approaches the largest eigenvalue from below
_MOST_BACKTRACKS = 60  # doublings: from 1e-6 to 1e12 times the first guess


@dataclass(frozen=True)
class _State:
    point: Point  # the iterate, feasible
    extrapolated: Point  # where the next gradient is taken
    momentum: float
    L: float


@dataclass(frozen=True, kw_only=True)
class ProjectedGradient(Stepper):
    """C ← proj(C − ∇f(C)/L) (the paper's projected gradient descent).

    ``max_iter``: the most steps where ``minimize`` is given no ``max_iter``. ``check_every``: how
    many from one certificate to the next.

    >>> import ksos
    >>> from ksos.functionals import SquaredMMD, Trace
    >>> space = ksos.SoSSpace(ksos.kernels.Gaussian(1.0), [[0.0], [1.0]])
    >>> functional = SquaredMMD([[0.3], [1.0]]) + 1e-3 * Trace()
    >>> ksos.minimize(functional, space, solver=ProjectedGradient(check_every=5)).status
    'solved'
    """

    name = "projected_gradient"
    max_iter: int = 100_000
    check_every: int = 10

    # L from power iteration on the Hessian (quadratic f) or from two gradients
    def init(self, objective: Objective, start: Point) -> _State:
        return _State(start, start, 1.0, lipschitz(objective, start))

    def step(self, objective: Objective, state: _State) -> _State:
        """One projected gradient step from the extrapolated point, backtracking on L, then the
        momentum.
        """
        Y, L = state.extrapolated, state.L
        G = objective.gradient(Y)
        for _ in range(_MOST_BACKTRACKS):
            new = objective.point(project(Y.C - G / L))
            move = new - Y
            squared = inner(move.C, move.C)
            curvature = objective.curvature(move)
            quadratic, rounding = curvature is not None, 1e-29
            if curvature is None:
                curvature = 2.0 * (objective.value(new) - objective.value(Y) - inner(G, move.C))
                rounding = 1e-13 * abs(objective.value(Y))
            if curvature <= L * squared + rounding or Run.current().over:
                break
            if not quadratic:
                # near the optimum values differ by rounding alone, which gradients feel less
                curvature = min(curvature, inner(objective.gradient(new) - G, move.C))
                if curvature <= L * squared:
                    break
            L = max(L if quadratic else 2.0 * L, _MARGIN * curvature / squared)
        # away from a quadratic the curvature varies: try longer steps again
        return self._next(state, new, move, L if quadratic else 0.95 * L)

    def _next(self, state: _State, new: Point, move: Point, L: float) -> _State:
        return _State(new, new, 1.0, L)


@dataclass(frozen=True, kw_only=True)
class Fista(ProjectedGradient):
    """Projected gradient with Nesterov's momentum [Beck2009], restarted when it points uphill
    [ODonoghue2015].

    Its options are those of :class:`ProjectedGradient` and ``restart``: whether to restart the
    momentum.

    >>> import ksos
    >>> from ksos.functionals import SquaredMMD, Trace
    >>> space = ksos.SoSSpace(ksos.kernels.Gaussian(1.0), [[0.0], [1.0]])
    >>> functional = SquaredMMD([[0.3], [1.0]]) + 1e-3 * Trace()
    >>> ksos.minimize(functional, space, solver=Fista(restart=False)).status
    'solved'
    """

    name = "fista"
    max_iter: int = 20_000
    restart: bool = True

    def _next(self, state: _State, new: Point, move: Point, L: float) -> _State:
        progress = new - state.point
        if self.restart and inner(move.C, progress.C) < 0.0:
            return _State(new, new, 1.0, L)
        momentum = 0.5 * (1.0 + math.sqrt(1.0 + 4.0 * state.momentum**2))
        return _State(new, new + ((state.momentum - 1.0) / momentum) * progress, momentum, L)


@dataclass(frozen=True, kw_only=True)
class FrankWolfe(ProjectedGradient):
    """C ← (1−t)C + t·vvᵀ, v the lowest eigenvector of ∇f(C): where the linear model of f is least
    [Frank1956, Jaggi2013].

    It keeps a few r × r matrices and needs no projections. Its gap falls like 1/n only: from about
    1e-4 on, which it usually reaches, the 20 000 steps of its limit bring next to nothing, and a
    smaller ``tol`` ends with status "max_iter" and the gap that there is. It is a cross-check of
    other solvers, and a way out if nothing else fits in memory. Its options are those of
    :class:`ProjectedGradient`.

    >>> import ksos
    >>> from ksos.functionals import SquaredMMD, Trace
    >>> space = ksos.SoSSpace(ksos.kernels.Gaussian(1.0), [[0.0], [1.0]])
    >>> functional = SquaredMMD([[0.3], [1.0]]) + 1e-3 * Trace()
    >>> ksos.minimize(functional, space, solver=FrankWolfe(), tol=1e-3).status
    'solved'
    """

    name = "frank_wolfe"
    advice = "the gap of frank_wolfe falls like 1/n only: take solver='auto' for gaps below 1e-4"
    max_iter: int = 20_000

    def init(self, objective: Objective, start: Point) -> _State:
        """L is the curvature along the last move, the first guess for the next one: unused if f is
        quadratic.
        """
        return _State(start, start, 1.0, 1e-6)

    def step(self, objective: Objective, state: _State) -> _State:
        """The exact minimum along the segment if f is quadratic; else that of a parabola, steep
        enough to lie above f there.
        """
        C = state.point
        G = objective.gradient(C)
        values, vectors = lowest_eigenpairs(G, 1)
        toward = objective.point(vectors[:, :1] @ vectors[:, :1].T) - C
        slope = inner(G, C.C) - float(values[0])
        if slope <= 0.0:
            return state  # optimal, up to rounding
        if (curvature := objective.curvature(toward)) is not None:
            new = C + min(1.0, slope / curvature if curvature > 0.0 else 1.0) * toward
            return _State(new, new, 1.0, state.L)
        # the curvature varies: try longer steps again
        squared, value, L = inner(toward.C, toward.C), objective.value(C), 0.9 * state.L
        for _ in range(_MOST_BACKTRACKS):
            t = min(1.0, slope / (L * squared))
            new = C + t * toward
            if objective.value(new) <= value - t * slope + 0.5 * L * squared * t * t:
                break
            L *= 2.0
        return _State(new, new, 1.0, L)


def lipschitz(objective: Objective, point: Point) -> float:
    """A bound on the curvature of f: the largest eigenvalue of ∇²f by power iteration, or a first
    guess for backtracking.
    """
    # its own generator: a fit must not depend on a global one
    random = np.random.default_rng(0).standard_normal((objective.size, objective.size))
    direction = like(random + random.T, objective.space.T)
    direction = direction / norm(direction)
    image = objective.hessian(objective.point(direction))
    if image is None:
        other = objective.point(project(point.C + direction / objective.size))
        moved = norm(other.C - point.C)
        change = norm(objective.gradient(other) - objective.gradient(point))
        return max(change / moved if moved > 0.0 else 1.0, 1e-12)
    estimate = 0.0
    for _ in range(100):  # a thousandth, far below the margin, takes a dozen as a rule
        size = norm(image)
        if size <= 1e-300:
            return 1.0  # f is linear: any step length will do
        if abs(size - estimate) <= 1e-3 * size or Run.current().over:
            break
        estimate = size
        image = objective.hessian(objective.point(image / size))
        assert image is not None
    return _MARGIN * size
