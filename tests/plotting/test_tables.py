"""TableDisplay: bars are probabilities, curves are densities, dots are shares of the data."""

from __future__ import annotations

import numpy as np
import pandas
import pytest

import ksos
from ksos.density import Column, Columns, Correction, MixedReference, MixedTerms

figures = pytest.importorskip("matplotlib.figure")


def density() -> ksos.TableDensity:
    columns = Columns(
        (
            Column("a", "categorical", "object", levels=("x", "y")),
            Column("n", "count", "int64", atoms=(0.0,)),
            Column("r", "nonnegative", atoms=(0.0,)),
            Column("z", "numeric"),
        )
    )
    chances = tuple(np.array([[0.3, 0.7], [0.6, 0.4]]) for _ in range(3))
    reference = MixedReference(
        np.array([0.5, 0.5]),
        np.array([[0.1, 0.0, -1.0], [0.5, 0.3, 1.0]]),
        np.stack([0.2 * np.eye(3)] * 2),
        chances,
    )
    silent = Correction(
        np.eye(3),
        np.full(3, 0.5),
        np.zeros((1, 3)),
        np.zeros((1, 3), dtype=int),
        np.zeros((1, 1)),
        np.ones(1),
    )
    return ksos.TableDensity(columns, [(1.0, MixedTerms.of(reference, silent))])


def test_bars_curves_and_dots() -> None:
    p = density()
    X = p.rvs(300, rng=0)
    display = ksos.TableDisplay.from_density(p, X, ax=figures.Figure().add_subplot())
    a, n, r, z = np.diagonal(display.ax_)
    heights = [bar.get_height() for bar in a.patches]
    np.testing.assert_allclose(heights, p.probabilities("a"))
    np.testing.assert_allclose(a.lines[0].get_ydata(), [np.mean(X["a"] == one) for one in "xy"])
    counted = [bar.get_height() for bar in n.patches]
    np.testing.assert_allclose(counted, p.marginal("n").pmf(range(len(counted))))
    assert [bar.get_height() for bar in r.patches] == [p.probability(high={"r": 0.0})]
    x, y = z.lines[0].get_data()
    np.testing.assert_allclose(y, p.marginal("z").pdf(pandas.DataFrame({"z": x})))
    assert [one.get_xlabel() for one in display.ax_[3]] == ["a", "n", "r", "z"]
    assert [one.get_ylabel() for one in display.ax_[1:, 0]] == ["n", "r", "z"]


def test_pairs_are_joint_densities() -> None:
    p = density()
    display = ksos.TableDisplay.from_density(p, ax=figures.Figure().add_subplot())
    # a category and a number: one area for each level, as high as the joint density
    areas = display.ax_[3, 0].collections
    assert len(areas) == 2
    heights = []
    for number, area in enumerate(areas):
        outline = area.get_paths()[0].vertices
        at = outline[:, 0] - (number - 0.5 * 0.85)
        heights.append(at[at > 1e-12].max())
    z = np.linspace(-4.0, 4.0, 801)
    tops = [_top(p, level, z) for level in "xy"]
    assert heights[0] / heights[1] == pytest.approx(tops[0] / tops[1], rel=1e-2)
    # two columns of masses: tiles
    (tiles,) = display.ax_[1, 0].collections
    shown = np.asarray(tiles.get_array())
    truth = [[p.probability({"a": one, "n": k}, {"n": k}) for one in "xy"] for k in range(3)]
    np.testing.assert_allclose(shown[:3], truth, rtol=2e-2)  # quadrature in the cells of counts
    # two numbers: contours around the highest density
    assert display.ax_[3, 2].collections and not display.ax_[0, 3].axison


def _top(p: ksos.TableDensity, level: str, z: np.ndarray) -> float:
    pair = p.marginal(["a", "z"])
    return float(pair.pdf(pandas.DataFrame({"a": level, "z": z})).max())


def test_columns_are_chosen_and_checked() -> None:
    some = ksos.TableDisplay.from_density(
        density(), columns=["r"], ax=figures.Figure().add_subplot()
    )
    assert some.ax_.shape == (1, 1)
    plain = ksos.SoSDensity(ksos.kernels.Gaussian(1.0), [[0.0]], [[1.0]], normalize=True)
    with pytest.raises(TypeError, match="use DensityDisplay"):
        ksos.TableDisplay.from_density(plain)
