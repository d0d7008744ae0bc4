"""Primal-dual interior point for min s‖A(C) − z‖² + ⟨D, C⟩ over the spectraplex: a dozen steps, each with one (q+1) × (q+1) system.

The dual is max −‖y‖²/(4s) − yᵀz + t subject to M = D + A*(y) − tI ⪰ 0. At the optimum y = 2s(A(C) − z), tr C = 1 and CM = 0; the
central path has CM = μI, and Mehrotra's predictor-corrector follows it to μ = 0 in the Nesterov–Todd scaling.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, replace

import numpy as np

from ksos._array import Array, eye, inner, like, namespace, norm, to_numpy, zeros
from ksos._memory import FLOAT_BYTES, require_memory
from ksos.embedding_map import CompressedMap
from ksos.functionals.base import BoundTerm
from ksos.functionals.objective import Objective, Point
from ksos.solvers.face import minimum_on_face
from ksos.solvers.loop import Stepper
from ksos.solvers.scaled_pair import ScaledPair, diagonal, longest_step
from ksos.solvers.schur import SchurSystem

__all__ = ["InteriorPoint"]

_TO_THE_BOUNDARY = 0.98
_SHORTEST_STEP = 1e-4
_MOST_COLUMNS = 12
_ROUNDING = 1e-17


@dataclass(frozen=True)
class _Problem:
    """s, b = s·z and D of the objective, with the matrices A_k."""

    tensor: Array
    scale: float
    b: Array
    D: Array

    @property
    def unit(self) -> float:
        """The size of f, so that eigenvalues of M can be compared with those of C."""
        return self.scale if self.scale > 0.0 else float(namespace(self.D).max(namespace(self.D).abs(self.D)))

    @property
    def ridge(self) -> float:
        """1/(2s): ∂²/∂y² of −‖y‖²/(4s)."""
        return 0.5 / self.scale if self.scale > 0.0 else 0.0


@dataclass(frozen=True)
class _State:
    problem: _Problem
    point: Point
    """C/tr C, feasible (at the start: the start itself, which need not be interior)."""
    pair: ScaledPair
    """(C, M), both positive definite."""
    y: Array
    t: float
    floor: float
    """The μ below which rounding leads the way."""


class InteriorPoint(Stepper):
    """For squared MMDs plus linear terms: the gap falls by a factor of about ten per step, whatever the conditioning."""

    default_max_iter = 100
    check_every = 1
    patience = 25  # more than a run takes: a warm start may beat everything but its last iterates

    def refusal(self, term: BoundTerm) -> str | None:
        """The dual is known for this class of functionals only."""
        return None if term.as_quadratic() is not None else "takes squared MMDs and linear terms only; use solver='low_rank' or 'fista'"

    def init(self, objective: Objective, C: Array) -> _State:
        """y from C, t as far below λ_min(∇f) as the gap is wide, and then the pair on the central path: C ∝ M⁻¹.

        So a good start gives a small μ, and its y, which is all that M needs, is kept.
        """
        problem, point = _problem(objective), objective.point(C)
        G = objective.gradient(point)
        all_values, Q = namespace(G).linalg.eigh(G)
        values = to_numpy(all_values)
        a = zeros((0,), C) if point.a is None else point.a
        y = 2.0 * (problem.scale * a - problem.b)
        size, gap = float(np.abs(values).max()), inner(G, C) - float(values[0])
        embedded = problem.scale * norm(a) + norm(problem.b)  # what the first term of f can change by
        depth = max(min(gap, embedded) if embedded > 0.0 else gap, 1e-12 * size, 1e-200)
        t = float(values[0]) - depth
        return _State(problem, replace(point, G=G), ScaledPair.central(Q, values - t), y, t, _ROUNDING * size)

    def point(self, state: _State) -> Point:
        """The interior iterate, scaled to tr C = 1."""
        return state.point

    def step(self, objective: Objective, state: _State) -> _State:
        """Predictor (towards μ = 0), corrector (towards the μ the predictor could reach, with its second-order term), step."""
        problem, pair = state.problem, state.pair
        if pair.mu <= state.floor:
            return state
        r, q, values, xp = pair.values.shape[0], state.y.shape[0], pair.values, namespace(pair.values)
        C = objective.point(pair.C)
        a = zeros((0,), C.C) if C.a is None else C.a
        pulled = objective.map.adjoint(state.y) if q else 0.0
        dual_residual = problem.D + pulled - state.t * eye(r, pair.R) - pair.M
        schur = SchurSystem(problem.tensor, pair.R, problem.ridge)
        excess = xp.reshape(xp.linalg.trace(C.C) - 1.0, (1,))
        primal_residual = xp.concat([problem.ridge * (2.0 * problem.b + state.y) - a, excess])
        scaled_residual = pair.R.T @ dual_residual @ pair.R

        def direction(K: Array) -> tuple[Array, Array, Array]:
            """(dC, dM, (dy, dt)) with dC + dM = K in scaled coordinates and both residuals gone."""
            x = schur.solve(schur.apply(K - scaled_residual) - primal_residual)
            dM = scaled_residual + schur.adjoint(x)
            dM = 0.5 * (dM + dM.T)
            return K - dM, dM, x

        dC, dM, _ = direction(-diagonal(values))
        reach = min(1.0, longest_step(values, dC), longest_step(values, dM))
        second_order = dC @ dM
        target = diagonal((1.0 - reach) ** 3 * pair.mu - values**2) - 0.5 * (second_order + second_order.T)
        dC, dM, x = direction(2.0 * target / (values[:, None] + values[None, :]))
        step = min(1.0, _TO_THE_BOUNDARY * longest_step(values, dC), _TO_THE_BOUNDARY * longest_step(values, dM))
        if step < _SHORTEST_STEP:
            return replace(state, floor=math.inf)
        moved = pair.moved(step, dC, dM)
        return _State(
            problem, _feasible(objective, problem, moved), moved, state.y + step * x[:q], state.t + step * float(x[q]), state.floor
        )


def _feasible(objective: Objective, problem: _Problem, pair: ScaledPair) -> Point:
    """C/tr C; or, where it has the smaller gap, the minimum of f on the face of the eigenvalues that will not vanish with μ."""
    C = pair.C
    point, gap = _with_gap(objective, C / float(namespace(C).linalg.trace(C)))
    values, Q = namespace(C).linalg.eigh(C)
    host = to_numpy(values)
    # Matching eigenvalues of C and M have the product μ; those of C stay which are the larger ones of their two.
    columns = int(np.count_nonzero((host > 0.0) & (problem.unit * host**2 > pair.mu)))
    if 0 < columns <= _MOST_COLUMNS:
        F = minimum_on_face(problem.tensor, problem.scale, problem.b, problem.D, Q[:, -columns:] * like(np.sqrt(host[-columns:]), Q))
        if F is not None:
            polished, polished_gap = _with_gap(objective, F @ F.T / inner(F, F))
            if polished_gap < gap:
                return polished
    return point


def _with_gap(objective: Objective, C: Array) -> tuple[Point, float]:
    point = objective.point(C)
    G = objective.gradient(point)
    return replace(point, G=G), inner(G, C) - float(namespace(G).linalg.eigvalsh(G)[0])


def _problem(objective: Objective) -> _Problem:
    """The data of the conic problem; the tensor is formed here, where it is not stored already."""
    quadratic, r = objective.term.as_quadratic(), objective.size
    assert quadratic is not None
    T = objective.space.T
    D = zeros((r, r), T) if quadratic.D is None else quadratic.D
    if quadratic.b is None:
        return _Problem(zeros((0, r, r), T), 0.0, zeros((0,), T), D)
    q = quadratic.b.shape[0]
    stored = 0 if isinstance(objective.space.map, CompressedMap) else q * r * r
    require_memory(
        FLOAT_BYTES * (stored + 0.5 * q * r * r + 3.0 * q * q + 12.0 * r * r),
        f"the interior-point method with {q} coordinates and rank {r}",
        "use solver='low_rank', or fewer support points or landmarks (n_support)",
        beside=T,
    )
    return _Problem(objective.space.compressed_map.tensor, quadratic.scale, quadratic.b, D)
