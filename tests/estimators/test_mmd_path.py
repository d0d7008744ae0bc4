"""The quick squared-MMD fits of cross-validation against certified ones: as low, as good on held-out samples, and much cheaper."""

from __future__ import annotations

import time

import numpy as np
import pytest
from sklearn.datasets import load_iris, make_moons

from ksos import KernelSoSDensity, KernelSoSDensityCV, MeanEmbedding, SoSSpace, minimize
from ksos.embedding_map import PairwiseMap
from ksos.estimators import _factor_maps
from ksos.estimators._factor_maps import ByNodes, ByPairs, ByTensor, cheapest_map
from ksos.estimators._mmd_path import MMDPath
from ksos.functionals import SquaredMMD, Trace
from ksos.kernels import Gaussian, Kernel, Laplace
from ksos.measures import Box, Measure

IRIS = np.unique(load_iris().data, axis=0)[::2]
MOONS = make_moons(90, noise=0.1, random_state=0)[0]
LINE = np.linspace(-1.0, 1.0, 70)[:, None] ** 3
STRENGTHS = [0.1, 0.01, 1e-3, 1e-4]


def log_density(space: SoSSpace, unit_factor: np.ndarray, X: np.ndarray) -> np.ndarray:
    V = space.kernel(X, space.support_points) @ unit_factor
    return np.asarray(np.log(np.sum(V * V, axis=1)) - space.log_unit)


CASES: dict[str, tuple[np.ndarray, Kernel, Measure | None, type]] = {
    "iris": (IRIS, Gaussian([0.43, 0.21, 0.89, 0.38]), None, ByPairs),
    "iris, wide": (IRIS, Gaussian([0.84, 0.42, 1.75, 0.74]), None, ByPairs),
    "moons": (MOONS, Gaussian([0.39, 0.22]), None, ByPairs),
    "line": (LINE, Gaussian(0.7), None, ByNodes),
    "laplace": (LINE, Laplace(0.7, product=True), None, ByTensor),
    "box": (LINE, Gaussian(0.4), Box([-1.0], [1.0]), ByNodes),
    "box, few directions": (LINE, Gaussian(8.0), Box([-1.0], [1.0]), ByNodes),
}


MAPS: list[tuple[str, np.ndarray, Kernel, Measure | None]] = [
    ("a line", LINE, Gaussian(0.3), None),
    ("far clusters", np.r_[LINE, LINE + 1e4], Gaussian(0.4), None),
    ("the plane", make_moons(150, noise=0.1, random_state=1)[0], Gaussian([0.9, 0.5]), None),
    ("a box", LINE, Gaussian(0.3), Box([-1.0], [1.0])),
    ("half a plane", MOONS[:40], Gaussian([0.9, 0.6]), Box([-2.0, -np.inf], [3.0, np.inf])),
]


@pytest.mark.parametrize(("name", "X", "kernel", "measure"), MAPS, ids=[case[0] for case in MAPS])
def test_nodes_see_what_the_closed_forms_see(name: str, X: np.ndarray, kernel: Kernel, measure: Measure | None) -> None:
    space = SoSSpace(kernel, X, measure, embedding_kernel=kernel.with_sigma(1.3 * kernel.sigma))
    nodes = _factor_maps._by_nodes(space, 100_000)
    assert nodes is not None and nodes.error < 1e-6
    rng = np.random.default_rng(0)
    F, z = rng.normal(size=(space.rank, 3)), rng.normal(size=space.embedding_rank)
    F /= np.linalg.norm(F)
    np.testing.assert_allclose(nodes.embed(F), space.map.apply(F @ F.T), atol=1e-6)
    np.testing.assert_allclose(nodes.adjoint(z), space.map.adjoint(z), atol=1e-4)  # in directions that kernels hardly span
    others = [ByTensor(space.compressed_map)] + ([ByPairs(space.map)] if isinstance(space.map, PairwiseMap) else [])
    value, slope = nodes.squared_distance(F, z)
    for other in others:
        theirs = other.squared_distance(F, z)
        assert value == pytest.approx(theirs[0], abs=1e-6)
        np.testing.assert_allclose(slope, theirs[1], atol=1e-4)


def test_too_many_nodes_are_not_taken() -> None:
    scattered = SoSSpace(Gaussian(0.01), np.random.default_rng(0).random((30, 2)))
    assert _factor_maps._by_nodes(scattered, 100) is None
    assert _factor_maps._by_nodes(SoSSpace(Gaussian(1e-4), np.array([[0.0], [1e300]])), 10) is None
    assert not isinstance(cheapest_map(scattered), ByNodes)


def test_nodes_that_do_not_integrate_are_not_taken(monkeypatch: pytest.MonkeyPatch) -> None:
    space = SoSSpace(Gaussian(0.3), LINE)
    assert _factor_maps._by_nodes(space, 1000) is not None
    monkeypatch.setattr(_factor_maps, "_SPACING", 2.5)
    assert _factor_maps._by_nodes(space, 1000) is None


@pytest.mark.parametrize("name", CASES)
def test_fits_are_as_low_as_certified_ones_and_score_the_same(name: str) -> None:
    X, kernel, measure, form = CASES[name]
    train, test = np.arange(len(X)) % 5 != 2, np.arange(len(X)) % 5 == 2
    weights = 1.0 + np.arange(train.sum()) % 3
    weights /= weights.sum()
    space = SoSSpace(kernel, X[train], measure)
    path = MMDPath(space, X[train], weights)
    assert isinstance(path.map, form)
    data, start = SquaredMMD(MeanEmbedding(X[train], weights, kernel=kernel)), None
    errors: list[np.ndarray] = []
    for strength, unit_factor in zip(STRENGTHS, path.fits(STRENGTHS), strict=True):
        functional = data + strength * Trace(relative=True)
        tight = minimize(functional, space, tol=1e-7, start=start)
        start = tight.parameter
        W = np.exp(space._integrals.log_gram(X[train], X[train]) - space.log_unit)
        assert np.sum((W @ unit_factor) * unit_factor) == pytest.approx(1.0, abs=1e-6), "mass one"
        C = space.T.T @ W @ unit_factor
        term = functional.bind(space)
        value = term.value(space.embed(C @ C.T), C @ C.T)
        assert value - tight.objective < 1e-6, (strength, value - tight.objective)
        ours, theirs = (log_density(space, U, X[test]) for U in (unit_factor, space.T @ tight.parameter_factor))
        # far in the tails, where p is a tiny difference, even the 1e-7 of the certified fit leaves nats open
        errors.append(np.abs(ours - theirs)[theirs > theirs.max() - 8.0])
    assert np.median(np.concatenate(errors)) < 1e-3 and np.mean(np.concatenate(errors)) < 0.005, [np.max(part) for part in errors]


def test_single_precision_where_it_is_enough(monkeypatch: pytest.MonkeyPatch) -> None:
    X = np.random.default_rng(0).normal(size=(170, 9))
    space, weights = SoSSpace(Gaussian(1.2), X), np.full(170, 1 / 170)
    quick = MMDPath(space, X, weights)
    F = np.random.default_rng(1).normal(size=(space.rank, 3))

    monkeypatch.setattr(_factor_maps, "_MANY", 1000)
    exact = MMDPath(space, X, weights)
    single, double = (path.map.squared_distance(F, path.z)[0] for path in (quick, exact))
    np.testing.assert_allclose(single, double, rtol=1e-5)
    assert single != double, "single precision differs in the last digits"
    for a, b in zip(quick.fits([0.1, 0.01, 1e-3]), exact.fits([0.1, 0.01, 1e-3]), strict=True):
        np.testing.assert_allclose(log_density(space, a, X).mean(), log_density(space, b, X).mean(), atol=0.01)


def test_rank_one_spaces_and_zero_regularization() -> None:
    space = SoSSpace(Gaussian(1.0), [[0.0], [0.0]])
    (unit_factor,) = MMDPath(space, np.zeros((2, 1)), np.array([0.5, 0.5])).fits([0.0])
    assert unit_factor.shape == (2, 1)


def test_scores_of_the_search_are_those_of_separate_tight_fits() -> None:
    folds = [(np.flatnonzero(np.arange(len(IRIS)) % 4 != k), np.flatnonzero(np.arange(len(IRIS)) % 4 == k)) for k in range(2)]
    est = KernelSoSDensityCV([0.5, 0.9], [0.1, 0.01, 1e-3], cv=folds, objective="squared_mmd", tol=1e-4).fit(IRIS)
    sigma = est.cv_results_["bandwidth"].reshape(2, 3, -1)
    for i in range(2):
        for j, strength in enumerate([0.1, 0.01, 1e-3]):
            for k, (train, test) in enumerate(folds):
                fit = KernelSoSDensity(
                    kernel=Gaussian(sigma[i, j]), regularization=strength, regularization_unit="w0", support=IRIS[train], tol=1e-8
                ).fit(IRIS[train])
                assert est.cv_results_[f"split{k}_test_score"].reshape(2, 3)[i, j] == pytest.approx(fit.score(IRIS[test]), abs=0.03)


def test_the_path_ends_where_it_leads_away_for_good() -> None:
    est = KernelSoSDensityCV([0.46], [0.1, 0.03, 0.01, 3e-3, 1e-3, 3e-4], cv=3, objective="squared_mmd", tol=1e-4).fit(load_iris().data)
    seen = np.isfinite(est.scores_[0])
    last = int(np.flatnonzero(seen).max())
    assert not seen.all() and seen[: last + 1].all()
    best = est.scores_[0, : last + 1].max()
    assert np.sum(est.scores_[0, seen] < best - 0.05) >= 2, "two that were far behind ended it"
    assert est.scores_[0, last] < best - 0.05
    everything = KernelSoSDensityCV([0.5], [0.1, 0.03, 0.01, 3e-3, 1e-3], cv=3, objective="squared_mmd", criterion="mmd", tol=1e-4).fit(
        IRIS
    )
    assert np.all(np.isfinite(everything.scores_)), "held-out MMDs differ too little for that"
    by_l2 = KernelSoSDensityCV([0.46], [0.1, 0.03, 0.01, 3e-3, 1e-3, 3e-4], cv=3, objective="squared_mmd", criterion="l2", tol=1e-4).fit(
        IRIS
    )
    seen = np.isfinite(by_l2.scores_[0])
    best, last = by_l2.scores_[0].max(), int(np.flatnonzero(seen).max())
    assert seen[: last + 1].all() and (seen.all() or by_l2.scores_[0, last] < 0.95 * best)


def test_a_path_costs_a_fraction_of_certified_fits() -> None:
    X = IRIS
    space, weights = SoSSpace(Gaussian([0.43, 0.21, 0.89, 0.38]), X), np.full(len(X), 1 / len(X))
    space.compressed_map, space.trace_matrix, space.projection  # noqa: B018 - shared by both
    began = time.process_time()
    list(MMDPath(space, X, weights).fits(STRENGTHS))
    quick, start = time.process_time() - began, None
    began = time.process_time()
    for strength in STRENGTHS:
        start = minimize(SquaredMMD(X) + strength * Trace(relative=True), space, tol=1e-6, start=start).parameter
    assert quick < time.process_time() - began
