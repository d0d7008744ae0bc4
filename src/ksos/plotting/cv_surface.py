"""CrossValidationDisplay: the held-out scores of a search over bandwidths and λ, and the pair that
was chosen.
"""

from __future__ import annotations

from typing import Any, Self

import numpy as np
from sklearn.utils.validation import check_is_fitted

from ksos.ground.validation import as_grid, as_positive
from ksos.plotting.canvas import Display, color_map, single_axes

_CHOSEN, _LINE, _UNSEEN, _NEAR = "#B5480A", "#375f99", "#e6e6e6", "#1a1a1a"
_BANDS = 12  # of color: as many as an eye tells apart in a color bar
_MOST_TICKS = 9  # on an axis, and at most 1.6 per inch
_LEAST_SPAN = 1e-3  # of the best score: smaller differences are rounding and chance
_LABELS = {
    "log_likelihood": "held-out score, nats per sample",
    "l2": "held-out L² score",
    "mmd": "− held-out squared MMD",
}


class CrossValidationDisplay(Display):
    r"""The held-out scores of a :class:`~ksos.KernelSoSDensityCV` by bandwidth and λ.

    With several bandwidths: a cell per pair, darker if the score is higher. λ = ∞ gives the
    reference whatever the bandwidth, and has one row across all of them. Pairs that were not scored
    are gray. Black outlines mark the pairs whose score is within one standard error of the best.
    With one bandwidth: a curve of the score over λ. Bars are one standard error of the paired
    difference to the best pair. A ring marks the chosen pair in both.

    Parameters
    ----------
    bandwidth_multiples : array-like of shape (n,)
        The bandwidth of every pair.
    relative_regularizations : array-like of shape (n,)
        The λ of every pair. 0 and inf are allowed.
    scores : array-like of shape (n,)
        The score of every pair. Higher is better, −inf stands for none.
    standard_errors : array-like of shape (n,), optional
        Standard error of the difference between each score and the best one. NaN stands for none.
    chosen : int, optional
        Position of the chosen pair.
    label : str
        What is drawn, with its unit.
    corrected : bool
        Whether λ is in units of the mean of ∫k(x,x̃_i)²dρ, as over a reference ρ, rather than of
        w₀.

    Attributes
    ----------
    figure_ : Figure
    ax_ : Axes
    artists_ : dict
        "cells", "colorbar", "near" and "chosen", or "scores", "errors" and "chosen".

    Examples
    --------
    >>> import ksos
    >>> X = np.random.default_rng(0).normal(size=(30, 1))
    >>> strengths = [1.0, 0.1]
    >>> est = ksos.KernelSoSDensityCV([2.0, 3.0], strengths, cv=2)
    >>> est = est.fit(X)
    >>> from matplotlib.figure import Figure  # without ax, pyplot makes and shows a figure
    >>> ax = Figure().add_subplot()
    >>> display = ksos.CrossValidationDisplay.from_estimator(est, ax=ax)
    >>> display.ax_.get_ylabel()
    'λ, in units of ∫k²dρ'
    """

    def __init__(
        self,
        bandwidth_multiples: Any,
        relative_regularizations: Any,
        scores: Any,
        standard_errors: Any = None,
        *,
        chosen: int | None = None,
        label: str = "held-out score",
        corrected: bool = False,
    ) -> None:
        multiples = as_grid(bandwidth_multiples, "bandwidth_multiples", positive=True)
        strengths = as_grid(
            relative_regularizations, "relative_regularizations", positive=False, infinite=True
        )
        n, self.scores = multiples.size, np.asarray(scores, dtype=float)
        self.standard_errors = np.full(n, np.nan)
        if standard_errors is not None:
            self.standard_errors = np.asarray(standard_errors, dtype=float)
        shapes = [array.shape for array in (strengths, self.scores, self.standard_errors)]
        if shapes != [(n,)] * 3:
            raise ValueError(f"there must be an entry for each of the {n} pairs; got {shapes}")
        if chosen is not None and not 0 <= chosen < n:
            raise ValueError(f"chosen must be the position of one of the {n} pairs; got {chosen!r}")
        if len(set(zip(multiples.tolist(), strengths.tolist(), strict=True))) < n:
            raise ValueError("every pair of bandwidth and λ must have one score; some have two")
        self.bandwidth_multiples, self.relative_regularizations = multiples, strengths
        self.chosen, self.label, self.corrected = chosen, label, corrected

    @classmethod
    def from_estimator(cls, estimator: Any, *, ax: Any = None, **options: Any) -> Self:
        """Draw the scores of a fitted :class:`~ksos.KernelSoSDensityCV`; ``ax`` and the options are
        those of :meth:`plot`.
        """
        check_is_fitted(estimator)
        results = getattr(estimator, "cv_results_", None)
        if not isinstance(results, dict) or "bandwidth_multiple" not in results:
            raise TypeError(
                f"{type(estimator).__name__} has no scores of bandwidths and λ; a fitted"
                " KernelSoSDensityCV is needed"
            )
        names = ("bandwidth_multiple", "relative_regularization")
        is_best = np.all([results[name] == estimator.best_params_[name] for name in names], axis=0)
        return cls(
            *(results[name] for name in (*names, "mean_test_score", "standard_error")),
            chosen=int(np.argmax(is_best)) if is_best.any() else None,
            label=_LABELS[estimator.criterion],
            corrected=estimator.reference_ is not None,
        ).plot(ax, **options)

    @property
    def near(self) -> np.ndarray:
        """Whether each pair is within one standard error of the best, shape (n,)."""
        errors = np.nan_to_num(self.standard_errors, nan=-1.0)
        return np.isfinite(self.scores) & (self.scores.max() - self.scores <= errors)

    def plot(self, ax: Any = None, *, depth: float | None = None, cmap: Any = None) -> Self:
        """Draw.

        Parameters
        ----------
        ax : Axes, optional
            Where to draw. Default: a new figure.
        depth : float, optional
            How far below the best score the colors, or the curve, reach. Default: the median of the
            scores for colors, all scores for a curve.
        cmap : optional
            A matplotlib color map. Default: white to blue.
        """
        known = self.scores[np.isfinite(self.scores)]
        if known.size == 0:
            raise ValueError("there is no finite score to draw")
        depth = None if depth is None else as_positive(depth, "depth")
        (self.figure_, self.ax_), self.artists_ = single_axes(ax, (6.4, 4.4)), {}
        inches, best = float(self.figure_.bbox.width / self.figure_.dpi), float(known.max())
        ticks = min(int(1.6 * inches), _MOST_TICKS)
        if np.unique(self.bandwidth_multiples).size == 1:
            self._draw_curve(best, depth, ticks)
        else:
            span = best - float(np.median(known)) if depth is None else depth
            self._draw_surface(best, max(span, _LEAST_SPAN * max(1.0, abs(best))), cmap, ticks)
        if self.ax_.get_legend_handles_labels()[0]:
            # two entries are as wide as that
            columns = 2 if inches >= 5.5 else 1
            above = {"loc": "lower center", "bbox_to_anchor": (0.5, 1.0), "ncols": columns}
            self.ax_.legend(frameon=False, fontsize="small", **above)
        return self

    # Scores of one bandwidth over λ in equal steps, from ∞ on the left to small ones: from simple
    # to complex, as the search compares them.
    def _draw_curve(self, best: float, depth: float | None, ticks: int) -> None:
        ax, order = self.ax_, np.argsort(-self.relative_regularizations)
        strengths, scores = self.relative_regularizations[order], self.scores[order]
        x, errors, seen = np.arange(order.size), self.standard_errors[order], np.isfinite(scores)
        finite = seen & np.isfinite(strengths)
        (line,) = ax.plot(x[finite], scores[finite], "-", color=_LINE, linewidth=1.3)
        bars = ax.errorbar(
            x[seen],
            scores[seen],
            np.nan_to_num(errors[seen]),
            fmt="o",
            color=_LINE,
            markersize=4.5,
            capsize=3.0,
            linewidth=1.0,
            label="± standard error of the difference" if np.isfinite(errors[seen]).any() else None,
        )
        self.artists_ |= {"scores": line, "errors": bars}
        if self.chosen is not None and np.isfinite(self.scores[self.chosen]):
            self._ring(float(np.flatnonzero(order == self.chosen)[0]), self.scores[self.chosen])
        ax.axhline(best, color=_LINE, linewidth=0.7, linestyle=":")
        if depth is not None:
            ax.set_ylim(best - depth, best + 0.25 * depth)
        ax.set(xlabel=self._unit, ylabel=self.label, xlim=(-0.6, x.size - 0.4))
        _label(ax.xaxis, x, strengths, ticks)
        ax.spines[["top", "right"]].set_visible(False)

    # Cells in equal steps: bandwidths ascend to the right, λ ascend upwards.
    def _draw_surface(self, best: float, span: float, cmap: Any, ticks: int) -> None:
        from matplotlib.colors import BoundaryNorm
        from matplotlib.patches import Rectangle

        multiples, columns = np.unique(self.bandwidth_multiples, return_inverse=True)
        strengths, rows = np.unique(self.relative_regularizations, return_inverse=True)
        ends = columns + 1
        infinite = np.flatnonzero(np.isinf(self.relative_regularizations))
        # a single pair stands for all bandwidths
        if infinite.size == 1:
            columns[infinite], ends[infinite] = 0, multiples.size
        edges = np.linspace(best - span, best, _BANDS + 1)
        values = np.ma.masked_all((strengths.size, multiples.size))  # type: ignore[no-untyped-call]
        for k in np.flatnonzero(np.isfinite(self.scores)):
            values[rows[k], columns[k] : ends[k]] = np.clip(self.scores[k], edges[0], best)
        colors = color_map(cmap).with_extremes(bad=_UNSEEN)
        cells = self.ax_.pcolormesh(
            np.arange(multiples.size + 1) - 0.5,
            np.arange(strengths.size + 1) - 0.5,
            values,
            cmap=colors,
            norm=BoundaryNorm(edges, colors.N),
            rasterized=True,
        )
        # so many decimals tell the bands of the color bar apart
        decimals = int(np.clip(np.ceil(-np.log10(span / _BANDS)), 0, 12))
        bar = self.figure_.colorbar(cells, ax=self.ax_, format=f"%.{decimals}f", label=self.label)
        self.artists_ |= {"cells": cells, "colorbar": bar, "near": []}
        for k in np.flatnonzero(self.near):
            frame = Rectangle(
                (columns[k] - 0.46, rows[k] - 0.46),
                ends[k] - columns[k] - 0.08,
                0.92,
                label=None if self.artists_["near"] else "within one standard error",
                fill=False,
                edgecolor=_NEAR,
                linewidth=1.0,
                zorder=2.5,
                path_effects=_halo(2.6),
            )
            self.artists_["near"].append(self.ax_.add_patch(frame))
        if self.chosen is not None:
            middle = 0.5 * (columns[self.chosen] + ends[self.chosen] - 1)
            self._ring(middle, rows[self.chosen], path_effects=_halo(3.6))
        self.ax_.set(xlabel="bandwidth multiple", ylabel=self._unit)
        _label(self.ax_.xaxis, np.arange(multiples.size), multiples, ticks)
        _label(self.ax_.yaxis, np.arange(strengths.size), strengths, _MOST_TICKS)

    @property
    def _unit(self) -> str:
        return "λ, in units of ∫k²dρ" if self.corrected else "λ, in units of w₀"

    def _ring(self, x: float, y: float, **halo: Any) -> None:
        assert self.chosen is not None
        (self.artists_["chosen"],) = self.ax_.plot(
            x,
            y,
            "o",
            label=f"chosen: score {self.scores[self.chosen]:.4g}",
            markersize=13,
            markeredgewidth=1.8,
            color=_CHOSEN,
            markerfacecolor="none",
            clip_on=False,
            zorder=3.0,
            **halo,
        )


# White around a line, which is then seen on every color.
def _halo(width: float) -> list[Any]:
    from matplotlib.patheffects import withStroke

    return [withStroke(linewidth=width, foreground="white")]


# Ticks at ``places``, labeled by ``values``; of more than ``most`` only some.
def _label(axis: Any, places: np.ndarray, values: np.ndarray, most: int) -> None:
    some = slice(None, None, -(-values.size // max(most, 1)))
    labels = ["∞" if np.isinf(value) else f"{value:.2g}" for value in values[some]]
    axis.set_ticks(places[some], labels)
    axis.set_ticks([], minor=True)
