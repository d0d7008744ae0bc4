"""What every density estimator answers once it is fitted, for arrays and for sources of chunks:
scores, samples, and which rows are anomalies.

Scores of the rows that a density was fitted to are too high, the more so the closer it follows
them: a threshold at a quantile of them would flag far more than that share of new rows. So the
threshold is a quantile of *held-out* scores: each of five folds is scored by a fit to the other
four. The conformal rank [Vovk2005] of a new row among them is about uniform: about the share
``contamination`` of new rows from the same distribution is flagged.
"""

from __future__ import annotations

import math
import os
import time
from collections.abc import Callable
from functools import wraps
from typing import Any, Literal, Self, TypeVar

import numpy as np
from sklearn import get_config
from sklearn.base import BaseEstimator, DensityMixin, clone
from sklearn.exceptions import NotFittedError
from sklearn.utils.validation import check_is_fitted, validate_data

from ksos.data import (
    Checks,
    Chunks,
    LogDensity,
    MeanScore,
    as_source,
    distinct_samples,
    is_dask,
    mean_score,
    random_folds,
    require_own_weights,
    written,
)
from ksos.density import SoSDensity, TableDensity
from ksos.ground import (
    Run,
    as_choice,
    as_count,
    as_generator,
    as_masses,
    as_positive,
    available_if,
    frame,
    instead,
    is_other_array,
    require_numbers,
    require_order,
    to_numpy,
    warn_caller,
)
from ksos.kernels import Kernel, kernel_form
from ksos.measures import Measure

# scikit-learn's callbacks, such as its progress bar, see what a fit does from version 1.9 on
try:
    from sklearn.callback import CallbackSupportMixin as CallbackSupportMixin, with_callbacks
except ImportError:  # before scikit-learn 1.9

    class CallbackSupportMixin:  # type: ignore[no-redef]
        """Nothing, in the place of scikit-learn's class."""

    def with_callbacks(method: Any) -> Any:
        """The method as it is."""
        return method


_F = TypeVar("_F", bound=Callable[..., Any])

_SECONDS_BETWEEN_TASKS = 0.1  # a line of progress shows more news than this no better


def told_to_callbacks(fit: _F) -> _F:
    """``fit`` as the root task of the callbacks that were set, what it does as subtasks.

    A fit inside of a fit reports nothing of its own: what it does belongs to the outer one.
    """

    @wraps(fit)
    def call(self: Any, X: Any, *given: Any, **named: Any) -> Any:
        if not vars(self).get("_skl_callbacks") or Run.current().has_listener:
            return fit(self, X, *given, **named)
        root, last = self._init_callback_context(max_subtasks=None), -math.inf
        root.call_on_fit_task_begin(estimator=self, X=X)

        # each of the news of a fit is a task, at most ten in a second
        def tell(doing: str) -> None:
            nonlocal last
            now = time.monotonic()
            if now - last >= _SECONDS_BETWEEN_TASKS:
                last, task = now, root.subcontext(task_name=doing)
                task.call_on_fit_task_begin(estimator=self)
                task.call_on_fit_task_end(estimator=self)

        # the callbacks show progress: a line of ours beside them would be one too many
        with Run(verbose=1, listener=tell):
            found = fit(self, X, *given, **named)
        root.call_on_fit_task_end(estimator=self, X=X)
        return found

    return with_callbacks(call)


_FOLDS = 5  # four fifths of the rows fit nearly as well as all; ten folds would take twice as long
_MODEL_SAMPLES = 2000  # Samples of the density for p-values to √(p/2000): 0.005 at p = 0.05.


def holds_no_rows_out(estimator: Any) -> bool:
    """Whether an estimator can learn from chunks."""
    if estimator.contamination is not None:
        raise AttributeError(
            "contamination holds rows out, which partial_fit cannot; use fit, or drop contamination"
        )
    return True


def _has_threshold(estimator: Any) -> bool:
    if estimator.contamination is None:
        raise AttributeError(
            "it needs the share of rows to flag: set contamination, such as contamination=0.05,"
            " and fit"
        )
    return True


def warn_if_memorized(contamination: Any, by_likelihood: bool) -> None:
    """Warn if anomalies are asked of a likelihood fit, which finds the outliers that it was fitted
    to likely.
    """
    if contamination is not None and by_likelihood:
        warn_caller(
            "a likelihood fit puts mass on every row, outliers included; for the rows at hand use"
            " fit_predict, which holds them out, or objective='squared_mmd', the default of"
            " KernelSoSDensity"
        )


class DensityEstimator(CallbackSupportMixin, DensityMixin, BaseEstimator):
    """What a fitted density estimator answers, and the checks of the parameters that all of them
    have.
    """

    kernel: str | Kernel
    n_support: int | None
    measure: Measure | None
    tol: float | None
    time_limit: float | None
    contamination: float | None
    verbose: int
    distribution_: Any
    # the library that made the table of the fit
    _make: str = "pandas"
    # held-out scores of distinct rows in ascending order, and the mass up to each, from 0 to 1
    _calibration: tuple[np.ndarray, np.ndarray]

    def score_samples(self, X: Any, *, out: str | os.PathLike[str] | None = None) -> Any:
        """The log-density of each sample, shape (n,); of a source of chunks, an iterator over such
        arrays, one for each chunk.

        With ``out``, the scores of a source go to that NPY file, and come back mapped to memory:
        neither samples nor scores need fit in it. Of arrays and data frames of Dask it is a Dask
        array, which is computed when it is asked for.
        """
        check_is_fitted(self, "distribution_")
        of_dask, X = is_dask(X), as_source(X)[0]
        if out is not None and of_dask:
            raise ValueError(
                "out is for files and iterables; the scores of Dask objects are a Dask array, which"
                " to_zarr and others store"
            )
        if isinstance(X, Chunks):
            scores = X.each(self._of_chunk())
            return scores if out is None else written(scores, out)
        if out is not None:
            raise ValueError(
                "out is for a source of chunks: score_samples(ksos.chunks(…), out=…); np.save"
                " writes the scores of an array"
            )
        if isinstance(self.distribution_, TableDensity):
            return self.distribution_.logpdf(X)
        if not is_other_array(X):
            X = require_numbers(require_order(self, X))
            X = validate_data(self, X, dtype=np.float64, order="C", reset=False)
        return self.distribution_.terms.logpdf(X)

    def score(self, X: Any, y: Any = None, sample_weight: Any = None) -> float:
        """The mean log-density of the samples, weighted by ``sample_weight``; those of a source of
        chunks come with their weights.
        """
        X, sample_weight = as_source(X, sample_weight)
        if isinstance(X, Chunks):
            check_is_fitted(self, "distribution_")
            require_own_weights(sample_weight)
            return X.gather(MeanScore(self._of_chunk())).value
        return mean_score(to_numpy(self.score_samples(X)), sample_weight)

    @instead(seed="random_state", rng="random_state")
    def sample(self, n_samples: int = 1, random_state: Any = None) -> Any:
        """Independent samples of the fitted density, shape (n_samples, d), as a data frame after
        :meth:`set_output`."""
        check_is_fitted(self, "distribution_")
        count, rng = as_count(n_samples, "n_samples"), as_generator(random_state)
        samples = self.distribution_.rvs(count, rng=rng)
        if isinstance(self.distribution_, TableDensity):
            return samples
        chosen = vars(self).get("_sklearn_output_config", {})
        library = chosen.get("transform", get_config()["transform_output"])
        if library == "default":
            return samples
        return frame(to_numpy(samples), self.distribution_.feature_names, library)

    def set_output(self, *, transform: str | None = None) -> Self:
        """Set what :meth:`sample` returns: "default" an array, "pandas" or "polars" a data frame.

        None changes nothing. Without a choice, that of ``sklearn.set_config(transform_output=…)``
        holds.
        """
        if transform is not None:
            choices = ("default", "pandas", "polars")
            self._sklearn_output_config = {"transform": as_choice(transform, "transform", choices)}
        return self

    @available_if(_has_threshold)
    def decision_function(self, X: Any) -> np.ndarray:
        """The log-density minus ``threshold_``, shape (n,): negative for anomalies."""
        scores = self._row_scores(X)
        with np.errstate(invalid="ignore"):
            return np.where(scores == -np.inf, -np.inf, scores - self.threshold_)

    @available_if(_has_threshold)
    def predict(self, X: Any) -> np.ndarray:
        """+1 for rows that are as likely as most, −1 for anomalies, shape (n,)."""
        return np.where(self.decision_function(X) < 0.0, -1, 1)

    @available_if(_has_threshold)
    def fit_predict(self, X: Any, y: Any = None, sample_weight: Any = None) -> np.ndarray:
        """+1 or −1 for the rows that are fitted, shape (n,), from ``held_out_scores_``: no row is
        judged by a fit that has seen it.

        ``fit(X).predict(X)`` asks a density that has seen the rows: one that follows them closely
        finds the outliers among them likely.
        """
        _require_rows(X)
        self.fit(X, sample_weight=sample_weight)
        return np.where(self.held_out_scores_ < self.threshold_, -1, 1)

    def p_value(
        self, X: Any, *, n_samples: int = _MODEL_SAMPLES, random_state: int = 0
    ) -> np.ndarray:
        """How unusual each row is, shape (n,): P(p(Z) ≤ p(x)), the mass outside of the
        highest-density region through x.

        With ``contamination``, Z are the held-out rows, and among new rows of the same distribution
        at most about the share α has a value of at most α. Without it, Z are ``n_samples`` samples
        of the fitted density, which is as right as the density is.
        """
        scores = self._row_scores(X)
        if self.contamination is not None:
            return self._ranks(scores)
        rng = np.random.default_rng(random_state)
        drawn = self.distribution_.rvs(as_count(n_samples, "n_samples"), rng=rng)
        known = np.sort(to_numpy(self.distribution_.logpdf(drawn)))
        below = np.searchsorted(known, scores, side="right")
        return np.asarray((1.0 + below) / (1.0 + known.shape[0]))

    def _row_scores(self, X: Any) -> np.ndarray:
        check_is_fitted(self, "distribution_")
        _require_rows(X)
        return to_numpy(self.score_samples(X))

    # Store held-out scores and the threshold, if there is a ``contamination``.
    def _calibrate(self, X: Any, sample_weight: Any) -> Self:
        if self.contamination is None:
            return self
        rows = np.asarray(to_numpy(X), dtype=np.float64)
        masses = as_masses(sample_weight, rows.shape[0])
        counts, scores = masses > 0.0, np.empty(rows.shape[0])
        unseen = self._calibrate_on(*distinct_samples(rows, masses))
        which = np.unique(rows[counts] + 0.0, axis=0, return_inverse=True)[1].ravel()
        scores[counts] = unseen[which]
        # a row without weight is in no fit, and of a single row there is no other
        own = np.isnan(scores) | ~counts
        if own.any():
            scores[own] = to_numpy(self.distribution_.terms.logpdf(rows[own]))
        self.held_out_scores_ = scores
        return self

    # Set the threshold from distinct rows and their shares of the mass. Their scores by fits that
    # have not seen them.
    #
    # If these are not all rows, ``refit`` fits an estimator to all rows but those that it is given.
    # One fold is enough then, and the scores of the others are NaN.
    def _calibrate_on(
        self,
        points: np.ndarray,
        weights: np.ndarray,
        refit: Callable[[Any, np.ndarray], Any] | None = None,
    ) -> np.ndarray:
        n = points.shape[0]
        unseen, folds = np.full(n, np.nan), []
        if n > 1:
            folds = random_folds(weights, min(_FOLDS, n), np.random.default_rng(0))
        folds = folds if refit is None else folds[:1]
        for number, fold in enumerate(folds, start=1):
            what = f"fit without held-out rows, {number} of {len(folds)}"
            Run.current().tell(what, number, 1 + len(folds))
            other: Any = clone(self).set_params(contamination=None)
            if refit is None:
                other.fit(points[fold.train], sample_weight=fold.train_weights)
            else:
                refit(other, points[fold.test])
            unseen[fold.test] = to_numpy(other.distribution_.terms.logpdf(points[fold.test]))
        known = ~np.isnan(unseen)
        # without other rows, no row is an anomaly
        scores = unseen[known] if known.any() else np.array([-np.inf])
        shares = weights[known] if known.any() else np.ones(1)
        order = np.argsort(scores, kind="stable")
        self._calibration = scores[order], np.r_[0.0, np.cumsum(shares[order] / shares.sum())]
        most = (self.contamination or 0.0) * (1.0 + 1e-12)  # a rank may be rounded up
        rare = self._ranks(scores[order], "left") <= most
        self.threshold_ = float(scores[order][rare].max(initial=-np.inf))
        self.held_out_scores_ = unseen[known]
        return unseen

    # (1 + number of held-out scores that are no higher)/(1 + number of all), weighted; with
    # ``side`` "left", that are lower.
    def _ranks(self, scores: np.ndarray, side: Literal["left", "right"] = "right") -> np.ndarray:
        known, mass = self._calibration
        n = known.shape[0]
        return np.asarray((1.0 + n * mass[np.searchsorted(known, scores, side=side)]) / (n + 1.0))

    # Give the names of the fitted columns, if they have any, and the make of their table to the
    # density.
    def _name_features(self) -> None:
        if (names := vars(self).get("feature_names_in_")) is not None:
            self.distribution_ = self.distribution_.with_feature_names(names)
            self.distribution_._make = self._make

    def __getattr__(self, name: str) -> Any:
        """Raise: results of a fit that is missing, and questions that go to the density."""
        if name.endswith("_") and not name.startswith("_") and "distribution_" not in vars(self):
            raise NotFittedError(
                f"this {type(self).__name__} is not fitted yet: call fit before {name}"
            )
        if not name.startswith("_") and hasattr(SoSDensity, name):
            own = f"{type(self).__name__} has no {name!r}: its density has one"
            raise AttributeError(f"{own}; use est.distribution_.{name}")
        return super().__getattribute__(name)  # raises again, with the cause if there is one

    def _of_chunk(self) -> LogDensity:
        if isinstance(self.distribution_, TableDensity):
            raise ValueError(
                "a density of a table with columns of any kind scores tables in memory, not chunks"
            )
        names = vars(self).get("feature_names_in_")
        named = None if names is None else tuple(names)
        known = Checks(type(self).__name__, n_features=self.n_features_in_, names=named)
        return LogDensity(known, self.distribution_.with_feature_names(None))

    # Raise what can be raised before the data are looked at.
    def _check_common(self) -> None:
        kernel_form(self.kernel)
        if self.n_support is not None:
            as_count(self.n_support, "n_support")
        if self.measure is not None and not isinstance(self.measure, Measure):
            raise TypeError(
                "measure must be a measure such as ksos.measures.Box(low, high), or None; got"
                f" {self.measure!r}"
            )
        if self.tol is not None:
            as_positive(self.tol, "tol")
        if self.time_limit is not None:
            as_positive(self.time_limit, "time_limit")
        if not isinstance(self.verbose, bool):
            as_count(self.verbose, "verbose", minimum=0)
        share, name = self.contamination, "contamination (a share of the rows, or None)"
        if share is not None and as_positive(share, name) > 0.5:
            raise ValueError(
                "contamination must be at most 0.5: what is flagged are the rarer rows; got"
                f" {share!r}"
            )


def _require_rows(X: Any) -> None:
    if isinstance(X, Chunks):
        raise TypeError(
            f"rows are needed here; got {X!r}; of a source, compare the scores of one chunk"
            " after the other with the threshold: [scores < estimator.threshold_ for scores in"
            " estimator.score_samples(source)]"
        )
