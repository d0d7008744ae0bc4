"""The interior point: its parts against brute force, its end-game over all bandwidths, its faults,
and its memory.
"""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from typing import Any

import array_api_compat.numpy
import numpy as np
import pytest
from hypothesis import given, strategies as st
from sklearn.datasets import make_moons
from tables import FUNCTIONAL_CASES, points

import ksos
from ksos.functionals import MMD, Frobenius, Objective, SquaredMMD, Trace
from ksos.ground import resources
from ksos.kernels import Gaussian
from ksos.solvers import (
    ConicProgram,
    InteriorPoint,
    ScaledPair,
    SchurSystem,
    center,
    longest_step,
    minimum_on_face,
    project,
)


def moons(m: int) -> np.ndarray:
    return make_moons(m, noise=0.1, random_state=0)[0]


def symmetric(rng: np.random.Generator, *shape: int) -> np.ndarray:
    M = rng.normal(size=shape)
    return M + np.swapaxes(M, -1, -2)


def positive(rng: np.random.Generator, r: int) -> np.ndarray:
    F = rng.normal(size=(r, r))
    return F @ F.T + 0.1 * np.eye(r)


# --- the parts ------------------------------------------------------------------------------------


@given(st.integers(1, 7), st.integers(0, 10**6))
def test_a_pair_starts_central_and_moves_as_its_matrices_do(r: int, seed: int) -> None:
    rng = np.random.default_rng(seed)
    M = positive(rng, r)
    values, Q = np.linalg.eigh(M)
    pair = ScaledPair.central(Q, values)
    assert np.trace(pair.C) == pytest.approx(1.0)
    np.testing.assert_allclose(pair.M, M, atol=1e-10 * values[-1])
    np.testing.assert_allclose(
        pair.C @ M, np.mean(pair.values**2) * np.eye(r), atol=1e-12 * values[-1] / values[0]
    )
    for _ in range(3):
        dC, dM = symmetric(rng, 2, r, r)
        step = min(1.0, 0.7 * longest_step(pair.values, dC), 0.7 * longest_step(pair.values, dM))
        moved = pair.moved(step, dC, dM)
        np.testing.assert_allclose(moved.C, pair.C + step * pair.R @ dC @ pair.R.T, atol=1e-9)
        np.testing.assert_allclose(
            moved.M,
            pair.M + step * pair.inverse.T @ dM @ pair.inverse,
            atol=1e-9 * np.abs(pair.M).max(),
        )
        np.testing.assert_allclose(moved.R @ moved.inverse, np.eye(r), atol=1e-8)
        assert np.mean(moved.values**2) == pytest.approx(np.vdot(moved.C, moved.M) / r, rel=1e-8)
        pair = moved


@given(st.integers(1, 7), st.integers(0, 10**6))
def test_the_longest_step_ends_on_the_boundary(r: int, seed: int) -> None:
    rng = np.random.default_rng(seed)
    values = rng.uniform(0.1, 2.0, r)
    direction = symmetric(rng, r, r)
    t = longest_step(values, direction)
    if np.isfinite(t):
        assert np.linalg.eigvalsh(np.diag(values) + t * direction)[0] == pytest.approx(
            0.0, abs=1e-9 * max(1.0, t)
        )
    assert longest_step(values, positive(rng, r)) == np.inf
    assert longest_step(values, -np.diag(values)) == pytest.approx(1.0)


@pytest.mark.parametrize("elements", [1, 500_000])
@given(q=st.integers(0, 9), r=st.integers(1, 6), seed=st.integers(0, 10**6))
def test_the_schur_system_is_that_of_the_definition(
    elements: int, q: int, r: int, seed: int
) -> None:
    rng = np.random.default_rng(seed)
    A, R, K, ridge = symmetric(rng, q, r, r), rng.normal(size=(r, r)), symmetric(rng, r, r), 0.3
    system = SchurSystem(A, R, np.append(np.full(q, ridge), 0.0), elements=elements)
    full = SchurSystem(A, R, np.diag(np.append(np.full(q, ridge), 0.0)))
    matrices, W = [*A, -np.eye(r)], R @ R.T
    H = np.array([[np.trace(X @ W @ Y @ W) for X in matrices] for Y in matrices])
    H[:q, :q] += ridge * np.eye(q)
    x = rng.normal(size=q + 1)
    assert system.apply(K) == pytest.approx([np.trace(R.T @ X @ R @ K) for X in matrices], abs=1e-9)
    np.testing.assert_allclose(
        system.adjoint(x), R.T @ sum(c * X for c, X in zip(x, matrices, strict=True)) @ R, atol=1e-9
    )
    solved = system.solve(H @ x)
    np.testing.assert_allclose(full.solve(H @ x), solved, rtol=1e-6, atol=1e-9)
    np.testing.assert_allclose(H @ solved, H @ x, atol=1e-7 * (1.0 + np.abs(H).max()))


def test_a_singular_schur_matrix_is_regularised_and_nan_is_an_error() -> None:
    rng = np.random.default_rng(0)
    A = symmetric(rng, 3, 4, 4)
    twice = np.concatenate([A, A])  # dependent rows
    system = SchurSystem(twice, np.eye(4), np.zeros(7))
    right = system.apply(symmetric(rng, 4, 4))  # in the range
    x = system.solve(right)
    np.testing.assert_allclose(system.V @ (x @ system.V), right, atol=1e-5)
    with pytest.raises(np.linalg.LinAlgError):
        SchurSystem(np.full((2, 3, 3), np.nan), np.eye(3), np.ones(3))


@given(st.integers(1, 4), st.integers(0, 10**6))
def test_the_minimum_on_a_face_is_stationary_on_it(k: int, seed: int) -> None:
    rng = np.random.default_rng(seed)
    r, q, scale = 7, 20, 0.7
    A, D, F = symmetric(rng, q, r, r), symmetric(rng, r, r), rng.normal(size=(r, k))
    F /= np.linalg.norm(F)
    b = scale * np.einsum("kij,ij->k", A, F @ F.T) + 0.01 * rng.normal(size=q)
    D *= 0.01
    found = minimum_on_face(ConicProgram(A, q, scale, b, D), F)
    if found is None:
        return
    C = found @ found.T
    assert np.trace(C) == pytest.approx(1.0)
    V = np.linalg.qr(F)[0]
    np.testing.assert_allclose(V @ (V.T @ C @ V) @ V.T, C, atol=1e-10)
    G = 2.0 * np.einsum("k,kij->ij", scale * np.einsum("kij,ij->k", A, C) - b, A) + D
    on_face = V.T @ G @ V
    np.testing.assert_allclose(on_face, on_face[0, 0] * np.eye(k), atol=1e-8)


def test_the_minimum_on_a_face_is_refused_where_it_is_not_positive() -> None:
    A = np.array([np.diag([1.0, 0.0])])
    F = np.eye(2) / np.sqrt(2.0)
    inside = minimum_on_face(ConicProgram(A, 1, 1.0, np.array([0.3]), np.zeros((2, 2))), F)
    assert inside is not None
    assert (inside @ inside.T)[0, 0] == pytest.approx(0.3)
    assert minimum_on_face(ConicProgram(A, 1, 1.0, np.array([1.4]), np.zeros((2, 2))), F) is None


@pytest.mark.parametrize("name", FUNCTIONAL_CASES)
def test_functionals_know_their_quadratic_form(name: str) -> None:
    space = ksos.SoSSpace(Gaussian(1.0), points(8, 2))
    objective = Objective.of(FUNCTIONAL_CASES[name], space)
    form = objective.term.embedding_quadratic
    if (
        "frobenius" in name
        or "likelihood" in name
        or name in ("mmd + trace", "everything", "squared l2")
    ):
        assert form is None
        return
    rng = np.random.default_rng(0)
    values = []
    for _ in range(4):
        point = objective.point(project(symmetric(rng, space.rank, space.rank)))
        in_embedding = (
            0.0 if form.b is None else form.scale * point.a @ point.a - 2.0 * form.b @ point.a
        )
        in_parameter = 0.0 if form.D is None else np.vdot(form.D, point.C)
        values.append(objective.value(point) - in_embedding - in_parameter)
    np.testing.assert_allclose(values, values[0], atol=1e-12)  # equal up to a constant


def test_the_sum_of_two_distances_is_one() -> None:
    space = ksos.SoSSpace(Gaussian(1.0), points(8, 2))
    X, Y = points(6, 2, 1), points(9, 2, 2)
    both = 0.5 * SquaredMMD(X) + 2.0 * SquaredMMD(Y) + 1e-3 * Trace()
    first = ksos.minimize(both, space, solver="interior_point", tol=1e-10)
    second = ksos.minimize(both, space, solver="fista", tol=1e-8)
    assert first.status == second.status == "solved"
    assert first.objective == pytest.approx(second.objective, abs=2e-8)


# --- the end-game ---------------------------------------------------------------------------------


@pytest.mark.parametrize("weight", [0.0, 1e-8, 1e-3, 1.0, 1e2])
@pytest.mark.parametrize("sigma", [0.05, 0.1, 0.2, 0.5, 1.0, 2.0, 4.0, 10.0, 50.0])
def test_ten_digits_at_every_bandwidth(sigma: float, weight: float) -> None:
    X = moons(25)
    solution = ksos.minimize(
        SquaredMMD(X) + weight * Trace(),
        ksos.SoSSpace(Gaussian(sigma), X),
        solver="interior_point",
        tol=1e-10,
    )
    assert solution.status == "solved", solution.message
    assert solution.n_iter <= 20


@pytest.mark.parametrize(
    ("m", "sigma"),
    [(50, 0.05), (50, 0.2), (50, 1.0), (100, 1.0), (100, 4.0), (200, 2.0), (200, 50.0)],
)
def test_ten_digits_at_every_size(m: int, sigma: float) -> None:
    X = moons(m)
    functional, space = SquaredMMD(X) + 1e-3 * Trace(), ksos.SoSSpace(Gaussian(sigma), X)
    solution = ksos.minimize(functional, space, solver="interior_point", tol=1e-10)
    assert solution.status == "solved", solution.message
    assert solution.n_iter <= 20
    if sigma >= 0.2:
        other = ksos.minimize(functional, space, solver="low_rank", tol=1e-10)
        assert solution.objective == pytest.approx(other.objective, abs=2e-10)
        assert solution.rank <= 3  # the answer lies on a small face, not in the interior


@pytest.mark.parametrize("sigma", [0.2, 1.0, 4.0, 50.0])
def test_more_digits_than_there_are_gives_the_right_status(sigma: float) -> None:
    X = moons(25)
    solution = ksos.minimize(
        SquaredMMD(X) + 1e-3 * Trace(),
        ksos.SoSSpace(Gaussian(sigma), X),
        solver="interior_point",
        tol=1e-300,
    )
    assert solution.status in ("solved_inaccurate", "solved")  # a gap of exactly 0 is possible
    assert solution.gap < 1e-13
    assert solution.n_iter < 60


@pytest.mark.parametrize("scale", [1e-8, 1e-3, 1e6])
def test_the_units_of_the_objective_do_not_matter(scale: float) -> None:
    X = moons(25)
    functional, space = SquaredMMD(X) + 1e-3 * Trace(), ksos.SoSSpace(Gaussian(1.0), X)
    one = ksos.minimize(functional, space, solver="interior_point", tol=1e-9)
    other = ksos.minimize(scale * functional, space, solver="interior_point", tol=scale * 1e-9)
    assert other.status == "solved"
    assert other.n_iter == one.n_iter
    assert other.objective / scale == pytest.approx(one.objective, abs=2e-9)


def test_the_dual_value_meets_the_primal_one() -> None:
    X = moons(25)
    space = ksos.SoSSpace(Gaussian(0.5), X)
    z = space.coordinates(X)
    objective, stepper = (
        Objective.of(SquaredMMD(X) + 1e-3 * Trace(), space, stored=True),
        InteriorPoint(),
    )
    D = objective.term.embedding_quadratic.D
    state = stepper.init(objective, objective.point(center(space.rank)))
    for _ in range(12):
        state = stepper.step(objective, state)
        y, t = state.iterate.y, state.iterate.t
        dual = -0.25 * y @ y - y @ z + t
        M = D + space.embed_adjoint(y) - t * np.eye(space.rank)
        assert np.linalg.eigvalsh(M)[0] > -1e-14
        assert dual <= objective.value(state.point) + 1e-14
    assert objective.value(state.point) - dual < 1e-9


def test_residuals_of_a_pair_that_is_off_are_worked_off() -> None:
    X = moons(25)
    space = ksos.SoSSpace(Gaussian(0.5), X)
    objective, stepper = (
        Objective.of(SquaredMMD(X) + 1e-3 * Trace(), space, stored=True),
        InteriorPoint(),
    )
    state = stepper.init(objective, objective.point(center(space.rank)))
    pair = state.iterate.pair
    off = replace(pair, R=1.3 * pair.R, inverse=pair.inverse / 1.3)
    state = replace(
        state, iterate=replace(state.iterate, pair=off)
    )  # neither is tr C = 1 nor is M what y and t make it
    for _ in range(14):
        state = stepper.step(objective, state)
    iterate = state.iterate
    assert np.trace(iterate.pair.C) == pytest.approx(1.0, abs=1e-7)
    M = (
        objective.term.embedding_quadratic.D
        + space.embed_adjoint(iterate.y)
        - iterate.t * np.eye(space.rank)
    )
    np.testing.assert_allclose(iterate.pair.M, M, atol=1e-8)
    solved = ksos.minimize(SquaredMMD(X) + 1e-3 * Trace(), space, tol=1e-10)
    assert objective.value(state.point) == pytest.approx(solved.objective, abs=1e-9)


def test_below_its_floor_a_run_takes_no_more_steps() -> None:
    X = moons(25)
    objective, stepper = (
        Objective.of(SquaredMMD(X), ksos.SoSSpace(Gaussian(1.0), X), stored=True),
        InteriorPoint(),
    )
    state = stepper.init(objective, objective.point(center(objective.space.rank)))
    assert stepper.step(objective, state) is not state
    state = replace(state, floor=2.0 * state.iterate.mu(state.program))
    assert stepper.step(objective, state) is state


def test_a_start_near_the_optimum_saves_steps() -> None:
    X = moons(50)
    space = ksos.SoSSpace(Gaussian(1.0), X)
    known = ksos.minimize(SquaredMMD(X) + 1e-3 * Trace(), space, solver="interior_point", tol=1e-10)
    near = SquaredMMD(X) + 1.01e-3 * Trace()
    cold = ksos.minimize(near, space, solver="interior_point", tol=1e-10)
    warm = ksos.minimize(near, space, solver="interior_point", tol=1e-10, start=known.parameter)
    assert cold.status == warm.status == "solved"
    assert warm.n_iter <= cold.n_iter - 4


def test_a_start_better_than_the_first_iterates_does_not_end_the_run() -> None:
    X = moons(50)
    functional, space = SquaredMMD(X) + 1e-3 * Trace(), ksos.SoSSpace(Gaussian(0.2), X)
    rough = ksos.minimize(functional, space, solver="fista", tol=1e-8)
    solution = ksos.minimize(
        functional, space, solver="interior_point", tol=1e-13, start=rough.parameter
    )
    assert solution.status == "solved"


def test_a_start_that_nothing_can_improve_on_is_kept() -> None:
    X = moons(25)
    functional, space = SquaredMMD(X) + 1e-3 * Trace(), ksos.SoSSpace(Gaussian(1.0), X)
    known = ksos.minimize(functional, space, solver="low_rank", tol=1e-12)
    again = ksos.minimize(
        functional, space, solver="interior_point", tol=1e-300, start=known.parameter
    )
    assert again.gap <= known.gap + 1e-15


@pytest.mark.parametrize(
    "functional", [0.0 * Trace(), SquaredMMD([[1e6, 0.0]])], ids=["zero", "a target out of sight"]
)
def test_functionals_with_nothing_to_see(functional: SquaredMMD) -> None:
    space = ksos.SoSSpace(Gaussian(1.0), points(6, 2))
    solution = ksos.minimize(functional, space, solver="interior_point", tol=1e-8)
    other = ksos.minimize(functional, space, solver="fista", tol=1e-8)
    assert solution.status == "solved"
    assert solution.objective == pytest.approx(other.objective, abs=2e-8)


# --- faults and refusals --------------------------------------------------------------------------


@dataclass(frozen=True, kw_only=True)
class Breaking(InteriorPoint):
    """From the seventh step on, a matrix routine fails inside each step."""

    routine: str = "svd"
    failure: str = "raise"
    steps: list[int] = field(default_factory=list)

    def step(self, objective: Objective, state: Any) -> Any:
        self.steps.append(1)
        if len(self.steps) <= 6:
            return super().step(objective, state)
        original = getattr(np.linalg, self.routine)

        def failing(M: np.ndarray, *args: object, **kwargs: object) -> object:
            if self.failure == "raise":
                raise np.linalg.LinAlgError("no convergence")
            return (
                original(M * np.nan, *args, **kwargs)
                if self.routine == "cholesky"
                else _nans(original(M, *args, **kwargs))
            )

        with pytest.MonkeyPatch.context() as patch:
            for module in (
                np.linalg,
                array_api_compat.numpy.linalg,
            ):  # the second has some of the routines under its own name
                patch.setattr(module, self.routine, failing)
            return super().step(objective, state)


@pytest.mark.parametrize("routine", ["cholesky", "svd", "eigvalsh"])
@pytest.mark.parametrize("failure", ["raise", "nan"])
def test_a_routine_that_fails_in_mid_solve_leaves_the_last_certified_point(
    routine: str, failure: str
) -> None:
    X = moons(25)
    functional, space = SquaredMMD(X) + 1e-3 * Trace(), ksos.SoSSpace(Gaussian(0.5), X)
    solution = ksos.minimize(
        functional, space, solver=Breaking(routine=routine, failure=failure), tol=1e-10
    )
    assert solution.status == "numerical_error"
    assert solution.gap == pytest.approx(
        min(progress.gap for progress in solution.history), rel=1e-6
    )
    assert 0.0 < solution.gap < 0.1
    assert solution.distribution.terms.mass() == pytest.approx(1.0)


def _nans(result: object) -> object:
    return tuple(part * np.nan for part in result) if isinstance(result, tuple) else result * np.nan


def test_refuses_what_does_not_fit_in_memory_and_names_a_way_out() -> None:
    X = moons(25)
    space = ksos.SoSSpace(Gaussian(0.5), X)
    assert space.map is not None  # formed while there is room
    needed = (
        r"the interior-point method with 25 coordinates and rank 25 needs .* GB.*use"
        r" solver='low_rank'"
    )
    with (
        resources(memory=2.55e5),
        pytest.raises(MemoryError, match=needed),
    ):  # room for the tensor alone
        ksos.minimize(SquaredMMD(X), space, solver="interior_point")


@pytest.mark.parametrize(
    "functional", [MMD(points(5, 2)), SquaredMMD(points(5, 2)) + Frobenius()], ids=repr
)
def test_refuses_functionals_without_a_small_dual(functional: SquaredMMD) -> None:
    space = ksos.SoSSpace(Gaussian(1.0), points(6, 2))
    with pytest.raises(
        ValueError,
        match=(
            r"cannot take .*: it takes squared MMDs and linear terms only; use solver='low_rank' or"
            r" 'fista'"
        ),
    ):
        ksos.minimize(functional, space, solver="interior_point")
