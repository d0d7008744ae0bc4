"""The real data that come with scikit-learn, split at random into two thirds to fit and one third to predict."""

from __future__ import annotations

from collections.abc import Callable
from functools import cache
from typing import Any

import numpy as np

__all__ = ["REAL", "split"]


@cache
def _load(name: str) -> np.ndarray:
    from sklearn import datasets

    return np.asarray(getattr(datasets, f"load_{name}")().data, dtype=float)


def _as_it_is(train: np.ndarray, test: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    return train, test


def _principal(k: int) -> Callable[[np.ndarray, np.ndarray], tuple[np.ndarray, np.ndarray]]:
    """Standardised, then the first k principal components; both learnt from the part that is fitted."""

    def reduce(train: np.ndarray, test: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        from sklearn.decomposition import PCA
        from sklearn.pipeline import make_pipeline
        from sklearn.preprocessing import StandardScaler

        pipeline: Any = make_pipeline(StandardScaler(), PCA(k, svd_solver="full")).fit(train)
        return pipeline.transform(train), pipeline.transform(test)

    return reduce


def _without_sex(train: np.ndarray, test: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Feature 1 has two values: it has no density, and a likelihood rewards whoever collapses on it."""
    return np.delete(train, 1, axis=1), np.delete(test, 1, axis=1)


REAL: dict[str, tuple[str, int, Callable[[np.ndarray, np.ndarray], tuple[np.ndarray, np.ndarray]]]] = {
    "iris": ("iris", 4, _as_it_is),
    "wine": ("wine", 13, _as_it_is),
    "breast_cancer_pca5": ("breast_cancer", 5, _principal(5)),
    "diabetes": ("diabetes", 9, _without_sex),
    "digits_pca10": ("digits", 10, _principal(10)),
}
"""Name: scikit-learn's name, number of features, preparation."""


def split(name: str, rng: np.random.Generator) -> tuple[np.ndarray, np.ndarray]:
    """Two thirds and one third of the samples."""
    source, _, prepare = REAL[name]
    X = _load(source)
    order = rng.permutation(X.shape[0])
    cut = 2 * X.shape[0] // 3
    return prepare(X[order[:cut]], X[order[cut:]])
