"""Merging the components of a Gaussian mixture: what is kept, and what it costs."""

from __future__ import annotations

import numpy as np
import pytest

from ksos.measures import GaussianMixture, merged_cells


def merged(p: GaussianMixture, bound: float, untouched: int = 0) -> GaussianMixture:
    parts = p.weights, p.means, p.covariances, np.zeros((p.weights.size, 0))
    return GaussianMixture(*merged_cells(*parts, bound, untouched)[:3])


def mixture_of(n: int, d: int, seed: int, spread: float = 1.0) -> GaussianMixture:
    rng = np.random.default_rng(seed)
    A = rng.standard_normal((n, d, d + 2))
    means = spread * rng.standard_normal((n, d))
    return GaussianMixture(rng.uniform(0.2, 1.0, n), means, A @ A.transpose(0, 2, 1) / d)


def mean_and_covariance(p: GaussianMixture) -> tuple[np.ndarray, np.ndarray]:
    mean = p.weights @ p.means
    away = p.means - mean
    within = np.einsum("c,cij->ij", p.weights, p.covariances)
    return mean, within + (p.weights[:, None] * away).T @ away


Component = tuple[float, np.ndarray, np.ndarray]


def greedy(p: GaussianMixture, total_bound: float) -> list[Component]:
    """The definition, pair by pair."""
    parts, spent = list(zip(p.weights, p.means, p.covariances, strict=True)), 0.0
    while len(parts) > 1:
        found = []
        for i in range(len(parts)):
            for j in range(i + 1, len(parts)):
                (a, m, S), (b, n, T) = parts[i], parts[j]
                mean = (a * m + b * n) / (a + b)
                covariance = (a * S + b * T) / (a + b)
                covariance += a * b / (a + b) ** 2 * np.outer(m - n, m - n)
                log_dets = [np.linalg.slogdet(V)[1] for V in (covariance, S, T)]
                cost = 0.5 * ((a + b) * log_dets[0] - a * log_dets[1] - b * log_dets[2])
                found.append((cost, i, j, (a + b, mean, covariance)))
        cost, i, j, new = min(found, key=lambda one: one[0])
        if spent + cost >= total_bound:
            break
        spent += cost
        parts = [part for k, part in enumerate(parts) if k not in (i, j)] + [new]
    return parts


@pytest.mark.parametrize(
    ("n", "d", "bound"), [(12, 1, 0.05), (15, 2, 0.2), (14, 3, 1.0), (10, 4, 100.0)]
)
def test_the_result_is_that_of_the_greedy_definition(n: int, d: int, bound: float) -> None:
    p = mixture_of(n, d, n + d)
    expected, found = greedy(p, bound), merged(p, bound)
    assert found.weights.shape[0] == len(expected) < n
    order = np.argsort([mean[0] for _, mean, _ in expected])
    mine = np.argsort(found.means[:, 0])
    for a, b in zip(order, mine, strict=True):
        one = found.weights[b], found.means[b], found.covariances[b]
        for ours, theirs in zip(one, expected[a], strict=True):
            np.testing.assert_allclose(ours, theirs, rtol=1e-10, atol=1e-12)


@pytest.mark.parametrize("d", [1, 2, 7])
def test_mean_and_covariance_are_kept(d: int) -> None:
    p = mixture_of(80, d, d)
    found = merged(p, 0.5)
    assert found.weights.shape[0] < 80
    for ours, theirs in zip(mean_and_covariance(found), mean_and_covariance(p), strict=True):
        np.testing.assert_allclose(ours, theirs, rtol=1e-12, atol=1e-12)


def test_without_a_bound_only_identical_components_are_merged() -> None:
    p = mixture_of(6, 2, 0)
    parts = p.weights, p.means, p.covariances
    twice = GaussianMixture(*(np.concatenate([part, part]) for part in parts))
    found = merged(twice, 0.0)
    np.testing.assert_allclose(found.weights, p.weights, rtol=1e-14)
    np.testing.assert_array_equal(found.means, p.means)
    np.testing.assert_array_equal(found.covariances, p.covariances)


@pytest.mark.parametrize("bound", [0.01, 0.1])
def test_the_divergence_is_at_most_the_bound(bound: float) -> None:
    p = mixture_of(120, 3, 5)
    found, rng = merged(p, bound), np.random.default_rng(0)
    assert found.weights.shape[0] < 120
    which = rng.choice(120, 100_000, p=p.weights)
    roots, noise = np.linalg.cholesky(p.covariances)[which], rng.standard_normal((100_000, 3))
    X = p.means[which] + np.einsum("nij,nj->ni", roots, noise)
    ratio = p.log_density(X) - found.log_density(X)
    error = 4.0 * ratio.std() / np.sqrt(ratio.size)
    assert -error <= ratio.mean() <= bound + error


def test_the_first_components_may_stay() -> None:
    wide = GaussianMixture([1e-9, 0.5, 0.5], [[0.0], [0.0], [0.01]], [[1e6], [1.0], [1.0]])
    found = merged(wide, 0.01, untouched=1)
    assert found.weights.shape == (2,)
    np.testing.assert_allclose(found.covariances[0], wide.covariances[0])
    assert found.log_density(np.array([[500.0]]))[0] > -35.0
