"""A small fit takes one thread of OpenMP, so that it is quick on a busy machine
(benchmarks/busy.py).
"""

from __future__ import annotations

import numpy as np
from sklearn.datasets import load_diabetes
from sklearn.ensemble import HistGradientBoostingRegressor
from threadpoolctl import threadpool_info, threadpool_limits

from ksos import KernelSoSConditional, KernelSoSDensity


def threads() -> list[int]:
    """Of scikit-learn's own OpenMP if there are several in the process, such as that of PyTorch."""
    found = [one for one in threadpool_info() if one["user_api"] == "openmp"]
    own = [one for one in found if "scikit" in one["filepath"]]
    return [one["num_threads"] for one in own or found]


def test_regressors_of_few_rows_run_on_one_thread_and_the_number_is_restored() -> None:
    seen = []

    class Watched(HistGradientBoostingRegressor):
        def fit(self, X: np.ndarray, y: np.ndarray) -> Watched:  # type: ignore[override]
            seen.append(threads())
            return super().fit(X, y)

        def predict(self, X: np.ndarray) -> np.ndarray:
            seen.append(threads())
            return super().predict(X)

    X, y = load_diabetes(return_X_y=True)
    quick = KernelSoSDensity(n_support=20, tol=1e-3)
    est = KernelSoSConditional(
        Watched(max_iter=2), scale="constant", given=None, estimator=quick, cv=2
    )
    with threadpool_limits(2, user_api="openmp"):  # the suite itself runs on one
        before = threads()
        assert before and 2 in before
        est.fit(X, y).predict(X)
        assert seen and all(number == 1 for found in seen for number in found)
        assert threads() == before
