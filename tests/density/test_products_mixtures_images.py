"""Products with a Gaussian, mixtures and affine images: pointwise identities, conjugacy,
equivariance, extreme scales, bad input.
"""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import pytest
from densities import make_density, normal
from hypothesis import given, settings, strategies as st
from oracles import quadrature_rule
from strategies import clouds, degenerate_data
from tables import PAIR_CASES, PairCase, points

import ksos
from ksos.kernels import Gaussian, Laplace
from ksos.measures import Box, Discrete, Lebesgue, Measure, Normal

every_pair = pytest.mark.parametrize("pair", PAIR_CASES.values(), ids=PAIR_CASES)
CONJUGATE = {
    name: pair
    for name, pair in PAIR_CASES.items()
    if isinstance(pair.kernel, Gaussian) or isinstance(pair.measure, Discrete)
}


# --- times a Gaussian ---


@pytest.mark.parametrize("pair", CONJUGATE.values(), ids=CONJUGATE)
def test_times_a_gaussian_is_the_product_scaled_to_mass_one(pair: PairCase) -> None:
    p = make_density(pair, 6)
    mean, scale = np.array([0.3, -0.4])[: pair.d], np.array([0.6, 1.5])[: pair.d]
    q = p.times_gaussian(mean, scale)
    nodes, w = quadrature_rule(pair.kernel, pair.measure, p.support_points, per_panel=24)
    product = p.pdf(nodes) * np.exp(-0.5 * np.sum(((nodes - mean) / scale) ** 2, axis=1))
    expected = product / (w @ product)
    if isinstance(pair.measure, Discrete):  # measures may differ: masses may not
        np.testing.assert_allclose(
            q.measure.weights * q.pdf(q.measure.points), w * expected, rtol=1e-8
        )
    else:
        np.testing.assert_allclose(q.pdf(nodes), expected, rtol=1e-8, atol=1e-10)
    assert q.terms.mass() == pytest.approx(1.0, abs=1e-12)


def test_conjugate_normals() -> None:
    q = normal().times_gaussian(3.0, 0.5)
    assert q.mean()[0] == pytest.approx(3.0 / 1.25)
    assert q.cov()[0, 0] == pytest.approx(0.25 / 1.25)


@given(clouds(2, 6, 2, 2), st.floats(-3.0, 3.0), st.floats(0.05, 20.0))
@settings(max_examples=25)
def test_updates_commute_and_accumulate(X: np.ndarray, mean: float, scale: float) -> None:
    """Two measurements in either order, and one of combined precision, lead to one posterior; no
    information leads nowhere.
    """
    p = ksos.SoSDensity(
        Gaussian([0.7, 1.2]),
        X,
        np.random.default_rng(1).normal(size=(X.shape[0], 2)),
        normalize=True,
    )
    first, second = ([mean, 0.5], [scale, 2.0]), ([0.5, mean], [np.inf, scale])
    one, other = (
        p.times_gaussian(*first).times_gaussian(*second),
        p.times_gaussian(*second).times_gaussian(*first),
    )
    np.testing.assert_allclose(one.logpdf(X), other.logpdf(X), atol=1e-7)
    twice = p.times_gaussian(mean, scale).times_gaussian(mean, scale)
    np.testing.assert_allclose(
        twice.logpdf(X), p.times_gaussian(mean, scale / np.sqrt(2.0)).logpdf(X), atol=1e-7
    )
    np.testing.assert_allclose(p.times_gaussian(mean, np.inf).logpdf(X), p.logpdf(X), atol=1e-10)


def test_a_sharp_measurement_is_a_condition() -> None:
    p = ksos.SoSDensity(Gaussian([0.7, 1.2]), points(6, 2), points(6, 2, 1), normalize=True)
    sharp, held = p.times_gaussian([0.3, 0.0], [1e-7, np.inf]), p.conditional({0: 0.3})
    assert sharp.marginal([1]).mean()[0] == pytest.approx(held.mean()[0], abs=1e-7)
    x = points(7, 1, 3)
    np.testing.assert_allclose(sharp.marginal([1]).pdf(x), held.pdf(x), rtol=1e-6)


@pytest.mark.parametrize("mean", [1e3, 1e8, 1e14])
def test_a_measurement_far_away(mean: float) -> None:
    q = normal().times_gaussian(mean, 1.0)
    assert q.mean()[0] == pytest.approx(mean / 2.0)
    pair = ksos.SoSDensity(
        Gaussian(2.0), [[0.0], [0.25]], [[1.0], [1.0]], normalize=True
    ).times_gaussian(mean, 1e3 * mean)
    x = np.array([[0.1]])
    plain = ksos.SoSDensity(Gaussian(2.0), [[0.0], [0.25]], [[1.0], [1.0]], normalize=True)
    assert pair.logpdf(x)[0] == pytest.approx(
        plain.logpdf(x)[0], abs=1e-3
    )  # a wide likelihood hardly matters, wherever it is centered
    assert np.isfinite(pair.mean()[0])


@pytest.mark.parametrize("mean", [1e160, 1e300])
def test_a_measurement_beyond_all_digits_is_no_nan(mean: float) -> None:
    q = normal().times_gaussian(mean, 1.0)
    assert q.mean()[0] == pytest.approx(0.5 * mean)
    assert normal().times_gaussian(mean, 1e5).terms.mass() == pytest.approx(1.0)


def test_only_gaussian_kernels_are_closed_under_products_off_the_atoms() -> None:
    p = ksos.SoSDensity(Laplace(1.0), points(3, 1), np.ones((3, 1)), normalize=True)
    with pytest.raises(
        ksos.IntegralNotAvailableError, match="use the Gaussian kernel, or a discrete measure"
    ):
        p.times_gaussian(0.0, 1.0)


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ((0.0, 0.0), "scale must be a positive number"),
        ((0.0, -1.0), "scale must be a positive number"),
        ((0.0, np.nan), "scale must be a positive number"),
        ((0.0, [1.0, 2.0, 3.0]), "one for each of the 2 features"),
        ((0.0, True), "scale must be a positive number"),
        ((0.0, "a"), "scale must be a positive number"),
        ((np.inf, 1.0), "mean contains infinity"),
        ((np.nan, 1.0), "mean contains NaN"),
        (([0.0, 1.0, 2.0], 1.0), "mean must have length 2"),
    ],
)
def test_times_gaussian_refuses(arguments: tuple, message: str) -> None:
    p = ksos.SoSDensity(Gaussian(1.0), points(3, 2), np.ones((3, 1)), normalize=True)
    with pytest.raises(ValueError, match=message):
        p.times_gaussian(*arguments)


def test_a_measurement_where_no_atom_is() -> None:
    p = ksos.SoSDensity(Laplace(1.0), [[0.0]], [[1.0]], Discrete([[0.0], [1.0]]), normalize=True)
    with pytest.raises(ValueError, match="the density vanishes where the Gaussian"):
        p.times_gaussian(1e200, 1e-20)
    assert p.times_gaussian(1e6, 1e-3).mean()[0] == pytest.approx(1.0)


# --- every operation on data that break things ---


@given(degenerate_data(), st.sampled_from([Gaussian, Laplace]))
@settings(max_examples=40)
def test_degenerate_data_make_no_nan(X: np.ndarray, kind: type[Gaussian] | type[Laplace]) -> None:
    X = np.asarray(X, dtype=np.float64)
    X = np.concatenate([X, X[:, :1]], axis=1)  # two features at least
    m, d = X.shape
    spread = np.ptp(X, axis=0)
    sigma = np.where(spread > 0.0, 0.5 * spread, np.maximum(np.abs(X).max(axis=0), 1.0))
    kernel = Gaussian(sigma) if kind is Gaussian else Laplace(sigma, product=True)
    p = ksos.SoSDensity(
        kernel, X, np.stack([np.ones(m), np.linspace(-1.0, 1.0, m)], axis=1), normalize=True
    )
    assert p.marginal([d - 1]).terms.mass() == pytest.approx(1.0, abs=1e-7)
    assert p.conditional({0: X[0, 0]}).terms.mass() == pytest.approx(1.0, abs=1e-7)
    rows = p.conditional_logpdf(X, given=[0])
    assert np.all(np.isfinite(rows))
    image = p.affine(-2.0, X[0])
    np.testing.assert_allclose(
        image.logpdf(-2.0 * X + X[0]), p.logpdf(X) - d * np.log(2.0), atol=1e-6
    )
    np.testing.assert_allclose(ksos.mixture([p, p]).logpdf(X), p.logpdf(X), atol=1e-7)
    assert p.compress(m=1, landmarks=X).density.terms.mass() == pytest.approx(1.0, abs=1e-7)
    if kind is Gaussian:
        assert p.times_gaussian(X[0], sigma).terms.mass() == pytest.approx(1.0, abs=1e-7)


# --- mixtures ---


@every_pair
def test_a_mixture_is_linear(pair: PairCase) -> None:
    parts = [
        make_density(pair, 4, seed=seed) for seed in (0, 0, 7)
    ]  # two over the same points, one over others
    parts[1] = ksos.SoSDensity(
        pair.kernel, points(4, pair.d), points(4, 3, 9), pair.measure, normalize=True
    )
    mixed = ksos.mixture(parts, [2.0, 1.0, 5.0])
    x = np.clip(points(20, pair.d, 3), -0.25, 0.35)
    expected = sum(w * p.pdf(x) for w, p in zip((0.25, 0.125, 0.625), parts, strict=True))
    np.testing.assert_allclose(mixed.pdf(x), expected, rtol=1e-9)
    np.testing.assert_allclose(
        mixed.mean(),
        sum(w * p.mean() for w, p in zip((0.25, 0.125, 0.625), parts, strict=True)),
        atol=1e-9,
    )
    assert mixed.terms.mass() == pytest.approx(1.0, abs=1e-12)
    assert mixed.support_points.shape[0] == 8  # the shared points are there once
    assert mixed.rank <= 7


def test_a_mixture_of_one_and_weights_of_zero() -> None:
    p, q = (make_density(PairCase(Gaussian(0.8), Lebesgue(), 2), 5, seed=seed) for seed in (0, 1))
    x = points(6, 2, 3)
    np.testing.assert_allclose(ksos.mixture([p]).pdf(x), p.pdf(x), rtol=1e-12)
    np.testing.assert_allclose(ksos.mixture([p, q], [1.0, 0.0]).pdf(x), p.pdf(x), rtol=1e-12)
    np.testing.assert_allclose(
        ksos.mixture([p, q]).pdf(x), 0.5 * p.pdf(x) + 0.5 * q.pdf(x), rtol=1e-12
    )
    assert ksos.mixture([p, q], [1.0, 0.0]).support_points.shape[0] == 5
    same = ksos.SoSDensity(Gaussian([0.8, 0.8]), p.support_points, p.factor, normalize=True)
    # one bandwidth, written in two ways
    assert ksos.mixture([p, same]).support_points.shape[0] == 5


def test_a_mixture_in_hundreds_of_dimensions_and_with_tiny_weights() -> None:
    p, q = (
        ksos.SoSDensity(Gaussian(3.0), points(4, 784, seed), np.ones((4, 1)), normalize=True)
        for seed in (0, 1)
    )
    mixed = ksos.mixture([p, q], [1.0, 1e-300])
    np.testing.assert_allclose(
        mixed.logpdf(p.support_points), p.logpdf(p.support_points), rtol=1e-12
    )
    assert np.all(np.isfinite(mixed.logpdf(q.support_points)))


@pytest.mark.parametrize(
    ("weights", "message"),
    [
        ([1.0, -1.0], "weights must not be negative; entry 1 is -1"),
        ([0.0, 0.0], "weights must not be zero everywhere"),
        ([1.0], "weights must have length 2; got 1"),
        ([1.0, np.nan], "weights contains NaN"),
        ([1.0, np.inf], "weights contains infinity"),
    ],
)
def test_mixture_refuses_weights(weights: list, message: str) -> None:
    with pytest.raises(ValueError, match=message):
        ksos.mixture([normal(), normal()], weights)


@pytest.mark.parametrize(
    ("other", "message"),
    [
        (
            lambda: ksos.SoSDensity(
                Gaussian(2.0), [[0.0]], [[1.0]], Discrete([[0.0]]), normalize=True
            ),
            "mix with others on the same measure",
        ),
        (
            lambda: ksos.SoSDensity(Gaussian(2.0), [[0.0, 0.0]], [[1.0]], normalize=True),
            "density 0 has 1 features, but density 1 has 2",
        ),
    ],
)
def test_mixture_refuses_unlike_densities(
    other: Callable[[], ksos.SoSDensity], message: str
) -> None:
    with pytest.raises(ValueError, match=message):
        ksos.mixture([normal(), other()])


def test_mixture_refuses_what_are_not_densities() -> None:
    with pytest.raises(ValueError, match="at least one density"):
        ksos.mixture([])
    with pytest.raises(TypeError, match="densities must be a list of SoSDensity"):
        ksos.mixture([normal(), 3])
    with pytest.raises(TypeError, match="densities must be a list of SoSDensity"):
        ksos.mixture(3)


# --- affine images ---

SCALE, SHIFT = np.array([-2.0, 0.5]), np.array([0.75, -3.0])


@every_pair
def test_the_affine_image_obeys_the_change_of_variables(pair: PairCase) -> None:
    p, scale, shift = make_density(pair, 6), SCALE[: pair.d], SHIFT[: pair.d]
    q = p.affine(scale, shift)
    x = points(20, pair.d, 3)
    # the others are moved with their mass
    jacobian = np.sum(np.log(np.abs(scale))) if isinstance(pair.measure, Lebesgue | Box) else 0.0
    np.testing.assert_allclose(q.logpdf(scale * x + shift), p.logpdf(x) - jacobian, atol=1e-9)
    np.testing.assert_allclose(q.mean(), scale * p.mean() + shift, atol=1e-9)
    np.testing.assert_allclose(q.cov(), np.outer(scale, scale) * p.cov(), atol=1e-9)
    assert q.terms.mass() == pytest.approx(1.0, abs=1e-12)
    back = q.affine(1.0 / scale, -shift / scale)
    np.testing.assert_allclose(back.logpdf(x), p.logpdf(x), atol=1e-9)


@pytest.mark.parametrize(
    "measure",
    [Lebesgue(), Box([-1.0, -np.inf], [np.inf, 2.0]), Normal([0.1, 0.2], [1.0, 2.0])],
    ids=repr,
)
def test_operations_commute_with_affine_maps(measure: Measure) -> None:
    p = ksos.SoSDensity(
        Gaussian([0.8, 1.1]), points(6, 2), points(6, 2, 1), measure, normalize=True
    )
    q, x = p.affine(SCALE, SHIFT), points(9, 1, 4)
    pairs = [
        (q.marginal([1]), p.marginal([1]).affine(SCALE[1], SHIFT[1])),
        (
            q.conditional({0: SCALE[0] * 0.2 + SHIFT[0]}),
            p.conditional({0: 0.2}).affine(SCALE[1], SHIFT[1]),
        ),
        (
            q.times_gaussian(SCALE * 0.3 + SHIFT, np.abs(SCALE)),
            p.times_gaussian(0.3, 1.0).affine(SCALE, SHIFT),
        ),
        (ksos.mixture([q, q]), ksos.mixture([p, p]).affine(SCALE, SHIFT)),
    ]
    for left, right in pairs:
        at = (
            np.tile(x, (1, left.n_features)) * SCALE[-left.n_features :] + SHIFT[-left.n_features :]
        )
        np.testing.assert_allclose(left.logpdf(at), right.logpdf(at), atol=1e-8)


@pytest.mark.parametrize("scale", [1e-150, 1e-6, 1e6, 1e150])
@pytest.mark.parametrize(
    "kernel", [Gaussian(0.8), Laplace(0.8, product=True)], ids=["gaussian", "laplace"]
)
def test_affine_images_at_extreme_scales(kernel: Gaussian | Laplace, scale: float) -> None:
    p = ksos.SoSDensity(
        kernel, points(5, 3), points(5, 2, 1), Box([-1.0] * 3, [np.inf] * 3), normalize=True
    )
    q, x = p.affine(scale), np.abs(points(6, 3, 2))
    np.testing.assert_allclose(q.logpdf(scale * x), p.logpdf(x) - 3 * np.log(scale), atol=1e-8)
    assert isinstance(q.kernel.sigma.tolist(), float)


def test_a_shift_of_1e8_costs_only_the_digits_of_the_coordinates() -> None:
    X = (points(5, 2) + 1e8) - 1e8
    p = ksos.SoSDensity(Gaussian(0.8), X, points(5, 2, 1), normalize=True)
    x = (points(6, 2, 2) + 1e8) - 1e8
    np.testing.assert_allclose(p.affine(1.0, 1e8).logpdf(x + 1e8), p.logpdf(x), atol=1e-9)


def test_hundreds_of_dimensions() -> None:
    p = ksos.SoSDensity(Gaussian(3.0), points(4, 784), np.ones((4, 1)), normalize=True)
    scale = np.linspace(0.5, 2e3, 784)
    q = p.affine(scale, 1.0)
    np.testing.assert_allclose(
        q.logpdf(scale * points(4, 784) + 1.0),
        p.logpdf(points(4, 784)) - np.sum(np.log(scale)),
        atol=1e-6,
    )
    assert np.all(np.isfinite(p.times_gaussian(0.5, 0.1).logpdf(points(4, 784))))


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ((0.0, 0.0), "scale must not be zero: that of feature 0 is"),
        (([1.0, 0.0], 0.0), "scale must not be zero: that of feature 1 is"),
        ((np.nan, 0.0), "scale contains NaN"),
        ((1.0, np.inf), "shift contains infinity"),
        (([1.0, 2.0, 3.0], 0.0), "scale must have length 2"),
        ((1e308, 0.0), "range of floating-point numbers|sigma must"),
        ((1.0, "a"), "shift"),
    ],
)
def test_affine_refuses(arguments: tuple, message: str) -> None:
    p = ksos.SoSDensity(Gaussian(1.0), 10.0 + points(3, 2), np.ones((3, 1)), normalize=True)
    with pytest.raises(ValueError, match=message):
        p.affine(*arguments)
