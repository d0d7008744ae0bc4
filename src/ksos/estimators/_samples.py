"""Samples as the estimators take them: distinct ones with masses, inside the domain; and random generators."""

from __future__ import annotations

from typing import Any

import numpy as np
from sklearn.utils import check_random_state

from ksos.measures import Measure

__all__ = ["as_generator", "distinct_samples", "require_inside"]


def distinct_samples(X: np.ndarray, masses: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """The distinct samples of positive mass, in lexicographic order, with their shares of the total mass.

    A sample given twice and a sample of mass two are then the same thing, and the order of the samples does not matter.
    """
    X, masses = X[masses > 0.0], masses[masses > 0.0]
    points, inverse = np.unique(X + 0.0, axis=0, return_inverse=True)  # + 0.0: one sign of zero
    gathered = np.bincount(inverse.ravel(), weights=masses)
    return points, gathered / gathered.sum()


def require_inside(measure: Measure, X: np.ndarray, masses: np.ndarray) -> None:
    """Raise when a sample that counts lies where no density can be."""
    measure.check_features(X.shape[1])
    rows = np.flatnonzero(~measure.contains(X) & (masses > 0.0))
    if rows.size:
        first = f"the first is row {rows[0]}: {X[rows[0]].tolist()}"
        raise ValueError(f"{rows.size} of {X.shape[0]} samples lie outside {measure!r}; {first}; widen it or leave them out")


def as_generator(random_state: Any) -> np.random.Generator:
    """A NumPy Generator from whatever scikit-learn accepts as ``random_state``."""
    if isinstance(random_state, np.random.Generator):
        return random_state
    return np.random.default_rng(check_random_state(random_state).randint(0, 2**31, size=4))
