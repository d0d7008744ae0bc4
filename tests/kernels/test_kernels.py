"""Laws of kernels, run on every kernel."""

from __future__ import annotations

import pickle

import mpmath
import numpy as np
import pytest
from hypothesis import given, strategies as st
from tables import KERNEL_CASES, points

from ksos.ground import resources
from ksos.integrals import closed_form
from ksos.kernels import KERNELS, Gaussian, Kernel, Laplace, Matern
from ksos.measures import Box, Lebesgue

every_kernel = pytest.mark.parametrize("kernel", KERNEL_CASES.values(), ids=KERNEL_CASES)


@every_kernel
def test_is_symmetric_with_unit_diagonal_and_values_in_0_1(kernel: Kernel) -> None:
    K = kernel(points(20, 3))
    np.testing.assert_allclose(K, K.T, rtol=0, atol=0)
    np.testing.assert_allclose(np.diagonal(K), 1.0, rtol=0, atol=1e-15)
    assert np.all(K > 0.0)
    assert np.all(K <= 1.0)


@every_kernel
def test_is_positive_definite(kernel: Kernel) -> None:
    assert np.linalg.eigvalsh(kernel(points(40, 2)))[0] > -1e-13


@every_kernel
def test_falls_with_the_distance(kernel: Kernel) -> None:
    values = kernel.log(np.zeros((1, 1)), np.geomspace(1e-3, 30.0, 200)[:, None])[0]
    assert np.all(np.diff(values) < 0.0)


@every_kernel
def test_log_is_the_logarithm_and_stays_finite_where_the_kernel_underflows(kernel: Kernel) -> None:
    X, Y = points(7, 2), points(5, 2, 1)
    np.testing.assert_allclose(np.exp(kernel.log(X, Y)), kernel(X, Y), rtol=1e-14)
    far = kernel.log(np.zeros((1, 2)), np.full((1, 2), 1e4))
    assert np.isfinite(far).all()
    assert kernel(np.zeros((1, 2)), np.full((1, 2), 1e4))[0, 0] == 0.0


@every_kernel
@given(shift=st.sampled_from([0.0, 1.0, -3e3, 1e8]))
def test_does_not_see_a_shift(kernel: Kernel, shift: float) -> None:
    X = points(6, 2) + shift  # the digits that the shift costs are lost here, not in the kernel
    np.testing.assert_allclose(kernel(X), kernel(X - shift), rtol=1e-14)


@every_kernel
@pytest.mark.parametrize("scale", [1e-150, 1e-6, 3.0, 1e150])
def test_scales_with_its_bandwidth(kernel: Kernel, scale: float) -> None:
    X = points(6, 2)
    np.testing.assert_allclose(
        kernel.with_sigma(kernel.sigma * scale)(X * scale), kernel(X), rtol=1e-12
    )


@every_kernel
def test_widths_are_those_of_scaled_kernels(kernel: Kernel) -> None:
    X, Y = points(5, 2), points(4, 2, 1)
    at = kernel.log_at_widths(X, Y)
    for multiple in (0.01, 1.0, 7.0):
        np.testing.assert_allclose(at(multiple), kernel.scaled(multiple).log(X, Y), rtol=1e-12)


@every_kernel
def test_one_bandwidth_per_feature_rescales_the_features(kernel: Kernel) -> None:
    X, sigma = points(6, 3), np.array([0.5, 1.0, 2.0])
    np.testing.assert_allclose(
        kernel.with_sigma(sigma)(X), kernel.with_sigma(1.0)(X / sigma), rtol=1e-13
    )
    np.testing.assert_array_equal(kernel.with_sigma(sigma).restrict([2, 0]).sigma, [2.0, 0.5])
    with pytest.raises(ValueError, match="3 bandwidths but the points have 2 features"):
        kernel.with_sigma(sigma)(X[:, :2])


@every_kernel
def test_separable_means_a_product_over_features(kernel: Kernel) -> None:
    X, Y = points(6, 3), points(4, 3, 1)
    product = np.prod([kernel.restrict([k])(X[:, [k]], Y[:, [k]]) for k in range(3)], axis=0)
    assert kernel.separable(1)
    assert kernel.separable(3) == np.allclose(kernel(X, Y), product, rtol=1e-12)


@every_kernel
def test_reach_is_where_the_kernel_has_fallen_to_a_level(kernel: Kernel) -> None:
    sigma = float(kernel.sigma)
    at_reach = kernel.log(np.zeros((1, 1)), np.array([[sigma * kernel.reach(-32.0)]]))[0, 0]
    assert at_reach == pytest.approx(-32.0, abs=1e-6)


@every_kernel
def test_repr_and_pickle_give_the_kernel_back(kernel: Kernel) -> None:
    again = eval(repr(kernel), {type(kernel).__name__: type(kernel)})
    assert again == kernel
    assert hash(again) == hash(kernel)
    assert pickle.loads(pickle.dumps(kernel)) == kernel
    assert kernel != kernel.with_sigma(1.23)
    assert type(kernel)(**kernel.parameters()) == kernel
    assert KERNELS[kernel.name] is type(kernel)


@every_kernel
def test_many_rows_go_in_blocks(kernel: Kernel) -> None:
    X, Y = points(50, 2), points(30, 2, 1)
    whole = kernel(X, Y)
    with resources(block=1):
        np.testing.assert_allclose(kernel(X, Y), whole, rtol=1e-11)


def test_many_features_go_through_a_product() -> None:
    X, Y, sigma = points(50, 12), points(30, 12, 1), np.linspace(0.5, 2.0, 12)
    one_by_one = np.sum(((X[:, None] - Y) / sigma) ** 2, axis=2)
    np.testing.assert_allclose(-Gaussian(sigma).log(X, Y), one_by_one, rtol=1e-11)


def test_distances_by_matrix_product_are_refused_where_they_would_lose_digits() -> None:
    X = points(5, 20) * 1e-7 + 1.0
    X = np.concatenate([X, np.zeros((1, 20))])
    direct = sum((X[:, [k]] - X[:, k]) ** 2 for k in range(20)) / 1e-14
    np.testing.assert_allclose(-Gaussian(np.full(20, 1e-7)).log(X, X), direct, rtol=1e-12)


@every_kernel
def test_far_apart_is_zero_not_nan(kernel: Kernel) -> None:
    for d in (2, 12):
        far = kernel(np.full((1, d), 1e300), np.full((1, d), -1e300))
        assert far[0, 0] == 0.0


@pytest.mark.parametrize("nu", [0.3, 0.5, 0.8, 1.0, 1.5, 1.7, 2.0, 2.5, 3.5, 6.0, 20.3, 100.0])
@pytest.mark.parametrize(
    "r", [0.0, 1e-200, 1e-12, 1e-3, 0.05, 0.3, 1.0, 4.0, 30.0, 600.0, 9e8, 3e9, 1e16, 1e60]
)
def test_matern_is_the_bessel_formula(nu: float, r: float) -> None:
    with mpmath.workdps(60):
        exact = mpmath.mpf(1)
        if r > 0.0:
            x = mpmath.mpf(r)
            exact = (
                2 ** (1 - mpmath.mpf(nu))
                / mpmath.gamma(nu)
                * x ** mpmath.mpf(nu)
                * mpmath.besselk(nu, x)
            )
        log_exact = float(mpmath.log(exact))
    value = float(Matern(nu, 1.0).log(np.zeros((1, 1)), np.array([[r]]))[0, 0])
    assert value == pytest.approx(log_exact, rel=1e-12, abs=1e-12)


def test_matern_one_half_is_laplace_and_sobolev_names_its_order() -> None:
    X = points(5, 3)
    np.testing.assert_allclose(Matern(0.5, 0.7)(X), Laplace(0.7)(X), rtol=1e-14)
    assert Matern.sobolev(2.5, 2, 0.7) == Matern(1.5, 0.7)
    with pytest.raises(ValueError, match="s > d/2"):
        Matern.sobolev(1.0, 2)


@pytest.mark.parametrize(
    "sigma", [0.0, -1.0, np.nan, np.inf, 1e-160, 1e160, [], [1.0, -1.0], [[1.0, 2.0]], "wide", None]
)
@pytest.mark.parametrize("kernel", KERNELS.values(), ids=KERNELS)
def test_refuses_a_bandwidth_that_is_none(kernel: type[Kernel], sigma: object) -> None:
    with pytest.raises(ValueError, match="sigma must"):
        kernel(sigma=sigma)


@pytest.mark.parametrize("nu", [0.0, -1.0, np.nan, "1.5"])
def test_refuses_an_order_that_is_none(nu: object) -> None:
    with pytest.raises(ValueError, match="nu must be"):
        Matern(nu, 1.0)


def test_gaussian_and_laplace_follow_the_note() -> None:
    x, y = np.array([[0.0, 0.0]]), np.array([[3.0, 4.0]])
    assert Gaussian(5.0)(x, y)[0, 0] == pytest.approx(np.exp(-1.0))
    assert Laplace(5.0)(x, y)[0, 0] == pytest.approx(np.exp(-1.0))
    assert Laplace(5.0, product=True)(x, y)[0, 0] == pytest.approx(np.exp(-7.0 / 5.0))


def test_many_bandwidths_are_shown_briefly() -> None:
    assert (
        repr(Gaussian(np.linspace(1.0, 2.0, 784))) == "Gaussian(sigma=[1.0, …, 2.0] (784 features))"
    )
    assert (
        repr(Gaussian([1.0, 1.0 / 3.0, 1234567.8])) == "Gaussian(sigma=[1.0, 0.333333, 1234570.0])"
    )


def test_a_matrix_is_shown_as_a_metric_not_as_widths() -> None:
    assert (
        repr(Gaussian([[223695.51, 0.25], [0.25, 1.0]]))
        == "Gaussian(metric=[[223696.0, 0.25], [0.25, 1.0]])"
    )
    assert (
        repr(Gaussian(np.eye(3) + 1.0)) == "Gaussian(metric=[2.0, …, 2.0] (3 features, correlated))"
    )
    assert repr(Box([-1.0 / 3.0], [np.inf])) == "Box(low=[-0.333333], high=[inf])"


def test_a_metric_is_a_change_of_coordinates_and_a_diagonal_one_the_bandwidths_themselves() -> None:
    S = np.array([[1.3, 0.7], [0.7, 0.6]])
    X, Y, L = points(6, 2) + 1e6, points(4, 2, 1) + 1e6, np.linalg.inv(np.linalg.cholesky(S))
    np.testing.assert_allclose(Gaussian(S)(X, Y), Gaussian(1.0)(X @ L.T, Y @ L.T), rtol=1e-8)
    exact = [[(x - y) @ np.linalg.solve(S, x - y) for y in Y] for x in X]
    np.testing.assert_allclose(Gaussian(S).log(X, Y), -np.array(exact), rtol=1e-12)
    assert (
        Gaussian(np.diag([4.0, 9.0])) == Gaussian([2.0, 3.0])
        and not Gaussian(np.diag([4.0, 9.0])).full
    )
    assert Gaussian(S).restrict([1]) == Gaussian([np.sqrt(0.6)]) and Gaussian(S).scaled(
        2.0
    ) == Gaussian(4.0 * S)
    np.testing.assert_array_equal(Gaussian([2.0, 3.0]).matrix(2), np.diag([4.0, 9.0]))
    for kernel in (Gaussian(S), Gaussian([2.0, 3.0]), Gaussian(0.3)):
        assert type(kernel)(**kernel.parameters()) == kernel


@pytest.mark.parametrize(
    ("S", "words"),
    [
        ([[1.0, 0.5], [0.4, 1.0]], "symmetric"),
        ([[1.0, 2.0], [2.0, 1.0]], "positive definite"),
        ([[1.0, 1.0], [1.0, 1.0]], "drop a feature"),
        ([[1.0, 0.0, 0.0], [0.0, 1.0, 0.0]], "square"),
        ([[np.nan, 0.0], [0.0, 1.0]], "finite"),
        ([[0.0, 0.0], [0.0, 1.0]], "diagonal"),
    ],
)
def test_refuses_a_matrix_that_is_no_metric(S: object, words: str) -> None:
    with pytest.raises(ValueError, match=words):
        Gaussian(S)
    with pytest.raises(ValueError, match="one bandwidth per feature is needed"):
        Gaussian([[1.0, 0.5], [0.5, 1.0]]).sigma_vector(2)


def test_an_outlier_that_comes_first_takes_no_digits_of_a_metric() -> None:
    kernel, X = Gaussian([[1.0, 0.6], [0.6, 0.8]]), points(12, 2)
    Y, integrals = np.concatenate([[[1e9, -1e9]], X]), closed_form(kernel, Lebesgue(), 2)
    np.testing.assert_allclose(kernel(Y)[1:, 1:], kernel(X), rtol=1e-13)
    np.testing.assert_allclose(
        integrals.log_gram(Y, Y)[1:, 1:], integrals.log_gram(X, X), atol=1e-13
    )
