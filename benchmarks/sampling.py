"""Sampling side by side with dyadic box bisection, in one run: python benchmarks/sampling.py
[--quick] [--clock wall].

Fits to two moons, d = 2, m = 100, 100 000 samples (at most 1/20 of the baseline's time), and to
normal data, d = 5, m = 50, 50 000 samples (at most 1/10). Two methods of the sampler are shown, and
the default, whose time counts; 20 and 784 features are timed without a
baseline. One BLAS thread; ``--quick`` draws a fiftieth of the samples.

``--searched`` times models as ``KernelSoSDensityCV`` gives them instead: the first row with all
that it takes, then rows per second, beside the rows per second of NumPy's kernel matrix of as many
rows and the model's support points, in the same run. ``--answers`` times other questions to them: a
marginal with its quantiles, the mode, the level of a highest-density region, the entropy, a pair
plot.
"""

from __future__ import annotations

import io
import os
import sys
import time
from collections.abc import Callable, Sequence

os.environ.update(
    dict.fromkeys(
        ("OMP_NUM_THREADS", "OPENBLAS_NUM_THREADS", "MKL_NUM_THREADS", "VECLIB_MAXIMUM_THREADS"),
        "1",
    )
)
import numpy as np
import sklearn.datasets
from dyadic_bisection import dyadic_samples
from quick import parse, parser_of

import ksos


def fitted(X: np.ndarray, bandwidth: float) -> ksos.SoSDensity:
    functional = ksos.functionals.SquaredMMD(X) + 1e-3 * ksos.functionals.Trace(relative=True)
    return ksos.minimize(
        functional, ksos.SoSSpace(ksos.kernels.Gaussian(bandwidth), X), tol=1e-6
    ).distribution


def models() -> list[tuple[str, ksos.SoSDensity, int, bool, float | None]]:
    """Name, density, number of samples, whether rejection is timed (not where it accepts less than
    one proposal in a thousand), and the speed-up that is asked for (None: no baseline).
    """
    moons = sklearn.datasets.make_moons(100, noise=0.05, random_state=0)[0]
    rng = np.random.default_rng(0)
    five, twenty, images = (rng.normal(size=(50, d)) for d in (5, 20, 784))
    return [
        ("moons, σ = 0.3", fitted(moons, 0.3), 100_000, False, 20.0),
        ("moons, σ = 1", fitted(moons, 1.0), 100_000, False, 20.0),
        ("normal, σ = 1", fitted(five, 1.0), 50_000, True, 10.0),
        ("normal, σ = 2", fitted(five, 2.0), 50_000, True, 10.0),
        ("normal, σ = 3", fitted(five, 3.0), 50_000, True, 10.0),
        ("normal, σ = 5", fitted(twenty, 5.0), 10_000, True, None),
        ("normal, σ = 28", fitted(images, 28.0), 500, True, None),
    ]


def contest(
    name: str,
    p: ksos.SoSDensity,
    n: int,
    rejects: bool,
    asked: float | None,
    clock: Callable[[], float],
    quick: bool,
) -> bool:
    """Time one model and print its line; whether it is as fast as asked."""
    n = n // 50 if quick else n

    def seconds(f: Callable[[], object]) -> float:
        began = clock()
        f()
        return clock() - began

    m, d = p.support_points.shape
    p.rvs(10, rng=0)
    inversion = seconds(lambda: p.rvs(n, rng=0, method="inversion"))
    rejection = f"{seconds(lambda: p.rvs(n, rng=0, method='rejection')):9.3f}" if rejects else "–"
    ours = seconds(lambda: p.rvs(n, rng=0))
    line = f"{name:15} {d:4d} {m:4d} {n:8d} {inversion:10.3f} {rejection:>9}  {ours:6.3f} auto"
    if asked is None:
        print(line, flush=True)
        return True
    # Quick runs scale up the time of a part: the baseline's time is proportional to the samples.
    part = n // 50 if quick else n
    theirs = n / part * seconds(lambda: dyadic_samples(p, part, np.random.default_rng(0)))
    met = theirs >= asked * ours
    print(
        f"{line} {theirs:10.2f} {theirs / ours:8.0f}  {asked:g}: {'yes' if met else 'NO'}",
        flush=True,
    )
    return met


_SEARCHED = ((719, 3, None), (600, 5, None), (719, 3, "auto"), (500, 2, "auto"), (800, 5, "auto"))


def searched_models(
    cases: Sequence[tuple[int, int, str | None]] = _SEARCHED,
) -> list[tuple[str, ksos.SoSDensity]]:
    """Three clusters, one feature skewed, searched over one kernel and over references."""
    found = []
    for n, d, reference in cases:
        rng = np.random.default_rng(1)
        scales, means = (
            [np.eye(d) + 0.6 * np.tri(d, k=-1), np.diag(np.linspace(0.3, 1.0, d)), 0.5 * np.eye(d)],
            [0.0, 2.5, -2.0],
        )
        X = np.stack([scales[c] @ rng.normal(size=d) + means[c] for c in rng.integers(3, size=n)])
        X[:, 0] = np.exp(0.3 * X[:, 0])
        options = {} if reference == "auto" else {"reference": None}
        p = ksos.KernelSoSDensityCV(random_state=0, **options).fit(X).distribution_
        found.append((f"{'one kernel' if reference is None else 'default'}, d = {d}, n = {n}", p))
    return found


def rates(name: str, p: ksos.SoSDensity, n: int, clock: Callable[[], float]) -> None:
    """Print the first row, rows per second of two draws, and those of a kernel matrix."""
    times = []
    for size, seed in ((1, 0), (n, 1), (n, 2)):
        began = clock()
        X = p.rvs(size, rng=seed)
        times.append(clock() - began)
    matrix = n / kernel_matrix_seconds(p, X, clock)
    print(
        f"{name:30} {times[0]:9.3f} {n / times[1]:10.0f} {n / times[2]:10.0f} {matrix:13.0f}"
        f" {n / times[2] / matrix:8.2f}",
        flush=True,
    )


def kernel_matrix_seconds(p: ksos.SoSDensity, X: np.ndarray, clock: Callable[[], float]) -> float:
    """Of NumPy's kernel matrix between the rows of X and the support points."""
    Z, sigma = np.asarray(p.support_points), p.bandwidths
    began = clock()
    for rows in np.array_split(X, max(1, X.shape[0] // 500)):
        np.exp(-np.sum(((rows[:, None, :] - Z) / sigma) ** 2, axis=2))
    return clock() - began


def answers(name: str, p: ksos.SoSDensity, clock: Callable[[], float]) -> None:
    """Print the seconds of several questions, and how many kernel matrices of 10 000 rows take as
    long.
    """
    from matplotlib.figure import Figure

    def pair_plot() -> None:
        ksos.DensityDisplay.from_density(p, ax=Figure().add_subplot()).figure_.savefig(io.BytesIO())

    Figure().savefig(io.BytesIO())  # what the first figure of all takes is not counted
    matrix = kernel_matrix_seconds(p, p.rvs(10_000, rng=0), clock)
    questions: dict[str, Callable[[], object]] = {
        "marginal, quantiles": lambda: p.marginal([1]).ppf([0.1, 0.5, 0.9]),
        "mode": p.mode,
        "hdr_level": lambda: p.hdr_level(0.9, rng=0),
        "pair plot": pair_plot,
        "entropy": lambda: p.entropy(rng=0),
    }
    for question, ask in questions.items():
        began = clock()
        ask()
        seconds = clock() - began
        print(f"{name:30} {question:20} {seconds:9.3f} {seconds / matrix:8.2f}", flush=True)


def main() -> int:
    parser = parser_of(__doc__)
    parser.add_argument(
        "--searched", action="store_true", help="searched models, beside a kernel matrix"
    )
    parser.add_argument(
        "--answers",
        action="store_true",
        help="other questions to searched models of three features",
    )
    parser.add_argument("--clock", choices=["cpu", "wall"], default="cpu")
    arguments = parse(parser)
    clock = time.process_time if arguments.clock == "cpu" else time.perf_counter
    if arguments.searched:
        print(f"seconds of the {arguments.clock} clock, one thread")
        print(
            "model                          first row     rows/s      again  kernel matrix    ratio"
        )
        for name, p in searched_models():
            rates(name, p, 1000 if arguments.quick else 10_000, clock)
        return 0
    if arguments.answers:
        print(
            f"seconds of the {arguments.clock} clock, one thread, and kernel matrices of 10 000"
            " rows in that time"
        )
        for name, p in searched_models([case for case in _SEARCHED if case[1] == 3]):
            answers(name, p, clock)
        return 0
    print(f"seconds of the {arguments.clock} clock, one thread")
    print(
        "model              d    m  samples  inversion rejection         rvs  bisection    ratio"
        "  asked"
    )
    met = [contest(*model, clock, arguments.quick) for model in models()]
    return int(not all(met))


if __name__ == "__main__":
    sys.exit(main())
