"""Outliers among the rows of a fit, by what is fitted: python benchmarks/outliers.py. Area under the ROC curve of the scores, ten seeds.

Every table is one class, to which a tenth as many rows of another one are added: those are to be found, and the fits know of no labels.
"""

from __future__ import annotations

import os
import sys
import warnings
from pathlib import Path

os.environ.update(dict.fromkeys(("OMP_NUM_THREADS", "OPENBLAS_NUM_THREADS", "MKL_NUM_THREADS", "VECLIB_MAXIMUM_THREADS"), "1"))
sys.path.insert(0, str(Path(__file__).resolve().parents[1] / "src"))

import numpy as np
from sklearn.datasets import load_breast_cancer, load_wine, make_blobs
from sklearn.ensemble import IsolationForest
from sklearn.metrics import roc_auc_score
from sklearn.neighbors import LocalOutlierFactor

import ksos

Rng = np.random.Generator


def tables(rng: Rng) -> dict[str, tuple[np.ndarray, np.ndarray]]:
    """Rows in standard units, usual ones and the unusual ones among them."""
    blobs = make_blobs(300, 3, centers=3, random_state=int(rng.integers(1 << 30)))[0]
    cancer, wine = load_breast_cancer(), load_wine()
    found = {"blobs, and uniform rows": (blobs, rng.uniform(1.2 * blobs.min(axis=0), 1.2 * blobs.max(axis=0), size=(30, 3)))}
    for name, data, usual in (("breast cancer, 10 features: malignant", cancer, 1), ("wine, 5 features: another grower", wine, 1)):
        X = data.data[:, : 10 if data is cancer else 5]
        others = X[data.target == 1 - usual]
        inside = X[data.target == usual]
        found[name] = inside, others[rng.choice(len(others), len(inside) // 10, replace=False)]
    return found


def scores(X: np.ndarray) -> dict[str, np.ndarray]:
    fits = {
        "MMD": ksos.KernelSoSDensity(tol=1e-5),
        "likelihood": ksos.KernelSoSDensity(objective="likelihood", tol=1e-4, time_limit=20.0),
        "MMD, median bandwidth": ksos.KernelSoSDensity(bandwidth="median", tol=1e-5),
        "likelihood, median bandwidth": ksos.KernelSoSDensity(objective="likelihood", bandwidth="median", tol=1e-4, time_limit=20.0),
    }
    found = {name: fit.fit(X).score_samples(X) for name, fit in fits.items()}
    found["isolation forest"] = IsolationForest(random_state=0).fit(X).score_samples(X)
    found["local outlier factor"] = LocalOutlierFactor().fit(X).negative_outlier_factor_
    return found


def main(seeds: int = 10) -> int:
    areas: dict[str, dict[str, list[float]]] = {}
    for seed in range(seeds):
        for name, (usual, unusual) in tables(np.random.default_rng(seed)).items():
            X = np.concatenate([usual, unusual])
            X = (X - X.mean(axis=0)) / X.std(axis=0)
            truth = np.r_[np.zeros(len(usual)), np.ones(len(unusual))]
            with warnings.catch_warnings():
                warnings.simplefilter("ignore")
                for method, score in scores(X).items():
                    areas.setdefault(name, {}).setdefault(method, []).append(float(roc_auc_score(truth, -score)))
        print(f"seeds done: {seed + 1}")
        for name, methods in areas.items():
            print(f"  {name:40}", "  ".join(f"{method} {np.mean(found):.3f}" for method, found in methods.items()), flush=True)
    return 0


if __name__ == "__main__":
    sys.exit(main(int(sys.argv[1]) if len(sys.argv) > 1 else 10))
