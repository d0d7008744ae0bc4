"""ksos fit --target and ksos predict: what they print is what the estimator in Python says, column by column and by name."""

from __future__ import annotations

import csv
import io
import json
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest

from ksos.estimators.conditional_file import load_conditional


@pytest.fixture(scope="module")
def table() -> np.ndarray:
    rng = np.random.default_rng(5)
    X = rng.normal(size=(60, 2))
    return np.column_stack([X[:, 0], X[:, 0] - X[:, 1] + 0.3 * rng.normal(size=60), X[:, 1]])


@pytest.fixture(scope="module")
def source(table: np.ndarray, tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("conditional") / "data.csv"
    np.savetxt(path, table, delimiter=",", header="age,price,size", comments="", fmt="%.17g")
    return path


@pytest.fixture(scope="module")
def model(source: Path) -> Path:
    from ksos.cli import main

    path = source.parent / "price.model"
    assert main(["fit", str(source), "--target", "price", "--seed", "3", "-o", str(path)]) == 0
    return path


def read(text: str) -> tuple[list[str], np.ndarray]:
    header, *rows = list(csv.reader(io.StringIO(text)))
    return header, np.array(rows, dtype=float)


def test_the_answers_are_those_of_the_estimator(ksos: Callable, model: Path, source: Path, table: np.ndarray) -> None:
    estimator, columns, target = load_conditional(model)
    assert columns == ("age", "size") and target == "price"
    X = table[:, [0, 2]]
    words = ["--quantiles", "0.1,0.5,0.9", "--interval", "0.8", "--method", "conformal"]
    found = ksos("predict", model, source, *words)
    header, numbers = read(found.out)
    assert found.code == 0 and header == ["mean", "q0.1", "q0.5", "q0.9", "low", "high"]
    np.testing.assert_allclose(numbers[:, 0], estimator.predict(X))
    np.testing.assert_allclose(numbers[:, 1:4], estimator.predict_quantile(X, [0.1, 0.5, 0.9]))
    np.testing.assert_allclose(numbers[:, 4:], estimator.predict_interval(X, 0.8, method="conformal"))
    answer = json.loads(ksos("predict", model, source, "--json").out)
    assert answer["target"] == "price" and answer["n_samples"] == 60
    np.testing.assert_allclose(answer["mean"], estimator.predict(X))


def test_columns_are_put_in_order_by_name(ksos: Callable, model: Path, source: Path, tmp_path: Path, table: np.ndarray) -> None:
    swapped = tmp_path / "swapped.csv"
    np.savetxt(swapped, table[:, [2, 0]], delimiter=",", header="size,age", comments="", fmt="%.17g")
    np.testing.assert_array_equal(read(ksos("predict", model, swapped).out)[1], read(ksos("predict", model, source).out)[1])
    bare = tmp_path / "bare.csv"
    np.savetxt(bare, table[:, [0, 2]], delimiter=",", fmt="%.17g")
    found = ksos("predict", model, bare)
    assert "no header: its columns are taken for age, size, in this order" in found.err
    np.testing.assert_array_equal(read(found.out)[1], read(ksos("predict", model, source).out)[1])


@pytest.mark.parametrize(
    "words, code, message",
    [
        (["fit", "{source}", "--target", "weight", "-o", "{out}"], 1, "there is no feature 'weight'; there are age, price, size"),
        (["fit", "{source}", "--target", "price", "--search", "-o", "{out}"], 2, "for a density without --target"),
        (["fit", "{source}", "--target", "price", "--kernel", "laplace", "-o", "{out}"], 2, "--kernel is for a density without --target"),
        (["fit", "{source}", "--target", "1", "--columns", "price", "-o", "{out}"], 1, "one column"),
        (["predict", "{model}", "{source}", "--columns", "age"], 1, "gives 1 columns, but the model"),
        (["predict", "{model}", "{source}", "--columns", "age,price"], 1, "has no column 'size'"),
        (["predict", "{model}", "{source}", "--method", "conformal"], 2, "give --interval too"),
        (["predict", "{model}", "{source}", "--interval", "1.5"], 1, "level must be less than 1"),
        (["predict", "{source}", "{source}"], 1, "not a conditional density that ksos wrote"),
        (["score", "{model}", "{source}"], 1, "ask it with ksos predict"),
        (["inspect", "{model}"], 1, "ask it with ksos predict"),
    ],
)
def test_bad_input_gets_one_line(
    ksos: Callable, model: Path, source: Path, tmp_path: Path, words: list[str], code: int, message: str
) -> None:
    found = ksos(*(word.format(model=model, source=source, out=tmp_path / "out") for word in words))
    assert (found.code, found.out) == (code, "") and message in found.err and len(found.err.splitlines()) == 1
    assert not (tmp_path / "out").exists()
