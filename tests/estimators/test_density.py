"""KernelSoSDensity as scikit-learn and its users see it: the contract, the invariances, and the
numbers that must be reached.
"""

from __future__ import annotations

import pickle
import warnings
from typing import Any

import numpy as np
import pandas as pd
import pytest
from sklearn.base import clone
from sklearn.datasets import make_blobs, make_moons
from sklearn.exceptions import ConvergenceWarning
from sklearn.model_selection import GridSearchCV, cross_val_score
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import StandardScaler
from sklearn.utils.estimator_checks import parametrize_with_checks

from ksos import BandwidthWarning, KernelSoSDensity
from ksos.kernels import Gaussian
from ksos.measures import Box

MOONS = make_moons(100, noise=0.05, random_state=0)[0]
LOOSE: dict[str, Any] = {"tol": 1e-4}

VARIANTS = [
    KernelSoSDensity(),
    KernelSoSDensity(kernel="laplace", bandwidth="median", support="random", n_support=8, tol=1e-5),
    KernelSoSDensity(
        support="kmeans", penalty="frobenius", n_support=10, landmarks=12, solver="fista", tol=1e-4
    ),
    KernelSoSDensity(
        kernel=Gaussian(2.0),
        embedding_bandwidth=1.5,
        regularization=1e-2,
        solver="projected_gradient",
        tol=1e-3,
    ),
]


@pytest.fixture(scope="module")
def plain() -> KernelSoSDensity:
    """The default estimator on two moons."""
    return KernelSoSDensity().fit(MOONS)


# --- scikit-learn's contract ---


@parametrize_with_checks(VARIANTS)
def test_scikit_learn_checks(estimator: Any, check: Any) -> None:
    check(estimator)


def test_fitted_attributes(plain: KernelSoSDensity) -> None:
    assert plain.n_features_in_ == 2
    assert not hasattr(plain, "feature_names_in_")
    assert plain.n_iter_ == plain.solution_.n_iter > 0
    assert plain.distribution_ is plain.solution_.distribution
    assert plain.support_points_ is plain.distribution_.support_points
    assert plain.landmarks_ is plain.solution_.space.landmarks
    assert plain.bandwidth_ is plain.distribution_.kernel.sigma
    np.testing.assert_allclose(
        plain.embedding_bandwidth_, plain.bandwidth_ / (2.0 * (np.sqrt(1.5) - 1.0)), rtol=1e-12
    )  # a metric: squares
    one = KernelSoSDensity(bandwidth=1.0, **LOOSE).fit(MOONS)
    assert one.embedding_bandwidth_ is one.bandwidth_
    assert plain.fit(MOONS) is plain


def test_pipeline() -> None:
    pipeline = make_pipeline(StandardScaler(), KernelSoSDensity(**LOOSE)).fit(MOONS)
    scaled = StandardScaler().fit_transform(MOONS)
    alone = KernelSoSDensity(**LOOSE).fit(scaled)
    np.testing.assert_array_equal(pipeline.score_samples(MOONS), alone.score_samples(scaled))
    assert pipeline.score(MOONS) == alone.score(scaled)


def test_grid_search_chooses_by_log_density() -> None:
    grid = {"bandwidth": [0.6, 1.2, 5.0], "regularization": ["auto", 1.0]}
    search = GridSearchCV(
        KernelSoSDensity(n_support=20, **LOOSE), grid, cv=3, error_score="raise"
    ).fit(MOONS)
    scores = search.cv_results_["mean_test_score"]
    assert len(scores) == 6 and len(np.unique(scores)) == 6
    by_hand = [
        cross_val_score(KernelSoSDensity(n_support=20, **LOOSE).set_params(**p), MOONS, cv=3).mean()
        for p in search.cv_results_["params"]
    ]
    np.testing.assert_allclose(scores, by_hand, rtol=1e-12)
    assert search.best_params_ == search.cv_results_["params"][int(np.argmax(by_hand))]
    assert search.best_estimator_.distribution_.terms.mass() == pytest.approx(1.0, abs=1e-9)


def test_grid_search_passes_weights_on() -> None:
    weights = np.tile([1.0, 0.0], 50)
    search = GridSearchCV(KernelSoSDensity(n_support=10, **LOOSE), {"bandwidth": [1.0]}, cv=2).fit(
        MOONS, sample_weight=weights
    )
    alone = KernelSoSDensity(n_support=10, bandwidth=1.0, **LOOSE).fit(MOONS[::2])
    np.testing.assert_array_equal(
        search.best_estimator_.score_samples(MOONS), alone.score_samples(MOONS)
    )


def test_pickle_gives_the_same_estimator(plain: KernelSoSDensity) -> None:
    again = pickle.loads(pickle.dumps(plain))
    np.testing.assert_array_equal(again.score_samples(MOONS), plain.score_samples(MOONS))
    np.testing.assert_array_equal(again.sample(5, random_state=0), plain.sample(5, random_state=0))
    assert (
        again.solution_.status == plain.solution_.status
        and again.solution_.gap == plain.solution_.gap
    )
    assert again.get_params() == plain.get_params()


def test_clone_and_parameters() -> None:
    parameters = {
        "bandwidth": np.array([0.7, 1.2]),
        "support": MOONS[:9],
        "measure": Box([-2, -2], [3, 3]),
        "tol": 1e-3,
    }
    est = KernelSoSDensity(**parameters)
    for name, value in parameters.items():
        assert est.get_params()[name] is value, "a constructor stores what it gets"
    copy = clone(est.fit(MOONS))
    assert not hasattr(copy, "distribution_")
    np.testing.assert_array_equal(copy.fit(MOONS).score_samples(MOONS), est.score_samples(MOONS))
    for name, value in parameters.items():
        assert est.get_params()[name] is value, "and fit leaves it alone"
    assert est.set_params(bandwidth=0.5) is est
    assert est.fit(MOONS).bandwidth_ == 0.5
    assert "KernelSoSDensity(" in repr(est) and est._repr_html_()
    with pytest.raises(ValueError, match="Invalid parameter 'sigma'"):
        est.set_params(sigma=1.0)


def test_names_of_features() -> None:
    table = pd.DataFrame(MOONS, columns=["left", "right"])
    est = KernelSoSDensity(**LOOSE).fit(table)
    assert est.feature_names_in_.tolist() == ["left", "right"] and est.n_features_in_ == 2
    np.testing.assert_array_equal(
        est.score_samples(table), KernelSoSDensity(**LOOSE).fit(MOONS).score_samples(MOONS)
    )
    with pytest.raises(ValueError, match="feature names should match"):
        est.score_samples(table.rename(columns={"left": "up"}))


# --- what the methods promise ---


def test_score_samples_is_the_log_density(plain: KernelSoSDensity) -> None:
    queries = np.random.default_rng(0).uniform(-2, 3, (200, 2))
    scores = plain.score_samples(queries)
    assert scores.shape == (200,) and scores.dtype == np.float64
    np.testing.assert_allclose(np.exp(scores), plain.distribution_.pdf(queries), rtol=1e-12)
    F, k = plain.distribution_.factor, Gaussian(plain.bandwidth_)(queries, plain.support_points_)
    np.testing.assert_allclose(np.exp(scores), np.sum((k @ F) ** 2, axis=1), rtol=1e-9)
    score = plain.score(queries)
    assert isinstance(score, float) and score == pytest.approx(scores.mean(), rel=1e-14)
    weights = np.arange(200.0)
    assert plain.score(queries, sample_weight=weights) == pytest.approx(
        np.average(scores, weights=weights), rel=1e-12
    )
    far = np.array([[0.0, 0.0], [1e200, 0.0]])
    assert plain.score(far) == -np.inf and plain.score(far, sample_weight=[1, 0]) == pytest.approx(
        plain.score(far[:1]), rel=1e-12
    )


def test_sample_follows_the_density(plain: KernelSoSDensity) -> None:
    n = 4000
    samples = plain.sample(n, random_state=1)
    assert samples.shape == (n, 2) and plain.sample().shape == (1, 2)
    deviation = np.sqrt(np.diagonal(plain.distribution_.cov()) / n)
    assert np.all(np.abs(samples.mean(axis=0) - plain.distribution_.mean()) < 5.0 * deviation)
    # probability of a half-plane, by the density's own quadrature: sampling must not merely get the
    # moments right
    nodes, weights = gauss_legendre(plain, 4.0)
    left = float(
        np.sum(
            weights[nodes[:, 0] < nodes[0, 0] + 3.0]
            * plain.distribution_.pdf(nodes[nodes[:, 0] < nodes[0, 0] + 3.0])
        )
    )
    share = np.mean(samples[:, 0] < nodes[0, 0] + 3.0)
    assert abs(share - left) < 0.05


def test_sample_obeys_random_state(plain: KernelSoSDensity) -> None:
    np.testing.assert_array_equal(plain.sample(3, random_state=0), plain.sample(3, random_state=0))
    assert not np.array_equal(plain.sample(3, random_state=0), plain.sample(3, random_state=1))
    assert not np.array_equal(plain.sample(3), plain.sample(3))
    for make in (np.random.RandomState, np.random.default_rng):
        state = make(5)
        first, second = plain.sample(3, random_state=state), plain.sample(3, random_state=state)
        assert not np.array_equal(first, second)
        np.testing.assert_array_equal(first, plain.sample(3, random_state=make(5)))


@pytest.mark.parametrize("outlier", [-1e12, -1e16, 1e16])
def test_sample_beside_a_distant_outlier(outlier: float) -> None:
    X = np.random.default_rng(0).normal(size=(60, 2))
    alone, with_outlier = (
        KernelSoSDensity(bandwidth=1.5, **LOOSE).fit(data)
        for data in (X, np.r_[X, [[outlier, outlier]]])
    )
    expected, got = alone.sample(1000, random_state=0), with_outlier.sample(1000, random_state=0)
    got = got[np.abs(got[:, 0]) < 1e3]
    assert got.shape[0] > 900
    assert len(np.unique(got[:, 0])) == len(got), "the samples have lost their digits"
    np.testing.assert_allclose(got.std(axis=0), expected.std(axis=0), rtol=0.15)
    np.testing.assert_allclose(got.mean(axis=0), expected.mean(axis=0), atol=0.15)


# --- invariances ---


def test_order_of_rows_does_not_matter(plain: KernelSoSDensity) -> None:
    order = np.random.default_rng(0).permutation(len(MOONS))
    np.testing.assert_array_equal(
        KernelSoSDensity().fit(MOONS[order]).score_samples(MOONS), plain.score_samples(MOONS)
    )


@pytest.mark.parametrize("bandwidth", ["median", "scott", 1.0])
@pytest.mark.parametrize("support", ["pivoted", "random", "kmeans", "array"])
def test_integer_weights_equal_repetition_and_zero_equals_removal(
    support: str, bandwidth: Any
) -> None:
    rng = np.random.default_rng(3)
    X, counts = MOONS[:60], rng.integers(0, 4, 60)
    parameters = {"bandwidth": bandwidth, "landmarks": 20, "random_state": 0, "tol": 1e-6}
    parameters |= (
        {"support": X[:12]} if support == "array" else {"support": support, "n_support": 15}
    )
    weighted = KernelSoSDensity(**parameters).fit(X, sample_weight=counts)
    shuffled = rng.permutation(np.repeat(X, counts, axis=0))
    for data, weights in (
        (shuffled, None),
        (X[counts > 0], counts[counts > 0]),
        (X, counts / 1024),
    ):
        other = KernelSoSDensity(**parameters).fit(data, sample_weight=weights)
        np.testing.assert_allclose(other.score_samples(X), weighted.score_samples(X), atol=1e-7)
        np.testing.assert_array_equal(other.support_points_, weighted.support_points_)
        np.testing.assert_array_equal(other.landmarks_, weighted.landmarks_)


def test_weights_move_the_density() -> None:
    X = np.concatenate([np.linspace(-4, -2, 10), np.linspace(2, 4, 10)])[:, None]
    est = KernelSoSDensity(bandwidth=1.0, **LOOSE).fit(X, sample_weight=np.repeat([3.0, 1.0], 10))
    assert est.distribution_.mean()[0] == pytest.approx(-1.5, abs=0.05)


DATA_SETS = {
    "moons": MOONS,
    "blobs": make_blobs(80, 2, centers=3, random_state=0)[0],
    "one feature": np.random.default_rng(1).normal(size=(60, 1)),
    "five features": np.random.default_rng(2).normal(size=(60, 5)),
}


@pytest.mark.parametrize("name", DATA_SETS)
def test_default_parameters_do_not_see_the_scale(name: str) -> None:
    X = DATA_SETS[name]
    est = KernelSoSDensity().fit(X)
    queries = np.concatenate([X, est.sample(200, random_state=0)])
    expected = est.score_samples(queries)
    for scale in (1e-6, 1e6):
        scaled = KernelSoSDensity().fit(scale * X)
        np.testing.assert_allclose(
            scaled.score_samples(scale * queries) + X.shape[1] * np.log(scale), expected, atol=1e-6
        )
        assert scaled.solution_.objective == pytest.approx(est.solution_.objective, rel=1e-8)
    for scale in (1e-150, 1e150):  # neither overflow (warnings are errors here) nor nonsense
        scaled = KernelSoSDensity().fit(scale * X)
        assert scaled.solution_.status == "solved"
        np.testing.assert_allclose(
            scaled.score_samples(scale * queries) + X.shape[1] * np.log(scale), expected, atol=1e-3
        )
        assert np.all(np.isfinite(scaled.sample(5, random_state=0)))


@pytest.mark.parametrize("bandwidth", ["median", "scott"])
@pytest.mark.parametrize("support", ["pivoted", "kmeans"])
def test_data_far_from_the_origin_lose_nothing(support: str, bandwidth: str) -> None:
    far = MOONS + 1e8
    back = far - 1e8  # exact: what is left of the digits
    parameters = {
        "support": support,
        "bandwidth": bandwidth,
        "n_support": 40,
        "random_state": 0,
        "tol": 1e-6,
    }
    there, here = (KernelSoSDensity(**parameters).fit(X) for X in (far, back))
    queries = np.concatenate([far, np.random.default_rng(0).uniform(-2, 3, (200, 2)) + 1e8])
    np.testing.assert_allclose(
        there.score_samples(queries), here.score_samples(queries - 1e8), atol=1e-8
    )
    np.testing.assert_allclose(
        there.sample(50, random_state=0) - 1e8, here.sample(50, random_state=0), atol=1e-7
    )


# --- numbers to reach ---


def test_the_papers_example_is_solved_to_1e_8() -> None:
    parameters = {"bandwidth": 1.0, "regularization": 1e-3, "n_support": 50, "support": "pivoted"}
    fista = KernelSoSDensity(solver="fista", **parameters).fit(MOONS).solution_
    assert (fista.status, fista.space.support_points.shape[0]) == ("solved", 50)
    assert 0.0 <= fista.gap <= 1e-8 and fista.projected_mmd_bound == pytest.approx(
        np.sqrt(fista.gap)
    )
    others = {"auto": 1e-8, "projected_gradient": 5e-6}
    for solver, tol in others.items():
        other = KernelSoSDensity(solver=solver, tol=tol, **parameters).fit(MOONS).solution_
        assert other.status == "solved" and other.gap <= tol
        assert other.objective == pytest.approx(fista.objective, abs=1e-6)


def gauss_legendre(
    est: KernelSoSDensity, reach: float = 4.5, per_cell: int = 14
) -> tuple[np.ndarray, np.ndarray]:
    """A rule for densities of the plane: cells of two bandwidths a side, wherever a support point
    is within ``reach`` bandwidths.
    """
    sigma, points = (
        np.broadcast_to(est.bandwidth_, (2,)) if est.bandwidth_.ndim < 2 else np.zeros(2),
        est.support_points_,
    )
    if (
        est.bandwidth_.ndim == 2
    ):  # cells as small as the shorter axis asks for, as far as the longer one reaches
        short, long = np.sqrt(np.linalg.eigvalsh(est.bandwidth_))
        sigma, reach = np.full(2, short), reach * long / short
    corner = points.min(axis=0) - reach * sigma
    counts = np.ceil((np.ptp(points, axis=0) + 2.0 * reach * sigma) / (2.0 * sigma)).astype(int)
    cells = np.stack(np.meshgrid(*(np.arange(c) for c in counts), indexing="ij"), axis=-1).reshape(
        -1, 2
    )
    centers = corner + 2.0 * sigma * (cells + 0.5)
    near = (
        np.min([np.max(np.abs(centers - point) / sigma, axis=1) for point in points], axis=0)
        <= reach + 1.0
    )
    t, w = np.polynomial.legendre.leggauss(per_cell)
    offsets = sigma * np.stack(np.meshgrid(t, t, indexing="ij"), axis=-1).reshape(1, -1, 2)
    nodes = (centers[near][:, None, :] + offsets).reshape(-1, 2)
    return nodes, np.tile(np.prod(sigma) * np.outer(w, w).ravel(), int(near.sum()))


@pytest.mark.parametrize("m", [10, 50, 400])
@pytest.mark.parametrize("sigma", [0.05, 0.2, 1.0, 4.0, 15.0, 50.0])
def test_every_bandwidth_gives_a_valid_density(sigma: float, m: int) -> None:
    X = make_moons(400, noise=0.05, random_state=0)[0]
    # pivots would stop early: all 400 points, however redundant, are the harder case
    support = "random" if m == 400 else "pivoted"
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", ConvergenceWarning)
        warnings.simplefilter("ignore", BandwidthWarning)
        est = KernelSoSDensity(
            bandwidth=sigma, n_support=m, support=support, time_limit=0.1, random_state=0
        ).fit(X)
    nodes, weights = gauss_legendre(est)
    p = est.distribution_.pdf(nodes)
    assert np.all(p >= 0.0)
    assert abs(float(weights @ p) - 1.0) <= 1e-7
    assert abs(est.distribution_.terms.mass() - 1.0) <= 1e-7
    assert not np.any(np.isnan(est.score_samples(nodes[::50])))
    assert np.all(np.isfinite(est.score_samples(X)))


def test_no_negative_value_at_a_million_points() -> None:
    est = KernelSoSDensity(bandwidth=4.0, n_support=50, support="random", random_state=0).fit(MOONS)
    # ill-conditioned: evaluated through B, this density has negative values
    assert est.solution_.space.rank < 50
    values = est.distribution_.pdf(np.random.default_rng(0).uniform(-15, 15, (1_000_000, 2)))
    assert values.shape == (1_000_000,) and values.min() >= 0.0
    assert 900 * values.mean() == pytest.approx(1.0, abs=0.02)
