"""Mixtures, stack and search for tables with categorical and missing cells: against the definition,
maximum likelihood by hand, enumeration, and a conic solver.
"""

from __future__ import annotations

import math

import cvxpy as cp
import numpy as np
import pytest
from scipy.optimize import minimize
from scipy.stats import multivariate_normal

from ksos.choose import MixedSearch, Mixtures, Samples, mixture_path, seeds
from ksos.data import random_folds
from ksos.density import MixedReference
from ksos.functionals import NegativeLogLikelihood, RowLikelihood
from ksos.kernels import Gaussian
from ksos.space import MixedSpace, SoSSpace

LEVELS = (2, 3)


def simulated(n: int, d: int = 2, missing: float = 0.0, seed: int = 0) -> tuple[np.ndarray, ...]:
    """Three classes, whose number is one of the columns as a rule."""
    rng = np.random.default_rng(seed)
    k = rng.integers(3, size=n)
    u = 2.0 * np.cos(k[:, None] + np.arange(d)) + rng.normal(size=(n, d)) * (1.0 + 0.3 * k[:, None])
    first = (rng.random(n) < np.array([0.1, 0.5, 0.9])[k]).astype(int)
    c = np.stack([first, np.where(rng.random(n) < 0.85, k, rng.integers(3, size=n))], axis=1)
    u[rng.random(u.shape) < missing] = np.nan
    c[rng.random(c.shape) < missing] = -1
    return u, c


def as_reference(mixtures: Mixtures, b: int) -> MixedReference:
    chances = np.split(mixtures.chances[b], [LEVELS[0]], axis=1)
    shares = mixtures.shares[b] / mixtures.shares[b].sum()
    return MixedReference(shares, mixtures.means[b], mixtures.covariances[b], tuple(chances))


@pytest.mark.parametrize("missing", [0.0, 0.3])
@pytest.mark.parametrize("d", [0, 1, 3])
def test_log_densities_are_those_of_the_observed_cells(d: int, missing: float) -> None:
    u, c = simulated(120, d, missing)
    samples, masses = Samples.of_cells(u, c, LEVELS), np.full((2, 120), 1.0 / 120)
    masses[1, :40], masses[1, 40:] = 0.0, 1.0 / 80
    centers = seeds(samples.points, masses, 4)
    for mixtures in mixture_path(samples, masses, centers, [np.full(d, 0.03)] * 2):
        logs = mixtures.log_densities(samples)
        for b in range(2):
            expected = as_reference(mixtures, b).log_density(u, c)
            assert np.allclose(logs[b], expected, rtol=1e-10, atol=1e-10)


def test_one_component_with_missing_cells_is_that_of_maximum_likelihood() -> None:
    u, c = simulated(150, 2, 0.3)
    u = u[~np.isnan(u).all(axis=1)]
    c = c[: u.shape[0]]
    samples, masses = Samples.of_cells(u, c, LEVELS), np.full((1, u.shape[0]), 1.0 / u.shape[0])
    # each goes on from the one before, so that the tolerance of a single one does not show
    *_, found = mixture_path(samples, masses, np.zeros((1, 1), int), [np.zeros(2)] * 60)

    def value(x: np.ndarray) -> float:
        L = np.array([[math.exp(x[2]), 0.0], [x[3], math.exp(x[4])]])
        V, total = L @ L.T, 0.0
        for seen in ([0], [1], [0, 1]):
            rows = u[(~np.isnan(u) == np.isin([0, 1], seen)).all(axis=1)][:, seen]
            law = multivariate_normal(x[:2][seen], V[np.ix_(seen, seen)])
            total -= np.sum(law.logpdf(rows))
        return total / u.shape[0]

    best = minimize(value, np.zeros(5), method="BFGS", options={"gtol": 1e-7}).x
    L = np.array([[math.exp(best[2]), 0.0], [best[3], math.exp(best[4])]])
    assert np.allclose(found.means[0, 0], best[:2], atol=2e-3)
    assert np.allclose(found.covariances[0, 0], L @ L.T, atol=1e-2)


def test_no_step_lowers_the_likelihood_of_observed_cells() -> None:
    u, c = simulated(200, 2, 0.2)
    samples, masses = Samples.of_cells(u, c, LEVELS), np.full((1, 200), 1.0 / 200)
    path = mixture_path(samples, masses, seeds(samples.points, masses, 3), [np.full(2, 1e-9)] * 8)
    values = [float(mixtures.log_densities(samples)[0] @ masses[0]) for mixtures in path]
    # the prior of one row for the levels is not in the value
    assert min(np.diff(values)) > -1e-4
    assert values[-1] > values[0]


def test_levels_are_smoothed_where_they_depend_on_nothing() -> None:
    (u, c), rng = simulated(300, 2), np.random.default_rng(9)
    c[:, 0] = rng.integers(2, size=300)  # independent of the class, as the other one is not
    samples, masses = Samples.of_cells(u, c, LEVELS), np.full((1, 300), 1.0 / 300)
    every = np.concatenate([np.bincount(column) / 300.0 for column in c.T])
    centers = seeds(u, masses, 12)
    (alone,) = mixture_path(Samples.of(u), masses, centers, [np.full(2, 0.03)])
    # components of the numbers alone: the levels have not made them
    found = alone._replace(chances=np.tile(every, (1, 12, 1))).smoothed(samples, masses)
    away = np.abs(found.chances[0] - every)
    assert away[:, :2].max() < 0.1
    assert away[:, 2:].max() > 0.3


def test_levels_apart_start_components_at_classes() -> None:
    u, c = simulated(150, 2)
    samples, masses = Samples.of_cells(u, c, LEVELS), np.full((1, 150), 1.0 / 150)
    begun = samples.apart(1)
    centers = seeds(begun.points, masses, 3)
    assert sorted(c[centers[0], 1]) == [0, 1, 2]
    assert begun.dimension == samples.dimension == 2


def test_rows_of_a_likelihood_without_missing_cells_are_samples() -> None:
    X, Z = (
        np.random.default_rng(0).normal(size=(30, 2)),
        np.random.default_rng(1).normal(size=(6, 2)),
    )
    space, a = SoSSpace(Gaussian(1.0), Z), np.arange(1.0, 31.0) / 465.0
    psi = space.basis(X)
    ours, theirs = RowLikelihood(psi, np.arange(30), a), NegativeLogLikelihood(X, a).bind(space)
    F = np.random.default_rng(2).normal(size=(space.rank, 2))
    C = F @ F.T / np.sum(F * F)
    assert ours.value(None, C) + space.log_unit == pytest.approx(theirs.value(None, C), abs=1e-12)
    assert np.allclose(ours.gradient(None, C)[1], theirs.gradient(None, C)[1])


@pytest.fixture(scope="module")
def small() -> tuple[MixedSearch, np.ndarray, np.ndarray]:
    u, c = simulated(90, 2, 0.15)
    folds = random_folds(np.ones(90), 3, np.random.default_rng(0))
    # λ that changes the reference
    search = MixedSearch(u, c, LEVELS, np.ones(90), folds, [1.5], [0.02], n_support=8)
    assert search.run()
    return search, u, c


def test_the_certificate_is_that_of_the_problem(
    small: tuple[MixedSearch, np.ndarray, np.ndarray],
) -> None:
    """From matrices M(o) of the rows alone: objective and gap, and a conic solver's optimum."""
    search, u, c = small
    solution, relative = search.answer(1e-6)
    assert solution.status == "solved"
    assert solution.gap is not None
    assert solution.gap <= 1e-6
    p, space = solution.distribution, solution.space
    assert isinstance(space, MixedSpace)
    M = space.terms.matrices(u, c)
    W = space.terms.matrices(np.full((1, 2), np.nan), np.full((1, 2), -1))[0]
    G = np.concatenate([p.correction.constant[None], p.correction.factor])
    one, D = p.correction, np.zeros(W.shape)
    D[1:, 1:] = relative * one.features(one.points, one.codes)
    B = G @ G.T
    assert np.sum(B * W) == pytest.approx(1.0, abs=1e-9)
    values = np.einsum("ij,nij->n", B, M)
    objective = -np.mean(np.log(values)) + np.sum(B * D)
    assert solution.objective == pytest.approx(objective, abs=1e-9)
    assert np.allclose(p.log_density(u, c), np.log(values) + p.reference.log_density(u, c))
    # ⟨∇f, B⟩ − λ_min(∇f) relative to W
    slope = D - np.einsum("n,nij->ij", 1.0 / values, M) / values.size
    whitened = space.T.T @ slope @ space.T
    gap = np.sum(slope * B) - np.linalg.eigvalsh(whitened)[0]
    assert gap <= solution.gap + 1e-9
    # a conic solver, in the coordinates in which its numbers are of the order of one
    T, r = space.T, space.rank
    C = cp.Variable((r, r), PSD=True)
    logs = [cp.log(cp.trace(C @ (T.T @ one @ T))) for one in M]
    price = cp.trace(C @ (T.T @ D @ T))
    problem = cp.Problem(cp.Minimize(price - cp.sum(cp.hstack(logs)) / 90.0), [cp.trace(C) == 1.0])
    problem.solve(solver="CLARABEL")
    assert solution.objective == pytest.approx(problem.value, abs=1e-5)


def test_infinite_strength_is_the_reference() -> None:
    u, c = simulated(60, 1, 0.2)
    folds = random_folds(np.ones(60), 3, np.random.default_rng(0))
    search = MixedSearch(u, c, LEVELS, np.ones(60), folds, [3.0], [math.inf])
    search.run()
    solution, relative = search.answer(None)
    assert (solution.gap, relative) == (0.0, math.inf)
    p = solution.distribution
    assert np.allclose(p.log_density(u, c), search.reference_of_all.log_density(u, c))
    assert math.isfinite(search.best_score)
    assert search.results()["mean_test_score"].shape == (1,)
    assert search.stack is not None
    assert search.stack.gap <= 1e-4


def test_incomplete_rows_cost_little_against_complete_ones() -> None:
    """Held-out nats of a fit with a tenth of the cells missing."""
    whole, missing = simulated(120, seed=1), simulated(120, missing=0.1, seed=1)
    test = simulated(1000, seed=2)
    scores = []
    for u, c in (whole, missing):
        folds = random_folds(np.ones(120), 3, np.random.default_rng(0))
        search = MixedSearch(u, c, LEVELS, np.ones(120), folds, [3.0], [math.inf, 1.0, 0.1])
        search.run()
        scores.append(search.answer(1e-4)[0].distribution.log_density(*test).mean())
    assert scores[0] - scores[1] < 0.08


def test_columns_that_depend_on_each_other_without_numbers() -> None:
    rng = np.random.default_rng(0)
    a = rng.integers(2, size=200)
    c = np.stack([a, np.where(rng.random(200) < 0.9, a, 1 - a)], axis=1)
    folds, nothing = random_folds(np.ones(200), 3, rng), np.zeros((200, 0))
    search = MixedSearch(nothing, c, (2, 2), np.ones(200), folds, [3.0], [math.inf])
    search.run()
    p = search.answer(1e-4)[0].distribution
    every = np.array([[0, 0], [0, 1], [1, 0], [1, 1]])
    found = np.exp(p.log_density(np.zeros((4, 0)), every))
    shares = np.bincount(2 * c[:, 0] + c[:, 1]) / 200.0
    assert np.abs(found - shares).max() < 0.02


@pytest.mark.parametrize(("d", "levels"), [(0, (2, 3)), (2, ())])
def test_tables_of_one_kind(d: int, levels: tuple[int, ...]) -> None:
    u, c = simulated(60, d, 0.1)
    c = c[:, : len(levels)]
    folds = random_folds(np.ones(60), 3, np.random.default_rng(0))
    search = MixedSearch(u, c, levels, np.ones(60), folds, [3.0], [math.inf, 0.1])
    assert search.run()
    p = search.answer(1e-4)[0].distribution
    assert np.isfinite(p.log_density(u, c)).all()
    assert (p.n_numeric, p.levels) == (d, levels)


def with_heaps(n: int, seed: int = 0) -> tuple[np.ndarray, np.ndarray]:
    """Two columns of whole and half numbers, nearly, and a level that depends on both."""
    rng = np.random.default_rng(seed)
    z = rng.multivariate_normal(np.zeros(2), [[1.0, 0.6], [0.6, 1.0]], n)
    u = np.round(2.0 * z * (1.0 + (rng.random((n, 1)) < 0.5)))
    u = 0.5 * u + 0.003 * rng.normal(size=(n, 2))
    return u, (z.sum(axis=1) + rng.normal(size=n) > 0.0).astype(int)[:, None]


def search_of(u: np.ndarray, c: np.ndarray, scorable: tuple[int, ...]) -> MixedSearch:
    n = u.shape[0]
    masses, rng = np.full(n, 1.0 / n), np.random.default_rng(0)
    folds = random_folds(masses, 3, rng)
    search = MixedSearch(u, c, (2,), masses, folds, [2.0], [math.inf], scorable=scorable)
    search.run()
    return search


@pytest.mark.parametrize("missing", [0.0, 0.15])
def test_columns_whose_values_crowd_are_put_on_normal_scores(missing: float) -> None:
    (u, c), rng = with_heaps(160), np.random.default_rng(1)
    u[rng.random(u.shape) < missing] = np.nan
    u, c = u[~np.isnan(u).all(axis=1)], c[~np.isnan(u).all(axis=1)]
    plain, search = search_of(u, c, ()), search_of(u, c, (0, 1))
    assert sorted(search.normal_scores) == [0, 1]
    for k, scores in search.normal_scores.items():
        np.testing.assert_array_equal(search.u[:, k], scores.of(u[:, k])[0])
    # new rows, in the units of the data, agree with what held-out rows have promised
    new_u, new_c = with_heaps(1000, seed=5)
    expected = plain.reference_of_all.log_density(new_u, new_c).mean()
    own, slopes = new_u.copy(), np.zeros(1000)
    for k, scores in search.normal_scores.items():
        own[:, k], more = scores.of(new_u[:, k])
        slopes += more
    found = (search.reference_of_all.log_density(own, new_c) + slopes).mean()
    assert found > expected + 0.3
    if not missing:  # three standard errors; fits to all rows are better than those to folds
        assert plain.best_score + 0.3 < search.best_score < found + 0.3


def test_smooth_columns_stay_as_they_are() -> None:
    u, c = simulated(200)
    assert search_of(u, c[:, :1], (0, 1)).normal_scores == {}


@pytest.mark.filterwarnings("ignore:bandwidth")  # of the column without two values
def test_a_column_without_two_values_or_without_cells_in_a_fold_stays() -> None:
    u, c = with_heaps(60)
    u[:, 0] = 1.0
    u[5:, 1] = np.nan
    assert search_of(u, c, (0, 1)).normal_scores == {}


def test_tables_of_very_many_columns_have_diagonal_covariances() -> None:
    rng = np.random.default_rng(0)
    u = rng.normal(size=(180, 2)) @ rng.normal(size=(2, 43)) + rng.normal(size=(180, 43))
    u[rng.random(u.shape) < 0.05] = np.nan
    c, weights = rng.integers(2, size=(180, 1)), np.full(180, 1.0 / 180)
    stack = MixedSearch(u, c, (2,), weights, random_folds(weights, 2, rng), [1.0], [math.inf]).stack
    assert stack is not None
    stack.sizes = [1, 2]
    stack.fit()
    stack.solve()
    assert np.isfinite(stack.whole.log_density(u, c)).all()
