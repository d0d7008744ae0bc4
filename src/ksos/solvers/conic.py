"""Primal-dual interior point with constraints: min s‖a‖² − 2⟨b, a⟩ + ⟨D, C⟩ + tr(CNCN), a = A(C), linear constraints on C, balls for a.

For tr C = 1, ⟨M_i, C⟩ + u_i = c_i (u_i ≥ 0, or 0 for an equality) and ‖a − z_j‖ ≤ ε_j the optimum has multipliers with

    M = D + 2NCN + A*(y) + Σ ν_i M_i − tI ⪰ 0,   2s·a − 2b − y − Σ_j w_j = 0,   CM = 0,   u_i ν_i = 0,   (ε_j, a − z_j) ∘ (w_j⁰, w_j) = 0.

A step eliminates all but (y, ν, t): one Schur system, that of the unconstrained problem with one more row per linear constraint. In the
coordinates in which RᵀNR = diag(δ), the quadratic form multiplies the entries of dC by 2δ_iδ_j: it only damps the rows of that system.
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np

from ksos._array import to_numpy
from ksos.embedding_map import SMALL_TENSOR
from ksos.functionals.mmd import BoundBall
from ksos.functionals.objective import Point
from ksos.solvers.constrained_problem import ConstrainedProblem, Prices
from ksos.solvers.scaled_pair import ScaledPair, longest_step
from ksos.solvers.schur import SchurSystem
from ksos.solvers.second_order_cone import ConePair, cone_divide, cone_product, cone_step
from ksos.solvers.spectraplex import centre

__all__ = ["ConicProgram", "central_path"]

_TO_THE_BOUNDARY = 0.98
_SHORTEST_STEP = 1e-6
_FLOOR = 1e-16
_MOST_STEPS = 80


@dataclass(frozen=True)
class ConicProgram:
    """The data, in units in which f and the linear constraints vary by about one."""

    rows: np.ndarray
    """(q + p, r, r): the tensor of A and the matrices M_i."""
    q: int
    scale: float
    b: np.ndarray
    D: np.ndarray
    N: np.ndarray | None
    c: np.ndarray
    """The c_i."""
    slack: np.ndarray
    """Which of the linear constraints are inequalities."""
    balls: list[tuple[np.ndarray, float]]
    """(z_j, ε_j)."""
    order: list[int]
    """Which constraint each multiplier (the ν_i, then one per ball) belongs to."""
    units: np.ndarray
    """What turns these multipliers into those of the problem."""
    steepness: float | None
    """‖∂f/∂a‖ where f is a multiple of a distance, and this the problem of the squared one; else None."""

    @classmethod
    def of(cls, problem: ConstrainedProblem) -> ConicProgram | None:
        """The problem in this form; None where f or a constraint has another one, or the tensor is large.

        For a distance that is not squared it is the problem of the squared one, which has the same solutions (and other multipliers).
        """
        form, space, r = problem.base.term.with_same_minima(), problem.space, problem.space.rank
        terms = [bound.term for bound in problem.bounds]
        if form is None or not all(term.linear or isinstance(term, BoundBall) for term in terms):
            return None
        embedded = form.b is not None or any(not term.linear for term in terms)
        if embedded and space.tensor_size > SMALL_TENSOR:
            return None
        tensor = to_numpy(space.compressed_map.tensor) if embedded else np.zeros((0, r, r))
        unit, q, middle = max(problem.size, 1e-200), tensor.shape[0], problem.point(centre(r, space.T))
        linear = [i for i, term in enumerate(terms) if term.linear]
        sizes = np.array([problem.bounds[i].size for i in linear])
        slopes = [to_numpy(problem.slope(i, middle)) / size for i, size in zip(linear, sizes, strict=True)]
        levels = [float(np.trace(slope)) / r for slope in slopes]
        excesses = problem.excesses(middle)
        round_ones = [(i, term) for i, term in enumerate(terms) if isinstance(term, BoundBall)]
        return cls(
            rows=np.concatenate([tensor, np.stack(slopes)]) if slopes else tensor,
            q=q,
            scale=form.scale / unit,
            b=np.zeros(q) if form.b is None else to_numpy(form.b) / unit,
            D=np.zeros((r, r)) if form.D is None else to_numpy(form.D) / unit,
            N=None if form.N is None else to_numpy(form.N) / math.sqrt(unit),
            c=np.array([level - excesses[i] / size for level, i, size in zip(levels, linear, sizes, strict=True)]),
            slack=np.array([not problem.bounds[i].equality for i in linear], dtype=bool),
            balls=[(to_numpy(term.z), term.radius) for _, term in round_ones],
            order=[*linear, *(i for i, _ in round_ones)],
            units=unit * np.concatenate([1.0 / sizes, np.ones(len(round_ones))]),
            steepness=None if problem.base.term.conic_form() is not None else _steepness(problem, middle) / unit,
        )

    def prices(self, state: _State) -> Prices:
        """The multipliers of the problem, in its own order, and the vectors of its balls."""
        pulls = [-pair.w[1:] for pair in state.cones]
        if pulls:  # M knows y, to many digits; what the steepest ball has lost of it is given back
            steepest = int(np.argmax([pair.w[0] for pair in state.cones]))
            pulls[steepest] = pulls[steepest] + state.y + 2.0 * self.b - 2.0 * self.scale * state.a - sum(pulls)
        own = np.concatenate([state.nu, [float(np.linalg.norm(pull)) for pull in pulls]]) * self.units
        out, first = np.empty(own.shape[0]), state.nu.shape[0]
        out[self.order] = own
        vectors = {i: unit * pull for i, unit, pull in zip(self.order[first:], self.units[first:], pulls, strict=True)}
        if self.steepness is None:
            return Prices(out, vectors)
        # ∇f = (∇f²)/2f, and everything else in the optimality conditions is multiplied alike
        slope = 2.0 * float(np.linalg.norm(self.scale * state.a - self.b))
        factor = self.steepness / max(slope, 1e-300)
        return Prices(factor * out, {i: factor * pull for i, pull in vectors.items()})

    @property
    def cost(self) -> float:
        """Floating-point operations of one step."""
        n, r = self.rows.shape[0], self.D.shape[0]
        return float(n * r**2 * (4 * r + 2 * n))


def _steepness(problem: ConstrainedProblem, point: Point) -> float:
    in_embedding, _ = problem.base.term.gradient(point.a, point.C)
    return float(np.linalg.norm(to_numpy(in_embedding)))


@dataclass(frozen=True)
class _State:
    pair: ScaledPair
    a: np.ndarray
    y: np.ndarray
    t: float
    nu: np.ndarray
    u: np.ndarray
    cones: list[ConePair]


@dataclass(frozen=True)
class _Direction:
    dC: np.ndarray
    dM: np.ndarray
    da: np.ndarray
    dy: np.ndarray
    dt: float
    dnu: np.ndarray
    du: np.ndarray
    cones: list[tuple[np.ndarray, np.ndarray]]
    """(dx, dw) of each."""


def central_path(program: ConicProgram) -> Iterator[tuple[np.ndarray, Prices, float]]:
    """(C/tr C, prices, μ) along Mehrotra's predictor-corrector steps, until rounding leads the way."""
    state = _start(program)
    for _ in range(_MOST_STEPS):
        try:
            state, step = _step(program, state)
        except np.linalg.LinAlgError:
            return
        if step < _SHORTEST_STEP:
            return
        C = state.pair.C
        mu = _System.mean_product(program, state)
        yield C / float(np.trace(C)), program.prices(state), mu
        if mu <= _FLOOR:
            return


def _step(program: ConicProgram, state: _State) -> tuple[_State, float]:
    """Predictor (towards μ = 0), corrector (towards the μ the predictor could reach), step."""
    system = _System(program, state)
    lambdas = [pair.values for pair in state.cones]
    predictor = system.direction(-np.diag(state.pair.values), -np.sqrt(state.u * state.nu), [-value for value in lambdas])
    reach = min(1.0, _longest(program, state, predictor))
    corrector = system.direction(*system.corrected(predictor, (1.0 - reach) ** 3 * system.mu))
    step = min(1.0, _TO_THE_BOUNDARY * _longest(program, state, corrector))
    return _moved(program, state, corrector, step), step


def _start(program: ConicProgram) -> _State:
    """Everything well inside its cone: C = I/r, M about as large as f varies, slacks and multipliers of one unit."""
    r, q = program.D.shape[0], program.q
    nu, u = np.where(program.slack, 1.0, 0.0), np.where(program.slack, 1.0, 0.0)
    G = program.D + np.tensordot(nu, program.rows[q:], axes=1)
    values, Q = np.linalg.eigh(G)
    t = float(values[0]) - 1.0
    cones = [ConePair(np.append(radius, np.zeros(q)), np.append(1.0, np.zeros(q))) for _, radius in program.balls]
    a = np.tensordot(program.rows[:q], np.eye(r) / r, axes=2)
    return _State(ScaledPair.central(Q, values - t), a, np.zeros(q), t, nu, u, cones)


class _System:
    """The Schur system at a state, and the directions that it gives."""

    def __init__(self, program: ConicProgram, state: _State) -> None:
        self.program, self.state, q = program, state, program.q
        p = program.c.shape[0]
        self.mu = self.mean_product(program, state)
        R, C, r = state.pair.R, state.pair.C, program.D.shape[0]
        Q = 2.0 * program.scale * np.eye(q)
        for pair in state.cones:
            c, v = pair.curvature
            Q += c * np.eye(q) + np.multiply.outer(v, v)
        self.inverse = np.linalg.inv(Q) if q else Q
        self.weights = np.where(program.slack, np.sqrt(state.u / np.where(program.slack, state.nu, 1.0)), 0.0)  # W of the orthant
        ridge = np.zeros((q + p + 1, q + p + 1))
        ridge[:q, :q] = self.inverse
        ridge[range(q, q + p), range(q, q + p)] = self.weights**2
        self.axes: np.ndarray | None = None
        self.damping: np.ndarray | None = None
        x = np.concatenate([state.y, state.nu])
        dual = program.D + np.tensordot(x, program.rows, axes=1) - state.t * np.eye(r) - state.pair.M
        if program.N is not None:
            delta, self.axes = np.linalg.eigh(R.T @ program.N @ R)
            self.damping = 1.0 / np.sqrt(1.0 + 2.0 * np.multiply.outer(np.maximum(delta, 0.0), np.maximum(delta, 0.0)))
            dual = dual + 2.0 * program.N @ C @ program.N
        self.schur = SchurSystem(program.rows, R if self.axes is None else R @ self.axes, ridge, self.damping)
        self.scaled = R.T @ (0.5 * (dual + dual.T)) @ R
        images = np.tensordot(program.rows, C, axes=2)
        self.off_embedding, self.off_linear = images[:q] - state.a, images[q:] + state.u - program.c
        self.off_trace = float(np.trace(C)) - 1.0
        self.off_slope = 2.0 * program.scale * state.a - 2.0 * program.b - state.y - sum(pair.w[1:] for pair in state.cones)
        self.off_centres = [state.a - z - pair.x[1:] for (z, _), pair in zip(program.balls, state.cones, strict=True)]

    @staticmethod
    def mean_product(program: ConicProgram, state: _State) -> float:
        """μ: the mean of the products that vanish at the optimum."""
        total = float(state.pair.values @ state.pair.values) + float(state.u @ state.nu) + sum(pair.x @ pair.w for pair in state.cones)
        return total / (state.pair.values.shape[0] + int(program.slack.sum()) + len(state.cones))

    def direction(self, K: np.ndarray, k: np.ndarray, cones: list[np.ndarray]) -> _Direction:
        """The step with dC + dM = K, du + dν = k and dx + dw = (each of ``cones``) in scaled coordinates, and all residuals gone."""
        state, q = self.state, self.program.q
        pulls = []
        for goal, pair, away in zip(cones, state.cones, self.off_centres, strict=True):
            c, v = pair.curvature
            pulls.append(pair.scale(goal, inverse=True)[1:] - (c * away + (v @ away) * v))
        known = sum(pulls) - self.off_slope  # Q·da = dy + known
        goal_C = self._damped(K - self.scaled)
        right = self.schur.apply(goal_C)
        right[:q] += self.off_embedding - self.inverse @ known
        right[q:-1] += self.off_linear + self.weights * k
        right[-1] -= self.off_trace
        x = self.schur.solve(right)
        dy, dnu, dt = x[:q], x[q:-1], float(x[-1])
        dC = self._undamped(goal_C - self.schur.adjoint(x))
        dC = 0.5 * (dC + dC.T)
        da = self.inverse @ (dy + known)
        moves = []
        for goal, pair, away in zip(cones, state.cones, self.off_centres, strict=True):
            dx = np.append(0.0, da + away)
            moves.append((dx, pair.scale(goal - pair.scale(dx, inverse=True), inverse=True)))
        return _Direction(dC, K - dC, da, dy, dt, dnu, self.weights * (k - self.weights * dnu), moves)

    def _damped(self, X: np.ndarray) -> np.ndarray:
        """To the coordinates of the Schur system."""
        return X if self.axes is None else self.damping * (self.axes.T @ X @ self.axes)

    def _undamped(self, X: np.ndarray) -> np.ndarray:
        """The adjoint of that: together they solve dC + 2(RᵀNR)dC(RᵀNR) = X."""
        return X if self.axes is None else self.axes @ (self.damping * X) @ self.axes.T

    def corrected(self, predictor: _Direction, goal: float) -> tuple[np.ndarray, np.ndarray, list[np.ndarray]]:
        """The right-hand sides that lead to μ = goal, with the predictor's second-order terms."""
        state, values = self.state, self.state.pair.values
        second = predictor.dC @ predictor.dM
        K = 2.0 * (np.diag(goal - values**2) - 0.5 * (second + second.T)) / np.add.outer(values, values)
        root = np.sqrt(state.u * state.nu)
        safe = np.where(self.program.slack, root, 1.0)
        k = np.where(self.program.slack, (goal - root**2 - predictor.du * predictor.dnu) / safe, 0.0)
        cones = []
        for (dx, dw), pair in zip(predictor.cones, state.cones, strict=True):
            value = pair.values
            unit = np.append(goal, np.zeros(value.shape[0] - 1))
            both = cone_product(pair.scale(dx, inverse=True), pair.scale(dw))
            cones.append(cone_divide(value, unit - cone_product(value, value) - both))
        return K, k, cones


def _longest(program: ConicProgram, state: _State, move: _Direction) -> float:
    """The longest step along which everything stays in its cone."""
    steps = [longest_step(state.pair.values, move.dC), longest_step(state.pair.values, move.dM)]
    for now, change in ((state.u, move.du), (state.nu, move.dnu)):
        falling = program.slack & (change < 0.0)
        steps += (-now[falling] / change[falling]).tolist()
    for pair, (dx, dw) in zip(state.cones, move.cones, strict=True):
        steps += [cone_step(pair.x, dx), cone_step(pair.w, dw)]
    return min(steps)


def _moved(program: ConicProgram, state: _State, move: _Direction, step: float) -> _State:
    return _State(
        state.pair.moved(step, move.dC, move.dM),
        state.a + step * move.da,
        state.y + step * move.dy,
        state.t + step * move.dt,
        state.nu + step * move.dnu,
        state.u + step * move.du,
        [ConePair(pair.x + step * dx, pair.w + step * dw) for pair, (dx, dw) in zip(state.cones, move.cones, strict=True)],
    )
