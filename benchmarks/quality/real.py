"""The real data that come with scikit-learn, split at random into two thirds to fit and one third
to predict.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import cache
from typing import Any

import numpy as np

__all__ = ["FURTHER", "REAL", "split"]

Preparation = Callable[[np.ndarray, np.ndarray], tuple[np.ndarray, np.ndarray]]


@cache
def _load(name: str) -> np.ndarray:
    from sklearn import datasets

    return np.asarray(getattr(datasets, f"load_{name}")().data, dtype=float)


def _as_it_is(train: np.ndarray, test: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    return train, test


def _principal(k: int) -> Preparation:
    """Standardized, then the first k principal components; both learnt from the part that is
    fitted.
    """

    def reduce(train: np.ndarray, test: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        from sklearn.decomposition import PCA
        from sklearn.pipeline import make_pipeline
        from sklearn.preprocessing import StandardScaler

        pipeline: Any = make_pipeline(StandardScaler(), PCA(k, svd_solver="full")).fit(train)
        return pipeline.transform(train), pipeline.transform(test)

    return reduce


def _without_sex(train: np.ndarray, test: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Feature 1 has two values: it has no density, and a likelihood rewards whoever collapses on
    it.
    """
    return np.delete(train, 1, axis=1), np.delete(test, 1, axis=1)


def _first(k: int) -> Preparation:
    """The first k features."""
    return lambda train, test: (train[:, :k], test[:, :k])


REAL: dict[str, tuple[str, int, Preparation]] = {
    "iris": ("iris", 4, _as_it_is),
    "wine": ("wine", 13, _as_it_is),
    "breast_cancer_pca5": ("breast_cancer", 5, _principal(5)),
    "diabetes": ("diabetes", 9, _without_sex),
    "digits_pca10": ("digits", 10, _principal(10)),
}
"""Name: scikit-learn's name, number of features, preparation."""

FURTHER: dict[str, tuple[str, int, Preparation]] = {
    "linnerud": ("linnerud", 3, _as_it_is),
    "breast_cancer_means": ("breast_cancer", 10, _first(10)),
    "digits_pca4": ("digits", 4, _principal(4)),
}
"""The same for the contest on other data: twenty samples; radius, perimeter and area side by side;
digits seen from farther off.
"""


def split(name: str, rng: np.random.Generator) -> tuple[np.ndarray, np.ndarray]:
    """Two thirds and one third of the samples."""
    source, _, prepare = (REAL | FURTHER)[name]
    X = _load(source)
    order = rng.permutation(X.shape[0])
    cut = 2 * X.shape[0] // 3
    return prepare(X[order[:cut]], X[order[cut:]])
