"""The barrier method of robust learning: both of its sides prove each other, and it finds what the search for the multiplier finds."""

from __future__ import annotations

import time

import numpy as np
import pytest

import ksos
from ksos.kernels import Gaussian
from ksos.measures import Box
from ksos.robust.barrier import JointBarrier
from ksos.robust.learning import _LossProblem
from ksos.robust.saddle import SaddleProblem
from ksos.robust.setting import as_setting

X = np.array([[-0.5], [-0.4], [-0.1], [0.0], [0.3]])
RIDGE = np.array([0.1, 0.05])


def loss(theta: np.ndarray, X: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """(1 + x − θ_0 − θ_1 x²)², and a convex part that is not a square."""
    u = np.column_stack([np.ones(X.shape[0]), X[:, 0] ** 2])
    residual = 1.0 + X[:, 0] - u @ theta
    away = np.logaddexp(0.0, theta[0] - X[:, 0])
    slope = 1.0 / (1.0 + np.exp(X[:, 0] - theta[0]))
    gradients = -2.0 * residual[:, None] * u
    gradients[:, 0] += slope
    return residual**2 + away, gradients


@pytest.fixture(scope="module")
def problem() -> SaddleProblem:
    space = ksos.SoSSpace(
        Gaussian(0.4), np.linspace(-1.0, 1.0, 11)[:, None], Box([-1.0], [1.0]), Gaussian(1.0), np.linspace(-1.0, 1.0, 9)[:, None]
    )
    setting = as_setting(X, space=space, rng=0)
    return _LossProblem(loss, np.zeros(2), RIDGE, setting).problem_on(setting)


@pytest.mark.parametrize("radius", [0.05, 0.3, 1.2])
def test_both_sides_meet(problem: SaddleProblem, radius: float) -> None:
    found = JointBarrier(problem).solve(radius, 1e-7, np.zeros(2))
    assert found is not None
    point = problem.point(found.C)
    upper = problem.upper(found.theta, found.y, radius)[0]
    assert point.distance <= radius * (1.0 + 1e-6)
    assert -1e-9 <= upper - point.risk <= 2e-7  # any density bounds from below, any (θ, y) from above
    np.testing.assert_allclose(point.theta, found.theta, atol=2e-3)


def test_the_search_agrees(problem: SaddleProblem) -> None:
    with_barrier = problem.solve(0.3, 1e-7)
    assert problem.barrier is not None
    problem.barrier = None
    try:
        without = problem.solve(0.3, 1e-7)
    finally:
        del problem.barrier
    assert with_barrier.status == without.status == "solved"
    assert with_barrier.upper == pytest.approx(without.upper, rel=3e-7)
    np.testing.assert_allclose(with_barrier.theta, without.theta, atol=2e-3)


def test_time_is_kept(problem: SaddleProblem) -> None:
    assert JointBarrier(problem).solve(0.3, 1e-7, np.zeros(2), ends=time.perf_counter() - 1.0) is None


def test_one_block_per_label() -> None:
    """Of two labels, a classifier's problem: the blocks do not touch, and the gap is as small as was asked for."""
    rng = np.random.default_rng(0)
    data = np.concatenate([rng.normal(-1.0, 0.6, (12, 1)), rng.normal(1.0, 0.6, (12, 1))])
    labels = np.repeat([0, 1], 12)
    for kind in ("square", "logistic"):
        fitted = ksos.RobustClassifier(radius=0.2, loss=kind, n_support=15, tol=1e-6).fit(data, labels)
        assert fitted.solution_.status == "solved"
        assert 0.0 <= fitted.solution_.gap_relative <= 1.5e-6
