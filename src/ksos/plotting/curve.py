"""A density of one feature: the curve with its highest-density regions shaded, the distribution function, the rug of the data."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np

from ksos.density import SoSDensity
from ksos.plotting.heights import Heights, evaluate
from ksos.plotting.panel import DENSITY, STRIP, SUPPORT, Look, Window, draw_distribution, draw_rug, region_name, shade_outside

if TYPE_CHECKING:
    from matplotlib.axes import Axes

__all__ = ["Curve"]

_POINTS_PER_BANDWIDTH = 12.0
_FEWEST, _MOST = 401, 4001


@dataclass(frozen=True)
class Curve:
    """The numbers of a panel of one feature."""

    x: np.ndarray
    heights: Heights
    cdf: np.ndarray
    support: np.ndarray
    window: Window

    @classmethod
    def of(cls, p: SoSDensity, support: np.ndarray, window: Window, regions: Sequence[float], resolution: int | None) -> Curve:
        """Of a density ``p`` of one feature on its window."""
        bandwidths = (window.high - window.low) / float(p.kernel.sigma_vector(1)[0])
        x = window.grid(resolution or int(np.clip(_POINTS_PER_BANDWIDTH * bandwidths, _FEWEST, _MOST)))
        return cls(x, evaluate(p, x[:, None], regions), p.cdf(x[:, None]), support, window)

    @property
    def height_label(self) -> str:
        """What the height, or the colour, stands for."""
        return self.heights.label

    def draw(self, ax: Axes, samples: np.ndarray | None, look: Look) -> dict[str, Any]:
        """See :class:`~ksos.plotting.panel.Panel`; on a small panel the height of the curve is without scale."""
        artists: dict[str, Any] = {}
        x, y = self.x, self.heights.values
        shade_outside(ax, self.window)
        ordered = sorted(self.heights.levels.items(), reverse=True)  # the widest region first, the others on top of it
        artists["regions"] = {}
        for i, (mass, level) in enumerate(ordered):
            colour = look.cmap(0.12 + 0.36 * i / len(ordered))
            region = ax.fill_between(x, 0.0, y, where=(y >= level).tolist(), color=colour, linewidth=0.0, label=region_name(mass))
            artists["regions"][mass] = region
        ends = [bound if bound == end else np.nan for bound, end in zip(self.window.boundary, (x[0], x[-1]), strict=True)]
        closed = np.r_[ends[0], x, ends[1]], np.r_[0.0, y, 0.0]  # at the boundary the curve comes down to zero
        (artists["density"],) = ax.plot(*closed, color=DENSITY, linewidth=1.1 if look.small else 1.6, label="density", zorder=2.5)
        ax.set_xlim(*self.window.view)
        top = float(y.max())
        ax.set_ylim(-1.5 * STRIP * top if samples is not None or look.support else 0.0, 1.07 * top)
        if samples is not None:
            artists["data"] = draw_rug(ax, samples[:, 0], self.window)
        if look.support:
            style: dict[str, Any] = {"color": SUPPORT, "markersize": 3.0 if look.small else 5.0, "label": "support points", "zorder": 2.6}
            (artists["support"],) = ax.plot(self.support, np.zeros(self.support.shape), "+", **style)
        if look.small:
            ax.set_yticks([])
            return artists
        ax.set_ylabel(self.height_label)
        if look.cdf:
            artists["cdf_axes"] = draw_distribution(ax, x, self.cdf)
        return artists
