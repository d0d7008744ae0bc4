"""SoSDensity on every (kernel, measure) pair: mass, positivity, logarithms, moments."""

from __future__ import annotations

import numpy as np
import pytest
from densities import make_density
from oracles import quadrature_rule, tolerance
from tables import THIN_PAIR_CASES, PairCase, points

import ksos
from ksos.ground import resources
from ksos.kernels import Gaussian, Kernel, Laplace
from ksos.measures import Box, Discrete, Lebesgue, Measure, Normal

every_pair = pytest.mark.parametrize("pair", THIN_PAIR_CASES.values(), ids=THIN_PAIR_CASES)


@every_pair
def test_has_mass_one_is_never_negative_and_knows_its_logarithm(pair: PairCase) -> None:
    p = make_density(pair)
    nodes, w = quadrature_rule(pair.kernel, pair.measure, p.support_points)
    values = p.pdf(nodes)
    assert w @ values == pytest.approx(1.0, rel=tolerance())
    assert p.terms.mass() == pytest.approx(1.0, rel=tolerance())
    assert np.all(values >= 0.0)
    with np.errstate(divide="ignore"):
        expected = np.log(values)
    seen = values > 1e-200
    np.testing.assert_allclose(p.logpdf(nodes)[seen], expected[seen], atol=1e-10)
    K = pair.kernel(nodes, p.support_points)
    B = p.factor @ p.factor.T
    np.testing.assert_allclose(
        values,
        np.einsum("ni,ij,nj->n", K, B, K) * pair.measure.contains(nodes),
        rtol=1e-8,
        atol=1e-12,
    )


@every_pair
def test_mean_and_covariance_agree_with_quadrature(pair: PairCase) -> None:
    p = make_density(pair)
    nodes, w = quadrature_rule(pair.kernel, pair.measure, p.support_points)
    weights = w * p.pdf(nodes)
    mean = weights @ nodes
    np.testing.assert_allclose(p.mean(), mean, atol=1e-9)
    np.testing.assert_allclose(
        p.cov(), (weights[:, None] * (nodes - mean)).T @ (nodes - mean), atol=1e-8
    )
    np.testing.assert_array_equal(p.cov(), p.cov().T)


@pytest.fixture(scope="module")
def bimodal() -> ksos.SoSDensity:
    """Two dimensions, signed weights, correlated."""
    X = points(12, 2, 3)
    return ksos.minimize(
        ksos.functionals.SquaredMMD(X) + 1e-3 * ksos.functionals.Trace(),
        ksos.SoSSpace(Gaussian(0.8), X),
        tol=1e-5,
    ).distribution


def test_one_point_is_a_normal_distribution() -> None:
    p = ksos.SoSDensity(Gaussian(1.4), [[1.0, -2.0]], [[3.0]], normalize=True)
    np.testing.assert_allclose(p.mean(), [1.0, -2.0], atol=1e-15)
    np.testing.assert_allclose(p.cov(), np.eye(2) * 0.7**2, atol=1e-14)
    assert p.pdf([[1.0, -2.0]])[0] == pytest.approx(1.0 / (2 * np.pi * 0.49))


@pytest.mark.parametrize("measure", [Lebesgue(), Box([-1e17], [1e17]), Normal(0.0, 1e9)])
def test_an_outlier_in_front_costs_the_moments_no_digits(measure: object) -> None:
    x, factor = np.array([[0.0], [0.7], [1.1]]), np.array([[1.0], [-0.5], [0.8]])
    plain = ksos.SoSDensity(Gaussian(1.0), x, factor, measure, normalize=True)
    silent = np.concatenate([np.zeros((1, 1)), factor])  # a point with weight zero
    beside = ksos.SoSDensity(
        Gaussian(1.0), np.concatenate([[[-1e12]], x]), silent, measure, normalize=True
    )
    np.testing.assert_allclose(beside.mean(), plain.mean(), rtol=1e-9)
    np.testing.assert_allclose(beside.cov(), plain.cov(), rtol=1e-9)


def test_the_reference_measure_is_what_the_density_is_relative_to() -> None:
    p = ksos.SoSDensity(
        Gaussian(1e6), [[0.0]], [[1.0]], Normal(2.0, 3.0), normalize=True
    )  # a constant: p = 1
    np.testing.assert_allclose(p.pdf([[0.0], [5.0]]), 1.0, rtol=1e-9)
    assert p.mean()[0] == pytest.approx(2.0)
    assert p.cov()[0, 0] == pytest.approx(9.0)


def test_outside_the_box_there_is_nothing() -> None:
    p = ksos.SoSDensity(Gaussian(1.0), [[0.0]], [[1.0]], Box([-1.0], [1.0]), normalize=True)
    np.testing.assert_array_equal(p.pdf([[1.5], [-1.0000001]]), [0.0, 0.0])
    np.testing.assert_array_equal(p.logpdf([[1.5], [-1.0000001]]), [-np.inf, -np.inf])
    assert p.pdf([[1.0]])[0] > 0.0


@pytest.mark.parametrize("d", [1, 784])
def test_far_away_the_logarithm_is_finite_and_nothing_is_nan(d: int) -> None:
    p = ksos.SoSDensity(Gaussian(1.0), points(3, d), np.ones((3, 1)), normalize=True)
    queries = np.stack([np.full(d, value) for value in (0.0, 50.0, 1e5, 1e160, 1e300)])
    log_density = p.logpdf(queries)
    assert not np.any(np.isnan(log_density))
    assert np.all(np.isfinite(log_density[:3]))
    assert np.all(np.diff(log_density[:4]) < 0.0)
    assert log_density[-1] == -np.inf
    assert np.all(p.pdf(queries) >= 0.0)
    if d == 1:  # the leading Gaussian of the nearest point
        x = points(3, 1)[:, 0].max()
        expected = 2 * (-((1e5 - x) ** 2)) + np.log(p.factor[np.argmax(points(3, 1)[:, 0]), 0] ** 2)
        assert log_density[2] == pytest.approx(expected, rel=1e-12)


def test_at_a_zero_of_the_density_the_logarithm_is_minus_infinity_or_nearly() -> None:
    p = ksos.SoSDensity(Gaussian(1.0), [[-1.0], [1.0]], [[1.0], [-1.0]], normalize=True)
    assert 0.0 <= p.pdf([[0.0]])[0] < 1e-30
    assert p.logpdf([[0.0]])[0] < -69.0


def test_blocks_of_rows_change_nothing(bimodal: ksos.SoSDensity) -> None:
    X = points(200, 2, 9)
    whole = bimodal.pdf(X), bimodal.logpdf(X), bimodal.terms.mass()
    with resources(block=7):
        parts = bimodal.pdf(X), bimodal.logpdf(X), bimodal.terms.mass()
    for got, expected in zip(parts, whole, strict=True):
        np.testing.assert_allclose(got, expected, rtol=1e-9)


@pytest.mark.parametrize(
    ("arguments", "error", "message"),
    [
        (
            {"factor": [[1.0], [1.0]]},
            ValueError,
            "the density has mass .*, not 1; pass normalize=True",
        ),
        ({"factor": [[1.0]]}, ValueError, "factor has 1 rows, but there are 2 support points"),
        ({"factor": [[0.0], [0.0]], "normalize": True}, ValueError, "without mass"),
        ({"factor": [[np.nan], [0.0]]}, ValueError, "factor contains NaN"),
        (
            {"measure": Discrete([[1e9]]), "factor": [[1.0], [1.0]]},
            ValueError,
            "the kernel vanishes on",
        ),
        (
            {"kernel": Laplace(1.0), "support_points": points(2, 2), "factor": [[1.0], [1.0]]},
            ValueError,
            "product=True",
        ),
    ],
)
def test_refuses_what_is_not_a_density(
    arguments: dict, error: type[Exception], message: str
) -> None:
    with pytest.raises(error, match=message):
        ksos.SoSDensity(**{"kernel": Gaussian(1.0), "support_points": [[0.0], [1.0]], **arguments})


def test_repr_tells_dimension_support_rank_kernel_and_measure() -> None:
    p = ksos.SoSDensity(
        Gaussian(1.0), points(4, 2), np.ones((4, 3)), Box([-9.0, -9.0], [9.0, 9.0]), normalize=True
    )
    assert (
        repr(p)
        == "SoSDensity(d=2, m=4, rank=3, kernel=Gaussian(sigma=1.0), measure=Box(low=[-9.0, -9.0],"
        " high=[9.0, 9.0]))"
    )


@pytest.mark.parametrize("scale", [1e150, 1e153, 1e154])
@pytest.mark.parametrize("measure", [Lebesgue(), Box([-9.0], [9.0])], ids=repr)
@pytest.mark.parametrize("kernel", [Gaussian(1.0), Laplace(1.0, product=True)], ids=repr)
def test_the_covariance_overflows_only_if_it_must(
    kernel: Kernel, measure: Measure, scale: float
) -> None:
    p = ksos.SoSDensity(kernel, [[-6.0], [-1.0], [4.0]], np.eye(3), measure, normalize=True)
    moved = p.affine(scale)
    with np.errstate(over="ignore"):
        np.testing.assert_allclose(moved.cov(), scale * (scale * p.cov()), rtol=1e-12)
    np.testing.assert_allclose(moved.mean(), scale * p.mean(), rtol=1e-12)
