"""DensityDisplay: a density of one feature as a curve, of two as contours, of more as a grid of its
exact marginals.

Heights are with respect to Lebesgue measure, in a unit that floats can hold; regions are those of
highest density [Hyndman1996].
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Self

import numpy as np
from sklearn.utils.validation import check_is_fitted, validate_data

from ksos.density import SoSDensity
from ksos.ground import (
    as_count,
    as_features,
    as_points,
    as_vector,
    in_order,
    is_other_array,
    quoted,
    require_numbers,
    to_numpy,
)
from ksos.plotting.canvas import (
    Display,
    axes_grid,
    color_map,
    lower_triangle,
    require_matplotlib,
    single_axes,
)

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.colors import Colormap


MOST_PAIRED = 8
"""The most features of a pair plot: of more the panels are too small to be read."""
REGIONS = (0.5, 0.9)
"""The probabilities of the regions that are drawn by default: half of the mass, and nearly all.
"""
_MOST_SUPPORT = 100  # points that are shown without being asked for: more of them hide the density
# colors that people with any kind of color vision tell apart
_DENSITY, _DISTRIBUTION, _SUPPORT, _DATA = "#234484", "#B5480A", "#E8710A", "#262626"
_OUTSIDE, _BOUNDARY, _BORDER = "#ededed", "#9a9a9a", "#10182b"
_STRIP = 0.045  # of the height, for the rug: seen, and little of the curve is lost
_MOST_DOTS = 4000  # more of them are one dark patch
_MOST_TICKS = 1500  # of a rug: more than an axis has pixels
_TAIL = 5e-4  # mass beyond each end of the axis: no eye sees the density there
_MARGIN = 0.04  # of the width, around what is shown: matplotlib has 0.05
_REACH = 0.75  # of the width of the mass: with data farther out, an outlier would hide the rest
_LARGEST_EXPONENT = 90  # beyond it, densities are drawn in a power of ten of their own
_CURVE = (12.0, 401, 4001)  # points of the grid per bandwidth, the fewest and the most on an axis
_SURFACE = (8.0, 121, 301)  # the same for two features: contours are interpolated linearly
_SMALL_SURFACE = (4.0, 41, 47)  # a panel among many has 150 pixels
_BANDS = 18  # of color: more look continuous, and take longer
_LINES = ("-", "--", ":", "-.")


def figure_size(k: int) -> tuple[float, float]:
    """Width and height in inches that suit a figure of ``k`` features."""
    return (6.0, 4.2) if k <= 2 else (1.75 * k + 0.4, 1.75 * k)


class DensityDisplay(Display):
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
        self.panels, self.features = panels, tuple(features)
        self.X, self.feature_names = X, feature_names

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
                " the data as they reach it; for a density, such as that of y given a row,"
                " est.at(x), use DensityDisplay.from_density(p)"
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
        for i, j, here in lower_triangle(self.ax_):
            row, column = self.features[i], self.features[j]
            self._draw(here, (row,) if i == j else (column, row), look)
            here.label_outer(remove_inner_ticks=True)
            if i == j:
                here.set_ylabel(self._name(row) if i == 0 else "")
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


@dataclass(frozen=True)
class Window:
    """An interval of one feature: ``low`` to ``high`` is where the density is evaluated, ``view``
    what the axis shows.
    """

    low: float
    high: float
    view: tuple[float, float]
    boundary: tuple[float, float]


def window_of(marginal: Any, samples: np.ndarray | None) -> Window:
    """The window of a density of one feature and of its ``samples`` (n,)."""
    low, high = (float(x) for x in marginal.ppf(np.array([_TAIL, 1.0 - _TAIL])))
    boundary = marginal.measure.boundary(0)
    width = high - low or max(abs(low), 1.0)
    if samples is not None:
        near = samples[(samples >= low - _REACH * width) & (samples <= high + _REACH * width)]
        low, high = float(min([low, *near])), float(max([high, *near]))
    margin = _MARGIN * (high - low or width)
    view = (low - margin, high + margin)
    return Window(max(view[0], boundary[0]), min(view[1], boundary[1]), view, boundary)


@dataclass(frozen=True)
class Look:
    """What :meth:`DensityDisplay.plot` was asked for; ``small`` for a panel among many."""

    cmap: Colormap
    cdf: bool
    support: bool
    small: bool = False


@dataclass(frozen=True)
class OnGrid:
    """The numbers of a panel of one or two features on a continuous measure.

    ``values`` of the density and the ``levels`` that bound the regions of each mass are divided by
    10^exponent. ``values[i]`` belongs to axes[0][i], ``values[i, j]`` to (axes[0][j], axes[1][i]).
    """

    axes: tuple[np.ndarray, ...]
    values: np.ndarray
    levels: dict[float, float]
    exponent: int
    support: np.ndarray
    windows: tuple[Window, ...]
    cdf: np.ndarray | None

    @classmethod
    def of(
        cls,
        p: Any,
        support: np.ndarray,
        windows: tuple[Window, ...],
        regions: Sequence[float],
        resolution: int | None,
        small: bool,
    ) -> OnGrid:
        """Of a density ``p``, with ``resolution`` points along each axis (None: fine enough).

        The levels of a small panel of two features are computed from its grid: accurate enough, and
        quicker.
        """
        alone = len(windows) == 1
        finest, fewest, most = _CURVE if alone else _SMALL_SURFACE if small else _SURFACE
        axes = []
        for window, sigma in zip(windows, p.terms.on_host.bandwidths, strict=True):
            n = int(np.clip(finest * (window.high - window.low) / float(sigma), fewest, most))
            axes.append(np.linspace(window.low, window.high, resolution or n))
        points = np.stack([grid.ravel() for grid in np.meshgrid(*axes)], axis=1)
        log_values = p.logpdf(points)
        peak = float(log_values.max()) / math.log(10.0)
        exponent = 0 if abs(peak) <= _LARGEST_EXPONENT else math.floor(peak)
        unit = exponent * math.log(10.0)
        with np.errstate(under="ignore"):
            values = np.exp(log_values - unit)
        if small and not alone:
            descending, cell = np.sort(values)[::-1], math.prod(float(x[1] - x[0]) for x in axes)
            held = np.cumsum(descending) * math.exp(math.log(cell) + unit)
            places = np.minimum(np.searchsorted(held, regions), held.size - 1)
            levels = dict(zip(regions, descending[places].tolist(), strict=True))
        else:
            levels = {mass: math.exp(math.log(p.hdr_level(mass, rng=0)) - unit) for mass in regions}
        values = values.reshape([axis.size for axis in reversed(axes)])
        cdf = p.cdf(points) if alone else None
        return cls(tuple(axes), values, levels, exponent, support, windows, cdf)

    @property
    def height_label(self) -> str:
        """What the height, or the color, stands for."""
        return f"density / $10^{{{self.exponent}}}$" if self.exponent else "density"

    def draw(self, ax: Axes, samples: np.ndarray | None, look: Look) -> dict[str, Any]:
        """Draw on ``ax`` with the data ``samples`` (n, d). It returns the artists by name."""
        spans: Any = ((ax.axvspan, ax.axvline), (ax.axhspan, ax.axhline))
        for window, (span, line) in zip(self.windows, spans, strict=False):
            for bound, edge in zip(window.boundary, window.view, strict=True):
                if window.view[0] < bound < window.view[1]:
                    span(bound, edge, color=_OUTSIDE, linewidth=0.0, zorder=0.5, gid="outside")
                    line(bound, color=_BOUNDARY, linewidth=0.8, zorder=0.6, gid="boundary")
        draw = self._draw_surface if self.cdf is None else self._draw_curve
        return draw(ax, samples, look)

    # A curve with its regions shaded; on a small panel the height is without scale.
    def _draw_curve(self, ax: Axes, samples: np.ndarray | None, look: Look) -> dict[str, Any]:
        artists: dict[str, Any] = {"regions": {}}
        (x,), y, top = self.axes, self.values, float(self.values.max())
        # the widest region first, the others on top of it
        ordered = sorted(self.levels.items(), reverse=True)
        for i, (mass, level) in enumerate(ordered):
            artists["regions"][mass] = ax.fill_between(
                x,
                0.0,
                y,
                where=(y >= level).tolist(),
                color=look.cmap(0.12 + 0.36 * i / len(ordered)),
                linewidth=0.0,
                label=_region(mass),
            )
        # at the boundary the curve comes down to zero
        low, high = (
            bound if bound == end else np.nan
            for bound, end in zip(self.windows[0].boundary, (x[0], x[-1]), strict=True)
        )
        (artists["density"],) = ax.plot(
            np.r_[low, x, high],
            np.r_[0.0, y, 0.0],
            color=_DENSITY,
            linewidth=1.1 if look.small else 1.6,
            label="density",
            zorder=2.5,
        )
        bottom = -1.5 * _STRIP * top if samples is not None or look.support else 0.0
        ax.set(xlim=self.windows[0].view, ylim=(bottom, 1.07 * top))
        if samples is not None:
            artists["data"] = _draw_data(ax, samples, self.windows, look)
        if look.small:
            ax.set_yticks([])
        else:
            ax.set_ylabel(self.height_label)
        if look.cdf and not look.small:
            artists["cdf_axes"] = twin = ax.twinx()
            name = "distribution function"
            (line,) = twin.plot(x, np.asarray(self.cdf), "--", color=_DISTRIBUTION, label=name)
            line.set(linewidth=1.2, gid="cdf")
            # both zeros are at one height
            twin.set(ylim=(1.04 * bottom / (1.07 * top), 1.04), yticks=[0.0, 0.25, 0.5, 0.75, 1.0])
            twin.set_ylabel(name, color=_DISTRIBUTION)
            twin.tick_params(axis="y", colors=_DISTRIBUTION)
        if look.support:
            (artists["support"],) = ax.plot(
                self.support,
                np.zeros(self.support.shape),
                "+",
                color=_SUPPORT,
                markersize=3.0 if look.small else 5.0,
                label="support points",
                zorder=2.6,
            )
        return artists

    # Filled contours, with the borders of the regions as lines.
    def _draw_surface(self, ax: Axes, samples: np.ndarray | None, look: Look) -> dict[str, Any]:
        from matplotlib.ticker import MaxNLocator

        grid, width = (*self.axes, self.values), 0.7 if look.small else 1.0
        bands = MaxNLocator(_BANDS, steps=[1, 2, 2.5, 5, 10])
        levels = bands.tick_values(0.0, float(self.values.max()))
        artists: dict[str, Any] = {"borders": {}}
        # a band has the color of its middle: the lowest one is to be the color of no density at all
        artists["filled"] = ax.contourf(
            *grid, levels=levels, cmap=look.cmap, vmin=0.5 * levels[1], vmax=levels[-1], zorder=1.0
        )
        for i, (mass, level) in enumerate(sorted(self.levels.items())):
            style = _LINES[i % len(_LINES)]
            artists["borders"][mass] = ax.contour(
                *grid,
                levels=[level],
                colors=_BORDER,
                zorder=2.4,
                linewidths=width,
                linestyles=style,
            )
            ax.plot([], [], style, color=_BORDER, linewidth=width, label=_region(mass))
        if samples is not None:
            artists["data"] = _draw_data(ax, samples, self.windows, look)
        if look.support:
            (artists["support"],) = ax.plot(
                *self.support.T,
                "o",
                color=_SUPPORT,
                label="support points",
                zorder=2.1,
                markersize=3.0 if look.small else 6.0,
                markeredgewidth=0.8 * width,
                markerfacecolor="none",
            )
        ax.set(xlim=self.windows[0].view, ylim=self.windows[1].view)
        return artists


def _region(mass: float) -> str:
    """What the legend calls a highest-density region.

    >>> _region(0.5), _region(0.975)
    ('50% region', '97.5% region')
    """
    return f"{100.0 * mass:g}% region"


# A tick for each sample (n, 1), a dot for each sample (n, 2) that lies in the windows.
#
# Few are opaque, so that each one is seen; many are pale, so that their density is.
def _draw_data(ax: Axes, samples: np.ndarray, windows: tuple[Window, ...], look: Look) -> Any:
    rug = len(windows) == 1
    most, opaque = (_MOST_TICKS, 150) if rug else (_MOST_DOTS, 600)
    inside = [(w.view[0] <= x) & (x <= w.view[1]) for w, x in zip(windows, samples.T, strict=True)]
    rows = np.flatnonzero(np.all(inside, axis=0))
    if rows.size > most:
        rows = rows[np.linspace(0, rows.size - 1, most).round().astype(int)]
    shown, n = samples[rows], max(rows.size, 1)
    style: dict[str, Any] = {
        "alpha": float(np.clip((opaque / n) ** 0.5, 0.12, 0.85)),
        "label": "data" if rows.size == len(samples) else f"data ({n:,} of {len(samples):,})",
        "gid": "data",
    }
    if rug:
        height, across = 0.8 * _STRIP, ax.get_xaxis_transform()
        return ax.vlines(
            shown[:, 0], 0.0, height, transform=across, color=_DATA, linewidth=0.7, **style
        )
    return ax.scatter(
        shown[:, 0],
        shown[:, 1],
        s=np.clip(2000.0 / n, 2.0, 12.0) * (0.5 if look.small else 1.0),
        linewidths=0.3 if n <= 1000 else 0.0,
        c=_DATA,
        edgecolors="white",
        rasterized=n > 1000,
        zorder=2.2,
        **style,
    )
