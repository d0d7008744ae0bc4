"""A density of one feature as a distribution on panels, in standard coordinates."""

from __future__ import annotations

import itertools
from typing import TYPE_CHECKING

import numpy as np

from ksos.density.standard import Standard, standardize
from ksos.integrals.regions import intervals, kinks
from ksos.quadrature import LINE_ORDER, PanelDistribution, Panels, cut

if TYPE_CHECKING:
    from ksos.density.sos import SoSDensity

__all__ = ["line_distribution", "line_panels"]

# a polynomial through 16 nodes is right to rounding on a quarter of the kernel's length
_PANELS_PER_LENGTH = 4
# Inside all panels are equally long. Outside k falls by e per panel, down to the last level. Beyond
# the first level lies a mass of about e⁻⁶⁴.
_LOG_LEVEL = -32.0
_LAST_LEVEL = -330.0  # its square is about the smallest number there is


def line_distribution(p: SoSDensity) -> tuple[Standard, PanelDistribution]:
    """Standard coordinates of a density of one feature, and its distribution there.

    The density is by volume, on a box or relative to a normal measure.
    """
    standard = standardize(p)
    density = standard.density

    def on_panels(*, tails: bool) -> PanelDistribution:
        panels = line_panels(density, tails=tails)
        nodes = panels.nodes.reshape(-1, 1)
        log_p = density.logpdf(nodes).reshape(panels.nodes.shape)
        log_reference = density.measure.log_density(nodes).reshape(panels.nodes.shape)
        return PanelDistribution(
            panels,
            np.exp(log_p + log_reference)[None],
            exact=True,
            log_density=log_p,
            whole=None if tails else lambda: on_panels(tails=True),
        )

    return standard, on_panels(tails=False)


def line_panels(p: SoSDensity, *, tails: bool = True) -> Panels:
    """Panels so short that a density of one feature, in standard coordinates, is the polynomial
    through 16 nodes, to rounding.
    """
    source = [(p.integrals, p.support_points)]
    low, high, smooth = intervals(source, 0, _LOG_LEVEL, origin=0.0)
    step = smooth / _PANELS_PER_LENGTH
    start, stop = cut(low, high, step, kinks(source, 0, origin=0.0))
    if tails:
        left, right = _tails(p, step)
        start, stop = (
            np.concatenate([left[:-1], start, right[:-1]]),
            np.concatenate([left[1:], stop, right[1:]]),
        )
    return Panels(start[stop > start], stop[stop > start], LINE_ORDER)


def _tails(p: SoSDensity, step: float) -> tuple[np.ndarray, np.ndarray]:
    """The ends of the panels of both tails, in increasing order, each panel so short that k falls
    by a factor e at most.
    """
    smooth = p.kernel.smooth
    levels = np.linspace(_LOG_LEVEL, _LAST_LEVEL, 76 if smooth else 2)
    # e^{−r}: one bandwidth is as far as any other
    step = step if smooth else _PANELS_PER_LENGTH * step
    ends = [p.integrals.windows(p.support_points, 0, float(level)) for level in levels]
    sides = []
    for side in ([low.min() for low, _, _ in ends], [high.max() for _, high, _ in ends]):
        side = [end + p.support_points[0, 0] for end in side]
        pieces = [
            np.linspace(u, v, 1 + max(4 if smooth else 1, int(np.ceil(abs(v - u) / step))))
            for u, v in itertools.pairwise(side)
        ]
        sides.append(np.unique(np.concatenate(pieces)))
    return sides[0], sides[1]
