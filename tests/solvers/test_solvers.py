"""Laws of solvers, run on every solver and functional: feasible, certified, and in agreement with a
conic solver.
"""

from __future__ import annotations

import time
from dataclasses import replace
from fractions import Fraction

import numpy as np
import pytest
from hypothesis import given, strategies as st
from oracles import brute_objective, conic_optimum
from tables import FUNCTIONAL_CASES, REACH, SOLVER_CASES, SOLVER_FUNCTIONAL_CASES, TAKES, points

import ksos
from ksos.functionals import MMD, Frobenius, Functional, Objective, Point, SquaredMMD, Trace
from ksos.kernels import Gaussian, Laplace
from ksos.measures import Normal
from ksos.solvers import (
    DENSE,
    SOLVERS,
    STATUSES,
    FactorHessian,
    LowRank,
    Progress,
    Stepper,
    center,
    certify,
    factor,
    graded_bound,
    iterate,
    lowest_bound,
    lowest_eigenpairs,
    optimum_on_face,
    project,
    project_simplex,
)

every_solver = pytest.mark.parametrize("solver", SOLVER_CASES)
every_functional = pytest.mark.parametrize(
    "functional", FUNCTIONAL_CASES.values(), ids=FUNCTIONAL_CASES
)


@pytest.fixture(scope="module")
def space() -> ksos.SoSSpace:
    return ksos.SoSSpace(Gaussian(1.0), points(8, 2))


@pytest.fixture(scope="module")
def harder_space() -> ksos.SoSSpace:
    """Where every solver needs more than a handful of iterations."""
    return ksos.SoSSpace(Gaussian(0.5), points(30, 2))


def random_symmetric(r: int, seed: int) -> np.ndarray:
    M = np.random.default_rng(seed).normal(size=(r, r))
    return M + M.T


# --- the spectraplex (Algorithm 1) ----------------------------------------------------------------


@given(st.lists(st.floats(-50, 50), min_size=1, max_size=12))
def test_projection_on_the_simplex_is_the_nearest_point(values: list[float]) -> None:
    x = np.array(values)
    p = project_simplex(x)
    assert np.all(p >= 0.0)
    assert p.sum() == pytest.approx(1.0)
    # ⟨x − p, q − p⟩ ≤ 0 for every q of the simplex, that is for its corners: the variational
    # inequality of a projection
    assert np.all((x - p) - (x - p) @ p <= 1e-9)


@given(st.integers(1, 8), st.integers(0, 10**6))
def test_projection_on_the_spectraplex_is_the_nearest_point(r: int, seed: int) -> None:
    M = random_symmetric(r, seed)
    C = project(M)
    np.testing.assert_array_equal(C, C.T)
    assert np.trace(C) == pytest.approx(1.0)
    assert np.linalg.eigvalsh(C)[0] > -1e-14
    # the variational inequality on the extreme points vvᵀ
    assert np.linalg.eigvalsh(M - C)[-1] - np.vdot(M - C, C) <= 1e-9
    np.testing.assert_allclose(project(C), C, atol=1e-14)
    G = factor(C)
    np.testing.assert_allclose(G @ G.T, C, atol=1e-12)


# --- objectives -----------------------------------------------------------------------------------


@every_functional
def test_gradient_is_the_derivative_and_the_functional_is_convex(
    functional: Functional, space: ksos.SoSSpace
) -> None:
    objective = Objective.of(functional, space)
    C, other = (
        objective.point(project(0.3 * random_symmetric(space.rank, seed))) for seed in (1, 2)
    )
    direction = other - C
    G = objective.gradient(C)
    h = 1e-5
    slope = (objective.value(C + h * direction) - objective.value(C + (-h) * direction)) / (2 * h)
    assert slope == pytest.approx(np.vdot(G, direction.C), rel=1e-5, abs=1e-9)
    assert objective.value(other) >= objective.value(C) + np.vdot(G, direction.C) - 1e-12
    curvature = objective.curvature(direction)
    assert (curvature is not None) == objective.term.quadratic
    if curvature is not None:
        change = np.vdot(objective.gradient(other) - G, direction.C)
        assert curvature == pytest.approx(change, rel=1e-8, abs=1e-12)


@every_functional
@pytest.mark.parametrize("dense", [True, False])
def test_the_hessian_on_the_factor_is_the_second_derivative(
    functional: Functional, dense: bool, space: ksos.SoSSpace
) -> None:
    objective = Objective.of(functional, space)
    rng = np.random.default_rng(0)
    F, E = rng.normal(size=(2, space.rank, 3))
    F /= np.linalg.norm(F)
    E -= np.vdot(E, F) * F
    E /= np.linalg.norm(E)
    state = LowRank().at(objective, F, 0.0)

    def along(t: float) -> float:  # a geodesic of the sphere
        curve = np.cos(t) * F + np.sin(t) * E
        return objective.value(objective.point(curve @ curve.T))

    h = 5e-4
    multiplier = 2.0 * float(np.vdot(state.point.G @ F, F))
    hessian = FactorHessian(objective, state, multiplier, dense)
    second = (along(h) - 2.0 * along(0.0) + along(-h)) / h**2
    assert np.vdot(E, hessian.apply(E)) == pytest.approx(second, rel=1e-4, abs=1e-6)
    right = hessian.apply(E) + 50.0 * E  # damped until it is positive definite
    solved = hessian.solve(right - np.vdot(right, F) * F, 50.0)
    np.testing.assert_allclose(solved, E, atol=1e-6 if dense else 0.2)


@pytest.mark.parametrize("columns", [2, 6])
def test_the_optimum_over_a_face_is_the_least_value_there(
    columns: int, harder_space: ksos.SoSSpace
) -> None:
    """Against the certificate on the face: ⟨VᵀGV, X⟩ − λ_min(VᵀGV) bounds what any other matrix of
    the face could gain.
    """
    functional = SquaredMMD(points(40, 2)) + 1e-3 * Trace()
    objective = Objective.of(functional, harder_space).on_tensor()
    V = np.linalg.qr(np.random.default_rng(1).normal(size=(harder_space.rank, columns)))[0]
    X = optimum_on_face(objective, V, center(harder_space.rank, harder_space.T), 1e-12)
    assert X is not None
    X = X / np.trace(X)
    point = objective.point(V @ X @ V.T)
    G = V.T @ objective.gradient(point) @ V
    assert np.linalg.eigvalsh(X)[0] >= 0.0
    assert np.vdot(G, X) - np.linalg.eigvalsh(G)[0] <= 1e-9


def test_columns_that_vanish_do_not_hold_newtons_steps_up() -> None:
    """In ten features, where spare columns make the Hessian singular at the optimum; no other
    solver has to help.
    """
    rng = np.random.default_rng(3)
    X = 3.0 * rng.normal(size=(5, 10))[rng.integers(0, 5, 4000)] + 0.5 * rng.normal(
        size=(4000, 10)
    ) @ rng.normal(size=(10, 10))
    wide = ksos.SoSSpace(Gaussian(4.0), X[:130], embedding_kernel=Gaussian(8.0))
    sums = ksos.KernelSums(wide.embedding_kernel, wide.landmarks).update(X)
    functional = SquaredMMD(sums) + 1e-5 * Trace(relative=True)
    found, other = (
        ksos.minimize(functional, wide, solver=solver)
        for solver in (LowRank(max_iter=40), "interior_point")
    )
    assert found.status == other.status == "solved"
    assert abs(found.objective - other.objective) <= found.gap + other.gap


class Stuck(LowRank):
    def is_stuck(self, state: object) -> bool:
        return True


class Slow(LowRank):
    def is_quick(self, state: object) -> bool:
        return False


def test_a_solver_that_is_stuck_hands_over_and_a_slow_one_takes_no_extra_steps(
    harder_space: ksos.SoSSpace,
) -> None:
    objective = Objective.of(SquaredMMD(points(40, 2)) + 1e-3 * Trace(), harder_space).on_tensor()
    start = center(harder_space.rank, harder_space.T)
    alone, handed, slow = (
        iterate(solver, objective, start, 1e-6, others=others)
        for solver, others in ((Stuck(), False), (Stuck(), True), (Slow(), False))
    )
    assert (handed.status, handed.n_iter) == ("max_iter", 1)
    assert alone.status == slow.status == "solved"
    assert slow.n_iter < alone.n_iter and slow.history[-1].gap > alone.history[-1].gap


def test_the_lowest_eigenvalue_is_bounded_from_below_and_closely() -> None:
    G = random_symmetric(60, 0)
    exact = np.linalg.eigvalsh(G)
    for dense in (DENSE, 10):
        bound = lowest_bound(G, 1e-9, dense=dense)
        assert exact[0] - 1e-6 < bound <= exact[0] + 1e-12
        values, vectors = lowest_eigenpairs(G, 4, dense=dense)
        np.testing.assert_allclose(values, exact[:4], rtol=1e-8)
        np.testing.assert_allclose(G @ vectors, vectors * values, atol=1e-6)
    # a Lanczos value that has missed the lowest eigenvalue must not pass for a bound
    assert lowest_bound(G, 1e-9, dense=10, estimate=float(exact[1])) <= exact[0]


def is_positive(G: np.ndarray, t: Fraction) -> bool:
    """Whether G − tI is positive definite, by elimination with rational numbers."""
    rows = [
        [Fraction(float(x)) - (t if i == j else 0) for j, x in enumerate(row)]
        for i, row in enumerate(G)
    ]
    while rows:
        first, *rest = rows
        if first[0] <= 0:
            return False
        rows = [
            [x - row[0] * y / first[0] for x, y in zip(row[1:], first[1:], strict=True)]
            for row in rest
        ]
    return True


@pytest.mark.parametrize("strength", (1.0, 1e10, 1e20))
@pytest.mark.parametrize("light", (1, 3))
def test_a_bound_that_is_exact_in_directions_without_a_penalty(strength: float, light: int) -> None:
    G = random_symmetric(7, 1)
    heavy = np.where(np.arange(7) < light, 0.0, strength * 10.0 ** np.arange(7))
    G += np.diag(heavy)
    inside = float(np.linalg.eigvalsh(G[:light, :light])[0])  # at least λ_min(G)
    bound = graded_bound(G, inside, 1e3)
    assert is_positive(G, Fraction(bound))
    assert not is_positive(G, Fraction(bound) + Fraction(1e-8 if strength > 1.0 else 10.0))
    assert graded_bound(G, inside, 1e-300) == -np.inf  # not proven


def test_functionals_add_and_scale(space: ksos.SoSSpace) -> None:
    X = points(12, 2, 1)
    C = project(random_symmetric(space.rank, 3))

    def value(functional: Functional) -> float:
        objective = Objective.of(functional, space)
        return objective.value(objective.point(C))

    parts = [SquaredMMD(X), MMD(X), Trace(), Frobenius()]
    assert value(sum(parts)) == pytest.approx(sum(map(value, parts)))
    assert value(3 * (parts[0] + 2.0 * parts[2])) == pytest.approx(
        3 * value(parts[0]) + 6 * value(parts[2])
    )
    assert value(0 * parts[0]) == 0.0
    assert value(MMD(X)) ** 2 == pytest.approx(value(SquaredMMD(X)))
    unit = np.exp(space.log_unit)
    assert value(Trace(relative=True)) == pytest.approx(unit * value(Trace()))
    assert value(Frobenius(relative=True)) == pytest.approx(unit**2 * value(Frobenius()))
    B = space.T @ C @ space.T.T / unit
    BK = B @ space.kernel(space.support_points)
    assert value(Trace()) == pytest.approx(np.trace(BK), rel=1e-6)
    assert value(Frobenius()) == pytest.approx(np.trace(BK @ BK), rel=1e-6)
    assert repr(SquaredMMD(X) + 0.5 * Trace()) == "1 * SquaredMMD(12 samples) + 0.5 * Trace()"


@pytest.mark.parametrize("factor_", [-1.0, np.nan, np.inf, "2", True])
def test_functionals_refuse_factors_that_are_not_convex(factor_: object) -> None:
    with pytest.raises(ValueError, match="factor of a functional"):
        factor_ * Trace()
    with pytest.raises(TypeError):
        Trace() + 1


# --- solutions ------------------------------------------------------------------------------------


@pytest.mark.parametrize(("solver", "name"), SOLVER_FUNCTIONAL_CASES)
def test_every_solved_problem_is_feasible_and_verifies_from_scratch(
    solver: str, name: str, space: ksos.SoSSpace
) -> None:
    functional, tol = FUNCTIONAL_CASES[name], REACH.get(solver, 1e-6)
    solution = ksos.minimize(functional, space, solver=solver, tol=tol)
    assert solution.status == "solved"
    assert solution.solver in SOLVERS
    C = solution.parameter
    assert np.trace(C) == pytest.approx(1.0, abs=1e-12)
    assert np.linalg.eigvalsh(C)[0] >= -1e-15
    again = certify(
        Objective.of(functional, ksos.SoSSpace(Gaussian(1.0), points(8, 2))),
        Objective.of(functional, space).point(C),
    )
    assert again.objective == pytest.approx(solution.objective, abs=1e-10)
    assert again.gap == pytest.approx(solution.gap, abs=1e-10)
    assert 0.0 <= solution.gap <= tol
    assert solution.gap_relative == pytest.approx(solution.gap / abs(solution.objective))
    assert solution.rank == solution.distribution.rank == solution.parameter_factor.shape[1]
    assert solution.history[-1].gap <= tol
    assert solution.distribution.terms.mass() == pytest.approx(1.0, abs=1e-9)


@every_solver
@pytest.mark.parametrize("squared", [True, False])
@pytest.mark.parametrize("weight", [1e-3, 1e-2])
def test_agrees_with_a_conic_solver(
    solver: str, squared: bool, weight: float, space: ksos.SoSSpace
) -> None:
    if not squared and solver in TAKES:
        pytest.skip(f"{solver} takes squared distances only")
    X = points(12, 2, 1)
    A, z, N = brute_objective(space, X)
    best = conic_optimum(A, z, weight * N, squared=squared)
    distance = SquaredMMD(X) if squared else MMD(X)
    solution = ksos.minimize(
        distance + weight * Trace(relative=True), space, solver=solver, tol=REACH.get(solver, 1e-7)
    )
    assert solution.objective - best <= solution.gap + 1e-8  # the certificate bounds the true error
    assert solution.objective >= best - 1e-8


@pytest.mark.parametrize("solver", TAKES)
@every_functional
def test_a_solver_takes_a_functional_or_names_one_that_does(
    solver: str, functional: Functional, space: ksos.SoSSpace
) -> None:
    if functional in [FUNCTIONAL_CASES[name] for name in TAKES[solver]]:
        assert ksos.minimize(functional, space, solver=solver).status == "solved"
        return
    with pytest.raises(
        ValueError, match=f"solver='{solver}' cannot take .*; use solver='(.*)'"
    ) as refused:
        ksos.minimize(functional, space, solver=solver)
    named = str(refused.value).rsplit("solver='")[-1].split("'")[0]
    assert ksos.minimize(functional, space, solver=named).status == "solved"


def test_the_root_of_the_gap_bounds_the_distance_to_the_optimum(space: ksos.SoSSpace) -> None:
    functional = 2.0 * SquaredMMD(points(12, 2, 1)) + 1e-2 * Trace()
    exact = ksos.minimize(functional, space, tol=1e-10)
    for max_iter in (1, 3, 10, 30):
        rough = ksos.minimize(functional, space, max_iter=max_iter)
        distance = np.linalg.norm(space.embed(rough.parameter) - space.embed(exact.parameter))
        assert rough.projected_mmd_bound == pytest.approx(np.sqrt(rough.gap / 2.0))
        assert distance <= rough.projected_mmd_bound + 1e-5
    assert ksos.minimize(MMD(points(12, 2, 1)), space, max_iter=1).projected_mmd_bound is None


@every_solver
def test_limits_callbacks_and_starts_are_obeyed(solver: str, harder_space: ksos.SoSSpace) -> None:
    functional = SquaredMMD(points(30, 2, 1)) + 1e-3 * Trace()
    seen: list[Progress] = []
    limited = ksos.minimize(
        functional, harder_space, solver=solver, max_iter=7, tol=1e-300, callback=seen.append
    )
    assert (limited.status, limited.n_iter) == ("max_iter", 7)
    assert seen == limited.history
    assert seen[-1].n_iter == 7
    assert limited.gap == pytest.approx(min(progress.gap for progress in seen), rel=1e-6)

    began = time.perf_counter()
    big = ksos.SoSSpace(Gaussian(0.3), points(150, 2))
    slow = ksos.minimize(functional, big, solver=solver, tol=1e-300, max_iter=10**9, time_limit=0.1)
    assert slow.status == "time_limit"
    assert time.perf_counter() - began < 5.0

    stopped = ksos.minimize(
        functional,
        harder_space,
        solver=solver,
        tol=1e-300,
        callback=lambda progress: progress.n_iter >= 5,
    )
    assert stopped.status == "interrupted"
    assert 5 <= stopped.n_iter <= 14  # the next certificate after the fifth iteration
    assert stopped.distribution.terms.mass() == pytest.approx(1.0)

    solved = ksos.minimize(functional, harder_space, solver=solver, tol=1e-4)
    warm = ksos.minimize(functional, harder_space, solver=solver, tol=2e-4, start=solved.parameter)
    assert warm.n_iter == 0
    assert "solved after 0 iterations" in warm.message


@every_solver
def test_control_c_gives_the_best_point_so_far(solver: str, harder_space: ksos.SoSSpace) -> None:
    def press(progress: Progress) -> None:
        if progress.n_iter >= 5:
            raise KeyboardInterrupt

    solution = ksos.minimize(
        SquaredMMD(points(30, 2, 1)), harder_space, solver=solver, tol=1e-300, callback=press
    )
    assert solution.status == "interrupted"
    assert solution.gap == pytest.approx(
        min(progress.gap for progress in solution.history), rel=1e-6
    )


class Failing(Stepper):
    """A solver whose matrix routines fail from the sixteenth step on."""

    def __init__(self, solver: Stepper, failure: str) -> None:
        self.solver, self.failure, self.calls = solver, failure, 0
        self.max_iter, self.extra_steps, self.name = (
            solver.max_iter,
            solver.extra_steps,
            solver.name,
        )

    def prepared(self, objective: Objective) -> Objective:
        return self.solver.prepared(objective)

    def interval(self, objective: Objective) -> int:
        return self.solver.interval(objective)

    def init(self, objective: Objective, start: Point) -> object:
        return self.solver.init(objective, start)

    def step(self, objective: Objective, state: object) -> object:
        self.calls += 1
        if self.calls > 15 and self.failure == "raise":
            raise np.linalg.LinAlgError("no convergence")
        state = self.solver.step(objective, state)
        seen = self.calls % self.solver.interval(objective) == 0  # by the next certificate
        if self.calls > 15 and self.failure == "nan" and seen:
            state = replace(
                state, point=replace(state.point, C=np.full_like(state.point.C, np.nan))
            )
        return state


@pytest.mark.parametrize("solver", SOLVERS)
@pytest.mark.parametrize("failure", ["raise", "nan"])
def test_a_failing_matrix_routine_gives_a_status_and_the_last_certified_point(
    solver: str, failure: str, harder_space: ksos.SoSSpace
) -> None:
    solution = ksos.minimize(
        SquaredMMD(points(30, 2, 1)),
        harder_space,
        solver=Failing(SOLVERS[solver], failure),
        tol=1e-300,
    )
    assert solution.status == "numerical_error"
    assert np.isfinite(solution.gap)
    assert solution.distribution.terms.mass() == pytest.approx(1.0)


def test_rounding_stops_a_run_that_asks_for_more_than_there_is(space: ksos.SoSSpace) -> None:
    solution = ksos.minimize(SquaredMMD(points(12, 2, 1)) + 1e-2 * Trace(), space, tol=1e-300)
    assert solution.status in ("solved_inaccurate", "solved")  # a gap of exactly 0 is possible
    assert solution.gap < 1e-8
    assert solution.n_iter < 20_000


def test_verbose_prints_the_gap(space: ksos.SoSSpace, capsys: pytest.CaptureFixture[str]) -> None:
    functional = SquaredMMD(points(12, 2, 1)) + 1e-2 * Trace()
    ksos.minimize(functional, space)
    assert capsys.readouterr().out == ""
    ksos.minimize(functional, space, verbose=1)
    some = capsys.readouterr().out.splitlines()
    ksos.minimize(functional, space, verbose=2)
    every = capsys.readouterr().out.splitlines()
    assert all("gap" in line and "objective" in line for line in every)
    assert 1 < len(some) <= len(every)


@pytest.mark.parametrize(
    ("options", "message"),
    [
        (
            {"solver": "simplex"},
            (
                r"solver must be one of 'auto', 'low_rank', 'interior_point',"
                r" .*'projected_gradient'; got 'simplex'"
            ),
        ),
        ({"tol": np.nan}, "tol must be positive"),
        ({"tol": 0.0}, "tol must be positive"),
        ({"max_iter": 0}, "max_iter must be at least 1"),
        ({"max_iter": 2.5}, "max_iter must be a whole number"),
        ({"time_limit": -1.0}, "time_limit must be positive"),
        ({"start": np.eye(3)}, "start must be a finite"),
    ],
)
def test_refuses_options_that_make_no_sense(
    options: dict, message: str, space: ksos.SoSSpace
) -> None:
    with pytest.raises(ValueError, match=message):
        ksos.minimize(SquaredMMD(points(12, 2, 1)), space, **options)


def test_refuses_what_is_not_a_functional(space: ksos.SoSSpace) -> None:
    with pytest.raises(TypeError, match="a functional such as"):
        ksos.minimize(lambda p: 0.0, space)
    with pytest.raises(ValueError, match="the target has 3 features, but the landmarks have 2"):
        ksos.minimize(SquaredMMD(points(5, 3)), space)


def test_one_support_point_leaves_nothing_to_optimise() -> None:
    space = ksos.SoSSpace(Gaussian(1.0), [[0.0, 0.0]])
    solution = ksos.minimize(SquaredMMD([[0.0, 0.0]]), space)
    assert (solution.status, solution.n_iter, solution.gap) == ("solved", 0, 0.0)
    np.testing.assert_array_equal(center(1), [[1.0]])
    assert set(STATUSES) >= {
        "solved",
        "solved_inaccurate",
        "max_iter",
        "time_limit",
        "interrupted",
        "numerical_error",
    }


def test_more_columns_than_directions_are_compressed() -> None:
    X = np.random.default_rng(4).normal(size=(18, 1))
    space = ksos.SoSSpace(Gaussian(1.0), X, Normal(0.0, 1.0))
    solution = ksos.minimize(
        SquaredMMD(X) + 1e-3 * Frobenius(relative=True), space, solver="low_rank", tol=1e-7
    )
    assert solution.status == "solved"
    assert solution.rank <= space.rank


def test_auto_hands_over_where_a_low_rank_does_not_come() -> None:
    X = points(40, 2)
    space = ksos.SoSSpace(Gaussian(0.03), X)  # K ≈ I: nothing draws the optimum to a low rank
    solution = ksos.minimize(SquaredMMD(X) + 1e-3 * Trace(), space, tol=1e-11)
    assert solution.status == "solved"
    numbers = [progress.n_iter for progress in solution.history]
    assert numbers == sorted(numbers)
    assert solution.n_iter == numbers[-1]
    limited = ksos.minimize(SquaredMMD(X) + 1e-3 * Trace(), space, tol=1e-300, max_iter=3)
    assert (limited.solver, limited.n_iter) == ("low_rank", 3)
    exponential = ksos.SoSSpace(Laplace(1.0), points(15, 1))
    spread = ksos.minimize(SquaredMMD(points(15, 1)) + 1e-3 * Frobenius(), exponential, tol=1e-6)
    assert spread.status == "solved"


@pytest.mark.parametrize("space_", [None, Gaussian(1.0)])
def test_refuses_what_is_not_a_space(space_: object) -> None:
    with pytest.raises(TypeError, match=r"a ksos.SoSSpace is needed"):
        ksos.minimize(Trace(), space_)
    with pytest.raises(ValueError, match="target must"):
        SquaredMMD("samples")


def test_one_square_is_found_in_few_steps_and_without_a_tensor() -> None:
    """Five blobs in ten features: the optimum is one square, whose start is the root of the density
    on few directions.
    """
    rng = np.random.default_rng(3)
    X = 2.5 * rng.normal(size=(5, 10))[rng.integers(5, size=400)] + rng.normal(size=(400, 10))
    space = ksos.SoSSpace(Gaussian(5.0), X[:120], embedding_kernel=Gaussian(12.0))
    found = ksos.minimize(SquaredMMD(X) + 1e-3 * Trace(relative=True), space)
    stored = ksos.minimize(
        SquaredMMD(X) + 1e-3 * Trace(relative=True), space, solver="interior_point"
    )
    assert (found.solver, found.status) == ("low_rank", "solved") and found.n_iter <= 12
    assert abs(found.objective - stored.objective) <= found.gap + stored.gap
    assert not Objective.of(SquaredMMD(X), space).rounded_well().stored
    smooth = ksos.SoSSpace(Gaussian(40.0), X[:120, :3])
    assert Objective.of(SquaredMMD(X[:, :3]), smooth).rounded_well().map.rounds_well
