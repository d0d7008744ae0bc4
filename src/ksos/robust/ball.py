"""The worst case over the densities of a space in a projected MMD ball: one number, the multiplier of the ball, is searched for.

For a loss ℓ with M = ∫ ℓ ψψᵀ dρ,

    V(ε) = max ⟨M, C⟩  such that  C ⪰ 0, tr C = 1, ‖A(C) − z‖ ≤ ε        = min_y λ_max(M − A*(y)) + ⟨y, z⟩ + ε‖y‖.

For a multiplier u the penalised problem max ⟨M, C⟩ − (u/2)‖A(C) − z‖² is one that the solvers of the spectraplex take to many digits, and
y = u(A(C) − z) is then a dual point. Its distance d(u) = ‖A(C_u) − z‖ falls as u grows; 1/d is nearly linear in u, as in trust-region
methods, so that the root d(u) = ε is found in a few solves, each started from the last. Where its steps are cheap, the interior point that
knows the ball comes first, once: it needs no search, and takes no starts.
"""

from __future__ import annotations

import math
import time
from dataclasses import dataclass
from typing import Any

from ksos._array import Array, eye, inner, namespace, norm, to_numpy
from ksos._deadline import Deadline
from ksos.functionals.base import BoundTerm, Constraint, Functional
from ksos.functionals.mmd import BoundBall, BoundSquaredMMD
from ksos.functionals.objective import Objective
from ksos.functionals.penalties import BoundLinear
from ksos.solvers import minimize
from ksos.solvers.augmented_lagrangian import follow_central_path
from ksos.solvers.constrained_problem import ConstrainedProblem
from ksos.solvers.eigenvalues import lowest_bound, lowest_eigenpairs
from ksos.solvers.interior_point import ConicProgram
from ksos.space import SoSSpace

__all__ = ["BallPoint", "BallProblem", "BallSolution"]

_MOST_SOLVES = 60
_GROWTH, _LARGEST_MULTIPLIER = 4.0, 1e10
_NARROWEST = 1e-14  # a bracket in which no multiplier is left
_SAFE = 1e-3  # the next multiplier keeps at least this fraction of the bracket away from its ends
_INNER_DIGITS = 0.02  # of the tolerance, for each penalised problem
_CHEAP_STEP, _DEAR_STEP = 2e8, 1.2e10  # floating-point operations of one step of the interior point
_MOST_PATH_STEPS = 100
_FLAT = 1e-13  # a loss that varies by less than this fraction of its size is constant


@dataclass(frozen=True)
class BallPoint:
    """A density of the space: C, its embedding a = A(C), E[ℓ] in the problem's own units, and ‖a − z‖."""

    C: Array
    a: Array
    value: float
    distance: float


@dataclass(frozen=True)
class BallSolution:
    """What :meth:`BallProblem.solve` has found, in the units of the loss."""

    point: BallPoint
    multiplier: float
    """u, with y = u(A(C) − z), in the problem's own units."""
    value: float
    """⟨M, C⟩."""
    dual_value: float
    """λ_max(M − A*(y)) + ⟨y, z⟩ + ε‖y‖, never below the optimum."""
    dual_constant: float
    """Its λ_max(M − A*(y))."""
    y: Array
    status: str
    n_iter: int
    n_solves: int
    least_radius: float | None = None
    """Of an infeasible problem: the certified radius below which the ball holds no density of the space."""
    keyboard_interrupt: bool = False

    @property
    def gap(self) -> float:
        """dual value − value; below 0 it is rounding."""
        return max(self.dual_value - self.value, 0.0)


class BallProblem:
    """max ⟨M, C⟩ over the densities of ``space`` near ``target``, for one matrix M and any number of radii and penalties.

    Inside, the loss is measured in units of its spread: M = middle·I + spread·M̂ with the eigenvalues of M̂ between −½ and ½.
    """

    def __init__(self, space: SoSSpace, M: Array, target: Any) -> None:
        self.space, self.M = space, M
        xp = namespace(M)
        ends = to_numpy(xp.linalg.eigvalsh(M))
        low, high = float(ends[0]), float(ends[-1])
        self.middle, self.spread = 0.5 * low + 0.5 * high, high - low
        if self.spread <= _FLAT * max(abs(low), abs(high)):
            self.spread = 0.0
        unit = self.spread if self.spread > 0.0 else 1.0
        self._M = (M - self.middle * eye(M.shape[0], M)) / unit if self.spread > 0.0 else 0.0 * M
        self.z = space.coordinates(target)
        self._distance = BoundSquaredMMD(self.z)
        self._loss = BoundLinear(-self._M)
        r, q = space.rank, space.embedding_rank
        self._step = q * r**2 * (4 * r + 2 * q)
        self._followed = False
        self.solver = "interior_point" if self._step <= _CHEAP_STEP else "auto"
        """Of the penalised problems: a dozen steps of the interior point where they are cheap, else Newton on a factor first."""

    # --- points and bounds ---

    def point(self, C: Array) -> BallPoint:
        """C with everything that is asked of it."""
        return self._point(C, self.space.compressed_map.apply(C))

    def _point(self, C: Array, a: Array) -> BallPoint:
        return BallPoint(C, a, inner(self._M, C), norm(a - self.z))

    def mixed(self, one: BallPoint, other: BallPoint, t: float) -> BallPoint:
        """(1 − t)·one + t·other."""
        return self._point((1.0 - t) * one.C + t * other.C, (1.0 - t) * one.a + t * other.a)

    def value(self, point: BallPoint) -> float:
        """E[ℓ] in the loss's own units."""
        return self.middle + self.spread * point.value

    def dual(self, y: Array, radius: float) -> tuple[float, float]:
        """(the dual value, its λ_max) at y, both in the problem's units: the former bounds the worst case in the projected ball."""
        top = -lowest_bound(self.space.compressed_map.adjoint(y) - self._M, 1e-12)
        return top + inner(y, self.z) + radius * norm(y), top

    def distance_bound(self, a: Array) -> float:
        """λ_min(A*(v)) − ⟨v, z⟩ for the unit vector v along a − z: no density of the space is closer to the target than this."""
        v = (a - self.z) / max(norm(a - self.z), 1e-300)
        return lowest_bound(self.space.compressed_map.adjoint(v), 1e-14) - inner(v, self.z)

    def nearest(self, start: BallPoint, time_limit: float | None) -> tuple[BallPoint, float]:
        """About the nearest density to the target, and the certified distance, to about four digits, that none is closer than."""
        tol = max(1e-4 * self.distance_bound(start.a) ** 2, 1e-14)
        solution = minimize(_Bound(self._distance), self.space, solver=self.solver, start=start.C, tol=tol, time_limit=time_limit)
        found = self.point(solution.parameter)
        found = found if found.distance < start.distance else start
        return found, self.distance_bound(found.a)

    # --- the penalised problem ---

    def penalised(self, u: float, start: Array | None, tol: float, time_limit: float | None = None) -> tuple[BallPoint, Any]:
        """argmax ⟨M̂, C⟩ − (u/2)‖A(C) − z‖², with what the solver says of it."""
        scale = 1.0 / (1.0 + u)
        functional = scale * _Bound(self._loss) + 0.5 * u * scale * _Bound(self._distance)
        solution = minimize(functional, self.space, solver=self.solver, start=start, tol=max(scale * tol, 1e-14), time_limit=time_limit)
        if solution.solver == "interior_point" and self._step <= _DEAR_STEP:
            self.solver = "interior_point"  # where a low rank has not come once, it will not come for the next multiplier either
        return self.point(solution.parameter), solution

    # --- the ball ---

    def solve(
        self, radius: float, tol: float = 1e-8, time_limit: float | None = None, start: Array | None = None, multiplier: float = 0.0
    ) -> BallSolution:
        """The worst case in the ball of this radius, to a gap of ``tol`` in units of the loss's spread.

        ``start`` and ``multiplier`` are those of a similar problem that has been solved.
        """
        return _Search(self, radius, tol, time_limit).run(start, multiplier)

    @property
    def has_short_path(self) -> bool:
        """Whether the steps of the interior point are so cheap that the whole path, to any number of digits, comes first."""
        return self._step <= _DEAR_STEP

    def followed(self, radius: float, tol: float, time_limit: float | None) -> tuple[BallPoint, Array, int, str] | None:
        """(point, y, steps, status) at the end of the central path of the problem with its ball; None where its steps are dear, or it has
        been followed to no avail: a path takes no starts, so that it is for the first problem of several."""
        if not self.has_short_path or self._followed:
            return None
        self._followed = True
        objective = Objective(self._loss, self.space, stored=True, deadline=Deadline(time_limit))
        problem = ConstrainedProblem(objective, [_Ball(self.z, radius)])
        program = ConicProgram.of(problem)
        if program is None:
            return None
        found = follow_central_path(problem, program, 0.5 * tol, _MOST_PATH_STEPS)
        if found is None or 0 not in found.multipliers.vectors:
            return None
        return self.point(found.G @ found.G.T), found.multipliers.vectors[0], found.n_iter, found.status

    def top(self) -> BallPoint:
        """The density with the largest expected loss, wherever it is."""
        _, vectors = lowest_eigenpairs(-self._M, 1)
        return self.point(vectors @ vectors.T)


class _Search:
    """The search for the multiplier, with the best primal and dual points so far."""

    def __init__(self, problem: BallProblem, radius: float, tol: float, time_limit: float | None) -> None:
        self.problem, self.radius, self.tol = problem, radius, tol
        self.ends = None if time_limit is None else time.perf_counter() + time_limit
        self.outside: tuple[float, BallPoint] | None = None
        self.inside: tuple[float, BallPoint] | None = None
        self.best: BallPoint | None = None
        self.dual = math.inf
        self.constant, self.multiplier, self.y = math.inf, 0.0, 0.0 * problem.z
        self.n_iter = self.n_solves = 0
        self._latest: list[tuple[float, float]] = []
        """(multiplier, distance) of the points so far."""
        self._widths: list[float] = []

    def run(self, start: Array | None, multiplier: float) -> BallSolution:
        """Solve penalised problems until the gap closes."""
        problem = self.problem
        top = problem.top()
        self._bound(0.0, top)
        self._take(0.0, top)
        if self._gap() <= self.tol:
            return self._ended("solved")
        u = multiplier if multiplier > 0.0 else 1.0 / (max(top.distance, self.radius) * self.radius)
        C, status = start, "solved_inaccurate"
        if start is None and (found := problem.followed(self.radius, self.tol, self._rest)) is not None:
            point, y, n_iter, ending = found
            self.n_iter, self.n_solves, C, u = n_iter, 1, point.C, norm(y) / self.radius
            self._try(u, y)
            if point.distance <= self.radius and (self.best is None or point.value > self.best.value):
                self.best = point
            if ending == "interrupted":
                return self._ended("interrupted", keyboard=True)
            if self._gap() <= self.tol:
                return self._ended("solved")
        for _ in range(_MOST_SOLVES):
            point, solution = problem.penalised(u, C, _INNER_DIGITS * self.tol, self._rest)
            self.n_iter, self.n_solves, C = self.n_iter + solution.n_iter, self.n_solves + 1, point.C
            self._bound(u, point)
            self._take(u, point)
            if solution.status == "interrupted":
                return self._ended("interrupted", keyboard=solution.keyboard_interrupt)
            if self._gap() <= self.tol:
                return self._ended("solved")
            if self.inside is None and (least := problem.distance_bound(point.a)) > self.radius:
                nearest, bound = problem.nearest(point, self._rest)
                self.outside = (u, nearest)
                return self._ended("infeasible", least_radius=max(least, bound))
            if self.ends is not None and time.perf_counter() > self.ends:
                status = "time_limit"
                break
            if self._width() <= _NARROWEST or (self.inside is None and u >= _LARGEST_MULTIPLIER):
                break
            u = self._next()
        return self._ended(status if self.best is not None else "undecided" if status == "solved_inaccurate" else status)

    @property
    def _rest(self) -> float | None:
        return None if self.ends is None else max(self.ends - time.perf_counter(), 1e-3)

    def _bound(self, u: float, point: BallPoint) -> None:
        """Try the dual point of a penalised optimum."""
        self._try(u, u * (point.a - self.problem.z))

    def _try(self, u: float, y: Array) -> None:
        dual, constant = self.problem.dual(y, self.radius)
        if dual < self.dual:
            self.dual, self.constant, self.multiplier, self.y = dual, constant, u, y

    def _take(self, u: float, point: BallPoint) -> None:
        """Sort a penalised optimum in; the best feasible point lies on the sphere, between the nearest ones on both sides of it."""
        self._latest.append((u, point.distance))
        if point.distance <= self.radius:
            if self.inside is None or u < self.inside[0]:
                self.inside = (u, point)
        elif self.outside is None or u > self.outside[0]:
            self.outside = (u, point)
        candidates = [] if self.inside is None else [self.inside[1]]
        if self.inside is not None and self.outside is not None:
            candidates.append(self._on_the_sphere(self.outside[1], self.inside[1]))
        for candidate in candidates:
            if candidate.distance <= self.radius and (self.best is None or candidate.value > self.best.value):
                self.best = candidate

    def _on_the_sphere(self, outside: BallPoint, inside: BallPoint) -> BallPoint:
        """The mixture of the two whose distance is the radius."""
        b, d = outside.a - self.problem.z, inside.a - outside.a
        square, half, rest = inner(d, d), inner(b, d), inner(b, b) - self.radius**2
        # the smaller root of square·t² + 2·half·t + rest, in the form that does not cancel: half < 0 < rest
        t = rest / (-half + math.sqrt(max(half * half - square * rest, 0.0))) if half < 0.0 else 1.0
        for _ in range(8):
            found = self.problem.mixed(outside, inside, min(t, 1.0))
            if found.distance <= self.radius or t >= 1.0:
                return found
            t = t + 2.0 * (found.distance - self.radius) / max(outside.distance - inside.distance, 1e-300) + 1e-15
        return inside

    def _gap(self) -> float:
        return math.inf if self.best is None else max(self.dual - self.best.value, 0.0)

    def _width(self) -> float:
        """Of the bracket of the multiplier, relative."""
        if self.inside is None or self.outside is None:
            return math.inf
        return (self.inside[0] - self.outside[0]) / self.inside[0]

    def _next(self) -> float:
        """Where the secant of 1/distance through the last two points meets 1/radius, or that through the ends of the bracket.

        The middle of the bracket, where three steps have not halved it.
        """
        if self.inside is None:
            assert self.outside is not None
            return min(max(self.outside[0], 1e-12) * _GROWTH, _LARGEST_MULTIPLIER)
        high, high_point = self.inside
        if self.outside is None:
            return high / _GROWTH
        low, low_point = self.outside
        self._widths.append(high - low)
        if len(self._widths) > 3 and self._widths[-1] > 0.5 * self._widths[-4]:
            self._widths.clear()
            return math.sqrt(low * high) if low > 0.0 and high > _GROWTH * low else 0.5 * (low + high)
        margin = _SAFE * (high - low)
        for (u, d), (v, e) in (self._latest[-2:], ((low, low_point.distance), (high, high_point.distance))):
            left, right = 1.0 / max(d, 1e-300), 1.0 / max(e, 1e-300)
            if u != v and (right - left) * (v - u) > 0.0:
                root = u + (1.0 / self.radius - left) / (right - left) * (v - u)
                if low < root < high:
                    return min(max(root, low + margin), high - margin)
        return 0.5 * (low + high)

    def _ended(self, status: str, least_radius: float | None = None, keyboard: bool = False) -> BallSolution:
        problem = self.problem
        nearest = self.inside or self.outside
        assert nearest is not None
        point = nearest[1] if self.best is None else self.best
        unit = problem.spread
        return BallSolution(
            point=point,
            multiplier=self.multiplier,
            value=problem.value(point),
            dual_value=problem.middle + unit * self.dual,
            dual_constant=problem.middle + unit * self.constant,
            y=unit * self.y,
            status=status,
            n_iter=self.n_iter,
            n_solves=self.n_solves,
            least_radius=least_radius,
            keyboard_interrupt=keyboard,
        )


class _Ball(Constraint):
    """‖a − z‖ ≤ radius, for coordinates z that are known already."""

    def __init__(self, z: Array, radius: float) -> None:
        self.z, self.sense, self.bound = z, "<=", radius

    def bind(self, space: SoSSpace) -> BoundTerm:
        return BoundBall(self.z, self.bound)


class _Bound(Functional):
    """A term that knows its space already."""

    def __init__(self, term: BoundTerm) -> None:
        self.term = term

    def bind(self, space: SoSSpace) -> BoundTerm:
        return self.term
