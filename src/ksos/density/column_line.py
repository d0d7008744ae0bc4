"""The distribution of one column of numbers in an order: values that have a mass of their own, and
the density between them.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Any

import numpy as np

from ksos.density.kinds import Column
from ksos.density.questions.line import panel_ends
from ksos.density.questions.mass import cumulative, quantiles
from ksos.density.terms import Terms
from ksos.quadrature import PanelDistribution

_LAST = 1.0 - 1e-15  # beyond this quantile of a count, squares of what is left are no float
_TAIL = 0.01  # beyond the first and the last of the whole numbers whose masses are listed
_MOST_NUMBERS = 50  # whole numbers whose masses are listed, as many as levels of text


@dataclass(frozen=True)
class ColumnLine:
    """``masses`` are those of the atoms of ``column``, with that of all between them as the last;
    ``terms`` are the density of u there, None if it has no mass.
    """

    column: Column
    masses: np.ndarray
    terms: Terms | None

    def cdf(self, x: np.ndarray) -> np.ndarray:
        """P(x' ≤ x), of the shape of ``x``."""
        column, is_count = self.column, self.column.kind == "count"
        found = np.sum(self.masses[:-1] * (x[..., None] >= column.atoms), axis=-1)
        # of a count, the end of its cell
        end = np.floor(x) + 1.0 if is_count else np.clip(x, column.low, column.high)
        u = np.atleast_1d(column.to_line(end)[0])
        if is_count:
            u = np.where(np.atleast_1d(x) < column.between, -np.inf, u)
        part, inner = np.asarray(u == np.inf, dtype=np.float64), np.isfinite(u)
        if self.terms is not None and inner.any():
            part[inner] = cumulative(self.terms, u[inner][:, None])
        return np.minimum(found + self.masses[-1] * part.reshape(x.shape), 1.0)

    def ppf(self, levels: np.ndarray) -> np.ndarray:
        """The least x with P(x' ≤ x) ≥ level, (n,), an atom where its mass reaches across it."""
        column, masses = self.column, self.masses
        # all atoms but that of the upper end come before the values between
        atoms = np.array([atom for atom in column.atoms if atom < column.high])
        first = np.cumsum(masses[: atoms.size])
        below = float(first[-1]) if first.size else 0.0
        found = np.full(levels.shape, column.high)
        between = (levels >= below) & (levels <= below + masses[-1])
        if self.terms is not None:
            inner = np.clip((levels[between] - below) / masses[-1], 0.0, 1.0)
            found[between] = column.from_line(quantiles(self.terms, inner))
        if first.size:
            low = levels <= below
            found[low] = atoms[np.searchsorted(first, levels[low] * (1.0 - 1e-15))]
        return found

    def crps(self, y: np.ndarray) -> np.ndarray:
        """∫ (P(x ≤ t) − 1[t ≥ y])² dt = E|x − y| − ½E|x − x'|, (n,)."""
        if self.column.kind == "count":
            top = float(self.ppf(np.array([_LAST]))[0])
            cdf = self.cdf(np.arange(top + 1.0))
            below, above = np.cumsum(cdf**2), np.cumsum((1.0 - cdf[::-1]) ** 2)[::-1]
            i = np.minimum(y, cdf.size).astype(int)
            return np.asarray(np.r_[0.0, below][i] + np.r_[above, 0.0][i] + y - i)
        (*masses, rest), atoms = self.masses, np.array(self.column.atoms)
        inside = None if self.terms is None else in_units(self.column, self.terms)
        own = 0.0 if inside is None else float(inside.mean_difference()[0])

        def away(x: np.ndarray) -> Any:
            """E|x' − x| over the values between the atoms."""
            return 0.0 if inside is None else inside.crps(x[None])[0] + 0.5 * own

        def distance(x: np.ndarray) -> np.ndarray:
            return np.asarray(np.abs(x[:, None] - atoms) @ masses + rest * away(x))

        both = np.sum(masses * (distance(atoms) + rest * away(atoms))) + rest**2 * own
        return distance(y) - 0.5 * both

    def whole_numbers(self) -> tuple[range, np.ndarray]:
        """Whole numbers, and the masses of what is rounded to them; the first and the last one have
        all beyond, which is less than one in a hundred.
        """
        first, last = np.rint(self.ppf(np.array([_TAIL, 1.0 - _TAIL]))).astype(int).tolist()
        if last - first >= _MOST_NUMBERS:
            raise ValueError(
                f"{self.column.name!r} goes from {first} to {last}, too many for probabilities one"
                " by one; use probability of an interval"
            )
        cdf = self.cdf(np.arange(first, last) + 0.5)
        return range(first, last + 1), np.diff(np.r_[0.0, cdf, 1.0])


def in_units(column: Column, terms: Terms) -> PanelDistribution:
    """The distribution of u, in the units of the column between its atoms."""
    parts = []
    for w, term in terms.parts:
        ends = panel_ends(term, tails=False)
        # where a transform is a polynomial to rounding as well, and from the knee another one
        knee = np.clip(math.log(column.knee or 1.0), *ends[[0, -1]])
        ends = np.unique(np.r_[ends, np.arange(*ends[[0, -1]]), knee])

        def log_p(x: np.ndarray, term: Any = term) -> np.ndarray:
            u, log_slope = column.to_line(x)
            return np.asarray(term.log_by_volume(u) + log_slope[:, 0])

        x = np.unique(column.from_line(ends))
        parts.append((w, PanelDistribution.from_log_density(x, log_p)))
    return PanelDistribution.mixture(parts)
