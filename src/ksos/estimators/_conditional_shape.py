"""The density of scaled residuals: by the search, alone or given a few features, with tails that held-out residuals ask for."""

from __future__ import annotations

import warnings
from typing import Any, NamedTuple

import numpy as np
from sklearn.base import clone
from sklearn.exceptions import ConvergenceWarning

from ksos._deadline import Deadline
from ksos._progress import tell_stopping
from ksos.density.mixture import SoSMixture, mixture, reference_density
from ksos.estimators._conditional_residual import Shape
from ksos.estimators._conditional_student import student_law
from ksos.estimators._stacking import stack, stacked_logs
from ksos.measures import GaussianMixture, Lebesgue

__all__ = ["Candidate", "fit_shape", "wide_law"]

_MOST_RESIDUALS, _MOST_TRIED = 2000, 600
_FEW_RESIDUALS = 30  # fewer: no part of them is held out
_ENOUGH_FOR_SHAPES = 150
_KNOTS = 24
_FAR, _TAILS, _SLOW_TAILS = 5.0, 2.0, 1.5
_RUNGS = np.arange(1, 11)  # the widths are 2, 4, …, 1024 times the usual one
_STANDARD_ERRORS, _LEAST_GAIN = 2.0, 0.01
_FEW_DIFFERENT = 5
_LITTLE, _EARNED = 0.1, 3.0  # nats of held-out residuals together
_START = np.array([0.5, 0.48, 0.02])  # shares of the density, the Student and the wide law before held-out residuals have spoken


class Candidate(NamedTuple):
    """Features that the residual may depend on: their name, and their values z."""

    name: Any
    values: np.ndarray


class Found(NamedTuple):
    shape: Shape
    tail_share: float
    name: Any
    """Of the candidate that was chosen, or None."""
    estimator: Any
    """The fitted density estimator, or None where there were too few different residuals."""
    interrupt: KeyboardInterrupt | None


def wide_law(U: np.ndarray, masses: np.ndarray) -> tuple[SoSMixture, float]:
    """A mixture of normal laws whose widths double from twice the usual one on, for the tails, and the least share that it must have.

    The masses beyond a width w fall like w^−ν, as those of a Student law do. Residuals beyond five usual widths, of which a normal law has
    one in two million, count for its share, and a second of them for slower tails.
    """
    covariance = _robust_covariance(U)
    distance = np.sqrt(np.einsum("ij,jk,ik->i", U, np.linalg.inv(covariance), U) / U.shape[1])
    n, far = U.shape[0], float(masses[distance > _FAR].sum() * U.shape[0] / masses.sum())
    weights = 2.0 ** (-(_SLOW_TAILS if far >= 2.0 else _TAILS) * _RUNGS)
    measure = GaussianMixture(weights / weights.sum(), np.zeros((_RUNGS.size, U.shape[1])), 4.0 ** _RUNGS[:, None, None] * covariance)
    return SoSMixture([reference_density(measure)], measure=Lebesgue()), min((0.4 + 2.0 * far) / (n + 50.0), 0.5)


def fit_shape(
    estimator: Any, U: np.ndarray, masses: np.ndarray, candidates: list[Candidate], rng: np.random.Generator, deadline: Deadline,
    *, forced: bool,
) -> Found:  # fmt: skip
    """q(u | z): on a part of the residuals the candidates compete, the rest judges them and what stands beside; then all are fitted,
    unless the density has little say.

    ``estimator`` is a density estimator, of which copies are fitted. With ``forced``, the first candidate wins.
    """
    rows = np.lexsort(U.T)  # an order of their own: that of the data does not matter
    rows = rng.permutation(rows[masses[rows] > 0.0])[: 2 * _MOST_RESIDUALS]
    U, masses, n = U[rows], masses[rows], rows.size
    candidates = [Candidate(c.name, c.values[rows]) for c in candidates]
    wide, least = wide_law(U, masses)
    laws = [student_law(U, masses), wide]
    if np.unique(U, axis=0).shape[0] < max(_FEW_DIFFERENT, 2 * U.shape[1] + 1):
        return Found(_shape(None, laws, np.array([0.0, 1.0 - least, least])), least, None, None, None)
    shares, fit = np.array([_LITTLE, 1.0 - _LITTLE - least, least]), None
    chosen = candidates[0] if forced and candidates else None
    if n >= _FEW_RESIDUALS and not deadline.passed:
        shares, chosen, fit = _compete(estimator, U, masses, candidates, laws, least, rng, deadline, forced)
        if fit is not None and fit.interrupt is not None:
            return Found(_shape(fit.distribution, laws, shares), shares[2], None, fit.estimator, fit.interrupt)
    rows = rng.permutation(n)[:_MOST_RESIDUALS]
    data = U if chosen is None else np.concatenate([chosen.values, U], axis=1)
    final = fit if fit is not None and shares[0] <= _LITTLE else _fitted(estimator, data[rows], masses[rows], deadline, 1.0)
    knots = None if chosen is None or final.distribution is None else _spread_out(chosen.values[rows], rng)
    name = None if knots is None or chosen is None else chosen.name
    return Found(_shape(final.distribution, laws, shares, knots), float(shares[2]), name, final.estimator, final.interrupt)


def _compete(
    estimator: Any, U: np.ndarray, masses: np.ndarray, candidates: list[Candidate], laws: list[SoSMixture], least: float,
    rng: np.random.Generator, deadline: Deadline, forced: bool,
) -> tuple[np.ndarray, Candidate | None, _Fit | None]:  # fmt: skip
    """The shares of (the density, the Student law, the wide law), what the density is given, and its fit, or the one Ctrl-C stopped."""
    n = U.shape[0]
    order, cut = rng.permutation(n), min(2 * n // 3, _MOST_TRIED)
    train, test = order[:cut], order[cut:][:_MOST_RESIDUALS]
    weights, beside = masses[test] / masses[test].sum(), [np.asarray(law.log_by_volume(U[test])) for law in laws]
    shares, chosen, best, found = _START.copy(), candidates[0] if forced and candidates else None, None, None
    for candidate in [chosen, *(candidates if n >= _ENOUGH_FOR_SHAPES and not forced else [])]:
        if deadline.passed:
            break
        data = U if candidate is None else np.concatenate([candidate.values, U], axis=1)
        fit = _fitted(estimator, data[train], masses[train], deadline, 0.3)
        if fit.interrupt is not None:
            return shares, None, fit
        if fit.distribution is None:
            continue
        p, z = fit.distribution, [] if candidate is None else list(range(candidate.values.shape[1]))
        logs = np.stack([np.asarray(p.conditional_logpdf(data[test], z) if z else p.log_by_volume(data[test])), *beside], axis=1)
        own = _shares(logs, weights, least)
        logs = stacked_logs(logs, own)
        gain = logs - best if best is not None else np.full(test.size, np.inf)
        if best is None or weights @ gain > max(
            _LEAST_GAIN, _STANDARD_ERRORS * np.sqrt(weights @ (gain - weights @ gain) ** 2 / test.size)
        ):
            best, shares, chosen, found = logs, own, candidate, fit
    return shares, chosen, found


def _shares(logs: np.ndarray, weights: np.ndarray, least: float) -> np.ndarray:
    """Of the density, the Student and the wide law, from held-out log-densities.

    The Student law has most of it and the wide law the least that it must have, unless a larger share of the density earns more, and then
    one of the wide law.
    """
    best = np.array([_LITTLE, 1.0 - _LITTLE - least, least])
    free = stack(logs, weights, start=_START)
    wide = max(float(free[2]), least)
    for other in (np.r_[(1.0 - least) * stack(logs[:, :2], weights), least], np.r_[free[:2] * (1.0 - wide) / free[:2].sum(), wide]):
        if logs.shape[0] * (weights @ (stacked_logs(logs, other) - stacked_logs(logs, best))) > _EARNED:
            best = other
    return best


def _shape(core: Any, laws: list[SoSMixture], shares: np.ndarray, knots: np.ndarray | None = None) -> Shape:
    """The density with its share, and what stands beside it; without a density, that alone."""
    beside = mixture(laws, shares[1:])
    return Shape(beside, beside, 1.0) if core is None else Shape(core, beside, float(shares[1:].sum()), knots)


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
        tell_stopping()
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
