"""Laws of SoSDensity, run on every (kernel, measure) pair: mass, positivity, logarithms, moments, samples."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import pytest
from oracles import marginal_cdf, quadrature_rule, tolerance
from scipy.stats import norm
from statistics_checks import chi_square_passes, dkw_passes_at
from tables import PAIR_CASES, PairCase, points

import ksos
from ksos.density import sampling
from ksos.kernels import Gaussian, Laplace
from ksos.measures import Box, Discrete, Lebesgue, Normal

every_pair = pytest.mark.parametrize("pair", PAIR_CASES.values(), ids=PAIR_CASES)


def make_density(pair: PairCase, m: int = 5, rank: int = 2) -> ksos.SoSDensity:
    factor = np.random.default_rng(2).normal(size=(m, rank))
    return ksos.SoSDensity(pair.kernel, points(m, pair.d), factor, pair.measure, normalize=True)


@every_pair
def test_has_mass_one_is_never_negative_and_knows_its_logarithm(pair: PairCase) -> None:
    p = make_density(pair)
    nodes, w = quadrature_rule(pair.kernel, pair.measure, p.support_points)
    values = p.pdf(nodes)
    assert w @ values == pytest.approx(1.0, rel=tolerance())
    assert p.mass() == pytest.approx(1.0, rel=tolerance())
    assert np.all(values >= 0.0)
    with np.errstate(divide="ignore"):
        expected = np.log(values)
    seen = values > 1e-200
    np.testing.assert_allclose(p.logpdf(nodes)[seen], expected[seen], atol=1e-10)
    K = pair.kernel(nodes, p.support_points)
    B = p.factor @ p.factor.T
    np.testing.assert_allclose(values, np.einsum("ni,ij,nj->n", K, B, K) * pair.measure.contains(nodes), rtol=1e-8, atol=1e-12)


@every_pair
def test_mean_and_covariance_agree_with_quadrature(pair: PairCase) -> None:
    p = make_density(pair)
    nodes, w = quadrature_rule(pair.kernel, pair.measure, p.support_points)
    weights = w * p.pdf(nodes)
    mean = weights @ nodes
    np.testing.assert_allclose(p.mean(), mean, atol=1e-9)
    np.testing.assert_allclose(p.cov(), (weights[:, None] * (nodes - mean)).T @ (nodes - mean), atol=1e-8)


@every_pair
def test_samples_follow_the_density(pair: PairCase) -> None:
    p, n = make_density(pair), 20_000
    samples = p.rvs(n, rng=7)
    assert samples.shape == (n, pair.d)
    assert np.all(pair.measure.contains(samples))
    if isinstance(pair.measure, Discrete):
        mass = pair.measure.weights * p.pdf(pair.measure.points)
        counts = np.array([np.sum(np.all(samples == node, axis=1)) for node in pair.measure.points])
        likely = mass * n > 10
        assert chi_square_passes(counts[likely], mass[likely] / mass[likely].sum())
        assert counts[~likely].sum() <= 40 + 5 * n * mass[~likely].sum()
        return
    for k in range(pair.d):
        assert dkw_passes_at(samples[:, k], lambda t, k=k: marginal_cdf(p, k, t))


@pytest.fixture(scope="module")
def bimodal() -> ksos.SoSDensity:
    """Two dimensions, signed weights, correlated."""
    X = points(12, 2, 3)
    return ksos.minimize(
        ksos.functionals.SquaredMMD(X) + 1e-3 * ksos.functionals.Trace(), ksos.SoSSpace(Gaussian(0.8), X), tol=1e-5
    ).distribution


def projection_cdf(p: ksos.SoSDensity, direction: np.ndarray) -> Callable[[np.ndarray], np.ndarray]:
    """The distribution function of x·direction, exactly: a signed mixture of normals (Gaussian kernel on R^d)."""
    weights = (p.factor @ p.factor.T) * np.exp(p.integrals.log_gram(p.support_points, p.support_points))
    t = p.support_points @ direction
    means = 0.5 * (t[:, None] + t[None, :])
    width = 0.5 * float(p.kernel.sigma) * np.linalg.norm(direction)
    return lambda x: np.array([np.sum(weights * norm.cdf((value - means) / width)) for value in x])


def test_three_hundred_thousand_samples_pass_on_marginals_and_projections(bimodal: ksos.SoSDensity) -> None:
    samples = bimodal.rvs(300_000, rng=11)
    directions = [np.array([1.0, 0.0]), np.array([0.0, 1.0]), *np.random.default_rng(0).normal(size=(4, 2))]
    for direction in directions:
        assert dkw_passes_at(samples @ direction, projection_cdf(bimodal, direction), 300)
    edges = np.quantile(samples[:150_000], np.linspace(0.1, 0.9, 9), axis=0)
    cells = [np.searchsorted(edges[:, k], samples[150_000:, k]) for k in range(2)]
    counts = np.bincount(10 * cells[0] + cells[1], minlength=100)
    probabilities = cell_probabilities(bimodal, edges)
    likely = probabilities > 1e-4
    merged = np.r_[counts[likely], counts[~likely].sum()], np.r_[probabilities[likely], probabilities[~likely].sum()]
    assert chi_square_passes(merged[0][merged[1] > 0], merged[1][merged[1] > 0])


def cell_probabilities(p: ksos.SoSDensity, edges: np.ndarray) -> np.ndarray:
    weights = (p.factor @ p.factor.T) * np.exp(p.integrals.log_gram(p.support_points, p.support_points))
    masses = []
    for k in range(2):
        x = p.support_points[:, k]
        means = 0.5 * (x[:, None] + x[None, :])
        walls = np.r_[-np.inf, edges[:, k], np.inf]
        cdf = norm.cdf((walls[:, None, None] - means) / (0.5 * float(p.kernel.sigma)))
        masses.append(np.diff(cdf, axis=0))
    return np.einsum("ij,aij,bij->ab", weights, *masses).ravel()


@pytest.mark.parametrize("wrong", ["unsigned weights", "another width", "one component missing"])
def test_wrong_samplers_fail_the_same_test(bimodal: ksos.SoSDensity, wrong: str) -> None:
    kernel, X, F = bimodal.kernel, bimodal.support_points, bimodal.unit_factor
    if wrong == "unsigned weights":
        F = np.abs(F)
    elif wrong == "another width":
        kernel = Gaussian(0.7)
    else:
        F = F.copy()
        F[int(np.argmax(np.abs(F).sum(axis=1)))] = 0.0
    samples = ksos.SoSDensity(kernel, X, F, normalize=True).rvs(300_000, rng=11)
    passed = [dkw_passes_at(samples[:, k], projection_cdf(bimodal, np.eye(2)[k]), 300) for k in range(2)]
    assert not all(passed)


def test_samples_are_reproducible_and_do_not_depend_on_chunks(bimodal: ksos.SoSDensity, monkeypatch: pytest.MonkeyPatch) -> None:
    samples = bimodal.rvs(500, rng=3)
    np.testing.assert_array_equal(samples, bimodal.rvs(500, rng=3))
    np.testing.assert_array_equal(samples, bimodal.rvs(500, rng=np.random.default_rng(3)))
    assert not np.array_equal(samples, bimodal.rvs(500, rng=4))
    monkeypatch.setattr(sampling, "_CHUNK_BYTES", 1)
    np.testing.assert_allclose(bimodal.rvs(500, rng=3), samples, atol=1e-9)
    assert bimodal.rvs(0).shape == (0, 2)
    with pytest.raises(ValueError, match="size must be at least 0"):
        bimodal.rvs(-1)


@pytest.mark.parametrize("d", [1, 3, 8, 20])
def test_samples_in_many_dimensions(d: int) -> None:
    X = points(6, d, 1)
    p = ksos.SoSDensity(Gaussian(np.sqrt(d)), X, np.random.default_rng(0).normal(size=(6, 2)), normalize=True)
    samples = p.rvs(4000, rng=0)
    error = np.sqrt(np.diagonal(p.cov()) / 4000)
    assert np.all(np.abs(samples.mean(axis=0) - p.mean()) < 6 * error)
    for k in (0, d - 1):
        assert dkw_passes_at(samples[:, k], projection_cdf(p, np.eye(d)[k]))


@pytest.mark.parametrize(
    ("measure", "shift"),
    [(Box([5.0], [6.0]), 0.0), (Normal(8.0, 0.1), 0.0), (Normal(0.0, 30.0), 0.0), (Lebesgue(), 1e8), (Box([1e8 - 1], [1e8 + 1]), 1e8)],
)
def test_samples_where_the_measure_and_the_points_disagree(measure: object, shift: float) -> None:
    p = ksos.SoSDensity(
        Gaussian(1.0), np.array([[-0.5], [0.0], [0.75]]) + shift, [[1.0, 0.5], [-1.0, 0.2], [1.0, 0.1]], measure, normalize=True
    )
    samples = p.rvs(4000, rng=0)
    deviation = np.sqrt(p.cov()[0, 0])
    assert abs(samples.mean() - p.mean()[0]) < 6 * deviation / np.sqrt(4000)
    assert samples.std() == pytest.approx(deviation, rel=0.1)


def test_one_point_is_a_normal_distribution() -> None:
    p = ksos.SoSDensity(Gaussian(1.4), [[1.0, -2.0]], [[3.0]], normalize=True)
    np.testing.assert_allclose(p.mean(), [1.0, -2.0], atol=1e-15)
    np.testing.assert_allclose(p.cov(), np.eye(2) * 0.7**2, atol=1e-14)
    assert p.pdf([[1.0, -2.0]])[0] == pytest.approx(1.0 / (2 * np.pi * 0.49))


@pytest.mark.parametrize("measure", [Lebesgue(), Box([-1e17], [1e17]), Normal(0.0, 1e9)])
def test_an_outlier_in_front_costs_the_moments_no_digits(measure: object) -> None:
    x, factor = np.array([[0.0], [0.7], [1.1]]), np.array([[1.0], [-0.5], [0.8]])
    plain = ksos.SoSDensity(Gaussian(1.0), x, factor, measure, normalize=True)
    silent = np.concatenate([np.zeros((1, 1)), factor])  # a point with weight zero
    beside = ksos.SoSDensity(Gaussian(1.0), np.concatenate([[[-1e12]], x]), silent, measure, normalize=True)
    np.testing.assert_allclose(beside.mean(), plain.mean(), rtol=1e-9)
    np.testing.assert_allclose(beside.cov(), plain.cov(), rtol=1e-9)


def test_the_reference_measure_is_what_the_density_is_relative_to() -> None:
    p = ksos.SoSDensity(Gaussian(1e6), [[0.0]], [[1.0]], Normal(2.0, 3.0), normalize=True)  # a constant: p = 1
    np.testing.assert_allclose(p.pdf([[0.0], [5.0]]), 1.0, rtol=1e-9)
    assert p.mean()[0] == pytest.approx(2.0)
    assert p.cov()[0, 0] == pytest.approx(9.0)


def test_outside_the_box_there_is_nothing() -> None:
    p = ksos.SoSDensity(Gaussian(1.0), [[0.0]], [[1.0]], Box([-1.0], [1.0]), normalize=True)
    np.testing.assert_array_equal(p.pdf([[1.5], [-1.0000001]]), [0.0, 0.0])
    np.testing.assert_array_equal(p.logpdf([[1.5], [-1.0000001]]), [-np.inf, -np.inf])
    assert p.pdf([[1.0]])[0] > 0.0


@pytest.mark.parametrize("d", [1, 784])
def test_far_away_the_logarithm_is_finite_and_nothing_is_nan(d: int) -> None:
    p = ksos.SoSDensity(Gaussian(1.0), points(3, d), np.ones((3, 1)), normalize=True)
    queries = np.stack([np.full(d, value) for value in (0.0, 50.0, 1e5, 1e160, 1e300)])
    log_density = p.logpdf(queries)
    assert not np.any(np.isnan(log_density))
    assert np.all(np.isfinite(log_density[:3]))
    assert np.all(np.diff(log_density[:4]) < 0.0)
    assert log_density[-1] == -np.inf
    assert np.all(p.pdf(queries) >= 0.0)
    if d == 1:  # the leading Gaussian of the nearest point
        x = points(3, 1)[:, 0].max()
        expected = 2 * (-((1e5 - x) ** 2)) + np.log(p.factor[np.argmax(points(3, 1)[:, 0]), 0] ** 2)
        assert log_density[2] == pytest.approx(expected, rel=1e-12)


def test_at_a_zero_of_the_density_the_logarithm_is_minus_infinity_or_nearly() -> None:
    p = ksos.SoSDensity(Gaussian(1.0), [[-1.0], [1.0]], [[1.0], [-1.0]], normalize=True)
    assert 0.0 <= p.pdf([[0.0]])[0] < 1e-30
    assert p.logpdf([[0.0]])[0] < -69.0


def test_blocks_of_rows_change_nothing(monkeypatch: pytest.MonkeyPatch, bimodal: ksos.SoSDensity) -> None:
    X = points(200, 2, 9)
    whole = bimodal.pdf(X), bimodal.logpdf(X), bimodal.mass()
    monkeypatch.setattr("ksos.density.sos._BLOCK_ELEMENTS", 7)
    for got, expected in zip((bimodal.pdf(X), bimodal.logpdf(X), bimodal.mass()), whole, strict=True):
        np.testing.assert_allclose(got, expected, rtol=1e-9)


@pytest.mark.parametrize(
    ("arguments", "error", "message"),
    [
        ({"factor": [[1.0], [1.0]]}, ValueError, "the density has mass .*, not 1; pass normalize=True"),
        ({"factor": [[1.0]]}, ValueError, "factor has 1 rows, but there are 2 support points"),
        ({"factor": [[0.0], [0.0]], "normalize": True}, ValueError, "without mass"),
        ({"factor": [[np.nan], [0.0]]}, ValueError, "factor contains NaN"),
        ({"measure": Discrete([[1e9]]), "factor": [[1.0], [1.0]]}, ValueError, "the kernel vanishes on"),
        ({"kernel": Laplace(1.0), "support_points": points(2, 2), "factor": [[1.0], [1.0]]}, ValueError, "product=True"),
    ],
)
def test_refuses_what_is_not_a_density(arguments: dict, error: type[Exception], message: str) -> None:
    with pytest.raises(error, match=message):
        ksos.SoSDensity(**{"kernel": Gaussian(1.0), "support_points": [[0.0], [1.0]], **arguments})


def test_repr_tells_dimension_support_rank_kernel_and_measure() -> None:
    p = ksos.SoSDensity(Gaussian(1.0), points(4, 2), np.ones((4, 3)), Box([-9.0, -9.0], [9.0, 9.0]), normalize=True)
    assert repr(p) == "SoSDensity(d=2, m=4, rank=3, kernel=Gaussian(sigma=1.0), measure=Box(low=[-9.0, -9.0], high=[9.0, 9.0]))"
