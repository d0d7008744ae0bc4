"""Limits of a worst case: the MMD that is reported can be checked, time limits are for the whole
call, Ctrl-C is never swallowed.
"""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from tables import points

import ksos
from ksos.kernels import Gaussian
from ksos.measures import Box, Discrete, Normal
from ksos.observables import KernelFunction, coordinate

LINE = Box([-2.0], [2.0])
X = np.random.default_rng(0).normal(scale=0.5, size=(40, 1))
SQUARE = coordinate(0) ** 2
OPTIONS: dict[str, Any] = {"embedding_bandwidth": 1.0, "measure": LINE, "n_support": 20}


# --- what a certificate claims can be checked again ---

EVERYWHERE: dict[str, tuple[int, Any, dict[str, Any]]] = {
    "interval": (1, LINE, {}),
    "line": (1, None, {}),
    "half line": (1, Box([-np.inf], [1.5]), {}),
    "normal": (1, Normal(0.0, 1.0), {}),
    "square": (2, Box([-2.0] * 2, [2.0] * 2), {"n_support": 36}),
    "plane": (2, None, {"n_support": 36}),
    "cube": (3, Box([-1.5] * 3, [1.5] * 3), {"n_support": 27, "embedding_bandwidth": 1.5}),
    "five features": (5, None, {"n_support": 20}),
    "nodes": (1, Discrete.quadrature(LINE, 60), {"kernel": "laplace"}),
}


@pytest.mark.parametrize("where", EVERYWHERE)
def test_the_mmd_that_is_reported_is_the_mmd(where: str) -> None:
    d, measure, options = EVERYWHERE[where]
    data = 0.6 * points(15, d, 11)
    loss = KernelFunction(np.full((1, d), 0.7), [1.0], kernel=Gaussian(1.0))
    worst = ksos.worst_case(
        loss, data, 0.3, measure=measure, **{"embedding_bandwidth": 1.0, **options}
    )
    assert worst.status == "solved" and worst.mmd <= 0.3
    embedding = ksos.MeanEmbedding(data, kernel=worst.embedding_kernel)
    assert ksos.mmd(embedding, worst.distribution, worst.embedding_kernel) == pytest.approx(
        worst.mmd, abs=1e-9
    )


# --- time, and Ctrl-C ---


@pytest.mark.filterwarnings("ignore:worst_case. :sklearn.exceptions.ConvergenceWarning")
@pytest.mark.parametrize("seconds", [1e-3, 0.05, 0.3])
@pytest.mark.parametrize("loss", [SQUARE, lambda Z: np.abs(Z[:, 0])], ids=["square", "code"])
def test_a_time_limit_is_for_the_whole_call(loss: Any, seconds: float) -> None:
    ksos.worst_case(loss, X, 0.05, **OPTIONS)  # imports and caches
    worst = ksos.worst_case(loss, X, 0.05, rtol=1e-15, time_limit=seconds, **OPTIONS)
    assert worst.time <= seconds + 1.0
    assert worst.status in ("time_limit", "solved", "solved_inaccurate")
    if worst.value is not None:
        assert worst.mmd <= 0.05 and worst.value <= worst.upper_bound
    else:
        assert worst.status == "time_limit" and worst.distribution is not None


def test_an_absolute_tolerance() -> None:
    rough, fine = (
        ksos.worst_case(SQUARE, X, 0.05, tol=tol, rtol=1e-12, **OPTIONS) for tol in (1e-2, 1e-9)
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
        ksos.worst_case(loss, X, 0.2, **OPTIONS)


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
        ksos.robust_path(loss, [0.0], X, [0.3, 0.2, 0.1], **OPTIONS)
    assert left <= 0
