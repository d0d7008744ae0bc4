"""Anomalies: the share that is flagged holds for new rows, scores of training rows would not do,
and the words of scikit-learn.
"""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from scipy.stats import binom
from sklearn.metrics import roc_auc_score
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import StandardScaler
from sklearn.utils.estimator_checks import parametrize_with_checks

import ksos
from ksos import KernelSoSDensity, KernelSoSDensityCV

QUICK: dict[str, Any] = {"tol": 1e-4, "n_support": 30}


@parametrize_with_checks([KernelSoSDensity(tol=1e-4, n_support=8, contamination=0.2)])
def test_scikit_learn_checks(estimator: Any, check: Any) -> None:
    check(estimator)


@pytest.mark.parametrize("n", [200, 700])
def test_about_that_share_of_new_rows_is_flagged(n: int) -> None:
    """Binomial bounds for the new rows, and for the held-out rows that the threshold comes from."""
    rng, share = np.random.default_rng(1), 0.1
    est = KernelSoSDensity(contamination=share, **QUICK).fit(rng.normal(size=(n, 2)))
    new = rng.normal(size=(4000, 2))
    assert est.held_out_scores_.shape == (n,)
    error = 4.0 * np.sqrt(share * (1 - share) * (1 / 4000 + 1 / n))
    assert np.mean(est.predict(new) == -1) == pytest.approx(share, abs=error)
    assert np.mean(est.p_value(new) <= 0.3) == pytest.approx(
        0.3, abs=4.0 * np.sqrt(0.21 * (1 / 4000 + 1 / n))
    )
    np.testing.assert_array_equal(est.predict(new) == -1, est.p_value(new) <= share)
    np.testing.assert_array_equal(
        est.decision_function(new), est.score_samples(new) - est.threshold_
    )


def test_training_scores_alone_would_flag_too_many() -> None:
    rng, wrong, right = np.random.default_rng(2), [], []
    for _ in range(4):
        X, new = rng.normal(size=(60, 6)), rng.normal(size=(1000, 6))
        with pytest.warns(UserWarning, match="likelihood fit puts mass on every row"):
            est = KernelSoSDensity(objective="likelihood", contamination=0.1, tol=1e-3).fit(X)
        wrong.append(np.mean(est.score_samples(new) < np.quantile(est.score_samples(X), 0.1)))
        right.append(np.mean(est.predict(new) == -1))
    assert np.mean(wrong) > 0.2 and np.mean(right) < 0.16


def test_outliers_among_the_rows_are_found() -> None:
    rng = np.random.default_rng(3)
    X = np.concatenate([rng.normal(size=(150, 2)), rng.uniform(-8.0, 8.0, size=(15, 2))])
    truth = np.r_[np.zeros(150), np.ones(15)]
    est = KernelSoSDensity(contamination=0.1, **QUICK)
    found = est.fit_predict(X)
    assert (
        np.mean(found == -1) == pytest.approx(0.1, abs=2.0 / 165)
        and np.mean(found[150:] == -1) > 0.7
    )
    assert np.mean(found == est.predict(X)) > 0.9
    assert roc_auc_score(truth, -est.decision_function(X)) > 0.9
    piped = make_pipeline(StandardScaler(), est)
    assert set(piped.fit(X).predict(X)) == {-1, 1}


@pytest.mark.filterwarnings("ignore:a likelihood fit puts mass on every row")
def test_rows_are_judged_by_fits_that_have_not_seen_them() -> None:
    """A density that follows its rows closely finds each of them likely, outliers too; weight 0 is
    absence.
    """
    rng = np.random.default_rng(7)
    X = np.concatenate(
        [rng.normal(size=(60, 2)), rng.uniform(-12.0, 12.0, size=(6, 2)), [[30.0, 30.0]]]
    )
    weights = np.r_[np.ones(66), 0.0]
    est = KernelSoSDensity(
        bandwidth=0.4, objective="likelihood", regularization=1e-6, contamination=0.1, tol=1e-3
    )
    found = est.fit_predict(X, sample_weight=weights)
    assert np.sum(found[60:66] == -1) >= 5 and found[66] == -1
    assert np.sum(est.predict(X)[60:66] == -1) <= 1, "the fit to all rows has memorised them"


def test_held_out_scores_are_in_the_order_of_the_rows() -> None:
    """Each is the score of a fit to the rows of the other folds; copies of a row are held out
    together.
    """
    rng = np.random.default_rng(8)
    X = rng.normal(size=(53, 2))
    X = np.concatenate([X, X[:7]])[rng.permutation(60)]
    weights = np.r_[np.ones(59), 0.0]
    est = KernelSoSDensity(contamination=0.1, **QUICK).fit(X, sample_weight=weights)
    again = KernelSoSDensity(contamination=0.1, **QUICK).fit(X[::-1], sample_weight=weights[::-1])
    np.testing.assert_allclose(again.held_out_scores_[::-1], est.held_out_scores_, atol=1e-9)
    same = np.unique(X[:59], axis=0, return_inverse=True)[1].ravel()
    for which in range(same.max() + 1):
        assert np.ptp(est.held_out_scores_[:59][same == which]) == 0.0
    own = est.score_samples(X)[59]
    assert est.held_out_scores_[59] == pytest.approx(own, abs=1e-12), (
        "a row without weight was in no fit"
    )
    moved = X.copy()
    # its own score changes, and that of no row of its fold depends on where it lies
    moved[3] += 50.0
    assert (
        KernelSoSDensity(contamination=0.1, **QUICK)
        .fit(moved, sample_weight=weights)
        .held_out_scores_[3]
        < -50.0
    )
    np.testing.assert_array_equal(
        KernelSoSDensity(contamination=0.1, **QUICK).fit_predict(X, sample_weight=weights),
        np.where(est.held_out_scores_ < est.threshold_, -1, 1),
    )


def test_without_contamination_there_are_p_values_of_the_model() -> None:
    X = np.random.default_rng(4).normal(size=(100, 1))
    est = KernelSoSDensity(**QUICK).fit(X)
    assert not hasattr(est, "predict") and not hasattr(est, "threshold_")
    with pytest.raises(AttributeError, match="predict") as raised:
        est.predict(X)
    assert "contamination=0.05" in str(raised.value)
    level = est.distribution_.hdr_level(0.8)
    found = est.p_value(X)
    low, high = binom.ppf([1e-6, 1.0 - 1e-6], 2000, 0.2) / 2000
    assert np.all(found[est.distribution_.pdf(X) < level] <= high) and np.all(
        found[est.distribution_.pdf(X) >= level] >= low
    )
    assert est.p_value([[40.0]])[0] == 1 / 2001


def test_weights_and_copies_are_the_same_thing() -> None:
    rng = np.random.default_rng(5)
    X, counts = rng.normal(size=(40, 1)), rng.integers(1, 4, 40)
    one = KernelSoSDensity(contamination=0.1, **QUICK).fit(X, sample_weight=counts)
    other = KernelSoSDensity(contamination=0.1, **QUICK).fit(np.repeat(X, counts, axis=0))
    assert one.threshold_ == pytest.approx(other.threshold_, abs=1e-6)


def test_the_search_has_it_too() -> None:
    X = np.random.default_rng(6).normal(size=(60, 1))
    with pytest.warns(UserWarning, match="objective='squared_mmd'"):
        est = KernelSoSDensityCV([1.0], [0.1], cv=2, tol=1e-3, contamination=0.1).fit(X)
    assert (
        np.mean(est.predict(X) == -1) < 0.2
        and est.predict([[9.0]])[0] == -1
        and est.predict([[0.0]])[0] == 1
    )


@pytest.mark.parametrize("contamination", [0.0, 0.7, "auto", -0.1])
def test_refusals(contamination: Any) -> None:
    with pytest.raises(ValueError, match="contamination"):
        ksos.KernelSoSDensity(contamination=contamination).fit([[0.0], [1.0]])


def test_a_threshold_needs_rows() -> None:
    est = KernelSoSDensity(bandwidth=1.0, contamination=0.05).fit(
        [[0.0], [1.0], [2.0]]
    )  # 1/4 is the least rank
    assert est.threshold_ == -np.inf and est.predict([[0.5]])[0] == 1
    assert KernelSoSDensity(bandwidth=1.0, contamination=0.05).fit([[0.0]]).predict([[0.5]])[0] == 1
