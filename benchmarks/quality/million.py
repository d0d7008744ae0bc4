"""A million samples in ten features: the fit without a search, beside the sums of kernel values
that no fit can do without.
"""

from __future__ import annotations

import time

import numpy as np

from quality.blobs import blobs
from quality.records import Key, Record
from quality.work import machine

__all__ = ["MILLION", "measure_million"]

MILLION = "million_d10"
_BLOCK = 10_000


def measure_million(n: int = 1_000_000, d: int = 10) -> Record:
    """``seconds`` of ``KernelSoSDensity().fit(X)``, and ``kernel_seconds`` of Σ_i k(x_i, x̃_j) at
    as many points as it took.
    """
    import ksos

    X = blobs(d).sample(n, np.random.default_rng([d, n]))
    start = time.process_time()
    estimator = ksos.KernelSoSDensity().fit(X)
    seconds = time.process_time() - start
    points = np.asarray(estimator.support_points_)
    kernel = ksos.kernels.Gaussian(1.0)  # what the sums cost does not depend on the bandwidth
    sums = np.zeros(points.shape[0])
    start = time.process_time()
    for first in range(0, n, _BLOCK):
        sums += np.sum(kernel(X[first : first + _BLOCK], points), axis=0)
    kernel_seconds = time.process_time() - start
    key = Key(MILLION, n, 0, "ksos_plain")
    return {
        **key._asdict(),
        "d": d,
        "machine": machine(),
        "n_train": n,
        "seconds": seconds,
        "kernel_seconds": kernel_seconds,
        "support": int(points.shape[0]),
    }
