"""CrossValidationDisplay: the held-out score over bandwidths and λ, the pair that won, and the shares of a stack."""

from __future__ import annotations

from typing import Any, Self

import numpy as np
from sklearn.utils.validation import check_is_fitted

from ksos._validation import as_grid, as_positive, as_vector
from ksos.plotting.canvas import Display, colour_map, require_matplotlib, single_axes

__all__ = ["CrossValidationDisplay"]

_CHOSEN, _UNSEEN = "#B5480A", "#e6e6e6"
_SIZE = (6.4, 4.4)
_BANDS, _LARGEST_DOT, _MOST_TICKS, _LEAST_SPAN = 12, 90.0, 9, 1e-3
_LABELS = {"log_likelihood": "held-out log-likelihood, nats per sample", "l2": "held-out L² score", "mmd": "− held-out squared MMD"}


class CrossValidationDisplay(Display):
    r"""The surface of a :class:`~ksos.KernelSoSDensityCV`: a cell per pair of bandwidth and λ, darker where held-out samples fare better.

    Scores far below the best would leave no colours to the cells that matter: those more than ``depth`` below it have the lightest. Cells
    that were not visited, since the path had led away from the best, are grey. A ring marks the pair that was chosen; of a stack, dots with
    areas in proportion to their shares mark the λ that take part in it.

    Parameters
    ----------
    multiples : array (b,)
        Bandwidths, in units of the rule, ascending.
    relative_regularizations : array (l,)
        λ, in units of w₀, descending; the last may be 0.
    scores : array (b, l)
        Higher is better; −inf where there is none.
    chosen : tuple of int, optional
        Position of the chosen pair.
    shares : array (l,), optional
        Of a stack: what each λ of the chosen bandwidth contributes to the density. What is missing to one, another part does.
    label : str
        What the colour stands for.
    unit : str
        The rule that bandwidths are multiples of.
    corrected : bool
        Whether the scores are those of what corrects a reference: bandwidths are then multiples of what suits a kernel density estimate,
        and λ of the mean of ∫k(x,x̃_i)²dρ.

    Attributes
    ----------
    figure_ : Figure
    ax_ : Axes
    artists_ : dict
        "cells", "colorbar", "chosen", "shares".

    Examples
    --------
    >>> import ksos
    >>> X = np.random.default_rng(0).normal(size=(30, 1))
    >>> est = ksos.KernelSoSDensityCV(bandwidths=[0.5, 1.0], relative_regularizations=[1.0, 0.1], cv=2).fit(X)
    >>> from matplotlib.figure import Figure  # or leave ax out: pyplot then makes a figure, and shows it
    >>> display = ksos.CrossValidationDisplay.from_estimator(est, ax=Figure().add_subplot())
    >>> display.ax_.get_ylabel()
    'λ, in units of w₀'
    """

    def __init__(
        self,
        multiples: Any,
        relative_regularizations: Any,
        scores: Any,
        chosen: tuple[int, int] | None = None,
        *,
        shares: Any = None,
        label: str = "held-out score",
        unit: str = "",
        corrected: bool = False,
    ) -> None:
        self.multiples = as_grid(multiples, "multiples", positive=True)
        self.relative_regularizations = as_grid(relative_regularizations, "relative_regularizations", positive=False)
        ascent, descent = np.diff(self.multiples), -np.diff(self.relative_regularizations)
        for what, steps in (("multiples must ascend", ascent), ("relative_regularizations must descend", descent)):
            if np.any(steps <= 0.0):
                entry = int(np.argmax(steps <= 0.0)) + 1
                raise ValueError(f"{what}, without doubles, as those of a fitted search do; entry {entry} does not")
        self.scores, shape = np.asarray(scores, dtype=float), (self.multiples.size, self.relative_regularizations.size)
        if self.scores.shape != shape:
            raise ValueError(f"scores must have a row for each bandwidth and a column for each λ, shape {shape}; got {self.scores.shape}")
        if chosen is None and shares is not None:
            raise ValueError("shares are those of the λ of one bandwidth; say which with chosen=(bandwidth, λ)")
        self.shares = None if shares is None else as_vector(shares, "shares", length=shape[1])
        self.chosen, self.label, self.unit, self.corrected = chosen, label, unit, corrected

    @classmethod
    def from_estimator(cls, estimator: Any, *, ax: Any = None, **options: Any) -> Self:
        """Draw the surface of a fitted :class:`~ksos.KernelSoSDensityCV`; ``ax`` and the options are those of :meth:`plot`."""
        check_is_fitted(estimator)
        if not hasattr(estimator, "bandwidth_multiples_"):
            raise TypeError(f"{type(estimator).__name__} has no surface of scores; a fitted KernelSoSDensityCV is needed")
        multiples, relative_regularizations = estimator.bandwidth_multiples_, estimator.relative_regularizations_
        i = int(np.argmin(np.abs(multiples - estimator.bandwidth_multiple_)))
        j = int(np.argmin(np.abs(relative_regularizations - estimator.relative_regularization_)))
        shares = None
        if "kernel_density" in estimator.weights_:
            shares = np.array([estimator.weights_.get(value, 0.0) for value in relative_regularizations.tolist()])
        told: dict[str, Any] = {"shares": shares, "label": _LABELS[estimator.criterion], "unit": estimator.rule}
        told["corrected"] = "mixtures" in estimator.weights_
        return cls(multiples, relative_regularizations, estimator.scores_, (i, j), **told).plot(ax, **options)

    def plot(self, ax: Any = None, *, depth: float | None = None, cmap: Any = None) -> Self:
        """Draw.

        Parameters
        ----------
        ax : Axes, optional
            Where; default: a new figure.
        depth : float, optional
            How far below the best score the colours reach; default: to the lower quartile of the scores.
        cmap : optional
            A matplotlib colour map; default: white to blue.
        """
        require_matplotlib()
        known = self.scores[np.isfinite(self.scores)]
        if known.size == 0:
            raise ValueError("there is no finite score to draw")
        best = float(known.max())
        span = float(best - np.quantile(known, 0.25)) if depth is None else as_positive(depth, "depth")
        (self.figure_, self.ax_), self.artists_ = single_axes(ax, _SIZE), {}
        x, y = _borders(self.multiples), _borders(self.relative_regularizations)
        self.ax_.set(xscale="log", yscale="log")
        self._draw_cells(x, y, best, max(span, _LEAST_SPAN * max(1.0, abs(best))), cmap)
        self._draw_choice(x, y)
        self._ticks(x, y)
        return self

    def _draw_cells(self, x: np.ndarray, y: np.ndarray, best: float, span: float, cmap: Any) -> None:
        from matplotlib.colors import BoundaryNorm

        colours = colour_map(cmap).with_extremes(bad=_UNSEEN)
        edges = np.linspace(best - span, best, _BANDS + 1)
        seen = np.isfinite(self.scores)
        shown = np.ma.masked_array(np.where(seen, np.clip(self.scores, edges[0], best), edges[0]), ~seen).T
        cells = self.ax_.pcolormesh(x, y, shown, cmap=colours, norm=BoundaryNorm(edges, colours.N), rasterized=True)
        decimals = int(np.clip(np.ceil(-np.log10(span / _BANDS)), 0, 12))  # so many tell the bands of the colour bar apart
        bar = self.figure_.colorbar(cells, ax=self.ax_, format=f"%.{decimals}f", label=self.label)
        self.artists_ |= {"cells": cells, "colorbar": bar}

    def _draw_choice(self, x: np.ndarray, y: np.ndarray) -> None:
        """A ring, and dots for the shares."""
        if self.chosen is None:
            return
        i, j = self.chosen
        across, up = _middles(x)[i], _middles(y)
        ring: dict[str, Any] = {"markersize": 13, "markeredgewidth": 1.8, "color": _CHOSEN, "markerfacecolor": "none"}
        label = f"chosen: score {self.scores[i, j]:.4g}"
        (self.artists_["chosen"],) = self.ax_.plot(across, up[j], "o", label=label, clip_on=False, zorder=3.0, linestyle="none", **ring)
        if self.shares is not None:
            used = self.shares > 0.0
            rest = 1.0 - float(self.shares.sum())
            label = "shares of the stack" + (f", {rest:.1%} {'others' if self.corrected else 'kernel density'}" if rest > 0.0 else "")
            dots: dict[str, Any] = {"s": _LARGEST_DOT * self.shares[used], "color": _CHOSEN, "linewidths": 0.0, "zorder": 2.5}
            self.artists_["shares"] = self.ax_.scatter(np.full(used.sum(), across), up[used], label=label, **dots)
        self.ax_.legend(loc="lower center", bbox_to_anchor=(0.5, 1.0), frameon=False, fontsize="small", ncols=2)

    def _ticks(self, x: np.ndarray, y: np.ndarray) -> None:
        from matplotlib.ticker import FixedLocator, NullLocator

        across = f"bandwidth, in units of the rule {self.unit!r}" if self.unit else "bandwidth"
        if self.corrected:
            across = "bandwidth, in units of that of a kernel density estimate"
        self.ax_.set(xlabel=across, ylabel="λ, in units of ∫k²dρ" if self.corrected else "λ, in units of w₀")
        for axis, values, borders in ((self.ax_.xaxis, self.multiples, x), (self.ax_.yaxis, self.relative_regularizations, y)):
            some = slice(None, None, -(-values.size // _MOST_TICKS))
            axis.set_major_locator(FixedLocator(_middles(borders)[some].tolist()))
            axis.set_minor_locator(NullLocator())
            axis.set_ticklabels([f"{value:.2g}" for value in values[some]])


def _borders(values: np.ndarray) -> np.ndarray:
    """The borders of cells around ``values`` on a logarithmic scale; a last value of 0 gets the cell below the others."""
    logs = np.log(values[values > 0.0])
    if logs.size < values.size:
        step = logs[-1] - logs[-2] if logs.size > 1 else -1.0
        logs = np.append(logs, logs[-1] + step if logs.size else 0.0)
    if logs.size == 1:
        return np.exp(logs[0] + np.array([-0.3, 0.3]))
    inner = 0.5 * (logs[1:] + logs[:-1])
    return np.exp(np.concatenate([[2.0 * logs[0] - inner[0]], inner, [2.0 * logs[-1] - inner[-1]]]))


def _middles(borders: np.ndarray) -> np.ndarray:
    return np.sqrt(borders[:-1] * borders[1:])
