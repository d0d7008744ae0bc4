"""Laws of the rules, the panels, and the distributions on panels."""

from __future__ import annotations

import math
import time
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given, strategies as st
from scipy import optimize, stats

import ksos
from ksos.ground import resources
from ksos.quadrature import (
    MixtureRule,
    PanelDistribution,
    Panels,
    cells,
    composite,
    cut,
    halved,
    increasing_root,
    integrate,
    laguerre,
    legendre,
    log_outer,
    merged,
    positions,
    sobol,
    tensor_grid,
)

ORDER = 12
ends = st.lists(st.tuples(st.floats(-9.0, 9.0), st.floats(0.0, 5.0)), min_size=1, max_size=12)


# --- rules ---


@pytest.mark.parametrize("n", [1, 2, 5, 12, 48])
def test_gauss_rules_are_exact_for_polynomials(n: int) -> None:
    t, w = legendre(n)
    for degree in range(2 * n):
        assert w @ t**degree == pytest.approx(0.0 if degree % 2 else 2.0 / (degree + 1), abs=1e-13)
    t, w = laguerre(min(n, 12))
    for degree in range(2 * min(n, 12)):
        assert w @ t**degree == pytest.approx(math.factorial(degree), rel=1e-9)


def test_many_nodes_take_no_time_and_lose_nothing() -> None:
    start = time.process_time()
    t, w = legendre(6000)
    assert time.process_time() - start < 6.0, "eigenvalues of a full matrix take half a minute"
    assert w @ np.exp(1j * 1000.0 * t) == pytest.approx(2e-3 * np.sin(1000.0), abs=1e-12)


def test_rules_are_shared_and_cannot_be_written_to() -> None:
    assert legendre(7) is legendre(7)
    with pytest.raises(ValueError, match="read-only"):
        legendre(7)[0][0] = 0.0


@pytest.mark.parametrize("counts", [4, [4, 6, 5]])
def test_composite_rules_integrate_polynomials_on_each_interval(counts: int | list[int]) -> None:
    start, stop = np.array([-1.0, 0.5, 3.0]), np.array([0.0, 2.0, 3.5])
    nodes, weights = composite(start, stop, counts)
    assert weights @ nodes**7 == pytest.approx(np.sum(stop**8 - start**8) / 8.0, rel=1e-12)


def test_tensor_products() -> None:
    axes = [composite(np.array([0.0]), np.array([1.0 + k]), 3 + k) for k in range(3)]
    points, weights = tensor_grid([x for x, _ in axes]), np.exp(log_outer([w for _, w in axes]))
    assert points.shape == (60, 3)
    assert weights @ np.prod(points**2, axis=1) == pytest.approx(
        math.prod((1.0 + k) ** 3 / 3.0 for k in range(3))
    )


# --- intervals and panels ---


@given(ends)
def test_merged_intervals_are_the_union(pairs: list[tuple[float, float]]) -> None:
    low, high = np.array([a for a, _ in pairs]), np.array([a + b for a, b in pairs])
    first, last = merged(low, high)
    assert np.all(first[1:] > last[:-1])
    x = np.r_[low, high, np.linspace(-10.0, 15.0, 200)]
    inside = np.any((x[:, None] >= low) & (x[:, None] <= high), axis=1)
    np.testing.assert_array_equal(
        np.any((x[:, None] >= first) & (x[:, None] <= last), axis=1), inside
    )


@given(ends, st.floats(0.05, 3.0), st.lists(st.floats(-9.0, 14.0), max_size=6))
def test_panels_cover_the_intervals_end_at_kinks_and_are_short(
    pairs: list[tuple[float, float]], length: float, at: list[float]
) -> None:
    low, high = merged(np.array([a for a, _ in pairs]), np.array([a + b for a, b in pairs]))
    start, stop = cut(low, high, length, np.array(at))
    assert np.all(stop > start)
    assert np.all(stop - start <= length * (1.0 + 1e-9) + 1e-12)
    assert np.sum(stop - start) == pytest.approx(np.sum(high - low), abs=1e-9)
    assert np.all(start[1:] >= stop[:-1])
    for kink in at:
        assert not np.any((start < kink) & (kink < stop))
    halves = halved(start, stop, 2)
    assert halves[0].shape[0] == 4 * start.shape[0]
    assert np.sum(halves[1] - halves[0]) == pytest.approx(np.sum(stop - start))


def test_cells_are_those_that_a_box_meets() -> None:
    axis = np.arange(10.0), np.arange(10.0) + 1.0
    low, high = np.array([[0.5, 0.5], [8.2, 3.0]]), np.array([[1.5, 0.9], [8.4, 4.5]])
    start, stop = cells([axis, axis], low, high, 100)
    assert sorted(map(tuple, start.tolist())) == [(0.0, 0.0), (1.0, 0.0), (8.0, 3.0), (8.0, 4.0)]
    np.testing.assert_array_equal(stop, start + 1.0)
    assert cells([axis, axis], low, high, 3) is None
    assert cells([axis, axis], low, high, 2) is None


# --- laws on panels ---


def of_mixture(
    n: int = 3, *, exact: bool = False
) -> tuple[PanelDistribution, list[stats.rv_continuous]]:
    """Gamma laws of several shapes, which end at 0, cut off where nothing is left."""
    panels = Panels(*cut(np.array([0.0]), np.array([90.0]), 0.5), 16)
    laws = [stats.gamma(4.0 + 3.0 * i) for i in range(n)]
    return (
        PanelDistribution(
            panels, np.stack([3.0 * law.pdf(panels.nodes) for law in laws]), exact=exact
        ),
        laws,
    )


@pytest.mark.parametrize("exact", [False, True])
def test_a_law_agrees_with_scipy(exact: bool) -> None:
    law, known = of_mixture(exact=exact)
    x, q = np.linspace(0.1, 30.0, 41), np.r_[1e-6, np.linspace(0.01, 0.99, 31), 1.0 - 1e-6]
    np.testing.assert_allclose(law.total, 3.0, rtol=1e-12)
    mean, deviation = law.moments()
    for i, other in enumerate(known):
        np.testing.assert_allclose(
            law.cdf(np.tile(x, (3, 1)))[i], other.cdf(x), rtol=1e-10, atol=1e-20
        )
        np.testing.assert_allclose(law.sf(np.tile(x, (3, 1)))[i], other.sf(x), rtol=1e-10)
        np.testing.assert_allclose(law.ppf(np.tile(q, (3, 1)))[i], other.ppf(q), rtol=1e-8)
        assert (mean[i], deviation[i]) == pytest.approx((other.mean(), other.std()), rel=1e-10)


@pytest.mark.parametrize("exact", [False, True])
def test_cdf_and_ppf_are_inverse_and_increase(exact: bool) -> None:
    law, _ = of_mixture(exact=exact)
    q = np.tile(np.linspace(0.0, 1.0, 501), (3, 1))
    x = law.ppf(q)
    assert np.all(np.diff(x, axis=1) >= 0.0)
    np.testing.assert_allclose(law.cdf(x), q, atol=1e-13)
    y = np.tile(np.linspace(-1.0, 99.0, 1001), (3, 1))
    assert np.all(np.diff(law.cdf(y), axis=1) >= 0.0)
    assert np.all(np.diff(law.sf(y), axis=1) <= 0.0)
    np.testing.assert_array_equal(law.cdf(np.array([[-1.0, 99.0]] * 3)), [[0.0, 1.0]] * 3)


@pytest.mark.parametrize("mass", [1e-3, 0.1, 0.5, 0.9, 0.999, 1.0 - 1e-9])
@pytest.mark.parametrize("relative", [False, True])
def test_a_level_is_that_of_the_region_of_its_mass(mass: float, relative: bool) -> None:
    """Two modes, and levels of the density itself or relative to another."""

    def density(x: np.ndarray) -> np.ndarray:
        return 0.3 * stats.norm(-2.0, 0.5).pdf(x) + 0.7 * stats.norm(1.0, 1.0).pdf(x)

    other = stats.norm(0.0, 2.0)

    def ratio(x: np.ndarray) -> np.ndarray:
        return density(x) / other.pdf(x) if relative else density(x)

    panels = Panels(*cut(np.array([-9.0]), np.array([9.0]), 0.3), 16)
    law = PanelDistribution(
        panels,
        density(panels.nodes)[None],
        exact=True,
        log_density=np.log(ratio(panels.nodes)) if relative else None,
    )
    level = math.exp(law.log_level(mass))
    grid = np.linspace(-9.0, 9.0, 400_001)
    inside = ratio(grid) >= level
    change = np.flatnonzero(inside[1:] != inside[:-1])
    ends = np.array(
        [optimize.brentq(lambda x: ratio(x) - level, grid[i], grid[i + 1]) for i in change]
    )
    masses = 0.3 * stats.norm(-2.0, 0.5).cdf(ends) + 0.7 * stats.norm(1.0, 1.0).cdf(ends)
    found = float(np.sum(np.where(inside[change], masses, -masses)))
    assert found == pytest.approx(mass, rel=1e-7, abs=1e-12)


def test_small_answers_come_from_the_distribution_with_its_tails() -> None:
    normal, made = stats.norm(), []

    def on_panels(reach: float, **more: object) -> PanelDistribution:
        made.append(reach)
        panels = Panels(*cut(np.array([-reach]), np.array([reach]), 0.2), 16)
        return PanelDistribution(panels, normal.pdf(panels.nodes)[None], exact=True, **more)

    law = on_panels(8.5, whole=lambda: on_panels(35.0))
    np.testing.assert_allclose(law.cdf(np.array([[0.0]])), 0.5, rtol=1e-14)
    assert made == [8.5]
    x = np.array([[-20.0, -9.0, 0.0, 3.0]])
    np.testing.assert_allclose(law.cdf(x), normal.cdf(x), rtol=1e-11)
    q = np.array([[1e-60, 1e-30, 0.3]])
    np.testing.assert_allclose(law.ppf(q), normal.ppf(q), rtol=1e-11)
    assert made == [8.5, 35.0]


def test_rows_name_their_distributions() -> None:
    law, known = of_mixture()
    which, q = np.array([2, 0, 0, 1]), np.random.default_rng(0).random((4, 5))
    x = law.ppf(q, which)
    np.testing.assert_allclose(law.cdf(x, which), q, atol=1e-13)
    for row, number in enumerate(which):
        np.testing.assert_allclose(x[row], known[number].ppf(q[row]), rtol=1e-9)


def test_an_exact_law_keeps_the_digits_of_its_tails() -> None:
    law, known = of_mixture(exact=True)
    q = 10.0 ** -np.arange(3.0, 12.0)
    for i, other in enumerate(known):
        np.testing.assert_allclose(law.ppf(np.tile(q, (3, 1)))[i], other.ppf(q), rtol=1e-9)
        x = other.isf(q)
        np.testing.assert_allclose(law.sf(np.tile(x, (3, 1)))[i], q, rtol=1e-9)


def test_a_gap_between_panels_has_no_mass() -> None:
    panels = Panels(np.array([0.0, 5.0]), np.array([1.0, 6.0]), 8)
    law = PanelDistribution(panels, np.ones((1, 2, 8)))
    np.testing.assert_allclose(
        law.cdf(np.array([[0.5, 1.0, 3.0, 5.0, 5.5]])), [[0.25, 0.5, 0.5, 0.5, 0.75]]
    )
    np.testing.assert_allclose(law.ppf(np.array([[0.25, 0.75]])), [[0.5, 5.5]])


def test_blocks_change_nothing() -> None:
    law, _ = of_mixture()
    q = np.random.default_rng(0).random((3, 40))
    whole = law.ppf(q), law.cdf(20.0 * q)
    with resources(block=7):
        np.testing.assert_allclose(law.ppf(q), whole[0], rtol=1e-12)
        np.testing.assert_allclose(law.cdf(20.0 * q), whole[1], rtol=1e-12)


@given(seed=st.integers(0, 100), exact=st.booleans())
def test_a_polynomial_is_inverted_on_its_panel(seed: int, exact: bool) -> None:
    rng = np.random.default_rng(seed)
    nodes, weights = legendre(ORDER)
    roots = rng.uniform(-1.5, 1.5, size=(50, 5))
    values = np.prod(
        (nodes[None, :, None] - roots[:, None, :]) ** 2, axis=2
    )  # squares: flat where a root lies inside
    total = values @ weights
    share = total * np.r_[0.0, 1.0, rng.random(48)]
    panel = Panels(np.array([-1.0]), np.array([1.0]), ORDER)
    s = positions(panel, np.zeros(50, dtype=int), values, share, total, exact=exact)
    assert np.all((s >= -1.0) & (s <= 1.0))
    for i in range(50):
        series = np.polynomial.legendre.legint(
            np.polynomial.legendre.legfit(nodes, values[i], ORDER - 1), lbnd=-1
        )
        assert np.polynomial.legendre.legval(s[i], series) == pytest.approx(
            share[i], abs=1e-12 * total[i]
        )


def test_roots_of_functions_on_which_newton_alone_goes_astray() -> None:
    def flat(_: np.ndarray, x: np.ndarray) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
        return (
            np.arctan(50.0 * (x - 0.3)),
            50.0 / (1.0 + 2500.0 * (x - 0.3) ** 2),
            np.zeros(x.shape),
        )

    found = increasing_root(
        flat, np.full(3, -10.0), np.full(3, 10.0), np.array([-10.0, 0.0, 10.0]), step=1e-14
    )
    np.testing.assert_allclose(found, 0.3, atol=1e-12)


# --- many features ---


def test_sobol_points_fill_the_cube() -> None:
    unit = sobol(100, 3, np.random.default_rng(0))
    assert unit.shape == (100, 3)
    assert np.all((unit >= 0.0) & (unit <= 1.0))
    np.testing.assert_allclose(unit.mean(axis=0), 0.5, atol=0.03)


@pytest.mark.parametrize("normal", [True, False])
@pytest.mark.parametrize("boundary", [np.inf, 1.5])
def test_importance_weights_integrate_what_the_mixture_dominates(
    normal: bool, boundary: float
) -> None:
    centers = np.random.default_rng(0).normal(size=(4, 5))
    rule = MixtureRule(
        centers, np.full(5, 0.8), np.full(5, -boundary), np.full(5, boundary), normal=normal
    )
    found = []
    for nodes, log_weights in rule.rules(1 << 15, 0):
        assert np.all(np.abs(nodes) <= boundary)
        np.testing.assert_allclose(-log_weights - rule.log_density(nodes), math.log(nodes.shape[0]))
        bump = np.prod(stats.norm(0.3, 0.5).pdf(nodes), axis=1)
        found.append(float(np.exp(log_weights) @ bump))
    share = stats.norm(0.3, 0.5).cdf(boundary) - stats.norm(0.3, 0.5).cdf(-boundary)
    assert np.mean(found) == pytest.approx(share**5, rel=0.02)


# --- cubature ---


@given(st.integers(0, 10**6), st.integers(1, 3))
def test_cubature_of_random_polynomials_and_bumps(seed: int, d: int) -> None:
    rng = np.random.default_rng(seed)
    low = rng.uniform(-1.0, 0.0, size=(1, d))
    high = low + rng.uniform(0.5, 2.0, size=(1, d))
    center, powers = rng.uniform(-1.0, 1.0, size=d), rng.integers(0, 4, size=d)
    found = integrate(
        lambda x: np.prod(np.exp(-((x - center) ** 2)) + x**powers, axis=1),
        low,
        high,
        rtol=1e-8,
        atol=0.0,
        max_evaluations=200_000,
    )
    erf_parts = [
        0.5 * math.sqrt(math.pi) * (math.erf(h - c) - math.erf(a - c))
        for a, h, c in zip(low[0], high[0], center, strict=True)
    ]
    power_parts = [
        (h ** (n + 1) - a ** (n + 1)) / (n + 1)
        for a, h, n in zip(low[0], high[0], powers, strict=True)
    ]
    exact = math.prod(e + q for e, q in zip(erf_parts, power_parts, strict=True))
    assert abs(found.value - exact) <= found.error + 1e-12
    assert found.evaluations <= 200_000


# --- one place ---


def test_nobody_else_makes_rules() -> None:
    package = Path(ksos.__file__).parent
    words = ("leggauss", "laggauss", "legvander", "hermgauss", "roots_legendre")
    makers = {
        file.relative_to(package).parts[0]
        for file in package.rglob("*.py")
        if any(word in file.read_text() for word in words)
    }
    assert makers == {"quadrature"}
