"""KernelSoSDensityCV: the choices it makes, the work it shares, the density it returns, and its manners."""

from __future__ import annotations

import pickle
import warnings
from typing import Any

import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from sklearn.base import clone
from sklearn.datasets import make_blobs, make_circles, make_moons
from sklearn.exceptions import SkipTestWarning
from sklearn.model_selection import GridSearchCV, KFold, ShuffleSplit
from sklearn.neighbors import KernelDensity
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import StandardScaler
from sklearn.utils.estimator_checks import check_estimator, parametrize_with_checks
from strategies import clouds

import ksos
from ksos import KernelSoSDensity, KernelSoSDensityCV, SoSDensity, SoSSpace
from ksos._deadline import Deadline
from ksos.bandwidth import bandwidth_rule
from ksos.density.mixture import SoSMixture
from ksos.embedding import Projection
from ksos.estimators import cross_validation
from ksos.estimators._held_out import fit_path, projected_embedding
from ksos.kernels import Gaussian, Kernel, Laplace, Matern
from ksos.measures import Box

MOONS = make_moons(120, noise=0.1, random_state=0)[0]
FRESH = make_moons(2000, noise=0.1, random_state=1)[0]
SMALL: dict[str, Any] = {"bandwidths": [0.4, 0.8], "relative_regularizations": [1.0, 0.1, 0.01], "cv": 3}


@pytest.fixture(scope="module")
def plain() -> KernelSoSDensityCV:
    """No arguments."""
    return KernelSoSDensityCV().fit(MOONS)


@pytest.fixture(scope="module")
def small() -> KernelSoSDensityCV:
    return KernelSoSDensityCV(**SMALL).fit(MOONS)


@parametrize_with_checks(
    [
        KernelSoSDensityCV(**SMALL),
        KernelSoSDensityCV(**{**SMALL, "cv": 2}, objective="squared_mmd", criterion="mmd", n_support=8, tol=1e-4),
    ]
)
def test_scikit_learn_checks(estimator: Any, check: Any) -> None:
    check(estimator)


def test_scikit_learn_checks_of_the_default() -> None:
    """Those samples of fifteen rows and thirty features get a warning, which is not what is checked."""
    with warnings.catch_warnings():
        warnings.filterwarnings("ignore", "the samples leave", UserWarning)
        warnings.simplefilter("ignore", SkipTestWarning)
        results = check_estimator(KernelSoSDensityCV(reference="normal", cv=2), on_fail=None)
    assert [(result["check_name"], result["exception"]) for result in results if result["status"] == "failed"] == []


# --- what it finds ---


def kernel_density_score(train: np.ndarray, test: np.ndarray) -> float:
    """The rival: standardised features, the bandwidth by five folds."""
    scale = train.std(axis=0)
    search = GridSearchCV(KernelDensity(), {"bandwidth": np.geomspace(0.02, 2.0, 30)}, cv=KFold(5, shuffle=True, random_state=0))
    return float(search.fit(train / scale).score(test / scale) / len(test) - np.log(scale).sum())


def test_no_arguments_are_ahead_of_the_kernel_density_estimate(plain: KernelSoSDensityCV) -> None:
    assert plain.score(FRESH) > kernel_density_score(MOONS, FRESH) - 0.05
    leads = []
    for seed in range(2):
        train, test = (make_circles(n, noise=0.07, factor=0.4, random_state=seed + n)[0] for n in (100, 2000))
        leads.append(KernelSoSDensityCV().fit(train).score(test) - kernel_density_score(train, test))
    assert np.mean(leads) > 0.02 and np.min(leads) > 0.0
    assert abs(plain.best_score_ - plain.score(FRESH)) < 0.15
    assert sum(weight * part.mass() for weight, part in plain.distribution_.components) == pytest.approx(1.0, abs=1e-7)
    assert isinstance(plain.distribution_, SoSMixture)


def test_a_bimodal_line_is_close_to_the_truth() -> None:
    """A reduced form of benchmarks/bimodal.py: ½N(−1, 0.3²) + ½N(1, 0.3²), 80 samples."""
    losses = []
    for seed in range(6):
        rng = np.random.default_rng(seed)
        train, test = (rng.choice([-1.0, 1.0], n)[:, None] + 0.3 * rng.standard_normal((n, 1)) for n in (80, 2000))
        truth = np.mean(np.log(sum(np.exp(-0.5 * ((test - m) / 0.3) ** 2) for m in (-1, 1)) / (2 * 0.3 * np.sqrt(2 * np.pi))))
        losses.append(truth - KernelSoSDensityCV().fit(train).score(test))
    assert np.mean(losses) <= 0.06  # 0.045 over a hundred seeds


def test_the_stack_is_the_mixture_it_says(small: KernelSoSDensityCV) -> None:
    shares = dict(small.weights_)
    assert sum(shares.values()) == pytest.approx(1.0) and set(shares) <= {1.0, 0.1, 0.01, "kernel_density"}
    points = np.unique(MOONS, axis=0)
    bumps = SoSDensity(Gaussian(small.bandwidth_), points, np.eye(len(points)), normalize=True)
    expected = shares.pop("kernel_density") * bumps.pdf(FRESH)
    for regularization, share in shares.items():
        fit = KernelSoSDensity(
            kernel=Gaussian(small.bandwidth_),
            relative_regularization=regularization,
            support=points,
            objective="likelihood",
            tol=1e-6,
        ).fit(MOONS)
        expected += share * fit.distribution_.pdf(FRESH)
    # but for the best one, the parts are fitted to the accuracy of the search
    assert np.mean(np.abs(np.log(small.distribution_.pdf(FRESH)) - np.log(expected))) < 0.02


def test_best_is_the_refitted_pair() -> None:
    est = KernelSoSDensityCV(**SMALL, combine="best").fit(MOONS)
    i, j = np.unravel_index(np.argmax(est.scores_), est.scores_.shape)
    assert est.relative_regularization_ == est.relative_regularizations_[j] and est.weights_ == {est.relative_regularization_: 1.0}
    rule = bandwidth_rule("silverman", MOONS, np.full(120, 1 / 120), np.random.default_rng(0))
    np.testing.assert_allclose(est.bandwidth_, est.bandwidth_multiples_[i] * rule)
    assert est.distribution_ is est.best_estimator_.distribution_
    assert est.best_estimator_.solution_.status == "solved" and est.best_estimator_.solution_.gap <= 1e-4
    w0 = np.prod(np.sqrt(np.pi * est.bandwidth_**2 / 2))
    assert est.regularization_ == pytest.approx(est.relative_regularization_ * w0)


def test_scores_are_those_of_separate_fits() -> None:
    est = KernelSoSDensityCV([0.8], [1.0, 0.1], cv=3, combine="best").fit(MOONS)
    points = np.unique(MOONS, axis=0)
    parts = np.array_split(ksos.estimators._samples.as_generator(0).permutation(len(points)), 3)
    for j, regularization in enumerate([1.0, 0.1]):
        scores = []
        for part in parts:
            train = np.delete(points, part, axis=0)
            fit = KernelSoSDensity(
                kernel=Gaussian(est.bandwidth_),
                relative_regularization=regularization,
                support=train,
                objective="likelihood",
            )
            scores.append(fit.fit(train).score(points[part]))
        np.testing.assert_allclose([est.cv_results_[f"split{k}_test_score"][j] for k in range(3)], scores, atol=0.02)
        assert est.scores_[0, j] == pytest.approx(np.mean(scores), abs=0.01)


def test_results_are_a_table(small: KernelSoSDensityCV) -> None:
    results = small.cv_results_
    assert {len(np.asarray(column)) for column in results.values()} == {6}
    np.testing.assert_array_equal(results["mean_test_score"].reshape(2, 3), small.scores_)
    splits = np.stack([results[f"split{k}_test_score"] for k in range(3)])
    np.testing.assert_allclose(results["mean_test_score"], splits.mean(axis=0), rtol=1e-12)
    np.testing.assert_allclose(results["std_test_score"], splits.std(axis=0), rtol=1e-9)
    assert sorted(results["rank_test_score"]) == [1, 2, 3, 4, 5, 6]
    assert results["rank_test_score"][np.argmax(results["mean_test_score"])] == 1
    assert small.n_splits_ == 3 and np.all(np.isfinite(small.scores_))


def test_grids_grow_until_the_winner_is_inside() -> None:
    est = KernelSoSDensityCV([1.6, 2.0], [1e-5, 1e-6], cv=3, extend=True, combine="best").fit(MOONS)
    assert est.bandwidth_multiples_.min() < 1.6 and len(est.bandwidth_multiples_) <= 10
    assert est.relative_regularizations_.max() > 1e-5
    assert np.all(np.diff(est.bandwidth_multiples_) > 0) and np.all(np.diff(est.relative_regularizations_) < 0)
    fixed = KernelSoSDensityCV([1.6, 2.0], [1e-5, 1e-6], cv=3, combine="best").fit(MOONS)
    assert fixed.scores_.shape == (2, 2), "a grid that is given is kept"
    assert est.best_score_ > fixed.best_score_
    same = np.isin(est.bandwidth_multiples_, [1.6, 2.0])
    np.testing.assert_allclose(est.scores_[same][:, np.isin(est.relative_regularizations_, [1e-5, 1e-6])], fixed.scores_, atol=0.05)


def test_automatic_grids_are_multiples_of_the_kernel_density_bandwidth() -> None:
    plain = KernelSoSDensityCV(reference=None).fit(MOONS)
    assert type(plain.distribution_) is SoSDensity
    ratios = plain.bandwidth_multiples_ / plain.bandwidth_multiples_[0]
    np.testing.assert_allclose(ratios[:5], [1.0, 1.25, 1.6, 2.0, 2.5])
    rule = bandwidth_rule("silverman", MOONS, np.full(120, 1 / 120), np.random.default_rng(0))

    def held_out(multiple: float) -> float:
        scores = []
        for train, test in KFold(5, shuffle=True, random_state=0).split(MOONS):
            model = KernelDensity(bandwidth=1.0).fit(MOONS[train] / (0.5 * multiple * rule))
            scores.append(model.score(MOONS[test] / (0.5 * multiple * rule)) / len(test) - np.log(0.5 * multiple * rule).sum())
        return float(np.mean(scores))

    best = max(held_out(multiple) for multiple in np.geomspace(0.1, 2, 30))
    assert held_out(plain.bandwidth_multiples_[0]) > best - 0.02


# --- objectives and criteria ---


@pytest.mark.parametrize("objective", ["likelihood", "squared_mmd"])
@pytest.mark.parametrize("criterion", ["log_likelihood", "l2", "mmd"])
def test_objectives_and_criteria(objective: str, criterion: str) -> None:
    est = KernelSoSDensityCV([0.4, 0.9, 4.0], [0.1, 1e-3], cv=3, objective=objective, criterion=criterion, combine="best", tol=1e-4).fit(
        MOONS
    )
    assert np.all(np.isfinite(est.scores_)) and np.ptp(est.scores_) > 0.0
    assert est.bandwidth_multiples_[np.argmax(est.scores_.max(axis=1))] < 4.0, "moons are narrower than that"
    assert est.score(FRESH) > -1.8


def test_the_l2_criterion_is_the_integral() -> None:
    X = np.linspace(-1, 1, 30)[:, None] ** 3
    est = KernelSoSDensityCV([1.0], [0.1], cv=[(np.arange(0, 30, 2), np.arange(1, 30, 2))], criterion="l2", combine="best").fit(X)
    points = np.unique(X, axis=0)
    p = KernelSoSDensity(
        kernel=Gaussian(est.bandwidth_), relative_regularization=0.1, support=points[::2], objective="likelihood", tol=1e-9
    )
    p = p.fit(points[::2]).distribution_
    grid = np.linspace(-6, 6, 20001)[:, None]
    expected = 2.0 * p.pdf(points[1::2]).mean() - np.trapezoid(p.pdf(grid) ** 2, grid[:, 0])
    unit = np.sqrt(np.pi * est.bandwidth_[0] ** 2 / 2)
    assert est.scores_[0, 0] == pytest.approx(expected * unit, rel=1e-2)


@pytest.mark.parametrize("kernel", [Gaussian(0.4), Matern(1.5, 0.4, product=True)], ids=str)
def test_held_out_mmds_on_a_box_share_their_integrals(kernel: Kernel) -> None:
    X = np.random.default_rng(5).beta(1.0, 3.0, size=(40, 1))
    space, projection = SoSSpace(kernel, X, Box([0.0], [np.inf])), Projection(kernel.with_sigma(0.7), X[::2])
    (F,) = fit_path("likelihood", space, X, np.full(40, 1 / 40), [0.1], Deadline())
    shared, separate = (projected_embedding(space, projection, most_tensor=most)(F) for most in (np.inf, 0.0))
    np.testing.assert_allclose(shared, separate, atol=1e-9)
    np.testing.assert_allclose(shared, projection.coordinates(space.density(F)), atol=1e-9)


def test_the_l2_criterion_in_many_features() -> None:
    rng = np.random.default_rng(0)
    X, sigma = np.unique(rng.normal(size=(50, 5)), axis=0), np.array([1.4, 1.5, 1.3, 1.6, 1.2])
    folds = [(np.arange(0, 50, 2), np.arange(1, 50, 2))]
    est = KernelSoSDensityCV([0.6, 1.0, 3.0], [0.1, 0.01], cv=folds, objective="squared_mmd", criterion="l2", tol=1e-5).fit(X)
    assert est.bandwidth_multiple_ < 3.0
    sigma = est.cv_results_["bandwidth"].reshape(3, 2, 5)[1, 0]
    p = KernelSoSDensity(kernel=Gaussian(sigma), relative_regularization=0.1, support=X[::2], tol=1e-8)
    p = p.fit(X[::2]).distribution_
    samples = p.rvs(200_000, rng=rng)
    values = p.pdf(samples)
    unit = np.prod(np.sqrt(np.pi / 2) * est.cv_results_["bandwidth"][2] / est.bandwidth_multiples_[1])  # of the rule's bandwidth
    expected, error = 2.0 * p.pdf(X[1::2]).mean() - values.mean(), 5.0 * values.std() / 200_000**0.5
    assert abs(est.scores_[1, 0] / unit - expected) < error + 1e-3 * abs(expected)


def test_l2_in_many_features_names_the_way_out() -> None:
    X = np.random.default_rng(0).normal(size=(30, 5))
    with pytest.raises(ksos.IntegralNotAvailableError, match=r"discrete measure.*; or choose by criterion='log_likelihood' or 'mmd'"):
        KernelSoSDensityCV(**SMALL, criterion="l2", kernel="laplace").fit(X)


@pytest.mark.parametrize("kernel", ["laplace", Laplace(3.0, product=True), "matern"])
def test_other_kernels(kernel: Any) -> None:
    est = KernelSoSDensityCV(**SMALL, kernel=kernel, n_support=40, tol=1e-4).fit(MOONS)
    assert est.distribution_.kernel.product and est.score(FRESH) > -1.6
    assert est.distribution_.mass() == pytest.approx(1.0, abs=1e-7)


def test_a_box_holds_all_the_mass() -> None:
    X = np.random.default_rng(0).beta(1, 3, size=(100, 1))
    est = KernelSoSDensityCV(cv=3, measure=Box([0.0], [1.0])).fit(X)
    assert est.score_samples([[1.5]])[0] == -np.inf
    assert est.distribution_.mass() == pytest.approx(1.0, abs=1e-7)
    grid = np.linspace(0, 1, 2001)
    assert np.trapezoid((est.distribution_.pdf(grid[:, None]) - 3 * (1 - grid) ** 2) ** 2, grid) < 0.1


# --- invariances ---


def test_order_weights_and_duplicates(small: KernelSoSDensityCV) -> None:
    rng = np.random.default_rng(0)
    expected = small.score_samples(FRESH[:100])
    shuffled = KernelSoSDensityCV(**SMALL).fit(MOONS[rng.permutation(120)])
    np.testing.assert_array_equal(shuffled.score_samples(FRESH[:100]), expected)
    zero = KernelSoSDensityCV(**SMALL).fit(np.r_[MOONS, [[50.0, 50.0]]], sample_weight=np.r_[np.ones(120), 0.0])
    np.testing.assert_array_equal(zero.score_samples(FRESH[:100]), expected)
    counts = rng.integers(1, 4, 120)
    repeated, weighted = KernelSoSDensityCV(**SMALL).fit(np.repeat(MOONS, counts, axis=0)), KernelSoSDensityCV(**SMALL)
    weighted.fit(MOONS, sample_weight=counts)
    np.testing.assert_allclose(weighted.score_samples(FRESH[:100]), repeated.score_samples(FRESH[:100]), atol=1e-7)
    assert not np.allclose(weighted.score_samples(FRESH[:100]), expected, atol=1e-3)


def test_scale_and_shift(small: KernelSoSDensityCV) -> None:
    expected = small.score_samples(FRESH[:100])
    scales = np.array([1e6, 1e-3])
    scaled = KernelSoSDensityCV(**SMALL).fit(MOONS * scales)
    np.testing.assert_allclose(scaled.score_samples(FRESH[:100] * scales) + np.log(scales).sum(), expected, atol=1e-3)
    for scale in (1e-150, 1e150):
        extreme = KernelSoSDensityCV(**SMALL).fit(MOONS * scale)
        np.testing.assert_allclose(extreme.score_samples(FRESH[:100] * scale) + 2 * np.log(scale), expected, atol=1e-2)
    far = MOONS + 1e8
    there, here = (KernelSoSDensityCV(**SMALL).fit(X) for X in (far, far - 1e8))
    np.testing.assert_allclose(there.score_samples(far), here.score_samples(far - 1e8), atol=1e-3)


def test_jobs_and_random_state(small: KernelSoSDensityCV) -> None:
    parallel = KernelSoSDensityCV(**SMALL, n_jobs=2).fit(MOONS)
    np.testing.assert_allclose(parallel.scores_, small.scores_, rtol=1e-9)
    other = KernelSoSDensityCV(**SMALL, random_state=1).fit(MOONS)
    assert not np.array_equal(other.scores_, small.scores_)


def test_splitters_and_explicit_folds(small: KernelSoSDensityCV) -> None:
    grid = {"bandwidths": [0.5], "relative_regularizations": [0.1]}
    points = np.unique(MOONS, axis=0)
    splitter = KFold(4, shuffle=True, random_state=3)
    by_splitter = KernelSoSDensityCV(**grid, cv=splitter).fit(MOONS)
    by_list = KernelSoSDensityCV(**grid, cv=list(splitter.split(points))).fit(MOONS)
    np.testing.assert_array_equal(by_splitter.scores_, by_list.scores_)
    assert by_splitter.n_splits_ == 4
    masks = [(np.isin(np.arange(120), train), np.isin(np.arange(120), test)) for train, test in splitter.split(points)]
    np.testing.assert_array_equal(KernelSoSDensityCV(**grid, cv=masks).fit(MOONS).scores_, by_list.scores_)
    repeated = KernelSoSDensityCV(**grid, cv=ShuffleSplit(3, test_size=0.3, random_state=0)).fit(MOONS)
    assert np.isfinite(repeated.best_score_)


def test_pickle_clone_pipeline(small: KernelSoSDensityCV, capsys: pytest.CaptureFixture[str]) -> None:
    again = pickle.loads(pickle.dumps(small))
    np.testing.assert_array_equal(again.score_samples(FRESH[:20]), small.score_samples(FRESH[:20]))
    assert clone(small).get_params() == small.get_params()
    pipeline = make_pipeline(StandardScaler(), KernelSoSDensityCV(**SMALL, verbose=1)).fit(MOONS)
    assert np.isfinite(pipeline.score(MOONS))
    printed = capsys.readouterr().out.splitlines()
    assert len(printed) == 2 and printed[0].startswith("[cv] bandwidth 0.4 × silverman, 3 λ, 3 folds: best λ ")


def test_progress_is_printed_as_bandwidths_finish(capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch) -> None:
    printed: list[str] = []
    evaluate = cross_validation.scores_of_bandwidth

    def watched(*arguments: Any) -> Any:
        printed.append(capsys.readouterr().out)
        return evaluate(*arguments)

    monkeypatch.setattr(cross_validation, "scores_of_bandwidth", watched)
    KernelSoSDensityCV(**SMALL, verbose=1).fit(MOONS)
    assert printed[0] == "" and printed[1].startswith("[cv] bandwidth 0.4 × silverman"), "the first is known before the second begins"


def test_what_is_printed_are_the_scores_of_the_table(capsys: pytest.CaptureFixture[str]) -> None:
    est = KernelSoSDensityCV(**{**SMALL, "cv": 7}, verbose=1).fit(MOONS * [10.0, 1.0])  # 120 samples: folds of 17 and 18
    printed = [float(line.rsplit(" ", 1)[1]) for line in capsys.readouterr().out.splitlines()]
    np.testing.assert_allclose(printed, est.scores_.max(axis=1), atol=6e-5)


# --- hard data ---


def test_bandwidths_so_narrow_that_nothing_is_seen() -> None:
    est = KernelSoSDensityCV(bandwidths=[1e-6, 0.5], relative_regularizations=[0.1], cv=3, objective="squared_mmd").fit(MOONS)
    assert est.bandwidth_multiple_ == 0.5 and np.all(est.scores_[0] < -1e6), "the others may be as bad as they like"
    folds = np.array([est.cv_results_[f"split{k}_test_score"] for k in range(3)])
    assert np.all(np.isfinite(est.cv_results_["std_test_score"]))
    assert est.cv_results_["std_test_score"][1] == pytest.approx(folds[:, 1].std(), rel=1e-12)


@settings(max_examples=15, deadline=None, suppress_health_check=[HealthCheck.too_slow])
@given(X=clouds(3, 8))
def test_small_clouds_give_a_density_or_a_word(X: np.ndarray) -> None:
    est = KernelSoSDensityCV([0.5, 1.0], [1.0, 0.1], cv=2, tol=1e-4)
    if len(np.unique(X, axis=0)) < 2:
        with pytest.raises(ValueError, match="2 folds need at least 2 distinct samples"):
            est.fit(X)
        return
    if any(np.ptp(X[:, k]) > 0.0 and np.array_equal(X[:, j], X[:, k]) for k in range(X.shape[1]) for j in range(k)):
        with pytest.raises(ValueError, match="are identical in all"):
            est.fit(X)
        return
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", UserWarning)  # features without spread
        est.fit(X)
    assert est.distribution_.mass() == pytest.approx(1.0, abs=1e-7)
    assert np.all(np.isfinite(est.score_samples(X)))


def test_far_samples_keep_a_density() -> None:
    X = np.r_[MOONS, [[30.0, 30.0]]]
    est = KernelSoSDensityCV(**SMALL).fit(X)
    assert est.score_samples([[30.0, 30.0]])[0] > -15.0
    assert np.all(np.isfinite(est.scores_))
    queries = np.array([[100.0, 100.0], [1e100, 0.0]])
    assert np.all(est.score_samples(queries) < -1000.0) and not np.any(np.isnan(est.score_samples(queries)))


def test_many_features_and_more_of_them_than_samples() -> None:
    X = np.random.default_rng(0).normal(size=(30, 200))
    est = KernelSoSDensityCV(**SMALL).fit(X)
    assert np.all(np.isfinite(est.score_samples(X))) and np.isfinite(est.best_score_)


def test_more_samples_than_support_points() -> None:
    X = make_blobs(200, 6, centers=3, random_state=0)[0]
    capped, full = (KernelSoSDensityCV([0.8], [1.0], cv=2, n_support=m, tol=1e-4).fit(X) for m in (60, 300))
    assert capped.best_estimator_.support_points_.shape == (60, 6)
    assert capped.distribution_.support_points.shape[0] == 200, "the kernel density estimate stands on all samples"
    assert capped.score(X) > full.score(X) - 1.5


# --- bad input ---


@pytest.mark.parametrize(
    ("parameters", "error", "message"),
    [
        ({"bandwidths": []}, ValueError, "bandwidths must hold at least one number"),
        ({"bandwidths": [1.0, 0.0]}, ValueError, "bandwidths must be positive; entry 1 is 0"),
        ({"bandwidths": [1.0, np.nan]}, ValueError, "bandwidths contains NaN"),
        ({"bandwidths": [[1.0]]}, ValueError, "bandwidths must be one-dimensional"),
        ({"bandwidths": [1e200]}, ValueError, "bandwidths times the rule must lie in"),
        ({"relative_regularizations": [0.1, -1.0]}, ValueError, "relative_regularizations must be non-negative; entry 1 is -1"),
        ({"relative_regularizations": [np.inf]}, ValueError, "relative_regularizations contains infinity"),
        ({"relative_regularizations": "many"}, ValueError, "relative_regularizations"),
        ({"cv": 1}, ValueError, "cv must be at least 2"),
        ({"cv": 500}, ValueError, "500 folds need at least 500 distinct samples of positive weight; got 120 samples; pass a smaller cv"),
        ({"cv": "five"}, ValueError, "cv must be None, a number of folds, a splitter"),
        ({"cv": []}, ValueError, "cv gives no folds"),
        (
            {"cv": [([0, 1], [])]},
            ValueError,
            "fold 0 of cv: the test part must be a vector of row numbers|fold 0 of cv has no test samples",
        ),
        ({"cv": [(np.arange(100), np.array([120]))]}, ValueError, "fold 0 of cv names row 120, but the 120 samples are numbered 0 to 119"),
        ({"cv": [np.arange(3)]}, ValueError, "fold 0 of cv must be a pair"),
        ({"objective": "mmd"}, ValueError, "objective must be one of 'likelihood', 'squared_mmd'; got 'mmd'"),
        ({"criterion": "bic"}, ValueError, "criterion must be one of"),
        ({"combine": "all"}, ValueError, "combine must be one of"),
        ({"combine": "stacking", "criterion": "l2"}, ValueError, "criterion='l2' needs combine='best'"),
        ({"rule": "thumb"}, ValueError, "rule must be one of"),
        ({"kernel": "box"}, ValueError, "kernel must be one of"),
        ({"measure": "box"}, TypeError, "measure must be a measure"),
        ({"measure": Box([0, 0], [1, 1])}, ValueError, r"of 120 samples lie outside Box.*the first is row \d+"),
        ({"n_support": 0}, ValueError, "n_support must be at least 1"),
        ({"tol": 0.0}, ValueError, "tol must be positive"),
        (
            {"bandwidths": [1.0, 1e308]},
            ValueError,
            "bandwidths times the rule must (be|lie)",
        ),
        ({"extend": "yes"}, ValueError, "extend must be True, False or None"),
        ({"extend": 1}, ValueError, "extend must be True, False or None"),
        ({"n_jobs": 0}, ValueError, "n_jobs must be None, a positive number"),
        ({"n_jobs": 1.5}, ValueError, "n_jobs must be None, a positive number"),
        ({"verbose": -1}, ValueError, "verbose must be at least 0"),
    ],
    ids=lambda value: repr(value) if isinstance(value, dict) else None,
)
def test_parameters(parameters: dict[str, Any], error: type[Exception], message: str) -> None:
    with pytest.raises(error, match=message):
        KernelSoSDensityCV(**{**SMALL, **parameters}).fit(MOONS)


def test_data() -> None:
    est = KernelSoSDensityCV(**SMALL)
    with pytest.raises(ValueError, match="3 folds need at least 3 distinct samples of positive weight; got 1 sample; pass"):
        est.fit(np.ones((5, 2)))
    with pytest.raises(ValueError, match="NaN"):
        est.fit([[np.nan, 0.0]])
    with pytest.raises(ValueError, match="sample_weight must have length 120"):
        est.fit(MOONS, sample_weight=[1.0])
