"""Scores: the CRPS is the integral that defines it, for every kind of density of one feature; the
energy score agrees with closed forms within its error.
"""

from __future__ import annotations

import numpy as np
import pytest
from densities import normal, random_density, stacked
from scipy.special import gamma, ndtr

import ksos
from ksos.kernels import Gaussian, Laplace, Matern
from ksos.measures import Box, Discrete, GaussianMixture, Normal

DENSITIES = {
    "Gaussian": lambda: random_density(Gaussian(0.8)),
    "Laplace": lambda: random_density(Laplace(0.8)),
    "Matérn": lambda: random_density(Matern(1.5, 0.8)),
    "on a box": lambda: random_density(Gaussian(0.8), Box([-1.0], [1.5])),
    "relative to a normal": lambda: random_density(Gaussian(0.8), Normal(0.3, 1.2)),
    "corrected": lambda: ksos.SoSDensity(
        Gaussian(1.5),
        [[0.0], [1.0]],
        [[0.3], [-0.2]],
        GaussianMixture([0.4, 0.6], [[-1.0], [2.0]], [[[0.5]], [[1.5]]]),
        constant=[1.0],
        normalize=True,
    ),
    "sum": lambda: stacked([random_density(Gaussian(0.5)), normal([4.0], 0.2)], [0.7, 0.3]),
}


def by_quadrature(p: ksos.SoSDensity, y: float) -> float:
    """∫ (P(x ≤ t) − 1[t ≥ y])² dt on short intervals between y and where all the mass is."""
    t, w = np.polynomial.legendre.leggauss(12)
    kinks = [-1.0, 1.5, *p.support_points[:, 0]]
    ends = np.unique(np.r_[np.linspace(-40.0, 40.0, 1601), y, kinks])
    middle, half = 0.5 * (ends[1:] + ends[:-1]), 0.5 * np.diff(ends)
    nodes = middle[:, None] + half[:, None] * t
    step = p.cdf(nodes.reshape(-1, 1)).reshape(nodes.shape) - (nodes >= y)
    return float(np.sum(step**2 * w * half[:, None]))


@pytest.mark.parametrize("name", DENSITIES)
def test_crps_is_the_integral(name: str) -> None:
    p, y = DENSITIES[name](), np.array([-30.0, -1.2, 0.1, 0.4, 2.5, 33.0])
    expected = [by_quadrature(p, one) for one in y]
    np.testing.assert_allclose(p.crps(y), expected, rtol=0.0, atol=1e-9)


def test_crps_of_a_normal_distribution() -> None:
    y = np.linspace(-12.0, 12.0, 49)
    density = np.exp(-0.5 * y**2) / np.sqrt(2.0 * np.pi)
    expected = y * (2.0 * ndtr(y) - 1.0) + 2.0 * density - 1.0 / np.sqrt(np.pi)
    np.testing.assert_allclose(normal().crps(y), expected, rtol=1e-13)
    # in other units, and far from zero, only the digits of y itself are lost
    moved = normal([1e6], 1e-3)
    np.testing.assert_allclose(moved.crps(1e6 + 1e-3 * y), 1e-3 * expected, rtol=0.0, atol=1e-9)


def test_crps_across_a_wide_gap() -> None:
    p = stacked([normal([0.0], 1.0), normal([1e6], 1.0)], [0.75, 0.25])
    one = ksos.SoSDensity(Gaussian(2.0), [[0.0], [1e6]], [[3.0**0.5], [1.0]], normalize=True)
    for q in (p, one):
        # E|x − y| − ½E|x − x'|, with two draws from one of both, or one from each
        apart = 0.5 * (0.75**2 + 0.25**2) * 2.0 / np.sqrt(np.pi) + 0.25 * 0.75 * 1e6
        assert q.crps(5e5) == pytest.approx(5e5 - apart, rel=1e-12)
        near = 0.75 * np.sqrt(2.0 / np.pi) + 0.25 * 1e6
        assert q.crps(0.0) == pytest.approx(near - apart, rel=1e-12)


def test_crps_on_atoms_is_a_sum() -> None:
    atoms = Discrete([[2.0], [0.0], [1.0]], [0.2, 0.5, 0.3])
    p = ksos.SoSDensity(Gaussian(1.0), [[0.0], [2.0]], [[1.0], [0.5]], atoms, normalize=True)
    x, share = atoms.points[:, 0], atoms.weights * p.pdf(atoms.points)
    y = np.array([-1.0, 0.0, 0.7, 9.0])
    apart = 0.5 * share @ np.abs(x[:, None] - x) @ share
    expected = np.abs(y[:, None] - x) @ share - apart
    np.testing.assert_allclose(p.crps(y), expected, atol=1e-14)


def test_crps_takes_a_number_a_vector_and_a_column() -> None:
    p, y = normal(), np.array([0.3, 1.0])
    assert isinstance(p.crps(0.3), float) and p.crps(y).shape == (2,)
    np.testing.assert_array_equal(p.crps(y[:, None]), p.crps(y))
    assert p.crps(0.3) == pytest.approx(p.crps(y)[0], rel=1e-14)
    assert p.crps(np.linspace(-3.0, 3.0, 10_000)).shape == (10_000,)


def test_the_best_score_in_the_mean_is_that_of_the_true_density() -> None:
    """The score is proper: no other density scores better on many samples of this one."""
    y = np.random.default_rng(0).normal(size=4000)
    true = normal().crps(y).mean()
    assert all(true < other.crps(y).mean() for other in (normal([0.2]), normal([0.0], 1.3)))


@pytest.mark.parametrize("d", [2, 5])
def test_energy_score_of_a_normal_distribution(d: int) -> None:
    radius = np.sqrt(2.0) * gamma(0.5 * (d + 1)) / gamma(0.5 * d)  # E‖x‖
    score = normal([0.0] * d).energy_score(np.zeros(d), rng=0)
    assert abs(score - radius * (1.0 - np.sqrt(0.5))) < 5.0 * score.error
    assert 0.0 < score.error < 0.02 and score.method == "sampling"
    rows = normal([0.0] * d).energy_score(np.zeros((3, d)), rng=0)
    np.testing.assert_allclose(rows, float(score), rtol=1e-12)


def test_energy_score_of_one_feature_is_the_crps() -> None:
    p = random_density(Laplace(1.0))
    assert p.energy_score([0.4]) == p.crps(0.4) and p.energy_score([0.4]).error == 0.0


@pytest.mark.parametrize(
    ("ask", "message"),
    [
        (lambda p: p.crps(0.0), r"the CRPS is for one feature; .* p.marginal\(\[0\]\).crps\(y\)"),
        (lambda p: p.marginal(0).crps(np.nan), "NaN"),
        (lambda p: p.marginal(0).crps(np.inf), "infinity"),
        (lambda p: p.energy_score([1.0]), "y has 1 features, but 2 were expected"),
        (lambda p: p.energy_score([1.0, np.nan]), "NaN"),
        (lambda p: p.energy_score([1.0, 0.0], 3), "n_samples must be at least 32"),
        (lambda p: p.to_scipy(), r"SciPy's distributions are for one feature"),
    ],
)
def test_bad_input(ask: object, message: str) -> None:
    with pytest.raises(ValueError, match=message):
        ask(normal([0.0] * 2))


@pytest.mark.parametrize("name", DENSITIES)
def test_infinite_points_of_one_feature(name: str) -> None:
    p = DENSITIES[name]()
    np.testing.assert_array_equal(p.pdf([[-np.inf], [np.inf]]), [0.0, 0.0])
    np.testing.assert_array_equal(p.logpdf([[-np.inf], [np.inf]]), [-np.inf, -np.inf])
    np.testing.assert_array_equal(p.cdf([[-np.inf], [np.inf]]), [0.0, 1.0])
    rows = np.array([[0.2], [np.inf], [-0.4]])
    np.testing.assert_array_equal(p.pdf(rows)[[0, 2]], p.pdf(rows[[0, 2]]))
    assert p.pdf(np.inf) == 0.0 and p.cdf(np.array(np.inf)) == 1.0
    for ask in (p.pdf, p.logpdf, p.cdf):
        assert isinstance(ask(0.2), float) and ask(np.float32(0.2)) == ask([[np.float32(0.2)]])[0]
        with pytest.raises(ValueError, match="NaN"):
            ask([[np.nan]])
        with pytest.raises(ValueError, match="Expected 2D array"):
            ask([0.1, 0.2])


def test_infinite_points_of_several_features_raise() -> None:
    with pytest.raises(ValueError, match="infinity"):
        normal([0.0] * 2).pdf([[0.0, np.inf]])


def test_orders_of_moments_as_floats() -> None:
    p = normal([1.0])
    assert p.moment(np.float64(2.0)) == p.moment(np.array(2.0)) == p.moment([2]) == p.moment(2)
    assert p.moment(np.float64(3.0), central=True) == pytest.approx(0.0, abs=1e-12)
    with pytest.raises(ValueError, match="whole number"):
        p.moment(1.5)
