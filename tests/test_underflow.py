"""Kernels vanish far away: that is no error, whatever the caller has told NumPy to raise."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

import ksos
from ksos.functionals import NegativeLogLikelihood, SquaredMMD, Trace
from ksos.kernels import Gaussian, Laplace, Matern
from ksos.measures import Box, Discrete, Lebesgue, Normal
from ksos.observables import coordinate

X = np.random.default_rng(0).normal(size=(25, 2))
X[0] = 40.0
FAR = np.array([[30.0, -30.0], [60.0, 60.0]])
PAIRS = [
    (kernel, measure)
    for kernel in (Gaussian(0.3), Laplace(0.3, product=True), Matern(1.5, 0.3, product=True))
    for measure in (Lebesgue(), Box([-50.0] * 2, [50.0] * 2), Discrete(5.0 * X), Normal([0.0] * 2, [1.0] * 2))
    if measure.name != "normal" or kernel.name == "gaussian"
]


@pytest.mark.parametrize(("kernel", "measure"), PAIRS, ids=[f"{kernel.name} {measure.name}" for kernel, measure in PAIRS])
def test_densities_and_their_problems(kernel: Any, measure: Any) -> None:
    with np.errstate(all="raise"):
        p = ksos.SoSDensity(kernel, X, np.ones((25, 1)), measure, normalize=True)
        assert np.all(p.logpdf(FAR) < -30.0) and np.all(p.pdf(FAR) < 1e-13)
        assert np.all(np.isfinite(p.cov())) and p.mass() == pytest.approx(1.0)
        assert ksos.minimize(SquaredMMD(X) + 1e-2 * Trace(relative=True), ksos.SoSSpace(kernel, X, measure)).status == "solved"


CALLS: dict[str, Callable[[], str]] = {
    "fit": lambda: ksos.KernelSoSDensity().fit(X).solution_.status,
    "fit by likelihood": lambda: ksos.KernelSoSDensity(objective="likelihood").fit(X).solution_.status,
    "search": lambda: ksos.KernelSoSDensityCV(random_state=0).fit(X[:, :1]).best_estimator_.solution_.status,
    "minimize": lambda: ksos.minimize(NegativeLogLikelihood(X) + 0.1 * Trace(relative=True), ksos.SoSSpace(Gaussian(0.3), X)).status,
    "worst_case": lambda: ksos.worst_case(coordinate(0) ** 2, X[:, :1], 0.2, measure=Box([-50.0], [50.0]), n_support=12).status,
    "RobustRegressor": lambda: ksos.RobustRegressor(random_state=0, n_support=12).fit(X[:, :1], X[:, 1]).solution_.status,
}


@pytest.mark.filterwarnings("ignore::UserWarning")
@pytest.mark.parametrize("name", CALLS)
def test_calls(name: str) -> None:
    plain = CALLS[name]()
    with np.errstate(all="raise"):
        assert CALLS[name]() == plain
