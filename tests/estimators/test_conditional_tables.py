"""KernelSoSConditional on tables with columns of any kind: text, flags, missing cells, and targets
that are levels.
"""

from __future__ import annotations

import pickle
import re
import warnings
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import polars as pl
import pytest
from scipy.stats import norm
from sklearn.base import BaseEstimator, RegressorMixin, clone
from sklearn.compose import make_column_transformer
from sklearn.ensemble import HistGradientBoostingClassifier
from sklearn.linear_model import LinearRegression, LogisticRegression
from sklearn.model_selection import cross_val_score
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import OneHotEncoder

import ksos
from ksos import KernelSoSConditional, KernelSoSDensity

QUICK = KernelSoSDensity(n_support=20, tol=1e-4)
CHANCES = {("u", "a"): 0.8, ("u", "b"): 0.3, ("v", "a"): 0.5, ("v", "b"): 0.1}


def quick(regressor: Any = None, **options: Any) -> KernelSoSConditional:
    return KernelSoSConditional(
        regressor, **{"scale": "constant", "given": None, "estimator": QUICK, "cv": 3, **options}
    )


def clinic(n: int = 240, seed: int = 0, gaps: float = 0.0) -> pd.DataFrame:
    """``ill`` depends on a group and a dose, ``cost`` on all three."""
    rng = np.random.default_rng(seed)
    group, dose = rng.choice(["u", "v", "w"], n), rng.normal(size=n)
    move = 1.5 * dose + 2.0 * (group == "u")
    ill = np.array(["no", "mild", "severe"])[np.digitize(move + rng.logistic(size=n), [0.5, 2.0])]
    cost = dose + 2.0 * (group == "v") + 3.0 * (ill == "severe") + 0.3 * rng.normal(size=n)
    X = pd.DataFrame({"group": group, "dose": dose, "flag": dose > 0.0})
    X["group"] = X["group"].astype(object)
    X[["group", "dose"]] = X[["group", "dose"]].mask(rng.random((n, 2)) < gaps)
    return X.assign(ill=ill, cost=cost)


def parts(table: pd.DataFrame, target: str) -> tuple[pd.DataFrame, pd.Series]:
    return table.drop(columns=["ill", "cost"]), table[target]


@pytest.fixture(scope="module")
def fitted() -> KernelSoSConditional:
    return KernelSoSConditional().fit(*parts(clinic(), "ill"))


# --- a target that is a level ---


def test_probabilities_of_levels(fitted: KernelSoSConditional) -> None:
    X, y = parts(clinic(200, 1), "ill")
    P = fitted.predict_proba(X)
    assert fitted.classes_.tolist() == ["mild", "no", "severe"]
    np.testing.assert_allclose(P.sum(axis=1), 1.0, rtol=1e-12)
    assert np.all(P > 0.0), "the frequencies of levels have a share"
    codes = np.searchsorted(fitted.classes_, y)
    np.testing.assert_allclose(fitted.score_samples(X, y), np.log(P[np.arange(200), codes]))
    assert fitted.score(X, y) == pytest.approx(np.mean(np.log(P[np.arange(200), codes])))
    np.testing.assert_array_equal(fitted.predict(X), fitted.classes_[P.argmax(axis=1)])
    np.testing.assert_allclose(fitted.pdf(X, grid=fitted.classes_), P, rtol=1e-9)
    frequencies = np.mean(np.log(y.map(y.value_counts(normalize=True))))
    assert fitted.score(X, y) > frequencies + 0.2
    held = fitted.held_out_predictions_
    np.testing.assert_allclose(held.sum(axis=1), 1.0, rtol=1e-9)


def test_draws_and_the_distribution_at_a_row(fitted: KernelSoSConditional) -> None:
    X, _ = parts(clinic(3, 2), "ill")
    P, draws = fitted.predict_proba(X), fitted.sample(X, 4000, random_state=0)
    shares = np.stack([np.mean(draws == level, axis=1) for level in fitted.classes_], axis=1)
    np.testing.assert_allclose(shares, P, atol=4.0 * np.sqrt(0.25 / 4000))
    p = fitted.at(X.iloc[0])
    assert isinstance(p, ksos.TableDensity) and p.feature_names == ("ill",)
    found = p.probabilities("ill")
    assert found.index.tolist() == fitted.classes_.tolist()
    np.testing.assert_allclose(found, P[0], rtol=1e-12)
    np.testing.assert_allclose(fitted.at(X.iloc[0].to_dict()).probabilities("ill"), P[0])


@pytest.mark.parametrize(
    "ask",
    [
        lambda est, X: est.predict_quantile(X, 0.5),
        lambda est, X: est.predict_interval(X, 0.9),
        lambda est, X: est.predict(X, return_std=True),
        lambda est, X: est.cdf(X, ["no"] * len(X)),
        lambda est, X: est.crps(X, ["no"] * len(X)),
    ],
)
def test_levels_have_no_order(fitted: KernelSoSConditional, ask: Any) -> None:
    with pytest.raises(ValueError, match=r"y is categorical \(3 levels\).*use predict_proba"):
        ask(fitted, parts(clinic(5), "ill")[0])


def test_a_saturated_table_approaches_its_counts() -> None:
    rng = np.random.default_rng(0)
    X = pd.DataFrame({"a": rng.choice(["u", "v"], 4000), "b": rng.choice(["a", "b"], 4000)})
    truth = np.array([CHANCES[pair] for pair in zip(X["a"], X["b"], strict=True)])
    y = np.where(rng.random(4000) < truth, "yes", "no")
    est = KernelSoSConditional(cv=3).fit(X, y)
    cells = pd.DataFrame(list(CHANCES), columns=["a", "b"])
    counts = X.assign(yes=y == "yes").groupby(["a", "b"])["yes"].mean()[list(CHANCES)].to_numpy()
    np.testing.assert_allclose(est.predict_proba(cells)[:, 1], counts, atol=0.01)


def test_names_and_order_of_levels_do_not_matter() -> None:
    X, y = parts(clinic(90), "ill")
    new, _ = parts(clinic(50, 3), "ill")
    # folds are drawn from rows in the order of their content, which names change
    number = np.arange(90) % 3
    folds = [(np.flatnonzero(number != k), np.flatnonzero(number == k)) for k in range(3)]
    fitted = KernelSoSConditional(cv=folds).fit(X, y)
    names = {"u": "zebra", "v": "ant", "w": "mouse"}
    words = {"no": "1", "mild": "3", "severe": "2"}
    other = KernelSoSConditional(cv=folds).fit(X.replace({"group": names}), y.map(words))
    order = [other.classes_.tolist().index(words[level]) for level in fitted.classes_]
    found = other.predict_proba(new.replace({"group": names}))[:, order]
    np.testing.assert_allclose(found, fitted.predict_proba(new), atol=2e-3)
    kinds = (
        pd.CategoricalDtype(["w", "v", "u", "never"]),
        pd.CategoricalDtype(["no", "severe", "mild"]),
    )
    other = KernelSoSConditional(cv=folds).fit(X.astype({"group": kinds[0]}), y.astype(kinds[1]))
    assert other.classes_.tolist() == ["no", "severe", "mild"]
    found = other.predict_proba(new)[:, [2, 0, 1]]
    np.testing.assert_allclose(found, fitted.predict_proba(new), atol=2e-3)


def test_a_column_of_one_level_changes_nothing() -> None:
    X, y = parts(clinic(90), "ill")
    cost, new = clinic(90)["cost"], clinic(20, 4)[["group", "dose", "flag"]]
    for target, ask in ((y, "predict_proba"), (cost, "predict")):
        a, b = quick(), quick()
        if ask == "predict_proba":
            a, b = (KernelSoSConditional(cv=3) for _ in range(2))
        a.fit(X, target)
        with pytest.warns(UserWarning, match="columns with one level.*'same'"):
            b.fit(X.assign(same="x"), target)
        found = getattr(b, ask)(new.assign(same="x"))
        np.testing.assert_allclose(found, getattr(a, ask)(new), rtol=1e-6, atol=1e-9)


def test_rows_without_a_target_are_dropped() -> None:
    X, y = parts(clinic(), "ill")
    gone = np.arange(240) % 8 == 3
    for target in (y.mask(gone), clinic()["cost"].mask(gone)):
        est = KernelSoSConditional(LogisticRegression()) if target.name == "ill" else quick()
        with pytest.warns(UserWarning, match="y: dropped 30 of 240 rows"):
            est.fit(X, target)
        want = clone(est).fit(X[~gone], target[~gone])
        ask = "predict_proba" if target.name == "ill" else "predict"
        np.testing.assert_allclose(getattr(est, ask)(X), getattr(want, ask)(X), rtol=1e-9)
        with pytest.raises(ValueError, match="y contains missing cells: 30 cells"):
            est.set_params(missing="raise").fit(X, target)


def test_numbers_are_levels_where_they_are_declared() -> None:
    X, y = parts(clinic(), "ill")
    survived = (y == "no").astype(int).rename("survived")
    with pytest.warns(UserWarning, match=r"'survived' \(2 distinct.*'survived': 'categorical'"):
        assert not hasattr(quick().fit(X, survived), "predict_proba")
    for target, name in ((survived, "survived"), (survived.to_numpy(), "y")):
        kinds = {name: "categorical"}
        est = KernelSoSConditional(LogisticRegression(), columns=kinds).fit(X, target)
        assert est.classes_.tolist() == [0, 1] and set(est.predict(X)) == {0, 1}
    flags = KernelSoSConditional(LogisticRegression()).fit(X, survived.to_numpy() == 1)
    np.testing.assert_allclose(flags.predict_proba(X), est.predict_proba(X), rtol=1e-9)
    assert flags.predict(X).dtype == bool


def test_classifiers_of_your_own() -> None:
    X, y = parts(clinic(gaps=0.1), "ill")
    table = make_column_transformer((OneHotEncoder(handle_unknown="ignore"), ["group"]))
    for one in (
        LogisticRegression(),
        [LogisticRegression(), HistGradientBoostingClassifier(max_iter=5)],
        make_pipeline(table, LogisticRegression()),
    ):
        est = KernelSoSConditional(one, cv=3)
        with pytest.warns(UserWarning) if isinstance(one, list) else warnings.catch_warnings():
            warnings.simplefilter("ignore") if not isinstance(one, list) else None
            est.fit(X, y)
        assert est.location_shares_.sum() == pytest.approx(1.0)
        assert est.score(X, y) > -1.05
    with pytest.raises(TypeError, match="y is categorical: regressor must be a classifier"):
        KernelSoSConditional(LinearRegression()).fit(X.dropna(), y[X.dropna().index])
    with pytest.raises(TypeError, match="LogisticRegression is a classifier; give a regressor"):
        quick(LogisticRegression()).fit(X.dropna(), clinic()["cost"][X.dropna().index])
    with pytest.raises(ValueError, match="scale, given: for a target of numbers"):
        KernelSoSConditional(scale="constant", given=None).fit(X.dropna(), y[X.dropna().index])


# --- targets of other kinds of numbers ---


def amounts(kind: Any, n: int = 400, seed: int = 0) -> tuple[np.ndarray, np.ndarray]:
    rng = np.random.default_rng(seed)
    X = rng.normal(size=(n, 2))
    if kind == "count":
        return X, rng.poisson(np.exp(0.5 * X[:, 0] - 0.3)).astype(float)
    if kind == (0, 1):
        return X, np.clip(0.5 + 0.3 * X[:, 0] + 0.3 * rng.normal(size=n), 0.0, 1.0)
    size = np.exp(0.5 * X[:, 1] + 0.5 * rng.normal(size=n))
    wet = rng.random(n) < 1.0 / (1.0 + np.exp(-X[:, 0]))
    return X, size if kind == "positive" else np.where(wet, size, 0.0)


def chance_of_zero(kind: Any, x: np.ndarray) -> np.ndarray:
    if kind == "count":
        return np.exp(-np.exp(0.5 * x[:, 0] - 0.3))
    return (
        norm.cdf(-(0.5 + 0.3 * x[:, 0]) / 0.3) if kind == (0, 1) else 1.0 / (1.0 + np.exp(x[:, 0]))
    )


@pytest.mark.parametrize("kind", ["nonnegative", "count", (0, 1), "positive"])
def test_targets_stay_in_their_support(kind: Any, tmp_path: Path) -> None:
    X, y = amounts(kind)
    est = quick(LinearRegression(), columns={"y": kind}).fit(X, y)
    new, _ = amounts(kind, 60, 1)
    levels = np.array([0.05, 0.3, 0.5, 0.7, 0.95])
    q, draws = est.predict_quantile(new, levels), est.sample(new, 400, random_state=0)
    high = 1.0 if kind == (0, 1) else np.inf
    for values in (q, draws):
        assert np.all((values >= 0.0) & (values <= high)) and np.all(np.isfinite(values))
        assert kind != "count" or np.array_equal(values, np.floor(values))
        assert kind != "positive" or np.all(values > 0.0)
    assert np.all(np.diff(q, axis=1) >= 0.0)
    for k, level in enumerate(levels):  # the least value with at least this probability
        assert np.all(est.cdf(new, q[:, k]) >= level - 1e-9)
    mean, std = est.predict(new, return_std=True)
    error = 4.0 * std / np.sqrt(400) + 0.02 * std
    assert np.mean(np.abs(draws.mean(axis=1) - mean) < error) > 0.97
    if kind != "positive":
        zero = np.exp(est.score_samples(new, np.zeros(60)))
        np.testing.assert_allclose(est.cdf(new, np.zeros(60)), zero, atol=1e-12)
        assert np.mean(np.abs(zero - chance_of_zero(kind, new))) < 0.07
        np.testing.assert_allclose(np.mean(draws == 0.0, axis=1), zero, atol=0.11)
    if kind == "count":
        every = np.repeat(new[:3], 80, axis=0), np.tile(np.arange(80.0), 3)
        total = np.exp(est.score_samples(*every)).reshape(3, 80).sum(axis=1)
        np.testing.assert_allclose(total, 1.0, atol=1e-9)
    else:
        step = (1.0 if kind == (0, 1) else 60.0) / 60_000
        at = step * (np.arange(60_000) + 0.5)
        mass = step * est.pdf(new[:2], grid=at).sum(axis=1)
        ends = [0.0] * (kind != "positive") + [1.0] * (kind == (0, 1))
        atoms = est.pdf(new[:2], grid=ends).sum(axis=1) if ends else 0.0
        np.testing.assert_allclose(mass + atoms, 1.0, atol=2e-3)
    found = est.at(new[0])
    assert found.support()[0] == 0.0 and found.mean()[0] == pytest.approx(mean[0])
    est.save(tmp_path / "amounts.ksos")
    again = ksos.load(tmp_path / "amounts.ksos")
    np.testing.assert_array_equal(again.predict(new), est.predict(new))
    with pytest.raises(ValueError, match=r"y: column 'y' is -1.* outside of"):
        est.score(new[:1], [-1.0])
    with pytest.raises(ValueError, match="give one of them"):
        quick(LinearRegression(), transform="asinh", columns={"y": kind}).fit(X[:60], y[:60])
    with pytest.raises(ValueError, match="y is circular"):
        quick(columns={"y": ("circular", 60)}).fit(X[:60], y[:60])


# --- rows of any kind ---


class Spy(RegressorMixin, BaseEstimator):
    """Remembers what it was given."""

    seen: list[Any] = []  # noqa: RUF012

    def fit(self, X: Any, y: Any) -> Spy:
        Spy.seen.append(X)
        self.mean_ = float(np.mean(y))
        return self

    def predict(self, X: Any) -> np.ndarray:
        Spy.seen.append(X)
        return np.full(len(X), self.mean_)


def test_gaps_are_filled_from_training_rows_alone() -> None:
    X = pd.DataFrame({"a": np.arange(12.0), "b": ["x", "y"] * 6})
    X.loc[[1, 7], "a"] = np.nan
    halves = [(np.arange(6), np.arange(6, 12)), (np.arange(6, 12), np.arange(6))]
    Spy.seen = []
    with pytest.warns(UserWarning):
        quick(Spy(), cv=halves).fit(X, np.arange(12.0) ** 2)
    train, test = Spy.seen[:2]
    assert train.shape == (6, 3), "a column for each level, and one of numbers"
    means = np.mean([0.0, 2.0, 3.0, 4.0, 5.0])
    assert train[1, 2] == pytest.approx(means) and test[1, 2] == pytest.approx(means)
    np.testing.assert_array_equal(train[:, :2], np.tile([[1.0, 0.0], [0.0, 1.0]], (3, 1)))


def test_what_holds_a_pipeline_gets_tables() -> None:
    X, y = parts(clinic(gaps=0.1), "cost")
    Spy.seen = []
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        quick([make_pipeline("passthrough", Spy()), LinearRegression()], scale=None).fit(X, y)
    given = Spy.seen[0]
    assert list(given.columns) == ["group", "dose", "flag"]
    assert set(given["group"].dropna()) == {"u", "v", "w"} and given["group"].isna().any()
    # alone, it gets what came, of which nothing is learned: dates are its own affair
    Spy.seen = []
    dated = X.assign(day=pd.date_range("2020-01-01", periods=len(X)))
    quick(make_pipeline("passthrough", Spy())).fit(dated, y)
    assert "day" in Spy.seen[0]


def test_tables_of_every_make_and_arrays_agree() -> None:
    X, y = parts(clinic(90, gaps=0.1), "cost")
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        want = quick().fit(X, y).predict(X)
        every = {
            "polars": pl.from_pandas(X),
            "arrow": pl.from_pandas(X).to_arrow(),
            "objects": X.to_numpy(dtype=object),
        }
        for name, rows in every.items():
            est = quick()
            if name == "objects":
                est.set_params(columns={2: "categorical"})
            target = pl.Series("cost", y) if name == "polars" else y.to_numpy()
            np.testing.assert_allclose(est.fit(rows, target).predict(rows), want, err_msg=name)


def test_gaps_cost_little() -> None:
    new, target = parts(clinic(2000, 5), "ill")
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        full, gappy = (
            KernelSoSConditional().fit(*parts(clinic(600, 6, gaps), "ill")) for gaps in (0.0, 0.1)
        )
    assert full.score(new, target) - gappy.score(new, target) < 0.05
    # a row of which nothing is known has about the frequencies
    nothing = gappy.predict_proba(new.head(1).assign(group=None, dose=np.nan, flag=None))[0]
    assert np.all(nothing > 0.1)


def test_kinds_of_columns_reach_linear_models() -> None:
    rng = np.random.default_rng(0)
    price, wind = rng.lognormal(sigma=1.5, size=300), rng.uniform(0.0, 360.0, 300)
    X = pd.DataFrame({"price": price, "wind": wind})
    y = np.log(price) + np.cos(np.radians(wind)) + 0.05 * rng.normal(size=300)
    kinds = {"price": "positive", "wind": ("circular", 360)}
    est = quick(LinearRegression(), columns=kinds).fit(X, y)
    assert np.sqrt(np.mean((est.predict(X) - y) ** 2)) < 0.06
    with pytest.raises(ValueError, match="'price' is -1, outside of"):
        est.predict(X.head(1).assign(price=-1.0))


def test_bad_tables_are_named_all_at_once(fitted: KernelSoSConditional) -> None:
    X, y = parts(clinic(), "ill")
    odd = X.assign(day=pd.date_range("2020-01-01", periods=240), id=[f"n{k}" for k in range(240)])
    with pytest.raises(ValueError, match=r"X cannot be modeled: column 'day' .*; column 'id' "):
        quick().fit(odd, y)
    with pytest.raises(ValueError, match=r"'group' has the level 'Q' .*; column 'flag' has"):
        fitted.predict(X.head(2).assign(group="Q", flag="maybe"))
    with pytest.raises(ValueError, match=r"y: column 'ill' has the level 'dead' in row 0"):
        fitted.score(X.head(1), ["dead"])
    with pytest.raises(ValueError, match="Input y contains NaN"):
        fitted.score(X.head(2), ["no", None])
    with pytest.raises(ValueError, match="y cannot be modeled: column 'ill' holds dates"):
        quick().fit(X, pd.Series(odd["day"].to_numpy(), name="ill"))
    with pytest.raises(ValueError, match=r"y has 2 columns, of which 'ill' is categorical"):
        quick().fit(X, clinic()[["ill", "cost"]])
    with pytest.raises(ValueError, match=r"columns and missing are for regressors"):
        quick("joint", missing="drop").fit(X[["dose"]], clinic()["cost"])
    with pytest.raises(ValueError, match="unseen must be"):
        quick(unseen="ignore").fit(X, y)
    with pytest.raises(ValueError, match="X contains missing cells"):
        quick(missing="raise").fit(X.mask(X == "u"), clinic()["cost"])
    with pytest.warns(UserWarning, match=r"X: dropped \d+ of 240 rows"):
        quick(LinearRegression(), missing="drop").fit(X.mask(X == "u"), clinic()["cost"])
    with pytest.raises(ValueError, match=re.escape("given names 'group'")):
        quick(given=[0]).fit(X, clinic()["cost"])


# --- life with scikit-learn ---


def test_files_pickles_and_scores(fitted: KernelSoSConditional, tmp_path: Path) -> None:
    X, y = parts(clinic(60, 7), "ill")
    fitted.save(tmp_path / "ill.ksos")
    for again in (ksos.load(tmp_path / "ill.ksos"), pickle.loads(pickle.dumps(fitted))):
        np.testing.assert_array_equal(again.predict_proba(X), fitted.predict_proba(X))
        assert again.predict(X).tolist() == fitted.predict(X).tolist()
    assert "predict_proba" in dir(fitted) and "<div" in fitted._repr_html_()
    X, y = parts(clinic(), "ill")
    scores = cross_val_score(KernelSoSConditional(LogisticRegression(), cv=2), X[["dose"]], y, cv=2)
    assert scores.shape == (2,) and np.all(np.isfinite(scores))
    with pytest.raises(AttributeError, match="not fitted"):
        KernelSoSConditional().predict_proba(X)
