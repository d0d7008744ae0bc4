"""One problem on the processor and on the GPU, in one run: time to the certified gap, and whether both find the same objective.

    python benchmarks/gpu.py --sizes 1000 4000 --device cuda

Data without rank decay (ten features, bandwidth 2): all m points are support points and landmarks. Times include the mass matrix, the
whitening and the kernel sums.
"""

from __future__ import annotations

import argparse
import json
import time
from typing import Any

import numpy as np

import ksos
from ksos._array import to_device
from ksos.functionals import SquaredMMD, Trace
from ksos.kernels import Gaussian


def solve(X: Any, tol: float) -> tuple[ksos.Solution, float]:
    began = time.perf_counter()
    space = ksos.SoSSpace(Gaussian(2.0), X)
    solution = ksos.minimize(SquaredMMD(X) + 1e-3 * Trace(relative=True), space, tol=tol)
    float(solution.distribution.mass())  # waits for the device
    return solution, time.perf_counter() - began


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--sizes", type=int, nargs="+", default=[1000])
    parser.add_argument("--features", type=int, default=10)
    parser.add_argument("--tol", type=float, nargs="+", default=[1e-6])
    parser.add_argument("--device", default="cuda")
    parser.add_argument("--largest-on-processor", type=int, default=1000, help="sizes above this run on the device alone")
    options = parser.parse_args()
    tols = options.tol if len(options.tol) == len(options.sizes) else options.tol[:1] * len(options.sizes)
    to_device(np.zeros(1), options.device) @ to_device(np.zeros(1), options.device)  # wake it up
    for m, tol in zip(options.sizes, tols, strict=True):
        X = np.random.default_rng(0).normal(size=(m, options.features))
        row: dict[str, Any] = {"m": m, "d": options.features, "tol": tol, "device": options.device}
        found, row["device_seconds"] = solve(to_device(X, options.device), tol)
        _, row["device_seconds_again"] = solve(to_device(X, options.device), tol)
        row |= {"status": found.status, "gap": found.gap, "objective": found.objective, "steps": found.n_iter, "rank": found.rank}
        row["space_rank"] = found.space.rank
        if m <= options.largest_on_processor:
            reference, row["processor_seconds"] = solve(X, tol)
            row["relative_difference"] = abs(found.objective - reference.objective) / abs(reference.objective)
            row["ratio"] = row["processor_seconds"] / row["device_seconds_again"]
        print(json.dumps(row), flush=True)


if __name__ == "__main__":
    main()
