"""The distribution of one feature on panels: for distribution functions, quantiles and levels."""

from __future__ import annotations

import itertools
import math

import numpy as np

from ksos.density.corrected import Corrected
from ksos.density.square import Square
from ksos.density.standard import standardize
from ksos.density.terms import Term, Terms
from ksos.ground.memory import row_blocks
from ksos.integrals.regions import intervals, kinks
from ksos.quadrature import PanelDistribution, cut, merged

_PANELS_PER_LENGTH = 4  # 16 nodes on a quarter of the kernel's length are right to rounding
_LOG_LEVEL = -32.0  # Inside, all panels are equally long, and beyond lies a mass of about e⁻⁶⁴.
_LAST_LEVEL = -330.0  # log k where panels end: its square is about the smallest number
_BLOCK = 1 << 20  # distances of values and atoms that are held at a time: 8 MB
_REACH = 8.5  # standard deviations beyond which a normal distribution has a mass of 1e-17
_TAIL = 38.0  # standard deviations beyond which its density is no float
_KERNEL_REACH = 6.5  # bandwidths beyond which a kernel is below rounding


def line(p: Terms) -> PanelDistribution:
    """The distribution of a density of one feature that is not on atoms, made when it is first
    needed.
    """
    if "line" not in p.made:
        p.made["line"] = _on_panels(p, tails=False)
    found: PanelDistribution = p.made["line"]
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
    return np.asarray(line(p).crps(x[None, :])[0])


def mean_difference(p: Terms) -> float:
    """E|x − x'| of two independent draws from a density of one feature that is not on atoms."""
    return float(line(p).mean_difference()[0])


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
        square = standard.square
        source = [(square.integrals, square.support_points)]
        low, high, smooth = intervals(source, 0, _LOG_LEVEL, origin=0.0)
        step = smooth / _PANELS_PER_LENGTH
        ends = [*cut(low, high, step, kinks(source, 0, origin=0.0))]
        ends += _tail_ends(square, step) if tails else []
        return np.unique(standard.points(np.concatenate(ends)[:, None])[:, 0])
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
        sigma = float(np.sqrt(p.correction.metric[at, at]))
        x = p.correction.points[:, at]
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


def _tail_ends(p: Square, step: float) -> list[np.ndarray]:
    """The ends of the panels of both tails; k falls by a factor e at most on each."""
    smooth = p.kernel.smooth
    # 76 levels are four nats apart: quarters of them fall by e; e^{−r} falls as fast everywhere
    levels = np.linspace(_LOG_LEVEL, _LAST_LEVEL, 76 if smooth else 2)
    step, least = (step, 4) if smooth else (_PANELS_PER_LENGTH * step, 1)
    windows = [p.integrals.windows(p.support_points, 0, float(level)) for level in levels]
    sides = [low.min() for low, _, _ in windows], [high.max() for _, high, _ in windows]
    return [
        p.support_points[0, 0] + np.linspace(u, v, 1 + max(least, math.ceil(abs(v - u) / step)))
        for side in sides
        for u, v in itertools.pairwise(side)
    ]
