"""Marginals and conditionals on discrete measures: the masses are those of the atoms, for every
kernel, on grids and scattered.
"""

from __future__ import annotations

import numpy as np
import pytest
from densities import random_density
from tables import KERNEL_CASES, points

import ksos
from ksos.kernels import Gaussian, Kernel, Laplace, Matern
from ksos.measures import Box, Discrete

every_kernel = pytest.mark.parametrize("kernel", KERNEL_CASES.values(), ids=KERNEL_CASES)
GRID = Discrete.quadrature(Box([-1.0, -0.5], [1.0, 1.5]), [7, 5])
SCATTERED = Discrete(
    np.round(points(30, 2, 5), 1), np.linspace(0.5, 1.5, 30)
)  # some coordinates, and some points, occur twice
assert np.unique(SCATTERED.points[:, 0]).size < 30
LOADED = Discrete(
    GRID.points, GRID.weights * np.linspace(0.5, 2.0, 35)
)  # a grid, but not a product of measures
every_measure = pytest.mark.parametrize(
    "measure", [GRID, SCATTERED, LOADED], ids=["grid", "scattered", "loaded"]
)


def law(p: ksos.SoSDensity) -> dict[tuple[float, ...], float]:
    """The mass of every distinct atom."""
    out: dict[tuple[float, ...], float] = {}
    for x, mass in zip(
        p.measure.points.tolist(), p.measure.weights * p.pdf(p.measure.points), strict=True
    ):
        out[tuple(x)] = out.get(tuple(x), 0.0) + mass
    return out


def project(masses: dict[tuple[float, ...], float], keep: int) -> dict[tuple[float, ...], float]:
    out: dict[tuple[float, ...], float] = {}
    for x, mass in masses.items():
        out[(x[keep],)] = out.get((x[keep],), 0.0) + mass
    return out


def assert_same_law(got: dict, expected: dict) -> None:
    assert set(got) <= set(expected)
    for x, mass in expected.items():
        assert got.get(x, 0.0) == pytest.approx(mass, rel=1e-9, abs=1e-14)


@every_kernel
@every_measure
@pytest.mark.parametrize("keep", [0, 1])
def test_a_marginal_has_the_masses_of_merged_atoms(
    kernel: Kernel, measure: Discrete, keep: int
) -> None:
    p = random_density(kernel, measure, d=2, m=6)
    q = p.marginal([keep])
    assert_same_law(law(q), project(law(p), keep))
    assert q.mean()[0] == pytest.approx(p.mean()[keep])
    assert np.unique(q.measure.points, axis=0).shape == q.measure.points.shape  # atoms merge
    assert q.terms.mass() == pytest.approx(1.0, abs=1e-12)


@every_kernel
@every_measure
def test_a_conditional_has_the_masses_of_the_atoms_that_fulfil_it(
    kernel: Kernel, measure: Discrete
) -> None:
    p = random_density(kernel, measure, d=2, m=6)
    joint = law(p)
    for value in np.unique(measure.points[:, 1])[::3]:
        c = p.conditional({1: value})
        hit = {(x[0],): mass for x, mass in joint.items() if x[1] == value}
        total = sum(hit.values())
        assert_same_law(law(c), {x: mass / total for x, mass in hit.items()})


@every_kernel
@every_measure
def test_many_conditions_on_atoms(kernel: Kernel, measure: Discrete) -> None:
    """exp(log p(x | x_S)), weighted by ρ given x_S, has mass one for every condition."""
    p = random_density(kernel, measure, d=2, m=6)
    log_density = p.conditional_logpdf(measure.points, given=[1])
    for value in np.unique(measure.points[:, 1]):
        hit = measure.points[:, 1] == value
        weights = measure.weights[hit] / measure.weights[hit].sum()
        assert weights @ np.exp(log_density[hit]) == pytest.approx(1.0, rel=1e-9)
    np.testing.assert_allclose(
        np.diff(log_density[hit]), np.diff(p.logpdf(measure.points[hit])), atol=1e-9
    )


SEPARABLE = {name: kernel for name, kernel in KERNEL_CASES.items() if kernel.separable(2)}


@pytest.mark.parametrize("kernel", SEPARABLE.values(), ids=SEPARABLE)
def test_on_a_grid_the_density_is_a_function_that_any_value_may_condition(kernel: Kernel) -> None:
    p = random_density(kernel, GRID, d=2, m=6)
    q, c = p.marginal([1]), p.conditional({1: 0.123})
    np.testing.assert_allclose(
        q.measure.weights.sum(), GRID.weights.sum()
    )  # the marginal of the measure itself
    X = np.stack([np.linspace(-1.0, 1.0, 9), np.full(9, 0.123)], axis=1)
    np.testing.assert_allclose(c.logpdf(X[:, :1]) + q.logpdf(X[:, 1:]), p.logpdf(X), atol=1e-9)
    np.testing.assert_allclose(p.conditional_logpdf(X, [1]), c.logpdf(X[:, :1]), atol=1e-9)


@pytest.mark.parametrize("kernel", [Laplace(0.8), Matern(1.5, 0.8), Matern(0.8, 0.8)], ids=repr)
def test_between_the_nodes_of_a_rule_an_interpolated_marginal_is_close_to_the_integral(
    kernel: Kernel,
) -> None:
    rule = Discrete.quadrature(Box([-2.0, -2.0], [2.0, 2.0]), 40)
    p = random_density(kernel, rule, d=2, m=6)
    q = p.marginal([0])
    x, (nodes, w) = np.linspace(-1.5, 1.5, 11), np.polynomial.legendre.leggauss(40)
    expected = [2.0 * w @ p.pdf(np.stack([np.full(40, v), 2.0 * nodes], axis=1)) for v in x]
    np.testing.assert_allclose(
        4.0 * q.pdf(x[:, None]), expected, rtol=0.03
    )  # relative to the projected rule, whose weights hold the side 4


def test_on_a_grid_any_value_may_condition_kernels_that_are_no_products_too() -> None:
    p = random_density(Matern(1.5, 0.8), GRID, d=2, m=6)
    c = p.conditional({1: 0.123})
    at = np.unique(GRID.points[:, 0])
    _, w = np.polynomial.legendre.leggauss(7)
    masses = w * p.pdf(np.stack([at, np.full(7, 0.123)], axis=1))
    assert_same_law(
        law(c), {(x,): mass for x, mass in zip(at.tolist(), masses / masses.sum(), strict=True)}
    )
    with pytest.raises(ValueError, match="condition on values of atoms"):
        p.conditional_logpdf([[0.0, 0.123]], given=[1])


def test_a_marginal_of_a_conditional_and_a_conditional_of_a_marginal() -> None:
    rule = Discrete.quadrature(Box([-1.0] * 3, [1.0] * 3), [3, 4, 5])
    for kernel in (Gaussian(0.9), Matern(1.5, 0.9)):
        p = ksos.SoSDensity(kernel, points(5, 3, 1), points(5, 2, 2), rule, normalize=True)
        value = float(rule.points[0, 0])
        left, right = (
            p.marginal([0, 2]).conditional({0: value}),
            p.conditional({0: value}).marginal([1]),
        )
        assert_same_law(law(left), law(right))


def test_a_million_conditions_on_atoms() -> None:
    p = random_density(Matern(1.5, 0.8), SCATTERED, d=2, m=6)
    X = np.tile(SCATTERED.points, (33_334, 1))[:1_000_000]
    out = p.conditional_logpdf(X, given=[0])
    np.testing.assert_array_equal(out[:30], p.conditional_logpdf(SCATTERED.points, given=[0]))
    np.testing.assert_array_equal(out[:30], out[30 * 33_333 - 30 : 30 * 33_333])


def test_conditions_that_no_atom_fulfils() -> None:
    p = random_density(Gaussian(0.8), SCATTERED, d=2, m=6)
    with pytest.raises(
        ValueError,
        match=(
            r"no atom of Discrete\(30 nodes in 2 features\) has \{0: 0\.123\}.* the nearest is \{0:"
            r" 0\.1\}"
        ),
    ):
        p.conditional({0: 0.123})
    with pytest.raises(
        ValueError,
        match=r"of 1 of 2 rows of X, first of row 1, \{0: 7\.0\}: condition on values of atoms",
    ):
        p.conditional_logpdf([SCATTERED.points[0], [7.0, 0.0]], given=[0])


def test_conditions_where_the_density_vanishes() -> None:
    nodes = Discrete([[0.0, 0.0], [0.0, 1.0], [500.0, 0.0], [500.0, 1.0]])
    for kernel in (Gaussian(1.0), Matern(1.5, 0.1)):
        p = ksos.SoSDensity(kernel, [[0.0, 0.0], [0.0, 1.0]], [[1.0], [0.5]], nodes, normalize=True)
        assert p.conditional({0: 500.0}).terms.mass() == pytest.approx(
            1.0
        )  # far away, and finite in logarithms
        assert p.marginal([0]).mean()[0] == pytest.approx(0.0, abs=1e-12)
    p = ksos.SoSDensity(
        Gaussian(1.0),
        [[-1.0, 0.0], [1.0, 0.0]],
        [[1.0], [-1.0]],
        Discrete([[0.0, 0.0], [1.0, 0.0], [0.0, 1.0]]),
        normalize=True,
    )
    with pytest.raises(ValueError, match="vanishes at"):
        p.conditional({0: 0.0})
    far = Discrete([[0.0, 0.0], [1e200, 0.0], [1e200, 1.0]])
    p = ksos.SoSDensity(Matern(1.5, 1.0), [[0.0, 0.0]], [[1.0]], far, normalize=True)
    assert p.marginal([0]).mean()[0] == pytest.approx(0.0, abs=1e-12)
    with pytest.raises(ValueError, match=r"vanishes at|kernel vanishes"):
        ksos.SoSDensity(Gaussian(1.0), [[0.0, 0.0]], [[1.0]], far, normalize=True).conditional(
            {0: 1e200}
        )
    with pytest.raises(ValueError, match="vanishes in 2 of 3 rows of X"):
        ksos.SoSDensity(
            Gaussian(1.0), [[0.0, 0.0]], [[1.0]], far, normalize=True
        ).conditional_logpdf(far.points, [0])


@every_measure
def test_times_gaussian_and_affine_move_masses(measure: Discrete) -> None:
    for kernel in (Gaussian(0.8), Matern(1.5, 0.8)):
        p = random_density(kernel, measure, d=2, m=6)
        posterior = law(p.times_gaussian([0.2, 0.0], [0.5, np.inf]))
        expected = {
            x: mass * np.exp(-0.5 * ((x[0] - 0.2) / 0.5) ** 2) for x, mass in law(p).items()
        }
        total = sum(expected.values())
        assert_same_law(posterior, {x: mass / total for x, mass in expected.items()})
        moved = p.affine([2.0, -1.0], [0.0, 1.0])
        np.testing.assert_allclose(sorted(law(moved).values()), sorted(law(p).values()), atol=1e-12)
