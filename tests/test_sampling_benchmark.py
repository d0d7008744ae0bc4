"""The baseline of benchmarks/sampling.py samples the right law: a contest against a wrong one would
prove nothing.
"""

from __future__ import annotations

import importlib
from pathlib import Path

import numpy as np
import pytest
from oracles import marginal_cdf
from statistics_checks import dkw_passes_at
from tables import points

import ksos
from ksos.kernels import Gaussian

FOLDER = Path(__file__).resolve().parents[1] / "benchmarks"


@pytest.mark.parametrize("block", [1 << 5, 1 << 17])
def test_bisection_follows_the_density(block: int, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.syspath_prepend(FOLDER)
    bisection = importlib.import_module("dyadic_bisection")
    p = ksos.SoSDensity(
        Gaussian([0.8, 0.5]),
        points(4, 2),
        np.random.default_rng(2).normal(size=(4, 2)),
        normalize=True,
    )
    samples = bisection.dyadic_samples(p, 3000, np.random.default_rng(0), block=block)
    assert samples.shape == (3000, 2)
    for k in range(2):
        assert dkw_passes_at(samples[:, k], lambda t, k=k: marginal_cdf(p, k, t), 30)
    assert abs(np.cov(samples.T)[0, 1] - p.cov()[0, 1]) < 0.05
