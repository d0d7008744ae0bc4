"""The contamination experiment: its truth is a density, its outliers are as many as it says, and
the criterion decides what is kept.
"""

from __future__ import annotations

import csv
import runpy
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from sklearn.neighbors import KernelDensity

import ksos
from ksos.measures import Lebesgue

SCRIPT = Path(__file__).resolve().parents[1] / "benchmarks" / "contamination.py"


@pytest.fixture(scope="module")
def experiment() -> dict[str, Any]:
    return runpy.run_path(str(SCRIPT))


def test_truth_and_samples(experiment: dict[str, Any]) -> None:
    truth = experiment["clean_density"](experiment["GRID"])
    assert experiment["CELL"] * truth.sum() == pytest.approx(1.0, abs=1e-6)
    data, test = experiment["samples"](0.2, 0)
    clean, same = experiment["samples"](0.0, 0)
    assert data.shape == (200, 2) and np.count_nonzero(np.any(data != clean, axis=1)) == 40
    np.testing.assert_array_equal(test, same)
    # the entropy of the samples is that of the density: they belong together
    entropy = -experiment["CELL"] * float(np.sum(truth * np.log(np.maximum(truth, 1e-300))))
    assert -np.log(experiment["clean_density"](test)).mean() == pytest.approx(entropy, abs=0.08)


def test_measures_against_closed_forms(experiment: dict[str, Any]) -> None:
    """Of a kernel density estimate with one bump, whose distances to a mixture along the moons are
    sums of Gaussians.
    """
    truth = experiment["clean_density"](experiment["GRID"])
    fitted = KernelDensity(bandwidth=0.5).fit([[0.5, 0.25]])
    found = experiment["measure"](fitted, np.array([[0.5, 0.25]]), truth)
    assert (
        found["clean_log_likelihood"] == pytest.approx(-np.log(2.0 * np.pi * 0.25))
        and found["bump_width"] == 0.5
    )
    bump = ksos.SoSDensity(
        ksos.kernels.Gaussian(1.0), [[0.5, 0.25]], [[1.0]], Lebesgue(), normalize=True
    )  # the same Gaussian
    nodes, weights = np.polynomial.legendre.leggauss(60)
    curve = experiment["half_circles"](0.5 * (nodes + 1.0)).reshape(-1, 2)
    wide = np.sqrt(
        1.0 + 2.0 * 0.1**2
    )  # the kernel of bandwidth 1, blurred by the noise of the moons, once
    kernel = ksos.kernels.Gaussian(wide)
    masses = np.tile(0.25 * weights, 2)
    cross = masses @ np.asarray([ksos.mmd(z[None, :], bump, kernel) ** 2 for z in curve])
    own = ksos.mmd(bump, ksos.MeanEmbedding([[0.0, 0.0]], [0.0], kernel=kernel)) ** 2
    inner = (1.0 + own - cross) / 2.0 / wide**2
    twice = ksos.kernels.Gaussian(np.sqrt(1.0 + 4.0 * 0.1**2))
    moons = masses @ twice(curve) @ masses / (1.0 + 4.0 * 0.1**2)
    bumps = (
        ksos.mmd(bump, ksos.MeanEmbedding([[0.0, 0.0]], [0.0], kernel=ksos.kernels.Gaussian(1.0)))
        ** 2
    )
    assert found["mmd"] ** 2 == pytest.approx(bumps + moons - 2.0 * inner, abs=1e-6)


def test_the_criterion_decides(
    experiment: dict[str, Any], monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    """The whole script, in small. Objective and criterion are told apart: for either objective, L²
    keeps what held-out likelihood loses.
    """
    namespace = experiment["run"].__globals__
    monkeypatch.setitem(namespace, "N_SAMPLES", 100)

    def small(objective: str, criterion: str) -> Any:
        grids = {
            "reference": None,
            "bandwidths": (0.3, 2.0),
            "relative_regularizations": (1e-2,),
            "cv": 2,
            "n_support": 50,
            "tol": 1e-3,
        }
        return lambda X: ksos.KernelSoSDensityCV(
            **grids, objective=objective, criterion=criterion
        ).fit(X)

    names = (
        {"MMD": "squared_mmd", "likelihood": "likelihood"},
        {"L²": "l2", "likelihood": "log_likelihood"},
    )
    fits = dict(experiment["CONTESTANTS"])
    for first, objective in names[0].items():
        for second, criterion in names[1].items():
            fits[f"{first}, by {second}"] = (
                small(objective, criterion),
                *fits[f"{first}, by {second}"][1:],
            )
    monkeypatch.setitem(namespace, "CONTESTANTS", fits)
    rows, picture = experiment["run"](quick=True)
    ise = {(row["contestant"], row["outliers"]): row["ise"] for row in rows}
    for objective in names[0]:
        assert ise[f"{objective}, by L²", 0.2] < 0.7 * ise[f"{objective}, by likelihood", 0.2]
    files = experiment["draw"](rows, picture, tmp_path)
    assert [file.suffix for file in files] == [".png", ".pdf", ".csv"]
    with files[2].open(encoding="utf-8") as stream:
        assert len(list(csv.DictReader(stream))) == 2 * len(fits)
