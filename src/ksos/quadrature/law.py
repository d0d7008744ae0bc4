"""Laws on panels: on each panel the density is the polynomial through its values at Gauss–Legendre
nodes.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import cache, cached_property
from typing import TYPE_CHECKING, NamedTuple

import numpy as np
from numpy.polynomial import legendre as series_of

from ksos.ground.arrays import Array
from ksos.ground.memory import row_blocks
from ksos.quadrature.rules import legendre

if TYPE_CHECKING:
    from ksos.quadrature.panels import Panels

__all__ = ["NodeBasis", "PiecewiseLaw", "RowDistributions", "from_nodes", "increasing_root"]
__all__ += ["invert_on_panel", "node_basis", "sum_pair"]

Excess = Callable[[np.ndarray, np.ndarray], tuple[np.ndarray, np.ndarray, np.ndarray]]

_STEP, _EXACT_STEP, _MOST_STEPS = 1e-13, 1e-14, 60
_ROUNDING = 1e-16
_BLOCK_ELEMENTS, _LEAST_COLUMNS = (
    1 << 20,
    1 << 7,
)  # at most 8192 entries at a time, whose polynomials stay in the cache


class PiecewiseLaw:
    """n laws on the same panels, with ``values`` (n, panels, order) of their densities at the
    nodes; their masses need not be one.

    All terms are positive, so nothing cancels. With ``exact=True`` the tails keep their relative
    digits on both sides; without it, errors are small beside the whole mass, and an answer takes a
    fraction of the time.

    >>> from ksos.quadrature import Panels
    >>> panels = Panels(np.array([0.0, 1.0]), np.array([1.0, 3.0]), 4)
    >>> law = PiecewiseLaw(panels, 2.0 * panels.nodes[None])  # density 2x/9 on [0, 3]
    >>> law.cdf(np.array([[1.5]])).round(12), law.ppf(np.array([[0.25]])).round(12)
    (array([[0.25]]), array([[1.5]]))
    """

    def __init__(self, panels: Panels, values: np.ndarray, *, exact: bool = False) -> None:
        self.panels, self.values, self.exact = panels, values, exact
        self.masses = np.maximum(panels.masses(values), 0.0)
        """(n, panels)."""
        self.total = self.masses.sum(axis=1)

    def moments(self) -> tuple[np.ndarray, np.ndarray]:
        """Mean and standard deviation, each of shape (n,)."""
        shares = (self.values * self.panels.weights).reshape(self.values.shape[0], -1)
        shares /= shares.sum(axis=1, keepdims=True)
        nodes = self.panels.nodes.ravel()
        mean = shares @ nodes
        return mean, np.sqrt(np.einsum("ij,ij->i", shares, (nodes[None, :] - mean[:, None]) ** 2))

    def density(self, x: np.ndarray) -> np.ndarray:
        """The density of the first law at the entries of x, its mass not being scaled to one; 0
        beyond the panels.
        """
        start, half = self.panels.start, self.panels.half
        j = np.clip(np.searchsorted(start, x, side="right") - 1, 0, start.shape[0] - 1)
        s = (x - start[j]) / half[j] - 1.0
        found = np.einsum(
            "no,no->n", from_nodes(self.panels.order, np.clip(s, -1.0, 1.0)), self.values[0, j]
        )
        return np.where(np.abs(s) <= 1.0, np.maximum(found, 0.0), 0.0)

    def cdf(self, x: np.ndarray) -> np.ndarray:
        """P(X ≤ x) for the arguments of each law, shape (n, k)."""
        return self._in_blocks(self._mass, _rows(x), x.ravel()).reshape(x.shape)

    def sf(self, x: np.ndarray) -> np.ndarray:
        """P(X > x), with the relative digits that 1 − cdf has lost in the upper tail."""
        return self._mirrored.cdf(-x)

    def ppf(self, q: np.ndarray) -> np.ndarray:
        """The x with cdf(x) = q for the levels of each law, shape (n, k); 0 and 1 give the ends of
        where the mass is.
        """
        law, levels, out = _rows(q), q.ravel(), np.empty(q.size)
        if not self.exact:
            return self._in_blocks(self._quantile, law, levels).reshape(q.shape)
        upper = levels > 0.5  # 1 − q is exact there: quantiles near 1 are as good as those near 0
        out[~upper] = self._in_blocks(self._quantile, law[~upper], levels[~upper])
        if np.any(upper):
            out[upper] = -self._mirrored._in_blocks(
                self._mirrored._quantile, law[upper], 1.0 - levels[upper]
            )
        return out.reshape(q.shape)

    @cached_property
    def _mirrored(self) -> PiecewiseLaw:
        """The laws of −X."""
        return PiecewiseLaw(self.panels.mirrored(), self.values[:, ::-1, ::-1], exact=self.exact)

    @cached_property
    def _before(self) -> np.ndarray:
        """The mass on the panels to the left of panel j, for all panels and beyond the last one,
        (n, panels + 1).
        """
        return np.concatenate(
            [np.zeros((self.masses.shape[0], 1)), np.cumsum(self.masses, axis=1)], axis=1
        )

    def _in_blocks(
        self, f: Callable[..., np.ndarray], law: np.ndarray, arguments: np.ndarray
    ) -> np.ndarray:
        out, (n, columns) = np.empty(arguments.shape), self._before.shape
        for rows in row_blocks(
            arguments.shape[0], max(_LEAST_COLUMNS, columns if n > 1 else 0), _BLOCK_ELEMENTS
        ):
            out[rows] = f(law[rows], arguments[rows])
        return out

    def _mass(self, law: np.ndarray, x: np.ndarray) -> np.ndarray:
        panels = self.panels
        j = np.clip(np.searchsorted(panels.start, x, side="right") - 1, 0, len(panels) - 1)
        s = np.clip((x - panels.start[j]) / panels.half[j] - 1.0, -1.0, 1.0)
        part, whole = (
            panels.half[j] * _up_to(node_basis(panels.order).to_series @ self.values[law, j].T, s),
            self.masses[law, j],
        )
        part = np.where(s == 1.0, whole, np.clip(part, 0.0, whole))
        return np.minimum((self._before[law, j] + part) / self._before[law, -1], 1.0)

    def _quantile(self, law: np.ndarray, share: np.ndarray) -> np.ndarray:
        sums, total = self._before, self._before[law, -1]
        target = share * total
        one = sums.shape[0] == 1
        j = (
            np.searchsorted(sums[0, 1:], target, side="left")
            if one
            else np.sum(sums[law, 1:] < target[:, None], axis=1)
        )
        j = np.minimum(j, len(self.panels) - 1)
        return self.panels.positions(
            j, self.values[law, j], target - sums[law, j], total, exact=self.exact
        )


def _rows(arguments: np.ndarray) -> np.ndarray:
    """The row of every entry, as it stands in the flattened array."""
    return np.repeat(np.arange(arguments.shape[0]), arguments.shape[1])


class RowDistributions:
    """Distributions on the same panels, of which every row of a question names its own.

    ``log_densities`` has, for each of them, the values at the nodes, up to a constant. ``which``
    are their numbers (n,) for the rows of a question.
    """

    def __init__(self, panels: Panels, log_densities: Sequence[np.ndarray]) -> None:
        # one by one: a single distribution finds the panel of a level by bisection
        self.distributions = [
            PiecewiseLaw(panels, np.exp(logs - logs.max()).reshape(1, *panels.nodes.shape))
            for logs in log_densities
        ]

    def ppf(self, which: np.ndarray, levels: np.ndarray) -> np.ndarray:
        """Quantiles (n, levels), not decreasing in the level, infinite at 0 and 1."""
        order = np.argsort(levels, kind="stable")
        found = np.concatenate([one.ppf(levels[None, order]) for one in self.distributions])
        found = np.maximum.accumulate(found, axis=1)[:, np.argsort(order)]
        found[:, levels == 0.0], found[:, levels == 1.0] = -np.inf, np.inf
        return found[which]

    def per_row(self, question: str, which: np.ndarray, values: np.ndarray) -> np.ndarray:
        """cdf or ppf of the values of every row, (n, any number), under its own distribution."""
        out = np.empty(values.shape)
        for number in np.unique(which):
            ask, mine = getattr(self.distributions[number], question), values[which == number]
            out[which == number] = ask(mine.reshape(1, -1)).reshape(mine.shape)
        return out


def increasing_root(
    f: Excess, low: np.ndarray, high: np.ndarray, start: np.ndarray, *, step: float | np.ndarray
) -> np.ndarray:
    """Where increasing functions have their roots, entry by entry: Newton's method, safeguarded by
    bisection between ``low`` and ``high``.

    ``f(i, x)`` gives, for the entries i that are still open, value and slope at x, and what counts
    as a value of zero. An entry is done when it moves by less than ``step``.

    >>> root = increasing_root(lambda i, x: (x**3 - 2.0, 3.0 * x**2, 0.0 * x), np.zeros(1), 2.0 * np.ones(1), np.ones(1), step=1e-14)
    >>> root.round(12)
    array([1.25992105])
    """
    x, low, high, open_ = start.copy(), low.copy(), high.copy(), np.arange(start.shape[0])
    step = np.broadcast_to(step, x.shape)
    for _ in range(_MOST_STEPS if x.size else 0):
        here = x[open_]
        value, slope, nothing = f(open_, here)
        low[open_], high[open_] = (
            np.where(value < 0.0, here, low[open_]),
            np.where(value < 0.0, high[open_], here),
        )
        a, b = low[open_], high[open_]
        newton = here - np.divide(
            value,
            slope,
            out=np.full(here.shape, np.inf),
            where=slope * (b - a) > np.abs(value) * 1e-3,
        )
        better = np.where((newton >= a) & (newton <= b), newton, 0.5 * (a + b))
        better = np.where(np.abs(value) <= nothing, here, better)
        x[open_] = better
        open_ = open_[np.abs(better - here) >= step[open_]]
        if open_.size == 0:
            break
    return x


def invert_on_panel(
    values: np.ndarray, share: np.ndarray, scale: np.ndarray, *, exact: bool = False
) -> np.ndarray:
    """s ∈ [−1, 1] with ∫_{−1}^s q = share; the polynomial q has ``values`` (n, order) at the
    Gauss–Legendre nodes.

    The error of the integral is small beside ``scale``, the whole mass; if ``exact``, beside
    ``share``.
    """
    basis, values = node_basis(values.shape[1]), np.ascontiguousarray(values.T)
    series = basis.to_series @ values
    if exact:
        ones = np.ones(share.shape)

        def exactly(i: np.ndarray, s: np.ndarray) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
            chosen = series[:, i]
            return _up_to(chosen, s) - share[i], _sum(chosen, s), np.zeros(i.shape)

        return increasing_root(exactly, -ones, ones, 0.0 * ones, step=_EXACT_STEP)
    integral, n = basis.integral @ series, share.shape[0]
    sums = np.concatenate(
        [np.zeros((1, n)), basis.up_to_nodes @ values, (basis.weights @ values)[None]]
    )
    below = np.clip(np.sum(sums[1:-1] < share, axis=0), 0, values.shape[0])
    low, high = basis.brackets[below], basis.brackets[below + 1]
    left, right = (np.take_along_axis(sums, index[None], axis=0)[0] for index in (below, below + 1))
    rise = right - left
    part = np.divide(share - left, rise, out=np.full(share.shape, 0.5), where=rise > 0.0)

    def quickly(i: np.ndarray, s: np.ndarray) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
        if i.shape[0] < n:
            reached, density = sum_pair(integral[:, i], series[:, i], s)
            return reached - share[i], density, _ROUNDING * scale[i]
        reached, density = sum_pair(integral, series, s)
        return reached - share, density, _ROUNDING * scale

    return increasing_root(
        quickly, low, high, low + (high - low) * np.clip(part, 0.0, 1.0), step=_STEP
    )


class NodeBasis(NamedTuple):
    """What turns values at Gauss–Legendre nodes into polynomials."""

    weights: np.ndarray
    to_series: np.ndarray
    """Values at the nodes → coefficients of Legendre polynomials."""
    integral: np.ndarray
    """Coefficients of q → coefficients of ∫_{−1}^s q."""
    up_to_nodes: np.ndarray
    """Values → ∫_{−1}^{node} q."""
    brackets: np.ndarray


@cache
def node_basis(order: int) -> NodeBasis:
    """The matrices for polynomials of this order."""
    nodes, weights = legendre(order)
    to_series = np.linalg.inv(series_of.legvander(nodes, order - 1))
    integral = series_of.legint(np.eye(order), lbnd=-1, axis=0)
    up_to_nodes = series_of.legvander(nodes, order) @ integral @ to_series
    return NodeBasis(weights, to_series, integral, up_to_nodes, np.r_[-1.0, nodes, 1.0])


def from_nodes(order: int, s: np.ndarray) -> np.ndarray:
    """Values at the Gauss–Legendre nodes of [−1, 1] → those of their polynomial at ``s``, shape
    (len(s), order).

    >>> bool(np.allclose(from_nodes(4, np.array([0.5])) @ legendre(4)[0] ** 3, 0.125))
    True
    """
    return np.asarray(series_of.legvander(s, order - 1) @ node_basis(order).to_series)


def _sum(series: np.ndarray, s: np.ndarray) -> np.ndarray:
    """Σ_j series_j P_j(s), where each coefficient broadcasts against ``s``."""
    previous, current = np.ones_like(s), s
    total = series[0] + series[1] * s
    for j in range(1, series.shape[0] - 1):
        previous, current = (
            current,
            ((2 * j + 1) / (j + 1)) * s * current - (j / (j + 1)) * previous,
        )
        total += series[j + 1] * current
    return np.asarray(total)


def sum_pair(first: Array, second: Array, s: Array) -> tuple[Array, Array]:
    """:func:`_sum` of two series at once, of which the first has one term more: twice as fast where
    millions are asked for.

    For arrays of any backend.
    """
    previous, current = 0.0 * s + 1.0, s
    one, two = first[0] + first[1] * s, second[0] + second[1] * s
    for j in range(1, second.shape[0] - 1):
        previous, current = (
            current,
            ((2 * j + 1) / (j + 1)) * s * current - (j / (j + 1)) * previous,
        )
        one += first[j + 1] * current
        two += second[j + 1] * current
    j = second.shape[0] - 1
    return (
        one + first[j + 1] * (((2 * j + 1) / (j + 1)) * s * current - (j / (j + 1)) * previous),
        two,
    )


def _up_to(series: np.ndarray, s: np.ndarray) -> np.ndarray:
    """∫_{−1}^s of the series in the columns, by nodes inside of the stretch itself: never a
    difference.
    """
    t, w = legendre((series.shape[0] + 1) // 2)
    half = 0.5 * (1.0 + s)
    return np.asarray(half * (w @ _sum(series[:, None, :], half * (1.0 + t[:, None]) - 1.0)))
