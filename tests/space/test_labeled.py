"""Spaces with labels, and with directions: every method of a space works, the blocks do not touch,
a labeled density has its laws.
"""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from tables import points

import ksos
from ksos.kernels import Gaussian, Laplace
from ksos.measures import Box, Discrete, Lebesgue
from ksos.solvers import factor, project
from ksos.space import CompressedMap, LabeledDensity, LabeledEmbedding

LABELS = ["no", "perhaps", "yes"]
CASES: dict[str, tuple[int, Any, Any]] = {
    "line": (1, Lebesgue(), Gaussian),
    "box": (2, Box([-1.5, -1.0], [1.0, 2.0]), Gaussian),
    "four features": (4, Lebesgue(), Gaussian),
    "nodes": (1, Discrete(points(40, 1, 4)), Laplace),
}
every_case = pytest.mark.parametrize("case", CASES)


def plain_space(case: str) -> ksos.SoSSpace:
    d, measure, family = CASES[case]
    return ksos.SoSSpace(family(0.8), points(7, d, 1), measure, family(1.0), points(4, d, 2))


def parameter(space: ksos.SoSSpace, seed: int = 0) -> np.ndarray:
    M = np.random.default_rng(seed).normal(size=(space.rank, space.rank))
    return np.asarray(project(0.5 * (M + M.T)))


def labeled_data(d: int, kernel: Any) -> LabeledEmbedding:
    X = points(12, d, 3)
    return LabeledEmbedding.of(
        X, np.repeat(["yes", "no"], 6), LABELS, np.arange(1.0, 13.0), kernel=kernel
    )


@every_case
def test_the_blocks_of_a_space_with_labels_are_those_of_the_space(case: str) -> None:
    plain = plain_space(case)
    space, r, q = plain.with_labels(LABELS), plain.rank, plain.embedding_rank
    assert (space.rank, space.embedding_rank, space.n_blocks) == (3 * r, 3 * q, 3)
    assert space.projection is plain.projection and space.support_points is plain.support_points
    C, y = parameter(space), np.random.default_rng(1).normal(size=3 * q)
    stored = CompressedMap(space.compressed_map.tensor)
    F = np.random.default_rng(2).normal(size=(3 * r, 2))
    np.testing.assert_allclose(space.embed(C), stored.apply(C), atol=1e-12)
    np.testing.assert_allclose(space.embed_adjoint(y), stored.adjoint(y), atol=1e-12)
    np.testing.assert_allclose(space.map.jacobian(F), stored.jacobian(F), atol=1e-12)
    assert float(np.vdot(space.embed_adjoint(y), C)) == pytest.approx(float(y @ space.embed(C)))
    np.testing.assert_array_equal(space.T[: plain.T.shape[0], :r], plain.T)
    for k in range(3):
        block = slice(k * r, (k + 1) * r)
        np.testing.assert_array_equal(space.trace_matrix[block, block], plain.trace_matrix)
        np.testing.assert_allclose(
            space.embed(C)[k * q : (k + 1) * q], plain.embed(C[block, block]), atol=1e-12
        )
    assert "labels=['no', 'perhaps', 'yes']" in repr(space)


@every_case
def test_a_labeled_density_is_the_one_of_its_parameter(case: str) -> None:
    space = plain_space(case).with_labels(LABELS)
    C = parameter(space)
    p = space.density(factor(C))
    assert isinstance(p, LabeledDensity)
    assert p.mass() == pytest.approx(1.0, abs=1e-7) and p.rank <= 3 * space.rank
    np.testing.assert_allclose(space.coordinates(p), space.embed(C), atol=1e-7)
    X, y = points(9, space.n_features, 5), np.array(LABELS * 3)
    psi = space.basis(X, y)
    inside = np.asarray(space.measure.contains(X))
    expected = np.where(
        inside, np.einsum("nr,rs,ns->n", psi, C, psi) * np.exp(-space.log_unit), 0.0
    )
    np.testing.assert_allclose(p.pdf(X, y), expected, rtol=1e-6, atol=1e-12)
    with pytest.raises(ValueError, match="labels of the rows"):
        space.basis(X)
    with pytest.raises(ValueError, match="unknown label"):
        space.basis(X, "maybe")
    with pytest.raises(TypeError, match="LabeledEmbedding"):
        space.coordinates(X)


@every_case
def test_the_methods_of_a_labeled_density(case: str) -> None:
    space = plain_space(case).with_labels(LABELS)
    p = space.density(factor(parameter(space, 3)))
    X, d = points(6, space.n_features, 5), space.n_features
    total = sum(p.pdf(X, label) for label in LABELS)
    np.testing.assert_allclose(p.marginal().pdf(X), total, rtol=1e-7, atol=1e-12)
    np.testing.assert_allclose(np.exp(p.logpdf(X, "no")), p.pdf(X, "no"))
    shares = [float(share) for share in p.probabilities]
    assert p.expectation(
        lambda X, label: np.full(X.shape[0], float(label == "yes"))
    ) == pytest.approx(shares[2], abs=1e-6)
    drawn, labels = p.rvs(2000, rng=0)
    assert drawn.shape == (2000, d)
    for share, label in zip(shares, LABELS, strict=True):
        assert np.mean(labels == label) == pytest.approx(
            share, abs=5.0 * np.sqrt(share * (1.0 - share) / 2000.0) + 1e-9
        )
    with pytest.raises(ValueError, match="labels are"):
        p.given("maybe")


@every_case
def test_the_mmd_of_a_labeled_density_counts_each_label_alone(case: str) -> None:
    space = plain_space(case).with_labels(LABELS)
    data = labeled_data(space.n_features, space.embedding_kernel)
    assert data.parts[1] is None
    C = parameter(space, 4)
    p = space.density(factor(C))
    square = 0.0
    for share, label, part in zip(p.probabilities, LABELS, data.parts, strict=True):
        own = p.given(label)
        norm = ksos.mmd(
            own, ksos.MeanEmbedding(points(1, space.n_features), [0.0], kernel=data.kernel)
        )  # ‖w_p‖
        square += (share * norm) ** 2
        if part is not None:
            to_data = ksos.mmd(own, part)
            crossed = 0.5 * (norm**2 + part.norm() ** 2 - to_data**2)
            square += part.norm() ** 2 - 2.0 * share * crossed
    assert p.mmd(data) == pytest.approx(np.sqrt(square), abs=1e-7)
    assert np.linalg.norm(space.embed(C) - space.coordinates(data)) <= p.mmd(data) + 1e-9


def test_a_label_without_mass_has_no_density() -> None:
    space = plain_space("line").with_labels(["a", "b"])
    G = np.zeros((space.rank, 1))
    G[0] = 1.0
    p = space.density(G)
    assert p.probabilities.tolist() == [1.0, 0.0] and p.densities[1] is None
    assert p.pdf([[0.0]], "b")[0] == 0.0
    with pytest.raises(ValueError, match="probability 0"):
        p.given("b")


def test_one_label_is_no_label() -> None:
    plain = plain_space("box")
    space, C = plain.with_labels(["only"]), parameter(plain)
    np.testing.assert_allclose(space.embed(C), plain.embed(C))
    np.testing.assert_allclose(
        space.density(factor(C)).pdf(points(5, 2), "only"),
        plain.density(factor(C)).pdf(points(5, 2)),
        rtol=1e-9,
    )
    assert space.with_labels(None).labels is None


def test_the_solvers_take_a_space_with_labels() -> None:
    """The nearest labeled density: label by label, up to the shares, by every solver."""
    space = plain_space("line").with_labels(["no", "yes"])
    X, y = points(12, 1, 3), np.repeat(["no", "yes"], 6)
    data = LabeledEmbedding.of(X, y, kernel=space.embedding_kernel)
    found = [
        ksos.minimize(ksos.functionals.SquaredMMD(data), space, solver=solver, tol=1e-9)
        for solver in ("low_rank", "interior_point")
    ]
    assert [one.status for one in found] == ["solved", "solved"]
    assert found[0].objective == pytest.approx(found[1].objective, abs=3e-9)
    p = found[0].distribution
    assert isinstance(p, LabeledDensity) and p.mass() == pytest.approx(1.0, abs=1e-7)
    assert p.mmd(data) ** 2 >= found[0].objective - 1e-9
