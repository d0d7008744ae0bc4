"""The density as it is drawn: with respect to Lebesgue measure, in a unit that floats can hold, with the levels of its regions."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from ksos.density import SoSDensity
from ksos.measures import Lebesgue

__all__ = ["Heights", "evaluate", "with_respect_to_lebesgue"]

_LARGEST_EXPONENT = 90  # beyond it, densities are drawn in a power of ten of their own


@dataclass(frozen=True)
class Heights:
    """Values of a density on a grid and its levels, both divided by 10^exponent; ``levels[mass]`` bounds the region that holds ``mass``."""

    values: np.ndarray
    levels: dict[float, float]
    exponent: int

    @property
    def label(self) -> str:
        """What an axis says of the values."""
        return "density" if self.exponent == 0 else f"density / $10^{{{self.exponent}}}$"


def with_respect_to_lebesgue(density: SoSDensity) -> SoSDensity:
    """The same distribution with a density in the usual sense, p·dρ/dx: what a picture shows, and whose regions are the smallest."""
    factor = density.measure.normal_factor(density.n_features)
    if factor is None:
        return density
    relative = density.from_units(density.kernel, density.support_points, density.unit_factor, density.log_unit, Lebesgue())
    return relative.times_gaussian(*factor)


def evaluate(density: SoSDensity, points: np.ndarray, regions: Sequence[float], cell: float | None = None) -> Heights:
    """p at the rows of ``points``, and the levels of its highest-density regions.

    Where the points are a grid with cells of volume ``cell``, the levels are read off them: enough for a small panel, and sooner done.
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
        levels = {mass: float(descending[min(int(np.searchsorted(held, mass)), held.size - 1)]) for mass in regions}
    return Heights(values, levels, exponent)
