"""Normal scores: a column on the scale on which it is standard normal.

Values that crowd at round numbers, or that have a long tail, need many normal densities, and a
joint mixture of several such columns would need their product. On the scale u = Φ⁻¹(F(x)), with
the distribution function F of the column alone, a mixture has to describe only how the columns
depend on each other.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass
from functools import cached_property

import numpy as np
from scipy.special import ndtr, ndtri

_FAR = 9.0  # Standard widths: a normal distribution has a mass of 1e-19 beyond.
_KNOTS = 73  # For each component: a quarter of its standard deviation apart
_STEPS = 100  # Of the inverse: even halving its interval alone ends before.
_ROUNDING = 1e-15  # Relative steps of the inverse that are rounding


@dataclass(frozen=True)
class NormalScores:
    """u = Φ⁻¹(F(x)) of a mixture with ``weights`` (sum one), ``means`` and ``widths``.

    Beyond the two ``ends``, the least and the largest value of the data, u is linear: tails of the
    mixture and of a density of u together would be so long that no mean were left.

    >>> scores = NormalScores((0.5, 0.5), (0.0, 10.0), (1.0, 1.0), (-3.0, 13.0))
    >>> u, log_slope = scores.of(np.array([2.0, 12.0, 40.0]))
    >>> u.round(3).tolist(), scores.values(u).round(9).tolist()
    ([-0.029, 2.278, 28.718], [2.0, 12.0, 40.0])
    """

    weights: tuple[float, ...]
    means: tuple[float, ...]
    widths: tuple[float, ...]
    ends: tuple[float, float]

    def check(self) -> None:
        """Raise ValueError where the numbers are no mixture."""
        every = (self.weights, self.means, self.widths)
        if not (
            len({len(one) for one in every}) == 1
            and all(
                type(x) is float and math.isfinite(x) for one in (*every, self.ends) for x in one
            )
            and all(x > 0.0 for x in self.weights + self.widths)
            and abs(math.fsum(self.weights) - 1.0) < 1e-9  # summed in another order
            and len(self.ends) == 2
            and self.ends[0] < self.ends[1]
            and np.isfinite(self._tails).all()
        ):
            raise ValueError("normal scores need the weights, means and widths of a mixture")

    @cached_property
    def _arrays(self) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
        return np.array(self.weights), np.array(self.means), np.array(self.widths)

    @cached_property
    def _tails(self) -> tuple[np.ndarray, np.ndarray]:
        """u at the ends, and du/dx beyond: as it is there, but no less than between them."""
        u, logs = self._inside(np.array(self.ends))
        with np.errstate(invalid="ignore"):  # where they are infinite
            return u, np.maximum(np.exp(logs), (u[1] - u[0]) / (self.ends[1] - self.ends[0]))

    def _inside(self, x: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        """u and log du/dx between the ends; the smaller tail gives u, so that no digit is lost."""
        weights, means, widths = self._arrays
        t = (x[:, None] - means) / widths
        with np.errstate(divide="ignore", over="ignore", under="ignore"):
            below, above = (ndtr(side) @ weights for side in (t, -t))
            u = np.where(below < above, ndtri(below), -ndtri(above))
            logs = np.log(np.exp(-0.5 * t**2) @ (weights / widths))
        # far from a narrow mixture neither has digits
        return u, logs + 0.5 * np.where(np.isinf(logs), 0.0, u) ** 2

    def of(self, x: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        """u and log du/dx."""
        at = np.clip(x, *self.ends)
        (u, logs), rates = self._inside(at), self._tails[1][(x > self.ends[1]).astype(int)]
        return u + rates * (x - at), np.where(x == at, logs, np.log(rates))

    def values(self, u: np.ndarray) -> np.ndarray:
        """x at u: the inverse of :meth:`of`."""
        return self._beyond(u, self._inverse)

    def interpolated(self, u: np.ndarray) -> np.ndarray:
        """x at u, between knots: quick, for averages over many u."""
        return self._beyond(u, lambda inside: np.interp(inside, *self.knots))

    def _beyond(self, u: np.ndarray, inverse: Callable[[np.ndarray], np.ndarray]) -> np.ndarray:
        ends, rates = self._tails
        at = np.clip(u, *ends)
        x = np.clip(inverse(at), *self.ends)
        return x + (u - at) / rates[(u > ends[1]).astype(int)]

    @cached_property
    def knots(self) -> tuple[np.ndarray, np.ndarray]:
        """Pairs (u, x), both ascending, so close that x is nearly linear between them."""
        _, means, widths = self._arrays
        x = means[:, None] + widths[:, None] * np.linspace(-_FAR, _FAR, _KNOTS)
        x = np.unique(np.append(np.clip(x, *self.ends), self.ends))
        u = self._inside(x)[0]
        kept = np.diff(u, prepend=-np.inf) > 0.0
        return u[kept], x[kept]

    def _inverse(self, u: np.ndarray) -> np.ndarray:
        """By Newton's method from the knots, in an interval that shrinks."""
        us, xs = self.knots
        place, width = np.searchsorted(us, u), self.ends[1] - self.ends[0]
        a = xs[np.clip(place - 1, 0, us.size - 1)]
        b = np.append(xs, self.ends[1])[np.clip(place, 0, us.size)]
        x = np.clip(np.interp(u, us, xs), a, b)
        going = np.flatnonzero(a < b)
        for _ in range(_STEPS):
            if not going.size:
                break
            found, log_slope = self._inside(x[going])
            over, before = found - u[going], x[going]
            a[going] = np.where(over < 0.0, before, a[going])
            b[going] = np.where(over < 0.0, b[going], before)
            with np.errstate(over="ignore", invalid="ignore"):
                tried = before - over * np.exp(-log_slope)
            inside = (tried >= a[going]) & (tried <= b[going])
            x[going] = np.where(inside, tried, 0.5 * (a[going] + b[going]))
            moved = np.abs(x[going] - before) > _ROUNDING * (np.abs(before) + width)
            going = going[moved & (over != 0.0)]
        return x
