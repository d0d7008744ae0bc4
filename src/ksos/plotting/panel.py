"""What all panels share: how they are asked to look, the distribution function on a second axis, and grey where no mass can be."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Protocol

import numpy as np

from ksos.plotting.window import Window

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.colors import Colormap

__all__ = ["DATA", "DENSITY", "SUPPORT", "Look", "Panel", "draw_distribution", "region_name", "shade_outside"]

DENSITY, DISTRIBUTION, SUPPORT, DATA = "#234484", "#B5480A", "#E8710A", "#262626"
"""Colours that people with any kind of colour vision tell apart."""
_OUTSIDE, _WALL = "#ededed", "#9a9a9a"


@dataclass(frozen=True)
class Look:
    """What :meth:`DensityDisplay.plot` was asked for; ``small`` for a panel among many."""

    cmap: Colormap
    cdf: bool
    support: bool
    small: bool = False


class Panel(Protocol):
    """The numbers of one or two features, and how they are drawn."""

    @property
    def height_label(self) -> str:
        """What the height, or the colour, stands for."""
        ...

    def draw(self, ax: Axes, samples: np.ndarray | None, look: Look) -> dict[str, Any]:
        """Draw on ``ax`` with the data ``samples`` (n, 1 or 2); returns the artists by name."""
        ...


def draw_distribution(ax: Axes, x: np.ndarray, values: np.ndarray, **style: Any) -> Axes:
    """The distribution function on a second axis to the right of ``ax``, both zeros at one height."""
    twin = ax.twinx()
    twin.plot(x, values, color=DISTRIBUTION, linewidth=1.2, linestyle="--", label="distribution function", gid="cdf", **style)
    low, high = ax.get_ylim()
    twin.set_ylim(1.04 * low / high, 1.04)
    twin.set_yticks([0.0, 0.25, 0.5, 0.75, 1.0])
    twin.set_ylabel("distribution function", color=DISTRIBUTION)
    twin.tick_params(axis="y", colors=DISTRIBUTION)
    return twin


def shade_outside(ax: Axes, horizontal: Window, vertical: Window | None = None) -> None:
    """Grey where the measure has no mass, and a line at its walls."""
    for window, span, line in ((horizontal, ax.axvspan, ax.axvline), (vertical, ax.axhspan, ax.axhline)):
        if window is None:
            continue
        for wall, edge in zip(window.walls, window.view, strict=True):
            if window.view[0] < wall < window.view[1]:
                span(wall, edge, color=_OUTSIDE, linewidth=0.0, zorder=0.5, gid="outside")
                line(wall, color=_WALL, linewidth=0.8, zorder=0.6, gid="wall")


def region_name(mass: float) -> str:
    """What the legend calls a highest-density region.

    >>> region_name(0.5), region_name(0.975)
    ('50 % region', '97.5 % region')
    """
    return f"{100.0 * mass:g} % region"
