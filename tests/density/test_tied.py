"""Densities whose metric ties the features: images of densities that have none, so that every
answer is known from theirs.
"""

from __future__ import annotations

import itertools

import mpmath
import numpy as np
import pytest
from densities import random_density
from hypothesis import given, settings
from oracles import quadrature_rule
from scipy.stats import multivariate_normal
from statistics_checks import dkw_passes_at
from strategies import degenerate_data
from tables import points

import ksos
from ksos.density import ConditionalLine, between_squares, square_of
from ksos.density.sampling import draw_by_inversion
from ksos.kernels import Gaussian, Laplace
from ksos.measures import Box, Discrete, Lebesgue, Normal
from ksos.observables import BoxIndicator, KernelFunction, NumericFunction, Polynomial, coordinate

A = {
    2: np.array([[1.2, 0.5], [-0.4, 0.7]]),
    3: np.array([[0.9, 0.3, -0.2], [0.4, 1.1, 0.5], [-0.3, 0.2, 0.6]]),
}
SHIFT = np.array([0.7, -1.5, 0.4])
both_sizes = pytest.mark.parametrize("d", [2, 3])


def plain(d: int, seed: int = 0, m: int = 5) -> ksos.SoSDensity:
    return random_density(Gaussian(np.array([0.8, 0.6, 1.1])[:d]), d=d, m=m, seed=seed)


def image(d: int, seed: int = 0) -> ksos.SoSDensity:
    q = plain(d, seed).affine(A[d], SHIFT[:d])
    assert q.kernel.full
    return q


def moved(x: np.ndarray) -> np.ndarray:
    return x @ A[x.shape[1]].T + SHIFT[: x.shape[1]]


def tied(d: int, m: int = 6, seed: int = 0) -> ksos.SoSDensity:
    """Any metric: one that no matrix of this file has made."""
    G = np.random.default_rng(seed + 5).normal(size=(d, d))
    return random_density(Gaussian(0.5 * (G @ G.T) / d + 0.4 * np.eye(d)), d=d, m=m, seed=seed)


# --- images ---


@both_sizes
def test_the_image_obeys_the_change_of_variables_and_comes_back(d: int) -> None:
    p, q, x = plain(d), image(d), points(20, d, 3)
    log_det = np.linalg.slogdet(A[d])[1]
    np.testing.assert_allclose(q.logpdf(moved(x)), p.logpdf(x) - log_det, atol=1e-12)
    np.testing.assert_allclose(q.kernel.matrix(d), A[d] @ p.kernel.matrix(d) @ A[d].T, rtol=1e-14)
    np.testing.assert_allclose(q.mean(), moved(p.mean()[None])[0], atol=1e-13)
    np.testing.assert_allclose(q.cov(), A[d] @ p.cov() @ A[d].T, atol=1e-13)
    np.testing.assert_array_equal(q.cov(), q.cov().T)
    np.testing.assert_allclose(
        q.grad_logpdf(moved(x)) @ A[d], p.grad_logpdf(x), rtol=1e-10, atol=1e-11
    )
    back = q.affine(np.linalg.inv(A[d]), -np.linalg.solve(A[d], SHIFT[:d]))
    assert not back.kernel.full
    np.testing.assert_allclose(back.logpdf(x), p.logpdf(x), atol=1e-11)


@both_sizes
def test_what_does_not_depend_on_the_axes_does_not_change(d: int) -> None:
    p, q, log_det = plain(d), image(d), float(np.linalg.slogdet(A[d])[1])
    others = [plain(d, 1), image(d, 1)]
    work = {"rtol": 1e-6 if d == 2 else 1e-3}
    assert q.entropy(**work) == pytest.approx(p.entropy(**work) + log_det, abs=work["rtol"])
    np.testing.assert_allclose(q.mode(), moved(p.mode()[None])[0], atol=1e-7)
    levels = [one.hdr_level(0.7, rng=0) for one in (p, q)]
    assert levels[1] * np.exp(log_det) == pytest.approx(levels[0], rel=1e-2)
    assert q.kl_divergence(others[1], **work) == pytest.approx(
        p.kl_divergence(others[0], **work), rel=work["rtol"]
    )
    kernel = Gaussian(A[d] @ A[d].T * 0.81)
    assert q.mmd(others[1], kernel) == pytest.approx(p.mmd(others[0], Gaussian(0.9)), rel=1e-10)
    landmarks = points(9, d, 4)
    assert q.mmd(others[1], kernel, moved(landmarks)) == pytest.approx(
        p.mmd(others[0], Gaussian(0.9), landmarks), rel=1e-9
    )
    data = points(7, d, 8)
    assert q.mmd(moved(data), kernel) == pytest.approx(p.mmd(data, Gaussian(0.9)), rel=1e-10)
    for most in (0, 10**6) if d == 2 else (0,):
        found = [
            between_squares(square_of(f), square_of(g), 1e13, most_nodes=most)
            for f, g in ((p, others[0]), (q, others[1]))
        ]
        assert found[1] * np.exp(0.5 * log_det) == pytest.approx(found[0], rel=1e-10)


def test_a_rotation_changes_nothing_but_the_axes() -> None:
    c, s = np.cos(0.7), np.sin(0.7)
    turn = np.array([[c, -s], [s, c]])
    p = plain(2)
    q = p.affine(turn)
    assert q.entropy(rtol=1e-6) == pytest.approx(p.entropy(rtol=1e-6), abs=1e-7)
    np.testing.assert_allclose(q.mode(all_local=True), p.mode(all_local=True) @ turn.T, atol=1e-7)
    round_one = random_density(Gaussian(0.8), d=2).affine(turn)
    assert not round_one.kernel.full  # a round kernel has no axes


@pytest.mark.parametrize("scale", [1e-100, 1e-6, 1e6, 1e100])
def test_units_and_a_far_origin_do_not_matter(scale: float) -> None:
    p = tied(3)
    q, x = p.affine(np.array([scale, 1.0, 2.0]), 0.0), points(6, 3, 2)
    np.testing.assert_allclose(
        q.logpdf(x * [scale, 1.0, 2.0]), p.logpdf(x) - np.log(2.0 * scale), atol=1e-9
    )
    np.testing.assert_allclose(q.mean() / [scale, 1.0, 2.0], p.mean(), atol=1e-11)
    assert q.marginal([0]).cdf([[0.3 * scale]])[0] == pytest.approx(
        p.marginal([0]).cdf([[0.3]])[0], rel=1e-9
    )
    assert q.cdf([[0.3 * scale, 0.2, 0.4]])[0] == pytest.approx(
        p.cdf([[0.3, 0.2, 0.2]])[0], rel=1e-9
    )
    shift = 2.0**27
    grid = ksos.SoSDensity(
        p.kernel,
        np.round(p.support_points * 2**20) / 2**20,
        square_of(p).unit_factor,
        normalize=True,
    )
    far = grid.affine(1.0, shift)
    np.testing.assert_allclose(far.mean() - shift, grid.mean(), atol=1e-7)
    np.testing.assert_allclose(far.cov(), grid.cov(), rtol=1e-9)
    assert far.probability([shift - 0.5] * 3, [shift + 0.5] * 3) == pytest.approx(
        grid.probability([-0.5] * 3, [0.5] * 3), rel=1e-9
    )


def test_samples_of_the_image_are_images_of_samples() -> None:
    q = tied(3)
    for method in ("inversion", "rejection"):
        samples = q.rvs(6000, rng=4, method=method)
        assert np.all(
            np.abs(samples.mean(axis=0) - q.mean()) < 6 * np.sqrt(np.diagonal(q.cov()) / 6000)
        )
        np.testing.assert_allclose(np.cov(samples.T), q.cov(), atol=0.1 * float(q.cov().max()))
        for k in range(3):
            assert dkw_passes_at(samples[:, k], lambda t, k=k: q.marginal([k]).cdf(t[:, None]))
    uniforms, x = (
        np.random.default_rng(1).random((5, 3)),
        draw_by_inversion(square_of(q), 5, np.random.default_rng(1)),
    )
    np.testing.assert_allclose(q.marginal([0]).cdf(x[:, :1]), uniforms[:, 0], atol=1e-9)
    held = [q.conditional({0: row[0], 1: row[1]}).cdf(row[None, 2:])[0] for row in x]
    np.testing.assert_allclose(held, uniforms[:, 2], atol=1e-9)


# --- marginals and conditionals ---


def test_marginals_and_conditionals_obey_the_chain_rule_in_any_order() -> None:
    p, x = tied(4), points(5, 4, 7)
    S = p.kernel.matrix(4)
    for first, second in (
        (a, b)
        for n in (1, 2, 3)
        for a in itertools.combinations(range(4), n)
        for b in [[k for k in range(4) if k not in a]]
    ):
        given = list(first)
        alone, chained = p.marginal(given), p.conditional_logpdf(x, given=given)
        np.testing.assert_allclose(
            alone.kernel.matrix(len(given)), S[np.ix_(given, given)], rtol=1e-13, atol=1e-15
        )
        np.testing.assert_allclose(chained + alone.logpdf(x[:, given]), p.logpdf(x), atol=1e-11)
        held = p.conditional(dict(zip(given, x[0, given], strict=True)))
        P = np.linalg.inv(S)
        np.testing.assert_allclose(
            held.kernel.matrix(len(second)),
            np.linalg.inv(P[np.ix_(second, second)]),
            rtol=1e-12,
            atol=1e-14,
        )
        assert held.logpdf(x[:1, second])[0] == pytest.approx(chained[0], abs=1e-8)
        assert held.terms.mass() == pytest.approx(1.0, abs=1e-12)
    np.testing.assert_allclose(
        p.marginal([3, 0, 2]).marginal([2, 1]).logpdf(x[:, [2, 0]]),
        p.marginal([2, 0]).logpdf(x[:, [2, 0]]),
        atol=1e-9,
    )
    both = p.conditional({3: 0.2, 0: -0.1})
    np.testing.assert_allclose(
        p.conditional({3: 0.2}).conditional({0: -0.1}).logpdf(x[:, 1:3]),
        both.logpdf(x[:, 1:3]),
        atol=1e-9,
    )
    np.testing.assert_allclose(
        p.marginal([2, 1, 0, 3]).logpdf(x[:, [2, 1, 0, 3]]), p.logpdf(x), atol=1e-12
    )


def test_a_marginal_and_a_condition_to_the_last_digits() -> None:
    """The integral of every product of two kernels, and the formulas of a conditional normal law,
    in thirty digits.
    """
    p = tied(3, m=3)
    with mpmath.workdps(30):
        P = mpmath.inverse(mpmath.matrix(p.kernel.matrix(3).tolist()))
        F, X = mpmath.matrix(p.factor.tolist()), p.support_points
        B = F * F.T

        def pair(i: int, j: int, x: float) -> mpmath.mpf:
            """∫ k_i k_j over the features 1 and 2, x_0 = x: exp(−uᵀPu − vᵀPv) with u, v = (x, y) −
            x̃.
            """
            half = mpmath.matrix([[2 * P[a, b] for b in (1, 2)] for a in (1, 2)])
            shift, constant = mpmath.matrix(2, 1), mpmath.mpf(0)
            for n in (i, j):
                u = [
                    mpmath.mpf(x) - mpmath.mpf(float(X[n, 0])),
                    -mpmath.mpf(float(X[n, 1])),
                    -mpmath.mpf(float(X[n, 2])),
                ]
                constant += sum(P[a, b] * u[a] * u[b] for a in range(3) for b in range(3))
                for a in (1, 2):
                    shift[a - 1] += sum(P[a, b] * u[b] for b in range(3))
            exponent = (shift.T * mpmath.inverse(half) * shift)[0] - constant
            return mpmath.pi / mpmath.sqrt(mpmath.det(half)) * mpmath.exp(exponent)

        expected = sum(B[i, j] * pair(i, j, 0.3) for i in range(3) for j in range(3))
        given = p.pdf([[0.3, 0.1, -0.2]])[0] / expected
    assert p.marginal([0]).pdf([[0.3]])[0] == pytest.approx(float(expected), rel=1e-12)
    assert p.conditional({0: 0.3}).pdf([[0.1, -0.2]])[0] == pytest.approx(float(given), rel=1e-12)


def test_conditions_far_away_keep_their_digits() -> None:
    p = tied(3)
    far = np.array([[40.0, 35.0, 30.0]])
    with pytest.warns(UserWarning, match="far outside of the data"):
        held = p.conditional({0: 40.0})
    assert p.conditional_logpdf(far, given=[0])[0] == pytest.approx(
        held.logpdf(far[:, 1:])[0], rel=1e-9
    )
    assert np.all(np.isfinite(held.mean()))


def test_the_laws_of_one_feature_given_the_others() -> None:
    p = tied(3)
    for feature in range(3):
        line, rest = ConditionalLine(square_of(p), feature), [k for k in range(3) if k != feature]
        rows, y = points(4, 2, 6), points(4, 1, 9)[:, 0]
        mean, deviation = line.moments(rows)
        levels = line.cdf(rows, y)
        np.testing.assert_allclose(line.quantile(rows, levels[:, None])[:, 0], y, atol=1e-9)
        for i, row in enumerate(rows):
            held = p.conditional(dict(zip(rest, row, strict=True)))
            assert levels[i] == pytest.approx(held.cdf([[y[i]]])[0], abs=1e-10)
            assert mean[i] == pytest.approx(held.mean()[0], abs=1e-9)
            assert deviation[i] == pytest.approx(np.sqrt(held.cov()[0, 0]), abs=1e-9)
        np.testing.assert_allclose(line.log_mass(rows), p.marginal(rest).logpdf(rows), atol=1e-10)


# --- boxes ---


def test_boxes_in_three_features_agree_with_quadrature() -> None:
    p = tied(3)
    low, high = np.array([-0.6, -0.9, -0.4]), np.array([0.5, 0.3, 0.8])
    rule = Discrete.quadrature(Box(low, high), 40)
    expected = float(rule.weights @ p.pdf(rule.points))
    assert p.probability(low, high) == pytest.approx(expected, rel=1e-10)
    np.testing.assert_allclose(
        p.probability(np.stack([low, low]), np.stack([high, high])), expected, rtol=1e-10
    )
    assert p.expectation(BoxIndicator(low, high)) == pytest.approx(expected, rel=1e-9)


def test_boxes_in_many_features() -> None:
    p = tied(5)
    one = p.probability(
        [-np.inf, -0.5, -np.inf, -np.inf, -np.inf], [np.inf, 0.4, 0.3, np.inf, np.inf]
    )  # sides of two features
    assert one == pytest.approx(
        p.marginal([1, 2]).probability([-0.5, -np.inf], [0.4, 0.3]), abs=1e-11
    )
    low, high = np.full(5, -0.7), np.full(5, 0.9)
    found = p.probability(low, high)
    samples = p.rvs(40_000, rng=0)
    share = np.mean(np.all((samples >= low) & (samples <= high), axis=1))
    assert abs(found - share) < 5.0 * np.sqrt(share * (1.0 - share) / 40_000)
    assert found.method == "quasi-Monte Carlo"
    assert 0.0 < found.error < 1e-3
    halves = [p.probability(low, np.r_[0.1, high[1:]]), p.probability(np.r_[0.1, low[1:]], high)]
    assert abs(sum(halves) - found) < 6.0 * np.sqrt(
        sum(h.error**2 for h in halves) + found.error**2
    )
    indicated = p.expectation(BoxIndicator(low, high))
    assert abs(indicated - found) < 6.0 * (indicated.error + found.error)


def test_features_that_are_not_tied_are_independent() -> None:
    S = np.zeros((5, 5))
    S[:2, :2], S[2:, 2:] = [[0.6, 0.3], [0.3, 0.5]], np.diag([0.4, 0.5, 0.7])
    p = ksos.SoSDensity(Gaussian(S), np.zeros((1, 5)), [[1.0]], normalize=True)
    parts = [
        p.marginal([0, 1]).cdf([[0.2, -0.1]])[0],
        *(p.marginal([k]).cdf([[0.3]])[0] for k in (2, 3, 4)),
    ]
    assert p.cdf([[0.2, -0.1, 0.3, 0.3, 0.3]])[0] == pytest.approx(np.prod(parts), rel=1e-12)


# --- expectations, products, and the rest ---


def test_moments_and_expectations_agree_with_quadrature() -> None:
    p = tied(2)
    nodes, w = quadrature_rule(p.kernel, p.measure, p.support_points)
    mass = w * p.pdf(nodes)
    for powers in ((1, 1), (2, 1), (3, 2), (0, 4), (4, 3)):
        assert p.moment(powers) == pytest.approx(mass @ np.prod(nodes**powers, axis=1), rel=1e-9)
    centered = nodes - p.mean()
    assert p.moment((2, 2), central=True) == pytest.approx(
        mass @ np.prod(centered**2, axis=1), rel=1e-9
    )
    f = Polynomial({(2, 1): 1.0, (0, 0): 2.0}, center=[0.3, -0.2])
    g = KernelFunction(
        points(3, 2, 2), [1.0, -0.5, 0.3], kernel=Gaussian([[0.9, -0.2], [-0.2, 0.4]])
    )
    assert p.expectation(f + g) == pytest.approx(mass @ (f(nodes) + g(nodes)), rel=1e-9)
    assert p.expectation(lambda x: np.cos(x[:, 0]) * x[:, 1]) == pytest.approx(
        mass @ (np.cos(nodes[:, 0]) * nodes[:, 1]), abs=1e-9
    )
    M = NumericFunction(lambda x: np.cos(x[:, 0])).matrix(
        p.kernel, p.support_points, p.measure, square_of(p).log_unit
    )
    assert M.expectation(square_of(p).unit_factor @ square_of(p).unit_factor.T)[0] == pytest.approx(
        mass @ np.cos(nodes[:, 0]), abs=1e-9
    )


def test_expectations_in_many_features_are_within_their_errors() -> None:
    p = tied(5)
    found = p.expectation(lambda x: x[:, 0] * x[:, 3], rng=0)
    assert abs(found - p.moment((1, 0, 0, 1, 0))) < 6.0 * found.error
    M = NumericFunction(lambda x: x[:, 0] * x[:, 3], max_nodes=1 << 12).matrix(
        p.kernel, p.support_points, p.measure, square_of(p).log_unit
    )
    value, error = M.expectation(square_of(p).unit_factor @ square_of(p).unit_factor.T)
    assert abs(value - p.moment((1, 0, 0, 1, 0))) < 6.0 * error
    assert p.entropy(rng=0).error < 0.01


@pytest.mark.parametrize("prior", [plain(2), tied(2)], ids=["per feature", "tied"])
def test_times_a_gaussian_with_a_covariance_is_the_product(prior: ksos.SoSDensity) -> None:
    mean, C, x = np.array([0.3, -0.4]), np.array([[0.5, -0.3], [-0.3, 0.4]]), points(8, 2, 3)
    q = prior.times_gaussian(mean, C)
    nodes, w = quadrature_rule(prior.kernel, Lebesgue(), prior.support_points, per_panel=24)
    log_C = multivariate_normal(mean, C).logpdf
    expected = prior.logpdf(x) + log_C(x) - np.log(w @ (prior.pdf(nodes) * np.exp(log_C(nodes))))
    np.testing.assert_allclose(q.logpdf(x), expected, atol=1e-9)
    twice = q.times_gaussian(mean, 2.0 * C).times_gaussian(mean, 2.0 * C)
    np.testing.assert_allclose(
        twice.logpdf(x), prior.times_gaussian(mean, 0.5 * C).logpdf(x), atol=1e-8
    )
    np.testing.assert_allclose(
        prior.times_gaussian(mean, np.inf).logpdf(x), prior.logpdf(x), atol=1e-12
    )
    half = prior.times_gaussian(mean, [0.7, np.inf])
    change = half.logpdf(x) - prior.logpdf(x) + 0.5 * ((x[:, 0] - 0.3) / 0.7) ** 2
    np.testing.assert_allclose(change, change[0], atol=1e-11)


def test_conjugate_normals_with_covariances() -> None:
    prior, C = np.array([[1.0, 0.6], [0.6, 2.0]]), np.array([[0.5, -0.2], [-0.2, 0.3]])
    p = ksos.SoSDensity(Gaussian(4.0 * prior), [[1.0, -1.0]], [[1.0]], normalize=True)
    q = p.times_gaussian([0.5, 0.5], C)
    posterior = np.linalg.inv(np.linalg.inv(prior) + np.linalg.inv(C))
    np.testing.assert_allclose(q.cov(), posterior, rtol=1e-12)
    np.testing.assert_allclose(
        q.mean(),
        posterior @ (np.linalg.solve(prior, [1.0, -1.0]) + np.linalg.solve(C, [0.5, 0.5])),
        rtol=1e-12,
    )
    far = p.times_gaussian([1e8, 1e8], C)
    np.testing.assert_allclose(
        far.mean(),
        posterior @ (np.linalg.solve(prior, [1.0, -1.0]) + np.linalg.solve(C, [1e8, 1e8])),
        rtol=1e-9,
    )


def test_a_covariance_on_atoms_goes_into_their_weights() -> None:
    measure, C = Discrete(points(30, 2, 4)), np.array([[0.5, -0.3], [-0.3, 0.4]])
    p = random_density(Laplace(0.8), measure, 2)
    q = p.times_gaussian([0.1, 0.2], C)
    expected = (
        measure.weights
        * p.pdf(measure.points)
        * np.exp(multivariate_normal([0.1, 0.2], C).logpdf(measure.points))
    )
    np.testing.assert_allclose(
        q.measure.weights * q.pdf(q.measure.points), expected / expected.sum(), rtol=1e-9
    )


def test_compression_and_other_backends() -> None:
    p = tied(2, m=8)
    small, distance = p.compress(m=5)
    assert small.support_points.shape[0] == 5
    assert distance == pytest.approx(p.mmd(small), abs=1e-12)
    assert p.compress(rank=1).density.rank == 1
    torch = pytest.importorskip("torch")
    q, x = p.to("cpu"), points(4, 2, 3)
    np.testing.assert_allclose(np.asarray(q.logpdf(torch.asarray(x))), p.logpdf(x), atol=1e-12)
    for ask in (
        lambda f: f.affine(A[2], [1.0, 2.0]).mean(),
        lambda f: f.cdf(x),
        lambda f: f.marginal([1]).mean(),
        lambda f: f.grad_logpdf(x),
    ):
        np.testing.assert_allclose(np.asarray(ask(q)), ask(p), atol=1e-12)


def test_the_mmd_of_densities_with_metrics_of_their_own() -> None:
    p, q = tied(2), image(2)
    kernel = Gaussian([[0.9, -0.2], [-0.2, 0.5]])
    rules = [Discrete.quadrature(Box(f.mean() - 3.5, f.mean() + 3.5), 48) for f in (p, q)]
    a, b = (
        ksos.MeanEmbedding(rule.points, rule.weights * f.pdf(rule.points), kernel=kernel)
        for f, rule in zip((p, q), rules, strict=True)
    )
    expected = ksos.mmd(a, b)
    for f, g in ((p, q), (q, p), (a, q), (p, b)):
        assert ksos.mmd(f, g, kernel) == pytest.approx(expected, rel=1e-8)
    wide = tied(5), tied(5, seed=1)  # by the order-4 integrals
    square = ksos.mmd(*wide, Gaussian(wide[0].kernel.matrix(5)))
    samples = [f.rvs(2000, rng=seed) for seed, f in enumerate(wide)]
    assert square == pytest.approx(ksos.mmd(*samples, Gaussian(wide[0].kernel.matrix(5))), abs=0.05)


@pytest.mark.parametrize("d", [2, 5])
def test_distances_of_two_normal_laws_to_the_last_digits(d: int) -> None:
    """∬ k dN dN' = |S|^{1/2}|T|^{−1/2} exp(−ΔᵀT⁻¹Δ) with T = S + 2Σ + 2Σ', and
    ∫ N N' dx = N(Δ; 0, Σ + Σ').
    """
    (first, second, S), delta = (
        (tied(d, seed=seed).kernel.matrix(d) for seed in range(3)),
        np.linspace(0.3, -0.4, d),
    )
    p = ksos.SoSDensity(Gaussian(4.0 * first), np.zeros((1, d)), [[1.0]], normalize=True)
    q = ksos.SoSDensity(Gaussian(4.0 * second), delta[None, :], [[1.0]], normalize=True)

    def inner(C: np.ndarray, step: np.ndarray) -> float:
        T = S + 2.0 * C
        return float(
            np.sqrt(np.linalg.det(S) / np.linalg.det(T)) * np.exp(-step @ np.linalg.solve(T, step))
        )

    square = (
        inner(2.0 * first, 0.0 * delta)
        + inner(2.0 * second, 0.0 * delta)
        - 2.0 * inner(first + second, delta)
    )
    assert p.mmd(q, Gaussian(S)) == pytest.approx(np.sqrt(square), rel=1e-12)
    overlap = [
        multivariate_normal(np.zeros(d), C).pdf(step)
        for C, step in ((2 * first, 0 * delta), (2 * second, 0 * delta), (first + second, delta))
    ]
    assert p.l2_distance(q) == pytest.approx(
        np.sqrt(overlap[0] + overlap[1] - 2.0 * overlap[2]), rel=1e-12
    )
    divergence = 0.5 * (
        np.trace(np.linalg.solve(second, first))
        + delta @ np.linalg.solve(second, delta)
        - d
        + np.linalg.slogdet(second)[1]
        - np.linalg.slogdet(first)[1]
    )
    found = p.kl_divergence(q, rng=0)
    assert abs(found - divergence) < 1e-9 + 6.0 * found.error


def test_densities_of_other_classes_beside_a_metric() -> None:
    p, x = tied(2), points(4, 2, 1)
    laplace = random_density(Laplace(0.8, product=True), d=2, seed=3)
    on_normal = random_density(Gaussian(0.8), Normal([0.2, -0.3], [0.9, 0.5]), 2, seed=3)
    boxed = random_density(Gaussian(0.8), Box([-0.6, -1.0], [0.9, 0.5]), 2, seed=3)
    nodes, w = quadrature_rule(p.kernel, p.measure, p.support_points)
    window = Box(np.full(2, -4.5), np.full(2, 4.5))
    for other in (on_normal, plain(2), laplace):
        if other is laplace:  # whose kinks a rule must know
            nodes, w = quadrature_rule(laplace.kernel, window, laplace.support_points, per_panel=12)
        log_q = other.logpdf(nodes) + other.measure.log_density(nodes)
        expected = (w * p.pdf(nodes)) @ (p.logpdf(nodes) - log_q)
        assert p.kl_divergence(other, rtol=1e-6) == pytest.approx(
            expected, rel=1e-3
        )  # where q is 0, log q has no nodes that see it
    assert p.kl_divergence(boxed) == np.inf
    nodes, w = quadrature_rule(p.kernel, p.measure, p.support_points)
    assert boxed.kl_divergence(p, rtol=1e-6) > 0.0
    inside = Discrete.quadrature(Box([-0.6, -1.0], [0.9, 0.5]), 60)
    difference = (
        inside.weights @ (p.pdf(inside.points) - boxed.pdf(inside.points)) ** 2
        - inside.weights @ p.pdf(inside.points) ** 2
    )
    expected = np.sqrt(w @ p.pdf(nodes) ** 2 + difference)
    assert p.l2_distance(boxed) == pytest.approx(expected, rel=1e-9)
    assert boxed.l2_distance(p) == pytest.approx(expected, rel=1e-9)
    assert np.all(np.isfinite(p.logpdf(x)))


@given(degenerate_data())
@settings(max_examples=10)
def test_degenerate_data_make_no_nan(X: np.ndarray) -> None:
    X = np.concatenate([X, X[:, :1]], axis=1).astype(np.float64)  # two features at least
    m, d = X.shape
    spread = np.ptp(X, axis=0)
    sigma = np.where(spread > 0.0, 0.5 * spread, np.maximum(np.abs(X).max(axis=0), 1.0))
    S = (0.6 + 0.4 * np.eye(d)) * sigma * sigma[:, None]
    p = ksos.SoSDensity(
        Gaussian(S), X, np.stack([np.ones(m), np.linspace(-1.0, 1.0, m)], axis=1), normalize=True
    )
    products = [p.times_gaussian(X[0], scale) for scale in (sigma, S)]
    for q in (
        p.marginal([0]),
        p.conditional({0: X[0, 0]}),
        # in units of the features: a sum of features 1e12 apart is one of them, to rounding
        p.affine((0.5 + np.eye(d)) * sigma[:, None] / sigma, X[0]),
        *products,
    ):
        assert q.terms.mass() == pytest.approx(1.0, abs=1e-7)
        assert np.all(np.isfinite(q.cov()))
    found = (
        p.conditional_logpdf(X, given=[0]),
        p.grad_logpdf(X),
        p.mode(),
        p.rvs(3, rng=0),
        p.cdf(X[:1]),
    )
    assert all(np.all(np.isfinite(answer)) for answer in found)


@pytest.mark.parametrize(
    ("ask", "message"),
    [
        (
            lambda p: p.affine([[1.0, 0.0], [2.0, 0.0]]),
            "scale must be, as a matrix, invertible; .* take a marginal",
        ),
        (
            lambda p: p.affine(np.ones((2, 3))),
            r"scale must have, as a matrix, shape \(2, 2\) and finite entries; got shape \(2, 3\)",
        ),
        (lambda p: p.affine([[1.0, np.nan], [0.0, 1.0]]), "finite entries"),
        (
            lambda p: p.times_gaussian(0.0, [[1.0, 2.0], [2.0, 1.0]]),
            "scale must be, as a matrix, positive definite",
        ),
        (
            lambda p: p.times_gaussian(0.0, np.eye(3)),
            r"scale must have, as a covariance matrix, shape \(2, 2\); got \(3, 3\)",
        ),
        (
            lambda p: random_density(Laplace(0.8, product=True), d=2).affine(A[2]),
            "only Gaussian kernels take any matrix; use one of them",
        ),
        (
            lambda p: random_density(Gaussian(0.8), Box([-1, -1], [1, 1]), 2).affine(A[2]),
            "mixes features is no such measure; scale feature",
        ),
        (
            lambda p: random_density(p.kernel, Box([-1, -1], [1, 1]), 2),
            "give one bandwidth per feature, or integrate against a discrete",
        ),
        (
            lambda p: ksos.worst_case(coordinate(0), ksos.Ball(points(9, 2), 0.3, kernel=p.kernel)),
            "use the roots of its diagonal, or change the coord",
        ),
        (
            lambda p: p.kernel.sigma_vector(2),
            "one bandwidth per feature is needed here, not a metric",
        ),
    ],
)
def test_refusals_name_the_remedy(ask: object, message: str) -> None:
    with pytest.raises(ValueError, match=message):
        ask(tied(2))
