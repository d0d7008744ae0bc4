"""Distributions on panels: on each panel the density is the polynomial through its values at
Gauss–Legendre nodes.

Every distribution of one variable in the library is one of these: a density of one feature, the
conditional distributions of a feature for many rows, the distributions of residuals, the steps of
exact sampling.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from functools import cache, cached_property
from typing import NamedTuple

import numpy as np
from numpy.polynomial import legendre as legendre_series
from scipy.optimize import brentq

from ksos.ground import Array, like, namespace, on_accelerator, row_blocks
from ksos.quadrature.rules import Panels, legendre

Excess = Callable[[Array, Array], tuple[Array, Array, Array]]

LINE_ORDER = 16
"""Nodes per panel of a density of one feature: on a quarter of a bandwidth, or on one standard
deviation of a normal density, a polynomial of degree 15 is right to rounding."""
_STEP = 1e-13
"""A root is found when it moves by less, beside a panel of length 2: thousands of roundings, but
below what a distribution function resolves."""
_EXACT_STEP = 1e-14  # the same where tails keep their relative digits: some tens of roundings
_MOST_STEPS = 60  # bisection alone halves a panel down to rounding in 53
_LEAST_SLOPE = 1e-3  # below this share of the mean slope, Newton's step leaves the bracket: bisect
_ROUNDING = 1e-16  # of the whole mass: a target that close is met
_HOST_BLOCK = 1 << 13  # entries at a time on the host: polynomials of order 16 take one megabyte
# entries at a time on a GPU: polynomials of order 16 take half a gigabyte
_DEVICE_BLOCK = 1 << 22
_SMALL = 1e-4
"""What is smaller is asked of the distribution with its tails. Without them at most a mass of
1e-17 is missing: a relative error of 1e-13."""
_NO_MASS = 1e-30  # share of a panel that no level can feel: a mass is given to 1e-16
_REAL = 1e-4  # roots of a polynomial with a larger imaginary part are not real
_TRIMMED = 1e-15  # leading coefficients below rounding have roots that mean nothing


class PanelDistribution:
    """n distributions on the same panels, with ``values`` (n, panels, order) of their densities at
    the nodes. Their masses need not be one.

    All terms are positive, so nothing cancels.

    Parameters
    ----------
    panels : Panels
        The panels and their nodes.
    values : array of shape (n, panels, order)
        Densities at the nodes. For :meth:`ppf`, arrays of any backend.
    exact : bool
        Whether both tails keep their relative digits. Otherwise errors are small beside the whole
        mass, and answers take a fraction of the time.
    log_density : array of shape (panels, order), optional
        Logarithm of the density relative to a measure, which :meth:`log_level` compares with its
        level. Default: that of ``values``.
    whole : callable, optional
        Makes the same distribution with its tails, which is asked for whatever is small. Tails are
        most of the panels, and few questions need them.

    Examples
    --------
    >>> from ksos.quadrature import Panels
    >>> panels = Panels(np.array([0.0, 1.0]), np.array([1.0, 3.0]), 4)
    >>> p = PanelDistribution(panels, 2.0 * panels.nodes[None])  # density 2x/9 on [0, 3]
    >>> p.cdf(np.array([[1.5]])).round(12), p.ppf(np.array([[0.25]])).round(12)
    (array([[0.25]]), array([[1.5]]))
    """

    def __init__(
        self,
        panels: Panels,
        values: Array,
        *,
        exact: bool = False,
        log_density: np.ndarray | None = None,
        whole: Callable[[], PanelDistribution] | None = None,
    ) -> None:
        self.panels, self.values, self.exact = panels, values, exact
        self._log_density, self._make_whole = log_density, whole
        xp = namespace(values)
        weights, half = (like(a, values) for a in (legendre(panels.order)[1], panels.half))
        self.masses = xp.clip((values @ weights) * half, 0.0, None)
        """(n, panels)."""
        self._up_to = xp.concat(
            [0.0 * self.masses[:, :1], xp.cumulative_sum(self.masses, axis=1)], axis=1
        )
        """The mass up to the start of panel j, and to the end of the last one, (n, panels + 1)."""
        self.total = self._up_to[:, -1]

    @classmethod
    def from_log_density(
        cls, ends: np.ndarray, log_density: Callable[[np.ndarray], np.ndarray]
    ) -> PanelDistribution:
        """One distribution with these ends of panels. ``log_density`` takes points (n, 1)."""
        panels = Panels(ends[:-1], ends[1:], LINE_ORDER)
        with np.errstate(under="ignore"):
            values = np.exp(log_density(panels.nodes.reshape(-1, 1)))
        return cls(panels, values.reshape(1, *panels.nodes.shape), exact=True)

    @classmethod
    def mixture(
        cls,
        parts: Iterable[tuple[float, PanelDistribution]],
        *,
        log_reference: Callable[[np.ndarray], np.ndarray] | None = None,
        whole: Callable[[], PanelDistribution] | None = None,
    ) -> PanelDistribution:
        """The distribution Σ w·p: the polynomials of each part, on the panels of all of them.

        Each part keeps panels that suit it, so that the values of a narrow one are asked for where
        it is. Levels are those of the density relative to the density e^``log_reference``.
        """
        parts = list(parts)
        stops = [p.panels.start + 2.0 * p.panels.half for _, p in parts]
        ends = np.unique(np.concatenate([*(p.panels.start for _, p in parts), *stops]))
        panels = Panels(ends[:-1], ends[1:], LINE_ORDER)
        values = sum(weight * p.density(panels.nodes.ravel()) for weight, p in parts)
        values = np.reshape(values, panels.nodes.shape)
        log_density = None
        if log_reference is not None:
            with np.errstate(divide="ignore"):
                logs = np.log(values).ravel() - log_reference(panels.nodes.reshape(-1, 1))
            log_density = logs.reshape(values.shape)
        return cls(panels, values[None], exact=True, log_density=log_density, whole=whole)

    def moments(self) -> tuple[np.ndarray, np.ndarray]:
        """Mean and standard deviation, each of shape (n,)."""
        shares = (self.values * self.panels.weights).reshape(self.values.shape[0], -1)
        shares /= shares.sum(axis=1, keepdims=True)
        nodes = self.panels.nodes.ravel()
        mean = shares @ nodes
        return mean, np.sqrt(np.einsum("ij,ij->i", shares, (nodes[None, :] - mean[:, None]) ** 2))

    def density(self, x: np.ndarray) -> np.ndarray:
        """Density of the first distribution at the entries of x, not scaled to mass one. It is 0
        outside the panels.
        """
        j, s = position_on_panel(self.panels, x)
        inside = np.abs(s) <= 1.0
        rows = from_nodes(self.panels.order, np.clip(s, -1.0, 1.0))
        found = np.einsum("no,no->n", rows, self.values[0, j])
        return np.where(inside, np.maximum(found, 0.0), 0.0)

    def cdf(self, x: np.ndarray, which: np.ndarray | None = None) -> np.ndarray:
        """P(X ≤ x) for x of shape (rows, k). Row i is asked of distribution ``which[i]``.

        Default: of distribution i.
        """
        of, entries = _flat(x, which)
        found = self._in_blocks(self._mass, of, entries)
        if self._make_whole is not None and np.any(small := found < _SMALL):
            found[small] = self.whole._in_blocks(self.whole._mass, of[small], entries[small])
        return found.reshape(x.shape)

    def sf(self, x: np.ndarray) -> np.ndarray:
        """P(X > x), with the relative digits that 1 − cdf has lost in the upper tail."""
        return self.mirrored.cdf(-x)

    def ppf(self, q: Array, which: Array | None = None) -> Array:
        """The x with cdf(x) = q for q of shape (rows, k), rows as in :meth:`cdf`. Levels 0 and 1
        give the ends of where the mass is.
        """
        if self._make_whole is not None and np.any((q < _SMALL) | (q > 1.0 - _SMALL)):
            return self.whole.ppf(q, which)
        of, levels = _flat(q, which)
        if not self.exact:
            return namespace(q).reshape(self._in_blocks(self._quantile, of, levels), q.shape)
        out, upper = np.empty(levels.shape), levels > 0.5
        out[~upper] = self._in_blocks(self._quantile, of[~upper], levels[~upper])
        # 1 − q is exact there: quantiles near 1 are as good as those near 0
        if np.any(upper):
            mirrored = self.mirrored
            found = mirrored._in_blocks(mirrored._quantile, of[upper], 1.0 - levels[upper])
            out[upper] = -found
        return out.reshape(q.shape)

    def crps(self, x: np.ndarray, which: np.ndarray | None = None) -> np.ndarray:
        """∫ (P(X ≤ t) − 1[t ≥ x])² dt for x of shape (rows, k), rows as in :meth:`cdf`.

        It is E|X − x| less half of :meth:`mean_difference`.
        """
        of, entries = _flat(x, which)
        below = self._in_blocks(self._area_up_to, of, entries)
        above = below + self._areas.mean[of] - (entries - self.panels.start[0])
        return (below + above - self._areas.both[of]).reshape(x.shape)

    def mean_difference(self) -> np.ndarray:
        """E|X − X'| of independent X and X', shape (n,)."""
        return 2.0 * self._areas.both

    def quantiles(self, levels: np.ndarray) -> np.ndarray:
        """:meth:`ppf` for levels (n, k), where not even rounding makes quantiles cross."""
        order = np.argsort(levels, axis=1, kind="stable")
        increasing = np.take_along_axis(self.ppf(levels), order, axis=1)
        out = np.empty(levels.shape)
        np.put_along_axis(out, order, np.maximum.accumulate(increasing, axis=1), axis=1)
        return out

    @cached_property
    def whole(self) -> PanelDistribution:
        """The distribution with its tails."""
        return self if self._make_whole is None else self._make_whole()

    @cached_property
    def mirrored(self) -> PanelDistribution:
        """The distributions of −X."""
        return PanelDistribution(
            self.panels.mirrored(), self.values[:, ::-1, ::-1], exact=self.exact
        )

    # f(numbers of distributions, arguments) for all entries.
    def _in_blocks(self, f: Callable[[Array, Array], Array], of: Array, entries: Array) -> Array:
        out, order = 0.0 * entries, self.panels.order
        size = _DEVICE_BLOCK if on_accelerator(entries) else _HOST_BLOCK
        for block in row_blocks(entries.shape[0], order, size * order):
            out[block] = f(of[block], entries[block])
        return out

    def _mass(self, of: np.ndarray, x: np.ndarray) -> np.ndarray:
        j, s = position_on_panel(self.panels, x)
        s = np.clip(s, -1.0, 1.0)
        series = _node_basis(self.panels.order).to_series @ self.values[of, j].T
        part, whole = self.panels.half[j] * _integral_up_to(series, s), self.masses[of, j]
        part = np.where(s == 1.0, whole, np.clip(part, 0.0, whole))
        return np.minimum((self._up_to[of, j] + part) / self.total[of], 1.0)

    # Areas under distribution functions, which are constant in the gaps between panels.
    @cached_property
    def _areas(self) -> _Areas:
        panels, total = self.panels, self.total[:, None]
        gaps = np.diff(panels.start, append=panels.start[-1] + 2.0 * panels.half[-1])
        gaps = np.maximum(gaps - 2.0 * panels.half, 0.0)
        inside = (self.values @ _node_basis(panels.order).up_to_nodes.T) * panels.half[:, None]
        cdf = (self._up_to[:, :-1, None] + inside) / total[:, :, None]
        behind = self._up_to[:, 1:] / total
        each = np.sum(cdf * panels.weights, axis=2) + behind * gaps
        mean = np.sum((1.0 - cdf) * panels.weights, axis=(1, 2)) + (1.0 - behind) @ gaps
        both = np.sum(cdf * (1.0 - cdf) * panels.weights, axis=(1, 2))
        return _Areas(np.cumsum(each, axis=1) - each, mean, both + (behind * (1.0 - behind)) @ gaps)

    # ∫_{−∞}^x P(X ≤ t) dt. All terms are positive.
    def _area_up_to(self, of: np.ndarray, x: np.ndarray) -> np.ndarray:
        j, s = position_on_panel(self.panels, x)
        half, at = self.panels.half[j], np.clip(s, -1.0, 1.0)
        part = half**2 * _sum(_node_basis(self.panels.order).twice @ self.values[of, j].T, at)
        started = self._up_to[of, j] * half * (1.0 + at)
        gap = self._up_to[of, j + 1] * half * np.maximum(s - 1.0, 0.0)
        return np.asarray(self._areas.up_to[of, j] + (started + part + gap) / self.total[of])

    # Number of the distribution plus its distribution function at the end of each panel: one sorted
    # row, in which a single search finds the panels of all quantiles.
    @cached_property
    def _keys(self) -> Array:
        xp, n = namespace(self.values), self.values.shape[0]
        shares = self._up_to[:, 1:] / self.total[:, None]
        return xp.reshape(xp.arange(n, device=shares.device)[:, None] + shares, (-1,))

    def _quantile(self, of: Array, share: Array) -> Array:
        xp, n_panels = namespace(share), len(self.panels)
        found = xp.searchsorted(self._keys, of + share, side="left")
        j = xp.clip(found - of * n_panels, 0, n_panels - 1)
        total = self.total[of]
        target = share * total - self._up_to[of, j]
        return positions(self.panels, j, self.values[of, j], target, total, exact=self.exact)

    def log_level(self, mass: float) -> float:
        """log t such that the region where the density is at least t has this mass, for the first
        distribution.

        Between its extrema a polynomial crosses a level at most once, so that no part of the
        region is overlooked.
        """
        if self._make_whole is not None and not _SMALL < mass < 1.0 - _SMALL:
            return self.whole.log_level(mass)
        pieces = self._monotone_pieces
        highest = np.maximum(pieces.log_start, pieces.log_stop)
        lowest = np.minimum(pieces.log_start, pieces.log_stop)

        def excess(log_level: float) -> float:
            above = float(pieces.mass[lowest >= log_level].sum())
            crossed = np.flatnonzero((lowest < log_level) & (highest >= log_level))
            return above + float(self._mass_above(crossed, log_level).sum()) - mass

        with np.errstate(divide="ignore"):
            log_p = np.log(self.values[0]) if self._log_density is None else self._log_density
        low = weighted_level(log_p.ravel(), (self.values[0] * self.panels.weights).ravel(), mass)
        step = 0.1
        while excess(low) < 0.0 and step < 1e3:
            low, step = low - step, 2.0 * step
        if not excess(low) > 0.0:
            return low
        return float(brentq(excess, low, float(highest.max()) + 1.0, xtol=1e-13, rtol=1e-14))

    # Pieces of the panels with mass on which the density is monotone.
    #
    # The extrema of a polynomial are the real roots of its derivative [Trefethen2013].
    @cached_property
    def _monotone_pieces(self) -> _Pieces:
        kept = np.flatnonzero(self.masses[0] > _NO_MASS * self.total[0])
        basis = _node_basis(self.panels.order)
        if self._log_density is None:
            peak = np.log(self.values[0, kept].max(axis=1))
            values = self.values[0, kept] / np.exp(peak)[:, None]
        else:
            peak = self._log_density[kept].max(axis=1)
            values = np.exp(self._log_density[kept] - peak[:, None])
        series = basis.to_series @ values.T
        slopes = legendre_series.legder(series)
        # |P_j| ≤ 1: where the constant dominates the other coefficients, the slope has no root
        bends = np.abs(slopes[0]) <= np.abs(slopes[1:]).sum(axis=0)
        number, low, high = [], [], []
        for k in range(kept.size):
            inner = _real_roots(slopes[:, k]) if bends[k] else np.empty(0)
            number.append(np.full(inner.size + 1, k))
            low.append(np.r_[-1.0, inner])
            high.append(np.r_[inner, 1.0])
        i, start, stop = np.concatenate(number), np.concatenate(low), np.concatenate(high)
        with np.errstate(divide="ignore"):
            log_start, log_stop = (
                peak[i] + np.log(np.maximum(_sum(series[:, i], s), 0.0)) for s in (start, stop)
            )
        masses = (basis.to_series @ self.values[0, kept].T) * self.panels.half[kept] / self.total[0]
        up_to = _integral_up_to(masses[:, i], start), _integral_up_to(masses[:, i], stop)
        mass = np.maximum(up_to[1] - up_to[0], 0.0)
        return _Pieces(
            start, stop, log_start, log_stop, mass, peak[i], series[:, i], masses[:, i], up_to
        )

    # Mass of these monotone pieces where the density is above the level.
    def _mass_above(self, crossed: np.ndarray, log_level: float) -> np.ndarray:
        pieces = self._monotone_pieces
        rising = pieces.log_stop[crossed] > pieces.log_start[crossed]
        sign, level = np.where(rising, 1.0, -1.0), np.exp(log_level - pieces.log_peak[crossed])
        series = pieces.series[:, crossed]
        slopes = legendre_series.legder(series)

        def f(i: np.ndarray, s: np.ndarray) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
            value, slope = _sum(series[:, i], s) - level[i], _sum(slopes[:, i], s)
            return sign[i] * value, sign[i] * slope, np.zeros(i.shape)

        low, high = pieces.start[crossed], pieces.stop[crossed]
        at = increasing_root(f, low, high, 0.5 * (low + high), step=_EXACT_STEP)
        up_to = _integral_up_to(pieces.masses[:, crossed], at)
        before, behind = (side[crossed] for side in pieces.up_to)
        return np.maximum(np.where(rising, behind - up_to, up_to - before), 0.0)


# Numbers of the distributions of all entries of x (rows, k), and the entries.
def _flat(x: Array, which: Array | None) -> tuple[Array, Array]:
    xp = namespace(x)
    if which is None:
        which = xp.arange(x.shape[0], device=x.device)
    return xp.reshape(xp.broadcast_to(which[:, None], x.shape), (-1,)), xp.reshape(x, (-1,))


class _Areas(NamedTuple):
    """Areas under the distribution functions P(X ≤ t) of n distributions."""

    up_to: np.ndarray  # up to the start of every panel, (n, panels)
    mean: np.ndarray  # E[X] less the start of the first panel, (n,)
    both: np.ndarray  # ∫ P(X ≤ t) P(X > t) dt, (n,)


class _Pieces(NamedTuple):
    """Monotone pieces of panels, with positions in [−1, 1] on their panel."""

    start: np.ndarray
    stop: np.ndarray
    log_start: np.ndarray  # logarithm of the density at the start
    log_stop: np.ndarray
    mass: np.ndarray
    log_peak: np.ndarray  # unit of the ``series`` of each piece
    series: np.ndarray  # coefficients of the density, (order, pieces)
    masses: np.ndarray  # coefficients of the distribution's own density
    up_to: tuple[
        np.ndarray, np.ndarray
    ]  # mass from the start of the panel up to the start and the stop of the piece


def weighted_level(log_p: np.ndarray, masses: np.ndarray, mass: float) -> float:
    """The largest log t such that the points with log p ≥ log t hold at least this share of the
    ``masses``.
    """
    order = np.argsort(-log_p, kind="stable")
    cumulated = np.cumsum(masses[order])
    # the last point that is needed must not be missed by a rounding of the sum
    at = int(np.searchsorted(cumulated, mass * cumulated[-1] * (1.0 - 1e-14), side="left"))
    return float(log_p[order[min(at, order.shape[0] - 1)]])


def position_on_panel(panels: Panels, x: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Numbers of the panels of the entries of x, and positions there: beyond [−1, 1] in a gap."""
    j = np.clip(np.searchsorted(panels.start, x, side="right") - 1, 0, len(panels) - 1)
    return j, (x - panels.start[j]) / panels.half[j] - 1.0


def positions(
    panels: Panels, panel: Array, values: Array, target: Array, total: Array, *, exact: bool = False
) -> Array:
    """x with mass ``target`` between the start of its ``panel`` and itself, for ``values``
    (n, order) of the density at that panel's nodes.

    The error of the mass is small beside ``total``, or, if ``exact``, beside the target itself.
    """
    half, start = (like(a, target)[panel] for a in (panels.half, panels.start))
    s = _invert_on_panel(values, target / half, total / half, exact=exact)
    return start + half * (s + 1.0)


def increasing_root(
    f: Excess, low: Array, high: Array, start: Array, *, step: float | Array
) -> Array:
    """Where increasing functions have their roots, entry by entry: Newton's method, safeguarded by
    bisection between ``low`` and ``high``.

    ``f(i, x)`` gives, for the entries i that are still open, value and slope at x, and what counts
    as a value of zero. An entry is done when it moves by less than ``step``.

    >>> def cube(i, x):
    ...     return x**3 - 2.0, 3.0 * x**2, 0.0 * x
    >>> increasing_root(cube, np.zeros(1), 2.0 * np.ones(1), np.ones(1), step=1e-14).round(12)
    array([1.25992105])
    """
    xp = namespace(start)
    out, x = 0.0 * start, start
    open_ = xp.arange(start.shape[0], device=start.device)
    for _ in range(_MOST_STEPS if start.shape[0] else 0):
        value, slope, nothing = f(open_, x)
        below = value < 0.0
        low, high = xp.where(below, x, low), xp.where(below, high, x)
        steep = slope * (high - low) > xp.abs(value) * _LEAST_SLOPE
        newton = x - value / xp.where(steep, slope, 1.0)
        usable = steep & (newton >= low) & (newton <= high)
        better = xp.where(usable, newton, 0.5 * (low + high))
        better = xp.where(xp.abs(value) <= nothing, x, better)
        out[open_] = better
        (still,) = xp.nonzero(xp.abs(better - x) >= step)
        if still.shape[0] == 0:
            break
        if still.shape[0] < open_.shape[0]:
            low, high, better, open_ = (a[still] for a in (low, high, better, open_))
        x = better
    return out


# s ∈ [−1, 1] with ∫_{−1}^s q = share. The polynomial q has ``values`` (n, order) at the
# Gauss–Legendre nodes.
#
# The error of the integral is small beside ``scale``, the whole mass. If ``exact``, it is small
# beside ``share``.
def _invert_on_panel(values: Array, share: Array, scale: Array, *, exact: bool = False) -> Array:
    xp, basis = namespace(values), _node_basis(values.shape[1])
    to_series, integrate = like(basis.to_series, values), like(basis.integral, values)
    values = xp.asarray(values.T, copy=True)
    series = to_series @ values
    if exact:

        def exactly(i: Array, s: Array) -> tuple[Array, Array, Array]:
            chosen = series[:, i]
            return _integral_up_to(chosen, s) - share[i], _sum(chosen, s), 0.0 * s

        ones = np.ones(share.shape)
        return increasing_root(exactly, -ones, ones, 0.0 * ones, step=_EXACT_STEP)
    integral, n = integrate @ series, share.shape[0]
    # the mass up to every node brackets the root, and a line between two of them starts Newton's
    # method close to it
    inner = like(basis.up_to_nodes, values) @ values
    ends = like(basis.weights, values) @ values
    sums = xp.concat([0.0 * inner[:1, :], inner, ends[None, :]], axis=0)
    below = xp.sum(xp.astype(inner < share, xp.int64), axis=0)
    brackets = like(basis.brackets, values)
    low, high = brackets[below], brackets[below + 1]
    every = xp.arange(n, device=share.device)
    left, right = sums[below, every], sums[below + 1, every]
    rises = right > left
    part = xp.where(rises, (share - left) / xp.where(rises, right - left, 1.0), 0.5)

    def quickly(i: Array, s: Array) -> tuple[Array, Array, Array]:
        if i.shape[0] < n:
            reached, density = _sum_pair(integral[:, i], series[:, i], s)
            return reached - share[i], density, _ROUNDING * scale[i]
        reached, density = _sum_pair(integral, series, s)
        return reached - share, density, _ROUNDING * scale

    start = low + (high - low) * xp.clip(part, 0.0, 1.0)
    return increasing_root(quickly, low, high, start, step=_STEP)


class _NodeBasis(NamedTuple):
    """What turns values at Gauss–Legendre nodes into polynomials."""

    weights: np.ndarray
    to_series: np.ndarray  # values at the nodes → coefficients of Legendre polynomials
    integral: np.ndarray  # coefficients of q → coefficients of ∫_{−1}^s q
    up_to_nodes: np.ndarray  # values → ∫_{−1}^{node} q
    twice: np.ndarray  # values → coefficients of ∫_{−1}^s ∫_{−1}^t q
    brackets: np.ndarray


# The matrices for polynomials of this order.
@cache
def _node_basis(order: int) -> _NodeBasis:
    nodes, weights = legendre(order)
    to_series = np.linalg.inv(legendre_series.legvander(nodes, order - 1))
    integral = legendre_series.legint(np.eye(order), lbnd=-1, axis=0)
    up_to_nodes = legendre_series.legvander(nodes, order) @ integral @ to_series
    twice = legendre_series.legint(np.eye(order), m=2, lbnd=-1, axis=0) @ to_series
    return _NodeBasis(weights, to_series, integral, up_to_nodes, twice, np.r_[-1.0, nodes, 1.0])


def from_nodes(order: int, s: np.ndarray) -> np.ndarray:
    """Values at the Gauss–Legendre nodes of [−1, 1] → those of their polynomial at ``s``, shape
    (len(s), order).

    >>> bool(np.allclose(from_nodes(4, np.array([0.5])) @ legendre(4)[0] ** 3, 0.125))
    True
    """
    return np.asarray(legendre_series.legvander(s, order - 1) @ _node_basis(order).to_series)


# Σ_j series_j P_j(s), where each coefficient broadcasts against ``s``.
def _sum(series: np.ndarray, s: np.ndarray) -> np.ndarray:
    return np.asarray(legendre_series.legval(s, series, tensor=False))


# :func:`_sum` of two series at once, of which the first has one term more: twice as fast if
# millions are asked for.
#
# For arrays of any backend.
def _sum_pair(first: Array, second: Array, s: Array) -> tuple[Array, Array]:
    previous, current = 0.0 * s + 1.0, s
    one, two = first[0] + first[1] * s, second[0] + second[1] * s
    for j in range(1, second.shape[0]):
        following = ((2 * j + 1) / (j + 1)) * s * current - (j / (j + 1)) * previous
        previous, current = current, following
        one += first[j + 1] * current
        if j + 1 < second.shape[0]:
            two += second[j + 1] * current
    return one, two


# ∫_{−1}^s of the series in the columns, by nodes inside [−1, s]: never a difference.
def _integral_up_to(series: np.ndarray, s: np.ndarray) -> np.ndarray:
    t, w = legendre((series.shape[0] + 1) // 2)
    half = 0.5 * (1.0 + s)
    return np.asarray(half * (w @ _sum(series[:, None, :], half * (1.0 + t[:, None]) - 1.0)))


# Roots of a polynomial in (−1, 1), in increasing order.
def _real_roots(series: np.ndarray) -> np.ndarray:
    trimmed = legendre_series.legtrim(series, _TRIMMED * np.abs(series).max())
    roots = legendre_series.legroots(trimmed)
    real = roots.real[(np.abs(roots.imag) < _REAL) & (np.abs(roots.real) < 1.0)]
    return np.sort(real)
