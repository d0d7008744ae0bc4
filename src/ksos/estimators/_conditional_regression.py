"""Everything that makes p(y | x) from regressors: folds, location, scale, the features of the shape, the density of u, calibration."""

from __future__ import annotations

import warnings
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple

import numpy as np
from sklearn.exceptions import ConvergenceWarning
from sklearn.utils import _safe_indexing

from ksos._deadline import Deadline
from ksos._progress import Steps
from ksos._validation import as_count
from ksos.estimators._conditional_calibration import ENDS, interval_factor
from ksos.estimators._conditional_conformal import SplitConformal
from ksos.estimators._conditional_cross_fit import CrossFit, Split, cross_fit, evaluate, warn_of_weights
from ksos.estimators._conditional_residual import ResidualLaws
from ksos.estimators._conditional_scale import ScaleModel, fit_scale
from ksos.estimators._conditional_shape import Candidate, fit_shape

__all__ = ["Choices", "Fitted", "Placement", "fit_regression", "row_splits"]

_PERFECT = 1e-7  # residuals below so much of the spread of y count as none
_COSTS = (9.0, 1.0, 2.0, 4.0)  # of location, scale, calibration and density, in some unit of time
_FEW_ROWS, _VERY_FEW = 100, 20
_ENOUGH_FOR_GAIN, _LEAST_GAIN = 30, 0.8
_BINS = 5
_LEADING = 2
_DEPENDENT = 34.3  # the 99.5 % quantile of χ² with 16 degrees of freedom: what does not go with u at all is not tried


class Choices(NamedTuple):
    """What the user has chosen."""

    locations: Sequence[Any]
    prefit: Any
    """A location that is fitted already, or None."""
    scales: Sequence[Any]
    scale_of_prediction: Any
    estimator: Any
    given: Any
    """"auto", None, "prediction", or column numbers."""


@dataclass(frozen=True)
class Placement:
    """μ(x), s(x) and z(x) of rows."""

    location: Any
    """CrossFit or Prefit."""
    scales: list[ScaleModel]
    given: Any
    """None, "prediction" or column numbers."""
    unit: tuple[np.ndarray, np.ndarray] | None
    """Centre and spread of what is given."""

    def __call__(self, X: Any) -> tuple[np.ndarray, np.ndarray, np.ndarray | None]:
        mu = self.location.predict(X)
        s = np.stack([scale(X, mu[:, k]) for k, scale in enumerate(self.scales)], axis=1)
        if self.given is None or self.unit is None:
            return mu, s, None
        return mu, s, _scaled(given_values(self.given, X, mu), self.unit)

    def place(self, X: Any) -> tuple[np.ndarray, np.ndarray]:
        """μ and s alone."""
        return self(X)[:2]


class Prefit(NamedTuple):
    """A regressor that is fitted already."""

    model: Any
    n_outputs: int

    def predict(self, X: Any) -> np.ndarray:
        return evaluate([self.model], X, self.n_outputs)


class Part(NamedTuple):
    """The fits to all but one fold, with shares of their own."""

    models: list[Any]
    shares: np.ndarray

    def predict(self, X: Any) -> np.ndarray:
        k = self.shares.shape[1]
        return np.asarray(sum(w * evaluate(m, X, k) for w, m in zip(self.shares, self.models, strict=True) if np.any(w > 0.0)))


class Fitted(NamedTuple):
    laws: ResidualLaws
    placement: Placement
    estimator: Any
    given: Any
    tail_share: float
    conformal: SplitConformal | None
    residuals: np.ndarray
    """u of the rows, NaN where a row was never held out."""
    predictions: np.ndarray
    """μ of the rows, likewise."""
    interrupt: KeyboardInterrupt | None


def row_splits(cv: Any, X: Any, targets: np.ndarray, masses: np.ndarray, rng: np.random.Generator) -> list[Split]:
    """Folds of the rows of positive weight; equal rows stay together, so that none is predicted by a model that has seen its double."""
    used = np.flatnonzero(masses > 0.0)
    if cv is not None and not isinstance(cv, (int, np.integer)):
        return _given_splits(cv, X, targets, used)
    group = _groups(X, targets)[used]
    used, group = used[np.argsort(group, kind="stable")], np.sort(group)  # the order of the rows does not matter
    group = np.unique(group, return_inverse=True)[1]
    count = int(group.max()) + 1
    k = min(10 if count <= _FEW_ROWS else 5, max(count, 2)) if cv is None else as_count(cv, "cv", minimum=2)
    if count < k:
        raise ValueError(
            f"{k} folds need at least {k} different rows of positive weight; got {count} sample{'s' * (count != 1)}; give more rows"
            + " or a smaller cv" * (k > 2)
        )
    if count < _VERY_FEW:
        warnings.warn(f"{count} rows say little about the law of y given X: it is mostly a normal law; give more of them", stacklevel=4)
    number = np.empty(count, dtype=int)
    number[rng.permutation(count)] = np.arange(count) % k
    return [(used[number[group] != j], used[number[group] == j]) for j in range(k)]


def _groups(X: Any, targets: np.ndarray) -> np.ndarray:
    """Which of the distinct rows (x, y) every row is."""
    values = np.asarray(X)
    if values.dtype.kind not in "fiub":
        return np.arange(targets.shape[0])
    rows = np.concatenate([values.astype(np.float64), targets], axis=1) + 0.0
    return np.unique(rows, axis=0, return_inverse=True)[1].ravel()


def _given_splits(cv: Any, X: Any, targets: np.ndarray, used: np.ndarray) -> list[Split]:
    pairs = [tuple(np.asarray(side, dtype=int) for side in pair) for pair in (cv.split(X, targets) if hasattr(cv, "split") else cv)]
    if not pairs or any(len(pair) != 2 or pair[0].size == 0 or pair[1].size == 0 for pair in pairs):
        raise ValueError("cv must give at least one pair (train, test) of row numbers, neither of them empty")
    tests = np.concatenate([test for _, test in pairs])
    if np.unique(tests).size < tests.size:
        raise ValueError("cv holds some rows out more than once; every row has one residual: use folds that do not overlap, such as KFold")
    return [(np.intersect1d(train, used), np.intersect1d(test, used)) for train, test in pairs]


def fit_regression(
    choices: Choices, X: Any, targets: np.ndarray, masses: np.ndarray, splits: list[Split], rng: np.random.Generator, deadline: Deadline
) -> Fitted:
    """Location and scale by cross-fitting, the law of u = (y − μ)/s from the held-out residuals, and what conformal intervals need."""
    steps = Steps(_COSTS)
    steps.begin("location by cross-fitting")
    warn_of_weights([*choices.locations, *choices.scales], masses)
    spread = np.sqrt(masses @ (targets - masses @ targets / masses.sum()) ** 2 / masses.sum())
    floor = _PERFECT * spread
    location = _location(choices, X, targets, masses, splits, deadline)
    mu = location.predict(X) if choices.prefit is not None else location.held_out
    held = np.flatnonzero(~np.isnan(mu[:, 0]) & (masses > 0.0))
    part, residuals = _safe_indexing(X, held), (targets - mu)[held]
    perfect = np.sqrt(np.mean(residuals**2, axis=0)) <= floor
    if perfect.any():
        warnings.warn(
            f"the regressor predicts output {int(np.argmax(perfect))} of held-out rows without error: the scale of its law is a floor, "
            f"{_PERFECT:g} of the spread of y", stacklevel=4,
        )  # fmt: skip
    steps.begin("scale of the residuals")
    scales, s = _scales(choices, part, mu[held], residuals, masses[held], _within(splits, held), floor, deadline)
    U = np.full(targets.shape, np.nan)
    U[held] = residuals / s
    conformal = None
    steps.begin("conformal intervals")
    if not deadline.passed:
        conformal, nested = _conformal(choices, location, X, targets, masses, splits, rng, deadline)
        if nested is not None:
            train = splits[0][0]
            scales = [scale.times(_gain(nested[:, k], (targets - mu)[train, k], train.size / held.size)) for k, scale in enumerate(scales)]
    steps.begin("density of the scaled residuals")
    candidates, units = _candidates(choices.given, part, mu[held], U[held])
    forced = choices.given is not None and choices.given != "auto"
    found = fit_shape(choices.estimator, U[held], masses[held], candidates, rng, deadline, forced=forced)
    if not deadline.passed and found.interrupt is None:
        z = next((candidate.values for candidate in candidates if candidate.name == found.name), None)
        which = found.shape.which(z, held.size)
        for k, table in enumerate(found.shape.tables):
            scales[k] = scales[k].times(interval_factor(U[held, k], table.ppf(ENDS)[which], masses[held]))
    placement = Placement(location, scales, found.name, units.get(found.name))
    if deadline.passed:
        message = "the time limit came before the end of the fit; the law rests on what was fitted by then; raise time_limit"
        warnings.warn(message, ConvergenceWarning, stacklevel=4)
    return Fitted(
        ResidualLaws(placement, found.shape), placement, found.estimator, found.name, found.tail_share, conformal, U, mu, found.interrupt
    )


def _gain(nested: np.ndarray, residuals: np.ndarray, part: float) -> float:
    """By which factor the error of a fit to all rows is below that of the fits to a ``part`` of them, which are those of the residuals.

    The squared error of a fit to a share f of the rows goes like σ² + c/f; ``nested`` are residuals of fits to half of that part. Errors
    are cut at their 95 % quantile, so that a few of them do not decide.
    """
    known = ~np.isnan(nested) & ~np.isnan(residuals)
    before, after = np.abs(nested[known]), np.abs(residuals[known])
    if before.size < _ENOUGH_FOR_GAIN:
        return 1.0
    most = np.quantile(after, 0.95)
    before, after = (np.mean(np.minimum(r, most) ** 2) for r in (before, after))
    return float(np.sqrt(np.clip(1.0 - (1.0 - part) * (before - after) / max(after, 1e-300), _LEAST_GAIN**2, 1.0)))


def _location(choices: Choices, X: Any, targets: np.ndarray, masses: np.ndarray, splits: list[Split], deadline: Deadline) -> Any:
    if choices.prefit is not None:
        return Prefit(choices.prefit, targets.shape[1])
    return cross_fit(choices.locations, X, targets, masses, splits, deadline, refit=True)


def _scales(
    choices: Choices,
    X: Any,
    mu: np.ndarray,
    residuals: np.ndarray,
    masses: np.ndarray,
    splits: list[Split],
    floor: np.ndarray,
    deadline: Deadline,
) -> tuple[list[ScaleModel], np.ndarray]:
    scales, of_prediction = (choices.scales, choices.scale_of_prediction) if mu.shape[0] >= _VERY_FEW else ((), None)
    found = [
        fit_scale(scales, of_prediction, X, mu[:, k], residuals[:, k], masses, splits, float(floor[k]), deadline)
        for k in range(mu.shape[1])
    ]
    return [model for model, _ in found], np.stack([s for _, s in found], axis=1)


def _within(splits: list[Split], held: np.ndarray) -> list[Split]:
    """The same splits, as positions among the rows ``held``."""
    found = []
    for train, test in splits:
        train, test = np.intersect1d(train, held), np.intersect1d(test, held)
        if train.size and test.size:
            found.append((np.searchsorted(held, train), np.searchsorted(held, test)))
    return found


def _conformal(
    choices: Choices, location: Any, X: Any, targets: np.ndarray, masses: np.ndarray, splits: list[Split],
    rng: np.random.Generator, deadline: Deadline,
) -> tuple[SplitConformal, np.ndarray | None]:  # fmt: skip
    """The first fold calibrates; μ, s and the quantiles come from the other rows alone, in two halves that predict each other.

    Also the residuals of these predictions, unless the regressor was fitted before.
    """
    train, test = splits[0] if isinstance(location, CrossFit) else _halves(np.concatenate(splits[0]), rng)
    floor = _PERFECT * np.maximum(targets[train].std(axis=0), 1e-300)
    inside, part = _safe_indexing(X, train), (targets[train], masses[train])
    one, other = _halves(np.arange(train.size), rng)
    swaps = [(one, other), (other, one)] if one.size else []
    if isinstance(location, CrossFit):
        if not swaps:
            swaps = [(np.arange(train.size), np.arange(train.size))]
        nested = cross_fit(choices.locations, inside, *part, swaps, deadline, refit=False)
        place: Any = Part(location.first, nested.shares)
        mu = nested.held_out
    else:
        place, mu = location, location.predict(inside)
    held = np.flatnonzero(~np.isnan(mu[:, 0]))
    scales, s = _scales(
        choices, _safe_indexing(inside, held), mu[held], (part[0] - mu)[held], part[1][held], _within(swaps, held), floor, deadline
    )
    placement = Placement(place, scales, None, None)
    mu_test, s_test = placement.place(_safe_indexing(X, test))
    found = SplitConformal(placement.place, (part[0] - mu)[held] / s, (targets[test] - mu_test) / s_test)
    return found, part[0] - mu if isinstance(location, CrossFit) else None


def _halves(rows: np.ndarray, rng: np.random.Generator) -> tuple[np.ndarray, np.ndarray]:
    order = rng.permutation(rows)
    return order[: order.size // 2], order[order.size // 2 :]


def _candidates(given: Any, X: Any, mu: np.ndarray, U: np.ndarray) -> tuple[list[Candidate], dict[Any, tuple[np.ndarray, np.ndarray]]]:
    """What the shape may depend on, and the units in which it is measured."""
    if given is None:
        return [], {}
    automatic = isinstance(given, str) and given == "auto"
    found, units = [], {}
    for name in ["prediction", *_leading(X, U)] if automatic else [given]:
        values = given_values(name, X, mu)
        unit = values.mean(axis=0), values.std(axis=0)
        if np.all(unit[1] > 0.0) and (not automatic or _dependence(values, U) > _DEPENDENT):
            units[name] = unit
            found.append(Candidate(name, _scaled(values, unit)))
    return found, units


def given_values(name: Any, X: Any, mu: np.ndarray) -> np.ndarray:
    """The columns that the shape depends on, as numbers."""
    if isinstance(name, str) and name == "prediction":
        return mu
    return np.stack([np.asarray(_safe_indexing(X, k, axis=1), dtype=np.float64) for k in name], axis=1)


def _scaled(values: np.ndarray, unit: tuple[np.ndarray, np.ndarray]) -> np.ndarray:
    return np.clip(np.nan_to_num((values - unit[0]) / unit[1]), -4.0, 4.0)  # far from the data the law is that of the nearest


def _leading(X: Any, U: np.ndarray) -> list[tuple[int, ...]]:
    """The columns of numbers with which the scaled residual goes most."""
    scores = {}
    for j in range(X.shape[1]):
        try:
            column = np.asarray(_safe_indexing(X, j, axis=1), dtype=np.float64)
        except (TypeError, ValueError):  # categories
            continue
        if np.isfinite(column).all() and np.unique(column).size > _BINS:
            scores[j] = _dependence(column[:, None], U)
    return [(j,) for j in sorted(scores, key=lambda j: -scores[j])[:_LEADING]]


def _dependence(values: np.ndarray, U: np.ndarray) -> float:
    """The largest χ² of a table of quintiles of a value and an output."""
    return max(_chi_squared(_bins(a), _bins(u)) for a in values.T for u in U.T)


def _bins(values: np.ndarray) -> np.ndarray:
    return np.minimum(np.argsort(np.argsort(values, kind="stable"), kind="stable") * _BINS // values.size, _BINS - 1)


def _chi_squared(a: np.ndarray, b: np.ndarray) -> float:
    table = np.zeros((_BINS, _BINS))
    np.add.at(table, (a, b), 1.0)
    expected = np.outer(table.sum(axis=1), table.sum(axis=0)) / table.sum()
    return float(np.sum((table - expected) ** 2 / np.maximum(expected, 1e-9)))
