"""Cost follows the rank: pivoted support points stop at their tolerance and lose little."""

from __future__ import annotations

import numpy as np
import pytest
from sklearn.datasets import make_moons

import ksos


def moons(n: int) -> np.ndarray:
    return np.asarray(make_moons(n, noise=0.1, random_state=0)[0])


def fitted(X: np.ndarray, sigma: float, **options: object) -> ksos.KernelSoSDensity:
    return ksos.KernelSoSDensity(bandwidth=sigma, regularization="auto", **options).fit(X)


@pytest.mark.parametrize("sigma", [0.5, 1.0, 2.0])
def test_pivoted_support_is_within_a_percent_of_all_points(sigma: float) -> None:
    X = moons(300)
    pivoted, everything = (
        fitted(X, sigma, n_support=300, landmarks=X),
        fitted(X, sigma, support=X, landmarks=X),
    )
    assert pivoted.support_points_.shape[0] < 0.6 * X.shape[0]  # it stopped at its tolerance
    assert pivoted.solution_.objective == pytest.approx(
        everything.solution_.objective, rel=0.01
    )  # either may be ahead: both are truncated


def test_beyond_saturation_more_candidates_bring_no_more_support_points() -> None:
    counts = [fitted(moons(n), 1.0, n_support=n).support_points_.shape[0] for n in (250, 500, 1000)]
    assert counts[2] <= 1.15 * counts[0]
    assert counts[1] <= 1.1 * counts[0]
