"""TableDisplay: the columns of a table of any kind, each with bars where values have probabilities
and a curve where they have a density.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any, Self

import numpy as np

from ksos.density import TableDensity
from ksos.ground.validation import as_features
from ksos.plotting.canvas import Display, axes_grid, require_matplotlib

if TYPE_CHECKING:
    from matplotlib.axes import Axes


_POINTS = 300  # of a curve: finer than a figure shows
_SHARE = 0.01  # of the mass beyond each end of a curve: far tails would squeeze the rest
_MOST_BARS = 40  # of a count: more cannot be told apart


class TableDisplay(Display):
    """A figure of the columns of a :class:`~ksos.TableDensity`; make it with :meth:`from_density`.

    Categories, counts and values with a mass of their own are bars with their probabilities.
    Elsewhere a curve shows the density. Dots are the shares of the data.

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
    ax_ : array of Axes
        One for each column.

    Examples
    --------
    >>> import pandas, ksos
    >>> from matplotlib.figure import Figure
    >>> table = pandas.DataFrame({"a": ["x", "y"] * 30, "b": [0.1, 1.2, 0.3, 1.1, 0.2, 1.4] * 10})
    >>> search = ksos.KernelSoSDensityCV(cv=3, relative_regularizations=[float("inf")])
    >>> ax = Figure().add_subplot()
    >>> display = ksos.TableDisplay.from_density(search.fit(table).distribution_, table, ax=ax)
    >>> [one.get_xlabel() for one in display.ax_]
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
        require_matplotlib()
        k = len(self.columns)
        self.figure_, grid = axes_grid(ax, 1, k, (2.6 * k + 0.6, 2.8), wspace=0.35, hspace=0.0)
        self.ax_ = np.ravel(grid)
        cells = None if self.X is None else self.density.columns.read(self.X)
        for here, column in zip(self.ax_, self.columns, strict=True):
            known = None if cells is None else cells[~np.isnan(cells[:, column]), column]
            self._draw(here, column, known)
        return self

    def _draw(self, ax: Axes, k: int, known: np.ndarray | None) -> None:
        column, density = self.density.columns.listed[k], self.density.only(k)
        ax.set_xlabel(column.name)
        if not column.is_numeric:
            places = np.arange(len(column.levels), dtype=np.float64)
            ax.bar(places, density.probabilities(0).to_numpy(), color="C0", alpha=0.6)
            ax.set_xticks(places, [str(level) for level in column.levels])
        else:
            places = np.array(column.atoms)
            if column.kind == "count":
                last = min(float(density.ppf(1.0 - _SHARE)), float(_MOST_BARS))
                places = np.arange(last + 1.0)
            masses = [density.probability({0: x}, {0: x}) for x in places]
            if column.kind != "count":
                self._curve(ax, density, column)
            width = 0.8 if column.kind == "count" else 0.02 * np.ptp(ax.get_xlim())
            ax.bar(places, masses, width=width, color="C1", alpha=0.6)
        ax.set_ylabel("probability" if column.has_masses else "density")
        if known is not None and places.size:
            shares = [np.mean(known == x) for x in places]
            ax.plot(places, shares, "k.", markersize=5, label="data")

    def _curve(self, ax: Axes, density: TableDensity, column: Any) -> None:
        """The density of values that have no mass, between far quantiles."""
        low, high = column.low, column.high
        if column.kind != "circular":
            low, high = density.ppf([_SHARE, 1.0 - _SHARE]).tolist()
        x = np.linspace(low, high, _POINTS)
        x = x[~np.isin(x, column.atoms)]
        ax.plot(x, density.pdf(density.columns.frame(x[:, None])), color="C0")
