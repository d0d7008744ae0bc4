"""Worst cases of densities come near those of all distributions, and say why where they do not."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from near_the_truth import LOSSES, curved, true_worst_case  # isort: skip
from sklearn.exceptions import ConvergenceWarning

import ksos
from ksos.kernels import Gaussian
from ksos.measures import Box, Discrete
from ksos.observables import BoxIndicator, NumericFunction, as_observable, coordinate

SAMPLES = np.random.default_rng(0).normal(scale=0.5, size=(60, 1))


def ball(radius: float, d: int = 1, **options: Any) -> ksos.Ball:
    X = SAMPLES if d == 1 else np.random.default_rng(0).normal(scale=0.5, size=(60, d))
    options = {"domain": Box([-2.0] * d, [2.0] * d)} | options
    return ksos.Ball(X, radius, kernel=Gaussian(1.0), **options)


@pytest.mark.parametrize("radius", [0.1, 0.3])
@pytest.mark.parametrize("name", [name for name, (d, _) in LOSSES.items() if d == 1])
def test_on_the_line_within_two_percent(name: str, radius: float) -> None:
    loss, around = as_observable(LOSSES[name][1], "loss"), ball(radius)
    nodes = np.linspace(-2.0, 2.0, 201)[:, None]
    truth = true_worst_case(around, loss, np.concatenate([nodes, np.minimum(nodes + 1e-9, 2.0)]))
    worst = ksos.worst_case(loss, around, rtol=1e-3)
    assert worst.value is not None and worst.upper_bound is not None
    assert around.contains(worst.distribution), "by the exact MMD"
    assert 0.976 * truth <= worst.value <= worst.upper_bound <= 1.02 * truth
    wide = ksos.worst_case(loss, around, rtol=1e-3, n_support=64)
    assert worst.value >= wide.value, "narrow densities are kept where they are worse"


@pytest.mark.parametrize("name", ["x z", "1[x + z > 1]"])
def test_in_two_dimensions_within_two_percent(name: str) -> None:
    loss, around = as_observable(LOSSES[name][1], "loss"), ball(0.1, 2)
    axes = np.meshgrid(*[np.linspace(-2.0, 2.0, 33)] * 2)
    nodes = np.stack([axis.ravel() for axis in axes], axis=1)
    truth = true_worst_case(around, loss, np.minimum(nodes + 1e-9, 2.0))  # behind the jump
    worst = ksos.worst_case(loss, around, rtol=1e-3)
    assert worst.value is not None and worst.upper_bound is not None
    assert around.contains(worst.distribution), "by the exact MMD"
    # the grid misses a little of what a density between its nodes attains
    assert 0.98 * truth <= worst.value <= 1.005 * truth
    assert 0.9999 * truth <= worst.upper_bound <= 1.01 * truth
    assert worst.space is not None and worst.space.kernel.sigma_vector(2).max() < 0.1


def test_in_three_dimensions_the_bounds_are_close() -> None:
    X = np.random.default_rng(0).normal(scale=0.5, size=(60, 3)).clip(-2.0, 2.0)
    around = ksos.Ball(X, 0.3, kernel=Gaussian(1.1), domain=Box([-2.0] * 3, [2.0] * 3))
    square = coordinate(0) ** 2 + coordinate(1) ** 2 + coordinate(2) ** 2
    worst = ksos.worst_case(square, around, rtol=1e-3)
    assert worst.value is not None and worst.upper_bound_kind == "rigorous"
    assert around.contains(worst.distribution), "by the exact MMD"
    assert 0.96 * worst.upper_bound <= worst.value <= worst.upper_bound


def test_on_half_a_line_and_at_a_corner_within_two_percent() -> None:
    half = BoxIndicator([1.0], [np.inf])
    worst = ksos.worst_case(half, ball(0.2, domain=Box([-np.inf], [2.0])), rtol=1e-3)
    assert worst.value is not None and worst.upper_bound_kind == "rigorous"
    assert 0.98 * worst.upper_bound <= worst.value <= worst.upper_bound
    # too wide kernels beside the jump leave the ball, narrower ones do not
    X = np.random.default_rng(1).normal(scale=0.6, size=(30, 2))
    around = ksos.Ball(X, 0.1, kernel=Gaussian(1.0), domain=Box([-3.0] * 2, [3.0] * 2))
    worst = ksos.worst_case(BoxIndicator([0.5] * 2, [np.inf] * 2), around, rtol=1e-3)
    assert worst.value is not None and around.contains(worst.distribution)
    assert 0.97 * worst.upper_bound <= worst.value <= worst.upper_bound


def test_on_nodes_any_weights_are_reached() -> None:
    nodes = np.linspace(-2.0, 2.0, 41)[:, None]
    around = ball(0.3, domain=Discrete(nodes, np.full(41, 1.0 / 41.0)))
    loss = as_observable(lambda X: np.sin(9.0 * X[:, 0]) + X[:, 0] ** 2, "loss")
    worst = ksos.worst_case(loss, around)
    inside = ksos.Ball(SAMPLES, 0.3, kernel=Gaussian(1.0))
    values = np.linalg.eigvalsh(inside.kernel(nodes))
    assert values[-1] > 0.0 and worst.value is not None and worst.upper_bound is not None
    assert worst.value >= 0.99 * worst.upper_bound


def test_a_choice_of_the_user_is_kept_and_no_note_is_made() -> None:
    worst = ksos.worst_case(coordinate(0) ** 4, ball(0.3), bandwidth=0.5)
    assert worst.space is not None and worst.space.kernel == Gaussian(0.5)
    assert worst.value is not None and worst.upper_bound is not None
    assert worst.value < 0.99 * worst.upper_bound and "below the upper bound" not in worst.note


def test_the_note_says_why_it_is_not_nearer() -> None:
    loss, around = LOSSES["1[x > 1]"][1], ball(0.05)
    worst = ksos.worst_case(loss, around, rtol=1e-3)
    assert worst.value is not None and worst.upper_bound is not None
    assert worst.value < 0.99 * worst.upper_bound, "a peak beside the jump has a width"
    assert "below the upper bound, and narrower densities come no closer" in worst.message


def test_with_a_parameter_both_bounds_meet() -> None:
    """A newsvendor with its kink: the order, its worst case, and what no distribution exceeds."""

    def newsvendor(theta: np.ndarray, X: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        left = theta[0] - X[:, 0]
        return np.maximum(-3.0 * left, left), np.where(left < 0.0, -3.0, 1.0)[:, None]

    for radius in (0.1, 0.3):
        found = ksos.robust_minimize(newsvendor, 0.0, ball(radius), alpha=1e-3, rtol=1e-3)
        worst = found.worst_case
        assert found.status == "solved" and worst is not None and worst.mmd <= radius
        assert worst.upper_bound is not None and worst.value is not None
        assert worst.value <= worst.upper_bound <= 1.02 * worst.value


def test_a_path_goes_on_from_wide_densities() -> None:
    def square(theta: np.ndarray, X: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        return np.sum((theta - X) ** 2, axis=1), 2.0 * (theta - X)

    path = ksos.robust_path(square, 0.0, ball(0.0), [0.1, 0.2, 0.3], rtol=1e-3)
    alone = ksos.robust_minimize(square, 0.0, ball(0.3), rtol=1e-3)
    assert [each.status for each in path] == ["solved"] * 3
    assert path[-1].value == pytest.approx(alone.value, rel=3e-3)


@pytest.mark.parametrize("shift", ["x", "y", "both"])
@pytest.mark.parametrize("loss", ["square", "absolute"])
def test_reweightings_of_samples_reach_the_truth(shift: str, loss: str) -> None:
    X, y = curved(100)
    est = ksos.RobustRegressor(radius=0.2, shift=shift, loss=loss, rtol=1e-3).fit(X, y)
    worst = est.worst_case_
    truth = true_worst_case(est.ball_, worst.loss, est.ball_.points[:1])
    assert worst.mmd <= 0.2 and worst.upper_bound_kind == "rigorous"
    assert 0.99 * truth <= worst.value <= truth * (1.0 + 1e-6) <= worst.upper_bound * 1.0001


def test_costs_are_those_of_folds_by_hand() -> None:
    def square(theta: np.ndarray, X: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        return np.sum((theta - X) ** 2, axis=1), 2.0 * (theta - X)

    around = ball(0.0)
    plain, robust = ksos.robust_path(square, 0.0, around, [0.0, 0.3], rtol=1e-3, cv=5)
    n, X = 60, around.points[:, 0]
    order, costs = np.random.default_rng(0).permutation(n), np.empty(n)
    for k in range(5):
        held_out = order[k::5]
        costs[held_out] = (X[held_out] - np.delete(X, held_out).mean()) ** 2
    assert plain.cost == pytest.approx(costs.mean(), rel=1e-6) and plain.cost_error == 0.0
    assert robust.cost is not None and robust.value is not None and robust.cost_error is not None
    assert abs(robust.cost - plain.cost) <= 5.0 * robust.cost_error and robust.cost < robust.value
    with pytest.raises(ValueError, match="cv must lie between 2 and the 60"):
        ksos.robust_path(square, 0.0, around, [0.0], cv=61)


def test_the_display_of_a_path_needs_its_costs() -> None:
    X, y = curved(40)
    est = ksos.RobustRegressor(model="kernel", n_centers=4, shift="x", rtol=1e-2)
    path = est.path(X, y, [0.0, 0.1], cv=4)
    figure = pytest.importorskip("matplotlib.figure").Figure()
    display = ksos.RobustPathDisplay(path).plot(figure.add_subplot())
    drawn = display.artists_["bounds"].get_ydata()
    assert drawn.tolist() == [each.solution_.value for each in path]
    assert display.artists_["plain"].get_ydata()[0] == path[0].solution_.cost
    plain, robust = (each.solution_.cost for each in path)
    assert [text.get_text() for text in display.ax_.texts] == [f"{robust / plain - 1.0:+.0%}"]
    with pytest.raises(ValueError, match="pass cv=5 to robust_path"):
        ksos.RobustPathDisplay(est.path(X, y, [0.0]))


def test_a_loss_whose_peak_no_rule_sees_is_not_solved() -> None:
    peak = NumericFunction(lambda X: 1e6 * ((X[:, 0] > 0.3) & (X[:, 0] < 0.3001)))
    with pytest.warns(ConvergenceWarning, match="the integrals are known to"):
        worst = ksos.worst_case(peak, ball(0.2))
    assert worst.status == "solved_inaccurate" and worst.integration_error > 1.0
