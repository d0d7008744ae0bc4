"""What a picture of a density shows are the density's own numbers, whatever the kernel, the measure
and the scale.
"""

from __future__ import annotations

import itertools
import sys
from typing import Any

import matplotlib.pyplot as plt
import numpy as np
import pandas as pd
import pytest
from densities import make_density
from matplotlib.figure import Figure
from matplotlib.path import Path
from sklearn.exceptions import NotFittedError
from sklearn.neighbors import KernelDensity
from tables import THIN_PAIR_CASES, points

import ksos
from ksos import DensityDisplay
from ksos.density import square_of
from ksos.kernels import Gaussian
from ksos.measures import Box, Discrete, GaussianMixture, Lebesgue, Normal

REGIONS = (0.5, 0.9)


def axes() -> Any:
    return Figure().add_subplot()


def usual(p: ksos.SoSDensity, x: np.ndarray) -> np.ndarray:
    """The density with respect to Lebesgue measure."""
    return np.exp(p.logpdf(x) + p.measure.log_density(x))


# --- every kernel and measure ---


@pytest.mark.parametrize("name", THIN_PAIR_CASES)
def test_every_pair_is_drawn_as_it_is(name: str) -> None:
    p = make_density(THIN_PAIR_CASES[name], m=6)
    d, X = p.n_features, points(9, p.n_features, 3)
    if isinstance(p.measure, Discrete):
        with pytest.raises(ValueError, match="has no height to draw"):
            DensityDisplay.from_density(p, X, ax=axes())
        return
    display = DensityDisplay.from_density(
        p, X, ax=axes(), regions=(0.5,), resolution=60 if d == 2 else None
    )
    display.figure_.canvas.draw()
    panel, drawn = display.panels[tuple(range(d))], display.artists_[tuple(range(d))]
    if d == 1:
        x, y = drawn["density"].get_data()
        x, y = x[1:-1], y[1:-1]  # the ends fall to zero at walls
        np.testing.assert_allclose(y, usual(p, x[:, None]), rtol=1e-8, atol=1e-12)
        assert np.trapezoid(y, x) == pytest.approx(1.0, abs=3e-3), (
            "nearly all of the mass is in view, as a density of x"
        )
    else:
        grid = np.stack([g.ravel() for g in np.meshgrid(panel.axes[0], panel.axes[1])], axis=1)
        np.testing.assert_allclose(panel.values.ravel(), usual(p, grid), rtol=1e-8, atol=1e-12)
    for window, k in zip(panel.windows, range(d), strict=True):
        low, high = p.measure.boundary(k)
        assert low <= window.low < window.high <= high
        assert window.view[0] <= window.low and window.high <= window.view[1]


# --- one feature ---


def test_the_distribution_function_rises_from_zero_at_the_height_of_zero_density(
    line: ksos.SoSDensity,
) -> None:
    display = DensityDisplay.from_density(line, [[0.1]])
    twin = display.artists_[(0,)]["cdf_axes"]
    (curve,) = twin.lines
    x, y = curve.get_data()
    np.testing.assert_allclose(y, line.cdf(np.asarray(x)[:, None]), atol=1e-12)
    display.figure_.canvas.draw()
    zero, other = (a.transData.transform((0.0, 0.0))[1] for a in (display.ax_, twin))
    assert zero == pytest.approx(other, abs=1e-6)
    assert DensityDisplay.from_density(line, cdf=False).artists_[(0,)].keys() == {
        "density",
        "regions",
        "support",
    }
    assert len(DensityDisplay.from_density(line, cdf=False).figure_.axes) == 1


@pytest.mark.parametrize("measure", [Lebesgue(), Box([-0.2], [0.7]), Normal(0.2, 0.9)], ids=repr)
def test_regions_of_a_curve_hold_their_mass(line: ksos.SoSDensity, measure: Any) -> None:
    p = ksos.SoSDensity(
        line.kernel, line.support_points, square_of(line).unit_factor, measure, normalize=True
    )
    curve = DensityDisplay.from_density(
        p, regions=(0.5, 0.9, 0.99), resolution=4001, ax=axes()
    ).panels[(0,)]
    y, step = curve.values, curve.axes[0][1] - curve.axes[0][0]
    for mass, level in curve.levels.items():
        assert step * y[y >= level].sum() == pytest.approx(mass, abs=3e-3)


def test_shaded_regions_are_nested_and_where_the_density_is_high(line: ksos.SoSDensity) -> None:
    display = DensityDisplay.from_density(line, regions=[0.9, 0.5], ax=axes())
    regions, curve = display.artists_[(0,)]["regions"], display.panels[(0,)]
    assert list(regions) == [0.9, 0.5], "the wide one first, or it would hide the other"
    for mass, region in regions.items():
        inside = np.any(
            [
                path.contains_points(np.c_[curve.axes[0], 1e-9 + 0.0 * curve.axes[0]])
                for path in region.get_paths()
            ],
            axis=0,
        )
        agree = inside == (curve.values >= curve.levels[mass])
        assert (~agree).sum() <= 2 * 2 * len(region.get_paths())


def test_the_curve_falls_to_zero_at_walls_and_the_outside_is_grey() -> None:
    p = ksos.SoSDensity(Gaussian(1.0), [[0.2]], [[1.0]], Box([0.0], [1.0]), normalize=True)
    display = DensityDisplay.from_density(p, ax=axes())
    x, y = display.artists_[(0,)]["density"].get_data()
    assert (x[0], y[0], x[-1], y[-1]) == (0.0, 0.0, 1.0, 0.0) and y[1] > 0.5
    assert sorted(a.get_xdata()[0] for a in display.ax_.lines if a.get_gid() == "boundary") == [
        0.0,
        1.0,
    ]
    view = display.ax_.get_xlim()
    assert view[0] < 0.0 and view[1] > 1.0
    unbounded = DensityDisplay.from_density(
        ksos.SoSDensity(Gaussian(1.0), [[0.2]], [[1.0]], normalize=True), ax=axes()
    )
    assert not [a for a in unbounded.ax_.get_children() if a.get_gid() in ("boundary", "outside")]
    x, y = unbounded.artists_[(0,)]["density"].get_data()
    assert np.isnan(x[[0, -1]]).all(), "no vertical line where there is no wall"


# --- two features ---


def test_borders_hold_their_share_of_samples(plane: ksos.SoSDensity) -> None:
    samples, n = plane.rvs(20_000, rng=3), 20_000
    display = DensityDisplay.from_density(plane, ax=axes())
    for mass, border in display.artists_[(0, 1)]["borders"].items():
        inside = np.zeros(n, dtype=int)
        for polygon in border.get_paths()[0].to_polygons():
            inside += Path(polygon).contains_points(samples)
        share = np.mean(inside % 2 == 1)
        assert share == pytest.approx(mass, abs=5.0 * np.sqrt(mass * (1.0 - mass) / n) + 2e-3)
    assert set(display.artists_[(0, 1)]["borders"]) == set(REGIONS)


@pytest.mark.parametrize(
    "measure", [Box([-0.6, -1.0], [0.9, 0.5]), Normal([0.2, -0.3], [0.9, 0.5])], ids=repr
)
def test_levels_hold_their_share_of_samples_on_other_measures(
    plane: ksos.SoSDensity, measure: Any
) -> None:
    p = ksos.SoSDensity(
        plane.kernel, plane.support_points, square_of(plane).unit_factor, measure, normalize=True
    )
    heights = usual(p, p.rvs(20_000, rng=3))
    levels = DensityDisplay.from_density(p, ax=axes()).panels[(0, 1)].levels
    for mass, level in levels.items():
        assert np.mean(heights >= level) == pytest.approx(mass, abs=0.02)


def test_filled_contours_data_and_support_points(plane: ksos.SoSDensity) -> None:
    X = points(50, 2, 8)
    display = DensityDisplay.from_density(plane, X)
    drawn = display.artists_[(0, 1)]
    np.testing.assert_array_equal(drawn["data"].get_offsets(), X)
    np.testing.assert_array_equal(np.transpose(drawn["support"].get_data()), plane.support_points)
    assert (
        drawn["filled"].levels[0] == 0.0
        and drawn["filled"].levels[-1] >= display.panels[(0, 1)].values.max()
    )
    assert drawn["filled"].cmap(0.0) == (1.0, 1.0, 1.0, 1.0), "nothing is white"
    assert drawn["filled"].norm.vmin >= 0.5 * drawn["filled"].levels[1], "so is the lowest band"
    assert (
        "support"
        not in DensityDisplay.from_density(plane, support=False, ax=axes()).artists_[(0, 1)]
    )
    assert "data" not in DensityDisplay.from_density(plane, ax=axes()).artists_[(0, 1)]


def test_a_color_bar_only_where_there_is_place(plane: ksos.SoSDensity) -> None:
    assert len(DensityDisplay.from_density(plane).figure_.axes) == 2
    assert len(DensityDisplay.from_density(plane, colorbar=False).figure_.axes) == 1
    assert len(DensityDisplay.from_density(plane, ax=axes()).figure_.axes) == 1
    assert len(DensityDisplay.from_density(plane, ax=axes(), colorbar=True).figure_.axes) == 2


def test_the_order_of_features_is_the_order_of_the_axes(plane: ksos.SoSDensity) -> None:
    swapped = DensityDisplay.from_density(plane, features=[1, 0], ax=axes())
    assert (swapped.ax_.get_xlabel(), swapped.ax_.get_ylabel()) == ("$x_{2}$", "$x_{1}$")
    panel = swapped.panels[(1, 0)]
    assert panel.values[5, 7] == pytest.approx(
        plane.pdf([[panel.axes[1][5], panel.axes[0][7]]])[0], rel=1e-8
    )


def test_another_color_map(plane: ksos.SoSDensity) -> None:
    assert (
        DensityDisplay.from_density(plane, cmap="viridis", ax=axes())
        .artists_[(0, 1)]["filled"]
        .cmap.name
        == "viridis"
    )


# --- pairs ---


def test_panels_of_a_pair_plot_are_exact_marginals(four: ksos.SoSDensity) -> None:
    X = points(30, 4, 5)
    display = DensityDisplay.from_density(four, X, resolution=40, regions=[0.5])
    assert display.ax_.shape == (4, 4)
    for i, j in itertools.product(range(4), repeat=2):
        ax = display.ax_[i, j]
        assert ax.axison == (j <= i)
        if j < i:
            panel, marginal = display.panels[(j, i)], four.marginal([j, i])
            grid = np.stack([g.ravel() for g in np.meshgrid(panel.axes[0], panel.axes[1])], axis=1)
            np.testing.assert_allclose(
                panel.values.ravel(), marginal.pdf(grid), rtol=1e-9, atol=1e-14
            )
            np.testing.assert_array_equal(
                display.artists_[(j, i)]["data"].get_offsets(), X[:, [j, i]]
            )
            assert ax.get_xlim() == display.ax_[j, j].get_xlim()
            assert ax.get_ylim() == display.ax_[i, i].get_xlim(), (
                "a feature is shown on one interval everywhere"
            )
        if j == i:
            curve = display.panels[(i,)]
            np.testing.assert_allclose(
                curve.values,
                four.marginal([i]).pdf(curve.axes[0][:, None]),
                rtol=1e-9,
                atol=1e-14,
            )
            assert "cdf_axes" not in display.artists_[(i,)]
    assert [display.ax_[3, j].get_xlabel() for j in range(4)] == [
        "$x_{1}$",
        "$x_{2}$",
        "$x_{3}$",
        "$x_{4}$",
    ]
    assert display.ax_[0, 3].get_legend() is not None


@pytest.mark.parametrize(
    "measure", [Lebesgue(), Box([-0.5, -1.0, -np.inf], [0.7, np.inf, 0.9])], ids=repr
)
def test_regions_of_small_panels_hold_their_mass(measure: Any) -> None:
    rng = np.random.default_rng(2)
    p = ksos.SoSDensity(
        Gaussian([0.8, 0.5, 1.0]), points(6, 3), rng.normal(size=(6, 2)), measure, normalize=True
    )
    display = DensityDisplay.from_density(p, ax=axes())
    for pair in ((0, 1), (0, 2), (1, 2)):
        marginal = p.marginal(pair)
        heights = marginal.pdf(marginal.rvs(5000, rng=1))
        for mass, level in display.panels[pair].levels.items():
            assert np.mean(heights >= level) == pytest.approx(mass, abs=0.03)


def test_some_features_of_many() -> None:
    p = ksos.SoSDensity(Gaussian(30.0), np.zeros((1, 784)), [[1.0]], normalize=True)
    with pytest.raises(
        ValueError, match=r"at most 8 features, and these would be 784; choose some with features="
    ):
        DensityDisplay.from_density(p)
    display = DensityDisplay.from_density(p, np.zeros((1, 784)), features=[700, 3], ax=axes())
    assert display.ax_.get_xlabel() == "$x_{701}$"
    one = DensityDisplay.from_density(p, features=[3], ax=axes())
    assert float(one.panels[(3,)].values.max()) == pytest.approx(
        float(p.marginal([3]).pdf([[0.0]])[0]), rel=1e-4
    )


# --- data ---


def test_too_many_data_are_thinned_and_counted(plane: ksos.SoSDensity) -> None:
    X = plane.rvs(5000, rng=0)
    display = DensityDisplay.from_density(plane, X, ax=axes())
    assert display.artists_[(0, 1)]["data"].get_offsets().shape[0] <= 4000
    (label,) = [
        text.get_text()
        for text in display.ax_.get_legend().get_texts()
        if text.get_text().startswith("data")
    ]
    assert label.startswith("data (4,000 of 5,000)")


def test_an_outlier_does_not_hide_everything_else(line: ksos.SoSDensity) -> None:
    inside = np.linspace(-0.5, 0.5, 9)[:, None]
    with_outlier = DensityDisplay.from_density(line, np.r_[inside, [[1e150], [-50.0]]], ax=axes())
    assert (
        with_outlier.ax_.get_xlim()
        == DensityDisplay.from_density(line, inside, ax=axes()).ax_.get_xlim()
    )
    assert with_outlier.artists_[(0,)]["data"].get_label() == "data (9 of 11)"
    assert len(with_outlier.artists_[(0,)]["data"].get_segments()) == 9


def test_data_beside_the_mass_are_in_view(line: ksos.SoSDensity) -> None:
    low, high = DensityDisplay.from_density(line, ax=axes()).ax_.get_xlim()
    beside = high + 0.3 * (high - low)
    assert DensityDisplay.from_density(line, [[beside]], ax=axes()).ax_.get_xlim()[1] > beside


@pytest.mark.parametrize(
    ("scale", "shift"), [(1e150, 0.0), (1e-150, 0.0), (1e6, 0.0), (1.0, 1e8), (1.0, -1e12)]
)
@pytest.mark.parametrize("d", [1, 2])
def test_any_scale_and_any_place(d: int, scale: float, shift: float) -> None:
    X = points(6, d)
    factor = np.random.default_rng(1).normal(size=(6, 2))
    plain, moved = (
        DensityDisplay.from_density(
            ksos.SoSDensity(Gaussian(0.8 * s), X * s + t, factor, normalize=True),
            X * s + t,
            ax=axes(),
            resolution=50,
            regions=[0.5],
        )
        for s, t in ((1.0, 0.0), (scale, shift))
    )
    moved.figure_.canvas.draw()
    a, b = (display.panels[tuple(range(d))] for display in (plain, moved))
    assert b.exponent == 0 or 1.0 <= b.values.max() < 10.0
    ratio = b.levels[0.5] / b.values.max() / (a.levels[0.5] / a.values.max())
    assert ratio == pytest.approx(1.0, abs=0.02)
    label = moved.ax_.get_ylabel() if d == 1 else moved.panels[(0, 1)].height_label
    assert label == ("density" if b.exponent == 0 else f"density / $10^{{{b.exponent}}}$")
    low, high = moved.ax_.get_xlim()
    assert (low - shift) / scale == pytest.approx(plain.ax_.get_xlim()[0], abs=1e-2)
    assert (high - shift) / scale == pytest.approx(plain.ax_.get_xlim()[1], abs=1e-2)


@pytest.mark.parametrize(
    "X", [np.zeros((5, 2)), np.zeros((1, 1)), np.array([[1e8, 0.0], [1e8, 1.0]])]
)
def test_degenerate_data(X: np.ndarray) -> None:
    p = ksos.SoSDensity(Gaussian(1.0), X[:1], [[1.0]], normalize=True)
    DensityDisplay.from_density(p, X).figure_.canvas.draw()


# --- where it is drawn ---


def test_in_axes_of_the_user(
    line: ksos.SoSDensity, plane: ksos.SoSDensity, four: ksos.SoSDensity
) -> None:
    figure, (left, middle, right) = plt.subplots(1, 3)
    for p, ax in ((line, left), (plane, middle)):
        display = DensityDisplay.from_density(p, ax=ax)
        assert display.ax_ is ax and display.figure_ is figure
    pairs = DensityDisplay.from_density(
        four, features=[0, 1, 3], ax=right, resolution=30, regions=()
    )
    assert pairs.figure_ is figure and pairs.ax_.shape == (3, 3) and not right.axison
    place = right.get_position()
    corners = [ax.get_position() for ax in pairs.ax_.ravel()]
    assert all(place.x0 - 1e-9 <= corner.x0 and corner.x1 <= place.x1 + 1e-9 for corner in corners)
    _, grid = plt.subplots(3, 3)
    assert (
        DensityDisplay.from_density(
            four, features=[0, 1, 3], ax=grid, resolution=30, regions=()
        ).ax_[2, 0]
        is grid[2, 0]
    )
    part = plt.figure().subfigures(1, 2)[0]
    assert DensityDisplay.from_density(line, ax=part.add_subplot()).figure_ is part


def test_axes_of_the_user_open_no_other_figure(line: ksos.SoSDensity) -> None:
    before = plt.get_fignums()
    DensityDisplay.from_density(line, ax=axes())
    assert plt.get_fignums() == before
    display = DensityDisplay.from_density(line)
    assert plt.get_fignums() == [*before, display.figure_.number]


def test_a_display_can_be_drawn_again(plane: ksos.SoSDensity) -> None:
    display = DensityDisplay.from_density(plane, ax=axes())
    first = display.ax_
    assert display.plot(axes(), legend=False) is display
    assert (
        display.ax_ is not first
        and display.ax_.get_legend() is None
        and first.get_legend() is not None
    )


@pytest.mark.parametrize("features", [[0], [0, 1]])
def test_a_title_stands_above_the_legend(features: list[int]) -> None:
    X = points(30, 2)
    est = ksos.KernelSoSDensity(bandwidth=1.0).fit(X)
    place = Figure(layout="constrained").add_subplot()
    display = DensityDisplay.from_estimator(est, X, features=features, ax=place)
    place.set_title("a title")
    display.figure_.draw_without_rendering()
    title, legend = place.title.get_window_extent(), place.get_legend().get_window_extent()
    assert title.ymin >= legend.ymax - 2.0  # pixels: the descent of the title's letters


@pytest.mark.parametrize("ax", ["left", 3, np.array([1.0])])
def test_what_is_no_axes(line: ksos.SoSDensity, four: ksos.SoSDensity, ax: Any) -> None:
    with pytest.raises(TypeError, match="ax must be one matplotlib Axes"):
        DensityDisplay.from_density(line, ax=ax)
    with pytest.raises(ValueError, match="ax must be one Axes, or 3×3 of them"):
        DensityDisplay.from_density(four, features=[0, 1, 2], ax=ax, resolution=20, regions=())
    with pytest.raises(ValueError, match="part of a grid"):
        DensityDisplay.from_density(
            four,
            features=[0, 1, 2],
            ax=Figure().add_axes((0.0, 0.0, 1.0, 1.0)),
            resolution=20,
            regions=(),
        )


# --- estimators and errors ---


def test_from_estimator_knows_the_names() -> None:
    table = pd.DataFrame(points(20, 2), columns=["length", "width"])
    estimator = ksos.KernelSoSDensity(bandwidth=1.0).fit(table)
    display = DensityDisplay.from_estimator(estimator, table, ax=axes())
    assert (display.ax_.get_xlabel(), display.ax_.get_ylabel()) == ("length", "width")
    assert (
        DensityDisplay.from_estimator(
            estimator, feature_names=["a", "b"], ax=axes()
        ).ax_.get_xlabel()
        == "a"
    )
    with pytest.raises(ValueError, match="feature names should match"):
        DensityDisplay.from_estimator(estimator, table[["width", "length"]])


def test_from_estimator_refuses_what_has_no_density() -> None:
    with pytest.raises(NotFittedError):
        DensityDisplay.from_estimator(ksos.KernelSoSDensity())
    with pytest.raises(
        TypeError, match=r"KernelDensity has no density of its own \(distribution_\)"
    ):
        DensityDisplay.from_estimator(KernelDensity().fit([[0.0], [1.0]]))
    with pytest.raises(TypeError, match="goes to from_estimator"):
        DensityDisplay.from_density(ksos.KernelSoSDensity())


@pytest.mark.parametrize(
    ("options", "words"),
    [
        ({"X": [[0.0]]}, "X has 1 features, but 2 were expected"),
        ({"X": [[0.0, np.nan]]}, "contains NaN"),
        ({"features": [0, 2]}, "feature 2, but the 2 features are numbered 0 to 1"),
        ({"features": [0, 0]}, "each feature once"),
        ({"features": []}, "at least one feature"),
        (
            {"features": ["length"]},
            "features names the feature 'length', but the features have no names here",
        ),
        (
            {"features": ["length"], "feature_names": ["long", "wide"]},
            "the feature 'length', but the features are 'long', 'wide'",
        ),
        ({"feature_names": ["one"]}, "one name for each of the 2 features of the density; got 1"),
        (
            {"regions": [0.5, 1.0]},
            r"probabilities between 0 and 1, such as \(0.5, 0.9\); got \[0.5, 1.0\]",
        ),
        ({"regions": [np.nan]}, "contains NaN"),
        ({"resolution": 3}, "resolution must be at least 8; got 3"),
        ({"resolution": 9.5}, "resolution must be a whole number"),
    ],
)
def test_bad_requests(plane: ksos.SoSDensity, options: dict[str, Any], words: str) -> None:
    with pytest.raises(ValueError, match=words):
        DensityDisplay.from_density(plane, **options)
    assert plt.get_fignums() == []


def test_no_regions(line: ksos.SoSDensity, plane: ksos.SoSDensity) -> None:
    assert DensityDisplay.from_density(line, regions=(), ax=axes()).artists_[(0,)]["regions"] == {}
    assert (
        DensityDisplay.from_density(plane, regions=(), ax=axes()).artists_[(0, 1)]["borders"] == {}
    )


def test_without_matplotlib(line: ksos.SoSDensity, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "matplotlib", None)
    with pytest.raises(ModuleNotFoundError, match=r'pip install "kernel-sos\[plot\]"'):
        DensityDisplay.from_density(line)


def test_an_unknown_option(line: ksos.SoSDensity) -> None:
    with pytest.raises(TypeError, match="color"):
        DensityDisplay.from_density(line, color="red", ax=axes())


# --- mixtures ---


@pytest.mark.parametrize("d", [1, 2, 3])
def test_mixtures_are_drawn_as_they_are(d: int) -> None:
    reference = GaussianMixture([1, 2], points(2, d, 1), [[0.5] * d, [0.2] * d])
    corrected = ksos.SoSDensity(
        Gaussian(0.8),
        points(4, d),
        0.3 * points(4, 2, 5),
        reference,
        constant=[1.0, 0.2],
        normalize=True,
    )
    p = ksos.mixture(
        [
            corrected,
            ksos.SoSDensity(Gaussian(0.7), points(3, d, 2), np.ones((3, 1)), normalize=True),
        ],
        [1, 2],
    )
    display = DensityDisplay.from_density(
        p, points(9, d, 3), ax=axes() if d < 3 else None, resolution=40, regions=(0.5,)
    )
    display.figure_.canvas.draw()
    plt.close(display.figure_)
    curve = display.panels[(0,)] if d != 2 else None
    if curve is not None:
        one = p if d == 1 else p.marginal([0])
        np.testing.assert_allclose(curve.values, one.pdf(curve.axes[0][:, None]), rtol=1e-10)
    if d > 1:
        surface = display.panels[(0, 1)]
        at = np.stack([g.ravel() for g in np.meshgrid(surface.axes[0], surface.axes[1])], axis=1)
        both = p if d == 2 else p.marginal([0, 1])
        np.testing.assert_allclose(surface.values.ravel(), both.pdf(at), rtol=1e-10)
