"""What part of the line a panel shows: nearly all of the mass, the data around it, and the walls of the domain where they are near."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from ksos.density import SoSDensity

__all__ = ["Window", "window_around", "window_of"]

_TAIL = 5e-4
_MARGIN = 0.04
_REACH = 0.75  # data farther from the mass than this share of its width are left outside: one outlier would hide everything else


@dataclass(frozen=True)
class Window:
    """An interval of one feature: ``low`` to ``high`` is where the density is evaluated, ``view`` what the axis shows."""

    low: float
    high: float
    view: tuple[float, float]
    walls: tuple[float, float]

    def grid(self, n: int) -> np.ndarray:
        """``n`` equidistant points, the ends among them."""
        return np.linspace(self.low, self.high, n)


def window_of(marginal: SoSDensity, samples: np.ndarray | None) -> Window:
    """The window of a density of one feature and of its ``samples`` (n,)."""
    low, high = (float(x) for x in marginal.ppf(np.array([_TAIL, 1.0 - _TAIL])))
    return window_around(low, high, samples, marginal.measure.boundary(0))


def window_around(low: float, high: float, samples: np.ndarray | None, walls: tuple[float, float] = (-np.inf, np.inf)) -> Window:
    """The window of the interval [low, high], widened to the ``samples`` (n,) near it.

    >>> window_around(0.0, 1.0, np.array([-0.25, 0.5, 90.0]), walls=(-0.25, np.inf))
    Window(low=-0.25, high=1.05, view=(-0.3, 1.05), walls=(-0.25, inf))
    """
    width = high - low or max(abs(low), 1.0)
    if samples is not None:
        near = samples[(samples >= low - _REACH * width) & (samples <= high + _REACH * width)]
        if near.size:
            low, high = min(low, float(near.min())), max(high, float(near.max()))
    margin = _MARGIN * (high - low or width)
    view = (low - margin, high + margin)
    return Window(max(view[0], walls[0]), min(view[1], walls[1]), view, walls)
