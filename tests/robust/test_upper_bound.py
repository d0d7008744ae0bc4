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
    Event,
    KernelFunction,
    Maximum,
    NumericFunction,
    Observable,
    Polynomial,
    climbed,
    coordinate,
    enclosure,
    proven_supremum,
    searched_supremum,
)
from ksos.robust import supremum_on

QUADRATICS = Maximum(
    [0.5, -0.2, 0.1],
    [[1.0, -2.0], [0.3, 0.0], [-1.0, 1.0]],
    np.array([np.eye(2), [[0.0, 1.0], [1.0, -2.0]], np.zeros((2, 2))]),
    [0.2, -0.4],
)
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
        {(2, 1): 1.0, (0, 3): -2.0, (1, 0): 0.5, (0, 0): 4.0, (4, 0): -1.0}, center=[0.3, -0.2]
    ),
    "square": Polynomial({(2, 0): -1.0, (0, 2): 1.0}),
    "box": BoxIndicator([-0.5, -np.inf], [0.25, 0.5]),
    "minus a box": -2.0 * BoxIndicator([-0.5, -1.0], [0.25, 0.5]),
    "a sum": (
        Polynomial({(2, 0): 1.0})
        - KernelFunction(points(3, 2), [1.0, 2.0, -1.0], kernel=Gaussian(0.7))
        + BoxIndicator([0.0, 0.0], [1.0, 1.0])
    ),
    "a maximum": QUADRATICS,
    "a maximum minus a kernel function": (
        2.0 * QUADRATICS
        - KernelFunction(points(5, 2), [2.0, -3.0, 1.0, 0.5, -0.2], kernel=Gaussian(0.7))
        + Polynomial({(3, 0): 0.3})
    ),
    "an event": (
        3.0 * Event(QUADRATICS)
        + KernelFunction(points(3, 2), [1.0, 2.0, -1.0], kernel=Gaussian(0.7))
    ),
    "wrapped": NumericFunction(Polynomial({(2, 1): 1.0})) * 3.0,
}


@given(st.integers(0, 2**32 - 1), st.sampled_from(sorted(FUNCTIONS)), st.floats(-4.0, 0.5))
@settings(max_examples=80)
def test_no_point_of_a_cell_exceeds_its_bound(seed: int, name: str, log_size: float) -> None:
    rng = np.random.default_rng(seed)
    f, bounds = FUNCTIONS[name], enclosure(FUNCTIONS[name])
    assert bounds is not None
    centers, half = rng.uniform(-2.0, 2.0, (20, 2)), 10.0**log_size * rng.uniform(0.2, 1.0, (20, 2))
    found = bounds(centers, half)
    upper = found.upper(half)
    np.testing.assert_allclose(found.value, f(centers), atol=1e-12)
    for corner in (
        rng.uniform(-1.0, 1.0, (50, 2)),
        np.array([[1.0, 1.0], [-1.0, 1.0], [1.0, -1.0], [-1.0, -1.0], [0.0, 1.0]]),
    ):
        for shift in corner:
            assert np.all(f(centers + shift * half) <= upper + 1e-12 * (1.0 + np.abs(upper)))


@pytest.mark.parametrize(
    "name", [name for name in FUNCTIONS if "box" not in name and "sum" not in name]
)
def test_bounds_close_in_on_the_function(name: str) -> None:
    f, bounds = FUNCTIONS[name], enclosure(FUNCTIONS[name])
    assert bounds is not None
    centers = points(10, 2, 3)
    wide, narrow = (
        float(np.max(bounds(centers, np.full((10, 2), h)).upper(np.full((10, 2), h)) - f(centers)))
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


def test_a_maximum_and_an_event_are_what_they_are_called() -> None:
    X = np.random.default_rng(0).normal(size=(40, 2))
    Y = X - [0.2, -0.4]
    each = [
        0.5 + Y @ [1.0, -2.0] + np.sum(Y**2, axis=1),
        -0.2 + 0.3 * Y[:, 0] + 2.0 * Y[:, 0] * Y[:, 1] - 2.0 * Y[:, 1] ** 2,
        0.1 - Y[:, 0] + Y[:, 1],
    ]
    np.testing.assert_allclose(QUADRATICS(X), np.max(each, axis=0), atol=1e-14)
    np.testing.assert_array_equal(Event(QUADRATICS)(X), np.max(each, axis=0) > 0.0)
    with pytest.raises(ValueError, match="one row per constant"):
        Maximum([1.0, 2.0], [[1.0]])
    with pytest.raises(ValueError, match=r"curves must have shape \(1, 1, 1\)"):
        Maximum([1.0], [[1.0]], [[1.0]])


def test_curvature_spares_cells() -> None:
    """Up to six features the bounds know the second derivatives, which halves the side of cells."""
    rng = np.random.default_rng(0)
    g = KernelFunction(rng.uniform(-1.0, 1.0, (50, 3)), rng.normal(size=50), kernel=Gaussian(0.8))
    bounds = enclosure(QUADRATICS_3 - g)
    assert bounds is not None
    box = Box([-1.0] * 3, [1.0] * 3)
    found = proven_supremum(bounds, box, 1e-2, max_cells=30_000)
    assert found.proven and found.bound <= found.attained + 1e-2


QUADRATICS_3 = Maximum([0.0, 0.1], [[1.0, 0.0, -1.0], [0.0, 1.0, 0.5]])


def test_a_search_along_axes_ends_at_the_top() -> None:
    rng = np.random.default_rng(1)
    f = Maximum([0.0], [[1.0, -1.0]], [-np.eye(2)])  # largest at (½, −½)
    at, values = climbed(f, Box([-1.0, -1.0], [1.0, 1.0]), rng.uniform(-1.0, 1.0, (20, 2)))
    np.testing.assert_allclose(at, np.tile([0.5, -0.5], (20, 1)), atol=1e-3)
    np.testing.assert_allclose(values, 0.5, atol=1e-6)
