"""ConditionalDisplay: the distributions of y given x as a fan of quantiles or bars of levels, and
whether held-out data follow them.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any, Self

import numpy as np
from scipy.stats import binom
from sklearn.utils.validation import check_is_fitted

from ksos.ground.validation import as_choice, as_count, as_levels, as_vector
from ksos.plotting.canvas import Display, color_map, single_axes

if TYPE_CHECKING:
    from matplotlib.axes import Axes


_KINDS = ("fan", "pit", "calibration", "levels")
_LEVELS = (0.05, 0.15, 0.25, 0.35, 0.5, 0.65, 0.75, 0.85, 0.95)  # 90, 70, 50, 30%, median
_LINE, _DATA, _BAND = "#234484", "#B5480A", "#d7e9f5"
_CONFIDENCE = 0.95  # of the band that a correct model stays in, bar by bar or level by level


class ConditionalDisplay(Display):
    r"""The conditional distributions of a fitted :class:`~ksos.KernelSoSConditional` on rows (x_i,
    y_i).

    Rows that it was not fitted to show its quality best.

    * ``"fan"``: the quantiles of y given x_i, row after row, darker towards the median, with the
      y_i on top;
    * ``"levels"``, of a categorical y: a bar for each row, cut into the probabilities of the
      levels, with a dot in the part of the level y_i;
    * ``"pit"``: the histogram of u_i = F(y_i | x_i), which is uniform if the model is right (a
      hump: too wide; a bowl: too narrow;
      a slope: shifted);
    * ``"calibration"``: for every level q the share of the y_i below their quantile q, which is q
      if the model is right.

    The shaded band of the last two holds each bar, or each share, with probability 95% if the model
    is right.

    Parameters
    ----------
    kind : {"fan", "pit", "calibration", "levels"}
    quantiles : array (rows, levels)
        In the order of ``levels``; of a categorical y, their probabilities.
    levels : sequence of float
        Increasing; of a categorical y, its levels.
    y : array (rows,), optional
    pit : array (rows,), optional
        The u_i.
    position : array (rows,), optional
        Where each row is drawn in a fan; default: by its rank in the predicted median.
    label : str, optional
        Of the positions.

    Attributes
    ----------
    figure_ : Figure
    ax_ : Axes
    artists_ : dict
        "bands", "median", "data" of a fan; "bars" by level, "data" of levels; "bars", "band" of a
        histogram; "line", "band", "diagonal" of a calibration.

    Examples
    --------
    >>> import numpy as np, ksos
    >>> from matplotlib.figure import Figure  # without ax, pyplot makes and shows a figure
    >>> ax = Figure().add_subplot()
    >>> rng = np.random.default_rng(0)
    >>> X = rng.normal(size=(60, 1))
    >>> y = X[:, 0] + rng.normal(size=60)
    >>> from sklearn.linear_model import LinearRegression
    >>> est = ksos.KernelSoSConditional(LinearRegression()).fit(X, y)
    >>> display = ksos.ConditionalDisplay.from_estimator(est, X, y, kind="calibration", ax=ax)
    >>> display.ax_.get_xlabel()
    'level'
    """

    def __init__(
        self,
        kind: str,
        quantiles: np.ndarray,
        levels: Sequence[Any],
        y: np.ndarray | None = None,
        pit: np.ndarray | None = None,
        *,
        position: np.ndarray | None = None,
        label: str | None = None,
    ) -> None:
        self.kind, self.quantiles, self.levels = kind, quantiles, levels
        self.y, self.pit, self.position, self.label = y, pit, position, label

    @classmethod
    def from_estimator(
        cls,
        estimator: Any,
        X: Any,
        y: Any = None,
        *,
        kind: str | None = None,
        levels: Any = _LEVELS,
        against: Any = None,
        ax: Any = None,
        **options: Any,
    ) -> Self:
        """Ask ``estimator`` for the distributions at the rows of ``X`` and draw them.

        Parameters
        ----------
        estimator : fitted KernelSoSConditional with a single output
        X, y : rows; ``y`` is optional for a fan and for levels
        kind : {"fan", "pit", "calibration", "levels"}, optional
            Default: "levels" of a categorical y, else "fan".
        levels : sequence of float
            Of the fan: pairs around the median. A calibration asks for 0.01, 0.02 … 0.99.
        against : int or str, optional
            The column of ``X`` along which a fan is drawn; default: rows in the order of their
            predicted medians. Levels have rows in the order of the probability of the first level.
        ax, **options : those of :meth:`plot`
        """
        check_is_fitted(estimator)
        categorical = hasattr(estimator, "predict_proba")
        kind = "levels" if categorical and kind is None else "fan" if kind is None else kind
        as_choice(kind, "kind", _KINDS)
        if categorical != (kind == "levels"):
            target = "categorical" if categorical else "a number"
            raise ValueError(
                f"kind={kind!r} does not fit y, which is {target}: a categorical y has"
                " kind='levels', which no other y has"
            )
        if kind not in ("fan", "levels") and y is None:
            raise ValueError(
                f"y must be given: a {kind} display compares the distributions with the targets;"
                " got None"
            )
        if kind != "fan" and against is not None:
            raise ValueError(
                f"against is the horizontal axis of a fan; a {kind} display has none, got"
                f" {against!r}"
            )
        if kind == "levels":
            known, chances = list(estimator.classes_), estimator.predict_proba(X)
            rows = None if y is None else np.array([known.index(one) for one in np.asarray(y)])
            return cls(kind, chances, known, rows).plot(ax, **options)
        fan = np.unique(np.atleast_1d(as_levels(levels)))
        wanted = fan if kind == "fan" else np.arange(1, 100) / 100.0
        quantiles = np.asarray(estimator.predict_quantile(X, wanted))
        targets = None if y is None else as_vector(y, "y")
        pit = np.asarray(estimator.cdf(X, targets)) if kind == "pit" else None
        position = None if against is None else _column(X, against)
        label = None if against is None else against if isinstance(against, str) else f"x{against}"
        return cls(
            kind, quantiles, wanted.tolist(), targets, pit, position=position, label=label
        ).plot(ax, **options)

    def plot(self, ax: Any = None, *, bins: int = 20, cmap: Any = None) -> Self:
        """Draw.

        Parameters
        ----------
        ax : Axes, optional
            Where; default: a new figure.
        bins : int
            Bars of a PIT histogram.
        cmap : color map, optional
            Of a fan; default: from white to blue.
        """
        bars = as_count(bins, "bins", minimum=1)
        (self.figure_, self.ax_), self.artists_ = single_axes(ax, (6.0, 4.0)), {}
        draw = {"fan": self._draw_fan, "pit": self._draw_pit, "calibration": self._draw_calibration}
        draw["levels"] = self._draw_levels
        draw[self.kind](self.ax_, bars, cmap)
        return self

    def _draw_levels(self, ax: Axes, _: int, cmap: Any) -> None:
        p, colors = self.quantiles, color_map(cmap)
        order = np.argsort(-p[:, 0], kind="stable")
        p, at = p[order], np.arange(p.shape[0])
        below = np.cumsum(p, axis=1) - p
        self.artists_["bars"] = [
            ax.bar(
                at,
                p[:, k],
                1.0,
                below[:, k],
                color=colors((k + 0.5) / len(self.levels)),
                label=str(level).replace("$", r"\$"),
            )
            for k, level in enumerate(self.levels)
        ]
        if self.y is not None:
            own = self.y[order].astype(int)
            (self.artists_["data"],) = ax.plot(
                at, (below + 0.5 * p)[at, own], ".", color=_DATA, markersize=3.0, label="data"
            )
        ax.set(xlabel="row, in the order of the first level", ylabel="probability", ylim=(0.0, 1.0))
        ax.legend(loc="best", frameon=True, fontsize="small")

    def _draw_fan(self, ax: Axes, _: int, cmap: Any) -> None:
        levels, q, colors = np.asarray(self.levels), self.quantiles, color_map(cmap)
        median = int(np.argmin(np.abs(levels - 0.5)))
        ranks = np.argsort(np.argsort(q[:, median], kind="stable"))
        at = ranks if self.position is None else self.position
        order = np.argsort(at, kind="stable")
        self.artists_["bands"] = [
            ax.fill_between(
                at[order],
                q[order, k],
                q[order, -1 - k],
                color=colors(0.15 + 1.1 * levels[k]),
                linewidth=0.0,
            )
            for k in range(levels.size // 2)
        ]
        (self.artists_["median"],) = ax.plot(
            at[order],
            q[order, median],
            color=_LINE,
            linewidth=1.2,
            label=f"quantile {levels[median]:g}",
        )
        if self.y is not None:
            (self.artists_["data"],) = ax.plot(
                at, self.y, ".", color=_DATA, markersize=3.0, label="data", zorder=2.5
            )
        ax.set(
            xlabel=self.label or "row, in the order of the medians",
            ylabel="y",
            title=f"quantiles {levels[0]:g} to {levels[-1]:g}",
        )
        ax.legend(loc="best", frameon=False, fontsize="small")

    def _draw_pit(self, ax: Axes, bins: int, _: Any) -> None:
        assert self.pit is not None
        counts, edges = np.histogram(self.pit, bins=bins, range=(0.0, 1.0))
        n = self.pit.size
        low, high = (float(bins * end / n) for end in binom.interval(_CONFIDENCE, n, 1.0 / bins))
        self.artists_["band"] = ax.axhspan(low, high, color=_BAND, linewidth=0.0, zorder=0.5)
        self.artists_["bars"] = ax.bar(
            edges[:-1],
            counts * bins / n,
            width=1.0 / bins,
            align="edge",
            color="#6a98c3",
            edgecolor="white",
        )
        ax.axhline(1.0, color=_LINE, linewidth=1.0, linestyle="--")
        ax.set(
            xlim=(0.0, 1.0),
            xlabel="F(y | x)",
            ylabel="density",
            title=f"probability integral transform, {n} rows",
        )

    def _draw_calibration(self, ax: Axes, *_: Any) -> None:
        assert self.y is not None
        levels, n = np.asarray(self.levels), self.y.size
        share = np.mean(self.y[:, None] <= self.quantiles, axis=0)
        low, high = (np.asarray(end) / n for end in binom.interval(_CONFIDENCE, n, levels))
        self.artists_["band"] = ax.fill_between(
            levels, low, high, color=_BAND, linewidth=0.0, label="95% if the model is right"
        )
        (self.artists_["diagonal"],) = ax.plot(
            [0.0, 1.0], [0.0, 1.0], color="0.5", linewidth=0.8, linestyle="--"
        )
        (self.artists_["line"],) = ax.plot(
            levels, share, color=_LINE, linewidth=1.5, label="share of y below"
        )
        ax.set(
            xlim=(0.0, 1.0),
            ylim=(0.0, 1.0),
            xlabel="level",
            ylabel="share below the quantile",
            aspect="equal",
        )
        ax.legend(loc="upper left", frameon=False, fontsize="small")


# The column of a table by name or position, as numbers.
def _column(X: Any, against: int | str) -> np.ndarray:
    try:
        values = X[against] if isinstance(against, str) else np.asarray(X)[:, against]
    except (KeyError, IndexError, TypeError):
        raise ValueError(
            f"against={against!r} is no column of X; name one of its columns, or give its position"
        ) from None
    return as_vector(np.asarray(values), f"column {against!r}")
