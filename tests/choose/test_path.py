"""The quick fits of the search against certified ones: as low, as good on held-out samples, and
much cheaper.
"""

from __future__ import annotations

import time

import numpy as np
import pytest
from sklearn.datasets import load_iris, make_moons

from ksos import MeanEmbedding, SoSSpace
from ksos.choose import fit_path
from ksos.functionals import Functional, NegativeLogLikelihood, SquaredMMD, Trace
from ksos.kernels import Gaussian, Kernel, Laplace
from ksos.measures import Box, Measure
from ksos.solvers import regularization_path

IRIS = np.unique(load_iris().data, axis=0)[::2]
MOONS = make_moons(90, noise=0.1, random_state=0)[0]
LINE = np.linspace(-1.0, 1.0, 70)[:, None] ** 3
STRENGTHS = {"likelihood": [3.0, 0.3, 0.03, 3e-3], "squared_mmd": [0.1, 0.01, 1e-3, 1e-4]}
CERTIFIED = {"likelihood": 1e-6, "squared_mmd": 1e-7}
ABOVE = {"likelihood": 1e-3, "squared_mmd": 1e-6}
"""What a fit of the search may lie above the certified optimum: nats, and squared MMD."""

CASES: dict[str, tuple[np.ndarray, Kernel, Measure | None]] = {
    "iris": (IRIS, Gaussian([0.43, 0.21, 0.89, 0.38]), None),
    "iris, wide": (IRIS, Gaussian([0.84, 0.42, 1.75, 0.74]), None),
    "moons": (MOONS, Gaussian([0.39, 0.22]), None),
    "line": (LINE, Gaussian(0.7), None),
    "laplace": (LINE, Laplace(0.7, product=True), None),
    "box": (LINE, Gaussian(0.4), Box([-1.0], [1.0])),
    "box, few directions": (LINE, Gaussian(8.0), Box([-1.0], [1.0])),
}


def log_density(space: SoSSpace, F: np.ndarray, X: np.ndarray) -> np.ndarray:
    return np.asarray(np.log(np.sum((space.basis(X) @ F) ** 2, axis=1)) - space.log_unit)


def distance_to(X: np.ndarray, weights: np.ndarray, kernel: Kernel, objective: str) -> Functional:
    return (
        NegativeLogLikelihood(X, weights)
        if objective == "likelihood"
        else SquaredMMD(MeanEmbedding(X, weights, kernel=kernel))
    )


@pytest.mark.parametrize("objective", STRENGTHS)
@pytest.mark.parametrize("name", CASES)
def test_fits_are_as_low_as_certified_ones_and_score_the_same(name: str, objective: str) -> None:
    X, kernel, measure = CASES[name]
    train, test = np.arange(len(X)) % 5 != 2, np.arange(len(X)) % 5 == 2
    weights = 1.0 + np.arange(train.sum()) % 3
    weights /= weights.sum()
    space, strengths = SoSSpace(kernel, X[train], measure), STRENGTHS[objective]
    distance = distance_to(X[train], weights, kernel, objective)
    certified = regularization_path(
        distance, Trace(relative=True), strengths, space, tol=CERTIFIED[objective]
    )
    errors: list[np.ndarray] = []
    for strength, tight, F in zip(
        strengths,
        certified,
        fit_path(objective, space, X[train], weights, strengths),
        strict=True,
    ):
        assert tight.status == "solved" and np.sum(F * F) == pytest.approx(1.0, abs=1e-6), (
            "mass one"
        )
        term = (distance + strength * Trace(relative=True)).bind(space)
        value = term.value(space.embed(F @ F.T), F @ F.T)
        assert value - tight.objective < ABOVE[objective], (strength, value - tight.objective)
        ours, theirs = (
            log_density(space, factor, X[test]) for factor in (F, tight.parameter_factor)
        )
        # far in the tails, where p is a tiny difference, even the gap of the certified fit leaves
        # nats open
        errors.append(np.abs(ours - theirs)[theirs > theirs.max() - 8.0])
    middle, mean = (1e-3, 0.005) if objective == "squared_mmd" else (0.01, 0.02)
    assert np.median(np.concatenate(errors)) < middle and np.mean(np.concatenate(errors)) < mean, [
        np.max(part) for part in errors
    ]


def test_single_precision_where_it_is_enough() -> None:
    X = np.random.default_rng(0).normal(size=(350, 6))
    space, weights = SoSSpace(Gaussian(1.2), X), np.full(350, 1 / 350)
    assert 350 * space.rank > 1e5, "large enough for it"
    tight = regularization_path(
        NegativeLogLikelihood(X), Trace(relative=True), [1.0, 0.1], space, tol=1e-4
    )
    for solution, F in zip(
        tight, fit_path("likelihood", space, X, weights, [1.0, 0.1]), strict=True
    ):
        assert log_density(space, F, X).mean() == pytest.approx(
            log_density(space, solution.parameter_factor, X).mean(), abs=0.01
        )


@pytest.mark.parametrize("objective", STRENGTHS)
def test_rank_one_spaces_and_zero_regularization(objective: str) -> None:
    space = SoSSpace(Gaussian(1.0), [[0.0], [0.0]])
    (F,) = fit_path(objective, space, np.zeros((1, 1)), np.ones(1), [0.0])
    assert abs(F[0, 0]) == pytest.approx(1.0) and F.shape[0] == 1


@pytest.mark.parametrize("objective", STRENGTHS)
def test_a_path_costs_a_fraction_of_certified_fits(objective: str) -> None:
    X, kernel, strengths = IRIS, Gaussian([0.43, 0.21, 0.89, 0.38]), STRENGTHS[objective]
    space, weights = SoSSpace(kernel, X), np.full(len(X), 1 / len(X))
    space.compressed_map, space.trace_matrix, space.projection  # noqa: B018 - shared by both
    began = time.process_time()
    list(fit_path(objective, space, X, weights, strengths))
    quick, began = time.process_time() - began, time.process_time()
    regularization_path(
        distance_to(X, weights, kernel, objective),
        Trace(relative=True),
        STRENGTHS[objective],
        space,
        tol=CERTIFIED[objective],
    )
    assert quick < time.process_time() - began
