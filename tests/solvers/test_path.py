from __future__ import annotations

import sys

import numpy as np
import pytest
from tables import points

import ksos
from ksos.embedding import MeanEmbedding
from ksos.functionals import SquaredMMD, Trace
from ksos.kernels import Gaussian


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


def test_warm_starts_save_steps_and_sums_over_the_data_are_taken_once(monkeypatch: pytest.MonkeyPatch) -> None:
    functional, space = problem()
    strengths = list(np.geomspace(1e-1, 1e-4, 8))
    cold = sum(ksos.minimize(functional + strength * Trace(), space).n_iter for strength in strengths)
    sums = 0
    original = ksos.embedding.evaluate

    def counted(*args: object) -> object:
        nonlocal sums
        sums += isinstance(args[0], MeanEmbedding)
        return original(*args)

    monkeypatch.setattr(ksos.embedding, "evaluate", counted)
    path = ksos.regularization_path(functional, Trace(), strengths, space)
    assert sums == 1
    assert sum(solution.n_iter for solution in path) < cold


def test_strengths_are_checked() -> None:
    functional, space = problem(5)
    with pytest.raises(ValueError, match="strength"):
        ksos.regularization_path(functional, Trace(), [1e-3, -1.0], space)
    assert ksos.regularization_path(functional, Trace(), [], space) == []


@pytest.mark.parametrize(("solver", "expected"), [("auto", "low_rank: the functional is quadratic"), ("fista", "fista: asked for")])
def test_a_solution_says_why_its_solver_ran(solver: str, expected: str) -> None:
    functional, space = problem(8)
    solution = ksos.minimize(functional + 1e-3 * Trace(), space, solver=solver)
    assert solution.solver_reason.startswith(expected)
    assert solution.summary()["solver_reason"] == solution.solver_reason


def test_a_hand_over_is_told(monkeypatch: pytest.MonkeyPatch) -> None:
    functional, space = problem(12)
    solving = sys.modules["ksos.solvers.minimize"]  # the function of this name hides the module
    plan = solving._plan
    monkeypatch.setattr(solving, "_plan", lambda objective: [plan(objective)[0]._replace(steps=1), *plan(objective)[1:]])
    solution = ksos.minimize(functional + 1e-3 * Trace(), space, tol=1e-12)
    assert solution.solver == "interior_point"
    assert "low_rank: " in solution.solver_reason and "; then interior_point: " in solution.solver_reason
