"""KernelSoSDensityCV on tables with columns of any kind and missing cells: what is learned of the
columns, what is said about them, and the density that comes out.
"""

from __future__ import annotations

import math
import warnings
from functools import cache
from typing import Any

import numpy as np
import pandas
import pytest
from sklearn.base import clone
from sklearn.exceptions import NotFittedError
from sklearn.pipeline import make_pipeline

import ksos
from ksos.data import learn
from ksos.density import with_gaps

KINDS = {"price": "positive", "rain": "nonnegative", "visits": "count"}
FAST = {"cv": 2, "relative_regularizations": [math.inf]}


@cache
def clinic(n: int = 300) -> pandas.DataFrame:
    """Columns that depend on each other: illness decides on visits, rain on the price."""
    rng = np.random.default_rng(7)
    ill = rng.choice(["no", "mild", "severe"], n, p=[0.5, 0.3, 0.2])
    level = np.array([{"no": 0, "mild": 1, "severe": 2}[one] for one in ill])
    rain = np.where(rng.random(n) < 0.57, 0.0, rng.exponential(2.0, n))
    return pandas.DataFrame(
        {
            "ill": ill,
            "visits": rng.poisson(0.2 + 0.6 * level),
            "rain": rain,
            "price": np.exp(0.3 * rng.normal(size=n) - 0.2 * rain),
            "hp": rng.normal(level, 0.5),
            "insured": rng.random(n) < 0.3 + 0.2 * level,
            "region": pandas.Categorical(rng.choice(["n", "s"], n), categories=["s", "n", "x"]),
        }
    )


@cache
def fitted() -> ksos.KernelSoSDensityCV:
    return ksos.KernelSoSDensityCV(columns=KINDS, **FAST).fit(clinic())


@cache
def gappy() -> pandas.DataFrame:
    rng, X = np.random.default_rng(1), clinic().copy()
    for name in ("ill", "hp", "price"):
        X.loc[rng.random(len(X)) < 0.15, name] = None
    return X


@cache
def fitted_to_gaps() -> ksos.KernelSoSDensityCV:
    est = ksos.KernelSoSDensityCV(columns=KINDS, **FAST)
    with pytest.warns(UserWarning, match=r"missing cells: \d+ cells .*which assumes that"):
        return est.fit(gappy())


def two_errors(share: float, n: int) -> float:
    return 2.0 * math.sqrt(share * (1.0 - share) / n)


def test_masses_of_atoms_and_counts_are_those_of_the_data() -> None:
    p, X = fitted().distribution_, clinic()
    zero = float((X["rain"] == 0.0).mean())
    assert p.probability(high={"rain": 0.0}) == pytest.approx(zero, abs=two_errors(zero, len(X)))
    assert p.marginal("rain").ppf(0.5) == X["rain"].median() == 0.0
    for ill in ("no", "mild", "severe"):
        own = X.loc[X["ill"] == ill, "visits"]
        share = float((own >= 1).mean())
        found = p.probability(low={"visits": 1}, given={"ill": ill})
        assert found == pytest.approx(share, abs=two_errors(share, len(own)))


def test_means_of_positive_columns_are_those_of_the_data() -> None:
    X, means = clinic(), fitted().distribution_.mean()
    for name in ("price", "rain", "visits", "hp"):
        error = 3.0 * X[name].std() / math.sqrt(len(X))
        assert means[name] == pytest.approx(X[name].mean(), abs=error)
    assert fitted().distribution_.cov().loc["price", "price"] < 3.0 * X["price"].var()


def test_samples_are_like_the_data() -> None:
    X, samples = clinic(), fitted().sample(4000, random_state=0)
    assert samples.dtypes.equals(X.dtypes)
    assert (samples["price"] > 0.0).all() and (samples["rain"] >= 0.0).all()
    assert (samples["visits"] >= 0).all() and set(samples["ill"]) == {"no", "mild", "severe"}
    assert set(samples["region"]) == {"n", "s"}
    assert samples["hp"].mean() == pytest.approx(X["hp"].mean(), abs=0.15)


def test_scores_and_certificate() -> None:
    est = fitted()
    assert isinstance(est.distribution_, ksos.TableDensity)
    assert est.status_ == "solved" and est.solution_.gap <= 1e-4 and est.reference_gap_ <= 1e-3
    assert list(est.feature_names_in_) == list(clinic())
    scores = est.score_samples(clinic())
    assert est.score(clinic()) == pytest.approx(scores.mean())
    # held-out scores are of the rows themselves, not of the encoded ones
    assert est.best_score_ == pytest.approx(scores.mean(), abs=0.7)
    assert est.best_score_ < scores.mean()
    assert pandas.DataFrame(est.cv_results_)["mean_test_score"].max() == est.best_score_
    assert 0.0 < est.p_value(clinic()[:5], n_samples=200).min() <= 1.0


def test_fits_are_the_same_twice_and_for_clones() -> None:
    X, kinds = clinic()[["ill", "rain", "hp"]][:40], {"rain": "nonnegative"}
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        one = ksos.KernelSoSDensityCV(columns=kinds, **FAST).fit(X)
        two = clone(one).fit(X)
    np.testing.assert_array_equal(one.score_samples(X), two.score_samples(X))
    assert one.get_params()["columns"] == kinds


def test_gaps_are_modeled_and_filled() -> None:
    est, X = fitted_to_gaps(), gappy()
    assert np.isfinite(est.score_samples(X)).all()
    for how in ("mean", "draw"):
        filled = est.impute(X, how=how, random_state=0)
        assert not filled.isna().any().any()
        seen = X.notna()
        assert ((filled == X) | ~seen).all().all()
    # better than the mean, since illness shifts the column
    gaps = X["hp"].isna()
    truth = clinic()["hp"][gaps]
    error = (est.impute(X)["hp"][gaps] - truth).std()
    assert error < 0.85 * (X["hp"].mean() - truth).std()
    right = est.impute(X)["ill"][X["ill"].isna()] == clinic()["ill"][X["ill"].isna()]
    assert right.mean() > (clinic()["ill"] == "no").mean()


def test_a_categorical_column_is_classified() -> None:
    X = clinic()
    found = fitted().distribution_.probabilities("ill", given=X.drop(columns="ill"))
    np.testing.assert_allclose(found.sum(axis=1), 1.0)
    assert (found.idxmax(axis=1) == X["ill"]).mean() > 0.6


def test_numeric_arrays_with_gaps() -> None:
    rng = np.random.default_rng(0)
    X = rng.normal(size=(120, 2)) @ [[1.0, 0.8], [0.0, 0.6]]
    X[::7, 1] = np.nan
    with pytest.warns(UserWarning, match="18 cells in 18 of 120 rows"):
        est = ksos.KernelSoSDensityCV(**FAST).fit(X)
    p = est.distribution_
    assert p.feature_names is None and p.rvs(3, rng=0).shape == (3, 2)
    filled = est.impute(X)
    assert isinstance(filled, np.ndarray) and np.isfinite(filled).all()
    assert isinstance(p.marginal([0, 1]), ksos.SoSDensity)
    assert p.logpdf(np.full((1, 2), np.nan))[0] == 0.0


def test_plain_tables_take_the_path_of_arrays() -> None:
    rng = np.random.default_rng(0)
    X = rng.normal(size=(60, 2))
    table = pandas.DataFrame(X, columns=["a", "b"])
    plain = ksos.KernelSoSDensityCV(**FAST).fit(X)
    for one in (
        ksos.KernelSoSDensityCV(**FAST).fit(table),
        ksos.KernelSoSDensityCV(columns={"a": "numeric"}, missing="raise", **FAST).fit(table),
    ):
        assert type(one.distribution_) is ksos.SoSDensity
        np.testing.assert_allclose(one.score_samples(table), plain.score_samples(X), atol=1e-12)
    np.testing.assert_array_equal(plain.impute(X), X)


@pytest.mark.parametrize(
    ("values", "kind", "why"),
    [
        ([0.0] * 30 + list(np.linspace(0.1, 3.0, 30)), "nonnegative", "50% are 0"),
        (list(range(60)), "count", "whole numbers"),
        ([0, 1] * 60, "categorical", "2 distinct values"),
        (list(np.exp(np.linspace(0.0, 12.0, 60))), "positive", "positive and skewed"),
        ([1.0] * 10 + list(np.linspace(0.1, 0.9, 50)), (0.1, 1.0), "17% are 1"),
    ],
)
def test_one_hint_names_the_option(values: list[float], kind: Any, why: str) -> None:
    X = pandas.DataFrame({"odd": values, "plain": np.sin(np.arange(len(values)))})
    (note,) = learn(X).hints
    assert f"'odd' ({why}" in note and f"columns={{'odd': {kind!r}}}" in note
    assert learn(X, {"odd": "numeric"}).hints == []
    assert learn(X.to_numpy()).hints == []  # arrays have no names to declare


def test_what_a_table_holds_is_said_once() -> None:
    X = clinic().assign(rare=["a"] * 298 + ["b"] * 2, same="x").astype(object)
    X.loc[4] = None
    notes = learn(X, KINDS | {"hp": "numeric"}).notes
    assert len(notes) == 4
    assert "1 of 300 rows without any observed cell" in notes[1]
    assert "'rare' (1)" in notes[2] and "one level" in notes[3] and "'same'" in notes[3]


def test_rows_with_gaps_may_be_dropped_or_refused() -> None:
    learned = learn(gappy(), KINDS, "drop")
    assert learned.n_rows == 300 and not np.isnan(learned.cells).any()
    np.testing.assert_array_equal(learned.rows, np.flatnonzero(gappy().notna().all(axis=1)))
    with pytest.raises(ValueError, match=r"missing cells.*missing='model'"):
        learn(gappy(), KINDS, "raise")


WRONG: dict[str, tuple[Any, Any, str]] = {
    "dates": (pandas.date_range("2020-01-01", periods=60), None, "dates such as '2020"),
    "dates as text": (["2020-01-02"] * 60, None, "dates such as"),
    "an identifier": ([f"n{k}" for k in range(60)], None, "a level of its own in every row"),
    "many levels": ([f"n{k % 55}" for k in range(120)], None, "55 levels.*'categorical'"),
    "too many": (
        [f"n{k % 1500}" for k in range(3000)],
        "categorical",
        "1,500 levels, .* at most 1000",
    ),
    "all missing": ([None] * 60, None, "no observed cell"),
    "negative prices": ([-1.0, *range(1, 60)], "positive", "is -1 in row 0"),
    "half a count": ([0.5, *range(1, 60)], "count", "is 0.5 in row 0"),
    "no rain at all": ([0.0] * 60, "nonnegative", "no positive cell"),
    "outside": ([2.0] + [0.5] * 59, (0, 1), "is 2 in row 0"),
    "text as numbers": (["a", "b"] * 30, "positive", "declared 'positive', but holds text"),
}


@pytest.mark.parametrize("dtype", ["boolean", "string", "Int64"])
def test_gaps_of_pandas_own_types_are_gaps(dtype: str) -> None:
    values = pandas.array([None, *([True, False, True] * 20)], dtype="boolean")
    column = pandas.Series(values).astype(dtype)
    learned = learn(pandas.DataFrame({"z": column, "x": np.arange(61.0)}), {"z": "categorical"})
    assert learned.columns is not None and learned.columns.listed[0].dtype == dtype
    assert np.isnan(learned.cells[:, 0]).nonzero()[0].tolist() == [0]
    assert learned.columns.frame(learned.cells)["z"].equals(column)


@pytest.mark.parametrize("case", WRONG)
def test_columns_that_cannot_be_modeled_are_named(case: str) -> None:
    values, kind, words = WRONG[case]
    X = pandas.DataFrame({"odd": values, "other": None})
    X["ok"] = np.sin(np.arange(len(X)))
    with pytest.raises(ValueError, match=f"'odd'.*{words}.*'other' has no observed cell"):
        learn(X, None if kind is None else {"odd": kind})


@pytest.mark.parametrize(
    ("kind", "error"),
    [("log", ValueError), ((1, 0), ValueError), (("circular", -1), ValueError), (3, ValueError)],
)
def test_kinds_are_checked(kind: Any, error: type[Exception]) -> None:
    with pytest.raises(error, match=r"a kind is one of numeric, .*\('circular', period\)"):
        learn(clinic(), {"hp": kind})
    with pytest.raises(ValueError, match="did you mean 'price'"):
        learn(clinic(), {"prices": "positive"})


def test_parameters_that_need_plain_numbers_say_so() -> None:
    with pytest.raises(ValueError, match="columns and missing are for a likelihood"):
        ksos.KernelSoSDensityCV(reference=None, columns=KINDS).fit(clinic())
    est = ksos.KernelSoSDensityCV(columns=KINDS, contamination=0.1)
    with (
        pytest.warns(UserWarning, match="puts mass on every row"),
        pytest.raises(ValueError, match="contamination is for tables of plain numbers"),
    ):
        est.fit(clinic())


def test_weights_count_rows() -> None:
    X = pandas.DataFrame({"c": ["a"] * 20 + ["b"] * 20, "x": np.linspace(-1.0, 1.0, 40)})
    weights = np.where(X["c"] == "a", 3.0, 1.0)
    p = ksos.KernelSoSDensityCV(**FAST).fit(X, sample_weight=weights).distribution_
    assert p.probabilities("c")["a"] == pytest.approx(0.75, abs=0.05)


def test_a_fit_without_gaps_fills_gaps() -> None:
    rng = np.random.default_rng(0)
    X = rng.normal(size=(150, 2)) @ [[1.0, 0.9], [0.0, 0.4]]
    est = ksos.KernelSoSDensityCV(cv=3, relative_regularizations=[math.inf, 0.1]).fit(X)
    p = with_gaps(est.distribution_)
    np.testing.assert_allclose(p.logpdf(X), est.score_samples(X), atol=1e-9)
    Y = X[:5].copy()
    Y[:, 1] = np.nan
    np.testing.assert_allclose(p.logpdf(Y), est.distribution_.marginal([0]).logpdf(Y[:, :1]))
    np.testing.assert_allclose(est.score_samples(Y), p.logpdf(Y))
    with pytest.raises(ValueError, match="infinity"):
        est.score_samples([[np.inf, 0.0]])
    means = [est.distribution_.conditional({0: x}).mean()[0] for x in Y[:, 0]]
    np.testing.assert_allclose(est.impute(Y)[:, 1], means, atol=1e-6)
    with pytest.raises(ValueError, match="a normal reference"):
        with_gaps(ksos.SoSDensity(ksos.kernels.Gaussian(1.0), [[0.0]], [[1.0]], normalize=True))


def test_imputer_is_a_transformer() -> None:
    est = ksos.KernelSoSImputer(ksos.KernelSoSDensityCV(columns=KINDS, **FAST), how="draw")
    with pytest.warns(UserWarning, match="missing cells"):
        filled = make_pipeline(est).fit_transform(gappy()[:40])
    assert not filled.isna().any().any() and filled.dtypes.equals(clinic().dtypes)
    pandas.testing.assert_frame_equal(est.transform(gappy()[:40]), filled)
    assert est.get_params()["estimator__columns"] == KINDS
    with pytest.raises(NotFittedError):
        ksos.KernelSoSImputer().transform(gappy())


def test_categories_alone() -> None:
    rng = np.random.default_rng(0)
    a = rng.choice(["x", "y"], 200)
    X = pandas.DataFrame({"a": a, "b": np.where(rng.random(200) < 0.9, a, "x")})
    p = ksos.KernelSoSDensityCV(**FAST).fit(X).distribution_
    table = pandas.crosstab(X["a"], X["b"], normalize=True)
    for a in "xy":
        for b in "xy":
            assert p.probability({"a": a, "b": b}) == pytest.approx(table.loc[a, b], abs=0.03)
    assert p.pmf(X[:3]).shape == (3,)


GIVEN: dict[str, Any] = {"columns": {"cost": "positive"}, "random_state": 0}


def words_and_costs(n: int) -> pandas.DataFrame:
    rng = np.random.default_rng(0)
    word = rng.choice(["a", "b"], n)
    X = pandas.DataFrame({"word": word, "x": rng.normal(size=n) + (word == "a")})
    return X.assign(cost=np.exp(0.5 * rng.normal(size=n)))


def searched(X: pandas.DataFrame) -> tuple[ksos.KernelSoSDensityCV, dict[str, Any]]:
    """A search of one strength, and the options of fits that are the same."""
    search = ksos.KernelSoSDensityCV(relative_regularizations=[0.1], **GIVEN).fit(X)
    return search, {"reference": "mixture", "objective": "likelihood", "tol": search.tol, **GIVEN}


def agrees(fit: ksos.KernelSoSDensity, search: ksos.KernelSoSDensityCV, X: Any) -> None:
    assert fit.solution_.objective == pytest.approx(search.solution_.objective, abs=1e-12)
    assert fit.solution_.gap == pytest.approx(search.solution_.gap, abs=1e-12)
    assert fit.relative_regularization_ == pytest.approx(0.1)
    np.testing.assert_allclose(fit.score_samples(X), search.score_samples(X), rtol=1e-9)


@pytest.mark.filterwarnings("ignore:X has missing cells")
def test_a_fit_with_gaps_at_the_strength_of_the_search_is_its_answer() -> None:
    X = words_and_costs(24)
    X.loc[::7, "x"] = np.nan
    search, given = searched(X)
    agrees(ksos.KernelSoSDensity(relative_regularization=0.1, **given).fit(X), search, X)


def test_a_fit_at_given_bandwidth_and_strength_is_that_of_the_search() -> None:
    X = words_and_costs(40)
    search, given = searched(X)
    for options in (
        {"regularization": search.regularization_},
        {"bandwidth": search.bandwidth_, "relative_regularization": 0.1},
    ):
        agrees(ksos.KernelSoSDensity(**options, **given).fit(X), search, X)
    wide = ksos.KernelSoSDensity(bandwidth=[9.0, 9.0], **given).fit(X)
    np.testing.assert_allclose(wide.bandwidth_, 81.0 * np.eye(2))
    weights = np.where(X["word"] == "a", 1.0, 0.0)
    only = ksos.KernelSoSDensity(relative_regularization=0.1, **given).fit(X, sample_weight=weights)
    assert only.distribution_.probabilities("word")["a"] > 0.95


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"reference": "mixture"}, "fitted with objective='likelihood'"),
        ({"reference": "mixture", "solver": "lbfgs"}, "fitted with solver='auto'"),
        ({"reference": "mixture", "contamination": 0.1}, "fitted with contamination=None"),
        ({"reference": "mixture", "bandwidth": "median"}, "bandwidth of a table"),
        ({"reference": "mixture", "missing": "raise"}, "missing='model'"),
        ({"columns": {"x": "positive"}}, "need reference='mixture'"),
    ],
)
@pytest.mark.filterwarnings("ignore:a likelihood fit puts mass")
def test_fits_of_tables_say_what_they_need(options: Any, message: str) -> None:
    X = pandas.DataFrame({"word": ["a", "b"] * 20, "x": [*np.arange(1.0, 40.0), np.nan]})
    given = {} if "reference" in options and len(options) == 1 else {"objective": "likelihood"}
    with pytest.raises(ValueError, match=message):
        ksos.KernelSoSDensity(**given, **options).fit(X)
