"""The robust mode of the note's section 2.1: the known numbers, all three adversaries, any
dimension, and what is refused.
"""

from __future__ import annotations

import math
from functools import cache
from typing import Any

import numpy as np
import pytest
from tables import points

import ksos
from ksos.kernels import Gaussian
from ksos.measures import Box, Discrete
from ksos.observables import KernelFunction
from ksos.robust import Player, WorstAtoms, adversary_in, worst_atoms

LINE, ZERO = Box([-2.0], [2.0]), np.zeros((1, 1))


def figure_space(eta: float, m: int) -> ksos.SoSSpace:
    support, landmarks = np.linspace(-2.0, 2.0, m)[:, None], np.linspace(-2.0, 2.0, 41)[:, None]
    return ksos.SoSSpace(Gaussian(eta), support, LINE, Gaussian(1.0), landmarks, 1e-8, 1e-9)


@cache
def figure_mode(eta: float, m: int) -> ksos.RobustMode:
    return ksos.robust_mode(
        ksos.Ball(
            ZERO,
            1.2,
            kernel=figure_space(eta, m).embedding_kernel,
            domain=figure_space(eta, m).measure,
        ),
        space=figure_space(eta, m),
        n_grid=9,
    )


@pytest.mark.parametrize(
    ("eta", "m", "value"), [(1.0, 21, 0.0390), (0.5, 31, 0.0361), (0.3, 41, 0.0344)]
)
def test_the_numbers_of_figure_1(eta: float, m: int, value: float) -> None:
    found = figure_mode(eta, m)
    assert found.status == "solved" and found.mode is not None
    assert abs(abs(found.mode[0]) - 0.45) <= 0.05
    assert found.value == pytest.approx(value, abs=2e-4)
    worst = found.worst_case
    assert (
        isinstance(worst, ksos.WorstCase)
        and worst.value is not None
        and worst.upper_bound is not None
    )
    assert found.value == -worst.value
    assert worst.mmd <= 1.2 and worst.gap is not None and worst.gap <= 1e-6
    # no distribution at all gives the player less than the bound, which atoms come close to
    assert 0.0320 <= -worst.upper_bound <= 0.0323


def test_default_support_on_the_box_comes_within_ten_percent_of_atoms() -> None:
    found = ksos.robust_mode(
        ksos.Ball(ZERO, 1.2, kernel=Gaussian(1.0), domain=LINE), bandwidth=0.3, n_grid=9
    )
    assert found.value is not None and 0.0322 <= found.value <= 1.1 * 0.0322
    assert found.mode is not None and abs(abs(found.mode[0]) - 0.45) <= 0.05


def test_the_relaxation_ignores_the_radius() -> None:
    for radius in (0.3, 1.2):
        found = ksos.robust_mode(
            ksos.Ball(ZERO, radius, kernel=Gaussian(1.0), domain=LINE), relaxation=True
        )
        assert found.mode is not None and abs(found.mode[0]) <= 1e-6
        assert found.value == pytest.approx(1.0 - radius, abs=1e-12)
        v = found.worst_case
        assert isinstance(v, ksos.MeanEmbedding)
        assert float(v(found.mode[None, :])[0]) == pytest.approx(found.value, abs=1e-12)
        assert ksos.mmd(v, ksos.MeanEmbedding(ZERO, kernel=Gaussian(1.0))) == pytest.approx(
            radius, abs=1e-6
        )


def test_the_discretised_reference() -> None:
    found = ksos.robust_mode(
        ksos.Ball(ZERO, 1.2, kernel=Gaussian(1.0), domain=LINE),
        adversary="atoms",
        n_atoms=161,
        n_grid=21,
    )
    assert isinstance(found.worst_case, WorstAtoms)
    assert found.mode is not None and abs(abs(found.mode[0]) - 0.45) <= 0.01
    assert found.value == pytest.approx(0.0322, abs=1e-4)
    assert found.worst_case.value - found.worst_case.lower_bound <= 1e-7
    assert found.worst_case.mmd <= 1.2 + 1e-7


def test_worst_atoms_of_any_loss_against_a_conic_solver() -> None:
    cp = pytest.importorskip("cvxpy")
    rng = np.random.default_rng(0)
    Phi, z, loss = rng.normal(size=(5, 30)), 0.1 * rng.normal(size=5), rng.normal(size=30)
    mu = cp.Variable(30, nonneg=True)
    for radius in (0.2, 0.8):
        problem = cp.Problem(
            cp.Maximize(loss @ mu), [cp.sum(mu) == 1, cp.norm(Phi @ mu - z) <= radius]
        )
        problem.solve(solver=cp.CLARABEL)
        found = worst_atoms(Phi, z, loss, radius)
        assert found.value == pytest.approx(problem.value, abs=1e-5)
        dual = np.max(loss - found.y @ Phi) + found.y @ z + radius * np.linalg.norm(found.y)
        assert problem.value - 1e-7 <= dual <= problem.value + 1e-4
    problem = cp.Problem(
        cp.Maximize(loss @ mu - 2.0 * cp.sum_squares(Phi @ mu - z)), [cp.sum(mu) == 1]
    )
    problem.solve(solver=cp.CLARABEL)
    found = worst_atoms(Phi, z, loss, None, 2.0)
    assert found.value - 2.0 * found.distance**2 == pytest.approx(problem.value, abs=1e-5)
    assert worst_atoms(Phi, z, loss, 1e9).value == pytest.approx(loss.max(), abs=1e-3)


def test_the_gradient_is_that_of_the_value() -> None:
    space = figure_space(0.5, 31)
    ball = ksos.Ball(ZERO, 1.2, kernel=Gaussian(1.0), domain=LINE)
    player = Player(adversary_in(ball, space=space))
    for theta in (-0.7, 0.3):
        slope = player(np.array([theta]))[1][0]
        low, high = (player(np.array([theta + step]))[0] for step in (-0.02, 0.02))
        assert slope == pytest.approx((high - low) / 0.04, abs=3e-3)


def test_the_mode_is_a_maximum_of_the_value() -> None:
    """No θ that was tried, nor any near the mode, does better."""
    found, space = figure_mode(0.5, 31), figure_space(0.5, 31)
    assert found.mode is not None and found.value is not None
    assert found.value >= found.path.value.max() - 1e-5
    for step in (-0.02, 0.02):
        theta = found.mode + step
        near = ksos.worst_case(
            KernelFunction(theta[None, :], [-1.0], kernel=Gaussian(1.0)),
            ksos.Ball(ZERO, 1.2, kernel=space.embedding_kernel, domain=space.measure),
            space=space,
        )
        assert near.value is not None and -near.value <= found.value + 1e-6


def test_a_time_limit_is_a_status() -> None:
    for options in ({}, {"relaxation": True}, {"adversary": "atoms"}):
        found = ksos.robust_mode(
            ksos.Ball(ZERO, 1.2, kernel=Gaussian(1.0), domain=LINE),
            **options,
            bandwidth=0.3,
            time_limit=0.05,
        )
        assert found.status == "time_limit" or found.time < 0.05
        assert found.time < 3.0 and found.mode is not None


def test_values_are_symmetric_and_lie_between_the_relaxation_and_the_observed_return() -> None:
    found = figure_mode(0.5, 31)
    theta, value = found.path.theta[:9, 0], found.path.value[:9]
    np.testing.assert_allclose(value, value[::-1], atol=3e-6)
    observed = np.exp(-(theta**2))
    assert np.all(value >= observed - 1.2) and np.all(value <= observed)
    assert found.value is not None and found.value >= value.max() - 1e-6


def test_two_features() -> None:
    data, box = points(6, 2), Box([-1.5, -1.5], [1.5, 1.5])
    found = ksos.robust_mode(
        ksos.Ball(data, 0.3, kernel=Gaussian(1.2), domain=box), bandwidth=1.2, n_support=9, n_grid=3
    )
    assert found.status == "solved" and found.mode is not None and found.mode.shape == (2,)
    assert found.message.startswith("solved: ") and "least radius" not in found.message
    assert box.contains(found.mode[None, :])[0]
    worst = found.worst_case
    assert isinstance(worst, ksos.WorstCase) and worst.mmd <= 0.3
    relaxed = ksos.robust_mode(
        ksos.Ball(data, 0.3, kernel=Gaussian(1.2), domain=box),
        bandwidth=1.2,
        n_support=9,
        relaxation=True,
    )
    assert found.value is not None and relaxed.value is not None and found.value >= relaxed.value
    kde = ksos.MeanEmbedding(data, kernel=Gaussian(1.2))
    grid = np.stack(
        [a.ravel() for a in np.meshgrid(np.linspace(-1.5, 1.5, 61), np.linspace(-1.5, 1.5, 61))],
        axis=1,
    )
    assert relaxed.value == pytest.approx(kde(grid).max() - 0.3, abs=1e-3)


def test_four_features() -> None:
    found = ksos.robust_mode(
        ksos.Ball(points(3, 4), 0.4, kernel=Gaussian(3.0)), bandwidth=1.0, n_support=4, rtol=1e-06
    )
    assert found.mode is not None and found.mode.shape == (4,) and found.status == "solved"
    with pytest.raises(ValueError, match="n_grid is for one or two features; got 4"):
        ksos.robust_mode(
            ksos.Ball(points(5, 4), 0.4, kernel=Gaussian(1.0)), bandwidth=1.0, n_grid=3
        )


def test_radius_zero_is_the_mode_of_the_data() -> None:
    data = np.array([[-1.0], [0.2], [0.3]])
    found = ksos.robust_mode(ksos.Ball(data, 0.0, kernel=Gaussian(0.5), domain=LINE))
    grid = np.linspace(-2.0, 2.0, 4001)[:, None]
    kde = ksos.MeanEmbedding(data, kernel=Gaussian(0.5))(grid)
    assert found.mode is not None and found.mode[0] == pytest.approx(
        grid[np.argmax(kde), 0], abs=1e-3
    )
    assert found.value == pytest.approx(kde.max(), abs=1e-6) and found.worst_case is None


def test_an_empty_ball_names_the_least_radius() -> None:
    found = ksos.robust_mode(
        ksos.Ball(ZERO, 0.01, kernel=Gaussian(1.0), domain=LINE), bandwidth=1.0, n_support=8
    )
    assert found.status == "infeasible" and found.mode is found.value is found.worst_case is None
    assert found.least_radius is not None and found.least_radius > 0.01
    assert f"{found.least_radius:.6g} (certified)" in found.message


def test_atoms_of_a_discrete_measure_and_of_too_many_features() -> None:
    nodes = Discrete(np.linspace(-2.0, 2.0, 81)[:, None])
    found = ksos.robust_mode(
        ksos.Ball(ZERO, 1.2, kernel=Gaussian(1.0), domain=nodes),
        bandwidth=0.5,
        adversary="atoms",
        n_grid=9,
        n_support=12,
    )
    assert found.value == pytest.approx(0.0322, abs=3e-4)
    with pytest.raises(
        ValueError, match="in one or two features, or a Discrete domain; got 3 features"
    ):
        ksos.robust_mode(
            ksos.Ball(points(3, 3), 0.5, kernel=Gaussian(2.0)),
            bandwidth=2.0,
            n_support=8,
            adversary="atoms",
        )


@pytest.mark.parametrize(
    ("options", "what"),
    [
        ({"adversary": "nature"}, "adversary must be one of 'sos', 'atoms'; got 'nature'"),
        (
            {"relaxation": True, "adversary": "atoms"},
            "relaxation=True has its adversary in the RKHS",
        ),
        ({"n_atoms": 5}, 'n_atoms is for adversary="atoms"'),
        ({"n_grid": 1}, "n_grid must be at least 2; got 1"),
        ({"tol": -1.0}, "tol must be positive"),
    ],
)
def test_bad_options(options: dict[str, Any], what: str) -> None:
    with pytest.raises(ValueError, match=what):
        ksos.robust_mode(ksos.Ball(ZERO, 1.2, kernel=Gaussian(1.0), domain=LINE), **options)
    with pytest.raises(ValueError, match="an infinite radius is for the penalty"):
        ksos.robust_mode(ksos.Ball(ZERO, math.inf, kernel=Gaussian(1.0), domain=LINE))


def test_a_bootstrap_radius() -> None:
    data = points(20, 1)
    one, other = (
        ksos.robust_mode(
            ksos.Ball(data, "bootstrap", kernel=Gaussian(1.0), domain=LINE, rng=1),
            bandwidth=1.0,
            n_support=8,
            n_grid=3,
        )
        for _ in range(2)
    )
    assert one.radius == other.radius > 0.0
