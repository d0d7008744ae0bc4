"""The robust experiments, in small: they run from data to figure, and their tests measure what they
say.
"""

from __future__ import annotations

import json
import runpy
from pathlib import Path
from typing import Any

import numpy as np
import pytest

EXPERIMENTS = Path(__file__).resolve().parents[1] / "benchmarks" / "robust"
SMALL: dict[str, dict[str, Any]] = {
    "robust_least_squares": {
        "GRID": (0.01, 0.1),
        "FOLDS": 2,
        "COARSE": 9,
        "RIM": (0.5,),
        "ZETAS": 10,
        "TOL": 1e-3,
    },
    "robust_kernel_regression": {
        "GRID": (0.2,),
        "FIXED": (0.2, 0.3, 0.4),
        "FOLDS": 2,
        "CENTERS": 4,
        "SUPPORT": 20,
        "BANDWIDTH": 1.0,
        "ZETAS": 10,
        "TOL": 1e-2,
    },
    "robust_classification": {
        "GRID": (0.1,),
        "FIXED": (0.1, 0.2, 0.3),
        "FOLDS": 2,
        "SUPPORT": 16,
        "BANDWIDTH": 2.0,
        "ZETAS": 10,
        "TOL": 1e-2,
        "TESTS": 200,
    },
}


@pytest.mark.parametrize("name", SMALL)
def test_from_data_to_figure(name: str, monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    pytest.importorskip("cvxpy")
    script = runpy.run_path(str(EXPERIMENTS / f"{name.removeprefix('robust_')}.py"))
    for key, value in SMALL[name].items():
        assert key in script
        monkeypatch.setitem(script["main"].__globals__, key, value)
    result = script["main"](["--seeds", "2", "--out", str(tmp_path)])
    for kind in script["KINDS"]:
        for method in script["METHODS"]:
            assert np.all(np.isfinite(result[kind][method]["mean"])) and len(
                result[kind][method]["mean"]
            ) == len(script["SHIFTS"])
    assert (tmp_path / f"{name}.png").stat().st_size > 10_000
    assert (
        json.loads((tmp_path / "summary.json").read_text(encoding="utf-8"))["chosen"]["seeds"] == 2
    )


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
