"""Densities over numeric and categorical cells, against quadrature over the numeric ones and
enumeration of the others.
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Callable
from functools import cache

import numpy as np
import pytest
from scipy.stats import chi2, kstest

from ksos.density import Correction, MixedReference, MixedTerms, NoMass
from ksos.ground import resources
from ksos.measures import Lebesgue
from ksos.quadrature import composite

Change = Callable[[np.ndarray], np.ndarray]
NAN = math.nan
LEVELS = (2, 3)
# far enough for 1e-16 of the mass, and fine enough for the trapezoid rule to be exact to rounding
GRID = np.linspace(-24.0, 24.0, 481)
STEP = GRID[1] - GRID[0]
SHOWN = 245


def random_terms(
    d: int = 2, levels: tuple[int, ...] = LEVELS, m: int = 5, scale: float = 1.0, seed: int = 0
) -> MixedTerms:
    """Three components, a metric with correlations, a square that changes the reference a lot."""
    rng, K, q = np.random.default_rng(seed), 3, len(levels)
    roots = 0.7 * rng.normal(size=(K, d, d))
    covariances = roots @ roots.transpose(0, 2, 1) + 0.2 * np.eye(d)
    chances = tuple(rng.dirichlet(np.ones(n), K) for n in levels)
    reference = MixedReference(
        rng.dirichlet(np.ones(K)), rng.normal(size=(K, d)), covariances, chances
    )
    root = rng.normal(size=(d, d))
    codes = np.array([rng.integers(n, size=m) for n in levels], dtype=int).reshape(q, m).T
    thetas = np.array([0.3, 0.6, 0.0, 0.9])[:q]
    factor = scale * rng.normal(size=(m, 3))
    correction = Correction(
        root @ root.T + np.eye(d),
        thetas,
        rng.normal(size=(m, d)),
        codes,
        factor,
        rng.normal(size=3),
    )
    return MixedTerms.of(reference, correction)


def by_hand(p: MixedTerms, u: np.ndarray, c: np.ndarray) -> np.ndarray:
    """The density at complete rows, from its definition."""
    one, rho, S = p.correction, p.reference, np.linalg.inv(p.correction.metric)
    out = np.zeros(u.shape[0])
    for w, mean, V, *chances in zip(
        rho.weights, rho.means, rho.covariances, *rho.chances, strict=True
    ):
        away = u - mean
        log = -0.5 * np.sum(away @ np.linalg.inv(V) * away, axis=1)
        value = w * np.exp(log) / math.sqrt(np.linalg.det(2.0 * math.pi * V))
        for j, pi in enumerate(chances):
            value = value * pi[c[:, j]]
        out += value
    away = u[:, None, :] - one.points
    phi = np.exp(-np.sum(away @ S * away, axis=2))
    for j, theta in enumerate(one.thetas):
        phi *= np.where(c[:, j, None] == one.codes[:, j], 1.0, theta)
    return np.asarray(out * np.sum((one.constant + phi @ one.factor) ** 2, axis=1))


@cache
def table(seed: int = 0) -> tuple[MixedTerms, np.ndarray]:
    """A density of two numeric and two categorical columns, and its values at all levels on the
    grid, (2, 3, N, N).
    """
    p = random_terms(seed=seed)
    points = np.stack(np.meshgrid(GRID, GRID, indexing="ij"), axis=-1).reshape(-1, 2)
    values = [
        by_hand(p, points, np.tile(codes, (points.shape[0], 1)))
        for codes in itertools.product(range(2), range(3))
    ]
    return p, np.reshape(values, (2, 3, GRID.shape[0], GRID.shape[0]))


def value_of(p: MixedTerms, u: list[float], c: list[int]) -> float:
    return float(np.exp(p.log_density(np.array([u]), np.array([c])))[0])


@pytest.mark.parametrize("seed", range(3))
def test_mass_is_one_and_complete_rows_have_the_value_of_the_definition(seed: int) -> None:
    p, values = table(seed)
    assert abs(values.sum() * STEP**2 - 1.0) < 1e-10
    u, c = GRID[[200, 240, 260]][:, None] * [1.0, 0.5], np.array([[0, 2], [1, 0], [1, 1]])
    assert np.allclose(np.exp(p.log_density(u, c)), by_hand(p, u, c), rtol=1e-11)


@pytest.mark.parametrize("seed", range(3))
def test_missing_cells_are_integrated_out(seed: int) -> None:
    (p, values), t = table(seed), SHOWN
    x = GRID[t]
    cases = [
        ([x, NAN], [-1, -1], values[:, :, t].sum() * STEP),
        ([NAN, x], [1, -1], values[1, :, :, t].sum() * STEP),
        ([NAN, NAN], [1, 2], values[1, 2].sum() * STEP**2),
        ([NAN, NAN], [-1, 0], values[:, 0].sum() * STEP**2),
        ([x, GRID[230]], [-1, -1], values[:, :, t, 230].sum()),
        ([x, GRID[230]], [-1, 1], values[:, 1, t, 230].sum()),
    ]
    for u, c, expected in cases:
        assert value_of(p, u, c) == pytest.approx(expected, rel=1e-10)
    # together, and with a row that says nothing
    u = np.array([case[0] for case in cases] + [[NAN, NAN]])
    c = np.array([case[1] for case in cases] + [[-1, -1]])
    logs = p.log_density(u, c)
    assert np.allclose(np.exp(logs[:-1]), [case[2] for case in cases], rtol=1e-10)
    assert logs[-1] == 0.0


def test_moments_given_observed_cells_are_matrices_of_kernels() -> None:
    """M(o) itself, entry by entry, against sums over the grid."""
    p, _ = table()
    rho = MixedTerms.of(
        p.reference,
        Correction(
            p.correction.metric,
            p.correction.thetas,
            p.correction.points,
            p.correction.codes,
            0.0 * p.correction.factor,
            p.correction.constant,
        ),
    )
    x = GRID[SHOWN]
    found = p.matrices(np.array([[x, NAN]]), np.array([[-1, 2]]))[0]
    u = np.stack([np.full(GRID.shape, x), GRID], axis=1)
    total, expected = 0.0, np.zeros(found.shape)
    for a in range(2):
        c = np.tile([a, 2], (u.shape[0], 1))
        weights = np.exp(rho.log_density(u, c))
        phi = np.column_stack([np.ones(u.shape[0]), p.correction.features(u, c)])
        total, expected = total + weights.sum(), expected + phi.T @ (phi * weights[:, None])
    assert np.allclose(found, expected / total, atol=1e-12)


@pytest.mark.parametrize("seed", range(3))
def test_values_and_levels_that_are_given_leave_a_density_of_the_rest(seed: int) -> None:
    (p, values), t = table(seed), SHOWN
    left = values[1, :, t]
    evidence = left.sum() * STEP
    g = p.given({0: GRID[t]}, {0: 1})
    assert (g.n_numeric, g.levels) == (1, (3,))
    found = [np.exp(g.log_density(GRID[:, None], np.full((481, 1), b))) for b in range(3)]
    assert np.allclose(found, left / evidence, atol=1e-11)
    assert p.log_mass_given({0: GRID[t]}, {0: 1}) == pytest.approx(math.log(evidence), abs=1e-10)
    # by Bayes' theorem
    assert np.allclose(g.probabilities(0), left.sum(axis=1) / left.sum(), atol=1e-12)
    u, c = np.array([[GRID[t], NAN], [NAN, NAN]]), np.array([[1, -1], [-1, -1]])
    posterior = p.posterior(u, c, 1)
    assert np.allclose(posterior[0], left.sum(axis=1) / left.sum(), atol=1e-12)
    assert np.allclose(posterior[1], values.sum(axis=(0, 2, 3)) * STEP**2, atol=1e-11)


def in_interval(p: MixedTerms, low: float, high: float) -> np.ndarray:
    """∫ p over low < u_0 < high, for all levels at the grid of u_1, (2, 3, N)."""
    x, w = composite(np.array([low]), np.array([high]), 40)
    points = np.stack(np.meshgrid(x, GRID, indexing="ij"), axis=-1).reshape(-1, 2)
    every = [
        by_hand(p, points, np.tile(codes, (points.shape[0], 1))).reshape(40, -1)
        for codes in itertools.product(range(2), range(3))
    ]
    return np.einsum("cij,i->cj", np.array(every), w).reshape(2, 3, -1)


def test_intervals_and_sets_of_levels() -> None:
    p, _ = table()
    inside = in_interval(p, -0.4, 0.9)[:, [0, 2]]
    mass = inside.sum() * STEP
    g = p.given({0: (-0.4, 0.9)}, {1: [0, 2]})
    found = p.log_mass_given({0: (-0.4, 0.9)}, {1: (0, 2)})
    assert found == pytest.approx(math.log(mass), abs=1e-10)
    assert np.allclose(g.probabilities(0), inside.sum(axis=(1, 2)) * STEP / mass, atol=1e-11)
    rows = GRID[230:240, None]
    of_one = np.exp(g.log_density(rows, np.ones((10, 1), dtype=int)))
    assert np.allclose(of_one, inside[1].sum(axis=0)[230:240] / mass, atol=1e-11)
    of_numbers = g.marginal([0], []).numeric()
    assert np.allclose(of_numbers.pdf(rows), inside.sum(axis=(0, 1))[230:240] / mass, atol=1e-10)
    weights = inside[1].sum(axis=0) / inside[1].sum()
    mean = g.conditional_means(np.array([[NAN]]), np.array([[1]]))
    assert mean[0, 0] == pytest.approx(weights @ GRID, abs=1e-10)
    # an interval that holds everything says nothing
    everything = p.given({0: (-math.inf, math.inf)}, {1: [0, 1, 2]})
    row = np.array([[0.3]]), np.array([[1]])
    plain = p.marginal([1], [0]).log_density(*row)
    assert everything.log_density(*row) == pytest.approx(plain, abs=1e-11)
    # a value after an interval, which stays
    both = p.given({0: (-0.4, 0.9)}, {}).given({0: 0.4}, {0: 1}).probabilities(0)
    at = in_interval(p, -0.4, 0.9)[1][:, np.argmin(abs(GRID - 0.4))]
    assert np.allclose(both, at / at.sum(), atol=1e-11)


def test_intervals_of_two_numeric_columns() -> None:
    p, _ = table()
    x, w = composite(np.array([-0.5]), np.array([0.7]), 40)
    points = np.stack(np.meshgrid(x, x, indexing="ij"), axis=-1).reshape(-1, 2)
    every = [
        np.exp(p.log_density(points, np.tile(codes, (1600, 1)))).reshape(40, 40)
        for codes in itertools.product(range(2), range(3))
    ]
    masses = np.einsum("cij,i,j->c", np.array(every), w, w).reshape(2, 3)
    given = {0: (-0.5, 0.7), 1: (-0.5, 0.7)}
    assert p.log_mass_given(given, {}) == pytest.approx(math.log(masses.sum()), abs=1e-10)
    assert np.allclose(p.given(given, {}).probabilities(1), masses.sum(axis=0) / masses.sum())


def test_what_has_no_mass() -> None:
    p = random_terms()
    inside = p.given({}, {1: [0, 2]})
    for u, c in (({0: 1e200}, {}), ({0: (200.0, 300.0)}, {}), ({0: (1e9, math.inf)}, {0: 1})):
        assert inside.log_mass_given(u, c) == -math.inf
        with pytest.raises(NoMass):
            inside.given(u, c)
    with pytest.raises(NoMass):
        p.given({}, {0: []})


@pytest.mark.parametrize("seed", range(3))
def test_numeric_columns_alone_are_terms(seed: int) -> None:
    p, values = table(seed)
    some = np.stack([GRID[200:280:8], GRID[180:300:12]], axis=1)
    at = np.arange(200, 280, 8), np.arange(180, 300, 12)
    given_all = p.given({}, {0: 1, 1: 2}).numeric()
    assert given_all.measure == Lebesgue()
    expected = values[1, 2][at] / (values[1, 2].sum() * STEP**2)
    assert np.allclose(given_all.pdf(some), expected, atol=1e-11)
    without = p.marginal([1, 0], []).numeric()
    assert np.allclose(without.pdf(some[:, ::-1]), values.sum(axis=(0, 1))[at], atol=1e-11)
    with pytest.raises(ValueError, match="2 numeric and 1 categorical columns"):
        p.given({}, {0: 1}).numeric()


@pytest.mark.parametrize("scale", [1.0, 0.0])
def test_conditional_means_of_cells_and_of_functions(scale: float) -> None:
    p = random_terms(scale=scale)
    x = GRID[SHOWN]
    points = np.stack([np.full(GRID.shape, x), GRID], axis=1)
    weights = sum(by_hand(p, points, np.tile([1, b], (481, 1))) for b in range(3))
    weights = weights / weights.sum()
    u, c = np.array([[x, NAN], [x, 2.0], [NAN, NAN]]), np.array([[1, -1], [0, -1], [-1, -1]])
    mean = p.conditional_means(u, c)
    assert mean[0, 1] == pytest.approx(weights @ GRID, abs=1e-11)
    assert mean[1].tolist() == [x, 2.0]
    found = p.conditional_means(u, c, {1: (np.sin, 35)})
    assert found[0, 1] == pytest.approx(weights @ np.sin(GRID), abs=1e-9)
    assert found[1].tolist() == [x, math.sin(2.0)]
    assert found[2, 0] == pytest.approx(mean[2, 0], abs=1e-12)


@pytest.mark.parametrize("block", [1, 30])
def test_blocks_of_any_size_give_the_same_answers(block: int) -> None:
    p, rng = random_terms(), np.random.default_rng(0)
    u, c = p.draw(12, rng)
    u[rng.random(u.shape) < 0.4], c[rng.random(c.shape) < 0.4] = NAN, -1

    def answers() -> list[np.ndarray]:
        return [p.log_density(u, c), p.matrices(u, c), p.conditional_means(u, c, {0: (np.cos, 35)})]

    whole = answers()
    with resources(block=block):
        for part, expected in zip(answers(), whole, strict=True):
            assert np.allclose(part, expected, rtol=1e-12, atol=1e-14)


def test_a_far_origin_costs_no_digits_of_means() -> None:
    p = random_terms()
    far = MixedReference(
        p.reference.weights,
        p.reference.means + 1e6,
        p.reference.covariances,
        p.reference.chances,
    )
    one = p.correction
    moved = MixedTerms.of(
        far,
        Correction(one.metric, one.thetas, one.points + 1e6, one.codes, one.factor, one.constant),
    )
    u, c = np.array([[0.5, NAN], [NAN, NAN]]), np.array([[-1, 1], [0, 2]])
    far_means = moved.conditional_means(u + 1e6, c) - 1e6
    assert np.allclose(far_means, p.conditional_means(u, c), atol=1e-8)


@pytest.mark.parametrize(("d", "levels"), [(0, (2, 3)), (2, ()), (1, (4,))])
def test_every_number_of_columns(d: int, levels: tuple[int, ...]) -> None:
    p, rng = random_terms(d, levels), np.random.default_rng(0)
    u, c = p.draw(5, rng)
    assert (u.shape, c.shape) == ((5, d), (5, len(levels)))
    assert np.allclose(np.exp(p.log_density(u, c)), by_hand(p, u, c), rtol=1e-10)
    assert np.array_equal(p.conditional_means(u, c), u)
    if not d:
        masses = [value_of(p, [], list(codes)) for codes in itertools.product(*map(range, levels))]
        assert sum(masses) == pytest.approx(1.0, abs=1e-13)


@pytest.mark.parametrize("scale", [1.0, 0.0])
def test_samples_have_the_distribution(scale: float) -> None:
    p, n = random_terms(scale=scale), 20_000
    u, c = p.draw(n, np.random.default_rng(0))
    expected = np.exp(
        p.marginal([], [0, 1]).log_density(np.empty((6, 0)), np.argwhere(np.ones(LEVELS)))
    )
    counts = np.bincount(3 * c[:, 0] + c[:, 1], minlength=6)
    assert np.sum((counts - n * expected) ** 2 / (n * expected)) < chi2.ppf(0.999, 5)
    inside = np.all(c == [1, 2], axis=1)
    line = p.given({}, {0: 1, 1: 2}).marginal([1], []).numeric()
    x, w = composite(GRID[:-1], GRID[1:], 4)
    masses = np.cumsum((line.pdf(x[:, None]) * w).reshape(-1, 4).sum(axis=1))
    assert kstest(u[inside, 1], lambda t: np.interp(t, GRID[1:], masses)).pvalue > 1e-3


def test_completed_rows_have_the_conditional_distribution() -> None:
    (p, values), n, t = table(), 20_000, SHOWN
    u, c = p.draw_given(
        np.tile([GRID[t], NAN], (n, 1)), np.tile([1, -1], (n, 1)), np.random.default_rng(0)
    )
    assert np.all(u[:, 0] == GRID[t]) and np.all(c[:, 0] == 1)
    left = values[1, :, t] / values[1, :, t].sum()
    counts = np.bincount(c[:, 1], minlength=3)
    assert np.sum((counts - n * left.sum(axis=1)) ** 2 / (n * left.sum(axis=1))) < chi2.ppf(
        0.999, 2
    )
    masses = np.cumsum(left.sum(axis=0))
    assert kstest(u[:, 1], lambda x: np.interp(x, GRID + 0.5 * STEP, masses)).pvalue > 1e-3
    within = p.given({0: (-0.4, 0.9)}, {}).draw(n, np.random.default_rng(1))[1]
    expected = in_interval(p, -0.4, 0.9).sum(axis=2).ravel()
    expected /= expected.sum()
    counts = np.bincount(3 * within[:, 0] + within[:, 1], minlength=6)
    assert np.sum((counts - n * expected) ** 2 / (n * expected)) < chi2.ppf(0.999, 5)


def test_arrays_make_the_same_density_again() -> None:
    p = random_terms().given({0: (-0.4, 0.9)}, {1: [0, 2]})
    again = MixedTerms.from_arrays(p.arrays())
    u, c = np.array([[0.1], [NAN]]), np.array([[1], [0]])
    assert np.array_equal(p.log_density(u, c), again.log_density(u, c))
    # files hold floats
    floats = {name: a.astype(float) for name, a in p.arrays().items()}
    assert np.array_equal(MixedTerms.from_arrays(floats).log_density(u, c), p.log_density(u, c))
    empty = random_terms(0, (2,))
    assert MixedTerms.from_arrays(empty.arrays()).levels == (2,)


@pytest.mark.parametrize(
    ("name", "change", "words"),
    [
        ("weights", lambda a: 2.0 * a, "weights and probabilities"),
        ("weights", lambda a: a[:-1], "must have shape"),
        ("means", lambda a: a + np.nan, "finite"),
        ("covariances", lambda a: -a, "do not make a density"),
        ("chances", lambda a: a + 0.1, "weights and probabilities"),
        ("levels", lambda a: a + 1, "weights and probabilities"),
        ("metric", lambda a: 0.0 * a, "do not make a density"),
        ("thetas", lambda a: a + 1.0, "below 1"),
        ("codes", lambda a: a + 5, "those of levels"),
        ("codes", lambda a: a + 0.5, "whole numbers"),
        ("factor", lambda a: 2.0 * a, "the mass must be one"),
        ("points", lambda a: a[:, :1], "points must have shape"),
        ("numeric_shown", lambda a: a + 1, "different columns"),
        ("categorical_shown", lambda a: 0 * a, "different columns"),
        ("within", lambda a: np.array([[0.0, 1.0, 1.0]]), "low < high"),
        ("within", lambda a: np.array([[7.0, 0.0, 1.0]]), "low < high"),
    ],
)
def test_arrays_that_are_no_density(name: str, change: Change, words: str) -> None:
    arrays = random_terms().arrays()
    arrays[name] = change(arrays[name])
    with pytest.raises(ValueError, match=words):
        MixedTerms.from_arrays(arrays)
    del arrays[name]
    with pytest.raises(ValueError, match=name):
        MixedTerms.from_arrays(arrays)
