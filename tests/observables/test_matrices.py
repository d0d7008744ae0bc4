"""Matrices ∫ f k_i k_j dρ: every closed form against quadrature, the laws they obey, and honest
errors where there is no closed form.
"""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, strategies as st
from oracles import quadrature_rule, tolerance
from tables import THIN_PAIR_CASES, PairCase, points

import ksos
from ksos.density import square_of
from ksos.integrals import closed_form
from ksos.kernels import Gaussian, Laplace, Matern
from ksos.measures import Box, Discrete, Lebesgue, Measure, Normal
from ksos.observables import (
    BoxIndicator,
    KernelFunction,
    NumericFunction,
    Observable,
    Polynomial,
    as_observable,
    coordinate,
)

every_pair = pytest.mark.parametrize("case", THIN_PAIR_CASES.values(), ids=THIN_PAIR_CASES)
LOW, HIGH = -0.4, 0.5


def unit(case: PairCase, X: np.ndarray) -> float:
    return float(closed_form(case.kernel, case.measure, case.d).log_diagonal(X).max())


def inside(measure: Measure, d: int) -> Measure:
    """The measure of the box of the tests, where it is a box of Lebesgue measure."""
    walls = np.array([measure.boundary(k) for k in range(d)])
    return Box(np.maximum(walls[:, 0], LOW), np.minimum(walls[:, 1], HIGH))


def rule_of(
    case: PairCase, X: np.ndarray, extra: np.ndarray, *, in_the_box: bool = False
) -> tuple[np.ndarray, np.ndarray]:
    """Nodes and weights whose panels end at kinks of the kernels and at the walls of the box."""
    centers = np.concatenate([X, extra])
    if not in_the_box or isinstance(case.measure, Discrete):
        return quadrature_rule(case.kernel, case.measure, centers)
    nodes, w = quadrature_rule(case.kernel, inside(case.measure, case.d), centers)
    return nodes, w if case.measure.by_volume else w * np.exp(case.measure.log_density(nodes))


def by_definition(
    case: PairCase, X: np.ndarray, f: Observable, rule: tuple[np.ndarray, np.ndarray]
) -> np.ndarray:
    nodes, w = rule
    values = case.kernel(nodes, X)
    return (values * (w * f(nodes))[:, None]).T @ values


def observables(case: PairCase) -> dict[str, Observable]:
    x, y = coordinate(0), coordinate(case.d - 1)
    return {
        "constant": as_observable(2.0),
        "polynomial": (x - 0.3) ** 3 + 2.0 * x * y - 1.5,
        "high degree": coordinate(0, center=0.2) ** 7,
        "box": BoxIndicator([LOW] * case.d, [HIGH] * case.d),
        "kernel function": KernelFunction(
            points(4, case.d, 8), [1.0, -2.0, 0.5, 1.0], kernel=case.kernel.with_sigma(0.5)
        ),
        "sum": 2.0 * BoxIndicator([LOW] * case.d, [np.inf] * case.d) - x,
    }


@every_pair
def test_closed_forms_agree_with_quadrature(case: PairCase) -> None:
    X = points(5 if case.kernel.smooth or case.d == 1 else 3, case.d, 3)
    log_unit, extra = unit(case, X), points(4, case.d, 8)
    everywhere, box = rule_of(case, X, extra), rule_of(case, X, extra, in_the_box=True)
    for name, f in observables(case).items():
        if name == "sum":
            continue
        M = f.matrix(case.kernel, X, case.measure, log_unit)
        assert M.exact
        assert M.error == 0.0
        expected = np.exp(-log_unit) * by_definition(
            case, X, f, box if name == "box" else everywhere
        )
        np.testing.assert_allclose(
            M.values, expected, atol=tolerance() * np.abs(expected).max(), err_msg=name
        )
        np.testing.assert_array_equal(M.values, M.values.T)


@every_pair
def test_matrices_are_linear_in_f_and_expectations_of_one_are_masses(case: PairCase) -> None:
    X = points(5, case.d, 3)
    log_unit = unit(case, X)
    fs = observables(case)

    def values(f: Observable) -> np.ndarray:
        return f.matrix(case.kernel, X, case.measure, log_unit).values

    W = np.exp(closed_form(case.kernel, case.measure, case.d).log_gram(X, X) - log_unit)
    np.testing.assert_allclose(values(as_observable(1.0)), W, rtol=1e-12, atol=1e-300)
    np.testing.assert_allclose(
        values(3.0 * fs["polynomial"] - fs["box"]),
        3.0 * values(fs["polynomial"]) - values(fs["box"]),
        atol=1e-12,
        rtol=1e-9,
    )
    everything = BoxIndicator([-np.inf] * case.d, [np.inf] * case.d)
    np.testing.assert_allclose(values(everything), W, rtol=1e-9, atol=1e-300)
    rest = case.d - 1
    below = BoxIndicator([-np.inf] * case.d, [0.1] + [np.inf] * rest)
    above = BoxIndicator([0.1] + [-np.inf] * rest, [np.inf] * case.d)
    np.testing.assert_allclose(values(below) + values(above), W, rtol=1e-9, atol=1e-13)


@every_pair
def test_a_basis_given_at_once_is_the_matrix_transformed(case: PairCase) -> None:
    X = points(5, case.d, 3)
    T = np.random.default_rng(0).normal(size=(5, 3))
    for f in [
        *observables(case).values(),
        NumericFunction(lambda X: np.tanh(X[:, 0]), max_nodes=1 << 14),
    ]:
        whole, small = (
            f.matrix(case.kernel, X, case.measure),
            f.matrix(case.kernel, X, case.measure, T=T),
        )
        np.testing.assert_allclose(
            small.values, T.T @ whole.values @ T, atol=1e-9 * np.abs(whole.values).max()
        )
        assert small.exact == whole.exact


@every_pair
def test_functions_given_as_code_are_integrated_with_an_honest_error(case: PairCase) -> None:
    X = points(5, case.d, 3)
    log_unit = unit(case, X)
    f = coordinate(0) ** 2 + KernelFunction(
        points(3, case.d, 4), [1.0, -1.0, 2.0], kernel=Gaussian(1.0)
    )
    M = NumericFunction(f, max_nodes=1 << 16).matrix(case.kernel, X, case.measure, log_unit)
    expected = np.exp(-log_unit) * by_definition(
        case, X, f, rule_of(case, X, np.empty((0, case.d)))
    )
    wrong = float(np.abs(M.values - expected).max())
    assert wrong <= max(M.error, 1e-10 * np.abs(expected).max())
    assert M.error <= 1e-3 * np.abs(expected).max()
    assert M.exact == isinstance(case.measure, Discrete)


HIGH_DIMENSIONAL = {
    "lebesgue": (Gaussian(1.0), Lebesgue()),
    "normal": (Gaussian(1.0), Normal(0.1, 0.8)),
    "box": (Gaussian(1.0), Box([-0.5] * 4, [1.0] * 4)),
    "half-infinite box, far away": (Gaussian(1.0), Box([2.0] * 4, [np.inf] * 4)),
    "laplace": (Laplace(1.0, product=True), Lebesgue()),
    "matern on a box": (Matern(1.5, 0.5, product=True), Box([-0.5] * 4, [1.0] * 4)),
}


@pytest.mark.parametrize("name", HIGH_DIMENSIONAL)
def test_many_features_go_through_quasi_monte_carlo_with_an_honest_error(name: str) -> None:
    kernel, measure = HIGH_DIMENSIONAL[name]
    X = points(10, 4, 2)
    log_unit = float(closed_form(kernel, measure, 4).log_diagonal(X).max())
    f = coordinate(0) ** 2 + coordinate(1)
    exact = f.matrix(kernel, X, measure, log_unit).values
    estimate = NumericFunction(f, max_nodes=1 << 14).matrix(kernel, X, measure, log_unit)
    errors = np.sqrt(np.sum(estimate.deviations**2, axis=0))
    assert np.all(np.abs(estimate.values - exact) <= 8.0 * errors + 1e-12)
    assert estimate.error <= 0.2 * np.abs(exact).max()
    again = NumericFunction(f, max_nodes=1 << 14).matrix(kernel, X, measure, log_unit)
    np.testing.assert_array_equal(again.values, estimate.values)
    B = np.eye(10) / 10
    value, error = estimate.expectation(B)
    assert abs(value - np.vdot(B, exact)) <= 8.0 * error


def test_kinks_cost_digits_and_the_error_says_so() -> None:
    kernel, X = Gaussian(0.7), points(6, 2, 1)
    box = BoxIndicator([-0.31, -np.inf], [np.inf, 0.27])
    exact = box.matrix(kernel, X, Lebesgue()).values
    M = NumericFunction(lambda X: ((X[:, 0] >= -0.31) & (X[:, 1] <= 0.27)).astype(float)).matrix(
        kernel, X, Lebesgue()
    )
    wrong = np.abs(M.values - exact).max()
    assert 1e-9 < wrong <= 3.0 * M.error
    one = NumericFunction(lambda X: np.abs(X[:, 0] - 0.123)).matrix(kernel, X[:, :1], Lebesgue())
    assert one.error <= 1e-6


@given(st.floats(-2.0, 2.0), st.floats(-2.0, 2.0), st.integers(0, 4), st.integers(0, 3))
def test_polynomial_algebra_is_that_of_functions(c: float, s: float, p: int, q: int) -> None:
    X = points(20, 2, 6)
    x, y = coordinate(0, center=c), coordinate(1)
    f, g = (x + s) ** p + 0.5 * y, s * y**q - coordinate(0) + 1.0
    np.testing.assert_allclose((f * g)(X), f(X) * g(X), rtol=1e-9, atol=1e-9)
    np.testing.assert_allclose((f - 2 * g)(X), f(X) - 2 * g(X), rtol=1e-9, atol=1e-9)
    np.testing.assert_allclose((f**2)(X), f(X) ** 2, rtol=1e-9, atol=1e-9)
    np.testing.assert_allclose(f(X), (X[:, 0] - c + s) ** p + 0.5 * X[:, 1], rtol=1e-9, atol=1e-9)


def test_polynomials_by_exponents() -> None:
    X = points(5, 2, 0)
    f = Polynomial({(2, 0): 1.0, (1, 1): -4.0, (0, 0): 3.0}, center=[0.5, -1.0])
    u, v = X[:, 0] - 0.5, X[:, 1] + 1.0
    np.testing.assert_allclose(f(X), u**2 - 4 * u * v + 3)
    assert f.degree == 2
    assert f.bounded is False
    np.testing.assert_allclose(Polynomial([1.0, 0.0, 2.0])(X[:, :1]), 1 + 2 * X[:, 0] ** 2)
    np.testing.assert_allclose(Polynomial({3: 2.0})(X[:, :1]), 2 * X[:, 0] ** 3)
    assert Polynomial.constant(1.0).bounded


def test_data_far_away_and_of_any_scale() -> None:
    X = points(6, 2, 0)
    kernel = Gaussian(0.8)
    near = (coordinate(0) ** 2).matrix(kernel, X, Lebesgue(), 0.0).values
    shifted = X + 1e8
    far = (coordinate(0, center=1e8) ** 2).matrix(kernel, shifted, Lebesgue(), 0.0).values
    exactly = (coordinate(0) ** 2).matrix(kernel, shifted - 1e8, Lebesgue(), 0.0).values
    np.testing.assert_allclose(far, exactly, rtol=1e-9)
    np.testing.assert_allclose(far, near, rtol=1e-6, atol=1e-6)
    for scale in (1e-150, 1e-6, 1e6, 1e150):
        wide = kernel.with_sigma(0.8 * scale)
        log_unit = 2.0 * np.log(scale)
        linear = coordinate(0).matrix(wide, scale * X, Lebesgue(), log_unit).values
        np.testing.assert_allclose(
            linear / scale,
            coordinate(0).matrix(kernel, X, Lebesgue()).values,
            rtol=1e-9,
            atol=1e-12,
        )
        box = BoxIndicator(np.array([LOW, LOW]) * scale, np.array([HIGH, HIGH]) * scale).matrix(
            wide, scale * X, Lebesgue(), log_unit
        )
        np.testing.assert_allclose(
            box.values,
            BoxIndicator([LOW] * 2, [HIGH] * 2).matrix(kernel, X, Lebesgue()).values,
            rtol=1e-9,
        )
        code = NumericFunction(lambda X, s=scale: np.tanh(X[:, 0] / s)).matrix(
            wide, scale * X, Lebesgue(), log_unit
        )
        plain = NumericFunction(lambda X: np.tanh(X[:, 0])).matrix(kernel, X, Lebesgue())
        np.testing.assert_allclose(code.values, plain.values, atol=1e-9)


def test_hundreds_of_features_and_outliers() -> None:
    X = points(4, 784, 0)
    log_unit = float(closed_form(Gaussian(1.0), Lebesgue(), 784).log_diagonal(X).max())
    norm = sum(coordinate(k) ** 2 for k in range(784))
    M = norm.matrix(Gaussian(1.0), X, Lebesgue(), log_unit)
    np.testing.assert_allclose(np.diagonal(M.values), np.sum(X**2, axis=1) + 784 * 0.25, rtol=1e-9)
    apart = np.array([[0.0, 0.0], [1.0, 1.0], [1e150, 3.0], [2.0, -1e6]])
    M = NumericFunction(lambda X: np.ones(X.shape[0])).matrix(Gaussian(1.0), apart, Lebesgue())
    W = np.exp(closed_form(Gaussian(1.0), Lebesgue(), 2).log_gram(apart, apart))
    # floats about 1e150 are farther apart than the bandwidth: nobody can integrate there
    assert np.abs(M.values - W).max() <= 8.0 * M.error
    close = NumericFunction(lambda X: np.ones(X.shape[0])).matrix(
        Gaussian(1.0), apart[[0, 1, 3]], Lebesgue()
    )
    np.testing.assert_allclose(close.values, W[np.ix_([0, 1, 3], [0, 1, 3])], atol=1e-9)


def test_the_expectation_is_that_of_the_density() -> None:
    p = ksos.SoSDensity(Gaussian(1.0), points(6, 2, 1), points(6, 3, 2), normalize=True)
    F = square_of(p).unit_factor
    M = (coordinate(0) ** 2).matrix(
        p.kernel, p.support_points, p.measure, square_of(p).log_unit, T=F
    )
    value, error = M.expectation(np.eye(F.shape[1]))
    assert value == pytest.approx(p.cov()[0, 0] + p.mean()[0] ** 2, rel=1e-9)
    assert error == 0.0
    assert M.worst_error() == 0.0


@pytest.mark.parametrize("center", [0.0, 2010.0, 1e4, 1e8])
@pytest.mark.parametrize("measure", ["lebesgue", "box", "rule"])
def test_polynomials_keep_their_digits_wherever_they_are_centered(
    center: float, measure: str
) -> None:
    """Written about 0 or about the data, expanded or not: one function, and a shift of everything
    changes nothing.
    """
    X, T = points(5, 1), np.eye(5)
    box = Box([center - 2.0], [center + 2.0])
    rho = {"lebesgue": Lebesgue(), "box": box, "rule": Discrete.quadrature(box, 40)}[measure]
    home = {
        "lebesgue": Lebesgue(),
        "box": Box([-2.0], [2.0]),
        "rule": Discrete.quadrature(Box([-2.0], [2.0]), 40),
    }[measure]
    x, y = coordinate(0), coordinate(0)
    far = [
        (x - center) ** 3 - 2.0 * (x - center),
        x**2 - 2.0 * center * x + center**2,
        (x - center) * (x - center - 0.5),
    ]
    near = [y**3 - 2.0 * y, y**2, y * (y - 0.5)]
    rounding = 1e-14 + 20.0 * np.finfo(float).eps * center
    for f, g in zip(far, near, strict=True):
        for whitened in (None, T):
            there = f.matrix(Gaussian(0.8), X + center, rho, T=whitened).values
            here = g.matrix(Gaussian(0.8), (X + center) - center, home, T=whitened).values
            np.testing.assert_allclose(
                there, here, rtol=0, atol=rounding * np.abs(here).max() * 5.0
            )
        np.testing.assert_allclose(f(X + center), g((X + center) - center), rtol=1e-12, atol=1e-12)


def test_a_peak_between_all_nodes_is_not_overlooked() -> None:
    X = points(4, 1)
    M = NumericFunction(lambda Y: 1e6 * ((Y[:, 0] > 0.3) & (Y[:, 0] < 0.3001))).matrix(
        Gaussian(1.0), X, Box([-2.0], [2.0])
    )
    exact = BoxIndicator([0.3], [0.3001]).matrix(Gaussian(1.0), X, Box([-2.0], [2.0])).values * 1e6
    assert (
        np.all(np.abs(M.values - exact) <= np.sqrt(np.sum(M.deviations**2, axis=0)) + 0.5 * exact)
        and M.error > 1.0
    )


def test_fractions_too_large_for_floats_are_infinite_and_said_so() -> None:
    f = (1e200 * coordinate(0)) ** 2
    assert isinstance(f, Polynomial) and list(f.terms.values()) == [np.inf]
    with pytest.raises(ValueError, match="leave the range of floats"):
        f.matrix(Gaussian(1.0), points(3, 1), Lebesgue())
