"""BLAS threads: lowered for small problems, always restored, and no influence on the answer."""

from __future__ import annotations

import os
import subprocess
import sys
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import numpy as np
import pytest
from tables import points
from threadpoolctl import threadpool_info, threadpool_limits

import ksos
from ksos.ground import SMALL_MATRIX, one_blas_thread

FIT = """
import numpy as np, ksos
rng = np.random.default_rng(0)
X = rng.normal(size=(80, 2))
Y = np.concatenate([centre + 0.1 * rng.normal(size=(200, 1)) for centre in (-1.0, 0.0, 1.5)])
wide = ksos.KernelSoSDensity(bandwidth=1.0).fit(X).score_samples(X)
narrow = ksos.KernelSoSDensity(bandwidth=0.1, n_support=600).fit(Y).score_samples(Y)
print(repr([*wide.tolist(), *narrow.tolist()]))
"""


def blas_threads() -> set[int]:
    return {
        library["num_threads"] for library in threadpool_info() if library["user_api"] == "blas"
    }


def test_small_problems_run_on_one_thread_and_the_number_is_restored() -> None:
    with threadpool_limits(2, user_api="blas"):
        before = blas_threads()
        with one_blas_thread(SMALL_MATRIX - 1):
            assert blas_threads() == {1}
            with one_blas_thread(10):
                assert blas_threads() == {1}
            assert blas_threads() == {1}
        assert blas_threads() == before
        with one_blas_thread(SMALL_MATRIX):
            assert blas_threads() == before
        with pytest.raises(RuntimeError), one_blas_thread(10):
            raise RuntimeError
        assert blas_threads() == before
        seen = []
        watched = ksos.solvers.Auto(callback=lambda _: seen.append(blas_threads()) and None)
        ksos.KernelSoSDensity(bandwidth=1.0, solver=watched).fit(points(20, 2))
        assert {1} in seen
        assert blas_threads() == before


def test_eight_fits_at_once_agree_and_restore_the_threads() -> None:
    X = points(25, 2)

    def fit(_: int) -> np.ndarray:
        return ksos.KernelSoSDensity(bandwidth=1.0).fit(X).score_samples(X)

    before = blas_threads()
    alone = fit(0)
    with ThreadPoolExecutor(8) as pool:
        for together in pool.map(fit, range(8)):
            np.testing.assert_allclose(together, alone, atol=1e-9)
    assert blas_threads() == before


def test_one_and_two_threads_give_one_answer() -> None:
    results = []
    for n in ("1", "2"):
        source = str(Path(ksos.__file__).parents[1])
        environment = {
            **os.environ,
            "PYTHONPATH": source,
            "OMP_NUM_THREADS": n,
            "OPENBLAS_NUM_THREADS": n,
            "MKL_NUM_THREADS": n,
        }
        done = subprocess.run(
            [sys.executable, "-c", FIT], env=environment, capture_output=True, text=True, check=True
        )
        results.append(np.array(eval(done.stdout)))
    np.testing.assert_allclose(*results, atol=1e-9)
