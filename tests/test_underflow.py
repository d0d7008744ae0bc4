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
    for measure in (
        Lebesgue(),
        Box([-50.0] * 2, [50.0] * 2),
        Discrete(5.0 * X),
        Normal([0.0] * 2, [1.0] * 2),
    )
    if measure.name != "normal" or kernel.name == "gaussian"
]


@pytest.mark.parametrize(
    ("kernel", "measure"), PAIRS, ids=[f"{kernel.name} {measure.name}" for kernel, measure in PAIRS]
)
def test_densities_and_their_problems(kernel: Any, measure: Any) -> None:
    with np.errstate(all="raise"):
        p = ksos.SoSDensity(kernel, X, np.ones((25, 1)), measure, normalize=True)
        assert np.all(p.logpdf(FAR) < -30.0) and np.all(p.pdf(FAR) < 1e-13)
        assert np.all(np.isfinite(p.cov())) and p.terms.mass() == pytest.approx(1.0)
        assert (
            ksos.minimize(
                SquaredMMD(X) + 1e-2 * Trace(relative=True), ksos.SoSSpace(kernel, X, measure)
            ).status
            == "solved"
        )


CALLS: dict[str, Callable[[], str]] = {
    "fit": lambda: ksos.KernelSoSDensity().fit(X).solution_.status,
    "fit by likelihood": lambda: (
        ksos.KernelSoSDensity(objective="likelihood").fit(X).solution_.status
    ),
    "search": lambda: ksos.KernelSoSDensityCV(random_state=0).fit(X[:, :1]).solution_.status,
    "minimize": lambda: (
        ksos.minimize(
            NegativeLogLikelihood(X) + 0.1 * Trace(relative=True), ksos.SoSSpace(Gaussian(0.3), X)
        ).status
    ),
    "worst_case": lambda: (
        ksos.worst_case(
            coordinate(0) ** 2, ksos.Ball(X[:, :1], 0.2, domain=Box([-50.0], [50.0])), n_support=12
        ).status
    ),
    "RobustRegressor": lambda: (
        ksos.RobustRegressor(random_state=0, n_support=12).fit(X[:, :1], X[:, 1]).solution_.status
    ),
}


@pytest.mark.filterwarnings("ignore::UserWarning")
@pytest.mark.parametrize("name", CALLS)
def test_calls(name: str) -> None:
    plain = CALLS[name]()
    with np.errstate(all="raise"):
        assert CALLS[name]() == plain


def questions(p: Any) -> dict[str, Callable[[], Any]]:
    # a discrete measure has values of its own
    here = float(p.measure.atoms.points[3, 0]) if p.measure.atoms is not None else 0.1
    return {
        "rvs": lambda: p.rvs(5, rng=np.random.default_rng(0)),
        "rvs by inversion": lambda: p.rvs(5, rng=np.random.default_rng(0), method="inversion"),
        "probability": lambda: p.probability([-1.0, -1.0], [1.0, 1.0]),
        "marginal": lambda: p.marginal([0]).pdf(FAR[:, :1]),
        "cdf": lambda: p.marginal([0]).cdf(X[:5, :1]),
        "ppf": lambda: p.marginal([1]).ppf([0.1, 0.9]),
        "conditional": lambda: p.conditional({0: here}).pdf(X[:5, 1:]),
        "mmd": lambda: ksos.mmd(p, X, Gaussian(0.5)),
        "compress": lambda: p.compress(3),
        "expectation": lambda: p.expectation(coordinate(0) ** 2),
        "affine": lambda: p.affine(2.0).pdf(FAR),
    }


@pytest.mark.filterwarnings("ignore::UserWarning")
@pytest.mark.parametrize(
    ("kernel", "measure"), PAIRS, ids=[f"{kernel.name} {measure.name}" for kernel, measure in PAIRS]
)
def test_questions(kernel: Any, measure: Any) -> None:
    """What can be answered has the same answer; what cannot is refused for the same reason."""

    def asked(ask: Callable[[], Any]) -> str:
        try:
            return repr(ask())
        except (ValueError, TypeError) as error:
            return str(error)

    p = ksos.SoSDensity(kernel, X, np.ones((25, 1)), measure, normalize=True)
    for name, ask in questions(p).items():
        plain = asked(ask)
        with np.errstate(all="raise"):
            assert asked(ask) == plain, name
