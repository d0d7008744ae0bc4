"""Peak memory of a fit, in a process of its own: python benchmarks/memory.py [--support random
pivoted] [--max-iter 50].

The default problem is m = 1500 support points, n = 20 000 samples, d = 2; its peak must stay below
1 GB.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

from quick import parse, parser_of

TARGET = 1e9
ONE_THREAD = dict.fromkeys(
    ("OMP_NUM_THREADS", "OPENBLAS_NUM_THREADS", "MKL_NUM_THREADS", "VECLIB_MAXIMUM_THREADS"), "1"
)

FIT = """
import json, resource, sys, time, warnings

def peak():
    # of this program alone: what getrusage reports counts the process that started it as well
    try:
        status = open("/proc/self/status").read()
        return 1024 * int(status.split("VmHWM:")[1].split()[0])
    except (OSError, IndexError):
        size = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
        return size if sys.platform == "darwin" else 1024 * size

import numpy as np, sklearn.cluster, sklearn.datasets
import ksos
options = json.loads(sys.argv[1])
n, steps = options.pop("n"), options.pop("max_iter")
X = sklearn.datasets.make_moons(n, noise=0.05, random_state=0)[0]
imported, began = peak(), time.perf_counter()
warnings.simplefilter("ignore")  # the iteration limit is ours
options["solver"] = ksos.solvers.Auto(max_iter=steps)
est = ksos.KernelSoSDensity(**options, random_state=0).fit(X)
seconds, space = time.perf_counter() - began, est.solution_.space
row = dict(
    imported=imported, peak=peak(), seconds=seconds, m=len(est.support_points_), rank=space.rank,
    solver=est.solution_.solver,
)
print(json.dumps(row))
"""


def measure(options: dict[str, object]) -> dict[str, Any]:
    """Run one fit in a fresh process with one BLAS thread (every further thread adds buffers of its
    own).
    """
    source = str(Path(__file__).resolve().parents[1] / "src")
    environment = {
        **os.environ,
        **ONE_THREAD,
        "PYTHONPATH": os.pathsep.join([source, os.environ.get("PYTHONPATH", "")]),
    }
    done = subprocess.run(
        [sys.executable, "-c", FIT, json.dumps(options)],
        capture_output=True,
        text=True,
        env=environment,
        check=False,
    )
    if done.returncode:
        sys.exit(done.stderr)
    return json.loads(done.stdout)


def main() -> None:
    parser = parser_of(__doc__)
    parser.add_argument(
        "--support",
        nargs="+",
        default=["random", "pivoted"],
        choices=["random", "pivoted", "kmeans"],
    )
    parser.add_argument(
        "--bandwidth",
        nargs="+",
        type=float,
        default=[1.0, 0.05],
        help="wide: low rank; narrow: nothing is truncated, the dense case",
    )
    parser.add_argument("--m", type=int, default=1500)
    parser.add_argument("--n", type=int, default=20_000)
    parser.add_argument(
        "--max-iter",
        type=int,
        default=3,
        help="memory does not grow with the iterations; the time does",
    )
    arguments = parse(parser, m=50, n=500, support=["random"], bandwidth=[1.0])
    problem = f"two moons, n = {arguments.n}, d = 2, n_support = {arguments.m}"
    print(f"{problem}; BLAS pinned to one thread; at most {arguments.max_iter} iterations")
    print(
        "support   bandwidth     m  rank  import MB  peak MB  fit adds MB   seconds  below"
        f" {TARGET / 1e9:g} GB"
    )
    worst = 0.0
    for bandwidth in arguments.bandwidth:
        for support in arguments.support:
            options = {
                "support": support,
                "bandwidth": bandwidth,
                "n_support": arguments.m,
                "n": arguments.n,
            }
            row = measure({**options, "max_iter": arguments.max_iter})
            worst = max(worst, row["peak"])
            megabytes = (
                row["imported"] / 1e6,
                row["peak"] / 1e6,
                (row["peak"] - row["imported"]) / 1e6,
            )
            print(
                f"{support:8} {bandwidth:10g} {row['m']:5d} {row['rank']:5d} {megabytes[0]:10.0f}"
                f" {megabytes[1]:8.0f} {megabytes[2]:12.0f} {row['seconds']:9.1f} "
                f" {'yes' if row['peak'] < TARGET else 'NO'} ({row['solver']})",
                flush=True,
            )
    sys.exit(int(worst >= TARGET))


if __name__ == "__main__":
    main()
