"""From the projected ball to the exact one.

Solve, compare the exact and the projected MMD of the answer, add the direction in which they differ
to what the space sees, solve again; then mix the answer with a density deeper in the ball until its
exact MMD is at most the radius. Worst cases, modes and learning all end here.
"""

from __future__ import annotations

import math
import warnings
from collections.abc import Iterator
from dataclasses import dataclass, replace

import numpy as np

from ksos.density import SoSDensity, square_of
from ksos.ground.arrays import to_numpy
from ksos.ground.deadline import Deadline
from ksos.ground.threads import one_blas_thread
from ksos.robust.problem import Goal, Point, Problem, Saddle
from ksos.robust.search import solve
from ksos.solvers.spectraplex import factor
from ksos.space.embedding import MeanEmbedding, Witness, mmd
from ksos.space.embedding_map import blocks_of
from ksos.space.labelled import LabelledDensity, LabelledEmbedding
from ksos.space.space import SoSSpace

__all__ = ["Answer", "Exact", "in_the_exact_ball", "nearest_exactly", "settled"]

_MOST_DIRECTIONS = 60
# the relative gap to which problems are solved while directions are added, and points deeper in the
# ball
_ROUGH = 1e-4
_DEEPER, _MOST_DEEPENINGS = 4.0, 12
_LITTLE = 1e-4
_MOST_LOOKS, _CLOSE_ENOUGH = 8, 1.02


@dataclass(frozen=True)
class Exact:
    """A density with its exact distance to the data."""

    point: Point
    density: SoSDensity | LabelledDensity
    mmd: float
    mass: float
    """∫ψᵀCψ dρ: what rounding makes of one, and what the density has been divided by."""
    doubt: str = ""
    """What was said of the digits of :attr:`mmd`, for the caller to repeat once."""

    @property
    def apart(self) -> float:
        """By how much the projected MMD is too short."""
        return self.mmd - self.point.distance


@dataclass(frozen=True)
class Answer:
    """The saddle with its density, and the problem with all the directions that it took to see it."""

    problem: Problem
    saddle: Saddle
    exact: Exact
    feasible: bool
    """Whether the exact MMD of the density is at most the radius."""
    note: str = ""


def in_the_exact_ball(
    problem: Problem,
    radius: float | None,
    goal: Goal,
    deadline: Deadline,
    start: Saddle | None = None,
    gamma: float | None = None,
) -> Answer:
    """The answer in the exact ball of this radius; without a radius, that of the problem with the
    multiplier γ of MMD².
    """
    answer = settled(problem, radius, goal, deadline, start, gamma)
    problem, saddle, note = answer.problem, answer.saddle, ""
    if saddle.empty:
        return answer
    if answer.exact.apart > problem.agreement and saddle.status != "interrupted":
        note = (
            f"exact and projected MMD differ by {answer.exact.apart:.1e}: the gap of the worst case"
            " counts the difference"
        )
        note += "" if problem.grows else "; give the space more landmarks, or leave the space out"
    found = answer.exact if radius is None else _mixed_in(answer, radius, deadline)
    return (
        replace(answer, note=note)
        if found is None
        else replace(answer, exact=found, feasible=True, note=note)
    )


@np.errstate(under="ignore")
@one_blas_thread(0)
def settled(
    problem: Problem,
    radius: float | None,
    goal: Goal,
    deadline: Deadline,
    start: Saddle | None = None,
    gamma: float | None = None,
) -> Answer:
    """Solve, compare, add a direction, until exact and projected MMD agree; few digits until then,
    unless all of them cost the same.
    """
    rough = replace(goal, rtol=max(goal.rtol, _ROUGH))
    digits = (
        goal if start is not None or problem.has_interior(start) or not problem.grows else rough
    )
    if start is not None and start.space is not problem.space:
        problem = replace(problem, space=start.space)
    while True:
        if gamma is not None:
            saddle = problem.solve_penalised(gamma, digits, deadline, start)
        else:
            assert radius is not None
            saddle = solve(problem, radius, digits, deadline, start)
        exact = exactly(problem, saddle.point)
        if saddle.empty or saddle.status not in ("solved", "solved_inaccurate"):
            return Answer(problem, saddle, exact, False)
        sharper = _sharper(problem, exact) if exact.apart > problem.agreement else None
        if sharper is None and digits == goal:
            return Answer(problem, saddle, exact, False)
        if deadline.passed:
            return Answer(problem, replace(saddle, status="time_limit"), exact, False)
        start, problem = saddle, problem if sharper is None else replace(problem, space=sharper)
        digits = goal if sharper is None or problem.has_interior(start) else rough


def exactly(problem: Problem, point: Point) -> Exact:
    """The density of a point and its exact distance."""
    G, space = factor(point.C), problem.space
    density = space.density(G)
    mass = 1.0
    if isinstance(density, SoSDensity):
        mass = (
            float(np.linalg.norm(to_numpy(space.T @ G)))
            / float(np.linalg.norm(to_numpy(square_of(density).unit_factor)))
        ) ** 2
    with warnings.catch_warnings(record=True) as said:
        warnings.simplefilter("always", RuntimeWarning)
        distance = density.mmd(problem.data)
    return Exact(
        point,
        density,
        distance,
        mass,
        "; ".join(dict.fromkeys(str(warning.message).split("; pass ")[0] for warning in said)),
    )


@one_blas_thread(0)
def nearest_exactly(problem: Problem, deadline: Deadline) -> tuple[float, Problem]:
    """The exact distance to the data of about the nearest density, and the problem with the
    directions that it takes to see it.
    """
    for _ in range(_MOST_LOOKS):
        near = problem.nearest(deadline)
        problem = replace(problem, near=near)
        exact = exactly(problem, problem.point(near.C))
        seen = exact.mmd <= _CLOSE_ENOUGH * near.distance + problem.agreement
        sharper = None if seen or deadline.passed else _sharper(problem, exact)
        if sharper is None:
            break
        problem = replace(problem, space=sharper)
    return exact.mmd, problem


def _sharper(problem: Problem, exact: Exact) -> SoSSpace | None:
    """The space that also sees the direction in which the density is away from the data; with
    labels, one direction for each.

    None for a space of the user's, if enough of them have been taken, or if only rounding is left
    to see.
    """
    space, C, data = problem.space, to_numpy(exact.point.C), problem.data
    if not problem.grows:
        return None
    if isinstance(exact.density, SoSDensity):
        assert isinstance(data, MeanEmbedding)
        return _seeing(space, C, exact.density, data, exact.mmd)
    assert isinstance(data, LabelledEmbedding)
    plain, blocks = space.with_labels(None), blocks_of(space.rank // space.n_blocks, space.n_blocks)
    for label, part in enumerate(exact.density.densities):
        if part is not None:
            block, own = C[blocks[label], blocks[label]], exact.density.relative_to(label, data)
            plain = _seeing(plain, block / np.trace(block), part, own, mmd(part, own)) or plain
    return (
        plain.with_labels(space.labels) if len(plain.directions) > len(space.directions) else None
    )


def _seeing(
    space: SoSSpace, C: np.ndarray, p: SoSDensity, data: MeanEmbedding, exact: float
) -> SoSSpace | None:
    """The space that sees p, the density of C, as far from the data as it is."""
    if len(space.directions) >= _MOST_DIRECTIONS:
        return None
    along = to_numpy(space.compressed_map.apply(C)) - to_numpy(space.coordinates(data))
    return space.with_direction(Witness(p, data), along, exact, data)


def _mixed_in(answer: Answer, radius: float, deadline: Deadline) -> Exact | None:
    """The density itself if its exact MMD is at most the radius, else its mixture with one deeper
    in the ball; None if none is in it.

    Squared distances of mixtures are quadratic in the weight: three of them give the weight that is
    needed.
    """
    problem, found, term = answer.problem, answer.exact, answer.problem.term()
    if found.mmd <= radius:
        return found
    for point in _deeper(answer, radius, deadline):
        deeper = exactly(problem, point)
        if deeper.mmd < radius:
            break
    else:
        return None
    middle = exactly(problem, problem.mixed(found.point, deeper.point, 0.5, term))
    t = _first_root(found.mmd**2, middle.mmd**2, deeper.mmd**2, radius**2)
    more = max(1e-9 * t, 1e-14)
    while t < 1.0:
        mixed = exactly(problem, problem.mixed(found.point, deeper.point, t, term))
        if mixed.mmd <= radius:
            return mixed
        t, more = t + more, 10.0 * more  # rounding: a little more
    return deeper


def _deeper(answer: Answer, radius: float, deadline: Deadline) -> Iterator[Point]:
    """Points nearer to the data that are nearly as bad: they need not be the best of their kind, so
    that few digits will do.
    """
    problem, saddle, found, term = (
        answer.problem,
        answer.saddle,
        answer.exact,
        answer.problem.term(),
    )
    excess = found.mmd - radius
    near = None if saddle.nearest is None else problem.point(saddle.nearest.C, term)
    if near is not None:  # a little of the nearest density costs next to nothing
        room = radius - near.distance
        if excess > _LITTLE * room and problem.barrier is not None and room > 3.0 * excess:
            inner = problem.barrier.solve(
                radius - 3.0 * excess, _LITTLE, saddle.theta, deadline, saddle.midway
            )
            if inner is not None:
                yield problem.point(inner.C, term)
        if not problem.fixed or deadline.passed:
            yield near
    u = max(saddle.multiplier, 1e-6 if problem.fixed else 1e-3)
    for _ in range(_MOST_DEEPENINGS):
        if deadline.passed:
            break
        u *= _DEEPER
        point, solution, _ = problem.penalised(
            u, found.point.C, _ROUGH, deadline, term, saddle.solver
        )
        if solution.keyboard_interrupt:
            raise KeyboardInterrupt("interrupted before the density was moved into the ball")
        yield point
    yield problem.point(problem.nearest(deadline, saddle.nearest).C, term)


def _first_root(start: float, middle: float, end: float, goal: float) -> float:
    """The smaller t with q(t) = goal, for the parabola q through (0, start), (½, middle), (1, end),
    where start > goal > end.
    """
    curvature, slope = 2.0 * (start + end) - 4.0 * middle, 4.0 * middle - 3.0 * start - end
    excess = start - goal
    root = -slope + math.sqrt(max(slope * slope - 4.0 * curvature * excess, 0.0))
    return min(max(2.0 * excess / root if root > 0.0 else 1.0, 0.0), 1.0)
