"""The picture of a search: every cell where it belongs, the chosen pair ringed, unvisited cells grey, λ = 0 below the others."""

from __future__ import annotations

import numpy as np
import pytest
from matplotlib.figure import Figure
from sklearn.exceptions import NotFittedError

import ksos
from ksos import CrossValidationDisplay, KernelSoSDensityCV

X = np.random.default_rng(0).normal(size=(40, 1))


@pytest.fixture(scope="module")
def search() -> KernelSoSDensityCV:
    return KernelSoSDensityCV(bandwidths=[0.5, 0.8, 1.5], relative_regularizations=[1.0, 0.1, 0.01, 0.0], cv=3).fit(X)


def test_cells_are_the_scores_and_the_ring_is_the_choice(search: KernelSoSDensityCV) -> None:
    display = CrossValidationDisplay.from_estimator(search, ax=Figure().add_subplot(), depth=1e6)
    values = np.ma.getdata(display.artists_["cells"].get_array()).reshape(4, 3)
    np.testing.assert_allclose(values, search.scores_.T)
    corners = display.artists_["cells"].get_coordinates()
    (x,), (y,) = display.artists_["chosen"].get_data()
    assert display.chosen is not None
    i, j = display.chosen
    assert search.bandwidth_multiples_[i] == search.bandwidth_multiple_
    assert search.relative_regularizations_[j] == search.relative_regularization_
    assert corners[j, i, 0] < x < corners[j, i + 1, 0] and corners[j + 1, i, 1] < y < corners[j, i, 1]
    for k, multiple in enumerate([0.5, 0.8, 1.5]):
        assert corners[0, k, 0] < multiple < corners[0, k + 1, 0]
    for k, regularization in enumerate([1.0, 0.1, 0.01]):
        assert corners[k + 1, 0, 1] < regularization < corners[k, 0, 1]
    assert corners[4, 0, 1] < corners[3, 0, 1] < 0.01, "λ = 0 has the lowest row"
    assert [label.get_text() for label in display.ax_.get_yticklabels()] == ["1", "0.1", "0.01", "0"]
    assert [label.get_text() for label in display.ax_.get_xticklabels()] == ["0.5", "0.8", "1.5"]
    assert "nats" in display.artists_["colorbar"].ax.get_ylabel() and "silverman" in display.ax_.get_xlabel()


def test_dots_are_the_shares_of_the_stack(search: KernelSoSDensityCV) -> None:
    display = CrossValidationDisplay.from_estimator(search, ax=Figure().add_subplot())
    dots, (x,) = display.artists_["shares"], display.artists_["chosen"].get_xdata()
    shares = {value: share for value, share in search.weights_.items() if value != "kernel_density"}
    assert len(dots.get_offsets()) == len(shares)
    np.testing.assert_allclose(dots.get_offsets()[:, 0], x)
    np.testing.assert_allclose(dots.get_sizes() / dots.get_sizes().sum(), np.array(list(shares.values())) / sum(shares.values()))
    rest = f"{search.weights_['kernel_density']:.1%} kernel density"
    assert any(rest in text.get_text() for text in display.ax_.get_legend().get_texts())
    best = KernelSoSDensityCV([0.8], [0.1], cv=3, combine="best", criterion="l2").fit(X)
    alone = CrossValidationDisplay.from_estimator(best, ax=Figure().add_subplot())
    assert "shares" not in alone.artists_ and "L²" in alone.artists_["colorbar"].ax.get_ylabel()


def test_depth_and_cells_that_were_not_visited() -> None:
    scores = np.array([[0.0, -1.0, -np.inf], [-0.1, -50.0, -np.inf]])
    display = CrossValidationDisplay([0.5, 1.0], [1.0, 0.1, 0.01], scores).plot(Figure().add_subplot(), depth=2.0)
    shown = display.artists_["cells"].get_array()
    assert np.ma.getmaskarray(shown).reshape(3, 2)[2].all() and not np.ma.getmaskarray(shown).reshape(3, 2)[:2].any()
    assert float(shown.min()) == -2.0 and "chosen" not in display.artists_


@pytest.mark.parametrize(
    ("multiples", "regularizations"), [([1.0], [0.0]), ([1.0], [0.3]), ([1.0], [0.3, 0.0]), ([0.5, 1.0], [0.1]), ([1.0], [1.0, 0.1])]
)
def test_one_row_or_one_column(multiples: list[float], regularizations: list[float]) -> None:
    scores = -1.0 - np.arange(len(multiples) * len(regularizations), dtype=float).reshape(len(multiples), -1)
    display = CrossValidationDisplay(multiples, regularizations, scores, (0, 0), shares=np.eye(len(regularizations))[0])
    display.plot(Figure().add_subplot())
    display.figure_.canvas.draw()
    assert display.artists_["cells"].get_array().size == scores.size
    assert len(display.ax_.get_yticks()) == len(regularizations)


def test_many_rows_have_few_ticks() -> None:
    display = CrossValidationDisplay(np.geomspace(0.1, 10, 25), 0.5 ** np.arange(12), np.zeros((25, 12))).plot(Figure().add_subplot())
    assert len(display.ax_.get_xticks()) == 9 and len(display.ax_.get_yticks()) == 6


def test_a_new_figure_is_made_where_none_is_given(search: KernelSoSDensityCV) -> None:
    import matplotlib.pyplot as plt

    display = CrossValidationDisplay.from_estimator(search)
    assert display.figure_.axes[0] is display.ax_
    display.figure_.canvas.draw()
    plt.close(display.figure_)


def test_what_it_refuses(search: KernelSoSDensityCV) -> None:
    with pytest.raises(TypeError, match="KernelSoSDensity has no surface of scores; a fitted KernelSoSDensityCV is needed"):
        CrossValidationDisplay.from_estimator(ksos.KernelSoSDensity().fit(X))
    with pytest.raises(NotFittedError):
        CrossValidationDisplay.from_estimator(KernelSoSDensityCV())
    with pytest.raises(ValueError, match=r"scores must have a row for each bandwidth .* shape \(2, 3\); got \(3, 2\)"):
        CrossValidationDisplay([1.0, 2.0], [3.0, 2.0, 1.0], np.ones((3, 2)))
    with pytest.raises(ValueError, match=r"multiples must ascend.* entry 1 does not"):
        CrossValidationDisplay([1.0, 1.0], [1.0], np.ones((2, 1)))
    with pytest.raises(ValueError, match=r"relative_regularizations must descend.* entry 2 does not"):
        CrossValidationDisplay([1.0], [1.0, 0.1, 0.5], np.ones((1, 3)))
    with pytest.raises(ValueError, match="shares are those of the λ of one bandwidth"):
        CrossValidationDisplay([1.0], [1.0], np.ones((1, 1)), shares=[1.0])
    with pytest.raises(ValueError, match="no finite score"):
        CrossValidationDisplay([1.0], [1.0], np.full((1, 1), -np.inf)).plot(Figure().add_subplot())
    with pytest.raises(ValueError, match="depth must be positive"):
        CrossValidationDisplay.from_estimator(search, depth=0.0)
    with pytest.raises(TypeError, match="ax must be one matplotlib Axes"):
        CrossValidationDisplay.from_estimator(search, ax=3)
