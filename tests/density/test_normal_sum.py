"""Sums of normal laws with a common covariance."""

from __future__ import annotations

import numpy as np
import pytest

from ksos.density import Group


def group_of(d: int, spread: float, seed: int = 0, n: int = 3000) -> Group:
    rng = np.random.default_rng(seed)
    A = rng.standard_normal((d, d + 1))
    weights = rng.standard_normal(n) / n
    weights[: n // 10] *= 1e-40  # far below the rounding of the sum
    means = 5.0 + spread * rng.standard_normal((n, d)) @ A[:, :d]
    return Group(weights, means, A @ A.T)


@pytest.mark.parametrize(("d", "spread"), [(1, 0.3), (2, 30.0)])
def test_a_group_loses_only_what_is_nothing(d: int, spread: float) -> None:
    group = group_of(d, spread)
    small = group.seen()
    kept = np.abs(group.weights) > 1e-30
    np.testing.assert_array_equal(small.weights, group.weights[kept])
    np.testing.assert_array_equal(small.means, group.means[kept])
    assert small.seen() is small
