"""KernelSoSDensityCV: what it chooses, that its answer is what is certified, its options, hard
data, and limits.
"""

from __future__ import annotations

import contextlib
import pickle
import time
import warnings
from typing import Any

import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from interrupting import Interrupting
from sklearn.base import clone
from sklearn.datasets import load_iris, make_blobs, make_circles, make_moons
from sklearn.exceptions import ConvergenceWarning, NotFittedError, SkipTestWarning
from sklearn.mixture import GaussianMixture as Mixture
from sklearn.model_selection import GridSearchCV, KFold, ShuffleSplit
from sklearn.neighbors import KernelDensity
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import StandardScaler
from sklearn.utils.estimator_checks import check_estimator, parametrize_with_checks
from strategies import clouds

import ksos
from ksos import KernelSoSDensity, KernelSoSDensityCV, SoSDensity, SoSSpace
from ksos.choose import fit_path, projected_embedding, regularization_unit, simplest_good
from ksos.density import square_of
from ksos.functionals import NegativeLogLikelihood, SquaredMMD, Trace
from ksos.kernels import Gaussian, Kernel, Laplace, Matern
from ksos.measures import Box, GaussianMixture, Lebesgue, Normal
from ksos.space import Projection, bandwidth_rule

MOONS = make_moons(120, noise=0.1, random_state=0)[0]
FRESH = make_moons(2000, noise=0.1, random_state=1)[0]
INF = float("inf")
OVER: dict[str, Any] = {
    "bandwidths": [2.0, 3.0],
    "relative_regularizations": [INF, 0.3, 0.03],
    "cv": 3,
}
PLAIN: dict[str, Any] = {
    "bandwidths": [1.0, 1.6],
    "relative_regularizations": [1.0, 0.1, 0.01],
    "cv": 3,
    "reference": None,
}


def correlated(n: int, seed: int = 0) -> np.ndarray:
    """Four normal features that are nearly sums of two."""
    rng = np.random.default_rng(seed)
    factors = [[1.0, 0.5, -1.0, 2.0], [0.0, 1.0, 1.0, -1.0]]
    return rng.normal(size=(n, 2)) @ factors + 0.1 * rng.normal(size=(n, 4))


def mass(est: KernelSoSDensityCV) -> float:
    p = est.distribution_
    return (
        p.terms.mass()
        if isinstance(p, SoSDensity)
        else sum(w * part.terms.mass() for w, part in p.components)
    )


@pytest.fixture(scope="module")
def default() -> KernelSoSDensityCV:
    return KernelSoSDensityCV().fit(MOONS)


@pytest.fixture(scope="module")
def over() -> KernelSoSDensityCV:
    """With a reference."""
    return KernelSoSDensityCV(**OVER).fit(MOONS)


@pytest.fixture(scope="module")
def plain() -> KernelSoSDensityCV:
    """Without one."""
    return KernelSoSDensityCV(**PLAIN).fit(MOONS)


@parametrize_with_checks(
    [
        KernelSoSDensityCV(
            bandwidths=[1.0], relative_regularizations=[1.0, 0.1], cv=2, reference=None
        ),
        KernelSoSDensityCV(
            bandwidths=[1.0, 1.6],
            relative_regularizations=[0.1],
            cv=2,
            reference=None,
            objective="squared_mmd",
            criterion="mmd",
            n_support=8,
        ),
    ]
)
def test_scikit_learn_checks(estimator: Any, check: Any) -> None:
    check(estimator)


def test_scikit_learn_checks_with_a_reference() -> None:
    """Those samples of fifteen rows and thirty features get a warning, which is not what is
    checked.
    """
    with warnings.catch_warnings():
        warnings.filterwarnings("ignore", "the samples do not vary", UserWarning)
        warnings.simplefilter("ignore", SkipTestWarning)
        results = check_estimator(KernelSoSDensityCV(reference="normal", cv=2), on_fail=None)
    failed = [(r["check_name"], r["exception"]) for r in results if r["status"] == "failed"]
    assert failed == []


# --- the answer is what is certified ---


def certified(est: KernelSoSDensityCV, X: np.ndarray, weights: Any = None) -> None:
    """``distribution_`` is the density of ``solution_``, and its objective and gap are those
    reported.
    """
    solution, density = est.solution_, est.solution_.distribution
    at = X[:50]
    relative = density.logpdf(at)
    if est.reference_ is not None:
        relative = relative + est.reference_.log_density(at)
        assert solution.space.measure is est.reference_
    np.testing.assert_allclose(est.score_samples(at), relative, rtol=1e-12, atol=1e-12)
    points, a = X, np.full(len(X), 1 / len(X)) if weights is None else weights / weights.sum()
    if est.objective == "likelihood":
        distance = -float(a @ density.logpdf(points))
    else:
        kernel = solution.space.embedding_kernel
        data = ksos.MeanEmbedding(points, a, kernel=kernel)
        distance = float(
            np.sum((solution.space.coordinates(density) - solution.space.coordinates(data)) ** 2)
        )
    penalty = 0.0
    if np.isfinite(est.regularization_):
        K = solution.space.kernel(solution.space.support_points)
        F = square_of(density).unit_factor * np.exp(
            -0.5 * square_of(density).log_unit
        )  # B = FFᵀ in the density's own units
        penalty = est.regularization_ * float(np.trace(F.T @ K @ F))
    assert distance + penalty == pytest.approx(solution.objective, abs=1e-6)
    assert solution.status == "solved" and 0.0 <= solution.gap <= est.tol
    lowest = ksos.minimize(
        (NegativeLogLikelihood(points, a) if est.objective == "likelihood" else SquaredMMD(data))
        + (est.regularization_ if np.isfinite(est.regularization_) else 0.0) * Trace(),
        solution.space,
        tol=1e-7,
    )
    assert -1e-9 <= solution.objective - lowest.objective <= solution.gap + 1e-7


OPTIONS: dict[str, dict[str, Any]] = {
    "default": {},
    "strong correction": {"relative_regularizations": [1e-2]},
    "reference alone": {"relative_regularizations": [INF]},
    "normal": {"reference": "normal", "relative_regularizations": [0.1, 1e-2]},
    "given": {
        "reference": Normal([0.5, 0.25], np.diag([1.0, 0.4])),
        "relative_regularizations": [1e-2],
    },
    "mixture in MMD": {
        "reference": "mixture",
        "objective": "squared_mmd",
        "relative_regularizations": [1e-3],
    },
    "few support points": {"n_support": 20, "relative_regularizations": [0.03]},
    "no reference": {"reference": None, "n_support": 60},
    "Laplace": {"kernel": "laplace", "n_support": 30},
    "Matérn": {"kernel": Matern(1.5, 1.0, product=True), "n_support": 30},
    "box": {"measure": Box([-2.0, -2.0], [3.0, 3.0]), "n_support": 40},
    "MMD": {"objective": "squared_mmd", "n_support": 40},
    "MMD by MMD": {"objective": "squared_mmd", "criterion": "mmd", "n_support": 40},
    "likelihood by L²": {"criterion": "l2", "n_support": 40},
}


@pytest.mark.parametrize("name", OPTIONS)
def test_what_is_returned_is_what_is_certified(name: str) -> None:
    options = {"cv": 2, "bandwidths": [1.5], **OPTIONS[name]}
    certified(KernelSoSDensityCV(**options).fit(MOONS), MOONS)


def test_weighted_samples_are_certified_as_well() -> None:
    weights = 1.0 + np.arange(120) % 3
    est = KernelSoSDensityCV(cv=2, relative_regularizations=[0.05]).fit(
        MOONS, sample_weight=weights
    )
    certified(est, MOONS, weights)


def test_infinite_regularization_is_the_reference(default: KernelSoSDensityCV) -> None:
    est = KernelSoSDensityCV(cv=3, relative_regularizations=[INF]).fit(MOONS)
    assert est.solution_.gap == 0.0 and est.regularization_ == INF and est.solution_.rank == 1
    np.testing.assert_allclose(
        est.score_samples(FRESH), est.reference_.log_density(FRESH), rtol=1e-12
    )
    assert 0.0 <= est.reference_gap_ <= 1e-4
    strong = KernelSoSDensityCV(cv=3, relative_regularizations=[1e6]).fit(MOONS)
    np.testing.assert_allclose(strong.score_samples(FRESH), est.score_samples(FRESH), atol=1e-3)


# --- what it finds ---


def kernel_density_score(train: np.ndarray, test: np.ndarray) -> float:
    """The baseline: standardized features, the bandwidth by five folds."""
    scale, folds = train.std(axis=0), KFold(5, shuffle=True, random_state=0)
    search = GridSearchCV(KernelDensity(), {"bandwidth": np.geomspace(0.02, 2.0, 30)}, cv=folds)
    return float(search.fit(train / scale).score(test / scale) / len(test) - np.log(scale).sum())


def test_ahead_of_the_kernel_density_estimate(default: KernelSoSDensityCV) -> None:
    assert default.score(FRESH) > kernel_density_score(MOONS, FRESH) - 0.05
    leads = []
    for seed in range(2):
        samples = [
            make_circles(n, noise=0.07, factor=0.4, random_state=seed + n)[0] for n in (100, 2000)
        ]
        leads.append(
            KernelSoSDensityCV().fit(samples[0]).score(samples[1]) - kernel_density_score(*samples)
        )
    assert np.mean(leads) > 0.02 and np.min(leads) > 0.0
    assert abs(default.best_score_ - default.score(FRESH)) < 0.15
    assert mass(default) == pytest.approx(1.0, abs=1e-7)


def test_ahead_of_one_mixture_and_of_no_reference() -> None:
    leads = []
    for X, fresh in ((correlated(100), correlated(2000, 1)), (MOONS, FRESH)):
        shift, scale = X.mean(axis=0), X.std(axis=0)
        fits = [Mixture(k, random_state=0).fit((X - shift) / scale) for k in range(1, 6)]
        best = min(fits, key=lambda fit: fit.bic((X - shift) / scale))
        peer = best.score((fresh - shift) / scale) - np.log(scale).sum()
        score = KernelSoSDensityCV(cv=5).fit(X).score(fresh)
        without = KernelSoSDensityCV(reference=None, cv=3, n_support=60).fit(X).score(fresh)
        leads.append((score - peer, score - without))
    assert np.min(leads) > -0.05 and np.max(leads) > 0.2, leads


def test_a_correction_is_chosen_where_the_reference_is_wrong() -> None:
    """A wide normal reference, given, for data of two clusters."""
    rng = np.random.default_rng(0)
    X, fresh = (np.r_[rng.normal(-2, 0.7, n), rng.normal(2, 0.7, n)][:, None] for n in (100, 1000))
    est = KernelSoSDensityCV(reference=Normal([0.0], [[6.0]]), cv=3).fit(X)
    assert np.isfinite(est.best_params_["relative_regularization"])
    assert est.score(fresh) > Normal([0.0], [[6.0]]).log_density(fresh).mean() + 0.3
    right = KernelSoSDensityCV(reference=Normal([0.0], [[1.0]]), cv=5).fit(
        rng.normal(size=(200, 1))
    )
    assert right.best_params_["relative_regularization"] == INF, "nothing to correct"


def test_a_bimodal_line_is_close_to_the_truth() -> None:
    """A reduced form of benchmarks/bimodal.py: ½N(−1, 0.3²) + ½N(1, 0.3²), 80 samples."""
    losses = []
    for seed in range(3):
        rng = np.random.default_rng(seed)
        train, test = (
            rng.choice([-1.0, 1.0], n)[:, None] + 0.3 * rng.standard_normal((n, 1))
            for n in (80, 2000)
        )
        parts = sum(np.exp(-0.5 * ((test - m) / 0.3) ** 2) for m in (-1, 1))
        truth = np.mean(np.log(parts / (2 * 0.3 * np.sqrt(2 * np.pi))))
        losses.append(truth - KernelSoSDensityCV().fit(train).score(test))
    assert np.mean(losses) <= 0.06


def test_the_choice_is_that_of_the_rule(
    plain: KernelSoSDensityCV, over: KernelSoSDensityCV
) -> None:
    for est in (plain, over):
        r = est.cv_results_
        good = r["difference"] >= -r["standard_error"]
        order = np.lexsort([-r["bandwidth_multiple"], -r["relative_regularization"]])
        first = next(k for k in order if good[k])
        assert est.best_params_["bandwidth_multiple"] == r["bandwidth_multiple"][first]
        assert est.best_params_["relative_regularization"] == r["relative_regularization"][first]
        assert est.best_score_ == pytest.approx(r["mean_test_score"][first])
        best = int(np.argmax(r["mean_test_score"]))
        assert r["difference"][best] == 0.0 and r["standard_error"][best] == 0.0


def test_scores_are_those_of_separate_fits() -> None:
    """Over a given reference, whose corrections have no zeros for a few held-out samples to fall
    on.
    """
    points, reference = np.unique(MOONS, axis=0), Normal([0.5, 0.25], np.diag([0.8, 0.3]))
    folds = [
        (np.flatnonzero(np.arange(120) % 3 != k), np.flatnonzero(np.arange(120) % 3 == k))
        for k in range(3)
    ]
    est = KernelSoSDensityCV([2.0], [1.0, 0.1], folds, reference=reference).fit(points)
    for k, (train, test) in enumerate(folds):
        space = SoSSpace(Gaussian(est.bandwidth_), points[train], reference, constant=True)
        for j, relative in enumerate([1.0, 0.1]):
            fit = KernelSoSDensity(
                Gaussian(est.bandwidth_),
                relative_regularization=relative * regularization_unit(space),
                support=points[train],
                reference=reference,
                objective="likelihood",
            ).fit(points[train])
            score = est.cv_results_[f"split{k}_test_score"][j]
            assert score == pytest.approx(fit.score(points[test]), abs=0.02)


def test_results_are_a_table(plain: KernelSoSDensityCV, over: KernelSoSDensityCV) -> None:
    pandas = pytest.importorskip("pandas")
    table = pandas.DataFrame(plain.cv_results_)
    assert len(table) == 6 and len(pandas.DataFrame(over.cv_results_)) == 5, "λ = ∞ counts once"
    splits = np.stack([table[f"split{k}_test_score"] for k in range(3)])
    np.testing.assert_allclose(table["mean_test_score"], splits.mean(axis=0), rtol=1e-9)
    np.testing.assert_allclose(table["std_test_score"], splits.std(axis=0), rtol=1e-9)
    assert sorted(table["rank_test_score"]) == [1, 2, 3, 4, 5, 6]
    assert (
        table["rank_test_score"][np.argmax(table["mean_test_score"])] == 1 and plain.n_splits_ == 3
    )


# --- criteria ---


def test_the_l2_criterion_is_the_integral() -> None:
    X = np.linspace(-1, 1, 30)[:, None] ** 3
    folds = [(np.arange(0, 30, 2), np.arange(1, 30, 2))]
    est = KernelSoSDensityCV([1.0, 2.0], [0.1], folds, criterion="l2").fit(X)
    points, scores = np.unique(X, axis=0), []
    grid = np.linspace(-6, 6, 20001)[:, None]
    for multiple in (1.0, 2.0):
        sigma = est.bandwidth_ * multiple / est.best_params_["bandwidth_multiple"]
        p = KernelSoSDensity(
            Gaussian(sigma),
            relative_regularization=0.1,
            support=points[::2],
            objective="likelihood",
            tol=1e-9,
        )
        p = p.fit(points[::2]).distribution_
        scores.append(2.0 * p.pdf(points[1::2]).mean() - np.trapezoid(p.pdf(grid) ** 2, grid[:, 0]))
    ratio = est.cv_results_["mean_test_score"] / np.array(scores)
    assert ratio[0] > 0.0 and ratio[1] == pytest.approx(ratio[0], rel=1e-2), (
        "one unit for all bandwidths"
    )


def test_the_mmd_criterion_is_the_distance_up_to_a_constant() -> None:
    points, folds = np.unique(MOONS[:60], axis=0), [(np.arange(0, 60, 2), np.arange(1, 60, 2))]
    est = KernelSoSDensityCV([1.0, 3.0], [0.1], folds, criterion="mmd", reference=None).fit(points)
    r = est.cv_results_
    sigma = bandwidth_rule("median", points, np.full(60, 1 / 60), np.random.default_rng(0))
    distances = []
    for multiple in (1.0, 3.0):
        kernel = Gaussian(est.bandwidth_).scaled(multiple / est.best_params_["bandwidth_multiple"])
        p = KernelSoSDensity(
            kernel,
            relative_regularization=0.1,
            support=points[::2],
            objective="likelihood",
            tol=1e-7,
        ).fit(points[::2])
        distances.append(ksos.mmd(p.distribution_, points[1::2], kernel=Gaussian(sigma)) ** 2)
    assert r["mean_test_score"][0] - r["mean_test_score"][1] == pytest.approx(
        distances[1] - distances[0], abs=1e-4
    )


@pytest.mark.parametrize("kernel", [Gaussian(0.4), Matern(1.5, 0.4, product=True)], ids=str)
def test_held_out_mmds_on_a_box_share_their_integrals(kernel: Kernel) -> None:
    X = np.random.default_rng(5).beta(1.0, 3.0, size=(40, 1))
    space = SoSSpace(kernel, X, Box([0.0], [np.inf]))
    projection = Projection(kernel.with_sigma(0.7), X[::2])
    (F,) = fit_path("likelihood", space, X, np.full(40, 1 / 40), [0.1])
    shared = projected_embedding(space, projection)(F)
    np.testing.assert_allclose(shared, projection.coordinates(space.density(F)), atol=1e-9)


def test_l2_in_many_features_names_the_way_out() -> None:
    X = np.random.default_rng(0).normal(size=(30, 5))
    with pytest.raises(
        ksos.IntegralNotAvailableError, match=r"criterion='log_likelihood' or 'mmd'"
    ):
        KernelSoSDensityCV(**PLAIN, criterion="l2", kernel="laplace").fit(X)
    five = KernelSoSDensityCV([1.0], [0.1], 2, criterion="l2").fit(
        X
    )  # a Gaussian has a closed form
    assert np.isfinite(five.best_score_)


# --- options ---


@pytest.mark.parametrize("kernel", ["laplace", Laplace(3.0, product=True), "matern"])
def test_other_kernels(kernel: Any) -> None:
    est = KernelSoSDensityCV(**PLAIN, kernel=kernel, n_support=40).fit(MOONS)
    assert est.distribution_.kernel.product and est.score(FRESH) > -1.6
    assert mass(est) == pytest.approx(1.0, abs=1e-7)


def test_a_box_holds_all_the_mass() -> None:
    X = np.random.default_rng(0).beta(1, 3, size=(400, 1))
    est = KernelSoSDensityCV(cv=3, measure=Box([0.0], [1.0])).fit(X)
    assert est.score_samples([[1.5]])[0] == -np.inf and est.reference_ is None
    assert est.distribution_.terms.mass() == pytest.approx(1.0, abs=1e-7)
    grid = np.linspace(0, 1, 2001)
    truth = 3 * (1 - grid) ** 2
    assert np.trapezoid((est.distribution_.pdf(grid[:, None]) - truth) ** 2, grid) < 0.1


def test_references_by_name_and_by_value() -> None:
    X, fresh = correlated(100), correlated(2000, 1)
    scores = {
        name: KernelSoSDensityCV(reference=name, cv=3).fit(X).score(fresh)
        for name in ("normal", "mixture")
    }
    normal = Normal(X.mean(axis=0), np.cov(X.T))
    est = KernelSoSDensityCV(reference=normal, cv=3).fit(X)
    scores["given"] = est.score(fresh)
    assert np.ptp(list(scores.values())) < 0.1, scores
    np.testing.assert_allclose(est.reference_.means, normal.mean[None], rtol=1e-9)
    assert est.reference_gap_ == 0.0


def test_more_support_points_and_more_features_do_not_change_the_algorithm() -> None:
    few = KernelSoSDensityCV(cv=2, n_support=30, relative_regularizations=[0.1]).fit(MOONS)
    assert few.support_points_.shape == (30, 2) and isinstance(few.reference_, GaussianMixture)
    many = KernelSoSDensityCV(cv=2).fit(np.random.default_rng(0).normal(size=(60, 50)))
    assert isinstance(many.reference_, GaussianMixture)


@pytest.mark.parametrize(
    ("parameters", "error", "message"),
    [
        ({"bandwidths": []}, ValueError, "bandwidths must hold at least one number"),
        (
            {"bandwidths": [1.0, 0.0]},
            ValueError,
            "bandwidths must be positive and finite; entry 1 is 0",
        ),
        (
            {"bandwidths": [1.0, np.nan]},
            ValueError,
            "bandwidths must be positive and finite; entry 1 is nan",
        ),
        ({"bandwidths": [[1.0]]}, ValueError, "bandwidths must hold"),
        (
            {"relative_regularizations": [0.1, -1.0]},
            ValueError,
            "must be non-negative; entry 1 is -1",
        ),
        (
            {"relative_regularizations": [INF], "reference": None},
            ValueError,
            "holds inf, .* there is none",
        ),
        ({"relative_regularizations": "many"}, ValueError, "relative_regularizations"),
        ({"cv": 1}, ValueError, "cv must be at least 2"),
        ({"cv": 500}, ValueError, "500 folds need at least 500 distinct samples"),
        ({"cv": "five"}, ValueError, "cv must be None, a number of folds, a splitter"),
        ({"cv": []}, ValueError, "cv gives no folds"),
        ({"cv": [([0, 1], [])]}, ValueError, "fold 0 of cv"),
        ({"cv": [(np.arange(100), np.array([120]))]}, ValueError, "fold 0 of cv must be a pair"),
        ({"cv": [np.arange(3)]}, ValueError, "fold 0 of cv must be a pair"),
        (
            {"objective": "mmd"},
            ValueError,
            "objective must be one of 'likelihood', 'squared_mmd'; got 'mmd'",
        ),
        ({"criterion": "bic"}, ValueError, "criterion must be one of"),
        ({"kernel": "box"}, ValueError, "kernel must be one of"),
        ({"measure": "box"}, TypeError, "measure must be a measure"),
        (
            {"measure": Box([0, 0], [1, 1])},
            ValueError,
            r"of 120 samples lie outside Box.*the first is row \d+",
        ),
        ({"n_support": 0}, ValueError, "n_support must be at least 1"),
        ({"tol": 0.0}, ValueError, "tol must be positive"),
        ({"bandwidths": [1.0, 1e308]}, ValueError, "sigma"),
        ({"n_jobs": 0}, ValueError, "n_jobs must be None, a positive number"),
        ({"n_jobs": 1.5}, ValueError, "n_jobs must be None, a positive number"),
        ({"verbose": -1}, ValueError, "verbose must be at least 0"),
        ({"reference": "best"}, ValueError, "reference must be"),
        ({"reference": 3}, TypeError, "reference must be"),
        ({"reference": Lebesgue()}, TypeError, "reference must be"),
        (
            {"reference": "normal", "measure": Box([-9, -9], [9, 9])},
            ValueError,
            "are both the measure of the density; give one",
        ),
        (
            {"reference": "normal", "kernel": "laplace"},
            ValueError,
            "reference='normal' needs kernel='gaussian'",
        ),
        (
            {"reference": "mixture", "criterion": "l2"},
            ValueError,
            "criterion='l2' has no closed form over",
        ),
    ],
    ids=lambda value: repr(value) if isinstance(value, dict) else None,
)
def test_parameters(parameters: dict[str, Any], error: type[Exception], message: str) -> None:
    with pytest.raises(error, match=message):
        KernelSoSDensityCV(**{"cv": 3, **parameters}).fit(MOONS)


def test_data() -> None:
    with pytest.raises(
        ValueError, match="3 folds need at least 3 distinct samples of positive weight; got 2"
    ):
        KernelSoSDensityCV(**OVER).fit(np.r_[np.ones((5, 2)), np.zeros((1, 2))])
    with pytest.raises(ValueError, match="NaN"):
        KernelSoSDensityCV().fit([[np.nan, 0.0]])
    with pytest.raises(ValueError, match="sample_weight must have length 120"):
        KernelSoSDensityCV().fit(MOONS, sample_weight=[1.0])
    with pytest.raises(NotFittedError):
        KernelSoSDensityCV().score(MOONS)


# --- invariances ---


@pytest.mark.parametrize("options", [OVER, PLAIN], ids=["reference", "none"])
def test_order_weights_and_duplicates(options: dict[str, Any]) -> None:
    rng, at, X = np.random.default_rng(0), FRESH[:100], MOONS[::2]
    expected = KernelSoSDensityCV(**options).fit(X).score_samples(at)
    shuffled = KernelSoSDensityCV(**options).fit(X[rng.permutation(60)])
    np.testing.assert_array_equal(shuffled.score_samples(at), expected)
    zero = KernelSoSDensityCV(**options)
    zero.fit(np.r_[X, [[50.0, 50.0]]], sample_weight=np.r_[np.ones(60), 0.0])
    np.testing.assert_array_equal(zero.score_samples(at), expected)
    counts = rng.integers(1, 4, 60)
    repeated = KernelSoSDensityCV(**options).fit(np.repeat(X, counts, axis=0))
    weighted = KernelSoSDensityCV(**options).fit(X, sample_weight=counts)
    np.testing.assert_allclose(weighted.score_samples(at), repeated.score_samples(at), atol=1e-7)
    assert not np.allclose(weighted.score_samples(at), expected, atol=1e-3)


@pytest.mark.parametrize("options", [OVER, PLAIN], ids=["reference", "none"])
def test_scale_and_shift(options: dict[str, Any]) -> None:
    at, scales, X = FRESH[:100], np.array([1e6, 1e-3]), MOONS[::2]
    expected = KernelSoSDensityCV(**options).fit(X).score_samples(at)
    scaled = KernelSoSDensityCV(**options).fit(X * scales)
    np.testing.assert_allclose(
        scaled.score_samples(at * scales) + np.log(scales).sum(), expected, atol=1e-3
    )
    for scale in (1e-150, 1e150):
        extreme = KernelSoSDensityCV(**options).fit(X * scale)
        np.testing.assert_allclose(
            extreme.score_samples(at * scale) + 2 * np.log(scale), expected, atol=1e-2
        )
    far = X + 1e8
    there, here = (KernelSoSDensityCV(**options).fit(rows) for rows in (far, far - 1e8))
    np.testing.assert_allclose(there.score_samples(far), here.score_samples(far - 1e8), atol=1e-3)


def test_processes_and_random_states(over: KernelSoSDensityCV) -> None:
    parallel = KernelSoSDensityCV(**OVER, n_jobs=2).fit(MOONS)
    mean = "mean_test_score"
    np.testing.assert_allclose(parallel.cv_results_[mean], over.cv_results_[mean], rtol=1e-9)
    other = KernelSoSDensityCV(**OVER, random_state=1).fit(MOONS)
    assert not np.array_equal(other.cv_results_[mean], over.cv_results_[mean])


def test_splitters_and_explicit_folds() -> None:
    grid = {"bandwidths": [3.0], "relative_regularizations": [0.1]}
    points, splitter = np.unique(MOONS, axis=0), KFold(4, shuffle=True, random_state=3)
    splits = list(splitter.split(points))
    by_splitter = KernelSoSDensityCV(**grid, cv=splitter).fit(points)
    by_list = KernelSoSDensityCV(**grid, cv=splits).fit(points)
    assert by_splitter.best_score_ == by_list.best_score_ and by_splitter.n_splits_ == 4
    masks = [
        (np.isin(np.arange(120), train), np.isin(np.arange(120), test)) for train, test in splits
    ]
    assert KernelSoSDensityCV(**grid, cv=masks).fit(points).best_score_ == by_list.best_score_
    repeated = KernelSoSDensityCV(**grid, cv=ShuffleSplit(3, test_size=0.3, random_state=0)).fit(
        MOONS
    )
    assert np.isfinite(repeated.best_score_)


def test_pickle_clone_pipeline(over: KernelSoSDensityCV) -> None:
    again = pickle.loads(pickle.dumps(over))
    np.testing.assert_array_equal(again.score_samples(FRESH[:20]), over.score_samples(FRESH[:20]))
    assert clone(over).get_params() == over.get_params()
    pipeline = make_pipeline(StandardScaler(), KernelSoSDensityCV(**OVER)).fit(MOONS)
    assert np.isfinite(pipeline.score(MOONS))


def test_what_is_printed_are_the_scores_of_the_table(capsys: pytest.CaptureFixture[str]) -> None:
    est = KernelSoSDensityCV(**OVER, verbose=1).fit(MOONS)
    printed = capsys.readouterr().out.splitlines()
    own = [line for line in printed if line.startswith("[cv] ")]
    assert "mixtures, weights within" in own[0] and len(own) == 3
    said = [float(line.rsplit(" ", 1)[1]) for line in own[1:]]
    r = est.cv_results_
    wide, narrow = (r["bandwidth_multiple"] == multiple for multiple in (3.0, 2.0))
    shared = r["mean_test_score"][np.isinf(r["relative_regularization"])]
    assert said[0] == pytest.approx(r["mean_test_score"][wide].max(), abs=6e-5), (
        "wide kernels first"
    )
    assert said[1] == pytest.approx(max(r["mean_test_score"][narrow].max(), shared.max()), abs=6e-5)


# --- hard data ---

RNG = np.random.default_rng(0)
LINE = RNG.normal(size=(60, 1))
HARD: dict[str, tuple[np.ndarray, np.ndarray, str | None]] = {
    "one point": (np.ones((3, 2)), np.ones((1, 2)), "no spread"),
    "two points": (np.array([[0.0, 1.0], [1.0, 0.0]]), np.array([[0.5, 0.5]]), "do not vary"),
    "ties": (RNG.integers(0, 4, (60, 2)) * 1.0, RNG.integers(0, 4, (20, 2)) * 1.0, None),
    "collinear": (LINE[:40] * [1.0, -2.0], LINE[40:] * [1.0, -2.0], "do not vary"),
    "n < d": (RNG.normal(size=(6, 9)), RNG.normal(size=(20, 9)), "do not vary"),
    "constant column": (
        np.c_[LINE[:40], np.full(40, 3.0)],
        np.c_[LINE[40:], np.full(20, 3.0)],
        "no spread",
    ),
    "far outliers": (
        np.r_[RNG.normal(size=(50, 2)), [[1e8, 0], [0, -1e7]]],
        RNG.normal(size=(20, 2)),
        None,
    ),
    "identical columns": (LINE[:30] * [1.0, 1.0], LINE[30:40] * [1.0, 1.0], "do not vary"),
    "many features": (RNG.normal(size=(30, 12)), RNG.normal(size=(10, 12)), None),
    "hundreds of features": (RNG.normal(size=(30, 150)), RNG.normal(size=(10, 150)), "do not vary"),
}


@pytest.mark.parametrize("name", HARD)
def test_hard_data_get_a_density_and_a_word(name: str) -> None:
    X, fresh, message = HARD[name]
    with pytest.warns(UserWarning, match=message) if message else contextlib.nullcontext():
        est = KernelSoSDensityCV(cv=None if len(X) < 9 else 3).fit(X)
    scores = est.score_samples(np.r_[X, fresh])
    assert np.all(np.isfinite(scores)) and mass(est) == pytest.approx(1.0, abs=1e-6)
    if name in ("far outliers", "ties"):
        assert est.score(fresh) > -12.0


@settings(max_examples=15, deadline=None, suppress_health_check=[HealthCheck.too_slow])
@given(X=clouds(3, 8))
def test_small_clouds_give_a_density_or_a_word(X: np.ndarray) -> None:
    est = KernelSoSDensityCV([1.0], [1.0, 0.1], cv=2, reference=None)
    if len(np.unique(X, axis=0)) < 2:
        with pytest.raises(ValueError, match="2 folds need at least 2 distinct samples"):
            est.fit(X)
        return
    if any(
        np.ptp(X[:, k]) > 0.0 and np.array_equal(X[:, j], X[:, k])
        for k in range(X.shape[1])
        for j in range(k)
    ):
        with pytest.raises(ValueError, match="are identical in all"):
            est.fit(X)
        return
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", UserWarning)  # features without spread
        est.fit(X)
    assert est.distribution_.terms.mass() == pytest.approx(1.0, abs=1e-7)
    assert np.all(np.isfinite(est.score_samples(X)))


def test_bandwidths_so_narrow_that_nothing_is_seen() -> None:
    est = KernelSoSDensityCV([1e-6, 1.0], [0.1], 3, objective="squared_mmd").fit(MOONS)
    assert est.best_params_["bandwidth_multiple"] == 1.0
    assert est.cv_results_["mean_test_score"][0] < -1e6, "the others may be as bad as they like"


def test_a_density_of_zero_at_every_held_out_sample_is_no_time_limit() -> None:
    X = np.random.default_rng(0).normal(size=(60, 1))
    est = KernelSoSDensityCV([1e-6], [0.1], 2, reference=None).fit(X)
    assert est.status_ == "solved" and est.best_score_ == -np.inf
    both = KernelSoSDensityCV([1e-6, 1.0], [0.1], 2, reference=None).fit(X)
    assert both.best_params_["bandwidth_multiple"] == 1.0 and np.isfinite(both.best_score_)


def test_far_samples_keep_a_density() -> None:
    est = KernelSoSDensityCV(**OVER).fit(np.r_[MOONS, [[30.0, 30.0]]])
    assert est.score_samples([[30.0, 30.0]])[0] > -20.0
    queries = np.array([[1e4, 1e4], [1e100, 0.0]])
    assert np.all(est.score_samples(queries) < -30.0) and not np.any(
        np.isnan(est.score_samples(queries))
    )
    X, fresh = (
        np.random.default_rng(seed).standard_cauchy((n, 1)) for seed, n in ((0, 100), (1, 500))
    )
    assert np.all(KernelSoSDensityCV(cv=3).fit(X).score_samples(fresh) > -1000.0)


@pytest.mark.parametrize("strengths", [[INF], [0.01]])
def test_a_condition_far_outside_of_the_data_warns(strengths: list[float]) -> None:
    """Also where the tails of the reference are heavy."""
    p = KernelSoSDensityCV(cv=2, relative_regularizations=strengths).fit(MOONS).distribution_
    with pytest.warns(UserWarning, match="far outside of the data"):
        p.conditional({0: 400.0})
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        p.conditional({0: 3.0})


def test_a_lone_row_gets_no_spike() -> None:
    """A row far from the others, twice in the data: an outlier is not the mode."""
    rng = np.random.default_rng(4)
    bulk = np.round(
        rng.normal([20.0, 100.0], [5.0, 30.0], size=(300, 2))
    )  # ties favor narrow components
    p = KernelSoSDensityCV().fit(np.vstack([bulk, [[3.0, 30.0], [3.0, 30.0]]])).distribution_
    beside, at = p.logpdf([[3.2, 31.0], [3.0, 30.0]])
    assert at - beside < 1.0
    assert at < np.median(p.logpdf(bulk))


@pytest.mark.parametrize("seed", range(3))
def test_no_row_that_was_fitted_towers_over_those_that_were_not(seed: int) -> None:
    rng = np.random.default_rng(seed)
    mix = np.array([[1.0, 0.5, 0.0], [0.0, 0.6, 0.3], [0.0, 0.0, 0.5]])
    X = np.exp(rng.normal(size=(400, 3)) @ mix)
    p = KernelSoSDensityCV().fit(X[:100]).distribution_
    assert p.logpdf(X[:100]).max() < p.logpdf(X[100:]).max() + 1.0


def test_more_samples_than_support_points() -> None:
    X = make_blobs(200, 6, centers=3, random_state=0)[0]
    capped, full = (
        KernelSoSDensityCV([1.0], [1.0], 2, reference=None, n_support=m).fit(X) for m in (60, 300)
    )
    assert capped.support_points_.shape == (60, 6) and full.support_points_.shape == (200, 6)
    assert capped.score(X) > full.score(X) - 1.5


# --- limits ---


@pytest.mark.parametrize("limit", [1e-6, 0.3])
def test_the_time_limit(limit: float) -> None:
    est, began = KernelSoSDensityCV(time_limit=limit), time.process_time()
    with pytest.warns(ConvergenceWarning, match="raise time_limit"):
        est.fit(correlated(1500))
    assert time.process_time() - began < limit + 3.0
    assert est.status_ == "time_limit" and np.all(np.isfinite(est.score_samples(correlated(50, 1))))
    assert est.solution_.gap is not None


def test_ctrl_c_stores_the_best_so_far() -> None:
    for line in (1, 2):
        est = KernelSoSDensityCV(cv=2, verbose=1)
        with pytest.raises(KeyboardInterrupt), contextlib.redirect_stdout(Interrupting(line)):
            est.fit(MOONS)
        assert est.status_ == "interrupted" and np.isfinite(est.score(FRESH))


def test_a_hundred_samples_take_a_second() -> None:
    began = time.process_time()
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        KernelSoSDensityCV().fit(correlated(100))
    assert time.process_time() - began < 5.0


def test_iris_is_a_table_with_ties() -> None:
    est = KernelSoSDensityCV(cv=3).fit(load_iris().data)
    assert mass(est) == pytest.approx(1.0, abs=1e-7) and est.reference_gap_ <= 1e-4
    r = est.cv_results_
    assert (
        simplest_good(np.zeros((3, 2)), np.ones(3) / 3) == 0
        and np.isfinite(r["mean_test_score"]).all()
    )
