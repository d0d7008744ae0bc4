"""Fits on boxes, sides possibly infinite: nothing leaks out, nothing bends down in front of a wall,
samples and masses stay inside.
"""

from __future__ import annotations

import numpy as np
import pytest
from scipy.stats import beta, truncnorm
from sklearn.model_selection import GridSearchCV
from sklearn.neighbors import KernelDensity
from statistics_checks import dkw_passes_at

from ksos import KernelSoSDensity
from ksos.kernels import KERNELS
from ksos.measures import Box, Lebesgue
from ksos.space import embedding_width

WALLED = {
    "beta(1, 3) on [0, 1]": (beta(1.0, 3.0), Box([0.0], [1.0])),
    "normal on [-0.5, inf)": (truncnorm(-0.5, np.inf), Box([-0.5], [np.inf])),
    "normal on (-inf, 0.2]": (truncnorm(-np.inf, 0.2), Box([-np.inf], [0.2])),
}
every_wall = pytest.mark.parametrize(("law", "box"), WALLED.values(), ids=WALLED)


def sample(law: object, n: int, seed: int) -> np.ndarray:
    levels = np.random.default_rng(seed).random(n)
    return np.asarray(law.ppf(levels))[:, None]  # type: ignore[attr-defined]


def line(box: Box, step: float = 2e-3) -> np.ndarray:
    """Midpoints of cells that end at the walls, and go on beyond them."""
    low, high = box.low[0], box.high[0]
    wall = low if np.isfinite(low) else high
    return (wall + step * (np.arange(-4000, 4000) + 0.5))[:, None]


def squared_error(log_density: np.ndarray, law: object, x: np.ndarray) -> float:
    error = np.exp(log_density) - law.pdf(x[:, 0])  # type: ignore[attr-defined]
    return float(error @ error) * float(x[1, 0] - x[0, 0])


@every_wall
def test_error_at_most_half_of_a_kernel_density_estimate(law: object, box: Box) -> None:
    x = line(box)
    ours, theirs = [], []
    for seed in range(4):
        X = sample(law, 400, seed)
        scale = X.std()
        grid = {"bandwidth": np.geomspace(0.03, 0.6, 12) * scale}
        kde = GridSearchCV(KernelDensity(), grid, cv=5).fit(X).best_estimator_
        theirs.append(squared_error(kde.score_samples(x), law, x))
        ours.append(squared_error(KernelSoSDensity(measure=box).fit(X).score_samples(x), law, x))
    assert np.mean(ours) <= 0.5 * np.mean(theirs), (ours, theirs)


@every_wall
@pytest.mark.parametrize("kernel", KERNELS)
def test_nothing_outside(law: object, box: Box, kernel: str) -> None:
    X = sample(law, 60, 1)
    p = KernelSoSDensity(kernel=kernel, measure=box, n_support=20, tol=1e-4).fit(X).distribution_
    x = line(box)
    outside = ~box.contains(x)
    assert np.all(p.pdf(x[outside]) == 0.0) and np.all(np.isneginf(p.logpdf(x[outside])))
    assert p.terms.mass() == pytest.approx(1.0, abs=1e-10)
    assert p.pdf(x[~outside]).sum() * (x[1, 0] - x[0, 0]) == pytest.approx(1.0, abs=1e-4)
    draws = p.rvs(500, rng=0)
    assert np.all(box.contains(draws))
    low, high = np.maximum(box.low, -50.0), np.minimum(box.high, 50.0)
    assert low[0] <= p.mean()[0] <= high[0] and p.cov()[0, 0] > 0.0


@every_wall
def test_samples_follow_the_fitted_density(law: object, box: Box) -> None:
    p = KernelSoSDensity(measure=box, tol=1e-5).fit(sample(law, 200, 2)).distribution_
    draws = p.rvs(20_000, rng=3)[:, 0]
    x = line(box)
    cumulative = np.cumsum(p.pdf(x)) * (x[1, 0] - x[0, 0])
    assert dkw_passes_at(draws, lambda t: np.interp(t, x[:, 0] + 1e-3, cumulative))


@every_wall
def test_probabilities_know_the_walls(law: object, box: Box) -> None:
    p = KernelSoSDensity(measure=box, tol=1e-4, n_support=30).fit(sample(law, 100, 2)).distribution_
    low, high = box.low[0], box.high[0]
    assert p.probability([-np.inf], [np.inf]) == pytest.approx(1.0, abs=1e-9)
    for a, b in ((-np.inf, low), (high, np.inf)):
        if a < b:
            assert p.probability([a], [b]) == 0.0
    assert p.probability([low], [high]) == pytest.approx(1.0, abs=1e-9)
    inside = np.array([0.05, 0.5, 0.95])
    quantiles = p.ppf(inside)
    assert np.all(box.contains(quantiles[:, None]))
    np.testing.assert_allclose(p.cdf(quantiles[:, None]), inside, atol=1e-9)
    if np.isfinite(low):
        assert p.cdf([[low]])[0] == pytest.approx(0.0, abs=1e-12) and p.cdf([[low - 1.0]])[0] == 0.0
    if np.isfinite(high):
        assert p.cdf([[high]])[0] == pytest.approx(1.0, abs=1e-9) and p.cdf([[high + 1.0]])[
            0
        ] == pytest.approx(1.0, abs=1e-9)


def test_no_bend_at_the_wall() -> None:
    """Where the truth is flat up to the wall, so is the fit; without the box it falls to half."""
    X = np.random.default_rng(0).random((400, 1))
    walled = KernelSoSDensity(measure=Box([0.0], [1.0])).fit(X)
    free = KernelSoSDensity().fit(X)
    ends = np.array([[0.0], [1.0]])
    assert np.all(np.exp(walled.score_samples(ends)) > 0.75)
    assert np.all(np.exp(free.score_samples(ends)) < 0.75)


def test_infinite_sides_only_is_the_whole_space() -> None:
    X = np.random.default_rng(1).normal(size=(60, 2))
    everywhere = Box([-np.inf, -np.inf], [np.inf, np.inf])
    options = {"bandwidth": 1.5, "regularization": 1e-3, "tol": 1e-9}
    boxed, free = (
        KernelSoSDensity(measure=measure, **options).fit(X) for measure in (everywhere, Lebesgue())
    )
    np.testing.assert_allclose(boxed.score_samples(X), free.score_samples(X), atol=1e-5)
    assert boxed.solution_.objective == pytest.approx(free.solution_.objective, abs=1e-8)


def test_one_wall_in_two_dimensions() -> None:
    rng = np.random.default_rng(4)
    X = np.column_stack([rng.normal(size=150), rng.exponential(size=150)])
    box = Box([-np.inf, 0.0], [np.inf, np.inf])
    p = KernelSoSDensity(measure=box, n_support=60, tol=1e-5).fit(X).distribution_
    assert p.terms.mass() == pytest.approx(1.0, abs=1e-9)
    assert np.all(p.pdf(np.column_stack([X[:, 0], -1e-9 - X[:, 1]])) == 0.0)
    draws = p.rvs(3000, rng=0)
    assert draws[:, 1].min() >= 0.0 and draws[:, 0].min() < -1.0
    np.testing.assert_allclose(draws.mean(axis=0), p.mean(), atol=0.15)
    assert p.marginal([1]).pdf([[0.0]])[0] > 0.5, (
        "as high at the wall as the exponential law, or nearly"
    )


@pytest.mark.parametrize(("scale", "shift"), [(1e6, 0.0), (1e-6, 0.0), (1.0, 2.0**27)])
def test_walls_move_with_the_data(scale: float, shift: float) -> None:
    X = np.round(sample(beta(1.0, 3.0), 80, 0) * 2**20) / 2**20
    plain = KernelSoSDensity(measure=Box([0.0], [1.0]), tol=1e-10).fit(X)
    moved = KernelSoSDensity(measure=Box([shift], [scale + shift]), tol=1e-10).fit(
        scale * X + shift
    )
    np.testing.assert_allclose(
        moved.score_samples(scale * X + shift) + np.log(scale), plain.score_samples(X), atol=1e-6
    )
    draws = moved.sample(200, random_state=0)
    assert draws.min() >= shift and draws.max() <= scale + shift


def test_a_boundary_that_is_known_helps() -> None:
    """Skewed positive samples: the held-out score with the boundary is higher, and the mean is
    right.
    """
    rng = np.random.default_rng(11)
    X, new = (
        np.column_stack([rng.gamma(1.0, 3.0, n), rng.gamma(2.0, 1.0, n)]) for n in (1000, 4000)
    )
    free, bounded = (
        KernelSoSDensity(measure=m).fit(X) for m in (None, Box([0.0, 0.0], [np.inf, np.inf]))
    )
    assert bounded.solution_.status == "solved"
    assert bounded.score(new) > free.score(new) + 0.05
    np.testing.assert_allclose(bounded.distribution_.mean(), X.mean(axis=0), rtol=0.03)


def test_the_embedding_kernel_is_as_wide_with_a_boundary() -> None:
    X = np.random.default_rng(12).normal(size=(60, 3))
    far = KernelSoSDensity(measure=Box([-99.0] * 3, [99.0] * 3), tol=1e-4).fit(X)
    np.testing.assert_allclose(
        far.embedding_bandwidth_ / far.bandwidth_, embedding_width(3), rtol=1e-12
    )


def test_samples_on_the_wall_are_inside() -> None:
    X = np.r_[np.zeros(3), np.linspace(0.0, 1.0, 20)][:, None]
    est = KernelSoSDensity(measure=Box([0.0], [1.0]), tol=1e-4).fit(X)
    assert np.all(np.isfinite(est.score_samples(X)))


def test_samples_beyond_a_wall_are_named() -> None:
    X = sample(beta(1.0, 3.0), 30, 0)
    X[17] = -0.25
    with pytest.raises(ValueError, match=r"1 of 30 samples lie outside .*row 17: \[-0\.25\]"):
        KernelSoSDensity(measure=Box([0.0], [np.inf])).fit(X)
