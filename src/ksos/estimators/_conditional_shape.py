"""The density of scaled residuals: by the search, alone or given a few features, with tails that held-out residuals ask for."""

from __future__ import annotations

import warnings
from typing import Any, NamedTuple

import numpy as np
from scipy.special import gammainc
from sklearn.base import clone
from sklearn.exceptions import ConvergenceWarning

from ksos._deadline import Deadline
from ksos.density.mixture import SoSMixture, reference_density
from ksos.estimators._conditional_residual import Shape
from ksos.estimators._stacking import stack, stacked_logs
from ksos.measures import GaussianMixture, Lebesgue

__all__ = ["Candidate", "fit_shape", "wide_law"]

_MOST_RESIDUALS, _MOST_TRIED = 3000, 600
_FEW_RESIDUALS = 30  # fewer: no part of them is held out
_ENOUGH_FOR_SHAPES = 150
_KNOTS = 48
_FREEDOM = 2.5
_RUNGS = np.arange(-2, 13)  # variances 4^k of the normal laws that make a Student law
_STANDARD_ERRORS, _LEAST_GAIN = 2.0, 0.01
_REPEATED = 0.5


class Candidate(NamedTuple):
    """Features that the residual may depend on: their name, and their values z."""

    name: Any
    values: np.ndarray


class Found(NamedTuple):
    shape: Shape
    name: Any
    """Of the candidate that was chosen, or None."""
    estimator: Any
    """The fitted density estimator, or None where there were too few different residuals."""
    interrupt: KeyboardInterrupt | None


def wide_law(covariance: np.ndarray, freedom: float) -> SoSMixture:
    """A Student law of the given scale as a mixture of normal laws of variances 4^k, with the masses of its mixing law around them."""
    edges = np.r_[0.0, np.exp(0.5 * np.log(16.0) * (_RUNGS[:-1] + 0.5)), np.inf]  # of the variance
    with np.errstate(divide="ignore"):
        upper = 1.0 - gammainc(0.5 * freedom, 0.5 * freedom / edges)  # P(variance > edge) is gammainc; this is P(variance <= edge)
    weights = np.diff(upper)
    keep = weights > 1e-12
    d = covariance.shape[0]
    variances = 4.0 ** _RUNGS[keep]
    measure = GaussianMixture(weights[keep] / weights[keep].sum(), np.zeros((keep.sum(), d)), variances[:, None, None] * covariance)
    return SoSMixture([reference_density(measure)], measure=Lebesgue())


def fit_shape(
    estimator: Any, U: np.ndarray, masses: np.ndarray, candidates: list[Candidate], rng: np.random.Generator, deadline: Deadline
) -> Found:
    """q(u | z): on a part of the residuals the candidates compete, the rest judges them and the share of the wide law; then all are fitted.

    ``estimator`` is a density estimator, of which copies are fitted.
    """
    rows = np.flatnonzero(masses > 0.0)
    rows = np.sort(rng.choice(rows, min(rows.size, 10 * _MOST_RESIDUALS), replace=False)) if rows.size > 10 * _MOST_RESIDUALS else rows
    U, masses = U[rows], masses[rows]
    candidates = [Candidate(c.name, c.values[rows]) for c in candidates]
    floor = wide_law(_robust_covariance(U), _FREEDOM)
    n = U.shape[0]
    distinct = np.unique(U, axis=0).shape[0]
    least = 1.0 / (n + 50.0)
    if distinct < max(5, 2 * U.shape[1] + 1, _REPEATED * n * 0.02):
        return Found(Shape(floor, floor, 1.0), None, None, None)
    share, chosen = 5.0 * least, None
    if n >= _FEW_RESIDUALS and not deadline.passed:
        order = rng.permutation(n)
        train, test = order[: min(2 * n // 3, _MOST_TRIED)], order[min(2 * n // 3, _MOST_TRIED) :][:_MOST_RESIDUALS]
        alone = _fitted(estimator, U[train], masses[train], deadline, 0.3)
        if alone.distribution is not None:
            tails = floor.log_by_volume(U[test])
            weights = masses[test] / masses[test].sum()

            def with_tails(logs: np.ndarray) -> tuple[np.ndarray, float]:
                both = np.stack([logs, tails], axis=1)
                mixed = max(float(stack(both, weights)[1]), 2.0 * least)
                return stacked_logs(both, np.array([1.0 - mixed, mixed])), mixed

            best, share = with_tails(np.asarray(alone.distribution.log_by_volume(U[test])))
            for candidate in candidates if n >= _ENOUGH_FOR_SHAPES else []:
                if deadline.passed:
                    break
                joint = _fitted(estimator, np.concatenate([candidate.values, U], axis=1)[train], masses[train], deadline, 0.3)
                if joint.distribution is None:
                    continue
                z = list(range(candidate.values.shape[1]))
                logs = joint.distribution.conditional_logpdf(np.concatenate([candidate.values, U], axis=1)[test], z)
                logs, mixed = with_tails(np.asarray(logs))
                gain = logs - best
                if weights @ gain > max(_LEAST_GAIN, _STANDARD_ERRORS * np.sqrt(weights @ (gain - weights @ gain) ** 2 / test.size)):
                    best, share, chosen = logs, mixed, candidate
        if alone.interrupt is not None:
            law = alone.distribution
            return Found(Shape(floor if law is None else law, floor, 1.0 if law is None else share), None, alone.estimator, alone.interrupt)
    rows = rng.permutation(n)[:_MOST_RESIDUALS]
    data = U if chosen is None else np.concatenate([chosen.values, U], axis=1)
    final = _fitted(estimator, data[rows], masses[rows], deadline, 1.0)
    if final.distribution is None:
        return Found(Shape(floor, floor, 1.0), None, None, final.interrupt)
    knots = None if chosen is None else _spread_out(chosen.values[rows], rng)
    shape = Shape(final.distribution, floor, min(max(share, least), 1.0), knots)
    return Found(shape, None if chosen is None else chosen.name, final.estimator, final.interrupt)


class _Fit(NamedTuple):
    distribution: Any
    estimator: Any
    interrupt: KeyboardInterrupt | None


def _fitted(estimator: Any, data: np.ndarray, masses: np.ndarray, deadline: Deadline, part: float) -> _Fit:
    """A copy fitted to the data, with a ``part`` of the time that is left; Ctrl-C leaves the best density so far."""
    copy, interrupt = clone(estimator), None
    if np.isfinite(deadline.remaining):
        copy.set_params(time_limit=max(part * deadline.remaining, 1e-3))
    try:
        with warnings.catch_warnings():
            if np.isfinite(deadline.remaining):
                warnings.simplefilter("ignore", ConvergenceWarning)  # the time limit is the caller's to report
            copy.fit(data, sample_weight=None if np.all(masses == masses[0]) else masses)
    except KeyboardInterrupt as error:
        interrupt = error
    return _Fit(vars(copy).get("distribution_"), copy, interrupt)


def _robust_covariance(U: np.ndarray) -> np.ndarray:
    """Squared median deviations, and the correlations of what lies within three of them."""
    spread = np.maximum(1.4826 * np.median(np.abs(U - np.median(U, axis=0)), axis=0), 1e-3)
    if U.shape[1] == 1:
        return spread[:, None] ** 2
    clipped = np.clip((U - np.median(U, axis=0)) / spread, -3.0, 3.0)
    correlation = np.atleast_2d(np.corrcoef(clipped.T)) if np.all(clipped.std(axis=0) > 1e-6) else np.eye(U.shape[1])
    return (0.95 * correlation + 0.05 * np.eye(U.shape[1])) * np.outer(spread, spread)


def _spread_out(values: np.ndarray, rng: np.random.Generator) -> np.ndarray:
    """At most so many knots that lie as the values do."""
    distinct = np.unique(values, axis=0)
    if distinct.shape[0] <= _KNOTS:
        return distinct
    if distinct.shape[1] == 1:
        return np.unique(np.quantile(values[:, 0], (np.arange(_KNOTS) + 0.5) / _KNOTS))[:, None]
    from sklearn.cluster import KMeans  # slow to import, and seldom needed

    seed = int(rng.integers(2**31))
    return np.asarray(KMeans(_KNOTS, n_init=1, random_state=seed).fit(values).cluster_centers_)
