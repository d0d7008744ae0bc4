"""Compression: what is dropped, what is kept, and that the distance reported is the exact one."""

from __future__ import annotations

import numpy as np
import pytest
from oracles import quadrature_rule
from tables import PAIR_CASES, PairCase, points

import ksos
from ksos.density import square_of
from ksos.exceptions import IntegralNotAvailableError
from ksos.kernels import Gaussian, Laplace
from ksos.measures import Box, Discrete, Lebesgue
from ksos.space import pivoted_cholesky

# two features only where a quadrature rule for them is small
CASES = {
    name: pair
    for name, pair in PAIR_CASES.items()
    if pair.d == 1 or "× box" in name or "× discrete" in name
}
every_pair = pytest.mark.parametrize("pair", CASES.values(), ids=CASES)


def decaying(pair: PairCase, m: int = 8, rank: int = 4) -> ksos.SoSDensity:
    """Squares of which each is a quarter of the one before."""
    factor = np.random.default_rng(2).normal(size=(m, rank)) * 0.5 ** np.arange(rank)
    return ksos.SoSDensity(pair.kernel, points(m, pair.d), factor, pair.measure, normalize=True)


def smaller(p: ksos.SoSDensity, pair: PairCase, **sizes: int) -> ksos.Compression:
    exact = isinstance(pair.measure, Discrete) or isinstance(pair.kernel, Gaussian)
    return p.compress(**sizes, landmarks=None if exact else points(12, pair.d, 6))


@every_pair
def test_the_rank_is_cut_where_the_least_mass_is_lost(pair: PairCase) -> None:
    p = decaying(pair)
    nodes, w = quadrature_rule(pair.kernel, pair.measure, p.support_points)
    columns = np.sqrt(w)[:, None] * (pair.kernel(nodes, p.support_points) @ p.factor)
    columns[~pair.measure.contains(nodes)] = 0.0
    masses = np.linalg.svd(columns, compute_uv=False) ** 2
    for rank in (1, 2, 3):
        q = smaller(p, pair, rank=rank).density
        assert q.rank == rank and q.terms.mass() == pytest.approx(1.0, abs=1e-12)
        # p − (kept mass)·q is a sum of squares, and its mass is that of the columns left out
        left = p.pdf(nodes) - masses[:rank].sum() * q.pdf(nodes)
        assert np.all(left > -1e-10)
        assert w @ left == pytest.approx(masses[rank:].sum(), abs=1e-10)


@every_pair
def test_fewer_points_project_every_column(pair: PairCase) -> None:
    p = decaying(pair)
    nodes, w = quadrature_rule(pair.kernel, pair.measure, p.support_points)
    root = np.sqrt(w)[:, None]
    columns = root * (pair.kernel(nodes, p.support_points) @ p.factor)
    for m in (1, 3, 6):
        q = smaller(p, pair, m=m).density
        assert q.support_points.shape[0] == m and q.rank <= min(m, p.rank)
        basis = root * pair.kernel(nodes, q.support_points)
        projected = basis @ np.linalg.lstsq(basis, columns, rcond=None)[0]
        expected = np.sum(projected**2, axis=1) / w
        np.testing.assert_allclose(q.pdf(nodes), expected / (w @ expected), rtol=1e-6, atol=1e-8)


def test_points_are_chosen_for_the_density_not_for_the_kernel() -> None:
    """Matching pursuit leaves out less of the column functions than points that only spread."""
    X, m = points(40, 2, 3), 8
    factor = (
        np.random.default_rng(0).normal(size=(40, 2))
        * np.exp(-np.sum((X - 0.5) ** 2, axis=1))[:, None]
    )
    p = ksos.SoSDensity(Gaussian(0.5), X, factor, Box([-0.5, -0.5], [1.5, 1.5]), normalize=True)
    W = np.exp(square_of(p).integrals.log_gram(X, X) - square_of(p).log_unit)

    def left_out(chosen: np.ndarray) -> float:
        Q = W[np.ix_(chosen, chosen)]
        inner = W[chosen] @ square_of(p).unit_factor
        return p.terms.mass() - float(np.sum(inner * np.linalg.lstsq(Q, inner, rcond=1e-12)[0]))

    kept = p.compress(m=m).density.support_points
    chosen = np.array([int(np.flatnonzero(np.all(x == X, axis=1))[0]) for x in kept])
    for k in range(4):  # every choice is the best one, given those before it
        candidates = [left_out(np.r_[chosen[:k], j]) for j in range(40) if j not in chosen[:k]]
        assert left_out(chosen[: k + 1]) == pytest.approx(min(candidates), rel=1e-6)
    spread = pivoted_cholesky(X, m, square_of(p).integrals, 1e-12)
    assert left_out(chosen) < 0.5 * left_out(spread)


@pytest.mark.parametrize(
    "measure",
    [None, Box([-1.0, -1.0], [1.0, 1.5]), Discrete(points(60, 2, 5))],
    ids=["R^2", "box", "discrete"],
)
@pytest.mark.parametrize("sizes", [{"rank": 1}, {"rank": 2}, {"m": 3}, {"m": 6}], ids=str)
def test_the_distance_reported_is_the_mmd_by_quadrature(
    measure: object, sizes: dict[str, int]
) -> None:
    p = ksos.SoSDensity(Gaussian(0.8), points(8, 2), points(8, 3, 1), measure, normalize=True)
    q, distance = p.compress(**sizes)
    nodes, w = quadrature_rule(p.kernel, p.measure, p.support_points, per_panel=14, reach=5.0)
    signed = w * (p.pdf(nodes) - q.pdf(nodes))
    heavy = np.abs(signed) > 1e-13
    signed, nodes = signed[heavy], nodes[heavy]
    squared = sum(
        float(signed[i : i + 500] @ (p.kernel(nodes[i : i + 500], nodes) @ signed))
        for i in range(0, nodes.shape[0], 500)
    )
    assert distance == pytest.approx(np.sqrt(squared), rel=1e-6)
    assert distance == pytest.approx(ksos.mmd(p, q), rel=1e-9)


def test_distances_shrink_with_size_and_vanish_at_full_size() -> None:
    p = decaying(PairCase(Gaussian(0.8), Lebesgue(), 2), 12, 5)
    by_rank = [p.compress(rank=rank).mmd for rank in range(1, 6)]
    assert by_rank[0] > by_rank[2] > by_rank[4] == 0.0
    by_points = [p.compress(m=m).mmd for m in (2, 6, 10, 12)]
    assert by_points[0] > by_points[1] > by_points[2] > by_points[3] == 0.0
    assert p.compress(rank=99).density.rank == p.rank
    assert p.compress(rank=2, kernel=Gaussian(3.0)).mmd < by_rank[1]  # a wider kernel sees less


def test_points_that_add_nothing_are_not_kept() -> None:
    X = np.repeat(points(3, 1), 4, axis=0) + np.tile([[0.0], [0.0], [1e-9], [1e-7]], (3, 1))
    p = ksos.SoSDensity(Gaussian(0.8), X, points(12, 2, 1), normalize=True)
    q, distance = p.compress(m=7)
    assert q.support_points.shape[0] == 3
    assert distance < 1e-7


@pytest.mark.parametrize("scale", [1e-150, 1e-6, 1e6, 1e150])
def test_scale_free(scale: float) -> None:
    p = ksos.SoSDensity(Gaussian(0.8), points(8, 2), points(8, 3, 1), normalize=True)
    for sizes in ({"rank": 1}, {"m": 3}):
        one, other = p.compress(**sizes), p.affine(scale).compress(**sizes)
        assert other.mmd == pytest.approx(one.mmd, rel=1e-6)
        np.testing.assert_allclose(other.density.support_points, scale * one.density.support_points)


def test_hundreds_of_dimensions() -> None:
    p = ksos.SoSDensity(Gaussian(30.0), points(10, 784), points(10, 3, 1), normalize=True)
    assert p.compress(rank=2).density.terms.mass() == pytest.approx(1.0)
    q, distance = p.compress(m=5)
    assert 0.0 <= distance < 1.0
    assert np.all(np.isfinite(q.logpdf(points(4, 784, 2))))


def test_where_the_exact_distance_has_no_closed_form() -> None:
    p = ksos.SoSDensity(Laplace(0.8, product=True), points(6, 2), points(6, 2, 1), normalize=True)
    with pytest.raises(IntegralNotAvailableError, match="landmarks="):
        p.compress(rank=1)
    assert p.compress(rank=1, landmarks=points(9, 2, 3)).mmd > 0.0


@pytest.mark.parametrize(
    ("sizes", "message"),
    [
        ({}, "give either rank, the number of columns, or m, the number of support points"),
        ({"rank": 1, "m": 2}, "give either rank"),
        ({"rank": 0}, "rank must be at least 1"),
        ({"m": 0}, "m must be at least 1"),
        ({"m": 2.5}, "m must be a whole number"),
        ({"rank": True}, "rank must be a whole number"),
    ],
)
def test_refuses_sizes(sizes: dict, message: str) -> None:
    p = ksos.SoSDensity(Gaussian(0.8), points(6, 2), points(6, 2, 1), normalize=True)
    with pytest.raises(ValueError, match=message):
        p.compress(**sizes)
