"""The rivals of robust learning: their losses are what they say, and each of them has the limits
that theory gives it.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest

from benchmarks.robust.erm import erm
from benchmarks.robust.losses import (
    LinearLogistic,
    LinearSquare,
    ParametricLoss,
    UncertainLeastSquares,
)
from benchmarks.robust.page import rows
from benchmarks.robust.rkhs_norm import rkhs_norm
from benchmarks.robust.semi_infinite import semi_infinite
from benchmarks.robust.trials import chosen_radius, run_seeds, summary
from ksos.kernels import Gaussian

RNG = np.random.default_rng(0)
KERNEL = Gaussian(1.0)


def affine(x: np.ndarray) -> np.ndarray:
    return np.concatenate([np.ones((x.shape[0], 1)), x], axis=1)


Z = np.column_stack([RNG.normal(size=(12, 1)), np.where(np.arange(12) % 2 == 0, 1.0, -1.0)])
CASES: dict[str, tuple[ParametricLoss, np.ndarray]] = {
    "least squares": (
        UncertainLeastSquares(RNG.normal(size=(4, 3)), RNG.normal(size=(4, 3)), RNG.normal(size=4)),
        Z[:, :1],
    ),
    "square": (LinearSquare(affine, np.array([0.0, 0.1])), Z),
    "logistic": (LinearLogistic(affine, np.array([0.01, 0.1])), Z),
}
every_loss = pytest.mark.parametrize("case", CASES)


@every_loss
def test_derivatives_and_expressions(case: str) -> None:
    cvxpy = pytest.importorskip("cvxpy")
    loss, points = CASES[case]
    p = loss.alpha.shape[0]
    theta, weights, step = RNG.normal(size=p), RNG.uniform(size=points.shape[0]), 1e-5
    for j in range(p):
        move = step * np.eye(p)[j]
        rise = (loss.values(theta + move, points) - loss.values(theta - move, points)) / (
            2.0 * step
        )
        np.testing.assert_allclose(loss.gradients(theta, points)[:, j], rise, rtol=1e-6, atol=1e-8)
        bend = (
            weights
            @ (loss.gradients(theta + move, points) - loss.gradients(theta - move, points))
            / (2.0 * step)
        )
        np.testing.assert_allclose(
            loss.curvature(theta, points, weights)[j], bend, rtol=1e-6, atol=1e-8
        )
    expression = loss.expression(cvxpy.Constant(theta), points)
    np.testing.assert_allclose(expression.value, loss.values(theta, points), rtol=1e-10)


@every_loss
def test_without_a_radius_all_are_erm(case: str) -> None:
    pytest.importorskip("cvxpy")
    loss, points = CASES[case]
    plain = erm(loss, points)
    gradient = loss.gradients(plain, points).mean(axis=0) + 2.0 * loss.alpha * plain
    np.testing.assert_allclose(gradient, 0.0, atol=1e-6)
    np.testing.assert_allclose(rkhs_norm(loss, points, [0.0], KERNEL)[0], plain, atol=1e-4)
    zeta = RNG.uniform(-2.0, 2.0, (10, points.shape[1]))
    np.testing.assert_allclose(
        semi_infinite(loss, points, [1e-7], KERNEL, zeta)[0], plain, atol=2e-3
    )


def test_a_large_ball_is_the_worst_point() -> None:
    """Any distribution on the points is in it: a constant is fitted to the middle of the targets'
    range, and not to their mean.
    """
    pytest.importorskip("cvxpy")
    points = np.column_stack([np.linspace(-1.0, 1.0, 6), [0.0, 0.0, 0.0, 0.0, 0.0, 1.0]])
    loss = LinearSquare(lambda x: np.ones((x.shape[0], 1)), np.zeros(1))
    assert erm(loss, points)[0] == pytest.approx(1.0 / 6.0)
    found = semi_infinite(loss, points, [100.0], KERNEL, np.array([[0.3, 3.0]]))[0]
    assert found[0] == pytest.approx(1.5, abs=1e-4)


def test_the_relaxation_lowers_its_own_objective() -> None:
    loss, points = CASES["least squares"]
    n, radius = points.shape[0], 0.5
    inverse = np.linalg.inv(KERNEL(points, points) + n * 1e-3 * np.eye(n))

    def objective(theta: np.ndarray) -> float:
        values = loss.values(theta, points)
        return float(values.mean() + radius * np.sqrt(values @ inverse @ values))

    found = rkhs_norm(loss, points, [radius], KERNEL)[0]
    assert objective(found) < objective(erm(loss, points)) - 1e-4
    for move in 0.01 * np.concatenate([np.eye(3), -np.eye(3)]):
        assert objective(found) <= objective(found + move) + 1e-9


def test_radius_by_folds() -> None:
    """Of fits that are their own radius, the one nearest to the held-out rows wins; an empty ball
    never does.
    """
    values = np.array([1.0, 1.1, 0.9, 1.0])

    def path(rows: np.ndarray, radii: list[float]) -> list[Any]:
        assert rows.shape == (2,)
        return [None if radius == 0.99 else radius for radius in radii]

    def score(fit: Any, rows: np.ndarray) -> float:
        return float(np.sum((values[rows] - fit) ** 2))

    assert (
        chosen_radius(path, score, 4, (0.2, 0.99, 1.02, 3.0), 2, np.random.default_rng(0)) == 1.02
    )


def test_seeds_are_run_once_and_paired(tmp_path: Path) -> None:
    seen: list[int] = []

    def run(seed: int) -> dict[str, Any]:
        seen.append(seed)
        return {
            "seed": seed,
            "ours": {"chosen": [float(seed), 2.0]},
            "erm": {"chosen": None if seed == 3 else [seed + 1.0, 5.0]},
        }

    run_seeds(run, range(2), tmp_path)
    records = run_seeds(run, range(4), tmp_path)
    assert seen == [0, 1, 2, 3] and [record["seed"] for record in records] == [0, 1, 2, 3]
    result = summary(records, ("erm", "ours"), ("chosen",))["chosen"]
    assert result["seeds"] == 3 and result["ours"]["mean"] == [1.0, 2.0]
    assert result["ours"]["interval"] == [pytest.approx(1.96 / np.sqrt(3.0)), 0.0]
    assert result["ours − erm"] == {"mean": [-1.0, -3.0], "interval": [0.0, 0.0]}
    four = {
        name: {key: 2 * values for key, values in found.items()} if name != "seeds" else found
        for name, found in result.items()
    }
    written = list(rows("robust_least_squares", {"chosen": four}))
    name, radius = "robust_least_squares", "by cross-validation"
    assert (name, radius, 3, "ksos", "0", "1", "1.1") in written
    assert (name, radius, 3, "ksos minus ERM, paired", "4", "-3", "0") in written
    assert len(written) == 4 * len(four.keys() - {"seeds"})
