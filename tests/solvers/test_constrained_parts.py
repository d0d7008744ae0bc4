"""The parts of the constrained solver: the augmented Lagrangian's derivatives, proofs of emptiness,
least radii, the central path.
"""

from __future__ import annotations

import itertools

import numpy as np
import pytest
from hypothesis import given, strategies as st
from tables import points

import ksos
from ksos.functionals import (
    MMD,
    Constraint,
    Expectation,
    Frobenius,
    Functional,
    Objective,
    SquaredL2,
    SquaredMMD,
    Trace,
    within,
)
from ksos.kernels import Gaussian
from ksos.observables import BoxIndicator, coordinate
from ksos.solvers import (
    ConicProgram,
    ConstrainedProblem,
    FactorHessian,
    LowRank,
    Multipliers,
    center,
    central_path,
    factor,
    nearest,
    project,
    restored,
)

X = points(12, 2, 1)
SPACE = ksos.SoSSpace(Gaussian(1.0), points(8, 2))
ALL: list[Constraint] = [
    within(MMD(X), 0.3),
    Expectation(coordinate(0)) == 0.1,
    Expectation(BoxIndicator([0.0, 0.0], [np.inf, np.inf])) <= 0.3,
    Expectation(coordinate(1) ** 2) >= 0.7,
]
BALL = next(i for i, constraint in enumerate(ALL) if isinstance(constraint.functional, MMD))


def problem_of(functional: Functional, constraints: list[Constraint]) -> ConstrainedProblem:
    return ConstrainedProblem(Objective.of(functional, SPACE, stored=True), constraints)


def random_point(seed: int) -> np.ndarray:
    M = np.random.default_rng(seed).normal(size=(SPACE.rank, SPACE.rank))
    return project(0.4 * (M + M.T))


@pytest.mark.parametrize("seed", range(3))
@pytest.mark.parametrize(
    "functional",
    [-Expectation(coordinate(0) ** 2), MMD(X[:3]) + 1e-2 * Frobenius()],
    ids=["linear", "curved"],
)
def test_the_augmented_lagrangian_has_right_derivatives(functional: Functional, seed: int) -> None:
    constraints = [*ALL, SquaredMMD(X[:4]) + 0.05 * Trace() <= 0.01]
    rng = np.random.default_rng(seed)
    multipliers = np.array([0.5, -0.3, 0.2, 0.1, 0.4])
    objective = problem_of(functional, constraints).augmented(
        multipliers, np.array([3.0, 2.0, 40.0, 1.0, 5.0])
    )
    C = objective.point(random_point(seed))
    D = objective.point(random_point(seed + 10)) - C
    G, h = objective.gradient(C), 1e-5
    slope = (objective.value(C + h * D) - objective.value(C + (-h) * D)) / (2 * h)
    assert slope == pytest.approx(float(np.vdot(G, D.C)), rel=1e-6)
    product = objective.term.hessian(C.a, C.C, D.a, D.C)
    assert product is not None
    change = (objective.gradient(C + h * D) - objective.gradient(C + (-h) * D)) / (2 * h)
    np.testing.assert_allclose(
        objective.pull_back(product), change, atol=1e-5 * np.abs(change).max()
    )
    F = rng.normal(size=(SPACE.rank, 2))
    F /= np.linalg.norm(F)
    E = rng.normal(size=F.shape)
    E -= np.vdot(E, F) * F
    state = LowRank().at(objective, F, 1e-3)
    hessian = FactorHessian(objective, state, float(np.vdot(2.0 * state.point.G @ F, F)))

    def along(t: float) -> float:
        moved = (F + t * E) / np.linalg.norm(F + t * E)
        return objective.value(objective.point(moved @ moved.T))

    step = 1e-3 / np.linalg.norm(E)
    numerical = (along(step) - 2.0 * along(0.0) + along(-step)) / step**2
    assert float(np.vdot(E, hessian.apply(E))) == pytest.approx(numerical, rel=1e-3)


@given(
    st.integers(0, 10**6),
    st.lists(st.floats(0.0, 5.0), min_size=4, max_size=4),
    st.floats(-3.0, 3.0),
)
def test_nothing_is_proven_empty_that_is_not(seed: int, weights: list[float], free: float) -> None:
    problem = problem_of(SquaredMMD(X), ALL)  # which is feasible
    w = np.array(weights)
    w[1] = free
    point = problem.point(random_point(seed))
    assert problem.certified_violation(Multipliers(w), point) <= 1e-12
    v = np.random.default_rng(seed).normal(size=SPACE.embedding_rank)
    w[BALL] = np.linalg.norm(v)
    assert not problem.proven_empty(Multipliers(w, {BALL: v}), point)


@given(
    st.integers(0, 10**6),
    st.lists(st.floats(0.0, 5.0), min_size=4, max_size=4),
    st.floats(-3.0, 3.0),
)
def test_any_multipliers_bound_the_optimum_from_below(
    seed: int, weights: list[float], free: float
) -> None:
    problem = problem_of(SquaredMMD(X), ALL)
    w = np.array(weights)
    w[1] = free
    optimum = ksos.minimize(SquaredMMD(X), SPACE, ALL, tol=1e-9) if not _OPTIMA else _OPTIMA[0]
    _OPTIMA[:] = [optimum]
    point = problem.point(random_point(seed))
    given_bound = problem.lower_bound(Multipliers(w), point)
    assert given_bound <= optimum.objective + 1e-9
    best, bound = problem.best_multipliers([Multipliers(w)], point, factor(point.C))
    assert best.weights[0] >= 0.0
    assert given_bound <= bound == problem.lower_bound(best, point) <= optimum.objective + 1e-9
    v = np.random.default_rng(seed).normal(
        size=SPACE.embedding_rank
    )  # any vector of a ball is as valid
    w[BALL] = np.linalg.norm(v)
    assert problem.lower_bound(Multipliers(w, {BALL: v}), point) <= optimum.objective + 1e-9


_OPTIMA: list[ksos.Solution] = []


@pytest.mark.parametrize("steps", [1, 2, 4, 8, 100])
def test_a_least_radius_is_a_bound_however_few_steps_were_taken(steps: int) -> None:
    least = np.sqrt(ksos.minimize(SquaredMMD(X), SPACE, tol=1e-14).objective)
    for radius in (0.2 * least, 0.9 * least, 1.5 * least):
        C, lower = nearest(within(MMD(X), radius), SPACE, center(SPACE.rank), steps)
        distance = np.linalg.norm(SPACE.embed(C) - SPACE.coordinates(X))
        assert lower <= least + 1e-12 <= distance + 2e-12


@pytest.mark.parametrize(
    "functional",
    [
        -Expectation(coordinate(0) ** 2 + coordinate(1)),
        SquaredMMD(X) + 1e-3 * Trace(),
        SquaredMMD(X) + 0.2 * Frobenius() + 0.3 * Frobenius(relative=True),
    ],
    ids=["linear", "quadratic", "frobenius"],
)
def test_the_central_path_is_short_and_ends_at_the_optimum(functional: Functional) -> None:
    problem = problem_of(functional, ALL)
    program = ConicProgram.of(problem)
    assert program is not None
    best = ksos.minimize(functional, SPACE, ALL, tol=1e-10)
    path = list(itertools.takewhile(lambda iterate: iterate[2] > 1e-12, central_path(program)))
    C, multipliers, mu = path[-1]
    assert mu <= 1e-10
    assert len(path) <= 20
    point = problem.point(C)
    assert problem.violation(point) <= 1e-7
    assert problem.value(point) == pytest.approx(best.objective, abs=1e-7)
    np.testing.assert_allclose(multipliers.weights, best.multipliers, rtol=1e-3, atol=1e-4)


def test_what_has_no_conic_form() -> None:
    assert ConicProgram.of(problem_of(SquaredMMD(X) + SquaredL2(X), ALL)) is None
    assert ConicProgram.of(problem_of(SquaredMMD(X), [Frobenius() <= 100.0])) is None
    assert ConicProgram.of(problem_of(SquaredMMD(X), [SquaredMMD(X) <= 0.1])) is None
    assert ConicProgram.of(problem_of(3.0 * MMD(X), ALL)) is not None


def test_restoration_moves_little_and_meets_the_constraints() -> None:
    problem = problem_of(SquaredMMD(X), ALL)
    G = ksos.minimize(SquaredMMD(X), SPACE, ALL).parameter_factor
    rng = np.random.default_rng(0)
    for size in (1e-8, 1e-4, 1e-2):
        moved = G + size * rng.normal(size=G.shape)
        back = restored(problem, moved)
        assert back is not None
        assert np.linalg.norm(back) == pytest.approx(1.0, abs=1e-12)
        assert problem.violation(problem.point(back @ back.T)) <= 1e-12
        assert np.linalg.norm(back - moved) <= 50.0 * size
    impossible = problem_of(SquaredMMD(X), [within(MMD(X), 1e-3)])
    assert restored(impossible, G) is None
