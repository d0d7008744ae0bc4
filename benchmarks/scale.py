"""Fits to more rows than memory holds: python benchmarks/scale.py [--rows 1000000 10000000]
[--chart cost.png].

Prints, for a generated stream of d = 10 features and m = 200 landmarks, the processor time of a
fit's passes over the data beside that of the bare kernel sums in blocks, and of scores beside the
bare evaluation, taken in turns; and the peak memory of fits and scores above what the imports take,
each in a process of its own. The chart shows how the cost of a fit grows with rows, support points
and features.
"""

from __future__ import annotations

import argparse
import json
import os
import subprocess
import sys
import time
import warnings
from collections.abc import Callable, Iterator
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
from quick import parse, parser_of

from ksos.density import square_of

FEATURES, LANDMARKS, CHUNK, BLOCK = 10, 200, 1 << 16, 1 << 16
ONE_THREAD = dict.fromkeys(
    ("OMP_NUM_THREADS", "OPENBLAS_NUM_THREADS", "MKL_NUM_THREADS", "VECLIB_MAXIMUM_THREADS"), "1"
)


def stream(rows: int) -> Iterator[np.ndarray]:
    """Normal samples, the same every time, a chunk at a time."""
    rng = np.random.default_rng(0)
    for start in range(0, rows, CHUNK):
        yield rng.normal(size=(min(CHUNK, rows - start), FEATURES))


def drifting(rows: int, features: int) -> Iterator[np.ndarray]:
    """Samples that cost next to nothing: the same chunk again and again, a little further each
    time.
    """
    chunk = np.random.default_rng(0).normal(size=(min(CHUNK, rows), features))
    for k, start in enumerate(range(0, rows, CHUNK)):
        yield chunk[: rows - start] + 1e-3 * k


def bare_blocks(X: np.ndarray, Z: np.ndarray, sigma: float) -> Iterator[tuple[slice, np.ndarray]]:
    """exp(−‖x_i − z_j‖²/σ²) in blocks of rows, with as few operations as there can be, and no care
    for digits or for what may be wrong.
    """
    scaled, norms, step = (
        (2.0 / sigma**2) * Z.T,
        np.sum(Z * Z, axis=1) / sigma**2,
        BLOCK // Z.shape[0],
    )
    for start in range(0, X.shape[0], step):
        block = X[start : start + step]
        values = block @ scaled
        values -= norms
        values -= (np.sum(block * block, axis=1) / sigma**2)[:, None]
        yield slice(start, start + step), np.exp(values, out=values)


def bare_sums(X: np.ndarray, Z: np.ndarray, sigma: float) -> np.ndarray:
    """Σ_i exp(−‖x_i − z_j‖²/σ²)."""
    out = np.zeros(Z.shape[0])
    for _, values in bare_blocks(X, Z, sigma):
        out += np.ones(values.shape[0]) @ values
    return out


def bare_scores(X: np.ndarray, Z: np.ndarray, F: np.ndarray, sigma: float) -> np.ndarray:
    """log ‖Fᵀk(x_i)‖²."""
    out = np.empty(X.shape[0])
    for rows, values in bare_blocks(X, Z, sigma):
        found = values @ F
        out[rows] = np.log(np.sum(found * found, axis=1))
    return out


def a_fit(rows: int, landmarks: int = LANDMARKS) -> Any:
    """An estimator fitted to the first rows of the stream, its solver stopped early: passes and
    memory are the question.
    """
    import ksos

    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # the iteration limit is ours
        estimator = ksos.KernelSoSDensity(
            bandwidth=3.0, n_support=landmarks, solver=ksos.solvers.Auto(max_iter=3), random_state=0
        )
        return estimator.fit(ksos.chunks(lambda: stream(rows)))


def throughput(rows: int = 8 * CHUNK, repeats: int = 4) -> dict[str, float]:
    """Processor seconds for the rows, the best of some: sums and scores, bare and ours, and all
    that a fit does with the rows.
    """
    from sklearn.base import BaseEstimator

    from ksos import KernelSums, chunks
    from ksos.data import Passes
    from ksos.kernels import Gaussian
    from ksos.measures import Lebesgue

    parts, Z, sigma = (
        list(stream(rows)),
        np.random.default_rng(1).normal(size=(LANDMARKS, FEATURES)),
        3.0,
    )
    nothing, fitted = KernelSums(Gaussian(sigma), Z), a_fit(20_000)
    p = fitted.distribution_

    def passes() -> None:
        both = Passes(BaseEstimator(), chunks(parts), None)
        both.look(10_000, Lebesgue())
        both.add_up(nothing)

    works: dict[str, Callable[[], Any]] = {
        "bare sums": lambda: [bare_sums(part, Z, sigma) for part in parts],
        "sums": lambda: [nothing.update(part) for part in parts],
        "passes": passes,
        "bare scores": lambda: [
            bare_scores(part, p.support_points, square_of(p).unit_factor, sigma) for part in parts
        ],
        "scores": lambda: list(fitted.score_samples(chunks(parts))),
        "score": lambda: fitted.score(chunks(parts)),
    }
    best = dict.fromkeys(works, np.inf)
    for _ in range(repeats):
        for name, work in works.items():
            began = time.process_time()
            work()
            best[name] = min(best[name], time.process_time() - began)
    return best


def peak(work: Callable[[], Any]) -> dict[str, float]:
    """Megabytes above the imports, and seconds, of ``work``; for a process of its own."""
    import resource

    import sklearn.cluster  # noqa: F401 - of what a fit imports

    import ksos  # noqa: F401

    def megabytes() -> float:
        return (
            resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
            * (1.0 if sys.platform == "darwin" else 1024.0)
            / 1e6
        )

    before, began = megabytes(), time.perf_counter()
    work()
    return {"megabytes": megabytes() - before, "seconds": time.perf_counter() - began}


def score_all(rows: int) -> float:
    """The mean score of the stream."""
    import ksos

    return float(a_fit(20_000).score(ksos.chunks(lambda: stream(rows))))


GROWTH = {
    "n": (10_000, 100_000, 1_000_000, 10_000_000),
    "m": (25, 50, 100, 200, 400),
    "d": (2, 5, 10, 20, 50),
}
MIDDLE = {"n": 100_000, "m": 100, "d": 10}


def costs() -> list[dict[str, float]]:
    """Seconds of a fit, its passes and the rest apart, where one of rows n, support points m and
    features d grows.
    """
    import ksos

    found = []
    for name, values in GROWTH.items():
        for value in values:
            at = {**MIDDLE, name: value}
            source = _timed(ksos.chunks(partial(drifting, at["n"], at["d"])))
            began = time.process_time()
            ksos.KernelSoSDensity(bandwidth=0.9 * at["d"] ** 0.5, n_support=at["m"]).fit(source)
            total = time.process_time() - began
            found.append(
                {"grows": name, **at, "passes": source.seconds, "rest": total - source.seconds}
            )
    return found


def workers(
    counts: tuple[int, ...] = (1, 2), rows: int = 24 * CHUNK, repeats: int = 3
) -> dict[str, float]:
    """Seconds of both passes over generated chunks on clusters of so many processes of one thread,
    by their number; the best of some.
    """
    import logging

    import dask.array as da
    from distributed import Client, LocalCluster
    from sklearn.base import BaseEstimator

    from ksos import KernelSums, chunks
    from ksos.data import Passes
    from ksos.kernels import Gaussian
    from ksos.measures import Lebesgue

    nothing = KernelSums(Gaussian(3.0), np.random.default_rng(1).normal(size=(LANDMARKS, FEATURES)))

    def both_passes(n: int) -> float:
        X, began = (
            da.random.default_rng(0).normal(size=(n, FEATURES), chunks=(CHUNK, FEATURES)),
            time.perf_counter(),
        )
        passes = Passes(BaseEstimator(), chunks(X), None)
        passes.look(10_000, Lebesgue())
        passes.add_up(nothing)
        return time.perf_counter() - began

    found = {}
    for count in counts:
        options: dict[str, Any] = {"dashboard_address": None, "silence_logs": logging.CRITICAL}
        with (
            LocalCluster(
                n_workers=count, threads_per_worker=1, processes=True, **options
            ) as cluster,
            Client(cluster),
        ):
            both_passes(4 * CHUNK)  # the workers import what they need
            found[str(count)] = min(both_passes(rows) for _ in range(repeats))
    return found


def _timed(source: Any) -> Any:
    """The source, which counts the processor seconds of the passes over it."""
    from ksos.data import Chunks

    class Timed(Chunks):
        seconds = 0.0

        def gather(self, begun: Any, **options: Any) -> Any:
            began = time.process_time()
            out = super().gather(begun, **options).settled
            self.seconds += time.process_time() - began
            return out

    return Timed(source.__iter__, source.name)


def _shown(value: int) -> str:
    return str(value) if value < 1000 else f"$10^{round(np.log10(value))}$"


def draw(found: list[dict[str, Any]], path: str) -> None:
    """One panel for each of n, m, d: seconds of the passes and of the rest."""
    import matplotlib

    matplotlib.use("agg")
    import matplotlib.pyplot as plt

    figure, panels = plt.subplots(1, 3, figsize=(10.0, 3.4), sharey=True, layout="constrained")
    for panel, (name, what) in zip(
        panels, {"n": "rows n", "m": "support points m", "d": "features d"}.items(), strict=True
    ):
        mine = [row for row in found if row["grows"] == name]
        for part, label, marker in (
            ("passes", "passes over the rows", "o"),
            ("rest", "bandwidth, support points, solver", "s"),
        ):
            panel.loglog(
                [row[name] for row in mine], [row[part] for row in mine], marker=marker, label=label
            )
        others = [f"{other} = {_shown(MIDDLE[other])}" for other in MIDDLE if other != name]
        panel.set(xlabel=f"{what}  ({', '.join(others)})")
        panel.set_xticks(GROWTH[name], [_shown(value) for value in GROWTH[name]])
        panel.minorticks_off()
        panel.grid(alpha=0.3)
    panels[0].set(ylabel="seconds on one core")
    panels[0].legend(loc="upper left", fontsize="small")
    figure.savefig(path, dpi=110)


def main() -> None:
    parser = parser_of(__doc__)
    parser.add_argument("--rows", nargs="*", type=int, default=[1_000_000, 10_000_000])
    parser.add_argument("--chart", help="write the chart to this file, and print nothing else")
    parser.add_argument("--work", choices=WORKS, help=argparse.SUPPRESS)
    parser.add_argument("--of", type=int, default=0, help=argparse.SUPPRESS)
    arguments = parse(parser, rows=[5000])
    if arguments.work is not None:
        print(json.dumps(WORKS[arguments.work](arguments.of)))
        return
    if arguments.chart is not None:
        draw(_elsewhere("costs"), arguments.chart)
        return
    times = throughput(CHUNK // 8, 1) if arguments.quick else _elsewhere("throughput")
    for name, bare in (
        ("sums", "bare sums"),
        ("passes", "bare sums"),
        ("scores", "bare scores"),
        ("score", "bare scores"),
    ):
        print(f"{name}: {times[bare] / times[name]:.0%} of the speed of the {bare}", flush=True)
    if not arguments.quick:
        seconds = _elsewhere("workers")
        print(f"two workers: {seconds['1'] / seconds['2']:.2f} times as fast as one", flush=True)
    for rows in arguments.rows:
        for what in ("fit", "score"):
            found = _elsewhere(what, rows)
            print(
                f"{what} of {rows} rows: {found['megabytes']:.0f} MB above the imports,"
                f" {found['seconds']:.1f} s",
                flush=True,
            )


WORKS: dict[str, Callable[[int], Any]] = {
    "throughput": lambda _: throughput(),
    "costs": lambda _: costs(),
    "workers": lambda _: workers(),
    "fit": lambda rows: peak(lambda: a_fit(rows)),
    "score": lambda rows: peak(lambda: score_all(rows)),
}


def _elsewhere(work: str, of: int = 0) -> Any:
    """What ``work`` gives in a process of its own."""
    source = str(Path(__file__).resolve().parents[1] / "src")
    environment = {
        **os.environ,
        **ONE_THREAD,
        "PYTHONPATH": os.pathsep.join([source, os.environ.get("PYTHONPATH", "")]),
    }
    done = subprocess.run(
        [sys.executable, __file__, "--work", work, "--of", str(of)],
        capture_output=True,
        text=True,
        env=environment,
        check=False,
    )
    if done.returncode:
        sys.exit(done.stderr)
    return json.loads(done.stdout)


if __name__ == "__main__":
    main()
