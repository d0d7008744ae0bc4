"""Laws of SoSSpace: whitening, the map A and its adjoint, targets; on every pair and every
whitening.
"""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
from oracles import brute_objective, quadrature_rule
from tables import THIN_PAIR_CASES, WHITENING_CASES, PairCase, points

import ksos
from ksos.density import square_of
from ksos.functionals import Objective, SquaredMMD, Trace
from ksos.ground import resources
from ksos.integrals import PairFactors
from ksos.kernels import Gaussian, Laplace
from ksos.measures import Box, Discrete
from ksos.solvers import factor, project
from ksos.space import CompressedMap, PairwiseMap

every_pair = pytest.mark.parametrize("pair", THIN_PAIR_CASES.values(), ids=THIN_PAIR_CASES)
every_whitening = pytest.mark.parametrize("whitening", WHITENING_CASES)


def make_space(pair: PairCase, whitening: str = "eigh", m: int = 6) -> ksos.SoSSpace:
    embedding = pair.kernel.with_sigma(1.3 * pair.kernel.sigma)
    return ksos.SoSSpace(
        pair.kernel,
        points(m, pair.d),
        pair.measure,
        embedding,
        points(5, pair.d, 3),
        whitening=whitening,
    )


def rounding(space: ksos.SoSSpace) -> float:
    """What rounding of W and K may amount to after whitening with T and S."""
    return (
        1e-15
        * np.linalg.norm(space.T, 2) ** 2
        * np.sqrt(np.trace(space.embedding_kernel(space.landmarks)))
        + 1e-12
    )


def random_parameter(r: int, seed: int = 0) -> np.ndarray:
    M = np.random.default_rng(seed).normal(size=(r, r))
    return project(M + M.T)


@every_pair
@every_whitening
def test_the_basis_is_orthonormal(pair: PairCase, whitening: str) -> None:
    space = make_space(pair, whitening)
    nodes, w = quadrature_rule(pair.kernel, pair.measure, space.support_points)
    psi = space.basis(nodes)
    gram = (psi * (w * np.exp(-space.log_unit))[:, None]).T @ psi
    jitter = space.jitter * space.T.T @ space.T
    np.testing.assert_allclose(gram + jitter, np.eye(space.rank), rtol=0, atol=rounding(space))
    S, K = space.projection.S, space.embedding_kernel(space.landmarks)
    np.testing.assert_allclose(
        S @ (K + space.projection.whitening.jitter * np.eye(5)) @ S.T,
        np.eye(space.embedding_rank),
        atol=2e-6,
    )


@every_pair
@every_whitening
def test_the_map_and_its_adjoint_agree_with_quadrature_and_with_each_other(
    pair: PairCase, whitening: str
) -> None:
    space = make_space(pair, whitening)
    A, z, N = brute_objective(space, points(9, pair.d, 4))
    C, y = random_parameter(space.rank), np.random.default_rng(1).normal(size=space.embedding_rank)
    slack = rounding(space) * np.linalg.norm(space.projection.S, 2)
    np.testing.assert_allclose(space.embed(C), np.einsum("kij,ij->k", A, C), atol=slack)
    np.testing.assert_allclose(space.embed_adjoint(y), np.einsum("kij,k->ij", A, y), atol=slack)
    assert np.vdot(space.embed_adjoint(y), C) == pytest.approx(y @ space.embed(C), abs=slack)
    np.testing.assert_allclose(space.coordinates(points(9, pair.d, 4)), z, atol=1e-9)
    np.testing.assert_allclose(space.trace_matrix, N, atol=rounding(space))
    adjoint = space.embed_adjoint(y)
    np.testing.assert_array_equal(adjoint, adjoint.T)


@every_pair
def test_a_parameter_and_its_density_have_one_embedding(pair: PairCase) -> None:
    space = make_space(pair)
    G = factor(random_parameter(space.rank))
    p = space.density(G)
    assert p.terms.mass() == pytest.approx(1.0, abs=1e-7)
    np.testing.assert_allclose(space.coordinates(p), space.embed(G @ G.T), atol=1e-6)
    X = points(9, pair.d, 4)
    objective = Objective.of(SquaredMMD(X), space)
    projected = ksos.mmd(X, p, space.embedding_kernel, landmarks=space.landmarks)
    assert objective.value(objective.point(G @ G.T)) == pytest.approx(
        projected**2, rel=1e-5, abs=1e-9
    )
    trace = Objective.of(Trace(), space)
    B = p.factor @ p.factor.T
    assert trace.value(trace.point(G @ G.T)) == pytest.approx(
        np.vdot(B, space.kernel(space.support_points)), rel=1e-6
    )


@pytest.mark.parametrize("sigma", [0.3, 1.0, 4.0])
def test_the_stored_tensor_and_the_pair_factors_are_the_same_map(sigma: float) -> None:
    X = points(20, 2)
    space = ksos.SoSSpace(Gaussian(sigma), X)
    pairs = PairFactors(space.integrals, X, X, Gaussian(sigma), space.log_unit)
    S = space.projection.S
    factored = PairwiseMap(pairs, space.T, S)
    stored = factored.compressed()
    C, y = random_parameter(space.rank), np.random.default_rng(1).normal(size=space.embedding_rank)
    slack = rounding(space) * np.linalg.norm(S, 2)
    np.testing.assert_allclose(stored.apply(C), factored.apply(C), atol=slack)
    np.testing.assert_allclose(stored.adjoint(y), factored.adjoint(y), atol=slack)


def test_the_adjoint_has_as_many_directions_as_there_are() -> None:
    """More than fit into one block of numbers."""
    pairs: Any = SimpleNamespace(c=2.0, G=np.ones((1, 1)), H=np.ones((1, 1)))
    T = np.random.default_rng(0).normal(size=(1, 1500))
    adjoint = PairwiseMap(pairs, T, np.ones((1, 1))).adjoint(np.ones(1))
    np.testing.assert_allclose(adjoint, 2.0 * T.T @ T)


def test_nothing_with_three_indices_is_formed_where_nothing_is_truncated() -> None:
    assert isinstance(ksos.SoSSpace(Gaussian(0.3), points(40, 10)).map, PairwiseMap)
    assert isinstance(ksos.SoSSpace(Gaussian(5.0), points(40, 2)).map, CompressedMap)
    assert isinstance(ksos.SoSSpace(Laplace(1.0), points(10, 1)).map, CompressedMap)


def test_tolerances_decide_the_ranks() -> None:
    X = points(40, 1)
    ranks = [ksos.SoSSpace(Gaussian(1.0), X, tol_model=tol).rank for tol in (1e-2, 1e-6, 1e-10)]
    assert ranks == sorted(ranks)
    assert ranks[0] < ranks[-1] < 40
    embedding_ranks = [
        ksos.SoSSpace(Gaussian(1.0), X, tol_embedding=tol).embedding_rank
        for tol in (1e-2, 1e-6, 1e-10)
    ]
    assert embedding_ranks == sorted(embedding_ranks)
    assert embedding_ranks[0] < embedding_ranks[-1]


def test_the_cholesky_route_keeps_every_direction_and_renormalises() -> None:
    X = points(40, 1)
    space = ksos.SoSSpace(Gaussian(1.0), X, whitening="cholesky")
    assert space.rank == 40
    assert space.jitter > 0.0
    C = random_parameter(40)
    B = space.T @ C @ space.T.T
    p = space.density(factor(C))
    np.testing.assert_allclose(
        square_of(p).unit_factor @ square_of(p).unit_factor.T,
        B / (1.0 - space.jitter * np.trace(B)),
        rtol=1e-4,
        atol=1e-4 * np.abs(B).max(),
    )


def test_landmarks_and_embedding_bandwidth_are_used() -> None:
    X = points(8, 2)
    Z = points(3, 2, 7)
    space = ksos.SoSSpace(Gaussian(1.0), X, landmarks=Z, embedding_kernel=Gaussian(0.5))
    assert space.embedding_rank == 3
    expected = Gaussian(0.5)(Z, X).mean(axis=1)
    np.testing.assert_allclose(
        np.linalg.pinv(space.projection.S) @ space.coordinates(X), expected, rtol=1e-9
    )


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ({"support_points": [[np.nan]]}, "contains NaN"),
        ({"support_points": [1.0, 2.0]}, "Expected 2D array, got 1D array"),
        ({"landmarks": [[0.0, 0.0]]}, "landmarks has 2 features, but 1 were expected"),
        ({"tol_model": 0.0}, "tol_model must be positive"),
        ({"tol_embedding": np.nan}, "tol_embedding must be positive"),
        ({"whitening": "qr"}, "whitening must be one of 'eigh', 'cholesky'"),
        ({"measure": Box([0.0, 0.0], [1.0, 1.0])}, "Box measure has 2 features"),
        ({"measure": Discrete([[1e6]])}, "the kernel vanishes on Discrete"),
    ],
)
def test_refuses_what_makes_no_space(arguments: dict, message: str) -> None:
    with pytest.raises(ValueError, match=message):
        ksos.SoSSpace(**{"kernel": Gaussian(1.0), "support_points": points(4, 1), **arguments})


@pytest.mark.parametrize(
    ("available", "what"),
    [
        (1e2, "mass matrix of 30 support points"),
        (4.2e4, "pair matrices of 30 support points and 30 landmarks"),
    ],
)
def test_predicts_its_memory(available: float, what: str) -> None:
    with resources(memory=available):
        with pytest.raises(
            MemoryError, match=rf"{what} needs .* GB, but only .* GB are available; use fewer"
        ):
            _ = ksos.SoSSpace(Gaussian(0.1), points(30, 2)).map
        with pytest.raises(MemoryError, match=r"needs .* GB"):
            _ = ksos.SoSSpace(Laplace(0.1, product=True), points(30, 2)).map


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ({"kernel": "gaussian"}, r"a kernel object such as .* is needed; got 'gaussian'"),
        ({"measure": "box"}, "a measure such as .* is needed"),
    ],
)
def test_refuses_words_for_objects(arguments: dict, message: str) -> None:
    with pytest.raises(TypeError, match=message):
        ksos.SoSSpace(**{"kernel": Gaussian(1.0), "support_points": points(4, 1), **arguments})


def test_an_objective_changes_its_map_when_a_solver_asks_for_the_tensor() -> None:
    objective = Objective.of(SquaredMMD(points(9, 2)), ksos.SoSSpace(Gaussian(0.3), points(20, 2)))
    assert isinstance(objective.map, PairwiseMap)
    objective = objective.on_tensor()
    assert isinstance(objective.map, CompressedMap)
