"""The only place that asks matplotlib for axes: new ones, a user's own, or a grid inside either. No
global setting is changed.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

import numpy as np

from ksos.ground.lazy import needed

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.colors import Colormap
    from matplotlib.figure import Figure, SubFigure


_RAMP = [
    "#ffffff",
    "#d7e9f5",
    "#afd0e8",
    "#8bb4d7",
    "#6a98c3",
    "#4e7baf",
    "#375f99",
    "#234484",
    # equal steps in CIELAB
]

STYLE = {
    **dict.fromkeys(("font.size", "axes.titlesize", "axes.labelsize"), 8.0),
    **dict.fromkeys(("xtick.labelsize", "ytick.labelsize", "legend.fontsize"), 7.0),
    **dict.fromkeys(("axes.linewidth", "xtick.major.width", "ytick.major.width"), 0.6),
    **{"lines.linewidth": 1.3, "savefig.dpi": 200.0, "mathtext.fontset": "dejavusans"},
    # fonts that publishers accept and readers can search
    "pdf.fonttype": 42,
    # else the names inside a file differ from run to run
    "svg.hashsalt": "ksos",
}
"""The settings of a figure for a paper: small type, thin lines."""


class Display:
    """What every display has once it is drawn: the figure, its axes, and its artists by name."""

    figure_: Figure | SubFigure
    ax_: Any
    artists_: dict[Any, Any]


def require_matplotlib() -> None:
    """Raise an error with the fix if matplotlib is not installed."""
    needed("matplotlib", "a figure", '"kernel-sos[plot]"')


def color_map(cmap: Any) -> Colormap:
    """``cmap`` as matplotlib understands it; None is a ramp from white to blue in perceptually
    equal steps.
    """
    import matplotlib
    from matplotlib.colors import LinearSegmentedColormap

    return (
        LinearSegmentedColormap.from_list("ksos", _RAMP)
        if cmap is None
        else matplotlib.colormaps.get_cmap(cmap)
    )


def single_axes(ax: Any, size: tuple[float, float]) -> tuple[Figure | SubFigure, Axes]:
    """``ax`` with its figure, or the axes of a new figure of ``size`` inches."""
    require_matplotlib()
    from matplotlib.axes import Axes

    if ax is None:
        figure = _new_figure(size)
        return figure, figure.add_subplot()
    if not isinstance(ax, Axes):
        raise TypeError(f"ax must be one matplotlib Axes, or None for a new figure; got {ax!r}")
    return ax.figure, ax


def axes_grid(
    ax: Any, rows: int, columns: int, size: tuple[float, float], **grid: Any
) -> tuple[Figure | SubFigure, np.ndarray]:
    """A grid of axes: in a new figure (None), in the place of one Axes, or the axes in an array."""
    require_matplotlib()
    from matplotlib.axes import Axes

    if ax is None:
        new = _new_figure(size)
        return new, new.subplots(rows, columns, squeeze=False, gridspec_kw=grid)
    if isinstance(ax, Axes):
        place = ax.get_subplotspec()
        if place is None:
            what = (
                "an Axes that is part of a grid (plt.subplots makes such) is needed to be divided"
                " into"
            )
            raise ValueError(f"{what} {rows}×{columns}; got {ax!r}")
        ax.set_axis_off()
        figure, inner = ax.figure, place.subgridspec(rows, columns, **grid)
        return figure, np.array(
            [[figure.add_subplot(inner[i, j]) for j in range(columns)] for i in range(rows)],
            dtype=object,
        )
    given = np.array(ax, dtype=object)
    if given.size != rows * columns or not all(isinstance(one, Axes) for one in given.ravel()):
        raise ValueError(f"ax must be one Axes, or {rows}×{columns} of them; got {ax!r}")
    return given.flat[0].figure, given.reshape(rows, columns)


def lower_triangle(axes: np.ndarray) -> Iterator[tuple[int, int, Axes]]:
    """The places and axes on and below the diagonal of a square grid; those above stay empty."""
    for (i, j), here in np.ndenumerate(axes):
        if j > i:
            here.set_axis_off()
        else:
            yield i, j, here


@contextmanager
def sheet(width: float, height: float) -> Iterator[Figure]:
    """A new figure of the given size in inches; draw and save it inside the ``with`` block, whose
    style ends with it.

    No state of pyplot is touched, and the style does not depend on the user's settings.
    """
    require_matplotlib()
    import matplotlib.style
    from matplotlib.figure import Figure

    with matplotlib.style.context(["default", STYLE]):
        yield Figure(figsize=(width, height))


def _new_figure(size: tuple[float, float]) -> Figure:
    from matplotlib import pyplot

    return pyplot.figure(figsize=size, layout="constrained")
