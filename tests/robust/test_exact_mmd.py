"""The exact MMD by tensor rules is that of the library, and of a fine sum, on every domain; data of both kinds."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from oracles import quadrature_rule
from tables import MEASURE_CASES, points

import ksos
from ksos.kernels import Gaussian
from ksos.measures import Box, Measure, Normal
from ksos.robust.exact_ball import exact_mmd
from ksos.robust.tensor_mmd import tensor_mmd

MEASURES = {name: by_dimension for name, by_dimension in MEASURE_CASES.items() if name != "discrete"}
every_measure = pytest.mark.parametrize("name", MEASURES)


def density(measure: Measure, d: int, kernel: Any) -> ksos.SoSDensity:
    rng = np.random.default_rng(3)
    return ksos.SoSDensity(kernel, points(5, d, 4), rng.normal(size=(5, 2)), measure, normalize=True)


SIGNED = [0.5, -0.2, 0.3, 0.2, 0.1, 0.1]


@every_measure
def test_against_quadrature(name: str) -> None:
    measure = MEASURES[name][1]
    p = density(measure, 1, Gaussian(0.6))
    data = ksos.MeanEmbedding(points(6, 1), SIGNED, kernel=Gaussian(0.9))
    nodes, weights = quadrature_rule(p.kernel, measure, p.support_points)
    mass = weights * p.pdf(nodes)
    K = data.kernel(nodes)
    square = mass @ K @ mass - 2.0 * mass @ data(nodes) + data.norm() ** 2
    assert tensor_mmd(p, data) == pytest.approx(np.sqrt(square), abs=1e-9)
    assert exact_mmd(p, data) == tensor_mmd(p, data)
    assert ksos.mmd(p, data) == pytest.approx(np.sqrt(square), abs=1e-9)


@every_measure
def test_two_features(name: str) -> None:
    p = density(MEASURES[name][2], 2, Gaussian([0.9, 1.2]))
    data = ksos.MeanEmbedding(points(6, 2), SIGNED, kernel=Gaussian(1.3))
    assert tensor_mmd(p, data) == pytest.approx(ksos.mmd(p, data), abs=1e-9)


def test_three_features() -> None:
    p = density(Box([-0.3] * 3, [0.5] * 3), 3, Gaussian(2.5))
    data = ksos.MeanEmbedding(points(4, 3), kernel=Gaussian(2.2))
    assert tensor_mmd(p, data) == pytest.approx(ksos.mmd(p, data), abs=1e-10)


def test_weights_that_cancel_cost_no_digits() -> None:
    """A density whose signed mixture cancels to 1e-10: the closed form would be off by a percent."""
    support = np.linspace(-1.0, 1.0, 20)[:, None]
    for measure in (Normal(0.0, 1.0), Box([-2.0], [2.0])):
        space = ksos.SoSSpace(Gaussian(1.0), support, measure)
        p = space.density(np.eye(space.rank)[:, -1:])
        nodes, weights = quadrature_rule(p.kernel, measure, p.support_points, per_panel=30, reach=12.0)
        mass = weights * p.pdf(nodes)
        data = ksos.MeanEmbedding([[0.3]], kernel=Gaussian(1.0))
        square = mass @ data.kernel(nodes) @ mass - 2.0 * mass @ data(nodes) + 1.0
        assert exact_mmd(p, data) == pytest.approx(np.sqrt(square), abs=1e-7)


def test_far_from_the_origin() -> None:
    near, far = (
        tensor_mmd(
            ksos.SoSDensity(Gaussian(0.5), np.array([[0.25], [0.5]]) + shift, [[1.0], [-0.5]], Box([shift], [shift + 1.0]), normalize=True),
            ksos.MeanEmbedding([[shift + 0.75]], kernel=Gaussian(1.0)),
        )
        for shift in (0.0, 2.0**27)
    )
    assert far == pytest.approx(near, abs=1e-7)
