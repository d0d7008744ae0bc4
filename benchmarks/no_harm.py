"""Robust estimators beside plain ones, defaults against defaults: without shift, where they must do
no harm, and under shifts.

    python benchmarks/no_harm.py [--splits 10]

Regression: the squared error of ``RobustRegressor()`` divided by that of least squares.
Classification: the accuracy of ``RobustClassifier()`` divided by that of logistic regression on
standardized features. Tables of scikit-learn and synthetic ones; those of statsmodels and
vega_datasets too, if they are installed.
"""

from __future__ import annotations

import time
from collections.abc import Iterator
from importlib.util import find_spec
from itertools import islice
from typing import Any

import numpy as np
from quick import parse, parser_of
from sklearn import datasets
from sklearn.linear_model import LinearRegression, LogisticRegression
from sklearn.model_selection import ShuffleSplit
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import StandardScaler

import ksos

Table = tuple[str, np.ndarray, np.ndarray, np.ndarray]
"""(name, X, y, the rows before the shift)."""


def regressions() -> Iterator[Table]:
    """Tables with a number to predict."""
    X, y = datasets.load_diabetes(return_X_y=True)
    yield "diabetes, bmi and s5, by age", X[:, [2, 8]], y, X[:, 0] < 0.0
    yield "diabetes, all, by age", X, y, X[:, 0] < 0.0
    iris = datasets.load_iris().data
    yield (
        "iris, petal width of sepals, by sepal length",
        iris[:, :2],
        iris[:, 3],
        iris[:, 0] < np.median(iris[:, 0]),
    )
    cancer = datasets.load_breast_cancer().data
    yield (
        "breast cancer, area of texture and symmetry",
        cancer[:, [1, 8]],
        cancer[:, 3],
        cancer[:, 1] < np.median(cancer[:, 1]),
    )
    rng = np.random.default_rng(7)
    X = rng.normal(size=(150, 3))
    signal = X @ [1.0, -2.0, 0.5]
    yield "linear, normal errors", X, signal + rng.normal(size=150), X[:, 0] < 0.5
    yield (
        "linear, heavy tails (t with 3 degrees of freedom)",
        X,
        signal + rng.standard_t(3, size=150),
        X[:, 0] < 0.5,
    )
    if find_spec("statsmodels"):
        from statsmodels.datasets import engel

        table = engel.load_pandas().data
        income = table["income"].to_numpy()
        yield (
            "Engel, by income",
            income[:, None],
            table["foodexp"].to_numpy(),
            income < np.median(income),
        )
    if find_spec("vega_datasets"):
        from vega_datasets import data

        cars = data.cars().dropna()
        X, y = (
            cars[["Horsepower", "Weight_in_lbs"]].to_numpy(float),
            cars["Miles_per_Gallon"].to_numpy(float),
        )
        yield "cars, by year", X, y, (cars["Year"].dt.year <= 1975).to_numpy()
        yield "cars, by origin", X, y, (cars["Origin"] == "USA").to_numpy()


def classifications() -> Iterator[Table]:
    """Tables with a label to predict."""
    iris, wine, cancer = datasets.load_iris(), datasets.load_wine(), datasets.load_breast_cancer()
    yield "iris, by sepal width", iris.data, iris.target, iris.data[:, 1] < 3.0
    yield (
        "wine, three columns, by ash",
        wine.data[:, [0, 6, 12]],
        wine.target,
        wine.data[:, 3] < 19.5,
    )
    yield (
        "breast cancer, two columns, by smoothness",
        cancer.data[:, :2],
        cancer.target,
        cancer.data[:, 4] < 0.095,
    )
    yield "breast cancer, by smoothness", cancer.data, cancer.target, cancer.data[:, 4] < 0.095
    if find_spec("vega_datasets"):
        from vega_datasets import data

        cars = data.cars().dropna()
        X = cars[["Horsepower", "Weight_in_lbs", "Miles_per_Gallon"]].to_numpy(float)
        yield (
            "cars from the USA, by year",
            X,
            (cars["Origin"] == "USA").to_numpy(),
            (cars["Year"].dt.year <= 1975).to_numpy(),
        )


def plain(classifier: bool) -> Any:
    """What the robust estimator is compared with."""
    return (
        make_pipeline(StandardScaler(), LogisticRegression(max_iter=1000))
        if classifier
        else LinearRegression()
    )


def ratio(
    X: np.ndarray, y: np.ndarray, train: np.ndarray, test: np.ndarray, classifier: bool
) -> tuple[float, Any]:
    """(robust/plain: squared error, or accuracy; the robust estimator)."""
    robust = ksos.RobustClassifier() if classifier else ksos.RobustRegressor()
    scores = []
    for model in (robust, plain(classifier)):
        predicted = model.fit(X[train], y[train]).predict(X[test])
        scores.append(
            float(
                np.mean(predicted == y[test]) if classifier else np.mean((predicted - y[test]) ** 2)
            )
        )
    return scores[0] / scores[1], robust


def without_shift(
    X: np.ndarray, y: np.ndarray, classifier: bool, splits: int, seed: int = 0
) -> list[float]:
    """The ratios of random splits, 60 % for training."""
    shuffles = ShuffleSplit(splits, test_size=0.4, random_state=seed).split(X)
    return [ratio(X, y, train, test, classifier)[0] for train, test in shuffles]


def main(splits: int, count: int | None) -> None:
    """Print one line per table."""
    for classifier, tables in ((False, regressions()), (True, classifications())):
        print(
            "| accuracy" if classifier else "| squared error",
            "robust/plain | no shift, mean | largest, smallest | shift | radius | s |",
        )
        print("|---|---|---|---|---|---|")
        for name, X, y, before in islice(tables, count):
            ratios = without_shift(X, y, classifier, splits)
            began = time.process_time()
            shifted, robust = ratio(
                X, y, np.flatnonzero(before), np.flatnonzero(~before), classifier
            )
            seconds = time.process_time() - began
            line = (
                f"{np.mean(ratios):.3f} | {max(ratios):.3f}, {min(ratios):.3f} | {shifted:.3f} |"
                f" {robust.radius_:.3f} | {seconds:.1f}"
            )
            print(f"| {name} | {line} |", flush=True)
        print()


if __name__ == "__main__":
    parser = parser_of(__doc__)
    parser.add_argument("--splits", type=int, default=10)
    parser.add_argument("--tables", type=int, help="how many of each kind (default: all)")
    options = parse(parser, splits=1, tables=1)
    main(options.splits, options.tables)
