"""Pictures of conditional laws: what is drawn is what the estimator says, and the bands hold what
they promise.
"""

from __future__ import annotations

from typing import Any

import numpy as np
import pandas as pd
import pytest
from matplotlib.figure import Figure
from sklearn.exceptions import NotFittedError
from sklearn.linear_model import LinearRegression

import ksos
from ksos import ConditionalDisplay


def axes() -> Any:
    return Figure().add_subplot()


def rows(n: int, seed: int) -> tuple[np.ndarray, np.ndarray]:
    rng = np.random.default_rng(seed)
    X = rng.normal(size=(n, 2))
    return X, X[:, 0] + 0.5 * rng.normal(size=n)


@pytest.fixture(scope="module")
def estimator() -> ksos.KernelSoSConditional:
    return ksos.KernelSoSConditional(LinearRegression(), scale="constant", given=None).fit(
        *rows(300, 0)
    )


def test_a_fan_shows_the_quantiles_in_the_order_of_the_medians(estimator: Any) -> None:
    X, y = rows(50, 1)
    display = ConditionalDisplay.from_estimator(estimator, X, y, ax=axes())
    position, median = display.artists_["median"].get_data()
    np.testing.assert_array_equal(position, np.arange(50))
    np.testing.assert_allclose(median, np.sort(estimator.predict_quantile(X, 0.5)))
    assert len(display.artists_["bands"]) == 4
    at, drawn = display.artists_["data"].get_data()
    np.testing.assert_array_equal(
        drawn[np.argsort(at)], y[np.argsort(estimator.predict_quantile(X, 0.5), kind="stable")]
    )


@pytest.mark.parametrize("against", [1, "b"])
def test_a_fan_along_a_column(estimator: Any, against: Any) -> None:
    pandas = pytest.importorskip("pandas")
    X, y = rows(40, 2)
    table = X if against == 1 else pandas.DataFrame(X, columns=["a", "b"])
    model = (
        estimator
        if against == 1
        else ksos.KernelSoSConditional(LinearRegression(), scale="constant", given=None).fit(
            table, y
        )
    )
    display = ConditionalDisplay.from_estimator(
        model, table, against=against, levels=[0.1, 0.5, 0.9], ax=axes()
    )
    np.testing.assert_array_equal(display.artists_["median"].get_xdata(), np.sort(X[:, 1]))
    assert (
        display.ax_.get_xlabel() == ("x1" if against == 1 else "b")
        and "data" not in display.artists_
    )


def test_the_histogram_of_right_laws_stays_in_its_band(estimator: Any) -> None:
    X, y = rows(2000, 3)
    display = ConditionalDisplay.from_estimator(estimator, X, y, kind="pit", ax=axes())
    heights = np.array([bar.get_height() for bar in display.artists_["bars"]])
    assert heights.mean() == pytest.approx(1.0)
    low, high = (
        display.artists_["band"].get_y(),
        display.artists_["band"].get_y() + display.artists_["band"].get_height(),
    )
    assert np.mean((low <= heights) & (heights <= high)) >= 0.8
    shifted = ConditionalDisplay.from_estimator(estimator, X, y + 0.3, kind="pit", ax=axes())
    outside = [bar.get_height() for bar in shifted.artists_["bars"]]
    assert max(outside) > 2.0 > high


def test_calibration_is_the_share_below_each_quantile(estimator: Any) -> None:
    X, y = rows(1000, 4)
    display = ConditionalDisplay.from_estimator(estimator, X, y, kind="calibration", ax=axes())
    levels, share = display.artists_["line"].get_data()
    np.testing.assert_allclose(
        share, [np.mean(y <= estimator.predict_quantile(X, q)) for q in levels]
    )
    assert np.max(np.abs(share - levels)) < 0.06


@pytest.mark.parametrize(
    "options, words",
    [
        ({"kind": "violin"}, "kind must be"),
        ({"kind": "pit", "y": None}, "y must be given"),
        ({"kind": "pit", "against": 0}, "horizontal axis of a fan"),
        ({"against": 7}, "no column of X"),
        ({"against": "price"}, "no column of X"),
        ({"bins": 0, "kind": "pit"}, "bins"),
    ],
)
def test_bad_options_are_refused(estimator: Any, options: dict[str, Any], words: str) -> None:
    X, y = rows(20, 5)
    with pytest.raises(ValueError, match=words):
        ConditionalDisplay.from_estimator(estimator, X, **({"y": y} | options), ax=axes())


def test_an_estimator_that_is_not_fitted_is_refused() -> None:
    with pytest.raises(NotFittedError):
        ConditionalDisplay.from_estimator(ksos.KernelSoSConditional(), np.zeros((2, 2)))


def test_the_law_at_one_row(estimator: Any) -> None:
    row = np.array([[0.3, -1.0]])
    display = ksos.DensityDisplay.from_density(estimator.at(row), ax=axes())
    y, height = np.transpose(
        [pair for pair in display.artists_[(0,)]["density"].get_xydata() if np.isfinite(pair).all()]
    )
    np.testing.assert_allclose(
        height, estimator.pdf(np.repeat(row, len(y), axis=0), y), rtol=1e-6, atol=1e-12
    )
    with pytest.raises(TypeError, match=r"est\.at\(x\), use DensityDisplay\.from_density"):
        ksos.DensityDisplay.from_estimator(estimator, row)


def test_levels_are_bars_of_their_probabilities() -> None:
    rng = np.random.default_rng(0)
    table = pd.DataFrame({"dose": rng.normal(size=80), "group": rng.choice(["u", "v"], 80)})
    y = np.where(table["dose"] + rng.normal(size=80) > 0.0, "well", "ill")
    model = ksos.KernelSoSConditional(cv=2).fit(table, pd.Series(y, name="state"))
    display = ConditionalDisplay.from_estimator(model, table, y, ax=axes())
    chances = model.predict_proba(table)
    order = np.argsort(-chances[:, 0], kind="stable")
    for k, bars in enumerate(display.artists_["bars"]):
        assert bars.get_label() == model.classes_[k]
        heights = [bar.get_height() for bar in bars]
        np.testing.assert_allclose(heights, chances[order, k])
    assert all(bar.get_y() + bar.get_height() == pytest.approx(1.0) for bar in bars)
    _, dots = display.artists_["data"].get_data()
    first = y[order] == model.classes_[0]
    np.testing.assert_allclose(dots[first], 0.5 * chances[order, 0][first])
    assert "data" not in ConditionalDisplay.from_estimator(model, table, ax=axes()).artists_
    with pytest.raises(ValueError, match="kind='fan' does not fit y, which is categorical"):
        ConditionalDisplay.from_estimator(model, table, y, kind="fan", ax=axes())


def test_levels_of_numbers_are_refused(estimator: Any) -> None:
    with pytest.raises(ValueError, match="kind='levels' does not fit y, which is a number"):
        ConditionalDisplay.from_estimator(estimator, rows(20, 5)[0], kind="levels", ax=axes())
