"""L-BFGS on a factor with few columns, in coordinates where the linear part of f is well conditioned: many cheap steps.

A step costs a few products with the factor, O(nrk) for the likelihood of n samples, where Newton's method solves a system of rk unknowns.
"""

from __future__ import annotations

import math
from collections import deque
from collections.abc import Callable
from dataclasses import dataclass, replace

import numpy as np
from scipy.linalg import eigh

from ksos._array import Array, eye, inner, is_numpy, like, namespace, norm, to_numpy
from ksos.functionals.objective import Objective, Point
from ksos.solvers.eigenvalues import lowest_bound, lowest_eigenpairs
from ksos.solvers.loop import Stepper
from ksos.solvers.spectraplex import centre, grown, pruned

__all__ = ["LBFGS", "Secants", "descend", "descend_until", "lowest"]

_PAIRS = 10
_SUFFICIENT = 1e-4
_MOST_BACKTRACKS = 25
_NEW_COLUMNS = 1e-3
_STATIONARY = 0.05
_MOST_NEW = 4
_SMALL, _DENSE = 50, 3000
_NEGLIGIBLE = 1e-16  # of the mass: a sample of little weight far from all others lives on a column of as little
_LOOK_BACK = 4

ValueAndGradient = Callable[[Array], tuple[float, Array]]


class Secants:
    """The last few pairs (step, change of the gradient) and the inverse Hessian that they imply: the two loops of [Nocedal1980]."""

    def __init__(self, memory: int = _PAIRS) -> None:
        self.pairs: deque[tuple[Array, Array, float]] = deque(maxlen=memory)

    def add(self, step: Array, change: Array) -> None:
        """Take in a pair; one without positive curvature says nothing and is left out."""
        curvature = inner(step, change)
        if curvature > 1e-12 * norm(step) * norm(change):
            self.pairs.append((step, change, 1.0 / curvature))

    def direction(self, gradient: Array) -> Array:
        """−H·gradient; the first one, of which nothing is known, has length one."""
        if not self.pairs:
            return -gradient / max(norm(gradient), 1e-300)
        q, shares = gradient, []
        for step, change, rho in reversed(self.pairs):
            shares.append(rho * inner(step, q))
            q = q - shares[-1] * change
        step, change, rho = self.pairs[-1]
        q = q / (rho * inner(change, change))
        for (step, change, rho), share in zip(self.pairs, reversed(shares), strict=True):
            q = q + (share - rho * inner(change, q)) * step
        return -q


def descend(function: ValueAndGradient, Y: Array, value: float, gradient: Array, secants: Secants) -> tuple[Array, float, Array] | None:
    """One step with backtracking: the new point, its value and gradient; None if rounding leaves nothing to gain."""
    direction = secants.direction(gradient)
    if not (slope := inner(direction, gradient)) < 0.0:
        secants.pairs.clear()
        direction = secants.direction(gradient)
        if not (slope := inner(direction, gradient)) < 0.0:
            return None
    t = 1.0 if secants.pairs else 0.1 * norm(Y)
    for _ in range(_MOST_BACKTRACKS):
        new = Y + t * direction
        new_value, new_gradient = function(new)
        if new_value <= value + _SUFFICIENT * t * slope:
            secants.add(new - Y, new_gradient - gradient)
            return new, new_value, new_gradient
        # the minimum of the parabola through what is known, within reason
        t *= min(0.5, max(0.1, -0.5 * t * slope / (new_value - value - t * slope)))
    return None


def descend_until(function: ValueAndGradient, Y: Array, steps: int, tol: float) -> Array:
    """L-BFGS from ``Y`` until the function has changed by less than ``tol`` over the last four steps, or for ``steps`` of them."""
    secants, values = Secants(), [math.inf] * _LOOK_BACK
    value, gradient = function(Y)
    for _ in range(steps):
        values.append(value)
        if values[-1 - _LOOK_BACK] - value < tol:
            break
        if (new := descend(function, Y, value, gradient, secants)) is None:
            break
        Y, value, gradient = new
    return Y


@dataclass(frozen=True)
class _State:
    change: tuple[Array, Array]  # QS and its inverse: F = QSY
    Y: Array
    value: float
    gradient: Array
    secants: Secants
    point: Point  # as of the last certificate
    steps: int = 0


@dataclass(frozen=True, kw_only=True)
class LBFGS(Stepper):
    """L-BFGS on C = FFᵀ/‖F‖², F = QSY, where QΛQᵀ is the linear part of f and S = (Λ + c)^{−1/2}; new columns when the gap wants them.

    ``max_iter``: the most steps where ``minimize`` is given no ``max_iter``. ``columns``: how many columns a start has. ``max_columns``: as
    for :class:`LowRank`. ``memory``: how many pairs (step, change of the gradient) are kept. ``check_every``: how many steps to take from
    one certificate to the next; default 10, and 25 or 50 for large r, since a certificate costs r³.
    """

    name = "lbfgs"
    max_iter: int = 10_000
    columns: int = 10
    max_columns: int | None = None
    memory: int = _PAIRS
    check_every: int | None = None

    def interval(self, objective: Objective) -> int:
        return self.check_every or (10 if objective.size <= _SMALL else 25 if objective.size <= _DENSE // 3 else 50)

    def init(self, objective: Objective, start: Point) -> _State:
        """The leading columns of C and, with little mass, the lowest eigenvectors of ∇f there; at the centre these alone."""
        C, G = start.C, objective.gradient(start)
        change, columns = _preconditioner(objective, C, G), min(self.columns, objective.size)
        _, V = lowest(G, columns)
        if norm(C - centre(objective.size, C)) <= 1e-12:
            F = V * like(np.sqrt(np.arange(columns, 0.0, -1.0)), V)
        else:
            leading = start.F
            if leading is None:
                values, vectors = namespace(C).linalg.eigh(C)
                leading = vectors[:, -columns:] * namespace(C).sqrt(namespace(C).clip(values[-columns:], 0.0, None))
            F = grown(leading, V / columns**0.5, _NEW_COLUMNS)
        return self._at(objective, change, pruned(F, 0.0, self.max_columns), start)

    def _at(self, objective: Objective, change: tuple[Array, Array], F: Array, point: Point, steps: int = 0) -> _State:
        Y = change[1] @ F
        value, gradient = _function(objective, change[0])(Y)
        return _State(change, Y, value, gradient, Secants(self.memory), point, steps)

    def step(self, objective: Objective, state: _State) -> _State:
        """An L-BFGS step; where a certificate is due, columns that have died go, and new ones come if there is nothing else to gain."""
        change, steps = state.change[0], state.steps + 1
        new = descend(_function(objective, change), state.Y, state.value, state.gradient, state.secants)
        if new is not None and steps % self.interval(objective) and not objective.deadline.passed:
            return _State(state.change, *new, state.secants, state.point, steps)
        Y, value, gradient = (state.Y, state.value, state.gradient) if new is None else new
        F = pruned(change @ Y, _NEGLIGIBLE)  # an optimum has fewer columns than an iterate on its way there
        point = objective.point(F @ F.T, F)
        G = objective.gradient(point)
        values, V = lowest(G, min(_MOST_NEW, objective.size))
        level = inner(G, point.C)
        gap = max(level - float(values[0]), 0.0)
        point = replace(point, G=G, lowest=float(values[0]))
        if new is not None and norm(2.0 * (G @ F) - 2.0 * level * F) > _STATIONARY * gap:
            return _State(state.change, Y, value, gradient, state.secants, point, steps)
        F = pruned(grown(F, V / V.shape[1] ** 0.5, min(0.1, max(gap, 1e-12))), 0.0, self.max_columns)
        return self._at(objective, state.change, F, point, steps)


def lowest(G: Array, n: int) -> tuple[np.ndarray, Array]:
    """The ``n`` lowest eigenvalues, less the error that rounding may have made in them, and their vectors.

    Near an optimum the lowest eigenvalues lie close together, where Lanczos iterations take long: up to a size, dense ones.
    """
    if not is_numpy(G) or G.shape[0] > _DENSE:
        values, V = lowest_eigenpairs(G, n)
        return np.array([lowest_bound(G, 1e-10), *to_numpy(values)[1:]]), V
    values, V = eigh(G, subset_by_index=[0, n - 1], check_finite=False)
    return values - np.finfo(np.float64).eps * np.abs(G).sum(axis=1).max(), V


def _function(objective: Objective, change: Array) -> ValueAndGradient:
    """Y ↦ f(FFᵀ/‖F‖²) with F = change·Y, and its gradient."""

    def function(Y: Array) -> tuple[float, Array]:
        F = change @ Y
        size = norm(F)
        value, GF = objective.factor_gradient(F / size)
        level = inner(GF, F) / size
        return value, (2.0 / size) * (change.T @ (GF - (level / size) * F))

    return function


def _preconditioner(objective: Objective, C: Array, G: Array) -> tuple[Array, Array]:
    """QS and its inverse, the constant c being the size of what is not linear in f."""
    D, spectrum = objective.term.linear_part(), objective.term.linear_spectrum()
    if D is None or spectrum is None:
        identity = eye(objective.size, C)
        return identity, identity
    (values, Q), xp = spectrum, namespace(D)
    level = abs(inner(G - D, C))
    weights = xp.clip(values - xp.min(values), 0.0, None) + max(level, 1e-12 * float(xp.max(xp.abs(values))), 1e-300)
    return Q / xp.sqrt(weights), xp.sqrt(weights)[:, None] * Q.T
