"""Spaces that hold the constant function, over reference measures: the embedding map agrees with
quadrature, certificates are true, and the strongest penalty leaves the reference.
"""

from __future__ import annotations

import numpy as np
import pytest
from oracles import tolerance
from tables import REACH, SOLVER_CASES, points

from ksos import SoSSpace, minimize, mmd
from ksos.exceptions import IntegralNotAvailableError
from ksos.functionals import MMD, Expectation, NegativeLogLikelihood, SquaredL2, SquaredMMD, Trace
from ksos.integrals import WithConstant
from ksos.kernels import Gaussian
from ksos.measures import Box, Discrete, GaussianMixture, Measure, Normal
from ksos.observables import BoxIndicator, KernelFunction, coordinate
from ksos.space import MeanEmbedding

MIXTURE = GaussianMixture([1, 2, 0.5], [[0.3], [-1.6], [4.0]], [[0.5], [0.2], [2.0]])
REFERENCES: dict[str, Measure] = {
    "mixture": MIXTURE,
    "normal": Normal(0.5, 2.0),
    "box": Box([-6.0], [9.0]),
    "discrete": Discrete(np.linspace(-6.0, 9.0, 301)[:, None]),
}
SUPPORT = np.array([[-2.5], [-1.4], [-0.3], [0.9], [2.6], [4.1]])
OBJECTIVES = {"squared mmd": SquaredMMD, "mmd": MMD, "likelihood": NegativeLogLikelihood}


def data() -> np.ndarray:
    return np.concatenate([0.5 * points(40, 1, 1) - 1.0, points(20, 1, 2) + 3.0])


def nodes_of(measure: Measure) -> tuple[np.ndarray, np.ndarray]:
    """Nodes and weights against a measure on the line."""
    if measure.atoms is not None:
        return measure.atoms.points, measure.atoms.weights
    low, high = (
        (-20.0, 24.0) if measure.region is None else (measure.region.low[0], measure.region.high[0])
    )
    t, w = np.polynomial.legendre.leggauss(20)
    edges = np.linspace(low, high, 200)
    half = 0.5 * np.diff(edges)[:, None]
    x = (edges[:-1, None] + half + half * t).ravel()[:, None]
    return x, (half * w).ravel() * np.exp(measure.log_density(x))


def by_quadrature(space: SoSSpace) -> np.ndarray:
    """A_kij = ∫ e_k ψ_i ψ_j dρ."""
    x, w = nodes_of(space.measure)
    psi, e = space.basis(x), space.embedding_kernel(x, space.landmarks) @ space.projection.S.T
    w = w * np.exp(-space.log_unit)
    return np.stack([(psi * (w * column)[:, None]).T @ psi for column in e.T])


@pytest.mark.parametrize("name", REFERENCES)
@pytest.mark.parametrize("embedding", [None, Gaussian(1.5)])
def test_the_map_is_that_of_quadrature(name: str, embedding: Gaussian | None) -> None:
    space = SoSSpace(
        Gaussian(0.8), SUPPORT, REFERENCES[name], embedding, SUPPORT[::2], constant=True
    )
    wanted, found = by_quadrature(space), space.map.compressed().tensor
    assert found.shape == (3, 7, 7)
    np.testing.assert_allclose(found, wanted, atol=tolerance() * np.abs(wanted).max())
    np.testing.assert_allclose(found, found.transpose(0, 2, 1), atol=0.0)


@pytest.mark.parametrize("constant", [True, False])
def test_correlated_features_over_a_mixture(constant: bool) -> None:
    """Component by component, the map is that of the triple integrals themselves."""
    covariances = [[[0.5, 0.2], [0.2, 0.3]], [[0.3, -0.1], [-0.1, 0.6]]]
    measure = GaussianMixture([2, 1], [[0.4, 0.0], [-0.5, 0.3]], covariances)
    kernel = Gaussian([[0.64, 0.25], [0.25, 0.3]])
    X = points(6, 2, 3)
    space = SoSSpace(kernel, X, measure, constant=constant)
    integrals = WithConstant(space.integrals) if constant else space.integrals
    u = np.exp(integrals.log_product((kernel, X), (kernel, X), (kernel, X)) - space.log_unit)
    wanted = np.einsum("kr,ia,ijr,jb->kab", space.projection.S, space.T, u, space.T)
    np.testing.assert_allclose(
        space.map.compressed().tensor, wanted, atol=1e-8 * np.abs(wanted).max()
    )


@pytest.mark.parametrize("solver", SOLVER_CASES)
def test_every_solver_finds_the_optimum_and_its_certificate_is_true(solver: str) -> None:
    space = SoSSpace(Gaussian(0.8), SUPPORT, MIXTURE, Gaussian(1.5), constant=True)
    target, tol = data(), REACH.get(solver, 1e-8)
    best = minimize(
        SquaredMMD(target) + 1e-3 * Trace(relative=True), space, solver="interior_point"
    )
    found = minimize(
        SquaredMMD(target) + 1e-3 * Trace(relative=True), space, solver=solver, tol=tol
    )
    assert found.status == "solved"
    assert found.gap <= tol
    assert abs(found.objective - best.objective) <= tol
    p, (x, w) = found.distribution, nodes_of(MIXTURE)
    S, embedded = space.projection.S, space.embedding_kernel(space.landmarks, x) @ (w * p.pdf(x))
    distance = S @ (
        embedded - MeanEmbedding(target, kernel=space.embedding_kernel)(space.landmarks)
    )
    trace = np.exp(space.log_unit) * np.sum(p.factor * (space.kernel(SUPPORT) @ p.factor))
    assert distance @ distance + 1e-3 * trace == pytest.approx(found.objective, abs=1e-10)
    assert mmd(p, target, space.embedding_kernel, space.landmarks) == pytest.approx(
        np.linalg.norm(distance), abs=1e-10
    )


def test_the_objective_is_that_of_the_density_by_volume() -> None:
    """In three features, where the density by volume is a signed sum of normal laws: another route
    to its embedding.
    """
    rng, d = np.random.default_rng(0), 3
    roots = rng.normal(size=(3, d, d))
    measure = GaussianMixture(
        [1, 2, 3], rng.normal(size=(3, d)), roots @ roots.transpose(0, 2, 1) / d + 0.1 * np.eye(d)
    )
    target = points(60, d, 4) + np.random.default_rng(5).gamma(2.0, size=(60, d))
    space = SoSSpace(
        Gaussian(4.0 * np.eye(d) + 1.0), target[:30], measure, Gaussian(3.0), constant=True
    )
    found = minimize(SquaredMMD(target) + 1e-3 * Trace(relative=True), space)
    p = found.distribution
    distance = mmd(p.by_volume(), target, space.embedding_kernel, space.landmarks)
    trace = np.exp(space.log_unit) * np.sum(p.factor * (space.kernel(target[:30]) @ p.factor))
    assert distance**2 + 1e-3 * trace == pytest.approx(found.objective, abs=1e-10)


@pytest.mark.parametrize("name", REFERENCES)
@pytest.mark.parametrize("objective", OBJECTIVES)
def test_the_strongest_penalty_leaves_the_reference(name: str, objective: str) -> None:
    measure = REFERENCES[name]
    space = SoSSpace(Gaussian(0.8), SUPPORT, measure, constant=True)
    p = minimize(OBJECTIVES[objective](data()) + 1e13 * Trace(relative=True), space).distribution
    np.testing.assert_allclose(
        p.pdf(np.linspace(-5.0, 8.0, 60)[:, None]) * np.exp(measure.log_mass(1)), 1.0, rtol=1e-12
    )


@pytest.mark.parametrize("solver", sorted(set(SOLVER_CASES) - {"frank_wolfe"}))
def test_so_do_all_solvers(solver: str) -> None:
    space = SoSSpace(Gaussian(0.8), SUPPORT, MIXTURE, constant=True)
    p = minimize(
        SquaredMMD(data()) + 1e13 * Trace(relative=True), space, solver=solver
    ).distribution
    np.testing.assert_allclose(p.pdf(np.linspace(-5.0, 8.0, 60)[:, None]), 1.0, rtol=1e-12)


@pytest.mark.parametrize("name", ("mixture", "normal"))
@pytest.mark.parametrize("constant", [True, False])
def test_expectations_of_polynomials_kernel_functions_and_boxes(name: str, constant: bool) -> None:
    space = SoSSpace(Gaussian(0.8), SUPPORT, REFERENCES[name], constant=constant)
    x, w = nodes_of(space.measure)
    psi = space.basis(x)
    polynomial = (coordinate(0) - 0.5) ** 4 - 2.0 * coordinate(0) + 1.0
    for f in (polynomial, KernelFunction(SUPPORT[:3], [1.0, -2.0, 0.5], kernel=Gaussian(1.3))):
        wanted = (psi * (np.exp(-space.log_unit) * w * f(x))[:, None]).T @ psi
        np.testing.assert_allclose(
            Expectation(f).bind(space).D, wanted, atol=1e-8 * np.abs(wanted).max()
        )
    edges = np.linspace(0.0, 1.0, 40)
    t, v = np.polynomial.legendre.leggauss(12)
    half = 0.5 * np.diff(edges)[:, None]
    y = (edges[:-1, None] + half + half * t).ravel()[:, None]
    inside = (half * v).ravel() * np.exp(space.measure.log_density(y) - space.log_unit)
    wanted = (space.basis(y) * inside[:, None]).T @ space.basis(y)
    np.testing.assert_allclose(
        Expectation(BoxIndicator([0.0], [1.0])).bind(space).D,
        wanted,
        atol=1e-8 * np.abs(wanted).max(),
    )


def test_a_mean_may_be_prescribed() -> None:
    space = SoSSpace(Gaussian(0.8), SUPPORT, MIXTURE, constant=True)
    found = minimize(
        SquaredMMD(data()) + 1e-3 * Trace(relative=True),
        space,
        constraints=[Expectation(coordinate(0)) == 1.0],
    )
    assert found.status == "solved"
    assert found.distribution.by_volume().mean()[0] == pytest.approx(1.0, abs=1e-6)


def test_what_has_no_closed_form_names_a_remedy() -> None:
    space = SoSSpace(Gaussian(0.8), SUPPORT, MIXTURE, constant=True)
    for functional in (Expectation(np.cos), SquaredL2(data())):
        with pytest.raises(IntegralNotAvailableError, match="leave the constant out"):
            minimize(functional, space)
