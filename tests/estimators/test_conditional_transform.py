"""KernelSoSConditional with a transform of the targets: answers in their own units, and the choice
between them.
"""

from __future__ import annotations

import pickle
from typing import Any

import numpy as np
import pytest
from sklearn.base import clone
from sklearn.linear_model import LinearRegression, Ridge
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import StandardScaler

import ksos
from ksos import KernelSoSConditional, KernelSoSDensity

QUICK = KernelSoSDensity(n_support=20, tol=1e-4)
NEW = np.array([[-1.0, 0.3], [0.0, 0.0], [1.5, -0.7]])


def prices(n: int = 200, seed: int = 0) -> tuple[np.ndarray, np.ndarray]:
    """log y is linear with normal errors."""
    rng = np.random.default_rng(seed)
    X = rng.normal(size=(n, 2))
    return X, np.exp(2.0 + X[:, 0] + 0.5 * rng.normal(size=n))


def model(transform: Any, **options: Any) -> KernelSoSConditional:
    options = {"scale": "constant", "given": None, "estimator": QUICK, **options}
    return KernelSoSConditional(LinearRegression(), transform=transform, **options)


@pytest.fixture(scope="module", params=["log", "asinh"])
def fitted(request: pytest.FixtureRequest) -> KernelSoSConditional:
    X, y = prices()
    return model(request.param).fit(X, y if request.param == "log" else y - 10.0)


def test_density_distribution_function_and_quantiles_agree(fitted: KernelSoSConditional) -> None:
    levels = np.linspace(0.001, 0.999, 301)
    values = fitted.predict_quantile(NEW, levels)
    assert np.all(np.diff(values, axis=1) >= 0.0)
    for j in (0, 100, 300):
        np.testing.assert_allclose(fitted.cdf(NEW, values[:, j]), levels[j], atol=1e-9)
    grid, h = np.linspace(0.5, 30.0, 41), 1e-4
    slopes = (fitted.cdf(NEW, grid=grid + h) - fitted.cdf(NEW, grid=grid - h)) / (2.0 * h)
    np.testing.assert_allclose(slopes, fitted.pdf(NEW, grid=grid), atol=2e-5)
    np.testing.assert_allclose(
        fitted.predict_interval(NEW, 0.8), fitted.predict_quantile(NEW, [0.1, 0.9])
    )
    low, high = fitted.predict_interval(NEW, 0.8, "conformal").T
    assert np.all(low <= values[:, 30]) and np.all(high >= values[:, 270])


def test_mean_and_standard_deviation_are_in_the_units_of_y(fitted: KernelSoSConditional) -> None:
    mean, std = fitted.predict(NEW, return_std=True)
    draws = fitted.sample(NEW, 40_000, random_state=0)
    np.testing.assert_allclose(mean, draws.mean(axis=1), rtol=0.05)
    np.testing.assert_allclose(std, draws.std(axis=1), rtol=0.25)


def test_the_distribution_at_a_row(fitted: KernelSoSConditional) -> None:
    p, t = fitted.at(NEW[0]), np.array([0.5, 2.0, 5.0])
    np.testing.assert_allclose(p.pdf(t), fitted.pdf(NEW[:1], grid=t)[0], rtol=1e-9)
    np.testing.assert_allclose(p.logpdf(t[:, None]), np.log(p.pdf(t)))
    np.testing.assert_allclose(p.cdf(t), fitted.cdf(NEW[:1], grid=t)[0], rtol=1e-9)
    np.testing.assert_allclose(p.ppf(p.cdf(t)), t, rtol=1e-6)
    assert p.ppf(0.5).shape == () and p.rvs(5, rng=0).shape == (5, 1)
    np.testing.assert_allclose(p.interval(0.9), fitted.predict_interval(NEW[:1], 0.9)[0])
    mean, std = fitted.predict(NEW[:1], return_std=True)
    np.testing.assert_allclose([p.mean(), p.std(), p.var()], [mean, std, std**2])
    assert p.support() == ((0.0 if fitted.transform_ == "log" else -np.inf), np.inf)
    assert np.all(p.rvs(100, rng=1) > p.support()[0])


def test_nothing_is_below_zero_under_a_logarithm() -> None:
    est = model("log").fit(*prices())
    np.testing.assert_array_equal(est.cdf(NEW, [-1.0, 0.0, -2.0]), 0.0)
    np.testing.assert_array_equal(est.score_samples(NEW, [-1.0, 0.0, -2.0]), -np.inf)
    np.testing.assert_array_equal(est.predict_quantile(NEW, [0.0, 1.0]), [[0.0, np.inf]] * 3)
    assert np.all(est.predict_interval(NEW, 0.95, "conformal") > 0.0)


def test_units_scale_and_the_jacobian_counts() -> None:
    X, y = prices()
    one, thousand = model("log").fit(X, y), model("log").fit(X, 1000.0 * y)
    np.testing.assert_allclose(thousand.predict(NEW), 1000.0 * one.predict(NEW), rtol=1e-6)
    np.testing.assert_allclose(
        thousand.score_samples(X, 1000.0 * y) + np.log(1000.0), one.score_samples(X, y), atol=1e-6
    )
    by_hand = model(None).fit(X, np.log(y))
    np.testing.assert_allclose(
        one.score_samples(X, y), by_hand.score_samples(X, np.log(y)) - np.log(y), atol=1e-9
    )


def test_held_out_likelihood_chooses() -> None:
    X, y = prices(300)
    rng = np.random.default_rng(1)
    assert model("auto").fit(X, y).transform_ == "log"
    assert model("auto").fit(X, 20.0 + X[:, 0] + rng.normal(size=300)).transform_ is None
    assert (
        model("auto").fit(X, 20.0 + 3.0 * X[:, 0] + rng.exponential(size=300)).transform_ is None
    ), "skewed, not scaled"
    assert model("auto").fit(X, X[:, 0] + rng.normal(size=300)).transform_ is None
    both = model("auto").fit(X, np.column_stack([y, 2.0 * y * np.exp(0.1 * rng.normal(size=300))]))
    assert both.transform_ == "log" and both.at(X[0]).mean().shape == (2,)
    new, target = prices(2000, 5)
    assert (
        model("auto").fit(X, y).score(new, target) > model(None).fit(X, y).score(new, target) + 0.05
    )


def test_life_with_scikit_learn() -> None:
    est = model("log")
    assert not hasattr(est, "transform"), "what has the attribute is taken for a transformer"
    with pytest.raises(AttributeError, match="after fit transform_"):
        _ = est.transform
    assert est.get_params()["transform"] == "log" and clone(est).get_params()["transform"] == "log"
    assert est.set_params(transform=None).get_params()[
        "transform"
    ] is None and "transform=None" in repr(est)
    X, y = prices(80)
    pipe = make_pipeline(StandardScaler(), model("log")).fit(X, y)
    assert not hasattr(pipe, "transform")
    again = pickle.loads(pickle.dumps(pipe))
    np.testing.assert_array_equal(again.predict(NEW), pipe.predict(NEW))


def test_what_cannot_be_transformed() -> None:
    X, y = prices(30)
    with pytest.raises(
        ValueError, match=r"transform='log' needs targets that are positive; row 3 of y is -1"
    ):
        model("log").fit(X, np.where(np.arange(30) == 3, -1.0, y))
    with pytest.raises(
        ValueError, match="transform must be one of 'auto', 'log', 'asinh' or None; got 'sqrt'"
    ):
        model("sqrt").fit(X, y)
    for est in (
        KernelSoSConditional(Ridge().fit(X, y), prefit=True, transform="log"),
        KernelSoSConditional("joint", transform="log"),
    ):
        with pytest.raises(
            ValueError, match="transform='log' needs a regressor that is fitted here"
        ):
            est.fit(X, y)


def test_a_named_target_keeps_its_name() -> None:
    pd = pytest.importorskip("pandas")
    X, y = prices(60)
    est = model("log").fit(X, pd.Series(y, name="price"))
    assert est.at(X[0]).feature_names == ("price",)
    assert isinstance(ksos.KernelSoSConditional().get_params()["transform"], str)
