"""The runs of solvers, certificate by certificate, and what robustness costs and promises, radius
by radius.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any, Self

import numpy as np
from sklearn.utils.validation import check_is_fitted

from ksos.ground.validation import as_choice
from ksos.plotting.canvas import Display, axes_grid, single_axes
from ksos.solvers import Progress, Solution

if TYPE_CHECKING:
    from matplotlib.axes import Axes


_OBJECTIVE, _BOUND, _GAP = "#234484", "#afd0e8", "#B5480A"
# with a contrast of at least 4 to white and to black
_COST, _WORST, _PLAIN = "#3f7ac2", "#cb5a12", "#7c7c7c"
_LOGARITHMIC = 5.0  # objectives that fall by more than this factor are drawn on a logarithmic scale


class SolutionDisplay(Display):
    r"""The run of a solver: above, the objective with the interval that is proven to hold its
    minimum; below, the gap.

    Every certificate says f* ≥ f(C) − gap(C). The shaded band reaches from the best of these lower
    bounds so far to the least objective so far: f* lies in it at every iteration. While constraints
    are not met yet there is no gap, and no band.

    Parameters
    ----------
    history : sequence of Progress
    title : str, optional
    certified : bool
        Whether the gaps bound f(C) − f*. They do not if the functional is not convex; then no band
        is drawn.

    Attributes
    ----------
    figure_ : Figure
    ax_ : array of two Axes
        Objective and gap.
    artists_ : dict
        "objective", "bounds", "gap".

    Examples
    --------
    >>> import ksos
    >>> est = ksos.KernelSoSDensity().fit([[0.0], [0.4], [1.0]])
    >>> from matplotlib.figure import Figure  # without ax, pyplot makes and shows a figure
    >>> ax = Figure().add_subplot()
    >>> display = ksos.SolutionDisplay.from_estimator(est, ax=ax)
    >>> [ax.get_ylabel() for ax in display.ax_]
    ['objective', 'gap']
    """

    def __init__(
        self, history: Sequence[Progress], title: str | None = None, *, certified: bool = True
    ) -> None:
        self.history, self.title, self.certified = list(history), title, certified

    @classmethod
    def from_solution(cls, solution: Solution, *, ax: Any = None, **options: Any) -> Self:
        """Draw the history of ``solution``; ``ax`` and the options are those of :meth:`plot`."""
        history = getattr(solution, "history", None)
        if not isinstance(history, list) or not history:
            raise TypeError(
                f"a ksos.Solution with a history is needed; got {solution!r}; a fitted estimator"
                " goes to from_estimator"
            )
        gap = "no certificate" if solution.gap is None else f"gap {solution.gap:.1e}"
        title = (
            f"{solution.solver}: {solution.status.replace('_', ' ')}, {gap} after {solution.n_iter}"
            " iterations"
        )
        return cls(history, title, certified=solution.gap is not None).plot(ax, **options)

    @classmethod
    def from_estimator(cls, estimator: Any, *, ax: Any = None, **options: Any) -> Self:
        """The same for a fitted estimator with a ``solution_``."""
        if hasattr(estimator, "fit"):
            check_is_fitted(estimator)
        if not hasattr(estimator, "solution_"):
            raise TypeError(
                f"{type(estimator).__name__} has no solution_; of a fitted KernelSoSDensity or"
                " KernelSoSDensityCV use SolutionDisplay.from_solution(est.solution_), or"
                " from_estimator(est)"
            )
        return cls.from_solution(estimator.solution_, ax=ax, **options)

    def plot(self, ax: Any = None, *, against: str = "iteration") -> Self:
        """Draw.

        Parameters
        ----------
        ax : Axes, optional
            Where; default: a new figure. The place of one Axes is divided in two; or give two of
            them.
        against : {"iteration", "time"}
            What the horizontal axis counts.
        """
        as_choice(against, "against", ("iteration", "time"))
        names = ("n_iter" if against == "iteration" else "time", "objective", "gap")
        x, objective, gap = (
            np.array([getattr(progress, name) for progress in self.history], dtype=float)
            for name in names
        )
        self.figure_, axes = axes_grid(ax, 2, 1, (6.0, 5.0), hspace=0.06)
        self.ax_, self.artists_ = axes[:, 0], {}
        marker = {"marker": "o", "markersize": 3.0} if x.size <= 40 else {}
        self._draw_objective(self.ax_[0], x, objective, gap, marker)
        self._draw_gap(self.ax_[1], x, gap, marker)
        for one in self.ax_:
            one.grid(True, linewidth=0.4, alpha=0.5)
        self.ax_[1].set_xlabel("iteration" if against == "iteration" else "seconds")
        self.ax_[0].sharex(self.ax_[1])
        self.ax_[0].tick_params(labelbottom=False)
        if self.title is not None:
            self.ax_[0].set_title(self.title, fontsize="medium", loc="left")
        return self

    def _draw_objective(
        self,
        ax: Axes,
        x: np.ndarray,
        objective: np.ndarray,
        gap: np.ndarray,
        marker: dict[str, Any],
    ) -> None:
        least, most = float(objective.min()), float(objective.max())
        if least > 0.0 and most > _LOGARITHMIC * least:
            ax.set_yscale("log")
            bottom, top = least / (most / least) ** 0.12, most * (most / least) ** 0.06
        else:
            span = most - least or 0.1 * abs(least) or 1.0
            bottom, top = least - 0.15 * span, most + 0.08 * span
        (self.artists_["objective"],) = ax.plot(
            x, objective, color=_OBJECTIVE, linewidth=1.5, label="objective", zorder=2.5, **marker
        )
        proven = np.isfinite(gap)
        if self.certified and proven.any():
            lower = np.maximum.accumulate(np.where(proven, objective - gap, -np.inf))
            upper = np.minimum.accumulate(np.where(proven, objective, np.inf))
            seen = np.isfinite(upper)
            self.artists_["bounds"] = ax.fill_between(
                x[seen],
                np.maximum(lower[seen], bottom),
                upper[seen],
                color=_BOUND,
                linewidth=0.0,
                label="where the minimum is proven to lie",
                zorder=1.5,
            )
        ax.set(ylim=(bottom, top), ylabel="objective")
        ax.legend(loc="upper right", frameon=False, fontsize="small")

    # The gap on a logarithmic scale; a gap of 0 is a triangle at the foot, an unknown gap is
    # excluded.
    def _draw_gap(self, ax: Axes, x: np.ndarray, gap: np.ndarray, marker: dict[str, Any]) -> None:
        positive, zero = (gap > 0.0) & np.isfinite(gap), gap == 0.0
        foot = float(gap[positive].min()) if positive.any() else 1e-16
        ax.set_yscale("log")
        (self.artists_["gap"],) = ax.plot(
            x[positive], gap[positive], color=_GAP, linewidth=1.5, label="gap", **marker
        )
        if zero.any():
            (self.artists_["zero_gap"],) = ax.plot(
                x[zero], np.full(zero.sum(), foot / 3.0), "v", color=_GAP, label="gap 0"
            )
            ax.legend(loc="upper right", frameon=False, fontsize="small")
        ax.set_ylabel("gap" if self.certified else "gap, not certified")


class RobustPathDisplay(Display):
    """The mean cost on held-out samples and the certified worst-case risk, against the radius.

    The difference of the cost to that of the first radius, 0 for the plain model, is the price of
    robustness: in percent above each point. Bars are one standard error of that difference.

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
                color=_WORST,
                marker="s",
                markersize=4.5,
                label="certified worst case",
            )[0],
        }
        for radius, cost, top in zip(radii[1:], costs[1:], (costs + errors)[1:], strict=True):
            price = f"{(cost - costs[0]) / max(abs(costs[0]), 1e-300):+.0%}"
            above = {"xytext": (0.0, 3.0), "textcoords": "offset points", "ha": "center"}
            self.ax_.annotate(price, (radius, top), fontsize="small", color=_COST, **above)
        self.ax_.set(xlabel="radius", ylabel="mean loss")
        self.ax_.spines[["top", "right"]].set_visible(False)
        self.ax_.legend(frameon=False, fontsize="small")
        return self
