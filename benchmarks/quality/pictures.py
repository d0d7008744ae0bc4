"""The pictures of the page: paired differences with error bars, one dot per cell."""

from __future__ import annotations

import math
from collections.abc import Sequence
from pathlib import Path

import numpy as np

from ksos.plotting import sheet
from quality.contestants import CONTESTANTS
from quality.overview import PLAIN, SEARCH
from quality.summary import Cell

__all__ = ["draw_ise", "draw_log_likelihood"]

_LINEAR = 0.1
_TICKS = (-100, -10, -1, -0.1, 0, 0.1, 1, 10, 100)
_COLOURS = {100: "#E69F00", 400: "#0072B2", 1600: "#009E73", 0: "#666666"}


def draw_log_likelihood(cells: Sequence[Cell], path: Path) -> Path:
    """Ours − a peer's, in nats per sample, ± 2 standard errors."""
    return _dots(
        cells, path, [(SEARCH, "kde"), (SEARCH, "gmm"), (SEARCH, "gmm_stack"), (PLAIN, "scipy_kde")]
    )


def draw_ise(cells: Sequence[Cell], path: Path) -> Path:
    """The ratio of the mean integrated squared errors."""
    from matplotlib.ticker import LogLocator

    known = [cell for cell in cells if cell.estimate(SEARCH, "ise") is not None]
    names = list(dict.fromkeys(cell.data.name for cell in known))
    with sheet(7.0, 1.3 + 0.17 * len(names)) as figure:
        axes = figure.subplots(1, 2, sharey=True)
        for ax, other in zip(axes, ("kde", "gmm_stack"), strict=True):
            for cell in known:
                mine, theirs = cell.estimate(SEARCH, "ise"), cell.estimate(other, "ise")
                if mine is not None and theirs is not None:
                    ax.plot(
                        mine.mean / theirs.mean,
                        _height(names, cell),
                        "o",
                        color=_COLOURS[cell.n],
                        markersize=3.5,
                    )
            ax.axvline(1.0, color="black", linewidth=0.6)
            ax.set(
                xscale="log",
                title=f"search / {CONTESTANTS[other].title}",
                xlabel="ratio of ISE (left is better)",
            )
            ax.xaxis.set_major_locator(LogLocator(subs=(1.0, 2.0, 5.0)))
            ax.xaxis.set_major_formatter("{x:g}")
            ax.xaxis.set_minor_formatter("")
        _finish(figure, axes, names, known)
        path.parent.mkdir(parents=True, exist_ok=True)
        figure.savefig(path)
    return path


def _dots(cells: Sequence[Cell], path: Path, panels: Sequence[tuple[str, str]]) -> Path:
    names = list(dict.fromkeys(cell.data.name for cell in cells))
    with sheet(10.0, 1.3 + 0.17 * len(names)) as figure:
        axes = figure.subplots(1, len(panels), sharey=True)
        for ax, (mine, other) in zip(axes, panels, strict=True):
            for cell in cells:
                found = cell.difference(mine, other)
                if found is not None and math.isfinite(found.mean):
                    error = 0.0 if math.isnan(found.error) else 2.0 * found.error
                    ax.errorbar(
                        found.mean,
                        _height(names, cell),
                        xerr=error,
                        fmt="o",
                        color=_COLOURS[cell.n],
                        markersize=3.5,
                        elinewidth=0.8,
                    )
            ax.axvline(0.0, color="black", linewidth=0.6)
            low, high = ax.get_xlim()
            ax.set_xscale("symlog", linthresh=_LINEAR)
            ax.set_xticks(_TICKS, [f"{tick:g}" for tick in _TICKS])
            ax.set_xlim(min(1.6 * low, -1.5 * _LINEAR), max(1.6 * high, 1.5 * _LINEAR))
            ax.set(
                title=f"{CONTESTANTS[mine].title} − {CONTESTANTS[other].title}",
                xlabel="nats (right is better)",
            )
        _finish(figure, axes, names, cells)
        path.parent.mkdir(parents=True, exist_ok=True)
        figure.savefig(path)
    return path


def _height(names: list[str], cell: Cell) -> float:
    offset = {100: -0.2, 400: 0.0, 1600: 0.2, 0: 0.0}[cell.n]
    return names.index(cell.data.name) + offset


def _finish(figure: object, axes: object, names: list[str], cells: Sequence[Cell]) -> None:
    first = np.ravel(axes)[0]
    first.set_yticks(range(len(names)), [name.replace("_", " ") for name in names])
    first.set_ylim(len(names) - 0.5, -0.5)
    for ax in np.ravel(axes):
        ax.grid(True, axis="both", linewidth=0.3, alpha=0.6)
    handles = []
    for n in sorted({cell.n for cell in cells}):
        handles += first.plot(
            [], [], "o", color=_COLOURS[n], markersize=3.5, label=f"n = {n}" if n else "real data"
        )
    place = {"loc": "lower center", "ncols": len(handles), "frameon": False}
    figure.legend(handles=handles, **place)  # type: ignore[attr-defined]
    bottom = 0.22 / figure.get_figheight()  # type: ignore[attr-defined]
    figure.tight_layout(rect=(0.0, bottom, 1.0, 1.0))  # type: ignore[attr-defined]
