"""The script of the page "Which reference?": its laws are what they are called, its table and its
picture are made of its scores.
"""

from __future__ import annotations

import runpy
from pathlib import Path
from typing import Any

import numpy as np
import pytest

SCRIPT = Path(__file__).resolve().parents[1] / "benchmarks" / "which_reference.py"


@pytest.fixture(scope="module")
def script() -> dict[str, Any]:
    return runpy.run_path(str(SCRIPT))


def test_the_tied_law_is_normal_and_the_others_are_not(script: dict[str, Any]) -> None:
    for name, law in script["LAWS"].items():
        X = law(4000, np.random.default_rng(0))
        Y = np.linalg.solve(np.linalg.cholesky(np.cov(X.T)), (X - X.mean(axis=0)).T)
        skewness = np.abs(np.mean(Y**3, axis=1)).max()
        assert (skewness < 0.15) == (name == "tied")


def test_the_whole_script_in_small(
    script: dict[str, Any], monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    namespace = script["run"].__globals__
    for name, value in (("N_SAMPLES", 60), ("N_TEST", 500), ("SHOWN", (1e6, 1e-2))):
        monkeypatch.setitem(namespace, name, value)
    monkeypatch.setitem(
        namespace, "LAWS", {name: script["LAWS"][name] for name in ("anchor", "tied")}
    )
    rows, fits, samples = script["run"](quick=True)
    assert samples.shape == (60, 2)
    assert len(rows) == 2 * 3 * 3
    assert set(fits) == {
        (name, strength) for name in script["REFERENCES"] for strength in (1e6, 1e-2)
    }
    strong = {
        row["reference"]: row["score"]
        for row in rows
        if row["law"] == "anchor" and row["lambda"] == 1e6
    }
    assert strong["mixture"] > max(strong["normal"], strong["Lebesgue"]) + 0.2
    lines = script["table"](rows).splitlines()
    assert len(lines) == 2 + 2 * 3
    assert f"{strong['normal']:.3f}".replace("-", "−") in next(
        line for line in lines if line.startswith("| anchor | normal")
    )
    assert script["draw"](rows, fits, samples, tmp_path).stat().st_size > 10_000
