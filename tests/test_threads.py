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
from ksos.ground import SMALL_MATRIX, few_threads, one_blas_thread

FIT = """
import numpy as np, ksos
rng = np.random.default_rng(0)
X = rng.normal(size=(80, 2))
Y = np.concatenate([center + 0.1 * rng.normal(size=(200, 1)) for center in (-1.0, 0.0, 1.5)])
wide = ksos.KernelSoSDensity(bandwidth=1.0).fit(X).score_samples(X)
narrow = ksos.KernelSoSDensity(bandwidth=0.1, n_support=600).fit(Y).score_samples(Y)
print(repr([*wide.tolist(), *narrow.tolist()]))
"""


def blas_threads() -> set[int]:
    """Of the libraries whose number counts for the whole process: that of OpenMP counts for each
    Python thread, and some libraries that come with a conic solver have one thread at all times.
    """
    return {
        library["num_threads"]
        for library in threadpool_info()
        if library["user_api"] == "blas" and library["threading_layer"] == "pthreads"
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
            assert blas_threads() <= {1, 2}  # as many as the machine has free
        assert blas_threads() == before
        with pytest.raises(RuntimeError), one_blas_thread(10):
            raise RuntimeError
        assert blas_threads() == before
        seen = []
        watched = ksos.solvers.Auto(callback=lambda _: seen.append(blas_threads()) and None)
        ksos.KernelSoSDensity(bandwidth=1.0, solver=watched).fit(points(20, 2))
        assert {1} in seen
        assert blas_threads() == before


def in_a_fresh_process(program: str, **environment: str) -> str:
    """What a program prints that finds this very package, with the machine's own threads."""
    limits = ("OMP_NUM_THREADS", "OPENBLAS_NUM_THREADS", "MKL_NUM_THREADS")
    inherited = {key: value for key, value in os.environ.items() if key not in limits}
    done = subprocess.run(
        [sys.executable, "-c", program],
        env={**inherited, "PYTHONPATH": str(Path(ksos.__file__).parents[1]), **environment},
        capture_output=True,
        text=True,
        check=True,
        timeout=200,
    )
    return done.stdout.strip()


IMPORTS = """
import numpy as np, warnings
import ksos
from sklearn.base import BaseEstimator, RegressorMixin
from ksos.ground.threads import few_threads, free_processors
from threadpoolctl import threadpool_info
"""
# from here on, other processes keep every processor busy
BUSY = """
import atexit, os, subprocess, sys
for _ in range(os.cpu_count() or 1):
    busy = subprocess.Popen([sys.executable, "-c", "while True: pass"])
    atexit.register(busy.kill)
"""
# what each engine runs on, as seen from inside of public calls
ENGINES = """
def threads(api):
    return {one["num_threads"] for one in threadpool_info() if one["user_api"] == api}

seen = {"blas": set(), "openmp": set()}
def look():
    for api in seen:
        seen[api] |= threads(api)

class Watching(RegressorMixin, BaseEstimator):
    def fit(self, X, y):
        look()
        self.mean_ = float(np.mean(y))
        return self
    def predict(self, X):
        look()
        return np.full(len(X), self.mean_)

warnings.simplefilter("ignore")
before = {api: threads(api) for api in seen}
rng = np.random.default_rng(0)
X = rng.normal(size=(60, 1))
p = ksos.SoSDensity(ksos.kernels.Gaussian(1.0), [[0.0]], [[1.0]], normalize=True)
p.expectation(lambda Z: (look(), Z[:, 0] ** 2)[1])
ksos.KernelSoSDensity(solver=ksos.solvers.Auto(callback=lambda _: look())).fit(X)
ksos.KernelSoSConditional(Watching(), "constant", given=None, cv=2).fit(X, X[:, 0])
with few_threads(10**6):
    look()
assert {api: threads(api) for api in seen} == before, "not restored"
print(free_processors(), sorted(seen["blas"]), sorted(seen["openmp"]))
"""


def test_a_quota_below_the_core_count_holds_for_every_engine() -> None:
    """joblib reads quotas of containers; this variable stands for one."""
    assert in_a_fresh_process(IMPORTS + ENGINES, LOKY_MAX_CPU_COUNT="1") == "1 [1] [1]"


def test_busy_processes_beside_us_take_the_threads_of_every_engine() -> None:
    assert in_a_fresh_process(IMPORTS + BUSY + ENGINES) == "1 [1] [1]"


def test_what_the_user_chose_is_not_raised() -> None:
    with threadpool_limits(1), one_blas_thread(10 * SMALL_MATRIX):
        assert blas_threads() == {1}
    with threadpool_limits(1), few_threads(10**6):
        assert {one["num_threads"] for one in threadpool_info()} == {1}


def test_the_least_of_several_limits_holds() -> None:
    with threadpool_limits(2, user_api="blas"):
        outer = one_blas_thread(1)
        outer.__enter__()
        with one_blas_thread(10 * SMALL_MATRIX):
            assert blas_threads() == {1}
            # they end in another order than they began, as in several Python threads
            outer.__exit__(None, None, None)
        assert blas_threads() == {2}


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
