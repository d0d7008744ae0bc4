"""Public calls on a busy machine: default threads against one thread, with three busy processes
beside them on two cores: python benchmarks/busy.py [--quick] [--busy 3] [--calls fit …].

More threads than free cores wait for each other: a call that takes a second alone may then take
ten. Each call is timed in a fresh process, in turns with and without a limit of one thread, and
the ratio of the least times is reported. The script fails if a ratio is above ``--most``.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
import time
import warnings
from collections.abc import Callable
from functools import cache
from typing import Any

import numpy as np
from quick import parse, parser_of

import ksos
from ksos.observables import Polynomial

LIMITS = ("OMP_NUM_THREADS", "OPENBLAS_NUM_THREADS", "MKL_NUM_THREADS")
BUSY = "while True: pass"
CORES = 2


def data(n: int, d: int) -> np.ndarray:
    rng = np.random.default_rng(0)
    return rng.normal(size=(n, d)) + 3.0 * rng.integers(0, 2, size=(n, 1))


def calls(scale: int) -> dict[str, Callable[[], Any]]:
    """Each public call on data made beforehand, ``scale`` times as much of it. Densities that are
    asked are fitted by the first of several calls, whose time does not count.
    """
    X, few = data(2000 * scale, 3), data(150, 2)
    y = X[:, 0] + np.random.default_rng(1).normal(size=X.shape[0])

    @cache
    def density() -> ksos.SoSDensity:
        est = ksos.KernelSoSDensity(bandwidth=2.0, n_support=60, tol=1e-4)
        return est.fit(X).distribution_

    @cache
    def conditional() -> ksos.KernelSoSConditional:
        return ksos.KernelSoSConditional(cv=2, given=None).fit(X[:200], y[:200])

    ball = ksos.Ball(few, 0.1)
    many = np.tile(X, (20, 1))
    return {
        "fit": lambda: ksos.KernelSoSDensity(n_support=100, tol=1e-5).fit(X),
        "space of 1,200 points": lambda: ksos.SoSSpace(ksos.kernels.Gaussian(0.4), X[:1200]),
        "search": lambda: ksos.KernelSoSDensityCV(cv=2).fit(few),
        "conditional fit": lambda: ksos.KernelSoSConditional(cv=2, given=None).fit(
            X[:500], y[:500]
        ),
        "conditional quantiles": lambda: conditional().predict_quantile(many, [0.1, 0.5, 0.9]),
        "conditional scores": lambda: conditional().crps(many, np.tile(y, 20)),
        "logpdf": lambda: density().logpdf(many),
        "rvs": lambda: density().rvs(20_000 * scale, 0),
        "marginal": lambda: density().marginal([0, 1]),
        "probability": lambda: density().probability(-1.0, 1.0),
        "entropy": lambda: density().entropy(max_evaluations=20_000),
        "mode": lambda: density().mode(),
        "energy score": lambda: density().energy_score(X, rng=0),
        "crps": lambda: density().marginal(0).crps(many[:, 0]),
        "compress": lambda: density().compress(m=20),
        "mmd": lambda: ksos.mmd(X, X + 0.1),
        "two-sample test": lambda: ksos.two_sample_test(X, X + 0.1, rng=0),
        "worst case": lambda: ksos.worst_case(Polynomial({(2, 0): 1.0}), ball, rtol=0.1),
        "robust regression": lambda: ksos.RobustRegressor(radius=0.1).fit(X[:150], y[:150]),
    }


def timed(names: list[str], scale: int, repeats: int) -> dict[str, float]:
    """The least time of each call, in this process."""
    warnings.simplefilter("ignore")
    every, found = calls(scale), {}
    for name in names or every:
        times = []
        for _ in range(repeats):
            start = time.perf_counter()
            every[name]()
            times.append(time.perf_counter() - start)
        found[name] = min(times)
    return found


def child(one: bool, names: list[str], scale: int, repeats: int) -> dict[str, float]:
    """:func:`timed` in a fresh process, on one thread or with the defaults."""
    environment = {key: value for key, value in os.environ.items() if key not in LIMITS}
    environment |= dict.fromkeys(LIMITS, "1") if one else {}
    words = ["--child", "--scale", str(scale), "--repeats", str(repeats), "--calls", *names]
    done = subprocess.run(
        [sys.executable, __file__, *words], env=environment, stdout=subprocess.PIPE, check=True
    )
    return json.loads(done.stdout)


def main() -> None:
    parser = parser_of(__doc__)
    parser.add_argument("--busy", type=int, default=3, help="busy processes beside the calls")
    parser.add_argument("--calls", nargs="*", default=[], help="names of calls; default: all")
    parser.add_argument("--scale", type=int, default=5, help="how much data")
    parser.add_argument("--repeats", type=int, default=3, help="times per call and process")
    parser.add_argument("--rounds", type=int, default=2, help="processes of each kind, in turns")
    parser.add_argument("--most", type=float, default=2.0, help="largest ratio that passes")
    parser.add_argument("--child", action="store_true", help="time the calls in this process")
    chosen = parse(parser, scale=1, repeats=2, rounds=1)
    given = chosen.calls, chosen.scale, chosen.repeats
    if chosen.child:
        print(json.dumps(timed(*given)))
        return
    # the busy processes and the calls share the same two cores
    cores = os.sched_getaffinity(0)
    os.sched_setaffinity(0, sorted(cores)[:CORES])
    beside = [subprocess.Popen([sys.executable, "-c", BUSY]) for _ in range(chosen.busy)]
    try:
        rounds = [(child(True, *given), child(False, *given)) for _ in range(chosen.rounds)]
    finally:
        for one in beside:
            one.kill()
            one.wait()
        os.sched_setaffinity(0, cores)
    print(f"{'call':24}{'one thread, s':>15}{'default, s':>12}{'ratio':>8}")
    worst = 0.0
    for name in rounds[0][0]:
        alone, default = (min(pair[side][name] for pair in rounds) for side in (0, 1))
        worst = max(worst, default / alone)
        print(f"{name:24}{alone:15.3f}{default:12.3f}{default / alone:8.2f}")
    print(f"largest ratio: {worst:.2f}")
    if worst > chosen.most:
        print(f"a call takes more than {chosen.most:g} times as long with the default threads")
        sys.exit(1)


if __name__ == "__main__":
    main()
