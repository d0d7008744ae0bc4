"""Location and scale of y given x: cross-fitted regressors, and the spread of y around them."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, NamedTuple, Self

import numpy as np
from scipy.linalg import cho_factor, cho_solve
from scipy.linalg.lapack import dpotrf, dpotri
from scipy.optimize import minimize, nnls
from scipy.stats import t as student
from sklearn.base import BaseEstimator, RegressorMixin, clone
from sklearn.compose import make_column_selector, make_column_transformer
from sklearn.ensemble import HistGradientBoostingRegressor
from sklearn.exceptions import NotFittedError
from sklearn.impute import SimpleImputer
from sklearn.linear_model import Ridge, RidgeCV
from sklearn.pipeline import Pipeline, make_pipeline
from sklearn.preprocessing import OneHotEncoder, OrdinalEncoder, StandardScaler
from sklearn.utils import _safe_indexing, get_tags
from sklearn.utils.validation import has_fit_parameter

from ksos.choose.held_out import simplest_good
from ksos.data.samples import Split
from ksos.ground.deadline import Deadline
from ksos.ground.memory import row_blocks
from ksos.ground.names import warn_caller
from ksos.ground.progress import shown, tell
from ksos.ground.threads import few_threads

__all__ = ["FEW_ROWS", "Location", "LocationScale", "Scale", "SmoothRegressor"]
__all__ += ["cross_fit", "evaluate", "fit_scales", "location_regressors"]
__all__ += ["scale_regressors", "scale_trees", "warn_of_weights"]

FEW_ROWS = 20
"""Fewer rows than the 20 that a leaf of a boosted tree needs: the scale is constant, no transform
is tried, and a warning says that the distribution is little more than a normal one."""

_CATEGORIES = ["category", "object", "string", "bool"]
_MOST_CATEGORIES = 50  # one-hot columns per text column: bounds the cost of ids and free text
_FEW_FEATURES = 40  # a length for every feature cannot be learned from 300 rows beyond this
_LENGTHS_FROM, _MOST_ROWS = 300, 2000  # rows: n³ for a step of the lengths, n³ once for the mean
_BLOCK_ELEMENTS = 1 << 20  # entries of a kernel matrix at a time: 8 MB
_SMALL = 0.05  # of the median: log|residual| has no lower bound, and tiny residuals would rule it
_FREEDOM = (3.0, 8.0, 1e4)  # Student degrees of freedom for the scale: heavy, medium, normal tails


# --- regressors ---


def fit_on(regressor: Any, X: Any, targets: np.ndarray, masses: np.ndarray, rows: Any) -> list[Any]:
    """Copies of the regressor fitted to some rows: one, or one per output if it takes only one."""
    rows = rows[masses[rows] > 0.0]
    name, weights = _weight_name(regressor), {}
    if name is not None and np.ptp(masses[rows]) > 0.0:
        weights = {name: masses[rows]}
    together = targets.shape[1] > 1 and get_tags(regressor).target_tags.multi_output
    columns = [targets[rows]] if together else list(targets[rows].T)
    part = _safe_indexing(X, rows)
    try:
        with few_threads(rows.size):
            return [clone(regressor).fit(part, column, **weights) for column in columns]
    except Exception as error:
        raise _named(error, regressor, f"could not be fitted to {rows.size} rows") from error


def evaluate(models: Sequence[Any], X: Any, k: int) -> np.ndarray:
    """Predictions of fitted models for ``k`` outputs, shape (n, k)."""
    try:
        with few_threads(X.shape[0]):
            found = [np.asarray(model.predict(X), dtype=np.float64) for model in models]
    except NotFittedError:
        raise
    except Exception as error:
        raise _named(error, models[0], "could not predict") from error
    out = np.concatenate([one.reshape(X.shape[0], -1) for one in found], axis=1)
    name = f"the regressor {type(models[0]).__name__}"
    if out.shape[1] != k:
        raise ValueError(f"{name} predicts {out.shape[1]} outputs, but y has {k}")
    wrong = np.flatnonzero(~np.isfinite(out).all(axis=1))
    if wrong.size:
        raise ValueError(
            f"{name} predicts NaN or infinity in {wrong.size} of {out.shape[0]} rows, first in row "
            f"{wrong[0]}; give a regressor that predicts numbers for all of them"
        )
    return out


def _named(error: Exception, regressor: Any, what: str) -> Exception:
    kind = TypeError if isinstance(error, TypeError) else ValueError
    return kind(f"the regressor {type(regressor).__name__} {what}: {error}")


def _weight_name(regressor: Any) -> str | None:
    """Name of the weights in ``fit``. In a pipeline they belong to its last step."""
    prefix = ""
    while isinstance(regressor, Pipeline):
        prefix, regressor = f"{prefix}{regressor.steps[-1][0]}__", regressor.steps[-1][1]
    return f"{prefix}sample_weight" if has_fit_parameter(regressor, "sample_weight") else None


def warn_of_weights(regressors: Sequence[Any], masses: np.ndarray) -> None:
    """Warn of regressors that cannot take the weights."""
    without = sorted({type(one).__name__ for one in regressors if _weight_name(one) is None})
    if without and np.ptp(masses) > 0.0:
        warn_caller(
            f"{', '.join(without)} takes no sample_weight: its fit counts all rows alike; the "
            "density of the residuals is weighted"
        )


# --- location ---


class Location(NamedTuple):
    """Prediction Σ_j w_j f_j(x) of several regressors, w ≥ 0 with sum one for every output.

    ``held_out`` (n, k) predicts every row by models that have not seen it, with NaN for rows that
    were never held out. ``shares`` (regressors, k) are the w. ``models`` holds for every regressor
    the fit to all rows, or those to the folds, or nothing if its share is zero. ``first`` holds the
    fits to the first fold, or None if the regressor was fitted before.
    """

    held_out: np.ndarray
    shares: np.ndarray
    models: list[list[Any]]
    first: list[Any] | None

    def predict(self, X: Any) -> np.ndarray:
        """Prediction for every row, shape (n, k)."""
        k = self.shares.shape[1]
        used = [(w, fits) for w, fits in zip(self.shares, self.models, strict=True) if fits]
        return np.asarray(sum(w * np.mean([evaluate(m, X, k) for m in f], axis=0) for w, f in used))

    def refitted(
        self,
        regressors: Sequence[Any],
        X: Any,
        targets: np.ndarray,
        masses: np.ndarray,
        deadline: Deadline,
    ) -> Location:
        """With the regressors that have a share fitted to all rows, if there is time."""
        if deadline.passed:
            return self
        every = np.arange(targets.shape[0])
        models = [
            [fit_on(regressor, X, targets, masses, every)] if used else []
            for regressor, used in zip(regressors, self.models, strict=True)
        ]
        return self._replace(models=models)

    def without_first_fold(self, shares: np.ndarray) -> Location:
        """The fits that have not seen the first fold, with other shares."""
        models = [[m] if w.any() else [] for m, w in zip(self.first or [], shares, strict=True)]
        return self._replace(shares=shares, models=models)


@shown()
def cross_fit(
    regressors: Sequence[Any],
    X: Any,
    targets: np.ndarray,
    masses: np.ndarray,
    splits: Sequence[Split],
    deadline: Deadline,
) -> Location:
    """Fit every regressor to the training rows of every split.

    The shares minimize the squared error of the held-out predictions. Those that predict a fold
    come from the other folds. When the time is up, the folds fitted so far answer.
    """
    n, k = targets.shape
    predicted = np.full((len(regressors), n, k), np.nan)
    fits: list[list[Any]] = [[] for _ in regressors]
    for number, (train, test) in enumerate(splits):
        if number and deadline.passed:
            break
        for j, regressor in enumerate(regressors):
            where = f"fold {number + 1} of {len(splits)}, regressor {j + 1} of {len(regressors)}"
            tell(where, number + j / len(regressors), len(splits) + 1)
            fits[j].append(fit_on(regressor, X, targets, masses, train))
            predicted[j, test] = evaluate(fits[j][-1], _safe_indexing(X, test), k)
    held = ~np.isnan(predicted[0, :, 0])
    shares = _shares(predicted[:, held], targets[held], masses[held])
    together = np.full((n, k), np.nan)
    for _, test in splits:
        others, rows = held.copy(), test[held[test]]
        others[test] = False
        own = shares
        if others.sum() > 1:
            own = _shares(predicted[:, others], targets[others], masses[others])
        together[rows] = np.einsum("jnk,jk->nk", predicted[:, rows], own)
    models = [one if np.any(w > 0.0) else [] for one, w in zip(fits, shares, strict=True)]
    return Location(together, shares, models, [one[0] for one in fits])


def _shares(predicted: np.ndarray, targets: np.ndarray, masses: np.ndarray) -> np.ndarray:
    """w ≥ 0 with sum one that minimizes Σ_i a_i(y_i − Σ_j w_j f_j(x_i))², output by output."""
    m, _, k = predicted.shape
    out = np.ones((m, k))
    for c in range(k):
        errors = np.sqrt(masses) * (targets[:, c] - predicted[:, :, c])
        G = errors @ errors.T
        if np.trace(G) > 0.0:
            # a ridge of a thousandth, so that regressors that agree share alike; the last row
            # demands the sum one
            root = np.linalg.cholesky(G * (m / np.trace(G)) + 1e-3 * np.eye(m)).T
            out[:, c] = nnls(np.vstack([root, np.full(m, 1e3)]), np.r_[np.zeros(m), 1e3])[0]
    out[out < 0.02 * out.sum(axis=0)] = 0.0  # not worth a refit, nor a prediction of every row
    return out / out.sum(axis=0)


# --- scale ---


class Scale(NamedTuple):
    """log s(x) = c + Σ_j β_j (g_j(x) − ḡ_j), within the range of the held-out data.

    ``level`` is c, ``exponents`` are β, ``centers`` ḡ. Of ``models``, the last ``over_prediction``
    take the prediction instead of x. None stands for a model with β = 0.
    """

    level: float
    exponents: np.ndarray
    centers: np.ndarray
    models: list[Any]
    over_prediction: int
    ends: tuple[float, float]

    def times(self, factor: float) -> Scale:
        """factor·s."""
        move = float(np.log(factor))
        ends = self.ends[0] + move, self.ends[1] + move
        return self._replace(level=self.level + move, ends=ends)

    def __call__(self, X: Any, mu: np.ndarray) -> np.ndarray:
        """s at every row, shape (n,)."""
        log_s = np.full(mu.shape[0], self.level)
        for number, model in enumerate(self.models):
            if model is not None:
                inside = X if number < len(self.models) - self.over_prediction else mu[:, None]
                g = evaluate(model, inside, 1)[:, 0] - self.centers[number]
                log_s += self.exponents[number] * g
        return np.exp(np.clip(log_s, *self.ends))


class LocationScale(NamedTuple):
    """μ(x) and s(x), each (n, outputs), for the rows of a table."""

    location: Location
    scales: list[Scale]

    def __call__(self, X: Any) -> tuple[np.ndarray, np.ndarray]:
        mu = self.location.predict(X)
        s = np.stack([scale(X, mu[:, k]) for k, scale in enumerate(self.scales)], axis=1)
        return mu, s


def fit_scales(
    regressors: Sequence[Any],
    of_prediction: Sequence[Any],
    X: Any,
    mu: np.ndarray,
    residuals: np.ndarray,
    masses: np.ndarray,
    splits: Sequence[Split],
    floor: np.ndarray,
    deadline: Deadline,
) -> tuple[list[Scale], np.ndarray]:
    """Scale of every output, and s of every row by models that have not seen it, (n, outputs).

    c and β ≥ 0 maximize the likelihood of held-out residuals under a Student distribution, less a
    price of one nat for β = 1: an exponential prior of mean one on every β. The scale is constant
    if that is as good up to one standard error. Rows of mass zero do not count.
    """
    if np.count_nonzero(masses) < FEW_ROWS:
        regressors, of_prediction = (), ()
    found = []
    for k in range(mu.shape[1]):
        candidates = [(one, X) for one in regressors] + [(one, mu[:, [k]]) for one in of_prediction]
        usual = max(float(np.median(np.abs(residuals[masses > 0.0, k]))), floor[k])
        sizes = np.log(np.maximum(np.abs(residuals[:, [k]]), _SMALL * usual))
        g = np.zeros((mu.shape[0], len(candidates)))
        for j, (regressor, inside) in enumerate(candidates):
            for train, test in splits:
                if deadline.passed:
                    g[:, j] = 0.0
                    break
                model = fit_on(regressor, inside, sizes, masses, train)
                g[test, j] = evaluate(model, _safe_indexing(inside, test), 1)[:, 0]
        centers = masses @ g / masses.sum()
        level, exponents = _exponents(residuals[:, k] / usual, g - centers, masses, splits)
        log_s = level + np.log(usual) + (g - centers) @ exponents
        # half a unit beyond what held-out rows had: a factor of 1.6 is extrapolated, no more
        seen = log_s[masses > 0.0]
        ends = np.maximum([seen.min() - 0.5, seen.max() + 0.5], np.log(floor[k])).tolist()
        every = np.arange(mu.shape[0])
        models = [
            fit_on(one, inside, sizes, masses, every) if beta > 0.0 else None
            for (one, inside), beta in zip(candidates, exponents, strict=True)
        ]
        level += float(np.log(usual))
        scale = Scale(level, exponents, centers, models, len(of_prediction), (ends[0], ends[1]))
        found.append((scale, np.exp(np.clip(log_s, *ends))))
    return [scale for scale, _ in found], np.stack([s for _, s in found], axis=1)


def _exponents(
    residuals: np.ndarray, g: np.ndarray, masses: np.ndarray, splits: Sequence[Split]
) -> tuple[float, np.ndarray]:
    """(c, β) with the largest Σ_i a_i (log t(r_i/s_i) − log s_i) − Σβ, or β = 0.

    Whether β is zero is decided on rows that have not helped to find it: the odd folds judge what
    the even ones have found, and the other way round.
    """
    half = np.zeros(masses.size, dtype=bool)
    for number, (_, test) in enumerate(splits):
        half[test] = number % 2 == 1
    rows = masses > 0.0
    half, counts = half[rows], masses[rows] * (rows.sum() / masses.sum())
    log_r = np.log(np.maximum(np.abs(residuals[rows]), 1e-30))  # zero has a logarithm all the same
    useful = np.flatnonzero(g[rows].std(axis=0) > 1e-9)
    inside = g[np.ix_(rows, useful)]

    def loss(at: np.ndarray, freedom: float, a: np.ndarray) -> tuple[float, np.ndarray]:
        log_s = at[0] + inside @ at[1:]
        with np.errstate(over="ignore"):
            squared = np.exp(2.0 * (log_r - log_s)) / freedom
        value = a @ (0.5 * (freedom + 1.0) * np.log1p(squared) + log_s) + at[1:].sum()
        value -= a.sum() * student.logpdf(0.0, freedom)
        slope = a * (1.0 - (freedom + 1.0) * squared / (1.0 + squared))
        return float(value), np.r_[slope.sum(), slope @ inside + 1.0]

    def fit(most: float, used: np.ndarray) -> tuple[np.ndarray, float]:
        """(c, β) from some rows with β at most ``most``, and the degrees of freedom."""
        bounds = [(-20.0, 20.0), *[(0.0, most)] * useful.size]
        start, a = np.r_[0.0, np.full(useful.size, min(0.3, most))], np.where(used, counts, 0.0)
        fits = [
            (minimize(loss, start, (nu, a), jac=True, method="L-BFGS-B", bounds=bounds), nu)
            for nu in _FREEDOM
        ]
        found, nu = min(fits, key=lambda one: one[0].fun)
        return found.x, nu

    def held_out(most: float) -> np.ndarray:
        logs = []
        for x, nu in (fit(most, half), fit(most, ~half)):
            log_s = x[0] + inside @ x[1:]
            with np.errstate(over="ignore"):
                logs.append(student.logpdf(np.exp(log_r - log_s), nu) - log_s)
        return np.where(half, logs[1], logs[0])

    # β = 1 takes g at its word, and 3 bounds the search: no cell of benchmarks/conditional is there
    exponents, every, most = np.zeros(g.shape[1]), np.ones_like(half), 3.0
    if not useful.size or not half.any() or half.all():
        return float(fit(0.0, every)[0][0]), exponents
    scores = np.stack([held_out(0.0), held_out(most)], axis=1)
    if not simplest_good(scores, counts / counts.sum()):
        return float(fit(0.0, every)[0][0]), exponents
    x = fit(most, every)[0]
    exponents[useful] = np.where(x[1:] > 1e-3, x[1:], 0.0)  # rounding is no model
    return float(x[0]), exponents


# --- the default regressors ---


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
            _loss,
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


def _covariance(logarithms: np.ndarray, Z: np.ndarray) -> np.ndarray:
    """c·exp(−½‖z_i − z_j‖²) of points in units of their lengths, without the noise."""
    own = 0.5 * np.sum(Z**2, axis=1)
    log_k = Z @ Z.T - own - own[:, None]
    return np.asarray(np.exp(np.minimum(log_k, 0.0, out=log_k) + logarithms[0], out=log_k))


def _loss(
    logarithms: np.ndarray, X: np.ndarray, y: np.ndarray, w: np.ndarray
) -> tuple[float, np.ndarray]:
    """Negative log marginal likelihood, ½yᵀC⁻¹y + ½log det C up to a constant, and its gradient.

    With M = ½(C⁻¹ − C⁻¹yyᵀC⁻¹), the slope along a parameter is the sum of the entries of M ∘ ∂C.
    Along log ℓ_k these are M_ij K_ij (z_ik − z_jk)², which are matrix products.
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
    M = 0.5 * (np.tril(inverse) + np.tril(inverse, -1).T - np.outer(a, a))
    along_noise = float(noise @ np.diagonal(M))
    M *= K
    rows = M.sum(axis=1)
    along_lengths = 2.0 * (rows @ Z**2 - np.sum(Z * (M @ Z), axis=0))
    return value, np.r_[rows.sum(), along_lengths, along_noise]


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
