"""CrossValidationDisplay: the held-out scores of a search over bandwidths and λ, and the pair that
was chosen.
"""

from __future__ import annotations

from typing import Any, Self

import numpy as np
from sklearn.utils.validation import check_is_fitted

from ksos.ground.validation import as_grid, as_positive
from ksos.plotting.canvas import Display, colour_map, require_matplotlib, single_axes

__all__ = ["CrossValidationDisplay"]

_CHOSEN, _LINE, _UNSEEN, _NEAR = "#B5480A", "#375f99", "#e6e6e6", "#1a1a1a"
_SIZE = (6.4, 4.4)
_BANDS, _MOST_TICKS, _LEAST_SPAN, _NARROW = 12, 9, 1e-3, 5.5
_LABELS = {
    "log_likelihood": "held-out score, nats per sample",
    "l2": "held-out L² score",
    "mmd": "− held-out squared MMD",
}
_RING: dict[str, Any] = {
    "markersize": 13,
    "markeredgewidth": 1.8,
    "color": _CHOSEN,
    "markerfacecolor": "none",
    "linestyle": "none",
}


class CrossValidationDisplay(Display):
    r"""The held-out scores of a :class:`~ksos.KernelSoSDensityCV` by bandwidth and λ.

    With several bandwidths: a cell per pair, darker if the score is higher. λ = ∞ gives the
    reference whatever the bandwidth, and has one row across all of them. Pairs that were not scored
    are grey. Black outlines mark the pairs whose score is within one standard error of the best.
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
    >>> est = ksos.KernelSoSDensityCV(bandwidths=[2.0, 3.0], relative_regularizations=[1.0, 0.1], cv=2).fit(X)
    >>> from matplotlib.figure import Figure  # or leave ax out: pyplot then makes a figure, and shows it
    >>> display = ksos.CrossValidationDisplay.from_estimator(est, ax=Figure().add_subplot())
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
        self.bandwidth_multiples = as_grid(
            bandwidth_multiples, "bandwidth_multiples", positive=True
        )
        n = self.bandwidth_multiples.size
        given: dict[str, Any] = {
            "relative_regularizations": relative_regularizations,
            "scores": scores,
            "standard_errors": standard_errors,
        }
        found = {
            name: np.asarray(np.full(n, np.nan) if value is None else value, dtype=float)
            for name, value in given.items()
        }
        for name, values in found.items():
            if values.shape != (n,):
                raise ValueError(
                    f"{name} must have an entry for each of the {n} pairs; got shape {values.shape}"
                )
        self.relative_regularizations, self.scores, self.standard_errors = found.values()
        if not (self.relative_regularizations >= 0.0).all():
            raise ValueError("relative_regularizations must be non-negative; inf is allowed")
        if chosen is not None and not 0 <= chosen < n:
            raise ValueError(f"chosen must be the position of one of the {n} pairs; got {chosen!r}")
        pairs = set(
            zip(
                self.bandwidth_multiples.tolist(),
                self.relative_regularizations.tolist(),
                strict=True,
            )
        )
        if len(pairs) < n:
            raise ValueError("every pair of bandwidth and λ must have one score; some have two")
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
        told: dict[str, Any] = {
            "label": _LABELS[estimator.criterion],
            "corrected": estimator.reference_ is not None,
        }
        columns = [results[name] for name in (*names, "mean_test_score", "standard_error")]
        return cls(
            *columns, chosen=int(np.argmax(is_best)) if is_best.any() else None, **told
        ).plot(ax, **options)

    @property
    def near(self) -> np.ndarray:
        """Whether each pair is within one standard error of the best, shape (n,)."""
        if not np.isfinite(self.scores).any():
            return np.zeros(self.scores.size, dtype=bool)
        return np.asarray(
            self.scores.max() - self.scores <= np.nan_to_num(self.standard_errors, nan=-1.0)
        )

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
        require_matplotlib()
        known = self.scores[np.isfinite(self.scores)]
        if known.size == 0:
            raise ValueError("there is no finite score to draw")
        depth = None if depth is None else as_positive(depth, "depth")
        (self.figure_, self.ax_), self.artists_ = single_axes(ax, _SIZE), {}
        if np.unique(self.bandwidth_multiples).size == 1:
            self._draw_curve(depth)
        else:
            span = float(known.max() - np.median(known)) if depth is None else depth
            self._draw_surface(
                float(known.max()), max(span, _LEAST_SPAN * max(1.0, abs(float(known.max())))), cmap
            )
        if self.ax_.get_legend_handles_labels()[0]:
            columns = 2 if self._inches >= _NARROW else 1
            self.ax_.legend(
                loc="lower center",
                bbox_to_anchor=(0.5, 1.0),
                frameon=False,
                fontsize="small",
                ncols=columns,
            )
        return self

    @property
    def _strengths(self) -> np.ndarray:
        """λ, descending."""
        return np.unique(self.relative_regularizations)[::-1]

    @property
    def _inches(self) -> float:
        """The width of the figure."""
        return float(self.figure_.bbox.width / self.figure_.dpi)

    @property
    def _unit(self) -> str:
        return "λ, in units of ∫k²dρ" if self.corrected else "λ, in units of w₀"

    # --- one bandwidth ---

    def _draw_curve(self, depth: float | None) -> None:
        """Scores over λ in equal steps, from ∞ on the left to small ones: from simple to complex,
        as the search compares them.
        """
        strengths = self._strengths
        order = np.argsort(-self.relative_regularizations)
        x, scores, errors = np.arange(order.size), self.scores[order], self.standard_errors[order]
        seen = np.isfinite(scores)
        finite = seen & np.isfinite(self.relative_regularizations[order])
        (line,) = self.ax_.plot(x[finite], scores[finite], "-", color=_LINE, linewidth=1.3)
        bars = self.ax_.errorbar(
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
            at = int(np.flatnonzero(order == self.chosen)[0])
            self._ring(at, self.scores[self.chosen])
        best = float(scores[seen].max())
        self.ax_.axhline(best, color=_LINE, linewidth=0.7, linestyle=":")
        if depth is not None:
            self.ax_.set_ylim(best - depth, best + 0.25 * depth)
        self.ax_.set(xlabel=self._unit, ylabel=self.label, xlim=(-0.6, x.size - 0.4))
        _label(self.ax_.xaxis, x.astype(float), strengths, int(1.6 * self._inches))
        self.ax_.spines[["top", "right"]].set_visible(False)

    # --- several ---

    def _draw_surface(self, best: float, span: float, cmap: Any) -> None:
        """Cells in equal steps: bandwidths ascend to the right, λ ascend upwards."""
        from matplotlib.colors import BoundaryNorm
        from matplotlib.patches import Rectangle

        multiples, strengths = np.unique(self.bandwidth_multiples), self._strengths
        columns, rows = self._places(multiples, strengths)
        edges, seen = np.linspace(best - span, best, _BANDS + 1), np.isfinite(self.scores)
        values = np.ma.masked_all((strengths.size, multiples.size))  # type: ignore[no-untyped-call]
        for k in np.flatnonzero(seen):
            values[rows[k], columns[k]] = np.clip(self.scores[k], edges[0], best)
        colours = colour_map(cmap).with_extremes(bad=_UNSEEN)
        x, y = (
            np.arange(multiples.size + 1) - 0.5,
            strengths.size - 0.5 - np.arange(strengths.size + 1),
        )
        cells = self.ax_.pcolormesh(
            x, y, values, cmap=colours, norm=BoundaryNorm(edges, colours.N), rasterized=True
        )
        decimals = int(
            np.clip(np.ceil(-np.log10(span / _BANDS)), 0, 12)
        )  # so many tell the bands of the color bar apart
        bar = self.figure_.colorbar(cells, ax=self.ax_, format=f"%.{decimals}f", label=self.label)
        self.artists_ |= {"cells": cells, "colorbar": bar, "near": []}
        frame: dict[str, Any] = {
            "fill": False,
            "edgecolor": _NEAR,
            "linewidth": 1.0,
            "zorder": 2.5,
            "path_effects": _halo(2.6),
        }
        for k in np.flatnonzero(self.near):
            left, width = columns[k].start - 0.5, columns[k].stop - columns[k].start
            label = None if self.artists_["near"] else "within one standard error"
            corner = (left + 0.04, strengths.size - 1.46 - rows[k])
            self.artists_["near"].append(
                self.ax_.add_patch(Rectangle(corner, width - 0.08, 0.92, label=label, **frame))
            )
        if self.chosen is not None:
            across = columns[self.chosen]
            self._ring(
                0.5 * (across.start + across.stop - 1),
                strengths.size - 1.0 - rows[self.chosen],
                path_effects=_halo(3.6),
            )
        self.ax_.set(xlabel="bandwidth multiple", ylabel=self._unit)
        _label(
            self.ax_.xaxis,
            np.arange(multiples.size, dtype=float),
            multiples,
            int(1.6 * self._inches),
        )
        _label(self.ax_.yaxis, strengths.size - 1.0 - np.arange(strengths.size), strengths)

    def _places(
        self, multiples: np.ndarray, strengths: np.ndarray
    ) -> tuple[list[slice], list[int]]:
        """The columns and the row of the cell of each pair; a single pair with λ = ∞ stands for all
        bandwidths.
        """
        columns = [
            slice(int(i), int(i) + 1) for i in np.searchsorted(multiples, self.bandwidth_multiples)
        ]
        rows = [
            int(np.flatnonzero(strengths == value)[0]) for value in self.relative_regularizations
        ]
        infinite = np.flatnonzero(np.isinf(self.relative_regularizations))
        if infinite.size == 1:
            columns[int(infinite[0])] = slice(0, multiples.size)
        return columns, rows

    def _ring(self, x: float, y: float, **halo: Any) -> None:
        assert self.chosen is not None
        label = f"chosen: score {self.scores[self.chosen]:.4g}"
        (self.artists_["chosen"],) = self.ax_.plot(
            x, y, "o", label=label, clip_on=False, zorder=3.0, **_RING, **halo
        )


def _halo(width: float) -> list[Any]:
    """White around a line, which is then seen on every color."""
    from matplotlib.patheffects import withStroke

    return [withStroke(linewidth=width, foreground="white")]


def _label(axis: Any, places: np.ndarray, values: np.ndarray, most: int = _MOST_TICKS) -> None:
    """Ticks at ``places``, labelled by ``values``; of more than ``most`` only some."""
    from matplotlib.ticker import FixedLocator, NullLocator

    some = slice(None, None, -(-values.size // max(min(most, _MOST_TICKS), 1)))
    axis.set_major_locator(FixedLocator(places[some].tolist()))
    axis.set_minor_locator(NullLocator())
    axis.set_ticklabels(["∞" if np.isinf(value) else f"{value:.2g}" for value in values[some]])
