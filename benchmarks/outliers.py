"""Outliers among the rows of a fit, by what is fitted: python benchmarks/outliers.py [seeds] [tables]. Areas under ROC curves.

Every table is one class, to which a tenth as many rows of other ones are added: those are to be found, and the fits know of no labels.
"Held out": every row is scored by a fit to four fifths of the rows that it is not among, as ``fit_predict`` does.
"""

from __future__ import annotations

import os
import sys
import warnings
from collections.abc import Iterator
from pathlib import Path
from typing import Any

os.environ.update(dict.fromkeys(("OMP_NUM_THREADS", "OPENBLAS_NUM_THREADS", "MKL_NUM_THREADS", "VECLIB_MAXIMUM_THREADS"), "1"))
sys.path.insert(0, str(Path(__file__).resolve().parents[1] / "src"))

import numpy as np
from sklearn.base import clone
from sklearn.datasets import load_breast_cancer, load_digits, load_iris, load_wine, make_blobs
from sklearn.decomposition import PCA
from sklearn.ensemble import IsolationForest
from sklearn.metrics import roc_auc_score
from sklearn.mixture import GaussianMixture
from sklearn.model_selection import KFold
from sklearn.neighbors import LocalOutlierFactor

import ksos

Rng = np.random.Generator
TABLES = ("blobs", "cancer_10", "cancer_30", "wine_5", "wine_13", "iris", "digits")


def table(name: str, rng: Rng) -> tuple[np.ndarray, np.ndarray]:
    """Usual rows, and the unusual ones among them."""
    if name == "blobs":
        rows = make_blobs(300, 3, centers=3, random_state=int(rng.integers(1 << 30)))[0]
        return rows, rng.uniform(1.2 * rows.min(axis=0), 1.2 * rows.max(axis=0), size=(30, 3))
    if name == "digits":
        data = load_digits()
        X, usual = PCA(8, random_state=0).fit_transform(data.data), data.target == rng.integers(10)
    else:
        data = {"cancer": load_breast_cancer, "wine": load_wine, "iris": load_iris}[name.split("_")[0]]()
        X, usual = data.data[:, : int(name.split("_")[1]) if "_" in name else None], data.target == 1
    inside, others = X[usual], X[~usual]
    return inside, others[rng.choice(len(others), len(inside) // 10, replace=False)]


def held_out(fit: Any, X: np.ndarray) -> np.ndarray:
    """Scores by fits to other rows."""
    found = np.empty(len(X))
    for train, test in KFold(5, shuffle=True, random_state=0).split(X):
        found[test] = clone(fit).fit(X[train]).score_samples(X[test])
    return found


def scores(X: np.ndarray) -> Iterator[tuple[str, np.ndarray]]:
    """Of every method."""
    mmd, wide = ksos.KernelSoSDensity(tol=1e-5), ksos.KernelSoSDensity(bandwidth="median", tol=1e-5)
    likelihood, search = ksos.KernelSoSDensity(objective="likelihood", tol=1e-4, time_limit=5.0), ksos.KernelSoSDensityCV()
    for name, fit in {"MMD": mmd, "MMD, median": wide, "search": search}.items():
        yield name, fit.fit(X).score_samples(X)
        yield f"{name}, held out", held_out(fit, X)
    yield "likelihood", likelihood.fit(X).score_samples(X)
    yield "mixture of 3", GaussianMixture(3, random_state=0, reg_covar=1e-3).fit(X).score_samples(X)
    yield "isolation forest", IsolationForest(random_state=0).fit(X).score_samples(X)
    yield "local outlier factor", LocalOutlierFactor().fit(X).negative_outlier_factor_


def main(seeds: int, names: tuple[str, ...]) -> int:
    """Print the means of a table, one line per method."""
    for name in names:
        areas: dict[str, list[float]] = {}
        for seed in range(seeds):
            usual, unusual = table(name, np.random.default_rng(seed))
            X = np.concatenate([usual, unusual])
            spread = X.std(axis=0)
            X = (X - X.mean(axis=0)) / np.where(spread > 0.0, spread, 1.0)
            truth = np.r_[np.zeros(len(usual)), np.ones(len(unusual))]
            with warnings.catch_warnings():
                warnings.simplefilter("ignore")
                for method, score in scores(X):
                    areas.setdefault(method, []).append(float(roc_auc_score(truth, -np.maximum(score, -1e300))))
        print(name, len(usual), X.shape[1], {method: round(float(np.mean(found)), 3) for method, found in areas.items()}, flush=True)
    return 0


if __name__ == "__main__":
    sys.exit(main(int(sys.argv[1]) if len(sys.argv) > 1 else 10, tuple(sys.argv[2:]) or TABLES))
