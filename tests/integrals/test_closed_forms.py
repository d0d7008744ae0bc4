"""Laws of the integrals, run on every (kernel, measure) pair and compared with quadrature; small
Gaussian cases with mpmath.
"""

from __future__ import annotations

import math

import mpmath
import numpy as np
import pytest
from hypothesis import given, strategies as st
from oracles import quadrature_rule, tolerance
from tables import KERNEL_CASES, PAIR_CASES, PairCase, points

from ksos.exceptions import IntegralNotAvailableError
from ksos.integrals import (
    CLOSED_FORMS,
    apply_triple,
    closed_form,
    log_gauss_mass,
    truncated_moments,
)
from ksos.kernels import Gaussian, Kernel, Laplace, Matern
from ksos.measures import Box, Discrete, GaussianMixture, Lebesgue, Measure, Normal

every_pair = pytest.mark.parametrize("pair", PAIR_CASES.values(), ids=PAIR_CASES)


def other_bandwidth(kernel: Kernel) -> Kernel:
    """σ = η/2, where exponents cancel: the hardest of the easy choices."""
    return kernel.with_sigma(0.5 * kernel.sigma)


def test_every_closed_form_is_in_the_table_of_cases() -> None:
    tested = {(type(pair.kernel), type(pair.measure)) for pair in PAIR_CASES.values()}
    listed = {(kernel, measure) for kernel, measure in CLOSED_FORMS if kernel is not Kernel}
    assert listed <= tested


@every_pair
def test_mean_gram_and_triple_agree_with_quadrature(pair: PairCase) -> None:
    X, Y, Z = points(3, pair.d), points(2, pair.d, 1), points(2, pair.d, 2)
    embedding = other_bandwidth(pair.kernel)
    integrals = closed_form(pair.kernel, pair.measure, pair.d, embedding)
    nodes, w = quadrature_rule(pair.kernel, pair.measure, np.concatenate([X, Y, Z]))
    k_X, k_Y, k_Z = pair.kernel(nodes, X), pair.kernel(nodes, Y), embedding(nodes, Z)
    np.testing.assert_allclose(np.exp(integrals.log_mean(X)), w @ k_X, rtol=tolerance())
    np.testing.assert_allclose(
        np.exp(integrals.log_gram(X, Y)), np.einsum("n,ni,nj", w, k_X, k_Y), rtol=tolerance()
    )
    cross = integrals.log_product((pair.kernel, X), (embedding, Z))
    np.testing.assert_allclose(np.exp(cross), np.einsum("n,ni,nr", w, k_X, k_Z), rtol=tolerance())
    triple = np.einsum("n,ni,nj,nr", w, k_X, k_X, k_Z)
    np.testing.assert_allclose(
        np.exp(integrals.log_triple(X, Z, embedding)), triple, rtol=tolerance()
    )
    B = np.array([[2.0, -1.0, 0.3], [-1.0, 1.5, 0.2], [0.3, 0.2, 0.7]])
    applied = apply_triple(integrals, X, B, 0.7, Z, embedding)
    np.testing.assert_allclose(applied * math.exp(0.7), np.einsum("ij,ijr", B, triple), rtol=1e-8)


@every_pair
def test_gram_is_symmetric_positive_and_its_diagonal_is_known(pair: PairCase) -> None:
    X = points(70, pair.d)
    integrals = closed_form(pair.kernel, pair.measure, pair.d)
    log_W = integrals.log_gram(X, X)
    np.testing.assert_allclose(log_W, log_W.T, rtol=0, atol=1e-12)
    np.testing.assert_allclose(integrals.log_diagonal(X), np.diagonal(log_W), rtol=0, atol=1e-12)
    W = np.exp(log_W - log_W.max())
    assert np.linalg.eigvalsh(W)[0] > -1e-13 * np.trace(W)


@every_pair
def test_pairwise_factors_multiply_to_the_triple_integral(pair: PairCase) -> None:
    X, Z, embedding = points(4, pair.d), points(3, pair.d, 2), other_bandwidth(pair.kernel)
    integrals = closed_form(pair.kernel, pair.measure, pair.d, embedding)
    if not integrals.pairwise:
        with pytest.raises(NotImplementedError, match="does not factorize"):
            integrals.log_pairwise(X, Z, embedding)
        return
    log_c, log_G, log_H = integrals.log_pairwise(X, Z, embedding)
    product = log_c + log_G[:, :, None] + log_H[:, None, :] + log_H[None, :, :]
    np.testing.assert_allclose(product, integrals.log_triple(X, Z, embedding), rtol=0, atol=1e-12)


@every_pair
def test_moments_agree_with_quadrature(pair: PairCase) -> None:
    X = points(3, pair.d)
    integrals = closed_form(pair.kernel, pair.measure, pair.d)
    if isinstance(pair.measure, Discrete) or pair.kernel.full or pair.measure.by_components:
        with pytest.raises(NotImplementedError, match="not products"):
            integrals.moments(X, 0)
        return
    nodes, w = quadrature_rule(pair.kernel, pair.measure, X)
    values = pair.kernel(nodes, X)
    mass = np.einsum("n,ni,nj", w, values, values)
    for k in range(pair.d):
        t = nodes[:, k] - X[0, k]
        first, second = integrals.moments(X, k)
        np.testing.assert_allclose(
            first, np.einsum("n,ni,nj", w * t, values, values) / mass, rtol=0, atol=1e-9
        )
        np.testing.assert_allclose(
            second, np.einsum("n,ni,nj", w * t * t, values, values) / mass, rtol=0, atol=1e-9
        )


@every_pair
@given(scale=st.sampled_from([1e-150, 1e-6, 1e6, 1e150]), shift=st.sampled_from([0.0, 1e8]))
def test_scaling_and_shifting_everything_only_changes_the_volume(
    pair: PairCase, scale: float, shift: float
) -> None:
    X = np.round(points(3, pair.d) * 256) / 256 + (shift if scale == 1.0 else 0.0)
    kernel, measure = (
        pair.kernel.scaled(scale),
        pair.measure.image(lambda x: x * scale, np.full(pair.d, scale)),
    )
    moved = closed_form(kernel, measure, pair.d).log_gram(X * scale, X * scale)
    volume = pair.d * math.log(scale) if measure.by_volume else 0.0
    np.testing.assert_allclose(
        moved - volume,
        closed_form(pair.kernel, pair.measure, pair.d).log_gram(X, X),
        rtol=0,
        atol=1e-9,
    )


@every_pair
def test_data_far_from_the_origin_keep_their_digits(pair: PairCase) -> None:
    shift = 2.0**27  # about 1e8; the points and walls below lie on a grid that survives it exactly
    X = np.round(points(4, pair.d) * 2**20) / 2**20
    measure, moved = (_snapped(pair.measure, offset) for offset in (0.0, shift))
    here, there = (closed_form(pair.kernel, m, pair.d, pair.kernel) for m in (measure, moved))
    np.testing.assert_allclose(
        there.log_gram(X + shift, X + shift), here.log_gram(X, X), rtol=0, atol=1e-12
    )
    Z = X[:2]
    np.testing.assert_allclose(
        there.log_triple(X + shift, Z + shift, pair.kernel),
        here.log_triple(X, Z, pair.kernel),
        rtol=0,
        atol=1e-11,
    )


def _snapped(measure: Measure, shift: float) -> Measure:
    def snap(x: np.ndarray) -> np.ndarray:
        return np.round(x * 2**20) / 2**20 + shift

    if isinstance(measure, Box):
        return Box(snap(measure.low), snap(measure.high))
    if isinstance(measure, Normal):
        return Normal(snap(measure.mean), measure.scale)
    if isinstance(measure, GaussianMixture):
        return GaussianMixture(measure.weights, snap(measure.means), measure.covariances)
    if isinstance(measure, Discrete):
        return Discrete(snap(measure.points), measure.weights)
    return measure


# --- mpmath, 30 digits ----------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("low", "high"),
    [
        (0.0, 1.0),
        (-40.0, -39.0),
        (3.0, 3.0001),
        (-2.0, 5.0),
        (1e3, 1e3 + 1),
        (2.0, np.inf),
        (-np.inf, -7.0),
    ],
)
@pytest.mark.parametrize("centers", [(5.0, 5.0, 5.0), (0.3, -1.2, 2.0)])
def test_gaussian_on_a_box_to_thirty_digits(
    low: float, high: float, centers: tuple[float, float, float]
) -> None:
    eta, sigma = 0.9, 1.3
    X, Z = np.array([[centers[0]], [centers[1]]]), np.array([[centers[2]]])
    integrals = closed_form(Gaussian(eta), Box([low], [high]), 1, Gaussian(sigma))
    with mpmath.workdps(40):
        a1, a2 = 1 / mpmath.mpf(eta) ** 2, 1 / mpmath.mpf(sigma) ** 2

        def exact(terms: list[tuple[float, mpmath.mpf]]) -> float:
            A = mpmath.fsum(alpha for _, alpha in terms)
            mean = mpmath.fsum(alpha * mpmath.mpf(x) for x, alpha in terms) / A
            rest = mpmath.fsum(alpha * (mpmath.mpf(x) - mean) ** 2 for x, alpha in terms)

            def tail(
                x: float,
            ) -> (
                mpmath.mpf
            ):  # ∫_x^∞, which keeps its digits far out on the right; the left is its mirror image
                return mpmath.erfc(mpmath.sqrt(A) * (x - mean))

            if low + high < 2 * mean:
                mass = mpmath.erfc(-mpmath.sqrt(A) * (high - mean)) - mpmath.erfc(
                    -mpmath.sqrt(A) * (low - mean)
                )
            else:
                mass = tail(low) - tail(high)
            return float(mpmath.log(mpmath.sqrt(mpmath.pi / A) * mass / 2) - rest)

        one, two, three = (
            [(centers[0], a1)],
            [(centers[0], a1), (centers[1], a1)],
            [(centers[0], a1), (centers[1], a1), (centers[2], a2)],
        )
        expected = [exact(one), exact(two), exact(three)]
    values = [
        integrals.log_mean(X)[0],
        integrals.log_gram(X, X)[0, 1],
        integrals.log_triple(X, Z, Gaussian(sigma))[0, 1, 0],
    ]
    # the position of a narrow box relative to the points is rounded once: ε·distance/width,
    # relative
    np.testing.assert_allclose(
        values, expected, rtol=1e-14, atol=1e-12 if high - low > 0.1 else 1e-11
    )


def test_a_box_far_from_the_points_has_the_mass_it_has() -> None:
    log_mass = float(
        log_gauss_mass(np.sqrt(3.0) * np.array(0.0 - 5.0), np.sqrt(3.0) * np.array(1.0 - 5.0))
    )
    assert math.exp(log_mass) == pytest.approx(0.5 * math.erfc(4.0 * math.sqrt(3.0)), rel=1e-12)
    assert 5e-23 < math.exp(log_mass) < 7e-23


@pytest.mark.parametrize("low", [-900.0, -30.0, -3.0, -0.7, 0.0, 0.4, 0.6, 5.0, 28.0, 900.0])
@pytest.mark.parametrize("width", [1e-9, 1e-4, 0.03, 0.8, 5.0, 2e3])
def test_gauss_mass_and_truncated_moments_to_thirty_digits(low: float, width: float) -> None:
    high = low + width
    with mpmath.workdps(60):
        a, b = mpmath.mpf(low), mpmath.mpf(high)
        mass = (
            (mpmath.erfc(a) - mpmath.erfc(b)) / 2
            if a + b > 0
            else (mpmath.erfc(-b) - mpmath.erfc(-a)) / 2
        )
        density = [mpmath.exp(-(x**2)) / (2 * mpmath.sqrt(mpmath.pi)) for x in (a, b)]
        first = (density[0] - density[1]) / mass
        second = mpmath.mpf(1) / 2 + (a * density[0] - b * density[1]) / mass
        expected = float(mpmath.log(mass)), float(first), float(second)
    log_mass = float(log_gauss_mass(np.array(low), np.array(high)))
    assert log_mass == pytest.approx(expected[0], rel=1e-14, abs=1e-12)
    got = [float(value) for value in truncated_moments(np.array(low), np.array(high))]
    scale = max(1.0, abs(low), abs(high))
    assert got[0] == pytest.approx(expected[1], abs=1e-9 * min(scale, 1e9), rel=1e-9)
    assert got[1] == pytest.approx(expected[2], abs=1e-9, rel=1e-9)


# --- what is missing says so ----------------------------------------------------------------------


@pytest.mark.parametrize(
    ("kernel", "measure", "d", "message"),
    [
        (
            Laplace(1.0),
            Lebesgue(),
            2,
            r"not a product over the features; pass product=True.*Discrete.quadrature",
        ),
        (Matern(1.5, 1.0), Box([0.0] * 5, [1.0] * 5), 5, r"product=True.*Discrete.qmc"),
        (Laplace(1.0), Normal(), 1, r"no closed-form integrals there.*Discrete.quadrature"),
        (Laplace(1.0), Normal(), 2, r"no closed-form integrals there.*Discrete.quadrature"),
        (Matern(1.2, 1.0), Lebesgue(), 2, r"half-integer nu only.*Discrete.quadrature"),
        (Matern(1.2, 1.0), Lebesgue(), 1, r"half-integer nu only.*Discrete.quadrature"),
    ],
)
def test_a_missing_pair_names_the_measure_to_use(
    kernel: Kernel, measure: Measure, d: int, message: str
) -> None:
    with pytest.raises(IntegralNotAvailableError, match=message):
        closed_form(kernel, measure, d)
    assert closed_form(kernel, Discrete(points(9, d)), d) is not None


def test_kernels_that_do_not_integrate_together_say_so() -> None:
    with pytest.raises(IntegralNotAvailableError, match=r"have no closed-form integrals together"):
        closed_form(Gaussian(1.0), Lebesgue(), 1, Laplace(1.0))
    assert closed_form(Laplace(1.0), Lebesgue(), 1, Matern(2.5, 0.3)) is not None
    for kernel in KERNEL_CASES.values():
        assert closed_form(Gaussian(1.0), Discrete(points(4, 1)), 1, kernel) is not None


def test_dimensions_must_agree() -> None:
    with pytest.raises(ValueError, match="Box measure has 2 features, but the points have 1"):
        closed_form(Gaussian(1.0), Box([0.0, 0.0], [1.0, 1.0]), 1)
    with pytest.raises(ValueError, match="3 bandwidths but the points have 2 features"):
        closed_form(Gaussian([1.0, 1.0, 1.0]), Lebesgue(), 2)


@pytest.mark.parametrize("angle", [0.3, 1.2])
def test_a_mixture_of_normal_laws_to_thirty_digits(angle: float) -> None:
    turn = np.array([[np.cos(angle), -np.sin(angle)], [np.sin(angle), np.cos(angle)]])
    S, T = turn @ np.diag([0.9, 0.2]) @ turn.T, turn.T @ np.diag([0.3, 1.1]) @ turn
    mixture = GaussianMixture(
        [1, 3],
        [[0.3, -0.2], [1.0, 0.8]],
        [turn @ np.diag([0.5, 0.04]) @ turn.T, [[0.3, 0.1], [0.1, 0.4]]],
    )
    x, z = np.array([[0.4, -1.1], [1.3, 0.2]]), np.array([[0.1, 0.6]])
    integrals = closed_form(Gaussian(S), mixture, 2, Gaussian(T))
    with mpmath.workdps(40):
        # ∫ Π exp(−(x − a)ᵀM(x − a)) dx, the normal law being one more factor with M = Σ⁻¹/2
        def product(*factors: tuple[np.ndarray, np.ndarray]) -> mpmath.mpf:
            matrices = [mpmath.inverse(mpmath.matrix(metric.tolist())) for metric, _ in factors]
            centers = [mpmath.matrix(center.tolist()) for _, center in factors]
            A = sum(matrices[1:], matrices[0])
            b = mpmath.inverse(A) * sum(
                (M * a for M, a in zip(matrices[1:], centers[1:], strict=True)),
                matrices[0] * centers[0],
            )
            exponent = sum(
                ((a - b).T * M * (a - b))[0] for M, a in zip(matrices, centers, strict=True)
            )
            return mpmath.pi / mpmath.sqrt(mpmath.det(A)) * mpmath.exp(-exponent)

        def exact(*factors: tuple[np.ndarray, np.ndarray]) -> float:
            parts = zip(*mixture.normals(2), strict=True)
            return float(
                mpmath.log(
                    sum(
                        mpmath.mpf(w)
                        * product(*factors, (2.0 * C, mean))
                        / (2 * mpmath.pi * mpmath.sqrt(mpmath.det(mpmath.matrix(C.tolist()))))
                        for w, mean, C in parts
                    )
                )
            )

        assert integrals.log_mean(x)[1] == pytest.approx(exact((S, x[1])), abs=1e-12)
        assert integrals.log_gram(x, x)[0, 1] == pytest.approx(
            exact((S, x[0]), (S, x[1])), abs=1e-12
        )
        assert integrals.log_triple(x, z, Gaussian(T))[0, 1, 0] == pytest.approx(
            exact((S, x[0]), (S, x[1]), (T, z[0])), abs=1e-12
        )
