"""The worst case in the projected ball: weak duality at any dual point, the conic solver's optimum, and laws in the radius."""

from __future__ import annotations

import math
from functools import cache
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from oracles import conic_worst_case
from tables import points

import ksos
from ksos.functionals import Expectation
from ksos.kernels import KERNELS, Gaussian, Laplace
from ksos.measures import Box, Discrete, Lebesgue, Normal
from ksos.observables import BoxIndicator, KernelFunction, Observable, Polynomial, coordinate
from ksos.robust.ball import BallProblem, BallSolution

LINE = Box([-2.0], [2.0])
LOSSES: dict[str, Observable] = {
    "square": coordinate(0) ** 2,
    "line": coordinate(0),
    "bump": KernelFunction([[0.7]], [-2.0], kernel=Gaussian(0.6)),
    "box": BoxIndicator([1.0], [1.5]),
}


def line_space(eta: float = 0.6, m: int = 11, measure: Any = LINE) -> ksos.SoSSpace:
    kernel = Gaussian(eta)
    return ksos.SoSSpace(kernel, np.linspace(-2.0, 2.0, m)[:, None], measure, Gaussian(1.0), np.linspace(-2.0, 2.0, 15)[:, None])


def problem(loss: Observable, space: ksos.SoSSpace | None = None, data: np.ndarray | None = None) -> BallProblem:
    space = line_space() if space is None else space
    M = Expectation(loss).bind(space).D  # type: ignore[attr-defined]
    return BallProblem(space, M, points(12, space.n_features) if data is None else data)


def conic(pb: BallProblem, radius: float) -> float:
    return conic_worst_case(np.asarray(pb.space.compressed_map.tensor), pb.z, pb.M, radius)


@pytest.mark.parametrize("radius", [0.05, 0.3, 0.9])
@pytest.mark.parametrize("loss", LOSSES.values(), ids=LOSSES)
def test_optimum_of_the_conic_solver(loss: Observable, radius: float) -> None:
    pb = problem(loss)
    found = pb.solve(radius)
    assert found.status == "solved"
    assert found.gap <= 1e-8 * pb.spread
    assert found.point.distance <= radius
    assert found.value == pytest.approx(conic(pb, radius), rel=1e-6, abs=1e-6 * pb.spread)


MEASURES = {"lebesgue": Lebesgue(), "normal": Normal(0.1, 0.8), "half box": Box([-np.inf], [1.0]), "nodes": Discrete.quadrature(LINE, 60)}


@pytest.mark.parametrize("measure", MEASURES.values(), ids=MEASURES)
def test_on_every_measure(measure: Any) -> None:
    pb = problem(coordinate(0) ** 2, line_space(measure=measure))
    found = pb.solve(0.2)
    assert found.status == "solved"
    assert found.value == pytest.approx(conic(pb, 0.2), rel=1e-6)


@pytest.mark.parametrize("measure", MEASURES.values(), ids=MEASURES)
@pytest.mark.parametrize("kernel", ["gaussian", "laplace", "matern"])
def test_laws_of_the_value_in_the_radius(kernel: str, measure: Any) -> None:
    """Nondecreasing, concave, between every feasible density and every dual point, on every kernel and measure."""
    if kernel != "gaussian" and not isinstance(measure, Discrete):
        pytest.skip("no closed form")
    make = KERNELS[kernel]
    space = ksos.SoSSpace(make(0.6), np.linspace(-2.0, 2.0, 9)[:, None], measure, make(1.0), np.linspace(-2.0, 2.0, 11)[:, None])
    pb = problem(coordinate(0) ** 2, space)
    least = pb.penalised(1e8, None, 1e-6)[0].distance
    radii = np.linspace(1.05 * least + 1e-3, 0.7, 5)
    found = [pb.solve(float(radius), 1e-8) for radius in radii]
    values = np.array([one.value for one in found])
    assert all(one.status == "solved" for one in found)
    assert all(one.value <= one.dual_value + 1e-12 for one in found)
    assert np.all(np.diff(values) >= -1e-8 * pb.spread)
    assert np.all(np.diff(values, 2) <= 3e-8 * pb.spread)
    for one in found:  # weak duality: no density in a ball exceeds the dual value of that ball
        for radius, other in zip(radii, found, strict=True):
            dual, _ = pb.dual(one.y / pb.spread, float(radius))
            assert other.value <= pb.middle + pb.spread * dual + 1e-9 * pb.spread


def test_kernels_that_are_not_smooth_live_on_nodes() -> None:
    nodes = Discrete.quadrature(LINE, 50)
    space = ksos.SoSSpace(Laplace(0.7), np.linspace(-2.0, 2.0, 9)[:, None], nodes, Laplace(1.0), nodes.points[::4])
    pb = problem(coordinate(0) ** 2, space)
    assert pb.solve(0.3).value == pytest.approx(conic(pb, 0.3), rel=1e-6)


def test_two_features() -> None:
    axis = np.linspace(-1.5, 1.5, 4)
    support = np.stack([a.ravel() for a in np.meshgrid(axis, axis)], axis=1)
    space = ksos.SoSSpace(Gaussian([0.9, 0.7]), support, Box([-1.5, -1.5], [1.5, 1.5]), Gaussian(1.0))
    pb = problem(Polynomial({(2, 0): 1.0, (1, 1): 0.5, (0, 1): -1.0}), space)
    assert pb.solve(0.25).value == pytest.approx(conic(pb, 0.25), rel=1e-6)


SOLVED = [(name, radius) for name in LOSSES for radius in (0.03, 0.2, 0.8, 1.2)]


@cache
def solved(name: str, radius: float) -> tuple[BallProblem, BallSolution]:
    pb = problem(LOSSES[name])
    return pb, pb.solve(radius, tol=1e-5)


@given(st.integers(0, 2**32 - 1), st.sampled_from(SOLVED))
def test_weak_duality_is_never_violated(seed: int, case: tuple[str, float]) -> None:
    """Any y bounds any feasible C."""
    rng, radius = np.random.default_rng(seed), case[1]
    pb, best = solved(*case)
    y = rng.normal(size=pb.z.shape[0]) * 10.0 ** rng.uniform(-3.0, 1.0)
    bound, _ = pb.dual(y, radius)
    assert bound >= (best.value - pb.middle) / pb.spread - 1e-12
    assert best.dual_value >= best.value - 1e-13 * pb.spread
    # and with the dual's own y the definition gives the dual value
    M, A = np.asarray(pb.M), np.asarray(pb.space.compressed_map.tensor)
    again = np.linalg.eigvalsh(M - np.tensordot(best.y, A, axes=1))[-1] + best.y @ pb.z + radius * np.linalg.norm(best.y)
    assert best.dual_value == pytest.approx(again, rel=1e-9, abs=1e-9)


def test_value_is_nondecreasing_and_concave_in_the_radius() -> None:
    pb = problem(coordinate(0) ** 2)
    radii = np.linspace(0.05, 1.3, 12)
    values = np.array([pb.solve(radius).value for radius in radii])
    slopes = np.diff(values) / np.diff(radii)
    assert np.all(slopes >= -1e-7)
    assert np.all(np.diff(slopes) <= 1e-6)
    assert slopes[0] > 1.0 and slopes[-1] == pytest.approx(0.0, abs=1e-6)


def test_the_dual_norm_is_the_slope_in_the_radius() -> None:
    pb = problem(coordinate(0) ** 2)
    found = pb.solve(0.3, tol=1e-10)
    slope = (pb.solve(0.301, tol=1e-10).value - pb.solve(0.299, tol=1e-10).value) / 0.002
    assert np.linalg.norm(found.y) == pytest.approx(slope, rel=1e-3)


def test_a_large_ball_holds_the_top_of_the_space() -> None:
    pb = problem(coordinate(0) ** 2)
    found = pb.solve(1.9)
    assert found.value == pytest.approx(float(np.linalg.eigvalsh(pb.M)[-1]), abs=1e-12)
    assert found.gap <= 1e-12
    assert np.linalg.norm(found.y) == 0.0


def test_an_empty_ball_is_proven_empty() -> None:
    pb = problem(coordinate(0) ** 2, line_space(eta=2.0, m=4), np.array([[0.3]]))
    least = math.sqrt(max(ksos.minimize(ksos.functionals.SquaredMMD([[0.3]]), pb.space, tol=1e-12).objective, 0.0))
    found = pb.solve(0.9 * least)
    assert found.status == "infeasible"
    assert found.least_radius is not None
    assert 0.9 * least < found.least_radius <= least + 1e-9
    assert pb.solve(1.001 * least).status == "solved"


def test_a_radius_just_above_the_least() -> None:
    pb = problem(coordinate(0) ** 2, line_space(eta=2.0, m=4), np.array([[0.3]]))
    least = math.sqrt(ksos.minimize(ksos.functionals.SquaredMMD([[0.3]]), pb.space, tol=1e-13).objective)
    found = pb.solve(least * (1.0 + 1e-6))
    assert found.status in ("solved", "solved_inaccurate")
    assert found.point.distance <= least * (1.0 + 1e-6)
    assert found.value <= found.dual_value


@pytest.mark.parametrize("scale", [1e-150, 1e150])
def test_the_unit_of_the_loss_does_not_matter(scale: float) -> None:
    one, other = problem(coordinate(0) ** 2), problem(scale * coordinate(0) ** 2)
    assert other.solve(0.3).value / scale == pytest.approx(one.solve(0.3).value, rel=1e-9)
    shifted = problem(coordinate(0) ** 2 + 1e6)
    assert shifted.solve(0.3).value - 1e6 == pytest.approx(one.solve(0.3).value, abs=1e-6)


def test_a_constant_loss_is_its_value() -> None:
    found = problem(Polynomial([3.0])).solve(0.3)
    assert found.value == found.dual_value == pytest.approx(3.0)
    assert found.point.distance <= 0.3


def test_warm_starts_change_nothing() -> None:
    pb = problem(coordinate(0) ** 2)
    first = pb.solve(0.3)
    again = pb.solve(0.31, start=first.point.C, multiplier=first.multiplier)
    assert again.value == pytest.approx(pb.solve(0.31).value, abs=3e-8 * pb.spread)


def test_a_value_that_jumps_in_the_multiplier() -> None:
    """Two equal places to go: the penalised optimum leaps from one mixture to another, and the bracket must close all the same."""
    space = ksos.SoSSpace(
        Gaussian(0.3), np.linspace(-2.0, 2.0, 41)[:, None], LINE, Gaussian(1.0), np.linspace(-2.0, 2.0, 41)[:, None], 1e-8, 1e-9
    )
    for theta, value in ((0.0, 0.02473), (-0.1, 0.02497), (0.45, 0.03442)):
        found = problem(KernelFunction([[theta]], [-1.0], kernel=Gaussian(1.0)), space, np.zeros((1, 1))).solve(1.2, tol=1e-7)
        assert found.status == "solved"
        assert -found.value == pytest.approx(value, abs=2e-5)


def test_a_time_limit_is_a_status() -> None:
    found = problem(coordinate(0) ** 2, line_space(0.3, 41)).solve(0.05, tol=1e-13, time_limit=1e-3)
    assert found.status in ("time_limit", "solved_inaccurate", "undecided", "solved")
    assert found.status == "time_limit" or found.n_solves > 1
