from __future__ import annotations

import itertools

import numpy as np
import pytest
from tables import points

import ksos
from ksos.functionals import Bound, BoundTerm, SquaredMMD, Trace
from ksos.ground import Run
from ksos.kernels import Gaussian
from ksos.solvers import Auto


def problem(m: int = 40) -> tuple[SquaredMMD, ksos.SoSSpace]:
    X = points(m, 2)
    return SquaredMMD(X), ksos.SoSSpace(Gaussian(0.7), X)


def test_every_point_of_the_path_is_the_optimum_of_its_own_problem() -> None:
    functional, space = problem()
    strengths = [1e-2, 0.0, 1e-4, 1e-1]
    path = ksos.regularization_path(functional, Trace(), strengths, space, tol=1e-9)
    for strength, solution in zip(strengths, path, strict=True):
        alone = ksos.minimize(functional + strength * Trace(), space, tol=1e-9)
        assert solution.status == "solved"
        assert abs(solution.objective - alone.objective) <= solution.gap + alone.gap


class Counted(SquaredMMD):
    """Counts how often its sums over the data are taken."""

    bindings = 0

    def bind(self, space: ksos.SoSSpace) -> BoundTerm:
        self.bindings += 1
        return super().bind(space)


def test_warm_starts_save_steps_and_sums_over_the_data_are_taken_once() -> None:
    functional, space = problem()
    strengths = list(np.geomspace(1e-1, 1e-4, 8))
    cold = sum(
        ksos.minimize(functional + strength * Trace(), space).n_iter for strength in strengths
    )
    counted = Counted(points(40, 2))
    path = ksos.regularization_path(counted, Trace(), strengths, space)
    assert counted.bindings == 1
    assert sum(solution.n_iter for solution in path) < cold
    bound = ksos.regularization_path(
        Bound(functional.bind(space)), Bound(Trace().bind(space)), strengths, space
    )
    assert [solution.objective for solution in bound] == [solution.objective for solution in path]


def test_tolerances_may_differ_along_the_path_and_a_factor_is_a_start() -> None:
    functional, space = problem()
    strengths = [1e-3, 1e-1, 1e-2]
    tols = [1e-9, 1e-3, 1e-6]
    path = ksos.regularization_path(functional, Trace(), strengths, space, tol=tols)
    assert all(solution.gap <= tol for solution, tol in zip(path, tols, strict=True))
    assert path[1].gap > 1e-12, "no more digits than asked for"
    relative = ksos.regularization_path(
        functional, Trace(), strengths, space, tol=1e-300, rtol=1e-3, solver="fista"
    )
    assert all(
        solution.status == "solved" and solution.gap <= 1e-3 * solution.objective
        for solution in relative
    )
    again = ksos.minimize(
        functional + 1e-3 * Trace(), space, tol=2e-9, start=path[0].parameter_factor
    )
    assert (again.status, again.n_iter) == ("solved", 0)
    with pytest.raises(
        ValueError, match="tol must be one number or one per strength; got 2 for 3 strengths"
    ):
        ksos.regularization_path(functional, Trace(), strengths, space, tol=[1e-3, 1e-4])


def test_one_deadline_for_the_whole_path() -> None:
    functional, space = problem()
    ticks = itertools.count()
    asked = {"solver": "fista", "tol": 1e-300, "time_limit": 40.0}
    with Run(clock=lambda: next(ticks)):
        path = ksos.regularization_path(functional, Trace(), [1e-2, 1e-3, 1e-4], space, **asked)
    assert [solution.status for solution in path] == ["time_limit"] * 3
    assert path[2].n_iter <= 1, (
        "nothing is left for the last one, which is solved from the one before"
    )
    assert all(solution.distribution.terms.mass() == pytest.approx(1.0) for solution in path)


def test_strengths_are_checked() -> None:
    functional, space = problem(5)
    with pytest.raises(ValueError, match="strength"):
        ksos.regularization_path(functional, Trace(), [1e-3, -1.0], space)
    assert ksos.regularization_path(functional, Trace(), [], space) == []


@pytest.mark.parametrize(
    ("solver", "expected"),
    [("auto", "low_rank: the functional is quadratic"), ("fista", "fista: asked for")],
)
def test_a_solution_says_why_its_solver_ran(solver: str, expected: str) -> None:
    functional, space = problem(8)
    solution = ksos.minimize(functional + 1e-3 * Trace(), space, solver=solver)
    assert solution.solver_reason.startswith(expected)
    assert solution.summary()["solver_reason"] == solution.solver_reason


def test_a_hand_over_is_told() -> None:
    functional, space = problem(12)
    solution = ksos.minimize(
        functional + 1e-3 * Trace(), space, tol=1e-12, solver=Auto(newton_steps=1)
    )
    assert solution.solver == "interior_point"
    assert (
        "low_rank: " in solution.solver_reason
        and "; then interior_point: " in solution.solver_reason
    )


def test_ctrl_c_ends_the_whole_path() -> None:
    def interrupt(progress: ksos.Progress) -> None:
        raise KeyboardInterrupt

    functional, space = problem(8)
    with pytest.raises(
        KeyboardInterrupt, match=r"interrupted at strength 0\.01; 0 of 2 problems came before it"
    ):
        ksos.regularization_path(functional, Trace(), [1e-3, 1e-2], space, callback=interrupt)
    (only,) = ksos.regularization_path(functional, Trace(), [1e-3], space, callback=interrupt)
    assert only.status == "interrupted" and only.keyboard_interrupt
