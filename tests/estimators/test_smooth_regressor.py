"""The Gaussian process among the default regressors of a conditional density."""

from __future__ import annotations

import numpy as np
from scipy.optimize import check_grad

from ksos.estimators import SmoothRegressor


def test_the_smooth_regressor_knows_the_slope_of_its_likelihood_and_which_features_matter() -> None:
    rng = np.random.default_rng(10)
    points = rng.normal(size=(200, 3))
    y = np.sin(2.0 * points[:, 0]) + 0.1 * rng.normal(size=200)
    at = np.array([0.2, 0.1, 0.7, -0.3, -1.0])
    weights = rng.uniform(0.5, 2.0, size=200)
    loss, known = SmoothRegressor.negative_log_likelihood, (points, y, weights)
    assert check_grad(lambda v: loss(v, *known)[0], lambda v: loss(v, *known)[1], at) < 1e-4
    found = SmoothRegressor().fit(points, y)
    assert found.lengths_[0] < 2.0 < 10.0 < found.lengths_[1:].min()
    new = rng.normal(size=(200, 3))
    assert np.sqrt(np.mean((found.predict(new) - np.sin(2.0 * new[:, 0])) ** 2)) < 0.1
    twice = SmoothRegressor().fit(points, y, np.full(200, 2.0))
    np.testing.assert_allclose(twice.predict(new), found.predict(new), rtol=1e-9)
    wrong = np.r_[np.full(20, 5.0), y[20:]]
    trusted = SmoothRegressor().fit(points, wrong, np.r_[np.full(20, 1e-6), np.ones(180)])
    assert np.sqrt(np.mean((trusted.predict(new) - np.sin(2.0 * new[:, 0])) ** 2)) < 0.1
