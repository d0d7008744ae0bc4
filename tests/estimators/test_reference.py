"""A fit with a reference: λ → ∞ gives the reference, samples and their weights decide the rest, and
degenerate data get a density.
"""

from __future__ import annotations

import warnings
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from sklearn.mixture import GaussianMixture as SklearnMixture
from tables import points

import ksos
from ksos import KernelSoSDensity
from ksos.measures import Box, GaussianMixture, Normal

NAMES = ("normal", "mixture")
OBJECTIVES = ("squared_mmd", "mmd", "likelihood")


def skewed(n: int, seed: int) -> np.ndarray:
    """Features that are tied and skewed: no normal law."""
    x = np.random.default_rng(seed).gamma(2.0, size=(n, 2))
    return np.stack([x[:, 0], 0.5 * x[:, 0] + 0.3 * x[:, 1]], axis=1)


X = skewed(40, 0)


def fit(data: np.ndarray, weights: Any = None, **options: Any) -> KernelSoSDensity:
    return KernelSoSDensity(**{"reference": "normal", "n_support": 30, **options}).fit(
        data, sample_weight=weights
    )


@pytest.mark.parametrize(
    ("name", "objective"),
    [*(("normal", objective) for objective in OBJECTIVES), ("mixture", "squared_mmd")],
)
def test_the_strongest_penalty_leaves_the_reference(name: str, objective: str) -> None:
    est = fit(X, reference=name, objective=objective, relative_regularization=1e10)
    reference = est.solution_.space.measure
    np.testing.assert_allclose(est.score_samples(X), reference.log_density(X), atol=1e-8)
    assert est.relative_regularization_ == 1e10
    assert est.regularization_ == pytest.approx(1e10)  # a probability measure has the unit 1


@pytest.mark.parametrize("seed", range(8))
def test_the_strongest_penalty_is_solved(seed: int) -> None:
    """A strong penalty hides in its rounding, during a run, that the optimum has been reached."""
    solution = fit(skewed(40, seed), objective="mmd", relative_regularization=1e9).solution_
    assert solution.status == "solved" and solution.gap < 1e-9


def test_the_normal_reference_has_the_moments_of_the_samples() -> None:
    weights = np.random.default_rng(1).uniform(0.1, 1.0, 40)
    reference = fit(X, weights, reference="normal").solution_.space.measure
    share = weights / weights.sum()
    mean = share @ X
    np.testing.assert_allclose(reference.mean, mean, rtol=1e-12)
    np.testing.assert_allclose(
        reference.scale, (share[:, None] * (X - mean)).T @ (X - mean), rtol=1e-10
    )


@pytest.mark.parametrize("objective", ("squared_mmd", "likelihood"))
def test_the_squares_correct_what_the_normal_law_misses(objective: str) -> None:
    train, test = skewed(300, 2), skewed(2000, 3)
    est = fit(train, objective=objective)
    gain = est.score_samples(test) - est.solution_.space.measure.log_density(test)
    assert est.solution_.status == "solved"
    assert gain.mean() > 0.1
    np.testing.assert_allclose(gain, est.solution_.distribution.logpdf(test), atol=1e-9)


@pytest.mark.parametrize("name", NAMES)
@pytest.mark.parametrize("objective", ("squared_mmd", "likelihood"))
def test_units_do_not_matter(name: str, objective: str) -> None:
    scale, shift = np.array([1e-3, 250.0]), np.array([5.0, -70.0])
    plain, moved = (
        fit(data, reference=name, objective=objective, tol=1e-9) for data in (X, X * scale + shift)
    )
    np.testing.assert_allclose(
        moved.score_samples(X * scale + shift) + np.log(scale).sum(),
        plain.score_samples(X),
        atol=1e-4,
    )


@pytest.mark.parametrize("name", NAMES)
@pytest.mark.parametrize("objective", ("squared_mmd", "likelihood"))
def test_whole_numbers_are_repetitions(name: str, objective: str) -> None:
    counts = np.random.default_rng(4).integers(0, 4, 40)
    weighted, repeated = (
        fit(X, counts, reference=name, objective=objective),
        fit(np.repeat(X, counts, axis=0), reference=name, objective=objective),
    )
    np.testing.assert_allclose(weighted.score_samples(X), repeated.score_samples(X), atol=1e-7)


@pytest.mark.parametrize("covariance_type", ("full", "tied", "diag", "spherical"))
def test_a_fitted_mixture_of_scikit_learn_is_a_reference(covariance_type: str) -> None:
    mixture = SklearnMixture(2, covariance_type=covariance_type, random_state=0).fit(X)
    est = fit(X, reference=mixture, relative_regularization=1e13)
    np.testing.assert_allclose(est.score_samples(X), mixture.score_samples(X), atol=1e-9)
    same = fit(X, reference=GaussianMixture.from_sklearn(mixture), relative_regularization=1e13)
    np.testing.assert_array_equal(same.score_samples(X), est.score_samples(X))


def test_a_measure_is_taken_as_it_is() -> None:
    est = fit(X, reference=Normal(2.0, 3.0))
    assert est.solution_.space.measure == Normal([2.0, 2.0], [3.0, 3.0])


DEGENERATE = {
    "one sample": np.ones((1, 2)),
    "two samples": np.array([[0.0, 1.0], [1.0, 1.5]]),
    "ties": np.round(points(40, 2, 5)),
    "a constant column": np.c_[points(30, 1, 6), np.ones(30)],
    "collinear columns": points(30, 1, 7) @ np.array([[1.0, 2.0]]) + 3.0,
    "fewer samples than features": points(4, 7, 8),
    "a far outlier": np.concatenate([points(40, 2, 9), [[1e6, 0.0]]]),
}


@pytest.mark.parametrize("case", DEGENERATE)
@pytest.mark.parametrize("name", NAMES)
def test_degenerate_data_get_a_density(name: str, case: str) -> None:
    data = DEGENERATE[case]
    with warnings.catch_warnings(record=True) as said:
        warnings.simplefilter("always")
        est = fit(data, reference=name)
    assert np.all(np.isfinite(est.score_samples(data)))
    assert est.solution_.distribution.terms.mass() == pytest.approx(1.0, abs=1e-9)
    decided = case in ("one sample", "a constant column") or (
        name == "normal" and case in ("collinear columns", "fewer samples than features")
    )
    assert (
        bool([w for w in said if "reference=" in str(w.message) or "no spread" in str(w.message)])
        >= decided
    )


def test_what_is_refused() -> None:
    with pytest.raises(ValueError, match="are both the measure of the density; give one of them"):
        fit(X, measure=Box([-9.0, -9.0], [9.0, 9.0]))
    with pytest.raises(
        ValueError, match=r'reference must be "normal", "mixture", .*; got .gaussian.'
    ):
        fit(X, reference="gaussian")
    with pytest.raises(TypeError, match=r"reference must be .*; got 3"):
        fit(X, reference=3)
    with pytest.raises(ValueError, match="3 features, but the points have 2"):
        fit(X, reference=Normal(np.zeros(3), 1.0))
    with pytest.raises(ValueError, match="not fitted"):
        fit(X, reference=SklearnMixture(2))


def test_the_distribution_answers_in_the_coordinates_of_the_data(tmp_path: Path) -> None:
    est = fit(X, objective="likelihood")
    p = est.distribution_
    draws = est.sample(4000, random_state=0)
    np.testing.assert_allclose(
        p.mean(), draws.mean(axis=0), atol=5.0 * np.sqrt(np.diagonal(p.cov()) / 4000).max()
    )
    inside = np.mean(np.all((draws >= [0.0, 0.0]) & (draws <= [2.0, 1.5]), axis=1))
    assert p.probability([0.0, 0.0], [2.0, 1.5]) == pytest.approx(inside, abs=0.04)
    x, w = np.polynomial.legendre.leggauss(200)
    line = np.stack([np.full(200, 1.5), 6.0 * x], axis=1)
    assert p.marginal([0]).pdf([[1.5]])[0] == pytest.approx(
        6.0 * w @ np.exp(est.score_samples(line)), rel=1e-6
    )
    p.save(tmp_path / "p.ksos")
    np.testing.assert_allclose(
        ksos.load(tmp_path / "p.ksos").logpdf(X), est.score_samples(X), rtol=1e-12
    )
