"""Names of features: a permuted table gives the same answers everywhere, and what does not match is
refused by name.
"""

from __future__ import annotations

import datetime
import warnings
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest
from densities import random_density
from forging import forge, take_apart
from hypothesis import given, settings, strategies as st
from sklearn.base import clone
from tables import points

import ksos
from ksos.exceptions import ModelFormatError
from ksos.ground import column_names, frame, matrix_of
from ksos.kernels import Gaussian, Laplace
from ksos.measures import Box, GaussianMixture, Normal

NAMES = ("hp", "mpg", "wt")
Density = ksos.SoSDensity


def _reference() -> ksos.SoSDensity:
    measure = Normal(np.zeros(3), np.ones(3))
    return ksos.SoSDensity(
        Gaussian(1.5), points(4, 3), points(4, 2, 7), measure, constant=[1.0, 0.2], normalize=True
    )


LAWS: dict[str, Callable[[], Density]] = {
    "Gaussian": lambda: random_density(Gaussian([1.0, 1.5, 2.0]), d=3),
    "tied": lambda: random_density(
        Gaussian(np.array([[1.0, 0.3, 0.0], [0.3, 1.5, 0.2], [0.0, 0.2, 2.0]])), d=3
    ),
    "Laplace in a box": lambda: random_density(
        Laplace([1.0, 1.5, 2.0], product=True), Box([-4.0] * 3, [4.0] * 3), d=3
    ),
    "corrected reference": _reference,
    "mixture": lambda: ksos.mixture(
        [random_density(Gaussian(1.0), d=3), random_density(Gaussian(2.0), d=3, seed=3)], [1, 2]
    ),
}
ORDERS = [[1, 2, 0], [2, 1, 0], [0, 2, 1]]
LAPLACE = "Laplace in a box"


@pytest.fixture(params=LAWS)
def p(request: pytest.FixtureRequest) -> Density:
    return LAWS[request.param]().with_feature_names(NAMES)


def table(n: int = 4, seed: int = 11) -> pd.DataFrame:
    return pd.DataFrame(0.5 * points(n, 3, seed), columns=list(NAMES))


def permuted(order: list[int], n: int = 4, seed: int = 11) -> pd.DataFrame:
    return table(n, seed)[[NAMES[k] for k in order]]


POINTWISE: dict[str, Callable[[Density, Any], np.ndarray]] = {
    "logpdf": lambda p, X: p.logpdf(X),
    "pdf": lambda p, X: p.pdf(X),
    "cdf": lambda p, X: p.cdf(X),
    "grad_logpdf": lambda p, X: p.grad_logpdf(X),
    "conditional_logpdf": lambda p, X: p.conditional_logpdf(X, given=[1]),
    "mmd": lambda p, X: np.asarray(p.mmd(X, landmarks=table(6))),
}


@pytest.mark.parametrize("method", POINTWISE)
def test_the_order_of_the_columns_of_a_table_does_not_matter(p: Density, method: str) -> None:
    expected = POINTWISE[method](p, table())
    for order in ORDERS:
        assert np.array_equal(POINTWISE[method](p, permuted(order)), expected)


@pytest.mark.parametrize("method", POINTWISE)
def test_a_table_and_its_array_agree_and_the_array_warns_once(p: Density, method: str) -> None:
    expected = POINTWISE[method](p, table())
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        found = POINTWISE[method](p, table().to_numpy())
    assert np.array_equal(found, expected)
    assert ["does not have valid feature names" in str(one.message) for one in caught] == [True]
    assert caught[0].filename == __file__


@pytest.mark.parametrize("method", POINTWISE)
@pytest.mark.parametrize(
    ("wrong", "words"),
    [
        (
            lambda X: X.assign(year=1.0),
            "has the column 'year', but the features are 'hp', 'mpg', 'wt'; select these",
        ),
        (lambda X: X.drop(columns="mpg"), "lacks the column 'mpg'; it has 'hp', 'wt'"),
        (
            lambda X: X.rename(columns={"hp": "HP", "wt": "WT"}),
            "lacks the columns 'hp', 'wt'; it has 'HP', 'mpg', 'WT'",
        ),
    ],
)
def test_columns_that_do_not_match_are_named(
    method: str, wrong: Callable[[pd.DataFrame], pd.DataFrame], words: str
) -> None:
    with pytest.raises(ValueError, match=words):
        POINTWISE[method](LAWS["Gaussian"]().with_feature_names(NAMES), wrong(table()))


def test_questions_take_names_where_they_take_numbers(p: Density) -> None:
    bare = p.with_feature_names(None)
    assert bare.feature_names is None and bare.with_feature_names(None) is bare
    assert np.array_equal(p.marginal(["wt", "hp"]).mean(), bare.marginal([2, 0]).mean())
    assert np.array_equal(p.marginal("mpg").mean(), bare.marginal(1).mean())
    assert np.array_equal(p.conditional({"mpg": 0.3}).mean(), bare.conditional({1: 0.3}).mean())
    assert np.array_equal(
        p.conditional({"wt": 0.1, 0: 0.2}).mean(), bare.conditional({0: 0.2, 2: 0.1}).mean()
    )
    assert p.probability(low={"hp": 0.0}, high={"wt": 0.5, "hp": 2.0}) == bare.probability(
        [0.0, -np.inf, -np.inf], [2.0, np.inf, 0.5]
    )
    assert (
        p.probability(low={"hp": 0.0})
        == bare.probability({0: 0.0})
        == bare.probability([0.0, -np.inf, -np.inf], np.inf)
    )
    many = p.probability(low=pd.DataFrame({"wt": [0.0, 0.5]}))
    assert np.array_equal(
        many, bare.probability([[-np.inf, -np.inf, 0.0], [-np.inf, -np.inf, 0.5]], np.inf)
    )
    assert p.moment({"wt": 2}) == bare.moment([0, 0, 2])
    X = table().to_numpy()
    assert np.array_equal(
        p.conditional_logpdf(table(), given="wt"), bare.conditional_logpdf(X, given=[2])
    )


def test_what_operations_return_has_names(p: Density) -> None:
    assert p.feature_names == NAMES
    assert p.marginal(["wt", "hp"]).feature_names == ("wt", "hp")
    assert p.marginal([2, 0]).feature_names == ("wt", "hp")
    assert p.conditional({"mpg": 0.3}).feature_names == ("hp", "wt")
    assert all(part.feature_names == NAMES for _, part in p.components)
    assert p.by_volume().feature_names == p.to(None).feature_names == NAMES
    assert p.compress(rank=1, landmarks=table()).density.feature_names == NAMES
    assert "'hp', 'mpg', 'wt'" in repr(p)


def test_images_and_products_keep_names_unless_features_are_mixed() -> None:
    for name in [name for name in LAWS if name != LAPLACE]:
        p = LAWS[name]().with_feature_names(NAMES)
        moved = p.affine(scale={"hp": 2.0}, shift={"wt": 1.0})
        assert moved.feature_names == NAMES
        assert moved.mean() == pytest.approx(p.mean() * [2.0, 1.0, 1.0] + [0.0, 0.0, 1.0], rel=1e-9)
        assert p.affine(np.eye(3) + 0.1 * np.ones((3, 3))).feature_names is None
        product = p.times_gaussian({"mpg": 0.5}, {"mpg": 0.7})
        expected = p.with_feature_names(None).times_gaussian([0.0, 0.5, 0.0], [np.inf, 0.7, np.inf])
        assert product.feature_names == NAMES
        assert np.array_equal(product.mean(), expected.mean())


def test_laws_meet_in_the_order_of_their_names(p: Density) -> None:
    other = p.marginal(["wt", "hp", "mpg"])
    assert np.allclose(ksos.mixture([p, other]).logpdf(table()), p.logpdf(table()), rtol=1e-10)
    assert ksos.mmd(p, other, landmarks=table(6)) < 1e-7
    assert ksos.mmd(other, p, landmarks=permuted([2, 0, 1], 6)) < 1e-7
    wrong = p.with_feature_names(["hp", "mpg", "kg"])
    for question in (
        lambda: ksos.mixture([p, wrong]),
        lambda: ksos.mmd(p, wrong),
        lambda: p.kl_divergence(wrong),
    ):
        with pytest.raises(ValueError, match="lacks the column 'wt'; it has 'hp', 'mpg', 'kg'"):
            question()
    with pytest.warns(UserWarning, match="density 1 does not have valid feature names"):
        assert ksos.mixture([p, p.with_feature_names(None)]).feature_names == NAMES


def test_distances_between_laws_see_names() -> None:
    p = LAWS["Gaussian"]().with_feature_names(NAMES)
    other = p.marginal([2, 0, 1])
    assert p.l2_distance(other) < 1e-7
    assert p.l2_distance(other.with_feature_names(NAMES)) > 1e-3
    assert abs(p.kl_divergence(other, rtol=1e-3, max_evaluations=2000)) < 1e-9


def test_embeddings_and_samples_see_names() -> None:
    v = ksos.MeanEmbedding(table(), kernel=Gaussian([1.0, 2.0, 3.0]))
    assert v.feature_names == NAMES and "'hp'" in repr(v)
    assert np.array_equal(v(table(3)), v(permuted([2, 0, 1], 3)))
    assert ksos.mmd(
        table(), permuted([1, 2, 0]), kernel=Gaussian([1.0, 2.0, 3.0])
    ) == pytest.approx(0.0, abs=1e-7)
    other = ksos.MeanEmbedding(permuted([2, 0, 1]), kernel=Gaussian([3.0, 1.0, 2.0]))
    assert ksos.mmd(v, other) == pytest.approx(0.0, abs=1e-7)
    for a, b in ((table(), table().to_numpy()), (table().to_numpy(), table())):
        with pytest.warns(UserWarning, match="does not have valid feature names"):
            assert ksos.mmd(a, b, kernel=Gaussian(1.0)) == pytest.approx(0.0, abs=1e-7)
    with pytest.raises(ValueError, match="b has the column 'z'"):
        ksos.mmd(table(), table().assign(z=0.0), kernel=Gaussian(1.0))


def test_answers_as_data_frames(p: Density) -> None:
    assert p.mean(as_frame=True).to_dict() == dict(zip(NAMES, p.mean().tolist(), strict=True))
    covariance = p.cov(as_frame=True)
    assert tuple(covariance.columns) == tuple(covariance.index) == NAMES and np.array_equal(
        covariance, p.cov()
    )
    rows = p.rvs(3, rng=0, as_frame=True)
    assert tuple(rows.columns) == NAMES and np.array_equal(rows, p.rvs(3, rng=0))
    assert list(p.with_feature_names(None).rvs(1, rng=0, as_frame=True).columns) == [
        "x0",
        "x1",
        "x2",
    ]


def test_modes_as_data_frames() -> None:
    p = LAWS["Gaussian"]().with_feature_names(NAMES)
    assert np.array_equal(p.mode(as_frame=True)[list(NAMES)], p.mode())
    assert tuple(p.mode(all_local=True, as_frame=True).columns) == NAMES


@given(
    st.lists(st.text(max_size=6), min_size=2, max_size=4, unique=True),
    st.randoms(use_true_random=False),
)
@settings(max_examples=30, deadline=None)
def test_any_words_are_names_and_any_order_of_them_will_do(names: list[str], random: Any) -> None:
    d = len(names)
    p = random_density(Gaussian(1.0), d=d).with_feature_names(names)
    X = pd.DataFrame(points(3, d, 5), columns=names)
    order = random.sample(names, d)
    assert np.array_equal(p.logpdf(X[order]), p.logpdf(X))
    assert p.marginal(order).feature_names == tuple(order)
    assert np.allclose(p.marginal(order).logpdf(X), p.logpdf(X), rtol=1e-10, atol=1e-12)


@pytest.mark.parametrize(
    ("names", "error", "words"),
    [
        (["a", "b"], ValueError, "one name for each of the 3 features; got 2"),
        (["a", "b", "a"], ValueError, "of the same name: 'a'"),
        (["a", "b", 3], TypeError, "must be a list of text"),
        ("abc", TypeError, "must be a list of text"),
        (7, TypeError, "must be a list of text"),
    ],
)
def test_names_that_are_none(names: Any, error: type[Exception], words: str) -> None:
    with pytest.raises(error, match=words):
        LAWS["Gaussian"]().with_feature_names(names)


@pytest.mark.parametrize(
    ("question", "words"),
    [
        (
            lambda p: p.marginal("mpgg"),
            (
                "features names the feature 'mpgg', but the features are 'hp', 'mpg', 'wt'; did you"
                " mean 'mpg'"
            ),
        ),
        (lambda p: p.marginal(["hp", 0]), "name each feature once"),
        (lambda p: p.conditional({"hp": np.inf}), "the value of 'hp' must be finite"),
        (lambda p: p.conditional({"hp": "a"}), "the value of 'hp' must be a number"),
        (
            lambda p: p.probability(low={"hp": 1.0}, high={"hp": 0.0}),
            "in 'hp' low is 1.0 and high is 0.0",
        ),
        (lambda p: p.probability(low={"year": 1.0}), "low names the feature 'year'"),
        (lambda p: p.probability(low={"hp": 1.0, 0: 0.0}), "name each feature once"),
        (lambda p: p.probability(low={5: 1.0}), "numbered 0 to 2"),
        (lambda p: p.moment({"x": 1}), "powers names the feature 'x'"),
        (lambda p: p.affine({"wt": 0.0}), "that of 'wt' is"),
        (lambda p: p.ppf(0.5), r"p\.marginal\(\['hp'\]\)"),
        (lambda p: p.with_feature_names(None).marginal("hp"), "the features have no names here"),
    ],
)
def test_refusals_say_names(question: Callable[[Density], Any], words: str) -> None:
    with pytest.raises(ValueError, match=words):
        question(LAWS["Gaussian"]().with_feature_names(NAMES))


def test_a_condition_where_there_is_no_density_is_told_by_name() -> None:
    p = LAWS[LAPLACE]().with_feature_names(NAMES)
    with pytest.raises(ValueError, match=r"vanishes at \{'mpg': 5\.0\}, outside of Box"):
        p.conditional({"mpg": 5.0})
    with pytest.raises(
        ValueError, match="the features 'mpg' vanishes in 1 of 4 rows of X, first in row 2"
    ):
        p.conditional_logpdf(table().assign(mpg=[0.0, 0.0, 9.0, 0.0]), given="mpg")


@pytest.mark.parametrize(
    "name", [name for name in LAWS if name != LAPLACE]
)  # a box has no far away
def test_a_question_far_outside_of_the_data_warns(name: str) -> None:
    p = LAWS[name]().with_feature_names(NAMES)
    for scale in (1.0, 1e-6, 1e6):  # it is a matter of the law, not of its units
        scaled = p.affine(scale)
        for distance in (0.0, 3.0):
            scaled.conditional({"hp": scale * distance})
        with pytest.warns(UserWarning, match=r"the condition \{'hp': .*\} is far outside"):
            scaled.probability(low={"mpg": 0.0}, given={"hp": 400.0 * scale})
        with pytest.warns(
            UserWarning,
            match=r"the condition \{'hp': .*\} is far outside of the data: .* standard deviations",
        ):
            scaled.conditional({"hp": scale * 400.0})


# --- columns that are no numbers ---

ODD_COLUMNS: dict[str, tuple[Any, str]] = {
    "dates": (
        pd.date_range("2020-01-01", periods=3),
        "column 'odd' holds dates such as '2020-01-01.*days since its first date",
    ),
    "durations": (
        pd.to_timedelta([1, 2, 3], unit="s"),
        "column 'odd' holds durations .*divide it by a unit",
    ),
    "text": (["a", "b", "c"], "column 'odd' holds text such as 'a'; leave the column out"),
    "numbers as text": (["1", "2", "3"], "column 'odd' holds text such as '1'"),
    "categories": (pd.Categorical([1, 2, 1]), "column 'odd' holds categories"),
    "complex": ([1j, 2j, 0j], "column 'odd' holds complex numbers"),
    "days": ([datetime.date(2020, 1, 1)] * 3, "column 'odd' holds values of type date"),
    "missing": (
        [1.0, np.nan, 2.0],
        (
            r"Input X contains NaN: column 'odd' has missing values in 1 of 3 rows, the first in"
            r" row 1 \(counted"
        ),
    ),
    "None": (
        [1.0, 2.0, None],
        "column 'odd' has missing values in 1 of 3 rows, the first in row 2",
    ),
    "NA": (
        pd.array([None, 2, 3], dtype="Int64"),
        "column 'odd' has missing values in 1 of 3 rows, the first in row 0",
    ),
    "no boolean": (
        pd.array([True, None, None], dtype="boolean"),
        "column 'odd' has missing values in 2 of 3 rows, the first in row 1",
    ),
    "infinite": (
        [1.0, -np.inf, 2.0],
        "contains infinity.*: column 'odd' has infinities in 1 of 3 rows",
    ),
}


@pytest.mark.parametrize("kind", ODD_COLUMNS)
def test_columns_without_numbers_are_named(kind: str) -> None:
    column, words = ODD_COLUMNS[kind]
    X = pd.DataFrame({"good": [1.0, 2.0, 3.0], "odd": column})
    p = random_density(Gaussian(1.0), d=2).with_feature_names(["good", "odd"])
    for question in (
        ksos.KernelSoSDensity().fit,
        # with a reference, text and missing cells are modeled
        ksos.KernelSoSDensityCV(reference=None).fit,
        p.logpdf,
        lambda X: ksos.MeanEmbedding(X, kernel=Gaussian(1.0)),
    ):
        with pytest.raises(ValueError, match=words.replace("Input X", "Input (X|points)")):
            question(X)


def test_columns_of_any_numbers_are_the_same_numbers() -> None:
    p = random_density(Gaussian(1.0), d=3).with_feature_names(NAMES)
    X = pd.DataFrame(
        {
            "hp": pd.array([1, 2], dtype="Int64"),
            "mpg": [True, False],
            "wt": np.array([0.5, 1.5], dtype=np.float32),
        }
    )
    assert np.array_equal(
        p.logpdf(X), p.with_feature_names(None).logpdf([[1.0, 1.0, 0.5], [2.0, 0.0, 1.5]])
    )
    assert np.array_equal(p.logpdf(X.astype({"hp": object, "wt": "Float64"})), p.logpdf(X))


def test_labels_of_columns() -> None:
    assert column_names(table()) == NAMES
    assert column_names(pd.DataFrame(points(2, 2))) is None
    assert column_names(points(2, 2)) is None
    with pytest.raises(TypeError, match="all named by text, or none; got labels of int, str"):
        column_names(pd.DataFrame(points(2, 2), columns=["a", 1]))
    with pytest.raises(ValueError, match="X has columns of the same name: 'a'"):
        ksos.KernelSoSDensity().fit(pd.DataFrame(points(5, 2), columns=["a", "a"]))
    numbered = random_density(Gaussian(1.0), d=2)
    assert np.array_equal(
        numbered.logpdf(pd.DataFrame(points(2, 2))), numbered.logpdf(points(2, 2))
    )


@pytest.mark.parametrize("library", ["polars", "pyarrow"])
def test_tables_of_other_libraries(library: str) -> None:
    home = pytest.importorskip(library)
    columns = {name: table()[name].tolist() for name in ("wt", "hp", "mpg")}
    X = home.DataFrame(columns) if library == "polars" else home.table(columns)
    assert column_names(X) == ("wt", "hp", "mpg")
    assert np.array_equal(matrix_of(X, "X", NAMES), table().to_numpy())
    p = LAWS["Gaussian"]().with_feature_names(NAMES)
    assert np.array_equal(p.logpdf(X), p.logpdf(table()))


def test_a_library_that_is_missing_is_named() -> None:
    with pytest.raises(ImportError, match="needs no_such_frames: pip install no_such_frames"):
        frame(points(2, 2), None, "no_such_frames")


# --- estimators ---


@pytest.mark.parametrize(
    "estimator",
    [
        ksos.KernelSoSDensity(bandwidth=2.0, tol=1e-3),
        ksos.KernelSoSDensity(reference="normal", n_support=5, tol=1e-3),
        ksos.KernelSoSDensityCV([1.0], [0.1], cv=2, reference=None),
    ],
)
def test_estimators_hand_their_names_on(estimator: Any) -> None:
    X = table(30)
    fitted = clone(estimator).fit(X)
    p = fitted.distribution_
    assert p.feature_names == tuple(fitted.feature_names_in_) == NAMES
    assert np.array_equal(p.logpdf(X), fitted.score_samples(X))
    with pytest.raises(ValueError, match="feature names should match"):
        fitted.score_samples(X[["wt", "hp", "mpg"]])
    with pytest.warns(UserWarning, match="X does not have valid feature names") as caught:
        fitted.score_samples(X.to_numpy())
    assert len(caught) == 1
    assert fitted.fit(X.to_numpy()).distribution_.feature_names is None


def test_samples_outside_of_the_domain_are_told_by_name() -> None:
    X = pd.DataFrame({"hp": [1.0, 2.0, -3.0], "mpg": [0.0, 1.0, 2.0]})
    for estimator in (ksos.KernelSoSDensity, ksos.KernelSoSDensityCV):
        with pytest.raises(ValueError, match=r"the first is row 2: \{'hp': -3\.0, 'mpg': 2\.0\}"):
            estimator(measure=Box([0.0, -np.inf], [np.inf, np.inf])).fit(X)


def test_columns_without_spread_are_told_by_name() -> None:
    X = table(20).assign(mpg=3.0)
    by_rule, corrected = (
        ksos.KernelSoSDensity(bandwidth="scott", tol=1e-3),
        ksos.KernelSoSDensity(reference="normal", tol=1e-3),
    )
    for estimator in (
        by_rule,
        corrected,
        ksos.KernelSoSDensityCV([1.0], [0.1], cv=2, reference=None),
    ):
        with pytest.warns(UserWarning, match=r"feature 'mpg' has no spread"):
            estimator.fit(X)


def test_tied_columns_are_told_by_name() -> None:
    X = table(30).assign(mpg=lambda t: 2.0 * t["hp"])
    with pytest.warns(
        UserWarning,
        match=r"do not vary in 1 of 3 directions \('hp', 'mpg' are linearly dependent\)",
    ):
        ksos.KernelSoSDensityCV(reference="normal", cv=2).fit(X)


def test_samples_as_data_frames() -> None:
    fitted = ksos.KernelSoSDensity(bandwidth=2.0, tol=1e-3).fit(table(30))
    plain = fitted.sample(3, random_state=0)
    assert isinstance(plain, np.ndarray)
    rows = fitted.set_output(transform="pandas").sample(3, random_state=0)
    assert tuple(rows.columns) == NAMES and np.array_equal(rows, plain)
    assert isinstance(clone(fitted).fit(table(30)).sample(1), pd.DataFrame)
    assert isinstance(fitted.set_output(transform="default").sample(1), np.ndarray)
    with pytest.raises(ValueError, match="transform must be one of 'default', 'pandas', 'polars'"):
        fitted.set_output(transform="numpy")


# --- files ---


def test_files_keep_names(p: Density, tmp_path: Path) -> None:
    p.save(tmp_path / "p.ksos")
    loaded = ksos.load(tmp_path / "p.ksos")
    assert loaded.feature_names == NAMES and type(loaded) is type(p)
    assert np.array_equal(loaded.logpdf(permuted([2, 0, 1])), p.logpdf(table()))
    p.with_feature_names(None).save(tmp_path / "p.ksos")
    header, _ = take_apart((tmp_path / "p.ksos").read_bytes())
    # as readers of older versions expect
    assert header["format_version"] < 3 and "feature_names" not in header
    assert ksos.load(tmp_path / "p.ksos").feature_names is None


@pytest.mark.parametrize(
    "forged",
    [
        None,
        "abc",
        7,
        {},
        [],
        ["a", "b"],
        ["a", "b", "c", "d"],
        ["a", "b", 3],
        ["a", "b", None],
        ["a", "b", "a"],
        ["a", "b", ["c"]],
        ["a", "b", "\x1b[2J"],
        ["a", "b", "c\n"],
        ["a", "b", "\u202e"],
        ["a", "b", "c" * 1001],
    ],
)
def test_forged_names_are_refused(tmp_path: Path, forged: Any) -> None:
    path = tmp_path / "p.ksos"
    LAWS["Gaussian"]().with_feature_names(NAMES).save(path)
    header, data = take_apart(path.read_bytes())
    path.write_bytes(forge(header | {"feature_names": forged}, data))
    with pytest.raises(ModelFormatError) as caught:
        ksos.load(path)
    assert len(str(caught.value)) < 600 and str(caught.value).isprintable()


def test_names_belong_to_the_third_version(tmp_path: Path) -> None:
    path = tmp_path / "p.ksos"
    LAWS["Gaussian"]().with_feature_names(NAMES).save(path)
    header, data = take_apart(path.read_bytes())
    nameless = {key: value for key, value in header.items() if key != "feature_names"}
    for wrong in (header | {"format_version": 2}, nameless):
        path.write_bytes(forge(wrong, data))
        with pytest.raises(ModelFormatError, match=r"its field format_version is '[23]', where"):
            ksos.load(path)


@pytest.mark.parametrize("name", ["\x1b[2J", "two\nlines", "a" * 1001])
def test_names_that_no_file_keeps_are_told_when_saving(tmp_path: Path, name: str) -> None:
    p = LAWS["Gaussian"]().with_feature_names(["hp", "mpg", name])
    with pytest.raises(
        ValueError, match="cannot be saved: the name of a feature in a file must be printable"
    ):
        p.save(tmp_path / "p.ksos")
    with pytest.raises(ValueError, match=r"give features shorter names with p\.with_feature_names"):
        LAWS["Gaussian"]().with_feature_names(["a", "b", "c" * 100_000]).save(tmp_path / "p.ksos")
    assert list(tmp_path.iterdir()) == []


def test_mixtures_over_a_reference_keep_names() -> None:
    law = GaussianMixture([0.5, 0.5], [[0.0, 0.0], [2.0, 1.0]], [np.eye(2), np.eye(2)])
    X = pd.DataFrame(points(20, 2), columns=["a", "b"])
    p = ksos.KernelSoSDensity(reference=law, n_support=5, tol=1e-3).fit(X).distribution_
    assert np.array_equal(p.logpdf(X[["b", "a"]]), p.logpdf(X))
    assert p.marginal("b").feature_names == ("b",)


def test_the_columns_of_chunks_are_put_in_order_by_name() -> None:
    a = pd.DataFrame(np.random.default_rng(0).normal(size=(40, 2)), columns=["u", "v"])
    b, kernel, Z = a + np.array([0.3, 1.0]), Gaussian(1.0), a.to_numpy()[:5]
    source = ksos.chunks([b[:10][["v", "u"]], b[10:10], b[10:25][["v", "u"]], b[25:]])
    for landmarks in (None, Z):
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # landmarks without names
            found, expected = (
                ksos.mmd(a, one, kernel=kernel, landmarks=landmarks) for one in (source, b)
            )
        assert found == pytest.approx(expected, rel=1e-9)
