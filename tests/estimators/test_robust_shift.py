"""Robust estimators that reweight the samples: certificates, what a shift keeps, defaults that do
no harm, what a fit says of itself.
"""

from __future__ import annotations

import pickle

import numpy as np
import pandas as pd
import pytest
from sklearn.linear_model import LinearRegression

import ksos
from ksos.kernels import Gaussian
from ksos.measures import Box

from no_harm import classifications, regressions, without_shift  # isort: skip

SMALL = {"n_support": 10, "rtol": 1e-3}


def curved(n=60, seed=0):
    rng = np.random.default_rng(seed)
    X = rng.normal(size=(n, 2))
    return X, X[:, 0] + 0.5 * X[:, 0] ** 2 - X[:, 1] + 0.3 * rng.normal(size=n)


def columns_of(shift, X, y):
    return {"x": X, "y": y[:, None], "both": np.column_stack([X, y])}[shift]


@pytest.fixture(scope="module", params=["x", "y", "both"])
def fitted(request):
    X, y = curved()
    return (
        request.param,
        X,
        y,
        ksos.RobustRegressor(radius=0.1, shift=request.param, **SMALL).fit(X, y),
    )


class TestCertificates:
    def test_the_worst_case_is_the_loss_under_weights_of_the_samples(self, fitted):
        shift, X, y, est = fitted
        worst, C = est.worst_case_, columns_of(shift, X, y)
        weights = np.asarray(worst.distribution.pdf(C)) / len(y)
        assert est.solution_.status == "solved" and est.solution_.gap_relative <= 2e-3
        assert weights.min() >= 0.0 and weights.sum() == pytest.approx(1.0, abs=1e-8)
        assert weights @ (y - est.predict(X)) ** 2 == pytest.approx(worst.value, rel=1e-7)
        assert np.mean((y - est.predict(X)) ** 2) == pytest.approx(worst.empirical_value, rel=1e-9)
        assert (
            worst.empirical_value < worst.value <= worst.upper_bound
            and worst.upper_bound_kind == "rigorous"
        )

    def test_the_weights_are_within_the_radius(self, fitted):
        """The MMD of what shifts, written out."""
        shift, X, y, est = fitted
        worst, C = est.worst_case_, columns_of(shift, X, y)
        change = (np.asarray(worst.distribution.pdf(C)) - 1.0) / len(y)
        assert np.sqrt(change @ worst.embedding_kernel(C, C) @ change) == pytest.approx(
            worst.mmd, abs=1e-7
        )
        assert worst.mmd <= 0.1

    def test_under_the_worst_weights_no_line_is_better(self, fitted):
        """The saddle: weighted least squares has what the fit has, and the plain fit has more."""
        shift, X, y, est = fitted
        weights = np.asarray(est.worst_case_.distribution.pdf(columns_of(shift, X, y))) / len(y)
        best, plain = (
            LinearRegression().fit(X, y, sample_weight=w).predict(X) for w in (weights, None)
        )
        assert weights @ (y - best) ** 2 == pytest.approx(est.worst_case_.value, rel=0.02)
        assert weights @ (y - plain) ** 2 > est.worst_case_.value

    def test_no_other_weights_in_the_ball_are_worse(self, fitted):
        """Tilts of the samples by exp(c·direction), scaled into the ball: none exceeds the bound
        over all laws.
        """
        shift, X, y, est = fitted
        C, loss, n = columns_of(shift, X, y), (y - est.predict(X)) ** 2, len(y)
        K, rng = est.worst_case_.embedding_kernel(C, C), np.random.default_rng(1)
        assert isinstance(est.worst_case_.embedding_kernel, Gaussian)
        for _ in range(50):
            tilt = np.exp(2.0 * (C - C.mean(axis=0)) / C.std(axis=0) @ rng.normal(size=C.shape[1]))
            change = tilt / tilt.sum() - 1.0 / n
            change *= min(1.0, 0.1 / np.sqrt(change @ K @ change))
            assert loss.mean() + change @ loss <= est.worst_case_.upper_bound + 1e-9

    def test_samples_with_the_same_x_keep_their_outcomes(self):
        X = np.repeat([[0.0], [1.0], [2.0], [3.0]], 3, axis=0)
        y = X[:, 0] ** 2 + np.tile([-0.5, 0.0, 0.5], 4)
        est = ksos.RobustRegressor(radius=0.1, shift="x", **SMALL).fit(X, y)
        assert est.worst_case_.distribution.n_features == 1
        by_x = ((y - est.predict(X)) ** 2).reshape(4, 3).mean(axis=1)
        assert est.worst_case_.loss(X[::3]) == pytest.approx(by_x)

    @pytest.mark.parametrize("loss", ["huber", "absolute"])
    def test_any_loss_in_any_number_of_features(self, loss):
        rng = np.random.default_rng(0)
        X = rng.normal(size=(40, 5))
        y = X[:, 0] + rng.normal(size=40)
        est = ksos.RobustRegressor(radius=0.1, shift="both", loss=loss, n_support=8, rtol=1e-2).fit(
            X, y
        )
        assert est.worst_case_.empirical_value < est.worst_case_.value <= est.solution_.value
        assert est.worst_case_.integration_error == 0.0

    @pytest.mark.parametrize("loss", ["square", "logistic"])
    @pytest.mark.parametrize("shift", ["x", "y", "both"])
    def test_classifiers(self, loss, shift):
        rng = np.random.default_rng(0)
        X, y = (
            np.concatenate([rng.normal(c, 0.6, (15, 2)) for c in (-1.0, 0.0, 1.0)]),
            np.repeat(["a", "b", "c"], 15),
        )
        est = ksos.RobustClassifier(radius=0.1, shift=shift, loss=loss, n_support=9, rtol=1e-2).fit(
            X, y
        )
        assert est.solution_.status == "solved" and est.worst_case_.mmd <= 0.1
        assert est.worst_case_.empirical_value < est.worst_case_.value
        if loss == "logistic":
            own = est.predict_proba(X)[np.arange(45), np.searchsorted(est.classes_, y)]
            assert np.mean(-np.log(own)) == pytest.approx(est.worst_case_.empirical_value)
        data, worst = est.prepared_for_.data.shares, est.prepared_for_.worst.shares
        assert data == pytest.approx([1 / 3] * 3) and worst.sum() == pytest.approx(1.0)
        assert pickle.loads(pickle.dumps(est)).predict(X).tolist() == est.predict(X).tolist()


class TestLabels:
    """Codes of labels are far apart: only features set the bandwidth, and kernels between labels
    are 0.
    """

    def test_bandwidths_are_those_of_the_features(self):
        rng = np.random.default_rng(0)
        X, y = rng.normal(size=(60, 2)), np.repeat([0, 1], 30)
        both, alone = (
            ksos.RobustClassifier(radius=0.1, shift=shift, **SMALL).fit(X, y).worst_case_
            for shift in ("both", "x")
        )
        features = both.embedding_kernel.sigma_vector(3)[:2]
        assert features.tolist() == alone.embedding_kernel.sigma_vector(2).tolist()
        assert features == pytest.approx(
            [1.6, 1.6], abs=0.4
        )  # the median distance of pairs from N(0, I) is 1.67

    @pytest.mark.parametrize("shift", ["y", "both"])
    def test_labels_are_seen_alone(self, shift):
        """The MMD of k(x, x')·1[label = label'], written out."""
        rng = np.random.default_rng(0)
        X, y = rng.normal(size=(60, 2)), np.repeat([0, 1, 2], 20)
        worst = (
            ksos.RobustClassifier(radius=0.1, shift=shift, **SMALL)
            .fit(X + y[:, None], y)
            .worst_case_
        )
        C = np.column_stack([X + y[:, None], 100.0 * y])[:, -1 if shift == "y" else 0 :].reshape(
            60, -1
        )
        change = (np.asarray(worst.distribution.pdf(C)) - 1.0) / 60
        same = (y[:, None] == y).astype(float)
        if shift == "both":
            same = same * Gaussian(worst.embedding_kernel.sigma_vector(3)[:2])(C[:, :2], C[:, :2])
        assert (
            np.sqrt(change @ same @ change) == pytest.approx(worst.mmd, abs=1e-7)
            and worst.mmd <= 0.1 + 1e-12
        )

    def test_one_bandwidth_per_feature(self):
        X, y = curved()
        est = ksos.RobustClassifier(
            radius=0.1, shift="both", embedding_bandwidth=[1.0, 2.0], bandwidth=[1.5, 2.5], **SMALL
        )
        assert est.fit(X, y > 0.0).worst_case_.embedding_kernel.sigma_vector(3).tolist() == [
            1.0,
            2.0,
            1.0,
        ]

    def test_more_labels_than_support_points_by_default(self):
        y = np.repeat(np.arange(24), 4)
        X = np.random.default_rng(0).normal(size=(96, 2)) + 2.0 * np.column_stack(
            [np.cos(y), np.sin(y)]
        )
        est = ksos.RobustClassifier(radius=0.1, shift="y", loss="square", rtol=1e-2).fit(X, y)
        assert est.solution_.status == "solved" and est.prepared_for_.worst.shares.min() > 0.0


class TestDefaults:
    @pytest.mark.parametrize("table", range(6))
    def test_without_shift_a_regressor_does_no_harm(self, table):
        name, X, y, _ = list(regressions())[table]
        (ratio,) = without_shift(X, y, False, 1, seed=11)
        assert ratio <= 1.05, name

    @pytest.mark.parametrize("table", range(4))
    def test_without_shift_a_classifier_does_no_harm(self, table):
        name, X, y, _ = list(classifications())[table]
        (ratio,) = without_shift(X, y, True, 1, seed=11)
        assert ratio >= 0.97, name

    def test_a_radius_is_found_where_one_is_harmless(self):
        X, y = regressions().__next__()[1:3]
        est = ksos.RobustRegressor().fit(X, y)
        most = est.ball_.with_radius("bootstrap").radius
        assert 0.1 * most < est.radius_ < 1.1 * most

    def test_few_samples_are_fitted_plainly(self):
        X, y = curved(9)
        est = ksos.RobustRegressor().fit(X, y)
        assert (
            est.radius_ == 0.0
            and est.prepared_for_.nothing
            and "no shift" in str(est.prepared_for_)
        )

    @pytest.mark.parametrize("seed", range(2))
    def test_densities_anywhere_do_no_harm_either(self, seed):
        rng = np.random.default_rng(seed)
        X = rng.normal(size=(2040, 1))
        y = X[:, 0] + 0.5 * rng.normal(size=2040)
        est = ksos.RobustRegressor(shift="anywhere", n_support=16, rtol=1e-2).fit(X[:40], y[:40])
        errors = [
            np.mean((model.predict(X[40:]) - y[40:]) ** 2)
            for model in (est, LinearRegression().fit(X[:40], y[:40]))
        ]
        assert errors[0] <= 1.05 * errors[1]

    def test_a_kernel_model_has_a_harmless_radius_too(self):
        """The folds have centers of their own, and not always as many as all samples."""
        for seed in range(3):
            rng = np.random.default_rng(seed)
            X = rng.normal(size=(40, 1))
            y = np.sin(2.0 * X[:, 0]) + 0.2 * rng.normal(size=40)
            est = ksos.RobustRegressor(model="kernel").fit(X, y)
            assert est.solution_.status == "solved" and est.score(X, y) > 0.5

    def test_a_number_is_the_radius_of_densities_of_the_domain(self):
        X, y = curved(30)
        named, unnamed = (
            ksos.RobustRegressor(radius=0.4, shift=shift, **SMALL).fit(X, y)
            for shift in ("anywhere", None)
        )
        assert named.theta_.tolist() == unnamed.theta_.tolist()
        assert (
            isinstance(unnamed.worst_case_.distribution.measure, Box)
            and unnamed.prepared_for_.shift == "anywhere"
        )


class TestWords:
    def test_they_name_columns_and_give_what_the_weights_give(self, capsys):
        X, y = curved()
        table = pd.DataFrame({"income": 1000.0 * X[:, 0], "age": X[:, 1]})
        est = ksos.RobustRegressor(radius=0.1, shift="both", verbose=1, **SMALL).fit(table, y)
        told, Z = est.prepared_for_, np.column_stack([table, y])
        weights = np.asarray(est.worst_case_.distribution.pdf(Z)) / len(y)
        assert told.columns == ("income", "age", "y")
        assert told.worst.mean == pytest.approx(weights @ Z, rel=1e-6)
        assert told.worst.std == pytest.approx(np.sqrt(weights @ (Z - weights @ Z) ** 2), rel=1e-6)
        assert told.data.mean == pytest.approx(Z.mean(axis=0))
        printed = capsys.readouterr().out
        assert printed == f"RobustRegressor is {told}\n"
        assert (
            f"income: mean {told.data.mean[0]:.4g} → {told.worst.mean[0]:.4g}" in printed
            and "MMD 0.1" in printed
        )

    def test_densities_of_the_domain_have_them_too(self):
        X, y = curved(30)
        est = ksos.RobustRegressor(radius=0.4, **SMALL).fit(X, y)
        assert est.prepared_for_.worst.mean == pytest.approx(est.worst_case_.distribution.mean())
        labels = ksos.RobustClassifier(radius=0.4, **SMALL).fit(X, y > 0.0)
        assert labels.prepared_for_.worst.shares.sum() == pytest.approx(
            1.0
        ) and "share of True" in str(labels.prepared_for_)

    @pytest.mark.parametrize(
        ("params", "message"),
        [
            ({"shift": "z"}, "shift"),
            ({"shift": "x", "measure": Box([0.0] * 3, [1.0] * 3)}, "measure is a domain"),
        ],
    )
    def test_bad_shifts(self, params, message):
        with pytest.raises(ValueError, match=message):
            ksos.RobustRegressor(**params).fit(*curved())
