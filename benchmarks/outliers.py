"""Outliers among the rows of a fit: areas under ROC curves.

python benchmarks/outliers.py [--seeds 10] [--tables wine_13 iris] [--methods documented "isolation
forest"]

Every table is one class, plus a tenth as many rows of other classes: those are to be found, without
labels. "held out": every row is scored by a fit to four fifths of the rows that it is not among.
"""

from __future__ import annotations

import os
import sys
import warnings
from collections.abc import Callable
from typing import Any

os.environ.update(
    dict.fromkeys(
        ("OMP_NUM_THREADS", "OPENBLAS_NUM_THREADS", "MKL_NUM_THREADS", "VECLIB_MAXIMUM_THREADS"),
        "1",
    )
)
import numpy as np
from quick import parse, parser_of
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
        data = {"cancer": load_breast_cancer, "wine": load_wine, "iris": load_iris}[
            name.split("_")[0]
        ]()
        X, usual = (
            data.data[:, : int(name.split("_")[1]) if "_" in name else None],
            data.target == 1,
        )
    inside, others = X[usual], X[~usual]
    return inside, others[rng.choice(len(others), len(inside) // 10, replace=False)]


def held_out(fit: Any, X: np.ndarray) -> np.ndarray:
    """Scores by fits to other rows."""
    found = np.empty(len(X))
    for train, test in KFold(5, shuffle=True, random_state=0).split(X):
        found[test] = clone(fit).fit(X[train]).score_samples(X[test])
    return found


DOCUMENTED = ksos.KernelSoSDensity(
    bandwidth="scott", relative_regularization=0.01, contamination=0.05
)
"""The line of docs/anomalies.md: Scott's bandwidth and ten times the default λ, chosen on seeds 100
to 102 of these tables.
"""
_MMD, _WIDE = ksos.KernelSoSDensity(tol=1e-5), ksos.KernelSoSDensity(bandwidth="median", tol=1e-5)
_SEARCH = ksos.KernelSoSDensityCV()
_LIKELIHOOD = ksos.KernelSoSDensity(objective="likelihood", tol=1e-4, time_limit=5.0)
METHODS: dict[str, Callable[[np.ndarray], np.ndarray]] = {
    "documented": lambda X: clone(DOCUMENTED).fit(X).held_out_scores_,
    "default": lambda X: clone(_MMD).fit(X).score_samples(X),
    "default, held out": lambda X: held_out(_MMD, X),
    "median, held out": lambda X: held_out(_WIDE, X),
    "search": lambda X: clone(_SEARCH).fit(X).score_samples(X),
    "search, held out": lambda X: held_out(_SEARCH, X),
    "likelihood": lambda X: clone(_LIKELIHOOD).fit(X).score_samples(X),
    "mixture of 3": lambda X: (
        GaussianMixture(3, random_state=0, reg_covar=1e-3).fit(X).score_samples(X)
    ),
    "isolation forest": lambda X: IsolationForest(random_state=0).fit(X).score_samples(X),
    "local outlier factor": lambda X: LocalOutlierFactor().fit(X).negative_outlier_factor_,
}


def main(seeds: int, tables: list[str], methods: list[str]) -> int:
    """Print the means of a table, one line per table."""
    for name in tables:
        areas: dict[str, list[float]] = {}
        for seed in range(seeds):
            usual, unusual = table(name, np.random.default_rng(seed))
            X = np.concatenate([usual, unusual])
            spread = X.std(axis=0)
            X = (X - X.mean(axis=0)) / np.where(spread > 0.0, spread, 1.0)
            truth = np.r_[np.zeros(len(usual)), np.ones(len(unusual))]
            with warnings.catch_warnings():
                warnings.simplefilter("ignore")
                for method in methods:
                    score = np.maximum(METHODS[method](X), -1e300)
                    areas.setdefault(method, []).append(float(roc_auc_score(truth, -score)))
        means = {method: round(float(np.mean(found)), 3) for method, found in areas.items()}
        print(name, len(usual), X.shape[1], means, flush=True)
    return 0


if __name__ == "__main__":
    parser = parser_of(__doc__)
    parser.add_argument("--seeds", type=int, default=10)
    parser.add_argument("--tables", nargs="+", default=TABLES, choices=TABLES)
    parser.add_argument("--methods", nargs="+", default=list(METHODS), choices=METHODS)
    told = parse(
        parser, seeds=1, tables=["iris"], methods=["documented", "default", "isolation forest"]
    )
    sys.exit(main(told.seeds, told.tables, told.methods))
