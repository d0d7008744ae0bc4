"""L-BFGS on a factor with few columns, in coordinates where the linear part of f is well
conditioned: many cheap steps.

A step costs a few products with the factor, O(nrk) for the likelihood of n samples, where Newton's
method solves a system of rk unknowns.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass, replace

import numpy as np

from ksos.functionals import BoundLinear, Objective, Point
from ksos.ground import (
    Array,
    Run,
    as_nonnegative,
    eye,
    flat,
    inner,
    is_numpy,
    like,
    namespace,
    norm,
    to_numpy,
    zeros,
)
from ksos.solvers.loop import Stepper
from ksos.solvers.spectraplex import DENSE, center, grown, lowest_bound, lowest_eigenpairs, pruned

_DENSE = 3000  # r up to which eigenvalues are dense: Lanczos is slow where the lowest lie close

# a value and a gradient
Valued = tuple[float, Array]
ValueAndGradient = Callable[[Array], Valued]
Iterate = tuple[Array, float, Array]
Change = tuple[Array, Array]  # QS and its inverse: F = QSY


class Secants:
    """The last few pairs (step s, change of the gradient y) and the inverse Hessian H that they
    imply, in the compact form of [Byrd1994].

    With R the upper triangle of SᵀY, D its diagonal, u = R⁻¹Sᵀg and v = R⁻ᵀ(Du + γ(YᵀYu − Yᵀg)): Hg
    = γg + Sv − γYu. These are two products with all pairs at once, where the two loops of
    [Nocedal1980] take one after the other.
    """

    def __init__(self, memory: int = 10) -> None:
        self.memory = memory
        self.pairs: list[int] = []  # where the pairs are, the oldest first

    # take in a pair, unless it says nothing, without positive curvature
    def add(self, step: Array, change: Array) -> None:
        curvature, n = inner(step, change), self.memory
        if not curvature > 1e-12 * norm(step) * norm(change):
            return
        if not self.pairs:
            self._rows, self._D = zeros((2 * n, flat(step).shape[0]), step), np.zeros(n)
            self._YY, self._inverse = np.zeros((n, n)), np.zeros((n, n))
        row = len(self.pairs) if len(self.pairs) < n else self.pairs.pop(0)
        self.pairs.append(row)
        self._rows[row, :], self._rows[n + row, :] = flat(step), flat(change)
        products = to_numpy(self._rows @ flat(change))
        self._YY[:, row] = self._YY[row, :] = products[n:]
        # without its first row and column R⁻¹ is the inverse of the rest
        self._inverse[:, row] = self._inverse[row, :] = 0.0
        self._inverse[:, row] = self._inverse @ products[:n] / -curvature
        self._inverse[row, row], self._D[row] = 1.0 / curvature, curvature
        self._gamma = curvature / float(products[n + row])

    # −H·gradient; the first one, of which nothing is known, has length one
    def direction(self, gradient: Array) -> Array:
        if not self.pairs:
            return -gradient / max(norm(gradient), 1e-300)
        products, gamma = to_numpy(self._rows @ flat(gradient)), self._gamma
        u = self._inverse @ products[: self.memory]
        v = self._inverse.T @ (self._D * u + gamma * (self._YY @ u - products[self.memory :]))
        shares = like(np.concatenate([-v, gamma * u]), gradient)
        return namespace(gradient).reshape(shares @ self._rows, gradient.shape) - gamma * gradient


def descend(
    function: ValueAndGradient, Y: Array, value: float, gradient: Array, secants: Secants
) -> Iterate | None:
    """One step with backtracking: the new point, its value and gradient; None if rounding leaves
    nothing to gain.
    """
    direction = secants.direction(gradient)
    if not inner(direction, gradient) < 0.0:
        secants.pairs.clear()
        direction = secants.direction(gradient)
    if not (slope := inner(direction, gradient)) < 0.0:
        return None
    t = 1.0 if secants.pairs else 0.1 * norm(Y)
    for _ in range(25):  # halvings and more: 1e-8 to 1e-25 of the step is rounding
        new = Y + t * direction
        new_value, new_gradient = function(new)
        if new_value <= value + 1e-4 * t * slope:  # as in [Nocedal2006], chapter 3
            secants.add(new - Y, new_gradient - gradient)
            return new, new_value, new_gradient
        # the minimum of the parabola through what is known, within reason
        t *= min(0.5, max(0.1, -0.5 * t * slope / (new_value - value - t * slope)))
    return None


def descend_until(
    function: ValueAndGradient,
    Y: Array,
    steps: int,
    tol: float,
    secants: Secants | None = None,
    known: Valued | None = None,
) -> Array:
    """L-BFGS from ``Y`` until the function has changed by less than ``tol`` over the last four
    steps, or for ``steps`` of them; its value and gradient at ``Y`` may be known.
    """
    at, secants, values = (Y, *(known or function(Y))), secants or Secants(), [math.inf] * 4
    for _ in range(steps):
        values.append(at[1])
        if values[-5] - at[1] < tol or Run.current().over:
            break
        if (new := descend(function, *at, secants)) is None:
            break
        at = new
    return at[0]


@dataclass(frozen=True)
class _State:
    change: Change
    Y: Array
    value: float
    gradient: Array
    secants: Secants
    point: Point  # as of the last certificate
    steps: int = 0
    # the factor with new columns, where the next step has to begin with them
    wider: Array | None = None


@dataclass(frozen=True, kw_only=True)
class LBFGS(Stepper):
    """L-BFGS on C = FFᵀ/‖F‖², F = QSY, where QΛQᵀ is the linear part of f and S = (Λ + c)^{−1/2};
    new columns when the gap wants them.

    ``max_iter``: the most steps where ``minimize`` is given no ``max_iter``. ``columns``: how many
    columns a start has. ``max_columns``: as for :class:`LowRank`. ``memory``: how many pairs (step,
    change of the gradient) are kept. ``check_every``: how many steps to take from one certificate
    to the next; default 10, and 25 or 50 for large r, since a certificate costs r³. ``stall``: if
    positive, steps come in descents, which end when f has changed by less than this over four of
    them, and only then is there a certificate: ``max_iter`` counts descents, columns of less mass
    than this go, and a start that is a factor is taken as it is. For long paths that need few
    digits.

    >>> import ksos
    >>> from ksos.functionals import SquaredMMD, Trace
    >>> space = ksos.SoSSpace(ksos.kernels.Gaussian(1.0), [[0.0], [1.0]])
    >>> functional = SquaredMMD([[0.3], [1.0]]) + 1e-3 * Trace()
    >>> ksos.minimize(functional, space, solver=LBFGS(memory=5)).status
    'solved'
    """

    name = "lbfgs"
    max_iter: int = 10_000
    columns: int = 10
    max_columns: int | None = None
    memory: int = 10
    check_every: int | None = None
    stall: float = 0.0

    def __post_init__(self) -> None:
        super().__post_init__()
        as_nonnegative(self.stall, "stall of LBFGS")

    @property
    def certifies_ends(self) -> bool:
        """A descent from a good start is over sooner than the eigenvalues of another certificate
        are there.
        """
        return self.stall == 0.0

    def interval(self, objective: Objective) -> int:
        default = 10 if objective.space.rank <= 50 else 25 if objective.space.rank <= 1000 else 50
        return 1 if self.stall else self.check_every or default

    def init(self, objective: Objective, start: Point) -> _State:
        """The leading columns of C and, with little mass, the lowest eigenvectors of ∇f there; at
        the center these alone.
        """
        if self.stall and start.F is not None:
            F = pruned(start.F, 0.0, self.max_columns)
            known = objective.factor_gradient(F)
            return self._at(
                objective, _preconditioner(objective, F, known[1]), F, start, known=known
            )
        start = objective.point(start.C, start.F) if start.G is None else start
        C, G, xp = start.C, objective.gradient(start), namespace(start.C)
        change, columns = _preconditioner(objective, C, G), min(self.columns, objective.space.rank)
        _, V = lowest(G, columns)
        if norm(C - center(objective.space.rank, C)) <= 1e-12:
            F = V * like(np.sqrt(np.arange(columns, 0.0, -1.0)), V)
        else:
            F = start.F
            if F is None:
                values, vectors = xp.linalg.eigh(C)
                F = vectors[:, -columns:] * xp.sqrt(xp.clip(values[-columns:], 0.0, None))
            F = grown(F, V / columns**0.5, 1e-3)  # little, so that a good start stays good
        return self._at(objective, change, pruned(F, 0.0, self.max_columns), start)

    # the state at a factor of norm one, whose value and ∇f·F may be known
    def _at(
        self,
        objective: Objective,
        change: Change,
        F: Array,
        point: Point,
        steps: int = 0,
        known: Valued | None = None,
    ) -> _State:
        known = known or objective.factor_gradient(F)
        value, gradient = _pulled_back(change[0], F, 1.0, *known)
        return _State(change, change[1] @ F, value, gradient, Secants(self.memory), point, steps)

    def step(self, objective: Objective, state: _State) -> _State:
        """A step or a descent; where a certificate is due, columns that have died go, and new ones
        come if nothing else is to gain.
        """
        change, steps, point = state.change, state.steps + 1, state.point
        if state.wider is not None:
            F = pruned(state.wider, 0.0, self.max_columns)
            state = self._at(objective, change, F, point, state.steps)
        Y, value, gradient, secants = state.Y, state.value, state.gradient, state.secants
        function, new = _function(objective, change[0]), None
        if self.stall:
            # 300 steps in one descent: many certificates cost more than they tell
            Y = descend_until(function, Y, 300, self.stall, secants, (value, gradient))
        elif (new := descend(function, Y, value, gradient, secants)) is not None:
            Y, value, gradient = new
            if steps % self.interval(objective) and not Run.current().over:
                return _State(change, Y, value, gradient, secants, point, steps)
        # An optimum has fewer columns than an iterate on its way there. A sample of little weight
        # far from all others lives on a column of as little mass, which is not dropped.
        F = pruned(change[0] @ Y, max(1e-16, self.stall))
        point = objective.point(F @ F.T, F)
        G = objective.gradient(point)
        values, V = lowest(G, min(4, objective.space.rank))
        level = inner(G, point.C)
        gap = max(level - float(values[0]), 0.0)
        point, wider = replace(point, G=G, lowest=float(values[0])), None
        # with a gradient this much smaller than the gap, the columns have given what they can
        if new is None or norm(2.0 * (G @ F) - 2.0 * level * F) <= 0.05 * gap:
            wider = grown(F, V / V.shape[1] ** 0.5, min(0.1, max(gap, 1e-12)))
        return _State(change, Y, value, gradient, secants, point, steps, wider)


def lowest(G: Array, n: int) -> tuple[np.ndarray, Array]:
    """The ``n`` lowest eigenvalues and their vectors; the first less the error that rounding may
    have made in it.
    """
    values, V = lowest_eigenpairs(G, n, _DENSE if is_numpy(G) else DENSE)
    if not is_numpy(G) or G.shape[0] > _DENSE:
        return np.array([lowest_bound(G, 1e-10), *to_numpy(values)[1:]]), V
    return values - np.finfo(np.float64).eps * np.abs(G).sum(axis=1).max(), V


# Y ↦ f(FFᵀ/‖F‖²) with F = change·Y, and its gradient
def _function(objective: Objective, change: Array) -> ValueAndGradient:

    def function(Y: Array) -> tuple[float, Array]:
        F = change @ Y
        size = norm(F)
        return _pulled_back(change, F / size, size, *objective.factor_gradient(F / size))

    return function


# the value and the gradient in Y, from ∇f·F at the factor F = change·Y/``size`` of norm one
def _pulled_back(
    change: Array, F: Array, size: float, value: float, GF: Array
) -> tuple[float, Array]:
    return value, (2.0 / size) * (change.T @ (GF - inner(GF, F) * F))


def _preconditioner(objective: Objective, C: Array, G: Array) -> tuple[Array, Array]:
    """QS and its inverse, the constant c = |⟨∇f − D, C⟩| being the size of what is not linear in f;
    from C and ∇f, or from F and ∇f·F.
    """
    parts = objective.term.linear_parts()
    if not parts:
        identity = eye(objective.space.rank, C)
        return identity, identity
    D = sum(scale * part.D for scale, part in parts)
    # a single part remembers its own spectrum, whatever its scale
    scale, part = parts[0] if len(parts) == 1 else (1.0, BoundLinear(D))
    (values, Q), xp = part.spectrum, namespace(D)
    level = abs(inner(G, C) - inner(D, C) if C.shape == D.shape else inner(G - D @ C, C))
    weights = scale * xp.clip(values - xp.min(values), 0.0, None) + max(
        level, 1e-12 * scale * float(xp.max(xp.abs(values))), 1e-300
    )
    return Q / xp.sqrt(weights), xp.sqrt(weights)[:, None] * Q.T
