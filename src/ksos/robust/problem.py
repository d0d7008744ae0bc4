"""A robust problem in a projected MMD ball: one convex problem in θ and the dual function, with the
worst density as its primal variable.

    min_θ max_C ⟨M_θ, C⟩ + reg(θ)  =  max_C h(C),  C ⪰ 0, tr C = 1, ‖A(C) − z‖ ≤ ε,

where h(C) = min_θ ⟨M_θ, C⟩ + reg(θ) is concave. A worst case is the problem without θ. Any C in the
ball bounds the optimum from below by h(C). Any (θ, y) bounds it from above by λ_max(M_θ − A*(y)) +
⟨y, z⟩ + ε‖y‖ + reg(θ). Values are counted as middle + unit·value.

At the maximizer C_u of h(C) − (u/2)‖A(C) − z‖², y = u(A(C) − z) and θ = θ(C). Its distance d(u) to
the data falls as the multiplier u grows. 1/d is nearly linear in u, as in trust-region methods
[ConnGouldToint2000], so that the root d(u) = ε is found in a few solves, each started from the
last. Where its steps are cheap an interior point that knows the ball comes first, and the search
only has to close what rounding has left.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Any, NamedTuple, TypeVar

import numpy as np

from ksos.functionals import MMD, Bound, BoundSquaredMMD, BoundTerm, Objective, within
from ksos.ground.arrays import Array, eye, inner, norm, to_numpy
from ksos.ground.run import Run
from ksos.robust.barrier import BarrierPoint, Iterate, JointBarrier
from ksos.robust.parametric import LeastRisk, ParametricRisk, Risk
from ksos.solvers import (
    ConicProgram,
    ConstrainedProblem,
    LowRank,
    Solution,
    Solver,
    center,
    follow_central_path,
    lowest_bound,
    lowest_eigenpairs,
    minimize,
)
from ksos.space import LabeledEmbedding, MeanEmbedding, SoSSpace

__all__ = ["Dual", "Goal", "Nearest", "Point", "Problem", "Saddle", "first_inside", "solve"]

T = TypeVar("T")
_CHEAP_STEP = 2e8  # operations of an interior point's step: ms, so it solves penalized problems too
_DEAR_STEP = 1.2e10  # operations, > 1 s: low ranks are then as fast (benchmarks/worst_case.py)
_DEAR_JOINT_STEP = 4e9  # the same for the barrier method, which has θ besides and twice the steps
_NEWTON = LowRank(extra_steps=0)  # on a factor, without polishing: the next multiplier comes
_GROWTH = 4.0  # of multipliers: 1/d is nearly linear in u, so that few steps bracket any radius
_SEARCH_GAP = 0.5  # of the gap asked for: the rest is for quadrature and a bound of the least risk
_PROOF_GAP = 0.2  # what the latter may take


class Goal(NamedTuple):
    """The gap that is asked for: at most max(tol, rtol·scale), ``tol`` in the units of the loss."""

    tol: float = 0.0
    rtol: float = 1e-8


@dataclass(frozen=True)
class Point:
    """A density of the space: C, its embedding a = A(C), the least risk h(C) with the θ that
    attains it, the distance ‖a − z‖.
    """

    C: Array
    a: Array
    risk: float
    theta: np.ndarray
    distance: float


@dataclass(frozen=True)
class Nearest:
    """About the nearest density to the data: no density of the space is closer than ``least``."""

    C: Array
    distance: float
    least: float
    space: SoSSpace


@dataclass(frozen=True)
class Dual:
    """Certified: the worst-case risk of ``theta`` over the densities of the space in the projected
    ball is at most ``upper``. ``constant`` is the λ_max in it, ``multiplier`` is u.
    """

    theta: np.ndarray
    y: Array
    upper: float = math.inf
    constant: float = math.inf
    multiplier: float = 0.0


@dataclass(frozen=True)
class Saddle(Dual):
    """Both sides of the saddle, in the problem's units. A similar problem may start from it.

    ``point`` is the best density in the ball, or of an infeasible problem the nearest. Certified:
    no θ has a smaller worst-case risk than ``lower``, and below ``least_radius`` the ball holds no
    density of the space. ``solver`` is that of the penalized problems at the end.
    """

    space: SoSSpace = None  # type: ignore[assignment]
    point: Point = None  # type: ignore[assignment]
    lower: float = -math.inf
    radius: float = math.inf
    status: str = "solved"
    n_iter: int = 0
    n_solves: int = 0
    least_radius: float | None = None
    nearest: Nearest | None = None
    midway: tuple[Iterate, float] | None = None
    solver: str | Solver = "auto"

    @property
    def gap(self) -> float | None:
        """upper − lower, or None if nothing is proven."""
        proven = math.isfinite(self.upper) and math.isfinite(self.lower)
        return max(self.upper - self.lower, 0.0) if proven else None

    @property
    def empty(self) -> bool:
        """Whether no density was found in the ball."""
        outside = not math.isfinite(self.lower) and self.point.distance > self.radius
        return self.status in ("infeasible", "undecided") or outside


@dataclass(frozen=True)
class Problem:
    """One risk on one space around one target, for any number of radii and multipliers. A value:
    solving it does not change it.

    ``theta`` is a parameter that suits the data: the range of its loss is the unit of everything.
    ``grows``: whether directions may be added to what the landmarks see, which does not hold for a
    space of the user's. They are added until exact and projected MMD of the answer agree to
    ``agreement``. ``near`` is known of the nearest density, here or in a space that sees less.
    """

    space: SoSSpace
    risk: Risk
    data: MeanEmbedding | LabeledEmbedding
    theta: np.ndarray
    grows: bool = False
    agreement: float = 1e-6
    near: Nearest | None = None

    @property
    def fixed(self) -> bool:
        """Whether there is no parameter: the objective is linear in C."""
        return self.risk.n_parameters == 0

    @cached_property
    def z(self) -> Array:
        """The coordinates of the data."""
        return self.space.coordinates(self.data)

    @cached_property
    def units(self) -> tuple[float, float]:
        return self.risk.units(self.theta)

    def in_units_of_the_loss(self, value: float) -> float:
        return self.units[0] + self.units[1] * value

    def target(self, goal: Goal, risk: float) -> float:
        """The gap of a goal: relative to the range of a fixed loss, else to the risk, and for risks
        near zero to a thousandth of the range.
        """
        scale = 1.0 if self.fixed else max(abs(risk), 1e-3)
        return max(goal.tol / self.units[1], goal.rtol * scale)

    def continues(self, space: SoSSpace) -> bool:
        """Whether a space has the densities of this problem, whatever its landmarks see."""
        own, other = to_numpy(self.space.support_points), to_numpy(space.support_points)
        return space.kernel == self.space.kernel and np.array_equal(own, other)

    def term(self) -> BoundTerm:
        """−h in the problem's units. One for each solve: it remembers the last θ(C)."""
        return self.risk.term(*self.units)

    def point(self, C: Array, term: BoundTerm | None = None, a: Array | None = None) -> Point:
        """C with everything that is asked of it."""
        term, a = term or self.term(), self.space.compressed_map.apply(C) if a is None else a
        theta = term.at(C).theta if isinstance(term, LeastRisk) else self.theta
        return Point(C, a, -term.value(None, C), theta, norm(a - self.z))

    def mixed(self, one: Point, other: Point, t: float, term: BoundTerm) -> Point:
        C, a = (1.0 - t) * one.C + t * other.C, (1.0 - t) * one.a + t * other.a
        return self.point(C, term, a)

    def on_the_sphere(self, outside: Point, inside: Point, radius: float, term: BoundTerm) -> Point:
        """The mixture of the two whose distance is the radius: h is concave, so it is at least as
        good as its parts promise.
        """
        b, d, goal = outside.a - self.z, inside.a - outside.a, radius * (1.0 - 1e-15)
        squares = inner(b, b) - goal**2, 2.0 * inner(b, d), inner(d, d)

        def at(t: float) -> tuple[Point, float]:
            mixed = self.mixed(outside, inside, t, term)
            return mixed, mixed.distance

        return first_inside(squares, at, radius) or inside

    def matrix(self, theta: np.ndarray) -> Array:
        """M_θ of the loss itself, in the problem's units."""
        M, (middle, unit) = self.risk.true_matrix(theta), self.units
        return (M - middle * eye(M.shape[0], M)) / unit if middle != 0.0 else M / unit

    def upper(
        self, theta: np.ndarray, y: Array, radius: float, M: Array | None = None
    ) -> tuple[float, float]:
        """(the dual value at (θ, y), its λ_max): the former bounds the worst case of θ in the
        projected ball.
        """
        M = self.matrix(theta) if M is None else M
        top = -lowest_bound(self.space.compressed_map.adjoint(y) - M, 1e-12)
        ridge = self.risk.penalty(theta) / self.units[1]
        return top + inner(y, self.z) + radius * norm(y) + ridge, top

    def lower(self, point: Point, tol: float) -> float:
        """A certified lower bound of h at a point."""
        if not isinstance(self.risk, ParametricRisk):
            return point.risk
        middle, unit = self.units
        return (self.risk.proven_least(point.C, tol * unit, point.theta) - middle) / unit

    def top(self) -> Point:
        """The density for which a fixed loss is largest, wherever it is."""
        _, vectors = lowest_eigenpairs(-self.matrix(self.theta), 1)
        return self.point(vectors @ vectors.T)

    def distance_bound(self, a: Array) -> float:
        """λ_min(A*(v)) − ⟨v, z⟩ for the unit vector v along a − z: no density of the space is
        closer to the target than this.
        """
        v = (a - self.z) / max(norm(a - self.z), 1e-300)
        return lowest_bound(self.space.compressed_map.adjoint(v), 1e-14) - inner(v, self.z)

    def nearest(self, near: Nearest | None = None, start: Array | None = None) -> Nearest:
        """About the nearest density to the data: what is empty, and where to start. ``near`` is
        that of a space that sees less.
        """
        near = near or self.near
        if near is not None and near.space is self.space:
            return near
        C = start if near is None else near.C
        C = center(self.space.rank, self.z[:, None]) if C is None else C
        # 10% of its square tell whether a ball is empty
        return self._nearest(C, 1e-5, 0.1)

    def least_radius(self, found: Nearest) -> Nearest:
        """The nearest density and the certified least distance, to about four digits."""
        again = self._nearest(found.C, 1e-14, 1e-4)
        nearer = again if again.distance < found.distance else found
        return replace(nearer, least=max(again.least, found.least))

    def _nearest(self, C: Array, tol: float, rtol: float) -> Nearest:
        options: dict[str, Any] = {"start": C, "tol": tol, "rtol": rtol, "max_iter": 300}
        found = minimize(Bound(BoundSquaredMMD(self.z)), self.space, solver=_NEWTON, **options)
        a = self.space.compressed_map.apply(found.parameter)
        return Nearest(found.parameter, norm(a - self.z), self.distance_bound(a), self.space)

    def penalized(
        self, u: float, start: Array, tol: float, term: BoundTerm, solver: str | Solver
    ) -> tuple[Point, Solution, str | Solver]:
        """argmax h(C) − (u/2)‖A(C) − z‖², from ``start``, and the solver for the next u."""
        scale = 1.0 / (1.0 + u)
        functional = scale * Bound(term) + 0.5 * u * scale * Bound(BoundSquaredMMD(self.z))
        found = minimize(
            functional,
            self.space,
            solver=solver,
            start=start,
            tol=max(scale * tol, 1e-14),
            max_iter=None
            if self.fixed
            else 300,  # far more than Newton needs, unless rounding wins
        )
        if found.solver == "interior_point" and self._conic_step <= _DEAR_STEP:
            # where a low rank has not come once, it will not come for the next multiplier either
            solver = found.solver
        return self.point(found.parameter, term), found, solver

    @property
    def first_solver(self) -> str | Solver:
        """Of the penalized problems. A fixed loss makes them quadratic, so that a dozen steps of
        the interior point solve them.
        """
        if not self.fixed:
            return _NEWTON
        return "interior_point" if self._conic_step <= _CHEAP_STEP else "auto"

    @property
    def _conic_step(self) -> float:
        r, q = self.space.rank, self.space.embedding_rank
        return float(q * r**2 * (4 * r + 2 * q))

    @cached_property
    def barrier(self) -> JointBarrier | None:
        """The barrier method for (θ, y) at once, if its steps are cheap."""
        if not isinstance(self.risk, ParametricRisk):
            return None
        barrier = JointBarrier(self.space, self.risk, self.z, self.units[1])
        return barrier if barrier.cost() <= _DEAR_JOINT_STEP else None

    def has_interior(self, start: Saddle | None) -> bool:
        """Whether :meth:`interior` comes first. The path of a fixed loss takes no start."""
        if not self.fixed:
            return self.barrier is not None
        return start is None and self._conic_step <= _DEAR_STEP

    def interior(self, radius: float, tol: float, start: Saddle | None) -> BarrierPoint | None:
        """The end of the central path of the problem with its ball, which needs no search for the
        multiplier.
        """
        if self.barrier is not None:
            theta, midway = (self.theta, None) if start is None else (start.theta, start.midway)
            return self.barrier.solve(radius, tol, theta, midway)
        objective = Objective(self.term(), self.space, stored=True)
        problem = ConstrainedProblem(objective, [within(MMD(self.data), radius)])
        if (program := ConicProgram.of(problem)) is None:
            return None
        found = follow_central_path(problem, program, tol, 100)  # about twenty are needed
        if found is None or 0 not in found.multipliers.vectors:
            return None
        y, C = found.multipliers.vectors[0], found.G @ found.G.T
        return BarrierPoint(self.theta, y, C, found.n_iter)

    def solve_penalized(self, gamma: float, goal: Goal, start: Saddle | None = None) -> Saddle:
        """max ⟨M, C⟩ − γ‖A(C) − z‖² for a fixed loss, with its dual min_y λ_max(M − A*(y)) + ⟨y, z⟩
        + ‖y‖²/(4γ).
        """
        u, tol, space = 2.0 * gamma / self.units[1], self.target(goal, 0.0), self.space
        C = center(space.rank, self.z[:, None]) if start is None else start.point.C
        solver = self.first_solver if start is None else start.solver
        point, found, solver = self.penalized(u, C, 0.5 * tol, self.term(), solver)
        y = u * (point.a - self.z)
        _, constant = self.upper(self.theta, y, 0.0)
        upper = constant + inner(y, self.z) + inner(y, y) / (2.0 * u)
        lower, status = point.risk - 0.5 * u * point.distance**2, found.status
        if status == "solved" and upper - lower > tol * max(1.0, u):
            status = "solved_inaccurate"
        dual = Dual(self.theta, y, upper, constant, u)
        more: dict[str, Any] = {"status": status, "n_iter": found.n_iter, "solver": solver}
        return Saddle(**vars(dual), space=space, point=point, lower=lower, n_solves=1, **more)


def first_inside(
    squares: tuple[float, float, float], at: Callable[[float], tuple[T, float]], radius: float
) -> T | None:
    """What ``at(t)`` is for the smallest t < 1 where its distance is at most the radius.

    d² − radius² = excess + slope·t + curvature·t² of squared distances, with an excess > 0: where
    rounding makes the root a little too small, t grows.
    """
    excess, slope, curvature = squares
    root = -slope + math.sqrt(max(slope * slope - 4.0 * curvature * excess, 0.0))
    t = max(2.0 * excess / root, 0.0) if root > 0.0 else 1.0
    more = max(1e-9 * t, 1e-14)
    while t < 1.0:
        found, distance = at(t)
        if distance <= radius:
            return found
        t, more = t + more, 10.0 * more
    return None


def solve(problem: Problem, radius: float, goal: Goal, start: Saddle | None = None) -> Saddle:
    """The saddle in the projected ball of this radius. ``start`` is that of a similar problem."""
    return _Search(problem, radius, goal).run(start)


class _Search:
    """The best primal and dual points so far, and the bracket of the multiplier."""

    def __init__(self, problem: Problem, radius: float, goal: Goal) -> None:
        self.problem, self.radius, self.goal, self.call = problem, radius, goal, Run.current()
        self.term, self.dual = problem.term(), Dual(problem.theta, 0.0 * problem.z)
        self.M = problem.matrix(problem.theta) if problem.fixed else None
        self.outside: tuple[float, Point] | None = None
        self.inside: tuple[float, Point] | None = None
        self.best: Point | None = None
        self.n_iter = self.n_solves = 0
        self.nearest: Nearest | None = None
        self.midway: tuple[Iterate, float] | None = None
        self.solver = problem.first_solver
        self.recent: list[tuple[float, float]] = []  # (multiplier, distance) of the last points
        self.widths: list[float] = []

    def run(self, start: Saddle | None) -> Saddle:
        """Solve penalized problems until the gap closes."""
        problem = self.problem
        opened = self._open(start)
        if isinstance(opened, Saddle):
            return opened
        (C, u), status, last_gap, stuck = opened, "solved_inaccurate", math.inf, 0
        self.call.tell("first multiplier")
        # about ten solves are needed, unless rounding has the last word
        for _ in range(60):
            solver, tol = self.solver, self._inner_tol(stuck)
            point, found, self.solver = problem.penalized(u, C, tol, self.term, solver)
            C, self.n_iter, self.n_solves = point.C, self.n_iter + found.n_iter, self.n_solves + 1
            self._take(u, point)
            self.call.tell(f"multiplier {self.n_solves}, gap {self._gap:.1e}")
            if self._solved:
                return self._ended("solved")
            if self.inside is None and problem.distance_bound(point.a) > self.radius:
                return self._infeasible(point)
            if self.call.over:
                status = "time_limit"
                break
            settled = self.inside is not None and (self.outside is not None or not self.inside[0])
            # then the next solves take more digits
            stuck = stuck + 1 if settled and self._gap >= 0.5 * last_gap else 0
            last_gap = min(last_gap, self._gap)
            unreachable = self.inside is None and u >= 1e10
            # five times ten times the digits have not helped: there are no more
            if self._width <= 1e-14 or unreachable or (stuck > 5 and not problem.fixed):
                break
            u = self._next()
        return self._ended(status)

    def _open(self, start: Saddle | None) -> Saddle | tuple[Array, float]:
        """What needs no search: a ball that does not bind, or is empty, or the interior point. Else
        where the search starts.
        """
        problem, radius, risk = self.problem, self.radius, 1.0
        if problem.fixed:
            top = problem.top()
            self._take(0.0, top)
            if self._solved:
                return self._ended("solved")
            C = center(problem.space.rank, problem.z[:, None])
            u = 1.0 / (max(top.distance, radius) * radius)
        else:
            self.nearest = problem.nearest(None if start is None else start.nearest)
            near = problem.point(self.nearest.C, self.term)
            if self.nearest.distance > radius and self.nearest.least > radius:
                self._take(0.0, near)
                return self._infeasible(near)
            C, u, risk = near.C, 1.0 / (radius * max(radius, 0.3)), near.risk
        if start is not None and start.multiplier > 0.0:
            # as multipliers of balls go
            C, u = start.point.C, start.multiplier * (start.radius / radius) ** 2
            self.dual, self.solver = replace(self.dual, theta=start.theta), start.solver
        if problem.has_interior(start):
            gap = _SEARCH_GAP * problem.target(self.goal, risk)
            if (end := problem.interior(radius, gap, start)) is not None:
                self.n_iter, self.n_solves, self.midway = end.n_iter, 1, end.midway
                C, u = end.C, norm(end.y) / radius
                self._try(u, end.y, end.theta)
                self._offer(problem.point(C, self.term))
                if self._solved:
                    return self._ended("solved")
        return C, u

    def _inner_tol(self, stuck: int) -> float:
        """Few digits at first, where each one costs, and more when they do not close the gap."""
        if self.problem.fixed:
            return 0.02 * self._target  # digits are cheap
        return float(0.1 ** (stuck + 1) * min(max(self._target, 0.1 * self._gap), 1e-2))

    @property
    def _target(self) -> float:
        return self.problem.target(self.goal, 1.0 if self.best is None else self.best.risk)

    @property
    def _gap(self) -> float:
        return math.inf if self.best is None else max(self.dual.upper - self.best.risk, 0.0)

    @property
    def _solved(self) -> bool:
        return self._gap <= (1.0 if self.problem.fixed else _SEARCH_GAP) * self._target

    def _try(self, u: float, y: Array, theta: Array) -> None:
        upper, constant = self.problem.upper(theta, y, self.radius, self.M)
        if upper < self.dual.upper:
            self.dual = Dual(theta, y, upper, constant, u)

    def _take(self, u: float, point: Point) -> None:
        """Try the dual point of a penalized optimum, and sort it in. The best feasible point is on
        the sphere, between its neighbors.
        """
        self._try(u, u * (point.a - self.problem.z), point.theta)
        self.recent = [*self.recent[-1:], (u, point.distance)]
        if point.distance <= self.radius:
            if self.inside is None or u <= self.inside[0]:
                self.inside = (u, point)
        elif self.outside is None or u >= self.outside[0]:
            self.outside = (u, point)
        if self.inside is not None:
            self._keep(self.inside[1])
            if self.outside is not None:
                self._keep(self._between(self.outside[1], self.inside[1]))

    def _between(self, outside: Point, inside: Point) -> Point:
        return self.problem.on_the_sphere(outside, inside, self.radius, self.term)

    def _keep(self, point: Point) -> None:
        if point.distance <= self.radius and (self.best is None or point.risk > self.best.risk):
            self.best = point

    def _offer(self, point: Point) -> None:
        """Take the interior point's answer, pulled into the ball if rounding left it outside."""
        if point.distance > self.radius:
            self.nearest = self.nearest or self.problem.nearest(start=point.C)
            point = self._between(point, self.problem.point(self.nearest.C, self.term))
        self._keep(point)

    @property
    def _width(self) -> float:
        if self.inside is None or self.outside is None or self.inside[0] == 0.0:
            return math.inf
        return (self.inside[0] - self.outside[0]) / self.inside[0]

    def _next(self) -> float:
        """Where the secant of 1/distance through the last two points meets 1/radius, or that
        through the ends of the bracket, or the middle of the bracket if three steps have not halved
        it. Without a bracket the secant leads out of the last point, or else a factor.
        """
        if self.inside is None:
            assert self.outside is not None
            u, known = max(self.outside[0], 1e-12), len(self.recent) > 1 and self.recent[0][0] > 0.0
            ahead = self._secant(self.recent) if known else math.nan
            # a secant through two close points may lead anywhere
            return min(ahead, 1e4 * u) if ahead > 1.01 * u else _GROWTH * u
        if self.outside is None or self.inside[0] == 0.0:
            # at 0 the ball does not bind, and only digits are missing
            return self.inside[0] / _GROWTH if self.inside[0] > 1e-3 else 0.0
        (low, low_point), (high, high_point) = self.outside, self.inside
        self.widths.append(high - low)
        if len(self.widths) > 3 and self.widths[-1] > 0.5 * self.widths[-4]:
            self.widths.clear()
        else:
            for points in (self.recent, [(low, low_point.distance), (high, high_point.distance)]):
                new = self._secant(points)
                if abs(new - 0.5 * (low + high)) <= (0.5 - 1e-6) * (high - low):
                    return new
        return math.sqrt(low * high) if low > 0.0 and high > _GROWTH * low else 0.5 * (low + high)

    def _secant(self, points: list[tuple[float, float]]) -> float:
        (u, distance), (v, other) = points
        left, right = 1.0 / max(distance, 1e-300), 1.0 / max(other, 1e-300)
        # aiming a little inside brackets the multiplier from both sides
        inward = min(0.05 * max(other - self.radius, 0.0), 0.5 * self.radius)
        goal = 1.0 / (self.radius - inward)
        return u + (goal - left) * (v - u) / (right - left) if left != right else math.nan

    def _infeasible(self, point: Point) -> Saddle:
        """The least radius, to four digits, with the density that is nearest to the data."""
        self.nearest = self.nearest or self.problem.nearest(start=point.C)
        self.nearest = self.problem.least_radius(self.nearest)
        self.outside = (0.0, self.problem.point(self.nearest.C, self.term))
        least = max(self.nearest.least, self.problem.distance_bound(point.a))
        return self._ended("infeasible", least)

    def _ended(self, status: str, least_radius: float | None = None) -> Saddle:
        kept, point, lower = self.inside or self.outside, self.best, -math.inf
        if point is not None:
            lower = self.problem.lower(point, _PROOF_GAP * self._target)
        else:
            assert kept is not None
            point, status = kept[1], "undecided" if status == "solved_inaccurate" else status
        if self.call.interrupted:
            status = "interrupted"
        found = Saddle(
            **vars(self.dual),
            space=self.problem.space,
            point=point,
            lower=lower,
            radius=self.radius,
            status=status,
            n_iter=self.n_iter,
            n_solves=self.n_solves,
            least_radius=least_radius,
            nearest=self.nearest,
            midway=self.midway,
            solver=self.solver,
        )
        if status == "solved" and (found.gap is None or found.gap > self._target):
            return replace(found, status="solved_inaccurate")
        return found
