"""The panels of a picture: a density of one feature as a curve, of two as contours, on a discrete
measure as the probabilities of nodes.

Heights are with respect to Lebesgue measure, in a unit that floats can hold; regions are those of
highest density [Hyndman1996].
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

import numpy as np

from ksos.density import SoSDensity
from ksos.plotting import panel
from ksos.plotting.panel import DENSITY, STRIP, SUPPORT, Look, Window

if TYPE_CHECKING:
    from matplotlib.axes import Axes

__all__ = ["Atoms", "Curve", "Heights", "Surface", "evaluate"]

_LARGEST_EXPONENT = 90  # beyond it, densities are drawn in a power of ten of their own
_CURVE = 12.0, 401, 4001
"""Points of the grid per bandwidth, the fewest and the most of them along an axis."""
_SURFACE, _SMALL_SURFACE = (8.0, 121, 301), (4.0, 41, 47)  # a panel among many has 150 pixels
_BANDS, _LARGEST_AREA = 18, 150.0
_BORDER, _LINES = "#10182b", ("-", "--", ":", "-.")


@dataclass(frozen=True)
class Heights:
    """Values of a density on a grid and its levels, both divided by 10^exponent; ``levels[mass]``
    bounds the region that holds ``mass``.
    """

    values: np.ndarray
    levels: dict[float, float]
    exponent: int

    @property
    def label(self) -> str:
        """What an axis says of the values."""
        return "density" if self.exponent == 0 else f"density / $10^{{{self.exponent}}}$"


def evaluate(
    density: SoSDensity, points: np.ndarray, regions: Sequence[float], cell: float | None = None
) -> Heights:
    """p at the rows of ``points``, and the levels of its highest-density regions.

    If the points are a grid with cells of volume ``cell``, the levels are computed from it:
    accurate enough for a small panel, and quicker.
    """
    log_values = density.logpdf(points)
    peak = float(log_values.max()) / math.log(10.0)
    exponent = 0 if abs(peak) <= _LARGEST_EXPONENT else math.floor(peak)
    unit = exponent * math.log(10.0)
    with np.errstate(under="ignore"):
        values = np.exp(log_values - unit)
    if cell is None:
        levels = {mass: math.exp(math.log(density.hdr_level(mass)) - unit) for mass in regions}
    else:
        descending = np.sort(values)[::-1]
        held = np.cumsum(descending) * math.exp(math.log(cell) + unit)
        levels = {
            mass: float(descending[min(int(np.searchsorted(held, mass)), held.size - 1)])
            for mass in regions
        }
    return Heights(values, levels, exponent)


@dataclass(frozen=True)
class _OnGrid:
    """What panels of one and of two features on a continuous measure share."""

    heights: Heights
    support: np.ndarray

    @property
    def height_label(self) -> str:
        """What the height, or the colour, stands for."""
        return self.heights.label

    @property
    def n_support(self) -> int:
        """The number of support points that could be shown."""
        return len(self.support)


@dataclass(frozen=True)
class Curve(_OnGrid):
    """The numbers of a panel of one feature: the curve with its highest-density regions shaded, the
    distribution function.
    """

    x: np.ndarray
    cdf: np.ndarray
    window: Window

    @classmethod
    def of(
        cls,
        p: SoSDensity,
        support: np.ndarray,
        window: Window,
        regions: Sequence[float],
        resolution: int | None,
    ) -> Curve:
        """Of a density ``p`` of one feature on its window."""
        x = window.grid(resolution, float(p.terms.on_host.bandwidths[0]), *_CURVE)
        return cls(evaluate(p, x[:, None], regions), support, x, p.cdf(x[:, None]), window)

    def draw(self, ax: Axes, samples: np.ndarray | None, look: Look) -> dict[str, Any]:
        """Draw on ``ax`` with the data ``samples`` (n, 1); returns the artists by name. On a small
        panel the height is without scale.
        """
        artists: dict[str, Any] = {"regions": {}}
        x, y = self.x, self.heights.values
        panel.shade_outside(ax, self.window)
        ordered = sorted(
            self.heights.levels.items(), reverse=True
        )  # the widest region first, the others on top of it
        for i, (mass, level) in enumerate(ordered):
            colour = look.cmap(0.12 + 0.36 * i / len(ordered))
            style: dict[str, Any] = {
                "color": colour,
                "linewidth": 0.0,
                "label": panel.region_name(mass),
            }
            artists["regions"][mass] = ax.fill_between(
                x, 0.0, y, where=(y >= level).tolist(), **style
            )
        ends = [
            bound if bound == end else np.nan
            for bound, end in zip(self.window.boundary, (x[0], x[-1]), strict=True)
        ]
        closed = (
            np.r_[ends[0], x, ends[1]],
            np.r_[0.0, y, 0.0],
        )  # at the boundary the curve comes down to zero
        (artists["density"],) = ax.plot(
            *closed,
            color=DENSITY,
            linewidth=1.1 if look.small else 1.6,
            label="density",
            zorder=2.5,
        )
        top = float(y.max())
        ax.set(
            xlim=self.window.view,
            ylim=(-1.5 * STRIP * top if samples is not None or look.support else 0.0, 1.07 * top),
        )
        artists |= panel.draw_one_feature(
            ax, samples, self.window, look, self.height_label, x, self.cdf
        )
        if look.support:
            style = {
                "color": SUPPORT,
                "markersize": 3.0 if look.small else 5.0,
                "label": "support points",
                "zorder": 2.6,
            }
            (artists["support"],) = ax.plot(
                self.support, np.zeros(self.support.shape), "+", **style
            )
        return artists


@dataclass(frozen=True)
class Surface(_OnGrid):
    """The numbers of a panel of two features, drawn as filled contours; ``heights.values[i, j]``
    belongs to (x[j], y[i]).
    """

    x: np.ndarray
    y: np.ndarray
    windows: tuple[Window, Window]

    @classmethod
    def of(
        cls,
        p: SoSDensity,
        support: np.ndarray,
        windows: tuple[Window, Window],
        regions: Sequence[float],
        n: int | None,
        small: bool,
    ) -> Surface:
        """Of a density ``p`` of two features on the windows of its features, on a grid of ``n``
        points along each (None: fine enough).
        """
        fineness = _SMALL_SURFACE if small else _SURFACE
        x, y = (
            window.grid(n, float(sigma), *fineness)
            for window, sigma in zip(windows, p.terms.on_host.bandwidths, strict=True)
        )
        cell = float(x[1] - x[0]) * float(y[1] - y[0]) if small else None
        heights = evaluate(
            p, np.stack([g.ravel() for g in np.meshgrid(x, y)], axis=1), regions, cell
        )
        return cls(
            replace(heights, values=heights.values.reshape(y.size, x.size)), support, x, y, windows
        )

    def draw(self, ax: Axes, samples: np.ndarray | None, look: Look) -> dict[str, Any]:
        """Draw on ``ax`` with the data ``samples`` (n, 2); returns the artists by name."""
        from matplotlib.ticker import MaxNLocator

        x, y, z = self.x, self.y, self.heights.values
        width = 0.7 if look.small else 1.0
        panel.shade_outside(ax, *self.windows)
        bands = MaxNLocator(_BANDS, steps=[1, 2, 2.5, 5, 10]).tick_values(0.0, float(z.max()))
        # a band has the colour of its middle: the lowest one is to be the colour of no density at
        # all
        filled = ax.contourf(
            x, y, z, levels=bands, cmap=look.cmap, vmin=0.5 * bands[1], vmax=bands[-1], zorder=1.0
        )
        artists: dict[str, Any] = {"filled": filled, "borders": {}}
        for i, (mass, level) in enumerate(sorted(self.heights.levels.items())):
            line: dict[str, Any] = {"linewidths": width, "linestyles": _LINES[i % len(_LINES)]}
            artists["borders"][mass] = ax.contour(
                x, y, z, levels=[level], colors=_BORDER, zorder=2.4, **line
            )
            ax.plot(
                [],
                [],
                color=_BORDER,
                linewidth=width,
                linestyle=line["linestyles"],
                label=panel.region_name(mass),
            )
        if samples is not None:
            artists["data"] = panel.draw_scatter(ax, samples, self.windows, small=look.small)
        if look.support:
            size: dict[str, Any] = {
                "markersize": 3.0 if look.small else 6.0,
                "markeredgewidth": 0.8 * width,
                "markerfacecolor": "none",
            }
            (artists["support"],) = ax.plot(
                *self.support.T, "o", color=SUPPORT, label="support points", zorder=2.1, **size
            )
        ax.set(xlim=self.windows[0].view, ylim=self.windows[1].view)
        return artists


@dataclass(frozen=True)
class Atoms:
    """The numbers of a panel of one or two features: distinct ``points`` (N, 1 or 2) in
    lexicographic order, and their ``masses``.
    """

    points: np.ndarray
    masses: np.ndarray
    windows: tuple[Window, ...]
    height_label, n_support = "probability of each node", 0

    @classmethod
    def of(cls, p: SoSDensity, features: Sequence[int], samples: np.ndarray | None) -> Atoms:
        """Of the ``features`` of a density ``p`` on a discrete measure, wide enough for the
        ``samples`` (n, 1 or 2) near its nodes.
        """
        nodes = p.support_points if p.measure.atoms is None else p.measure.atoms.points
        points, place = np.unique(nodes[:, list(features)], axis=0, return_inverse=True)
        masses = np.bincount(place.ravel(), weights=p.terms.on_host.node_masses)
        columns = [None] * len(features) if samples is None else list(samples.T)
        windows = tuple(
            panel.window_around(float(x.min()), float(x.max()), column)
            for x, column in zip(points.T, columns, strict=True)
        )
        return cls(points, masses, windows)

    def draw(self, ax: Axes, samples: np.ndarray | None, look: Look) -> dict[str, Any]:
        """The same with data (n, 1 or 2): a stem for each node if there is one feature, a dot if
        there are two.
        """
        artists: dict[str, Any] = {}
        ax.set_xlim(*self.windows[0].view)
        top, n = float(self.masses.max()), self.masses.size
        if self.points.shape[1] == 2:
            ax.set_ylim(*self.windows[1].view)
            area = _LARGEST_AREA / max(1.0, np.sqrt(n) / 8.0) * (0.3 if look.small else 1.0)
            dots = {
                "s": area * self.masses / top,
                "c": self.masses,
                "vmin": 0.0,
                "vmax": top,
                "cmap": look.cmap,
            }
            artists["filled"] = ax.scatter(
                *self.points.T,
                **dots,
                edgecolors=DENSITY,
                linewidths=0.3,
                label="nodes",
                zorder=2.0,
            )
            if samples is not None:
                artists["data"] = panel.draw_scatter(
                    ax, samples, (self.windows[0], self.windows[1]), small=look.small
                )
            return artists
        x = self.points[:, 0]
        artists["stems"] = ax.vlines(
            x,
            0.0,
            self.masses,
            color=DENSITY,
            linewidth=float(np.clip(200.0 / n, 0.6, 2.0)),
            label="nodes",
        )
        ax.set_ylim(-0.07 * top if samples is not None else 0.0, 1.07 * top)
        (low, high), steps = self.windows[0].view, np.r_[0.0, np.cumsum(self.masses), 1.0]
        place = np.r_[low, x, high]
        return artists | panel.draw_one_feature(
            ax,
            samples,
            self.windows[0],
            look,
            self.height_label,
            place,
            steps,
            drawstyle="steps-post",
        )
