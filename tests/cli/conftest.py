"""Small files that the tests of the commands share."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import NamedTuple

import numpy as np
import pytest

from ksos.cli import main


class Run(NamedTuple):
    """What a command left behind."""

    code: int
    out: str
    err: str


@pytest.fixture
def ksos(capsys: pytest.CaptureFixture[str]) -> Callable[..., Run]:
    """Run a command in this process."""

    def run(*words: object) -> Run:
        capsys.readouterr()
        code = main([str(word) for word in words])
        return Run(code, *capsys.readouterr())

    return run


@pytest.fixture(scope="session")
def points() -> np.ndarray:
    """Forty points around two centers in the plane, of unlike scales."""
    rng = np.random.default_rng(7)
    return np.concatenate(
        [rng.normal([-1.0, 0.0], [0.3, 0.8], (20, 2)), rng.normal([1.0, 1.0], [0.5, 0.4], (20, 2))]
    )


@pytest.fixture(scope="session")
def weights() -> np.ndarray:
    return np.random.default_rng(8).uniform(0.2, 2.0, 40)


@pytest.fixture(scope="session")
def data(tmp_path_factory: pytest.TempPathFactory, points: np.ndarray, weights: np.ndarray) -> Path:
    """The points as CSV, with a third column of weights and a fourth of labels."""
    path = tmp_path_factory.mktemp("data") / "points.csv"
    rows = [
        f"{x!r},{y!r},{w!r},row {i}"
        for i, ((x, y), w) in enumerate(zip(points.tolist(), weights.tolist(), strict=True))
    ]
    path.write_text("\n".join(["x,y,mass,label", *rows]) + "\n")
    return path


@pytest.fixture(scope="session")
def plain(tmp_path_factory: pytest.TempPathFactory, points: np.ndarray) -> Path:
    """The points alone, as NPY."""
    path = tmp_path_factory.mktemp("plain") / "points.npy"
    np.save(path, points)
    return path


@pytest.fixture(scope="session")
def model(tmp_path_factory: pytest.TempPathFactory, plain: Path) -> Path:
    """A density fitted to the points."""
    path = tmp_path_factory.mktemp("model") / "points.ksos"
    assert main(["fit", str(plain), "-o", str(path), "--method", "mmd"]) == 0
    return path
