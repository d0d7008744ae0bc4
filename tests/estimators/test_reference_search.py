"""The search without arguments: mixtures, what corrects them, sums of squares over Lebesgue; its laws, its manners, and hard data."""

from __future__ import annotations

import contextlib
import time
import warnings
from typing import Any

import numpy as np
import pytest
from interrupting import Interrupting
from sklearn.datasets import load_iris, make_moons
from sklearn.exceptions import ConvergenceWarning, NotFittedError
from sklearn.mixture import GaussianMixture as Mixture
from sklearn.model_selection import KFold

import ksos
from ksos import KernelSoSDensityCV, SoSDensity
from ksos._deadline import Deadline
from ksos.estimators._mixture_stack import FLOORS, SIZES, MixtureStack
from ksos.estimators._samples import random_folds
from ksos.measures import Box, GaussianMixture, Lebesgue, Normal

MOONS, FRESH = make_moons(120, noise=0.1, random_state=0)[0], make_moons(2000, noise=0.1, random_state=1)[0]


def tied(n: int, seed: int = 0) -> np.ndarray:
    """Four normal features that are nearly sums of two."""
    rng = np.random.default_rng(seed)
    return rng.normal(size=(n, 2)) @ [[1.0, 0.5, -1.0, 2.0], [0.0, 1.0, 1.0, -1.0]] + 0.1 * rng.normal(size=(n, 4))


def mass(est: KernelSoSDensityCV) -> float:
    p = est.distribution_
    return p.mass() if isinstance(p, SoSDensity) else sum(weight * part.mass() for weight, part in p.components)


@pytest.fixture(scope="module")
def plain() -> KernelSoSDensityCV:
    return KernelSoSDensityCV().fit(MOONS)


# --- what it finds ---


def test_the_stack_is_no_worse_than_its_parts(plain: KernelSoSDensityCV) -> None:
    for est in (plain, KernelSoSDensityCV(cv=3).fit(tied(90)), KernelSoSDensityCV(cv=3).fit(load_iris().data)):
        best = max(est.scores_.max(), est.mixture_results_["mean_test_score"].max())
        assert est.best_score_ > best - 2e-3
        assert sum(est.weights_.values()) == pytest.approx(1.0) and est.mixture_results_["weight"].sum() == pytest.approx(1.0)
        assert mass(est) == pytest.approx(1.0, abs=1e-7)


def test_ahead_of_a_mixture_and_of_the_search_over_lebesgue() -> None:
    leads = []
    for X, fresh in ((tied(100), tied(2000, 1)), (MOONS, FRESH)):
        shift, scale = X.mean(axis=0), X.std(axis=0)
        fits = [Mixture(k, random_state=0).fit((X - shift) / scale) for k in range(1, 6)]
        best = min(fits, key=lambda fit: fit.bic((X - shift) / scale))
        peer = best.score((fresh - shift) / scale) - np.log(scale).sum()
        score = KernelSoSDensityCV(cv=5).fit(X).score(fresh)
        leads.append((score - peer, score - KernelSoSDensityCV(reference=None, cv=3).fit(X).score(fresh)))
    assert np.min(np.array(leads)[:, 0]) > -0.05 and np.max(leads) > 0.2, leads
    assert np.min(np.array(leads)[:, 1]) > -0.05, leads


def test_the_best_pair_has_a_certificate(plain: KernelSoSDensityCV) -> None:
    solution = plain.best_estimator_.solution_
    assert plain.status_ == "solved" and solution.gap <= plain.tol
    assert solution.space.constant and isinstance(solution.space.measure, GaussianMixture)
    i, j = np.unravel_index(np.argmax(plain.scores_), plain.scores_.shape)
    if plain.bandwidth_multiples_[i] == plain.bandwidth_multiple_:
        assert plain.relative_regularizations_[j] == plain.relative_regularization_
    again = ksos.minimize(
        ksos.functionals.NegativeLogLikelihood(MOONS)
        + plain.best_estimator_.relative_regularization_ * ksos.functionals.Trace(relative=True),
        solution.space,
        tol=1e-6,
    )
    assert again.objective == pytest.approx(solution.objective, abs=2e-4)


def test_scores_do_not_know_the_samples_that_they_judge() -> None:
    """A fold whose held-out samples are elsewhere: nothing of the fold's fits may follow them."""
    train, moved = np.arange(80), np.arange(80, 120)
    far = MOONS.copy()
    far[moved] += [0.3, 0.0]
    logs = []
    for X in (MOONS, far):
        weights = np.full(120, 1 / 120)
        folds = [f._replace(train=train, test=moved) for f in random_folds(weights, 3, np.random.default_rng(0))[:1]]
        folds = [folds[0]._replace(train_weights=np.full(80, 1 / 80), test_weights=np.full(40, 1 / 40))]
        stack = MixtureStack((X - MOONS.mean(axis=0)) / MOONS.std(axis=0), weights, folds, np.zeros(2, dtype=bool), SIZES)
        list(stack.fit(ksos._deadline.Deadline()))
        logs.append(np.stack([fit.means[0].sum(axis=0) for fit in stack.fits]))
    np.testing.assert_array_equal(*logs)


# --- what may be given ---


def test_references_by_name_and_by_value() -> None:
    X, fresh = tied(100), tied(2000, 1)
    scores = {name: KernelSoSDensityCV(reference=name, cv=3).fit(X).score(fresh) for name in ("normal", "mixture")}
    law = Normal(X.mean(axis=0), np.cov(X.T))
    est = KernelSoSDensityCV(reference=law, cv=3).fit(X)
    scores["law"] = est.score(fresh)
    assert np.ptp(list(scores.values())) < 0.1, scores
    np.testing.assert_allclose(est.best_estimator_.solution_.space.measure.means, law.mean[None], rtol=1e-9)
    assert set(est.mixture_results_["components"].tolist()) == {1} and "lebesgue" not in est.weights_


def test_grids_of_a_correction() -> None:
    est = KernelSoSDensityCV([1.0, 2.0], [0.1, 0.01], reference="mixture", cv=3).fit(MOONS)
    assert est.scores_.shape == (2, 2) and est.bandwidth_multiple_ in (1.0, 2.0) and est.relative_regularization_ in (0.1, 0.01)


@pytest.mark.parametrize(
    ("parameters", "error", "message"),
    [
        ({"reference": "best"}, ValueError, "reference must be"),
        ({"reference": 3}, TypeError, "reference must be"),
        ({"reference": Lebesgue()}, TypeError, "reference must be"),
        ({"reference": "normal", "measure": Box([-9, -9], [9, 9])}, ValueError, "are both the measure of the density; give one"),
        ({"reference": "normal", "kernel": "laplace"}, ValueError, "reference='normal' goes with kernel='gaussian'"),
        ({"reference": "mixture", "criterion": "l2"}, ValueError, "reference='mixture' goes with"),
        ({"reference": "normal", "rule": "scott"}, ValueError, "rule='scott' has no say with a reference.*reference=None"),
        ({"reference": Normal(0.0, 1.0), "extend": True}, ValueError, "extend=True has no say with a reference.*reference=None"),
    ],
)
def test_references_that_are_none(parameters: dict[str, Any], error: type[Exception], message: str) -> None:
    with pytest.raises(error, match=message):
        KernelSoSDensityCV(**parameters).fit(MOONS)


def test_processes_change_nothing() -> None:
    one, two = (KernelSoSDensityCV(cv=2, n_jobs=n_jobs).fit(MOONS) for n_jobs in (None, 2))
    np.testing.assert_allclose(two.scores_, one.scores_, rtol=1e-12)
    assert two.weights_ == pytest.approx(one.weights_, abs=1e-9)


# --- invariances ---


def test_order_weights_and_units() -> None:
    rng, at = np.random.default_rng(0), FRESH[:50]
    expected = KernelSoSDensityCV(cv=2).fit(MOONS).score_samples(at)
    np.testing.assert_array_equal(KernelSoSDensityCV(cv=2).fit(MOONS[rng.permutation(120)]).score_samples(at), expected)
    zero = KernelSoSDensityCV(cv=2).fit(np.r_[MOONS, [[50.0, 50.0]]], sample_weight=np.r_[np.ones(120), 0.0])
    np.testing.assert_array_equal(zero.score_samples(at), expected)
    scales = np.array([1e6, -1e-3])
    scaled = KernelSoSDensityCV(cv=2).fit(MOONS * np.abs(scales) + 7.0)
    np.testing.assert_allclose(scaled.score_samples(at * np.abs(scales) + 7.0) + np.log(np.abs(scales)).sum(), expected, atol=1e-2)
    counts = rng.integers(1, 4, 120)
    repeated, weighted = KernelSoSDensityCV(cv=2).fit(np.repeat(MOONS, counts, axis=0)), KernelSoSDensityCV(cv=2)
    weighted.fit(MOONS, sample_weight=counts)
    np.testing.assert_allclose(weighted.score_samples(at), repeated.score_samples(at), atol=1e-7)
    assert not np.allclose(weighted.score_samples(at), expected, atol=1e-3)


def test_folds_are_those_asked_for() -> None:
    est = KernelSoSDensityCV(cv=KFold(4, shuffle=True, random_state=3)).fit(MOONS)
    assert est.n_splits_ == 4 and np.isfinite(est.best_score_)
    splits = np.stack([est.cv_results_[f"split{k}_test_score"] for k in range(4)])
    np.testing.assert_allclose(est.cv_results_["mean_test_score"], splits.mean(axis=0), rtol=1e-9)


# --- hard data ---

RNG = np.random.default_rng(0)
HARD: dict[str, tuple[np.ndarray, np.ndarray, str | None]] = {
    "one point": (np.ones((3, 2)), np.ones((1, 2)), "no spread"),
    "two points": (np.array([[0.0, 1.0], [1.0, 0.0]]), np.array([[0.5, 0.5]]), "without spread"),
    "ties": (RNG.integers(0, 4, (60, 2)).astype(float), RNG.integers(0, 4, (20, 2)).astype(float), None),
    "collinear": (RNG.normal(size=(40, 1)) * [1.0, -2.0], RNG.normal(size=(20, 1)) * [1.0, -2.0], "without spread"),
    "n < d": (RNG.normal(size=(6, 9)), RNG.normal(size=(20, 9)), "without spread"),
    "constant column": (np.c_[RNG.normal(size=40), np.full(40, 3.0)], np.c_[RNG.normal(size=20), np.full(20, 3.0)], "no spread"),
    "far outliers": (np.r_[RNG.normal(size=(50, 2)), [[1e8, 0.0], [0.0, -1e7]]], RNG.normal(size=(20, 2)), None),
    "identical columns": (RNG.normal(size=(30, 1)) * [1.0, 1.0], RNG.normal(size=(10, 1)) * [1.0, 1.0], "without spread"),
    "many features": (RNG.normal(size=(30, 12)), RNG.normal(size=(10, 12)), None),
    "hundreds of features": (RNG.normal(size=(30, 150)), RNG.normal(size=(10, 150)), None),
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


def test_tails_stay_in_sight() -> None:
    X, fresh = (np.random.default_rng(seed).standard_cauchy((n, 1)) for seed, n in ((0, 100), (1, 500)))
    assert np.all(KernelSoSDensityCV(cv=3).fit(X).score_samples(fresh) > -1e5)


# --- limits and manners ---


@pytest.mark.parametrize("limit", [1e-6, 0.3])
def test_the_time_limit(limit: float) -> None:
    est, began = KernelSoSDensityCV(time_limit=limit), time.process_time()
    with pytest.warns(ConvergenceWarning, match="raise time_limit"):
        est.fit(tied(400))
    assert time.process_time() - began < limit + 3.0
    assert est.status_ == "time_limit" and np.all(np.isfinite(est.score_samples(tied(50, 1))))
    assert est.scores_.shape == (len(est.bandwidth_multiples_), len(est.relative_regularizations_))


def test_ctrl_c_stores_the_best_so_far() -> None:
    for line in (1, 3):
        est = KernelSoSDensityCV(cv=2, verbose=1)
        with pytest.raises(KeyboardInterrupt), contextlib.redirect_stdout(Interrupting(line)):
            est.fit(MOONS)
        assert est.status_ == "interrupted" and np.isfinite(est.score(FRESH))
    with pytest.raises(NotFittedError):
        KernelSoSDensityCV().score(MOONS)


def test_progress_with_the_time_left(capsys: pytest.CaptureFixture[str]) -> None:
    est = KernelSoSDensityCV(cv=3, verbose=1).fit(MOONS)
    printed = capsys.readouterr().out.splitlines()
    assert (
        len(printed) == 2 + est.bandwidth_multiples_.size
        and printed[0].startswith("[cv] ")
        and "Gaussian mixtures: held-out score" in printed[0]
    )
    assert all(line.endswith(" s left") for line in printed[1:])
    said = float(printed[1].split("held-out score ")[1].split(";")[0])
    assert said == pytest.approx(est.scores_[0].max(), abs=6e-5)


def test_the_surface_is_drawn(plain: KernelSoSDensityCV) -> None:
    figure = pytest.importorskip("matplotlib.figure").Figure()
    display = ksos.CrossValidationDisplay.from_estimator(plain, ax=figure.add_subplot())
    assert display.shares is not None and display.chosen is not None
    assert 0.0 <= float(np.sum(display.shares)) <= 1.0
    assert "kernel density estimate" in display.ax_.get_xlabel() and display.ax_.get_ylabel() == "λ, in units of ∫k²dρ"


def test_a_hundred_samples_take_a_second_or_two() -> None:
    began = time.process_time()
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        KernelSoSDensityCV().fit(tied(100))
    assert time.process_time() - began < 5.0


def test_a_lone_row_gets_no_spike() -> None:
    """A row far from the others, twice in the data, whose held-out copy is never there without it: an outlier is not the mode."""
    rng = np.random.default_rng(4)
    bulk = np.round(rng.normal([20.0, 100.0], [5.0, 30.0], size=(300, 2)))  # ties, which make narrow components worth while
    X = np.vstack([bulk, [[3.0, 30.0], [3.0, 30.0]]])
    p = ksos.KernelSoSDensityCV().fit(X).distribution_
    beside, at = p.logpdf([[3.2, 31.0], [3.0, 30.0]])
    assert at - beside < 1.0
    assert at < np.median(p.logpdf(bulk))


@pytest.mark.parametrize("seed", range(3))
def test_no_row_that_was_fitted_towers_over_those_that_were_not(seed: int) -> None:
    """The highest log-density among the samples is that of other samples of the same law, but for chance."""
    rng = np.random.default_rng(seed)
    X = np.exp(rng.normal(size=(400, 3)) @ np.array([[1.0, 0.5, 0.0], [0.0, 0.6, 0.3], [0.0, 0.0, 0.5]]))
    p = ksos.KernelSoSDensityCV().fit(X[:100]).distribution_
    assert p.logpdf(X[:100]).max() < p.logpdf(X[100:]).max() + 1.0


@pytest.mark.parametrize(("rows", "narrow"), [(1, False), (2, False), (3, True)])
def test_what_three_rows_share_is_a_value_and_what_two_share_is_chance(rows: int, narrow: bool) -> None:
    """A component of few rows is wide in every feature, but in one whose value all of them have, if they are three or more."""
    rng = np.random.default_rng(5)
    far = 12.0 + rng.normal(size=(rows, 4)) * [0.2, 0.2, 0.2, 0.0]
    X = np.vstack([rng.normal(size=(60, 4)), far])
    weights = np.full(X.shape[0], 1.0 / X.shape[0])
    mixtures = MixtureStack(X, weights, random_folds(weights, 5, np.random.default_rng(0)), np.zeros(4, dtype=bool), SIZES[:2])
    for _ in mixtures.fit(Deadline()):
        pass
    j = next(j for j, label in enumerate(mixtures.labels) if label[:2] == (2, mixtures.smallest_floor) and not label.tied)
    variances = np.diag(mixtures.fits[j].covariances[-1, np.argmax(mixtures.fits[j].means[-1, :, 3])])
    assert (variances[:3] >= max(FLOORS)).all()
    assert (variances[3] < 1e-5) == narrow
