"""A density with respect to a discrete measure, of one or two features: the probability of each node."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np

from ksos.density import SoSDensity
from ksos.density.moments import node_masses
from ksos.plotting.panel import DENSITY, Look, draw_distribution
from ksos.plotting.samples import draw_rug, draw_scatter
from ksos.plotting.window import Window, window_around

if TYPE_CHECKING:
    from matplotlib.axes import Axes

__all__ = ["Atoms"]

_LARGEST_AREA = 150.0


@dataclass(frozen=True)
class Atoms:
    """The numbers of a panel of one or two features: distinct ``points`` (N, 1 or 2) in lexicographic order, and their ``masses``."""

    points: np.ndarray
    masses: np.ndarray
    windows: tuple[Window, ...]

    @classmethod
    def of(cls, p: SoSDensity, features: Sequence[int], samples: np.ndarray | None) -> Atoms:
        """Of the ``features`` of a density ``p`` on a discrete measure, wide enough for the ``samples`` (n, 1 or 2) near its nodes."""
        nodes = p.support_points if p.measure.atoms is None else p.measure.atoms.points
        points, place = np.unique(nodes[:, list(features)], axis=0, return_inverse=True)
        masses = np.bincount(place.ravel(), weights=node_masses(p))
        columns = [None] * len(features) if samples is None else list(samples.T)
        windows = tuple(window_around(float(x.min()), float(x.max()), column) for x, column in zip(points.T, columns, strict=True))
        return cls(points, masses, windows)

    @property
    def height_label(self) -> str:
        """What the height, or the colour, stands for."""
        return "probability of each node"

    def draw(self, ax: Axes, samples: np.ndarray | None, look: Look) -> dict[str, Any]:
        """See :class:`~ksos.plotting.panel.Panel`: a stem for each node where there is one feature, a dot where there are two."""
        artists: dict[str, Any] = {}
        ax.set_xlim(*self.windows[0].view)
        top, n = float(self.masses.max()), self.masses.size
        if self.points.shape[1] == 2:
            ax.set_ylim(*self.windows[1].view)
            area = _LARGEST_AREA / max(1.0, np.sqrt(n) / 8.0) * (0.3 if look.small else 1.0)
            dots = {"s": area * self.masses / top, "c": self.masses, "vmin": 0.0, "vmax": top, "cmap": look.cmap}
            artists["filled"] = ax.scatter(*self.points.T, **dots, edgecolors=DENSITY, linewidths=0.3, label="nodes", zorder=2.0)
            if samples is not None:
                artists["data"] = draw_scatter(ax, samples, (self.windows[0], self.windows[1]), small=look.small)
            return artists
        x = self.points[:, 0]
        artists["stems"] = ax.vlines(x, 0.0, self.masses, color=DENSITY, linewidth=float(np.clip(200.0 / n, 0.6, 2.0)), label="nodes")
        ax.set_ylim(-0.07 * top if samples is not None else 0.0, 1.07 * top)
        if samples is not None:
            artists["data"] = draw_rug(ax, samples[:, 0], self.windows[0])
        if look.small:
            ax.set_yticks([])
            return artists
        ax.set_ylabel(self.height_label)
        if look.cdf:
            low, high = self.windows[0].view
            steps = np.r_[0.0, np.cumsum(self.masses), 1.0]
            artists["cdf_axes"] = draw_distribution(ax, np.r_[low, x, high], steps, drawstyle="steps-post")
        return artists
