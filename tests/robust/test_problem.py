"""The worst case in the projected ball: weak duality at any dual point, the conic solver's optimum,
and laws in the radius.
"""

from __future__ import annotations

import math
from functools import cache
from typing import Any

import numpy as np
import pytest
from hypothesis import given, strategies as st
from oracles import conic_worst_case
from tables import points

import ksos
from ksos.functionals import Expectation
from ksos.ground import Run
from ksos.kernels import KERNELS, Gaussian, Laplace
from ksos.measures import Box, Discrete, Lebesgue, Normal
from ksos.observables import BoxIndicator, KernelFunction, Observable, Polynomial, coordinate
from ksos.robust import FixedRisk, Goal, Problem, Saddle, solve

LINE = Box([-2.0], [2.0])
LOSSES: dict[str, Observable] = {
    "square": coordinate(0) ** 2,
    "line": coordinate(0),
    "bump": KernelFunction([[0.7]], [-2.0], kernel=Gaussian(0.6)),
    "box": BoxIndicator([1.0], [1.5]),
}


def line_space(eta: float = 0.6, m: int = 11, measure: Any = LINE) -> ksos.SoSSpace:
    kernel = Gaussian(eta)
    return ksos.SoSSpace(
        kernel,
        np.linspace(-2.0, 2.0, m)[:, None],
        measure,
        Gaussian(1.0),
        np.linspace(-2.0, 2.0, 15)[:, None],
    )


class Found:
    """A saddle in the units of the loss."""

    def __init__(self, pb: Problem, saddle: Saddle) -> None:
        unit = pb.units[1]
        self.saddle, self.status, self.point, self.least_radius = (
            saddle,
            saddle.status,
            saddle.point,
            saddle.least_radius,
        )
        self.value, self.dual_value = (
            pb.in_units_of_the_loss(saddle.point.risk),
            pb.in_units_of_the_loss(saddle.upper),
        )
        self.y, self.gap = unit * saddle.y, unit * max(saddle.upper - saddle.point.risk, 0.0)


def problem(
    loss: Observable, space: ksos.SoSSpace | None = None, data: np.ndarray | None = None
) -> Problem:
    space = line_space() if space is None else space
    M = Expectation(loss).bind(space).D  # type: ignore[attr-defined]
    X = points(12, space.n_features) if data is None else data
    return Problem(
        space, FixedRisk(M), ksos.MeanEmbedding(X, kernel=space.embedding_kernel), np.zeros(0)
    )


def solved_at(pb: Problem, radius: float, tol: float = 1e-8) -> Found:
    return Found(pb, solve(pb, radius, Goal(rtol=tol)))


def matrix(pb: Problem) -> np.ndarray:
    return np.asarray(pb.risk.matrix(pb.theta))


def conic(pb: Problem, radius: float) -> float:
    return conic_worst_case(np.asarray(pb.space.compressed_map.tensor), pb.z, matrix(pb), radius)


@pytest.mark.parametrize("radius", [0.05, 0.3, 0.9])
@pytest.mark.parametrize("loss", LOSSES.values(), ids=LOSSES)
def test_optimum_of_the_conic_solver(loss: Observable, radius: float) -> None:
    pb = problem(loss)
    found = solved_at(pb, radius)
    assert found.status == "solved"
    assert found.gap <= 1e-8 * pb.units[1]
    assert found.point.distance <= radius
    assert found.value == pytest.approx(conic(pb, radius), rel=1e-6, abs=1e-6 * pb.units[1])


MEASURES = {
    "lebesgue": Lebesgue(),
    "normal": Normal(0.1, 0.8),
    "half box": Box([-np.inf], [1.0]),
    "nodes": Discrete.quadrature(LINE, 60),
}


@pytest.mark.parametrize("measure", MEASURES.values(), ids=MEASURES)
def test_on_every_measure(measure: Any) -> None:
    pb = problem(coordinate(0) ** 2, line_space(measure=measure))
    found = solved_at(pb, 0.2)
    assert found.status == "solved"
    assert found.value == pytest.approx(conic(pb, 0.2), rel=1e-6)


@pytest.mark.parametrize("measure", MEASURES.values(), ids=MEASURES)
@pytest.mark.parametrize("kernel", ["gaussian", "laplace", "matern"])
def test_laws_of_the_value_in_the_radius(kernel: str, measure: Any) -> None:
    """Nondecreasing, concave, between every feasible density and every dual point, on every kernel
    and measure.
    """
    if kernel != "gaussian" and not isinstance(measure, Discrete):
        pytest.skip("no closed form")
    make = KERNELS[kernel]
    space = ksos.SoSSpace(
        make(0.6),
        np.linspace(-2.0, 2.0, 9)[:, None],
        measure,
        make(1.0),
        np.linspace(-2.0, 2.0, 11)[:, None],
    )
    pb = problem(coordinate(0) ** 2, space)
    least = pb.nearest(0.1)[0].distance
    radii = np.linspace(1.05 * least + 1e-3, 0.7, 5)
    found = [solved_at(pb, float(radius), 1e-8) for radius in radii]
    values = np.array([one.value for one in found])
    assert all(one.status == "solved" for one in found)
    assert all(one.value <= one.dual_value + 1e-12 for one in found)
    assert np.all(np.diff(values) >= -1e-8 * pb.units[1])
    assert np.all(np.diff(values, 2) <= 3e-8 * pb.units[1])
    for one in found:  # weak duality: no density in a ball exceeds the dual value of that ball
        for radius, other in zip(radii, found, strict=True):
            dual, _ = pb.upper(pb.theta, one.y / pb.units[1], float(radius))
            assert other.value <= pb.units[0] + pb.units[1] * dual + 1e-9 * pb.units[1]


def test_kernels_that_are_not_smooth_live_on_nodes() -> None:
    nodes = Discrete.quadrature(LINE, 50)
    space = ksos.SoSSpace(
        Laplace(0.7), np.linspace(-2.0, 2.0, 9)[:, None], nodes, Laplace(1.0), nodes.points[::4]
    )
    pb = problem(coordinate(0) ** 2, space)
    assert solved_at(pb, 0.3).value == pytest.approx(conic(pb, 0.3), rel=1e-6)


def test_two_features() -> None:
    axis = np.linspace(-1.5, 1.5, 4)
    support = np.stack([a.ravel() for a in np.meshgrid(axis, axis)], axis=1)
    space = ksos.SoSSpace(
        Gaussian([0.9, 0.7]), support, Box([-1.5, -1.5], [1.5, 1.5]), Gaussian(1.0)
    )
    pb = problem(Polynomial({(2, 0): 1.0, (1, 1): 0.5, (0, 1): -1.0}), space)
    assert solved_at(pb, 0.25).value == pytest.approx(conic(pb, 0.25), rel=1e-6)


SOLVED = [(name, radius) for name in LOSSES for radius in (0.03, 0.2, 0.8, 1.2)]


@cache
def solved(name: str, radius: float) -> tuple[Problem, Found]:
    pb = problem(LOSSES[name])
    return pb, solved_at(pb, radius, tol=1e-5)


@given(st.integers(0, 2**32 - 1), st.sampled_from(SOLVED))
def test_weak_duality_is_never_violated(seed: int, case: tuple[str, float]) -> None:
    """Any y bounds any feasible C."""
    rng, radius = np.random.default_rng(seed), case[1]
    pb, best = solved(*case)
    y = rng.normal(size=pb.z.shape[0]) * 10.0 ** rng.uniform(-3.0, 1.0)
    bound, _ = pb.upper(pb.theta, y, radius)
    assert bound >= (best.value - pb.units[0]) / pb.units[1] - 1e-12
    assert best.dual_value >= best.value - 1e-13 * pb.units[1]
    # and with the dual's own y the definition gives the dual value
    M, A = np.asarray(matrix(pb)), np.asarray(pb.space.compressed_map.tensor)
    again = (
        np.linalg.eigvalsh(M - np.tensordot(best.y, A, axes=1))[-1]
        + best.y @ pb.z
        + radius * np.linalg.norm(best.y)
    )
    assert best.dual_value == pytest.approx(again, rel=1e-9, abs=1e-9)


def test_value_is_nondecreasing_and_concave_in_the_radius() -> None:
    pb = problem(coordinate(0) ** 2)
    radii = np.linspace(0.05, 1.3, 12)
    values = np.array([solved_at(pb, radius).value for radius in radii])
    slopes = np.diff(values) / np.diff(radii)
    assert np.all(slopes >= -1e-7)
    assert np.all(np.diff(slopes) <= 1e-6)
    assert slopes[0] > 1.0 and slopes[-1] == pytest.approx(0.0, abs=1e-6)


def test_the_dual_norm_is_the_slope_in_the_radius() -> None:
    pb = problem(coordinate(0) ** 2)
    found = solved_at(pb, 0.3, tol=1e-10)
    slope = (solved_at(pb, 0.301, tol=1e-10).value - solved_at(pb, 0.299, tol=1e-10).value) / 0.002
    assert np.linalg.norm(found.y) == pytest.approx(slope, rel=1e-3)


def test_a_large_ball_holds_the_top_of_the_space() -> None:
    pb = problem(coordinate(0) ** 2)
    found = solved_at(pb, 1.9)
    assert found.value == pytest.approx(float(np.linalg.eigvalsh(matrix(pb))[-1]), abs=1e-12)
    assert found.gap <= 1e-12
    assert np.linalg.norm(found.y) == 0.0


def test_an_empty_ball_is_proven_empty() -> None:
    pb = problem(coordinate(0) ** 2, line_space(eta=2.0, m=4), np.array([[0.3]]))
    least = math.sqrt(
        max(ksos.minimize(ksos.functionals.SquaredMMD([[0.3]]), pb.space, tol=1e-12).objective, 0.0)
    )
    found = solved_at(pb, 0.9 * least)
    assert found.status == "infeasible"
    assert found.least_radius is not None
    assert 0.9 * least < found.least_radius <= least + 1e-9
    assert solved_at(pb, 1.001 * least).status == "solved"


def test_a_radius_just_above_the_least() -> None:
    pb = problem(coordinate(0) ** 2, line_space(eta=2.0, m=4), np.array([[0.3]]))
    least = math.sqrt(
        ksos.minimize(ksos.functionals.SquaredMMD([[0.3]]), pb.space, tol=1e-13).objective
    )
    found = solved_at(pb, least * (1.0 + 1e-6))
    assert found.status in ("solved", "solved_inaccurate")
    assert found.point.distance <= least * (1.0 + 1e-6)
    assert found.value <= found.dual_value


@pytest.mark.parametrize("scale", [1e-150, 1e150])
def test_the_unit_of_the_loss_does_not_matter(scale: float) -> None:
    one, other = problem(coordinate(0) ** 2), problem(scale * coordinate(0) ** 2)
    assert solved_at(other, 0.3).value / scale == pytest.approx(solved_at(one, 0.3).value, rel=1e-9)
    shifted = problem(coordinate(0) ** 2 + 1e6)
    assert solved_at(shifted, 0.3).value - 1e6 == pytest.approx(solved_at(one, 0.3).value, abs=1e-6)


def test_a_constant_loss_is_its_value() -> None:
    found = solved_at(problem(Polynomial([3.0])), 0.3)
    assert found.value == found.dual_value == pytest.approx(3.0)
    assert found.point.distance <= 0.3


def test_a_value_that_jumps_in_the_multiplier() -> None:
    """Two equal places to go: the penalized optimum leaps from one mixture to another, and the
    bracket must close all the same.
    """
    space = ksos.SoSSpace(
        Gaussian(0.3),
        np.linspace(-2.0, 2.0, 41)[:, None],
        LINE,
        Gaussian(1.0),
        np.linspace(-2.0, 2.0, 41)[:, None],
        1e-8,
        1e-9,
    )
    for theta, value in ((0.0, 0.02473), (-0.1, 0.02497), (0.45, 0.03442)):
        found = solved_at(
            problem(
                KernelFunction([[theta]], [-1.0], kernel=Gaussian(1.0)), space, np.zeros((1, 1))
            ),
            1.2,
            tol=1e-7,
        )
        assert found.status == "solved"
        assert -found.value == pytest.approx(value, abs=2e-5)


@pytest.mark.parametrize("seconds", [1e-6, 1e-3, 1e-2])
def test_a_time_limit_is_a_status(seconds: float) -> None:
    pb = problem(coordinate(0) ** 2, line_space(0.3, 41))
    with Run(seconds) as run:
        found = solve(pb, 0.05, Goal(rtol=1e-13))
        assert run.elapsed <= seconds + 0.5
    assert found.status in ("time_limit", "solved_inaccurate", "undecided", "solved")


@pytest.mark.parametrize("radii", [(0.1, 0.4), (0.4, 0.1)])
def test_solving_a_problem_does_not_change_it(radii: tuple[float, float]) -> None:
    """Twice, and in either order: the same to the last bit."""
    pb = problem(coordinate(0) ** 2)
    alone = {radius: solved_at(problem(coordinate(0) ** 2), radius) for radius in radii}
    for _ in range(2):
        for radius in radii:
            again = solved_at(pb, radius)
            assert (again.value, again.dual_value, again.status) == (
                alone[radius].value,
                alone[radius].dual_value,
                alone[radius].status,
            )
            np.testing.assert_array_equal(again.point.C, alone[radius].point.C)
