"""The default regressors of a conditional density: boosted trees, and smooth functions where the features are numbers."""

from __future__ import annotations

import warnings
from typing import Any, Self

import numpy as np
from sklearn.base import BaseEstimator, RegressorMixin
from sklearn.compose import make_column_selector, make_column_transformer
from sklearn.ensemble import HistGradientBoostingRegressor
from sklearn.exceptions import ConvergenceWarning
from sklearn.gaussian_process import GaussianProcessRegressor
from sklearn.gaussian_process.kernels import RBF, ConstantKernel, WhiteKernel
from sklearn.impute import SimpleImputer
from sklearn.linear_model import RidgeCV
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import OneHotEncoder, StandardScaler

__all__ = ["SmoothRegressor", "location_regressors", "scale_regressors"]

_CATEGORIES = ["category", "object", "string", "bool"]
_MOST_CATEGORIES = 50
_FEW_FEATURES = 40
_LENGTHS_FROM, _MOST_ROWS = 300, 2000


class SmoothRegressor(RegressorMixin, BaseEstimator):
    """The mean of a Gaussian process with a length for every feature: lengths from at most 300 rows, the mean from at most 2000.

    The kernel is c·exp(−½ Σ_k (x_k − x_k')²/ℓ_k²) + noise [Rasmussen2006], with c, ℓ and the noise at the largest marginal likelihood.
    """

    def __init__(self, random_state: Any = 0) -> None:
        self.random_state = random_state

    def fit(self, X: Any, y: Any) -> Self:
        X, y = np.asarray(X, dtype=np.float64), np.asarray(y, dtype=np.float64)
        self.centre_, self.unit_ = float(np.mean(y)), float(np.std(y)) or 1.0
        y = (y - self.centre_) / self.unit_
        order, d = np.random.default_rng(self.random_state).permutation(X.shape[0]), X.shape[1]
        kernel = ConstantKernel(1.0, (1e-2, 1e3)) * RBF(np.full(d, np.sqrt(d)), (0.3, 1e3)) + WhiteKernel(0.3, (1e-4, 2.0))
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", ConvergenceWarning)  # a length at the end of its range: the feature does not matter
            first = GaussianProcessRegressor(kernel).fit(X[order[:_LENGTHS_FROM]], y[order[:_LENGTHS_FROM]])
        rows = order[:_MOST_ROWS]
        self.process_ = first if rows.size <= _LENGTHS_FROM else GaussianProcessRegressor(first.kernel_, optimizer=None).fit(X[rows], y[rows])
        return self

    def predict(self, X: Any) -> np.ndarray:
        return self.centre_ + self.unit_ * np.asarray(self.process_.predict(np.asarray(X, dtype=np.float64)))


def location_regressors(X: Any, n: int, seed: int) -> list[Any]:
    """Boosted trees of two sizes, a ridge and a Gaussian process: held-out errors share the prediction among them."""
    trees = [_trees(seed, max_leaf_nodes=31, learning_rate=0.1, max_iter=100), _trees(seed, max_leaf_nodes=6, learning_rate=0.05, max_iter=300)]
    table = _as_numbers(X)
    smooth = [make_pipeline(table, RidgeCV(np.logspace(-2, 4, 13)))]
    if X.shape[1] <= _FEW_FEATURES:
        smooth.append(make_pipeline(table, SmoothRegressor(seed)))
    return trees[n < 1000 :] + smooth


def scale_regressors(X: Any, n: int, seed: int) -> list[Any]:
    """For log|residual|, which is mostly noise: few small trees, and a ridge with a heavy penalty."""
    trees = _trees(seed, max_leaf_nodes=4, learning_rate=0.05, max_iter=100, min_samples_leaf=max(20, min(n // 20, 100)))
    return [trees, make_pipeline(_as_numbers(X), RidgeCV(np.logspace(0, 5, 11)))]


def _trees(seed: int, **options: Any) -> HistGradientBoostingRegressor:
    return HistGradientBoostingRegressor(early_stopping=False, random_state=seed, categorical_features="from_dtype", **options)


def _as_numbers(X: Any) -> Any:
    """Missing entries become medians, categories columns of their own, and all columns have unit variance."""
    numbers = make_pipeline(SimpleImputer(strategy="median", keep_empty_features=True), StandardScaler())
    if isinstance(X, np.ndarray):
        return numbers
    categories = make_pipeline(OneHotEncoder(handle_unknown="ignore", max_categories=_MOST_CATEGORIES, sparse_output=False))
    return make_column_transformer(
        (numbers, make_column_selector(dtype_exclude=_CATEGORIES)), (categories, make_column_selector(dtype_include=_CATEGORIES))
    )
