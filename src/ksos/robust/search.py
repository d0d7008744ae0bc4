"""The search for the multiplier of an MMD ball: one number, for a worst case and for robust
learning alike.

The penalised optimum C_u of h(C) − (u/2)‖A(C) − z‖² is at a distance d(u) from the data that falls
as u grows. 1/d is nearly linear in u, as in trust-region methods [ConnGouldToint2000], so that the
root d(u) = ε is found in a few solves, each started from the last. Where its steps are cheap an
interior point that knows the ball comes first, and the search only has to close what rounding has
left.
"""

from __future__ import annotations

import math
from dataclasses import replace

from ksos.ground.arrays import Array, norm
from ksos.ground.deadline import Deadline
from ksos.ground.progress import Convergence, tell
from ksos.robust.barrier import Iterate
from ksos.robust.problem import Goal, Nearest, Point, Problem, Saddle
from ksos.solvers.spectraplex import centre

__all__ = ["solve"]

_MOST_SOLVES, _LARGEST_MULTIPLIER = 60, 1e10
_GROWTH, _WARM_GROWTH, _LEAP = 4.0, 1.5, 1e4
_NARROWEST = 1e-14  # the relative width of a bracket in which no multiplier is left
_CLOSED, _REOPENED = (
    1e-4,
    1.01,
)  # that of one in which nothing is left to few digits, and the first step out of it
_SAFE = 1e-6  # the next multiplier keeps at least this fraction of the bracket away from its ends
# of the last point's distance to the ball: aiming a little inside brackets the multiplier from both
# sides
_INWARD = 0.05
_DIGITS, _FEW_DIGITS, _OF_THE_GAP, _ROUGH = 0.02, 0.1, 0.1, 1e-2
_INTERIOR_DIGITS = 0.5
_MOST_STUCK = 5
_STOP, _PROVEN = (
    0.5,
    0.2,
)  # of the gap asked for: what the bound of the least risk, and quadrature, leave open comes on top


def solve(
    problem: Problem,
    radius: float,
    goal: Goal,
    deadline: Deadline | None = None,
    start: Saddle | None = None,
) -> Saddle:
    """The saddle in the projected ball of this radius; ``start`` is that of a similar problem."""
    return _Search(problem, radius, goal, Deadline() if deadline is None else deadline).run(start)


class _Search:
    """The best primal and dual points so far, and the bracket of the multiplier."""

    def __init__(self, problem: Problem, radius: float, goal: Goal, deadline: Deadline) -> None:
        self.problem, self.radius, self.goal, self.deadline = problem, radius, goal, deadline
        self.term = problem.term()
        self.M = problem.matrix(problem.theta) if problem.fixed else None
        self.outside: tuple[float, Point] | None = None
        self.inside: tuple[float, Point] | None = None
        self.best: Point | None = None
        self.upper = self.constant = math.inf
        self.y, self.theta, self.multiplier = 0.0 * problem.z, problem.theta, 0.0
        self.n_iter = self.n_solves = 0
        self.nearest: Nearest | None = None
        self.midway: tuple[Iterate, float] | None = None
        self.solver = problem.first_solver
        self.growth = _GROWTH
        self.recent: list[tuple[float, float]] = []
        """(multiplier, distance) of the points so far."""
        self.widths: list[float] = []

    def run(self, start: Saddle | None) -> Saddle:
        """Solve penalised problems until the gap closes."""
        problem = self.problem
        opened = self._open(start)
        if isinstance(opened, Saddle):
            return opened
        C, u = opened
        tell("first multiplier", 0.0, math.inf)  # how many of them it takes is not known
        status, last_gap, stuck, convergence = (
            "solved_inaccurate",
            math.inf,
            0,
            Convergence(self._target),
        )
        for _ in range(_MOST_SOLVES):
            point, found, self.solver = problem.penalised(
                u, C, self._inner_tol(stuck), self.deadline, self.term, self.solver
            )
            C, self.n_iter, self.n_solves = point.C, self.n_iter + found.n_iter, self.n_solves + 1
            self._take(u, point)
            left = convergence.left(self.deadline.elapsed, self._gap)
            tell(f"multiplier {self.n_solves}, gap {self._gap:.1e}", 0.0, math.inf, left=left)
            if found.status == "interrupted":
                return self._ended("interrupted", keyboard=found.keyboard_interrupt)
            if self._solved:
                return self._ended("solved")
            if self.inside is None and problem.distance_bound(point.a) > self.radius:
                return self._infeasible(point)
            if self.deadline.passed:
                status = "time_limit"
                break
            settled = self.inside is not None and (
                self.outside is not None or self.inside[0] == 0.0
            )
            # then the next solves take more digits
            stuck = stuck + 1 if settled and self._gap >= 0.5 * last_gap else 0
            last_gap = min(last_gap, self._gap)
            if self._width <= _NARROWEST or (self.inside is None and u >= _LARGEST_MULTIPLIER):
                break
            if not problem.fixed:
                if stuck > _MOST_STUCK:
                    break
                if stuck > 1:
                    self._reopen(point)
            u = self._next()
        return self._ended(
            status
            if self.best is not None
            else "undecided"
            if status == "solved_inaccurate"
            else status
        )

    def _open(self, start: Saddle | None) -> Saddle | tuple[Array, float]:
        """What needs no search: a ball that does not bind, or is empty, or the interior point; else
        where the search starts.
        """
        problem, radius = self.problem, self.radius
        if problem.fixed:
            top = problem.top()
            self._take(0.0, top)
            if self._solved:
                return self._ended("solved")
            C, u = (
                centre(problem.space.rank, problem.z[:, None]),
                1.0 / (max(top.distance, radius) * radius),
            )
        else:
            self.nearest = problem.nearest(self.deadline, None if start is None else start.nearest)
            if self.nearest.distance > radius and self.nearest.least > radius:
                point = problem.point(self.nearest.C, self.term)
                self._take(0.0, point)
                return self._infeasible(point)
            C, u = self.nearest.C, 1.0 / (radius * max(radius, 0.3))
        if start is not None and start.multiplier > 0.0:
            C, u = (
                start.point.C,
                start.multiplier * (start.radius / radius) ** 2,
            )  # as multipliers of balls go
            self.theta, self.growth, self.solver = (
                start.theta,
                _GROWTH if problem.fixed else _WARM_GROWTH,
                start.solver,
            )
        if problem.has_interior(start):
            risk = 1.0 if self.nearest is None else problem.point(self.nearest.C, self.term).risk
            found = problem.interior(
                radius, _INTERIOR_DIGITS * problem.target(self.goal, risk), self.deadline, start
            )
            if found is not None:
                end, status = found
                self.n_iter, self.n_solves, self.midway = end.n_iter, 1, end.midway
                C, u = end.C, norm(end.y) / radius
                self._try(u, end.y, end.theta)
                self._offer(problem.point(C, self.term))
                if status == "interrupted":
                    return self._ended("interrupted", keyboard=True)
                if self._solved:
                    return self._ended("solved")
        return C, u

    def _inner_tol(self, stuck: int) -> float:
        """Few digits at first, where each one costs; more when they do not close the gap."""
        target = self._target
        if self.problem.fixed:
            return _DIGITS * target
        return float(_FEW_DIGITS * 0.1**stuck * min(max(target, _OF_THE_GAP * self._gap), _ROUGH))

    # --- bounds ---

    @property
    def _target(self) -> float:
        return self.problem.target(self.goal, 1.0 if self.best is None else self.best.risk)

    @property
    def _gap(self) -> float:
        return math.inf if self.best is None else max(self.upper - self.best.risk, 0.0)

    @property
    def _solved(self) -> bool:
        return self._gap <= (1.0 if self.problem.fixed else _STOP) * self._target

    def _try(self, u: float, y: Array, theta: Array) -> None:
        upper, constant = self.problem.upper(theta, y, self.radius, self.M)
        if upper < self.upper:
            self.upper, self.constant, self.multiplier, self.y, self.theta = (
                upper,
                constant,
                u,
                y,
                theta,
            )

    def _take(self, u: float, point: Point) -> None:
        """Try the dual point of a penalised optimum, and sort it in; the best feasible point is on
        the sphere, between its neighbours.
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
                self._keep(
                    self.problem.on_the_sphere(
                        self.outside[1], self.inside[1], self.radius, self.term
                    )
                )

    def _keep(self, point: Point) -> None:
        if point.distance <= self.radius and (self.best is None or point.risk > self.best.risk):
            self.best = point

    def _offer(self, point: Point) -> None:
        """Take the interior point's answer, pulled into the ball if rounding has left it outside."""
        if point.distance > self.radius:
            if self.nearest is None:
                self.nearest = self.problem.nearest(self.deadline, start=point.C)
            point = self.problem.on_the_sphere(
                point, self.problem.point(self.nearest.C, self.term), self.radius, self.term
            )
        self._keep(point)

    # --- the next multiplier ---

    @property
    def _width(self) -> float:
        """Of the bracket, relative."""
        if self.inside is None or self.outside is None or self.inside[0] == 0.0:
            return math.inf
        return (self.inside[0] - self.outside[0]) / self.inside[0]

    def _reopen(self, latest: Point) -> None:
        """Forget the end of a bracket that has closed without closing the gap: it was found with
        few digits, on the wrong side.
        """
        if self._width > _CLOSED:
            return
        if latest.distance <= self.radius:
            self.outside = None
        else:
            self.inside = None
        self.widths.clear()
        self.growth = _REOPENED

    def _next(self) -> float:
        """Where the secant of 1/distance through the last two points meets 1/radius, or that
        through the ends of the bracket; the middle of the bracket if three steps have not halved
        it. Without a bracket the secant leads out of the last point, or else a factor.
        """
        growth, self.growth = self.growth, max(2.0 * self.growth, _GROWTH)
        if self.inside is None:
            assert self.outside is not None
            u = max(self.outside[0], 1e-12)
            ahead = (
                self._secant(self.recent)
                if len(self.recent) > 1 and self.recent[0][0] > 0.0
                else math.nan
            )
            return min(
                min(ahead, _LEAP * u) if ahead > _REOPENED * u else growth * u, _LARGEST_MULTIPLIER
            )
        if self.inside[0] == 0.0:
            return 0.0  # the ball does not bind: only digits are missing
        if self.outside is None:
            return self.inside[0] / growth if self.inside[0] > 1e-3 else 0.0
        (low, low_point), (high, high_point) = self.outside, self.inside
        self.widths.append(high - low)
        if len(self.widths) > 3 and self.widths[-1] > 0.5 * self.widths[-4]:
            self.widths.clear()
        else:
            for points in (self.recent, [(low, low_point.distance), (high, high_point.distance)]):
                new = self._secant(points)
                if low + _SAFE * (high - low) <= new <= high - _SAFE * (high - low):
                    return new
        return math.sqrt(low * high) if low > 0.0 and high > _GROWTH * low else 0.5 * (low + high)

    def _secant(self, points: list[tuple[float, float]]) -> float:
        (u, distance), (v, other) = points
        left, right = 1.0 / max(distance, 1e-300), 1.0 / max(other, 1e-300)
        goal = 1.0 / (self.radius - min(_INWARD * max(other - self.radius, 0.0), 0.5 * self.radius))
        return u + (goal - left) * (v - u) / (right - left) if left != right else math.nan

    # --- the end ---

    def _infeasible(self, point: Point) -> Saddle:
        """The least radius, to four digits, with the density that is nearest to the data."""
        if self.nearest is None:
            self.nearest = self.problem.nearest(self.deadline, start=point.C)
        self.nearest = self.problem.least_radius(self.nearest, self.deadline)
        self.outside = (0.0, self.problem.point(self.nearest.C, self.term))
        return self._ended(
            "infeasible", least_radius=max(self.nearest.least, self.problem.distance_bound(point.a))
        )

    def _ended(
        self, status: str, least_radius: float | None = None, keyboard: bool = False
    ) -> Saddle:
        problem, nearest, point = self.problem, self.inside or self.outside, self.best
        if point is None:
            if keyboard:
                raise KeyboardInterrupt("interrupted before a density in the ball was found")
            assert nearest is not None
            point = nearest[1]
        lower = -math.inf if self.best is None else problem.lower(point, _PROVEN * self._target)
        found = Saddle(
            problem.space,
            self.theta,
            point,
            lower,
            self.upper,
            self.y,
            self.multiplier,
            self.constant,
            self.radius,
            status,
            self.n_iter,
            self.n_solves,
            least_radius,
            keyboard,
            self.nearest,
            self.midway,
            self.solver,
        )
        if status == "solved" and (found.gap is None or found.gap > self._target):
            return replace(found, status="solved_inaccurate")
        return found
