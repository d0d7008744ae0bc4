"""Constrained problems: in agreement with a conic solver, never above their dual bound, feasible to
rounding, infeasible with a proof.
"""

from __future__ import annotations

import math
from typing import Any

import numpy as np
import pytest
from hypothesis import example, given, settings, strategies as st
from strategies import clouds
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
from ksos.kernels import Gaussian, Laplace
from ksos.measures import Box, Discrete, Normal
from ksos.observables import BoxIndicator, coordinate
from ksos.solvers import SOLVERS, Progress, project

X = points(12, 2, 1)
LOSS = coordinate(0) ** 2 + coordinate(1)
QUADRANT = BoxIndicator([0.0, 0.0], [np.inf, np.inf])


@pytest.fixture(scope="module")
def space() -> ksos.SoSSpace:
    return ksos.SoSSpace(Gaussian(1.0), points(8, 2))


OBJECTIVES: dict[str, Functional] = {
    "expectation": -Expectation(LOSS),
    "squared mmd": SquaredMMD(X) + 1e-3 * Trace(),
    "mmd": MMD(points(5, 2, 2)) + 0.1 * Expectation(LOSS),
    "mmd alone": 2.0 * MMD(points(5, 2, 2)),
    "frobenius": SquaredMMD(X) + 1e-2 * Frobenius(),
    "l2": SquaredL2(X),
}
CONSTRAINTS: dict[str, list[Constraint]] = {
    "ball": [within(MMD(X), 0.25)],
    "wide ball": [within(MMD(X), 5.0)],
    "moments": [Expectation(coordinate(0)) == 0.1, Expectation(coordinate(1) ** 2) <= 0.9],
    "probability": [Expectation(QUADRANT) >= 0.4],
    "two balls": [within(MMD(X), 0.4), MMD(X[:4]) <= 0.4],
    "all": [
        within(MMD(X), 0.3),
        Expectation(coordinate(0)) == 0.1,
        Expectation(QUADRANT) <= 0.3,
        Expectation(coordinate(1) ** 2) >= 0.7,
    ],
    "a functional": [SquaredMMD(X) + 1e-2 * Trace() <= 0.1],
}


def conic_answer(objective: str, constraints: list[Constraint], space: ksos.SoSSpace) -> float:
    """The same problem in CVXPY, from the matrices of the space."""
    import cvxpy as cp

    tensor = space.compressed_map.tensor
    q, r, _ = tensor.shape
    C = cp.Variable((r, r), PSD=True)
    a = tensor.reshape(q, -1) @ cp.vec(C, order="C")

    def linear(term: Functional) -> Any:
        return cp.sum(cp.multiply(term.bind(space).D, C))  # type: ignore[attr-defined]

    def expression(functional: Functional) -> Any:
        if isinstance(functional, (Expectation, Trace)):
            return linear(functional)
        if isinstance(functional, MMD):
            return cp.norm(a - space.coordinates(functional.target))
        if isinstance(functional, SquaredMMD):
            return cp.sum_squares(a - space.coordinates(functional.target))
        if isinstance(functional, Frobenius):
            N = functional.bind(space).N  # type: ignore[attr-defined]
            values, Q = np.linalg.eigh(N)
            root = Q * np.sqrt(np.maximum(values, 0.0))
            return cp.sum_squares(root.T @ C @ root)
        if isinstance(functional, SquaredL2):
            (unit, term), (_, samples) = functional.bind(space).parts  # type: ignore[attr-defined]
            rows = (term.psi[:, :, None] * term.psi[:, None, :]).reshape(-1, r * r) * term.roots[
                :, None
            ]
            _, s, V = np.linalg.svd(rows, full_matrices=False)
            keep = s > 1e-13 * s[0]
            return unit * (
                cp.sum_squares((s[keep, None] * V[keep]) @ cp.vec(C, order="C"))
                + cp.sum(cp.multiply(samples.D, C))
            )
        return sum(scale * expression(term) for scale, term in functional.terms())

    conditions = [cp.trace(C) == 1]
    for constraint in constraints:
        left = expression(constraint.functional)
        conditions.append(
            {
                "<=": left <= constraint.bound,
                ">=": left >= constraint.bound,
                "==": left == constraint.bound,
            }[constraint.sense]
        )
    problem = cp.Problem(cp.Minimize(expression(OBJECTIVES[objective])), conditions)
    problem.solve(solver=cp.CLARABEL, tol_gap_abs=1e-8, tol_gap_rel=1e-8, tol_feas=1e-8)
    return float(problem.value)


def lagrangian_bound(
    functional: Functional, constraints: list[Constraint], solution: ksos.Solution
) -> float:
    """The dual bound from the multipliers and the balls' vectors alone, written out from the terms'
    own values and gradients.
    """
    space, C = solution.space, solution.parameter
    objective = Objective.of(functional, space)
    a = space.map.apply(C)

    def pulled(pair: Any) -> np.ndarray:
        out = np.zeros_like(C) if pair[0] is None else space.map.adjoint(pair[0])
        return out if pair[1] is None else out + pair[1]

    total, G = objective.term.value(a, C), pulled(objective.term.gradient(a, C))
    for i, (weight, constraint) in enumerate(zip(solution.multipliers, constraints, strict=True)):
        assert constraint.equality or weight >= 0.0
        if i in solution.ball_vectors:
            v = solution.ball_vectors[i]
            assert np.linalg.norm(v) == pytest.approx(weight)
            z = space.coordinates(constraint.functional.target)
            total, G = (
                total + v @ (a - z) - constraint.bound * np.linalg.norm(v),
                G + space.map.adjoint(v),
            )
            continue
        term = constraint.bind(space)
        total, G = total + weight * term.value(a, C), G + weight * pulled(term.gradient(a, C))
    return float(total - np.vdot(G, C) + np.linalg.eigvalsh(G)[0])


def assert_feasible(
    constraints: list[Constraint], solution: ksos.Solution, slack: float = 1e-9
) -> None:
    """On the density itself: the constraints' own functionals at the parameter, without the
    library's violations.
    """
    space, C = solution.space, solution.parameter
    assert np.trace(C) == pytest.approx(1.0, abs=1e-12)
    assert np.linalg.eigvalsh(C)[0] >= -1e-14
    for constraint in constraints:
        objective = Objective.of(constraint.functional, space)
        value = objective.value(objective.point(C))
        if constraint.sense in ("<=", "=="):
            assert value <= constraint.bound + slack
        if constraint.sense in (">=", "=="):
            assert value >= constraint.bound - slack


@pytest.mark.parametrize("constraint", CONSTRAINTS)
@pytest.mark.parametrize("objective", OBJECTIVES)
def test_agrees_with_a_conic_solver_and_reverifies(
    objective: str, constraint: str, space: ksos.SoSSpace
) -> None:
    constraints = CONSTRAINTS[constraint]
    solution = ksos.minimize(OBJECTIVES[objective], space, constraints, tol=1e-7)
    assert solution.status == "solved", solution.message
    assert solution.gap is not None
    assert 0.0 <= solution.gap <= 1e-7
    assert_feasible(constraints, solution)
    assert solution.objective - lagrangian_bound(
        OBJECTIVES[objective], constraints, solution
    ) == pytest.approx(solution.gap, abs=1e-10)
    assert solution.objective == pytest.approx(
        conic_answer(objective, constraints, space), rel=1e-6, abs=1e-6
    )
    assert len(solution.multipliers) == len(constraints)


CONIC = ("ball", "wide ball", "moments", "probability", "two balls", "all")


@pytest.mark.parametrize("constraint", CONIC)
@pytest.mark.parametrize("objective", ["expectation", "squared mmd", "mmd alone"])
def test_the_interior_point_agrees(objective: str, constraint: str, space: ksos.SoSSpace) -> None:
    constraints = CONSTRAINTS[constraint]
    other = ksos.minimize(OBJECTIVES[objective], space, constraints, tol=1e-9)
    solution = ksos.minimize(
        OBJECTIVES[objective], space, constraints, solver="interior_point", tol=1e-7
    )
    assert solution.status == "solved", solution.message
    assert_feasible(constraints, solution)
    assert solution.objective == pytest.approx(other.objective, abs=2e-7)
    np.testing.assert_allclose(solution.multipliers, other.multipliers, rtol=1e-2, atol=1e-3)
    assert solution.objective - lagrangian_bound(
        OBJECTIVES[objective], constraints, solution
    ) == pytest.approx(solution.gap, abs=1e-10)


def test_where_a_low_rank_does_not_come_the_interior_point_takes_over() -> None:
    """A grid of support points finer than the bandwidth: the optimum is nearly degenerate, and
    Newton's method on few columns crawls.
    """
    Y = np.concatenate([points(8, 1, 0) - 1.0, points(8, 1, 1) + 1.5])
    space = ksos.SoSSpace(Gaussian(0.8), np.linspace(-3.5, 3.5, 36)[:, None])
    x = coordinate(0)
    constraints = [
        Expectation(x) == 0.1,
        Expectation(x**2) == 2.5,
        Expectation(BoxIndicator([1.5], [np.inf])) >= 0.25,
    ]
    functional = SquaredMMD(Y) + 1e-3 * Trace(relative=True)
    solution = ksos.minimize(functional, space, constraints)
    assert solution.status == "solved", solution.message
    assert_feasible(constraints, solution)
    crawling = ksos.minimize(functional, space, constraints, solver="low_rank", max_iter=300)
    assert crawling.objective >= solution.dual_bound - 1e-12
    direct = ksos.minimize(functional, space, constraints, solver="interior_point")
    assert direct.status == "solved"
    assert direct.n_iter < 40
    assert direct.objective == pytest.approx(solution.objective, abs=2e-8)


@settings(max_examples=60)
@given(
    data=clouds(3, 6, 1, 2),
    sigma=st.sampled_from([0.5, 1.0, 3.0]),
    radius=st.floats(0.05, 1.5),
    slope=st.floats(-2.0, 2.0),
    level=st.floats(-1.0, 1.0),
)
@example(
    data=np.array([[2.1, 1.6], [2.0, -0.4], [-1.3, -0.1], [2.1, -2.0]]),
    sigma=1.0,
    radius=0.345,
    slope=0.0,
    level=-0.2,
)  # empty
def test_weak_duality_is_never_violated(
    data: np.ndarray, sigma: float, radius: float, slope: float, level: float
) -> None:
    space = ksos.SoSSpace(Gaussian(sigma), data, tol_model=1e-7, tol_embedding=1e-7)
    functional = Expectation(slope * coordinate(0) + coordinate(data.shape[1] - 1) ** 2)
    constraints = [within(MMD(data), radius), Expectation(coordinate(0)) <= level]
    solution = ksos.minimize(functional, space, constraints, tol=1e-7)
    assert solution.status in ("solved", "infeasible", "solved_inaccurate"), solution.message
    feasible = []
    objective = Objective.of(functional, space)
    for seed in range(30):  # no point that meets the constraints lies below the dual bound
        M = np.random.default_rng(seed).normal(size=(space.rank, space.rank))
        C = project(seed * 0.1 * (M + M.T))
        if all(excess(constraint, space, C) <= 0.0 for constraint in constraints):
            feasible.append(objective.value(objective.point(C)))
    if solution.status == "infeasible":
        assert not feasible
        assert solution.gap is None
        return
    assert solution.gap is not None
    assert solution.dual_bound is not None
    assert_feasible(constraints, solution, 1e-8)
    scale = 1.0 + abs(solution.objective)
    assert lagrangian_bound(functional, constraints, solution) <= solution.objective + 1e-9 * scale
    assert all(solution.dual_bound <= value + 1e-8 * scale for value in feasible)


def excess(constraint: Constraint, space: ksos.SoSSpace, C: np.ndarray) -> float:
    objective = Objective.of(constraint.functional, space)
    value = objective.value(objective.point(C)) - constraint.bound
    return value if constraint.sense == "<=" else -value


def test_the_value_is_monotone_and_concave_in_the_radius(space: ksos.SoSSpace) -> None:
    radii = np.linspace(0.1, 1.0, 7)
    solutions = [
        ksos.minimize(-Expectation(LOSS), space, within(MMD(X), radius), tol=1e-9)
        for radius in radii
    ]
    values = np.array([-solution.objective for solution in solutions])
    assert np.all(np.diff(values) >= -1e-8)
    assert np.all(np.diff(values, 2) <= 1e-8)
    slopes = [solution.multipliers[0] for solution in solutions]
    for i in range(
        len(radii) - 1
    ):  # the multiplier is the derivative in the radius: it lies between the slopes of the chords
        chord = (values[i + 1] - values[i]) / (radii[i + 1] - radii[i])
        assert slopes[i] >= chord - 1e-6
        assert slopes[i + 1] <= chord + 1e-6


@pytest.mark.parametrize("sense", ["==", "<=", ">="])
def test_multipliers_are_the_derivatives_of_the_optimum(sense: str, space: ksos.SoSSpace) -> None:
    functional, f, h = SquaredMMD(X) + 1e-2 * Trace(), coordinate(0), 1e-4

    def solve(c: float) -> ksos.Solution:
        expectation = Expectation(f)
        constraint = {"==": expectation == c, "<=": expectation <= c, ">=": expectation >= c}[sense]
        return ksos.minimize(functional, space, constraint, tol=1e-11)

    c = -0.3 if sense == "<=" else 0.4
    slope = (solve(c + h).objective - solve(c - h).objective) / (2 * h)
    assert solve(c).multipliers[0] == pytest.approx(slope if sense == ">=" else -slope, rel=1e-3)


def test_the_objective_and_the_density_tell_the_same_story(space: ksos.SoSSpace) -> None:
    constraints = [Expectation(coordinate(0)) == 0.2, Expectation(QUADRANT) == 0.4]
    p = ksos.minimize(SquaredMMD(X), space, constraints).distribution
    assert p.mean()[0] == pytest.approx(0.2, abs=1e-7)
    grid = np.linspace(-6.0, 6.0, 301)
    nodes = np.stack([g.ravel() for g in np.meshgrid(grid, grid)], axis=1)
    step = (grid[1] - grid[0]) ** 2
    edge = np.where(nodes == 0.0, 0.5, np.where(nodes > 0.0, 1.0, 0.0)).prod(axis=1)
    assert float(np.sum(p.pdf(nodes) * edge)) * step == pytest.approx(0.4, abs=1e-3)


@pytest.mark.parametrize(
    "measure",
    [Box([-2.0, -2.0], [2.0, 2.0]), Normal(0.0, 1.0), Discrete(points(60, 2, 3))],
    ids=["box", "normal", "discrete"],
)
@pytest.mark.parametrize(
    "kernel", [Gaussian(0.8), Laplace(0.8, product=True)], ids=["gaussian", "laplace"]
)
def test_other_kernels_and_measures(kernel: Any, measure: Any) -> None:
    if isinstance(kernel, Laplace) and isinstance(measure, Normal):
        pytest.skip("no closed form")
    space = ksos.SoSSpace(kernel, points(8, 2), measure)
    constraints = [within(MMD(X), 0.4), Expectation(coordinate(0)) >= 0.1]
    solution = ksos.minimize(-Expectation(LOSS), space, constraints)
    assert solution.status == "solved"
    assert_feasible(constraints, solution)
    assert (
        solution.objective - lagrangian_bound(-Expectation(LOSS), constraints, solution)
        <= 1e-8 + 1e-12
    )


SMALL_BALLS = {
    "linear": Expectation(coordinate(0)),
    "variance": -Expectation(coordinate(0) ** 2),
    "barycenter": SquaredMMD(points(9, 1, 5) + 0.7),
    "trace": SquaredMMD(points(9, 1, 5) + 0.7) + 0.01 * Trace(),
    "frobenius": Frobenius(relative=True),
    "distance": 3.0 * MMD(points(9, 1, 5) + 0.7),
}


@pytest.mark.parametrize("ratio", [1.01, 1.2, 3.0])
@pytest.mark.parametrize("moment", [False, True], ids=["", "mean"])
@pytest.mark.parametrize("objective", SMALL_BALLS)
def test_balls_barely_larger_than_empty_are_solved_to_the_tolerance(
    objective: str, moment: bool, ratio: float
) -> None:
    """Their multipliers are large, so the direction in which the point leaves the ball is known to
    too few digits to certify anything.
    """
    data, functional = points(12, 1, 3), SMALL_BALLS[objective]
    space = ksos.SoSSpace(Gaussian(0.5), np.linspace(-2.5, 2.5, 20)[:, None])
    nearest = ksos.minimize(SquaredMMD(data), space, tol=1e-13)
    constraints: list[Constraint] = [within(MMD(data), ratio * math.sqrt(nearest.objective))]
    if moment:
        # digits that do not depend on the way to the nearest density
        mean = round(float(nearest.distribution.mean()[0]), 6)
        constraints.append(Expectation(coordinate(0)) == mean)
    solution = ksos.minimize(functional, space, constraints, tol=1e-8)
    assert solution.gap is not None, solution.message
    assert solution.gap <= 1e-8 * max(1.0, abs(solution.objective)), solution.message
    assert solution.n_iter < 100
    assert_feasible(constraints, solution, 1e-11)
    again = solution.objective - lagrangian_bound(functional, constraints, solution)
    assert again == pytest.approx(solution.gap, abs=5e-9 * max(1.0, abs(solution.objective)))


def test_a_solver_that_was_named_is_the_one_that_runs(space: ksos.SoSSpace) -> None:
    ball = within(MMD(X), 0.3)
    assert ksos.minimize(-Expectation(LOSS), space, ball).solver == "interior_point"
    for name in ("low_rank", "interior_point", "fista"):
        assert ksos.minimize(-Expectation(LOSS), space, ball, solver=name, tol=1e-4).solver == name


# --- nothing feasible -----------------------------------------------------------------------------


def test_an_empty_ball_names_its_least_radius(space: ksos.SoSSpace) -> None:
    nearest = ksos.minimize(SquaredMMD(X), space, tol=1e-13)
    least = math.sqrt(nearest.objective)
    assert least > 0.01
    solution = ksos.minimize(-Expectation(LOSS), space, within(MMD(X), 0.5 * least))
    assert solution.status == "infeasible"
    assert solution.gap is None
    assert solution.least_radius == pytest.approx(least, rel=1e-3)
    assert solution.least_radius <= least + 1e-12
    assert f"{solution.least_radius:.6g} (certified)" in solution.message
    assert solution.distribution.terms.mass() == pytest.approx(1.0, abs=1e-9)
    assert (
        ksos.minimize(-Expectation(LOSS), space, within(MMD(X), 0.999 * least)).status
        == "infeasible"
    )
    just = ksos.minimize(-Expectation(LOSS), space, within(MMD(X), 1.01 * least), tol=1e-6)
    assert just.status == "solved"
    assert_feasible([within(MMD(X), 1.01 * least)], just)


def test_an_expectation_out_of_reach_names_what_is_in_reach(space: ksos.SoSSpace) -> None:
    D = Expectation(coordinate(0)).bind(space).D  # type: ignore[attr-defined]
    low, high = np.linalg.eigvalsh(D)[[0, -1]]
    for constraint in (
        Expectation(coordinate(0)) >= high + 0.1,
        Expectation(coordinate(0)) <= low - 0.1,
        Expectation(coordinate(0)) == 9.0,
    ):
        solution = ksos.minimize(SquaredMMD(X), space, constraint)
        assert solution.status == "infeasible"
        assert f"takes values from {low:.6g} to {high:.6g}" in solution.message
    assert (
        ksos.minimize(
            SquaredMMD(X), space, Expectation(coordinate(0)) >= high - 0.05, tol=1e-6
        ).status
        == "solved"
    )


def test_constraints_that_exclude_each_other(space: ksos.SoSSpace) -> None:
    apart = [within(MMD(X), 0.2), Expectation(coordinate(0)) >= 0.9]
    solution = ksos.minimize(SquaredMMD(X), space, apart)
    assert solution.status == "infeasible"
    nearest = ksos.minimize(SquaredMMD(X), space, apart[1:], tol=1e-9)
    assert solution.least_radius == pytest.approx(math.sqrt(nearest.objective), rel=1e-5)
    assert solution.least_radius <= math.sqrt(nearest.objective)
    assert "given the other constraints, the least radius" in solution.message
    both = [
        Expectation(coordinate(0)) >= 0.5,
        Expectation(QUADRANT) >= 0.9,
        Expectation(BoxIndicator([-np.inf, -np.inf], [0.0, np.inf])) >= 0.5,
    ]
    solution = ksos.minimize(SquaredMMD(X), space, both)
    assert solution.status == "infeasible"
    assert "not together" in solution.message
    assert solution.violation > 0.0


# --- options, limits, refusals
# ---------------------------------------------------------------------


@pytest.mark.parametrize("solver", ["auto", *SOLVERS])
def test_every_inner_solver_gives_valid_bounds(solver: str, space: ksos.SoSSpace) -> None:
    constraints = [within(MMD(X), 0.3), Expectation(coordinate(0)) <= 0.05]
    best = ksos.minimize(SquaredMMD(X[:3]) + 1e-3 * Trace(), space, constraints, tol=1e-9)
    solution = ksos.minimize(
        SquaredMMD(X[:3]) + 1e-3 * Trace(),
        space,
        constraints,
        solver=solver,
        tol=1e-4,
        max_iter=3000,
    )
    assert solution.status in ("solved", "max_iter")
    assert solution.status == "solved" or solver in ("projected_gradient", "frank_wolfe")
    if solution.gap is not None:
        assert_feasible(constraints, solution)
        assert solution.dual_bound <= best.objective + 1e-9
        assert solution.objective >= best.dual_bound - 1e-9


def test_a_warm_start_saves_steps(space: ksos.SoSSpace) -> None:
    cold = ksos.minimize(-Expectation(LOSS), space, within(MMD(X), 0.3))
    warm = ksos.minimize(-Expectation(LOSS), space, within(MMD(X), 0.3), start=cold.parameter)
    assert warm.status == "solved"
    assert warm.n_iter <= cold.n_iter
    assert warm.objective == pytest.approx(cold.objective, abs=2e-8)


def test_limits_and_callbacks_are_obeyed(space: ksos.SoSSpace) -> None:
    constraints = [within(MMD(X), 0.3)]
    few = ksos.minimize(-Expectation(LOSS), space, constraints, max_iter=3)
    assert few.status == "max_iter"
    assert few.n_iter <= 4
    assert "max_iter" in few.message
    assert few.distribution.terms.mass() == pytest.approx(1.0, abs=1e-9)
    assert (
        ksos.minimize(
            -Expectation(LOSS), space, constraints, solver="fista", tol=1e-14, time_limit=0.005
        ).status
        == "time_limit"
    )
    seen: list[Progress] = []

    def stop(progress: Progress) -> bool:
        seen.append(progress)
        return len(seen) == 2

    stopped = ksos.minimize(-Expectation(LOSS), space, constraints, callback=stop)
    assert stopped.status == "interrupted"
    assert not stopped.keyboard_interrupt
    assert len(seen) == 2
    if stopped.gap is not None:
        assert_feasible(constraints, stopped)


def test_refusals(space: ksos.SoSSpace) -> None:
    F, e = SquaredMMD(X), Expectation(coordinate(0))
    with pytest.raises(TypeError, match="constraints are written within"):
        ksos.minimize(F, space, [0.3])
    with pytest.raises(TypeError, match="got False"):
        ksos.minimize(F, space, (SquaredMMD(X) == 0.3,))
    with pytest.raises(
        TypeError, match="neither true nor false; pass both sides of a double inequality"
    ):
        ksos.minimize(F, space, 0.1 <= e <= 0.2)  # Python reads this as "and"
    with pytest.raises(TypeError, match="is not a convex constraint"):
        SquaredMMD(X) >= 0.1  # noqa: B015
    for radius in (0.0, -1.0, np.nan, "0.3"):
        with pytest.raises(ValueError, match="radius must be"):
            within(MMD(X), radius)
    with pytest.raises(ValueError, match="radius of an MMD ball must be positive"):
        ksos.minimize(F, space, MMD(X) <= -0.1)
    with pytest.raises(TypeError, match=r"within takes MMD\(target\), not squared"):
        within(SquaredMMD(X), 0.1)  # type: ignore[arg-type]
    for bound in (np.nan, np.inf):
        with pytest.raises(ValueError, match="the bound of Expectation"):
            e <= bound  # noqa: B015
    for functional, constraint in (
        (MMD(X) + Trace(), within(MMD(X), 0.3)),
        (F, SquaredMMD(X) <= 0.3),
    ):
        with pytest.raises(
            ValueError, match=r"solver='interior_point' cannot take .* with these constraints"
        ):
            ksos.minimize(functional, space, constraint, solver="interior_point")
    with pytest.raises(ValueError, match="function of 1 features"):
        ksos.minimize(F, space, Expectation(BoxIndicator([0.0], [1.0])) <= 0.1)
    assert repr(e >= 0.25) == "Expectation(Polynomial(x0)) >= 0.25"
    assert isinstance(0.25 >= e, Constraint)  # noqa: SIM300
    assert (e == e) is True
    assert hash(e) == hash(e)


@pytest.mark.parametrize("backend", ["torch", "array_api_strict"])
def test_other_backends_give_the_same_answers(backend: str, space: ksos.SoSSpace) -> None:
    xp = pytest.importorskip(backend)
    there = ksos.SoSSpace(Gaussian(1.0), xp.asarray(points(8, 2)))
    for name, constraint in (("expectation", "all"), ("squared mmd", "ball"), ("l2", "moments")):
        here = ksos.minimize(OBJECTIVES[name], space, CONSTRAINTS[constraint])
        solution = ksos.minimize(OBJECTIVES[name], there, CONSTRAINTS[constraint])
        assert solution.status == "solved"
        assert solution.objective == pytest.approx(here.objective, abs=2e-8)
        assert type(solution.parameter_factor).__module__.startswith(backend)
    empty = ksos.minimize(OBJECTIVES["expectation"], there, within(MMD(X), 1e-3))
    assert empty.status == "infeasible"
    path = ksos.minimize(
        OBJECTIVES["expectation"], there, CONSTRAINTS["all"], solver="interior_point", tol=1e-7
    )
    assert path.status == "solved"


def test_the_only_density_meets_what_quadrature_over_it_has_given() -> None:
    """The kink of the step is no node of the rule: the answer is off by more than rounding."""
    space = ksos.SoSSpace(Laplace(0.7), [[0.3]])
    p = space.density(np.ones((1, 1)))
    for f in (lambda X: (X[:, 0] > 0.3).astype(float), lambda X: np.sin(X[:, 0])):
        value = float(p.expectation(f))
        for constraint in (Expectation(f) == value, Expectation(f) <= value):
            assert ksos.minimize(SquaredMMD([[0.3]]), space, constraint).status == "solved"
        far = Expectation(f) == value + 1e-6
        assert ksos.minimize(SquaredMMD([[0.3]]), space, far).status == "infeasible"
