"""DensityDisplay: a density of one feature as a curve, of two as contours, of more as a grid of its
exact marginals.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any, Self

import numpy as np
from sklearn.utils.validation import check_is_fitted, validate_data

from ksos.density import SoSDensity
from ksos.ground.arrays import is_other_array, to_numpy
from ksos.ground.names import in_order, quoted
from ksos.ground.validation import as_count, as_features, as_points, as_vector, require_numbers
from ksos.plotting.canvas import axes_grid, color_map, require_matplotlib, single_axes
from ksos.plotting.panels import Look, OnGrid, window_of

if TYPE_CHECKING:
    from matplotlib.axes import Axes


MOST_PAIRED = 8
"""The most features of a pair plot: of more the panels are too small to be read."""
REGIONS = (0.5, 0.9)
"""The probabilities of the regions that are drawn by default: half of the mass, and nearly all.
"""
_MOST_SUPPORT = 100  # points that are shown without being asked for: more of them hide the density


def figure_size(k: int) -> tuple[float, float]:
    """Width and height in inches that suit a figure of ``k`` features."""
    return (6.0, 4.2) if k <= 2 else (1.75 * k + 0.4, 1.75 * k)


class DensityDisplay:
    r"""A figure of a density; make it with :meth:`from_density` or :meth:`from_estimator`.

    One feature: the curve over the rug of the data, its highest-density regions shaded, the
    distribution function on a second axis. Two: filled contours with the data, the support points
    and the borders of the highest-density regions. More: a grid of such panels, each an exact
    marginal. Heights are with respect to Lebesgue measure (p·dρ/dx), whatever ρ is.

    Parameters
    ----------
    panels : dict
        What to draw, by feature: ``(0,)`` and ``(0, 1)`` are the panels of one and of two features.
    features : sequence of int
        The features in their order.
    X : array (n, d), optional
        Data, all features.
    feature_names : sequence of d str, optional
        Default :math:`x_1, …, x_d`.

    Attributes
    ----------
    figure_ : Figure
    ax_ : Axes, or an array of them for a pair plot
    artists_ : dict
        By panel, what was drawn by name: "density", "regions", "cdf_axes", "filled", "borders",
        "data", "support".

    Examples
    --------
    >>> import ksos
    >>> p = ksos.SoSDensity(ksos.kernels.Gaussian(2.0), [[0.0]], [[1.0]], normalize=True)
    >>> from matplotlib.figure import Figure  # without ax, pyplot makes and shows a figure
    >>> ax = Figure().add_subplot()
    >>> display = ksos.DensityDisplay.from_density(p, [[-0.3], [0.8]], ax=ax)
    >>> display.ax_.get_ylabel(), sorted(display.artists_[(0,)])
    ('density', ['cdf_axes', 'data', 'density', 'regions', 'support'])
    """

    def __init__(
        self,
        panels: dict[tuple[int, ...], OnGrid],
        features: Sequence[int],
        X: np.ndarray | None = None,
        feature_names: Sequence[str] | None = None,
    ) -> None:
        self.panels, self.features, self.X, self.feature_names = (
            panels,
            tuple(features),
            X,
            feature_names,
        )

    @classmethod
    def from_density(
        cls,
        density: SoSDensity,
        X: Any = None,
        *,
        features: Sequence[int | str] | None = None,
        feature_names: Sequence[str] | None = None,
        regions: Sequence[float] | None = None,
        resolution: int | None = None,
        ax: Any = None,
        **options: Any,
    ) -> Self:
        """Compute the figure of ``density`` and draw it.

        Parameters
        ----------
        density : SoSDensity
        X : array (n, d) or data frame, optional
            Data to show with it. Samples far outside the mass, or too many to see, are excluded;
            the legend counts those shown.
        features : sequence of int or str, optional
            Which features to show, by name or counted from 0, at most 8; the others are integrated
            out. Default: all.
        feature_names : sequence of d str, optional
            What the axes say. Default: the names that the density has.
        regions : sequence of float, optional
            The probabilities of the highest-density regions. Default (0.5, 0.9); () for none.
        resolution : int, optional
            Points of the grid along each axis. Default: fine enough for the bandwidth.
        ax, **options
            See :meth:`plot`.
        """
        if not isinstance(density, SoSDensity):
            raise TypeError(
                f"a ksos.SoSDensity is needed; got {density!r}; a fitted estimator"
                " goes to from_estimator"
            )
        if density.measure.atoms is not None:
            raise ValueError(
                f"a density on a discrete measure, {density.measure!r}, has no height to draw; draw"
                " the probabilities of its nodes, p.pdf(measure.points) * measure.weights"
            )
        require_matplotlib()
        d = density.n_features
        if feature_names is not None and len(feature_names) != d:
            raise ValueError(
                f"feature_names must have one name for each of the {d} features of the density; got"
                f" {len(feature_names)}"
            )
        if X is not None:
            X = in_order(to_numpy(X) if is_other_array(X) else X, density.feature_names)
            X = as_points(X, "X", n_features=d)
        names = density.feature_names if feature_names is None else [*map(str, feature_names)]
        all_features = range(d) if features is None else features
        chosen = tuple(as_features(all_features, d, "features", names))
        if (k := len(chosen)) > MOST_PAIRED:
            raise ValueError(
                f"a pair plot shows at most {MOST_PAIRED} features, and these would be {k}; choose"
                " some with"
                f" features=[{'0, 1' if names is None else quoted(names[:2])}, ...]"
            )
        density = density.with_feature_names(None).to(None)
        resolution = None if resolution is None else as_count(resolution, "resolution", minimum=8)
        panels = _make_panels(density, chosen, X, _as_regions(regions), resolution)
        return cls(panels, chosen, X, names).plot(ax, **options)

    @classmethod
    def from_estimator(
        cls,
        estimator: Any,
        X: Any = None,
        *,
        feature_names: Sequence[str] | None = None,
        **options: Any,
    ) -> Self:
        """The same for a fitted estimator with a ``distribution_``; its feature names are used if
        it has any.

        """
        if hasattr(estimator, "fit"):
            check_is_fitted(estimator)
        density = vars(estimator).get("distribution_")
        if not isinstance(density, SoSDensity):
            raise TypeError(
                f"{type(estimator).__name__} has no density of its own (distribution_); pass a"
                " fitted KernelSoSDensity or KernelSoSDensityCV, of a pipeline its last step with"
                " the data as they reach it, or pass a density, such as that of y given a row,"
                " est.at(x), to from_density"
            )
        if X is not None:
            X = require_numbers(X)
            X = validate_data(estimator, X, dtype=np.float64, order="C", reset=False)
        feature_names = density.feature_names if feature_names is None else feature_names
        density = density.with_feature_names(None)
        return cls.from_density(density, X, feature_names=feature_names, **options)

    def plot(
        self,
        ax: Any = None,
        *,
        cmap: Any = None,
        cdf: bool = True,
        support: bool | None = None,
        colorbar: bool | None = None,
        legend: bool = True,
    ) -> Self:
        """Draw.

        Parameters
        ----------
        ax : Axes, optional
            Where; default: a new figure. A pair plot of k features divides the place of one Axes,
            or takes an array of k×k.
        cmap : str or Colormap, optional
            From no density to the highest. Default: white to blue, in perceptually equal steps.
        cdf : bool
            The distribution function, in a figure of one feature.
        support : bool, optional
            The support points. Default: only with one or two features, and at most 100 support
            points.
        colorbar : bool, optional
            For two features. Default: only in a new figure, not beside axes of your own.
        legend : bool
        """
        require_matplotlib()
        paired = len(self.features) > 2
        few = len(next(iter(self.panels.values())).support) <= _MOST_SUPPORT
        look = Look(
            color_map(cmap), cdf, not paired and few if support is None else support, small=paired
        )
        self.artists_ = {}
        if paired:
            self._plot_pairs(ax, look, legend)
            return self
        self.figure_, self.ax_ = single_axes(ax, figure_size(len(self.features)))
        self._draw(self.ax_, self.features, look)
        if len(self.features) == 2 and (ax is None if colorbar is None else colorbar):
            label = self.panels[self.features].height_label
            self.figure_.colorbar(
                self.artists_[self.features]["filled"],
                ax=self.ax_,
                label=label,
                pad=0.02,
                aspect=30,
            )
        if legend:
            _legend_above(self.ax_, self.artists_[self.features].get("cdf_axes"))
        return self

    def _plot_pairs(self, ax: Any, look: Look, legend: bool) -> None:
        k = len(self.features)
        self.figure_, self.ax_ = axes_grid(ax, k, k, figure_size(k), wspace=0.05, hspace=0.05)
        for i, row in enumerate(self.features):
            for j, column in enumerate(self.features):
                here = self.ax_[i, j]
                if j > i:
                    here.set_axis_off()
                    continue
                pair = (row,) if i == j else (column, row)
                self._draw(here, pair, look)
                here.label_outer(remove_inner_ticks=True)
                if i == j:
                    here.set_ylabel(self._name(row) if i == 0 and k > 1 else "")
        self.figure_.align_ylabels(list(self.ax_[:, 0]))
        if legend:
            handles, labels = self.ax_[1, 0].get_legend_handles_labels()
            _legend(self.ax_[0, k - 1], handles, labels, loc="upper right")

    def _draw(self, ax: Axes, features: tuple[int, ...], look: Look) -> None:
        samples = None if self.X is None else self.X[:, list(features)]
        self.artists_[features] = self.panels[features].draw(ax, samples, look)
        ax.locator_params(axis="x" if len(features) == 1 else "both", nbins=4 if look.small else 6)
        ax.set_xlabel(self._name(features[0]))
        if len(features) == 2:
            ax.set_ylabel(self._name(features[1]))

    def _name(self, feature: int) -> str:
        return (
            f"$x_{{{feature + 1}}}$"
            if self.feature_names is None
            else str(self.feature_names[feature])
        )


# A legend above the axes at the right: it hides no data, and no power of ten of an axis.
#
# An empty child of its height makes matplotlib set a title above it.
def _legend_above(ax: Axes, twin: Axes | None) -> None:
    handles, labels = ax.get_legend_handles_labels()
    more = ([], []) if twin is None else twin.get_legend_handles_labels()
    height = _legend(
        ax,
        handles + more[0],
        labels + more[1],
        loc="lower right",
        bbox_to_anchor=(1.0, 1.0),
        borderaxespad=0.2,
        ncols=3,
        columnspacing=1.4,
    )
    ax.inset_axes((0.0, 1.0, 1.0, height)).set_axis_off()


# A legend with opaque handles, also those of data that are pale in the figure; its height in units
# of the axes.
def _legend(ax: Axes, handles: Any, labels: Any, **place: Any) -> float:
    legend = ax.legend(handles, labels, frameon=False, fontsize="small", **place)
    for handle in filter(None, legend.legend_handles):
        handle.set_alpha(1.0)
    return float(legend.get_window_extent().height / ax.bbox.height)


# The probabilities of the highest-density regions to draw.
def _as_regions(regions: Sequence[float] | None) -> tuple[float, ...]:
    masses = as_vector(REGIONS if regions is None else regions, "regions")
    if not np.all((masses > 0.0) & (masses < 1.0)):
        raise ValueError(
            f"regions must be probabilities between 0 and 1, such as {REGIONS}; got"
            f" {masses.tolist()}"
        )
    return tuple(sorted(set(masses.tolist())))


# Every panel that a figure of ``features`` needs.
def _make_panels(
    density: SoSDensity,
    features: tuple[int, ...],
    X: np.ndarray | None,
    regions: tuple[float, ...],
    resolution: int | None,
) -> dict[tuple[int, ...], OnGrid]:
    d, k, support = density.n_features, len(features), density.support_points
    singles = [(feature,) for feature in features] if k != 2 else []
    shown = [*singles, *((features[j], features[i]) for i in range(k) for j in range(i))]
    density = density.by_volume()
    panels, windows = {}, {}
    for feature in features:
        marginal = density if d == 1 else density.marginal([feature])
        windows[feature] = window_of(marginal, None if X is None else X[:, feature])
    for chosen in shown:
        here = tuple(windows[feature] for feature in chosen)
        marginal = density if chosen == tuple(range(d)) else density.marginal(list(chosen))
        panels[chosen] = OnGrid.of(
            marginal, support[:, list(chosen)], here, regions, resolution, k > 2
        )
    return panels
