"""Sums of normal laws with a common covariance: fewer of them on a grid, the same integrals."""

from __future__ import annotations

import numpy as np
import pytest

from ksos.density import Group
from ksos.integrals import mixture_box_masses


def group_of(d: int, spread: float, seed: int = 0, n: int = 3000) -> Group:
    rng = np.random.default_rng(seed)
    A = rng.standard_normal((d, d + 1))
    weights = rng.standard_normal(n) / n
    weights[: n // 10] *= 1e-40  # far below the rounding of the sum
    means = 5.0 + spread * rng.standard_normal((n, d)) @ A[:, :d]
    return Group(weights, means, A @ A.T)


def moments(group: Group) -> tuple[np.ndarray, np.ndarray]:
    shares = group.weights / group.weights.sum()
    mean = shares @ group.means
    away = group.means - mean
    return mean, (shares[:, None] * away).T @ away + group.covariance


@pytest.mark.parametrize(("d", "spread"), [(1, 0.3), (1, 3.0), (2, 0.1), (2, 0.5)])
def test_a_collapsed_group_has_the_same_masses_and_moments(d: int, spread: float) -> None:
    group = group_of(d, spread)
    small = group.collapsed()
    assert small.weights.size < group.weights.size / 4
    rng, size = np.random.default_rng(1), np.abs(group.weights).sum()
    low = 5.0 + 2.0 * rng.standard_normal((20, d))
    high = low + 4.0 * rng.random((20, d))
    low[0], high[1] = -np.inf, np.inf
    ours, theirs = (mixture_box_masses(*one, low, high)[0] for one in (small, group))
    np.testing.assert_allclose(ours, theirs, rtol=0.0, atol=3e-15 * size)
    found = [moments(one) for one in (small, group)]
    for ours, theirs in zip(*found, strict=True):
        np.testing.assert_allclose(ours, theirs, rtol=1e-10)


def test_a_group_of_few_or_distant_means_loses_only_what_is_nothing() -> None:
    group = group_of(2, 30.0)
    small = group.collapsed()
    kept = np.abs(group.weights) > 1e-30
    np.testing.assert_array_equal(small.weights, group.weights[kept])
    np.testing.assert_array_equal(small.means, group.means[kept])
