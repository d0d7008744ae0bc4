"""A density of two features: filled contours, the borders of its highest-density regions, data and support points."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

import numpy as np

from ksos.density import SoSDensity
from ksos.plotting.heights import Heights, evaluate
from ksos.plotting.panel import SUPPORT, Look, Window, draw_scatter, region_name, shade_outside

if TYPE_CHECKING:
    from matplotlib.axes import Axes

__all__ = ["Surface"]

_POINTS_PER_BANDWIDTH = 8.0
_FEWEST, _MOST, _MOST_SMALL = 121, 301, 161
_BANDS = 18
_BORDER, _LINES = "#10182b", ("-", "--", ":", "-.")


@dataclass(frozen=True)
class Surface:
    """The numbers of a panel of two features; ``heights.values[i, j]`` belongs to (x[j], y[i])."""

    x: np.ndarray
    y: np.ndarray
    heights: Heights
    support: np.ndarray
    windows: tuple[Window, Window]

    @classmethod
    def of(
        cls, p: SoSDensity, support: np.ndarray, windows: tuple[Window, Window], regions: Sequence[float], n: int | None, small: bool
    ) -> Surface:
        """Of a density ``p`` of two features on the windows of its features, on a grid of ``n`` points along each (None: fine enough)."""
        axes = []
        for window, sigma in zip(windows, p.kernel.sigma_vector(2), strict=True):
            fine = _POINTS_PER_BANDWIDTH * (window.high - window.low) / float(sigma)
            axes.append(window.grid(n or int(np.clip(fine, _FEWEST, _MOST_SMALL if small else _MOST))))
        x, y = axes
        cell = float(x[1] - x[0]) * float(y[1] - y[0]) if small else None
        heights = evaluate(p, np.stack([g.ravel() for g in np.meshgrid(x, y)], axis=1), regions, cell)
        return cls(x, y, replace(heights, values=heights.values.reshape(y.size, x.size)), support, windows)

    @property
    def height_label(self) -> str:
        """What the height, or the colour, stands for."""
        return self.heights.label

    def draw(self, ax: Axes, samples: np.ndarray | None, look: Look) -> dict[str, Any]:
        """See :class:`~ksos.plotting.panel.Panel`."""
        from matplotlib.ticker import MaxNLocator

        x, y, z = self.x, self.y, self.heights.values
        width = 0.7 if look.small else 1.0
        shade_outside(ax, *self.windows)
        bands = MaxNLocator(_BANDS, steps=[1, 2, 2.5, 5, 10]).tick_values(0.0, float(z.max()))
        # a band has the colour of its middle: the lowest one is to be the colour of no density at all
        filled = ax.contourf(x, y, z, levels=bands, cmap=look.cmap, vmin=0.5 * bands[1], vmax=bands[-1], zorder=1.0)
        artists: dict[str, Any] = {"filled": filled, "borders": {}}
        for i, (mass, level) in enumerate(sorted(self.heights.levels.items())):
            line: dict[str, Any] = {"linewidths": width, "linestyles": _LINES[i % len(_LINES)]}
            artists["borders"][mass] = ax.contour(x, y, z, levels=[level], colors=_BORDER, zorder=2.4, **line)
            ax.plot([], [], color=_BORDER, linewidth=width, linestyle=line["linestyles"], label=region_name(mass))
        if samples is not None:
            artists["data"] = draw_scatter(ax, samples, self.windows, small=look.small)
        if look.support:
            size: dict[str, Any] = {"markersize": 3.0 if look.small else 6.0, "markeredgewidth": 0.8 * width, "markerfacecolor": "none"}
            (artists["support"],) = ax.plot(*self.support.T, "o", color=SUPPORT, label="support points", zorder=2.1, **size)
        ax.set_xlim(*self.windows[0].view)
        ax.set_ylim(*self.windows[1].view)
        return artists
