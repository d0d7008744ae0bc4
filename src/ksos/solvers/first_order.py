"""Projected gradient and FISTA on the spectraplex: one step, with and without momentum."""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np

from ksos._array import Array, inner, like, norm
from ksos.functionals.objective import Objective, Point
from ksos.solvers.loop import Stepper
from ksos.solvers.spectraplex import project

__all__ = ["Fista", "ProjectedGradient", "lipschitz"]

_POWER_ITERATIONS = 100
_MARGIN = 1.02  # power iteration approaches the largest eigenvalue from below
_GROW, _SHRINK = 2.0, 0.95
_MOST_BACKTRACKS = 60
_ROUNDING = 1e-13  # what a comparison of nearly equal numbers may be off by


@dataclass(frozen=True)
class _State:
    point: Point
    """The iterate, feasible."""
    extrapolated: Point
    """Where the next gradient is taken."""
    momentum: float
    L: float


class ProjectedGradient(Stepper):
    """C ← proj(C − ∇f(C)/L) (the note's projected gradient descent)."""

    accelerated = False
    default_max_iter = 100_000
    check_every = 10

    def init(self, objective: Objective, C: Array) -> _State:
        """Start at C, with L from power iteration on the Hessian (quadratic f) or from two gradients."""
        point = objective.point(C)
        return _State(point, point, 1.0, lipschitz(objective, point))

    def point(self, state: _State) -> Point:
        """The current iterate."""
        return state.point

    def step(self, objective: Objective, state: _State) -> _State:
        """One projected gradient step from the extrapolated point, backtracking on L, then the momentum and its adaptive restart."""
        Y, L = state.extrapolated, state.L
        G = objective.gradient(Y)
        for _ in range(_MOST_BACKTRACKS):
            new = objective.point(project(Y.C - G / L))
            move = new - Y
            squared = inner(move.C, move.C)
            curvature = objective.curvature(move)
            quadratic = curvature is not None
            if curvature is None:
                curvature = 2.0 * (objective.value(new) - objective.value(Y) - inner(G, move.C))
            if curvature <= L * squared + _ROUNDING * (1e-16 if quadratic else abs(objective.value(Y))):
                break
            if not quadratic:  # near the optimum values differ by rounding alone, which gradients feel less
                curvature = min(curvature, inner(objective.gradient(new) - G, move.C))
                if curvature <= L * squared:
                    break
            L = max(_GROW * L if not quadratic else L, _MARGIN * curvature / squared)
        L = L if quadratic else L * _SHRINK  # away from a quadratic the curvature varies: try longer steps again
        if not self.accelerated:
            return _State(new, new, 1.0, L)
        progress = new - state.point
        if inner(move.C, progress.C) < 0.0:  # the momentum points uphill: start it afresh (gradient restart)
            return _State(new, new, 1.0, L)
        momentum = 0.5 * (1.0 + math.sqrt(1.0 + 4.0 * state.momentum**2))
        return _State(new, new + ((state.momentum - 1.0) / momentum) * progress, momentum, L)


class Fista(ProjectedGradient):
    """Projected gradient with Nesterov's momentum (Beck and Teboulle), restarted when it points uphill."""

    accelerated = True
    default_max_iter = 20_000


def lipschitz(objective: Objective, point: Point) -> float:
    """A bound on the curvature of f: the largest eigenvalue of ∇²f by power iteration, or a first guess for backtracking."""
    rng = np.random.default_rng(0)  # fixed: a fit must not depend on the state of a global generator
    direction = rng.standard_normal((objective.size, objective.size))
    direction = like(direction + direction.T, objective.space.T)
    direction = direction / norm(direction)
    image = objective.hessian(objective.point(direction))
    if image is None:
        other = objective.point(project(point.C + direction / objective.size))
        moved = norm(other.C - point.C)
        change = norm(objective.gradient(other) - objective.gradient(point))
        return max(change / moved if moved > 0.0 else 1.0, 1e-12)
    estimate = 0.0
    for _ in range(_POWER_ITERATIONS):
        size = norm(image)
        if size <= 1e-300:
            return 1.0  # f is linear: any step length will do
        if abs(size - estimate) <= 1e-3 * size:
            break
        estimate = size
        image = objective.hessian(objective.point(image / size))
        assert image is not None
    return _MARGIN * size
