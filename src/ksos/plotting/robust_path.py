"""RobustPathDisplay: what robustness costs where nothing shifts, and what it promises."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Self

import numpy as np

from ksos.plotting.canvas import Display, require_matplotlib, single_axes

_COST, _BOUND, _PLAIN = "#234484", "#B5480A", "#6a98c3"


class RobustPathDisplay(Display):
    """The mean cost on held-out samples and the certified worst-case risk, against the radius.

    The difference of the cost to that of the first radius, 0 for the plain model, is the price of
    robustness. Bars are one standard error of that difference.

    Parameters
    ----------
    path : sequence of RobustSolution or of fitted robust estimators
        From :func:`ksos.robust_path` or the ``path`` of an estimator, with ``cv``.

    Attributes
    ----------
    figure_ : Figure
    ax_ : Axes
    artists_ : dict
        "costs", "bounds" and "plain".

    Examples
    --------
    >>> import ksos
    >>> X = np.random.default_rng(0).normal(size=(30, 1))
    >>> est = ksos.RobustRegressor(shift="x", rtol=1e-2)
    >>> path = est.path(X, X[:, 0] ** 2, [0.0, 0.1], cv=3)
    >>> from matplotlib.figure import Figure  # without ax, pyplot makes and shows a figure
    >>> display = ksos.RobustPathDisplay(path).plot(Figure().add_subplot())
    >>> display.ax_.get_ylabel(), sorted(display.artists_)
    ('mean loss', ['bounds', 'costs', 'plain'])
    """

    def __init__(self, path: Sequence[Any]) -> None:
        found = [getattr(each, "solution_", each) for each in path]
        if not found or any(getattr(each, "cost", None) is None for each in found):
            raise ValueError(
                "a path with costs is needed: pass cv=5 to robust_path, or to the path of an"
                " estimator"
            )
        self.path = found

    def plot(self, ax: Any = None) -> Self:
        """Draw. ``ax`` is where; default: a new figure."""
        require_matplotlib()
        (self.figure_, self.ax_), plain = single_axes(ax, (6.4, 4.0)), self.path[0]
        radii, costs, errors, bounds = np.array(
            [(each.radius, each.cost, each.cost_error, each.value) for each in self.path], float
        ).T
        label = "plain model" if plain.radius == 0.0 else f"radius {plain.radius:.3g}"
        style = {"color": _COST, "marker": "o", "markersize": 4.5, "capsize": 3.0}
        self.artists_ = {
            "plain": self.ax_.axhline(costs[0], color=_PLAIN, linestyle="--", label=label),
            "costs": self.ax_.errorbar(radii, costs, errors, label="held-out cost", **style),
            "bounds": self.ax_.plot(
                radii,
                bounds,
                color=_BOUND,
                marker="s",
                markersize=4.5,
                label="certified worst case",
            )[0],
        }
        self.ax_.set(xlabel="radius", ylabel="mean loss")
        self.ax_.spines[["top", "right"]].set_visible(False)
        self.ax_.legend(frameon=False, fontsize="small")
        return self
