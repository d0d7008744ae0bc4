"""Attributes of estimators: listing them never raises, and a wrong one is answered with the right
call.
"""

from __future__ import annotations

import inspect
from typing import Any

import numpy as np
import pytest
from sklearn.base import clone
from sklearn.exceptions import NotFittedError
from sklearn.linear_model import LinearRegression
from sklearn.model_selection import GridSearchCV
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import StandardScaler

import ksos
from ksos.measures import Box

X = np.random.default_rng(0).normal(size=(40, 2))
Y = X[:, 0] + 0.1 * np.random.default_rng(1).normal(size=40)

ESTIMATORS: dict[str, tuple[Any, Any, dict[str, list[Any]]]] = {
    "density": (ksos.KernelSoSDensity(tol=1e-4), None, {"bandwidth": [1.0, 2.0]}),
    "anomalies": (ksos.KernelSoSDensity(bandwidth=1.0, contamination=0.1), None, {"tol": [1e-4]}),
    "likelihood": (ksos.KernelSoSDensity(objective="likelihood", tol=1e-2), None, {"tol": [1e-2]}),
    "search": (ksos.KernelSoSDensityCV(cv=3), None, {"cv": [2, 3]}),
    "conditional": (ksos.KernelSoSConditional(LinearRegression()), Y, {"levels": [None]}),
    "regressor": (ksos.RobustRegressor(radius=0.0), Y, {"radius": [0.0]}),
    "classifier": (ksos.RobustClassifier(radius=0.0), (Y > 0.0).astype(int), {"radius": [0.0]}),
}


def wrapped(name: str, kind: str) -> tuple[Any, Any]:
    estimator, target, grid = ESTIMATORS[name]
    estimator = clone(estimator)
    if kind == "pipeline":
        return make_pipeline(StandardScaler(), estimator), target
    if kind == "search":
        known = {key: values for key, values in grid.items() if key in estimator.get_params()}
        return GridSearchCV(estimator, known or {}, cv=2), target
    return estimator, target


# each alone, and in one of the two wrappers in turn
@pytest.mark.parametrize(
    ("name", "kind"),
    [(name, "alone") for name in ESTIMATORS]
    + [(name, ("pipeline", "search")[k % 2]) for k, name in enumerate(ESTIMATORS)],
)
def test_listing_attributes_never_raises(name: str, kind: str) -> None:
    assert {type(estimator) for estimator, *_ in ESTIMATORS.values()} == {
        *(ksos.KernelSoSDensity, ksos.KernelSoSDensityCV, ksos.KernelSoSConditional),
        *(ksos.RobustRegressor, ksos.RobustClassifier),
    }
    estimator, target = wrapped(name, kind)
    if kind == "search" and name in ("search", "conditional"):
        _list(estimator)  # a search within a search is only shown
        return
    _list(estimator)
    _list(estimator.fit(X, target))


def _list(estimator: Any) -> None:
    assert "fit" in dir(estimator)
    # a method that these options do not have is no member, and nothing but AttributeError may say
    # so
    for one in {name for owner in type(estimator).__mro__ for name in vars(owner)} | set(
        vars(estimator)
    ):
        hasattr(estimator, one)
    assert "fit" in dict(inspect.getmembers(estimator))
    assert type(estimator).__name__ in estimator._repr_html_()
    assert type(estimator).__name__ in repr(estimator)


def test_after_partial_fit_too() -> None:
    est = ksos.KernelSoSDensity(bandwidth=1.0).partial_fit(X)
    _list(est)
    assert est.solution_.status == "solved"


@pytest.mark.parametrize("estimator", [ksos.KernelSoSDensity(), ksos.KernelSoSDensityCV()])
def test_a_missing_fit_is_named(estimator: Any) -> None:
    for name in ("distribution_", "solution_", "feature_names_in_"):
        assert not hasattr(estimator, name)
        with pytest.raises(NotFittedError, match=f"is not fitted yet: call fit before {name}"):
            getattr(estimator, name)


@pytest.mark.parametrize(
    "name", ["pdf", "logpdf", "rvs", "cdf", "conditional", "marginal", "probability", "mean"]
)
def test_questions_go_to_the_density(name: str) -> None:
    for est in (
        ksos.KernelSoSDensity(bandwidth=1.0),
        ksos.KernelSoSDensity(bandwidth=1.0).fit(X),
        ksos.KernelSoSDensityCV(),
    ):
        with pytest.raises(
            AttributeError, match=rf"has no '{name}'.*use est\.distribution_\.{name}"
        ):
            getattr(est, name)


def test_seeds_have_one_name_for_each_kind_of_call() -> None:
    est = ksos.KernelSoSDensity(bandwidth=1.0).fit(X)
    p = est.distribution_
    for call, wrong, right in (
        (p.rvs, "seed", "rng"),
        (p.rvs, "random_state", "rng"),
        (ksos.mixture([p]).rvs, "seed", "rng"),
        (est.sample, "rng", "random_state"),
        (est.sample, "seed", "random_state"),
    ):
        with pytest.raises(TypeError, match=rf"{call.__name__}\(\) takes {right}=…, not {wrong}=…"):
            call(3, **{wrong: 0})
    np.testing.assert_array_equal(p.rvs(3, rng=0), p.rvs(3, 0))
    assert list(inspect.signature(p.rvs).parameters) == ["size", "rng", "method", "as_frame"]


def test_displays_name_the_call_for_a_density() -> None:
    est = ksos.KernelSoSDensity(bandwidth=1.0).fit(X)
    with pytest.raises(TypeError, match=r"use DensityDisplay\.from_density\(p\)"):
        ksos.DensityDisplay.from_estimator(est.distribution_)
    with pytest.raises(TypeError, match=r"use SolutionDisplay\.from_solution"):
        ksos.SolutionDisplay.from_estimator(est.solution_)
    with pytest.raises(TypeError, match=r"from_solution\(est\.solution_\)"):
        ksos.SolutionDisplay.from_estimator(est.distribution_)


@pytest.mark.parametrize(
    "sides", [[0.1, 0.5], np.array([0.1, 0.5]), [0.1], (0.1, 0.2, 0.3), ("a", "b")]
)
def test_only_a_tuple_is_an_interval(sides: Any) -> None:
    p = (
        ksos.KernelSoSDensity(bandwidth=1.0, measure=Box([-9.0] * 2, [9.0] * 2))
        .fit(X)
        .distribution_
    )
    assert p.conditional({0: (0.1, 0.5)}).n_features == 1
    for ask in (p.conditional, lambda given: p.probability(0.0, 1.0, given=given)):
        with pytest.raises(ValueError, match=r"as one number, or as a tuple \(low, high\)"):
            ask({0: sides})


def test_bad_columns_are_reported_all_at_once() -> None:
    pandas = pytest.importorskip("pandas")
    table = pandas.DataFrame(
        {"a": [1.0, 2.0, 3.0], "b": ["x", "y", "z"], "c": [1.0, np.nan, np.nan]}
    )
    table = table.assign(d=pandas.to_datetime(["2020-01-01"] * 3), e=[np.nan, 1.0, 2.0])
    table["f"] = [1.0, np.inf, 2.0]
    with pytest.raises(ValueError) as caught:
        ksos.KernelSoSDensity().fit(table)
    words = str(caught.value)
    for part in (
        "X must hold real numbers, but column 'b' holds text such as 'x', column 'd' holds dates",
        "Input X contains NaN: column 'c' has missing values in 2 of 3 rows, the first in row 1",
        "column 'e' has missing values in 1 of 3 rows, the first in row 0",
        "Input X contains infinity or a value too large for dtype('float64'): column 'f' has inf",
    ):
        assert part in words
    assert "'a'" not in words and words.count("X.dropna()") == 1
