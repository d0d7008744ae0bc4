"""A robust problem in a projected MMD ball: one convex problem in θ and the dual function, with the
worst density as its primal variable.

    min_θ max_C ⟨M_θ, C⟩ + reg(θ)  =  max_C h(C),  C ⪰ 0, tr C = 1, ‖A(C) − z‖ ≤ ε,        h(C) =
    min_θ ⟨M_θ, C⟩ + reg(θ) concave.

A worst case is the problem without θ. Any C in the ball bounds the optimum from below by h(C); any
(θ, y) bounds it from above by λ_max(M_θ − A*(y)) + ⟨y, z⟩ + ε‖y‖ + reg(θ). The multiplier u of the
ball is searched for (see search.py): at the maximiser of h(C) − (u/2)‖A(C) − z‖², y = u(A(C) − z)
and θ = θ(C). Values are counted as middle + unit·value.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Any

import numpy as np

from ksos.functionals import MMD, Bound, BoundSquaredMMD, BoundTerm, Objective, within
from ksos.ground.arrays import Array, eye, inner, norm
from ksos.ground.deadline import Deadline
from ksos.ground.run import Run
from ksos.robust.barrier import BarrierPoint, Iterate, JointBarrier
from ksos.robust.risk import LeastRisk, ParametricRisk, Risk
from ksos.solvers import Solution, Solver, minimize
from ksos.solvers.certificate import lowest_bound, lowest_eigenpairs
from ksos.solvers.constrained import follow_central_path
from ksos.solvers.constrained_problem import ConstrainedProblem
from ksos.solvers.interior_point import ConicProgram
from ksos.solvers.low_rank import LowRank
from ksos.solvers.spectraplex import centre
from ksos.space.embedding import MeanEmbedding
from ksos.space.labelled import LabelledEmbedding
from ksos.space.space import SoSSpace

__all__ = ["Goal", "Nearest", "Point", "Problem", "Saddle"]

_CHEAP_STEP, _DEAR_STEP = (
    2e8,
    1.2e10,
)  # floating-point operations of one step of the interior point for a fixed loss
_CHEAP_JOINT_STEP = 4e9  # and of the barrier method, which has θ besides
_MOST_STEPS, _MOST_PATH_STEPS = 300, 100
_NEWTON = LowRank(extra_steps=0)  # on a factor
_NEAR_DIGITS, _NEAR_ENOUGH = (1e-2, 1e-3, 1e-4, 1e-5), 0.95


@dataclass(frozen=True)
class Goal:
    """The gap that is asked for: at most max(tol, rtol·scale)."""

    tol: float = 0.0
    """In the units of the loss."""
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
    """About the nearest density to the data, and what is proven: no density of the space is closer
    than ``least``.
    """

    C: Array
    distance: float
    least: float
    space: SoSSpace


@dataclass(frozen=True)
class Saddle:
    """Both sides of the saddle, and what they prove, in the problem's units; also where a similar
    problem may start.
    """

    space: SoSSpace
    theta: np.ndarray
    """Of the best upper bound."""
    point: Point
    """The best density in the ball; of an infeasible problem, the nearest."""
    lower: float
    """Certified: no θ has a smaller worst-case risk. −∞ if the loss is flat in θ."""
    upper: float
    """Certified: the worst-case risk of ``theta`` over the densities of the space in the projected
    ball is not above it.
    """
    y: Array
    multiplier: float
    """u."""
    dual_constant: float
    """The λ_max of the upper bound."""
    radius: float
    status: str
    n_iter: int
    n_solves: int = 0
    least_radius: float | None = None
    """Of an infeasible problem: the certified radius below which the ball holds no density of the
    space.
    """
    keyboard_interrupt: bool = False
    nearest: Nearest | None = None
    midway: tuple[Iterate, float] | None = None
    solver: str | Solver = "auto"
    """Of the penalised problems at the end."""

    @property
    def gap(self) -> float | None:
        """upper − lower; None if nothing is proven."""
        return (
            max(self.upper - self.lower, 0.0)
            if math.isfinite(self.upper) and math.isfinite(self.lower)
            else None
        )

    @property
    def empty(self) -> bool:
        """Whether no density was found in the ball."""
        return self.status in ("infeasible", "undecided") or (
            not math.isfinite(self.lower) and self.point.distance > self.radius
        )


@dataclass(frozen=True)
class Problem:
    """One risk on one space around one target, for any number of radii and multipliers. A value:
    solving it does not change it.
    """

    space: SoSSpace
    risk: Risk
    data: MeanEmbedding | LabelledEmbedding
    theta: np.ndarray
    """A parameter that suits the data: the spread of its loss is the unit of everything."""
    grows: bool = False
    """Whether directions may be added to what the landmarks see: not to a space of the user's."""
    agreement: float = 1e-6
    """Directions are added until the exact and the projected MMD of the answer agree to this."""
    near: Nearest | None = None
    """What is known of the nearest density, here or with what a space with fewer directions sees.
    """

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
        """(middle, unit)."""
        return self.risk.units(self.theta)

    def in_units_of_the_loss(self, value: float) -> float:
        """middle + unit·value."""
        return self.units[0] + self.units[1] * value

    def target(self, goal: Goal, risk: float) -> float:
        """The gap of a goal: relative to the spread of a fixed loss, else to the risk, and for
        risks near zero to the spread.
        """
        scale = 1.0 if self.fixed else max(abs(risk), 1e-3)
        return max(goal.tol / self.units[1], goal.rtol * scale)

    # --- points and bounds ---

    def term(self) -> BoundTerm:
        """−h in the problem's units. One for each solve: it remembers the last θ(C)."""
        return self.risk.term(*self.units)

    def point(self, C: Array, term: BoundTerm | None = None) -> Point:
        """C with everything that is asked of it."""
        return self._point(
            C, self.space.compressed_map.apply(C), self.term() if term is None else term
        )

    def _point(self, C: Array, a: Array, term: BoundTerm) -> Point:
        theta = term.at(C).theta if isinstance(term, LeastRisk) else self.theta
        return Point(C, a, -term.value(None, C), theta, norm(a - self.z))

    def mixed(self, one: Point, other: Point, t: float, term: BoundTerm | None = None) -> Point:
        """(1 − t)·one + t·other."""
        C, a = (1.0 - t) * one.C + t * other.C, (1.0 - t) * one.a + t * other.a
        return self._point(C, a, self.term() if term is None else term)

    def on_the_sphere(
        self, outside: Point, inside: Point, radius: float, term: BoundTerm | None = None
    ) -> Point:
        """The mixture of the two whose distance is the radius: h is concave, so it is at least as
        good as its parts promise.
        """
        b, d, goal = outside.a - self.z, inside.a - outside.a, radius * (1.0 - 1e-15)
        square, half, rest = inner(d, d), inner(b, d), inner(b, b) - goal**2
        # the smaller root of square·t² + 2·half·t + rest, in the form that does not cancel: half <
        # 0 < rest
        t = rest / (-half + math.sqrt(max(half * half - square * rest, 0.0))) if half < 0.0 else 1.0
        for _ in range(8):
            distance = norm(b + min(t, 1.0) * d)
            if distance <= radius or t >= 1.0:
                return self.mixed(outside, inside, min(t, 1.0), term)
            t = (
                t
                + 2.0 * (distance - radius) / max(outside.distance - inside.distance, 1e-300)
                + 1e-15
            )
        return inside

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
        return (
            top + inner(y, self.z) + radius * norm(y) + self.risk.penalty(theta) / self.units[1],
            top,
        )

    def lower(self, point: Point, tol: float) -> float:
        """A certified lower bound of h at a point."""
        if not isinstance(self.risk, ParametricRisk):
            return point.risk
        return (
            self.risk.proven_least(point.C, tol * self.units[1], point.theta) - self.units[0]
        ) / self.units[1]

    def top(self) -> Point:
        """Of a fixed loss, the density for which it is largest, wherever it is."""
        _, vectors = lowest_eigenpairs(-self.matrix(self.theta), 1)
        return self.point(vectors @ vectors.T)

    # --- the least radius ---

    def distance_bound(self, a: Array) -> float:
        """λ_min(A*(v)) − ⟨v, z⟩ for the unit vector v along a − z: no density of the space is
        closer to the target than this.
        """
        v = (a - self.z) / max(norm(a - self.z), 1e-300)
        return lowest_bound(self.space.compressed_map.adjoint(v), 1e-14) - inner(v, self.z)

    def nearest(
        self, deadline: Deadline, near: Nearest | None = None, start: Array | None = None
    ) -> Nearest:
        """About the nearest density to the data: what is empty, and where to start. ``near`` is
        that of a space that sees less.
        """
        near = self.near if near is None else near
        if near is not None and near.space is self.space:
            return near
        C = start if near is None else near.C
        C = centre(self.space.rank, self.z[:, None]) if C is None else C
        for tol in _NEAR_DIGITS:
            found = self._nearest(C, tol, 80, deadline)
            C = found.C
            if found.least >= _NEAR_ENOUGH * found.distance or deadline.passed:
                break
        return found

    def least_radius(self, found: Nearest, deadline: Deadline) -> Nearest:
        """The nearest density and the certified least distance, to about four digits."""
        again = self._nearest(found.C, max(1e-4 * found.distance**2, 1e-14), _MOST_STEPS, deadline)
        again = (
            again
            if again.distance < found.distance
            else replace(found, least=max(again.least, found.least))
        )
        return replace(again, least=max(again.least, found.least))

    def _nearest(self, C: Array, tol: float, steps: int, deadline: Deadline) -> Nearest:
        functional = Bound(_WholeDistance(self.z))
        found = minimize(
            functional,
            self.space,
            solver=_NEWTON,
            start=C,
            tol=tol,
            max_iter=steps,
            time_limit=deadline,
        )
        if found.keyboard_interrupt:
            raise KeyboardInterrupt("interrupted before a density in the ball was found")
        a = self.space.compressed_map.apply(found.parameter)
        return Nearest(found.parameter, norm(a - self.z), self.distance_bound(a), self.space)

    # --- the penalised problem, and the ball at once ---

    def penalised(
        self,
        u: float,
        start: Array,
        tol: float,
        deadline: Deadline,
        term: BoundTerm,
        solver: str | Solver,
    ) -> tuple[Point, Solution, str | Solver]:
        """argmax h(C) − (u/2)‖A(C) − z‖², from ``start``; the solver for the next multiplier comes
        back.
        """
        scale = 1.0 / (1.0 + u)
        functional, tol = (
            scale * Bound(term) + 0.5 * u * scale * Bound(BoundSquaredMMD(self.z)),
            max(scale * tol, 1e-14),
        )
        steps = None if self.fixed else _MOST_STEPS
        found = minimize(
            functional,
            self.space,
            solver=solver,
            start=start,
            tol=tol,
            max_iter=steps,
            time_limit=deadline,
        )
        if found.solver == "interior_point" and self._conic_step <= _DEAR_STEP:
            # where a low rank has not come once, it will not come for the next multiplier either
            solver = found.solver
        return self.point(found.parameter, term), found, solver

    @property
    def first_solver(self) -> str | Solver:
        """Of the penalised problems: for a fixed loss, which makes them quadratic, a dozen steps of
        the interior point if cheap.
        """
        return (
            _NEWTON
            if not self.fixed
            else "interior_point"
            if self._conic_step <= _CHEAP_STEP
            else "auto"
        )

    @property
    def _conic_step(self) -> float:
        r, q = self.space.rank, self.space.embedding_rank
        return float(q * r**2 * (4 * r + 2 * q))

    @cached_property
    def barrier(self) -> JointBarrier | None:
        """The barrier method for (θ, y) at once, if its steps are cheap and the smooth loss is the
        loss itself.
        """
        if not (isinstance(self.risk, ParametricRisk) and self.risk.differentiable):
            return None
        barrier = JointBarrier(self.space, self.risk, self.z, self.units[1])
        return barrier if barrier.cost() <= _CHEAP_JOINT_STEP else None

    def has_interior(self, start: Saddle | None) -> bool:
        """Whether :meth:`interior` is to be tried first: with a fixed loss, only without a start,
        since its path takes none.
        """
        return (
            self.barrier is not None
            if not self.fixed
            else start is None and self._conic_step <= _DEAR_STEP
        )

    def interior(
        self, radius: float, tol: float, deadline: Deadline, start: Saddle | None
    ) -> tuple[BarrierPoint, str] | None:
        """(point, status) at the end of the central path of the problem with its ball, which needs
        no search for the multiplier.
        """
        if self.barrier is not None:
            theta, midway = (self.theta, None) if start is None else (start.theta, start.midway)
            joint = self.barrier.solve(radius, tol, theta, deadline, midway)
            return None if joint is None else (joint, "solved")
        objective = Objective(self.term(), self.space, stored=True)
        problem = ConstrainedProblem(objective, [within(MMD(self.data), radius)])
        program = ConicProgram.of(problem)
        found = (
            None
            if program is None
            else follow_central_path(problem, program, tol, _MOST_PATH_STEPS)
        )
        if found is None or 0 not in found.multipliers.vectors:
            if Run.current().interrupted:
                raise KeyboardInterrupt("interrupted before a density in the ball was found")
            return None
        return (
            BarrierPoint(
                self.theta, found.multipliers.vectors[0], found.G @ found.G.T, found.n_iter, None
            ),
            found.status,
        )

    def solve_penalised(
        self, gamma: float, goal: Goal, deadline: Deadline, start: Saddle | None = None
    ) -> Saddle:
        """max ⟨M, C⟩ − γ‖A(C) − z‖² for a fixed loss, with its dual min_y λ_max(M − A*(y)) + ⟨y, z⟩
        + ‖y‖²/(4γ).
        """
        u, tol, term = 2.0 * gamma / self.units[1], self.target(goal, 0.0), self.term()
        C = centre(self.space.rank, self.z[:, None]) if start is None else start.point.C
        point, found, solver = self.penalised(
            u, C, 0.5 * tol, deadline, term, self.first_solver if start is None else start.solver
        )
        y = u * (point.a - self.z)
        _, constant = self.upper(self.theta, y, 0.0)
        upper, lower = (
            constant + inner(y, self.z) + inner(y, y) / (2.0 * u),
            point.risk - 0.5 * u * point.distance**2,
        )
        status = (
            "solved_inaccurate"
            if found.status == "solved" and upper - lower > tol * max(1.0, u)
            else found.status
        )
        return Saddle(
            self.space,
            self.theta,
            point,
            lower,
            upper,
            y,
            u,
            constant,
            math.inf,
            status,
            found.n_iter,
            1,
            keyboard_interrupt=found.keyboard_interrupt,
            solver=solver,
        )


class _WholeDistance(BoundSquaredMMD):
    """‖a − z‖² on all directions at once: those of a space with labels are not in the order of
    their mass.
    """

    def restrict(self, columns: slice) -> Any:
        return None
