"""What makes the width of a conditional law right: the law of one more residual, the factor of the interval, the smooth regressor."""

from __future__ import annotations

import numpy as np
import pytest
from scipy.optimize import check_grad
from scipy.stats import norm, t

from ksos.estimators._conditional_calibration import interval_factor
from ksos.estimators._conditional_default import SmoothRegressor, _loss
from ksos.estimators._conditional_student import student_law

X = np.linspace(-4.0, 4.0, 41)[:, None]


@pytest.mark.parametrize("n", [8, 15, 60, 2000])
def test_the_law_of_one_more_normal_residual_is_students(n: int) -> None:
    U = 0.3 + 2.0 * np.random.default_rng(5).normal(size=(n, 1))
    scale = U.std(ddof=1) * np.sqrt(1.0 + 1.0 / n)
    np.testing.assert_allclose(student_law(U, np.ones(n)).cdf(X), t.cdf((X[:, 0] - U.mean()) / scale, n - 1), atol=2e-4)


def test_heavy_tails_are_seen_and_weights_count_as_shares() -> None:
    U = np.random.default_rng(7).standard_t(3, size=(4000, 1))
    law = student_law(U, np.ones(4000))
    np.testing.assert_allclose(law.cdf(X), t.cdf(X[:, 0], 3), atol=0.02)
    half = np.r_[np.ones(2000), np.zeros(2000)]
    np.testing.assert_allclose(student_law(U, half).cdf(X), student_law(U[:2000], np.ones(2000)).cdf(X), atol=1e-9)


def test_two_outputs_keep_their_correlation_and_equal_residuals_a_width() -> None:
    U = np.random.default_rng(8).multivariate_normal([0.0, 0.0], [[1.0, 0.8], [0.8, 2.0]], size=3000)
    np.testing.assert_allclose(student_law(U, np.ones(3000)).cov(), [[1.0, 0.8], [0.8, 2.0]], atol=0.1)
    mostly = np.r_[np.zeros(95), np.linspace(-1.0, 1.0, 5)][:, None]
    assert 0.01 < np.diff(student_law(mostly, np.ones(100)).ppf([0.25, 0.75]))[0] < 0.5


@pytest.mark.parametrize("wrong", [0.7, 1.0, 1.4])
def test_the_factor_undoes_a_wrong_width_up_to_its_doubt(wrong: float) -> None:
    u = np.random.default_rng(9).normal(size=5000)
    ends = np.tile(wrong * norm.ppf([0.05, 0.95]), (5000, 1))
    factor = interval_factor(u, ends, np.ones(5000))
    assert factor * wrong == pytest.approx(1.0, abs=0.02)
    inside = np.mean((u >= factor * ends[:, 0]) & (u <= factor * ends[:, 1]))
    assert abs(inside - 0.9) < 0.005
    assert interval_factor(u[:99], ends[:99], np.ones(99)) == 1.0
    few = interval_factor(u[:200], ends[:200], np.ones(200))
    assert interval_factor(u, ends, np.r_[np.ones(200), np.zeros(4800)]) == pytest.approx(few)


def test_the_smooth_regressor_knows_the_slope_of_its_likelihood_and_which_features_matter() -> None:
    rng = np.random.default_rng(10)
    points = rng.normal(size=(200, 3))
    y = np.sin(2.0 * points[:, 0]) + 0.1 * rng.normal(size=200)
    at = np.array([0.2, 0.1, 0.7, -0.3, -1.0])
    weights = rng.uniform(0.5, 2.0, size=200)
    assert check_grad(lambda v: _loss(v, points, y, weights)[0], lambda v: _loss(v, points, y, weights)[1], at) < 1e-4
    found = SmoothRegressor().fit(points, y)
    assert found.lengths_[0] < 2.0 < 10.0 < found.lengths_[1:].min()
    new = rng.normal(size=(200, 3))
    assert np.sqrt(np.mean((found.predict(new) - np.sin(2.0 * new[:, 0])) ** 2)) < 0.1
    twice = SmoothRegressor().fit(points, y, np.full(200, 2.0))
    np.testing.assert_allclose(twice.predict(new), found.predict(new), rtol=1e-9)
    wrong = np.r_[np.full(20, 5.0), y[20:]]
    trusted = SmoothRegressor().fit(points, wrong, np.r_[np.full(20, 1e-6), np.ones(180)])
    assert np.sqrt(np.mean((trusted.predict(new) - np.sin(2.0 * new[:, 0])) ** 2)) < 0.1
