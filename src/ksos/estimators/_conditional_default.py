"""The default regressors of a conditional density: boosted trees, and smooth functions where the features are numbers."""

from __future__ import annotations

from typing import Any, Self

import numpy as np
from scipy.linalg import cho_factor, cho_solve
from scipy.linalg.lapack import dpotrf, dpotri
from scipy.optimize import minimize
from sklearn.base import BaseEstimator, RegressorMixin
from sklearn.compose import make_column_selector, make_column_transformer
from sklearn.ensemble import HistGradientBoostingRegressor
from sklearn.impute import SimpleImputer
from sklearn.linear_model import Ridge, RidgeCV
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import OneHotEncoder, OrdinalEncoder, StandardScaler

from ksos._memory import row_blocks
from ksos.feature_names import matrix_of

__all__ = ["SmoothRegressor", "location_regressors", "require_no_dates", "scale_regressors", "scale_trees"]

_CATEGORIES = ["category", "object", "string", "bool"]
_DATES = ["datetime", "datetimetz", "timedelta"]
_MOST_CATEGORIES = 50
_FEW_FEATURES = 40
_ENOUGH_TO_CHOOSE = 8  # rows from which a penalty can be chosen, also in half of them
_LENGTHS_FROM, _MOST_ROWS = 300, 2000
_STEPS, _TOLERANCE = 100, 1e-5
_BLOCK_ELEMENTS = 1 << 20


class SmoothRegressor(RegressorMixin, BaseEstimator):
    """The mean of a Gaussian process with a length for every feature: lengths from at most 300 rows, the mean from at most 2000.

    The kernel is c·exp(−½ Σ_k (x_k − x_k')²/ℓ_k²) + noise [Rasmussen2006], with c, ℓ and the noise at the largest marginal likelihood.
    A row of weight w has the noise of the mean of w rows.
    """

    def __init__(self, random_state: Any = 0) -> None:
        self.random_state = random_state

    def fit(self, X: Any, y: Any, sample_weight: Any = None) -> Self:
        X, y = np.asarray(X, dtype=np.float64), np.asarray(y, dtype=np.float64)
        w = np.ones(y.size) if sample_weight is None else np.asarray(sample_weight, dtype=np.float64)
        w = w / w.mean()
        self.centre_ = float(w @ y) / y.size
        y = y - self.centre_
        self.unit_ = float(np.sqrt(w @ y**2 / y.size)) or 1.0
        y = y / self.unit_
        order, d = np.random.default_rng(self.random_state).permutation(X.shape[0]), X.shape[1]
        start = np.r_[0.0, np.full(d, 0.5 * np.log(d)), np.log(0.3)]
        few, rows = order[:_LENGTHS_FROM], order[:_MOST_ROWS]
        bounds = [(np.log(1e-2), np.log(1e3)), *[(np.log(0.3), np.log(1e3))] * d, (np.log(1e-4), np.log(2.0))]
        options = {"ftol": _TOLERANCE, "maxiter": _STEPS}
        self.logarithms_ = minimize(_loss, start, (X[few], y[few], w[few]), jac=True, method="L-BFGS-B", bounds=bounds, options=options).x
        self.lengths_ = np.exp(self.logarithms_[1:-1])
        self.points_ = X[rows] / self.lengths_
        K = _covariance(self.logarithms_, self.points_)
        noisy = K + np.diag(np.exp(self.logarithms_[-1]) / w[rows])
        self.coefficients_ = self.unit_ * np.exp(self.logarithms_[0]) * cho_solve(cho_factor(noisy, lower=True), y[rows])
        return self

    def predict(self, X: Any) -> np.ndarray:
        X, out = np.asarray(X, dtype=np.float64) / self.lengths_, np.empty(np.shape(X)[0])
        own = 0.5 * np.sum(self.points_**2, axis=1)
        for rows in row_blocks(out.size, self.points_.shape[0], _BLOCK_ELEMENTS):
            log_k = X[rows] @ self.points_.T - own - 0.5 * np.sum(X[rows] ** 2, axis=1)[:, None]
            out[rows] = np.exp(np.minimum(log_k, 0.0, out=log_k), out=log_k) @ self.coefficients_
        return self.centre_ + out


def _covariance(logarithms: np.ndarray, Z: np.ndarray) -> np.ndarray:
    """c·exp(−½‖z_i − z_j‖²) of points in units of their lengths, without the noise."""
    own = 0.5 * np.sum(Z**2, axis=1)
    log_k = Z @ Z.T
    log_k -= own
    log_k -= own[:, None]
    return np.asarray(np.exp(np.minimum(log_k, 0.0, out=log_k) + logarithms[0], out=log_k))


def _loss(logarithms: np.ndarray, X: np.ndarray, y: np.ndarray, w: np.ndarray) -> tuple[float, np.ndarray]:
    """The negative logarithm of the marginal likelihood, ½yᵀC⁻¹y + ½log det C up to a constant, and its gradient.

    With M = ½(C⁻¹ − C⁻¹yyᵀC⁻¹), the slope along a parameter is the sum of the entries of M ∘ ∂C; along log ℓ_k these are
    M_ij K_ij (z_ik − z_jk)², which are matrix products.
    """
    Z = X / np.exp(logarithms[1:-1])
    K, noise = _covariance(logarithms, Z), np.exp(logarithms[-1]) / w
    C = K.copy()
    C[np.diag_indices_from(C)] += noise
    L, failed = dpotrf(C, lower=1, overwrite_a=1)
    if failed:
        return 1e25, np.zeros_like(logarithms)  # the line search steps back
    a = cho_solve((L, True), y)
    value = 0.5 * float(y @ a) + float(np.log(np.diagonal(L)).sum())
    inverse, _ = dpotri(L, lower=1)
    M = np.tril(inverse) + np.tril(inverse, -1).T
    M = 0.5 * (M - np.outer(a, a))
    along_noise = float(noise @ np.diagonal(M))
    M *= K
    rows = M.sum(axis=1)
    along_lengths = 2.0 * (rows @ Z**2 - np.sum(Z * (M @ Z), axis=0))
    return value, np.r_[rows.sum(), along_lengths, along_noise]


def require_no_dates(X: Any) -> None:
    """Raise where a column of a table holds dates or durations, which none of these regressors takes, and name it."""
    if not isinstance(X, np.ndarray):
        matrix_of(X, "X", make_column_selector(dtype_include=_DATES)(X))


def location_regressors(X: Any, n: int, seed: int) -> list[Any]:
    """Boosted trees of two sizes, a ridge and a Gaussian process: held-out errors share the prediction among them."""
    sizes = [(31, 0.1, 100), (6, 0.08, 200)]
    trees = [_trees(X, seed, max_leaf_nodes=most, learning_rate=rate, max_iter=steps) for most, rate, steps in sizes[n < 1000 :]]
    table = _as_numbers(X)
    smooth = [make_pipeline(table, RidgeCV(np.logspace(-2, 4, 13)) if n >= _ENOUGH_TO_CHOOSE else Ridge())]
    if X.shape[1] <= _FEW_FEATURES:
        smooth.append(make_pipeline(table, SmoothRegressor(seed)))
    return trees + smooth


def scale_regressors(X: Any, n: int, seed: int) -> list[Any]:
    """For log|residual|, which is mostly noise: few small trees, and a ridge with a heavy penalty."""
    return [scale_trees(X, n, seed), make_pipeline(_as_numbers(X), RidgeCV(np.logspace(0, 5, 11)))]


def scale_trees(X: Any, n: int, seed: int) -> Any:
    """Of a table like ``X``; None: of the prediction alone."""
    return _trees(X, seed, max_leaf_nodes=4, learning_rate=0.05, max_iter=100, min_samples_leaf=max(20, min(n // 20, 100)))


def _trees(X: Any, seed: int, **options: Any) -> Any:
    """Words and categories become numbers of categories; one that was never seen counts as missing."""
    found = HistGradientBoostingRegressor(early_stopping=False, random_state=seed, **options)
    words = [] if X is None or isinstance(X, np.ndarray) else make_column_selector(dtype_include=_CATEGORIES)(X)
    if not words:
        return found
    numbers = OrdinalEncoder(
        handle_unknown="use_encoded_value", unknown_value=np.nan, encoded_missing_value=np.nan, max_categories=_MOST_CATEGORIES
    )
    table = make_column_transformer((numbers, words), remainder="passthrough")
    return make_pipeline(table, found.set_params(categorical_features=list(range(len(words)))))


def _as_numbers(X: Any) -> Any:
    """Missing entries become medians, categories columns of their own, and all columns have unit variance."""
    numbers = make_pipeline(SimpleImputer(strategy="median", keep_empty_features=True), StandardScaler())
    if isinstance(X, np.ndarray):
        return numbers
    categories = make_pipeline(OneHotEncoder(handle_unknown="ignore", max_categories=_MOST_CATEGORIES, sparse_output=False))
    return make_column_transformer(
        (numbers, make_column_selector(dtype_exclude=_CATEGORIES)), (categories, make_column_selector(dtype_include=_CATEGORIES))
    )
