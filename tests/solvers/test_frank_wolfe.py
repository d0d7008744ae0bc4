"""Frank–Wolfe: its moves, its line searches, and that it goes where the others go."""

from __future__ import annotations

import numpy as np
import pytest
from tables import FUNCTIONAL_CASES, points

import ksos
from ksos.functionals import Objective, SquaredMMD, Trace
from ksos.kernels import Gaussian
from ksos.solvers import FrankWolfe, center


@pytest.fixture(scope="module")
def space() -> ksos.SoSSpace:
    return ksos.SoSSpace(Gaussian(0.7), points(12, 2))


@pytest.mark.parametrize("name", FUNCTIONAL_CASES)
def test_every_step_adds_one_rank_stays_feasible_and_descends(
    name: str, space: ksos.SoSSpace
) -> None:
    objective, stepper = Objective.of(FUNCTIONAL_CASES[name], space), FrankWolfe()
    first = np.zeros((space.rank, space.rank))
    first[0, 0] = 1.0
    state = stepper.init(objective, objective.point(first))
    value = objective.value(state.point)
    for n in range(1, 9):
        state = stepper.step(objective, state)
        C = state.point.C
        assert np.trace(C) == pytest.approx(1.0, abs=1e-12)
        eigenvalues = np.linalg.eigvalsh(C)
        assert eigenvalues[0] >= -1e-14
        assert np.count_nonzero(eigenvalues > 1e-12) <= n + 1
        if state.point.a is not None:
            np.testing.assert_allclose(state.point.a, space.embed(C), atol=1e-12)
        assert objective.value(state.point) <= value + 1e-14
        value = objective.value(state.point)


def test_the_step_is_the_best_on_its_segment(space: ksos.SoSSpace) -> None:
    objective, stepper = (
        Objective.of(SquaredMMD(points(12, 2, 1)) + 1e-3 * Trace(), space),
        FrankWolfe(),
    )
    state = stepper.init(objective, objective.point(center(space.rank)))
    moved = stepper.step(objective, state)
    toward = moved.point - state.point
    assert np.linalg.norm(toward.C) > 0.0
    best = objective.value(moved.point)
    for t in (-0.2, -0.01, 0.01, 0.05):  # around it, along the same line
        assert objective.value(moved.point + t * toward) > best


def test_a_linear_functional_takes_one_step_and_the_optimum_none(space: ksos.SoSSpace) -> None:
    solution = ksos.minimize(Trace(), space, solver="frank_wolfe", max_iter=1, tol=1e-9)
    assert (solution.status, solution.rank) == ("solved", 1)
    lowest = np.linalg.eigvalsh(space.trace_matrix)[0] * np.exp(-space.log_unit)
    assert solution.objective == pytest.approx(lowest, rel=1e-9)
    one_point = ksos.SoSSpace(Gaussian(1.0), [[0.0]])
    objective, stepper = Objective.of(SquaredMMD([[0.3]]), one_point), FrankWolfe()
    state = stepper.init(objective, objective.point(center(1)))
    assert stepper.step(objective, state) is state


@pytest.mark.parametrize("name", ["squared mmd + trace", "mmd + trace", "squared mmd + frobenius"])
def test_goes_where_the_others_go(name: str, space: ksos.SoSSpace) -> None:
    best = ksos.minimize(FUNCTIONAL_CASES[name], space, tol=1e-9)
    slow = ksos.minimize(FUNCTIONAL_CASES[name], space, solver="frank_wolfe", tol=1e-4)
    assert slow.status == "solved"
    assert -1e-9 <= slow.objective - best.objective <= slow.gap + 1e-9


def test_it_says_what_it_is_not_for() -> None:
    X = points(12, 2)
    problem, space = SquaredMMD(X) + 1e-3 * Trace(), ksos.SoSSpace(Gaussian(0.9), X)
    slow, quick = (
        ksos.minimize(problem, space, solver=solver, max_iter=5)
        for solver in ("frank_wolfe", "fista")
    )
    assert (
        slow.status == quick.status == "max_iter"
        and "solver='auto'" in slow.message
        and not quick.note
    )
