"""Levels and powers of ksos.two_sample_test beside the MMD test with the median bandwidth: python
benchmarks/two_sample.py [--quick].

Levels: the share of tests between samples of one distribution that reject at 0.05, over 2000 of
them. Powers at n = 1000 per side: a normal distribution against a shifted and a stretched one, and
the uniform distribution against one with bumps, f(x) = 1 + (2.7/P)·Σ_ν θ_ν G(Px − ν) with random
signs θ_ν, as in the experiments of MMDAgg (Schrab et al., JMLR 24, 2023). The last line times a
million rows per side. One BLAS thread.
"""

from __future__ import annotations

import os
import resource
import sys
import time
from collections.abc import Callable

os.environ.update(
    dict.fromkeys(
        ("OMP_NUM_THREADS", "OPENBLAS_NUM_THREADS", "MKL_NUM_THREADS", "VECLIB_MAXIMUM_THREADS"),
        "1",
    )
)
import numpy as np
from quick import parse, parser_of

import ksos

Rng = np.random.Generator
Pair = Callable[[Rng], tuple[np.ndarray, np.ndarray]]

LEVEL, WITHIN = 0.05, 0.015


def bumps(x: np.ndarray, signs: np.ndarray) -> np.ndarray:
    """1 + (2.7/P)·Σ_ν θ_ν G(Px − ν), where G is a bump on (−1, −1/2) and minus the same on (−1/2,
    0).
    """
    count, density = signs.shape[0], np.ones_like(x)
    for v, sign in enumerate(signs, start=1):
        t = count * x - v
        for way, shift in ((1.0, 3.0), (-1.0, 1.0)):
            u = (4.0 * t + shift) ** 2
            inside = u < 1.0
            density[inside] += sign * way * 2.7 / count * np.exp(-1.0 / (1.0 - u[inside]))
    return density


def perturbed_uniform(n: int, count: int, rng: Rng) -> np.ndarray:
    signs, found = rng.choice([-1.0, 1.0], count), np.empty(0)
    while found.shape[0] < n:
        x = rng.random(4 * n)
        found = np.r_[found, x[2.0 * rng.random(4 * n) < bumps(x, signs)]]
    return found[:n, None]


def nulls() -> dict[str, tuple[Pair, int]]:
    """Two samples of one law, and the number of permutations."""
    return {
        "normal, n = m = 100, d = 2": (
            lambda rng: (rng.normal(size=(100, 2)), rng.normal(size=(100, 2))),
            199,
        ),
        "the same, 19 permutations": (
            lambda rng: (rng.normal(size=(100, 2)), rng.normal(size=(100, 2))),
            19,
        ),
        "Cauchy, n = 40, m = 160, d = 1": (
            lambda rng: (rng.standard_cauchy((40, 1)), rng.standard_cauchy((160, 1))),
            199,
        ),
        "ties: whole numbers 0 to 4, n = 60, m = 90": (
            lambda rng: (rng.integers(0, 5, (60, 2)), rng.integers(0, 5, (90, 2))),
            199,
        ),
        "blocks of rows: n = 1500, m = 2500, d = 3": (
            lambda rng: (rng.random((1500, 3)), rng.random((2500, 3))),
            99,
        ),
    }


def alternatives(n: int) -> dict[str, Pair]:
    return {
        "null": lambda rng: (rng.normal(size=(n, 1)), rng.normal(size=(n, 1))),
        "location: mean 0.1": lambda rng: (rng.normal(size=(n, 1)), rng.normal(0.1, 1.0, (n, 1))),
        "scale: deviation 1.1": lambda rng: (rng.normal(size=(n, 1)), rng.normal(0.0, 1.1, (n, 1))),
        "location in 5 features: mean 0.06": lambda rng: (
            rng.normal(size=(n, 5)),
            rng.normal(0.06, 1.0, (n, 5)),
        ),
        "scale in 5 features: deviation 1.05": lambda rng: (
            rng.normal(size=(n, 5)),
            rng.normal(0.0, 1.05, (n, 5)),
        ),
        "perturbed uniform, P = 3": lambda rng: (rng.random((n, 1)), perturbed_uniform(n, 3, rng)),
        "perturbed uniform, P = 4": lambda rng: (rng.random((n, 1)), perturbed_uniform(n, 4, rng)),
    }


def shares(pair: Pair, repeats: int, permutations: int, median: bool) -> list[float]:
    """How often the tests reject: ours, and that with the median bandwidth if it is asked for."""
    rejected = np.zeros(1 + median)
    for seed in range(repeats):
        a, b = pair(np.random.default_rng([7, seed]))
        kernels = (None, ksos.median_kernel(a, b)) if median else (None,)
        found = [
            ksos.two_sample_test(a, b, kernel, n_permutations=permutations, rng=seed)
            for kernel in kernels
        ]
        rejected += [test.reject(LEVEL) for test in found]
    return (rejected / repeats).tolist()


def main() -> int:
    parser = parser_of(__doc__)
    parser.add_argument(
        "--only", choices=("levels", "powers", "rows"), help="one of the three tables"
    )
    options = parse(parser)
    fewer, good = 200 if options.quick else 1, True
    if options.only in (None, "levels"):
        repeats = 2000 // fewer
        print(f"level at {LEVEL} over {repeats} nulls")
        for name, (pair, permutations) in nulls().items():
            (share,) = shares(
                pair, repeats if "blocks" not in name else repeats // 4, permutations, median=False
            )
            good &= abs(share - LEVEL) <= WITHIN or options.quick or share < LEVEL
            print(f"  {name:45} {share:.4f}", flush=True)
    if options.only in (None, "powers"):
        repeats = 200 // fewer
        print(
            f"power at {LEVEL}, n = 1000, over {repeats} samples           ours   median bandwidth"
        )
        for name, pair in alternatives(1000).items():
            ours, theirs = shares(pair, repeats, 199, median=True)
            wanted = 0.0 if name == "null" else 2.0 * theirs if "uniform" in name else theirs
            good &= ours >= wanted or options.quick
            print(f"  {name:45} {ours:.3f}  {theirs:.3f}", flush=True)
    if options.only in (None, "rows"):
        n, rng = 1_000_000 // fewer, np.random.default_rng(0)
        a, b = rng.normal(size=(n, 3)), rng.normal(size=(n, 3))
        b[:, 0] *= 1.01
        began = time.process_time()
        test = ksos.two_sample_test(a, b, rng=0)
        peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1e6
        print(
            f"{n} rows per side, 3 features, deviation 1.01 in one: {test};"
            f" {time.process_time() - began:.1f} s, peak {peak:.2f} GB"
        )
    return 0 if good else 1


if __name__ == "__main__":
    sys.exit(main())
