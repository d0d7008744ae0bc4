"""ksos fit --target and ksos predict: what they print is what the estimator in Python says, column
by column and by name.
"""

from __future__ import annotations

import csv
import io
import json
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pandas as pd
import pytest

from ksos.estimators import load_conditional


@pytest.fixture(scope="module")
def table() -> np.ndarray:
    rng = np.random.default_rng(5)
    X = rng.normal(size=(36, 2))
    return np.column_stack([X[:, 0], X[:, 0] - X[:, 1] + 0.3 * rng.normal(size=36), X[:, 1]])


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


def test_the_answers_are_those_of_the_estimator(
    ksos: Callable, model: Path, source: Path, table: np.ndarray
) -> None:
    estimator = load_conditional(model)
    assert estimator.feature_names_in_.tolist() == ["age", "size"]
    assert estimator.target_names_ == ("price",)
    X = pd.DataFrame(table[:, [0, 2]], columns=["age", "size"])
    words = ["--quantiles", "0.1,0.5,0.9", "--interval", "0.8", "--method", "conformal"]
    found = ksos("predict", model, source, *words)
    header, numbers = read(found.out)
    assert found.code == 0 and header == ["mean", "q0.1", "q0.5", "q0.9", "low", "high"]
    np.testing.assert_allclose(numbers[:, 0], estimator.predict(X))
    np.testing.assert_allclose(numbers[:, 1:4], estimator.predict_quantile(X, [0.1, 0.5, 0.9]))
    np.testing.assert_allclose(
        numbers[:, 4:], estimator.predict_interval(X, 0.8, method="conformal")
    )
    answer = json.loads(ksos("predict", model, source, "--json").out)
    assert answer["target"] == "price" and answer["n_samples"] == 36
    np.testing.assert_allclose(answer["mean"], estimator.predict(X))


def test_columns_are_put_in_order_by_name(
    ksos: Callable, model: Path, source: Path, tmp_path: Path, table: np.ndarray
) -> None:
    swapped = tmp_path / "swapped.csv"
    np.savetxt(
        swapped, table[:, [2, 0]], delimiter=",", header="size,age", comments="", fmt="%.17g"
    )
    np.testing.assert_array_equal(
        read(ksos("predict", model, swapped).out)[1], read(ksos("predict", model, source).out)[1]
    )
    bare = tmp_path / "bare.csv"
    np.savetxt(bare, table[:, [0, 2]], delimiter=",", fmt="%.17g")
    found = ksos("predict", model, bare)
    assert "no header: its columns are taken for age, size, in this order" in found.err
    np.testing.assert_array_equal(read(found.out)[1], read(ksos("predict", model, source).out)[1])


@pytest.mark.parametrize(
    "words, code, message",
    [
        (
            ["fit", "{source}", "--target", "weight", "-o", "{out}"],
            1,
            "has no column 'weight'; its columns are 'age', 'price', 'size'",
        ),
        (
            ["fit", "{source}", "--target", "price", "--method", "mmd", "-o", "{out}"],
            2,
            "--method: for a density without --target",
        ),
        (
            ["fit", "{source}", "--target", "price", "--kernel", "laplace", "-o", "{out}"],
            2,
            "--kernel: for a density without --target",
        ),
        (
            ["fit", "{source}", "--target", "1", "--columns", "price", "-o", "{out}"],
            1,
            "one column",
        ),
        (
            ["predict", "{model}", "{source}", "--columns", "age"],
            1,
            "gives 1 columns, 'age', but the model",
        ),
        (
            ["predict", "{model}", "{source}", "--columns", "age,price"],
            1,
            "gives 2 columns, 'age', 'price', but the model",
        ),
        (["predict", "{model}", "{source}", "--method", "conformal"], 2, "give --interval too"),
        (["predict", "{model}", "{source}", "--interval", "1.5"], 1, "level must be less than 1"),
        (["predict", "{source}", "{source}"], 1, "not a conditional density that ksos wrote"),
        (["score", "{model}", "{source}"], 1, "ask it with ksos predict"),
        (["inspect", "{model}"], 1, "ask it with ksos predict"),
    ],
)
def test_bad_input_gets_one_line(
    ksos: Callable,
    model: Path,
    source: Path,
    tmp_path: Path,
    words: list[str],
    code: int,
    message: str,
) -> None:
    found = ksos(*(word.format(model=model, source=source, out=tmp_path / "out") for word in words))
    assert (
        (found.code, found.out) == (code, "")
        and message in found.err
        and len(found.err.splitlines()) == 1
    )
    assert not (tmp_path / "out").exists()


# --- rows that are dropped, and columns of words ---


@pytest.fixture(scope="module")
def cars(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """40 rows of mpg, hp and origin; those of USA drive 5 miles less; row 4 of the file lacks its
    hp.
    """
    rng = np.random.default_rng(2)
    origin, hp = (
        np.where(np.arange(40) % 2, "USA", "Japan, Inc."),
        rng.uniform(1.0, 2.0, 40).round(3).astype(str),
    )
    mpg = 3.0 * hp.astype(float) - 5.0 * (origin == "USA") + 0.1 * rng.normal(size=40)
    hp[2] = "NA"
    path = tmp_path_factory.mktemp("cars") / "cars.csv"
    pd.DataFrame({"origin": origin, "hp": hp, "mpg": mpg}).to_csv(path, index=False)
    return path


@pytest.fixture(scope="module")
def law(cars: Path) -> Path:
    from ksos.cli import main

    path = cars.parent / "law.ksos"
    assert (
        main(
            [
                "fit",
                str(cars),
                "--target",
                "mpg",
                "--drop-missing",
                "--seed",
                "0",
                "-o",
                str(path),
            ]
        )
        == 0
    )
    return path


def test_columns_of_words_are_kept_as_categories(
    ksos: Callable, law: Path, cars: Path, tmp_path: Path
) -> None:
    new = tmp_path / "new.csv"
    new.write_text('hp,origin\n1.5,USA\n1.5,"Japan, Inc."\n1.5,Mars\n')
    unseen = ksos("predict", law, new)
    assert unseen.code == 1 and "column 'origin' has the level 'Mars' in row 2" in unseen.err
    found = ksos("predict", law, new, "--unseen", "missing")
    means = read(found.out)[1][:, 0]
    assert (
        means[1] - means[0] == pytest.approx(5.0, abs=0.5) and means[0] < means[2] < means[1] + 0.5
    )
    assert found.code == 0 and found.err == ""


def test_tables_with_text_and_gaps_need_no_option(
    ksos: Callable, cars: Path, tmp_path: Path
) -> None:
    model = tmp_path / "origin.ksos"
    fitted = ksos("fit", cars, "--target", "origin", "-o", model)
    assert fitted.code == 0 and "X has missing cells: 1 cells in 1 of 40 rows ('hp')" in fitted.err
    assert "probabilities of 2 levels of origin given hp, mpg" in fitted.out
    est, X = load_conditional(model), pd.read_csv(cars)[["hp", "mpg"]]
    header, *rows = csv.reader(io.StringIO(ksos("predict", model, cars).out))
    assert header == ["prediction", "P(origin = Japan, Inc.)", "P(origin = USA)"]
    assert [row[0] for row in rows] == est.predict(X).tolist()
    shares = np.array([row[1:] for row in rows], dtype=float)
    np.testing.assert_allclose(shares, est.predict_proba(X))
    answer = json.loads(ksos("predict", model, cars, "--json").out)
    assert answer["target"] == "origin" and answer["P(origin = USA)"] == shares[:, 1].tolist()
    failed = ksos("predict", model, cars, "--quantiles", "0.5")
    assert failed.code == 1 and "y is categorical (2 levels)" in failed.err
    told = json.loads(ksos("fit", cars, "--target", "origin", "--json", "-o", model).out)
    assert told["levels"] == ["Japan, Inc.", "USA"] and told["status"] == "solved"


def test_numbers_are_levels_where_they_are_declared(
    ksos: Callable, tmp_path: Path, table: np.ndarray
) -> None:
    data, model = tmp_path / "data.csv", tmp_path / "sold.ksos"
    sold = (table[:, 1] > 0.0).astype(int)
    pd.DataFrame({"age": table[:, 0], "size": table[:, 2], "sold": sold}).to_csv(data, index=False)
    hint = ksos("fit", data, "--target", "sold", "-o", model).err
    assert "'sold' (2 distinct values)" in hint and "--kinds sold=categorical" in hint
    found = ksos("fit", data, "--target", "sold", "--kinds", "sold=categorical", "-o", model)
    assert (found.code, found.err) == (0, "")
    assert ksos("predict", model, data).out.startswith("prediction,P(sold = 0),P(sold = 1)\n")


@pytest.mark.parametrize(
    "words, code, message",
    [
        (["predict", "{law}", "{cars}", "--weights", "hp"], 2, "--weights"),
        (["predict", "{law}", "{cars}", "--unseen", "guess"], 2, "invalid choice: 'guess'"),
    ],
)
def test_options_that_cannot_be(
    ksos: Callable, law: Path, cars: Path, words: list[str], code: int, message: str
) -> None:
    found = ksos(*(word.format(law=law, cars=cars) for word in words))
    assert (found.code, found.out) == (code, "") and message in found.err


def test_rows_are_numbered_where_some_may_be_left_out(
    ksos: Callable, law: Path, cars: Path, tmp_path: Path
) -> None:
    found = ksos("predict", law, cars, "--drop-missing", "--quantiles", "0.5")
    header, numbers = read(found.out)
    rows = [2, 3, *range(5, 42)]  # the header is row 1
    assert header == ["row", "mean", "q0.5"] and numbers[:, 0].tolist() == rows
    assert found.out.splitlines()[3].startswith("5,")
    assert json.loads(ksos("predict", law, cars, "--drop-missing", "--json").out)["row"] == rows
    model = tmp_path / "hp.ksos"
    assert (
        ksos("fit", cars, "--columns", "hp", "--drop-missing", "--n-support", "5", "-o", model).code
        == 0
    )
    lines = ksos("score", model, cars, "--per-row", "--drop-missing").out.splitlines()
    assert lines[0] == "row,log_density" and [int(line.split(",")[0]) for line in lines[1:]] == rows
    answer = json.loads(ksos("score", model, cars, "--per-row", "--drop-missing", "--json").out)
    assert answer["row"] == rows and answer["log_density"] == [
        float(line.split(",")[1]) for line in lines[1:]
    ]
    both = ksos("score", model, cars, cars, "--per-row", "--drop-missing").out.splitlines()[
        1:
    ]  # of several files: among all rows
    assert [int(line.split(",")[0]) for line in both] == [1, 2, *range(4, 43), *range(44, 81)]


def test_python_reads_the_file(law: Path) -> None:
    import ksos

    est = ksos.load(law)
    assert isinstance(est, ksos.KernelSoSConditional) and est.feature_names_in_.tolist() == [
        "origin",
        "hp",
    ]
    X = pd.DataFrame({"origin": ["USA", "Japan, Inc."], "hp": [1.25, 1.5]})
    low, high = est.predict(X)
    for x, mean in [
        (X.iloc[0], low),
        (X.iloc[1], high),
        ({"hp": 1.5, "origin": "Japan, Inc."}, high),
        (["USA", 1.25], low),
    ]:
        there = est.at(x)
        assert there.feature_names == ("mpg",) and there.mean()[0] == pytest.approx(mean, abs=1e-3)
    for x, message in [
        ({"hp": 1.0, "origin": "USA", "mpg": 3.0}, "x has the column 'mpg', but the features are"),
        ({"hp": 1.0}, "x lacks the column 'origin'"),
        (["USA"], "one value for each of 'origin', 'hp'; got 1"),
    ]:
        with pytest.raises(ValueError, match=message):
            est.at(x)
