"""Laplace and half-integer Matérn × {Lebesgue, Box} against exact antiderivatives at many digits,
quadrature, and the laws of integrals.
"""

from __future__ import annotations

import math
import tracemalloc
from fractions import Fraction
from itertools import pairwise

import mpmath
import numpy as np
import pytest
from hypothesis import example, given, strategies as st
from scipy.integrate import nquad

from ksos.integrals import ExponentialBox, ExponentialLebesgue, LineIntegral, closed_form
from ksos.kernels import Kernel, Laplace, Matern
from ksos.measures import Box, Lebesgue

INF = math.inf
POLYNOMIALS = {  # κ(r)·e^r, written out by hand
    0.5: [Fraction(1)],
    1.5: [Fraction(1), Fraction(1)],
    2.5: [Fraction(1), Fraction(1), Fraction(1, 3)],
    3.5: [Fraction(1), Fraction(1), Fraction(2, 5), Fraction(1, 15)],
}
ORDERS = list(POLYNOMIALS)
Factor = tuple[list[Fraction], float, float]  # polynomial, bandwidth, center


def normal(*shape: int) -> np.ndarray:
    """Points that depend on their number only, whichever tests run."""
    return np.random.default_rng(shape).normal(size=shape)


def make(nu: float, sigma=1.0) -> Kernel:
    return Laplace(sigma, product=True) if nu == 0.5 else Matern(nu, sigma, product=True)


# ---------------------------------------------------------------- the oracle: antiderivatives, in
# rationals and at many digits


def times(p: list[Fraction], q: list[Fraction]) -> list[Fraction]:
    out = [Fraction(0)] * (len(p) + len(q) - 1)
    for i, a in enumerate(p):
        for j, b in enumerate(q):
            out[i + j] += a * b
    return out


def shifted(p: list[Fraction], start: Fraction, slope: Fraction) -> list[Fraction]:
    """The coefficients in t of p(start + slope·t)."""
    out = [p[-1]]
    for c in p[-2::-1]:
        out = times(out, [start, slope])
        out[0] += c
    return out


def digits(x: Fraction) -> mpmath.mpf:
    return mpmath.mpf(x.numerator) / x.denominator


def antiderivative(p: list[Fraction], rate: Fraction, t: Fraction) -> mpmath.mpf:
    """An antiderivative of p(t)·e^{rate·t}."""
    if rate == 0:
        return digits(sum((c * t ** (k + 1) / (k + 1) for k, c in enumerate(p)), Fraction(0)))
    total, derivative, scale = Fraction(0), p, 1 / rate
    while derivative:
        total += scale * sum((c * t**k for k, c in enumerate(derivative)), Fraction(0))
        derivative = [k * c for k, c in enumerate(derivative)][1:]
        scale = -scale / rate
    return digits(total) * mpmath.exp(digits(rate * t))


def oracle(
    factors: list[Factor], low: float = -INF, high: float = INF, power: int = 0, about: float = 0.0
) -> mpmath.mpf:
    """∫_low^high Π_i κ_i(|x − c_i|/σ_i) (x − about)^power dx."""
    degree = power + sum(len(q) - 1 for q, _, _ in factors)
    with mpmath.workdps(
        60 + 20 * degree
    ):  # nearly equal rates cancel: the digits they cost are affordable here
        total = mpmath.mpf(0)
        for left, right in pairwise(
            [low, *sorted({c for _, _, c in factors if low < c < high}), high]
        ):
            origin = Fraction(left if math.isfinite(left) else right)
            p, rate, height = [Fraction(1)], Fraction(0), Fraction(0)
            for _ in range(power):
                p = times(p, [origin - Fraction(about), Fraction(1)])
            for q, sigma, center in factors:
                side = 1 if center <= left else -1
                start, slope = (
                    side * (origin - Fraction(center)) / Fraction(sigma),
                    side / Fraction(sigma),
                )
                p, rate, height = times(p, shifted(q, start, slope)), rate - slope, height - start
            piece = mpmath.mpf(0)
            if math.isfinite(right):
                piece += antiderivative(p, rate, Fraction(right) - origin)
            if math.isfinite(left):
                piece -= antiderivative(p, rate, Fraction(0))
            total += piece * mpmath.exp(digits(height))
        return total


def error(log_value: float, exact: mpmath.mpf) -> float:
    """The relative error of e^log_value, in units of the rounding that an exponent of this size
    must have.
    """
    with mpmath.workdps(60):
        log_exact = mpmath.log(exact)
        return float(
            abs(mpmath.expm1(mpmath.mpf(float(log_value)) - log_exact)) / (1 + abs(log_exact) / 100)
        )


# ---------------------------------------------------------------- against the oracle, on the line

WALLS = [(-INF, INF), (-2.0, 1.5), (0.3, INF), (-INF, -0.2)]
PLACES: dict[
    str, tuple[np.ndarray, tuple[float, float], float]
] = {  # (three centers, walls, σ of the third factor; η = 1)
    **{
        f"random in {w}": (normal(3, k)[:, 0], w, s)
        for k, (w, s) in enumerate(zip(WALLS, (0.7, 2.0, 1.3, 0.4), strict=True), 1)
    },
    "all coincide": (np.full(3, 0.25), (-INF, INF), 0.5),
    "all coincide at a wall": (np.full(3, 0.25), (0.25, 3.0), 0.5),
    "two coincide": (np.array([0.25, -0.7, 0.25]), (-1.0, 1.0), 0.7),
    "rates cancel": (np.array([-1.3, 2.1, 0.4]), (-INF, INF), 0.5),
    "rates cancel left of the pair": (np.array([0.3, 2.1, -4.0]), (-5.0, INF), 0.5),
    "rates nearly cancel": (np.array([-1.3, 2.1, 9.4]), (-INF, INF), 0.5 * (1.0 + 1e-12)),
    "far box": (normal(3), (700.0, 705.0), 0.7),
    "far half line": (normal(3), (-INF, -700.0), 0.7),
    "far and narrow box": (normal(3), (700.0, 700.0 + 1e-9), 0.7),
    "narrow box": (np.array([0.1 + 5e-11, -1.0, 2.0]), (0.1, 0.1 + 1e-10), 0.7),
    "huge box": (normal(3), (-1e9, 1e9), 0.7),
    "centers 20 apart": (20.0 * normal(3), (-INF, INF), 3.0),
    "centers 1000 apart": (np.array([-900.0, 1000.0, 13.0]), (-INF, INF), 0.7),
    "centers 1e-6 apart": (1e-6 * normal(3), (-INF, INF), 0.7),
    "narrow embedding": (normal(3), (-3.0, 3.0), 1e-6),
    "wide embedding": (normal(3), (-3.0, 3.0), 1e6),
}


def line(nu: float, walls: tuple[float, float]):
    return closed_form(
        make(nu), Lebesgue() if walls == (-INF, INF) else Box([walls[0]], [walls[1]]), 1
    )


def test_the_oracle_agrees_with_mpmath_quadrature():
    factors = [(POLYNOMIALS[2.5], 1.0, 0.2), (POLYNOMIALS[1.5], 0.7, -0.5)]

    def integrand(x):
        r, s = abs(x - mpmath.mpf(0.2)), abs(x - mpmath.mpf(-0.5)) / mpmath.mpf(0.7)
        return (1 + r + r**2 / 3) * (1 + s) * mpmath.exp(-r - s) * (x - mpmath.mpf(0.1)) ** 2

    with mpmath.workdps(30):
        expected = mpmath.quad(integrand, [-1, -0.5, 0.2, 4])
        assert abs(oracle(factors, -1.0, 4.0, power=2, about=0.1) / expected - 1) < 1e-25


@pytest.mark.parametrize("place", PLACES)
@pytest.mark.parametrize("nu", ORDERS)
def test_mean_gram_and_moments_on_the_line(nu, place):
    (x, y, _), walls, _ = PLACES[place]
    integrals, q, X = line(nu, walls), POLYNOMIALS[nu], np.array([[x], [y]])
    mass = oracle([(q, 1.0, x), (q, 1.0, y)], *walls)
    assert error(integrals.log_mean(X)[1], oracle([(q, 1.0, y)], *walls)) < 1e-13
    assert error(integrals.log_gram(X, X)[0, 1], mass) < 1e-13
    first, second = (
        float(oracle([(q, 1.0, x), (q, 1.0, y)], *walls, power=k, about=x) / mass) for k in (1, 2)
    )
    found_first, found_second = integrals.moments(X, 0)
    assert abs(found_first[0, 1] - first) < 1e-13 * math.sqrt(second)
    assert abs(found_second[0, 1] - second) < 1e-13 * second


@pytest.mark.parametrize("place", PLACES)
@pytest.mark.parametrize(
    ("nu", "embedding_nu"), [(0.5, 0.5), (1.5, 1.5), (2.5, 0.5), (0.5, 2.5), (3.5, 3.5)]
)
def test_triple_on_the_line(nu, embedding_nu, place):
    (x, y, z), walls, sigma = PLACES[place]
    exact = oracle(
        [
            (POLYNOMIALS[nu], 1.0, x),
            (POLYNOMIALS[nu], 1.0, y),
            (POLYNOMIALS[embedding_nu], sigma, z),
        ],
        *walls,
    )
    found = line(nu, walls).log_triple(
        np.array([[x], [y]]), np.array([[z]]), make(embedding_nu, sigma)
    )
    assert found.shape == (2, 2, 1)
    assert error(found[0, 1, 0], exact) < 2e-13


@pytest.mark.parametrize("sigma", [0.5, 0.9])
@pytest.mark.parametrize("walls", [(-INF, INF), (-1.0, 1.0)])
def test_high_degrees_do_not_cancel(walls, sigma):
    nu, (x, y, z) = 15.5, (-2.3, 3.1, 11.0)
    q = [Fraction(float(c)) for c in make(nu).polynomial]
    found = line(nu, walls).log_triple(np.array([[x], [y]]), np.array([[z]]), make(nu, sigma))[
        0, 1, 0
    ]
    assert error(found, oracle([(q, 1.0, x), (q, 1.0, y), (q, sigma, z)], *walls)) < 1e-12


@pytest.mark.parametrize("nu", [1.5, 2.5, 3.5])
@pytest.mark.parametrize("z", [0.0, 40.0])
def test_slow_and_fast_decay_meet(nu, z):
    q = [Fraction(float(c)) for c in make(nu).polynomial]
    rate = 2.9 if z == 0.0 else 1.1  # of the exponential, with the third center behind or ahead
    for high in np.linspace(0.4, 2.6, 12) * (3.0 * (nu - 0.5) + 4.0) / rate:
        found = line(nu, (0.0, high)).log_triple(
            np.zeros((1, 1)), np.array([[z]]), make(nu, 1.0 / 0.9)
        )[0, 0, 0]
        assert (
            error(found, oracle([(q, 1.0, 0.0), (q, 1.0, 0.0), (q, 1.0 / 0.9, z)], 0.0, high))
            < 2e-13
        )


@given(
    centers=st.tuples(*[st.floats(-30.0, 30.0)] * 3),
    sigma=st.sampled_from([0.5, 1.0]) | st.floats(0.05, 20.0),
    walls=st.tuples(st.floats(-40.0, 40.0), st.floats(1e-3, 50.0)).map(
        lambda w: (w[0], w[0] + w[1])
    )
    | st.sampled_from(WALLS),
    nu=st.sampled_from(ORDERS),
    embedding_nu=st.sampled_from(ORDERS),
)
def test_triple_anywhere(centers, sigma, walls, nu, embedding_nu):
    x, y, z = centers
    exact = oracle(
        [
            (POLYNOMIALS[nu], 1.0, x),
            (POLYNOMIALS[nu], 1.0, y),
            (POLYNOMIALS[embedding_nu], sigma, z),
        ],
        *walls,
    )
    found = line(nu, walls).log_triple(
        np.array([[x], [y]]), np.array([[z]]), make(embedding_nu, sigma)
    )[0, 1, 0]
    assert error(found, exact) < 1e-12


# ---------------------------------------------------------------- against quadrature, in the plane

PLANE = np.array([[0.0, 0.3], [1.2, -0.5], [-0.4, 0.8]])
ETA, SIGMA = np.array([0.8, 1.5]), np.array([0.4, 2.0])


def kappa(nu: float, x: float, y: float, center: np.ndarray, sigma: np.ndarray) -> float:
    r, s = abs(x - center[0]) / sigma[0], abs(y - center[1]) / sigma[1]
    q = [float(c) for c in POLYNOMIALS[nu]]
    return (
        sum(c * r**k for k, c in enumerate(q))
        * sum(c * s**k for k, c in enumerate(q))
        * math.exp(-r - s)
    )


@pytest.mark.parametrize(
    ("nu", "low", "high"), [(0.5, [-1.0, -1.0], [1.0, 2.0]), (1.5, [0.5, -0.2], [3.0, 0.1])]
)
def test_plane_against_quadrature(nu, low, high):
    integrals = closed_form(make(nu, ETA), Box(low, high), 2, make(1.5, SIGMA))
    options = [
        {"points": [c for c in PLANE[:, k] if low[k] < c < high[k]], "epsabs": 0.0, "epsrel": 1e-11}
        for k in range(2)
    ]

    def integrate(f):
        return nquad(f, list(zip(low, high, strict=True)), opts=options)[0]

    X, Z = PLANE[:2], PLANE[2:]
    mean = integrate(lambda x, y: kappa(nu, x, y, X[1], ETA))
    gram = integrate(lambda x, y: kappa(nu, x, y, X[0], ETA) * kappa(nu, x, y, X[1], ETA))
    triple = integrate(
        lambda x, y: (
            kappa(nu, x, y, X[0], ETA) * kappa(nu, x, y, X[1], ETA) * kappa(1.5, x, y, Z[0], SIGMA)
        )
    )
    moment = integrate(
        lambda x, y: kappa(nu, x, y, X[0], ETA) * kappa(nu, x, y, X[1], ETA) * (y - X[0, 1])
    )
    np.testing.assert_allclose(np.exp(integrals.log_mean(X)[1]), mean, rtol=1e-10)
    np.testing.assert_allclose(np.exp(integrals.log_gram(X, X)[0, 1]), gram, rtol=1e-10)
    np.testing.assert_allclose(
        np.exp(integrals.log_triple(X, Z, make(1.5, SIGMA))[0, 1, 0]), triple, rtol=1e-10
    )
    np.testing.assert_allclose(integrals.moments(X, 1)[0][0, 1], moment / gram, rtol=1e-10)


# ---------------------------------------------------------------- laws


def both(nu: float, eta=ETA):
    yield closed_form(make(nu, eta), Lebesgue(), 2)
    yield closed_form(make(nu, eta), Box([-1.0, -INF], [0.5, 0.7]), 2)


@pytest.mark.parametrize("nu", ORDERS)
def test_a_very_wide_embedding_changes_nothing(nu):
    X, Z = normal(7, 2), normal(3, 2)
    for integrals in both(nu):
        triple = integrals.log_triple(X, Z, make(nu, 1e140))
        np.testing.assert_allclose(
            triple, np.repeat(integrals.log_gram(X, X)[:, :, None], 3, axis=2), rtol=0, atol=1e-13
        )


@pytest.mark.parametrize("nu", ORDERS)
def test_the_embedding_of_the_same_kernel_is_symmetric_in_all_three(nu):
    X = normal(6, 2)
    for integrals in both(nu):
        u = integrals.log_triple(X, X, make(nu, ETA))
        np.testing.assert_array_equal(u, u.transpose(1, 0, 2))
        np.testing.assert_allclose(u, u.transpose(0, 2, 1), rtol=0, atol=1e-13)


@pytest.mark.parametrize("nu", ORDERS)
def test_gram_and_moments_are_symmetric_to_the_last_bit(nu):
    X = normal(150, 2)  # more than one block
    for integrals in both(nu):
        for found in (integrals.log_gram(X, X), *integrals.moments(X, 1)):
            np.testing.assert_array_equal(found, found.T)


@pytest.mark.parametrize("nu", ORDERS)
def test_blocks_do_not_matter(nu):
    X, Z = normal(40, 2), normal(60, 2)
    for integrals in both(nu):
        u, W = integrals.log_triple(X, Z, make(1.5, SIGMA)), integrals.log_gram(X, Z)
        first, second = integrals.moments(X, 0)
        pick, few = [0, 3, 17, 39], [59, 2]
        np.testing.assert_allclose(
            integrals.log_triple(X[pick], Z[few], make(1.5, SIGMA)),
            u[np.ix_(pick, pick, few)],
            rtol=1e-14,
        )
        np.testing.assert_allclose(
            integrals.log_gram(X[pick], Z[few]), W[np.ix_(pick, few)], rtol=1e-14
        )
        for found, whole in zip(integrals.moments(X[pick], 0), (first, second), strict=True):
            np.testing.assert_allclose(found, whole[np.ix_(pick, pick)], rtol=1e-13, atol=1e-14)


@pytest.mark.parametrize("nu", ORDERS)
def test_an_unbounded_box_is_the_whole_space_and_boxes_add_up(nu):
    X, Z = normal(5, 2), normal(4, 2)

    def all_of(low, high):
        integrals = closed_form(make(nu, ETA), Box(low, high), 2)
        return (
            integrals.log_mean(X),
            integrals.log_gram(X, Z),
            integrals.log_triple(X, Z, make(2.5, SIGMA)),
        )

    lebesgue = closed_form(make(nu, ETA), Lebesgue(), 2)
    mean, gram, triple = whole = all_of([-INF, -INF], [INF, INF])
    np.testing.assert_array_equal(mean, lebesgue.log_mean(X))
    np.testing.assert_array_equal(gram, lebesgue.log_gram(X, Z))
    np.testing.assert_array_equal(triple, lebesgue.log_triple(X, Z, make(2.5, SIGMA)))
    left, middle, right = (
        all_of([-INF, -INF], [-0.3, INF]),
        all_of([-0.3, -INF], [0.4, INF]),
        all_of([0.4, -INF], [INF, INF]),
    )
    for a, b, c, total in zip(left, middle, right, whole, strict=True):
        np.testing.assert_allclose(np.logaddexp(a, np.logaddexp(b, c)), total, rtol=0, atol=1e-13)


@pytest.mark.parametrize("nu", ORDERS)
@pytest.mark.parametrize("factor", [1e-150, 1e-8, 1e8, 1e150])
def test_scale_equivariance(nu, factor):
    X, Z, box = normal(5, 2), normal(4, 2), Box([-1.0, -2.0], [1.5, INF])
    scaled_box = Box(box.low * factor, box.high * factor)
    for measure, scaled_measure in ((Lebesgue(), Lebesgue()), (box, scaled_box)):
        plain, scaled = (
            closed_form(make(nu, ETA), measure, 2),
            closed_form(make(nu, factor * ETA), scaled_measure, 2),
        )
        jacobian = 2.0 * math.log(factor)
        np.testing.assert_allclose(
            scaled.log_mean(factor * X) - jacobian, plain.log_mean(X), atol=1e-12
        )
        np.testing.assert_allclose(
            scaled.log_gram(factor * X, factor * Z) - jacobian, plain.log_gram(X, Z), atol=1e-12
        )
        u = scaled.log_triple(factor * X, factor * Z, make(1.5, factor * SIGMA))
        np.testing.assert_allclose(
            u - jacobian, plain.log_triple(X, Z, make(1.5, SIGMA)), atol=1e-12
        )
        for k, (found, expected) in enumerate(
            zip(scaled.moments(factor * X, 1), plain.moments(X, 1), strict=True)
        ):
            np.testing.assert_allclose(found / factor / factor**k, expected, rtol=1e-12, atol=1e-13)


@pytest.mark.parametrize("nu", ORDERS)
@pytest.mark.parametrize("shift", [-1e8, 1e8])
def test_a_shift_costs_no_digits(nu, shift):
    far_X, far_Z = normal(5, 2) + shift, normal(4, 2) + shift
    X, Z = far_X - shift, far_Z - shift
    box, far_box = (
        Box([-1.0, -2.0], [1.5, INF]),
        Box([shift - 1.0, shift - 2.0], [shift + 1.5, INF]),
    )
    for measure, far_measure in ((Lebesgue(), Lebesgue()), (box, far_box)):
        near, far = (
            closed_form(make(nu, ETA), measure, 2),
            closed_form(make(nu, ETA), far_measure, 2),
        )
        np.testing.assert_array_equal(far.log_mean(far_X), near.log_mean(X))
        np.testing.assert_array_equal(far.log_gram(far_X, far_Z), near.log_gram(X, Z))
        np.testing.assert_array_equal(
            far.log_triple(far_X, far_Z, make(1.5, SIGMA)), near.log_triple(X, Z, make(1.5, SIGMA))
        )
        for found, expected in zip(far.moments(far_X, 1), near.moments(X, 1), strict=True):
            np.testing.assert_array_equal(found, expected)


def test_an_outlier_does_not_cost_the_others_their_digits():
    X = np.array([[1e9], [0.123456789012345], [0.7]])
    for measure in (Lebesgue(), Box([-1.0], [INF])):
        integrals = closed_form(Laplace(0.5), measure, 1)
        np.testing.assert_allclose(
            integrals.log_gram(X, X)[1:, 1:], integrals.log_gram(X[1:], X[1:]), rtol=1e-14
        )


@given(
    x=st.lists(st.floats(-1e300, 1e300) | st.floats(-3.0, 3.0), min_size=2, max_size=4),
    eta=st.floats(1e-100, 1e100) | st.just(1.0),
    sigma=st.floats(1e-100, 1e100) | st.just(0.5),
    walls=st.sampled_from([*WALLS, (-1e-200, 1e-200), (-1e200, 1e200), (1e6, INF)]),
    nu=st.sampled_from(ORDERS),
)
def test_never_nan_and_every_factor_shrinks_the_integral(x, eta, sigma, walls, nu):
    X = np.array(x)[:, None]
    integrals = closed_form(make(nu, eta), Box([walls[0]], [walls[1]]), 1)
    mean, gram = integrals.log_mean(X), integrals.log_gram(X, X)
    triple = integrals.log_triple(X, X, make(nu, sigma))
    for found in (mean, gram, triple):
        assert np.all(np.isfinite(found))
    slack = 1e-12 * (1.0 + np.abs(gram))
    assert np.all(gram <= mean[:, None] + slack)
    assert np.all(triple <= (gram + slack)[:, :, None])


@given(
    x=st.lists(st.floats(-1e140, 1e140) | st.floats(-3.0, 3.0), min_size=1, max_size=4),
    eta=st.floats(1e-100, 1e100) | st.just(1.0),
    walls=st.sampled_from([*WALLS, (-1e-140, 1e-140), (-1e140, 1e140), (1e6, INF)]),
    nu=st.sampled_from(ORDERS),
)
@example(
    x=[0.0, 1.0], eta=1e30, walls=(-1e-140, 1e-140), nu=1.5
)  # the square of the length over the bandwidth underflows
def test_moments_are_those_of_a_law_between_the_walls(x, eta, walls, nu):
    X = np.array(x)[:, None]
    first, second = closed_form(make(nu, eta), Box([walls[0]], [walls[1]]), 1).moments(X, 0)
    assert np.all(np.isfinite(first)) and np.all(np.isfinite(second))
    assert np.all(second >= first**2 * (1.0 - 1e-12))
    slack = 1e-13 * np.sqrt(second)
    assert np.all(first >= walls[0] - X[0, 0] - slack) and np.all(
        first <= walls[1] - X[0, 0] + slack
    )


# ---------------------------------------------------------------- the table, and what it costs


def test_the_table_finds_both_classes():
    for kernel in (Laplace(1.0, product=True), Matern(2.5, 1.0, product=True)):
        assert type(closed_form(kernel, Lebesgue(), 2)) is ExponentialLebesgue
        assert type(closed_form(kernel, Box([0.0, 0.0], [1.0, INF]), 2)) is ExponentialBox


def test_line_integral_of_four_factors():
    factors = [
        (POLYNOMIALS[1.5], 1.0, 0.3),
        (POLYNOMIALS[0.5], 0.4, -1.0),
        (POLYNOMIALS[2.5], 2.0, 0.3),
        (POLYNOMIALS[0.5], 0.7, 1.9),
    ]
    integral = LineIntegral([(s, np.array(q, dtype=np.float64)) for q, s, _ in factors], -4.0, INF)
    assert (
        error(integral.log(*(np.array([c]) for _, _, c in factors))[0], oracle(factors, -4.0, INF))
        < 1e-13
    )


@pytest.mark.parametrize("nu", [0.5, 1.5])
def test_triple_needs_little_more_than_its_answer(nu):
    X, Z = normal(100, 2), normal(100, 2)
    integrals = closed_form(make(nu), Lebesgue(), 2)
    tracemalloc.start()
    answer = integrals.log_triple(X, Z, make(nu, 0.7))
    peak = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    assert peak < 3 * answer.nbytes
