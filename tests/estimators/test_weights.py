"""sample_weight is exact: only proportions count, a weight can be split among copies, and nothing
but the weights decides.
"""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings, strategies as st
from tables import points

import ksos
from ksos import KernelSoSDensity
from ksos.estimators import OBJECTIVES

X = points(24, 2, 11)
FIXED: dict[str, Any] = {"bandwidth": 1.2, "regularization": 1e-3, "tol": 1e-9}

every_objective = pytest.mark.parametrize("objective", OBJECTIVES)


def fit(data: np.ndarray, weights: Any = None, **options: Any) -> KernelSoSDensity:
    return KernelSoSDensity(**{**FIXED, **options}).fit(data, sample_weight=weights)


@every_objective
def test_a_weight_may_be_split_among_copies(objective: str) -> None:
    weights = np.random.default_rng(0).uniform(0.1, 1.0, 24)
    shares = np.random.default_rng(1).uniform(0.0, 1.0, 24)
    whole = fit(X, weights, objective=objective)
    split = fit(
        np.concatenate([X, X]),
        np.concatenate([weights * shares, weights * (1.0 - shares)]),
        objective=objective,
    )
    np.testing.assert_allclose(split.score_samples(X), whole.score_samples(X), atol=1e-6)


@every_objective
def test_only_proportions_count(objective: str) -> None:
    weights = np.random.default_rng(2).integers(1, 5, 24).astype(float)
    plain = fit(X, weights, objective=objective)
    for unit in (0.125, 4.0, 1e-200, 1e200):
        np.testing.assert_allclose(
            fit(X, unit * weights, objective=objective).score_samples(X),
            plain.score_samples(X),
            atol=1e-6,
        )


@every_objective
def test_zero_weight_is_absence_even_for_outliers(objective: str) -> None:
    far = np.concatenate([X, [[1e9, -1e9]]])
    without, with_zero = (
        fit(X, objective=objective),
        fit(far, np.r_[np.ones(24), 0.0], objective=objective),
    )
    np.testing.assert_allclose(with_zero.score_samples(X), without.score_samples(X), atol=1e-9)


def test_the_fit_is_the_one_of_the_weighted_embedding() -> None:
    """The estimator's objective, from its definition: the exact embedding of the weighted samples
    and the penalty.
    """
    weights = np.random.default_rng(3).uniform(0.0, 1.0, 24)
    est = fit(X, weights, n_support=None, landmarks=X)
    p = est.distribution_
    target = ksos.MeanEmbedding(X, weights / weights.sum(), kernel=p.kernel)
    distance = ksos.mmd(target, p, landmarks=est.landmarks_) ** 2
    penalty = np.trace(p.factor.T @ p.kernel(p.support_points) @ p.factor)
    assert est.solution_.objective == pytest.approx(distance + 1e-3 * penalty, abs=1e-9)
    other = ksos.MeanEmbedding(X, kernel=p.kernel)
    assert ksos.mmd(other, p, landmarks=est.landmarks_) ** 2 > distance


def test_importance_weights_change_the_law() -> None:
    """Samples of N(0, 1) weighed by a ratio of densities are samples of N(0.8, 0.8²)."""
    x = np.random.default_rng(4).normal(size=(600, 1))
    ratio = np.exp(-0.5 * ((x[:, 0] - 0.8) / 0.8) ** 2 + 0.5 * x[:, 0] ** 2)
    p = (
        KernelSoSDensity(bandwidth=1.2, regularization=1e-4)
        .fit(x, sample_weight=ratio)
        .distribution_
    )
    assert p.mean()[0] == pytest.approx(0.8, abs=0.12)
    assert KernelSoSDensity(bandwidth=1.2, regularization=1e-4).fit(x).distribution_.mean()[
        0
    ] == pytest.approx(0.0, abs=0.12)


@settings(max_examples=15, deadline=None)
@given(st.lists(st.integers(0, 3), min_size=8, max_size=8).filter(any))
def test_whole_numbers_are_repetitions(counts: list[int]) -> None:
    data = X[:8]
    weighted, repeated = fit(data, np.array(counts)), fit(np.repeat(data, counts, axis=0))
    np.testing.assert_allclose(
        weighted.score_samples(data), repeated.score_samples(data), atol=1e-7
    )
