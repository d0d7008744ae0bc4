"""The robust experiments, in small: they run from data to figure, and their tests measure what they
say.
"""

from __future__ import annotations

import importlib
import json
import runpy
from pathlib import Path

import numpy as np
import pytest

from ksos.measures import Box

EXPERIMENTS = Path(__file__).resolve().parents[1] / "benchmarks" / "robust"


@pytest.mark.parametrize("name", ["least_squares", "kernel_regression", "classification"])
def test_from_data_to_figure(name: str, tmp_path: Path) -> None:
    pytest.importorskip("cvxpy")
    script = runpy.run_path(str(EXPERIMENTS / f"{name}.py"))
    assert set(script["QUICK"]) <= set(script)
    result = script["main"](["--quick", "--out", str(tmp_path)])
    for kind in script["KINDS"]:
        for method in script["METHODS"]:
            assert np.all(np.isfinite(result[kind][method]["mean"])) and len(
                result[kind][method]["mean"]
            ) == len(script["SHIFTS"])
    assert (tmp_path / f"robust_{name}.png").stat().st_size > 10_000
    assert (
        json.loads((tmp_path / "summary.json").read_text(encoding="utf-8"))["chosen"]["seeds"] == 2
    )


def test_decisions_are_checked_against_the_dual_by_hand(capsys: pytest.CaptureFixture[str]) -> None:
    pytest.importorskip("cvxpy")
    found = runpy.run_path(str(EXPERIMENTS / "decisions.py"))["main"](["--quick"])
    assert [one["gap"] < asked for one, asked in zip(found, (5e-3, 1e-6), strict=True)] == [
        True
    ] * 2
    assert "by hand on a grid" in capsys.readouterr().out


def test_contests_of_decisions(tmp_path: Path) -> None:
    """A quick run, what the other balls give at their largest, and the interpolation by hand."""
    cp = pytest.importorskip("cvxpy")
    contests = importlib.import_module("benchmarks.robust.contests")
    rows = contests.main(["--quick", "--out", str(tmp_path / "contests.csv")])
    written = (tmp_path / "contests.csv").read_text(encoding="utf-8").splitlines()
    assert len(written) == len(rows) + 1 == 10 and written[0].count(",") == written[1].count(",")
    assert all(row["ratio at +0%"] <= 1.0 for row in rows)
    past, box = np.array([[1.0], [2.0], [6.0]]), Box([0.0], [10.0])
    plain = contests.sample_average(contests.orders(1), past, box, 0.0)
    assert plain[0] == pytest.approx(6.0, abs=1e-5), "four fifths of the demands are at most that"
    # the worst of all reweightings: 4 (6 − q) = q − 1, and of the whole box: 4 (10 − q) = q
    assert contests.chi2(contests.orders(1), past, box, 1e3)[0] == pytest.approx(5.0, abs=1e-3)
    far = contests.wasserstein(contests.orders(1), past, box, 1e3)
    assert far[0] == pytest.approx(8.0, abs=1e-3)
    # half of the way to (1.2, 3), where the mean is 1.1
    mean, tail = np.array([1.0, 1.2, 1.0]), np.array([5.0, 3.0, 4.5])
    assert contests.at_equal_mean(mean, tail, 1.1) == pytest.approx(3.75, abs=0.02)
    assert contests.at_equal_mean(mean, tail, 1.0) == 4.5
    model = contests.lines(2)
    model.decision.value = [2.0, -1.0]
    X = np.array([[1.0, 4.0], [3.0, 0.0]])
    cost = contests.line_cost(model.decision.value, X)
    np.testing.assert_allclose(model.losses(X).value, cost)
    assert cost.tolist() == [3.0, 5.0] and isinstance(model.decision, cp.Variable)


def test_shifted_losses_are_expectations() -> None:
    script = runpy.run_path(str(EXPERIMENTS / "least_squares.py"))
    problem, xi = script["problem_of"](5)
    assert xi.shape == (10, 1) and np.all(np.abs(xi) <= 0.5)
    theta = np.random.default_rng(0).normal(size=10)
    nodes, weights = np.polynomial.legendre.leggauss(5)
    for shift, found in zip(
        script["SHIFTS"], script["shifted_losses"](problem, theta), strict=True
    ):
        values = problem.values(theta, 0.5 * (1.0 + shift) * nodes[:, None])
        assert found == pytest.approx(0.5 * weights @ values, rel=1e-12)


def test_regression_errors_are_expectations() -> None:
    script = runpy.run_path(str(EXPERIMENTS / "kernel_regression.py"))

    class Truth:
        def predict(self, x: np.ndarray) -> np.ndarray:
            return script["truth"](x[:, 0]) + 0.3

    np.testing.assert_allclose(script["errors"](Truth()), 0.2**2 + 0.3**2, rtol=1e-12)
