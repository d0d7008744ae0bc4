"""Scores and quantiles where scikit-learn and MAPIE call them."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from sklearn.base import clone
from sklearn.exceptions import NotFittedError
from sklearn.frozen import FrozenEstimator
from sklearn.linear_model import LinearRegression
from sklearn.model_selection import GridSearchCV, cross_val_score
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import StandardScaler

from ksos import KernelSoSConditional, KernelSoSDensity
from ksos.adapters import QuantileView, neg_crps


def data(n: int = 100) -> tuple[np.ndarray, np.ndarray]:
    rng = np.random.default_rng(0)
    X = rng.uniform(-1.0, 1.0, size=(n, 1))
    return X, X[:, 0] + 0.3 * rng.normal(size=n)


def quick() -> KernelSoSConditional:
    return KernelSoSConditional(
        LinearRegression(), "constant", given=None, estimator=KernelSoSDensity(tol=1e-3)
    )


def test_neg_crps_is_minus_the_mean_score() -> None:
    X, y = data()
    est, pipe = quick().fit(X, y), make_pipeline(StandardScaler(), quick()).fit(X, y)
    assert neg_crps(est, X, y) == pytest.approx(-est.crps(X, y).mean())
    last, rows = pipe[-1], pipe[:-1].transform(X)
    assert neg_crps(pipe, X, y) == pytest.approx(-last.crps(rows, y).mean())
    weights = np.r_[np.ones(50), np.zeros(50)]
    assert neg_crps(est, X, y, weights) == pytest.approx(-est.crps(X[:50], y[:50]).mean())
    density = KernelSoSDensity().fit(X)
    assert neg_crps(density, X) == pytest.approx(-density.distribution_.crps(X).mean())
    both = np.stack([y, np.roll(y, 1)], axis=1)
    two = quick().fit(X, both)
    assert neg_crps(two, X, both) == pytest.approx(-two.crps(X, both).mean())


def test_it_chooses_in_a_grid_search() -> None:
    X, y = data()
    grid = {"kernelsosconditional__transform": [None, "asinh"]}
    search = GridSearchCV(make_pipeline(StandardScaler(), quick()), grid, scoring=neg_crps, cv=2)
    search.fit(X, y)
    assert search.best_score_ < 0.0 and np.isfinite(search.cv_results_["mean_test_score"]).all()
    assert cross_val_score(KernelSoSDensity(), X, scoring=neg_crps, cv=2).shape == (2,)


def test_quantiles_through_a_pipeline() -> None:
    X, y = data()
    pipe = make_pipeline(StandardScaler(), quick())
    expected = clone(pipe).fit(X, y)
    rows = expected[:-1].transform(X)
    around = QuantileView(pipe, [0.1, 0.9]).fit(X, y)
    np.testing.assert_allclose(around.predict(X), expected[-1].predict_quantile(rows, [0.1, 0.9]))
    inside = make_pipeline(StandardScaler(), QuantileView(quick(), 0.9)).fit(X, y)
    np.testing.assert_allclose(inside.predict(X), around.predict(X)[:, 1])
    for frozen in (FrozenEstimator(expected), FrozenEstimator(quick().fit(X, y))):
        view = QuantileView(frozen, 0.1).fit(X[:5], y[:5])  # fits nothing
        np.testing.assert_allclose(view.predict(X), around.predict(X)[:, 0], atol=0.01)
    with pytest.raises(NotFittedError):
        QuantileView(quick()).predict(X)


def test_mapie_makes_conformal_intervals_of_both() -> None:
    mapie: Any = pytest.importorskip("mapie.regression", reason="MAPIE is not installed")
    X, y = data(400)
    est = quick().fit(X[:200], y[:200])
    split = mapie.SplitConformalRegressor(est, confidence_level=0.9, prefit=True)
    split.conformalize(X[200:300], y[200:300])
    mean, interval = split.predict_interval(X[300:])
    np.testing.assert_allclose(mean, est.predict(X[300:]))
    inside = (interval[:, 0, 0] <= y[300:]) & (y[300:] <= interval[:, 1, 0])
    assert 0.8 <= inside.mean() <= 1.0
    views = [QuantileView(FrozenEstimator(est), q).fit(X, y) for q in (0.05, 0.95, 0.5)]
    quantile = mapie.ConformalizedQuantileRegressor(views, confidence_level=0.9, prefit=True)
    quantile.conformalize(X[200:300], y[200:300])
    _, interval = quantile.predict_interval(X[300:])
    inside = (interval[:, 0, 0] <= y[300:]) & (y[300:] <= interval[:, 1, 0])
    assert 0.8 <= inside.mean() <= 1.0
