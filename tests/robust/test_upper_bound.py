"""Bounds of functions on cells hold at every point of them, and the supremum found by cutting is
the supremum.
"""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings, strategies as st
from tables import KERNEL_CASES, points

from ksos.kernels import Gaussian, Laplace
from ksos.measures import Box, Lebesgue, Measure, Normal
from ksos.observables import (
    BoxIndicator,
    KernelFunction,
    NumericFunction,
    Observable,
    Polynomial,
    coordinate,
    enclosure,
    proven_supremum,
    searched_supremum,
)
from ksos.robust import supremum_on

FUNCTIONS: dict[str, Observable] = {
    **{
        f"kernel function, {name}": KernelFunction(
            points(5, 2), [2.0, -3.0, 1.0, 0.5, -0.2], kernel=k
        )
        for name, k in KERNEL_CASES.items()
    },
    "kernel function, per feature": KernelFunction(
        points(5, 2), [2.0, -3.0, 1.0, 0.5, -0.2], kernel=Gaussian([0.3, 1.4])
    ),
    "polynomial": Polynomial(
        {(2, 1): 1.0, (0, 3): -2.0, (1, 0): 0.5, (0, 0): 4.0, (4, 0): -1.0}, centre=[0.3, -0.2]
    ),
    "square": Polynomial({(2, 0): -1.0, (0, 2): 1.0}),
    "box": BoxIndicator([-0.5, -np.inf], [0.25, 0.5]),
    "minus a box": -2.0 * BoxIndicator([-0.5, -1.0], [0.25, 0.5]),
    "a sum": (
        Polynomial({(2, 0): 1.0})
        - KernelFunction(points(3, 2), [1.0, 2.0, -1.0], kernel=Gaussian(0.7))
        + BoxIndicator([0.0, 0.0], [1.0, 1.0])
    ),
    "wrapped": NumericFunction(Polynomial({(2, 1): 1.0})) * 3.0,
}


@given(st.integers(0, 2**32 - 1), st.sampled_from(sorted(FUNCTIONS)), st.floats(-4.0, 0.5))
@settings(max_examples=80)
def test_no_point_of_a_cell_exceeds_its_bound(seed: int, name: str, log_size: float) -> None:
    rng = np.random.default_rng(seed)
    f, bounds = FUNCTIONS[name], enclosure(FUNCTIONS[name])
    assert bounds is not None
    centres, half = rng.uniform(-2.0, 2.0, (20, 2)), 10.0**log_size * rng.uniform(0.2, 1.0, (20, 2))
    found = bounds(centres, half)
    upper = found.upper(half)
    np.testing.assert_allclose(found.value, f(centres), atol=1e-12)
    for corner in (
        rng.uniform(-1.0, 1.0, (50, 2)),
        np.array([[1.0, 1.0], [-1.0, 1.0], [1.0, -1.0], [-1.0, -1.0], [0.0, 1.0]]),
    ):
        for shift in corner:
            assert np.all(f(centres + shift * half) <= upper + 1e-12 * (1.0 + np.abs(upper)))


@pytest.mark.parametrize(
    "name", [name for name in FUNCTIONS if "box" not in name and "sum" not in name]
)
def test_bounds_close_in_on_the_function(name: str) -> None:
    f, bounds = FUNCTIONS[name], enclosure(FUNCTIONS[name])
    assert bounds is not None
    centres = points(10, 2, 3)
    wide, narrow = (
        float(np.max(bounds(centres, np.full((10, 2), h)).upper(np.full((10, 2), h)) - f(centres)))
        for h in (1e-2, 1e-4)
    )
    assert narrow <= 0.15 * wide


def test_smooth_functions_are_bounded_to_second_order_at_their_maxima() -> None:
    f = KernelFunction([[0.0]], [1.0], kernel=Gaussian(1.0))
    bounds = enclosure(f)
    assert bounds is not None
    over = [
        float(bounds(np.zeros((1, 1)), np.full((1, 1), h)).upper(np.full((1, 1), h))[0]) - 1.0
        for h in (1e-2, 1e-3)
    ]
    assert over[1] == pytest.approx(0.01 * over[0], rel=0.01)


def test_code_needs_a_lipschitz_constant() -> None:
    f = NumericFunction(lambda X: np.abs(X[:, 0]))
    assert enclosure(f) is None
    bounds = enclosure(f, lipschitz=1.0)
    assert bounds is not None
    assert bounds(np.zeros((1, 1)), np.full((1, 1), 0.5)).upper(np.full((1, 1), 0.5))[
        0
    ] == pytest.approx(0.5)


@pytest.mark.parametrize(
    "name",
    [
        name
        for name in FUNCTIONS
        if "laplace" not in name and "1/2" not in name and "0.8" not in name
    ],
)
def test_supremum_on_a_box(name: str) -> None:
    f, bounds, box = FUNCTIONS[name], enclosure(FUNCTIONS[name]), Box([-1.0, -0.5], [1.5, 1.0])
    assert bounds is not None
    found = proven_supremum(bounds, box, 1e-4)
    axes = [np.linspace(low, high, 301) for low, high in zip(box.low, box.high, strict=True)]
    highest = float(f(np.stack([a.ravel() for a in np.meshgrid(*axes)], axis=1)).max())
    assert found.proven
    assert highest <= found.bound <= max(highest, found.attained) + 2e-3
    assert found.attained == pytest.approx(float(f(found.at[None, :])[0]), abs=1e-12)
    assert found.attained <= found.bound
    assert box.contains(found.at[None, :])[0]


def test_the_boundary_is_part_of_the_box() -> None:
    bounds = enclosure(Polynomial([0.0, 1.0]))
    assert bounds is not None
    found = proven_supremum(bounds, Box([-1.0], [2.0]), 1e-6)
    assert 2.0 <= found.bound <= 2.0 + 1e-6


def test_a_bound_holds_however_few_cells_there_are() -> None:
    f = KernelFunction([[0.123]], [1.0], kernel=Laplace(0.05))
    bounds = enclosure(f)
    assert bounds is not None
    rough, fine = (
        proven_supremum(bounds, Box([-50.0], [50.0]), 1e-9, max_cells=n).bound
        for n in (5000, 200_000)
    )
    assert 1.0 <= fine <= rough


def test_shifted_far_away() -> None:
    f = KernelFunction([[1e8 + 0.25]], [1.0], kernel=Gaussian(1.0))
    bounds = enclosure(f)
    assert bounds is not None
    found = proven_supremum(bounds, Box([1e8 - 1.0], [1e8 + 1.0]), 1e-5)
    assert 1.0 <= found.bound <= 1.0 + 1e-4


@pytest.mark.parametrize(
    "loss", [Polynomial([1.0]), BoxIndicator([-np.inf], [np.inf])], ids=["constant", "indicator"]
)
@pytest.mark.parametrize(
    "measure",
    [Lebesgue(), Normal(0.0, 1.0), Box([-np.inf], [3.0])],
    ids=["lebesgue", "normal", "half box"],
)
def test_a_supremum_that_is_only_approached_at_infinity(loss: Observable, measure: Measure) -> None:
    g = KernelFunction([[0.0], [1.0]], [0.7, 0.4], kernel=Gaussian(1.0))
    found = supremum_on(loss, g, measure, Box([-1.0], [2.0]), np.zeros((1, 1)), 1e-6, None)
    assert found is not None and found.proven
    assert 1.0 <= found.bound <= 1.0 + 1e-5
    assert (
        supremum_on(coordinate(0), g, measure, Box([-1.0], [2.0]), np.zeros((1, 1)), 1e-6, None)
        is None
    )


def test_search_finds_a_narrow_peak_near_a_candidate_and_says_that_it_is_not_proven() -> None:
    f = NumericFunction(lambda X: np.exp(-np.sum((X - 0.3) ** 2, axis=1) / 1e-4))
    found = searched_supremum(
        f,
        Box([-1.0, -1.0], [1.0, 1.0]),
        np.concatenate([points(50, 2), [[0.301, 0.299], [5.0, 5.0]]]),
    )
    assert not found.proven
    assert found.bound == found.attained == pytest.approx(1.0, abs=1e-3)
