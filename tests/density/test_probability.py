"""Probabilities of boxes, distribution functions and quantiles: against quadrature, and by the laws
that tie them together.
"""

from __future__ import annotations

import numpy as np
import pytest
from densities import make_density, normal
from hypothesis import given, strategies as st
from oracles import quadrature_rule
from scipy.stats import laplace, norm
from tables import PAIR_CASES, PairCase, points

import ksos
from ksos.ground import resources
from ksos.kernels import Gaussian, Laplace, Matern
from ksos.measures import Box, Discrete, Lebesgue, Normal

# in one feature a product kernel is the kernel itself: once is enough
CASES = {name: pair for name, pair in PAIR_CASES.items() if pair.d > 1 or not pair.kernel.product}
every_pair = pytest.mark.parametrize("pair", CASES.values(), ids=CASES)
LINE_CASES = {
    name: pair
    for name, pair in CASES.items()
    if pair.d == 1 and not isinstance(pair.measure, Discrete)
}
every_line = pytest.mark.parametrize("pair", LINE_CASES.values(), ids=LINE_CASES)


def quadrature_probability(p: ksos.SoSDensity, low: np.ndarray, high: np.ndarray) -> float:
    """The box cut with the measure's own walls, by composite Gauss–Legendre."""
    if isinstance(p.measure, Discrete):
        nodes = p.measure.points
        inside = np.all((nodes >= low) & (nodes <= high), axis=1)
        return float(np.sum((p.measure.weights * p.pdf(nodes))[inside]))
    walls = np.array([p.measure.boundary(k) for k in range(p.n_features)])
    low, high = np.maximum(low, walls[:, 0]), np.minimum(high, walls[:, 1])
    nodes, w = quadrature_rule(p.kernel, Box(low, high), p.support_points, per_panel=12, reach=5.0)
    return float(w @ (p.pdf(nodes) * np.exp(p.measure.log_density(nodes))))


WALLS = [
    ([-0.5, -0.4], [0.4, 0.3]),
    ([-5.0, -0.4], [0.4, 8.0]),
    ([-0.5, -np.inf], [np.inf, 0.3]),
    ([-np.inf] * 2, [np.inf] * 2),
]


@every_pair
def test_boxes_agree_with_quadrature_one_by_one_and_all_at_once(pair: PairCase) -> None:
    p = make_density(pair)
    low, high = (np.array([wall[side] for wall in WALLS])[:, : pair.d] for side in (0, 1))
    expected = np.array([quadrature_probability(p, a, b) for a, b in zip(low, high, strict=True)])
    np.testing.assert_allclose(
        [p.probability(a, b) for a, b in zip(low, high, strict=True)], expected, atol=1e-10
    )
    np.testing.assert_allclose(p.probability(low, high), expected, atol=1e-10)
    assert expected[-1] == pytest.approx(1.0, abs=1e-9)


@every_pair
def test_a_box_cut_in_two_keeps_its_probability(pair: PairCase) -> None:
    if isinstance(pair.measure, Discrete):
        return  # a node on the cut belongs to both closed halves
    p = make_density(pair)
    cut = np.array([0.05, 0.3])[: pair.d]
    for k in range(pair.d):
        below, above = np.full(pair.d, np.inf), np.full(pair.d, -np.inf)
        below[k] = above[k] = cut[k]
        assert p.probability(-np.inf, below) + p.probability(above, np.inf) == pytest.approx(
            1.0, abs=1e-10
        )


@every_pair
def test_the_distribution_function_is_the_probability_of_a_quadrant(pair: PairCase) -> None:
    p = make_density(pair)
    X = np.concatenate(
        [points(6, pair.d, 3), np.full((1, pair.d), 100.0), np.full((1, pair.d), -100.0)]
    )
    got = p.cdf(X)
    np.testing.assert_allclose(got[:6], [p.probability(-np.inf, x) for x in X[:6]], atol=1e-12)
    np.testing.assert_allclose(got[6:], [1.0, 0.0], atol=1e-12)
    along = X[0] + np.linspace(0.0, 2.0, 30)[:, None] * np.ones(pair.d)
    assert np.all(np.diff(p.cdf(along)) >= -1e-13)


@every_line
def test_quantiles_undo_the_distribution_function(pair: PairCase) -> None:
    p = make_density(pair)
    q = np.r_[1e-12, 1e-6, np.linspace(0.01, 0.99, 21), 1.0 - 1e-9]
    x = p.ppf(q)
    assert np.all(np.diff(x) >= 0.0)
    np.testing.assert_allclose(p.cdf(x[:, None]), q, rtol=1e-9, atol=1e-14)
    inside = np.linspace(x[3], x[-2], 17)
    np.testing.assert_allclose(p.ppf(p.cdf(inside[:, None])), inside, atol=1e-9)
    np.testing.assert_array_equal(p.ppf([0.0, 1.0]), pair.measure.boundary(0))
    assert isinstance(p.ppf(0.3), float)


def test_the_normal_distribution_in_both_tails() -> None:
    p = normal()
    x = np.array([-25.0, -8.0, -1.0, 0.0, 2.0, 7.0])
    np.testing.assert_allclose(p.cdf(x[:, None]), norm.cdf(x), rtol=1e-11)
    q = np.array([1e-250, 1e-100, 1e-20, 0.1, 0.5, 0.9, 1.0 - 1e-15])
    np.testing.assert_allclose(p.ppf(q), norm.ppf(q), rtol=1e-12, atol=1e-14)
    np.testing.assert_allclose(
        [p.probability(20.0, 21.0), p.probability(-30.0, -29.0)], norm.sf([20.0, 29.0]), rtol=1e-8
    )
    assert normal([0.0] * 3).probability([-1.0, 0.0, -np.inf], [1.0, np.inf, 8.0]) == pytest.approx(
        0.5 * (1 - 2 * norm.cdf(-1)), abs=1e-14
    )


def test_the_laplace_distribution() -> None:
    p = ksos.SoSDensity(Laplace(2.0), [[1.0]], [[1.0]], normalize=True)  # e^{−|x−1|}/2
    x = np.array([-300.0, -2.0, 1.0, 3.0, 40.0])
    np.testing.assert_allclose(p.cdf(x[:, None]), laplace.cdf(x, 1.0), rtol=1e-12)
    np.testing.assert_allclose(
        p.ppf([1e-200, 0.2, 0.999]), laplace.ppf([1e-200, 0.2, 0.999], 1.0), rtol=1e-12
    )


@pytest.mark.parametrize("kernel", [Gaussian([1.0, 0.8, 1.3]), Matern(1.5, 0.9, product=True)])
@pytest.mark.parametrize("measure", [Lebesgue(), Box([-1.0] * 3, [1.2] * 3)])
def test_three_features_agree_with_a_tensor_grid(kernel: object, measure: object) -> None:
    p = ksos.SoSDensity(
        kernel, points(6, 3), np.random.default_rng(1).normal(size=(6, 2)), measure, normalize=True
    )
    low, high = np.array([-0.9, -0.2, -0.5]), np.array([0.3, 1.1, 0.9])
    axes = []
    for k in range(3):
        x, w = quadrature_rule(
            Matern(1.5, 1.0), Box(low[[k]], high[[k]]), p.support_points[:, [k]], per_panel=8
        )
        axes.append((x[:, 0], w))
    grid = np.stack([g.ravel() for g in np.meshgrid(*(x for x, _ in axes), indexing="ij")], axis=1)
    w = np.multiply.outer(np.multiply.outer(axes[0][1], axes[1][1]), axes[2][1]).ravel()
    assert p.probability(low, high) == pytest.approx(float(w @ p.pdf(grid)), abs=1e-8)


def test_many_features_agree_with_samples() -> None:
    d, n = 5, 5_000
    p = ksos.SoSDensity(
        Gaussian(1.5), points(8, d), np.random.default_rng(0).normal(size=(8, 2)), normalize=True
    )
    samples = p.rvs(n, rng=0)
    for high in (0.5, 1.0):
        inside = np.mean(np.all(np.abs(samples) <= high, axis=1))
        assert p.probability(-high, high) == pytest.approx(inside, abs=5.0 * np.sqrt(inside / n))
    x = np.array([[0.5] * d, [1.0, 0.2, 2.0, 0.1, 3.0]])
    expected = np.array([np.mean(np.all(samples <= row, axis=1)) for row in x])
    np.testing.assert_allclose(p.cdf(x), expected, atol=5.0 * np.sqrt(0.25 / n))


def test_a_fitted_density_of_two_features() -> None:
    X = np.random.default_rng(0).normal(size=(60, 2)) * [1.0, 0.3]
    p = ksos.KernelSoSDensity().fit(X).distribution_
    low, high = np.array([-0.7, -0.2]), np.array([0.4, 0.5])
    assert p.probability(low, high) == pytest.approx(quadrature_probability(p, low, high), abs=1e-8)
    np.testing.assert_allclose(
        p.cdf(X[:3]), [quadrature_probability(p, np.full(2, -np.inf), x) for x in X[:3]], atol=1e-8
    )


def test_nodes_of_a_discrete_measure_count_whole() -> None:
    measure = Discrete([[2.0], [0.0], [1.0]], [1.0, 2.0, 1.0])
    p = ksos.SoSDensity(
        Gaussian(1e3), [[0.0]], [[1.0]], measure, normalize=True
    )  # nearly constant: masses ¼, ½, ¼
    np.testing.assert_allclose(
        p.cdf([[-0.1], [0.0], [0.9], [1.0], [2.0]]), [0.0, 0.5, 0.5, 0.75, 1.0], atol=1e-5
    )
    np.testing.assert_array_equal(
        p.ppf([0.0, 0.3, 0.49, 0.52, 0.74, 0.8, 1.0]), [0.0, 0.0, 0.0, 1.0, 1.0, 2.0, 2.0]
    )
    assert p.probability(1.0, 1.0) == pytest.approx(0.25, abs=1e-5)


@given(
    cuts=st.lists(st.floats(-3.0, 3.0), min_size=4, max_size=4, unique=True),
    seed=st.integers(0, 100),
    side=st.sampled_from([np.inf, 1.5]),
)
def test_probabilities_add_and_grow(cuts: list[float], seed: int, side: float) -> None:
    a, b, c, e = sorted(cuts)
    measure = Box([-1.0, -np.inf], [side, np.inf])
    p = ksos.SoSDensity(
        Gaussian([0.7, 1.1]),
        points(4, 2),
        np.random.default_rng(seed).normal(size=(4, 2)),
        measure,
        normalize=True,
    )
    whole = p.probability([a, a], [e, c])
    assert 0.0 <= whole <= 1.0
    parts = p.probability([a, a], [b, c]) + p.probability([b, a], [e, c])
    assert parts == pytest.approx(whole, abs=1e-11)
    assert p.probability([a, a], [e, e]) >= whole - 1e-12


@given(seed=st.integers(0, 1000), q=st.floats(1e-6, 1.0 - 1e-6), m=st.integers(1, 6))
def test_quantiles_of_random_densities(seed: int, q: float, m: int) -> None:
    rng = np.random.default_rng(seed)
    p = ksos.SoSDensity(
        Gaussian(0.6), rng.normal(size=(m, 1)) * 3.0, rng.normal(size=(m, 2)), normalize=True
    )
    assert p.cdf([[p.ppf(q)]])[0] == pytest.approx(q, rel=1e-9)


@pytest.mark.parametrize(
    ("scale", "shift"), [(1e6, 0.0), (1e-6, 0.0), (1e150, 0.0), (1e-150, 0.0), (1.0, 1e8)]
)
@pytest.mark.parametrize("d", [1, 2])
@pytest.mark.parametrize("kind", ["gaussian", "laplace"])
def test_units_and_origin_do_not_matter(scale: float, shift: float, d: int, kind: str) -> None:
    x = np.round(points(5, d) * 1024) / 1024
    factor, at = np.random.default_rng(0).normal(size=(5, 2)), np.array([[0.25] * d, [-0.5] * d])
    make = (lambda s: Gaussian(s)) if kind == "gaussian" else (lambda s: Laplace(s, product=True))
    plain = ksos.SoSDensity(make(1.0), x, factor, normalize=True)
    moved = ksos.SoSDensity(make(scale), x * scale + shift, factor, normalize=True)
    np.testing.assert_allclose(moved.cdf(at * scale + shift), plain.cdf(at), rtol=1e-8)
    assert moved.probability(at[1] * scale + shift, at[0] * scale + shift) == pytest.approx(
        plain.probability(at[1], at[0]), rel=1e-9
    )
    if d == 1:
        np.testing.assert_allclose(
            (moved.ppf([0.01, 0.5, 0.9]) - shift) / scale, plain.ppf([0.01, 0.5, 0.9]), rtol=1e-7
        )


def test_far_away_there_is_nothing_or_everything() -> None:
    for d in (1, 2, 784):
        p = ksos.SoSDensity(Gaussian(1.0), points(3, d), np.ones((3, 1)), normalize=True)
        far = np.stack([np.full(d, value) for value in (-1e300, -1e160, -1e5, 1e5, 1e160, 1e300)])
        np.testing.assert_allclose(p.cdf(far), [0.0] * 3 + [1.0] * 3, atol=1e-9)
        assert p.probability(1e5, 1e300) == 0.0
        assert p.probability(-1e300, 1e300) == pytest.approx(1.0, abs=1e-9)
    box = ksos.SoSDensity(
        Gaussian(1.0), points(3, 1), np.ones((3, 1)), Box([-1.0], [1.0]), normalize=True
    )
    assert box.probability(1.0, 5.0) == 0.0
    assert box.probability(-9.0, 9.0) == pytest.approx(1.0, abs=1e-12)


@pytest.mark.parametrize("far", [1e3, 1e5, 1e8])
def test_outliers_keep_their_share(far: float) -> None:
    """Three equal bumps far apart."""
    p = ksos.SoSDensity(Gaussian(1.0), [[-far], [0.0], [far]], np.eye(3), normalize=True)
    third = 1.0 / 3.0
    at = np.array([[-2.0 * far], [-0.5 * far], [-3.0], [0.0], [3.0], [0.9 * far], [2.0 * far]])
    np.testing.assert_allclose(
        p.cdf(at), [0.0, third, third, 0.5, 2 * third, 2 * third, 1.0], atol=1e-8
    )
    np.testing.assert_allclose(p.ppf([0.1, 0.5, 0.9]), [-far, 0.0, far], atol=1.0)
    assert p.probability(-10.0, 10.0) == pytest.approx(third, abs=1e-12)
    plane = ksos.SoSDensity(
        Gaussian(1.0), [[-far, far], [0.0, 0.0], [0.0, far]], np.eye(3), normalize=True
    )
    np.testing.assert_allclose(
        plane.cdf([[-0.5 * far, 1.5 * far], [10.0, 10.0], [10.0, 1.5 * far]]),
        [third, third, 1.0],
        atol=1e-12,
    )


def test_a_box_far_from_every_support_point() -> None:
    """The mass of the measure's own box is e^{−1800} of the kernel's: only logarithms know how it
    is spread.
    """
    p = ksos.SoSDensity(
        Gaussian(1.0),
        [[0.0, 0.0], [0.5, 0.1]],
        [[1.0], [0.4]],
        Box([30.0, -1.0], [31.0, 1.0]),
        normalize=True,
    )
    walls = np.array([30.0, 30.01, 30.05, 31.0])
    parts = p.probability(np.c_[walls[:-1], [-1.0] * 3], np.c_[walls[1:], [1.0] * 3])
    assert parts.sum() == pytest.approx(1.0, abs=1e-12)
    assert np.all(parts > 0.0)
    rule = Discrete.quadrature(Box([30.0, -1.0], [30.01, 1.0]), 30)
    assert parts[0] == pytest.approx(float(rule.weights @ p.pdf(rule.points)), rel=1e-8)


def test_blocks_change_nothing() -> None:
    p = make_density(PAIR_CASES["gaussian × box, d=2"])
    discrete = make_density(PAIR_CASES["gaussian × discrete, d=2"])
    line = make_density(PAIR_CASES["gaussian × lebesgue, d=1"])
    X = points(40, 2, 9)

    def answers() -> tuple[np.ndarray, ...]:
        return p.cdf(X), discrete.cdf(X), line.cdf(X[:, :1]), line.ppf(np.linspace(0.1, 0.9, 30))

    whole = answers()
    with resources(block=7):
        parts = answers()
    for got, expected in zip(parts, whole, strict=True):
        np.testing.assert_allclose(got, expected, rtol=1e-12)


@pytest.mark.parametrize(
    ("low", "high", "message"),
    [
        ([0.0, 1.0], [1.0, 0.0], "the box is empty: .* in feature 1 low is 1.0 and high is 0.0"),
        (0.5, 0.5, "the box is empty"),
        (np.inf, np.inf, "the box is empty"),
        ([0.0, np.nan], 1.0, "low contains NaN"),
        ([0.0], 1.0, r"low must have one entry for each of the 2 features; got shape \(1,\)"),
        (0.0, [1.0, 2.0, 3.0], "high must have one entry for each of the 2 features"),
        ("zero", 1.0, "low must be a number, one for each of the 2 features"),
        (np.zeros((2, 2)), np.ones((3, 2)), "low gives 2 boxes, but high gives 3"),
        (1j, 2.0, "low must be a number"),
    ],
)
def test_refuses_what_is_not_a_box(low: object, high: object, message: str) -> None:
    with pytest.raises(ValueError, match=message):
        normal([0.0] * 2).probability(low, high)


@pytest.mark.parametrize(
    ("ask", "message"),
    [
        (
            lambda p: p.ppf(0.5),
            r"quantiles are for one feature; this density has 2; .*marginal\(\[0\]\)",
        ),
        (lambda p: p.cdf([[0.0, np.nan]]), "NaN"),
        (lambda p: p.cdf([[0.0, np.inf]]), "infinity"),
        (lambda p: p.cdf([[0.0]]), "X has 1 features, but 2 were expected"),
        (lambda p: p.marginal([0]).ppf(1.5), r"q must lie in \[0, 1\]"),
        (lambda p: p.marginal([0]).ppf([0.5, np.nan]), "NaN"),
    ],
)
def test_refuses_what_has_no_quantile_or_distribution_function(ask: object, message: str) -> None:
    with pytest.raises(ValueError, match=message):
        ask(normal([0.0] * 2))


def test_the_components_that_do_not_matter_are_left_out_and_the_normal_measure_counts() -> None:
    X = np.linspace(-40.0, 40.0, 81)[:, None] * np.ones(2)
    p = ksos.SoSDensity(Gaussian(1.0), X, np.ones((81, 1)), Normal(0.0, 20.0), normalize=True)
    at = np.array([[0.3, 5.0], [-3.0, 10.0], [50.0, 50.0]])
    np.testing.assert_allclose(p.cdf(at), [p.probability(-np.inf, x) for x in at], rtol=1e-11)
