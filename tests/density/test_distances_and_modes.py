"""L² distances, highest-density levels, gradients of the log-density and modes."""

from __future__ import annotations

import math

import numpy as np
import pytest
from densities import make_density, normal
from hypothesis import given, settings, strategies as st
from oracles import quadrature_rule
from scipy.stats import chi2, norm
from tables import THIN_PAIR_CASES, PairCase, answers_itself, points

import ksos
from ksos.density import between_squares, square_of
from ksos.kernels import Gaussian, Kernel, Laplace, Matern
from ksos.measures import Box, Discrete, Lebesgue, Normal

# in one feature a product kernel is the kernel itself: once is enough
CASES = {
    name: pair for name, pair in THIN_PAIR_CASES.items() if pair.d > 1 or not pair.kernel.product
}
every_pair = pytest.mark.parametrize("pair", CASES.values(), ids=CASES)


# --- L²


@every_pair
def test_l2_distance_agrees_with_quadrature_by_every_route(pair: PairCase) -> None:
    p, q = make_density(pair), make_density(pair, 3, seed=1)
    nodes, w = quadrature_rule(
        pair.kernel,
        pair.measure,
        np.concatenate([p.support_points, q.support_points]),
        per_panel=12,
        reach=4.5,
    )
    expected = math.sqrt(w @ (p.pdf(nodes) - q.pdf(nodes)) ** 2)
    assert p.l2_distance(q) == pytest.approx(expected, rel=1e-8)
    if pair.d == 1:
        assert q.l2_distance(p) == pytest.approx(expected, rel=1e-8)
    if answers_itself(pair) and pair.measure.atoms is None:
        assert between_squares(square_of(p), square_of(q), 1e13, most_nodes=0) == pytest.approx(
            expected, rel=1e-8
        )
        assert between_squares(square_of(p), square_of(p), 1e13, most_nodes=0) == 0.0


def test_l2_distance_of_normals_in_any_dimension() -> None:
    for d in (1, 2, 5, 30):
        p, q = normal([0.0] * d), normal([1.0] + [0.0] * (d - 1), 1.5)
        own, other = (4 * math.pi) ** (-d / 2), (4 * math.pi * 2.25) ** (-d / 2)
        cross = (2 * math.pi * 3.25) ** (-d / 2) * math.exp(-0.5 / 3.25)
        assert p.l2_distance(q) == pytest.approx(math.sqrt(own + other - 2 * cross), rel=1e-10)


def test_l2_distance_of_nearly_equal_densities_keeps_its_digits() -> None:
    X, F = points(4, 2), np.random.default_rng(0).normal(size=(4, 1))
    p = ksos.SoSDensity(Gaussian(1.0), X, F, normalize=True)
    far, near = (
        p.l2_distance(
            ksos.SoSDensity(Gaussian(1.0), X, F + step * np.eye(4)[:, :1], normalize=True)
        )
        for step in (1e-5, 1e-10)
    )
    assert near / far == pytest.approx(1e-5, rel=1e-3)
    q = ksos.SoSDensity(Gaussian(1.0), X, F + 1e-10 * np.eye(4)[:, :1], normalize=True)
    assert between_squares(square_of(p), square_of(q), 1e13, most_nodes=0) == pytest.approx(
        near, rel=1e-4
    )  # one support: the matrices are subtracted first


@pytest.mark.parametrize("most_nodes", [0, 10**6])
def test_l2_distance_between_a_box_and_the_plane(most_nodes: int) -> None:
    p, q = normal([0.0]), normal([0.0], 1.0, Box([-1.0], [2.0]))
    share = norm.cdf(2.0) - norm.cdf(-1.0)
    inside = (norm.cdf(2 * math.sqrt(2)) - norm.cdf(-math.sqrt(2))) / math.sqrt(4 * math.pi)
    expected = 1 / math.sqrt(4 * math.pi) + inside / share**2 - 2 * inside / share
    assert between_squares(
        square_of(p), square_of(q), 1e13, most_nodes=most_nodes
    ) == pytest.approx(math.sqrt(expected), rel=1e-9)


@pytest.mark.parametrize(("scale", "shift"), [(1e6, 0.0), (1e-150, 0.0), (1e150, 0.0), (1.0, 1e8)])
def test_l2_distance_scales_as_a_density_does(scale: float, shift: float) -> None:
    x = np.round(points(4, 1) * 1024) / 1024
    (p, q), (p1, q1) = (
        [
            ksos.SoSDensity(
                Gaussian(s), x * s + b, np.roll(np.arange(1.0, 5.0), i)[:, None], normalize=True
            )
            for i in (0, 1)
        ]
        for s, b in ((1.0, 0.0), (scale, shift))
    )
    assert p1.l2_distance(q1) * math.sqrt(scale) == pytest.approx(p.l2_distance(q), rel=1e-7)


def test_l2_distance_in_hundreds_of_features_is_a_number() -> None:
    p, q = (
        ksos.SoSDensity(Gaussian(1.0), points(4, 784, seed), np.ones((4, 1)), normalize=True)
        for seed in (0, 1)
    )
    assert p.l2_distance(q) > 0.0


def test_l2_distance_refuses_what_has_no_common_measure_and_what_takes_too_long() -> None:
    with pytest.raises(ValueError, match="needs one reference measure"):
        normal([0.0]).l2_distance(normal([0.0], 1.0, Normal(0.0, 1.0)))
    with pytest.raises(ValueError, match="the other density has 2 features"):
        normal([0.0]).l2_distance(normal([0.0, 0.0]))
    with pytest.raises(TypeError, match="other must be a density"):
        normal([0.0]).l2_distance(3.0)
    p, q = (
        ksos.SoSDensity(Gaussian(1.0), points(9, 6, seed), np.ones((9, 1)), normalize=True)
        for seed in (0, 1)
    )
    with pytest.raises(
        ValueError, match="more than max_operations=1e\\+03; compress the densities first"
    ):
        p.l2_distance(q, max_operations=1e3)


# --- highest-density level


@every_pair
def test_the_region_above_the_level_has_the_mass(pair: PairCase) -> None:
    p = make_density(pair)
    if pair.d == 2 and not isinstance(pair.measure, Discrete):
        level = p.hdr_level(0.6)
        expected = np.quantile(p.pdf(p.rvs(2000, rng=0)), 1.0 - 0.6)
        assert level == pytest.approx(expected, rel=0.2)
        assert level.error < 0.1 * level
        return
    for mass in (0.2, 0.8):
        level = p.hdr_level(mass)
        if isinstance(pair.measure, Discrete):
            nodes = pair.measure.points
            masses, values = pair.measure.weights * p.pdf(nodes), p.pdf(nodes)
            assert masses[values >= level * (1 - 1e-12)].sum() >= mass - 1e-12
            assert masses[values > level * (1 + 1e-12)].sum() < mass
            continue
        start, stop = p.ppf([1e-14, 1.0 - 1e-14])
        x = np.linspace(start, stop, 20_001)
        cdf = p.cdf(x[:, None])
        above = p.pdf(x[:, None]) >= level
        assert np.sum(np.diff(cdf)[above[1:]]) == pytest.approx(mass, abs=1e-3)
        assert level.error == 0.0


@pytest.mark.parametrize(
    ("sigma", "m", "mass"), [(0.8, 8, 0.9), (0.8, 20, 0.95), (0.7, 9, 0.95), (0.5, 20, 0.8)]
)
def test_valleys_and_crests_of_one_height_are_all_seen(sigma: float, m: int, mass: float) -> None:
    """Equal bumps in a row: at the height of their crests, or of the valleys between them, all of
    them come or go at once.
    """
    p = ksos.SoSDensity(Gaussian(sigma), np.arange(float(m))[:, None], np.eye(m), normalize=True)
    x, step = np.linspace(-6.0, m + 5.0, 400_001, retstep=True)
    values = p.pdf(x[:, None])
    assert step * np.sum(values[values >= p.hdr_level(mass)]) == pytest.approx(mass, abs=1e-5 * m)


def test_the_level_of_normal_laws() -> None:
    for d in (1, 2, 3):
        for mass in (0.05, 0.5, 0.95):
            level = normal([0.0] * d).hdr_level(mass, rng=0)
            exact = (2 * math.pi) ** (-d / 2) * math.exp(-0.5 * chi2.ppf(mass, d))
            assert level == pytest.approx(exact, rel={1: 1e-10, 2: 1e-2, 3: 1e-2}[d])
            assert d == 1 or abs(level - exact) <= 5.0 * level.error
    many = normal([0.0] * 6).hdr_level(0.5, rng=1)
    exact = (2 * math.pi) ** -3 * math.exp(-0.5 * chi2.ppf(0.5, 6))
    assert abs(many - exact) <= 6.0 * many.error < 0.2 * exact


def test_the_level_is_that_of_the_density_in_its_units() -> None:
    x = points(4, 1)
    plain, moved = (
        ksos.SoSDensity(Gaussian(s), x * s + b, np.ones((4, 1)), normalize=True)
        for s, b in ((1.0, 0.0), (1e6, 1e8))
    )
    assert moved.hdr_level(0.7) * 1e6 == pytest.approx(plain.hdr_level(0.7), rel=1e-7)
    tiny = ksos.SoSDensity(Gaussian(1e-150), x * 1e-150, np.ones((4, 1)), normalize=True)
    assert tiny.hdr_level(0.7) * 1e-150 == pytest.approx(plain.hdr_level(0.7), rel=1e-9)


@settings(max_examples=15)
@given(mass=st.floats(0.01, 0.99), seed=st.integers(0, 50))
def test_levels_fall_as_the_mass_grows(mass: float, seed: int) -> None:
    p = ksos.SoSDensity(
        Gaussian(0.7),
        points(3, 1, seed),
        np.random.default_rng(seed).normal(size=(3, 1)),
        normalize=True,
    )
    level = p.hdr_level(mass)
    assert p.hdr_level(0.5 * mass) >= level
    assert 0.0 < level <= p.pdf(p.mode()[None, :])[0] * (1 + 1e-9)


@pytest.mark.parametrize("mass", [0.0, 1.0, -0.1, 1.5, np.nan, "half"])
def test_refuses_what_is_not_a_mass(mass: object) -> None:
    with pytest.raises(ValueError, match="mass must be"):
        normal([0.0]).hdr_level(mass)


# --- gradients


@every_pair
def test_the_gradient_agrees_with_differences(pair: PairCase) -> None:
    p = make_density(pair)
    X = points(7, pair.d, 4)
    X = X[pair.measure.contains(X)]
    gradient = p.grad_logpdf(X)
    step = 1e-6
    for k in range(pair.d):
        e = step * np.eye(pair.d)[k]
        difference = (p.logpdf(X + e) - p.logpdf(X - e)) / (2 * step)
        fine = np.isfinite(difference)
        np.testing.assert_allclose(gradient[fine, k], difference[fine], rtol=1e-5, atol=1e-6)


@given(seed=st.integers(0, 1000), d=st.integers(1, 4), product=st.booleans())
def test_gradients_of_random_densities(seed: int, d: int, product: bool) -> None:
    rng = np.random.default_rng(seed)
    measure = Lebesgue() if product or d == 1 else Discrete(rng.normal(size=(9, d)))
    kernel = Matern(2.5, 0.7 + rng.random(d), product=product)
    p = ksos.SoSDensity(
        kernel, rng.normal(size=(4, d)), rng.normal(size=(4, 2)), measure, normalize=True
    )
    x, direction = rng.normal(size=(1, d)), rng.normal(size=d)
    step = 1e-6 * direction
    slope = (p.logpdf(x + step) - p.logpdf(x - step)) / 2e-6
    assert (p.grad_logpdf(x) @ direction)[0] == pytest.approx(slope[0], rel=1e-4, abs=1e-5)


def test_gradients_far_away_and_where_nothing_is() -> None:
    for d in (1, 784):
        p = ksos.SoSDensity(Gaussian(1.0), points(3, d), np.ones((3, 1)), normalize=True)
        gradient = p.grad_logpdf(
            np.stack([np.full(d, value) for value in (0.0, 50.0, 1e5, 1e160, 1e300)])
        )
        assert np.all(np.isfinite(gradient))
        np.testing.assert_allclose(gradient[2], -4e5, rtol=1e-3)
        np.testing.assert_array_equal(gradient[3:], 0.0)
    box = normal([0.0], 1.0, Box([-1.0], [1.0]))
    np.testing.assert_allclose(box.grad_logpdf([[0.5], [2.0]]), [[-0.5], [0.0]], atol=1e-12)
    tip = ksos.SoSDensity(Laplace(1.0), [[0.0]], [[1.0]], normalize=True)
    np.testing.assert_allclose(
        tip.grad_logpdf([[-1.0], [0.0], [1.0]]), [[2.0], [0.0], [-2.0]], atol=1e-12
    )
    with pytest.raises(ValueError, match="NaN"):
        box.grad_logpdf([[np.nan]])


# --- modes


@every_pair
def test_nothing_is_above_the_mode(pair: PairCase) -> None:
    p = make_density(pair)
    mode = p.mode()
    assert mode.shape == (pair.d,)
    if isinstance(pair.measure, Discrete):
        assert p.pdf(mode[None, :])[0] == pytest.approx(p.pdf(pair.measure.points).max(), rel=1e-12)
        with pytest.raises(ValueError, match="no local modes"):
            p.mode(all_local=True)
        return
    assert pair.measure.contains(mode[None, :])[0]
    nodes, _ = quadrature_rule(pair.kernel, pair.measure, p.support_points, per_panel=12, reach=5.0)
    assert p.pdf(mode[None, :])[0] >= p.pdf(nodes).max() * (1 - 1e-9)
    every = p.mode(all_local=True)
    np.testing.assert_allclose(every[0], mode, atol=1e-5)
    values = p.logpdf(every)
    assert np.all(np.diff(values) <= 0.0)
    around = np.random.default_rng(0).normal(size=(200, pair.d))
    for y, value in zip(every, values, strict=True):
        assert np.all(
            p.logpdf(y + 1e-3 * around / np.linalg.norm(around, axis=1, keepdims=True))
            <= value + 1e-10
        )


def test_modes_of_separate_bumps() -> None:
    centers = np.array([[0.0, 0.0], [5.0, 0.0], [0.0, 6.0]])
    p = ksos.SoSDensity(Gaussian(1.0), centers, np.diag([1.0, 3.0, 2.0]), normalize=True)
    np.testing.assert_allclose(p.mode(all_local=True), centers[[1, 2, 0]], atol=1e-6)
    np.testing.assert_allclose(p.mode(), centers[1], atol=1e-9)
    tips = ksos.SoSDensity(
        Laplace(1.0, product=True), centers, np.diag([1.0, 3.0, 2.0]), normalize=True
    )
    np.testing.assert_allclose(tips.mode(all_local=True), centers[[1, 2, 0]], atol=1e-12)
    hole = ksos.SoSDensity(Gaussian(1.0), [[-1.0], [1.0]], [[1.0], [-1.0]], normalize=True)
    np.testing.assert_allclose(
        np.sort(hole.mode(all_local=True)[:, 0]), [-1.0326690695, 1.0326690695], atol=1e-9
    )  # x·tanh 2x = 1


def test_a_valley_with_a_support_point_in_it_is_no_mode() -> None:
    p = ksos.SoSDensity(
        Gaussian(1.0),
        [[-1.5], [0.0], [1.5]],
        [[1.0, 0.0], [1e-3, 1e-3], [0.0, 1.0]],
        normalize=True,
    )
    assert p.grad_logpdf([[0.0]])[0, 0] == pytest.approx(
        0.0, abs=1e-12
    )  # a climb from there goes nowhere
    found = np.sort(p.mode(all_local=True)[:, 0])
    assert found.shape == (2,)
    np.testing.assert_allclose(found, [-1.5, 1.5], atol=0.01)


def test_a_mode_that_no_support_point_leads_to() -> None:
    rng = np.random.default_rng(93)
    p = ksos.SoSDensity(
        Gaussian(1.0), rng.normal(size=(4, 1)), rng.normal(size=(4, 1)), normalize=True
    )
    x = np.linspace(-6.0, 6.0, 4001)
    values = p.pdf(x[:, None])
    peaks = x[1:-1][(values[1:-1] > values[:-2]) & (values[1:-1] > values[2:])]
    assert peaks.shape == (3,)
    np.testing.assert_allclose(np.sort(p.mode(all_local=True)[:, 0]), peaks, atol=2e-3)


def test_modes_against_walls() -> None:
    p = normal([0.0, 0.0], 1.0, Box([0.5, -1.0], [2.0, 1.0]))
    np.testing.assert_allclose(p.mode(), [0.5, 0.0], atol=1e-8)
    corner = normal([0.0, 0.0], 1.0, Box([0.5, 0.25], [2.0, 1.0]))
    np.testing.assert_array_equal(corner.mode(all_local=True), [[0.5, 0.25]])
    two = ksos.SoSDensity(
        Gaussian(1.0),
        [[-1.0, -2.0], [-1.0, 2.0]],
        np.diag([2.0, 1.0]),
        Box([0.0, -9.0], [9.0, 9.0]),
        normalize=True,
    )
    np.testing.assert_allclose(two.mode(all_local=True), [[0.0, -2.0], [0.0, 2.0]], atol=1e-6)


@pytest.mark.parametrize(("scale", "shift"), [(1e6, 0.0), (1e150, 0.0), (1e-150, 0.0), (1.0, 1e8)])
@pytest.mark.parametrize("kernel", [Gaussian, Laplace])
def test_modes_move_with_the_data(scale: float, shift: float, kernel: type[Kernel]) -> None:
    x, factor = np.round(points(5, 1) * 1024) / 1024, np.random.default_rng(3).normal(size=(5, 2))
    plain, moved = (
        ksos.SoSDensity(kernel(s), x * s + b, factor, normalize=True).mode()
        for s, b in ((1.0, 0.0), (scale, shift))
    )
    np.testing.assert_allclose((moved - shift) / scale, plain, atol=1e-6)


def test_the_mode_in_many_features() -> None:
    for d in (10, 784):
        p = ksos.SoSDensity(
            Gaussian(2.0 * math.sqrt(d)), points(5, d), np.ones((5, 1)), normalize=True
        )
        mode = p.mode(n_starts=2)
        assert p.logpdf(mode[None, :])[0] >= p.logpdf(p.support_points).max()
        assert np.abs(p.grad_logpdf(mode[None, :])).max() < 1e-5
    tips = ksos.SoSDensity(
        Laplace(30.0, product=True), points(4, 40), np.ones((4, 1)), normalize=True
    )
    assert tips.logpdf(tips.mode(n_starts=3)[None, :])[0] >= tips.logpdf(tips.support_points).max()


def test_the_mode_next_to_an_outlier() -> None:
    p = ksos.SoSDensity(Gaussian(1.0), [[0.0], [0.3], [1e8]], [[1.0], [1.0], [1.0]], normalize=True)
    assert p.mode()[0] == pytest.approx(0.15, abs=1e-6)
    assert p.mode(all_local=True).shape == (2, 1)


def test_the_mmd_is_that_of_the_function() -> None:
    p, q = normal([0.0]), normal([1.0], 1.5)
    assert p.mmd(q, kernel=Gaussian(1.0)) == pytest.approx(
        ksos.mmd(p, q, kernel=Gaussian(1.0)), rel=1e-12
    )
    assert p.mmd(q, landmarks=points(4, 1)) <= p.mmd(q) + 1e-12


def test_refuses_no_starts() -> None:
    with pytest.raises(ValueError, match="n_starts must be at least 1"):
        normal([0.0]).mode(n_starts=0)


@pytest.mark.parametrize(
    "ask",
    [
        lambda p, X: p.cdf(X),
        lambda p, X: p.grad_logpdf(X),
        lambda p, X: p.mode(),
        lambda p, X: p.probability(X[:2] - 1.0, X[:2] + 1.0),
        lambda p, X: p.marginal([0]).ppf([0.1, 0.5]),
        lambda p, X: p.entropy(rtol=1e-4),
        lambda p, X: p.l2_distance(p.affine(1.0, 0.1)),
    ],
)
def test_torch_densities_answer_as_numpy_densities_do(ask: object) -> None:
    torch = pytest.importorskip("torch")
    p, X = (
        ksos.SoSDensity(Gaussian(0.8), points(6, 2), points(6, 2, 1), normalize=True),
        points(4, 2, 2),
    )
    ours, theirs = ask(p, X), ask(p.to("cpu"), torch.asarray(X))
    assert isinstance(theirs, float if isinstance(ours, float) else torch.Tensor)
    np.testing.assert_allclose(np.asarray(theirs), ours, rtol=1e-10)
