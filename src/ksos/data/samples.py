"""Samples as the estimators take them: distinct ones with masses, in folds."""

from __future__ import annotations

import contextlib
import itertools
from collections.abc import Iterable, Sequence
from typing import Any, NamedTuple

import numpy as np

from ksos.ground import as_count, as_weights, warn_caller

FEW_SAMPLES = 200
"""Up to this many samples there are ten folds, beyond five."""
_FEW_ROWS = 100  # the same for rows of a regression

Split = tuple[np.ndarray, np.ndarray]
"""Row numbers to train on, and row numbers held out."""


def distinct_samples(X: np.ndarray, masses: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """The distinct samples of positive mass, in lexicographic order, with their shares of the total
    mass.

    A sample given twice and a sample of mass two are then the same thing, and the order of the
    samples does not matter.
    """
    X, masses = X[masses > 0.0], masses[masses > 0.0]
    # + 0.0: one sign of zero
    points, inverse = np.unique(X + 0.0, axis=0, return_inverse=True)
    gathered = np.bincount(inverse.ravel(), weights=masses)
    return points, gathered / gathered.sum()


def mean_score(scores: np.ndarray, sample_weight: Any) -> float:
    """Their weighted mean; a sample of weight 0 does not count, even where its score is −inf."""
    weights = as_weights(sample_weight, scores.shape[0])
    return float(weights[weights > 0.0] @ scores[weights > 0.0])


class Fold(NamedTuple):
    """Rows of the distinct samples with their shares of the mass: to train on, and held out."""

    train: np.ndarray
    train_weights: np.ndarray
    test: np.ndarray
    test_weights: np.ndarray
    mass: float
    """What is held out, of the mass of all samples."""


def check_folds(cv: Any) -> None:
    """Raise on a ``cv`` that cannot be one, before the data are looked at."""
    if cv is None or (hasattr(cv, "split") and not isinstance(cv, (str, bytes))):
        return
    if isinstance(cv, (int, np.integer)) and not isinstance(cv, bool):
        as_count(cv, "cv", minimum=2)
    elif not isinstance(cv, Iterable) or isinstance(cv, (str, bytes)):
        raise ValueError(
            "cv must be None, a number of folds, a splitter such as KFold(5), or a list of (train,"
            f" test) pairs; got {cv!r}"
        )


def as_folds(
    cv: Any, X: np.ndarray, masses: np.ndarray, weights: np.ndarray, rng: np.random.Generator
) -> list[Fold]:
    """The folds of samples ``X`` with ``masses``, ``weights`` being those of the distinct samples.

    A number of folds is over the distinct samples, so that a sample and its double are never on
    both sides.
    """
    if cv is None or isinstance(cv, (int, np.integer)):
        return random_folds(weights, cv, rng)
    # which of the distinct samples each row is; none if its mass is zero
    rows = np.full(X.shape[0], -1)
    rows[masses > 0.0] = np.unique(X[masses > 0.0] + 0.0, axis=0, return_inverse=True)[1].ravel()
    sides = [
        [np.bincount(rows[part], weights=masses[part], minlength=weights.size) for part in pair]
        for pair in _given_pairs(cv, masses, X)
    ]
    return [_fold(inside, outside, masses.sum()) for inside, outside in sides]


def random_folds(weights: np.ndarray, count: Any, rng: np.random.Generator) -> list[Fold]:
    """Folds of nearly equal numbers of samples; None: as many as suit the number of samples."""
    n, fix = weights.shape[0], "pass a smaller cv, or use KernelSoSDensity, which needs no folds"
    k = _number_of_folds(count, n, FEW_SAMPLES, "distinct samples", fix)
    tests = [np.isin(np.arange(n), part) for part in np.array_split(rng.permutation(n), k)]
    return [_fold(weights * ~test, weights * test, 1.0) for test in tests]


# As given. Default: five as in scikit-learn, and ten if a fifth of the samples is many.
def _number_of_folds(cv: Any, n: int, few: int, what: str, fix: str) -> int:
    k = min(10 if n <= few else 5, max(n, 2)) if cv is None else int(cv)
    if n < k:
        needed = f"{k} folds need at least {k} {what} of positive weight"
        raise ValueError(f"{needed}; got {n} sample{'s' * (n != 1)}; {fix}")
    return k


def row_splits(
    cv: Any,
    X: Any,
    targets: np.ndarray,
    masses: np.ndarray,
    rng: np.random.Generator,
    fewest: int,
    together: bool = True,
) -> list[Split]:
    """Folds of the rows of positive weight. Equal rows stay in one fold, so that no row is
    predicted by a model that has seen its duplicate; not those that are equal since a table has few
    levels, unless ``together``. Warn of fewer than ``fewest`` rows."""
    used = np.flatnonzero(masses > 0.0)
    if cv is not None and not isinstance(cv, (int, np.integer)):
        pairs = _given_pairs(cv, masses, X, targets)
        tests = np.concatenate([test for _, test in pairs])
        if np.unique(tests).size < tests.size:
            raise ValueError(
                "cv holds some rows out more than once; every row has one residual: use folds that"
                " do not overlap, such as KFold"
            )
        return [(np.unique(train), test) for train, test in pairs]
    # text and other objects are not compared: every row is then its own group
    values, group = np.asarray(X), np.arange(targets.shape[0])
    if values.dtype.kind == "O":
        with contextlib.suppress(TypeError, ValueError):  # pandas' own numbers are objects
            values = values.astype(np.float64)
    if values.dtype.kind in "fiub":
        rows = np.concatenate([values.astype(np.float64), targets], axis=1) + 0.0
        group = np.unique(rows, axis=0, return_inverse=True)[1].ravel()
    # sorted by content, so that the order of the rows does not matter
    used = used[np.argsort(group[used], kind="stable")]
    group = np.unique(group[used], return_inverse=True)[1] if together else np.arange(used.size)
    # equal rows are one group: what is held out must not have been seen
    n, fix = int(group.max()) + 1, "give more rows" + " or a smaller cv" * (cv not in (None, 2))
    k = _number_of_folds(cv, n, _FEW_ROWS, "different rows", fix)
    if n < fewest:
        warn_caller(
            f"{n} rows say little about the distribution of y given X, which is then close to a "
            "normal one; give more rows"
        )
    number = np.empty(n, dtype=int)
    number[rng.permutation(n)] = np.arange(n) % k
    return [(used[number[group] != j], used[number[group] == j]) for j in range(k)]


# The row numbers of positive mass in the folds of a splitter, or in those of a list, which may also
# hold masks.
def _given_pairs(cv: Any, masses: np.ndarray, *data: Any) -> list[Split]:
    n, pairs = masses.shape[0], []
    for number, pair in enumerate(cv.split(*data) if hasattr(cv, "split") else cv):
        try:
            # numbers from 0, or masks
            train, test = (np.arange(n)[np.atleast_1d(np.asarray(part))] for part in pair)
        except (TypeError, ValueError, IndexError) as error:
            raise ValueError(
                f"fold {number} of cv must be a pair (train, test) of rows among {n}; got {pair!r}:"
                f" {error}"
            ) from None
        train, test = train[masses[train] > 0.0], test[masses[test] > 0.0]
        if not (train.size and test.size):
            raise ValueError(
                f"fold {number} of cv has no {'test' if train.size else 'training'} samples of"
                " positive weight; use fewer folds"
            )
        pairs.append((train, test))
    if not pairs:
        raise ValueError(
            "cv gives no folds; pass a number of folds, or at least one pair (train, test)"
        )
    return pairs


# From the masses of every sample to train on and held out, and that of all samples.
def _fold(inside: np.ndarray, outside: np.ndarray, total: float) -> Fold:
    train, test = np.flatnonzero(inside), np.flatnonzero(outside)
    inside, outside = inside[train], outside[test]
    held_out = float(outside.sum() / total)
    return Fold(train, inside / inside.sum(), test, outside / outside.sum(), held_out)


def held_out_weights(folds: Sequence[Fold]) -> np.ndarray:
    """Masses of all held-out samples, fold by fold, with sum one."""
    total = sum(fold.mass for fold in folds)
    return np.concatenate([np.empty(0), *(fold.mass / total * fold.test_weights for fold in folds)])


def held_out_rows(folds: Sequence[Fold]) -> list[slice]:
    """Where the samples of every fold are among all that are held out."""
    ends = np.cumsum([0, *(fold.test.size for fold in folds)]).tolist()
    return [slice(a, b) for a, b in itertools.pairwise(ends)]


def some_of(
    points: np.ndarray, weights: np.ndarray, folds: list[Fold], most: int, rng: np.random.Generator
) -> tuple[np.ndarray, np.ndarray, list[Fold]]:
    """At most so many of the distinct samples, drawn at random, with what is left of the folds."""
    n = points.shape[0]
    if n <= most:
        return points, weights, folds
    chosen, left = np.sort(rng.choice(n, most, replace=False)), []
    for fold in folds:
        inside, outside = np.zeros((2, n))
        inside[fold.train], outside[fold.test] = fold.train_weights, fold.test_weights
        if inside[chosen].any() and outside[chosen].any():
            left.append(_fold(inside[chosen], outside[chosen], 1.0)._replace(mass=fold.mass))
    return points[chosen], weights[chosen] / weights[chosen].sum(), left
