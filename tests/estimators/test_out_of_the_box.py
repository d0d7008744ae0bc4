"""KernelSoSDensity() with no argument at all: unscaled, correlated, multimodal samples, by held-out
log-density against gaussian_kde.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
from scipy.stats import gaussian_kde
from sklearn.datasets import make_moons

from ksos import KernelSoSDensity
from ksos.ground import resources
from ksos.space import bandwidth_rule

Draw = Callable[[int, np.random.Generator], np.ndarray]


def moons(n: int, rng: np.random.Generator) -> np.ndarray:
    return np.asarray(make_moons(n, noise=0.1, random_state=int(rng.integers(2**31)))[0])


def unscaled_correlated_blobs(n: int, rng: np.random.Generator) -> np.ndarray:
    centers = np.array([[0.0, 0.0], [6.0, 6.0], [0.0, 8.0]])
    blobs = centers[rng.integers(3, size=n)] + rng.normal(size=(n, 2)) @ np.array(
        [[1.0, 0.9], [0.0, 0.3]]
    )
    return np.asarray(blobs * [1000.0, 0.01] + [1e5, -3.0])


def separated_clusters(n: int, rng: np.random.Generator) -> np.ndarray:
    return (np.array([-20.0, 0.0, 30.0])[rng.integers(3, size=n)] + 0.5 * rng.normal(size=n))[
        :, None
    ]


def ridge(n: int, rng: np.random.Generator) -> np.ndarray:
    return rng.normal(size=(n, 2)) @ np.array([[1.0, 0.95], [0.0, 0.31]])


def normal(d: int) -> Draw:
    return lambda n, rng: rng.normal(size=(n, d))


def heavy_tails(n: int, rng: np.random.Generator) -> np.ndarray:
    return rng.standard_t(3, size=(n, 1))


# what held-out samples gain on gaussian_kde, in nats; the negative ones are what may be lost
AHEAD: dict[str, tuple[Draw, float]] = {
    "moons": (moons, 0.2),
    "unscaled, correlated blobs": (unscaled_correlated_blobs, 0.6),
    "separated clusters": (separated_clusters, 1.5),
    "heavy tails": (heavy_tails, -0.05),
    "a normal distribution": (normal(1), -0.03),
    "a normal distribution of the plane": (normal(2), -0.05),
    "a normal distribution in five dimensions": (normal(5), 0.1),
    "a narrow ridge": (ridge, -0.2),
}


@pytest.mark.parametrize("n", [50, 150])
@pytest.mark.parametrize(("draw", "margin"), AHEAD.values(), ids=AHEAD)
def test_no_arguments_are_needed(draw: Draw, margin: float, n: int) -> None:
    ahead = []
    for seed in range(3):
        rng = np.random.default_rng(seed)
        X, fresh = draw(n, rng), draw(1000, rng)
        ahead.append(
            KernelSoSDensity().fit(X).score(fresh) - gaussian_kde(X.T).logpdf(fresh.T).mean()
        )
    assert np.mean(ahead) >= margin, ahead


@pytest.mark.parametrize(
    ("n", "few"), [(120, {}), (700, {"n_support": 10, "tol": 1e-2})], ids=["all", "subsets"]
)
def test_the_fit_does_not_depend_on_chance(n: int, few: dict[str, Any]) -> None:
    X = moons(n, np.random.default_rng(0))
    one, other = (KernelSoSDensity(**few).fit(X) for _ in range(2))
    np.testing.assert_array_equal(one.bandwidth_, other.bandwidth_)
    np.testing.assert_array_equal(one.score_samples(X), other.score_samples(X))


def test_many_samples_ask_for_the_memory_of_the_support_points() -> None:
    """Whatever chooses the support points: the choice of the bandwidth looks at no more than ten
    samples for each of them.
    """
    X, options = (
        moons(900, np.random.default_rng(0)),
        {"support": "random", "n_support": 20, "tol": 1e-2, "random_state": 0},
    )
    with resources(memory=8 * 850 * 20):  # 20 columns of 200 samples, but not of 900
        few = KernelSoSDensity(**options).fit(X)
    points = np.unique(X, axis=0)
    rule = bandwidth_rule("auto", points, np.full(900, 1 / 900), np.random.default_rng(0))
    assert np.all(few.bandwidth_ > 1.01 * rule), "it looked"
    every = KernelSoSDensity(n_support=900, tol=1e-2).fit(X[:40])
    rule = bandwidth_rule(
        "auto", np.unique(X[:40], axis=0), np.full(40, 1 / 40), np.random.default_rng(0)
    )
    np.testing.assert_allclose(
        every.bandwidth_,
        rule,
        rtol=1e-12,
        err_msg="as many support points as samples leave nothing open",
    )


def test_few_support_points_get_wider_kernels() -> None:
    rng = np.random.default_rng(0)
    X, fresh = moons(600, rng), moons(1000, rng)
    many, few, fewest = (KernelSoSDensity(n_support=m, tol=1e-6).fit(X) for m in (150, 40, 25))
    assert np.all(many.bandwidth_ < few.bandwidth_) and np.all(few.bandwidth_ < fewest.bandwidth_)
    assert np.all(fewest.bandwidth_ <= many.bandwidth_ * (600 / 25) ** (1 / 6) * (1.0 + 1e-12))
    narrow = KernelSoSDensity(
        bandwidth=many.bandwidth_, n_support=25, relative_regularization=3e-3, tol=1e-6
    ).fit(X)
    assert fewest.score(fresh) > max(narrow.score(fresh) + 0.01, -1.2), (
        fewest.score(fresh),
        narrow.score(fresh),
    )
    at_support = KernelSoSDensity(support=few.support_points_, tol=1e-6).fit(X)
    np.testing.assert_allclose(at_support.bandwidth_, few.bandwidth_, rtol=1e-12)
