"""The figure of the contest: time to the last target against m, one panel per dimension and
bandwidth.
"""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from contest.methods import METHODS
from contest.problem import Setting
from contest.report import TARGETS, Row, by_setting, optimum
from ksos.plotting import sheet

if TYPE_CHECKING:
    from matplotlib.axes import Axes

__all__ = ["draw"]

_COLOURS = [
    "#0072B2",
    "#56B4E9",
    "#009E73",
    "#332288",
    "#E69F00",
    "#000000",
    "#D55E00",
    "#CC79A7",
    "#999999",
    "#882255",
]
_MARKERS = "osD^vXP*<>"


def draw(rows: Sequence[Row], path: Path) -> Path:
    """Write the figure as PNG; hollow markers are times by which the target was not reached."""
    stars = {setting: optimum(here) for setting, here in by_setting(rows)}
    panels = list(dict.fromkeys((row.setting.d, row.setting.sigma) for row in rows))
    names = [name for name in METHODS if any(row.method == name for row in rows)]
    across, down = min(3, len(panels)), -(-len(panels) // 3)
    with sheet(3.2 * across + 2.2, 2.9 * down + 0.2) as figure:
        axes = figure.subplots(down, across, squeeze=False, sharey=True).ravel()
        for unused in axes[len(panels) :]:
            unused.set_visible(False)
        for ax, (d, sigma) in zip(axes, panels, strict=False):
            here = [row for row in rows if (row.setting.d, row.setting.sigma) == (d, sigma)]
            for name in names:
                _curve(ax, [row for row in here if row.method == name], stars, _look(name))
            ax.set(
                xscale="log",
                yscale="log",
                xlabel="support points m",
                title=f"d = {d}, σ = {sigma:g}",
            )
            sizes = sorted({row.setting.m for row in here})
            ax.set_xticks(sizes, [str(m) for m in sizes])
            ax.set_xlim(0.8 * sizes[0], 1.25 * sizes[-1])
            ax.minorticks_off()
            ax.grid(True, which="major", linewidth=0.3, alpha=0.6)
        for row_start in range(0, len(panels), across):
            axes[row_start].set_ylabel(f"seconds until f − f* ≤ {TARGETS[-1]:g}")
        handles = [
            axes[0].plot([], [], **_look(name), markersize=4, label=METHODS[name].title)[0]
            for name in names
        ]
        hollow = {"color": "#666666", "marker": "o", "markerfacecolor": "none", "linestyle": "none"}
        handles += axes[0].plot([], [], **hollow, label="not reached by then")
        figure.legend(handles=handles, loc="center right", frameon=False)
        figure.tight_layout(rect=(0.0, 0.0, 1.0 - 2.1 / figure.get_figwidth(), 1.0))
        path.parent.mkdir(parents=True, exist_ok=True)
        figure.savefig(path)
    return path


def _look(name: str) -> dict[str, Any]:
    """Colour and marker: the same in every figure, regardless of the other methods."""
    place = list(METHODS).index(name) % len(_COLOURS)
    return {"color": _COLOURS[place], "marker": _MARKERS[place]}


def _curve(
    ax: Axes, rows: list[Row], stars: dict[Setting, float | None], look: dict[str, Any]
) -> None:
    """One method: a line through the times that reached the target, hollow markers for the
    others.
    """
    reached, missed = [], []
    for row in sorted(rows, key=lambda row: row.setting.m):
        time, spent = row.time_to(TARGETS[-1], stars[row.setting]), row.time_spent()
        if time is not None:
            reached.append((row.setting.m, time))
        elif spent is not None:
            missed.append((row.setting.m, spent))
    if reached:
        ax.plot(*zip(*reached, strict=True), **look, markersize=4)
    if missed:
        ax.plot(
            *zip(*missed, strict=True),
            **look,
            markersize=5,
            markerfacecolor="none",
            linestyle="none",
        )
