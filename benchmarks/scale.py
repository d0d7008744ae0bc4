"""Fits to more rows than memory holds: python benchmarks/scale.py [--rows 1000000 10000000].

Prints, for a generated stream of d = 10 features and m = 200 landmarks, the processor time of two passes over the data beside that of the
bare kernel sums in blocks, taken in turns, and the peak memory of a fit above what the imports take, each in a process of its own.
"""

from __future__ import annotations

import argparse
import json
import os
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np

FEATURES, LANDMARKS, CHUNK, BLOCK = 10, 200, 1 << 16, 1 << 16
ONE_THREAD = dict.fromkeys(("OMP_NUM_THREADS", "OPENBLAS_NUM_THREADS", "MKL_NUM_THREADS", "VECLIB_MAXIMUM_THREADS"), "1")


def stream(rows: int) -> Iterator[np.ndarray]:
    """Normal samples, the same every time, a chunk at a time."""
    rng = np.random.default_rng(0)
    for start in range(0, rows, CHUNK):
        yield rng.normal(size=(min(CHUNK, rows - start), FEATURES))


def bare_sums(X: np.ndarray, Z: np.ndarray, sigma: float) -> np.ndarray:
    """Σ_i exp(−‖x_i − z_j‖²/σ²) in blocks, with as few operations as there can be, and no care for digits or for what may be wrong."""
    scaled, norms, out = (2.0 / sigma**2) * Z.T, np.sum(Z * Z, axis=1) / sigma**2, np.zeros(Z.shape[0])
    step = BLOCK // Z.shape[0]
    for start in range(0, X.shape[0], step):
        block = X[start : start + step]
        values = block @ scaled
        values -= norms
        values -= (np.sum(block * block, axis=1) / sigma**2)[:, None]
        np.exp(values, out=values)
        out += np.ones(block.shape[0]) @ values
    return out


def throughput(rows: int = 8 * CHUNK, repeats: int = 5) -> dict[str, float]:
    """Processor seconds for the rows: the bare sums, kernel sums, and a whole pass with its checks, survey and sums; the best of some."""
    from sklearn.base import BaseEstimator

    from ksos import KernelSums, chunks
    from ksos.estimators._stream import Passes
    from ksos.kernels import Gaussian
    from ksos.measures import Lebesgue

    parts, Z, sigma = list(stream(rows)), np.random.default_rng(1).normal(size=(LANDMARKS, FEATURES)), 3.0
    nothing = KernelSums(Gaussian(sigma), Z)

    def one_pass() -> None:
        passes = Passes(BaseEstimator(), chunks(parts), None)
        passes.look(10_000, Lebesgue())
        passes.add_up(nothing)

    works: dict[str, Callable[[], Any]] = {
        "bare": lambda: [bare_sums(part, Z, sigma) for part in parts],
        "sums": lambda: [nothing.update(part) for part in parts],
        "two passes": one_pass,
    }
    best = dict.fromkeys(works, np.inf)
    for _ in range(repeats):
        for name, work in works.items():
            began = time.process_time()
            work()
            best[name] = min(best[name], time.process_time() - began)
    return best


def peak_of_a_fit(rows: int) -> dict[str, float]:
    """Megabytes above the imports, and seconds; run in a process of its own."""
    import resource

    import sklearn.cluster  # noqa: F401 - of what a fit imports

    import ksos

    def peak() -> float:
        return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * (1.0 if sys.platform == "darwin" else 1024.0) / 1e6

    before, began = peak(), time.perf_counter()
    estimator = ksos.KernelSoSDensity(bandwidth=3.0, n_support=LANDMARKS, max_iter=3, random_state=0)
    import warnings

    warnings.simplefilter("ignore")  # the iteration limit is ours
    estimator.fit(ksos.chunks(lambda: stream(rows)))
    return {"megabytes": peak() - before, "seconds": time.perf_counter() - began}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--rows", nargs="+", type=int, default=[1_000_000, 10_000_000])
    parser.add_argument("--peak", type=int, help=argparse.SUPPRESS)
    parser.add_argument("--time", action="store_true", help=argparse.SUPPRESS)
    arguments = parser.parse_args()
    if arguments.peak is not None or arguments.time:
        print(json.dumps(throughput() if arguments.time else peak_of_a_fit(arguments.peak)))
        return
    times = _elsewhere("--time")
    for name in ("sums", "two passes"):
        print(f"{name}: {times['bare'] / times[name]:.0%} of the speed of the bare sums", flush=True)
    for rows in arguments.rows:
        found = _elsewhere("--peak", str(rows))
        print(f"{rows} rows: {found['megabytes']:.0f} MB above the imports, {found['seconds']:.1f} s", flush=True)


def _elsewhere(*words: str) -> dict[str, float]:
    source = str(Path(__file__).resolve().parents[1] / "src")
    environment = {**os.environ, **ONE_THREAD, "PYTHONPATH": os.pathsep.join([source, os.environ.get("PYTHONPATH", "")])}
    done = subprocess.run([sys.executable, __file__, *words], capture_output=True, text=True, env=environment, check=False)
    if done.returncode:
        sys.exit(done.stderr)
    return json.loads(done.stdout)


if __name__ == "__main__":
    main()
