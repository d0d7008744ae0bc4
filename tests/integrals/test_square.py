"""∫p² in closed form against quadrature, and the word it gives before it would take too long."""

from __future__ import annotations

import itertools

import numpy as np
import pytest
from densities import from_square

import ksos
from ksos.integrals import GaussianLebesgue, GaussianMetric, SquareIntegral, closed_form
from ksos.kernels import Gaussian
from ksos.measures import Lebesgue, Measure, Normal

RNG = np.random.default_rng(0)


def square(kernel: Gaussian, X: np.ndarray, measure: Measure) -> tuple[SquareIntegral, float]:
    integrals = closed_form(kernel, measure, X.shape[1])
    assert isinstance(integrals, GaussianLebesgue | GaussianMetric)
    log_unit = float(integrals.log_diagonal(X).max())
    return SquareIntegral(integrals, X, log_unit), log_unit


@pytest.mark.parametrize(
    ("sigma", "measure"),
    [
        *itertools.product([0.3, [0.9, 2.0]], [Lebesgue(), Normal([0.3, -0.2], [1.5, 0.8])]),
        ([[0.5, 0.3], [0.3, 0.6]], Lebesgue()),
    ],
)
def test_quadrature(sigma: float | list, measure: Measure) -> None:
    X, U = RNG.normal(size=(12, 2)), RNG.normal(size=(12, 3))
    integral, log_unit = square(Gaussian(sigma), X, measure)
    p = from_square(Gaussian(sigma), X, U, log_unit, measure)
    axis = np.linspace(-9.0, 9.0, 361)
    nodes = np.stack([g.ravel() for g in np.meshgrid(axis, axis, indexing="ij")], axis=1)
    weights = (axis[1] - axis[0]) ** 2 * np.exp(measure.log_density(nodes))
    expected = float(weights @ p.pdf(nodes) ** 2)
    assert integral(U @ U.T) * np.exp(-log_unit) == pytest.approx(expected, rel=1e-9)


def test_one_point_in_many_features() -> None:
    """p = k², ∫p² = (∫k⁴): σ-independent in units of ∫k²."""
    integral, _ = square(Gaussian(0.7), np.zeros((1, 6)), Lebesgue())
    assert integral(np.ones((1, 1))) == pytest.approx(0.5**3)


def test_clouds_that_do_not_see_each_other_add_up() -> None:
    X = np.concatenate([RNG.normal(size=(20, 5)), RNG.normal(size=(20, 5)) + 40.0])
    U = RNG.normal(size=(40, 4))
    U /= np.linalg.norm(U)
    both, first, last = (square(Gaussian(1.0), part, Lebesgue())[0] for part in (X, X[:20], X[20:]))
    halves = first(U[:20] @ U[:20].T) + last(U[20:] @ U[20:].T)
    assert both(U @ U.T) == pytest.approx(halves, rel=1e-10)


def test_too_many_points_are_refused_before_any_work() -> None:
    with pytest.raises(
        ksos.IntegralNotAvailableError,
        match=r"over 900 support points in 5 features .* such as n_support=500",
    ):
        square(Gaussian(1.0), RNG.normal(size=(900, 5)), Lebesgue())
