"""Moments, expectations, entropy and divergence: against quadrature, sums and known laws, with
errors that hold what they promise.
"""

from __future__ import annotations

import math
import pickle

import numpy as np
import pytest
from densities import normal
from hypothesis import given, strategies as st
from oracles import quadrature_rule
from scipy.special import ndtr
from tables import THIN_PAIR_CASES, PairCase, points

import ksos
from ksos.density import square_of, standardize, term_clouds
from ksos.kernels import Gaussian, Laplace
from ksos.measures import Box, Discrete, Lebesgue, Normal
from ksos.observables import BoxIndicator, KernelFunction, coordinate

# in one feature a product kernel is the kernel itself: once is enough
CASES = {
    name: pair for name, pair in THIN_PAIR_CASES.items() if pair.d > 1 or not pair.kernel.product
}
every_pair = pytest.mark.parametrize("pair", CASES.values(), ids=CASES)


def without_zeros(pair: PairCase, seed: int = 0) -> ksos.SoSDensity:
    factor = np.abs(
        np.random.default_rng(seed).normal(size=(5, 2))
    )  # no zeros: the logarithms of the oracle are smooth
    return ksos.SoSDensity(
        pair.kernel, points(5, pair.d, seed), factor, pair.measure, normalize=True
    )


def law(p: ksos.SoSDensity, *others: ksos.SoSDensity) -> tuple[np.ndarray, np.ndarray]:
    """Nodes and masses of p, by composite quadrature that respects the kinks of all densities."""
    centers = np.concatenate([q.support_points for q in (p, *others)])
    nodes, w = quadrature_rule(p.kernel, p.measure, centers, per_panel=12, reach=5.0)
    return nodes, w * p.pdf(nodes)


@every_pair
def test_moments_agree_with_quadrature(pair: PairCase) -> None:
    p = without_zeros(pair)
    nodes, mass = law(p)
    for powers in ([0, 0], [1, 0], [3, 2], [0, 4])[: 2 + pair.d]:
        powers = powers[: pair.d]
        for central in (False, True):
            away = nodes - (mass @ nodes if central else 0.0)
            expected = mass @ np.prod(away ** np.array(powers), axis=1)
            assert p.moment(powers, central=central) == pytest.approx(expected, abs=1e-9)
    second = [2, 0][: pair.d]
    assert p.moment(second, central=True) == pytest.approx(p.cov()[0, 0], abs=1e-10)


@every_pair
def test_every_kind_of_function_agrees_with_quadrature(pair: PairCase) -> None:
    p = without_zeros(pair)
    nodes, mass = law(p)

    def f(X: np.ndarray) -> np.ndarray:
        return np.cos(3.0 * X[:, 0]) + X.sum(axis=1)

    value = p.expectation(f)
    assert value == pytest.approx(mass @ f(nodes), abs=1e-8)
    assert value.method == ("sum" if isinstance(pair.measure, Discrete) else "quadrature")
    assert value.error < 1e-6
    polynomial = 2.0 * coordinate(0) ** 3 - 1.0
    assert p.expectation(polynomial) == pytest.approx(mass @ polynomial(nodes), abs=1e-9)
    box = BoxIndicator([-0.5] * pair.d, [0.4] * pair.d)
    assert p.expectation(box) == pytest.approx(p.probability(-0.5, 0.4), abs=1e-12)
    bumps = KernelFunction(
        p.support_points[:3] + 0.0, [1.0, -2.0, 0.5], kernel=pair.kernel
    )  # their kinks are those of the rule
    assert p.expectation(bumps) == pytest.approx(mass @ bumps(nodes), abs=1e-9)
    both = p.expectation(2.0 * bumps + polynomial)
    assert both == pytest.approx(2.0 * p.expectation(bumps) + p.expectation(polynomial), abs=1e-12)
    assert both.error == 0.0
    assert p.expectation(3.5) == pytest.approx(3.5, abs=1e-9)


@every_pair
def test_entropy_and_divergence_agree_with_quadrature(pair: PairCase) -> None:
    p, q = without_zeros(pair), without_zeros(pair, 1)
    nodes, mass = law(p, q)
    seen = mass > 0.0
    log_p, log_q = p.logpdf(nodes)[seen], q.logpdf(nodes)[seen]
    entropy, divergence = p.entropy(rtol=1e-7), p.kl_divergence(q, rtol=1e-7)
    assert entropy == pytest.approx(-mass[seen] @ log_p, abs=1e-9 + 3.0 * entropy.error)
    assert divergence == pytest.approx(
        mass[seen] @ (log_p - log_q), abs=1e-9 + 3.0 * divergence.error
    )
    assert max(entropy.error, divergence.error) < 1e-6
    assert divergence > 0.0
    assert p.kl_divergence(p, rtol=1e-7) <= 1e-12


def test_known_laws() -> None:
    p = normal([3.0])
    assert p.entropy() == pytest.approx(0.5 * math.log(2 * math.pi * math.e), abs=1e-10)
    assert p.kl_divergence(normal([2.0], 2.0)) == pytest.approx(
        math.log(2.0) + 2.0 / 8.0 - 0.5, abs=1e-10
    )
    assert [round(p.moment(n), 9) for n in range(5)] == [1.0, 3.0, 10.0, 36.0, 138.0]
    assert p.moment(6, central=True) == pytest.approx(15.0)
    flat = ksos.SoSDensity(
        Gaussian(1e5), [[0.0, 0.0]], [[1.0]], Box([0.0, 0.0], [2.0, 3.0]), normalize=True
    )
    assert flat.entropy() == pytest.approx(math.log(6.0), abs=1e-9)
    assert flat.moment([1, 2]) == pytest.approx(1.0 * 3.0, abs=1e-8)
    relative = ksos.SoSDensity(
        Gaussian(1e5), [[0.0]], [[1.0]], Normal(1.0, 2.0), normalize=True
    )  # p = 1: the measure itself
    assert relative.entropy() == pytest.approx(0.0, abs=1e-9)
    assert relative.kl_divergence(normal([1.0], 2.0)) == pytest.approx(0.0, abs=1e-8)
    assert normal([1.0], 2.0).kl_divergence(relative) == pytest.approx(0.0, abs=1e-8)


def test_divergence_between_densities_on_different_measures() -> None:
    gaussian = Normal(0.0, 1.0)
    on_normal = ksos.SoSDensity(
        Gaussian(2.0), [[0.0]], [[1.0]], gaussian, normalize=True
    )  # N(0, ½): the product of two normals
    other = normal([2.0])
    exact = 0.5 * (0.5 + 4.0 - 1.0 + math.log(2.0))
    assert on_normal.kl_divergence(other) == pytest.approx(exact, abs=1e-9)
    assert other.kl_divergence(on_normal) == pytest.approx(
        0.5 * (2.0 + 8.0 - 1.0 - math.log(2.0)), abs=1e-8
    )


@given(low=st.floats(-5.0, 5.0), side=st.floats(0.1, 3.0), shift=st.sampled_from([0.0, 0.1, 1e3]))
def test_walls_that_are_no_round_numbers(low: float, side: float, shift: float) -> None:
    """The last node of the last cell must not round out of the box, where the density is 0."""
    p = ksos.SoSDensity(
        Gaussian(7.0),
        [[low + 0.3]],
        [[1.0]],
        Box([low + shift], [low + shift + side]),
        normalize=True,
    )
    assert p.expectation(lambda X: np.ones(X.shape[0])) == pytest.approx(1.0, abs=1e-9)


def test_divergence_from_a_box_that_is_too_small_is_infinite() -> None:
    boxed = ksos.SoSDensity(Gaussian(2.0), [[0.0]], [[1.0]], Box([-1.0], [1.0]), normalize=True)
    assert normal([0.0]).kl_divergence(boxed) == math.inf
    assert boxed.kl_divergence(normal([0.0])) == pytest.approx(
        -math.log(2 * ndtr(1.0) - 1.0), abs=1e-9
    )


def test_zeros_of_the_density_do_not_hurt() -> None:
    p = ksos.SoSDensity(Gaussian(1.0), [[-1.0], [1.0]], [[1.0], [-1.0]], normalize=True)
    x = np.linspace(-8.0, 8.0, 400_001)
    with np.errstate(divide="ignore", invalid="ignore"):
        terms = np.where(p.pdf(x[:, None]) > 0.0, -p.pdf(x[:, None]) * p.logpdf(x[:, None]), 0.0)
    assert p.entropy() == pytest.approx(np.sum(terms) * (x[1] - x[0]), abs=1e-8)


@pytest.mark.parametrize("d", [2, 3])
def test_errors_of_rough_functions_are_honest(d: int) -> None:
    p = normal([0.0] * d)
    radius = np.sqrt(2.0)
    exact = (
        1.0 - math.exp(-1.0)
        if d == 2
        else 2.0 * ndtr(radius) - 1.0 - math.sqrt(2.0 / math.pi) * radius * math.exp(-1.0)
    )
    value = p.expectation(
        lambda X: (np.sum(X**2, axis=1) <= 2.0).astype(float), max_evaluations=300_000
    )
    assert 0.0 < abs(value - exact) <= value.error < 0.05


def test_more_work_gives_smaller_errors() -> None:
    p = normal([0.0, 0.0])
    errors = [
        p.expectation(lambda X: np.abs(X[:, 0] - X[:, 1]), max_evaluations=n).error
        for n in (20_000, 400_000)
    ]
    assert errors[1] < 0.2 * errors[0]
    assert p.expectation(lambda X: np.abs(X[:, 0]), rtol=1e-3).error <= 1e-3


@pytest.mark.parametrize("d", [4, 8])
def test_many_features_by_quasi_monte_carlo(d: int) -> None:
    p = ksos.SoSDensity(
        Gaussian(2.0), points(6, d), np.random.default_rng(0).normal(size=(6, 2)), normalize=True
    )
    value = p.expectation(lambda X: X[:, 0] ** 2 + X[:, 1] * X[:, 2], rng=0)
    exact = p.moment([2] + [0] * (d - 1)) + p.moment([0, 1, 1] + [0] * (d - 3))
    assert value.method == "quasi-Monte Carlo"
    assert abs(value - exact) <= 6.0 * value.error
    assert value.error < 0.01
    assert p.expectation(lambda X: X[:, 0], rng=5) == p.expectation(
        lambda X: X[:, 0], rng=np.random.default_rng(5)
    )
    one = normal([0.0] * d)
    entropy = one.entropy(rng=0)
    assert abs(entropy - 0.5 * d * math.log(2 * math.pi * math.e)) <= 6.0 * entropy.error + 1e-12
    divergence = one.kl_divergence(normal([1.0] + [0.0] * (d - 1)), rng=0)
    assert abs(divergence - 0.5) <= 6.0 * divergence.error + 1e-12


def test_where_weights_are_useless_samples_are_drawn() -> None:
    p = square_of(normal([1.0] * 4))
    found, method = term_clouds(p, 2000, np.random.default_rng(0), least=2.0)
    assert method == "sampling"
    means = np.array([masses @ y[:, 0] for y, _, masses in found])
    assert abs(means.mean() - 1.0) <= 6.0 * means.std(ddof=1) / math.sqrt(len(means)) < 0.5
    for y, log_p, masses in found:
        np.testing.assert_allclose(log_p, p.logpdf(y))
        assert masses.sum() == pytest.approx(1.0)


@pytest.mark.parametrize(
    ("scale", "shift"), [(1e6, 0.0), (1e-6, 0.0), (1e150, 0.0), (1e-150, 0.0), (1.0, 1e8)]
)
@pytest.mark.parametrize("d", [1, 2])
@pytest.mark.parametrize("boxed", [False, True])
def test_units_and_origin_do_not_matter(scale: float, shift: float, d: int, boxed: bool) -> None:
    x, factor = np.round(points(4, d) * 1024) / 1024, np.array([[1.0], [0.5], [0.8], [0.3]])

    def make(s: float, b: float, seed: int) -> ksos.SoSDensity:
        measure = Box(np.full(d, b - 2.0 * s), np.full(d, b + 2.0 * s)) if boxed else Lebesgue()
        return ksos.SoSDensity(
            Gaussian(s), x * s + b, np.roll(factor, seed), measure, normalize=True
        )

    work = {"max_evaluations": 100_000}
    (p, q), (p1, q1) = ((make(s, b, 0), make(s, b, 1)) for s, b in ((1.0, 0.0), (scale, shift)))
    assert p1.entropy(**work) - d * math.log(scale) == pytest.approx(p.entropy(**work), abs=1e-8)
    assert p1.kl_divergence(q1, **work) == pytest.approx(p.kl_divergence(q, **work), rel=1e-7)
    powers = [2] + [1] * (d - 1)
    with np.errstate(over="ignore", under="ignore"):
        unit = float(np.float64(scale) ** sum(powers))
    got, expected = p1.moment(powers, central=True), p.moment(powers, central=True) * unit
    assert (
        got == pytest.approx(expected, rel=1e-6)
        if 0.0 < abs(expected) < math.inf
        else abs(got) == abs(expected)
    )
    mean = p1.expectation(lambda X: np.tanh((X[:, 0] - shift) / scale), **work)
    assert mean == pytest.approx(p.expectation(lambda X: np.tanh(X[:, 0]), **work), abs=1e-7)


def test_hundreds_of_features_give_numbers() -> None:
    d = 784
    p, q = (
        ksos.SoSDensity(Gaussian(30.0), points(5, d, seed), np.ones((5, 1)), normalize=True)
        for seed in (0, 1)
    )
    values = [
        p.entropy(0, max_evaluations=1000),
        p.kl_divergence(q, 0, max_evaluations=1000),
        p.moment([2] + [0] * (d - 1)),
    ]
    assert np.all(np.isfinite(values))
    assert abs(values[0] - 0.5 * d * math.log(2 * math.pi * math.e * 225.0)) < 20.0
    assert np.isfinite(
        p.expectation(lambda X: np.linalg.norm(X, axis=1), rng=0, max_evaluations=1000)
    )


def test_standard_coordinates_begin_at_a_central_support_point_and_lead_back() -> None:
    x = np.array([[5.0], [1e8], [4.0], [7.5], [-1e5]])
    p = ksos.SoSDensity(Gaussian(0.5), x, np.ones((5, 1)), normalize=True)
    frame = standardize(square_of(p))
    assert frame.square.support_points[0, 0] == 0.0
    np.testing.assert_allclose(frame.points(frame.coordinates(x)), x, rtol=1e-15)
    y = frame.coordinates(np.array([-np.inf, 3.9, 4.25, 8.0, np.inf])[:, None])
    np.testing.assert_array_equal(y[[0, -1], 0], [-np.inf, np.inf])
    np.testing.assert_allclose(np.diff(y[1:4, 0]), [0.7, 7.5], atol=1e-12)


def test_moments_and_divergences_see_true_distances() -> None:
    p = ksos.SoSDensity(Gaussian(1.0), [[0.0], [1e12]], np.eye(2), normalize=True)
    assert p.moment(1) == pytest.approx(0.5e12, rel=1e-12)
    assert p.moment(2, central=True) == pytest.approx(0.25e24, rel=1e-12)
    here, there = (
        ksos.SoSDensity(Gaussian(1.0), [[x]], [[1.0]], normalize=True) for x in (0.0, 1e6)
    )
    assert here.kl_divergence(there) == pytest.approx(2e12, rel=1e-9)  # (10⁶)²/(2·¼)
    both = ksos.SoSDensity(Gaussian(1.0), [[0.0], [1e8]], np.eye(2), normalize=True)
    assert both.kl_divergence(there) == pytest.approx(
        0.5 * (2e12 + 2.0 * (1e8 - 1e6) ** 2), rel=1e-5
    )


def test_an_outlier_far_away_costs_few_digits() -> None:
    p = ksos.SoSDensity(Gaussian(1.0), [[0.0], [1e6]], [[1.0], [1.0]], normalize=True)
    half = 0.5 * math.log(2 * math.pi * math.e * 0.25)
    assert p.entropy() == pytest.approx(half + math.log(2.0), abs=1e-8)
    assert p.expectation(lambda X: (X[:, 0] > 10.0).astype(float)) == pytest.approx(0.5, abs=1e-9)
    farther = ksos.SoSDensity(Gaussian(1.0), [[0.0], [1e12]], [[1.0], [1.0]], normalize=True)
    for ask in (farther.entropy, farther.mode, lambda: farther.cdf(0.0)):
        with pytest.raises(ValueError, match=r"1e\+12 bandwidths apart.*fit without the outliers"):
            ask()


def test_an_estimate_is_a_float_that_survives_a_pickle() -> None:
    value = normal([0.0]).entropy()
    assert isinstance(value, float)
    assert f"{value:.3f}" == "1.419"
    again = pickle.loads(pickle.dumps(value))
    assert (again, again.error, again.method) == (value, value.error, value.method)
    assert "±" in repr(value)
    assert math.sqrt(value) > 0.0


def wrong_shape(X: np.ndarray) -> np.ndarray:
    return X


def not_finite(X: np.ndarray) -> np.ndarray:
    return np.where(X[:, 0] > 0.0, np.nan, 1.0)


@pytest.mark.parametrize(
    ("ask", "error", "message"),
    [
        (lambda p: p.expectation(wrong_shape), ValueError, "wrong_shape must return shape"),
        (lambda p: p.expectation(not_finite), ValueError, "not_finite must return finite numbers"),
        (lambda p: p.expectation("x"), TypeError, "f must be a function of an array"),
        (lambda p: p.expectation(coordinate(2)), ValueError, "needs feature 2"),
        (lambda p: p.expectation(lambda X: X[:, 0], rtol=0.0), ValueError, "rtol must be positive"),
        (
            lambda p: p.expectation(lambda X: X[:, 0], max_evaluations=3),
            ValueError,
            "max_evaluations must be at least 1000",
        ),
        (lambda p: p.moment([1]), ValueError, "one whole number for each of the 2 features; got 1"),
        (lambda p: p.moment(2), ValueError, "one whole number for each of the 2 features; got 2"),
        (lambda p: p.moment([1, -1]), ValueError, "every exponent of a moment must be at least 0"),
        (
            lambda p: p.moment([1, 0.5]),
            ValueError,
            "every exponent of a moment must be a whole number",
        ),
        (
            lambda p: p.kl_divergence(normal([0.0])),
            ValueError,
            "the other density has 1 features, but this one has 2",
        ),
        (lambda p: p.kl_divergence([[0.0, 0.0]]), TypeError, "other must be a density"),
        (
            lambda p: p.kl_divergence(
                ksos.SoSDensity(
                    Gaussian(1.0), [[0.0, 0.0]], [[1.0]], Discrete(points(3, 2)), normalize=True
                )
            ),
            ValueError,
            "have no common reference measure",
        ),
    ],
)
def test_refuses_what_it_cannot_average(ask: object, error: type[Exception], message: str) -> None:
    with pytest.raises(error, match=message):
        ask(normal([0.0, 0.0]))


def test_a_laplace_density_with_many_kinks_falls_back_to_larger_cells() -> None:
    X = np.random.default_rng(0).normal(size=(150, 2))
    p = ksos.SoSDensity(Laplace(1.0, product=True), X, np.full((150, 1), 1.0), normalize=True)
    value = p.expectation(lambda Y: Y[:, 0] * Y[:, 1], max_evaluations=100_000)
    assert abs(value - p.moment([1, 1])) <= value.error < 1e-2


def test_a_wide_component_of_small_weight_is_seen_by_expectations() -> None:
    """A second moment that half comes from a component of weight 1/400, by code and in closed
    form.
    """
    rng = np.random.default_rng(0)
    means = [*rng.normal(size=(60, 4)), np.zeros(4)]
    covariances = np.stack([*[0.01 * np.eye(4)] * 60, 400.0 * (np.eye(4) + 0.9)])
    weights = [*[1.0 / 60.0] * 60, 1.0 / 400.0]
    reference = ksos.measures.GaussianMixture(weights, means, covariances)
    F, c = np.zeros((1, 1)), np.ones(1)
    p = ksos.SoSDensity(Gaussian(1.0), np.zeros((1, 4)), F, reference, constant=c, normalize=True)
    p = p.by_volume()
    exact = p.moment([1, 1, 0, 0])
    for seed in range(5):
        found = p.expectation(lambda x: x[:, 0] * x[:, 1], rng=seed)
        assert found.method == "quasi-Monte Carlo"
        assert abs(found - exact) <= 6.0 * found.error <= 0.3 * exact
