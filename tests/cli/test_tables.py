"""The command line on a table with text, gaps, zeros and counts: fit, query, sample, score,
impute, inspect.
"""

from __future__ import annotations

import io
import json
import re
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pandas
import pytest

import ksos as library

Command = Callable[..., Any]


@pytest.fixture(scope="module")
def passengers() -> pandas.DataFrame:
    rng, n = np.random.default_rng(0), 100
    sex = rng.choice(["male", "female"], n, p=[0.6, 0.4])
    saved = rng.random(n) < np.where(sex == "female", 0.75, 0.2)
    table = pandas.DataFrame(
        {
            "survived": np.where(saved, "yes", "no"),
            "sex": sex,
            "age": np.round(rng.gamma(6.0, 5.0, n)),
            "siblings": rng.poisson(0.6, n),
            "fare": np.where(rng.random(n) < 0.3, 0.0, np.round(rng.lognormal(2.0, 0.6, n), 2)),
        }
    )
    table.loc[rng.random(n) < 0.1, "age"] = np.nan
    table.loc[rng.random(n) < 0.1, "sex"] = None
    return table


@pytest.fixture
def data(passengers: pandas.DataFrame, tmp_path: Path) -> Path:
    passengers.to_csv(tmp_path / "titanic.csv", index=False)
    return tmp_path / "titanic.csv"


FAST = ("--relative-regularizations", "inf", "--folds", "2")
KINDS = ("--kinds", "fare=nonnegative,siblings=count,age=count")


@pytest.fixture(scope="module")
def model(
    passengers: pandas.DataFrame, tmp_path_factory: pytest.TempPathFactory
) -> library.TableDensity:
    kinds = {"fare": "nonnegative", "siblings": "count", "age": "count"}
    est = library.KernelSoSDensityCV(cv=2, relative_regularizations=[np.inf], columns=kinds)
    with pytest.warns(UserWarning, match="missing cells"):
        return est.fit(passengers.astype({"age": "Int64"})).distribution_


@pytest.fixture
def saved(model: library.TableDensity, tmp_path: Path) -> Path:
    model.save(tmp_path / "t.ksos")
    return tmp_path / "t.ksos"


def test_fit_takes_text_gaps_zeros_and_counts(
    ksos: Command, passengers: pandas.DataFrame, tmp_path: Path
) -> None:
    passengers[:30].to_csv(tmp_path / "few.csv", index=False)
    done = ksos("fit", tmp_path / "few.csv", "-o", tmp_path / "m.ksos", *FAST, *KINDS)
    assert done.code == 0
    assert "kinds: survived categorical, sex categorical, age count" in done.out
    assert "which assumes that whether a cell is missing" in done.err
    density = library.load(tmp_path / "m.ksos")
    assert isinstance(density, library.TableDensity)
    X = density.rvs(200, rng=0)
    assert (X["fare"] >= 0.0).all() and str(X["siblings"].dtype) == "int64"


def test_whole_numbers_answer_as_levels_do(
    ksos: Command, passengers: pandas.DataFrame, tmp_path: Path
) -> None:
    table = passengers.assign(survived=(passengers["survived"] == "yes").astype(int))
    table.to_csv(tmp_path / "codes.csv", index=False)
    assert ksos("fit", tmp_path / "codes.csv", "-o", tmp_path / "m.ksos", *FAST).code == 0
    ask = ("query", tmp_path / "m.ksos", "--given", "sex=female", "--probabilities")
    found = json.loads(ksos(*ask, "survived", "--json").out)["probabilities"]["survived"]
    share = table.loc[table["sex"] == "female", "survived"].mean()
    assert list(found) == ["0", "1"] and found["1"] == pytest.approx(share, abs=0.1)
    done = ksos(*ask, "fare")
    assert done.code == 1 and "--kinds fare=categorical" in done.err


def test_hints_name_the_option(ksos: Command, data: Path, tmp_path: Path) -> None:
    done = ksos("fit", data, "-o", tmp_path / "m.ksos", *FAST, "--columns", "sex,siblings,fare")
    assert done.code == 0
    assert "--kinds siblings=count,fare=nonnegative" in done.err
    # whole numbers stay whole
    assert str(library.load(tmp_path / "m.ksos").rvs(5, rng=0)["siblings"].dtype) == "int64"


def test_query_gives_probabilities(ksos: Command, saved: Path, model: library.TableDensity) -> None:
    done = ksos("query", saved, "--given", "sex=female", "--probabilities", "survived", "--json")
    found = json.loads(done.out)["probabilities"]["survived"]
    expected = model.probabilities("survived", given={"sex": "female"})
    assert found == pytest.approx(expected.to_dict())
    done = ksos("query", saved, "--given", "sex=female,siblings=0", "--low", "fare=10")
    expected = model.probability({"fare": 10.0}, given={"sex": "female", "siblings": 0})
    label = "P(fare ≥ 10 | sex = female, siblings = 0)"
    assert done.out == f"{label} = {expected:.3g}\n"
    summary = ksos("query", saved, "--features", "survived,fare").out
    assert f"P(survived = yes) = {model.probabilities('survived')['yes']:.3g}" in summary
    assert f"{model.mean()['fare']:.6g}" in summary


def test_tables_are_asked_as_numbers_are(
    ksos: Command, saved: Path, model: library.TableDensity, tmp_path: Path
) -> None:
    """The same answers in the same form, for the columns of numbers; a mode has words as well."""
    numbers = model.marginal(["age", "siblings", "fare"])
    found = json.loads(ksos("query", saved, "--json").out)
    assert found["features"] == list(model.feature_names or ()) and found["given"] == {}
    assert found["mean"] == pytest.approx(list(numbers.mean()))
    assert found["numbers"] == ["age", "siblings", "fare"]
    assert found["standard_deviation"] == pytest.approx(np.sqrt(np.diagonal(model.cov())))
    middle = next(one for one in found["quantiles"] if one["level"] == 0.5)
    assert middle["values"] == [numbers.marginal([k]).ppf(0.5) for k in range(3)]
    mode = json.loads(ksos("query", saved, "--mode", "--json").out)["mode"]
    assert mode[0] in ("yes", "no") and all(isinstance(x, (int, float)) for x in mode[2:])
    # a bound without a name holds for every column that is left
    box = ("--features", "siblings,fare", "--low", "1", "--high", "8")
    done = json.loads(ksos("query", saved, *box, "--json").out)
    assert done["low"] == [1.0, 1.0] and done["high"] == [8.0, 8.0]
    assert done["probability"] == pytest.approx(
        model.probability({"siblings": 1, "fare": 1}, {"siblings": 8, "fare": 8})
    )
    shown = ksos("inspect", saved).out
    assert "format version" in shown and "survived  categorical  no, yes" in shown


def test_levels_of_flags_and_numbers_are_typed_as_words(ksos: Command, tmp_path: Path) -> None:
    x = np.arange(40)
    table = pandas.DataFrame({"on": x % 3 == 0, "size": x % 4, "y": x + 0.5})
    search = library.KernelSoSDensityCV(
        cv=2, relative_regularizations=[np.inf], columns={"size": "categorical"}
    )
    p = search.fit(table).distribution_
    p.save(tmp_path / "p.ksos")
    for word, level in (("on=true", {"on": True}), ("size=2", {"size": 2})):
        done = ksos("query", tmp_path / "p.ksos", "--given", word, "--mean", "--json")
        mean = float(p.conditional(level).mean()["y"])
        assert json.loads(done.out)["mean"][-1] == pytest.approx(mean), done.err


def test_samples_and_scores(ksos: Command, saved: Path, data: Path, model: Any) -> None:
    done = ksos("sample", saved, "-n", "30", "--seed", "1", "--given", "sex=male,fare=0:20")
    X = pandas.read_csv(io.StringIO(done.out))
    assert list(X) == ["survived", "age", "siblings"] and set(X["survived"]) <= {"yes", "no"}
    done = ksos("score", saved, data, "--json")
    mean = float(model.logpdf(pandas.read_csv(data)).mean())
    assert json.loads(done.out)["mean_log_density"] == pytest.approx(mean)
    assert "fare      nonnegative" in ksos("inspect", saved).out


def test_impute_fills_gaps(ksos: Command, saved: Path, data: Path, tmp_path: Path) -> None:
    done = ksos("impute", saved, data, "-o", tmp_path / "filled.csv")
    assert done.code == 0, done.err
    before, after = pandas.read_csv(data), pandas.read_csv(tmp_path / "filled.csv")
    assert f"({int(before.isna().sum().sum())} cells of 100 rows filled)" in done.out
    assert not after.isna().any().any()
    seen = before.notna()
    assert ((after == before) | ~seen).all().all()
    on_screen = ksos("impute", saved, data, "--how", "draw", "--seed", "0").out
    assert pandas.read_csv(io.StringIO(on_screen)).shape == after.shape


@pytest.mark.parametrize(
    ("words", "code", "message"),
    [
        (("query", "--given", "sex=femal"), 1, "has no level 'femal'"),
        (("query", "--given", "sx=male"), 1, "did you mean .sex."),
        (("query", "--probabilities", "fare"), 1, "not categorical"),
        (("query", "--low", "3"), 1, "has no level 3.0"),
        (("sample", "-o", "x.npy"), 1, "name a CSV file"),
        (("fit", "--kinds", "fare=logarithmic", "-o", "m"), 2, "NAME=KIND"),
    ],
)
def test_errors(
    ksos: Command, saved: Path, words: tuple[str, ...], code: int, message: str
) -> None:
    done = ksos(words[0], saved, *words[1:])
    assert done.code == code and re.search(message, done.err)


def test_models_of_numbers_fill_nothing(ksos: Command, data: Path, tmp_path: Path) -> None:
    p = library.SoSDensity(library.kernels.Gaussian(1.0), [[0.0]], [[1.0]], normalize=True)
    p.with_feature_names(["fare"]).save(tmp_path / "p.ksos")
    done = ksos("impute", tmp_path / "p.ksos", data)
    assert done.code == 1 and "without missing cells" in done.err
    done = ksos("query", tmp_path / "p.ksos", "--probabilities", "fare")
    assert done.code == 1 and "the columns of the model are numbers" in done.err


def test_plots_show_every_column(ksos: Command, saved: Path, data: Path, tmp_path: Path) -> None:
    pytest.importorskip("matplotlib")
    done = ksos("plot", saved, "--data", data, "-o", tmp_path / "t.svg")
    assert done.code == 0, done.err
    text = (tmp_path / "t.svg").read_text()
    assert text.startswith("<?xml") and len(text) > 10_000
    done = ksos(
        "plot", saved, "--given", "sex=male", "--features", "fare", "-o", tmp_path / "f.png"
    )
    assert done.code == 0, done.err
