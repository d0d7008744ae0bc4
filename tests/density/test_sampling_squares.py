"""Samples square by square: their law, what the trains lose, and that nothing depends on the order
of calls.
"""

from __future__ import annotations

import pickle

import numpy as np
import pytest
from densities import from_square, make_density, random_density
from oracles import marginal_cdf
from statistics_checks import dkw_passes_at
from tables import PAIR_CASES, PairCase, answers_itself, points

import ksos
from ksos.density import ConditionalLine, square_of
from ksos.density.sampling import predicted_seconds, squares_of
from ksos.kernels import Gaussian, Laplace
from ksos.measures import Box, Discrete, Lebesgue, Measure, Normal

SMOOTH = {
    name: pair
    for name, pair in PAIR_CASES.items()
    if pair.d == 2
    and pair.kernel.smooth
    and answers_itself(pair)
    and not isinstance(pair.measure, Discrete)
}
TIED = np.array([[0.64, 0.25, 0.1], [0.25, 0.5, 0.05], [0.1, 0.05, 0.4]])


def searched(
    d: int, m: int = 60, measure: Measure | None = None, sigma: object = 0.9
) -> ksos.SoSDensity:
    """What a search gives: signed weights of low rank that cancel by thousands, and a share of a
    kernel density estimate.
    """
    X, rng = points(m, d, 3), np.random.default_rng(4)
    kernel = Gaussian(sigma)
    K = kernel(X)
    low = np.linalg.solve(
        K + 1e-7 * np.eye(m),
        np.exp(-np.sum((X[:, None, :] - X[rng.integers(m, size=4)]) ** 2, axis=2) / 0.5),
    )
    smooth, bumps = (
        ksos.SoSDensity(kernel, X, F, measure, normalize=True) for F in (low, np.eye(m))
    )
    return ksos.mixture([smooth, bumps], [0.97, 0.03])


@pytest.mark.parametrize("pair", SMOOTH.values(), ids=SMOOTH)
def test_samples_follow_the_density(pair: PairCase) -> None:
    p, n = make_density(pair), 20_000
    samples = p.rvs(n, rng=7, method="squares")
    assert samples.shape == (n, 2)
    assert np.all(pair.measure.contains(samples))
    for k in range(2):
        assert dkw_passes_at(samples[:, k], lambda t, k=k: marginal_cdf(p, k, t), 25)


@pytest.mark.parametrize(
    ("d", "measure", "sigma"),
    [
        (3, Lebesgue(), 0.9),
        (3, Box([-1.0] * 3, [0.8, 1.5, np.inf]), [0.9, 0.7, 1.1]),
        (3, Normal(0.1, 1.2), 0.9),
        (3, Lebesgue(), TIED),
        (5, Lebesgue(), 1.4),
    ],
    ids=["R^3", "box", "normal", "tied", "R^5"],
)
def test_searched_models(d: int, measure: Measure, sigma: object) -> None:
    p, n = searched(d, measure=measure, sigma=sigma), 20_000
    squares = squares_of(square_of(p))
    assert squares.shares.sum() + squares.single.sum() == pytest.approx(1.0, abs=1e-7)
    assert squares.single.min() > 0.0
    samples = p.rvs(n, rng=1, method="squares")
    for k in range(d):
        q = p.marginal([k])
        assert dkw_passes_at(samples[:, k], lambda t, q=q: q.cdf(t[:, None]))
    # dependence: the distribution function of the last feature given the others is uniform
    line = ConditionalLine(square_of(p), d - 1)
    assert dkw_passes_at(line.cdf(samples[:2000, :-1], samples[:2000, -1]), lambda t: t)


@pytest.mark.parametrize(("d", "sigma"), [(3, 0.9), (5, 1.4)])
def test_proposals_dominate_their_squares(d: int, sigma: float) -> None:
    """Where f² > M(f̃² + β‖f‖²h), samples are missing: on points of p, drawn by inversion, there is
    nowhere such a place.
    """
    p = searched(d, sigma=sigma)
    squares, x = squares_of(square_of(p)), p.rvs(4000, rng=0, method="inversion")
    f, h = squares.squares_and_components(x, squares.F)
    for r, share in enumerate(squares.shares):
        train = squares.train(r)
        approximate = squares.follow(train, x)[1]
        assert np.all(f[:, r] ** 2 <= squares.M * (approximate**2 + squares.BETA * share * h))
        assert np.sum(train[0].weights ** 2) == pytest.approx(share, rel=1e-5)
        for core in train[1:]:  # orthonormal: what is left of the later features is ‖v‖²
            np.testing.assert_allclose(
                np.tensordot(core.weights, core.weights, axes=((1, 2), (1, 2))),
                np.eye(core.weights.shape[0]),
                atol=1e-10,
            )


def test_isolated_points_keep_their_share() -> None:
    X = np.concatenate([points(40, 3, 1), [[30.0, 0.0, 0.0], [0.0, -40.0, 9.0]]])
    F = np.random.default_rng(0).normal(size=(42, 3))
    F[-2:] *= 0.05
    p = ksos.SoSDensity(Gaussian(0.8), X, F, normalize=True)
    n = 40_000
    far = p.rvs(n, rng=0, method="squares")[:, 0] > 20.0
    expected = float(p.probability([20.0, -np.inf, -np.inf], np.inf))
    assert 1e-5 < expected < 1e-2
    assert abs(far.mean() - expected) < 5.0 * np.sqrt(expected / n)


def test_the_order_of_calls_changes_nothing() -> None:
    first, second = searched(3), searched(3)
    one = first.rvs(300, rng=3, method="squares")
    second.rvs(5, rng=8, method="squares")
    np.testing.assert_array_equal(one, second.rvs(300, rng=3, method="squares"))
    np.testing.assert_array_equal(one, first.rvs(300, rng=3, method="squares"))
    copy = pickle.loads(pickle.dumps(first))
    assert len(pickle.dumps(first)) == len(pickle.dumps(searched(3)))  # the sampler is not written
    np.testing.assert_array_equal(one, copy.rvs(300, rng=3, method="squares"))


def test_auto_takes_it_for_searched_models_of_many_points() -> None:
    p = searched(3, 200, sigma=1.2)
    predicted = predicted_seconds(square_of(p), 1000)
    assert predicted["squares"] < predicted["inversion"]
    np.testing.assert_array_equal(p.rvs(100, rng=0), p.rvs(100, rng=0, method="squares"))


def test_refusals_name_the_remedy() -> None:
    for p in (random_density(Gaussian(0.8)), random_density(Laplace(0.8, product=True), d=2)):
        with pytest.raises(
            ValueError, match=r"method='squares' needs a smooth kernel.*use 'inversion'"
        ):
            p.rvs(3, method="squares")
    assert squares_of(square_of(random_density(Laplace(0.8, product=True), d=2))) is None


def test_digits_are_kept_where_weights_cancel() -> None:
    """Hundreds of millions cancel in Σ B_ij k_i k_j, and shares of squares from it would be
    rounding.
    """
    space = ksos.SoSSpace(Gaussian(2.0), points(40, 2, 3))
    column = space.T[:, np.argmax(np.abs(space.T).max(axis=0))][:, None]
    p = ksos.SoSDensity(space.kernel, space.support_points, column, normalize=True)
    samples = p.rvs(20_000, rng=0, method="squares")
    for k in range(2):
        assert dkw_passes_at(samples[:, k], lambda t, k=k: p.marginal([k]).cdf(t[:, None]))
    huge = from_square(
        p.kernel, p.support_points, 1e5 * square_of(p).unit_factor, square_of(p).log_unit, p.measure
    )
    assert squares_of(square_of(huge)) is None
