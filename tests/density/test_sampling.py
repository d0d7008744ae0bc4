"""Both routes of the sampler: the inverse is right to 1e-9, nothing depends on chunks, the choice
is sensible, hard cases stay finite.
"""

from __future__ import annotations

import tracemalloc

import numpy as np
import pytest
from densities import make_density
from hypothesis import given, settings, strategies as st
from oracles import marginal_cdf, quadrature_rule
from scipy.special import ndtr
from statistics_checks import chi_square_passes, dkw_passes_at
from strategies import degenerate_data
from tables import THIN_PAIR_CASES, PairCase, answers_itself, points

import ksos
from ksos.density import square_of
from ksos.density.sampling import (
    METHODS,
    draw_by_inversion,
    envelope,
    envelope_bytes,
    fewer_rows,
    hadamard_rows,
    predicted_seconds,
)
from ksos.ground import resources
from ksos.kernels import Gaussian, Laplace, Matern
from ksos.measures import Box, Discrete, Lebesgue, Measure, Normal

CONTINUOUS = {
    name: pair
    for name, pair in THIN_PAIR_CASES.items()
    if not isinstance(pair.measure, Discrete) and answers_itself(pair)
}
QUICKLY_INTEGRATED = {
    name: pair for name, pair in CONTINUOUS.items() if pair.d == 1 or pair.kernel.smooth
}
every_continuous_pair = pytest.mark.parametrize("pair", CONTINUOUS.values(), ids=CONTINUOUS)
both = pytest.mark.parametrize("method", ["inversion", "rejection"])
both_searches = pytest.mark.parametrize("tree", [False, True], ids=["scan", "tree"])

CDF_TOLERANCE = 1e-9


def canceling() -> ksos.SoSDensity:
    """The least certain function of a space of wide kernels: the weights of its square are
    enormous, and of both signs.
    """
    space = ksos.SoSSpace(Gaussian(2.0), points(40, 2, 3))
    return ksos.SoSDensity(
        space.kernel,
        space.support_points,
        space.T[:, np.argmax(np.abs(space.T).max(axis=0))][:, None],
        normalize=True,
    )


def conditional_cdf(p: ksos.SoSDensity, x: np.ndarray) -> float:
    """F(x_d | x_1 … x_{d−1}) of one sample: the joint density, integrated along the last feature by
    panels that end at kinks and at x_d.
    """
    kernel, measure, centers = (
        p.kernel.restrict([p.n_features - 1]),
        p.measure.restrict([p.n_features - 1]),
        p.support_points[:, -1:],
    )
    low, high = p.measure.boundary(p.n_features - 1)
    reach = (9.0 if kernel.smooth else 45.0) * float(kernel.sigma_vector(1)[0])
    low, high = (
        max(low, min(centers.min(), x[-1]) - reach),
        min(high, max(centers.max(), x[-1]) + reach),
    )
    mass = []
    for a, b in ((low, x[-1]), (x[-1], high)):
        nodes, w = (
            quadrature_rule(kernel, Box([a], [b]), centers)
            if b > a
            else (np.zeros((0, 1)), np.zeros(0))
        )
        rows = np.concatenate(
            [np.broadcast_to(x[:-1], (nodes.shape[0], x.shape[0] - 1)), nodes], axis=1
        )
        mass.append(
            float(w @ (p.pdf(rows) * np.exp(measure.log_density(nodes)))) if nodes.size else 0.0
        )
    return mass[0] / (mass[0] + mass[1])


# --- the law is the right one ---


@every_continuous_pair
@both_searches
def test_inversion_solves_for_its_uniforms(pair: PairCase, tree: bool) -> None:
    p, n = make_density(pair), 12
    uniforms, samples = (
        np.random.default_rng(3).random((n, pair.d)),
        draw_by_inversion(square_of(p), n, np.random.default_rng(3), tree=tree),
    )
    order = np.argsort(samples[:, 0])
    np.testing.assert_allclose(
        marginal_cdf(p, 0, samples[order, 0]), uniforms[order, 0], atol=CDF_TOLERANCE
    )
    if pair.d > 1:
        np.testing.assert_allclose(
            [conditional_cdf(p, x) for x in samples], uniforms[:, -1], atol=CDF_TOLERANCE
        )


@both_searches
def test_inversion_keeps_its_digits_where_weights_cancel(tree: bool) -> None:
    p = canceling()
    assert np.abs(p.factor).max() > 1e4 * np.sqrt(
        p.pdf(p.support_points).max()
    )  # hundreds of millions cancel in Σ B_ij k_i k_j
    uniforms, samples = (
        np.random.default_rng(0).random((40, 2)),
        draw_by_inversion(square_of(p), 40, np.random.default_rng(0), tree=tree),
    )
    np.testing.assert_allclose(
        [conditional_cdf(p, x) for x in samples], uniforms[:, 1], atol=CDF_TOLERANCE
    )


@every_continuous_pair
@both
def test_samples_follow_the_density(pair: PairCase, method: str) -> None:
    p, n = make_density(pair), 20_000
    samples = p.rvs(n, rng=7, method=method)
    assert samples.shape == (n, pair.d)
    assert np.all(pair.measure.contains(samples))
    for k in range(pair.d):
        assert dkw_passes_at(samples[:, k], lambda t, k=k: marginal_cdf(p, k, t), 25)


@pytest.mark.parametrize(
    "pair", [pair for pair in THIN_PAIR_CASES.values() if isinstance(pair.measure, Discrete)][:6]
)
def test_samples_of_a_discrete_measure_are_its_nodes(pair: PairCase) -> None:
    p, n = make_density(pair), 20_000
    samples = p.rvs(n, rng=7)
    mass = pair.measure.weights * p.pdf(pair.measure.points)
    counts = np.array([np.sum(np.all(samples == node, axis=1)) for node in pair.measure.points])
    assert counts.sum() == n
    likely = mass * n > 10
    assert chi_square_passes(counts[likely], mass[likely] / mass[likely].sum())
    assert counts[~likely].sum() <= 40 + 5 * n * mass[~likely].sum()


@both
@pytest.mark.parametrize("d", [1, 3, 8, 20])
def test_many_features(d: int, method: str) -> None:
    p = ksos.SoSDensity(
        Gaussian(np.sqrt(d)),
        points(6, d, 1),
        np.random.default_rng(0).normal(size=(6, 2)),
        normalize=True,
    )
    samples = p.rvs(4000, rng=0, method=method)
    error = np.sqrt(np.diagonal(p.cov()) / 4000)
    assert np.all(np.abs(samples.mean(axis=0) - p.mean()) < 6 * error)
    np.testing.assert_allclose(np.cov(samples.T), p.cov(), atol=0.2 * float(p.cov().max()))
    i, j = np.indices((6, 6))
    weights = (square_of(p).unit_factor @ square_of(p).unit_factor.T) * np.exp(
        square_of(p).integrals.log_gram(p.support_points, p.support_points) - square_of(p).log_unit
    )
    for direction in (np.eye(d)[d - 1], np.ones(d) / np.sqrt(d)):
        t = p.support_points @ direction
        centers = 0.5 * (t[i] + t[j])
        assert dkw_passes_at(
            samples @ direction,
            lambda x, c=centers: np.sum(
                weights * ndtr((x[:, None, None] - c) / (0.5 * np.sqrt(d))), (1, 2)
            ),
        )


@both
def test_hundreds_of_features(method: str) -> None:
    d = 784
    p = ksos.SoSDensity(
        Gaussian(np.sqrt(d)), points(4, d, 1), [[1.0], [0.7], [-0.3], [0.5]], normalize=True
    )
    samples = p.rvs(60, rng=0, method=method)
    z = (samples.mean(axis=0) - p.mean()) / np.sqrt(np.diagonal(p.cov()) / 60)
    assert np.all(np.isfinite(samples))
    assert np.abs(z).max() < 6.0
    # 784 nearly independent means: a wrong scale of the features would show
    assert 0.8 < z.var() < 1.2


# --- the same samples, whatever the machine has room for ---


@pytest.fixture(scope="module")
def signed() -> ksos.SoSDensity:
    return ksos.SoSDensity(
        Gaussian(0.8),
        points(12, 2, 3),
        np.random.default_rng(1).normal(size=(12, 3)),
        normalize=True,
    )


@pytest.mark.parametrize("method", METHODS)
def test_seeds_reproduce_samples(signed: ksos.SoSDensity, method: str) -> None:
    samples = signed.rvs(500, rng=3, method=method)
    np.testing.assert_array_equal(samples, signed.rvs(500, rng=3, method=method))
    np.testing.assert_array_equal(
        samples, signed.rvs(500, rng=np.random.default_rng(3), method=method)
    )
    assert not np.array_equal(samples, signed.rvs(500, rng=4, method=method))
    assert np.unique(samples, axis=0).shape[0] == 500
    assert signed.rvs(0, method=method).shape == (0, 2)
    assert signed.rvs(1, rng=0, method=method).shape == (1, 2)


def test_chunks_do_not_change_inversion(signed: ksos.SoSDensity) -> None:
    samples = signed.rvs(500, rng=3, method="inversion")
    with resources(block=40):
        np.testing.assert_allclose(signed.rvs(500, rng=3, method="inversion"), samples, atol=1e-9)


def test_chunks_do_not_change_rejection(signed: ksos.SoSDensity) -> None:
    samples = signed.rvs(500, rng=3, method="rejection")
    with resources(block=50):
        np.testing.assert_array_equal(signed.rvs(500, rng=3, method="rejection"), samples)


def test_scan_and_tree_agree() -> None:
    p = ksos.SoSDensity(
        Gaussian(0.5),
        points(15, 3, 3),
        np.random.default_rng(1).normal(size=(15, 4)),
        normalize=True,
    )
    found = [
        draw_by_inversion(square_of(p), 300, np.random.default_rng(0), tree=tree)
        for tree in (False, True)
    ]
    np.testing.assert_allclose(found[0], found[1], atol=1e-8)


@both
def test_memory_is_bounded(method: str) -> None:
    p = ksos.SoSDensity(
        Gaussian(0.6),
        points(100, 2, 3),
        np.random.default_rng(1).normal(size=(100, 2)),
        normalize=True,
    )
    p.rvs(10, rng=0, method=method)
    tracemalloc.start()
    samples = p.rvs(100_000, rng=0, method=method)
    peak = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    # 100 000 × 100 kernel values are 80 MB, and several such arrays are needed
    assert peak < samples.nbytes + 100e6


# --- the choice ---


def narrow(d: int = 3, m: int = 30) -> ksos.SoSDensity:
    """Kernels that hardly touch: next to nothing is negative."""
    return ksos.SoSDensity(
        Gaussian(0.15),
        points(m, d, 3),
        np.random.default_rng(1).normal(size=(m, 2)),
        normalize=True,
    )


def test_auto_takes_the_route_that_is_faster() -> None:
    assert envelope(square_of(narrow())).acceptance > 0.5
    assert envelope(square_of(canceling())).acceptance < 1e-3
    line = ksos.SoSDensity(
        Gaussian(0.5), points(9, 1), np.random.default_rng(0).normal(size=(9, 5)), normalize=True
    )
    for p, size, method in (
        (narrow(), 500, "rejection"),
        (canceling(), 500, "inversion"),
        (line, 20_000, "inversion"),
    ):
        np.testing.assert_array_equal(p.rvs(size, rng=0), p.rvs(size, rng=0, method=method))


def test_predicted_costs_grow_with_what_they_depend_on() -> None:
    few, many, wide = (narrow(m=10), narrow(m=60), narrow(d=6))
    for method in ("inversion", "squares", "rejection"):
        first, more, larger, wider = (
            predicted_seconds(square_of(p), size)[method]
            for p, size in ((few, 1000), (few, 100_000), (many, 100_000), (wide, 100_000))
        )
        assert 0.0 < first < more < larger < np.inf
        assert more < wider


def test_an_envelope_that_does_not_fit_is_not_made() -> None:
    p = narrow(m=20)
    with resources(memory=5.0 * envelope_bytes(20)):
        assert "rejection" in predicted_seconds(square_of(p), 1000)
    with resources(memory=3.0 * envelope_bytes(20)):
        assert "rejection" not in predicted_seconds(square_of(p), 1000)
    with (
        resources(memory=0.5 * envelope_bytes(20)),
        pytest.raises(
            MemoryError,
            match=r"the envelope of a density with 20 support points.*method='inversion'",
        ),
    ):
        p.rvs(5, method="rejection")


# --- the envelope ---


@pytest.mark.parametrize("pair", QUICKLY_INTEGRATED.values(), ids=QUICKLY_INTEGRATED)
def test_the_envelope_dominates_and_its_mass_is_the_acceptance(pair: PairCase) -> None:
    p = make_density(pair)
    found = envelope(square_of(p))
    everywhere = Lebesgue() if isinstance(pair.measure, Box) else pair.measure
    nodes, w = quadrature_rule(pair.kernel, everywhere, p.support_points)
    values = np.exp(pair.kernel.log(nodes, found.density.support_points) - found.log_norm)
    g, squares = found.bound(values), values @ found.factor
    density = np.sum(squares * squares, axis=1)
    assert np.all(
        (density <= g * (1.0 + 1e-12)) | (g < 1e-290)
    )  # below, squares have begun to underflow
    assert w @ g == pytest.approx(1.0 / found.acceptance, rel=1e-8)
    inside = pair.measure.contains(nodes)
    np.testing.assert_allclose(density[inside], p.pdf(nodes)[inside], rtol=1e-9, atol=1e-200)
    n, rng = 40_000, np.random.default_rng(0)
    proposals = found.propose(n, rng)
    kept = found.accepted(proposals, rng.random(n)) & pair.measure.contains(
        found.density.support_points[0] + proposals
    )
    assert (
        abs(kept.mean() - found.acceptance)
        < 5.0 * np.sqrt(found.acceptance * (1.0 - found.acceptance) / n) + 1e-9
    )


@pytest.mark.parametrize(
    "kernel", [Gaussian(0.8), Laplace(0.8, product=True), Matern(2.5, 0.8, product=True)], ids=str
)
def test_proposals_follow_the_envelope(kernel: object) -> None:
    p = ksos.SoSDensity(
        kernel, points(3, 1), [[1.0], [0.5], [0.8]], normalize=True
    )  # all weights are positive
    found = envelope(square_of(p))
    proposals = found.density.support_points[0] + found.propose(400_000, np.random.default_rng(0))

    def cdf(t: np.ndarray) -> np.ndarray:
        reach = 9.0 if kernel.smooth else 45.0
        out = []
        for value in t:
            nodes, w = quadrature_rule(
                kernel, Box([-reach], [float(value)]), p.support_points, reach=np.inf
            )
            g = found.bound(
                np.exp(kernel.log(nodes, found.density.support_points) - found.log_norm)
            )
            out.append(w @ g * found.acceptance)
        return np.array(out)

    assert dkw_passes_at(proposals[:, 0], cdf, 25)


# --- refusals ---


def test_refusals_name_the_remedy(signed: ksos.SoSDensity) -> None:
    with pytest.raises(ValueError, match="size must be at least 0"):
        signed.rvs(-1)
    with pytest.raises(
        ValueError,
        match="method must be one of 'auto', 'inversion', 'rejection', 'squares'; got 'mcmc'",
    ):
        signed.rvs(5, method="mcmc")
    discrete = ksos.SoSDensity(
        Gaussian(1.0), points(3, 2), np.ones((3, 1)), Discrete(points(9, 2)), normalize=True
    )
    with pytest.raises(ValueError, match=r"no envelope of a density on Discrete.*use 'inversion'"):
        discrete.rvs(5, method="rejection")
    np.testing.assert_array_equal(
        discrete.rvs(9, rng=0, method="inversion"), discrete.rvs(9, rng=0)
    )
    with pytest.raises(ValueError, match=r"would accept one proposal in .*; use method='auto'"):
        canceling().rvs(5, method="rejection")
    outside = ksos.SoSDensity(
        Gaussian(0.1), [[0.0]], [[1.0]], Box([9.0], [10.0]), normalize=True
    )  # e^{−16200} of its mass is inside
    with pytest.raises(ValueError, match="would accept one proposal in"):
        outside.rvs(5, method="rejection")


def test_inversion_says_when_its_factors_do_not_fit() -> None:
    p = ksos.SoSDensity(Gaussian(1.0), points(6, 3), np.ones((6, 1)), normalize=True)
    with resources(memory=100.0), pytest.raises(MemoryError, match="compress the density first"):
        p.rvs(5, method="inversion")


# --- hard cases ---


@both
@pytest.mark.parametrize(
    ("measure", "shift"),
    [
        (Box([1.5], [2.5]), 0.0),
        (Normal(2.0, 0.3), 0.0),
        (Normal(0.0, 30.0), 0.0),
        (Lebesgue(), 1e8),
        (Box([1e8 - 1], [1e8 + 1]), 1e8),
    ],
)
def test_measure_and_points_that_disagree(measure: Measure, shift: float, method: str) -> None:
    X = np.array([[-0.5], [0.0], [0.75]]) + shift
    p = ksos.SoSDensity(
        Gaussian(1.0), X, [[1.0, 0.5], [-1.0, 0.2], [1.0, 0.1]], measure, normalize=True
    )
    samples = p.rvs(4000, rng=0, method=method)
    deviation = np.sqrt(p.cov()[0, 0])
    assert abs(samples.mean() - p.mean()[0]) < 6 * deviation / np.sqrt(4000)
    assert samples.std() == pytest.approx(deviation, rel=0.1)


@pytest.mark.parametrize("measure", [Box([5.0], [6.0]), Normal(8.0, 0.1)])
def test_points_far_outside_are_left_to_inversion(measure: Measure) -> None:
    p = ksos.SoSDensity(
        Gaussian(1.0),
        [[-0.5], [0.0], [0.75]],
        [[1.0, 0.5], [-1.0, 0.2], [1.0, 0.1]],
        measure,
        normalize=True,
    )
    samples = p.rvs(4000, rng=0)
    assert abs(samples.mean() - p.mean()[0]) < 6 * np.sqrt(p.cov()[0, 0] / 4000)


@both
@pytest.mark.parametrize("scale", [1e-150, 1e-6, 1e6, 1e150])
def test_samples_scale_with_the_data(scale: float, method: str) -> None:
    X, F = points(6, 2, 3), np.random.default_rng(1).normal(size=(6, 2))
    plain = ksos.SoSDensity(Gaussian(0.8), X, F, normalize=True).rvs(200, rng=0, method=method)
    scaled = ksos.SoSDensity(Gaussian(0.8 * scale), X * scale, F, normalize=True).rvs(
        200, rng=0, method=method
    )
    np.testing.assert_allclose(scaled / scale, plain, atol=1e-9)


@settings(max_examples=60)
@given(
    X=degenerate_data(),
    method=st.sampled_from(["auto", "inversion", "rejection"]),
    seed=st.integers(0, 3),
)
def test_degenerate_support_points(X: np.ndarray, method: str, seed: int) -> None:
    X = X[:, :4].astype(float)
    spread = np.abs(X - X[0]).max(axis=0)
    sigma = np.where(spread > 0.0, np.minimum(spread, 1e150), 1.0)
    factor = np.abs(np.random.default_rng(seed).normal(size=(X.shape[0], 2))) + 0.1
    p = ksos.SoSDensity(Gaussian(sigma), X, factor, normalize=True)
    samples = p.rvs(20, rng=seed, method=method)
    assert np.all(np.isfinite(samples))
    assert np.all(samples >= X.min(axis=0) - 9.0 * sigma)
    assert np.all(samples <= X.max(axis=0) + 9.0 * sigma)
    assert np.all(np.isfinite(p.logpdf(samples)))


def test_points_without_mass_change_nothing() -> None:
    X, F = points(5, 2), np.random.default_rng(0).normal(size=(5, 2))
    p = ksos.SoSDensity(Gaussian(0.7), X, F, normalize=True)
    more = ksos.SoSDensity(
        Gaussian(0.7),
        np.concatenate([X, [[1e12, 0.0], [0.1, 0.1]]]),
        np.concatenate([F, np.zeros((2, 2))]),
        normalize=True,
    )
    np.testing.assert_allclose(
        more.rvs(50, rng=0, method="inversion"), p.rvs(50, rng=0, method="inversion"), atol=1e-9
    )


# --- the pieces ---


def test_samples_at_a_boundary_are_not_beyond_it() -> None:
    """A box of a few floats: nearly every sample rounds to one of its ends."""
    for low in (1.0, -1.0, 3.0):
        box = Box([low], [np.nextafter(np.nextafter(low, 9.0), 9.0)])
        p = ksos.SoSDensity(Gaussian(0.8), [[low], [0.0]], [[1.0], [0.5]], box, normalize=True)
        assert np.all(box.contains(p.rvs(200, rng=0, method="inversion")))


@given(seed=st.integers(0, 100), rank=st.integers(1, 6), n=st.integers(1, 40), m=st.integers(1, 8))
def test_fewer_rows_keep_the_quadratic_form(seed: int, rank: int, n: int, m: int) -> None:
    rng = np.random.default_rng(seed)
    rows = rng.normal(size=(n, rank)) @ rng.normal(size=(rank, m))
    few = fewer_rows(rows, 0.0)
    assert few.shape[0] <= min(n, m)
    np.testing.assert_allclose(few.T @ few, rows.T @ rows, atol=1e-10 * n * rank)
    lost = 0.3 * float(np.sum(rows * rows))
    fewer = fewer_rows(rows, lost)
    difference = rows.T @ rows - fewer.T @ fewer
    assert fewer.shape[0] <= few.shape[0]
    assert np.trace(difference) <= lost + 1e-9
    assert np.linalg.eigvalsh(difference).min() > -1e-9 * n * rank


@given(seed=st.integers(0, 100), a=st.integers(1, 9), b=st.integers(1, 9), m=st.integers(1, 6))
def test_hadamard_rows_are_a_factor_of_the_product(seed: int, a: int, b: int, m: int) -> None:
    rng = np.random.default_rng(seed)
    first, second = rng.normal(size=(a, m)), rng.normal(size=(b, m))
    rows = hadamard_rows(first, second, 0.0)
    assert rows.shape[0] <= m
    np.testing.assert_allclose(
        rows.T @ rows, (first.T @ first) * (second.T @ second), atol=1e-10 * a * b
    )
