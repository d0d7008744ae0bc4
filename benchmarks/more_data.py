"""More data must not fit worse: held-out scores of KernelSoSDensity() as n grows, and what a fit
costs beside the bare kernel sums.

python benchmarks/more_data.py [--sizes 1000 10000 100000 1000000] [--laws blobs_2 moons] [--cost
1000000]

The law: no score more than 0.02 nats below that of the smallest size. The cost: a fit of blobs in
ten features in units of the sums Σ_i k(x_i, z_j) over the same samples and the same support points,
in processor seconds; set OMP_NUM_THREADS=1 for both.
"""

from __future__ import annotations

import resource
import time
from collections.abc import Callable

import numpy as np
from quick import parse, parser_of
from sklearn.datasets import make_moons

from ksos import KernelSoSDensity

Law = Callable[[int, np.random.Generator], np.ndarray]

SLACK = 0.02
N_TEST = 20_000
_BLOCK_ROWS = 5000


def blobs(d: int) -> Law:
    """Five unit normal laws."""
    centers = 2.5 * np.random.default_rng(50 + d).normal(size=(5, d))
    return lambda n, rng: centers[rng.integers(5, size=n)] + rng.normal(size=(n, d))


def moons(n: int, rng: np.random.Generator) -> np.ndarray:
    return np.asarray(make_moons(n, noise=0.1, random_state=int(rng.integers(2**31)))[0])


def tied_normal(n: int, rng: np.random.Generator) -> np.ndarray:
    """Six features that share two causes."""
    causes = np.random.default_rng(7).normal(size=(2, 6))
    return np.asarray(rng.normal(size=(n, 2)) @ causes + 0.3 * rng.normal(size=(n, 6)))


LAWS: dict[str, Law] = {
    "blobs_2": blobs(2),
    "blobs_5": blobs(5),
    "blobs_10": blobs(10),
    "moons": moons,
    "tied_normal": tied_normal,
}


def scores(law: Law, sizes: list[int], seed: int = 0) -> list[tuple[float, float]]:
    """Held-out score and processor seconds for each size; the samples of a size are the first of
    those of the next one.
    """
    held_out, X = (
        law(N_TEST, np.random.default_rng(1000 + seed)),
        law(max(sizes), np.random.default_rng(seed)),
    )
    X = X[np.random.default_rng(seed).permutation(len(X))]
    found = []
    for n in sizes:
        began = time.process_time()
        estimator = KernelSoSDensity().fit(X[:n])
        found.append((estimator.score(held_out), time.process_time() - began))
    return found


def cost(n: int, d: int = 10) -> tuple[float, float, int]:
    """Processor seconds of a fit and of the bare kernel sums, and the number of support points."""
    X = blobs(d)(n, np.random.default_rng(0))
    began = time.process_time()
    estimator = KernelSoSDensity().fit(X)
    fitted = time.process_time() - began
    kernel, support = estimator.distribution_.kernel, estimator.support_points_
    began, sums = time.process_time(), np.zeros(len(support))
    for start in range(0, n, _BLOCK_ROWS):
        sums += kernel(X[start : start + _BLOCK_ROWS], support).sum(axis=0)
    return fitted, time.process_time() - began, len(support)


def main() -> None:
    parser = parser_of(__doc__)
    parser.add_argument("--sizes", nargs="+", type=int, default=[1000, 10_000, 100_000, 1_000_000])
    parser.add_argument("--laws", nargs="*", default=list(LAWS), choices=list(LAWS))
    parser.add_argument(
        "--cost", type=int, default=1_000_000, help="samples of the timing; 0 for none"
    )
    told = parse(parser, sizes=[300, 600], laws=list(LAWS)[:1], cost=2000)
    if told.laws:
        print(
            "| score (seconds) |"
            + "".join(f" n = {n} |" for n in told.sizes)
            + " law |\n"
            + "| --- " * (len(told.sizes) + 2)
            + "|"
        )
    for name in told.laws:
        found = scores(LAWS[name], told.sizes)
        kept = min(score for score, _ in found) >= found[0][0] - SLACK
        print(
            f"| {name} |"
            + "".join(f" {score:.4f} ({seconds:.1f}) |" for score, seconds in found)
            + f" {'kept' if kept else 'BROKEN'} |",
            flush=True,
        )
    if told.cost:
        fitted, bare, m = cost(told.cost)
        peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 2**20
        print(
            f"n = {told.cost}, d = 10, m = {m}: {fitted:.2f} s, bare sums {bare:.2f} s, ratio"
            f" {fitted / bare:.1f}; peak {peak:.2f} GB"
        )


if __name__ == "__main__":
    main()
