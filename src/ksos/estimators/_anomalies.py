"""Anomalies: which rows a fitted density finds too unlikely, at a level that holds for new rows.

Scores of the rows that a density was fitted to are too high, the more so the closer it follows
them: a threshold at a quantile of them would flag far more than that share of new rows. So the
threshold is a quantile of *held-out* scores: each of five folds is scored by a fit to the other
four. The conformal rank [Vovk2005] of a new row among them is about uniform: about the share
``contamination`` of new rows from the same distribution is flagged.
"""

from __future__ import annotations

import warnings
from collections.abc import Callable
from typing import TYPE_CHECKING, Any, Literal, Self

import numpy as np
from sklearn.base import clone
from sklearn.utils.validation import check_is_fitted

from ksos.data.samples import distinct_samples, random_folds
from ksos.data.sources import Chunks
from ksos.ground.arrays import to_numpy
from ksos.ground.progress import tell
from ksos.ground.validation import as_count, as_masses, as_positive, available_if

if TYPE_CHECKING:
    from ksos.density import SoSDensity

Refit = Callable[[Any, np.ndarray], Any]

__all__ = ["AnomalyMixin", "check_contamination", "holds_no_rows_out", "warn_if_memorised"]

# a fit to four fifths of the rows is nearly as good as one to all; ten would take twice as long
_FOLDS = 5
_MODEL_SAMPLES = 2000  # p-values to √(p/2000): 0.005 at p = 0.05


def holds_no_rows_out(estimator: Any) -> bool:
    """Whether an estimator can learn from chunks."""
    if estimator.contamination is not None:
        raise AttributeError(
            "contamination holds rows out, which partial_fit cannot; use fit, or leave"
            " contamination out"
        )
    return True


def check_contamination(contamination: Any) -> None:
    """Refuse what is no share of rows."""
    if (
        contamination is not None
        and not as_positive(contamination, "contamination (a share of the rows, or None)") <= 0.5
    ):
        raise ValueError(
            "contamination must be at most 0.5: what is flagged are the rarer rows; got"
            f" {contamination!r}"
        )


def warn_if_memorised(contamination: Any, by_likelihood: bool) -> None:
    """Say so when anomalies are asked of a likelihood fit, which finds the outliers that it was
    fitted to likely.
    """
    if contamination is not None and by_likelihood:
        message = (
            "a likelihood fit puts mass on every row, outliers included; for the rows at hand use"
            " fit_predict, which holds them out"
        )
        warnings.warn(
            f"{message}, or objective='squared_mmd', the default of KernelSoSDensity",
            UserWarning,
            stacklevel=3,
        )


def _has_threshold(estimator: Any) -> bool:
    if estimator.contamination is None:
        raise AttributeError(
            "it needs the share of rows to flag: set contamination, such as contamination=0.05,"
            " and fit"
        )
    return True


class AnomalyMixin:
    """``predict``, ``decision_function``, ``fit_predict`` and ``p_value`` of a density estimator
    with the parameter ``contamination``.
    """

    contamination: float | None
    distribution_: SoSDensity
    threshold_: float
    held_out_scores_: np.ndarray

    _calibration: tuple[np.ndarray, np.ndarray]
    """Held-out scores of distinct rows in ascending order, and the mass up to each of them, from 0
    to 1.
    """

    def _calibrate(self, X: Any, sample_weight: Any) -> Self:
        """Store held-out scores and the threshold, if ``contamination`` asks for them."""
        if self.contamination is None:
            return self
        rows = np.asarray(to_numpy(X), dtype=np.float64)
        masses = as_masses(sample_weight, rows.shape[0])
        points, weights = distinct_samples(rows, masses)
        unseen = self._unseen(points, weights)
        self._set_threshold(unseen, weights)
        counts, scores = masses > 0.0, np.empty(rows.shape[0])
        which = np.unique(rows[counts] + 0.0, axis=0, return_inverse=True)[1].ravel()
        scores[counts] = unseen[which]
        if (
            own := np.isnan(scores) | ~counts
        ).any():  # a row without weight is in no fit; of a single row there is no other
            scores[own] = to_numpy(self.distribution_.terms.logpdf(rows[own]))
        self.held_out_scores_ = scores
        return self

    def _calibrate_on(self, points: np.ndarray, weights: np.ndarray, refit: Refit | None) -> Self:
        """The same for distinct rows of a source and their shares of the mass.

        If these are not all rows, ``refit`` fits an estimator to all rows but those that it is
        given, and one fold is enough.
        """
        unseen = self._unseen(points, weights, _FOLDS if refit is None else 1, refit)
        self._set_threshold(unseen, weights)
        self.held_out_scores_ = unseen[~np.isnan(unseen)]
        return self

    def _set_threshold(self, unseen: np.ndarray, weights: np.ndarray) -> None:
        known = ~np.isnan(unseen)
        scores, shares = (
            (unseen[known], weights[known]) if known.any() else (np.array([-np.inf]), np.ones(1))
        )
        order = np.argsort(scores, kind="stable")
        self._calibration = scores[order], np.r_[0.0, np.cumsum(shares[order] / shares.sum())]
        rare = self._ranks(scores[order], "left") <= float(self.contamination or 0.0) * (
            1.0 + 1e-12
        )
        self.threshold_ = float(scores[order][rare].max(initial=-np.inf))

    def _unseen(
        self,
        points: np.ndarray,
        weights: np.ndarray,
        count: int = _FOLDS,
        refit: Refit | None = None,
    ) -> np.ndarray:
        """Scores of the rows of the first ``count`` folds by fits to the others; NaN for the rest."""
        n = points.shape[0]
        out = np.full(n, np.nan)
        folds = (
            random_folds(weights, min(_FOLDS, n), np.random.default_rng(0))[:count] if n > 1 else []
        )
        for number, fold in enumerate(folds, start=1):
            tell(f"fit without held-out rows, {number} of {len(folds)}", number, 1 + len(folds))
            other: Any = clone(self).set_params(contamination=None)
            if refit is None:
                other.fit(points[fold.train], sample_weight=fold.train_weights)
            else:
                refit(other, points[fold.test])
            out[fold.test] = to_numpy(other.distribution_.terms.logpdf(points[fold.test]))
        return out

    def _row_scores(self, X: Any) -> np.ndarray:
        if isinstance(X, Chunks):
            raise TypeError(
                f"rows are needed here; got {X!r}; of a source, compare the scores of one chunk"
                " after the other with the threshold: [scores < estimator.threshold_ for scores in"
                " estimator.score_samples(source)]"
            )
        return to_numpy(self.score_samples(X))  # type: ignore[attr-defined]

    def _ranks(self, scores: np.ndarray, side: Literal["left", "right"] = "right") -> np.ndarray:
        """(1 + number of held-out scores that are no higher)/(1 + number of all), weighted; with
        ``side`` "left", that are lower.
        """
        known, mass = self._calibration
        n = known.shape[0]
        return np.asarray((1.0 + n * mass[np.searchsorted(known, scores, side=side)]) / (n + 1.0))

    @available_if(_has_threshold)
    def decision_function(self, X: Any) -> np.ndarray:
        """The log-density minus ``threshold_``, shape (n,): negative for anomalies."""
        check_is_fitted(self, "distribution_")
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
        if isinstance(X, Chunks):
            self._row_scores(X)  # which says why not
        self.fit(X, sample_weight=sample_weight)  # type: ignore[attr-defined]
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
        check_is_fitted(self, "distribution_")
        scores = self._row_scores(X)
        if self.contamination is not None:
            return self._ranks(scores)
        drawn = self.distribution_.rvs(
            as_count(n_samples, "n_samples"), rng=np.random.default_rng(random_state)
        )
        known = np.sort(to_numpy(self.distribution_.logpdf(drawn)))
        return np.asarray(
            (1.0 + np.searchsorted(known, scores, side="right")) / (1.0 + known.shape[0])
        )
