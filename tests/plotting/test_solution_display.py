"""The picture of a run: its lines are the history, its band always holds the minimum."""

from __future__ import annotations

import dataclasses
from typing import Any

import matplotlib.pyplot as plt
import numpy as np
import pytest
from matplotlib.figure import Figure
from sklearn.exceptions import NotFittedError
from tables import points

import ksos
from ksos import Progress, SolutionDisplay
from ksos.functionals import SquaredMMD, Trace
from ksos.kernels import Gaussian


def axes() -> Any:
    return Figure().add_subplot()


@pytest.fixture(scope="module")
def solution() -> ksos.Solution:
    X = points(25, 2)
    return ksos.minimize(
        SquaredMMD(X) + 1e-3 * Trace(),
        ksos.SoSSpace(Gaussian(1.0), X[:12]),
        solver="fista",
        tol=1e-5,
    )


def band(display: SolutionDisplay, x: float) -> tuple[float, float]:
    """The lowest and highest point of the shaded band at a vertex of it."""
    (path,) = display.artists_["bounds"].get_paths()
    y = path.vertices[path.vertices[:, 0] == x, 1]
    return float(y.min()), float(y.max())


def test_the_lines_are_the_history(solution: ksos.Solution) -> None:
    display = SolutionDisplay.from_solution(solution, ax=axes())
    n, objective, gap = np.transpose(
        [(line.n_iter, line.objective, line.gap) for line in solution.history]
    )
    np.testing.assert_array_equal(display.artists_["objective"].get_data(), [n, objective])
    np.testing.assert_array_equal(display.artists_["gap"].get_data(), [n, gap])
    assert display.ax_[1].get_yscale() == "log" and display.ax_[1].get_xlabel() == "iteration"
    assert "fista: solved, gap" in display.ax_[0].get_title(loc="left")
    assert display.ax_[0].get_xlim() == display.ax_[1].get_xlim()


def test_the_band_holds_the_minimum_and_shrinks(solution: ksos.Solution) -> None:
    display = SolutionDisplay.from_solution(solution, ax=axes())
    bottom = display.ax_[0].get_ylim()[0]
    best = ksos.minimize(
        SquaredMMD(points(25, 2)) + 1e-3 * Trace(),
        ksos.SoSSpace(Gaussian(1.0), points(25, 2)[:12]),
        solver="interior_point",
        tol=1e-9,
    ).objective
    widths = []
    for progress in solution.history:
        low, high = band(display, progress.n_iter)
        assert low <= best + 1e-9 and best - 1e-9 <= high
        assert low == pytest.approx(
            max(
                [
                    bottom,
                    *(p.objective - p.gap for p in solution.history if p.n_iter <= progress.n_iter),
                ]
            )
        )
        widths.append(high - low)
    assert np.all(np.diff(widths) <= 1e-12)


def test_against_time(solution: ksos.Solution) -> None:
    display = SolutionDisplay.from_solution(solution, ax=axes(), against="time")
    assert display.ax_[1].get_xlabel() == "seconds"
    np.testing.assert_array_equal(
        display.artists_["gap"].get_xdata(), [progress.time for progress in solution.history]
    )
    with pytest.raises(ValueError, match="against must be one of 'iteration', 'time'"):
        SolutionDisplay.from_solution(solution, against="steps")


def test_scales_follow_the_objective() -> None:
    falling = SolutionDisplay([Progress(k, 10.0**-k, 10.0**-k, 0.1 * k) for k in range(4)]).plot(
        axes()
    )
    assert falling.ax_[0].get_yscale() == "log" and falling.ax_[0].get_ylim()[0] < 1e-3
    negative = SolutionDisplay(
        [Progress(k, -1.0 - k, 1.0 / (1 + k), 0.1 * k) for k in range(4)]
    ).plot(axes())
    assert negative.ax_[0].get_yscale() == "linear" and negative.ax_[0].get_ylim()[0] < -4.0


@pytest.mark.parametrize("objective", [0.3, 0.0, -2.0])
def test_a_gap_of_zero_and_a_single_certificate(objective: float) -> None:
    display = SolutionDisplay([Progress(0, objective, 0.0, 0.0)]).plot(axes())
    display.figure_.canvas.draw()
    assert display.artists_["zero_gap"].get_xdata().tolist() == [0.0]
    some = SolutionDisplay([Progress(0, 1.0, 1e-3, 0.0), Progress(1, 1.0, 0.0, 0.1)]).plot(axes())
    assert some.artists_["zero_gap"].get_xdata().tolist() == [1.0] and some.artists_[
        "gap"
    ].get_xdata().tolist() == [0.0]
    assert some.artists_["zero_gap"].get_ydata()[0] < 1e-3


def test_before_the_first_certificate() -> None:
    """Of a problem with constraints: no gap where they are not met, and an objective there says
    nothing of the minimum.
    """
    history = [
        Progress(0, 0.2, np.inf, 0.0),
        Progress(1, 1.0, 0.25, 0.1),
        Progress(2, 0.9, 0.02, 0.2),
    ]
    display = SolutionDisplay(history).plot(axes())
    display.figure_.canvas.draw()
    assert (
        display.artists_["gap"].get_xdata().tolist() == [1.0, 2.0]
        and "zero_gap" not in display.artists_
    )
    (path,) = display.artists_["bounds"].get_paths()
    assert path.vertices[:, 0].min() == 1.0
    assert band(display, 1.0) == (0.75, 1.0) and band(display, 2.0) == (0.88, 0.9)
    nothing = SolutionDisplay(history[:1]).plot(axes())
    nothing.figure_.canvas.draw()
    assert "bounds" not in nothing.artists_ and nothing.artists_[
        "objective"
    ].get_xdata().tolist() == [0.0]


def test_without_a_certificate_no_band(solution: ksos.Solution) -> None:
    display = SolutionDisplay.from_solution(
        dataclasses.replace(solution, gap=None, status="stationary"), ax=axes()
    )
    assert "bounds" not in display.artists_ and display.ax_[1].get_ylabel() == "gap, not certified"
    assert (
        display.ax_[0].get_title(loc="left").startswith("fista: stationary, no certificate after")
    )


def test_where_it_is_drawn(solution: ksos.Solution) -> None:
    figure, (left, _) = plt.subplots(1, 2)
    inside = SolutionDisplay.from_solution(solution, ax=left)
    assert inside.figure_ is figure and not left.axison and inside.ax_.shape == (2,)
    _, two = plt.subplots(2, 1)
    assert SolutionDisplay.from_solution(solution, ax=two).ax_[0] is two[0]
    before = plt.get_fignums()
    assert SolutionDisplay.from_solution(solution).figure_.number not in before


def test_from_estimator(solution: ksos.Solution) -> None:
    estimator = ksos.KernelSoSDensity(bandwidth=1.0).fit(points(10, 1))
    display = SolutionDisplay.from_estimator(estimator, ax=axes())
    assert len(display.history) == len(estimator.solution_.history)
    with pytest.raises(NotFittedError):
        SolutionDisplay.from_estimator(ksos.KernelSoSDensity())
    with pytest.raises(TypeError, match="goes to from_estimator"):
        SolutionDisplay.from_solution(estimator)
