"""The metric of correlated features: the rule, against brute force, and in the estimator."""

from __future__ import annotations

import numpy as np
import pytest

from ksos import KernelSoSDensity
from ksos.kernels import Gaussian
from ksos.measures import Box, Discrete, Lebesgue, Normal
from ksos.space import leave_one_out, normal_score_correlations

RNG = np.random.default_rng(4)
MIXING = np.array([[1.0, 0.9, 0.2], [0.0, 0.2, -0.5], [0.0, 0.0, 0.1]])
CORRELATED = RNG.normal(size=(150, 3)) @ MIXING
EQUAL = np.full(150, 1.0 / 150)
FREE = np.random.default_rng(5).normal(size=(150, 3)) * [1.0, 10.0, 0.1]


def metric(X: np.ndarray, weights: np.ndarray | None = None) -> np.ndarray:
    return leave_one_out(
        X,
        np.full(len(X), 1.0 / len(X)) if weights is None else weights,
        Gaussian(1.0),
        Lebesgue(),
        metrics=True,
    )


def predicted(X: np.ndarray, kernel: Gaussian) -> float:
    """The mean log-density of each sample under normal components of covariance S/4
    around the others.
    """
    S = kernel.matrix(X.shape[1]) / 4.0
    P, log_norm = np.linalg.inv(S), 0.5 * np.linalg.slogdet(2.0 * np.pi * S)[1]
    values = [
        np.log(
            np.mean(
                [np.exp(-0.5 * (x - y) @ P @ (x - y) - log_norm) for j, y in enumerate(X) if j != i]
            )
        )
        for i, x in enumerate(X)
    ]
    return float(np.mean(values))


def test_a_metric_predicts_correlated_samples_better() -> None:
    S = metric(CORRELATED[:60])
    assert S.shape == (3, 3)
    plain = leave_one_out(CORRELATED[:60], np.full(60, 1 / 60), Gaussian(1.0), Lebesgue())
    factor = 1.0 + 0.25  # of 60 samples
    assert (
        predicted(CORRELATED[:60], Gaussian(S / factor**2))
        > predicted(CORRELATED[:60], Gaussian(plain / factor)) + 0.3
    )


def test_free_features_keep_their_bandwidths() -> None:
    np.testing.assert_allclose(
        metric(FREE),
        leave_one_out(FREE, EQUAL, Gaussian(1.0), Lebesgue()),
        rtol=1e-12,
    )


@pytest.mark.parametrize("X", [CORRELATED, FREE], ids=["correlated", "free"])
def test_units_and_shifts(X: np.ndarray) -> None:
    units, shift = np.array([2.0, 1e-6, 3e5]), np.array([0.0, 4e-6, -1e6])
    scaled = Gaussian(metric(X * units + shift)).matrix(3)
    np.testing.assert_allclose(
        scaled / np.outer(units, units), Gaussian(metric(X)).matrix(3), rtol=1e-6
    )


def test_weights_count_as_repetitions() -> None:
    counts = np.random.default_rng(0).integers(1, 4, 150)
    weighted, repeated = (
        KernelSoSDensity(tol=1e-2).fit(CORRELATED, sample_weight=counts),
        KernelSoSDensity(tol=1e-2).fit(np.repeat(CORRELATED, counts, axis=0)),
    )
    np.testing.assert_allclose(weighted.bandwidth_, repeated.bandwidth_, rtol=1e-12)
    scores = normal_score_correlations(CORRELATED, counts / counts.sum())
    assert np.linalg.eigvalsh(scores)[0] > 0.0 and np.allclose(np.diagonal(scores), 1.0)


def test_far_samples_do_not_turn_it() -> None:
    far = np.r_[CORRELATED, 1e3 * np.array([[1.0, -1.0, 1.0], [-2.0, 2.0, 2.0]])]
    clean, dirty = (
        np.linalg.inv(np.linalg.cholesky(Gaussian(metric(X)).matrix(3))) for X in (CORRELATED, far)
    )
    between = np.linalg.svd(dirty @ np.linalg.inv(clean), compute_uv=False)
    assert between.max() < 2.0 and between.min() > 0.5


def test_collinear_features_have_some_width() -> None:
    X = np.c_[CORRELATED, CORRELATED @ [1.0, 2.0, -1.0]]
    est = KernelSoSDensity(tol=1e-3).fit(X)
    assert est.bandwidth_.shape == (4, 4) and np.isfinite(est.score(X))


@pytest.mark.parametrize(
    "options",
    [
        {"kernel": "laplace"},
        {"measure": Box([-9.0] * 3, [9.0] * 3)},
        {"measure": Discrete(CORRELATED)},
    ],
    ids=str,
)
def test_where_integrals_know_no_metric_there_is_a_bandwidth_per_feature(
    options: dict[str, object],
) -> None:
    assert KernelSoSDensity(tol=1e-1, **options).fit(CORRELATED[:40]).bandwidth_.shape == (3,)


def test_on_a_normal_distribution_there_is_one() -> None:
    assert KernelSoSDensity(tol=1e-2, measure=Normal([0.0] * 3, [2.0] * 3)).fit(
        CORRELATED
    ).bandwidth_.shape == (3, 3)


@pytest.mark.parametrize(
    "X",
    [CORRELATED[:4], np.c_[CORRELATED, np.ones(150)]],
    ids=["few samples", "a constant feature"],
)
def test_no_metric_without_spread(X: np.ndarray) -> None:
    assert metric(X).shape == (X.shape[1],)


def test_a_metric_may_be_given() -> None:
    S = metric(CORRELATED)
    chosen = KernelSoSDensity(tol=1e-5).fit(CORRELATED)
    same = {"embedding_bandwidth": chosen.embedding_bandwidth_, "relative_regularization": 3e-3}
    given = KernelSoSDensity(bandwidth=S, tol=1e-5, **same).fit(CORRELATED)
    np.testing.assert_allclose(
        given.score_samples(CORRELATED), chosen.score_samples(CORRELATED), atol=1e-6
    )
    np.testing.assert_array_equal(
        KernelSoSDensity(bandwidth=S, embedding_bandwidth=2.0 * S, tol=1e-2)
        .fit(CORRELATED)
        .embedding_bandwidth_,
        2.0 * S,
    )
    with pytest.raises(
        ValueError, match="bandwidth is a matrix for 3 features, but the samples have 2"
    ):
        KernelSoSDensity(bandwidth=S).fit(CORRELATED[:, :2])
