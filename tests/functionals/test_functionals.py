"""Expectations, L² distances and users' own functionals: their values by definition, their
derivatives, their refusals.
"""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from oracles import quadrature_rule
from tables import FUNCTIONAL_CASES, PAIR_CASES, PairCase, points, some_point, value

import ksos
from ksos.exceptions import ConvexityError, FunctionalError, IntegralNotAvailableError, KsosError
from ksos.functionals import (
    MMD,
    CustomFunctional,
    Expectation,
    Objective,
    SquaredL2,
    SquaredMMD,
    check_gradient,
    within,
)
from ksos.kernels import Gaussian
from ksos.measures import Box, Discrete
from ksos.observables import BoxIndicator, KernelFunction, coordinate
from ksos.solvers import FactorHessian, LowRank, factor

torch = pytest.importorskip("torch")


@pytest.fixture(scope="module")
def space() -> ksos.SoSSpace:
    return ksos.SoSSpace(Gaussian(1.0), points(8, 2))


@pytest.mark.parametrize("case", PAIR_CASES.values(), ids=PAIR_CASES)
def test_the_expectation_is_the_integral_against_the_density(case: PairCase) -> None:
    space = ksos.SoSSpace(case.kernel, points(4, case.d, 2), case.measure, tol_model=1e-7)
    C = some_point(space.rank)
    p = space.density(factor(C))
    nodes, w = quadrature_rule(case.kernel, case.measure, space.support_points)
    f = coordinate(0) ** 2 - 0.5 * coordinate(case.d - 1)
    assert value(Expectation(f), space, C) == pytest.approx(
        float(np.sum(w * f(nodes) * p.pdf(nodes))), rel=1e-6, abs=1e-8
    )


def test_expectations_are_linear_and_take_what_they_should(space: ksos.SoSSpace) -> None:
    C, f, g = some_point(space.rank), coordinate(0), BoxIndicator([0.0, 0.0], [1.0, 1.0])
    direct = value(Expectation(2.0 * f - g), space, C)
    assert direct == pytest.approx(
        2.0 * value(Expectation(f), space, C) - value(Expectation(g), space, C)
    )
    assert direct == pytest.approx(value(2 * Expectation(f) + -1 * Expectation(g), space, C))
    assert value(-Expectation(f), space, C) == pytest.approx(-value(Expectation(f), space, C))
    embedding = ksos.MeanEmbedding(points(3, 2, 1), [1.0, -0.5, 2.0], kernel=Gaussian(0.7))
    as_function = KernelFunction(embedding.points, embedding.weights, kernel=embedding.kernel)
    assert value(Expectation(embedding), space, C) == pytest.approx(
        value(Expectation(as_function), space, C)
    )
    assert value(Expectation(3.0), space, C) == pytest.approx(3.0)
    code = Objective.of(Expectation(lambda X: X[:, 0]), space)
    assert code.value(code.point(C)) == pytest.approx(value(Expectation(f), space, C), abs=1e-8)
    assert 0.0 < code.term.integration_error < 1e-6
    assert (
        ksos.minimize(Expectation(lambda X: X[:, 0]), space).integration_error
        == code.term.integration_error
    )


@pytest.mark.parametrize(
    "name",
    [
        "gaussian × lebesgue, d=1",
        "gaussian × box, d=2",
        "gaussian × normal, d=2",
        "matern 3/2, product × box, d=1",
        "gaussian × discrete, d=2",
    ],
)
def test_the_squared_l2_distance_is_the_integral(name: str) -> None:
    case = PAIR_CASES[name]
    space = ksos.SoSSpace(case.kernel, points(4, case.d, 2), case.measure, tol_model=1e-6)
    C = some_point(space.rank)
    p = space.density(factor(C))
    other = ksos.SoSDensity(
        case.kernel.with_sigma(1.1),
        points(3, case.d, 5),
        points(3, 2, 6),
        case.measure,
        normalize=True,
    )
    centers = np.concatenate([space.support_points, other.support_points])
    nodes, w = quadrature_rule(case.kernel, case.measure, centers, per_panel=30)
    expected = float(np.sum(w * (p.pdf(nodes) - other.pdf(nodes)) ** 2))
    assert value(SquaredL2(other), space, C) == pytest.approx(expected, rel=1e-7)
    assert value(SquaredL2(other, relative=True), space, C) == pytest.approx(
        expected * np.exp(space.log_unit), rel=1e-7
    )
    X = points(6, case.d, 7)
    criterion = float(np.sum(w * p.pdf(nodes) ** 2) - 2.0 * np.mean(p.pdf(X)))
    if not isinstance(
        case.measure, Box
    ):  # outside a box the density itself is 0, but a basis goes on
        assert value(SquaredL2(X), space, C) == pytest.approx(criterion, rel=1e-7)
        signed = ksos.MeanEmbedding(X, np.linspace(-1.0, 2.0, 6), kernel=Gaussian(1.0))
        expected = float(np.sum(w * p.pdf(nodes) ** 2) - 2.0 * signed.weights @ p.pdf(X))
        assert value(SquaredL2(signed), space, C) == pytest.approx(expected, rel=1e-7)


def test_a_density_of_the_space_is_its_own_nearest_one() -> None:
    space = ksos.SoSSpace(Gaussian(1.0), points(10, 1))
    target = space.density(factor(some_point(space.rank, 3)))
    for functional in (SquaredL2(target), SquaredMMD(target)):
        solution = ksos.minimize(functional, space, tol=1e-10)
        assert solution.objective <= 1e-8
    grid = np.linspace(-3, 3, 50)[:, None]
    nearest = ksos.minimize(SquaredL2(target), space, tol=1e-10).distribution
    np.testing.assert_allclose(nearest.pdf(grid), target.pdf(grid), atol=1e-3)


def test_l2_refusals() -> None:
    space = ksos.SoSSpace(Gaussian(1.0), points(5, 1))
    elsewhere = ksos.SoSDensity(
        Gaussian(1.0), points(3, 1), points(3, 1), Box([-1.0], [1.0]), normalize=True
    )
    with pytest.raises(ValueError, match="density with respect to Box"):
        ksos.minimize(SquaredL2(elsewhere), space)
    with pytest.raises(ValueError, match="target has 2 features, but the space has 1"):
        ksos.minimize(SquaredL2(points(4, 2)), space)
    with pytest.raises(IntegralNotAvailableError, match="use a discrete measure"):
        ksos.minimize(SquaredL2(points(4, 5)), ksos.SoSSpace(Gaussian(1.0), points(5, 5)))
    on_atoms = ksos.SoSSpace(Gaussian(1.0), points(5, 5), Discrete(points(40, 5, 1)))
    assert ksos.minimize(SquaredL2(points(4, 5)), on_atoms, tol=1e-6).status == "solved"


# --- users' own -----------------------------------------------------------------------------------

PLACES = points(6, 2, 4)


def powers(p: np.ndarray) -> tuple[float, np.ndarray]:
    return float(np.sum(p**3)), 3.0 * p**2


CUSTOM = {
    "numpy, values": CustomFunctional(powers, points=PLACES, convex=True),
    "numpy with hessian": CustomFunctional(
        powers, points=PLACES, convex=True, hessian=lambda p: np.diag(6.0 * p)
    ),
    "torch, values": CustomFunctional(
        lambda p: (p**3).sum(), points=PLACES, convex=True, torch=True
    ),
    "torch, coordinates": CustomFunctional(
        lambda a: torch.logsumexp(4 * a, 0), embedding=True, convex=True, torch=True
    ),
    "torch, embedding values": CustomFunctional(
        lambda v: (v**4).sum(), embedding=PLACES, convex=True, torch=True
    ),
    "torch, both": CustomFunctional(
        lambda a, p: torch.logsumexp(torch.cat([a, 3 * p, a[:6] + p]), 0),
        embedding=True,
        points=PLACES,
        convex=True,
        torch=True,
    ),
    "torch, both at points": CustomFunctional(
        lambda v, p: torch.logsumexp(torch.cat([5 * v, 3 * p, v[:2] + p[:2]]), 0),
        embedding=points(3, 2, 9),
        points=PLACES,
        convex=True,
        torch=True,
    ),
}
every_custom = pytest.mark.parametrize("name", CUSTOM)


@every_custom
def test_custom_functionals_have_right_derivatives_and_are_certified(
    name: str, space: ksos.SoSSpace
) -> None:
    functional = CUSTOM[name]
    check = check_gradient(functional, space)
    assert check.gradient < 1e-5
    if functional.torch or functional.hessian is not None:
        assert check.hessian is not None
        assert check.hessian < 1e-5
        assert_newton_hessian_is_right(functional, space)
    else:
        assert check.hessian is None
    solution = ksos.minimize(functional, space, tol=1e-6)
    assert solution.status == "solved"
    assert solution.gap is not None
    assert solution.gap <= 1e-6
    others = [value(functional, space, some_point(space.rank, seed)) for seed in range(5)]
    assert solution.objective - solution.gap <= min(others)
    constrained = ksos.minimize(functional, space, within(MMD(points(12, 2, 1)), 0.3), tol=1e-5)
    assert constrained.status == "solved"
    assert constrained.objective >= solution.dual_bound - 1e-9


def assert_newton_hessian_is_right(functional: Any, space: ksos.SoSSpace) -> None:
    """The second derivative along curves on the sphere of factors, which is what Newton's method
    uses.
    """
    objective, rng = Objective.of(functional, space), np.random.default_rng(0)
    F = rng.normal(size=(space.rank, 2))
    F /= np.linalg.norm(F)
    state = LowRank().at(objective, F, 1e-3)
    E = rng.normal(size=F.shape)
    E -= np.vdot(E, F) * F
    hessian = FactorHessian(objective, state, float(np.vdot(2.0 * state.point.G @ F, F)))

    def along(t: float) -> float:
        G = (F + t * E) / np.linalg.norm(F + t * E)
        return objective.value(objective.point(G @ G.T))

    h = 2e-3 / np.linalg.norm(E)
    numerical = (along(h) - 2.0 * along(0.0) + along(-h)) / h**2
    assert float(np.vdot(E, hessian.apply(E))) == pytest.approx(numerical, rel=2e-3, abs=1e-6)


@pytest.mark.parametrize("name", FUNCTIONAL_CASES)
def test_check_gradient_passes_what_is_right(name: str, space: ksos.SoSSpace) -> None:
    check = check_gradient(FUNCTIONAL_CASES[name], space)
    assert check.gradient < 1e-5
    assert check.hessian is None or check.hessian < 1e-4


def test_check_gradient_sees_what_is_wrong(space: ksos.SoSSpace) -> None:
    assert (
        check_gradient(
            CustomFunctional(lambda p: (float(p @ p), 2.1 * p), points=PLACES), space
        ).gradient
        > 1e-2
    )
    wrong = CustomFunctional(powers, points=PLACES, hessian=lambda p: np.diag(5.0 * p))
    assert check_gradient(wrong, space).gradient < 1e-5
    assert check_gradient(wrong, space).hessian > 1e-2


def test_torch_and_numpy_agree(space: ksos.SoSSpace) -> None:
    one, two = (
        ksos.minimize(CUSTOM[name], space, tol=1e-9)
        for name in ("numpy with hessian", "torch, values")
    )
    assert one.objective == pytest.approx(two.objective, abs=2e-9)


def test_what_is_not_declared_convex_is_not_certified(space: ksos.SoSSpace) -> None:
    wavy = CustomFunctional(lambda p: torch.sin(9 * p).sum(), points=PLACES, torch=True)
    solution = ksos.minimize(wavy, space, tol=1e-6)
    assert solution.status in ("stationary", "max_iter", "solved_inaccurate")
    assert solution.gap is None
    assert solution.gap_relative is None
    assert solution.dual_bound is None
    assert "no gap" in solution.message
    constrained = ksos.minimize(
        wavy, space, Expectation(coordinate(0)) <= 0.1, tol=1e-5, max_iter=500
    )
    assert constrained.status != "solved"
    assert constrained.gap is None
    convex = ksos.minimize(
        CustomFunctional(powers, points=PLACES), space, tol=1e-6
    )  # convex, but nobody said so
    assert convex.status == "stationary"
    assert convex.gap is None


def test_a_violation_of_convexity_is_found_and_raised(space: ksos.SoSSpace) -> None:
    concave = CustomFunctional(lambda p: (-float(p @ p), -2 * p), points=PLACES, convex=True)
    with pytest.raises(
        ConvexityError, match="is declared convex, but between two points its value changes from"
    ):
        ksos.minimize(concave, space)
    only_at_the_end = CustomFunctional(
        lambda p: torch.sqrt(((p - 0.5) ** 2).sum() + 1e-8).pow(0.5),
        points=PLACES[:1],
        convex=True,
        torch=True,
    )
    with pytest.raises(ConvexityError):
        ksos.minimize(only_at_the_end, space)
    wrong_gradient = CustomFunctional(lambda p: (float(p @ p), -2 * p), points=PLACES, convex=True)
    with pytest.raises(ConvexityError, match="check_gradient"):
        ksos.minimize(wrong_gradient, space)


def fails(p: np.ndarray) -> Any:
    raise RuntimeError("no")


@pytest.mark.parametrize(
    ("function", "words"),
    [
        (
            fails,
            r"CustomFunctional\(fails\) raised RuntimeError: no; it was called with shapes \(6,\)",
        ),
        (lambda p: float(p @ p), "must return a value and 1 gradient"),
        (lambda p: (1.0, p[:2]), r"finite gradients of shapes \(6,\); got shape \(2,\)"),
        (lambda p: (np.nan, p), "must be finite on every density"),
        (lambda p: (1.0, np.nan * p), "finite gradients"),
        (lambda p: ("text", p), "raised ValueError"),
    ],
)
def test_functionals_that_misbehave(function: Any, words: str, space: ksos.SoSSpace) -> None:
    with pytest.raises(FunctionalError, match=words) as caught:
        ksos.minimize(CustomFunctional(function, points=PLACES), space)
    assert isinstance(caught.value, KsosError)


def test_custom_refusals(space: ksos.SoSSpace) -> None:
    with pytest.raises(ValueError, match="must look at something"):
        CustomFunctional(powers)
    with pytest.raises(TypeError, match="a function that returns a value"):
        CustomFunctional(3.0, points=PLACES)  # type: ignore[arg-type]
    with pytest.raises(TypeError, match="for NumPy only"):
        CustomFunctional(powers, points=PLACES, torch=True, hessian=powers)
    with pytest.raises(FunctionalError, match="scalar tensor"):
        ksos.minimize(CustomFunctional(lambda p: p, points=PLACES, torch=True), space)
    with pytest.raises(FunctionalError, match="6×6 matrix; got shape"):
        ksos.minimize(
            CustomFunctional(powers, points=PLACES, hessian=lambda p: p), space, solver="low_rank"
        )
    with pytest.raises(ValueError, match="features"):
        ksos.minimize(CustomFunctional(powers, points=points(3, 1)), space)
    with pytest.raises(ValueError, match="needs second derivatives"):
        ksos.minimize(CUSTOM["numpy, values"], space, solver="low_rank")
