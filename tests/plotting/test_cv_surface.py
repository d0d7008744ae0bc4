"""The figure of a search: every cell where it belongs, λ = ∞ across all bandwidths, the chosen pair
ringed; a curve for one bandwidth.
"""

from __future__ import annotations

from itertools import product
from typing import Any

import numpy as np
import pytest
from matplotlib.figure import Figure
from sklearn.exceptions import NotFittedError

import ksos
from ksos import CrossValidationDisplay, KernelSoSDensityCV

X = np.random.default_rng(0).normal(size=(40, 1))
STRENGTHS = [np.inf, 1.0, 0.1, 0.0]


@pytest.fixture(scope="module")
def search() -> KernelSoSDensityCV:
    return KernelSoSDensityCV(
        bandwidths=[1.5, 3.0, 5.0], relative_regularizations=STRENGTHS, cv=3
    ).fit(X)


@pytest.fixture(scope="module")
def single() -> KernelSoSDensityCV:
    return KernelSoSDensityCV(cv=3).fit(X)


def pairs(multiples: Any, strengths: Any, **told: Any) -> CrossValidationDisplay:
    """Scores that fall from the first pair on."""
    found = np.array(list(product(multiples, strengths)))
    return CrossValidationDisplay(found[:, 0], found[:, 1], -1.0 - np.arange(len(found)), **told)


def texts(labels: Any) -> list[str]:
    return [label.get_text() for label in labels]


def test_cells_are_the_scores_and_the_ring_is_the_choice(search: KernelSoSDensityCV) -> None:
    display = CrossValidationDisplay.from_estimator(search, ax=Figure().add_subplot(), depth=1e6)
    values = display.artists_["cells"].get_array().reshape(4, 3)[::-1]
    results = search.cv_results_
    for multiple, strength, score in zip(
        results["bandwidth_multiple"],
        results["relative_regularization"],
        results["mean_test_score"],
        strict=True,
    ):
        row, column = STRENGTHS.index(strength), [1.5, 3.0, 5.0].index(multiple)
        np.testing.assert_allclose(
            values[row] if np.isinf(strength) else values[row, column], score
        )
    assert not np.ma.getmaskarray(values).any(), "the score of λ = ∞ stands for every bandwidth"
    assert texts(display.ax_.get_xticklabels()) == ["1.5", "3", "5"]
    assert texts(display.ax_.get_yticklabels()) == ["0", "0.1", "1", "∞"]
    np.testing.assert_allclose(display.ax_.get_yticks(), [0, 1, 2, 3])
    (x,), (y,) = display.artists_["chosen"].get_data()
    best = search.best_params_
    assert y == 3 - STRENGTHS.index(best["relative_regularization"])
    assert x == (
        1.0
        if np.isinf(best["relative_regularization"])
        else [1.5, 3.0, 5.0].index(best["bandwidth_multiple"])
    )
    assert (
        "nats" in display.artists_["colorbar"].ax.get_ylabel()
        and "∫k²dρ" in display.ax_.get_ylabel()
    )


def test_outlines_are_the_pairs_within_one_standard_error(search: KernelSoSDensityCV) -> None:
    display = CrossValidationDisplay.from_estimator(search, ax=Figure().add_subplot())
    results = search.cv_results_
    near = -results["difference"] <= results["standard_error"]
    assert near.any() and np.array_equal(display.near, near)
    assert near[display.chosen], "the choice is one of them"
    assert len(display.artists_["near"]) == near.sum()
    wide = [patch for patch in display.artists_["near"] if patch.get_width() > 2]
    assert len(wide) == np.isinf(results["relative_regularization"][near]).sum()


def test_one_bandwidth_is_a_curve_with_errors(single: KernelSoSDensityCV) -> None:
    display = CrossValidationDisplay.from_estimator(single, ax=Figure().add_subplot())
    results = single.cv_results_
    assert "cells" not in display.artists_
    finite = np.isfinite(results["relative_regularization"])
    np.testing.assert_allclose(
        display.artists_["scores"].get_ydata(), results["mean_test_score"][finite]
    )
    points, _, (bars,) = display.artists_["errors"]
    np.testing.assert_allclose(points.get_ydata(), results["mean_test_score"])
    heights = [np.ptp(segment[:, 1]) for segment in bars.get_segments()]
    np.testing.assert_allclose(heights, 2.0 * results["standard_error"], atol=1e-12)
    assert texts(display.ax_.get_xticklabels())[0] == "∞"
    (x,), (y,) = display.artists_["chosen"].get_data()
    assert y == pytest.approx(single.best_score_, rel=1e-12)
    assert (
        results["relative_regularization"][int(x)] == single.best_params_["relative_regularization"]
    )
    shallow = CrossValidationDisplay.from_estimator(single, ax=Figure().add_subplot(), depth=0.5)
    assert shallow.ax_.get_ylim()[0] == pytest.approx(results["mean_test_score"].max() - 0.5)


def test_other_criteria_and_no_reference() -> None:
    est = KernelSoSDensityCV([0.8, 1.2], [0.1, 0.01], cv=3, criterion="l2").fit(X)
    display = CrossValidationDisplay.from_estimator(est, ax=Figure().add_subplot())
    assert (
        "L²" in display.artists_["colorbar"].ax.get_ylabel()
        and display.ax_.get_ylabel() == "λ, in units of w₀"
    )


def test_depth_and_pairs_without_a_score() -> None:
    multiples, strengths = np.repeat([0.5, 1.0], 3), np.tile([1.0, 0.1, 0.01], 2)
    scores = [0.0, -1.0, -np.inf, -0.1, -50.0, -np.inf]
    display = CrossValidationDisplay(multiples, strengths, scores).plot(
        Figure().add_subplot(), depth=2.0
    )
    shown = display.artists_["cells"].get_array().reshape(3, 2)[::-1]
    assert np.ma.getmaskarray(shown)[2].all() and not np.ma.getmaskarray(shown)[:2].any()
    assert (
        float(shown.min()) == -2.0
        and "chosen" not in display.artists_
        and display.artists_["near"] == []
    )
    curve = CrossValidationDisplay([1.0] * 3, strengths[:3], scores[:3], chosen=2).plot(
        Figure().add_subplot()
    )
    assert len(curve.artists_["scores"].get_xdata()) == 2 and "chosen" not in curve.artists_


@pytest.mark.parametrize("width", [14.0, 4.0])
@pytest.mark.parametrize(
    ("multiples", "strengths"),
    [
        ([1.0], [0.0]),
        ([1.0], [np.inf]),
        ([1.0], [0.3, 0.0]),
        ([0.5, 1.0], [0.1]),
        ([0.5, 1.0], [np.inf, 0.1]),
        (range(1, 26), range(12)),
    ],
)
def test_every_shape_of_grid_can_be_drawn(multiples: Any, strengths: Any, width: float) -> None:
    display = pairs(multiples, strengths, chosen=0).plot(
        Figure(figsize=(width, 0.7 * width)).add_subplot()
    )
    display.figure_.canvas.draw()
    assert (len(display.ax_.get_xticks()) <= 9 and len(display.ax_.get_yticks()) <= 9) or len(
        multiples
    ) == 1
    assert "chosen" in display.artists_


def test_a_new_figure_is_made_where_none_is_given(search: KernelSoSDensityCV) -> None:
    import matplotlib.pyplot as plt

    display = CrossValidationDisplay.from_estimator(search)
    assert display.figure_.axes[0] is display.ax_
    display.figure_.canvas.draw()
    plt.close(display.figure_)


def test_what_it_refuses(search: KernelSoSDensityCV) -> None:
    with pytest.raises(
        TypeError,
        match=(
            "KernelSoSDensity has no scores of bandwidths and λ; a fitted KernelSoSDensityCV is"
            " needed"
        ),
    ):
        CrossValidationDisplay.from_estimator(ksos.KernelSoSDensity().fit(X))
    with pytest.raises(NotFittedError):
        CrossValidationDisplay.from_estimator(KernelSoSDensityCV())
    with pytest.raises(
        ValueError, match=r"there must be an entry for each of the 2 pairs; got .*\(3,\)"
    ):
        CrossValidationDisplay([1.0, 2.0], [3.0, 2.0], np.ones(3))
    with pytest.raises(ValueError, match="every pair of bandwidth and λ must have one score"):
        CrossValidationDisplay([1.0, 1.0], [1.0, 1.0], np.ones(2))
    with pytest.raises(ValueError, match="relative_regularizations must be non-negative"):
        CrossValidationDisplay([1.0, 1.0], [1.0, -1.0], np.ones(2))
    with pytest.raises(
        ValueError, match="chosen must be the position of one of the 1 pairs; got 1"
    ):
        CrossValidationDisplay([1.0], [1.0], np.ones(1), chosen=1)
    with pytest.raises(ValueError, match="no finite score"):
        CrossValidationDisplay([1.0], [1.0], [-np.inf]).plot(Figure().add_subplot())
    with pytest.raises(ValueError, match="depth must be positive"):
        CrossValidationDisplay.from_estimator(search, depth=0.0)
    with pytest.raises(TypeError, match="ax must be one matplotlib Axes"):
        CrossValidationDisplay.from_estimator(search, ax=3)
