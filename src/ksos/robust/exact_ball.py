"""From the projected ball to the exact one.

Solve, compare the exact and the projected MMD of the answer, add the direction in which they differ
to what the space sees, solve again. Then mix the answer with a density deeper in the ball until its
exact MMD is at most the radius. Worst cases, modes and learning all end here.
"""

from __future__ import annotations

import math
import warnings
from dataclasses import dataclass, replace

import numpy as np

from ksos.density import SoSDensity, square_of
from ksos.ground import Run, one_blas_thread, to_numpy
from ksos.robust.problem import Goal, Point, Problem, Saddle, solve, solve_penalized
from ksos.solvers import factor
from ksos.space import (
    LabeledDensity,
    LabeledEmbedding,
    MeanEmbedding,
    SoSSpace,
    Witness,
    blocks_of,
    mmd,
)

__all__ = ["Answer", "Exact", "in_the_exact_ball", "nearest_exactly", "settled"]

_MOST_DIRECTIONS = 60  # far more than ever needed: a handful for the digits of 1e-6 in 5 features


@dataclass(frozen=True)
class Exact:
    """A density with its exact distance to the data.

    ``mass`` is ∫ψᵀCψ dρ: what rounding makes of one, and what the density has been divided by.
    ``doubt`` is a warning about the digits of ``mmd``, for the caller to repeat once.
    """

    point: Point
    density: SoSDensity | LabeledDensity
    mmd: float
    mass: float
    doubt: str = ""

    @property
    def apart(self) -> float:
        """By how much the projected MMD is too short."""
        return self.mmd - self.point.distance


@dataclass(frozen=True)
class Answer:
    """The saddle with its density, and the problem with all the directions that it took to see it.

    ``feasible``: whether the exact MMD of the density is at most the radius.
    """

    problem: Problem
    saddle: Saddle
    exact: Exact
    feasible: bool = False
    note: str = ""


def in_the_exact_ball(
    problem: Problem,
    radius: float | None,
    goal: Goal,
    gamma: float | None = None,
) -> Answer:
    """The answer in the exact ball of this radius. Without a radius, that of the problem with the
    multiplier γ of MMD².
    """
    answer, note = settled(problem, radius, goal, gamma), ""
    if answer.saddle.empty:
        return answer
    if answer.exact.apart > problem.agreement and answer.saddle.status != "interrupted":
        note = (
            f"exact and projected MMD differ by {answer.exact.apart:.1e}: the gap of the worst case"
            " counts the difference"
        )
        note += "" if problem.grows else "; give the space more landmarks, or leave the space out"
    found = answer.exact if radius is None else _mixed_in(answer, radius)
    feasible = found is not None
    return replace(answer, exact=found or answer.exact, feasible=feasible, note=note)


def settled(
    problem: Problem,
    radius: float | None,
    goal: Goal,
    gamma: float | None = None,
) -> Answer:
    """Solve, compare, add a direction, until exact and projected MMD agree."""
    while True:
        if radius is None:
            assert gamma is not None
            saddle = solve_penalized(problem, gamma, goal)
        else:
            saddle = solve(problem, radius, goal)
        exact = exactly(problem, saddle.point)
        answer = Answer(problem, saddle, exact)
        if saddle.empty or saddle.status not in ("solved", "solved_inaccurate"):
            return answer
        sharper = _sharper(problem, exact) if exact.apart > problem.agreement else None
        if sharper is None:
            return answer
        if Run.current().over:
            return replace(answer, saddle=replace(saddle, status="time_limit"))
        problem = replace(problem, space=sharper)


def exactly(problem: Problem, point: Point) -> Exact:
    """The density of a point and its exact distance."""
    G, space, mass = factor(point.C), problem.space, 1.0
    density = space.density(G)
    if isinstance(density, SoSDensity):
        size = float(np.linalg.norm(to_numpy(square_of(density).unit_factor)))
        mass = (float(np.linalg.norm(to_numpy(space.T @ G))) / size) ** 2
    with warnings.catch_warnings(record=True) as said:
        warnings.simplefilter("always", RuntimeWarning)
        distance = density.mmd(problem.data)
    doubts = dict.fromkeys(str(warning.message).split("; pass ")[0] for warning in said)
    return Exact(point, density, distance, mass, "; ".join(doubts))


@one_blas_thread(0)
def nearest_exactly(problem: Problem, radius: float) -> tuple[float, Problem]:
    """The exact distance to the data of about the nearest density, and the problem with the
    directions that it takes to see it. Distances far below ``radius`` are not told apart.
    """
    for _ in range(8):  # a few directions are enough for 2%
        near, _ = problem.nearest(radius)
        exact = exactly(problem, near)
        seen = exact.mmd <= 1.02 * near.distance + problem.agreement
        sharper = None if seen or Run.current().over else _sharper(problem, exact)
        if sharper is None:
            break
        problem = replace(problem, space=sharper)
    return exact.mmd, problem


def _sharper(problem: Problem, exact: Exact) -> SoSSpace | None:
    """The space that also sees the direction in which the density is away from the data. With
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
    assert isinstance(data, LabeledEmbedding)
    plain, blocks = space.with_labels(None), blocks_of(space.rank // space.n_blocks, space.n_blocks)
    for label, part in enumerate(exact.density.densities):
        if part is not None:
            block, own = C[blocks[label], blocks[label]], exact.density.relative_to(label, data)
            plain = _seeing(plain, block / np.trace(block), part, own, mmd(part, own)) or plain
    grown = len(plain.directions) > len(space.directions)
    return plain.with_labels(space.labels) if grown else None


def _seeing(
    space: SoSSpace, C: np.ndarray, p: SoSDensity, data: MeanEmbedding, exact: float
) -> SoSSpace | None:
    """The space that sees p, the density of C, as far from the data as it is."""
    if len(space.directions) >= _MOST_DIRECTIONS:
        return None
    along = to_numpy(space.compressed_map.apply(C)) - to_numpy(space.coordinates(data))
    return space.with_direction(Witness(p, data), along, exact, data)


def _mixed_in(answer: Answer, radius: float) -> Exact | None:
    """The density itself if its exact MMD is at most the radius, else its mixture with the one
    nearest to the data, or None if that is not in the ball either.
    """
    problem, found = answer.problem, answer.exact
    if found.mmd <= radius:
        return found
    if (deeper := exactly(problem, problem.nearest(radius)[0])).mmd >= radius:
        return None

    def at(share: float) -> Exact:
        return exactly(problem, problem.mixed(found.point, deeper.point, share))

    # squared distances of mixtures are quadratic in the share: three of them give the one needed
    start, middle, end = (one.mmd**2 - radius**2 for one in (found, at(0.5), deeper))
    slope, curvature = 4.0 * middle - 3.0 * start - end, 2.0 * (start + end) - 4.0 * middle
    root = math.sqrt(max(slope * slope - 4.0 * curvature * start, 0.0)) - slope
    share = 2.0 * start / root
    more = max(1e-9 * share, 1e-14)  # where rounding makes the root a little too small
    while share < 1.0:
        if (mixed := at(share)).mmd <= radius:
            return mixed
        share, more = share + more, 10.0 * more
    return deeper
