"""TableDisplay: the columns of a table of any kind and their pairs, with bars where values have
probabilities, curves where they have a density, and tiles for pairs of categories.
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import cache
from typing import TYPE_CHECKING, Any, Self

import numpy as np

from ksos.density import Column, TableDensity
from ksos.ground.validation import as_features
from ksos.plotting.canvas import Display, axes_grid, color_map, lower_triangle

if TYPE_CHECKING:
    from matplotlib.axes import Axes


_POINTS = 300  # of a curve: finer than a figure shows
_SIDE = 61  # points along a side of a panel of a pair: a panel has 150 pixels
_SHARE = 0.01  # of the mass beyond each end of a curve: far tails would squeeze the rest
_DRAWS = 2000  # rows that show where values lie: the ends of a column are right to 1% of the mass
_MOST_BARS = 40  # of a count: more cannot be told apart
_HEIGHT = 0.85  # of the place of a level, for its density: neighbors do not touch
_MOST_DOTS = 2000  # more are one dark patch
_LONGEST = 9  # characters of a level: a panel of a grid has 10
_BANDS = 12  # of color


def table_size(k: int) -> tuple[float, float]:
    """Width and height in inches of a figure of ``k`` columns."""
    return (4.6, 3.4) if k == 1 else (1.95 * k + 0.8, 1.75 * k + 0.4)


class TableDisplay(Display):
    """A figure of the columns of a :class:`~ksos.TableDensity`; make it with :meth:`from_density`.

    Categories, counts and values with a mass of their own are bars with their probabilities.
    Elsewhere a curve shows the density. Dots are the shares of the data. Several columns make a
    grid with every pair: contours for two numbers, a density for each level for a number and a
    category, tiles for two categories. In pairs, values with a mass of their own are excluded.

    Parameters
    ----------
    density : TableDensity
    columns : sequence of int
        The columns that are shown.
    X : data frame, optional
        Data to show with it.

    Attributes
    ----------
    figure_ : Figure
    ax_ : array of Axes, (k, k)
        Columns on the diagonal, pairs below it.

    Examples
    --------
    >>> import pandas, ksos
    >>> from matplotlib.figure import Figure
    >>> table = pandas.DataFrame({"a": ["x", "y"] * 30, "b": [0.1, 1.2, 0.3, 1.1, 0.2, 1.4] * 10})
    >>> search = ksos.KernelSoSDensityCV(cv=3, relative_regularizations=[float("inf")])
    >>> ax = Figure().add_subplot()
    >>> display = ksos.TableDisplay.from_density(search.fit(table).distribution_, table, ax=ax)
    >>> [one.get_xlabel() for one in display.ax_[1]]
    ['a', 'b']
    """

    def __init__(self, density: TableDensity, columns: Sequence[int], X: Any = None) -> None:
        self.density, self.columns, self.X = density, tuple(columns), X

    @classmethod
    def from_density(
        cls, density: TableDensity, X: Any = None, *, columns: Any = None, ax: Any = None
    ) -> Self:
        """Draw the columns of ``density``.

        Parameters
        ----------
        density : TableDensity
        X : data frame, optional
            Data to show with it.
        columns : sequence of int or str, optional
            Which columns to show. Default: all.
        ax : Axes, optional
            The place that is divided. Default: a new figure.
        """
        if not isinstance(density, TableDensity):
            raise TypeError(f"a ksos.TableDensity is needed; got {density!r}; use DensityDisplay")
        d = density.n_features
        names = [column.name for column in density.columns.listed]
        chosen = as_features(range(d) if columns is None else columns, d, "columns", names)
        return cls(density, chosen, X).plot(ax)

    def plot(self, ax: Any = None) -> Self:
        """Draw.

        Parameters
        ----------
        ax : Axes, optional
        """
        k, gaps = len(self.columns), {"wspace": 0.06, "hspace": 0.06}
        self.figure_, self.ax_ = axes_grid(ax, k, k, table_size(k), **gaps)
        cells = None if self.X is None else self.density.columns.read(self.X)
        drawn = self.density.columns.read(self.density.rvs(_DRAWS, rng=0))
        self._drawn, self._window = drawn, cache(self._find_window)
        for i, j, here in lower_triangle(self.ax_):
            row, column = self.columns[i], self.columns[j]
            known = None
            if cells is not None:
                known = cells[:, [column, row]]
                known = known[~np.isnan(known).any(axis=1)]
            if i == j:
                self._draw(here, row, None if known is None else known[:, 0])
            else:
                self._draw_pair(here, column, row, known)
                self._name(here.yaxis, row)
            self._name(here.xaxis, column)
            if k > 1:
                here.label_outer(remove_inner_ticks=True)
                if i == j:
                    here.set(yticks=[], ylabel="")
        self.figure_.align_ylabels(list(self.ax_[:, 0]))
        return self

    # Where the values of a column are shown.
    def _find_window(self, k: int) -> tuple[float, float]:
        column = self.density.columns.listed[k]
        if not column.is_numeric:
            return -0.5, len(column.levels) - 0.5
        if column.kind == "circular":
            return column.low, column.high
        low, high = np.quantile(self._drawn[:, k], [_SHARE, 1.0 - _SHARE])
        if column.kind == "count":
            return -0.5, min(float(np.ceil(high)), float(_MOST_BARS)) + 0.5
        ends = [low, high, *column.atoms]
        margin = 0.03 * (max(ends) - min(ends))
        return min(ends) - margin, max(ends) + margin

    # Values of a column: all that have masses, else a grid between them.
    def _places(self, k: int, points: int) -> np.ndarray:
        column, (low, high) = self.density.columns.listed[k], self._window(k)
        if column.has_masses:
            return np.arange(low + 0.5, high)
        x = np.linspace(max(low, column.low), min(high, column.high), points)
        inside = (x > column.low) & (x < column.high) if column.kind != "circular" else x == x
        return x[inside & ~np.isin(x, column.atoms)]

    def _name(self, axis: Any, k: int) -> None:
        column = self.density.columns.listed[k]
        axis.set_label_text(column.name.replace("$", r"\$"))
        if not column.is_numeric:
            words = [str(level).replace("$", r"\$") for level in column.levels]
            short = [w if len(w) <= _LONGEST else f"{w[: _LONGEST - 1]}…" for w in words]
            axis.set_ticks(np.arange(len(words)), short)
            if axis.axis_name == "x" and sum(map(len, short)) > 2 * _LONGEST:
                axis.set_tick_params(rotation=45)

    def _draw(self, ax: Axes, k: int, known: np.ndarray | None) -> None:
        column, density = self.density.columns.listed[k], self.density.only(k)
        atoms = np.array(column.atoms) if column.kind != "count" else self._places(k, 0)
        if not column.is_numeric:
            atoms = self._places(k, 0)
            masses = np.ravel(density.probabilities(0))
        else:
            masses = np.array([density.probability({0: x}, {0: x}) for x in atoms])
        if not column.has_masses:
            x = self._places(k, _POINTS)
            ax.plot(x, density.pdf(density.columns.frame(x[:, None])), color="C0")
        low, high = self._window(k)
        width = 0.8 if column.has_masses else 0.03 * (high - low)
        color = "C1" if column.is_numeric else "C0"
        ax.bar(atoms, masses, width=width, color=color, alpha=0.6)
        ax.set_ylabel("probability" if column.has_masses else "density")
        ax.set_xlim(low, high)
        if known is not None and atoms.size:
            shares = [np.mean(known == x) for x in atoms]
            ax.plot(atoms, shares, "k.", markersize=5, label="data")
        ax.set_ylim(bottom=0.0)

    # Column ``a`` along x and ``b`` along y.
    def _draw_pair(self, ax: Axes, a: int, b: int, known: np.ndarray | None) -> None:
        one, other = (self.density.columns.listed[k] for k in (a, b))
        x, y = self._places(a, _SIDE), self._places(b, _SIDE)
        pair = self.density.only(a, b)
        cells = np.stack([grid.ravel() for grid in np.meshgrid(x, y)], axis=1)
        values = pair.pdf(pair.columns.frame(cells)).reshape(y.size, x.size)
        numbers, masses = one.is_numeric + other.is_numeric, one.has_masses + other.has_masses
        if numbers == 2 and not masses:
            levels = np.linspace(0.0, float(values.max()), _BANDS)
            # a band has the color of its middle: the lowest one is that of no density
            ax.contourf(x, y, values, levels, cmap=color_map(None), vmin=0.5 * levels[1])
        elif numbers == 1 and masses == 1:
            self._by_level(ax, x, y, values, one, known)
        else:
            ax.pcolormesh(x, y, values, cmap=color_map(None), vmin=0.0, shading="nearest")
        if numbers == 2 and known is not None:
            some = known[:: max(len(known) // _MOST_DOTS, 1)]
            ax.plot(*some.T, "k.", markersize=2.0, alpha=0.4)
        ax.set_xlim(self._window(a))
        ax.set_ylim(self._window(b))

    # A number and a category: the density of the number at each level, on its own line.
    def _by_level(
        self,
        ax: Axes,
        x: np.ndarray,
        y: np.ndarray,
        values: np.ndarray,
        one: Column,
        known: np.ndarray | None,
    ) -> None:
        upright = not one.is_numeric
        values = values.T if upright else values
        levels, line = (x, y) if upright else (y, x)
        unit = _HEIGHT / max(float(values.max()), np.finfo(float).tiny)
        for level, height in zip(levels, values * unit, strict=True):
            base = level - 0.5 * _HEIGHT
            draw = ax.fill_betweenx if upright else ax.fill_between
            draw(line, base, base + height, color="C0", alpha=0.6, linewidth=0.0)
        if known is not None:
            level, value = known.T if upright else known.T[::-1]
            base = level - 0.5 * _HEIGHT - 0.03
            at = (base, value) if upright else (value, base)
            ax.plot(*at, "_" if upright else "|", color="k", markersize=3, alpha=0.3)
