"""A small fit takes one thread of OpenMP, so that it is quick on a busy machine."""

from __future__ import annotations

import os
import subprocess
import sys
import time

import numpy as np
from sklearn.datasets import load_diabetes
from sklearn.ensemble import HistGradientBoostingRegressor
from threadpoolctl import threadpool_info

from ksos import KernelSoSConditional, KernelSoSDensity
from ksos.ground import MANY_ROWS, few_threads

FIT = """
import time
from sklearn.datasets import load_diabetes
from sklearn.ensemble import HistGradientBoostingRegressor
from ksos import KernelSoSConditional, KernelSoSDensity
X, y = load_diabetes(return_X_y=True)
quick = KernelSoSDensity(n_support=20, tol=1e-3)
options = {"scale": "constant", "given": None, "transform": None, "estimator": quick, "cv": 2}
est = KernelSoSConditional(HistGradientBoostingRegressor(), **options)
start = time.perf_counter()
est.fit(X[:331], y[:331])
print(time.perf_counter() - start)
"""


def threads() -> list[int]:
    return [one["num_threads"] for one in threadpool_info() if one["user_api"] == "openmp"]


def test_regressors_of_few_rows_run_on_one_thread_and_the_number_is_restored() -> None:
    before, seen = threads(), []

    class Watched(HistGradientBoostingRegressor):
        def fit(self, X: np.ndarray, y: np.ndarray) -> Watched:  # type: ignore[override]
            seen.append(threads())
            return super().fit(X, y)

    X, y = load_diabetes(return_X_y=True)
    quick = KernelSoSDensity(n_support=20, tol=1e-3)
    KernelSoSConditional(
        Watched(max_iter=2), scale="constant", given=None, estimator=quick, cv=2
    ).fit(X, y)
    assert seen and all(number == 1 for found in seen for number in found)
    assert threads() == before
    with few_threads(MANY_ROWS):
        assert threads() == before, "many rows take what there is"


def test_a_fit_beside_busy_processes_takes_as_long_as_with_one_thread() -> None:
    def seconds(**environment: str) -> float:
        found = [
            float(
                subprocess.run(
                    [sys.executable, "-c", FIT],
                    env={**os.environ, **environment},
                    capture_output=True,
                    check=True,
                ).stdout
            )
            for _ in range(2)
        ]
        return min(found)

    busy = [subprocess.Popen([sys.executable, "-c", "while True: pass"]) for _ in range(3)]
    try:
        time.sleep(0.2)
        one = seconds(OMP_NUM_THREADS="1", OPENBLAS_NUM_THREADS="1")
        default = seconds(
            OMP_NUM_THREADS="2", OPENBLAS_NUM_THREADS="2"
        )  # of a machine with two cores
    finally:
        for process in busy:
            process.kill()
            process.wait()
    assert default <= 2.0 * one
