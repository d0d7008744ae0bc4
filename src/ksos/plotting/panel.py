"""What all panels share: the interval that they show, how they are asked to look, and how they draw
data and boundaries.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np

from ksos.density import SoSDensity

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.colors import Colormap

__all__ = ["DENSITY", "STRIP", "SUPPORT", "Look", "Window"]
__all__ += [
    "draw_one_feature",
    "draw_scatter",
    "region_name",
    "shade_outside",
    "window_around",
    "window_of",
]

DENSITY, DISTRIBUTION, SUPPORT, DATA = "#234484", "#B5480A", "#E8710A", "#262626"
"""Colours that people with any kind of colour vision tell apart."""
STRIP = 0.045
"""The share of the height that the rug takes."""
_OUTSIDE, _BOUNDARY = "#ededed", "#9a9a9a"
_MOST_DOTS, _MOST_TICKS = 4000, 1500
_TAIL, _MARGIN = 5e-4, 0.04
# data farther from the mass than this share of its width are left outside: one outlier would hide
# everything else
_REACH = 0.75


@dataclass(frozen=True)
class Window:
    """An interval of one feature: ``low`` to ``high`` is where the density is evaluated, ``view``
    what the axis shows.
    """

    low: float
    high: float
    view: tuple[float, float]
    boundary: tuple[float, float]

    def grid(
        self, n: int | None, sigma: float, per_bandwidth: float, fewest: int, most: int
    ) -> np.ndarray:
        """``n`` equidistant points, the ends among them; None is as many as a bandwidth ``sigma``
        needs, between two bounds.
        """
        return np.linspace(
            self.low,
            self.high,
            n or int(np.clip(per_bandwidth * (self.high - self.low) / sigma, fewest, most)),
        )


def window_of(marginal: SoSDensity, samples: np.ndarray | None) -> Window:
    """The window of a density of one feature and of its ``samples`` (n,)."""
    low, high = (float(x) for x in marginal.ppf(np.array([_TAIL, 1.0 - _TAIL])))
    return window_around(low, high, samples, marginal.measure.boundary(0))


def window_around(
    low: float,
    high: float,
    samples: np.ndarray | None,
    boundary: tuple[float, float] = (-np.inf, np.inf),
) -> Window:
    """The window of the interval [low, high], widened to the ``samples`` (n,) near it.

    >>> window_around(0.0, 1.0, np.array([-0.25, 0.5, 90.0]), boundary=(-0.25, np.inf))
    Window(low=-0.25, high=1.05, view=(-0.3, 1.05), boundary=(-0.25, inf))
    """
    width = high - low or max(abs(low), 1.0)
    if samples is not None:
        near = samples[(samples >= low - _REACH * width) & (samples <= high + _REACH * width)]
        if near.size:
            low, high = min(low, float(near.min())), max(high, float(near.max()))
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


def draw_one_feature(
    ax: Axes,
    samples: np.ndarray | None,
    window: Window,
    look: Look,
    label: str,
    x: np.ndarray,
    cdf: np.ndarray,
    **style: Any,
) -> dict[str, Any]:
    """What every panel of one feature has beside the density: the rug of the data, the ``label``,
    and to the right ``cdf``.
    """
    artists: dict[str, Any] = {}
    if samples is not None:
        shown, name = _thinned(samples, (window,), _MOST_TICKS)
        tick: dict[str, Any] = {
            "color": DATA,
            "linewidth": 0.7,
            "alpha": _alpha(shown.shape[0], 150),
            "label": name,
            "gid": "data",
        }
        artists["data"] = ax.vlines(
            shown[:, 0], 0.0, 0.8 * STRIP, transform=ax.get_xaxis_transform(), **tick
        )
    if look.small:
        ax.set_yticks([])
        return artists
    ax.set_ylabel(label)
    if look.cdf:
        artists["cdf_axes"] = twin = ax.twinx()
        twin.plot(
            x,
            cdf,
            color=DISTRIBUTION,
            linewidth=1.2,
            linestyle="--",
            label="distribution function",
            gid="cdf",
            **style,
        )
        low, high = ax.get_ylim()
        twin.set(
            ylim=(1.04 * low / high, 1.04), yticks=[0.0, 0.25, 0.5, 0.75, 1.0]
        )  # both zeros are at one height
        twin.set_ylabel("distribution function", color=DISTRIBUTION)
        twin.tick_params(axis="y", colors=DISTRIBUTION)
    return artists


def shade_outside(ax: Axes, horizontal: Window, vertical: Window | None = None) -> None:
    """Grey where the measure has no mass, and a line at its boundary."""
    for window, span, line in (
        (horizontal, ax.axvspan, ax.axvline),
        (vertical, ax.axhspan, ax.axhline),
    ):
        if window is None:
            continue
        for bound, edge in zip(window.boundary, window.view, strict=True):
            if window.view[0] < bound < window.view[1]:
                span(bound, edge, color=_OUTSIDE, linewidth=0.0, zorder=0.5, gid="outside")
                line(bound, color=_BOUNDARY, linewidth=0.8, zorder=0.6, gid="boundary")


def region_name(mass: float) -> str:
    """What the legend calls a highest-density region.

    >>> region_name(0.5), region_name(0.975)
    ('50 % region', '97.5 % region')
    """
    return f"{100.0 * mass:g} % region"


def _thinned(samples: np.ndarray, windows: tuple[Window, ...], most: int) -> tuple[np.ndarray, str]:
    """The samples (n, d) inside the windows, at most ``most`` of them evenly taken, and their label
    in the legend.
    """
    rows = np.flatnonzero(
        np.all(
            [(w.view[0] <= x) & (x <= w.view[1]) for w, x in zip(windows, samples.T, strict=True)],
            axis=0,
        )
    )
    if rows.size > most:
        rows = rows[np.linspace(0, rows.size - 1, most).round().astype(int)]
    n, shown = samples.shape[0], rows.size
    return samples[rows], (
        "data"
        if shown == n
        else f"data ({shown:,} of {n:,})".replace(",", "\N{NARROW NO-BREAK SPACE}")
    )


def draw_scatter(
    ax: Axes, samples: np.ndarray, windows: tuple[Window, Window], *, small: bool = False
) -> Any:
    """A dot for each sample (n, 2)."""
    shown, label = _thinned(samples, windows, _MOST_DOTS)
    n = max(shown.shape[0], 1)
    size: dict[str, Any] = {
        "s": np.clip(2000.0 / n, 2.0, 12.0) * (0.5 if small else 1.0),
        "linewidths": 0.3 if n <= 1000 else 0.0,
    }
    style: dict[str, Any] = {
        "c": DATA,
        "alpha": _alpha(n, 600),
        "edgecolors": "white",
        "rasterized": n > 1000,
        "zorder": 2.2,
    }
    return ax.scatter(shown[:, 0], shown[:, 1], label=label, gid="data", **size, **style)


def _alpha(n: int, opaque: int) -> float:
    """Opaque if there are few, so that each one is seen; pale if there are many, so that their
    density is.
    """
    return float(np.clip((opaque / max(n, 1)) ** 0.5, 0.12, 0.85))
