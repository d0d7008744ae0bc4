"""One primal-dual interior point, with any number of constraints, none included.

    min s‖a‖² − 2⟨b, a⟩ + ⟨D, C⟩ + tr(CNCN)  over  a = A(C), C ⪰ 0, tr C = 1, ⟨M_i, C⟩ + u_i = c_i,
    ‖a − z_j‖ ≤ ε_j

with u_i ≥ 0, or 0 for an equality. At the optimum there are multipliers with

    M = D + 2NCN + A*(y) + Σ ν_i M_i − tI ⪰ 0,   2s·a − 2b − y − Σ_j w_j = 0,   CM = 0,   u_i ν_i =
    0,   (ε_j, a − z_j) ∘ (w_j⁰, w_j) = 0.

Mehrotra's predictor-corrector [Mehrotra1992] follows the central path, on which these products are
μ, in the Nesterov–Todd scaling. A step eliminates all but (y, ν, t): one Schur system. In the
coordinates in which RᵀNR = diag(δ), the quadratic form multiplies the entries of dC by 2δ_iδ_j: it
only damps the rows of that system. Matrices stay on their device; vectors are on the host.
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import dataclass, field, replace
from itertools import chain

import numpy as np

from ksos.functionals import BoundBall, Objective, Point
from ksos.ground import (
    FLOAT_BYTES,
    Array,
    Run,
    eye,
    flat,
    inner,
    like,
    linalg_errors,
    namespace,
    norm,
    require_memory,
    to_numpy,
    zeros,
)
from ksos.solvers.cones import (
    ConePair,
    ScaledPair,
    SchurSystem,
    cone_divide,
    cone_product,
    cone_step,
    diagonal,
    longest_step,
)
from ksos.solvers.constrained_problem import ConstrainedProblem, Multipliers
from ksos.solvers.loop import Stepper
from ksos.solvers.spectraplex import center
from ksos.space.embedding_map import SMALL_TENSOR, CompressedMap

_SHORTEST_STEP = 1e-6  # of the whole one: rounding blocks the way
_ROUNDING = 1e-17  # μ in units of the gradient: the pair has then lost its last digit


@dataclass(frozen=True)
class ConicProgram:
    """The data, with constraints in units in which f and the linear ones vary by about one."""

    rows: Array  # (q + p, r, r): the tensor of A and the matrices M_i
    q: int
    scale: float
    b: np.ndarray
    D: Array
    N: Array | None = None
    c: np.ndarray = field(default_factory=lambda: np.zeros(0))  # the c_i
    # which of the linear constraints are inequalities
    slack: np.ndarray = field(default_factory=lambda: np.zeros(0, dtype=bool))
    balls: list[tuple[np.ndarray, float]] = field(default_factory=list)  # (z_j, ε_j)
    # which constraint each multiplier (the ν_i, then one per ball) belongs to, and what turns it
    # into that of the problem
    order: list[int] = field(default_factory=list)
    units: np.ndarray = field(default_factory=lambda: np.zeros(0))
    # ‖∂f/∂a‖ if f is a multiple of a distance, and this the problem of the squared one; else None
    steepness: float | None = None

    # the problem without constraints; the tensor is formed here if it is not stored already
    @classmethod
    def unconstrained(cls, objective: Objective) -> ConicProgram:
        quadratic, r, T = (
            objective.term.embedding_quadratic,
            objective.space.rank,
            objective.space.T,
        )
        assert quadratic is not None
        D = zeros((r, r), T) if quadratic.D is None else quadratic.D
        if quadratic.b is None:
            return cls(zeros((0, r, r), T), 0, 0.0, np.zeros(0), D)
        q = quadratic.b.shape[0]
        stored = 0 if isinstance(objective.space.map, CompressedMap) else q * r * r
        require_memory(
            FLOAT_BYTES * (stored + 0.5 * q * r * r + 3.0 * q * q + 12.0 * r * r),
            f"the interior-point method with {q} coordinates and rank {r}",
            "use solver='low_rank', or fewer support points or landmarks (n_support)",
            beside=T,
        )
        tensor = objective.space.compressed_map.tensor
        return cls(tensor, q, quadratic.scale, to_numpy(quadratic.b), D)

    @classmethod
    def of(cls, problem: ConstrainedProblem) -> ConicProgram | None:
        """A constrained problem in this form; None if f or a constraint has another one or none, or
        the tensor is large.

        For a distance that is not squared it is the problem of the squared one, which has the same
        solutions (and other multipliers).
        """
        f, space, r, T = problem.base.term, problem.space, problem.space.rank, problem.space.T
        form, terms = f.conic_form(), [constraint.term for constraint in problem.constraints]
        if form is None or not all(term.linear or isinstance(term, BoundBall) for term in terms):
            return None
        embedded = form.b is not None or any(not term.linear for term in terms)
        if embedded and space.tensor_size > SMALL_TENSOR:
            return None
        tensor = space.compressed_map.tensor if embedded else zeros((0, r, r), T)
        unit, q, middle, xp = (
            max(problem.size, 1e-200),
            tensor.shape[0],
            problem.middle,
            namespace(T),
        )
        linear = [i for i, term in enumerate(terms) if term.linear]
        sizes = problem.sizes[linear]
        slopes = [problem.slope(i, middle) / float(problem.sizes[i]) for i in linear]
        # a constraint on a constant has no multiplier to step towards
        if any(norm(slope) == 0.0 for slope in slopes):
            return None
        traces = np.array([float(xp.linalg.trace(slope)) / r for slope in slopes])
        balls = [(i, term) for i, term in enumerate(terms) if isinstance(term, BoundBall)]
        at_center = norm(f.gradient(middle.a, middle.C)[0]) if not form.exact else 0.0
        return cls(
            rows=xp.concat([tensor, xp.stack(slopes)]) if slopes else tensor,
            q=q,
            scale=form.scale / unit,
            b=np.zeros(q) if form.b is None else to_numpy(form.b) / unit,
            D=zeros((r, r), T) if form.D is None else form.D / unit,
            N=None if form.N is None else form.N / math.sqrt(unit),
            c=traces - problem.excesses(middle)[linear] / sizes,
            slack=np.array([not problem.constraints[i].equality for i in linear], dtype=bool),
            balls=[(to_numpy(term.z), term.radius) for _, term in balls],
            order=[*linear, *(i for i, _ in balls)],
            units=unit * np.concatenate([1.0 / sizes, np.ones(len(balls))]),
            steepness=None if form.exact else at_center / unit,
        )

    # Σ_k x_k A_k over the rows
    def combined(self, x: np.ndarray) -> Array:
        xp, (n, r, _) = namespace(self.rows), self.rows.shape
        return xp.reshape(like(x, self.rows) @ xp.reshape(self.rows, (n, r * r)), (r, r))

    # ⟨A_k, C⟩ over the rows
    def images(self, C: Array) -> np.ndarray:
        n, r, _ = self.rows.shape
        return to_numpy(namespace(C).reshape(self.rows, (n, r * r)) @ flat(C))

    # the multipliers of the problem, in its own order, and the vectors of its balls
    def multipliers(self, state: _Iterate) -> Multipliers:
        pulls = [-pair.w[1:] for pair in state.cones]
        if pulls:  # M knows y, to many digits; what the steepest ball has lost of it is given back
            lost = state.y + 2.0 * self.b - 2.0 * self.scale * state.a - sum(pulls)
            steepest = int(np.argmax([pair.w[0] for pair in state.cones]))
            pulls[steepest] = pulls[steepest] + lost
        units, first = self.units, state.nu.shape[0]
        if self.steepness is not None:
            # ∇f = (∇f²)/2f, and everything else in the optimality conditions is multiplied alike
            slope = 2.0 * float(np.linalg.norm(self.scale * state.a - self.b))
            units = units * (self.steepness / max(slope, 1e-300))
        own = np.concatenate([state.nu, [float(np.linalg.norm(pull)) for pull in pulls]]) * units
        mine = zip(self.order[first:], units[first:], pulls, strict=True)
        return Multipliers(own[np.argsort(self.order)], {i: unit * v for i, unit, v in mine})


@dataclass(frozen=True)
class _Iterate:
    """An interior point: everything strictly inside its cone."""

    pair: ScaledPair  # (C, M)
    a: np.ndarray
    y: np.ndarray
    t: float
    nu: np.ndarray
    u: np.ndarray
    cones: list[ConePair]

    # the mean of the products that vanish at the optimum
    def mu(self, program: ConicProgram) -> float:
        total = inner(self.pair.values, self.pair.values) + float(self.u @ self.nu)
        total += sum(pair.x @ pair.w for pair in self.cones)
        n = self.pair.values.shape[0] + int(program.slack.sum()) + len(self.cones)
        return float(total / n)


@dataclass(frozen=True)
class _Direction:
    dC: Array
    dM: Array
    da: np.ndarray
    dy: np.ndarray
    dt: float
    dnu: np.ndarray
    du: np.ndarray
    cones: list[tuple[np.ndarray, np.ndarray]]  # (dx, dw) of each


@dataclass(frozen=True)
class _State:
    program: ConicProgram
    point: Point  # C/tr C, feasible (at the start: the start itself, which need not be interior)
    iterate: _Iterate
    floor: float  # the μ below which rounding leads the way


@dataclass(frozen=True, kw_only=True)
class InteriorPoint(Stepper):
    """For squared MMDs plus linear terms: the gap falls by a factor of about ten per step, whatever
    the conditioning.

    ``max_iter``: the most steps where ``minimize`` is given no ``max_iter``. ``step_fraction``: how
    much of the way to the boundary of the cones a step goes, below 1. ``face_columns``: on faces of
    at most so many dimensions (0: never) the exact minimum is tried.

    >>> import ksos
    >>> from ksos.functionals import SquaredMMD, Trace
    >>> space = ksos.SoSSpace(ksos.kernels.Gaussian(1.0), [[0.0], [1.0]])
    >>> functional = SquaredMMD([[0.3], [1.0]]) + 1e-3 * Trace()
    >>> ksos.minimize(functional, space, solver=InteriorPoint(face_columns=0)).status
    'solved'
    """

    name = "interior_point"
    needs = "embedding_quadratic"
    needs_in_words = "takes squared MMDs and linear terms only; use solver='low_rank' or 'fista'"
    max_iter: int = 100
    step_fraction: float = 0.98
    face_columns: int = 12
    patience = 25  # more than a run takes: a warm start may beat everything but its last iterates

    def __post_init__(self) -> None:
        super().__post_init__()
        if not 0.0 < self.step_fraction < 1.0:
            raise ValueError(
                "step_fraction of InteriorPoint must lie between 0 and 1; got"
                f" {self.step_fraction!r}"
            )

    def prepared(self, objective: Objective) -> Objective:
        # the steps need the tensor anyway
        needed = objective.term.uses_embedding and not objective.stored
        return objective.on_tensor() if needed else objective

    # on the central path, near the start
    def init(self, objective: Objective, start: Point) -> _State:
        program, G = ConicProgram.unconstrained(objective), objective.gradient(start)
        a = np.zeros(0) if start.a is None else to_numpy(start.a)
        iterate, size = _near(program, start.C, a, G)
        return _State(program, replace(start, G=G), iterate, _ROUNDING * size)

    # A step along the central path, and the feasible point there
    def step(self, objective: Objective, state: _State) -> _State:
        if state.iterate.mu(state.program) <= state.floor:
            return state
        moved, step = _advanced(state.program, state.iterate, self.step_fraction)
        if step < _SHORTEST_STEP:
            return replace(state, floor=math.inf)
        return replace(state, point=self._feasible(objective, state.program, moved), iterate=moved)

    def _feasible(self, objective: Objective, program: ConicProgram, iterate: _Iterate) -> Point:
        """C/tr C; or, if it has the smaller gap, the minimum of f on the face of the eigenvalues
        that will not vanish with μ.
        """
        C, xp = iterate.pair.C, namespace(iterate.pair.R)
        point, gap = _with_gap(objective, C / float(xp.linalg.trace(C)))
        values, Q = xp.linalg.eigh(C)
        host = to_numpy(values)
        unit = program.scale if program.scale > 0.0 else float(xp.max(xp.abs(program.D)))
        # Matching eigenvalues of C and M have the product μ; those of C stay which are the larger
        # ones of their two.
        columns = int(np.count_nonzero((host > 0.0) & (unit * host**2 > iterate.mu(program))))
        if not 0 < columns <= self.face_columns:
            return point
        F = minimum_on_face(program, Q[:, -columns:] * like(np.sqrt(host[-columns:]), Q))
        if F is None:
            return point
        polished, polished_gap = _with_gap(objective, F @ F.T / inner(F, F))
        return polished if polished_gap < gap else point


def _near(program: ConicProgram, C: Array, a: np.ndarray, G: Array) -> tuple[_Iterate, float]:
    """y from C, t as far below λ_min(∇f) as the gap is wide, and then the pair on the central path:
    C ∝ M⁻¹; and the size of G = ∇f.

    So a good start gives a small μ, and its y, which is all that M needs, is kept.
    """
    all_values, Q = namespace(G).linalg.eigh(G)
    values, y = to_numpy(all_values), 2.0 * (program.scale * a - program.b)
    size, gap = float(np.abs(values).max()), inner(G, C) - float(values[0])
    embedded = float(
        program.scale * np.linalg.norm(a) + np.linalg.norm(program.b)
    )  # what the first term of f can change by
    depth = max(min(gap, embedded) if embedded > 0.0 else gap, 1e-12 * size, 1e-200)
    t, nothing = float(values[0]) - depth, np.zeros(0)
    return _Iterate(ScaledPair.central(Q, values - t), a, y, t, nothing, nothing, []), size


def optimum_on_face(objective: Objective, V: Array, C: Array, tol: float) -> Array | None:
    """X of the minimizer VXVᵀ of f over X ⪰ 0, tr X = 1, to a gap of about ``tol`` there, begun
    near VᵀCV; None if it does not come.

    V has few orthonormal columns: those of a factor and the lowest eigenvectors of ∇f, the bundle
    of [Helmberg2000].
    """
    quadratic, xp = objective.term.embedding_quadratic, namespace(V)
    if quadratic is None or quadratic.b is None:
        return None
    k, D = V.shape[1], zeros((V.shape[1],) * 2, V) if quadratic.D is None else V.T @ quadratic.D @ V
    program = ConicProgram(
        objective.map.spanned(V), quadratic.b.shape[0], quadratic.scale, to_numpy(quadratic.b), D
    )
    X = V.T @ C @ V + 1e-6 * eye(k, V) / k
    X = X / float(xp.linalg.trace(X))
    a = program.images(X)
    iterate, size = _near(
        program, X, a, D + program.combined(2.0 * (program.scale * a - program.b))
    )
    for reached in chain([iterate], _path(program, iterate)):
        if Run.current().over or k * reached.mu(program) <= max(tol, _ROUNDING * size):
            return reached.pair.C
    return None


def _with_gap(objective: Objective, C: Array) -> tuple[Point, float]:
    point = objective.point(C)
    G = objective.gradient(point)
    return replace(point, G=G), inner(G, C) - float(namespace(G).linalg.eigvalsh(G)[0])


def minimum_on_face(program: ConicProgram, F: Array) -> Array | None:
    """The factor of the minimizer of s‖A(C)‖² − 2⟨b, A(C)⟩ + ⟨D, C⟩ over C = VXVᵀ with tr X = 1, V
    spanning the columns of ``F``.

    X ⪰ 0 is not imposed: None if the minimizer does not have it. If it has, the point is optimal as
    soon as the span is that of the optimum: an interior iterate whose eigenvectors are off by ε is
    thereby corrected to a gap of order ε². One small system, on the host.
    """
    xp = namespace(F)
    V, _ = xp.linalg.qr(F)
    r, k = V.shape
    first, second = np.tril_indices(k)
    rows = xp.reshape(program.rows[: program.q, :, :], (-1, r)) @ V
    J = to_numpy(xp.matmul(V.T, xp.reshape(rows, (-1, r, k))))[:, first, second]
    matrices = (program.D, eye(r, F), F @ F.T)
    d, trace, start = (to_numpy(V.T @ M @ V)[first, second] for M in matrices)
    # an orthonormal basis of the symmetric matrices
    twice = np.where(first == second, 1.0, np.sqrt(2.0))
    J, d, trace, start = J * twice, d * twice, trace * twice, start * twice
    start = start / (trace @ start)
    N = np.linalg.svd(trace[None])[2][1:]  # the directions that keep the trace
    JN = J @ N.T
    gradient = N @ (2.0 * (J.T @ (program.scale * (J @ start) - program.b)) + d)
    step = np.linalg.lstsq(2.0 * program.scale * (JN.T @ JN), -gradient, rcond=1e-13)[0]
    X = np.zeros((k, k))
    X[first, second] = (start + step @ N) / twice
    values, Q = np.linalg.eigh(X)  # which reads the lower triangle
    return (V @ like(Q, V)) * like(np.sqrt(values), V) if values[0] > 0.0 else None


def central_path(
    program: ConicProgram, fraction: float = InteriorPoint.step_fraction
) -> Iterator[tuple[Array, Multipliers, float]]:
    """(C/tr C, multipliers, μ) along the central path of a constrained problem, until rounding
    leads the way.
    """
    for iterate in _path(program, _start(program), fraction):
        C, mu = iterate.pair.C, iterate.mu(program)
        yield C / float(namespace(C).linalg.trace(C)), program.multipliers(iterate), mu
        if mu <= 1e-16:  # in units of f
            return


# the iterates that follow, until rounding leads the way
def _path(
    program: ConicProgram, iterate: _Iterate, fraction: float = InteriorPoint.step_fraction
) -> Iterator[_Iterate]:
    for _ in range(80):  # a dozen are usual
        try:
            iterate, step = _advanced(program, iterate, fraction)
        except linalg_errors():
            return
        if step < _SHORTEST_STEP:
            return
        yield iterate


def _start(program: ConicProgram) -> _Iterate:
    """Everything well inside its cone: C = I/r, M about as large as f varies, slacks and
    multipliers of one unit.
    """
    r, q = program.D.shape[0], program.q
    one = np.where(program.slack, 1.0, 0.0)
    M = program.D + program.combined(np.concatenate([np.zeros(q), one]))
    values, Q = namespace(M).linalg.eigh(M)
    host, t = to_numpy(values), float(values[0]) - 1.0
    nothing = np.zeros(q)
    cones = [
        ConePair(np.append(radius, nothing), np.append(1.0, nothing)) for _, radius in program.balls
    ]
    a = program.images(center(r, program.D))[:q]
    return _Iterate(ScaledPair.central(Q, host - t), a, nothing, t, one, one, cones)


def _advanced(program: ConicProgram, state: _Iterate, fraction: float) -> tuple[_Iterate, float]:
    """Predictor (towards μ = 0), corrector (towards the μ the predictor could reach, with its
    second-order terms), step.
    """
    system = _System(program, state)
    cones = [-pair.values for pair in state.cones]
    root = np.sqrt(state.u * state.nu)
    predictor = system.direction(-diagonal(state.pair.values), -root, cones)
    reach = min(1.0, _longest(program, state, predictor))
    move = system.direction(*system.corrected(predictor, (1.0 - reach) ** 3 * state.mu(program)))
    step = min(1.0, fraction * _longest(program, state, move))
    if step < _SHORTEST_STEP:
        return state, step
    moved = _Iterate(
        pair=state.pair.moved(step, move.dC, move.dM),
        a=state.a + step * move.da,
        y=state.y + step * move.dy,
        t=state.t + step * move.dt,
        nu=state.nu + step * move.dnu,
        u=state.u + step * move.du,
        cones=[
            ConePair(pair.x + step * dx, pair.w + step * dw)
            for pair, (dx, dw) in zip(state.cones, move.cones, strict=True)
        ],
    )
    return moved, step


class _System:
    """The Schur system at an iterate, and the directions that it gives."""

    def __init__(self, program: ConicProgram, state: _Iterate) -> None:
        self.program, self.state, q = program, state, program.q
        R, C, xp = state.pair.R, state.pair.C, namespace(state.pair.R)
        # W of the orthant
        nu = np.where(program.slack, state.nu, 1.0)
        self.weights = np.where(program.slack, np.sqrt(state.u / nu), 0.0)
        # of Q, ∂²/∂a² of f and the balls: its diagonal if there are none of them
        self.inverse = np.full(q, 0.5 / program.scale if program.scale > 0.0 else 0.0)
        ridge = np.concatenate([self.inverse, self.weights**2, [0.0]])
        if state.cones:
            Q = 2.0 * program.scale * np.eye(q)
            for pair in state.cones:
                c, v = pair.curvature
                Q += c * np.eye(q) + np.multiply.outer(v, v)
            self.inverse, ridge = np.linalg.inv(Q), np.diag(ridge)
            ridge[:q, :q] = self.inverse
        dual = program.D + program.combined(np.concatenate([state.y, state.nu]))
        dual = dual - state.t * eye(C.shape[0], C) - state.pair.M
        self.axes: Array | None = None
        self.damping: Array | None = None
        if program.N is not None:
            delta, self.axes = xp.linalg.eigh(R.T @ program.N @ R)
            delta = xp.clip(delta, 0.0, None)
            self.damping = 1.0 / xp.sqrt(1.0 + 2.0 * delta[:, None] * delta[None, :])
            dual = dual + 2.0 * program.N @ C @ program.N
        rotated = R if self.axes is None else R @ self.axes
        self.schur = SchurSystem(program.rows, rotated, ridge, self.damping)
        self.scaled = R.T @ (0.5 * (dual + dual.T)) @ R
        # by how much a, the linear constraints and the trace are off
        images, trace = program.images(C), 1.0 - float(xp.linalg.trace(C))
        linear = images[q:] + state.u - program.c
        self.off = np.concatenate([images[:q] - state.a, linear, [trace]])
        pulls = sum(pair.w[1:] for pair in state.cones)
        self.off_slope = 2.0 * (program.scale * state.a - program.b) - state.y - pulls
        self.off_centers = [
            state.a - z - pair.x[1:]
            for (z, _), pair in zip(program.balls, state.cones, strict=True)
        ]

    def direction(self, K: Array, k: np.ndarray, cones: list[np.ndarray]) -> _Direction:
        """The step with dC + dM = K, du + dν = k and dx + dw = (each of ``cones``) in scaled
        coordinates, and all residuals gone.
        """
        state, q, axes = self.state, self.program.q, self.axes
        known = np.zeros(q)  # Q·da = dy + known
        for goal, pair, away in zip(cones, state.cones, self.off_centers, strict=True):
            c, v = pair.curvature
            known = known + (pair.scale(goal, inverse=True)[1:] - (c * away + (v @ away) * v))
        known = known - self.off_slope
        goal_C = K - self.scaled
        if axes is not None:  # in the coordinates of the Schur system
            goal_C = self.damping * (axes.T @ goal_C @ axes)
        off = self.off - np.concatenate([self._solved(known), -self.weights * k, [0.0]])
        right = to_numpy(self.schur.apply(goal_C)) + off
        x = self.schur.solve(like(right, K))
        dC = goal_C - self.schur.adjoint(x)
        if axes is not None:
            # and back, by the adjoint: together they solve dC + 2(RᵀNR)dC(RᵀNR) = K − scaled
            dC = axes @ (self.damping * dC) @ axes.T
        dC, host = 0.5 * (dC + dC.T), to_numpy(x)
        dy, dnu, dt = host[:q], host[q:-1], float(host[-1])
        da, moves = self._solved(dy + known), []
        for goal, pair, away in zip(cones, state.cones, self.off_centers, strict=True):
            dx = np.append(0.0, da + away)
            moves.append((dx, pair.scale(goal - pair.scale(dx, inverse=True), inverse=True)))
        du = self.weights * (k - self.weights * dnu)
        return _Direction(dC, K - dC, da, dy, dt, dnu, du, moves)

    # Q⁻¹v
    def _solved(self, v: np.ndarray) -> np.ndarray:
        return np.asarray(self.inverse @ v if self.inverse.ndim == 2 else self.inverse * v)

    # the right-hand sides that lead to μ = goal, with the predictor's second-order terms
    def corrected(
        self, predictor: _Direction, goal: float
    ) -> tuple[Array, np.ndarray, list[np.ndarray]]:
        state, values, slack = self.state, self.state.pair.values, self.program.slack
        second = predictor.dC @ predictor.dM
        gaps = diagonal(goal - values**2) - 0.5 * (second + second.T)
        K = 2.0 * gaps / (values[:, None] + values[None, :])
        root = np.sqrt(state.u * state.nu)
        rest = goal - root**2 - predictor.du * predictor.dnu
        k = np.where(slack, rest / np.where(slack, root, 1.0), 0.0)
        cones = []
        for (dx, dw), pair in zip(predictor.cones, state.cones, strict=True):
            value = pair.values
            unit = np.append(goal, np.zeros(value.shape[0] - 1))
            both = cone_product(pair.scale(dx, inverse=True), pair.scale(dw))
            cones.append(cone_divide(value, unit - cone_product(value, value) - both))
        return K, k, cones


# the longest step along which everything stays in its cone
def _longest(program: ConicProgram, state: _Iterate, move: _Direction) -> float:
    steps = [longest_step(state.pair.values, move.dC), longest_step(state.pair.values, move.dM)]
    for now, change in ((state.u, move.du), (state.nu, move.dnu)):
        falling = program.slack & (change < 0.0)
        steps += (-now[falling] / change[falling]).tolist()
    for pair, (dx, dw) in zip(state.cones, move.cones, strict=True):
        steps += [cone_step(pair.x, dx), cone_step(pair.w, dw)]
    return float(min(steps))
