"""The barrier method of robust learning: both of its sides prove each other."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

import ksos
from ksos.ground import Run
from ksos.kernels import Gaussian
from ksos.measures import Box
from ksos.robust import Goal, JointBarrier, NodeRisk, Problem, UserLoss, solve
from ksos.space import nodes_of

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
def problem() -> Problem:
    space = ksos.SoSSpace(
        Gaussian(0.4),
        np.linspace(-1.0, 1.0, 11)[:, None],
        Box([-1.0], [1.0]),
        Gaussian(1.0),
        np.linspace(-1.0, 1.0, 9)[:, None],
    )
    nodes = nodes_of(space)
    risk = NodeRisk(nodes, UserLoss(loss, nodes.points, 2), RIDGE, np.zeros(2))
    return Problem(space, risk, ksos.MeanEmbedding(X, kernel=Gaussian(1.0)), np.zeros(2))


def barrier(problem: Problem) -> JointBarrier:
    return JointBarrier(problem.space, problem.risk, problem.z, problem.units[1])


@pytest.mark.parametrize("radius", [0.05, 0.3, 1.2])
def test_both_sides_meet(problem: Problem, radius: float) -> None:
    found = barrier(problem).solve(radius, 1e-7 / problem.units[1], np.zeros(2))
    assert found is not None
    point = problem.point(found.C)
    upper = problem.upper(found.theta, found.y, radius)[0]
    assert point.distance <= radius * (1.0 + 1e-6)
    # any density bounds from below, any (θ, y) from above
    assert -1e-9 <= problem.units[1] * (upper - point.risk) <= 2e-7
    np.testing.assert_allclose(point.theta, found.theta, atol=2e-3)


def test_time_is_kept(problem: Problem) -> None:
    with Run(1e-9):
        assert barrier(problem).solve(0.3, 1e-7, np.zeros(2)) is None


@pytest.mark.parametrize("radii", [(0.1, 0.4), (0.4, 0.1)])
def test_solving_a_problem_does_not_change_it(problem: Problem, radii: tuple[float, float]) -> None:
    nodes = nodes_of(problem.space)
    for _ in range(2):
        for radius in radii:
            risk = NodeRisk(nodes, UserLoss(loss, nodes.points, 2), RIDGE, np.zeros(2))
            alone, again = (
                solve(one, radius, Goal(rtol=1e-7))
                for one in (replace(problem, risk=risk), problem)
            )
            assert again.upper == pytest.approx(
                alone.upper, rel=1e-9
            ) and again.lower == pytest.approx(alone.lower, rel=1e-9)
            np.testing.assert_allclose(again.theta, alone.theta, rtol=1e-9)


def test_one_block_per_label() -> None:
    """Of two labels, a classifier's problem: the blocks do not touch, and the gap is as small as
    was asked for.
    """
    rng = np.random.default_rng(0)
    data = np.concatenate([rng.normal(-1.0, 0.6, (12, 1)), rng.normal(1.0, 0.6, (12, 1))])
    labels = np.repeat([0, 1], 12)
    for kind in ("square", "logistic"):
        fitted = ksos.RobustClassifier(radius=0.2, loss=kind, n_support=15, rtol=1e-6).fit(
            data, labels
        )
        assert fitted.solution_.status == "solved"
        assert 0.0 <= fitted.solution_.gap_relative <= 1.5e-6
