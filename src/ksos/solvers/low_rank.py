"""Newton's method on a factor with few columns: C = FFᵀ, ‖F‖ = 1, for optima of tiny rank.

On the factor the problem is not convex, but the certificate is blind to where a point comes from,
and it says what to do when the columns are not enough: the lowest eigenvector of ∇f is the
direction that adds a column. A stationary factor whose gap is zero is the optimum.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, replace

import numpy as np

from ksos.functionals import BoundTerm, Objective, Point
from ksos.ground.arrays import (
    Array,
    cholesky_solver,
    eye,
    flat,
    inner,
    is_numpy,
    like,
    linalg_errors,
    namespace,
    norm,
    zeros,
)
from ksos.ground.run import Run
from ksos.solvers.certificate import DENSE, lowest_eigenpairs
from ksos.solvers.interior_point import optimum_on_face
from ksos.solvers.loop import Stepper
from ksos.solvers.spectraplex import centre, factor, grown, pruned

__all__ = ["FactorHessian", "LowRank"]

_LEVELS, _COARSE, _COARSE_STEPS = (8, 16), 0.1, 15
_LEADING, _FEW_LEADING, _LEADING_GAP, _ROOT_RIDGE, _AS_GOOD = 24, 8, 1e-6, 1e-8, 10.0
_DENSE_UNKNOWNS, _DENSE_UNKNOWNS_ON_DEVICE = 1200, 6000
_MANY_DIRECTIONS = 1000
# a gradient this much smaller than the gap: the columns there are have given what they can
_STATIONARY = 0.05
_MOST_NEW_COLUMNS, _WORTH_A_COLUMN = 16, 0.3
_FAINT = 1e-10  # columns of a start with less of the mass do not count
_DROPPED = 1e-14  # columns with less of the mass than this are rounding
_MOST_DAMPINGS, _LEAST_DAMPING = 40, 0.7
_CG_ITERATIONS = 400
_FACE_COLUMNS, _LARGEST_FACE, _FACE_GAP, _FACE_FAINT, _WORTH_A_FACE, _WORTH_A_STEP = (
    40,
    0.3,
    1e-7,
    1e-6,
    0.01,
    0.2,
)
# steps without half the gap: columns that vanish at the optimum make the Hessian singular there,
# and Newton's method slow
_PATIENCE = 3


@dataclass(frozen=True)
class _State:
    F: Array
    point: Point
    value: float
    # in units of ‖gradient‖: spare columns give the Hessian eigenvalues down to about −‖gradient‖,
    # wherever the point is
    damping: float
    level: float  # ⟨∇f, C⟩: at the optimum, the lowest eigenvalue of ∇f
    values: np.ndarray
    vectors: Array  # the lowest eigenvalues of ∇f and their vectors
    least: float = math.inf  # the gap when it was last halved
    since: int = 0  # and the steps since then
    failed: int = 0  # faces since then that did not help
    stuck: bool = False

    @property
    def gap(self) -> float:
        """The certificate."""
        return self.level - float(self.values[0])


@dataclass(frozen=True, kw_only=True)
class LowRank(Stepper):
    """Damped Newton steps on the sphere ‖F‖ = 1, and a new column whenever they have run dry before
    the gap has closed [Burer2003].

    ``max_iter``: the most steps where ``minimize`` is given no ``max_iter``. ``first_columns``: how
    many columns a cold start has. ``max_columns``: the most columns of the factor, and so the most
    squares of the density; below the rank of the optimum the gap stays open. ``extra_steps``: the
    most steps for four more digits once the tolerance is reached; 0 for problems that are one round
    of many. ``dense_unknowns``: the most unknowns (r times columns) for which the Hessian is
    formed; beyond, conjugate gradients (default: 1200, on a GPU 6000).

    >>> import ksos
    >>> from ksos.functionals import SquaredMMD, Trace
    >>> space = ksos.SoSSpace(ksos.kernels.Gaussian(1.0), [[0.0], [1.0]])
    >>> ksos.minimize(SquaredMMD([[0.3], [1.0]]) + 1e-3 * Trace(), space, solver=LowRank(max_columns=2)).status
    'solved'
    """

    name = "low_rank"
    max_iter: int = 1000
    first_columns: int = 3
    max_columns: int | None = None
    extra_steps: int = 12
    dense_unknowns: int | None = None

    def refusal(self, term: BoundTerm) -> str | None:
        """Newton's method needs second derivatives."""
        return None if term.twice_differentiable else "needs second derivatives; use solver='fista'"

    def prepared(self, objective: Objective) -> Objective:
        """On the stored tensor if that is small and rounds better: Newton steps feel rounding that
        changes from point to point.
        """
        return objective.rounded_well()

    def init(self, objective: Objective, start: Point) -> _State:
        """A warm start keeps its own columns; the centre, which has all of them, is replaced by the
        solution of a small problem.
        """
        F = factor(start.C, _FAINT) if start.F is None else pruned(start.F, _FAINT)
        largest = float(namespace(F).max(namespace(F).sum(F * F, axis=0)))
        if (
            F.shape[1] > max(2 * self.first_columns, objective.size // 4)
            or largest <= 1.5 / objective.size
        ):
            return self._from_leading_directions(objective)
        return self.at(
            objective, F if self.max_columns is None else pruned(F, _FAINT, self.max_columns)
        )

    def _from_leading_directions(self, objective: Objective) -> _State:
        """Solve on few directions of most mass (eigenvalues ascend, so they come last), where most
        of f is decided.

        p = ‖Fᵀψ‖² on few directions often has many squares where on all of them one is enough, that
        of √p: Newton's steps on one column are quick, and a face says which others it needs.
        """
        state = self._on_leading_face(objective)
        if state is None:
            return self._on_leading_blocks(objective)
        root = _root_of_density(objective, state.F)
        single = None if root is None else self.at(objective, root)
        return state if single is None or single.gap > _AS_GOOD * state.gap else single

    def _on_leading_face(self, objective: Objective) -> _State | None:
        """Exactly, where f is quadratic."""
        few = _FEW_LEADING if objective.size > _MANY_DIRECTIONS else _LEADING
        if objective.size < 2 * few or self.max_columns is not None:
            return None
        whole = eye(objective.size, objective.space.T)
        V = namespace(whole).concat(
            [whole[:, : int(objective.space.constant)], whole[:, -few:]], axis=1
        )
        C = V @ V.T / V.shape[1]
        X = optimum_on_face(
            objective, V, C, _LEADING_GAP * abs(objective.value(objective.point(C)))
        )
        return None if X is None else self.at(objective, pruned(V @ factor(X), _FACE_FAINT))

    def _on_leading_blocks(self, objective: Objective) -> _State:
        """Roughly, on 8 of them, then 16; on many points, where a direction takes as long as a
        square in a Newton step, on 8.
        """
        F = None
        for k in _LEVELS[:1] if objective.size > _MANY_DIRECTIONS else _LEVELS:
            block = objective.restricted(slice(-k, None)) if 2 * k <= objective.size else None
            if block is None:
                break
            state = self._from_gradient(block) if F is None else self.at(block, _padded(F, k))
            for _ in range(_COARSE_STEPS):
                state = self.step(block, state)
                if state.gap <= _COARSE * abs(state.value) or Run.current().over:
                    break
            F = state.F
        return (
            self._from_gradient(objective)
            if F is None
            else self.at(objective, _padded(F, objective.size))
        )

    def _from_gradient(self, objective: Objective) -> _State:
        """Start at the lowest eigenvectors of ∇f at the centre."""
        columns = min(
            self.first_columns,
            objective.size if self.max_columns is None else self.max_columns,
            objective.size,
        )
        _, vectors = lowest_eigenpairs(
            objective.gradient(objective.point(centre(objective.size, objective.space.T))), columns
        )
        F = vectors * like(np.sqrt(np.arange(columns, 0, -1.0)), vectors)
        return self.at(objective, F / norm(F))

    def at(
        self, objective: Objective, F: Array, damping: float = 1.0, point: Point | None = None
    ) -> _State:
        """The state at a factor of norm one."""
        point = objective.point(F @ F.T, F) if point is None else point
        G = objective.gradient(point)
        values, vectors = lowest_eigenpairs(G, min(*F.shape, _MOST_NEW_COLUMNS))
        known = replace(point, G=G, lowest=float(values[0]) if G.shape[0] <= DENSE else None)
        return _State(F, known, objective.value(point), damping, inner(G, point.C), values, vectors)

    def step(self, objective: Objective, state: _State) -> _State:
        """A Newton step, or new columns."""
        slow = state.since >= _PATIENCE
        if slow and (new := self._over_a_face(objective, state)) is not None:
            helped = (
                state.value - new.value > _WORTH_A_FACE * state.gap or new.gap <= 0.1 * state.gap
            )
            quick = self._forms_hessian(new)
            # and so on, as long as that helps and Newton's steps are dear
            failed = 0 if helped or quick else state.failed + 1
            since = _PATIENCE if helped and not quick else 0
            # Newton's steps on the columns of a face that did not help often do: two such faces in
            # a row are a reason to hand over
            return replace(new, least=new.gap, since=since, failed=failed, stuck=failed > 1)
        stuck = slow and state.F.shape[0] > 2 * _FACE_COLUMNS and not self._forms_hessian(state)
        new = self._newton_step(objective, state)
        halved = new.gap <= 0.5 * state.least or state.value - new.value > _WORTH_A_STEP * state.gap
        since, failed = 0 if halved or slow else state.since + 1, 0 if halved else state.failed
        return replace(
            new, least=new.gap if halved else state.least, since=since, failed=failed, stuck=stuck
        )

    def is_stuck(self, state: _State) -> bool:
        """Newton's steps are dear and slow, and a face does not help."""
        return state.stuck

    def is_quick(self, state: _State) -> bool:
        """Newton's steps where the Hessian is formed, as long as they help."""
        return self._forms_hessian(state) and (
            state.since < _PATIENCE or state.F.shape[0] <= _FACE_COLUMNS
        )

    def _forms_hessian(self, state: _State) -> bool:
        return math.prod(state.F.shape) <= _dense_limit(state.F, self.dense_unknowns)

    def _newton_step(self, objective: Objective, state: _State) -> _State:
        F = state.F
        gradient = 2.0 * (objective.gradient(state.point) @ F)
        multiplier = inner(gradient, F)
        gradient -= multiplier * F
        slope = norm(gradient)
        if slope <= _STATIONARY * state.gap:
            return self._with_new_columns(objective, state)
        hessian = FactorHessian(objective, state, multiplier, self.dense_unknowns)
        damping = state.damping
        for _ in range(_MOST_DAMPINGS):
            if Run.current().over:
                return state
            E = hessian.solve(-gradient, damping * slope)
            if E is not None:
                new = F + E
                new /= norm(new)
                point = objective.point(new @ new.T, new)
                predicted = -inner(gradient, E) - 0.5 * inner(E, hessian.apply(E))
                gained = state.value - objective.value(point)
                rounding = 1e-15 * abs(state.value)
                if gained > 0.1 * predicted or predicted <= rounding:
                    return self.at(
                        objective,
                        new,
                        damping if gained < 0.7 * predicted else max(0.3 * damping, _LEAST_DAMPING),
                        point,
                    )
            damping *= 4.0
        return self._with_new_columns(objective, state)

    def _with_new_columns(self, objective: Objective, state: _State) -> _State:
        """The best point with these columns and new ones where that is cheap to find, else a step
        towards the new ones.
        """
        best = self._over_a_face(objective, state)
        return self._toward_new_columns(objective, state) if best is None else best

    def _over_a_face(self, objective: Objective, state: _State) -> _State | None:
        """The optimum over the columns and the lowest eigenvectors of ∇f, where Newton's steps are
        dear; None if it is not better.
        """
        F, xp = state.F, namespace(state.F)
        r, k = F.shape
        columns = max(_FACE_COLUMNS, min(3 * k, int(_LARGEST_FACE * r)))
        if r <= _FACE_COLUMNS or k + _MOST_NEW_COLUMNS > columns or self.max_columns is not None:
            return None
        _, vectors = lowest_eigenpairs(objective.gradient(state.point), columns - k)
        V, _ = xp.linalg.qr(xp.concat([F, vectors], axis=1))
        X = optimum_on_face(objective, V, state.point.C, _FACE_GAP * state.gap)
        if X is None:
            return None
        found = self.at(objective, pruned(V @ factor(X), _FACE_FAINT), state.damping)
        return found if found.value < state.value else None

    def _toward_new_columns(self, objective: Objective, state: _State) -> _State:
        """C ← (1−t)C + t·VVᵀ with the best t, the columns of V being the eigenvectors of ∇f below
        the level: f cannot increase.
        """
        below = np.maximum(state.level - state.values, 0.0)
        useful = below > _WORTH_A_COLUMN * below[0]
        share = below[useful] / below[useful].sum() if below[0] > 0.0 else np.ones(1)
        V = state.vectors[:, : share.shape[0]] * like(np.sqrt(share), state.vectors)
        toward = objective.point(V @ V.T) - state.point
        slope = float(share @ below[: share.shape[0]])
        curvature = objective.curvature(toward)
        t = min(1.0, slope / curvature) if curvature else 0.5
        if curvature is None:
            while (
                t > 1e-12
                and objective.value(state.point + t * toward) > state.value - 0.3 * t * slope
            ):
                t *= 0.5
        F = pruned(grown(state.F, V, t), _DROPPED, self.max_columns)
        return self.at(objective, F, state.damping)


def _root_of_density(objective: Objective, F: Array) -> Array | None:
    """The factor g, one column, of the function nearest to √p at the support points, p being the
    density of F; None with labels.
    """
    space, xp = objective.space, namespace(F)
    if objective.columns is not None or space.labels is not None:
        return None
    basis = space.basis(space.support_points)
    gram, density = basis.T @ basis, xp.sum((basis @ F) ** 2, axis=1)
    ridge = _ROOT_RIDGE * float(xp.linalg.trace(gram)) / gram.shape[0]
    try:
        g = cholesky_solver(gram + ridge * eye(gram.shape[0], gram))(basis.T @ xp.sqrt(density))
    except linalg_errors():
        return None
    return g[:, None] / norm(g) if norm(g) > 0.0 else None


def _padded(F: Array, r: int) -> Array:
    """F on the last directions of r."""
    return namespace(F).concat([zeros((r - F.shape[0], F.shape[1]), F), F])


def _dense_limit(F: Array, given: int | None) -> int:
    """The most unknowns for which the Hessian is formed."""
    return (
        given
        if given is not None
        else _DENSE_UNKNOWNS
        if is_numpy(F)
        else _DENSE_UNKNOWNS_ON_DEVICE
    )


class FactorHessian:
    """The Riemannian Hessian of F ↦ f(FFᵀ) on the sphere: E ↦ P(Jᵀφ''(JE) + 2·∂²f(FEᵀ+EFᵀ)F + 2GE)
    − multiplier·E.
    """

    def __init__(
        self,
        objective: Objective,
        state: _State,
        multiplier: float,
        dense_unknowns: int | None = None,
    ) -> None:
        self.objective, self.point, self.F, self.multiplier = (
            objective,
            state.point,
            state.F,
            multiplier,
        )
        self.G, (r, k) = objective.gradient(state.point), state.F.shape
        self.dense = self._form() if r * k <= _dense_limit(state.F, dense_unknowns) else None
        self.tangent = (
            objective.map.tangent(state.F)
            if self.dense is None and objective.term.uses_embedding
            else None
        )
        self.lowest = float(state.values[0])

    def _form(self) -> Array:
        r, k = self.F.shape
        H = (
            zeros((r, k, r, k), self.F)
            if (own := self.objective.term.factor_hessian(self.F)) is None
            else own
        )
        for j in range(k):
            H[:, j, :, j] += 2.0 * self.G
        H = namespace(H).reshape(H, (r * k, r * k))
        if self.objective.term.uses_embedding:
            J = 2.0 * namespace(H).reshape(self.objective.map.jacobian(self.F), (-1, r * k))
            pair = self.objective.term.hessian(self.point.a, self.point.C, J, self.point.C)
            assert pair is not None
            if pair[0] is not None:
                H += J.T @ pair[0]
        f = flat(self.F)
        Hf = H @ f
        # P H P − multiplier·P, and 1 along F itself: H − fgᵀ − gfᵀ with one g
        g = Hf - 0.5 * (inner(f, Hf) + self.multiplier + 1.0) * f
        H -= f[:, None] * g[None, :]
        H -= g[:, None] * f[None, :]
        H -= self.multiplier * eye(r * k, H)
        return 0.5 * (H + H.T)

    def apply(self, E: Array) -> Array:
        """The Hessian applied to a tangent vector E, shape (r, k)."""
        if self.dense is not None:
            return namespace(E).reshape(self.dense @ flat(E), E.shape)
        F = self.F
        da = None if self.tangent is None else self.tangent.along(E)
        dC = F @ E.T
        pair = self.objective.term.hessian(self.point.a, self.point.C, da, dC + dC.T)
        assert pair is not None
        out = 2.0 * (self.G @ E) - self.multiplier * E
        if pair[0] is not None and self.tangent is not None:
            out += self.tangent.back(pair[0])
        if pair[1] is not None:
            out += 2.0 * (pair[1] @ F)
        return out - inner(out, F) * F

    def solve(self, right: Array, damping: float) -> Array | None:
        """(Hessian + damping)⁻¹ right, tangent; None where the matrix is not positive definite."""
        if self.dense is not None:
            try:
                solve = cholesky_solver(self.dense + damping * eye(self.dense.shape[0], self.dense))
            except linalg_errors():
                return None
            E = namespace(right).reshape(solve(flat(right)), right.shape)
            return E - inner(E, self.F) * self.F
        # truncated conjugate gradients, preconditioned with 2(G − λ_min) + damping, the part of the
        # Hessian that is cheap to factorise
        shift = damping + 1e-3 * norm(right) + 1e-12
        solve = cholesky_solver(
            2.0 * self.G + (shift - 2.0 * self.lowest) * eye(self.G.shape[0], self.G)
        )

        def precondition(R: Array) -> Array:
            Z = solve(R)
            return Z - inner(Z, self.F) * self.F

        E, R, moved = zeros(right.shape, right), right, False
        Z = precondition(R)
        P, energy, start = Z, inner(R, Z), norm(right)
        for _ in range(_CG_ITERATIONS):
            HP = self.apply(P) + damping * P
            curvature = inner(P, HP)
            if curvature <= 0.0:
                return E if moved else None
            step = energy / curvature
            E, R, moved = E + step * P, R - step * HP, True
            if norm(R) <= min(0.1, math.sqrt(start)) * start or Run.current().over:
                break
            Z = precondition(R)
            energy, previous = inner(R, Z), energy
            P = Z + (energy / previous) * P
        return E
