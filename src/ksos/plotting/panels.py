"""The panels of a figure: a density of one feature as a curve, of two as contours.

Heights are with respect to Lebesgue measure, in a unit that floats can hold; regions are those of
highest density [Hyndman1996].
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.colors import Colormap


# colors that people with any kind of color vision tell apart
_DENSITY, _DISTRIBUTION, _SUPPORT, _DATA = "#234484", "#B5480A", "#E8710A", "#262626"
_OUTSIDE, _BOUNDARY, _BORDER = "#ededed", "#9a9a9a", "#10182b"
_STRIP = 0.045  # of the height, for the rug: seen, and little of the curve is lost
_MOST_DOTS = 4000  # more of them are one dark patch
_MOST_TICKS = 1500  # of a rug: more than an axis has pixels
_TAIL = 5e-4  # mass beyond each end of the axis: no eye sees the density there
_MARGIN = 0.04  # of the width, around what is shown: matplotlib has 0.05
_REACH = 0.75  # of the width of the mass: with data farther out, an outlier would hide the rest
_LARGEST_EXPONENT = 90  # beyond it, densities are drawn in a power of ten of their own
_CURVE = (12.0, 401, 4001)  # points of the grid per bandwidth, the fewest and the most on an axis
_SURFACE = (8.0, 121, 301)  # the same for two features: contours are interpolated linearly
_SMALL_SURFACE = (4.0, 41, 47)  # a panel among many has 150 pixels
_BANDS = 18  # of color: more look continuous, and take longer
_LINES = ("-", "--", ":", "-.")


@dataclass(frozen=True)
class Window:
    """An interval of one feature: ``low`` to ``high`` is where the density is evaluated, ``view``
    what the axis shows.
    """

    low: float
    high: float
    view: tuple[float, float]
    boundary: tuple[float, float]


def window_of(marginal: Any, samples: np.ndarray | None) -> Window:
    """The window of a density of one feature and of its ``samples`` (n,)."""
    low, high = (float(x) for x in marginal.ppf(np.array([_TAIL, 1.0 - _TAIL])))
    boundary = marginal.measure.boundary(0)
    width = high - low or max(abs(low), 1.0)
    if samples is not None:
        near = samples[(samples >= low - _REACH * width) & (samples <= high + _REACH * width)]
        low, high = float(min([low, *near])), float(max([high, *near]))
    margin = _MARGIN * (high - low or width)
    view = (low - margin, high + margin)
    return Window(max(view[0], boundary[0]), min(view[1], boundary[1]), view, boundary)


@dataclass(frozen=True)
class Look:
    """What :meth:`DensityDisplay.plot` was asked for; ``small`` for a panel among many."""

    cmap: Colormap
    cdf: bool
    support: bool
    small: bool = False


@dataclass(frozen=True)
class OnGrid:
    """The numbers of a panel of one or two features on a continuous measure.

    ``values`` of the density and the ``levels`` that bound the regions of each mass are divided by
    10^exponent. ``values[i]`` belongs to axes[0][i], ``values[i, j]`` to (axes[0][j], axes[1][i]).
    """

    axes: tuple[np.ndarray, ...]
    values: np.ndarray
    levels: dict[float, float]
    exponent: int
    support: np.ndarray
    windows: tuple[Window, ...]
    cdf: np.ndarray | None

    @classmethod
    def of(
        cls,
        p: Any,
        support: np.ndarray,
        windows: tuple[Window, ...],
        regions: Sequence[float],
        resolution: int | None,
        small: bool,
    ) -> OnGrid:
        """Of a density ``p``, with ``resolution`` points along each axis (None: fine enough).

        The levels of a small panel of two features are computed from its grid: accurate enough, and
        quicker.
        """
        alone = len(windows) == 1
        finest, fewest, most = _CURVE if alone else _SMALL_SURFACE if small else _SURFACE
        axes = []
        for window, sigma in zip(windows, p.terms.on_host.bandwidths, strict=True):
            n = int(np.clip(finest * (window.high - window.low) / float(sigma), fewest, most))
            axes.append(np.linspace(window.low, window.high, resolution or n))
        points = np.stack([grid.ravel() for grid in np.meshgrid(*axes)], axis=1)
        log_values = p.logpdf(points)
        peak = float(log_values.max()) / math.log(10.0)
        exponent = 0 if abs(peak) <= _LARGEST_EXPONENT else math.floor(peak)
        unit = exponent * math.log(10.0)
        with np.errstate(under="ignore"):
            values = np.exp(log_values - unit)
        if small and not alone:
            descending, cell = np.sort(values)[::-1], math.prod(float(x[1] - x[0]) for x in axes)
            held = np.cumsum(descending) * math.exp(math.log(cell) + unit)
            places = np.minimum(np.searchsorted(held, regions), held.size - 1)
            levels = dict(zip(regions, descending[places].tolist(), strict=True))
        else:
            levels = {mass: math.exp(math.log(p.hdr_level(mass, rng=0)) - unit) for mass in regions}
        values = values.reshape([axis.size for axis in reversed(axes)])
        cdf = p.cdf(points) if alone else None
        return cls(tuple(axes), values, levels, exponent, support, windows, cdf)

    @property
    def height_label(self) -> str:
        """What the height, or the color, stands for."""
        return f"density / $10^{{{self.exponent}}}$" if self.exponent else "density"

    def draw(self, ax: Axes, samples: np.ndarray | None, look: Look) -> dict[str, Any]:
        """Draw on ``ax`` with the data ``samples`` (n, d). It returns the artists by name."""
        spans: Any = ((ax.axvspan, ax.axvline), (ax.axhspan, ax.axhline))
        for window, (span, line) in zip(self.windows, spans, strict=False):
            for bound, edge in zip(window.boundary, window.view, strict=True):
                if window.view[0] < bound < window.view[1]:
                    span(bound, edge, color=_OUTSIDE, linewidth=0.0, zorder=0.5, gid="outside")
                    line(bound, color=_BOUNDARY, linewidth=0.8, zorder=0.6, gid="boundary")
        draw = self._draw_surface if self.cdf is None else self._draw_curve
        return draw(ax, samples, look)

    # A curve with its regions shaded; on a small panel the height is without scale.
    def _draw_curve(self, ax: Axes, samples: np.ndarray | None, look: Look) -> dict[str, Any]:
        artists: dict[str, Any] = {"regions": {}}
        (x,), y, top = self.axes, self.values, float(self.values.max())
        # the widest region first, the others on top of it
        ordered = sorted(self.levels.items(), reverse=True)
        for i, (mass, level) in enumerate(ordered):
            artists["regions"][mass] = ax.fill_between(
                x,
                0.0,
                y,
                where=(y >= level).tolist(),
                color=look.cmap(0.12 + 0.36 * i / len(ordered)),
                linewidth=0.0,
                label=_region(mass),
            )
        # at the boundary the curve comes down to zero
        low, high = (
            bound if bound == end else np.nan
            for bound, end in zip(self.windows[0].boundary, (x[0], x[-1]), strict=True)
        )
        (artists["density"],) = ax.plot(
            np.r_[low, x, high],
            np.r_[0.0, y, 0.0],
            color=_DENSITY,
            linewidth=1.1 if look.small else 1.6,
            label="density",
            zorder=2.5,
        )
        bottom = -1.5 * _STRIP * top if samples is not None or look.support else 0.0
        ax.set(xlim=self.windows[0].view, ylim=(bottom, 1.07 * top))
        if samples is not None:
            artists["data"] = _draw_data(ax, samples, self.windows, look)
        if look.small:
            ax.set_yticks([])
        else:
            ax.set_ylabel(self.height_label)
        if look.cdf and not look.small:
            artists["cdf_axes"] = twin = ax.twinx()
            name = "distribution function"
            twin.plot(x, self.cdf, "--", color=_DISTRIBUTION, linewidth=1.2, label=name, gid="cdf")
            # both zeros are at one height
            twin.set(ylim=(1.04 * bottom / (1.07 * top), 1.04), yticks=[0.0, 0.25, 0.5, 0.75, 1.0])
            twin.set_ylabel(name, color=_DISTRIBUTION)
            twin.tick_params(axis="y", colors=_DISTRIBUTION)
        if look.support:
            (artists["support"],) = ax.plot(
                self.support,
                np.zeros(self.support.shape),
                "+",
                color=_SUPPORT,
                markersize=3.0 if look.small else 5.0,
                label="support points",
                zorder=2.6,
            )
        return artists

    # Filled contours, with the borders of the regions as lines.
    def _draw_surface(self, ax: Axes, samples: np.ndarray | None, look: Look) -> dict[str, Any]:
        from matplotlib.ticker import MaxNLocator

        grid, width = (*self.axes, self.values), 0.7 if look.small else 1.0
        bands = MaxNLocator(_BANDS, steps=[1, 2, 2.5, 5, 10])
        levels = bands.tick_values(0.0, float(self.values.max()))
        artists: dict[str, Any] = {"borders": {}}
        # a band has the color of its middle: the lowest one is to be the color of no density at all
        artists["filled"] = ax.contourf(
            *grid, levels=levels, cmap=look.cmap, vmin=0.5 * levels[1], vmax=levels[-1], zorder=1.0
        )
        for i, (mass, level) in enumerate(sorted(self.levels.items())):
            style = _LINES[i % len(_LINES)]
            artists["borders"][mass] = ax.contour(
                *grid,
                levels=[level],
                colors=_BORDER,
                zorder=2.4,
                linewidths=width,
                linestyles=style,
            )
            ax.plot([], [], style, color=_BORDER, linewidth=width, label=_region(mass))
        if samples is not None:
            artists["data"] = _draw_data(ax, samples, self.windows, look)
        if look.support:
            (artists["support"],) = ax.plot(
                *self.support.T,
                "o",
                color=_SUPPORT,
                label="support points",
                zorder=2.1,
                markersize=3.0 if look.small else 6.0,
                markeredgewidth=0.8 * width,
                markerfacecolor="none",
            )
        ax.set(xlim=self.windows[0].view, ylim=self.windows[1].view)
        return artists


def _region(mass: float) -> str:
    """What the legend calls a highest-density region.

    >>> _region(0.5), _region(0.975)
    ('50% region', '97.5% region')
    """
    return f"{100.0 * mass:g}% region"


# A tick for each sample (n, 1), a dot for each sample (n, 2) that lies in the windows.
#
# Few are opaque, so that each one is seen; many are pale, so that their density is.
def _draw_data(ax: Axes, samples: np.ndarray, windows: tuple[Window, ...], look: Look) -> Any:
    rug = len(windows) == 1
    most, opaque = (_MOST_TICKS, 150) if rug else (_MOST_DOTS, 600)
    inside = [(w.view[0] <= x) & (x <= w.view[1]) for w, x in zip(windows, samples.T, strict=True)]
    rows = np.flatnonzero(np.all(inside, axis=0))
    if rows.size > most:
        rows = rows[np.linspace(0, rows.size - 1, most).round().astype(int)]
    shown, n = samples[rows], max(rows.size, 1)
    style: dict[str, Any] = {
        "alpha": float(np.clip((opaque / n) ** 0.5, 0.12, 0.85)),
        "label": "data" if rows.size == len(samples) else f"data ({n:,} of {len(samples):,})",
        "gid": "data",
    }
    if rug:
        height, across = 0.8 * _STRIP, ax.get_xaxis_transform()
        return ax.vlines(
            shown[:, 0], 0.0, height, transform=across, color=_DATA, linewidth=0.7, **style
        )
    return ax.scatter(
        shown[:, 0],
        shown[:, 1],
        s=np.clip(2000.0 / n, 2.0, 12.0) * (0.5 if look.small else 1.0),
        linewidths=0.3 if n <= 1000 else 0.0,
        c=_DATA,
        edgecolors="white",
        rasterized=n > 1000,
        zorder=2.2,
        **style,
    )
