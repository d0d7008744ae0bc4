"""Location and scale of y given x: cross-fitted regressors whose shares held-out rows decide, the
scale of their residuals, and intervals with a guarantee.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import Any, NamedTuple

import numpy as np
from scipy.optimize import minimize, nnls
from scipy.stats import t as student
from sklearn.base import clone, is_classifier
from sklearn.dummy import DummyClassifier
from sklearn.exceptions import NotFittedError
from sklearn.pipeline import Pipeline
from sklearn.utils import _safe_indexing, get_tags
from sklearn.utils.validation import has_fit_parameter

from ksos.choose.reference import certified_weights
from ksos.data import Split
from ksos.ground import Run, few_threads, warn_caller

FEW_ROWS = 20  # a leaf of a boosted tree: with fewer, the scale is constant, with a warning
_SMALL = 0.05  # Of the median: log|residual| has no lower bound, and tiny residuals would rule it.
_FREEDOM = (3.0, 8.0, 1e4)  # Student degrees of freedom of residuals: heavy, medium, normal tails
_MOST_EXPONENT = 3.0  # ends a search: 1 trusts a model, nothing in benchmarks/conditional is at 3
_LEAST_SHARE = 0.02  # weight below which a regressor is not worth a refit and its predictions


class Location(NamedTuple):
    """Prediction Σ_j w_j f_j(x) of several regressors, w ≥ 0 with sum one for every output. Of
    classifiers, the outputs are the probabilities of the levels.

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
        self, regressors: Sequence[Any], X: Any, targets: np.ndarray, masses: np.ndarray
    ) -> Location:
        """With the regressors that have a share fitted to all rows, if there is time."""
        if Run.current().over:
            return self
        every = np.arange(targets.shape[0])
        models = [
            [_fit_on(regressor, X, targets, masses, every)] if used else []
            for regressor, used in zip(regressors, self.models, strict=True)
        ]
        return self._replace(models=models)


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
    ends: np.ndarray

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


class SplitConformal(NamedTuple):
    """y ∈ μ(x) + s(x)·[l − Q, h + Q], where μ, s, l and h do not depend on the rows that give Q.

    l and h are quantiles of the scaled residuals of the training rows, ``trained`` (rows, k). Q is
    the ⌈level·(m + 1)⌉-th smallest max(l − v_i, v_i − h) of the m rows ``held_out`` (m, k). If
    these and a new row are exchangeable, the interval holds the new y with probability at least
    ``level``, on average over the data, for any distribution and any regressor [Romano2019].
    """

    place: LocationScale
    trained: np.ndarray
    held_out: np.ndarray

    def interval(self, X: Any, level: float) -> np.ndarray:
        """(n, 2, k): for every output by itself."""
        mu, s = self.place(X)
        low, high = np.quantile(self.trained, [0.5 * (1.0 - level), 0.5 * (1.0 + level)], axis=0)
        scores = np.sort(np.maximum(low - self.held_out, self.held_out - high), axis=0)
        m = scores.shape[0]
        rank = int(np.ceil(level * (m + 1) - 1e-9))  # 0.9·10 is a little more than nine
        if rank > m:
            warn_caller(
                f"{m} rows calibrate the intervals, enough up to level {m / (m + 1.0):.3g}: at "
                f"{level:g} they are infinite; give more rows"
            )
        Q = scores[rank - 1] if rank <= m else np.full(mu.shape[1], np.inf)
        middle = 0.5 * (low + high)  # an interval that would be empty is a point
        low, high = np.minimum(low - Q, middle), np.maximum(high + Q, middle)
        return np.stack([mu + s * low, mu + s * high], axis=1)


# Put the name of the regressor before the message of an error in it.
@contextmanager
def _naming(regressor: Any, what: str) -> Iterator[None]:
    try:
        yield
    except NotFittedError:
        raise
    except Exception as error:
        kind = TypeError if isinstance(error, TypeError) else ValueError
        raise kind(f"the regressor {called(regressor)} {what}: {error}") from error


def called(regressor: Any) -> str:
    """What a message calls a regressor; a pipeline by its last step."""
    while isinstance(regressor, Pipeline):
        regressor = regressor.steps[-1][1]
    return type(regressor).__name__


# Copies of the regressor fitted to some rows: one, or one per output if it takes only one.
def _fit_on(
    regressor: Any, X: Any, targets: np.ndarray, masses: np.ndarray, rows: Any
) -> list[Any]:
    rows = rows[masses[rows] > 0.0]
    name, weights = _weight_name(regressor), {}
    if name is not None and np.ptp(masses[rows]) > 0.0:
        weights = {name: masses[rows]}
    together = targets.shape[1] > 1 and get_tags(regressor).target_tags.multi_output
    columns = [targets[rows]] if together else list(targets[rows].T)
    part = _safe_indexing(X, rows)
    if is_classifier(regressor) and np.ptp(targets[rows]) == 0.0:
        regressor, weights = DummyClassifier(), {}  # others need two levels
    with _naming(regressor, f"could not be fitted to {rows.size} rows"), few_threads(rows.size):
        return [clone(regressor).fit(part, column, **weights) for column in columns]


def evaluate(models: Sequence[Any], X: Any, k: int) -> np.ndarray:
    """Predictions of fitted models for ``k`` outputs, shape (n, k); of a classifier, the
    probabilities of ``k`` levels.
    """
    ask = "predict_proba" if is_classifier(models[0]) else "predict"
    with _naming(models[0], "could not predict"), few_threads(X.shape[0]):
        found = [np.asarray(getattr(model, ask)(X), dtype=np.float64) for model in models]
    out = np.concatenate([one.reshape(X.shape[0], -1) for one in found], axis=1)
    if ask == "predict_proba":  # levels that its rows have not had are impossible for it
        seen, known = out, models[0].classes_.astype(int)
        out = np.zeros((X.shape[0], k))
        out[:, known] = seen
    name = f"the regressor {called(models[0])}"
    if out.shape[1] != k:
        raise ValueError(f"{name} predicts {out.shape[1]} outputs, but y has {k}")
    wrong = np.flatnonzero(~np.isfinite(out).all(axis=1))
    if wrong.size:
        raise ValueError(
            f"{name} predicts NaN or infinity in {wrong.size} of {out.shape[0]} rows, first in row "
            f"{wrong[0]}; give a regressor that predicts numbers for all of them"
        )
    return out


# Name of the weights in ``fit``. In a pipeline they belong to its last step.
def _weight_name(regressor: Any) -> str | None:
    prefix = ""
    while isinstance(regressor, Pipeline):
        prefix, regressor = f"{prefix}{regressor.steps[-1][0]}__", regressor.steps[-1][1]
    return f"{prefix}sample_weight" if has_fit_parameter(regressor, "sample_weight") else None


def warn_of_weights(regressors: Sequence[Any], masses: np.ndarray) -> None:
    """Warn of regressors that cannot take the weights."""
    without = sorted({called(one) for one in regressors if _weight_name(one) is None})
    if without and np.ptp(masses) > 0.0:
        warn_caller(
            f"{', '.join(without)} takes no sample_weight: its fit counts all rows alike; the "
            "density of the residuals is weighted"
        )


def cross_fit(
    regressors: Sequence[Any],
    X: Any,
    targets: np.ndarray,
    masses: np.ndarray,
    splits: Sequence[Split],
    levels: int = 0,
) -> Location:
    """Fit every regressor to the training rows of every split, or every classifier if the targets
    are the numbers of ``levels``.

    The shares minimize the squared error of the held-out predictions, or maximize their likelihood.
    Those that predict a fold come from the other folds. When the time is up, the folds fitted so
    far answer.
    """
    n, k = targets.shape[0], levels or targets.shape[1]
    predicted = np.full((len(regressors), n, k), np.nan)
    fits: list[list[Any]] = [[] for _ in regressors]
    with Run() as run:
        for number, (train, test) in enumerate(splits):
            if number and run.over:
                break
            for j, regressor in enumerate(regressors):
                where = (
                    f"fold {number + 1} of {len(splits)}, regressor {j + 1} of {len(regressors)}"
                )
                run.tell(where, number + j / len(regressors), len(splits) + 1)
                fits[j].append(_fit_on(regressor, X, targets, masses, train))
                predicted[j, test] = evaluate(fits[j][-1], _safe_indexing(X, test), k)
    held = ~np.isnan(predicted[0, :, 0])
    shares = _shares(predicted[:, held], targets[held], masses[held])
    together = np.full((n, k), np.nan)
    for _, test in splits:
        others, rows, own = held.copy(), test[held[test]], shares
        others[test] = False
        if others.sum() > 1:
            own = _shares(predicted[:, others], targets[others], masses[others])
        together[rows] = np.einsum("jnk,jk->nk", predicted[:, rows], own)
    models = [one if np.any(w > 0.0) else [] for one, w in zip(fits, shares, strict=True)]
    return Location(together, shares, models, [one[0] for one in fits])


# w ≥ 0 with sum one that minimizes Σ_i a_i(y_i − Σ_j w_j f_j(x_i))², output by output, or maximizes
# Σ_i a_i log Σ_j w_j p_j(y_i | x_i) with the Dirichlet prior of a stack.
def _shares(predicted: np.ndarray, targets: np.ndarray, masses: np.ndarray) -> np.ndarray:
    m, n, k = predicted.shape
    out = np.ones((m, k))
    if targets.shape[1] < k:
        with np.errstate(divide="ignore"):
            logs = np.log(predicted[:, np.arange(n), targets[:, 0].astype(int)].T)
        weights = certified_weights(logs, masses / masses.sum(), np.ones(m))[0]
        return np.tile(weights[:, None], (1, k))
    for c in range(k):
        errors = np.sqrt(masses) * (targets[:, c] - predicted[:, :, c])
        G = errors @ errors.T
        if np.trace(G) > 0.0:
            # a ridge of a thousandth, so that regressors that agree share alike; the last row
            # demands the sum one
            root = np.linalg.cholesky(G * (m / np.trace(G)) + 1e-3 * np.eye(m)).T
            out[:, c] = nnls(np.vstack([root, np.full(m, 1e3)]), np.r_[np.zeros(m), 1e3])[0]
    out[out < _LEAST_SHARE * out.sum(axis=0)] = 0.0
    return out / out.sum(axis=0)


def fit_scales(
    regressors: Sequence[Any],
    of_prediction: Sequence[Any],
    X: Any,
    mu: np.ndarray,
    residuals: np.ndarray,
    masses: np.ndarray,
    splits: Sequence[Split],
    floor: np.ndarray,
) -> tuple[list[Scale], np.ndarray]:
    """Scale of every output, and s of every row by models that have not seen it, (n, outputs).

    c and β ≥ 0 maximize the likelihood of held-out residuals under a Student distribution, less a
    price of one nat for β = 1: an exponential prior of mean one on every β. Rows of mass zero do
    not count.
    """
    if np.count_nonzero(masses) < FEW_ROWS:
        regressors, of_prediction = (), ()
    scales, found, every = [], np.empty_like(mu), np.arange(mu.shape[0])
    for k in range(mu.shape[1]):
        candidates = [(one, X) for one in regressors] + [(one, mu[:, [k]]) for one in of_prediction]
        usual = max(float(np.median(np.abs(residuals[masses > 0.0, k]))), floor[k])
        sizes = np.log(np.maximum(np.abs(residuals[:, [k]]), _SMALL * usual))
        g = np.zeros((every.size, len(candidates)))
        for j, (regressor, inside) in enumerate(candidates):
            for train, test in splits:
                if Run.current().over:
                    g[:, j] = 0.0
                    break
                model = _fit_on(regressor, inside, sizes, masses, train)
                g[test, j] = evaluate(model, _safe_indexing(inside, test), 1)[:, 0]
        centers = masses @ g / masses.sum()
        level, exponents = _exponents(residuals[:, k] / usual, g - centers, masses)
        level += float(np.log(usual))
        log_s = level + (g - centers) @ exponents
        # half a unit beyond what held-out rows had: a factor of 1.6 is extrapolated, no more
        seen = log_s[masses > 0.0]
        ends = np.maximum([seen.min() - 0.5, seen.max() + 0.5], np.log(floor[k]))
        models = [
            _fit_on(one, inside, sizes, masses, every) if beta > 0.0 else None
            for (one, inside), beta in zip(candidates, exponents, strict=True)
        ]
        scales.append(Scale(level, exponents, centers, models, len(of_prediction), ends))
        found[:, k] = np.exp(np.clip(log_s, *ends))
    return scales, found


# (c, β) with the largest Σ_i a_i (log t(r_i/s_i) − log s_i) − Σβ.
def _exponents(
    residuals: np.ndarray, g: np.ndarray, masses: np.ndarray
) -> tuple[float, np.ndarray]:
    rows = masses > 0.0
    a = masses[rows] * (rows.sum() / masses.sum())
    log_r = np.log(np.maximum(np.abs(residuals[rows]), 1e-30))  # zero has a logarithm all the same
    useful = np.flatnonzero(g[rows].std(axis=0) > 1e-9)
    inside = g[np.ix_(rows, useful)]

    def loss(at: np.ndarray, freedom: float) -> tuple[float, np.ndarray]:
        log_s = at[0] + inside @ at[1:]
        with np.errstate(over="ignore"):
            squared = np.exp(2.0 * (log_r - log_s)) / freedom
        value = a @ (0.5 * (freedom + 1.0) * np.log1p(squared) + log_s) + at[1:].sum()
        value -= a.sum() * student.logpdf(0.0, freedom)
        slope = a * (1.0 - (freedom + 1.0) * squared / (1.0 + squared))
        return float(value), np.r_[slope.sum(), slope @ inside + 1.0]

    bounds = [(-20.0, 20.0), *[(0.0, _MOST_EXPONENT)] * useful.size]
    start, options = np.r_[0.0, np.full(useful.size, 0.3)], {"jac": True, "bounds": bounds}
    fits = [minimize(loss, start, nu, method="L-BFGS-B", **options) for nu in _FREEDOM]
    x, exponents = min(fits, key=lambda one: one.fun).x, np.zeros(g.shape[1])
    exponents[useful] = np.where(x[1:] > 1e-3, x[1:], 0.0)  # rounding is no model
    return float(x[0]), exponents


def fit_conformal(
    locations: Sequence[Any],
    scales: Sequence[Any],
    of_prediction: Sequence[Any],
    location: Location,
    X: Any,
    targets: np.ndarray,
    masses: np.ndarray,
    splits: list[Split],
    floor: np.ndarray,
    rng: np.random.Generator,
) -> SplitConformal:
    """The first fold calibrates. μ, s and the quantiles come from the other rows alone, of which
    two halves predict each other.
    """
    (train, test), first = splits[0], location.first
    if first is None:  # fitted before: any row is new to it
        train, test = _halves(np.concatenate(splits[0]), rng)
    one, other = _halves(train, rng)
    swaps = [(one, other), (other, one)] if one.size else [(train, train)]
    place, mu = location, location.held_out
    if first is not None:
        nested = cross_fit(locations, X, targets, masses, swaps)
        models = [[m] if w.any() else [] for m, w in zip(first, nested.shares, strict=True)]
        place, mu = location._replace(shares=nested.shares, models=models), nested.held_out
    held = np.zeros(masses.size, dtype=bool)
    held[train] = ~np.isnan(mu[train, 0])
    inside, mu = np.where(held, masses, 0.0), np.where(held[:, None], mu, 0.0)
    residuals = targets - mu
    found, s = fit_scales(scales, of_prediction, X, mu, residuals, inside, swaps, floor)
    placed = LocationScale(place, found)
    mu_test, s_test = placed(_safe_indexing(X, test))
    return SplitConformal(placed, (residuals / s)[held], (targets[test] - mu_test) / s_test)


def _halves(rows: np.ndarray, rng: np.random.Generator) -> Split:
    order = rng.permutation(rows)
    return order[: order.size // 2], order[order.size // 2 :]
