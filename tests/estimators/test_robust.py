"""RobustRegressor and RobustClassifier: scikit-learn's rules, the certificate, the worst density,
bad input.
"""

from __future__ import annotations

import pickle
import warnings

import numpy as np
import pytest
from scipy.optimize import linprog
from sklearn.base import clone
from sklearn.exceptions import ConvergenceWarning
from sklearn.linear_model import QuantileRegressor, Ridge
from sklearn.utils.estimator_checks import parametrize_with_checks

import ksos
from ksos.kernels import Gaussian
from ksos.measures import Box, Normal
from ksos.robust import HuberLoss, LabeledDensity, LabeledEmbedding, QuantileLoss, ResidualLoss

# a given radius, since "auto" fits five folds; a shift of x alone has no empty balls
SMALL = {"radius": 0.1, "shift": "x", "n_support": 8, "rtol": 1e-2, "tol": 1e-6}


@parametrize_with_checks([ksos.RobustRegressor(**SMALL), ksos.RobustClassifier(alpha=0.1, **SMALL)])
def test_scikit_learn_rules(estimator, check):
    check(estimator)


def regression(n=25, seed=0):
    rng = np.random.default_rng(seed)
    X = rng.uniform(-1.0, 1.0, (n, 1))
    return X, 2.0 * X[:, 0] + 0.3 * rng.normal(size=n) + 5.0


def classes(seed=0, n=12):
    rng = np.random.default_rng(seed)
    return np.concatenate([rng.normal(-1.0, 0.5, (n, 1)), rng.normal(1.0, 0.5, (n, 1))]), np.array(
        ["no"] * n + ["yes"] * n
    )


class TestRegressor:
    def test_radius_zero_is_ridge_regression(self):
        X, y = regression()
        est = ksos.RobustRegressor(radius=0.0, alpha=0.3).fit(X, y)
        scale = X.std(axis=0)
        other = Ridge(alpha=0.3 * X.shape[0]).fit((X - X.mean(axis=0)) / scale, y)
        assert est.predict(X) == pytest.approx(other.predict((X - X.mean(axis=0)) / scale))
        assert est.worst_case_ is None
        assert est.intercept_ + X @ est.coef_ == pytest.approx(est.predict(X))

    def test_radius_zero_of_the_absolute_loss_is_least_absolute_deviations(self):
        X, y = regression()
        n = X.shape[0]
        est = ksos.RobustRegressor(radius=0.0, loss="absolute", alpha=1e-9).fit(X, y)
        A, one = np.column_stack([np.ones(n), X]), np.eye(n)
        deviations = linprog(
            np.r_[np.zeros(2), np.full(n, 1.0 / n)],
            A_ub=np.block([[A, -one], [-A, -one]]),
            b_ub=np.r_[y, -y],
            bounds=[(None, None)] * 2 + [(0.0, None)] * n,
        )
        assert (
            est.solution_.status == "solved"
            and 0.0 < est.solution_.gap < 1e-4 * est.solution_.value
        )
        assert (
            est.solution_.value - est.solution_.gap <= deviations.fun <= est.solution_.value + 1e-12
        )
        assert np.abs(y - est.predict(X)).mean() == pytest.approx(deviations.fun, rel=1e-5)

    @pytest.mark.parametrize(
        "params",
        [{}, {"loss": "huber"}, {"loss": "absolute"}, {"model": "kernel", "n_centers": 4}],
        ids=lambda p: "-".join(map(str, p.values())),
    )
    def test_the_fit_is_certified_and_the_worst_density_has_its_value(self, params):
        X, y = regression()
        est = ksos.RobustRegressor(radius=0.2, n_support=25, **params).fit(X, y)
        solution, worst = est.solution_, est.worst_case_
        assert solution.status == "solved"
        assert solution.gap_relative <= 2e-4
        assert worst.mmd <= 0.2
        assert ksos.mmd(
            worst.distribution, np.column_stack([X, y]), worst.embedding_kernel
        ) == pytest.approx(worst.mmd, abs=1e-9)
        assert worst.value <= solution.value
        assert worst.value > worst.empirical_value
        expected = worst.distribution.expectation(lambda Z: worst.loss(Z))
        assert worst.value == pytest.approx(getattr(expected, "value", expected), rel=5e-3)

    def test_a_path_is_the_fits_one_by_one(self):
        X, y = regression()
        est = ksos.RobustRegressor(n_support=36)
        radii = [0.0, 0.15, 0.3]
        fitted = est.path(X, y, radii)
        values = [one.solution_.value for one in fitted]
        assert values == sorted(values)
        alone = clone(est).set_params(radius=0.3).fit(X, y)
        assert alone.solution_.value == pytest.approx(values[-1], rel=3e-4)
        assert [one.radius_ for one in fitted] == radii

    def test_a_path_with_an_empty_ball_says_so_before_any_fit(self):
        X, y = regression()
        est = ksos.RobustRegressor(n_support=16)
        with pytest.raises(
            ValueError,
            match=(
                r"within radius 0\.001, 0\.01 of the data, so that nothing was fitted; the least"
                r" radius .* is 0\.\d+"
            ),
        ):
            est.path(X, y, [0.4, 0.001, 0.0, 0.01])
        assert not hasattr(est, "solution_")
        for radii in (0.3, []):
            with pytest.raises(TypeError, match="radii must be a sequence"):
                est.path(X, y, radii)
        with pytest.raises(ValueError, match="non-negative"):
            est.path(X, y, [0.4, -1.0])
        with pytest.raises(ValueError, match="time_limit"):
            ksos.RobustRegressor(time_limit=-1.0).fit(X, y)

    def test_scales_and_shifts_change_nothing_but_units(self):
        X, y = regression()
        one = ksos.RobustRegressor(radius=0.2, n_support=25).fit(X, y)
        other = ksos.RobustRegressor(radius=0.2, n_support=25).fit(1e3 * X + 7.0, 1e-2 * y - 3.0)
        assert other.predict(1e3 * X + 7.0) == pytest.approx(1e-2 * one.predict(X) - 3.0, abs=1e-5)

    def test_the_worst_density_survives_pickling(self):
        X, y = regression()
        est = ksos.RobustRegressor(radius=0.2, n_support=25, model="kernel", n_centers=3).fit(X, y)
        again = pickle.loads(pickle.dumps(est))
        assert again.worst_case_.distribution.pdf([[0.0, 5.0]]) == pytest.approx(
            est.worst_case_.distribution.pdf([[0.0, 5.0]])
        )

    def test_many_features(self):
        rng = np.random.default_rng(0)
        X = rng.normal(size=(40, 6))
        est = ksos.RobustRegressor(n_support=20).fit(X, X[:, 0])
        assert est.solution_.status == "solved"
        assert est.worst_case_.mmd <= est.radius_
        assert est.score(X, X[:, 0]) > 0.8

    @pytest.mark.parametrize(
        ("params", "error", "message"),
        [
            ({"radius": 1e-4}, ValueError, "least radius"),
            ({"radius": -1.0}, ValueError, "radius"),
            ({"radius": "some"}, ValueError, "bootstrap"),
            ({"alpha": -1.0}, ValueError, "alpha"),
            ({"loss": "cubic"}, ValueError, "loss"),
            ({"model": "tree"}, ValueError, "model"),
            ({"tol": 0.0}, ValueError, "tol"),
            ({"rtol": 0.0}, ValueError, "rtol"),
            ({"measure": Normal(0.0, 1.0)}, TypeError, "Box"),
            ({"measure": Box([0.0], [1.0])}, ValueError, "feature"),
        ],
    )
    def test_bad_parameters(self, params, error, message):
        with pytest.raises(error, match=message):
            ksos.RobustRegressor(n_support=16, **{"radius": 0.2, **params}).fit(*regression())

    def test_quadrature_needs_few_features(self):
        with pytest.raises(ValueError, match="square"):
            ksos.RobustRegressor(radius=0.2, loss="huber").fit(
                np.random.default_rng(0).normal(size=(20, 4)), np.arange(20.0)
            )

    def test_losses_are_objects_with_names(self):
        X, y = regression()
        named, default, other = (
            ksos.RobustRegressor(radius=0.2, n_support=9, rtol=1e-2, loss=loss).fit(X, y)
            for loss in ("huber", HuberLoss(), HuberLoss(delta=0.2))
        )
        assert named.theta_.tolist() == default.theta_.tolist() != other.theta_.tolist()
        assert clone(default).loss == HuberLoss()
        with pytest.raises(ValueError, match="delta must be positive"):
            HuberLoss(delta=0.0)
        with pytest.raises(ValueError, match="loss must be one of 'square', 'huber', 'absolute'"):
            ksos.RobustRegressor(radius=0.2, loss="logistic").fit(X, y)

    def test_a_loss_of_ones_own(self):
        """The square, written as a residual loss: what the closed form gives, by quadrature."""
        X, y = regression()
        ours, closed = (
            ksos.RobustRegressor(radius=0.2, n_support=25, loss=loss).fit(X, y)
            for loss in (OwnSquare(), "square")
        )
        assert ours.solution_.status == "solved"
        assert ours.solution_.value == pytest.approx(closed.solution_.value, rel=1e-3)
        assert ours.predict(X) == pytest.approx(closed.predict(X), abs=1e-2)

    @pytest.mark.parametrize("seconds", [1e-3, 0.1])
    def test_a_time_limit_is_for_the_whole_fit(self, seconds):
        X, y = regression()
        for est in (
            ksos.RobustRegressor(radius=0.2, rtol=1e-12),
            ksos.RobustRegressor(radius=0.2, rtol=1e-12, loss="absolute"),
        ):
            with warnings.catch_warnings():
                warnings.simplefilter("ignore", ConvergenceWarning)
                est.set_params(time_limit=seconds).fit(X, y)
            assert est.solution_.status in ("time_limit", "solved_inaccurate", "solved")
            assert est.solution_.time <= seconds + 3.0
            assert np.all(np.isfinite(est.predict(X)))


class OwnSquare(ResidualLoss):
    def __call__(self, r):
        return r**2

    def derivatives(self, r):
        return r**2, 2.0 * r, np.full_like(r, 2.0)


class TestClassifier:
    @pytest.mark.parametrize(
        "params",
        [{}, {"loss": "logistic"}, {"model": "kernel", "n_centers": 3}],
        ids=lambda p: "-".join(map(str, p.values())),
    )
    def test_the_fit_is_certified(self, params):
        X, y = classes()
        est = ksos.RobustClassifier(radius=0.15, n_support=16, **params).fit(X, y)
        assert est.solution_.status == "solved"
        assert est.solution_.gap_relative <= 2e-4
        assert est.score(X, y) > 0.9
        worst = est.worst_case_
        assert isinstance(worst.distribution, LabeledDensity)
        assert worst.mmd <= 0.15
        assert worst.empirical_value < worst.value <= est.solution_.value

    def test_radius_zero_is_least_squares_on_signs(self):
        X, y = classes()
        est = ksos.RobustClassifier(radius=0.0, alpha=0.1).fit(X, y)
        other = Ridge(alpha=0.1 * X.shape[0]).fit(
            (X - X.mean(axis=0)) / X.std(axis=0), np.where(y == "yes", 1.0, -1.0)
        )
        assert est.decision_function(X) == pytest.approx(
            other.predict((X - X.mean(axis=0)) / X.std(axis=0))
        )
        assert est.worst_case_ is None

    def test_the_value_is_the_expectation_of_the_loss(self):
        X, y = classes()
        est = ksos.RobustClassifier(radius=0.15, n_support=16).fit(X, y)
        worst, grid = est.worst_case_, np.linspace(-4.0, 4.0, 4001)[:, None]
        total = mass = 0.0
        for label, sign in (("no", -1.0), ("yes", 1.0)):
            p = worst.distribution.pdf(grid, label) * (grid[1, 0] - grid[0, 0])
            mass += p.sum()
            total += p @ (est.decision_function(grid) - sign) ** 2
        assert mass == pytest.approx(1.0, abs=5e-3)
        assert total == pytest.approx(worst.value, rel=1e-2)

    def test_the_exact_distance_counts_each_label_alone(self):
        """MMD for k(x,x')·1[y=y'] as that of points with labels far apart, the density by its
        samples.
        """
        X, y = classes()
        est = ksos.RobustClassifier(radius=0.15, n_support=16).fit(X, y)
        worst = est.worst_case_
        Z, labels = worst.distribution.rvs(4000, rng=0)
        sigma = worst.embedding_kernel.sigma_vector(1)[0]
        joint = Gaussian([sigma, 1.0])
        data, drawn = (
            np.column_stack([P, np.where(q == "yes", 100.0, 0.0)]) for P, q in ((X, y), (Z, labels))
        )
        assert ksos.mmd(data, drawn, joint) == pytest.approx(worst.mmd, abs=0.03)

    def test_three_labels_of_any_kind(self):
        rng = np.random.default_rng(0)
        X = np.concatenate([rng.normal(c, 0.2, (8, 1)) for c in (-1.0, 0.0, 1.0)])
        for loss in ("square", "logistic"):
            est = ksos.RobustClassifier(
                radius=0.12, n_support=14, loss=loss, model="kernel", n_centers=4, rtol=1e-3
            ).fit(X, np.repeat([7, -2, 30], 8))
            assert est.classes_.tolist() == [-2, 7, 30]
            assert est.score(X, np.repeat([7, -2, 30], 8)) > 0.9
            assert est.decision_function(X).shape == (24, 3)

    def test_one_class_is_an_error(self):
        with pytest.raises(ValueError, match="class"):
            ksos.RobustClassifier().fit([[0.0], [1.0]], [1, 1])

    def test_an_empty_ball_names_the_least_radius(self):
        with pytest.raises(ValueError, match="least radius"):
            ksos.RobustClassifier(radius=1e-4, n_support=8).fit(*classes())

    def test_unknown_label(self):
        est = ksos.RobustClassifier(radius=0.2, n_support=10, rtol=1e-2).fit(*classes())
        with pytest.raises(ValueError, match="labels are"):
            est.worst_case_.distribution.given("maybe")

    def test_it_survives_pickling(self):
        est = ksos.RobustClassifier(radius=0.2, n_support=10, rtol=1e-2).fit(*classes())
        assert pickle.loads(pickle.dumps(est)).predict([[1.0]]).tolist() == ["yes"]

    def test_probabilities_come_with_the_logistic_loss(self):
        X, y = classes()
        est = ksos.RobustClassifier(radius=0.15, n_support=10, rtol=1e-3, loss="logistic").fit(X, y)
        proba = est.predict_proba(X)
        assert proba.shape == (24, 2) and np.allclose(proba.sum(axis=1), 1.0)
        assert proba[:, 1] == pytest.approx(1.0 / (1.0 + np.exp(-est.decision_function(X))))
        assert est.classes_[np.argmax(proba, axis=1)].tolist() == est.predict(X).tolist()
        rows = np.searchsorted(est.classes_, y)
        data = np.column_stack([X, rows])
        assert -np.log(proba[np.arange(24), rows]) == pytest.approx(est.worst_case_.loss(data))
        square = ksos.RobustClassifier(radius=0.15, n_support=10, rtol=1e-2).fit(X, y)
        assert not hasattr(square, "predict_proba")
        with pytest.raises(AttributeError, match="predict_proba"):
            square.predict_proba(X)

    def test_three_labels_have_probabilities_too(self):
        rng = np.random.default_rng(0)
        X, y = (
            np.concatenate([rng.normal(c, 0.2, (8, 1)) for c in (-1.0, 0.0, 1.0)]),
            np.repeat([7, -2, 30], 8),
        )
        est = ksos.RobustClassifier(radius=0.12, n_support=14, loss="logistic", rtol=1e-3).fit(X, y)
        proba = est.predict_proba(X)
        assert proba.shape == (24, 3) and np.allclose(proba.sum(axis=1), 1.0)
        assert est.classes_[np.argmax(proba, axis=1)].tolist() == est.predict(X).tolist()

    @pytest.mark.parametrize("loss", ["square", "logistic"])
    @pytest.mark.parametrize("labels", [2, 3])
    def test_linear_scores_have_coefficients(self, loss, labels):
        rng = np.random.default_rng(0)
        X, y = (
            np.concatenate([rng.normal(c, 1.0, (8, 2)) for c in range(labels)]),
            np.repeat(np.arange(labels), 8),
        )
        est = ksos.RobustClassifier(radius=0.0, loss=loss, shift="both").fit(X, y)
        rows = labels if labels > 2 else 1
        assert est.coef_.shape == (rows, 2) and est.intercept_.shape == (rows,)
        scores = X @ est.coef_.T + est.intercept_
        assert est.decision_function(X) == pytest.approx(scores if labels > 2 else scores[:, 0])
        kernel = ksos.RobustClassifier(radius=0.0, loss=loss, model="kernel", n_centers=3).fit(X, y)
        assert not hasattr(kernel, "coef_") and kernel.centers_.shape == (3, 2)

    def test_the_worst_distribution_has_the_methods_of_one(self):
        X, y = classes()
        est = ksos.RobustClassifier(radius=0.15, n_support=16).fit(X, y)
        p = est.worst_case_.distribution
        assert p.mmd(
            LabeledEmbedding.of(X, y, kernel=est.worst_case_.embedding_kernel)
        ) == pytest.approx(est.worst_case_.mmd, abs=1e-9)
        assert p.marginal().probability(-10.0, 10.0) == pytest.approx(1.0, abs=1e-6)
        np.testing.assert_allclose(p.marginal().pdf(X), p.pdf(X, "no") + p.pdf(X, "yes"), rtol=1e-7)


class TestKinks:
    def test_a_quantile_is_that_of_linear_programming(self):
        rng = np.random.default_rng(0)
        X = rng.normal(size=(80, 2))
        y = X[:, 0] + np.exp(0.4 * X[:, 1]) * rng.normal(size=80)
        loss = QuantileLoss(level=0.9)
        est = ksos.RobustRegressor(radius=0.0, shift="both", loss=loss, alpha=1e-9).fit(X, y)
        other = QuantileRegressor(quantile=0.9, alpha=0.0).fit(X, y)
        assert est.coef_ == pytest.approx(other.coef_, abs=1e-3)
        errors = y - est.predict(X)
        assert est.solution_.status == "solved"
        assert est.solution_.value == pytest.approx(
            np.maximum(0.9 * errors, -0.1 * errors).mean(), rel=1e-6
        )

    def test_robust_quantiles_and_hinges_are_certified(self):
        rng = np.random.default_rng(1)
        X = rng.normal(size=(60, 2))
        y = X[:, 0] + 0.5 * rng.normal(size=60)
        fits = [
            ksos.RobustRegressor(radius=0.1, shift="x", loss=QuantileLoss(level=0.8)).fit(X, y),
            ksos.RobustClassifier(radius=0.1, shift="both", loss="hinge").fit(X, y > 0.0),
        ]
        for est in fits:
            worst = est.worst_case_
            assert est.solution_.status == "solved" and worst.mmd <= 0.1
            assert worst.empirical_value < worst.value <= worst.upper_bound <= 1.01 * worst.value
        margins = np.where(y > 0.0, 1.0, -1.0) * fits[1].decision_function(X)
        hinge = np.maximum(0.0, 1.0 - margins).mean()
        assert fits[1].worst_case_.empirical_value == pytest.approx(hinge, rel=1e-6)

    def test_rounding_does_not_decide_whether_a_quantile_is_certified(self):
        """The worst weights leave some residuals near the kink without mass: which, is rounding."""
        rng = np.random.default_rng(1)
        X = rng.normal(size=(60, 2))
        y = X[:, 0] + 0.5 * rng.normal(size=60)
        for seed in (1, 3, 4, 11):
            rng = np.random.default_rng(seed)
            order, noise = rng.permutation(60), 1.0 + 1e-14 * rng.normal(size=(60, 2))
            est = ksos.RobustRegressor(radius=0.1, shift="x", loss=QuantileLoss(level=0.8))
            solution = est.fit((X * noise)[order], y[order]).solution_
            assert solution.status == "solved" and solution.gap < 1e-4 * solution.value

    def test_hinges_are_for_two_labels_and_levels_for_shares(self):
        X = np.random.default_rng(0).normal(size=(12, 2))
        with pytest.raises(ValueError, match="loss='hinge' is for two labels; got 3"):
            ksos.RobustClassifier(radius=0.1, loss="hinge").fit(X, np.arange(12) % 3)
        with pytest.raises(ValueError, match="level must lie between 0 and 1"):
            QuantileLoss(level=1.5)
