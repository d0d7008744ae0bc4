"""Robust learning in a projected MMD ball: one convex problem in θ and the dual function, with the worst density as its primal variable.

    min_θ max_C ⟨M_θ, C⟩ + reg(θ)  =  max_C h(C),  C ⪰ 0, tr C = 1, ‖A(C) − z‖ ≤ ε,        h(C) = min_θ ⟨M_θ, C⟩ + reg(θ) concave.

Any C in the ball bounds the optimum from below by h(C); any (θ, y) bounds it from above by λ_max(M_θ − A*(y)) + ⟨y, z⟩ + ε‖y‖ + reg(θ). As
for one loss, the multiplier u of the ball is searched for: at the maximiser of h(C) − (u/2)‖A(C) − z‖², y = u(A(C) − z) and θ = θ(C).
"""

from __future__ import annotations

import math
import time
from dataclasses import dataclass, replace
from functools import cached_property

import numpy as np

from ksos._deadline import Deadline
from ksos._threads import one_blas_thread
from ksos.functionals.base import BoundTerm, Functional
from ksos.functionals.mmd import BoundSquaredMMD
from ksos.functionals.objective import Objective
from ksos.robust.barrier import BarrierPoint, JointBarrier
from ksos.robust.risk import LeastRisk, Risk
from ksos.solvers.eigenvalues import lowest_bound
from ksos.solvers.loop import Outcome, run
from ksos.solvers.low_rank import LowRank
from ksos.solvers.spectraplex import centre, factor
from ksos.space import SoSSpace

__all__ = ["Saddle", "SaddlePoint", "SaddleProblem"]

_MOST_SOLVES, _GROWTH, _LARGEST_MULTIPLIER = 60, 6.0, 1e10
_SAFE = 1e-6
_CLOSED, _REOPENED = 1e-4, 1.01  # the relative width of a bracket in which nothing is left, and the first step out of it
_INWARD = 0.05  # of the last point's distance to the ball: aiming a little inside brackets the multiplier from both sides
_INNER_DIGITS, _OF_THE_GAP, _ROUGH = 0.1, 0.1, 1e-2
_MOST_STEPS = 300
_NEAR_DIGITS, _NEAR_ENOUGH = (1e-2, 1e-3, 1e-4, 1e-5), 0.95
_OF_THE_TARGET = 0.5
_CHEAP_STEP = 4e9  # floating-point operations of one step of the barrier method


@dataclass(frozen=True)
class SaddlePoint:
    """A density of the space with its embedding, the least risk h(C), the parameter that attains it, and the distance to the data."""

    C: np.ndarray
    a: np.ndarray
    risk: float
    theta: np.ndarray
    distance: float


@dataclass(frozen=True)
class Saddle:
    """Both sides of the saddle, and what they prove."""

    theta: np.ndarray
    """Of the best upper bound."""
    point: SaddlePoint
    """The best density in the ball; of an infeasible problem, the nearest."""
    lower: float
    """Certified: no θ has a smaller worst-case risk. −∞ where the loss is flat in θ."""
    upper: float
    """Certified: the worst-case risk of ``theta`` over the densities of the space in the projected ball is not above it."""
    y: np.ndarray
    multiplier: float
    dual_constant: float
    radius: float
    status: str
    n_iter: int
    least_radius: float | None = None
    keyboard_interrupt: bool = False

    @property
    def gap(self) -> float | None:
        """upper − lower; None where nothing is proven."""
        return max(self.upper - self.lower, 0.0) if math.isfinite(self.upper) and math.isfinite(self.lower) else None


class SaddleProblem:
    """One risk on one space around one target, for any number of radii."""

    def __init__(self, space: SoSSpace, risk: Risk, z: np.ndarray, theta: np.ndarray, near: np.ndarray | None = None) -> None:
        """``theta`` is a parameter that suits the data: the spread of its loss is the unit of everything. ``near`` is a C near the data."""
        self.space, self.risk, self.z, self.typical_theta, self._near = space, risk, z, theta, near
        self.map = space.compressed_map
        ends = np.linalg.eigvalsh(risk.matrix(theta))
        size = max(abs(float(ends[0])), abs(float(ends[-1])))
        self.unit = max(float(ends[-1] - ends[0]), 1e-6 * size, 1e-300)
        self.least_risk = LeastRisk(risk, self.unit)
        self._distance = _Fixed(BoundSquaredMMD(z))

    def point(self, C: np.ndarray) -> SaddlePoint:
        """C with everything that is asked of it."""
        return self._point(C, self.map.apply(C))

    def _point(self, C: np.ndarray, a: np.ndarray) -> SaddlePoint:
        found = self.least_risk.at(C)
        return SaddlePoint(C, a, found.value, found.theta, float(np.linalg.norm(a - self.z)))

    def mixed(self, one: SaddlePoint, other: SaddlePoint, t: float) -> SaddlePoint:
        """(1 − t)·one + t·other."""
        return self._point((1.0 - t) * one.C + t * other.C, (1.0 - t) * one.a + t * other.a)

    def true_matrix(self, theta: np.ndarray) -> np.ndarray:
        """M_θ of the loss itself, where the risk is that of a smoother one."""
        return self.risk.true_matrix(theta)

    def upper(self, theta: np.ndarray, y: np.ndarray, radius: float) -> tuple[float, float]:
        """(the dual value at (θ, y), its λ_max)."""
        top = -lowest_bound(self.map.adjoint(y) - self.true_matrix(theta), 1e-12 * self.unit)
        return top + float(y @ self.z) + radius * float(np.linalg.norm(y)) + self.risk.penalty(theta), top

    def penalised(self, u: float, start: np.ndarray, tol: float, time_limit: float | None = None) -> tuple[SaddlePoint, Outcome]:
        """argmax h(C)/unit − (u/2)‖A(C) − z‖²; y in the risk's own units is unit·u·(A(C) − z)."""
        scale = 1.0 / (1.0 + u)
        return self._minimised(scale * self.least_risk + 0.5 * u * scale * self._distance, start, max(scale * tol, 1e-14), time_limit)

    def _minimised(self, functional: Functional, start: np.ndarray, tol: float, time_limit: float | None) -> tuple[SaddlePoint, Outcome]:
        objective = Objective.of(functional, self.space, stored=True, deadline=Deadline(time_limit))
        with one_blas_thread(self.space.rank):
            outcome = run(LowRank(extra_steps=0), objective, start, tol, _MOST_STEPS)
        G = factor(outcome.point.C)
        return self.point(G @ G.T), outcome

    @cached_property
    def nearest(self) -> tuple[np.ndarray, float, float]:
        """(C, distance, certified least distance) of about the nearest density to the data: where to start, and what is empty."""
        C = centre(self.space.rank, np.zeros((1, 1))) if self._near is None else self._near
        for tol in _NEAR_DIGITS:
            C, distance, least = self._nearest(C, tol, 80)
            if least >= _NEAR_ENOUGH * distance:
                break
        return C, distance, least

    def _nearest(self, C: np.ndarray, tol: float, steps: int) -> tuple[np.ndarray, float, float]:
        objective = Objective(_Plain(self.z), self.space, stored=True)
        C = run(LowRank(extra_steps=0), objective, C, tol, steps).point.C
        a = self.map.apply(C)
        return C, float(np.linalg.norm(a - self.z)), self.nearest_bound(a)

    @cached_property
    def barrier(self) -> JointBarrier | None:
        """The barrier method for all of it at once, where its steps are cheap and the smooth loss is the loss itself."""
        barrier = JointBarrier(self)
        return barrier if self.risk.differentiable and barrier.cost() <= _CHEAP_STEP else None

    def least_radius(self) -> float:
        """The certified radius below which the ball holds no density of the space, to about four digits."""
        C, distance, least = self.nearest
        return max(self._nearest(C, 1e-4 * distance**2, _MOST_STEPS)[2], least)

    def nearest_bound(self, a: np.ndarray) -> float:
        """No density of the space is closer to the target than this."""
        v = (a - self.z) / max(float(np.linalg.norm(a - self.z)), 1e-300)
        return lowest_bound(self.map.adjoint(v), 1e-14) - float(v @ self.z)

    def solve(self, radius: float, tol: float, time_limit: float | None = None, start: Saddle | None = None) -> Saddle:
        """The saddle in the ball of this radius, to a gap of ``tol`` relative to the risk."""
        return _Search(self, radius, tol, time_limit).run(start)


class _Search:
    """The search for the multiplier, with the best primal and dual points so far."""

    def __init__(self, problem: SaddleProblem, radius: float, tol: float, time_limit: float | None) -> None:
        self.problem, self.radius, self.tol = problem, radius, tol
        self.ends = None if time_limit is None else time.perf_counter() + time_limit
        self.outside: tuple[float, SaddlePoint] | None = None
        self.inside: tuple[float, SaddlePoint] | None = None
        self.best: SaddlePoint | None = None
        self.best_upper, self.constant, self.multiplier = math.inf, math.inf, 0.0
        self.y, self.theta = 0.0 * problem.z, np.zeros(problem.risk.n_parameters)
        self.n_iter, self._growth = 0, _GROWTH
        self._recent: list[tuple[float, float]] = [(math.nan, math.nan)] * 2

    def run(self, start: Saddle | None) -> Saddle:
        """Solve penalised problems until the gap closes."""
        problem = self.problem
        C, distance, least = problem.nearest
        if distance > self.radius and least > self.radius:
            point = problem.point(C)
            self._bound(0.0, point)
            self._take(0.0, point)
            return self._ended("infeasible", least_radius=problem.least_radius())
        u = 1.0 / (self.radius * max(self.radius, 0.3))
        if start is not None and start.multiplier > 0.0:
            C, u = start.point.C, start.multiplier * (start.radius / self.radius) ** 2  # as multipliers of balls go
            self._growth = 1.5
        if problem.barrier is not None:
            digits = _OF_THE_TARGET * self.tol * max(abs(problem.point(problem.nearest[0]).risk), 1e-3 * problem.unit)
            found = problem.barrier.solve(self.radius, digits, problem.typical_theta if start is None else start.theta, self.ends)
            if found is not None:
                C, u = found.C, self._offer(found)
                if self._gap() <= self._target():
                    return self._ended("solved")
        status, last_gap, stuck = "solved_inaccurate", math.inf, 0
        for _ in range(_MOST_SOLVES):
            rest = None if self.ends is None else max(self.ends - time.perf_counter(), 1e-3)
            digits = min(max(self._target(), _OF_THE_GAP * self._gap()), _ROUGH * problem.unit)
            point, outcome = problem.penalised(u, C, _INNER_DIGITS * 0.1**stuck * digits / problem.unit, rest)
            self.n_iter, C = self.n_iter + outcome.n_iter, point.C
            self._recent = [self._recent[1], (u, point.distance)]
            self._bound(u, point)
            self._take(u, point)
            if outcome.status == "interrupted":
                return self._ended("interrupted", keyboard=outcome.keyboard)
            if self._gap() <= self._target():
                return self._ended("solved")
            if self.inside is None and (least := problem.nearest_bound(point.a)) > self.radius:
                return self._ended("infeasible", least_radius=max(problem.least_radius(), least))
            if self.ends is not None and time.perf_counter() > self.ends:
                status = "time_limit"
                break
            settled = self.inside is not None and (self.outside is not None or self.inside[0] == 0.0)
            stuck = stuck + 1 if settled and self._gap() >= 0.5 * last_gap else 0  # then the next solves take more digits
            last_gap = min(last_gap, self._gap())
            if stuck > 5 or (self.inside is None and u >= _LARGEST_MULTIPLIER):
                break
            if stuck > 1:
                self._reopen(point)
            u = self._next()
        return self._ended(status if self.best is not None else "undecided" if status == "solved_inaccurate" else status)

    def _offer(self, found: BarrierPoint) -> float:
        """Take a point near the central path, pulled into the ball where rounding has left it outside; its multiplier."""
        problem, self.n_iter = self.problem, found.n_iter
        point, inside = problem.point(found.C), problem.point(problem.nearest[0])
        point = point if point.distance <= self.radius else self._on_the_sphere(point, inside)
        self.best = point if point.distance <= self.radius else None
        u = float(np.linalg.norm(found.y)) / (problem.unit * self.radius)
        self.best_upper, self.constant = problem.upper(found.theta, found.y, self.radius)
        self.multiplier, self.y, self.theta = u, found.y, found.theta
        return u

    def _target(self) -> float:
        """The gap that is asked for: relative to the risk, and for risks near zero to the spread of the loss."""
        size = abs(self.best.risk) if self.best is not None else self.problem.unit
        return self.tol * max(size, 1e-3 * self.problem.unit)

    def _bound(self, u: float, point: SaddlePoint) -> None:
        """Try the dual point of a penalised optimum."""
        y = self.problem.unit * u * (point.a - self.problem.z)
        upper, constant = self.problem.upper(point.theta, y, self.radius)
        if upper < self.best_upper:
            self.best_upper, self.constant, self.multiplier, self.y, self.theta = upper, constant, u, y, point.theta

    def _take(self, u: float, point: SaddlePoint) -> None:
        """Sort a penalised optimum in; h is concave, so a mixture on the sphere is at least as good as its parts promise."""
        if point.distance <= self.radius:
            if self.inside is None or u <= self.inside[0]:
                self.inside = (u, point)
        elif self.outside is None or u >= self.outside[0]:
            self.outside = (u, point)
        candidates = [] if self.inside is None else [self.inside[1]]
        if self.inside is not None and self.outside is not None:
            candidates.append(self._on_the_sphere(self.outside[1], self.inside[1]))
        for candidate in candidates:
            if candidate.distance <= self.radius and (self.best is None or candidate.risk > self.best.risk):
                self.best = candidate

    def _on_the_sphere(self, outside: SaddlePoint, inside: SaddlePoint) -> SaddlePoint:
        """The mixture of the two whose distance is the radius."""
        b, d, goal = outside.a - self.problem.z, inside.a - outside.a, self.radius * (1.0 - 1e-12)  # what rounding may cost
        square, half, rest = float(d @ d), float(b @ d), float(b @ b) - goal**2
        t = rest / (-half + math.sqrt(max(half * half - square * rest, 0.0))) if half < 0.0 else 1.0
        for _ in range(8):
            distance = float(np.linalg.norm(b + min(t, 1.0) * d))
            if distance <= self.radius or t >= 1.0:
                return self.problem.mixed(outside, inside, min(t, 1.0))
            t = t + 2.0 * (distance - self.radius) / max(outside.distance - inside.distance, 1e-300) + 1e-15
        return inside

    def _reopen(self, latest: SaddlePoint) -> None:
        """Forget the end of a bracket that has closed without closing the gap: it was found with few digits, on the wrong side."""
        if self.inside is None or self.outside is None or self.inside[0] - self.outside[0] > _CLOSED * self.inside[0]:
            return
        if latest.distance <= self.radius:
            self.outside = None
        else:
            self.inside = None
        self._growth = _REOPENED

    def _gap(self) -> float:
        return math.inf if self.best is None else max(self.best_upper - self.best.risk, 0.0)

    def _next(self) -> float:
        """Where the secant of 1/distance through the last two points meets 1/radius, kept inside the bracket."""
        growth, self._growth = self._growth, max(2.0 * self._growth, _GROWTH)
        if self.inside is not None and self.inside[0] == 0.0:
            return 0.0  # the ball does not bind: only digits are missing
        if self.inside is None:
            assert self.outside is not None
            return min(max(self.outside[0], 1e-12) * growth, _LARGEST_MULTIPLIER)
        if self.outside is None:
            return self.inside[0] / growth if self.inside[0] > 1e-3 else 0.0
        low, high = self.outside[0], self.inside[0]
        ends = [(self.outside[0], self.outside[1].distance), (self.inside[0], self.inside[1].distance)]
        for (u, distance), (v, other) in (self._recent, ends):
            left, right = 1.0 / max(distance, 1e-300), 1.0 / max(other, 1e-300)
            goal = 1.0 / (self.radius - min(_INWARD * max(other - self.radius, 0.0), 0.5 * self.radius))
            new = u + (goal - left) * (v - u) / (right - left) if left != right else math.nan
            if low + _SAFE * (high - low) <= new <= high - _SAFE * (high - low):
                return new
        if low > 0.0 and high / low > _GROWTH**2:
            return math.sqrt(low * high)
        return 0.5 * (low + high)

    def _ended(self, status: str, least_radius: float | None = None, keyboard: bool = False) -> Saddle:
        problem, nearest, point = self.problem, self.inside or self.outside, self.best
        if point is None:
            assert nearest is not None
            point = nearest[1]
        lower = -math.inf if self.best is None else problem.risk.proven_least(point.C, 0.3 * self._target())
        found = Saddle(
            theta=self.theta,
            point=point,
            lower=lower,
            upper=self.best_upper,
            y=self.y,
            multiplier=self.multiplier,
            dual_constant=self.constant,
            radius=self.radius,
            status=status,
            n_iter=self.n_iter,
            least_radius=least_radius,
            keyboard_interrupt=keyboard,
        )
        if status == "solved" and (found.gap is None or found.gap > 1.5 * self._target()):
            return replace(found, status="solved_inaccurate")
        return found


class _Fixed(Functional):
    """A term that knows its space already."""

    def __init__(self, term: BoundTerm) -> None:
        self.term = term

    def bind(self, space: SoSSpace) -> BoundTerm:
        return self.term


class _Plain(BoundSquaredMMD):
    """‖a − z‖² on all directions at once: those of a labelled space are not in the order of their mass."""

    def restrict(self, columns: slice) -> BoundTerm | None:
        return None
