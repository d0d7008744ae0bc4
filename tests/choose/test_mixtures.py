"""Gaussian mixtures of many weightings at once: the laws of expectation–maximization, scikit-learn
beside it, and hard data.
"""

from __future__ import annotations

import time
import warnings

import numpy as np
import pytest
from scipy.special import logsumexp
from scipy.stats import multivariate_normal
from sklearn.datasets import load_iris, make_moons
from sklearn.exceptions import ConvergenceWarning
from sklearn.mixture import GaussianMixture

from ksos.choose import MOST_FULL, Mixtures, Samples, mixture_path, seeds

MOONS = make_moons(300, noise=0.1, random_state=1)[0]
IRIS = load_iris().data
FLOORS = (3e-2, 3e-3, 1e-6)


def standardized(X: np.ndarray) -> np.ndarray:
    return np.asarray((X - X.mean(axis=0)) / X.std(axis=0))


def fits(
    X: np.ndarray, masses: np.ndarray, size: int, floors: tuple[float, ...] = FLOORS
) -> list[Mixtures]:
    centers = seeds(X, masses, size)
    return list(
        mixture_path(
            Samples.of(X),
            masses,
            centers,
            [np.full(X.shape[1], floor) for floor in floors],
        )
    )


def uniform(X: np.ndarray) -> np.ndarray:
    return np.full((1, X.shape[0]), 1.0 / X.shape[0])


@pytest.mark.parametrize("d", [1, 3, MOST_FULL + 1])
def test_log_densities_are_those_of_the_mixture(d: int) -> None:
    X = np.random.default_rng(d).normal(size=(60, d))
    (mixture,) = fits(X, uniform(X), 3, (3e-2,))
    parts = [
        np.log(share) + multivariate_normal(mean, covariance).logpdf(X)
        for share, mean, covariance in zip(
            mixture.shares[0], mixture.means[0], mixture.covariances[0], strict=True
        )
    ]
    np.testing.assert_allclose(
        mixture.log_densities(Samples.of(X))[0], logsumexp(parts, axis=0), rtol=1e-9, atol=1e-9
    )
    assert mixture.shares.sum() == pytest.approx(1.0)


@pytest.mark.parametrize("size", [2, 5, 12])
def test_the_likelihood_never_decreases(size: int) -> None:
    X = standardized(MOONS)
    values = [
        mixture.log_densities(Samples.of(X))[0].mean()
        for mixture in fits(X, uniform(X), size, (1e-9,) * 8)
    ]
    assert np.all(np.diff(values) > -1e-7) and values[-1] > values[0] - 1e-7


def test_one_component_is_the_normal_law_of_the_samples() -> None:
    X = standardized(IRIS)
    for floor, mixture in zip(FLOORS, fits(X, uniform(X), 1), strict=True):
        np.testing.assert_allclose(mixture.means[0, 0], X.mean(axis=0), atol=1e-12)
        np.testing.assert_allclose(
            mixture.covariances[0, 0], np.cov(X.T, bias=True) + floor * np.eye(4), atol=1e-12
        )


def test_components_may_share_one_covariance() -> None:
    """Against linear discriminant analysis: three clusters far apart, so that responsibilities are
    certain.
    """
    rng = np.random.default_rng(0)
    shape = np.array([[1.0, 0.6], [0.6, 0.5]])
    labels = np.repeat([0, 1, 2], [40, 60, 50])
    X = 30.0 * rng.normal(size=(3, 2))[labels] + rng.multivariate_normal([0.0, 0.0], shape, 150)
    (found,) = mixture_path(
        Samples.of(X), uniform(X), seeds(X, uniform(X), 3), [np.zeros(2)], shared=True
    )
    within = sum(
        (X[labels == k] - X[labels == k].mean(axis=0)).T
        @ (X[labels == k] - X[labels == k].mean(axis=0))
        for k in range(3)
    )
    np.testing.assert_allclose(
        found.covariances[0], np.broadcast_to(within / 150, (3, 2, 2)), atol=1e-6
    )


@pytest.mark.parametrize("size", [1, 3, 8])
def test_weights_are_repetitions(size: int) -> None:
    X = standardized(IRIS)[::2]
    counts = np.random.default_rng(0).integers(1, 4, len(X))
    repeated = np.repeat(X, counts, axis=0)
    ours, theirs = (
        fits(X, counts[None] / counts.sum(), size),
        fits(repeated, uniform(repeated), size),
    )
    for a, b in zip(ours, theirs, strict=True):
        np.testing.assert_allclose(
            a.log_densities(Samples.of(X)), b.log_densities(Samples.of(X)), atol=1e-7
        )


@pytest.mark.parametrize("size", [1, 3, 8])
def test_a_sample_of_mass_zero_is_not_there(size: int) -> None:
    """Of several weightings side by side, each is the fit to its own samples alone."""
    X = standardized(MOONS)
    out = np.arange(len(X)) % 5 == 2
    masses = np.stack([np.where(out, 0.0, 1.0), np.ones(len(X)), np.where(out, 2.0, 1.0)])
    together = fits(X, masses / masses.sum(axis=1, keepdims=True), size)
    for floor, mixture in zip(FLOORS, together, strict=True):
        alone = fits(X[~out], uniform(X[~out]), size, FLOORS[: FLOORS.index(floor) + 1])[-1]
        np.testing.assert_allclose(
            mixture.log_densities(Samples.of(X))[0],
            alone.log_densities(Samples.of(X))[0],
            atol=1e-7,
        )


def test_as_likely_as_scikit_learn_and_far_quicker() -> None:
    ours, theirs, our_time, their_time = [], [], 0.0, 0.0
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", ConvergenceWarning)
        for X in (
            standardized(MOONS),
            standardized(IRIS),
            np.random.default_rng(0).standard_t(5, size=(300, 5)),
        ):
            masses = np.repeat(uniform(X), 6, axis=0)  # five folds and all samples
            for size in (2, 5, 12, 20):
                began = time.process_time()
                found = fits(X, masses, size)
                our_time += time.process_time() - began
                for floor, mixture in zip(FLOORS, found, strict=True):
                    ours.append(mixture.log_densities(Samples.of(X))[-1].mean())
                    began = time.process_time()
                    model = GaussianMixture(size, reg_covar=floor, random_state=0).fit(X)
                    their_time += 6.0 * (time.process_time() - began)
                    theirs.append(model.score(X))
    assert np.mean(ours) > np.mean(theirs) - 0.02
    assert 5.0 * our_time < their_time


HARD = {
    "one point": np.zeros((1, 2)),
    "two points": np.array([[0.0, 1.0], [1.0, 0.0]]),
    "all equal": np.ones((9, 2)),
    "collinear": np.arange(20.0)[:, None] * [0.1, -0.2, 0.3],
    "n < d": np.random.default_rng(0).normal(size=(4, 9)),
    "constant column": np.c_[np.random.default_rng(0).normal(size=20), np.zeros(20)],
    "an outlier": np.r_[np.random.default_rng(0).normal(size=(20, 2)), [[1e3, -1e3]]],
    "ties": np.random.default_rng(0).integers(0, 3, (40, 2)).astype(float),
}


@pytest.mark.parametrize("name", HARD)
def test_hard_data_have_mixtures(name: str) -> None:
    X = HARD[name]
    for size in (1, 2, 8):
        for floor, mixture in zip(FLOORS, fits(X, uniform(X), size), strict=True):
            assert np.all(np.isfinite(mixture.log_densities(Samples.of(X)))), (size, floor)
            assert np.linalg.eigvalsh(mixture.covariances).min() > 0.5 * floor
            assert mixture.shares.sum() == pytest.approx(1.0)


def test_seeds_are_nested_and_spread() -> None:
    X = np.r_[MOONS, [[50.0, 50.0]]]
    rows = seeds(X, uniform(X), 20)
    np.testing.assert_array_equal(seeds(X, uniform(X), 7), rows[:, :7])
    assert len(set(rows[0].tolist())) == 20 and 300 in rows, "a far sample is a center"
    assert not np.array_equal(seeds(X, uniform(X), 20, start=1), rows)


def test_places_are_the_samples_of_a_component_whatever_their_masses() -> None:
    """Three clusters far apart, of one, two and five samples: a sample of a large mass counts once,
    one of mass zero not at all.
    """
    rng = np.random.default_rng(3)
    X = np.repeat([[-30.0, 0.0], [0.0, 0.0], [0.0, 30.0]], [1, 2, 5], axis=0) + 0.1 * rng.normal(
        size=(8, 2)
    )
    masses = np.full((2, 8), 1.0 / 8)
    masses[1] = np.array([9.0, 1.0, 1.0, 1.0, 1.0, 1.0, 0.0, 0.0]) / 14.0
    mixtures = Mixtures(
        np.full((2, 3), 1.0 / 3),
        np.repeat(X[None, [0, 1, 3]], 2, axis=0),
        np.tile(np.eye(2), (2, 3, 1, 1)),
    )
    np.testing.assert_allclose(
        mixtures.places(Samples.of(X), masses), [[1.0, 2.0, 5.0], [1.0, 2.0, 3.0]], rtol=1e-9
    )
