"""What a solution says is true of the density that it returns: objective, gap, mass and
constraints, by quadrature over ψ.
"""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from oracles import brute_objective, quadrature_rule
from scipy.linalg import eigh

import ksos
from ksos.functionals import MMD, Expectation, Objective, SquaredL2, SquaredMMD, Trace, within
from ksos.kernels import Gaussian, Kernel, Laplace, Matern
from ksos.measures import Box, Discrete, Lebesgue, Measure
from ksos.observables import NumericFunction, as_observable, coordinate
from ksos.space import CompressedMap

KERNELS = {"gaussian": Gaussian(0.7), "laplace": Laplace(0.7, product=True)}
KERNELS |= {f"matern {order}": Matern(order, 0.7, product=True) for order in (1.5, 2.5)}
BOX = Box([-2.0], [2.0])
MEASURES: dict[str, Measure] = {
    "lebesgue": Lebesgue(),
    "box": BOX,
    "rule": Discrete.quadrature(BOX, 60),
    "atoms": Discrete(np.random.default_rng(1).uniform(-2.0, 2.0, (50, 1))),
}


def clustered(seed: int = 0, n: int = 12) -> np.ndarray:
    """Two clusters, of which one is so narrow that the space has weak directions."""
    rng = np.random.default_rng(seed)
    return np.concatenate([rng.normal(-1.0, 0.05, (n, 1)), rng.normal(1.0, 0.3, (n, 1))]).clip(
        -2.0, 2.0
    )


def verdict(
    solution: ksos.Solution, X: np.ndarray, penalty: float, squared: bool
) -> tuple[float, float, float]:
    """(mass, objective, gap) of a solution from ψ at the nodes of another rule: G = ∇f, gap = ⟨G,
    C⟩ − λ_min(G, ∫ψψᵀdρ).
    """
    space = solution.space
    A, z, D = brute_objective(space, X)
    nodes, w = quadrature_rule(
        space.kernel, space.measure, np.concatenate([space.support_points, space.landmarks])
    )
    psi = space.kernel(nodes, space.support_points) @ space.T
    N = (psi * (w * np.exp(-space.log_unit))[:, None]).T @ psi
    C, penalty = solution.parameter, penalty * np.exp(-space.log_unit)
    residual = np.einsum("kij,ij->k", A, C) - z
    size = np.linalg.norm(residual)
    value = (size**2 if squared else size) + penalty * np.vdot(D, C)
    G = np.einsum("kij,k->ij", A, 2.0 * residual if squared else residual / size) + penalty * D
    mass = float(np.vdot(N, C))
    return mass, value, float(np.vdot(G, C) - eigh(G, N, eigvals_only=True)[0] * mass)


@pytest.mark.parametrize("measure", MEASURES)
@pytest.mark.parametrize("kernel", KERNELS)
@pytest.mark.parametrize(
    ("squared", "penalty"), [(True, 0.0), (False, 1e-4)], ids=["squared", "distance"]
)
def test_objective_gap_and_mass_are_those_of_the_density(
    kernel: str, measure: str, squared: bool, penalty: float
) -> None:
    X = clustered()
    functional = (SquaredMMD if squared else MMD)(X) + penalty * Trace()
    solution = ksos.minimize(functional, ksos.SoSSpace(KERNELS[kernel], X, MEASURES[measure]))
    mass, objective, gap = verdict(solution, X, penalty, squared)
    assert solution.status == "solved"
    assert mass == pytest.approx(1.0, abs=1e-9)
    assert solution.objective == pytest.approx(objective, abs=1e-9)
    assert gap <= solution.gap + 1e-9
    p = solution.distribution
    nodes, w = quadrature_rule(p.kernel, p.measure, X)
    assert w @ p.pdf(nodes) == pytest.approx(1.0, abs=1e-9)


@pytest.mark.parametrize("kernel", ["gaussian", "matern 2.5"])
def test_rounding_where_the_basis_is_not_formed_at_nodes_is_known(kernel: str) -> None:
    X = clustered()
    space = ksos.SoSSpace(KERNELS[kernel], X, BOX)
    streamed = CompressedMap.streamed(
        space.integrals, X, X, space.kernel, space.T, space.projection.S, space.log_unit
    )
    y = np.random.default_rng(0).normal(size=(20, space.embedding_rank))
    known = np.array([streamed.rounding(row) for row in y])
    off = np.array([np.linalg.norm(streamed.adjoint(row) - space.map.adjoint(row)) for row in y])
    assert off.max() > 1e-7  # which is what the nodes are for
    # a row may lose hardly any digit by chance
    usual = np.maximum(off, np.median(off))
    assert np.all(off <= known) and np.all(known <= 300.0 * usual)
    for row in y:  # in the order of matrices: E ± off is positive, to rounding
        E, apart = (
            streamed.rounding_matrix(row),
            streamed.adjoint(row) - space.map.adjoint(row),
        )
        root = np.linalg.cholesky(E)
        share = np.linalg.eigvalsh(np.linalg.solve(root, np.linalg.solve(root, apart).T))
        assert 1e-4 < np.abs(share).max() <= 1.0


def test_a_penalty_makes_rounding_in_weak_directions_harmless() -> None:
    """Two features of a box, bandwidths small beside the range: too many nodes for a rule, and all
    digits are there.
    """
    X = np.random.default_rng(0).gamma(2.0, 1.0, size=(160, 2))
    space = ksos.SoSSpace(Gaussian(0.6), X, Box([0.0, 0.0], [np.inf, np.inf]))
    assert space.map.noise is not None
    solution = ksos.minimize(SquaredMMD(X) + 1e-3 * Trace(relative=True), space)
    assert solution.status == "solved" and solution.gap <= 1e-10
    residual = space.embed(solution.parameter) - space.coordinates(X)
    assert 2.0 * space.map.rounding(2.0 * residual) > 1e-8, "what a norm would say"


def test_rounding_counts_in_the_gap() -> None:
    """Five features of a box have no rule: the closed forms, and with weak directions a gap that
    says what they cost.
    """
    rng = np.random.default_rng(0)
    X = np.concatenate(
        [rng.normal(scale=0.3, size=(12, 1)), 1e-3 * rng.normal(size=(12, 4))], axis=1
    )
    space = ksos.SoSSpace(Gaussian(2.0), X, Box([-1.0] * 5, [1.0] * 5))
    solution = ksos.minimize(SquaredMMD(X), space)
    assert space.map.noise is not None
    residual = space.embed(solution.parameter) - space.coordinates(X)
    E = space.map.rounding_matrix(2.0 * residual)
    least = min(space.map.rounding(2.0 * residual), np.vdot(E, solution.parameter))
    assert solution.gap >= 2.0 * least > 0.0
    assert (solution.status == "solved") == (solution.gap <= 1e-8)


def test_squares_of_kernels_with_kinks_in_the_plane() -> None:
    """∫p² by another rule, panel by panel between the kinks."""
    X = np.random.default_rng(0).normal(size=(12, 2))
    for kernel in (Laplace(0.5, product=True), Matern(1.5, 0.5, product=True)):
        solution = ksos.minimize(
            SquaredL2(X, relative=True) + 1e-3 * Trace(relative=True),
            ksos.SoSSpace(kernel, X[:4]),
            tol=1e-6,
        )
        assert solution.status == "solved" and solution.integration_error <= 1e-8
        p, unit = solution.distribution, np.exp(solution.space.log_unit)
        nodes, w = quadrature_rule(kernel, p.measure, X[:4], reach=4.0)
        penalty = 1e-3 * np.vdot(solution.space.trace_matrix, solution.parameter)
        assert solution.objective == pytest.approx(
            unit * (w @ p.pdf(nodes) ** 2 - 2.0 * p.pdf(X).mean()) + penalty, abs=1e-7
        )


@pytest.mark.parametrize("constrained", [False, True])
def test_what_quadrature_does_not_know_counts_in_the_gap(constrained: bool) -> None:
    X = clustered()
    pole = NumericFunction(lambda Y: 1.0 / (Y[:, 0] - 0.3), max_nodes=256)
    constraints: Any = [Expectation(coordinate(0)) <= 5.0] if constrained else ()
    solution = ksos.minimize(Expectation(pole), ksos.SoSSpace(Gaussian(1.0), X, BOX), constraints)
    assert solution.integration_error > 1.0
    assert (
        solution.status == "solved_inaccurate" and solution.gap >= 2.0 * solution.integration_error
    )
    assert "the integrals are known to" in solution.message


def test_a_constraint_that_is_known_by_quadrature_counts_with_its_multiplier() -> None:
    X = clustered()
    space = ksos.SoSSpace(Gaussian(1.0), X, BOX)
    step = NumericFunction(lambda Y: np.where(Y[:, 0] > 0.1234, 1.0, 0.0), max_nodes=256)
    solution = ksos.minimize(SquaredMMD(X) + 1e-3 * Trace(), space, Expectation(step) <= 0.3)
    error = Expectation(step).bind(space).integration_error
    assert error > 1e-6 and solution.multipliers[0] > 1e-3
    assert (
        solution.gap >= 2.0 * error * solution.multipliers[0]
        and solution.status == "solved_inaccurate"
    )


# --- a constraint that the unconstrained optimum meets changes nothing, at any rank ---

FEW: dict[str, tuple[np.ndarray, float]] = {
    "one point": (np.array([[0.3]]), 1.0),
    "equal points": (np.full((5, 1), 2010.0), 1.0),
    "a huge bandwidth": (clustered(n=3), 1e6),
    "one point of the plane": (np.array([[0.3, -1.0]]), 1.0),
    "two directions": (np.array([[0.0], [1e-3]]), 1.0),
}


@pytest.mark.parametrize("solver", ["auto", "low_rank", "fista", "interior_point"])
@pytest.mark.parametrize(
    "kernel", [Gaussian, lambda sigma: Laplace(sigma, product=True)], ids=["gaussian", "laplace"]
)
@pytest.mark.parametrize("data", FEW)
def test_idle_constraints_change_nothing(data: str, kernel: Any, solver: str) -> None:
    X, sigma = FEW[data]
    k: Kernel = kernel(sigma)
    space = ksos.SoSSpace(k, X, Box(X.mean(axis=0) - 3.0, X.mean(axis=0) + 3.0))
    functional = SquaredMMD(X) + 1e-3 * Trace(relative=True)
    free = ksos.minimize(functional, space)
    mean, away = (
        float(free.distribution.mean()[0]),
        ksos.mmd(X, free.distribution, k, landmarks=space.landmarks),
    )
    first = Expectation(coordinate(0))
    for constraints in (
        [first <= mean + 1.0],
        [first >= mean - 1.0],
        [within(MMD(X), away + 0.1)],
        [first <= mean + 1e-6 * (1.0 + abs(mean))],
    ):
        found = ksos.minimize(functional, space, constraints, solver=solver)
        assert found.status == "solved", (constraints, found.message)
        assert (
            found.objective == pytest.approx(free.objective, abs=2e-8) and found.violation <= 1e-11
        )
    found = ksos.minimize(functional, space, [first >= mean + 10.0], solver=solver)
    assert found.status == "infeasible" and "it takes values from" in found.message


def test_the_only_density_and_a_ball_that_is_too_small() -> None:
    X = np.array([[0.3]])
    space = ksos.SoSSpace(Gaussian(1.0), X, BOX)
    away = ksos.mmd(X, space.density(np.ones((1, 1))), Gaussian(1.0), landmarks=X)
    found = ksos.minimize(Expectation(coordinate(0)), space, within(MMD(X), 0.5 * away))
    assert found.status == "infeasible" and found.least_radius == pytest.approx(away)


@pytest.mark.parametrize("X", [[[0.0]], [[0.3]], [[0.0]] * 4], ids=["zero", "one", "equal"])
def test_the_only_density_meets_what_it_meets_to_rounding(X: list[list[float]]) -> None:
    """Bounds that are taken from the density itself, whose values may cancel to nothing."""
    space = ksos.SoSSpace(Gaussian(1.0), X)
    p = space.density(np.ones((1, 1)))
    # the trapezoidal rule is exact to rounding for a Gaussian bump
    nodes = X[0][0] + np.linspace(-9.0, 9.0, 2001)[:, None]
    masses, x = p.pdf(nodes) * 0.009, coordinate(0)
    away = ksos.mmd(X, p, space.kernel, landmarks=space.landmarks)
    met = [Expectation(x) >= X[0][0] + 4.8e-18, within(MMD(X), away)]
    met += [Expectation(x**k) == float(masses @ nodes[:, 0] ** k) for k in (1, 2, 3)]
    for constraint in met:
        found = ksos.minimize(SquaredMMD(X), space, constraint)
        assert found.status == "solved" and found.gap <= 1e-8, (constraint, found.message)
    missed = [Expectation(x) >= X[0][0] + 1e-6, Expectation(x) == X[0][0] - 1e-6]
    for constraint in [*missed, within(MMD(X), 0.999 * away)]:
        assert ksos.minimize(SquaredMMD(X), space, constraint).status == "infeasible", constraint


@pytest.mark.parametrize("solver", ["lbfgs", "fista", "frank_wolfe"])
def test_what_is_reported_of_a_run_that_was_cut_short_is_recomputed(solver: str) -> None:
    """Sums over pairs, with which these solvers work, round far more than the tensor with which
    their answers are certified.
    """
    X = np.random.default_rng(0).normal(size=(40, 2))
    space = ksos.SoSSpace(Gaussian(0.8), X)
    solution = ksos.minimize(MMD(X), space, solver=solver, max_iter=50)
    stored = Objective.of(MMD(X), space, stored=True)
    assert solution.status == "max_iter" and not isinstance(space.map, CompressedMap)
    assert solution.objective == stored.value(stored.point(solution.parameter))


# --- numbers of any size, and callbacks of any kind ---


@pytest.mark.parametrize("scale", [1e-6, 1.0, 1e4, 1e12])
def test_a_gap_is_not_smaller_than_what_rounding_leaves_of_it(scale: float) -> None:
    X = clustered()
    functional = scale * SquaredMMD(X) + (1e-3 * scale) * Trace()
    solution = ksos.minimize(functional, ksos.SoSSpace(Gaussian(0.7), X, BOX))
    assert solution.gap >= 2.0**-52 * solution.objective
    assert (solution.status == "solved") == (solution.gap <= 1e-8)
    _, objective, gap = verdict(solution, X, 1e-3, True)
    assert (
        solution.objective == pytest.approx(scale * objective, rel=1e-9)
        and scale * gap <= solution.gap + 1e-9 * scale
    )
    only = ksos.minimize(
        scale * SquaredMMD([[0.5]]), ksos.SoSSpace(Gaussian(1.0), [[0.0]])
    )  # there is no other density
    assert only.gap == 0.0 < only.objective


@pytest.mark.parametrize(
    "constraints", [(), [Expectation(coordinate(0)) <= -0.2]], ids=["free", "constrained"]
)
def test_what_a_callback_does_is_its_own(constraints: Any) -> None:
    X = clustered(n=4)
    space = ksos.SoSSpace(Gaussian(1.0), X)

    def raises(_: Any) -> None:
        raise np.linalg.LinAlgError("the callback's own")

    with pytest.raises(np.linalg.LinAlgError, match="the callback's own"):
        ksos.minimize(SquaredMMD(X), space, constraints, callback=raises)
    with pytest.raises(
        TypeError,
        match="a callback must return something that is true or false, such as None; got array",
    ):
        ksos.minimize(SquaredMMD(X), space, constraints, callback=lambda _: np.zeros(3))


@pytest.mark.parametrize(
    "call",
    [
        lambda X: 1e308 * Trace(),
        lambda X: 10**400 * Trace(),
        lambda X: Expectation(coordinate(0)) <= 10**400,
        lambda X: coordinate(0) * 10**400,
        lambda X: ksos.SoSSpace(Gaussian(1.0), [[10**400]]),
        lambda X: ksos.KernelSoSDensity(bandwidth=1.0, regularization=1e308).fit(X),
        lambda X: ksos.KernelSoSDensity(bandwidth=1.0, regularization=10**400).fit(X),
    ],
)
def test_numbers_beyond_floats_are_refused_in_words(call: Any) -> None:
    with pytest.raises(ValueError, match=r"1e308|range of floats"):
        call(clustered(n=4))


@pytest.mark.parametrize(
    "kernel", [Gaussian(1.0), Laplace(1.0, product=True)], ids=["gaussian", "laplace"]
)
@pytest.mark.parametrize("measure", [Lebesgue(), BOX], ids=["lebesgue", "box"])
def test_landmarks_out_of_sight_see_nothing(kernel: Kernel, measure: Measure) -> None:
    X = clustered(n=4)
    solution = ksos.minimize(
        SquaredMMD(X), ksos.SoSSpace(kernel, X, measure, landmarks=[[1e200], [-2e200]])
    )
    assert (solution.status, solution.objective) == ("solved", 0.0)


@pytest.mark.parametrize("solver", ["low_rank", "interior_point", "lbfgs", "fista", "frank_wolfe"])
@pytest.mark.parametrize("measure", ["lebesgue", "box"])
def test_the_gap_of_a_run_that_was_cut_short_is_what_it_is_by_definition(
    solver: str, measure: str
) -> None:
    X = clustered(3)
    space = ksos.SoSSpace(Gaussian(0.7), X, MEASURES[measure])
    solution = ksos.minimize(SquaredMMD(X) + 1e-3 * Trace(), space, solver=solver, max_iter=3)
    _, objective, gap = verdict(solution, X, 1e-3, True)
    assert solution.gap > 1e-6
    assert (solution.objective, solution.gap) == (
        pytest.approx(objective, rel=1e-8),
        pytest.approx(gap, rel=1e-6),
    )


@pytest.mark.parametrize("solver", ["auto", "low_rank", "fista"])
def test_a_constraint_on_what_does_not_vary_is_met_or_not(solver: str) -> None:
    X = clustered(n=4)
    space, functional = (
        ksos.SoSSpace(Gaussian(1.0), X, BOX),
        SquaredMMD(X) + 1e-3 * Trace(relative=True),
    )
    free, two = ksos.minimize(functional, space), Expectation(as_observable(2.0))
    for constraint in (two <= 2.5, two == 2.0, two >= 1.0):
        found = ksos.minimize(functional, space, constraint, solver=solver)
        assert found.status == "solved" and found.objective == pytest.approx(
            free.objective, abs=2e-8
        ), (constraint, found.message)
    assert ksos.minimize(functional, space, two <= 1.0, solver=solver).status == "infeasible"
