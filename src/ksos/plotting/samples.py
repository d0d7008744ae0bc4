"""Data in a panel: as many as can be seen, with a label that says so, paler the more there are."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np

from ksos.plotting.panel import DATA
from ksos.plotting.window import Window

if TYPE_CHECKING:
    from matplotlib.axes import Axes

__all__ = ["MOST_DOTS", "MOST_TICKS", "STRIP", "draw_rug", "draw_scatter", "thinned"]

MOST_DOTS, MOST_TICKS = 4000, 1500
STRIP = 0.045
"""The share of the height that the rug takes."""


def thinned(samples: np.ndarray, windows: tuple[Window, ...], most: int) -> tuple[np.ndarray, str]:
    """The samples (n, d) inside the windows, at most ``most`` of them evenly taken, and what the legend says of them."""
    inside = np.all([(w.view[0] <= x) & (x <= w.view[1]) for w, x in zip(windows, samples.T, strict=True)], axis=0)
    rows = np.flatnonzero(inside)
    if rows.size > most:
        rows = rows[np.linspace(0, rows.size - 1, most).round().astype(int)]
    n, shown = samples.shape[0], rows.size
    return samples[rows], "data" if shown == n else f"data ({shown:,} of {n:,})".replace(",", "\N{NARROW NO-BREAK SPACE}")


def draw_rug(ax: Axes, samples: np.ndarray, window: Window) -> Any:
    """A tick for each sample (n,) at the foot of the axes."""
    shown, label = thinned(samples[:, None], (window,), MOST_TICKS)
    return ax.vlines(
        shown[:, 0],
        0.0,
        0.8 * STRIP,
        transform=ax.get_xaxis_transform(),
        color=DATA,
        linewidth=0.7,
        alpha=_alpha(shown.shape[0], 150),
        label=label,
        gid="data",
    )


def draw_scatter(ax: Axes, samples: np.ndarray, windows: tuple[Window, Window], *, small: bool = False) -> Any:
    """A dot for each sample (n, 2)."""
    shown, label = thinned(samples, windows, MOST_DOTS)
    n = max(shown.shape[0], 1)
    area = np.clip(2000.0 / n, 2.0, 12.0) * (0.5 if small else 1.0)
    return ax.scatter(
        shown[:, 0],
        shown[:, 1],
        s=area,
        c=DATA,
        alpha=_alpha(n, 600),
        edgecolors="white",
        linewidths=0.3 if n <= 1000 else 0.0,
        label=label,
        rasterized=n > 1000,
        zorder=2.2,
        gid="data",
    )


def _alpha(n: int, opaque: int) -> float:
    """Opaque for few, so that single ones are seen; pale for many, so that their density is."""
    return float(np.clip((opaque / max(n, 1)) ** 0.5, 0.12, 0.85))
