"""L-BFGS on the factor: its secants, its steps, and that it needs no matrix where the functional
needs none.
"""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from tables import points

import ksos
from ksos.functionals import BoundTerm, NegativeLogLikelihood, Objective, SquaredMMD, Trace
from ksos.kernels import Gaussian
from ksos.solvers import LBFGS, Secants, descend, lowest


def quadratic(H: np.ndarray):
    return lambda Y: (0.5 * float(np.vdot(Y, H @ Y)), H @ Y)


def test_secants_recover_the_inverse_of_a_quadratic() -> None:
    rng = np.random.default_rng(0)
    M = rng.normal(size=(5, 5))
    H, secants = M @ M.T + np.eye(5), Secants()
    basis = np.linalg.eigh(H)[1]
    for step in basis.T:  # conjugate steps: the two loops are then exact
        secants.add(step, H @ step)
    gradient = rng.normal(size=5)
    np.testing.assert_allclose(
        secants.direction(gradient), -np.linalg.solve(H, gradient), rtol=1e-9
    )
    secants.add(basis[:, 0], -basis[:, 0])
    assert len(secants.pairs) == 5, "a pair of negative curvature says nothing"


def test_descent_minimises_and_stops_where_nothing_is_to_gain() -> None:
    H, secants = np.diag([1.0, 10.0, 1000.0]), Secants()
    function, Y = quadratic(H), np.ones((3, 1))
    value, gradient = function(Y)
    for _ in range(40):
        new = descend(function, Y, value, gradient, secants)
        if new is None:
            break
        assert new[1] < value
        Y, value, gradient = new
    assert value < 1e-12
    assert (
        descend(quadratic(np.zeros((3, 3))), np.ones((3, 1)), 0.0, np.zeros((3, 1)), Secants())
        is None
    )


@pytest.mark.parametrize("weight", [1e-4, 1e-8, 1e-12])
def test_samples_of_little_weight_far_from_all_others_keep_their_columns(weight: float) -> None:
    """What they need is a column of as little mass; without it their likelihood is zero, and the
    gap without bound.
    """
    far = np.array(
        [[10.0, 0.0], [0.0, 10.0], [-10.0, 0.0], [0.0, -10.0], [12.0, 12.0], [-12.0, -12.0]]
    )
    X, a = np.r_[points(60, 2), far], np.r_[np.ones(60), np.full(6, 60 * weight)]
    functional = NegativeLogLikelihood(X, a / a.sum()) + 0.1 * Trace(relative=True)
    solution = ksos.minimize(functional, ksos.SoSSpace(Gaussian(1.5), X), solver="lbfgs", tol=1e-5)
    assert solution.status == "solved" and solution.n_iter <= 300


@pytest.mark.parametrize("regularization", [0.0, 1e-3, 1.0])
def test_it_agrees_with_newton_on_few_columns(regularization: float) -> None:
    X = points(60, 2)
    space = ksos.SoSSpace(Gaussian(0.8), X)
    functional = NegativeLogLikelihood(X) + regularization * Trace(relative=True)
    quasi, newton = (
        ksos.minimize(functional, space, solver=solver, tol=1e-7)
        for solver in ("lbfgs", "low_rank")
    )
    assert quasi.status == newton.status == "solved"
    assert quasi.objective == pytest.approx(newton.objective, abs=2e-7)
    assert quasi.rank <= 12, "columns that have died are gone"


def test_it_starts_where_it_is_told() -> None:
    X = points(40, 2)
    space = ksos.SoSSpace(Gaussian(0.8), X)
    functional = NegativeLogLikelihood(X) + 0.1 * Trace(relative=True)
    best = ksos.minimize(functional, space, tol=1e-7)
    again = ksos.minimize(functional, space, solver="lbfgs", tol=1e-6, start=best.parameter)
    assert again.n_iter == 0 and again.status == "solved"
    near = 0.999 * best.parameter + 0.001 * np.eye(space.rank) / space.rank
    assert ksos.minimize(functional, space, solver="lbfgs", tol=1e-6, start=near).status == "solved"


class Counted(BoundTerm):
    """A term that counts how often its matrices are asked for."""

    def __init__(self, term: BoundTerm) -> None:
        self.term, self.matrices = term, 0

    def value(self, a: Any, C: np.ndarray) -> float:
        self.matrices += 1
        return self.term.value(a, C)

    def gradient(self, a: Any, C: np.ndarray) -> Any:
        self.matrices += 1
        return self.term.gradient(a, C)

    def factor_gradient(self, a: Any, F: np.ndarray) -> Any:
        return self.term.factor_gradient(a, F)

    def linear_parts(self) -> Any:
        return self.term.linear_parts()


def test_no_matrix_is_formed_between_certificates() -> None:
    X = points(50, 2)
    space = ksos.SoSSpace(Gaussian(0.8), X)
    term = Counted((NegativeLogLikelihood(X) + 0.1 * Trace(relative=True)).bind(space))
    objective, solver = Objective(term, space), LBFGS()
    state = solver.init(objective, objective.point(np.eye(space.rank) / space.rank))
    before = term.matrices
    for _ in range(solver.interval(objective) - 1):
        state = solver.step(objective, state)
    assert before > 0 and term.matrices == before
    solver.step(objective, state)
    assert term.matrices > before


def test_embeddings_work_too_by_way_of_the_matrix() -> None:
    X = points(30, 2)
    space = ksos.SoSSpace(Gaussian(1.0), X)
    functional = SquaredMMD(X) + 1e-3 * Trace(relative=True)
    objective, F = (
        Objective.of(functional, space),
        np.random.default_rng(0).normal(size=(space.rank, 2)) / space.rank,
    )
    assert not objective.term.matrix_free
    value, product = objective.factor_gradient(F)
    point = objective.point(F @ F.T)
    assert value == pytest.approx(objective.value(point), rel=1e-10)
    np.testing.assert_allclose(product, objective.gradient(point) @ F, rtol=1e-7, atol=1e-10)
    quasi, auto = (
        ksos.minimize(functional, space, solver="lbfgs", tol=1e-8),
        ksos.minimize(functional, space, tol=1e-8),
    )
    assert quasi.status == "solved" and quasi.objective == pytest.approx(auto.objective, abs=2e-8)


def test_the_lowest_eigenvalue_is_a_bound() -> None:
    rng = np.random.default_rng(0)
    Q = np.linalg.qr(rng.normal(size=(40, 40)))[0]
    G = (Q * np.r_[-3.0, -3.0 + 1e-13, np.linspace(-2, 5, 38)]) @ Q.T
    values, V = lowest(0.5 * (G + G.T), 3)
    assert -3.0 - 1e-12 <= values[0] <= -3.0 + 1e-15
    np.testing.assert_allclose(G @ V[:, 2], -2.0 * V[:, 2], atol=1e-10)


def test_auto_takes_it_for_the_likelihood() -> None:
    X = points(30, 2)
    solution = ksos.minimize(NegativeLogLikelihood(X), ksos.SoSSpace(Gaussian(1.0), X))
    assert solution.solver == "lbfgs" and "few columns" in solution.solver_reason
