"""The file of a whole conditional density: what was written comes back, and a forged file runs
nothing.
"""

from __future__ import annotations

import ast
import hashlib
import io
import json
import pickle
import zipfile
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import skops.io
from sklearn.ensemble import HistGradientBoostingRegressor
from sklearn.linear_model import LinearRegression

import ksos
from ksos.estimators import (
    is_conditional_file,
    load_conditional,
    save_conditional,
)


class Doubled(LinearRegression):
    """A regressor of another library."""


class Halved(LinearRegression):
    """And another one."""


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
    save_conditional(estimator, tmp_path / "model")
    assert is_conditional_file(tmp_path / "model")
    again = load_conditional(tmp_path / "model")
    np.testing.assert_array_equal(
        again.predict_quantile(X, [0.1, 0.9]), estimator.predict_quantile(X, [0.1, 0.9])
    )
    estimator.save(tmp_path / "own")
    np.testing.assert_array_equal(ksos.load(tmp_path / "own").predict(X), estimator.predict(X))
    np.testing.assert_array_equal(
        again.predict_interval(X, 0.8, method="conformal"),
        estimator.predict_interval(X, 0.8, method="conformal"),
    )


def test_every_flipped_byte_is_noticed(fitted: Any, tmp_path: Path) -> None:
    estimator, _ = fitted
    path = tmp_path / "model"
    save_conditional(estimator, path)
    whole = path.read_bytes()
    for place in (0, 9, 41, len(whole) // 2, len(whole) - 1):
        path.write_bytes(whole[:place] + bytes([whole[place] ^ 1]) + whole[place + 1 :])
        with pytest.raises(ksos.ModelFormatError, match="model"):
            load_conditional(path)
    for length in (0, 5, 40, len(whole) - 1):
        path.write_bytes(whole[:length])
        with pytest.raises(ksos.ModelFormatError, match="model"):
            load_conditional(path)


def forge(path: Path, value: Any, change: Callable[[Any], None] = lambda schema: None) -> Path:
    """A file whose checksum agrees, of what skops makes of ``value``, with a changed schema."""
    whole, forged = io.BytesIO(skops.io.dumps(value)), io.BytesIO()
    with zipfile.ZipFile(whole) as source, zipfile.ZipFile(forged, "w") as target:
        for name in source.namelist():
            content = source.read(name)
            if name == "schema.json":
                schema = json.loads(content)
                change(schema)
                content = json.dumps(schema).encode()
            target.writestr(name, content)
    return sealed(path, forged.getvalue())


def sealed(path: Path, body: bytes) -> Path:
    path.write_bytes(b"\x89KSOC4\r\n\x1a" + hashlib.sha256(body).digest() + body)
    return path


class Payload:
    """What stands for a type of another library."""

    def __init__(self) -> None:
        self.argument = "made"


@pytest.mark.parametrize(
    "module, name",
    [
        ("os", "mkdir"),
        ("builtins", "eval"),
        ("pathlib", "Path"),
        ("numpy", "memmap"),
        ("ksos", "load"),
        ("ksos.estimators.conditional_file", "load"),
        ("ksos.estimators.conditional_file", "os"),
        ("ksos.__main__", "main"),
        ("no.such", "module"),
    ],
)
def test_a_forged_file_runs_nothing(
    module: str, name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)

    def change(schema: Any) -> None:
        schema |= {"__module__": module, "__class__": name}

    with pytest.raises(ksos.ModelFormatError, match="forged"):
        load_conditional(forge(tmp_path / "forged", Payload(), change))
    assert not (tmp_path / "made").exists()


def test_types_of_other_libraries_are_listed(tmp_path: Path) -> None:
    path = forge(tmp_path / "own", [Payload(), LinearRegression()])
    with pytest.raises(ksos.ModelFormatError, match=r"own holds types.*: \S*Payload; .*trust"):
        ksos.load(path)
    with pytest.raises(ksos.ModelFormatError, match="holds no conditional density; got list"):
        load_conditional(path, trusted=True)


def test_types_of_other_libraries_are_read_if_all_of_them_are_trusted(tmp_path: Path) -> None:
    rng = np.random.default_rng(0)
    X = rng.normal(size=(40, 2))
    est = ksos.KernelSoSConditional([Doubled(), Halved()], scale="constant", given=None)
    est.fit(X, X[:, 0] + rng.normal(size=40)).save(tmp_path / "model")
    with pytest.raises(ksos.ModelFormatError, match=r"trusted=\[") as caught:
        ksos.load(tmp_path / "model")
    # what the message says is what one passes
    listed = ast.literal_eval(str(caught.value).split("trusted=")[1].split("]")[0] + "]")
    assert len(listed) == 2 and listed[0].endswith("Doubled") and listed[1].endswith("Halved")
    again = ksos.load(tmp_path / "model", trusted=listed)
    np.testing.assert_array_equal(again.predict(X), est.predict(X))
    with pytest.raises(ksos.ModelFormatError, match=r"trusted=\['\S*Halved'\]"):
        ksos.load(tmp_path / "model", trusted=listed[:1])
    with pytest.raises(TypeError, match="trusted must be a list of names"):
        ksos.load(tmp_path / "model", trusted=listed[0])


@pytest.mark.parametrize(
    "body",
    [b"", b"no zip", pickle.dumps(print), bytes(1000)],
    ids=["empty", "text", "pickle", "zeros"],
)
def test_what_is_no_file_of_skops_raises(body: bytes, tmp_path: Path) -> None:
    with pytest.raises(ksos.ModelFormatError, match="forged"):
        load_conditional(sealed(tmp_path / "forged", body))


def test_a_file_that_would_unfold_raises(tmp_path: Path) -> None:
    body = skops.io.dumps([0.0] * 10_000, compression=zipfile.ZIP_DEFLATED)
    with pytest.raises(ksos.ModelFormatError, match="bomb is compressed"):
        load_conditional(sealed(tmp_path / "bomb", body))


def test_what_is_no_conditional_density_raises(tmp_path: Path) -> None:
    with pytest.raises(
        ksos.ModelFormatError, match="holds no conditional density; got LinearRegression"
    ):
        load_conditional(forge(tmp_path / "other", LinearRegression()))


@pytest.mark.parametrize("kind", [b"", b"2", b"3"])
def test_a_file_of_an_earlier_version_is_named(kind: bytes, tmp_path: Path) -> None:
    (tmp_path / "old").write_bytes(b"\x89KSOC" + kind + b"\r\n\x1a" + bytes(100))
    for read in (load_conditional, ksos.load):
        with pytest.raises(ksos.ModelFormatError, match=r"old was written by an earlier version"):
            read(tmp_path / "old")


def test_a_regressor_that_cannot_be_stored_raises_before_the_file_is_there(tmp_path: Path) -> None:
    class Lazy(LinearRegression):
        def __getstate__(self) -> Any:
            return {"generator": (one for one in ())}

    X = np.random.default_rng(0).normal(size=(40, 1))
    estimator = ksos.KernelSoSConditional(Lazy(), "constant", given=None).fit(X, X[:, 0] ** 2)
    with pytest.raises(TypeError, match=r"model was not written.* joblib"):
        estimator.save(tmp_path / "model")
    assert not (tmp_path / "model").exists()
