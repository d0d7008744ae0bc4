"""KernelSoSConditional over regressors: the laws of a conditional density for every setting, honest
residuals, coverage, bad input.
"""

from __future__ import annotations

import pickle
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
from sklearn.base import BaseEstimator, RegressorMixin, clone
from sklearn.ensemble import HistGradientBoostingRegressor
from sklearn.exceptions import ConvergenceWarning, NotFittedError
from sklearn.frozen import FrozenEstimator
from sklearn.linear_model import LinearRegression, Ridge
from sklearn.model_selection import GridSearchCV, KFold, cross_val_predict
from sklearn.neighbors import KNeighborsRegressor
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import StandardScaler
from sklearn.utils.estimator_checks import parametrize_with_checks
from statistics_checks import dkw_passes_at

import ksos
from ksos import KernelSoSConditional, KernelSoSDensity
from ksos.choose import SplitConformal
from ksos.solvers import Fista

QUICK = KernelSoSDensity(n_support=20, tol=1e-4)
NEW = np.array([[-1.0, 0.3], [0.0, 0.0], [1.5, -0.7]])


def slope(n: int = 150, seed: int = 0) -> tuple[np.ndarray, np.ndarray]:
    """y = x₀ + noise that grows with x₁ and is skewed."""
    rng = np.random.default_rng(seed)
    X = rng.normal(size=(n, 2))
    return X, X[:, 0] + 0.3 * np.exp(0.5 * X[:, 1]) * (rng.gamma(2.0, size=n) - 2.0)


def model(regressor: Any = None, **options: Any) -> KernelSoSConditional:
    return KernelSoSConditional(
        LinearRegression() if regressor is None else regressor, **{"estimator": QUICK, **options}
    )


SETTINGS: dict[str, KernelSoSConditional] = {
    "plain": model(scale="constant", given=None),
    "scale": model(Ridge(), scale=Ridge(10.0), given=None),
    "given the prediction": model(scale=Ridge(1.0), given="prediction"),
    "given two columns": model(scale="constant", given=[1, 0]),
    "a pipeline and trees": model(
        [make_pipeline(StandardScaler(), Ridge()), HistGradientBoostingRegressor(max_iter=10)],
        given=None,
    ),
    "prefit": model(LinearRegression().fit(*slope(80, 5)), prefit=True, given=None),
}


@pytest.fixture(scope="module", params=list(SETTINGS))
def fitted(request: pytest.FixtureRequest) -> KernelSoSConditional:
    return (
        clone(SETTINGS[request.param]).fit(*slope())
        if request.param != "prefit"
        else SETTINGS["prefit"].fit(*slope())
    )


@pytest.mark.filterwarnings(
    "ignore:.* rows say little",
    "ignore:the regressor predicts output 0 of held-out rows without error",
)
@parametrize_with_checks([model(scale="constant", given=None)])
def test_scikit_learn_checks(estimator: Any, check: Any) -> None:
    check(estimator)


# --- what a conditional density is, whatever it is made of ---


def test_mass_one_and_its_mean(fitted: KernelSoSConditional) -> None:
    grid = np.linspace(-60.0, 60.0, 24_001)
    values = fitted.pdf(NEW, grid=grid)
    step = grid[1] - grid[0]
    np.testing.assert_allclose(values.sum(axis=1) * step, 1.0, atol=1e-4)
    mean, std = fitted.predict(NEW, return_std=True)
    np.testing.assert_allclose(values @ grid * step, mean, atol=5e-3)
    assert np.all(std > 0.0)
    np.testing.assert_allclose(
        fitted.pdf(NEW, grid[[1, 2, 3]] * 0.0 + 0.1), fitted.pdf(NEW, grid=[0.1])[:, 0], rtol=1e-12
    )


def test_quantile_inverts_the_distribution_function_and_never_crosses(
    fitted: KernelSoSConditional,
) -> None:
    levels = np.linspace(0.0005, 0.9995, 999)
    values = fitted.predict_quantile(NEW, levels)
    assert np.all(np.diff(values, axis=1) >= 0.0)
    for j in (0, 123, 499, 998):
        np.testing.assert_allclose(fitted.cdf(NEW, values[:, j]), levels[j], atol=1e-9)
    np.testing.assert_array_equal(fitted.predict_quantile(NEW, [1.0, 0.0]), [[np.inf, -np.inf]] * 3)
    np.testing.assert_array_equal(fitted.predict_quantile(NEW, levels[::-1]), values[:, ::-1])
    np.testing.assert_allclose(
        fitted.predict_interval(NEW, 0.8), fitted.predict_quantile(NEW, [0.1, 0.9]), atol=1e-9
    )


def test_density_is_the_slope_of_the_distribution_function(fitted: KernelSoSConditional) -> None:
    grid, h = np.linspace(-3.0, 3.0, 41), 1e-4
    slopes = (fitted.cdf(NEW, grid=grid + h) - fitted.cdf(NEW, grid=grid - h)) / (2.0 * h)
    np.testing.assert_allclose(slopes, fitted.pdf(NEW, grid=grid), atol=2e-5)
    y = fitted.predict(NEW)
    np.testing.assert_allclose(np.exp(fitted.score_samples(NEW, y)), fitted.pdf(NEW, y), rtol=1e-12)
    np.testing.assert_array_equal(fitted.score_samples(NEW), fitted.score_samples(NEW, y))


def test_samples_follow_the_law(fitted: KernelSoSConditional) -> None:
    draws = fitted.sample(NEW[:2], 5000, random_state=3)

    def at(i: int) -> Callable[[np.ndarray], np.ndarray]:
        return lambda t: fitted.cdf(NEW[[i]], grid=t)[0]

    assert dkw_passes_at(draws[0], at(0)) and dkw_passes_at(draws[1], at(1))
    assert not dkw_passes_at(draws[0], at(1))


def test_the_law_at_a_row_is_a_density(fitted: KernelSoSConditional) -> None:
    p, t = fitted.at(NEW[0]), np.array([-2.0, -1.0, 0.5])
    np.testing.assert_allclose(p.pdf(t[:, None]), fitted.pdf(NEW[:1], grid=t)[0], rtol=1e-6)
    np.testing.assert_allclose(p.cdf(t[:, None]), fitted.cdf(NEW[:1], grid=t)[0], atol=1e-6)
    np.testing.assert_allclose(
        [p.probability(-np.inf, v) for v in t], fitted.cdf(NEW[:1], grid=t)[0], atol=1e-8
    )
    levels = np.array([0.95, 0.0, 0.02, 0.5, 1.0])
    np.testing.assert_allclose(
        p.ppf(levels), fitted.predict_quantile(NEW[:1], levels)[0], rtol=1e-6
    )
    assert p.mean()[0] == pytest.approx(fitted.predict(NEW[:1])[0], abs=0.02), (
        "up to tails that no residual has reached"
    )


def test_several_outputs_jointly() -> None:
    X, y = slope()
    both = np.column_stack([y, 2.0 * y + 0.5 * np.random.default_rng(1).normal(size=y.size)])
    est = model(scale="constant", given=None).fit(X, both)
    assert est.predict(NEW).shape == (3, 2) and est.predict_interval(
        NEW, 0.9, "conformal"
    ).shape == (3, 2, 2)
    draws = est.sample(NEW[:1], 4000, random_state=0)[0]
    assert np.corrcoef(draws.T)[0, 1] > 0.7, "the residuals are one vector"
    np.testing.assert_allclose(draws.mean(axis=0), est.predict(NEW[:1])[0], atol=0.2)
    values = est.predict_quantile(NEW, [0.2, 0.7])
    for j, level in enumerate((0.2, 0.7)):
        np.testing.assert_allclose(est.cdf(NEW, values[:, j]), level, atol=1e-9)
    assert (
        est.score(X, both)
        > model(scale="constant", given=None).fit(X, both[:, 0]).score(X, both[:, 0]) - 1.5
    )


# --- invariances ---


@pytest.mark.parametrize(("a", "b"), [(100.0, 1e3), (0.0, 1e-4)])
def test_units_of_y_do_not_matter(a: float, b: float) -> None:
    X, y = slope()
    est = model(Ridge(), scale=Ridge(10.0), given=None)
    plain, moved = clone(est).fit(X, y), clone(est).fit(X, a + b * y)
    levels = [0.05, 0.5, 0.95]
    np.testing.assert_allclose(
        (moved.predict_quantile(NEW, levels) - a) / b,
        plain.predict_quantile(NEW, levels),
        atol=1e-5,
    )
    np.testing.assert_allclose(
        moved.score_samples(X, a + b * y) + np.log(b), plain.score_samples(X, y), atol=1e-4
    )


def test_weights_count_as_repetitions_and_order_does_not_matter() -> None:
    X, y = slope(60)
    counts = np.random.default_rng(0).integers(0, 3, size=60)
    est = model(
        scale="constant",
        given=None,
        estimator=KernelSoSDensity(bandwidth=0.7, regularization=1e-4, tol=1e-6),
    )
    weighted = clone(est).fit(X, y, sample_weight=counts)
    order = np.random.default_rng(1).permutation(60)
    again = clone(est).fit(X[order], y[order], sample_weight=counts[order])
    np.testing.assert_allclose(again.predict(NEW), weighted.predict(NEW), atol=1e-8)
    repeated = clone(est).fit(np.repeat(X, counts, axis=0), np.repeat(y, counts))
    np.testing.assert_allclose(
        weighted.residuals_[counts > 0].mean(), repeated.residuals_.mean(), atol=0.1
    )
    np.testing.assert_allclose(weighted.predict(NEW), repeated.predict(NEW), atol=0.05)


# --- honesty ---


def test_residuals_are_of_rows_that_the_models_have_not_seen() -> None:
    X, y = slope(90)
    folds = KFold(3)
    est = model(Ridge(), scale="constant", given=None, cv=folds).fit(X, y)
    by_hand = y - cross_val_predict(Ridge(), X, y, cv=folds)
    np.testing.assert_allclose(
        est.residuals_ / est.residuals_.std(), by_hand / by_hand.std(), rtol=1e-9
    )
    memory = model(KNeighborsRegressor(1), scale="constant", given=None).fit(X, y)
    assert memory.predict(X, return_std=True)[1].min() > 0.2, (
        "a regressor that repeats its data is not taken at its word"
    )


@pytest.mark.parametrize("frozen", [True, False])
def test_a_fitted_regressor_is_used_as_it_is(frozen: bool) -> None:
    X, y = slope()
    given = LinearRegression().fit(*slope(50, 9))
    est = model(
        FrozenEstimator(given) if frozen else given, prefit=not frozen, scale="constant", given=None
    ).fit(X, y)
    expected = y - given.predict(X)
    np.testing.assert_allclose(
        est.residuals_ / est.residuals_.std(), expected / expected.std(), rtol=1e-9
    )


def test_the_scale_follows_the_noise_where_there_is_something_to_follow() -> None:
    rng = np.random.default_rng(3)
    X = rng.normal(size=(600, 2))
    noise = rng.normal(size=600)
    even, uneven = (
        model(given=None, scale=Ridge(10.0)).fit(X, X[:, 0] + s * noise)
        for s in (0.3, 0.3 * np.exp(0.8 * X[:, 1]))
    )
    ratio = [
        np.ptp(np.log(est.predict([[0.0, -1.0], [0.0, 1.0]], return_std=True)[1]))
        for est in (even, uneven)
    ]
    assert ratio[0] < 0.3 and 1.2 < ratio[1] < 2.0
    assert uneven.scale_shares_.max() > 0.5


def test_the_shape_depends_on_x_where_held_out_residuals_say_so() -> None:
    rng = np.random.default_rng(4)
    X = rng.normal(size=(400, 2))
    e = rng.exponential(size=400) - 1.0
    same, turned = (
        model().fit(X, X[:, 0] + e),
        model().fit(X, X[:, 0] + np.where(X[:, 1] > 0.0, e, -e)),
    )
    assert same.given_ is None and turned.given_ == (1,)
    low, middle, high = turned.predict_quantile([[0.0, -1.0], [0.0, 1.0]], [0.05, 0.5, 0.95]).T
    skew = (high - middle) - (middle - low)
    assert skew[0] < 0.0 < skew[1]


def test_no_sample_of_a_heavy_law_is_impossible() -> None:
    rng = np.random.default_rng(5)
    X, noise = rng.normal(size=(20_300, 2)), rng.standard_t(2.5, size=20_300)
    y = X[:, 0] + noise
    est = KernelSoSConditional(LinearRegression(), given=None).fit(X[:300], y[:300])
    scores = est.score_samples(X[300:], y[300:]) + np.log(y[:300].std())
    assert scores.min() > -30.0
    assert np.isfinite(est.score_samples(NEW[:1], [1e6])[0])
    assert est.residual_estimator_.solution_.gap <= est.residual_estimator_.tol


def test_split_conformal_intervals_cover() -> None:
    rng, m, level, repeats = np.random.default_rng(6), 19, 0.8, 4000
    covered = 0
    for _ in range(repeats):
        # nothing that the training rows would have told
        v = rng.standard_cauchy(size=(m + 1, 1)) + 3.0
        found = SplitConformal(
            lambda X: (np.zeros((1, 1)), np.ones((1, 1))), rng.normal(size=(10, 1)), v[:m]
        )
        low, high = found.interval(None, level)[0, :, 0]
        covered += low <= v[m, 0] <= high
    error = 4.0 * np.sqrt(level * (1.0 - level) / repeats)
    assert level - error < covered / repeats < level + 1.0 / (m + 1) + error


def test_conformal_intervals_hold_the_density_ones() -> None:
    X, y = slope(300)
    est = model(scale=Ridge(10.0), given=None).fit(X, y)
    (a, b), (c, d) = est.predict_interval(X, 0.9).T, est.predict_interval(X, 0.9, "conformal").T
    assert np.all(c <= a) and np.all(b <= d)
    new, target = slope(2000, 7)
    low, high = est.predict_interval(new, 0.9, "conformal").T
    assert np.mean((low <= target) & (target <= high)) > 0.88


# --- tables, searches, files ---


def test_tables_with_categories_and_missing_entries() -> None:
    pd = pytest.importorskip("pandas")
    X, y = slope(60)
    frame = pd.DataFrame({"a": X[:, 0], "kind": pd.Categorical(np.where(X[:, 1] > 0.0, "u", "v"))})
    frame.loc[3, "a"] = np.nan
    for regressor in (
        None,
        HistGradientBoostingRegressor(max_iter=10, categorical_features="from_dtype"),
    ):
        est = KernelSoSConditional(regressor, given=None, estimator=QUICK, cv=2)
        with pytest.warns(UserWarning, match="missing cells: 1 cells in 1 of 60 rows .* trees"):
            est.fit(frame, y)
        other = frame.iloc[:2].assign(kind=pd.Categorical(["new", "u"]))
        with pytest.raises(ValueError, match=r"'kind' has the level 'new' in row 0 .*unseen='miss"):
            est.predict(other)
        est.set_params(unseen="missing")
        gap = est.predict(other.assign(kind=[None, "u"]))
        np.testing.assert_array_equal(est.predict(other), gap)
        assert est.at(frame.iloc[[3]]).n_features == 1
    with pytest.raises(ValueError, match=r"X lacks"):
        est.predict(frame[["kind"]])


def test_laws_have_the_name_of_the_target_and_far_rows_are_named() -> None:
    pd = pytest.importorskip("pandas")
    X, y = slope(60)
    table = pd.DataFrame(X, columns=["hp", "mass"]).assign(
        kind=pd.Categorical(np.where(y > 0.0, "u", "v"))
    )
    est = model(Ridge(), scale="constant", given=None).fit(
        table[["hp", "mass"]], pd.Series(y, name="mpg")
    )
    assert est.at(table[["hp", "mass"]].iloc[[0]]).feature_names == ("mpg",)
    two = clone(est).fit(X, pd.DataFrame({"mpg": y, "price": -y + X[:, 1]}))
    assert two.at(X[0]).marginal("price").n_features == 1
    far = pd.DataFrame({"hp": [0.0, 1.0], "mass": [0.0, -1e3]})
    with pytest.warns(
        UserWarning,
        match=(
            r"1 of 2 rows are far outside of the data, first row 1: 'mass' = -1000, fitted from"
            r" -[\d.]+ to"
        ),
    ):
        est.predict(far)
    by_kind = KernelSoSConditional(given=None, scale="constant", estimator=QUICK, cv=2).fit(
        table, y
    )
    assert by_kind.predict(table.assign(mass=np.nan)).shape == (60,), (
        "missing entries and categories are not far"
    )


def test_life_with_scikit_learn(tmp_path: Any) -> None:
    X, y = slope(120)
    search = GridSearchCV(
        model(Ridge(), scale="constant", given=None),
        {"regressor__alpha": [1e-3, 1e4]},
        cv=2,
        error_score="raise",
    ).fit(X, y)
    assert search.best_params_ == {"regressor__alpha": 1e-3}
    est = search.best_estimator_
    again = pickle.loads(pickle.dumps(est))
    np.testing.assert_array_equal(
        again.predict_quantile(NEW, [0.1, 0.9]), est.predict_quantile(NEW, [0.1, 0.9])
    )
    default = make_pipeline(
        StandardScaler(), KernelSoSConditional(given=None, estimator=QUICK, cv=2)
    )
    found = GridSearchCV(
        default, {"kernelsosconditional__scale": ["constant", None]}, cv=2, error_score="raise"
    ).fit(X[:50], y[:50])
    assert np.isfinite(
        pickle.loads(pickle.dumps(clone(found.best_estimator_).fit(X, y))).score(X, y)
    )
    est.residual_density_.save(tmp_path / "u.ksos")
    u = np.linspace(-2.0, 2.0, 5)[:, None]
    np.testing.assert_array_equal(
        ksos.load(tmp_path / "u.ksos").logpdf(u), est.residual_density_.logpdf(u)
    )


def test_the_time_limit_gives_a_law_all_the_same() -> None:
    X, y = slope(300)
    with pytest.warns(ConvergenceWarning, match="time limit"):
        est = KernelSoSConditional(Ridge(), time_limit=1e-3).fit(X, y)
    assert np.all(np.isfinite(est.predict_interval(NEW))) and est.cdf(
        NEW, est.predict_quantile(NEW, 0.3)
    ) == pytest.approx(0.3)
    with pytest.raises(ValueError, match=r"method='conformal' was not calibrated"):
        est.predict_interval(NEW, method="conformal")


def stop(progress: ksos.Progress) -> None:
    if progress.n_iter >= 5:
        raise KeyboardInterrupt


def test_ctrl_c_in_the_density_leaves_a_law() -> None:
    est = model(Ridge(), given=None, estimator=KernelSoSDensity(solver=Fista(callback=stop)))
    with pytest.raises(KeyboardInterrupt):
        est.fit(*slope())
    assert np.all(np.isfinite(est.predict_interval(NEW)))


# --- bad input ---


class Broken(RegressorMixin, BaseEstimator):
    """Raises when fitted, or predicts NaN."""

    def __init__(self, raises: bool = True) -> None:
        self.raises = raises

    def fit(self, X: Any, y: Any) -> Broken:
        if self.raises:
            raise RuntimeError("no luck")
        self.fitted_ = True
        return self

    def predict(self, X: Any) -> np.ndarray:
        return np.full(len(X), np.nan)


@pytest.mark.parametrize(
    ("est", "error", "words"),
    [
        (
            model(Broken()),
            ValueError,
            r"the regressor Broken could not be fitted to \d+ rows: no luck",
        ),
        (
            model(Broken(raises=False)),
            ValueError,
            r"the regressor Broken predicts NaN or infinity in \d+ of \d+ rows, first in row 0",
        ),
        (
            model(cv=31),
            ValueError,
            (
                "31 folds need at least 31 different rows of positive weight; got 30 samples; give"
                " more rows or a smaller"
            ),
        ),
        (
            model(cv=[([0, 1], [2]), ([0, 1], [2])]),
            ValueError,
            "cv holds some rows out more than once",
        ),
        (
            model(given=[7]),
            ValueError,
            "given has feature 7, but the 2 features are numbered 0 to 1",
        ),
        (
            model(given="column"),
            ValueError,
            "given must be one of 'auto', 'prediction', None or columns",
        ),
        (model("bayes"), TypeError, "regressor must be a regressor, 'joint' or None; got 'bayes'"),
        (
            model(scale="none"),
            TypeError,
            "scale must be a regressor, 'constant' or None; got 'none'",
        ),
        (model(regressor=[]), ValueError, "regressor must hold at least one regressor"),
        (model(prefit=True), NotFittedError, "LinearRegression"),
        (model(objective="likelihood"), ValueError, "objective is for regressor='joint'"),
        (model(estimator="search"), TypeError, "estimator must be a density estimator"),
        (model(time_limit=-1.0), ValueError, "time_limit"),
    ],
)
def test_what_cannot_be_fitted(
    est: KernelSoSConditional, error: type[Exception], words: str
) -> None:
    with pytest.raises(error, match=words):
        est.fit(*slope(30))


def test_targets_and_columns_that_are_no_numbers_are_named() -> None:
    pd, (X, y) = pytest.importorskip("pandas"), slope(30)
    with pytest.raises(
        ValueError,
        match=(
            r"y contains missing cells: 2 cells in 2 of 30 rows \('y'\), the first in row 4"
            r" \(counted from 0\); fill them"
        ),
    ):
        model(missing="raise").fit(X, np.where(np.isin(np.arange(30), [4, 9]), np.nan, y))
    with pytest.raises(ValueError, match="y must hold real numbers; got text such as 'USA'"):
        model("joint").fit(X, pd.Series(["USA"] * 30))
    dated = pd.DataFrame(X, columns=["u", "v"]).assign(day=pd.date_range("2020-01-01", periods=30))
    with pytest.raises(
        ValueError, match=r"column 'day' holds dates such as .* make it a number such as the days"
    ):
        KernelSoSConditional().fit(dated, y)


def test_a_series_as_rows_is_named() -> None:
    pd, (X, y) = pytest.importorskip("pandas"), slope(30)
    for est in (KernelSoSConditional(), KernelSoSConditional("joint")):
        with pytest.raises(
            ValueError,
            match=r"Expected 2D array, got 1D array instead: X is the column 'hp'.* df\[\['hp'\]\]",
        ):
            est.fit(pd.Series(X[:, 0], name="hp"), pd.Series(y, name="mpg"))


def test_targets_and_rows_that_say_little() -> None:
    X, y = slope(30)
    with pytest.raises(
        ValueError, match="output 0 of y is constant, 2 in all 30 rows: it has no density given X"
    ):
        model().fit(X, np.full(30, 2.0))
    with pytest.raises(
        ValueError, match="2 folds need at least 2 different rows of positive weight; got 1 sample"
    ):
        model().fit(X[:1], y[:1])
    with pytest.warns(UserWarning, match="10 rows say little"):
        ten = model().fit(X[:10], y[:10])
    with pytest.warns(
        UserWarning,
        match="1 rows calibrate the intervals, enough up to level 0.5: at 0.9 they are infinite",
    ):
        assert np.all(np.isinf(ten.predict_interval(NEW, 0.9, "conformal")))
    with pytest.warns(UserWarning, match="without error: the scale of its distribution is a floor"):
        exact = model().fit(X, X[:, 0])
    np.testing.assert_allclose(exact.predict_interval(NEW), NEW[:, [0, 0]], atol=1e-5)
    with pytest.warns(UserWarning, match="without error"):
        model([LinearRegression(), Ridge(1e-12)], scale="constant", given=None).fit(X, X[:, 0])
    for few in (2, 3):
        with pytest.warns(UserWarning, match=f"{few} rows say little"):
            least = KernelSoSConditional().fit(X[:few], y[:few])
        assert np.all(np.diff(least.predict_interval(X[:few])) > 0.0)
    with pytest.warns(UserWarning, match="KNeighborsRegressor takes no sample_weight"):
        model(KNeighborsRegressor(), scale="constant", given=None).fit(
            X, y, sample_weight=np.arange(30)
        )


def test_questions_that_are_none() -> None:
    est = model(given=None)
    with pytest.raises(NotFittedError):
        est.predict_quantile(NEW, 0.5)
    est.fit(*slope(40))
    with pytest.raises(ValueError, match="level must be less than 1"):
        est.predict_interval(NEW, 1.0)
    with pytest.raises(ValueError, match="method must be one of 'density', 'conformal'"):
        est.predict_interval(NEW, 0.9, "bayes")
    with pytest.raises(ValueError, match="either y, one for each row of X, or grid"):
        est.pdf(NEW, [0.0] * 3, grid=[0.0])
    with pytest.raises(ValueError, match="x must be one row; got 3"):
        est.at(NEW)
    with pytest.raises(ValueError, match="needs a regressor; this is a joint density"):
        KernelSoSConditional("joint", estimator=QUICK).fit(*slope(40)).predict_interval(
            NEW, method="conformal"
        )
