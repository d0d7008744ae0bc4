"""Densities of tables with columns of any kind: maps and their inverses, mass one, conditions
against ratios of densities, samples in the support, files.
"""

from __future__ import annotations

import contextlib
import math
from functools import cache
from typing import Any

import numpy as np
import pandas
import pytest
from forging import forge, take_apart
from hypothesis import given, strategies as st
from scipy.stats import kstest
from tables_of_any_kind import KINDS, density_of

import ksos
from ksos.density import (
    Column,
    Columns,
    Correction,
    MixedReference,
    MixedTerms,
    TableDensity,
    load,
)
from ksos.quadrature import composite


@cache
def everything() -> TableDensity:
    others = ("cost", "seen", "heaped", "fare")
    return density_of(*(name for name in KINDS if name not in others))


@cache
def rows(n: int = 60) -> pandas.DataFrame:
    return everything().rvs(n, rng=0)


def with_gaps(share: float = 0.3) -> pandas.DataFrame:
    rng, X = np.random.default_rng(1), rows().copy()
    for name in X:
        X[name] = X[name].astype(object).where(rng.random(len(X)) > share, None)
    return X


CELLS = {
    "plain": st.floats(-1e6, 1e6),
    "price": st.floats(1e-200, 1e200),
    "cost": st.floats(1e-200, 1e200),
    "rain": st.just(0.0) | st.floats(1e-200, 1e200),
    "share": st.just(1.0) | st.floats(1e-9, 1.0 - 1e-9),
    "visits": st.integers(0, 10**9).map(float),
    "seen": st.integers(0, 10**9).map(float),
    "wind": st.floats(0.0, 359.999),
    "heaped": st.floats(-1e6, 1e6),
    "fare": st.floats(1e-200, 1e200),
    "origin": st.sampled_from(["EU", "Japan", "USA", None]),
}


@pytest.mark.parametrize("name", KINDS)
@given(data=st.data())
def test_cells_come_back_from_the_line(name: str, data: st.DataObject) -> None:
    columns = Columns((KINDS[name],))
    listed = data.draw(st.lists(CELLS[name], min_size=1, max_size=5))
    X = pandas.DataFrame({name: listed})
    cells = columns.read(X)
    noise = data.draw(st.floats(0.01, 0.99))
    u, c, _ = columns.encode(cells, lambda n: np.full(n, noise))
    back = columns.decode(u, c)
    tolerance = {"rtol": 1e-9, "atol": 1e-9 if name in ("share", "wind", "heaped") else 0.0}
    np.testing.assert_allclose(back, cells, **tolerance)
    if name in ("visits", "seen", "origin", "rain"):
        same = (back == cells) | np.isnan(cells) | (name == "rain")
        assert same.all()
        assert ((back == 0.0) == (cells == 0.0)).all()


@pytest.mark.parametrize("name", [n for n in KINDS if n not in ("visits", "seen", "origin")])
@given(place=st.floats(0.05, 0.95))
def test_slopes_are_derivatives(name: str, place: float) -> None:
    column = KINDS[name]
    x = place * (column.high if math.isfinite(column.high) else 4.0)
    step = 5e-7 * x
    (below, _, above), (_, log_slope, _) = column.to_line(np.array([x - step, x, x + step]))
    if above > below:  # not across the seam of a circle
        assert math.log((above - below) / (2.0 * step)) == pytest.approx(log_slope, abs=1e-4)


@pytest.mark.parametrize("name", ["price", "cost", "rain", "share", "wind", "heaped", "fare"])
def test_mass_of_a_transformed_column_is_one(name: str) -> None:
    p, column = density_of(name), KINDS[name]
    # an interval per quantile, so that a long tail is integrated finely
    if name == "wind":
        edges = np.linspace(0.0, 360.0, 4_001)
    else:
        u = np.linspace(-12.0, 12.0, 40_001)
        edges = column.from_line(u)
    middle = 0.5 * (edges[1:] + edges[:-1])
    density = p.pdf(pandas.DataFrame({name: middle})) @ np.diff(edges)
    atoms = sum(p.probability({name: a}, {name: a}) for a in column.atoms)
    assert density + atoms == pytest.approx(1.0, abs=2e-4)
    for atom in column.atoms:
        assert p.probability({name: atom}, {name: atom}) == pytest.approx(
            p.pdf(pandas.DataFrame({name: [atom]}))[0]
        )


def test_counts_have_masses() -> None:
    p, name = density_of("visits"), "visits"
    masses = p.pmf(range(800))
    assert masses.sum() == pytest.approx(1.0, abs=1e-3)
    assert p.probability(low={name: 2}, high={name: 4}) == pytest.approx(masses[2:5].sum())
    assert p.cdf(3) == pytest.approx(masses[:4].sum())
    # a row's density is the mass, by quadrature in the cell
    some = np.arange(1, 30)
    np.testing.assert_allclose(p.pdf(pandas.DataFrame({name: some})), masses[some], rtol=5e-3)
    assert p.mean()[name] == pytest.approx(masses @ np.arange(800), rel=0.02)
    np.testing.assert_array_equal(p.ppf(p.cdf(np.arange(5)) - 1e-9), np.arange(5))


def test_tails_beyond_the_knee_have_a_mean() -> None:
    # a density of logarithms with a component of a thousandth that is 30 wide
    chances: tuple[np.ndarray, ...] = ()
    reference = MixedReference(
        np.array([0.999, 0.001]), np.zeros((2, 1)), np.array([[[0.1]], [[900.0]]]), chances
    )
    none = np.zeros((1, 0))
    correction = Correction(
        np.eye(1), none[0], np.zeros((1, 1)), none.astype(int), np.zeros((1, 1)), np.ones(1)
    )
    terms = MixedTerms.of(reference, correction)
    p = TableDensity(Columns((KINDS["cost"],)), [(1.0, terms)])
    assert 1.0 < p.mean()["cost"] < 1.2
    assert p.probability({"cost": 3.0}, {"cost": 30.0}) == pytest.approx(
        p.cdf(30.0) - p.cdf(3.0), abs=1e-12
    )


def test_circle_closes_at_the_seam() -> None:
    p = density_of("wind")
    seam = KINDS["wind"].seam
    left, right = p.pdf(pandas.DataFrame({"wind": [seam - 1e-7, seam + 1e-7]}))
    assert left == pytest.approx(right, rel=1e-6)
    zero, full = p.pdf(pandas.DataFrame({"wind": [0.0, 360.0]}))
    assert zero == pytest.approx(full, rel=1e-12)
    assert p.probability({"wind": 0.0}, {"wind": 360.0}) == pytest.approx(1.0, abs=1e-12)
    through = p.probability({"wind": 350.0}, {"wind": 10.0})
    parts = p.probability({"wind": 350.0}) + p.probability(high={"wind": 10.0})
    assert through == pytest.approx(parts, abs=1e-6)


@pytest.mark.parametrize("name", ["price", "cost", "rain", "share", "visits", "heaped", "fare"])
def test_quantiles_invert_the_distribution_function(name: str) -> None:
    p = density_of(name)
    q = np.linspace(0.02, 0.98, 25)
    x = p.ppf(q)
    assert np.all(np.diff(x) >= 0.0)
    assert np.all(p.cdf(x) >= q - 1e-7)
    atoms = np.isin(x, KINDS[name].atoms)
    if name != "visits":
        np.testing.assert_allclose(p.cdf(x[~atoms]), q[~atoms], atol=1e-7)
    assert p.ppf(0.5) == pytest.approx(x[12])


GIVEN: dict[str, dict[str, Any]] = {
    "a level": {"origin": "Japan"},
    "a set and an interval": {"origin": {"EU", "USA"}, "price": (0.5, 3.0)},
    "an atom": {"rain": 0.0, "share": 1.0},
    "an interval with an atom": {"rain": (0.0, 2.0), "share": (0.4, 1.0)},
    "counts": {"visits": (1, 4)},
    "through the seam": {"wind": (20.0, 300.0), "visits": 0},
}


@pytest.mark.parametrize("condition", GIVEN.values(), ids=list(GIVEN))
def test_events_agree_with_samples(condition: dict[str, Any]) -> None:
    p = everything()
    X = p.rvs(20_000, rng=3)
    held = np.ones(len(X), dtype=bool)
    for name, one in condition.items():
        if isinstance(one, tuple):
            held &= X[name].between(*one).to_numpy()
        else:
            held &= X[name].isin(one if isinstance(one, set) else [one]).to_numpy()
    n = held.sum()
    low = {name: one[0] if isinstance(one, tuple) else one for name, one in condition.items()}
    high = {
        name: one[1] if isinstance(one, tuple) else one
        for name, one in condition.items()
        if name != "origin"
    }
    found = p.probability(low, high)
    assert found == pytest.approx(n / len(X), abs=4.5 * math.sqrt(found / len(X)))
    # within the condition, questions agree with the samples that meet it
    q = p.conditional(condition)
    assert set(q.feature_names) == set(p.feature_names) - set(condition)
    inside = X[held]
    event = {"plain": 1.0}
    expected = float((inside["plain"] >= 1.0).mean())
    error = 4.5 * math.sqrt(0.25 / n)
    assert q.probability(event) == pytest.approx(expected, abs=error)
    assert p.probability(event, given=condition) == pytest.approx(q.probability(event), abs=1e-9)


def test_values_are_conditions_by_bayes_rule() -> None:
    p, X = everything(), rows().iloc[:6]
    for names in (["price", "origin"], ["rain"], ["share", "wind"], ["visits"]):
        rest = [name for name in p.feature_names if name not in names]
        for _, row in X.iterrows():
            one = pandas.DataFrame([row])
            given = {name: row[name] for name in names}
            found = p.conditional(given).logpdf(one[rest])
            expected = p.logpdf(one) - p.marginal(names).logpdf(one[names])
            # in the cell of a count both sides are quadrature
            np.testing.assert_allclose(found, expected, atol=1e-2, err_msg=str(names))


def test_missing_cells_are_integrated_out() -> None:
    p, X = everything(), rows().iloc[:5].astype(object).copy()
    X[["price", "origin", "visits"]] = None
    rest = [name for name in p.feature_names if name not in ("price", "origin", "visits")]
    found = p.logpdf(X)
    np.testing.assert_allclose(found, p.marginal(rest).logpdf(X[rest]), atol=1e-8)
    X[:] = None
    np.testing.assert_allclose(p.logpdf(X), 0.0, atol=1e-12)


def test_samples_are_of_the_types_and_in_the_support() -> None:
    X = everything().rvs(5_000, rng=0)
    assert X.dtypes.astype(str).to_dict() == {name: KINDS[name].dtype for name in X}
    assert (X["price"] > 0.0).all() and (X["rain"] >= 0.0).all()
    assert X["share"].between(0.0, 1.0).all() and X["wind"].between(0.0, 360.0).all()
    assert (X["visits"] >= 0).all() and set(X["origin"]) == {"EU", "Japan", "USA"}
    nothing = everything().probability(high={"rain": 0.0})
    assert (X["rain"] == 0.0).mean() == pytest.approx(nothing, abs=0.02)
    assert everything().rvs(0).shape == (0, 7)


@pytest.mark.parametrize("share", [1e-3, 1e-10])
def test_samples_under_a_rare_condition(share: float) -> None:
    p = density_of("plain", "price", "origin")
    end = float(p.marginal("plain").ppf(share))
    rare = p.conditional({"plain": (-math.inf, end)})
    drawn, price = rare.rvs(400, rng=0), rare.marginal("price")
    u = price.cdf(drawn["price"].to_numpy())
    assert kstest(u, "uniform").pvalue > 1e-3
    shares = drawn["origin"].value_counts(normalize=True)
    for level, truth in rare.probabilities("origin").items():
        assert shares[level] == pytest.approx(truth, abs=4.0 * math.sqrt(truth / 400))


@pytest.mark.filterwarnings("ignore:X has missing cells")
def test_answers_have_the_make_of_the_data(tmp_path: Any) -> None:
    polars, pyarrow = pytest.importorskip("polars"), pytest.importorskip("pyarrow")
    rng, n = np.random.default_rng(0), 30
    cells = {"k": rng.poisson(1.0, n), "x": rng.normal(size=n), "flag": rng.random(n) < 0.5}
    cells["word"] = rng.choice(["a", "b"], n)
    gaps = polars.DataFrame(cells).with_columns(
        x=polars.when(polars.col("x") > 1.0).then(None).otherwise(polars.col("x")),
        word=polars.col("word").cast(polars.Enum(["b", "a", "c"])),
        k=polars.col("k").cast(polars.Int32),
    )
    codes = pyarrow.array(cells["word"]).dictionary_encode()
    arrow = pyarrow.table(cells).set_column(3, "word", codes)
    for table, make in ((gaps, "polars"), (gaps.lazy(), "polars"), (arrow, "pyarrow")):
        search = ksos.KernelSoSDensityCV(
            cv=2, relative_regularizations=[math.inf], columns={"k": "count"}
        )
        search.fit(table).distribution_.save(tmp_path / "p.ksos")
        p, known = load(tmp_path / "p.ksos"), gaps if make == "polars" else table
        drawn, filled = p.rvs(5, rng=0), p.impute(known)
        assert p.logpdf(table).shape == (n,)
        assert type(drawn) is type(known) and drawn.schema == known.schema
        assert filled.schema == known.schema and type(p.mean()) is type(known)
        rest = known.select(["k", "x", "flag"])
        assert type(p.probabilities("word", given=rest)) is type(known)
        np.testing.assert_array_equal(
            p.probabilities("word", given=rest), p.probabilities("word", given=known)
        )
        np.testing.assert_array_equal(filled["k"], known["k"])
    plain = ksos.KernelSoSDensity(bandwidth=1.0).fit(gaps.select("k"))
    plain.distribution_.save(tmp_path / "plain.ksos")
    assert type(load(tmp_path / "plain.ksos").rvs(2, as_frame=True)) is polars.DataFrame


def test_values_of_all_numbers_leave_a_density_of_the_levels() -> None:
    p = density_of("plain", "price", "origin")
    levels = KINDS["origin"].levels
    X = pandas.DataFrame({"plain": 0.7, "price": 1.3, "origin": list(levels)})
    truth = p.pdf(X) / p.pdf(X).sum()
    part = p.conditional({"plain": 0.7, "price": 1.3})
    np.testing.assert_allclose(part.probabilities("origin"), truth, rtol=1e-9)


def test_entropies_are_sums_or_within_their_errors() -> None:
    p = density_of("plain", "origin")
    x = np.linspace(-6.0, 8.0, 1_401)
    levels = KINDS["origin"].levels
    values = [p.pdf(pandas.DataFrame({"plain": x, "origin": one})) for one in levels]
    truth = -np.sum(values * np.log(values)) * 0.01
    assert abs(p.entropy() - truth) < 4.0 * p.entropy().error < 0.2
    shares = p.only(1).probabilities("origin").to_numpy()
    exact = p.only(1).entropy()
    assert exact == pytest.approx(-np.sum(shares * np.log(shares)), abs=1e-12)
    assert exact.error == 0.0 and exact.method == "sum"


def test_plain_columns_are_an_ordinary_density() -> None:
    p = density_of("plain", "price", "origin")
    q = p.conditional({"origin": {"EU", "Japan"}, "price": (1.0, 5.0)})
    assert isinstance(q, ksos.SoSDensity) and q.feature_names == ("plain",)
    x = np.linspace(-8.0, 8.0, 2001)
    assert q.pdf(pandas.DataFrame({"plain": x})).sum() * (x[1] - x[0]) == pytest.approx(
        1.0, abs=1e-6
    )
    assert isinstance(p.marginal("plain"), ksos.SoSDensity)
    assert p.marginal("plain").mean()[0] == pytest.approx(p.mean()["plain"], abs=1e-9)


def test_means_are_those_of_samples() -> None:
    p = everything()
    X = p.rvs(30_000, rng=5)
    for name in ("plain", "share", "visits"):
        error = 5.0 * X[name].std() / math.sqrt(len(X))
        assert p.mean()[name] == pytest.approx(X[name].mean(), abs=error)
    assert p.cov().loc["plain", "plain"] == pytest.approx(X["plain"].var(), rel=0.05)
    near = p.cov().loc["plain", "share"]
    assert near == pytest.approx(X["plain"].cov(X["share"]), abs=0.02)


def test_probabilities_of_levels() -> None:
    p, X = everything(), rows()
    found = p.probabilities("origin")
    assert found.sum() == pytest.approx(1.0)
    assert found["EU"] == pytest.approx(p.probability({"origin": "EU"}))
    given = p.probabilities("origin", given={"rain": 0.0, "price": (1.0, 2.0)})
    expected = p.probability({"origin": "USA"}, given={"rain": 0.0, "price": (1.0, 2.0)})
    assert given["USA"] == pytest.approx(expected)
    # rows, with the column or without it
    each = p.probabilities("origin", given=X.iloc[:8])
    np.testing.assert_allclose(
        each, p.probabilities("origin", given=X.iloc[:8].drop(columns="origin"))
    )
    every = [X.iloc[:8].assign(origin=level) for level in each.columns]
    joint = np.exp(np.stack([p.logpdf(one) for one in every], axis=1))
    np.testing.assert_allclose(each, joint / joint.sum(axis=1, keepdims=True), atol=0.01)


def test_conditional_means_are_those_of_draws() -> None:
    p = density_of("plain", "price", "rain", "share", "origin", seed=2)
    X = p.rvs(3, rng=4).astype(object)
    X.loc[0, ["rain", "plain"]] = None
    X.loc[1, ["share", "origin"]] = None
    X.loc[2, ["price"]] = None
    found = p.conditional_mean(X)
    many = pandas.concat([X] * 2000, ignore_index=True)
    drawn = p.impute(many, how="draw", rng=0)
    for row, name in ((0, "rain"), (0, "plain"), (1, "share"), (2, "price")):
        own = drawn[name].to_numpy(dtype=float)[row::3]
        error = 5.0 * own.std() / math.sqrt(own.size)
        assert found.loc[row, name] == pytest.approx(own.mean(), abs=error)
    seen = X[["plain", "price", "rain", "share"]].notna()
    kept = found.where(seen).astype(float)
    pandas.testing.assert_frame_equal(kept, X[list(found)].where(seen).astype(float))


@pytest.mark.parametrize("how", ["mean", "mode", "draw"])
def test_imputation_fills_every_gap_and_changes_nothing_else(how: str) -> None:
    X = with_gaps().iloc[: 3 if how == "mode" else 12]
    filled = everything().impute(X, how=how, rng=0)
    assert not filled.isna().any().any()
    assert filled.dtypes.equals(rows().dtypes)
    seen = X.notna()
    assert (filled.astype(object).where(seen) == X.where(seen))[seen].stack().all()
    assert np.isfinite(everything().logpdf(filled)).all()


def test_modes_are_likelier_than_draws() -> None:
    p, X = density_of("plain", "price", "origin"), with_gaps()[["plain", "price", "origin"]]
    likely = p.logpdf(p.impute(X, how="mode", rng=0)).mean()
    assert likely > p.logpdf(p.impute(X, how="draw", rng=0)).mean() + 0.2
    best = p.mode().to_frame().T
    assert p.logpdf(best)[0] >= p.logpdf(p.rvs(500, rng=0)).max()


@pytest.mark.parametrize("name", ["heaped", "fare"])
def test_normal_scores_change_coordinates_alone(name: str) -> None:
    p = density_of(name, "plain", "origin")
    assert isinstance(p.conditional({"origin": "EU"}), TableDensity)  # no plain numbers
    X = p.rvs(40_000, rng=1)
    for one in (name, "plain"):
        error = 5.0 * X[one].std() / math.sqrt(len(X))
        assert p.mean()[one] == pytest.approx(X[one].mean(), abs=error)
    near = {name: (1.4, 1.6)}
    share = np.mean(X[name].between(1.4, 1.6))
    assert p.probability(*({name: end} for end in near[name])) == pytest.approx(share, abs=0.012)
    # given a value, the others have the ratio of two densities
    given = p.conditional({name: 1.5, "origin": "USA"})
    rows = pandas.DataFrame({name: 1.5, "plain": [-1.0, 0.5], "origin": "USA"})
    joint, alone = p.logpdf(rows), p.logpdf(rows.assign(plain=None))
    np.testing.assert_allclose(given.logpdf(rows[["plain"]]), joint - alone, atol=1e-9)


def test_tails_on_the_scale_of_scores_have_a_variance() -> None:
    # a component of a thousandth that is 30 wide on the scale of scores
    reference = MixedReference(
        np.array([0.999, 0.001]), np.zeros((2, 1)), np.array([[[1.0]], [[900.0]]]), ()
    )
    none = np.zeros((1, 0))
    correction = Correction(
        np.eye(1), none[0], np.zeros((1, 1)), none.astype(int), np.zeros((1, 1)), np.ones(1)
    )
    terms = MixedTerms.of(reference, correction)
    p = TableDensity(Columns((KINDS["heaped"],)), [(1.0, terms)])
    assert p.rvs(100_000, rng=0)["heaped"].std() < 3.0  # 1.3 without that component


def test_file_gives_the_density_back(tmp_path: Any) -> None:
    p = everything()
    q = p.conditional({"rain": (0.0, 2.0), "visits": (0, 3)})  # of several parts
    for one in (p, q, density_of("origin"), density_of("price"), density_of("fare", "share")):
        one.save(tmp_path / "p.ksos")
        back = load(tmp_path / "p.ksos")
        X = one.rvs(8, rng=0)
        np.testing.assert_array_equal(back.logpdf(X), one.logpdf(X))
        assert repr(back) == repr(one)
        pandas.testing.assert_frame_equal(back.rvs(5, rng=1), one.rvs(5, rng=1))


@pytest.mark.parametrize("wrong", [None, 3, "x", [], [1], {}, [math.nan], ["a", "a"], "count"])
def test_forged_columns_are_no_model(tmp_path: Any, wrong: Any) -> None:
    path = tmp_path / "p.ksos"
    density_of("rain", "heaped", "origin").save(path)
    header, data = take_apart(path.read_bytes())
    for number, column in enumerate(header["columns"]):
        for field, value in column.items():
            if wrong == value or (wrong is None and value is None):
                continue
            columns = [dict(one) for one in header["columns"]]
            columns[number][field] = wrong
            path.write_bytes(forge(header | {"columns": columns}, data))
            # some other values make another density, none makes another error
            with contextlib.suppress(ksos.ModelFormatError):
                assert isinstance(load(path), TableDensity)
    for field in ("columns", "make"):
        if field == "make" and wrong is None:
            continue  # that of an array
        path.write_bytes(forge(header | {field: wrong}, data))
        with pytest.raises(ksos.ModelFormatError):
            load(path)


@pytest.mark.parametrize(
    ("message", "ask"),
    [
        ("has the level 'Mars' in row 0", lambda p, X: p.logpdf(X.assign(origin="Mars"))),
        ("is -1 in row 0", lambda p, X: p.logpdf(X.assign(price=-1.0))),
        ("is 1.5 in row 0", lambda p, X: p.logpdf(X.assign(visits=1.5))),
        ("is 400 in row 0", lambda p, X: p.logpdf(X.assign(wind=400.0))),
        ("contains infinity", lambda p, X: p.logpdf(X.assign(plain=np.inf))),
        ("lacks the column 'rain'", lambda p, X: p.logpdf(X.drop(columns="rain"))),
        ("no level 'Mars'", lambda p, X: p.conditional({"origin": "Mars"})),
        ("did you mean 'origin'", lambda p, X: p.conditional({"orign": "EU"})),
        ("one number, or as a tuple", lambda p, X: p.conditional({"price": [1.0, 2.0]})),
        ("is empty", lambda p, X: p.probability({"price": 2.0}, {"price": 1.0})),
        ("all 7 columns", lambda p, X: p.conditional(X.iloc[0].to_dict())),
        ("use pdf for densities", lambda p, X: p.marginal("price").pmf(1.0)),
        (r"for one column of numbers.*marginal\(\['plain'\]\)", lambda p, X: p.ppf(0.5)),
        ("'wind' is circular; use probability", lambda p, X: p.marginal("wind").ppf(0.5)),
        ("--kinds rain=categorical", lambda p, X: p.probabilities("rain")),
        ("not categorical", lambda p, X: p.probabilities("price")),
        ("give its level", lambda p, X: p.probability(high={"origin": "EU"})),
    ],
)
def test_errors_name_what_came_and_the_fix(message: str, ask: Any) -> None:
    with pytest.raises(ValueError, match=message):
        ask(everything(), rows())


@pytest.mark.parametrize("name", ["plain", "price", "cost", "rain", "share", "visits", "seen"])
def test_crps_is_the_integral_of_squared_differences(name: str) -> None:
    p = density_of(name, seed=2)
    column = p.columns.listed[0]
    y = np.array([0.0, 1.0, 4.0]) if column.atoms or name == "seen" else np.array([0.3, 1.7])
    y = np.array([0.3, 1.0]) if name == "share" else y
    if name in ("visits", "seen"):
        t, weights = np.arange(float(p.ppf(1.0 - 1e-12))), 1.0
    else:
        # a rule between the quantiles, and y at the ends of its panels
        least, most = p.ppf([1e-13, 1.0 - 1e-11])
        low, high = min(least, *y), max(most, *y)
        inner = p.ppf(np.linspace(0.001, 0.999, 300))
        levels = [0.9, 0.99, 0.999, 1.0 - 1e-5, 1.0 - 1e-7, 1.0 - 1e-9]
        ends = np.unique(np.r_[low, high, y, inner, p.ppf([1e-9, 1e-6, 1e-4, *levels])])
        ends = ends[(ends >= low) & (ends <= high)]
        t, weights = composite(ends[:-1], ends[1:], 12)
    cdf = p.cdf(t)
    expected = [np.sum(weights * (cdf - (t >= one)) ** 2) for one in y]
    assert np.allclose(p.crps(y), expected, rtol=1e-7)
    assert p.crps(float(y[0])) == pytest.approx(expected[0], rel=1e-7)
    # it is proper: the mean over its own draws is least for the density itself
    drawn = np.asarray(p.rvs(2000, rng=0))[:, 0].astype(float)
    assert p.crps(drawn).mean() < density_of(name, seed=5).crps(drawn).mean()


def test_crps_of_a_plain_column_is_that_of_the_ordinary_density() -> None:
    p = density_of("plain", "rain", seed=2)
    y = [-1.0, 0.4, 7.0]
    assert np.allclose(p.only(0).crps(y), p.marginal("plain").crps(y), rtol=1e-11)
    with pytest.raises(ValueError, match="y is -1 in row 0"):
        p.only(1).crps(y)


@pytest.mark.parametrize("name", ["plain", "price", "cost"])
def test_columns_without_masses_are_distributions_of_scipy(name: str) -> None:
    p = density_of(name, seed=2)
    X, x = p.to_scipy(), p.ppf([0.1, 0.5, 0.9])
    assert np.allclose(X.cdf(x), [0.1, 0.5, 0.9], rtol=1e-9)
    assert np.allclose(X.icdf([0.1, 0.5, 0.9]), x)
    assert np.allclose(X.pdf(x), p.pdf(p.columns.frame(x[:, None])))
    assert X.support() == (p.columns.listed[0].low, math.inf)
    if name != "price":  # whose tail is too long for SciPy's quadrature
        mean = p.expectation(lambda X: X[name])
        assert float(X.mean()) == pytest.approx(float(mean), rel=1e-7)
    assert X.sample(5, rng=0).shape == (5,)
    with pytest.raises(ValueError, match="'rain' have masses; condition on an interval"):
        density_of("rain").to_scipy()


def test_expectations_are_sums_and_integrals() -> None:
    p = density_of("plain", "rain", "origin", seed=2)
    q = p.conditional({"origin": "EU"})
    both = p.expectation(lambda X: (X["origin"] == "EU") * np.exp(-X["rain"]) * X["plain"] ** 2)
    shares = p.probabilities("origin")
    x, w = composite(np.linspace(-12.0, 12.0, 60)[:-1], np.linspace(-12.0, 12.0, 60)[1:], 8)
    u = np.linspace(-9.0, 6.0, 81)
    t, v = composite(u[:-1], u[1:], 6)
    a, b = (one.ravel() for one in np.meshgrid(x, np.exp(t), indexing="ij"))
    weights = np.outer(w, v * np.exp(t)).ravel()
    inside = weights * q.pdf(pandas.DataFrame({"plain": a, "rain": b}))
    atom = w * q.pdf(pandas.DataFrame({"plain": x, "rain": 0.0}))
    expected = shares["EU"] * (inside @ (a**2 * np.exp(-b)) + atom @ x**2)
    assert both == pytest.approx(expected, abs=max(5.0 * both.error, 1e-6))
    one = p.expectation(lambda X: X["origin"] == "Japan")
    assert one == pytest.approx(shares["Japan"], abs=1e-9)
    assert p.only(2).expectation(lambda X: X["origin"] == "EU") == pytest.approx(shares["EU"])
    of_columns = p.expectation(lambda X: X["plain"])
    assert of_columns == pytest.approx(p.mean()["plain"], abs=1e-8)
    # with many combinations, a mean of samples with its error
    many = density_of("visits", "rain", "share", "origin", seed=2)
    found = many.expectation(lambda X: X["visits"], rng=0)
    assert found.method == "samples"
    assert found == pytest.approx(many.mean()["visits"], abs=5.0 * found.error)


@pytest.mark.parametrize(
    "names",
    [
        ("plain", "price", "origin"),
        tuple(name for name in KINDS if name not in ("cost", "seen", "fare")),
    ],
    ids=len,
)
def test_densities_on_a_device_are_those_of_the_host(names: tuple[str, ...]) -> None:
    torch = pytest.importorskip("torch")
    p = density_of(*names, seed=3)
    there, X = p.to("cpu"), p.rvs(3, rng=0)
    gaps = X.mask(np.random.default_rng(1).random(X.shape) < 0.3)
    for rows in (X, gaps):
        found = there.logpdf(rows)
        assert isinstance(found, torch.Tensor)
        assert np.allclose(found.numpy(), p.logpdf(rows), rtol=1e-12)
        assert np.allclose(there.pdf(rows).numpy(), p.pdf(rows), rtol=1e-11)
    # what is made of it stays there, and all else is answered by the host
    left = there.conditional({"origin": "EU"})
    assert isinstance(left.logpdf(X.drop(columns="origin")), torch.Tensor)
    assert isinstance(there.marginal("plain").logpdf(X[["plain"]]), torch.Tensor)
    pandas.testing.assert_frame_equal(there.rvs(3, rng=0), p.rvs(3, rng=0))
    pandas.testing.assert_series_equal(there.mode(), p.mode())
    assert isinstance(there.to(None).logpdf(X), np.ndarray)


def test_whole_numbers_have_the_probabilities_of_their_samples() -> None:
    columns = Columns((Column("plain", "numeric", "int64"), KINDS["visits"], KINDS["origin"]))
    p = TableDensity(columns, density_of("plain", "visits", "origin", seed=2).parts)
    drawn = p.rvs(40_000, rng=0)
    known = {"origin": "EU"}
    for name in ("plain", "visits"):
        for condition, own in ((None, drawn), (known, drawn[drawn["origin"] == "EU"])):
            found, n = p.probabilities(name, given=condition), len(own)
            assert found.sum() == pytest.approx(1.0, abs=1e-12)
            for value, share in list(found.items())[1:-1]:
                error = 5.0 * math.sqrt(share * (1.0 - share) / n)
                assert np.mean(own[name] == value) == pytest.approx(share, abs=error)
    visits = p.probabilities("visits")
    inner = list(visits.index)[:-1]
    assert np.allclose(visits[inner], p.marginal("visits").pmf(inner), rtol=1e-10)
    # where all that is left is plain, and with another column before it
    alone = p.probabilities("plain", given={"visits": 1, "origin": "EU"})
    assert np.allclose(alone.sum(), 1.0)
    wide = Columns((Column("wide", "numeric", "int64"),))
    with pytest.raises(ValueError, match="'wide' goes from"):
        TableDensity(wide, density_of("wind").parts).probabilities("wide")


def test_unseen_levels_may_be_missing() -> None:
    X = rows().iloc[:4]
    found = everything().logpdf(X.assign(origin="Mars"), unseen="missing")
    np.testing.assert_array_equal(found, everything().logpdf(X.assign(origin=None)))


def test_all_wrong_columns_are_named_at_once() -> None:
    wrong = rows().assign(origin="Mars", price=-1.0)
    with pytest.raises(ValueError, match=r"'price'.*'origin'"):
        everything().logpdf(wrong)


def test_arrays_with_text_are_answered_with_text() -> None:
    X = np.array([[0.1 * k, "ab"[k % 2]] for k in range(40)], dtype=object)
    search = ksos.KernelSoSDensityCV(cv=2, relative_regularizations=[math.inf]).fit(X)
    p = search.distribution_
    drawn, filled = p.rvs(200, rng=0), p.impute(np.array([[None, "b"], [1.0, None]], dtype=object))
    assert np.isfinite(p.logpdf(drawn)).all() and set(drawn[:, 1]) == {"a", "b"}
    assert filled[0, 1] == "b" and filled[1, 0] == 1.0 and filled[1, 1] in ("a", "b")


@pytest.mark.parametrize("sizes", [{"rank": 1}, {"m": 3}, {"m": 1}], ids=str)
def test_compressed_densities_are_as_close_as_they_say(sizes: dict[str, int]) -> None:
    p = density_of("plain", "rain", "origin")
    small, bound = p.compress(**sizes)
    (_, terms), kernel = small.parts[0], ksos.kernels.Gaussian(1.0)
    kept = terms.correction.factor.shape
    assert kept[1 if "rank" in sizes else 0] == min(sizes.values())
    assert 0.0 < p.mmd(small, kernel) <= bound < 1.0
    # ∫|p − q| from samples of p
    X = p.rvs(4_000, rng=0)
    ratio = np.abs(1.0 - np.exp(small.logpdf(X) - p.logpdf(X)))
    assert ratio.mean() - 4.0 * ratio.std() / math.sqrt(4_000) <= bound
    assert ratio.mean() > 0.1 * bound  # a bound that says something


def test_what_cannot_be_compressed() -> None:
    p = density_of("plain", "rain", "origin")
    assert p.compress(m=50).mmd == p.compress(rank=50).mmd == 0.0
    with pytest.raises(ValueError, match="give either rank"):
        p.compress()
    with pytest.raises(ValueError, match="compress the density first"):
        p.conditional({"plain": (0.0, 1.0)}).compress(rank=1)
