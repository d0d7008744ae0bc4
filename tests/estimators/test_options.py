"""Every constructor option of KernelSoSDensity: each test fails when its option is ignored."""

from __future__ import annotations

import inspect
import time
from typing import Any

import numpy as np
import pytest
from scipy.spatial.distance import pdist
from sklearn.datasets import make_moons
from sklearn.exceptions import ConvergenceWarning

from ksos import KernelSoSDensity, Progress
from ksos.functionals import SquaredMMD
from ksos.kernels import Gaussian, Laplace, Matern
from ksos.measures import Box, Discrete, Lebesgue, Normal
from ksos.solvers import SOLVERS, Auto

X = make_moons(40, noise=0.05, random_state=0)[0]
BASE: dict[str, Any] = {"tol": 1e-5, "random_state": 0}

# what changes the density, with parameters that it needs beside it; the names must be the
# constructor's
VISIBLE: dict[str, list[dict[str, Any]]] = {
    "kernel": [{"kernel": "laplace"}, {"kernel": "matern"}, {"kernel": Gaussian(0.6)}],
    "bandwidth": [
        {"bandwidth": 0.8},
        {"bandwidth": [0.6, 1.3]},
        {"bandwidth": "scott"},
        {"bandwidth": "median"},
    ],
    "embedding_bandwidth": [{"embedding_bandwidth": 0.5}, {"embedding_bandwidth": [0.5, 2.0]}],
    "regularization": [{"regularization": 0.0}, {"regularization": 0.2}],
    "relative_regularization": [{"relative_regularization": 0.0}, {"relative_regularization": 0.2}],
    "penalty": [{"penalty": "frobenius"}],
    "n_support": [{"n_support": 7}],
    "support": [
        {"support": "random", "n_support": 9},
        {"support": "kmeans", "n_support": 9},
        {"support": X[:9]},
    ],
    "landmarks": [{"landmarks": 6}, {"landmarks": X[:6]}],
    "measure": [{"measure": Box([-1.5, -1], [2.5, 1.5])}, {"measure": Normal(0.5, 1.0)}],
    "reference": [
        {"reference": "normal"},
        {"reference": "mixture"},
        {"reference": Normal(0.5, 1.0)},
    ],
    "objective": [
        {"objective": "mmd"},
        {"objective": "likelihood"},
        {"objective": SquaredMMD(X[:3])},
    ],
    "solver": [{"solver": "fista", "tol": 1e-3}, {"solver": "projected_gradient", "tol": 1e-3}],
    "tol": [{"tol": 1.0}],
    "random_state": [{"support": "random", "n_support": 9, "random_state": 1}],
}
APART = {"time_limit", "verbose", "contamination", "columns", "missing"}


def fit(data: np.ndarray = X, **parameters: Any) -> KernelSoSDensity:
    return KernelSoSDensity(**{**BASE, **parameters}).fit(data)


@pytest.fixture(scope="module")
def default() -> KernelSoSDensity:
    return fit()


def test_every_option_has_a_test_and_the_documented_default() -> None:
    signature = inspect.signature(KernelSoSDensity)
    assert set(signature.parameters) == set(VISIBLE) | APART
    documented = {"kernel": "gaussian", "bandwidth": "auto", "regularization": "auto"}
    positional = list(documented)
    documented |= {"relative_regularization": None, "objective": "squared_mmd", "penalty": "trace"}
    documented |= {"measure": None, "reference": None, "support": "auto", "n_support": None}
    documented |= {"landmarks": None, "embedding_bandwidth": None, "solver": "auto", "tol": None}
    documented |= {"time_limit": None, "columns": None, "missing": "model", "contamination": None}
    documented |= {"random_state": None, "verbose": 0}
    found = {name: parameter.default for name, parameter in signature.parameters.items()}
    assert list(found.items()) == list(documented.items()), "and their order"
    kinds = [parameter.kind for parameter in signature.parameters.values()]
    assert kinds == [inspect.Parameter.POSITIONAL_OR_KEYWORD] * len(positional) + [
        inspect.Parameter.KEYWORD_ONLY
    ] * (len(documented) - len(positional))


@pytest.mark.parametrize(
    ("name", "which"),
    [(name, which) for name, values in VISIBLE.items() for which in range(len(values))],
)
def test_an_option_changes_the_density(default: KernelSoSDensity, name: str, which: int) -> None:
    parameters = VISIBLE[name][which]
    without = {key: value for key, value in parameters.items() if key != name}
    other = fit(**without) if without else default
    assert np.max(np.abs(fit(**parameters).score_samples(X) - other.score_samples(X))) > 1e-6


# --- kernel and bandwidth ---


def test_kernel(default: KernelSoSDensity) -> None:
    assert default.distribution_.kernel == Gaussian(default.bandwidth_)
    assert fit(kernel="laplace", bandwidth=0.7, n_support=10).distribution_.kernel == Laplace(
        0.7, product=True
    )
    assert fit(kernel="matern", bandwidth=[0.7, 0.4], n_support=10).distribution_.kernel == Matern(
        1.5, [0.7, 0.4], product=True
    )
    own = fit(kernel=Matern(2.5, 0.9, product=True), bandwidth=5.0, n_support=10)
    # its own sigma rules
    assert own.distribution_.kernel == Matern(2.5, 0.9, product=True) and own.bandwidth_ == 0.9
    embedded = fit(kernel=Matern(2.5, 0.9, product=True), embedding_bandwidth=0.5, n_support=10)
    assert (
        embedded.solution_.space.embedding_kernel == Matern(2.5, 0.5, product=True)
        and embedded.embedding_bandwidth_ == 0.5
    )


@pytest.mark.parametrize("d", [1, 2, 5])
def test_bandwidth_rules_are_their_formulas(d: int) -> None:
    data = np.random.default_rng(d).normal(size=(37, d)) * np.arange(1, d + 1)
    assert fit(data, bandwidth="median", tol=1e-2).bandwidth_ == pytest.approx(
        np.median(pdist(data)), rel=1e-12
    )
    h = 37 ** (-1 / (d + 4)) * data.std(axis=0)
    np.testing.assert_allclose(fit(data, bandwidth="scott", tol=1e-2).bandwidth_, 2 * h, rtol=1e-12)
    np.testing.assert_allclose(
        fit(data, bandwidth="silverman", tol=1e-2).bandwidth_,
        2 * h * (4 / (d + 2)) ** (1 / (d + 4)),
        rtol=1e-12,
    )


def test_the_median_counts_weights_as_repetitions() -> None:
    rng = np.random.default_rng(0)
    cases = [(rng.normal(size=(n, 2)), rng.integers(1, 5, n)) for n in (2, 3, 4, 9)]
    cases.append(
        (np.array([[0.0], [10.0], [11.0]]), np.array([1, 2, 2]))
    )  # half of the weight is reached exactly: the middle of two values
    for data, counts in cases:
        distances = pdist(np.repeat(data, counts, axis=0))
        est = KernelSoSDensity(bandwidth="median", tol=1e-2).fit(data, sample_weight=counts)
        assert est.bandwidth_ == pytest.approx(np.median(distances[distances > 0]), rel=1e-12)


@pytest.mark.parametrize(
    ("rule", "words"),
    [("median", "the points have no spread"), ("scott", r"features 0, 1 have no spread")],
)
def test_no_spread_gives_bandwidth_one_with_a_warning(rule: str, words: str) -> None:
    with pytest.warns(
        UserWarning, match=f"bandwidth='{rule}': {words}; the bandwidth is set to 1 there"
    ):
        est = KernelSoSDensity(bandwidth=rule).fit([[3.0, 4.0]] * 5)
    assert np.all(est.bandwidth_ == 1.0)


@pytest.mark.parametrize("constant", [0.1, 7.0, 1e9])
def test_a_constant_feature_has_no_spread_whatever_rounding_says(constant: float) -> None:
    with pytest.warns(UserWarning, match=r"bandwidth='silverman': feature 1 has no spread"):
        est = KernelSoSDensity(bandwidth="silverman", tol=1e-2).fit(
            np.c_[X[:, 0], np.full(len(X), constant)]
        )
    assert est.bandwidth_[1] == 1.0 and est.bandwidth_[0] != 1.0


def test_bandwidth_rules_survive_outliers_and_unlike_scales() -> None:
    data = np.r_[X, [[-1e100, 1e300]]]
    assert fit(data, bandwidth="median", n_support=5, tol=1e-2).bandwidth_ == pytest.approx(
        np.median(pdist(X)), rel=0.1
    )
    scales = np.array([1e-150, 1e150])
    np.testing.assert_allclose(
        fit(X * scales, bandwidth="scott", tol=1e-2).bandwidth_,
        scales * fit(X, bandwidth="scott", tol=1e-2).bandwidth_,
        rtol=1e-12,
    )


# --- the problem ---


def test_embedding_bandwidth(default: KernelSoSDensity) -> None:
    est = fit(embedding_bandwidth=[0.5, 2.0])
    assert est.solution_.space.embedding_kernel == Gaussian([0.5, 2.0])
    assert est.embedding_bandwidth_.tolist() == [0.5, 2.0] and np.array_equal(
        est.bandwidth_, default.bandwidth_
    )


@pytest.mark.parametrize(
    ("strength", "options"),
    [
        (1e-3, {"bandwidth": 0.8}),
        (1e-3, {"bandwidth": "median"}),
        (1e-3, {"kernel": Gaussian(0.8)}),
        (3e-3, {}),
        (1e-2, {"bandwidth": "median", "objective": "likelihood"}),
        (1e-2, {"kernel": Gaussian(0.8), "objective": "likelihood"}),
        (0.3, {"objective": "likelihood"}),
    ],
    ids=str,
)
@pytest.mark.parametrize("penalty", ["trace", "frobenius"])
def test_regularization_auto_is_in_the_natural_unit(
    penalty: str, strength: float, options: dict[str, Any]
) -> None:
    auto = fit(penalty=penalty, **options)
    w0 = np.pi / 2 * np.sqrt(np.linalg.det(auto.distribution_.kernel.matrix(2)))
    assert auto.regularization_ == pytest.approx(
        strength * w0 ** (1 if penalty == "trace" else 2), rel=1e-12
    )


@pytest.mark.parametrize("penalty", ["trace", "frobenius"])
def test_relative_regularization_is_lambda_in_units_of_w0(penalty: str) -> None:
    relative = fit(penalty=penalty, bandwidth=0.8, relative_regularization=0.05)
    w0 = np.pi * 0.8**2 / 2
    unit = w0 if penalty == "trace" else w0**2
    absolute = fit(penalty=penalty, bandwidth=0.8, regularization=0.05 * unit)
    np.testing.assert_allclose(relative.score_samples(X), absolute.score_samples(X), atol=1e-6)
    for est in (relative, absolute):
        assert (est.regularization_, est.relative_regularization_) == pytest.approx(
            (0.05 * unit, 0.05), rel=1e-12
        )
    none = fit(relative_regularization=0.0)
    assert (none.regularization_, none.relative_regularization_) == (0.0, 0.0)


@pytest.mark.parametrize("penalty", ["trace", "frobenius"])
def test_regularization_auto_is_that_number(penalty: str) -> None:
    auto = fit(penalty=penalty)
    same = fit(penalty=penalty, regularization=auto.regularization_)
    assert same.solution_.objective == pytest.approx(auto.solution_.objective, rel=1e-12)
    np.testing.assert_allclose(same.score_samples(X), auto.score_samples(X), atol=1e-8)


@pytest.mark.parametrize("penalty", ["trace", "frobenius"])
@pytest.mark.parametrize("objective", ["squared_mmd", "mmd"])
def test_the_objective_is_distance_plus_penalty(penalty: str, objective: str) -> None:
    est = fit(penalty=penalty, objective=objective, regularization=0.02, tol=1e-3)
    p, S = est.solution_.distribution, est.solution_.space.projection
    residual = S.coordinates(p) - S.coordinates(X)
    # FᵀKF: tr A is its trace, ‖A‖² the sum of its squares
    M = p.factor.T @ p.kernel(p.support_points) @ p.factor
    distance = residual @ residual if objective == "squared_mmd" else np.linalg.norm(residual)
    size = np.trace(M) if penalty == "trace" else np.sum(M**2)
    assert est.solution_.objective == pytest.approx(distance + 0.02 * size, rel=1e-6)


def test_an_own_functional_replaces_the_distance() -> None:
    target = X[:12]
    own = fit(objective=SquaredMMD(target), support=X[::3], bandwidth=1.0)
    direct = fit(target, support=X[::3], bandwidth=1.0)
    np.testing.assert_allclose(own.score_samples(X), direct.score_samples(X), atol=1e-6)


@pytest.mark.parametrize("kernel", ["gaussian", "laplace", "matern"])
def test_measure(kernel: str) -> None:
    box = Box([-1.2, -0.7], [2.2, 1.2])
    est = fit(kernel=kernel, measure=box)
    assert est.distribution_.measure is box
    rule = Discrete.quadrature(box, 200)
    assert rule.weights @ est.distribution_.pdf(rule.points) == pytest.approx(1.0, abs=1e-4)
    assert est.score_samples([[2.3, 0.0]])[0] == -np.inf
    samples = est.sample(100, random_state=0)
    assert np.all(box.contains(samples))
    assert fit(kernel=kernel).distribution_.measure == Lebesgue()


def test_a_discrete_measure_takes_any_kernel() -> None:
    rule = Discrete.quadrature(Box([-3, -3], [4, 4]), 40)
    est = fit(kernel=Laplace(1.0), measure=rule)
    assert rule.weights @ est.distribution_.pdf(rule.points) == pytest.approx(1.0, abs=1e-9)
    gaussian = fit(bandwidth=1.0, measure=rule)
    np.testing.assert_allclose(
        gaussian.score_samples(X), fit(bandwidth=1.0).score_samples(X), atol=1e-3
    )


# --- support and landmarks ---


def subset(points: np.ndarray, data: np.ndarray = X) -> bool:
    return len(np.unique(points, axis=0)) == len(points) and all(
        np.any(np.all(data == p, axis=1)) for p in points
    )


def test_pivoted_support_is_the_greedy_choice() -> None:
    est = fit(n_support=8, bandwidth=1.0, support="pivoted")
    chosen: list[int] = []
    data = np.unique(X, axis=0)
    W = np.exp(-0.5 * np.sum((data[:, None] - data[None]) ** 2, axis=-1))
    for _ in range(8):
        P = (
            W[:, chosen] @ np.linalg.pinv(W[np.ix_(chosen, chosen)]) @ W[chosen]
            if chosen
            else np.zeros_like(W)
        )
        chosen.append(int(np.argmax(np.diagonal(W - P).round(12))))
    np.testing.assert_array_equal(est.support_points_, data[np.sort(chosen)])


def test_pivots_stop_where_nothing_is_left() -> None:
    assert fit(bandwidth=0.5).support_points_.shape[0] == 40
    assert fit(bandwidth=3.0).support_points_.shape[0] < 30


@pytest.mark.parametrize("support", ["random", "kmeans"])
def test_random_support(support: str) -> None:
    first, again, other = (
        fit(support=support, n_support=9, random_state=seed, tol=1e-2) for seed in (0, 0, 1)
    )
    assert first.support_points_.shape == (9, 2) and subset(first.support_points_) == (
        support == "random"
    )
    np.testing.assert_array_equal(first.support_points_, again.support_points_)
    assert not np.array_equal(first.support_points_, other.support_points_)
    assert fit(support=support, n_support=10**9, tol=1e-2).support_points_.shape == (40, 2)


def test_kmeans_support_spreads_where_random_support_does_not() -> None:
    far = np.r_[X, X[:2] + 50.0]
    hits = [
        np.sum(
            fit(
                far, bandwidth=1.0, support="kmeans", n_support=4, random_state=seed, tol=1e-2
            ).support_points_[:, 0]
            > 40
        )
        for seed in range(5)
    ]
    assert min(hits) >= 1


def test_support_and_landmarks_given_are_used_as_they_are() -> None:
    support = np.r_[X[:5], X[:5], [[9.0, 9.0]]]
    landmarks = X[5:9] + 0.1
    est = fit(support=support, landmarks=landmarks, tol=1e-2)
    np.testing.assert_array_equal(est.support_points_, support)
    np.testing.assert_array_equal(est.landmarks_, landmarks)
    assert est.solution_.space.rank == 6 and est.solution_.space.embedding_rank == 4


def test_landmarks() -> None:
    est = fit(tol=1e-2)
    np.testing.assert_array_equal(est.landmarks_, est.support_points_)
    first, again, other = (fit(landmarks=6, random_state=seed, tol=1e-2) for seed in (0, 0, 1))
    assert (
        first.landmarks_.shape == (6, 2)
        and subset(first.landmarks_)
        and first.solution_.space.embedding_rank == 6
    )
    np.testing.assert_array_equal(first.landmarks_, again.landmarks_)
    assert not np.array_equal(first.landmarks_, other.landmarks_)
    assert fit(landmarks=10**9, tol=1e-2).landmarks_.shape == (40, 2)


def test_n_support_none_means_all_up_to_two_hundred() -> None:
    line = np.arange(250.0)[:, None]
    assert KernelSoSDensity(bandwidth=1.0, tol=10.0).fit(line[:150]).support_points_.shape == (
        150,
        1,
    )
    assert KernelSoSDensity(bandwidth=1.0, tol=10.0).fit(line).support_points_.shape == (200, 1)
    assert KernelSoSDensity(bandwidth=1.0, tol=10.0, n_support=220).fit(
        line
    ).support_points_.shape == (220, 1)


# --- the solver ---


def test_solver() -> None:
    solutions = {solver: fit(solver=solver, tol=1e-4, n_support=15).solution_ for solver in SOLVERS}
    assert {solver: solution.solver for solver, solution in solutions.items()} == {
        solver: solver for solver in SOLVERS
    }
    objectives = [solution.objective for solution in solutions.values()]
    assert max(objectives) - min(objectives) <= 1e-4
    assert fit(solver="auto", tol=1e-4).solution_.solver in SOLVERS


@pytest.mark.parametrize("solver", ["auto", *SOLVERS])
def test_tol(solver: str) -> None:
    loose, tight = (fit(solver=solver, tol=tol, n_support=15).solution_ for tol in (1e-2, 1e-4))
    assert loose.n_iter < tight.n_iter and tight.gap < loose.gap <= 1e-2 and tight.gap <= 1e-4


def test_max_iter() -> None:
    with pytest.warns(ConvergenceWarning, match="max_iter after 3 iterations"):
        est = fit(solver=Auto(max_iter=3))
    assert (est.n_iter_, est.solution_.status) == (3, "max_iter")


def test_time_limit() -> None:
    began = time.perf_counter()
    with pytest.warns(ConvergenceWarning, match="time_limit"):
        est = fit(solver="fista", time_limit=0.2, tol=1e-15)
    assert est.solution_.status == "time_limit"
    assert 0.2 <= time.perf_counter() - began < 5.0


def test_callback_sees_the_history() -> None:
    seen: list[Progress] = []
    est = fit(solver=Auto(callback=seen.append))
    assert seen == est.solution_.history and seen[0].n_iter == 0 and seen[-1].n_iter == est.n_iter_
    assert all(isinstance(progress, Progress) and progress.gap >= 0.0 for progress in seen)
    assert [p.n_iter for p in seen] == sorted({p.n_iter for p in seen})


def test_verbose_shows_the_gap(capsys: pytest.CaptureFixture[str]) -> None:
    fit(verbose=0)
    assert capsys.readouterr().out == ""
    counts = []
    for verbose in (1, 2):
        est = fit(verbose=verbose)
        shown = capsys.readouterr().out.splitlines()
        lines = [line for line in shown if not line.startswith("[fit]")]
        assert shown == [*shown[:3], *lines], "what comes before the solver"
        counts.append(len(lines))
        assert all(est.solution_.solver in line and "gap" in line for line in lines)
        assert f"{est.solution_.history[0].gap:.2e}" in lines[0]
    assert 1 < counts[0] <= counts[1] == len(est.solution_.history)
