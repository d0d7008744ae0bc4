"""First-order methods on the spectraplex: projected gradient, FISTA and Frank–Wolfe. They need
gradients only.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

from ksos.functionals import Objective, Point
from ksos.ground import Run, inner
from ksos.solvers.loop import Stepper
from ksos.solvers.spectraplex import lowest_eigenpairs, project, step_along

_MARGIN = 1.02  # beyond the curvature of one move, so that the next ones are accepted as a rule
_MOST_BACKTRACKS = 60  # of one step: a few are usual, as each takes the curvature of its move
_FLATTEST = 1e-12  # the first guess of a curvature: the first move finds that of its own way


@dataclass(frozen=True)
class _State:
    point: Point  # the iterate, feasible
    extrapolated: Point  # where the next gradient is taken
    momentum: float  # of Frank–Wolfe, the share of the segment that the last step went
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

    def init(self, objective: Objective, start: Point) -> _State:
        return _State(start, start, 1.0, _FLATTEST)

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
    1e-4 on, which it usually reaches, the 20,000 steps of its limit bring next to nothing, and a
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

    def step(self, objective: Objective, state: _State) -> _State:
        """The minimum along the segment, or a point on it that gains enough; the next step is at
        most four times as long.
        """
        C = state.point
        G = objective.gradient(C)
        values, vectors = lowest_eigenpairs(G, 1)
        toward = objective.point(vectors[:, :1] @ vectors[:, :1].T) - C
        slope = inner(G, C.C) - float(values[0])
        if slope <= 0.0:
            return state  # optimal, up to rounding
        t = step_along(objective, C, toward, slope, min(1.0, 4.0 * state.momentum))
        new = C + t * toward
        return _State(new, new, t, state.L)
