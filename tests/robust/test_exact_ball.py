"""Directions besides the landmarks: the witness of an MMD, spaces that see it, and exact balls in
any number of features.
"""

from __future__ import annotations

import warnings
from typing import Any

import numpy as np
import pytest
from tables import points

import ksos
from ksos.kernels import Gaussian, Laplace
from ksos.measures import Box, Discrete, Lebesgue, Normal
from ksos.observables import BoxIndicator, coordinate
from ksos.solvers import factor, project
from ksos.space import MeanEmbedding, Witness

SPACES: dict[str, tuple[int, Any, Any]] = {
    "line": (1, Lebesgue(), Gaussian),
    "plane": (2, Lebesgue(), Gaussian),
    "four features": (4, Lebesgue(), Gaussian),
    "box": (2, Box([-1.5, -1.0], [1.0, 2.0]), Gaussian),
    "normal": (2, Normal(0.2, 1.1), Gaussian),
    "nodes": (2, Discrete(points(50, 2, 4)), Laplace),
}


def space_and_data(name: str) -> tuple[ksos.SoSSpace, MeanEmbedding]:
    d, measure, family = SPACES[name]
    support, landmarks = points(9, d, 1), points(4, d, 2)
    if d == 1:  # random points on a line come so close together that T and S lose digits
        support, landmarks = np.linspace(-1.5, 1.5, 9)[:, None], np.linspace(-1.0, 1.0, 4)[:, None]
    space = ksos.SoSSpace(family(0.7), support, measure, family(1.0), landmarks)
    return space, MeanEmbedding(points(7, d, 3), kernel=family(1.0))


def random_parameter(space: ksos.SoSSpace, seed: int) -> np.ndarray:
    M = np.random.default_rng(seed).normal(size=(space.rank, space.rank))
    return np.asarray(project(0.5 * (M + M.T)))


def seeing(
    space: ksos.SoSSpace, C: np.ndarray, p: ksos.SoSDensity, data: MeanEmbedding, exact: float
) -> ksos.SoSSpace | None:
    """The space that also sees the direction in which p is away from the data."""
    return space.with_direction(
        Witness(p, data), space.compressed_map.apply(C) - space.coordinates(data), exact, data
    )


def inner_product(a: Any, b: Any, kernel: Any) -> float:
    """⟨w_a, w_b⟩ by polarization."""
    nothing = MeanEmbedding(np.zeros((1, a.n_features)), [0.0], kernel=kernel)
    to_a, to_b, apart = (ksos.mmd(*two, kernel) for two in ((nothing, a), (nothing, b), (a, b)))
    return 0.5 * (to_a**2 + to_b**2 - apart**2)


@pytest.mark.parametrize("name", SPACES)
def test_the_expectation_of_a_witness_is_an_inner_product(name: str) -> None:
    space, data = space_and_data(name)
    p, q = (space.density(factor(random_parameter(space, seed))) for seed in (0, 1))
    witness = Witness(p, data)
    M = witness.matrix(
        space.kernel, space.support_points, space.measure, space.log_unit, space.T
    ).values
    wanted = inner_product(q, p, data.kernel) - inner_product(q, data, data.kernel)
    assert float(np.vdot(M, random_parameter(space, 1))) == pytest.approx(wanted, abs=1e-9)
    x = points(5, space.n_features, 8)
    atom = [
        inner_product(MeanEmbedding(row[None, :], [1.0], kernel=data.kernel), p, data.kernel)
        for row in x
    ]
    np.testing.assert_allclose(witness(x), np.array(atom) - data(x), atol=1e-9)


@pytest.mark.parametrize("name", SPACES)
def test_a_space_that_sees_a_witness_measures_that_density_exactly(name: str) -> None:
    space, data = space_and_data(name)
    seen: Any = space
    for seed in (0, 1, 2):
        C = random_parameter(space, seed)
        p = space.density(factor(C))
        before = np.linalg.norm(seen.compressed_map.apply(C) - seen.coordinates(data))
        exact = ksos.mmd(p, data)
        assert before < exact
        seen = seeing(seen, C, p, data, exact)
        assert np.linalg.norm(
            seen.compressed_map.apply(C) - seen.coordinates(data)
        ) == pytest.approx(exact, abs=1e-9)
        np.testing.assert_allclose(seen.coordinates(p), seen.compressed_map.apply(C), atol=1e-8)
        assert seeing(seen, C, p, data, exact) is None
    assert seen.embedding_rank == space.embedding_rank + 3
    for seed in (3, 4):  # a projection still: no distance is too long
        C = random_parameter(space, seed)
        assert (
            np.linalg.norm(seen.compressed_map.apply(C) - seen.coordinates(data))
            <= ksos.mmd(space.density(factor(C)), data) + 1e-10
        )
    other = MeanEmbedding(points(5, space.n_features, 9), kernel=data.kernel)
    assert (
        np.linalg.norm(seen.coordinates(other) - seen.coordinates(data))
        <= ksos.mmd(other, data) + 1e-10
    )
    y = np.random.default_rng(0).normal(size=seen.embedding_rank)
    (g,), (near,), size = seen.functions(y)
    M = g.matrix(space.kernel, space.support_points, space.measure, space.log_unit, space.T).values
    np.testing.assert_allclose(M, seen.compressed_map.adjoint(y), atol=1e-8)
    assert float(data.weights @ g(data.points)) == pytest.approx(
        float(y @ seen.coordinates(data)), abs=1e-8
    )
    assert size**2 == pytest.approx(
        float(near.weights @ near.kernel(near.points) @ near.weights), rel=1e-6
    )


@pytest.mark.parametrize(
    ("d", "loss"), [(3, "square"), (4, "indicator"), (6, "square"), (6, "indicator")]
)
def test_many_features_and_an_exact_ball(d: int, loss: str) -> None:
    """With landmarks alone, exact and projected MMD of these differ by several percent however many
    there are.
    """
    X = 0.5 * points(25, d, 5)
    f = coordinate(0) ** 2 if loss == "square" else BoxIndicator([0.3] * d, [np.inf] * d)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", UserWarning)  # the square is not bounded
        worst = ksos.worst_case(f, ksos.Ball(X, 0.25), n_support=40)
    assert worst.status == "solved"
    assert (
        worst.value is not None
        and worst.gap is not None
        and worst.distribution is not None
        and worst.space is not None
    )
    assert worst.mmd <= 0.25
    assert abs(worst.mmd - worst.projected_mmd) <= 1e-6
    assert ksos.mmd(worst.distribution, X, worst.embedding_kernel) == pytest.approx(
        worst.mmd, abs=1e-9
    )
    assert worst.gap <= 1e-4 * worst.value
    space = worst.space
    assert worst.dual_function is not None and worst.dual_constant is not None
    slack = (worst.dual_constant + worst.dual_function - f).matrix(
        space.kernel, space.support_points, space.measure, space.log_unit, space.T
    )
    assert np.linalg.eigvalsh(slack.values)[0] >= -1e-8


@pytest.mark.parametrize("d", [1, 2, 3, 5])
def test_the_estimators_keep_to_the_exact_ball_in_any_number_of_features(d: int) -> None:
    X = points(30, d, 6)
    y = X @ np.arange(1.0, d + 1.0) + 0.2 * points(30, 1, 7)[:, 0]
    regressor = ksos.RobustRegressor(radius=0.25, n_support=25).fit(X, y)
    worst = regressor.worst_case_
    assert worst.mmd <= 0.25
    assert worst.mmd == pytest.approx(
        ksos.mmd(
            worst.distribution,
            MeanEmbedding(np.column_stack([X, y]), kernel=worst.embedding_kernel),
        )
    )
    labels = np.where(y > 0.0, "up", "down")
    classifier = ksos.RobustClassifier(radius=0.25, n_support=25).fit(X, labels)
    worst = classifier.worst_case_
    assert worst.mmd <= 0.25
    square = 0.0
    for label in ("up", "down"):
        share, p = (
            worst.distribution.probabilities[classifier.classes_ == label][0],
            worst.distribution.given(label),
        )
        part = MeanEmbedding(
            X[labels == label],
            np.full(np.sum(labels == label), 1.0 / 30.0 / share),
            kernel=worst.embedding_kernel,
        )
        square += (share * ksos.mmd(p, part)) ** 2
    assert np.sqrt(square) == pytest.approx(worst.mmd, abs=1e-9)
    assert worst.upper_bound is not None
    assert worst.value <= worst.dual_value + 1e-12
    if d <= 3:
        assert worst.upper_bound_kind == "rigorous"
    assert worst.value <= worst.upper_bound + 1e-9
    codes = (labels == classifier.classes_[1]).astype(float)
    loss, low, high = worst.loss, X.min(axis=0), X.max(axis=0)
    for corner in (
        low,
        high,
        0.5 * (low + high),
    ):  # the data mixed with one labeled atom, up to the boundary of the ball
        for code in (0.0, 1.0):
            kernel = worst.embedding_kernel(np.vstack([X, corner]))
            same = np.equal.outer(np.append(codes, code), np.append(codes, code))
            a = np.append(np.full(30, -1.0 / 30.0), 1.0)
            t = min(0.25 / np.sqrt(a @ (kernel * same) @ a), 1.0)
            mean = np.mean(loss(np.column_stack([X, codes])))
            assert (1.0 - t) * mean + t * loss(np.append(corner, code)[None, :])[
                0
            ] <= worst.upper_bound + 1e-9


@pytest.mark.parametrize("d", [2, 3])
def test_a_loss_of_ones_own_in_the_exact_ball(d: int) -> None:
    X = 0.5 * np.random.default_rng(0).normal(size=(20, d))

    def loss(theta: np.ndarray, Z: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        away = theta - Z
        return np.sum(away**2, axis=1), 2.0 * away

    found = ksos.robust_minimize(
        loss,
        np.zeros(d),
        ksos.Ball(X, 0.3, kernel=Gaussian(1.0), domain=Box([-2.0] * d, [2.0] * d)),
        n_support=20,
    )
    worst = found.worst_case
    assert found.status == "solved", found.message
    assert worst is not None and worst.gap is not None and worst.value is not None
    assert worst.mmd <= 0.3
    assert worst.mmd - worst.projected_mmd <= 1e-6
    assert worst.gap <= 1e-5 * worst.value
