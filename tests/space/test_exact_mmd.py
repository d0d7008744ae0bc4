"""The exact MMD of a density: every route gives the same number, which is that of a fine sum, and
what a worst case reports.
"""

from __future__ import annotations

import warnings

import numpy as np
import pytest
from densities import random_density
from oracles import quadrature_rule
from tables import MEASURE_CASES, points

import ksos
from ksos.density import square_of
from ksos.exceptions import IntegralNotAvailableError
from ksos.integrals import density_inner
from ksos.kernels import Gaussian, Kernel, Laplace
from ksos.measures import Box, Discrete, Lebesgue, Measure, Normal
from ksos.observables import KernelFunction, coordinate
from ksos.quadrature import composite
from ksos.space import TensorRule, require_exact_mmd

every_measure = pytest.mark.parametrize(
    "name", [name for name, by_dimension in MEASURE_CASES.items() if 1 in by_dimension]
)
CONTINUOUS = [name for name in MEASURE_CASES if name != "discrete"]
SIGNED = [0.5, -0.2, 0.3, 0.2, 0.1, 0.1]


def by_atoms(
    p: ksos.SoSDensity, data: ksos.MeanEmbedding, nodes: np.ndarray, weights: np.ndarray
) -> float:
    """The MMD from the values of p at the nodes of a rule, as the sum that it is."""
    mass = weights * p.pdf(nodes)
    return float(
        np.sqrt(mass @ data.kernel(nodes) @ mass - 2.0 * mass @ data(nodes) + data.norm() ** 2)
    )


def by_rule(p: ksos.SoSDensity, data: ksos.MeanEmbedding) -> float:
    rule = TensorRule.of(p.kernel, p.support_points, p.measure, data.kernel)
    masses = rule.masses(p)
    seen = float(rule.seen_from(data.points, masses) @ data.weights)
    assert np.vdot(masses, rule.atoms_at_nodes(data.points, data.weights)) == pytest.approx(
        seen, abs=1e-12
    )
    return float(np.sqrt(np.vdot(masses, rule.smoothed(masses)) - 2.0 * seen + data.norm() ** 2))


@every_measure
def test_against_quadrature(name: str) -> None:
    measure = MEASURE_CASES[name][1]
    p = random_density(Gaussian(0.6), measure)
    data = ksos.MeanEmbedding(points(6, 1), SIGNED, kernel=Gaussian(0.9))
    expected = by_atoms(p, data, *quadrature_rule(p.kernel, measure, p.support_points))
    assert ksos.mmd(p, data) == pytest.approx(expected, abs=1e-9)
    assert ksos.mmd(data, p) == pytest.approx(expected, abs=1e-9)


@pytest.mark.parametrize("name", [name for name in CONTINUOUS if 1 in MEASURE_CASES[name]])
@pytest.mark.parametrize(
    ("d", "kernel", "other"),
    [(1, Gaussian(0.6), Gaussian(0.9)), (2, Gaussian([0.9, 1.2]), Gaussian(1.3))],
    ids=str,
)
def test_routes_agree(name: str, d: int, kernel: Kernel, other: Kernel) -> None:
    p = random_density(kernel, MEASURE_CASES[name][d], d)
    data = ksos.MeanEmbedding(points(6, d), SIGNED, kernel=other)
    assert by_rule(p, data) == pytest.approx(ksos.mmd(p, data), abs=1e-9)
    if square_of(p).integrals.pairwise:
        seen = p.expectation(KernelFunction(data.points, data.weights, kernel=other))
        square = density_inner(square_of(p), square_of(p), other) - 2.0 * seen + data.norm() ** 2
        assert np.sqrt(square) == pytest.approx(ksos.mmd(p, data), abs=1e-9)


def test_three_features() -> None:
    p = random_density(Gaussian(2.5), Box([-0.3] * 3, [0.5] * 3), 3)
    data = ksos.MeanEmbedding(points(4, 3), kernel=Gaussian(2.2))
    rule = Discrete.quadrature(Box([-0.3] * 3, [0.5] * 3), 12)
    assert ksos.mmd(p, data) == pytest.approx(
        by_atoms(p, data, rule.points, rule.weights), abs=1e-9
    )


def test_two_densities_on_grids_of_their_own() -> None:
    left, right = (
        random_density(Gaussian(0.8), Box([low, -1.0], [low + 1.5, 0.5]), 2, seed=seed)
        for low, seed in ((-0.6, 0), (0.2, 1))
    )
    kernel, rules = (
        Gaussian(0.9),
        [quadrature_rule(p.kernel, p.measure, p.support_points) for p in (left, right)],
    )
    a, b = (
        ksos.MeanEmbedding(x, w * p.pdf(x), kernel=kernel)
        for p, (x, w) in zip((left, right), rules, strict=True)
    )
    assert ksos.mmd(left, right, kernel) == pytest.approx(ksos.mmd(a, b), abs=1e-9)


def test_weights_that_cancel_cost_no_digits() -> None:
    """A density whose signed mixture cancels to 1e-10: the closed form is off by a percent."""
    support = np.linspace(-1.0, 1.0, 20)[:, None]
    for measure in (Lebesgue(), Normal(0.0, 1.0), Box([-2.0], [2.0])):
        space = ksos.SoSSpace(Gaussian(1.0), support, measure)
        p = space.density(np.eye(space.rank)[:, -1:])
        data = ksos.MeanEmbedding([[0.3]], kernel=Gaussian(1.0))
        expected = by_atoms(
            p, data, *quadrature_rule(p.kernel, measure, p.support_points, per_panel=30, reach=12.0)
        )
        assert ksos.mmd(p, data) == pytest.approx(expected, abs=1e-7)


def test_far_from_the_origin() -> None:
    near, far = (
        ksos.mmd(
            ksos.SoSDensity(
                Gaussian(0.5),
                np.array([[0.25], [0.5]]) + shift,
                [[1.0], [-0.5]],
                Box([shift], [shift + 1.0]),
                normalize=True,
            ),
            ksos.MeanEmbedding([[shift + 0.75]], kernel=Gaussian(1.0)),
        )
        for shift in (0.0, 2.0**27)
    )
    assert far == pytest.approx(near, abs=1e-7)


@pytest.mark.parametrize(
    ("d", "measure"),
    [
        (1, Box([-2.0], [2.0])),
        (1, Normal(0.0, 1.0)),
        (1, Lebesgue()),
        (2, Box([-2.0, -2.0], [2.0, 2.0])),
        (2, Normal([0.0, 0.2], [1.0, 0.8])),
        (2, Discrete.quadrature(Box([-2.0, -2.0], [2.0, 2.0]), 12)),
        (2, Lebesgue()),
        (3, Box([-1.0] * 3, [1.0] * 3)),
        (4, Lebesgue()),
    ],
    ids=str,
)
def test_a_reported_worst_case_can_be_checked_again(d: int, measure: Measure) -> None:
    data, kernel = points(6, d), Gaussian(1.5)
    space = ksos.SoSSpace(kernel, points(8, d, 1), measure)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # that the worst case is infinite on an unbounded domain
        worst = ksos.worst_case(
            coordinate(0),
            ksos.Ball(data, 0.5, kernel=space.embedding_kernel, domain=space.measure),
            space=space,
            time_limit=20.0,
        )
    assert ksos.mmd(data, worst.distribution, kernel) == pytest.approx(worst.mmd, abs=1e-9)


@pytest.mark.parametrize(
    ("kernel", "measure", "d", "message"),
    [
        (
            Laplace(1.0),
            Lebesgue(),
            1,
            "has no formula on Lebesgue.*use Gaussian kernels, or put the density on nodes",
        ),
        (
            Gaussian(1.0),
            Box([0.0] * 4, [1.0] * 4),
            4,
            "known in up to 3 features; got 4; use a Lebesgue or Normal",
        ),
        (Laplace(1.0), Discrete(points(5, 4)), 4, None),
        (Gaussian(1.0), Normal(0.0, 1.0), 9, None),
    ],
)
def test_what_has_no_formula_is_refused_before_any_work(
    kernel: Kernel, measure: Measure, d: int, message: str | None
) -> None:
    p = random_density(kernel, measure, d)
    if message is None:
        require_exact_mmd(kernel, Gaussian(1.0), measure, d)
        assert ksos.mmd(points(4, d), p, Gaussian(1.0)) > 0.0
        return
    with pytest.raises(IntegralNotAvailableError, match=message):
        require_exact_mmd(kernel, Gaussian(1.0), measure, d)
    if not kernel.smooth:
        with pytest.raises(IntegralNotAvailableError):
            ksos.mmd(points(4, d), p, kernel)


@pytest.mark.parametrize(("eta", "d"), [(0.02, 2), (0.3, 4), (0.05, 4)])
def test_pairs_of_kernels_on_a_box(eta: float, d: int) -> None:
    """Kernels inside, beside each other, at the boundary and beyond it."""
    box, kernel = Box([0.0] * d, [1.0] * d), Gaussian(np.linspace(0.4, 0.7, d))
    X = np.array([[0.3] * d, [0.3 + 0.7 * eta] * d, [0.0] + [0.6] * (d - 1), [1.0 + eta] * d])
    F = np.random.default_rng(d).normal(size=(4, 2)) * np.array([[1.0], [1.0], [2.0], [30.0]])
    p = ksos.SoSDensity(Gaussian(eta), X, F, box, normalize=True)
    F = square_of(p).unit_factor * np.exp(-0.5 * square_of(p).log_unit)
    # per feature, a rule with 40 nodes per bandwidth: the exact integrals of all four factors
    t, w = composite(np.arange(50) / 50, np.arange(1, 51) / 50, 40)
    square, z = np.ones((4, 4, 4, 4)), np.full(d, 0.35)
    cross = np.ones((4, 4))
    for k in range(d):
        along = kernel.restrict([k])
        values = np.exp(-(((t[:, None] - X[:, k]) / eta) ** 2))
        pairs = np.einsum("n,ni,nj->ijn", w, values, values)
        square *= np.einsum("ijn,nm,klm->ijkl", pairs, along(t[:, None]), pairs, optimize=True)
        cross *= pairs @ along(t[:, None], z[k : k + 1, None])[:, 0]
    B = F @ F.T
    expected = np.einsum("ij,ijkl,kl", B, square, B) - 2.0 * np.sum(B * cross) + 1.0
    assert ksos.mmd(z[None], p, kernel) ** 2 == pytest.approx(expected, rel=1e-10)
