"""Cross-fitting: every row is predicted by regressors that have not seen it; several regressors share the prediction by held-out error."""

from __future__ import annotations

import warnings
from collections.abc import Sequence
from typing import Any, NamedTuple

import numpy as np
from scipy.optimize import nnls
from sklearn.base import clone
from sklearn.exceptions import NotFittedError
from sklearn.pipeline import Pipeline
from sklearn.utils import _safe_indexing, get_tags
from sklearn.utils.validation import has_fit_parameter

from ksos._deadline import Deadline
from ksos._progress import shown, tell

__all__ = ["CrossFit", "Split", "cross_fit", "evaluate", "fit_on", "warn_of_weights"]

Split = tuple[np.ndarray, np.ndarray]
"""Rows to train on, and rows held out."""

_LEAST_SHARE = 0.02
_RIDGE = 1e-3


class CrossFit(NamedTuple):
    """What several regressors predict together, Σ_j w_j f_j(x), with shares w ≥ 0 of sum one for every output."""

    held_out: np.ndarray
    """(n, k): the prediction of every row by models that have not seen it; NaN for rows that were never held out."""
    shares: np.ndarray
    """(regressors, k)."""
    models: list[list[Any]]
    """For every regressor the fits to the folds, or the one to all rows that replaced them; empty where the share is zero."""
    first: list[Any]
    """The fits to the first fold."""

    def predict(self, X: Any) -> np.ndarray:
        """Σ_j w_j f_j(x), shape (n, k); f_j is the fit to all rows, or the mean of the fits to the folds."""
        k = self.shares.shape[1]
        return np.asarray(
            sum(w * np.mean([evaluate(m, X, k) for m in fits], axis=0) for w, fits in zip(self.shares, self.models, strict=True) if fits)
        )


@shown()
def cross_fit(
    regressors: Sequence[Any], X: Any, targets: np.ndarray, masses: np.ndarray, splits: Sequence[Split], deadline: Deadline, *, refit: bool
) -> CrossFit:
    """Fit every regressor to the training rows of every split, and (with ``refit``) those with a share to all rows.

    The shares minimise the squared error of the held-out predictions. Those with which a fold is predicted come from the other folds. When
    the time is up, what has been fitted by then answers.
    """
    n, k = targets.shape
    predicted = np.full((len(regressors), n, k), np.nan)
    fits: list[list[Any]] = [[] for _ in regressors]
    for number, (train, test) in enumerate(splits):
        if fits[0] and deadline.passed:
            break
        for j, regressor in enumerate(regressors):
            if fits[0] and deadline.passed and j:
                break
            doing = f"fold {number + 1} of {len(splits)}, regressor {j + 1} of {len(regressors)}"
            tell(doing, number + j / len(regressors), len(splits) + refit)
            model = fit_on(regressor, X, targets, masses, train)
            fits[j].append(model)
            predicted[j, test] = evaluate(model, _safe_indexing(X, test), k)
    full = [j for j in range(len(regressors)) if not np.isnan(predicted[j, ~np.isnan(predicted[0, :, 0]), 0]).any()]
    held = ~np.isnan(predicted[0, :, 0])
    shares = np.zeros((len(regressors), k))
    shares[full] = _shares(predicted[full][:, held], targets[held], masses[held])
    together = np.full((n, k), np.nan)
    for _, test in splits:
        others = held.copy()
        others[test] = False
        rows = test[held[test]]
        own = _shares(predicted[full][:, others], targets[others], masses[others]) if others.sum() > 1 else shares[full]
        together[rows] = np.einsum("jnk,jk->nk", predicted[full][:, rows], own)
    first = [one[0] if one else None for one in fits]
    for j in range(len(regressors)):
        if not np.any(shares[j] > 0.0):
            fits[j] = []
        elif refit and not deadline.passed:
            fits[j] = [fit_on(regressors[j], X, targets, masses, np.flatnonzero(masses > 0.0))]
    return CrossFit(together, shares, fits, first)


def _shares(predicted: np.ndarray, targets: np.ndarray, masses: np.ndarray) -> np.ndarray:
    """w ≥ 0 of sum one with the least Σ_i a_i(y_i − Σ_j w_j f_j(x_i))², output by output; a small ridge draws them together."""
    m, _, k = predicted.shape
    out = np.zeros((m, k))
    for c in range(k):
        errors = np.sqrt(masses) * (targets[:, c] - predicted[:, :, c])
        unit, w = np.sqrt(np.mean(errors**2)), np.ones(m)
        if m > 1 and unit > 0.0:
            G = (errors / unit) @ (errors / unit).T
            G[np.diag_indices(m)] += _RIDGE * np.trace(G) / m
            much = 1e3 * np.sqrt(np.trace(G))
            w = nnls(np.vstack([np.linalg.cholesky(G).T, much * np.ones(m)]), np.r_[np.zeros(m), much])[0]
        w[w < _LEAST_SHARE * w.sum()] = 0.0
        out[:, c] = w / w.sum()
    return out


def fit_on(regressor: Any, X: Any, targets: np.ndarray, masses: np.ndarray, rows: np.ndarray) -> Any:
    """A copy of the regressor, fitted to some rows; one copy for every output if it takes only one."""
    rows = rows[masses[rows] > 0.0]
    part, weights = _safe_indexing(X, rows), _weight_argument(regressor, masses[rows])
    columns = [targets[rows]] if targets.shape[1] > 1 and get_tags(regressor).target_tags.multi_output else list(targets[rows].T)
    models = []
    for column in columns:
        try:
            models.append(clone(regressor).fit(part, column, **weights))
        except Exception as error:
            raise _naming(error, f"{_name(regressor)} could not be fitted to {rows.size} rows of the data") from error
    return models


def evaluate(models: Any, X: Any, k: int) -> np.ndarray:
    """What fitted models predict, as columns (n, k)."""
    found = []
    for model in models:
        try:
            values = np.asarray(model.predict(X), dtype=np.float64)
        except NotFittedError:
            raise
        except Exception as error:
            raise _naming(error, f"{_name(model)} could not predict") from error
        found.append(values[:, None] if values.ndim == 1 else values)
    out = np.concatenate(found, axis=1)
    if out.shape[1] != k:
        raise ValueError(f"{_name(models[0])} predicts {out.shape[1]} outputs, but y has {k}")
    wrong = ~np.isfinite(out).all(axis=1)
    if wrong.any():
        raise ValueError(
            f"{_name(models[0])} predicts NaN or infinity in {int(wrong.sum())} of {out.shape[0]} rows, first in row "
            f"{int(np.argmax(wrong))}; give a regressor that predicts numbers for all of them"
        )
    return out


def warn_of_weights(regressors: Sequence[Any], masses: np.ndarray) -> None:
    """Name the regressors that cannot take the weights."""
    deaf = sorted({_name(regressor) for regressor in regressors if _weight_name(regressor) is None})
    if deaf and np.ptp(masses) > 0.0:
        message = f"{', '.join(deaf)} takes no sample_weight: its fit counts all rows alike; the density of the residuals is weighted"
        warnings.warn(message, stacklevel=4)


def _weight_name(regressor: Any) -> str | None:
    """What ``fit`` calls the weights: in a pipeline, those of its last step."""
    prefix = ""
    while isinstance(regressor, Pipeline):
        prefix, regressor = f"{prefix}{regressor.steps[-1][0]}__", regressor.steps[-1][1]
    return f"{prefix}sample_weight" if has_fit_parameter(regressor, "sample_weight") else None


def _weight_argument(regressor: Any, masses: np.ndarray) -> dict[str, np.ndarray]:
    name = _weight_name(regressor)
    return {} if name is None or np.all(masses == masses[0]) else {name: masses}


def _name(regressor: Any) -> str:
    return f"the regressor {type(regressor).__name__}"


def _naming(error: Exception, what: str) -> Exception:
    kind = TypeError if isinstance(error, TypeError) else ValueError
    return kind(f"{what}: {error}")
