"""A robust problem in a projected MMD ball: one convex problem in θ and the dual function, with the
worst density as its primal variable.

    min_θ max_C ⟨M_θ, C⟩ + reg(θ)  =  max_C h(C),  C ⪰ 0, tr C = 1, ‖A(C) − z‖ ≤ ε,

where h(C) = min_θ ⟨M_θ, C⟩ + reg(θ) is concave. Any C in the ball bounds the optimum from below by
h(C). Any (θ, y) bounds it from above by λ_max(M_θ − A*(y)) + ⟨y, z⟩ + ε‖y‖ + reg(θ). Values are
counted as middle + unit·value.

A worst case is the problem without θ: :func:`ksos.minimize` solves it. With θ, the barrier method
finds θ, y and C together (barrier.py).
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from functools import cached_property
from typing import NamedTuple

import numpy as np

from ksos.functionals import MMD, Bound, BoundLinear, BoundSquaredMMD, within
from ksos.ground import Array, Run, eye, inner, like, norm
from ksos.robust.barrier import JointBarrier
from ksos.robust.parametric import ParametricRisk, Risk
from ksos.solvers import center, lowest_bound, lowest_eigenpairs, minimize, nearest
from ksos.space import LabeledEmbedding, MeanEmbedding, SoSSpace

__all__ = ["Goal", "Point", "Problem", "Saddle", "solve", "solve_penalized"]

_BARRIER_GAP = 0.5  # of the gap asked for: the rest is for quadrature and a bound of the least risk
_PROOF_GAP = 0.2  # what the latter may take
_ROUNDING = 1e-13  # of distances: ten times what minimize leaves of a constraint
_MOST_STEPS = 300  # of Newton's method for the nearest density: far more than it needs


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
class Saddle:
    """Both sides of the saddle, in the problem's units.

    Certified: the worst-case risk of ``theta`` over the densities of the space in the projected
    ball is at most ``upper``, in which ``constant`` is the λ_max. No θ has a smaller worst-case
    risk than ``lower``. Below ``least_radius`` the ball holds no density of the space. ``point`` is
    the best density in the ball, or near the data if the ball is ``empty`` as far as is known.
    """

    point: Point
    theta: np.ndarray
    y: Array
    upper: float
    constant: float
    lower: float
    status: str
    n_iter: int
    least_radius: float | None = None
    empty: bool = False

    @property
    def gap(self) -> float | None:
        """upper − lower, or None if nothing is proven."""
        proven = math.isfinite(self.upper) and math.isfinite(self.lower)
        return max(self.upper - self.lower, 0.0) if proven else None


@dataclass(frozen=True)
class Problem:
    """One risk on one space around one target, for any number of radii and multipliers. A value:
    solving it does not change it.

    ``theta`` is a parameter that suits the data: the range of its loss is the unit of everything.
    ``grows``: whether directions may be added to what the landmarks see, which does not hold for a
    space of the user's. They are added until exact and projected MMD of the answer agree to
    ``agreement``.
    """

    space: SoSSpace
    risk: Risk
    data: MeanEmbedding | LabeledEmbedding
    theta: np.ndarray
    grows: bool = False
    agreement: float = 1e-6

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
        scale = max(abs(risk), 1e-3) if isinstance(self.risk, ParametricRisk) else 1.0
        return max(goal.tol / self.units[1], goal.rtol * scale)

    def point(self, C: Array) -> Point:
        """C with everything that is asked of it."""
        a = self.space.compressed_map.apply(C)
        if isinstance(self.risk, ParametricRisk):
            least = self.risk.least(C)
            risk, theta = least.value / self.units[1], least.theta
        else:
            risk, theta = inner(self.matrix(self.theta), C), self.theta
        return Point(C, a, risk, theta, norm(a - self.z))

    def mixed(self, one: Point, other: Point, t: float) -> Point:
        return self.point((1.0 - t) * one.C + t * other.C)

    def matrix(self, theta: np.ndarray) -> Array:
        """M_θ of the loss itself, in the problem's units."""
        M, (middle, unit) = self.risk.true_matrix(theta), self.units
        return (M - middle * eye(M.shape[0], M)) / unit if middle != 0.0 else M / unit

    def upper(self, theta: np.ndarray, y: Array, radius: float) -> tuple[float, float]:
        """(the dual value at (θ, y), its λ_max): the former bounds the worst case of θ in the
        projected ball.
        """
        top = -lowest_bound(self.space.compressed_map.adjoint(y) - self.matrix(theta), 1e-12)
        ridge = self.risk.penalty(theta) / self.units[1]
        return top + inner(y, self.z) + radius * norm(y) + ridge, top

    def lower(self, point: Point, tol: float) -> float:
        """A certified lower bound of h at a point."""
        if not isinstance(self.risk, ParametricRisk):
            return point.risk
        unit = self.units[1]
        return self.risk.proven_least(point.C, tol * unit, point.theta) / unit

    @cached_property
    def loss(self) -> Bound:
        """Minus a fixed loss, to be minimized."""
        return Bound(BoundLinear(-self.matrix(self.theta)))

    def nearest(self, radius: float) -> tuple[Point, float]:
        """The density that is nearest to the data, to as many digits as it takes to tell whether
        the ball is empty, and a proven lower bound of its distance.
        """
        middle = center(self.space.rank, self.z[:, None])
        C, least = nearest(within(MMD(self.data), radius), self.space, middle, _MOST_STEPS)
        return self.point(C), least


# point, θ, y, status, n_iter, least radius
Found = tuple[Point, np.ndarray, Array, str, int, float | None]


def solve(problem: Problem, radius: float, goal: Goal) -> Saddle:
    """The saddle in the projected ball of this radius."""
    if isinstance(problem.risk, ParametricRisk):
        found = _with_theta(problem, problem.risk, radius, goal)
    else:
        found = _without_theta(problem, radius, goal)
    point, theta, y, status, n_iter, least = found
    target, empty = problem.target(goal, point.risk), point.distance > radius + _ROUNDING
    upper, constant = problem.upper(theta, y, radius)
    lower = -math.inf if empty else problem.lower(point, _PROOF_GAP * target)
    if Run.current().interrupted:
        status = "interrupted"
    elif empty and status in ("solved", "solved_inaccurate", "max_iter"):
        status = "undecided"
    elif status == "solved" and not upper - lower <= target:
        status = "solved_inaccurate"
    return Saddle(point, theta, y, upper, constant, lower, status, n_iter, least, empty)


def _without_theta(problem: Problem, radius: float, goal: Goal) -> Found:
    _, vectors = lowest_eigenpairs(-problem.matrix(problem.theta), 1)
    top, y = problem.point(vectors @ vectors.T), 0.0 * problem.z
    if top.distance <= radius:  # the ball does not bind
        return top, top.theta, y, "solved", 0, None
    ball = within(MMD(problem.data), radius)
    found = minimize(problem.loss, problem.space, [ball], tol=problem.target(goal, 1.0))
    point = problem.point(found.parameter)
    if 0 in found.ball_vectors:
        y = like(found.ball_vectors[0], y)
    elif found.multipliers:
        y = found.multipliers[0] / radius * (point.a - problem.z)
    return point, point.theta, y, found.status, found.n_iter, found.least_radius


def _with_theta(problem: Problem, risk: ParametricRisk, radius: float, goal: Goal) -> Found:
    near, least = problem.nearest(radius)
    if least > radius:
        return near, near.theta, 0.0 * problem.z, "infeasible", 0, least
    barrier = JointBarrier(problem.space, risk, problem.z, problem.units[1])
    found = barrier.solve(radius, _BARRIER_GAP * problem.target(goal, near.risk), problem.theta)
    if found is None:  # the loss of the nearest density proves what it can
        status = "time_limit" if Run.current().over else "solved"
        return near, near.theta, 0.0 * problem.z, status, 0, None
    point = problem.point(found.C)
    if point.distance > radius:  # by rounding; distances of mixtures are convex
        share = (point.distance - radius) / (point.distance - near.distance)
        point = problem.mixed(point, near, min(1.001 * share, 1.0))
    return point, found.theta, found.y, "solved", found.n_iter, None


def solve_penalized(problem: Problem, gamma: float, goal: Goal) -> Saddle:
    """max ⟨M, C⟩ − γ‖A(C) − z‖² for a fixed loss, with its dual min_y λ_max(M − A*(y)) + ⟨y, z⟩ +
    ‖y‖²/(4γ).
    """
    u, tol = 2.0 * gamma / problem.units[1], problem.target(goal, 0.0)
    total = problem.loss + 0.5 * u * Bound(BoundSquaredMMD(problem.z))
    found = minimize(total, problem.space, tol=0.5 * tol)
    point = problem.point(found.parameter)
    y = u * (point.a - problem.z)
    _, constant = problem.upper(point.theta, y, 0.0)
    upper = constant + inner(y, problem.z) + inner(y, y) / (2.0 * u)
    lower, status = point.risk - 0.5 * u * point.distance**2, found.status
    if status == "solved" and upper - lower > tol * max(1.0, u):
        status = "solved_inaccurate"
    return Saddle(point, point.theta, y, upper, constant, lower, status, found.n_iter)
