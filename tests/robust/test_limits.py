"""Limits of a worst case: the MMD that is reported can be checked, time limits are for the whole
call, Ctrl-C is never swallowed.
"""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from sklearn.exceptions import ConvergenceWarning
from tables import points

import ksos
from ksos.kernels import Gaussian, Laplace
from ksos.measures import Box, Discrete, Normal
from ksos.observables import KernelFunction, coordinate

LINE = Box([-2.0], [2.0])
X = np.random.default_rng(0).normal(scale=0.5, size=(40, 1))
SQUARE = coordinate(0) ** 2
BALL: dict[str, Any] = {"kernel": Gaussian(1.0), "domain": LINE}
N_SUPPORT = 20


# --- what a certificate claims can be checked again ---

EVERYWHERE: dict[str, tuple[int, Any, Any, int | None]] = {
    "interval": (1, LINE, Gaussian(1.0), None),
    "line": (1, None, Gaussian(1.0), None),
    "half line": (1, Box([-np.inf], [1.5]), Gaussian(1.0), None),
    "normal": (1, Normal(0.0, 1.0), Gaussian(1.0), None),
    "square": (2, Box([-2.0] * 2, [2.0] * 2), Gaussian(1.0), 36),
    "plane": (2, None, Gaussian(1.0), 36),
    "cube": (3, Box([-1.5] * 3, [1.5] * 3), Gaussian(1.5), 27),
    "five features": (5, None, Gaussian(1.0), 20),
    "nodes": (1, Discrete.quadrature(LINE, 60), Laplace(1.0, product=True), None),
}


@pytest.mark.parametrize("where", EVERYWHERE)
def test_the_mmd_that_is_reported_is_the_mmd(where: str) -> None:
    d, domain, kernel, n_support = EVERYWHERE[where]
    data = 0.6 * points(15, d, 11)
    loss = KernelFunction(np.full((1, d), 0.7), [1.0], kernel=Gaussian(1.0))
    ball = ksos.Ball(data, 0.3, kernel=kernel, domain=domain)
    worst = ksos.worst_case(loss, ball, n_support=n_support)
    assert worst.status == "solved" and worst.mmd <= 0.3
    assert ball.mmd(worst.distribution) == pytest.approx(worst.mmd, abs=1e-9)


# --- time, and Ctrl-C ---


@pytest.mark.filterwarnings("ignore:worst_case. :sklearn.exceptions.ConvergenceWarning")
@pytest.mark.parametrize("seconds", [1e-3, 0.05, 0.3])
@pytest.mark.parametrize("loss", [SQUARE, lambda Z: np.abs(Z[:, 0])], ids=["square", "code"])
def test_a_time_limit_is_for_the_whole_call(loss: Any, seconds: float) -> None:
    ksos.worst_case(loss, ksos.Ball(X, 0.05, **BALL), n_support=N_SUPPORT)  # imports and caches
    worst = ksos.worst_case(
        loss, ksos.Ball(X, 0.05, **BALL), rtol=1e-15, time_limit=seconds, n_support=N_SUPPORT
    )
    assert worst.time <= seconds + 1.0
    assert worst.status in ("time_limit", "solved", "solved_inaccurate")
    if worst.value is not None:
        assert worst.mmd <= 0.05 and worst.value <= worst.upper_bound
    else:
        assert worst.status == "time_limit" and worst.distribution is not None


@pytest.mark.parametrize("name", ["worst_case", "robust_minimize"])
def test_a_time_limit_without_a_value_is_a_warning(name: str) -> None:
    def loss(theta: np.ndarray, Z: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        return np.sum((theta - Z) ** 2, axis=1), 2.0 * (theta - Z)

    ball = ksos.Ball(points(40, 2), 0.1, kernel=Gaussian(1.0), domain=Box([-2.0] * 2, [2.0] * 2))
    arguments = (SQUARE, ball) if name == "worst_case" else (loss, np.zeros(2), ball)
    with pytest.warns(ConvergenceWarning, match=f"{name}: time_limit.* there is no value") as said:
        found = getattr(ksos, name)(*arguments, n_support=36, time_limit=1e-9)
    assert found.status == "time_limit" and found.value is None
    assert said[0].filename == __file__


def test_an_absolute_tolerance() -> None:
    rough, fine = (
        ksos.worst_case(
            SQUARE, ksos.Ball(X, 0.05, **BALL), tol=tol, rtol=1e-12, n_support=N_SUPPORT
        )
        for tol in (1e-2, 1e-9)
    )
    assert rough.status == fine.status == "solved"
    assert fine.n_iter >= rough.n_iter and fine.value == pytest.approx(rough.value, abs=2e-2)


@pytest.mark.parametrize("calls", [1, 2, 3, 5])
def test_ctrl_c_is_never_swallowed(calls: int) -> None:
    """An interrupt in the loss, wherever it comes: no answer that counts as solved."""
    left = calls

    def loss(Z: np.ndarray) -> np.ndarray:
        nonlocal left
        left -= 1
        if left == 0:
            raise KeyboardInterrupt
        return np.abs(Z[:, 0])

    with pytest.raises(KeyboardInterrupt):
        ksos.worst_case(loss, ksos.Ball(X, 0.2, **BALL), n_support=N_SUPPORT)


@pytest.mark.parametrize("calls", [2, 40, 80])
def test_ctrl_c_ends_a_path_of_radii(calls: int) -> None:
    left = calls

    def loss(theta: np.ndarray, Z: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        nonlocal left
        left -= 1
        if left == 0:
            raise KeyboardInterrupt
        return (theta[0] - Z[:, 0]) ** 2, 2.0 * (theta[0] - Z)

    with pytest.raises(KeyboardInterrupt):
        ksos.robust_path(
            loss, [0.0], ksos.Ball(X, 0.0, **BALL), [0.3, 0.2, 0.1], n_support=N_SUPPORT
        )
    assert left <= 0
