"""Newton's method on a factor with few columns: C = FFᵀ, ‖F‖ = 1, for optima of tiny rank.

On the factor the problem is not convex, but the certificate is blind to where a point comes from,
and it says what to do when the columns are not enough: the lowest eigenvector of ∇f is the
direction that adds a column. A stationary factor whose gap is zero is the optimum.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, replace

import numpy as np

from ksos.functionals import Objective, Point
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
from ksos.solvers.interior_point import optimum_on_face
from ksos.solvers.loop import Stepper
from ksos.solvers.spectraplex import (
    DENSE,
    factor,
    grown,
    lowest_eigenpairs,
    pruned,
    step_along,
)

_LEADING = 24  # directions on which a quadratic is minimized exactly: its steps cost some 24^4 each
_MOST_NEW_COLUMNS = 16  # at once: optima have fewer, and a face takes what it can use of them
_FAINT = 1e-10  # columns of a start with less of the mass do not count
_FACE_COLUMNS = 40  # where Newton's steps are dear: the interior point takes 20 ms on so many
_FACE_FAINT = 1e-6  # mass of columns of a face that are dropped: they vanish with its gap
_PATIENCE = 3  # steps without half the gap: Newton is slow where vanishing columns make H singular


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

    # the certificate
    @property
    def gap(self) -> float:
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
    >>> functional = SquaredMMD([[0.3], [1.0]]) + 1e-3 * Trace()
    >>> ksos.minimize(functional, space, solver=LowRank(max_columns=2)).status
    'solved'
    """

    name = "low_rank"
    needs = "twice_differentiable"
    needs_in_words = "needs second derivatives; use solver='fista'"
    max_iter: int = 1000
    first_columns: int = 2
    max_columns: int | None = None
    extra_steps: int = 12
    dense_unknowns: int | None = None

    def prepared(self, objective: Objective) -> Objective:
        # Newton steps feel rounding that changes from point to point
        return objective.rounded_well()

    def init(self, objective: Objective, start: Point) -> _State:
        """A warm start keeps its own columns; the center, which has all of them, is replaced by the
        solution of a small problem.
        """
        F = factor(start.C, _FAINT) if start.F is None else pruned(start.F, _FAINT)
        largest = float(namespace(F).max(namespace(F).sum(F * F, axis=0)))
        many = F.shape[1] > max(2 * self.first_columns, objective.space.rank // 4)
        if many or largest <= 1.5 / objective.space.rank:
            return self._from_leading_directions(objective)
        return self.at(objective, pruned(F, _FAINT, self.max_columns))

    def _from_leading_directions(self, objective: Objective) -> _State:
        """Solve on few directions of most mass (eigenvalues ascend, so they come last), where most
        of f is decided.

        p = ‖Fᵀψ‖² on few directions often has many squares where on all of them one is enough, that
        of √p: Newton's steps on one column are quick, and a face says which others it needs.
        """
        state, space = None, objective.space
        if space.rank >= 2 * _LEADING and self.max_columns is None and space.labels is None:
            # exactly, if f is quadratic
            whole = eye(space.rank, space.T)
            parts = [whole[:, : int(space.constant)], whole[:, -_LEADING:]]
            V = namespace(whole).concat(parts, axis=1)
            C = V @ V.T / V.shape[1]
            gap = 1e-6 * abs(objective.value(objective.point(C)))  # the rest of f decides more
            if (X := optimum_on_face(objective, V, C, gap)) is not None:
                state = self.at(objective, pruned(V @ factor(X), _FACE_FAINT))
        if state is None:
            return self._from_lowest_eigenvectors(objective)
        root = _root_of_density(objective, state.F)
        single = None if root is None else self.at(objective, root)
        # its steps are so much quicker that ten times the gap is no worse
        return state if single is None or single.gap > 10.0 * state.gap else single

    # those of ∇f among the directions of most mass, at their center
    def _from_lowest_eigenvectors(self, objective: Objective) -> _State:
        r, T = objective.space.rank, objective.space.T
        columns = min(self.first_columns, self.max_columns or r, r)
        # a quarter of all directions; those of labels are not in the order of their mass
        few = max(columns, r // 4) if objective.space.labels is None else r
        whole = eye(r, T)
        first = min(int(objective.space.constant), r - few)  # the constant has a column of its own
        V = namespace(whole).concat([whole[:, :first], whole[:, r - few :]], axis=1)
        G = objective.gradient(objective.point(V @ V.T / V.shape[1]))
        _, vectors = lowest_eigenpairs(V.T @ G @ V, columns)
        F = V @ (vectors * like(np.sqrt(np.arange(columns, 0, -1.0)), vectors))
        return self.at(objective, F / norm(F))

    # the state at a factor of norm one
    def at(
        self, objective: Objective, F: Array, damping: float = 1.0, point: Point | None = None
    ) -> _State:
        point = objective.point(F @ F.T, F) if point is None else point
        G = objective.gradient(point)
        values, vectors = lowest_eigenpairs(G, min(*F.shape, _MOST_NEW_COLUMNS))
        known = replace(point, G=G, lowest=float(values[0]) if G.shape[0] <= DENSE else None)
        return _State(F, known, objective.value(point), damping, inner(G, point.C), values, vectors)

    # A Newton step, or new columns
    def step(self, objective: Objective, state: _State) -> _State:
        slow = state.since >= _PATIENCE
        if slow and (new := self._over_a_face(objective, state)) is not None:
            gained = state.value - new.value
            helped = gained > 0.01 * state.gap or new.gap <= 0.1 * state.gap
            quick = self._forms_hessian(new.F)
            # and so on, as long as that helps and Newton's steps are dear
            failed = 0 if helped or quick else state.failed + 1
            since = _PATIENCE if helped and not quick else 0
            # Newton's steps on the columns of a face that did not help often do: two such faces in
            # a row are a reason to hand over
            return replace(new, least=new.gap, since=since, failed=failed, stuck=failed > 1)
        large = state.F.shape[0] > 2 * _FACE_COLUMNS
        stuck = slow and large and not self._forms_hessian(state.F)
        new = self._newton_step(objective, state)
        # a step that gains a fifth of the gap is not slow, whatever its new gap
        halved = new.gap <= 0.5 * state.least or state.value - new.value > 0.2 * state.gap
        since, failed = 0 if halved or slow else state.since + 1, 0 if halved else state.failed
        least = new.gap if halved else state.least
        return replace(new, least=least, since=since, failed=failed, stuck=stuck)

    def is_stuck(self, state: _State) -> bool:
        return state.stuck

    def is_quick(self, state: _State) -> bool:
        helps = state.since < _PATIENCE or state.F.shape[0] <= _FACE_COLUMNS
        return self._forms_hessian(state.F) and helps

    def _forms_hessian(self, F: Array) -> bool:
        # the Cholesky factor then costs at most 0.6 GFLOP, on a GPU 70
        default = 1200 if is_numpy(F) else 6000
        most = default if self.dense_unknowns is None else self.dense_unknowns
        return math.prod(F.shape) <= most

    def _newton_step(self, objective: Objective, state: _State) -> _State:
        F = state.F
        gradient = 2.0 * (objective.gradient(state.point) @ F)
        multiplier = inner(gradient, F)
        gradient -= multiplier * F
        slope = norm(gradient)
        # with a gradient this much smaller than the gap, the columns have given what they can
        if slope > 0.05 * state.gap:
            hessian = FactorHessian(objective, state, multiplier, self._forms_hessian(F))
            damping = state.damping
            for _ in range(40):  # each damping is four times the last one
                if Run.current().over:
                    return state
                E = hessian.solve(-gradient, damping * slope)
                if E is not None:
                    new = F + E
                    new /= norm(new)
                    point = objective.point(new @ new.T, new)
                    predicted = -inner(gradient, E) - 0.5 * inner(E, hessian.apply(E))
                    gained = state.value - objective.value(point)
                    if gained > 0.1 * predicted or predicted <= 1e-15 * abs(state.value):
                        if gained >= 0.7 * predicted:
                            # spare columns make the Hessian indefinite by about one ‖gradient‖
                            damping = max(0.3 * damping, 0.7)
                        return self.at(objective, new, damping, point)
                damping *= 4.0
        return self._over_a_face(objective, state) or self._toward_new_columns(objective, state)

    def _over_a_face(self, objective: Objective, state: _State) -> _State | None:
        """The optimum over the columns and the lowest eigenvectors of ∇f, where Newton's steps are
        dear; None if it is not better.
        """
        F, xp = state.F, namespace(state.F)
        r, k = F.shape
        # beyond a third of r, the interior point on all directions is as quick
        columns = max(_FACE_COLUMNS, min(3 * k, int(0.3 * r)))
        if r < 2 * _LEADING or k + _MOST_NEW_COLUMNS > columns or self.max_columns is not None:
            return None
        _, vectors = lowest_eigenpairs(objective.gradient(state.point), columns - k)
        V, _ = xp.linalg.qr(xp.concat([F, vectors], axis=1))
        X = optimum_on_face(objective, V, state.point.C, 1e-7 * state.gap)
        if X is None:
            return None
        found = self.at(objective, pruned(V @ factor(X), _FACE_FAINT), state.damping)
        return found if found.value < state.value else None

    def _toward_new_columns(self, objective: Objective, state: _State) -> _State:
        """C ← (1−t)C + t·VVᵀ with the best t, the columns of V being the eigenvectors of ∇f below
        the level: f cannot increase.
        """
        below = np.maximum(state.level - state.values, 0.0)
        useful = below > 0.3 * below[0]  # of the largest gain per mass: those of less can wait
        share = below[useful] / below[useful].sum() if below[0] > 0.0 else np.ones(1)
        V = state.vectors[:, : share.shape[0]] * like(np.sqrt(share), state.vectors)
        toward = objective.point(V @ V.T) - state.point
        slope = float(share @ below[: share.shape[0]])
        t = step_along(objective, state.point, toward, slope, 0.5)
        F = pruned(grown(state.F, V, t), 1e-14, self.max_columns)  # less mass is rounding
        return self.at(objective, F, state.damping)


def _root_of_density(objective: Objective, F: Array) -> Array | None:
    """The factor g, one column, of the function nearest to √p at the support points, p being the
    density of F.
    """
    space, xp = objective.space, namespace(F)
    basis = space.basis(space.support_points)
    gram, density = basis.T @ basis, xp.sum((basis @ F) ** 2, axis=1)
    ridge = 1e-8 * float(xp.linalg.trace(gram)) / gram.shape[0]
    try:
        g = cholesky_solver(gram + ridge * eye(gram.shape[0], gram))(basis.T @ xp.sqrt(density))
    except linalg_errors():
        return None
    return g[:, None] / norm(g) if norm(g) > 0.0 else None


class FactorHessian:
    """The Riemannian Hessian of F ↦ f(FFᵀ) on the sphere: E ↦ P(Jᵀφ''(JE) + 2·∂²f(FEᵀ+EFᵀ)F + 2GE)
    − multiplier·E.
    """

    def __init__(
        self, objective: Objective, state: _State, multiplier: float, forms: bool = True
    ) -> None:
        self.objective, self.point, self.F = objective, state.point, state.F
        self.multiplier, self.lowest = multiplier, float(state.values[0])
        self.G = objective.gradient(state.point)
        self.J: Array | None = None  # the derivative of F ↦ A(FFᵀ)
        if objective.term.uses_embedding:
            J = 2.0 * objective.map.jacobian(state.F)
            self.J = namespace(J).reshape(J, (J.shape[0], -1))
        self.dense = self._form() if forms else None

    def _form(self) -> Array:
        r, k = self.F.shape
        own = self.objective.term.factor_hessian(self.F)
        H = zeros((r, k, r, k), self.F) if own is None else own
        for j in range(k):
            H[:, j, :, j] += 2.0 * self.G
        H = namespace(H).reshape(H, (r * k, r * k))
        if self.J is not None:
            pair = self.objective.term.hessian(self.point.a, self.point.C, self.J, self.point.C)
            assert pair is not None
            if pair[0] is not None:
                H += self.J.T @ pair[0]
        f = flat(self.F)
        Hf = H @ f
        # P H P − multiplier·P, and 1 along F itself: H − fgᵀ − gfᵀ with one g
        g = Hf - 0.5 * (inner(f, Hf) + self.multiplier + 1.0) * f
        H -= f[:, None] * g[None, :]
        H -= g[:, None] * f[None, :]
        H -= self.multiplier * eye(r * k, H)
        return 0.5 * (H + H.T)

    # the Hessian applied to a tangent vector E, shape (r, k)
    def apply(self, E: Array) -> Array:
        if self.dense is not None:
            return namespace(E).reshape(self.dense @ flat(E), E.shape)
        F = self.F
        da = None if self.J is None else self.J @ flat(E)
        dC = F @ E.T
        pair = self.objective.term.hessian(self.point.a, self.point.C, da, dC + dC.T)
        assert pair is not None
        out = 2.0 * (self.G @ E) - self.multiplier * E
        if pair[0] is not None and self.J is not None:
            out += namespace(F).reshape(pair[0] @ self.J, F.shape)
        if pair[1] is not None:
            out += 2.0 * (pair[1] @ F)
        return out - inner(out, F) * F

    # (Hessian + damping)⁻¹ right, tangent; None where the matrix is not positive definite
    def solve(self, right: Array, damping: float) -> Array | None:
        if self.dense is not None:
            try:
                solve = cholesky_solver(self.dense + damping * eye(self.dense.shape[0], self.dense))
            except linalg_errors():
                return None
            E = namespace(right).reshape(solve(flat(right)), right.shape)
            return E - inner(E, self.F) * self.F
        # truncated conjugate gradients, preconditioned with 2(G − λ_min) + damping, the part of the
        # Hessian that is cheap to factorize
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
        for _ in range(400):  # as dear as a Cholesky factor where the Hessian is no longer formed
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
