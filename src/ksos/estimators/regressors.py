"""The default regressors of a conditional density: boosted trees, ridges, a Gaussian process."""

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

from ksos.ground import row_blocks

__all__ = ["SmoothRegressor", "location_regressors", "scale_regressors", "scale_trees"]

_CATEGORIES = ["category", "object", "string", "bool"]
# One-hot columns per text column: bounds the cost of ids and free text.
_MOST_CATEGORIES = 50
# A length for every feature cannot be learned from 300 rows beyond this.
_FEW_FEATURES = 40
# Rows that give the lengths: n³ for every step of their search.
_LENGTHS_FROM = 300
# Rows of the mean: n³ once.
_MOST_ROWS = 2000
# Entries of a kernel matrix at a time: 8 MB.
_BLOCK_ELEMENTS = 1 << 20


class SmoothRegressor(RegressorMixin, BaseEstimator):
    """Mean of a Gaussian process with one length per feature.

    The kernel is c·exp(−½ Σ_k (x_k − x_k')²/ℓ_k²) + noise [Rasmussen2006]. c, ℓ and the noise
    maximize the marginal likelihood of at most 300 rows, and the mean is that of at most 2,000. A
    row of weight w has the noise of the mean of w rows. scikit-learn's process finds all of this
    from all rows, with the derivatives of all kernel entries in memory.
    """

    def __init__(self, random_state: Any = 0) -> None:
        self.random_state = random_state

    def fit(self, X: Any, y: Any, sample_weight: Any = None) -> Self:
        X, y = np.asarray(X, dtype=np.float64), np.asarray(y, dtype=np.float64)
        w = np.ones(y.size) if sample_weight is None else np.asarray(sample_weight, np.float64)
        w = w / w.mean()
        self.center_ = float(w @ y) / y.size
        self.unit_ = float(np.sqrt(w @ (y - self.center_) ** 2 / y.size)) or 1.0
        y = (y - self.center_) / self.unit_
        d, order = X.shape[1], np.random.default_rng(self.random_state).permutation(y.size)
        few, rows = order[:_LENGTHS_FROM], order[:_MOST_ROWS]
        # in units of one standard deviation: from √d, where a sum over d features is of order one
        start = np.r_[0.0, np.full(d, 0.5 * np.log(d)), np.log(0.3)]
        bounds = np.log([(1e-2, 1e3), *[(0.3, 1e3)] * d, (1e-4, 2.0)])
        self.logarithms_ = minimize(
            self.negative_log_likelihood,
            start,
            (X[few], y[few], w[few]),
            jac=True,
            method="L-BFGS-B",
            bounds=bounds,
            options={"ftol": 1e-5, "maxiter": 100},
        ).x
        self.lengths_ = np.exp(self.logarithms_[1:-1])
        self.points_ = X[rows] / self.lengths_
        noisy = _covariance(self.logarithms_, self.points_)
        noisy[np.diag_indices_from(noisy)] += np.exp(self.logarithms_[-1]) / w[rows]
        coefficients = cho_solve(cho_factor(noisy, lower=True), y[rows])
        self.coefficients_ = self.unit_ * np.exp(self.logarithms_[0]) * coefficients
        return self

    def predict(self, X: Any) -> np.ndarray:
        X = np.asarray(X, dtype=np.float64) / self.lengths_
        out, own = np.empty(X.shape[0]), 0.5 * np.sum(self.points_**2, axis=1)
        for rows in row_blocks(out.size, self.points_.shape[0], _BLOCK_ELEMENTS):
            log_k = X[rows] @ self.points_.T - own - 0.5 * np.sum(X[rows] ** 2, axis=1)[:, None]
            out[rows] = np.exp(np.minimum(log_k, 0.0, out=log_k), out=log_k) @ self.coefficients_
        return self.center_ + out

    @staticmethod
    def negative_log_likelihood(
        logarithms: np.ndarray, X: np.ndarray, y: np.ndarray, w: np.ndarray
    ) -> tuple[float, np.ndarray]:
        """½yᵀC⁻¹y + ½log det C, and its gradient along the logarithms of c, the lengths and the
        noise.

        With M = ½(C⁻¹ − C⁻¹yyᵀC⁻¹), the slope along a parameter is the sum of the entries of
        M ∘ ∂C. Along log ℓ_k these are M_ij K_ij (z_ik − z_jk)², which are matrix products.
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
        inverse = dpotri(L, lower=1)[0]
        M = 0.5 * (np.tril(inverse) + np.tril(inverse, -1).T - np.outer(a, a))
        along_noise = float(noise @ np.diagonal(M))
        M *= K
        rows = M.sum(axis=1)
        along_lengths = 2.0 * (rows @ Z**2 - np.sum(Z * (M @ Z), axis=0))
        return value, np.r_[rows.sum(), along_lengths, along_noise]


def _covariance(logarithms: np.ndarray, Z: np.ndarray) -> np.ndarray:
    """c·exp(−½‖z_i − z_j‖²) of points in units of their lengths, without the noise."""
    own = 0.5 * np.sum(Z**2, axis=1)
    log_k = Z @ Z.T - own - own[:, None]
    return np.asarray(np.exp(np.minimum(log_k, 0.0, out=log_k) + logarithms[0], out=log_k))


def location_regressors(X: Any, n: int, seed: int) -> list[Any]:
    """Boosted trees, a ridge and a Gaussian process: held-out errors decide on their shares.

    Small slow trees, and from 1,000 rows on also those of scikit-learn's defaults. The settings
    were chosen on benchmarks/conditional, friedman1 and friedman2 at n = 300.
    """
    trees = [_trees(X, seed, max_leaf_nodes=6, learning_rate=0.08, max_iter=200)]
    if n >= 1000:
        trees.insert(0, _trees(X, seed))
    numbers = _as_numbers(X)
    # RidgeCV's own leave-one-out needs some rows, also in half of them
    ridge = RidgeCV(np.logspace(-2, 4, 13)) if n >= 8 else Ridge()
    smooth = [make_pipeline(numbers, ridge)]
    if X.shape[1] <= _FEW_FEATURES:
        smooth.append(make_pipeline(numbers, SmoothRegressor(seed)))
    return trees + smooth


def scale_regressors(X: Any, n: int, seed: int) -> list[Any]:
    """For log|residual|, which is mostly noise: few small trees, and a ridge."""
    return [scale_trees(X, n, seed), make_pipeline(_as_numbers(X), RidgeCV(np.logspace(0, 5, 11)))]


def scale_trees(X: Any, n: int, seed: int) -> Any:
    """Trees over a table like ``X``, or over the prediction alone if that is None.

    A leaf holds a twentieth of the rows, between 20, scikit-learn's default, and 100.
    """
    leaf = int(np.clip(n // 20, 20, 100))
    return _trees(X, seed, max_leaf_nodes=4, learning_rate=0.05, min_samples_leaf=leaf)


def _trees(X: Any, seed: int, **options: Any) -> Any:
    """Boosted trees. Text and categories become codes, and one never seen counts as missing."""
    found = HistGradientBoostingRegressor(early_stopping=False, random_state=seed, **options)
    table = X is not None and not isinstance(X, np.ndarray)
    words = make_column_selector(dtype_include=_CATEGORIES)(X) if table else []
    if not words:
        return found
    codes = OrdinalEncoder(
        handle_unknown="use_encoded_value",
        unknown_value=np.nan,
        encoded_missing_value=np.nan,
        max_categories=_MOST_CATEGORIES,
    )
    found.set_params(categorical_features=list(range(len(words))))
    return make_pipeline(make_column_transformer((codes, words), remainder="passthrough"), found)


def _as_numbers(X: Any) -> Any:
    """Unit variance, medians for missing cells, and a column for every category."""
    numbers = make_pipeline(
        SimpleImputer(strategy="median", keep_empty_features=True), StandardScaler()
    )
    if isinstance(X, np.ndarray):
        return numbers
    categories = OneHotEncoder(
        handle_unknown="ignore", max_categories=_MOST_CATEGORIES, sparse_output=False
    )
    return make_column_transformer(
        (numbers, make_column_selector(dtype_exclude=_CATEGORIES)),
        (categories, make_column_selector(dtype_include=_CATEGORIES)),
    )
