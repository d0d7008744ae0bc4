"""Laws of every bandwidth rule, and the rule "auto" against brute force."""

from __future__ import annotations

import warnings
from typing import Any

import numpy as np
import pytest
from sklearn.datasets import make_moons

import ksos
from ksos.integrals import closed_form
from ksos.kernels import Gaussian, Kernel, Laplace, Matern
from ksos.measures import Box, Discrete, Lebesgue, Measure, Normal
from ksos.space import (
    RULES,
    bandwidth_rule,
    leave_one_out,
    robust_silverman,
    subset_and_factor,
    widest_good,
    without_outliers,
)

MOONS = make_moons(60, noise=0.1, random_state=0)[0]
COUNTS = np.random.default_rng(3).integers(1, 4, len(MOONS))
WEIGHTS = COUNTS / COUNTS.sum()
BOX = Box([-1.5, -1.0], [2.5, np.inf])
KERNELS = [Gaussian(1.0), Laplace(1.0, product=True), Matern(1.5, 1.0, product=True)]
PAIRS = [(kernel, measure) for kernel in KERNELS for measure in (Lebesgue(), BOX)]
PAIRS += [(Gaussian(1.0), Normal([0.0, 0.3], [1.0, 0.7]))]
GRID = np.stack(np.meshgrid(np.linspace(-1.5, 2.5, 9), np.linspace(-1.0, 1.5, 6)), axis=-1).reshape(
    -1, 2
)
PAIRS += [
    (Gaussian(1.0), Discrete(np.r_[GRID, MOONS], np.r_[np.ones(len(GRID)), np.full(60, 0.02)]))
]
every_rule = pytest.mark.parametrize("rule", RULES)


def bandwidth(
    rule: str, points: np.ndarray, weights: np.ndarray = WEIGHTS, seed: int = 0, **options: Any
) -> np.ndarray:
    return bandwidth_rule(rule, points, weights, np.random.default_rng(seed), **options)


@every_rule
@pytest.mark.parametrize("scale", [2.0**-40, 0.3, 1e9])
def test_a_unit_of_the_data_is_a_unit_of_the_bandwidth(rule: str, scale: float) -> None:
    np.testing.assert_allclose(
        bandwidth(rule, scale * MOONS), scale * bandwidth(rule, MOONS), rtol=1e-9
    )


@every_rule
def test_a_shift_is_not_seen(rule: str) -> None:
    np.testing.assert_allclose(bandwidth(rule, MOONS + 100.0), bandwidth(rule, MOONS), rtol=1e-9)


@pytest.mark.parametrize("rule", [rule for rule in RULES if rule != "median"])
def test_every_feature_has_a_unit_of_its_own(rule: str) -> None:
    units = np.array([1e-6, 1e7])
    np.testing.assert_allclose(
        bandwidth(rule, units * MOONS), units * bandwidth(rule, MOONS), rtol=1e-9
    )


@every_rule
def test_weights_count_samples_as_repeated(rule: str) -> None:
    weighted = ksos.KernelSoSDensity(bandwidth=rule, tol=1e-2).fit(MOONS, sample_weight=COUNTS)
    repeated = ksos.KernelSoSDensity(bandwidth=rule, tol=1e-2).fit(np.repeat(MOONS, COUNTS, axis=0))
    np.testing.assert_allclose(weighted.bandwidth_, repeated.bandwidth_, rtol=1e-12)


@pytest.mark.parametrize(("rule", "n"), [("auto", 900), ("median", 4000)])
def test_of_many_points_a_subset_is_used(rule: str, n: int) -> None:
    """The size of the subset is corrected for: half as many samples give nearly the same."""
    X = np.random.default_rng(1).normal(size=(n, 2))
    whole, again = (bandwidth(rule, X, np.full(n, 1.0 / n)) for _ in range(2))
    half = bandwidth(rule, X[: n // 2], np.full(n // 2, 2.0 / n), count=n)
    np.testing.assert_array_equal(whole, again)
    if rule == "median":
        assert whole != bandwidth(rule, X, np.full(n, 1.0 / n), seed=1)
    np.testing.assert_allclose(half, whole, rtol=0.25)


def test_the_size_of_a_subset_is_corrected_for_exactly() -> None:
    X, weights = np.random.default_rng(1).normal(size=(900, 2)), np.arange(1.0, 901.0) / 405450.0
    few, their_weights, factor = subset_and_factor(X, weights, Lebesgue())
    same, same_weights, standing_for_all = subset_and_factor(
        few, their_weights, Lebesgue(), count=900
    )
    np.testing.assert_array_equal(same, few)
    np.testing.assert_array_equal(same_weights, their_weights)
    assert few.shape == (600, 2) and their_weights.sum() == pytest.approx(1.0)
    assert standing_for_all == factor == pytest.approx(1.2 * (600 / 900) ** (1 / 6))
    # 20 samples are less sure than 900
    assert subset_and_factor(X[:20], np.full(20, 0.05), Lebesgue())[2] == pytest.approx(1.25)


@pytest.mark.parametrize(
    ("behind", "chosen"),
    [
        ([20.0, -17.0, 0.0], 1),  # three nats in all, far less than the standard error
        (
            [20.0, -9.0, 0.0],
            0,
        ),  # within the standard error, which two samples make large, but eleven nats
        ([0.02, 0.02, 0.02], 0),  # two nats, on which all samples agree
        ([-1.0, -1.0, -1.0], 1),  # the best itself
    ],
)
def test_the_widest_good_one_is_behind_by_little_in_both_senses(
    behind: list[float], chosen: int
) -> None:
    logs = np.zeros((2, 100))
    logs[1] = -np.r_[behind[:2], np.full(98, behind[2])]
    assert widest_good(logs, np.full(100, 0.01)) == chosen


def test_outliers_are_far_from_the_weighted_median() -> None:
    logs, weights = np.array([0.0, 0.0, 0.0, -15.0, -30.0]), np.array([0.1, 0.1, 0.1, 0.6, 0.1])
    np.testing.assert_allclose(
        without_outliers(logs, weights), np.array([1.0, 1.0, 1.0, 6.0, 0.0]) / 9.0
    )


def brute_force(multiple: float, kernel: Kernel, measure: Measure) -> np.ndarray:
    """The log-density of every sample under the components of all the others, each a density of
    the class by itself: k(x, ·)² over its integral.
    """
    k = kernel.with_sigma(multiple * robust_silverman(MOONS, WEIGHTS))
    logs = 2.0 * np.log(k(MOONS)) - closed_form(k, measure, 2).log_diagonal(MOONS)[:, None]
    values = np.exp(logs) * WEIGHTS[:, None]
    np.fill_diagonal(values, 0.0)
    return np.log(values.sum(axis=0))


@pytest.mark.parametrize(("kernel", "measure"), PAIRS, ids=repr)
def test_auto_is_the_widest_that_predicts_left_out_samples_nearly_as_well_as_the_best(
    kernel: Kernel, measure: Measure
) -> None:
    chosen = (
        bandwidth("auto", MOONS, kernel=kernel, measure=measure)
        / 1.25
        / robust_silverman(MOONS, WEIGHTS)
    )
    assert chosen[0] == pytest.approx(chosen[1], rel=1e-12)
    best = max(
        (brute_force(2.0 ** (k / 8), kernel, measure) for k in range(-16, 5)),
        key=lambda logs: float(logs @ WEIGHTS),
    )

    def too_far(logs: np.ndarray) -> float:
        behind = best - logs
        loss = float(behind @ WEIGHTS)
        return loss - min(
            np.sqrt((behind - loss) ** 2 @ WEIGHTS * (WEIGHTS @ WEIGHTS)), 4.0 * (WEIGHTS @ WEIGHTS)
        )

    assert too_far(brute_force(chosen[0], kernel, measure)) < 1e-6
    assert too_far(brute_force(1.5 * chosen[0], kernel, measure)) > 0.0


@pytest.mark.parametrize("share", [0.02, 0.1])
@pytest.mark.parametrize("distance", [30.0, 1e6, 1e150])
def test_auto_does_not_widen_for_outliers(distance: float, share: float) -> None:
    rng = np.random.default_rng(0)
    X = np.r_[rng.normal(-3.0, 0.4, 100), rng.normal(3.0, 0.4, 100)][:, None]
    far = distance * 2.0 ** np.arange(int(200 * share))[:, None]
    clean, dirty = (
        bandwidth("auto", data, np.full(len(data), 1.0 / len(data))) for data in (X, np.r_[X, far])
    )
    np.testing.assert_allclose(dirty, clean, rtol=0.25)


def test_a_boundary_is_no_reason_to_narrow_auto() -> None:
    X = np.random.default_rng(0).random((300, 1))
    equal = np.full(300, 1.0 / 300)
    assert bandwidth("auto", X, equal, measure=Box([0.0], [1.0])) > 1.5 * bandwidth(
        "auto", X, equal
    )


@pytest.mark.parametrize("kernel", KERNELS, ids=repr)
def test_auto_sees_the_nodes_of_a_rule_as_what_they_stand_for(kernel: Kernel) -> None:
    X = np.random.default_rng(0).random((100, 1))
    equal, box = np.full(100, 0.01), Box([0.0], [1.0])
    whole = bandwidth("auto", X, equal, kernel=kernel, measure=box)
    np.testing.assert_allclose(
        bandwidth("auto", X, equal, kernel=kernel, measure=Discrete.quadrature(box, 300)),
        whole,
        rtol=1e-12,
    )


@pytest.mark.parametrize("n_nodes", [1, 5, 10])
def test_auto_is_no_narrower_than_nodes_can_tell(n_nodes: int) -> None:
    """Between coarse nodes nothing bounds a density: components would gain by hiding there."""
    X = np.random.default_rng(0).random((100, 1))
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        got = bandwidth(
            "auto", X, np.full(100, 0.01), measure=Discrete.quadrature(Box([0.0], [1.0]), n_nodes)
        )
    assert got > 1.0 / n_nodes if n_nodes > 1 else got > 0.0


@pytest.mark.parametrize("shift", [1e3, 1e6, 1e160])
def test_auto_of_samples_that_no_node_sees(shift: float) -> None:
    nodes = np.linspace(-1.0, 1.0, 9)[:, None] + shift
    with pytest.raises(ValueError, match="the kernel vanishes on Discrete"):
        ksos.KernelSoSDensity(measure=Discrete(nodes)).fit(MOONS[:, :1])


def test_auto_looks_at_fewer_points_where_nodes_are_many() -> None:
    rng = np.random.default_rng(0)
    X, measure = rng.normal(size=(400, 1)), Discrete.quadrature(Box([-6.0], [6.0]), 60)
    many = Discrete(
        np.repeat(measure.points, 200, axis=0) + 1e-9 * rng.normal(size=(12000, 1)),
        np.repeat(measure.weights / 200, 200),
    )
    few, whole = (
        bandwidth("auto", X, np.full(400, 1.0 / 400), measure=rho) for rho in (many, measure)
    )
    np.testing.assert_allclose(few, whole, rtol=0.25)


@pytest.mark.parametrize("n", [1, 2, 3])
def test_auto_of_few_points(n: int) -> None:
    X = np.array([[0.0, 5.0], [2.0, 4.0], [3.0, 9.0]])[:n]
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        got = leave_one_out(X, np.full(n, 1.0 / n), Gaussian(1.0), Lebesgue())
    assert got.shape == (2,) and np.all(got == 0.0 if n == 1 else (got > 0.5) & (got < 50.0))
