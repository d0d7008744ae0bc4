"""The distribution of one feature on panels: for distribution functions, quantiles and levels."""

from __future__ import annotations

import itertools
import math
from collections.abc import Callable

import numpy as np

from ksos.density.corrected import Corrected
from ksos.density.square import Square
from ksos.density.standard import standardize
from ksos.density.terms import Term, Terms
from ksos.ground.memory import row_blocks
from ksos.integrals.regions import intervals, kinks
from ksos.quadrature import LINE_ORDER, PanelDistribution, Panels, cut, merged

_PANELS_PER_LENGTH = 4  # 16 nodes on a quarter of the kernel's length are right to rounding
_LOG_LEVEL = -32.0  # Inside, all panels are equally long, and beyond lies a mass of about e⁻⁶⁴.
_LAST_LEVEL = -330.0  # log k where panels end: its square is about the smallest number
_BLOCK = 1 << 20  # distances of values and atoms that are held at a time: 8 MB
_REACH = 8.5  # standard deviations beyond which a normal distribution has a mass of 1e-17
_TAIL = 38.0  # standard deviations beyond which its density is no float
_KERNEL_REACH = 6.5  # bandwidths beyond which a kernel is below rounding


class Line:
    """The distribution of one feature, and its coordinates: a position t stands for x(t)."""

    def __init__(
        self,
        panels: PanelDistribution,
        boundary: tuple[float, float],
        coordinates: Callable[[np.ndarray], np.ndarray] | None = None,
        points: Callable[[np.ndarray], np.ndarray] | None = None,
        log_volume: float = 0.0,
        unit: float = 1.0,
    ) -> None:
        self.panels, self.boundary, self.log_volume = panels, boundary, log_volume
        self.unit = unit
        """Length in x of a unit of t."""
        self._coordinates, self._points = coordinates, points

    def cdf(self, X: np.ndarray) -> np.ndarray:
        """P(x ≤ X_i) at the rows of X, shape (n,)."""
        at = X if self._coordinates is None else self._coordinates(X)
        return self.panels.cdf(at.T)[0]

    def ppf(self, q: np.ndarray) -> np.ndarray:
        """The x with P(x' ≤ x) = q; at 0 and 1 the ends of the measure."""
        t = self.panels.ppf(q[None, :])
        x = t[0] if self._points is None else self._points(t.T)[:, 0]
        x[q == 0.0], x[q == 1.0] = self.boundary
        return np.clip(x, *self.boundary)

    def crps(self, x: np.ndarray) -> np.ndarray:
        """∫ (P(x' ≤ t) − 1[t ≥ x_i])² dt, shape (n,)."""
        at = x if self._coordinates is None else self._coordinates(x[:, None])[:, 0]
        return self.unit * self.panels.crps(at[None, :])[0]

    def log_level(self, mass: float) -> float:
        """The logarithm of the level above which the density has this mass."""
        return self.panels.log_level(mass) - self.log_volume


def line(p: Terms) -> Line:
    """The line of a density of one feature that is not on atoms, made when it is first needed."""
    if "line" not in p.made:
        p.made["line"] = _line(p)
    found: Line = p.made["line"]
    return found


def crps(p: Terms, x: np.ndarray) -> np.ndarray:
    """The continuous ranked probability score ∫ (P(x' ≤ t) − 1[t ≥ x_i])² dt, shape (n,)."""
    if (atoms := p.measure.atoms) is not None:
        order = np.argsort(atoms.points[:, 0], kind="stable")
        at, share = atoms.points[order, 0], p.node_masses[order]
        cdf = np.cumsum(share)
        both = float((cdf * (1.0 - cdf))[:-1] @ np.diff(at))
        return np.concatenate(
            [
                np.abs(x[rows, None] - at) @ share - both
                for rows in row_blocks(x.shape[0], at.shape[0], _BLOCK)
            ]
        )
    return line(p).crps(x)


def mean_difference(p: Terms) -> float:
    """E|x − x'| of two independent draws from a density of one feature that is not on atoms."""
    one = line(p)
    return one.unit * float(one.panels.mean_difference()[0])


def _line(p: Terms) -> Line:
    boundary = p.measure.boundary(0)
    if (square := p.square) is not None:
        standard = standardize(square)
        alone, back = standard.square, (standard.coordinates, standard.points, standard.log_volume)
        unit = float(standard.matrix[0, 0])
        return Line(_of_square(alone, tails=False), boundary, *back, unit)
    return Line(_on_panels(p, tails=False), boundary)


def _of_square(p: Square, *, tails: bool) -> PanelDistribution:
    """That of a square in standard coordinates."""
    panels = _square_panels(p, tails=tails)
    nodes = panels.nodes.reshape(-1, 1)
    log_p = p.logpdf(nodes).reshape(panels.nodes.shape)
    log_reference = p.measure.log_density(nodes).reshape(panels.nodes.shape)
    return PanelDistribution(
        panels,
        np.exp(log_p + log_reference)[None],
        exact=True,
        log_density=log_p,
        whole=None if tails else lambda: _of_square(p, tails=True),
    )


def _on_panels(p: Terms, *, tails: bool) -> PanelDistribution:
    """That of a sum of terms, each on panels of its own."""
    relative = p.measure.normals(1) is not None
    return PanelDistribution.mixture(
        [
            (w, PanelDistribution.from_log_density(panel_ends(one, tails=tails), one.log_by_volume))
            for w, one in p.parts
        ],
        log_reference=p.measure.log_density if relative else None,
        whole=None if tails else lambda: _on_panels(p, tails=True),
    )


def panel_ends(term: Term, *, tails: bool = True) -> np.ndarray:
    """Of one feature: the ends of panels on which the density is a polynomial to rounding.

    Without ``tails``, of all but a mass of about 1e-17.
    """
    if isinstance(term, Square):
        standard = standardize(term)
        panels = _square_panels(standard.square, tails=tails)
        ends = np.concatenate([panels.start, panels.start + 2.0 * panels.half])
        return np.unique(standard.points(ends[:, None])[:, 0])
    inside = axis_ends(term, 0, 1.0, 0.5)
    if not tails:
        return inside
    mean, deviation = term.normals.means[:, 0], np.sqrt(term.normals.covariances[:, 0, 0])
    # a normal density falls by e⁴ per panel
    outer, sides = np.sqrt(np.arange(_REACH**2, _TAIL**2, 8.0)), []
    for sign in (-1.0, 1.0):
        far = int(np.argmax(sign * mean + _TAIL * deviation))  # the last one to vanish
        sides.append(mean[far] + sign * deviation[far] * outer)
    left, right = sides[0][sides[0] < inside[0]], sides[1][sides[1] > inside[-1]]
    return np.unique(np.concatenate([left, inside, right]))


def axis_ends(p: Corrected, feature: int, deviations: float, bandwidths: float) -> np.ndarray:
    """Ends of panels of a feature: as long as so many standard deviations of the narrowest normal
    density that reaches there, or so many bandwidths of a kernel.
    """
    mean = p.normals.means[:, feature]
    reach = _REACH * np.sqrt(p.normals.covariances[:, feature, feature])
    low, high, step = mean - reach, mean + reach, deviations * p.deviations[:, feature]
    if p.n_corrections:
        at = p.shown[feature]
        sigma = float(np.sqrt(p.metric[at, at]))
        x = p.correction[0][:, at]
        sides = [np.clip(x + s * _KERNEL_REACH * sigma, low.min(), high.max()) for s in (-1.0, 1.0)]
        near, far = merged(*sides)
        steps = np.full(near.shape, bandwidths * sigma)
        low, high, step = np.r_[low, near], np.r_[high, far], np.r_[step, steps]
    low, high = low - step, high + step  # it ends within the next panel, which may be longer
    ends = np.unique(np.r_[low, high])
    middle = 0.5 * (ends[:-1] + ends[1:])
    reached = (low[:, None] < middle) & (middle < high[:, None])
    finest = np.min(np.where(reached, step[:, None], ends[-1] - ends[0]), axis=0)
    panels = np.r_[0.0, np.cumsum((ends[1:] - ends[:-1]) / finest)]  # up to each end
    wanted = np.linspace(0.0, panels[-1], 1 + math.ceil(panels[-1]))
    return np.asarray(np.interp(wanted, panels, ends))


def _square_panels(p: Square, *, tails: bool) -> Panels:
    """Panels so short that a density of one feature, in standard coordinates, is the polynomial
    through 16 nodes, to rounding.
    """
    source = [(p.integrals, p.support_points)]
    low, high, smooth = intervals(source, 0, _LOG_LEVEL, origin=0.0)
    step = smooth / _PANELS_PER_LENGTH
    start, stop = cut(low, high, step, kinks(source, 0, origin=0.0))
    if tails:
        left, right = _tails(p, step)
        start = np.concatenate([left[:-1], start, right[:-1]])
        stop = np.concatenate([left[1:], stop, right[1:]])
    return Panels(start[stop > start], stop[stop > start], LINE_ORDER)


def _tails(p: Square, step: float) -> tuple[np.ndarray, np.ndarray]:
    """The ends of the panels of both tails, increasing; k falls by a factor e at most on each."""
    smooth = p.kernel.smooth
    # 76 levels are four nats apart: quarters of them fall by e; e^{−r} falls as fast everywhere
    levels = np.linspace(_LOG_LEVEL, _LAST_LEVEL, 76 if smooth else 2)
    step = step if smooth else _PANELS_PER_LENGTH * step
    ends = [p.integrals.windows(p.support_points, 0, float(level)) for level in levels]
    sides = []
    for side in ([low.min() for low, _, _ in ends], [high.max() for _, high, _ in ends]):
        side = [end + p.support_points[0, 0] for end in side]
        least = 4 if smooth else 1
        pieces = [
            np.linspace(u, v, 1 + max(least, int(np.ceil(abs(v - u) / step))))
            for u, v in itertools.pairwise(side)
        ]
        sides.append(np.unique(np.concatenate(pieces)))
    return sides[0], sides[1]
