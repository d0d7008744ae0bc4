"""The file of a whole conditional density: what was written comes back, and a forged file runs
nothing.
"""

from __future__ import annotations

import hashlib
import os
import pickle
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from sklearn.ensemble import HistGradientBoostingRegressor
from sklearn.linear_model import LinearRegression

import ksos
from ksos.estimators.conditional_file import (
    StoredConditional,
    is_conditional_file,
    load_conditional,
    save_conditional,
)


@pytest.fixture(scope="module", params=["linear", "trees"])
def fitted(request: pytest.FixtureRequest) -> tuple[ksos.KernelSoSConditional, np.ndarray]:
    rng = np.random.default_rng(0)
    X = rng.normal(size=(80, 2))
    model = (
        LinearRegression()
        if request.param == "linear"
        else HistGradientBoostingRegressor(max_iter=10)
    )
    return (
        ksos.KernelSoSConditional(model, scale="constant", given=None).fit(
            X, X[:, 0] + rng.normal(size=80)
        ),
        X,
    )


def test_what_was_written_comes_back(fitted: Any, tmp_path: Path) -> None:
    estimator, X = fitted
    save_conditional(StoredConditional(estimator, ("a", "b"), "price"), tmp_path / "model")
    assert is_conditional_file(tmp_path / "model")
    again, columns, target, _ = load_conditional(tmp_path / "model")
    assert columns == ("a", "b") and target == "price"
    np.testing.assert_array_equal(
        again.predict_quantile(X, [0.1, 0.9]), estimator.predict_quantile(X, [0.1, 0.9])
    )
    np.testing.assert_array_equal(
        again.predict_interval(X, 0.8, method="conformal"),
        estimator.predict_interval(X, 0.8, method="conformal"),
    )


def test_every_flipped_byte_is_noticed(fitted: Any, tmp_path: Path) -> None:
    estimator, _ = fitted
    path = tmp_path / "model"
    save_conditional(StoredConditional(estimator), path)
    whole = path.read_bytes()
    for place in (0, 9, 41, len(whole) // 2, len(whole) - 1):
        path.write_bytes(whole[:place] + bytes([whole[place] ^ 1]) + whole[place + 1 :])
        with pytest.raises(ksos.ModelFormatError, match="model"):
            load_conditional(path)
    for length in (0, 5, 40, len(whole) - 1):
        path.write_bytes(whole[:length])
        with pytest.raises(ksos.ModelFormatError, match="model"):
            load_conditional(path)


class Calls:
    """A pickle that calls a function when it is read."""

    def __init__(self, *what: Any) -> None:
        self.what = what

    def __reduce__(self) -> tuple[Any, ...]:
        return self.what


def forge(path: Path, value: Any) -> Path:
    body = pickle.dumps(value)
    path.write_bytes(b"\x89KSOC2\r\n\x1a" + hashlib.sha256(body).digest() + body)
    return path


@pytest.mark.parametrize(
    "value",
    [
        Calls(os.mkdir, ("made",)),
        Calls(getattr, (np.ones(1), "tofile")),
        Calls(eval, ("1",)),
        Calls(np.memmap, ("made", "u1", "w+", 0, (4,))),
        Calls(Path, ("made",)),
        Calls(ksos.load, ("made",)),
        Calls(ksos.mmd, ()),
        {"a": Calls(os.getenv, ("HOME",))},
    ],
    ids=["mkdir", "getattr", "eval", "memmap", "Path", "load", "mmd", "inside"],
)
def test_a_forged_file_runs_nothing(
    value: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    with pytest.raises(ksos.ModelFormatError, match="forged"):
        load_conditional(forge(tmp_path / "forged", value))
    assert not (tmp_path / "made").exists()


def test_what_is_no_conditional_density_is_refused(tmp_path: Path) -> None:
    with pytest.raises(
        ksos.ModelFormatError, match="holds no conditional density; got LinearRegression"
    ):
        load_conditional(forge(tmp_path / "other", LinearRegression()))


def test_a_file_of_an_earlier_version_is_named(tmp_path: Path) -> None:
    (tmp_path / "old").write_bytes(b"\x89KSOC\r\n\x1a" + bytes(100))
    for read in (load_conditional, ksos.load):
        with pytest.raises(
            ksos.ModelFormatError,
            match=r"old was written by an earlier version of ksos.* fit it again",
        ):
            read(tmp_path / "old")


def test_a_trusted_file_may_name_anything(tmp_path: Path) -> None:
    path = forge(tmp_path / "own", Calls(os.getenv, ("PATH",)))
    with pytest.raises(ksos.ModelFormatError, match="holds no conditional density; got str"):
        load_conditional(path, trust=True)
