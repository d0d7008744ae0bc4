"""The laws of one feature given the others, against the density itself on a fine quadrature rule
and against closed-form moments.
"""

from __future__ import annotations

import itertools

import numpy as np
import pytest
from densities import from_square, make_density
from hypothesis import given, settings, strategies as st
from oracles import quadrature_rule
from tables import PAIR_CASES, PairCase, answers_itself, points

from ksos import SoSDensity
from ksos.density import ConditionalLine, square_of
from ksos.kernels import Gaussian
from ksos.measures import Discrete, Lebesgue

CASES = {
    name: case
    for name, case in PAIR_CASES.items()
    if case.d == 2
    and case.kernel.separable(2)
    and not isinstance(case.measure, Discrete)
    and answers_itself(case)
}
ROWS = np.array([[-0.2], [0.1], [0.3]])

every_pair = pytest.mark.parametrize("case", CASES.values(), ids=CASES)


def law_by_quadrature(p: SoSDensity, x: float) -> tuple[np.ndarray, np.ndarray]:
    """Nodes y and masses p(y | x)dy from the density's own pdf."""
    nodes, w = quadrature_rule(
        p.kernel.restrict([1]), p.measure.restrict([1]), p.support_points[:, [1]]
    )
    masses = w * p.pdf(np.column_stack([np.full(nodes.shape[0], x), nodes[:, 0]]))
    return nodes[:, 0], masses / masses.sum()


@every_pair
def test_moments_against_quadrature(case: PairCase) -> None:
    p = make_density(case, 7, 3, seed=3)
    mean, deviation = ConditionalLine(square_of(p), 1).moments(ROWS)
    for i, x in enumerate(ROWS[:, 0]):
        y, masses = law_by_quadrature(p, x)
        expected = masses @ y
        assert mean[i] == pytest.approx(expected, rel=1e-9, abs=1e-10)
        assert deviation[i] == pytest.approx(np.sqrt(masses @ (y - expected) ** 2), rel=1e-8)


@every_pair
def test_mass_is_the_marginal_density(case: PairCase) -> None:
    p = make_density(case, 7, 3, seed=3)
    expected = p.marginal([0]).logpdf(ROWS)
    np.testing.assert_allclose(ConditionalLine(square_of(p), 1).log_mass(ROWS), expected, atol=1e-9)
    far = np.array([[300.0]]) if isinstance(p.measure, Lebesgue) and p.kernel.smooth else ROWS[:1]
    np.testing.assert_allclose(
        ConditionalLine(square_of(p), 1).log_mass(far), p.marginal([0]).logpdf(far), rtol=1e-9
    )


@every_pair
def test_cdf_against_the_conditional_density(case: PairCase) -> None:
    p = make_density(case, 7, 3, seed=3)
    thresholds = np.array([-0.25, 0.05, 0.3])
    got = ConditionalLine(square_of(p), 1).cdf(ROWS, thresholds)
    for i, (x, t) in enumerate(zip(ROWS[:2, 0], thresholds[:2], strict=True)):
        low, high = p.measure.boundary(1)
        reach = 9.0 if p.kernel.smooth else 60.0
        a, b = max(low, -reach), min(high, reach)
        kinks = np.unique(np.clip(p.support_points[:, 1], a, b))
        below = integrate(p, x, np.unique(np.r_[a, kinks[kinks < t], t]))
        total = below + integrate(p, x, np.unique(np.r_[t, kinks[kinks > t], b]))
        assert got[i] == pytest.approx(below / total, rel=1e-9, abs=1e-12)


def integrate(p: SoSDensity, x: float, edges: np.ndarray) -> float:
    """∫ p(x, y) ρ(dy) between the first and the last edge, with edges at the kinks."""
    nodes, weights = np.polynomial.legendre.leggauss(24)
    total = 0.0
    for a, b in itertools.pairwise(edges):
        for c, d in itertools.pairwise(np.linspace(a, b, 17)):
            y = 0.5 * (c + d) + 0.5 * (d - c) * nodes
            rows = np.column_stack([np.full(y.shape, x), y])
            total += (
                0.5
                * (d - c)
                * float(
                    weights
                    @ (p.pdf(rows) * np.exp(p.measure.restrict([1]).log_density(y[:, None])))
                )
            )
    return total


@every_pair
def test_quantile_undoes_cdf(case: PairCase) -> None:
    line = ConditionalLine(square_of(make_density(case, 7, 3, seed=3)), 1)
    levels = np.tile([0.001, 0.2, 0.5, 0.9, 0.999], (ROWS.shape[0], 1))
    values = line.quantile(ROWS, levels)
    assert np.all(np.diff(values, axis=1) > 0.0)
    for j in range(levels.shape[1]):
        np.testing.assert_allclose(line.cdf(ROWS, values[:, j]), levels[:, j], atol=1e-12)


@settings(max_examples=40, deadline=None)
@given(st.lists(st.floats(0.0, 1.0), min_size=1, max_size=6), st.integers(0, 3))
def test_quantiles_are_monotone_and_inside(levels: list[float], which: int) -> None:
    case = list(CASES.values())[which * len(CASES) // 4]
    p = make_density(case, 7, 3, seed=3)
    q = np.sort(np.array(levels))
    values = ConditionalLine(square_of(p), 1).quantile(ROWS, np.tile(q, (ROWS.shape[0], 1)))
    assert np.all(np.isfinite(values)) and np.all(np.diff(values, axis=1) >= 0.0)
    low, high = p.measure.boundary(1)
    assert np.all((values >= low) & (values <= high))


def test_first_feature_given_the_second() -> None:
    """The feature need not be the last: exchanging the columns exchanges the roles."""
    p = make_density(CASES["gaussian, per feature × lebesgue, d=2"], 7, 3, seed=3)
    swapped = SoSDensity(p.kernel.restrict([1, 0]), p.support_points[:, ::-1], p.factor, Lebesgue())
    for one, other in zip(
        ConditionalLine(square_of(p), 0).moments(ROWS),
        ConditionalLine(square_of(swapped), 1).moments(ROWS),
        strict=True,
    ):
        np.testing.assert_allclose(one, other, rtol=1e-12)


def test_conditioning_on_many_features_at_once() -> None:
    X = points(9, 4, 1)
    p = SoSDensity(
        Gaussian([0.9, 0.7, 1.1, 0.6]),
        X,
        np.random.default_rng(0).normal(size=(9, 2)),
        normalize=True,
    )
    rows = points(5, 3, 8)
    mean, deviation = ConditionalLine(square_of(p), 2).moments(rows)
    for row, m, s in zip(rows, mean, deviation, strict=True):
        alone = p.conditional({0: row[0], 1: row[1], 3: row[2]})
        assert m == pytest.approx(alone.mean()[0], abs=1e-10)
        assert s == pytest.approx(np.sqrt(alone.cov()[0, 0]), abs=1e-10)


@pytest.mark.parametrize("extra", [0, 2])
def test_columns_of_one_point_each_are_a_kernel_density_estimate(extra: int) -> None:
    """B = diagonal + low rank takes a shorter way to the same laws."""
    X, rng = points(12, 2, 4), np.random.default_rng(5)
    factor = np.concatenate(
        [
            np.diag(rng.uniform(0.2, 1.0, 12)),
            np.diag(np.full(12, 0.1))[:, :3],
            rng.normal(size=(12, extra)),
        ],
        axis=1,
    )
    # the same B, without a zero in its factor
    turned = factor @ np.linalg.qr(rng.normal(size=(factor.shape[1], factor.shape[1])))[0]
    split, whole = (
        ConditionalLine(square_of(SoSDensity(Gaussian(0.6), X, F, normalize=True)), 1)
        for F in (factor, turned)
    )
    assert split._factor.shape[1] == extra and whole._factor.shape[1] == factor.shape[1]
    for one, other in zip(split.moments(ROWS), whole.moments(ROWS), strict=True):
        np.testing.assert_allclose(one, other, rtol=1e-11)
    np.testing.assert_allclose(split.cdf(ROWS, ROWS[:, 0]), whole.cdf(ROWS, ROWS[:, 0]), rtol=1e-11)


def test_far_from_the_data_the_nearest_support_point_rules() -> None:
    p = SoSDensity(Gaussian(1.0), [[0.0, 5.0], [1.0, -3.0]], [[1.0], [0.5]], normalize=True)
    line = ConditionalLine(square_of(p), 1)
    mean, deviation = line.moments(np.array([[1e4], [-1e4]]))
    np.testing.assert_allclose(mean, [-3.0, 5.0], atol=1e-9)
    np.testing.assert_allclose(deviation, 0.5, rtol=1e-9)
    assert np.all(np.isfinite(line.quantile(np.array([[1e4]]), np.array([[0.0, 1.0]]))))
    with pytest.raises(
        ValueError, match="vanishes at row 1"
    ):  # even its logarithm is not a number of float64
        line.moments(np.array([[0.0], [1e160]]))


@pytest.mark.parametrize(
    ("scale", "shift"), [(1e150, 0.0), (1e-150, 0.0), (1.0, 1e8), (1e6, -1e12)]
)
def test_no_scale_and_no_shift_is_special(scale: float, shift: float) -> None:
    X = np.round(points(8, 2, 2) * 64.0) / 64.0  # so that a shift loses no digits
    factor = np.random.default_rng(1).normal(size=(8, 2))
    plain = ConditionalLine(
        square_of(SoSDensity(Gaussian([0.8, 0.5]), X, factor, normalize=True)), 1
    )
    moved_points = X * scale + shift
    kernel, rows = Gaussian(np.array([0.8, 0.5]) * scale), np.array([[-0.25], [0.5]])
    unit = from_square(
        kernel, moved_points, factor, 0.0, Lebesgue()
    )  # the laws do not depend on the density's own scale
    moved = ConditionalLine(square_of(unit), 1)
    for one, other in zip(plain.moments(rows), moved.moments(rows * scale + shift), strict=True):
        assert np.all(np.isfinite(other)) and one.shape == other.shape
    mean, deviation = moved.moments(rows * scale + shift)
    np.testing.assert_allclose(
        (mean - shift) / scale, plain.moments(rows)[0], atol=1e-7 if shift else 1e-9
    )
    np.testing.assert_allclose(deviation / scale, plain.moments(rows)[1], rtol=1e-9)


def test_discrete_measures_are_refused() -> None:
    p = SoSDensity(
        Gaussian(1.0), points(3, 2), np.eye(3), Discrete(points(20, 2, 5)), normalize=True
    )
    with pytest.raises(ValueError, match=r"p\.conditional"):
        ConditionalLine(square_of(p), 1)


def test_no_law_where_the_conditions_have_no_density() -> None:
    """Two amplitudes that cancel at x = 0, whatever y is."""
    p = SoSDensity(Gaussian(1.0), [[-1.0, 0.0], [1.0, 0.0]], [[1.0], [-1.0]], normalize=True)
    with pytest.raises(ValueError, match="vanishes at row 1"):
        ConditionalLine(square_of(p), 1).moments(np.array([[0.5], [0.0]]))
