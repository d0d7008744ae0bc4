"""The gradient of the log-density, and where a density is largest."""

from __future__ import annotations

import itertools
from collections.abc import Callable

import numpy as np
from scipy.optimize import minimize, root

from ksos.density.square import Square
from ksos.density.standard import standardize
from ksos.density.terms import Terms
from ksos.ground.memory import row_blocks
from ksos.integrals.regions import cells
from ksos.kernels import Gaussian, Kernel

_GRID_FEATURES = 2  # up to which starts come from a grid: beyond, support points are starts enough
_GRID_CELLS = 40_000  # cells of the grid: 200 per axis of two features
_GRID_LENGTH = 0.5  # their sides in bandwidths: no two maxima of a sum of kernels are closer
_ROOT_FEATURES = 30  # a root in more features costs more than its last digits are worth
_APART = 1e-3  # bandwidths: maxima closer than this are one
_FLAT = 1e-4  # gradients and curvatures that count as 0, and nats that a climb to polish may lack
_SWEEPS = 100  # of a search along the features in turn, which ends by itself after a few
_KINK_WORK = 4000  # values at all kinks of all features that it may take: some seconds
_TINY = 1e-7  # of the way to the next kink: beside a kink, and yet no rounding
_LEVEL = 1e-13  # logarithms closer than this differ by rounding

_STEP = 1e-5  # bandwidths between the places of a difference: rounding leaves ten digits
# derivatives at 0 of the polynomials through values at −2 … 2, moved by −2 … 2
_SLOPES = np.stack(
    [
        np.linalg.inv(np.vander(np.arange(k - 2.0, k + 3.0), increasing=True))[1]
        for k in range(-2, 3)
    ]
)

LogAndGradient = Callable[[np.ndarray], tuple[np.ndarray, np.ndarray]]
Found = tuple[float, np.ndarray, bool]
"""(log p, y, whether p falls in every direction)."""


def log_and_gradient(p: Terms, X: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """log p relative to the measure, and its gradient: known for a square of Gaussian kernels, else
    from differences of fourth order, whose places move inwards where the measure ends.
    """
    if (square := p.square) is not None and isinstance(square.kernel, Gaussian):
        return square.log_and_gradient(X)
    # powers of two, which leave the digits of X as they are
    (n, d), steps = X.shape, 2.0 ** np.round(np.log2(_STEP * p.bandwidths))
    gradient, each = np.zeros((n, d)), np.arange(d)
    low, high = p.measure.boundaries(d)
    inwards = [np.clip(np.ceil(away / steps), -2, 0) for away in (low - X, X - high)]
    moved = (inwards[0] - inwards[1]).astype(int)
    for rows in row_blocks(n, 5 * d * d):
        places = np.tile(X[rows, None, None, :], (1, 5, d, 1))
        places[:, :, each, each] += (np.arange(-2, 3)[:, None] + moved[rows, None, :]) * steps
        logs = p.logpdf(places.reshape(-1, d)).reshape(-1, 5, d)
        with np.errstate(invalid="ignore"):
            logs = logs - logs.max(axis=1, keepdims=True)
        gradient[rows] = np.einsum("nsd,nds->nd", logs, _SLOPES[moved[rows] + 2]) / steps
    log_p = p.logpdf(X)
    seen = np.isfinite(log_p)[:, None] & np.isfinite(gradient)
    return log_p, np.where(seen, gradient, 0.0)


def modes(p: Terms, n_starts: int, *, every: bool) -> np.ndarray:
    """The largest maximum of p, shape (1, d), or ``every`` local one that was found, the largest
    first.
    """
    if (atoms := p.measure.atoms) is not None:
        if every:
            raise ValueError(
                "a discrete measure has no neighborhoods, hence no local modes; call mode() for"
                " the best of its nodes"
            )
        return atoms.points[[int(np.argmax(p.logpdf(atoms.points)))]]
    standard = None if p.square is None else standardize(p.square)
    chart = Terms([(1.0, standard.square)], standard.square.measure) if standard else p
    found = _maxima(chart, n_starts, every=every)
    found = standard.points(found) if standard else found
    return np.clip(found, *p.measure.boundaries(p.n_features))


def _maxima(p: Terms, n_starts: int, *, every: bool) -> np.ndarray:
    """The same of a sum of terms, or of a square in standard coordinates."""
    square, (low, high) = p.square, p.measure.boundaries(p.n_features)
    starts = np.unique(np.clip(p.support_points, low, high), axis=0)
    if square is not None and p.n_features <= _GRID_FEATURES:
        source = square.integrals, square.support_points
        found = cells(*source, _GRID_LENGTH, _GRID_CELLS, split_kinks=False)
        if found is not None:
            on_grid = _grid_maxima(p.logpdf, 0.5 * (found[0] + found[1]))
            starts = np.concatenate([starts, on_grid])
    starts = starts[np.argsort(-p.logpdf(starts), kind="stable")[:n_starts]]
    if square is not None and _has_tip(square.kernel):
        most = max(2, _KINK_WORK // p.n_features)
        return _distinct([_from_kink_to_kink(square, y, every) for y in starts[:most]], every=every)
    # in bandwidths around the best start
    origin, scale = starts[0], p.bandwidths
    limits = np.stack([low - origin, high - origin], axis=1) / scale[:, None]

    def climbed(Y: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        log_p, gradient = log_and_gradient(p, origin + Y * scale)
        return log_p, gradient * scale

    return origin + _climbs(climbed, (starts - origin) / scale, limits, every=every) * scale


def _climbs(
    f: LogAndGradient, starts: np.ndarray, limits: np.ndarray, *, every: bool
) -> np.ndarray:
    """Climbs from all starts; those that end in one place are polished once."""
    found = [_climb(f, y, limits) for y in starts]
    best, ends = max(log_p for log_p, _ in found), list[np.ndarray]()
    for log_p, y in sorted(found, key=lambda one: -one[0]):
        high = every or log_p >= best - _FLAT
        if high and all(np.abs(y - other).max() > _APART for other in ends):
            ends.append(y)
    return _distinct([_polish(f, y, limits) for y in ends], every=every)


def _distinct(found: list[Found], *, every: bool) -> np.ndarray:
    """The best, or all maxima that are apart."""
    found = sorted(found, key=lambda one: -one[0])
    kept = [found[0][1]]
    for _, y, is_maximum in found[1:] if every else []:
        if is_maximum and all(np.abs(y - other).max() > _APART for other in kept):
            kept.append(y)
    return np.stack(kept)


def _has_tip(kernel: Kernel) -> bool:
    """Whether k has a kink at its center so sharp that maxima sit there: log κ falls like √t."""
    return float(kernel.log_profile(np.array([1e-12]))[0]) < -1e-8


def _grid_maxima(logpdf: Callable[[np.ndarray], np.ndarray], middle: np.ndarray) -> np.ndarray:
    """The nodes of a grid that no neighbor on it surpasses."""
    log_p = logpdf(middle)
    place = np.stack(
        [np.unique(column, return_inverse=True)[1].ravel() for column in middle.T], axis=1
    )
    lattice = np.full(place.max(axis=0) + 3, -np.inf)
    lattice[tuple((place + 1).T)] = log_p
    highest = np.ones(log_p.shape[0], dtype=bool)
    for step in itertools.product((-1, 0, 1), repeat=middle.shape[1]):
        highest &= log_p >= lattice[tuple((place + 1 + np.array(step)).T)]
    return middle[highest & np.isfinite(log_p)]


def _climb(f: LogAndGradient, y: np.ndarray, limits: np.ndarray) -> tuple[float, np.ndarray]:
    def downhill(x: np.ndarray) -> tuple[float, np.ndarray]:
        (log_p,), (gradient,) = f(np.clip(x, limits[:, 0], limits[:, 1])[None, :])
        return (-float(log_p) if np.isfinite(log_p) else 1e300), -gradient

    options = {"ftol": 1e-14, "gtol": 1e-8, "maxiter": 500}
    found = minimize(downhill, y, jac=True, method="L-BFGS-B", bounds=limits, options=options)
    return -float(found.fun), np.clip(found.x, limits[:, 0], limits[:, 1])


def _polish(f: LogAndGradient, y: np.ndarray, limits: np.ndarray) -> Found:
    """A root of the gradient beside the end of a climb, in the coordinates that no boundary holds:
    it has the digits that a climb lacks.
    """
    (log_p,), (gradient,) = f(y[None, :])
    held = ((y <= limits[:, 0]) & (gradient < 0.0)) | ((y >= limits[:, 1]) & (gradient > 0.0))
    free = np.flatnonzero(~held)
    if 0 < free.size <= _ROOT_FEATURES:

        def moved(x: np.ndarray) -> np.ndarray:
            at = y.copy()
            at[free] = np.clip(x, *limits[free].T)
            return at

        new = moved(root(lambda x: f(moved(x)[None, :])[1][0, free], y[free], tol=1e-13).x)
        (new_log_p,), _ = f(new[None, :])
        if np.abs(new - y).max() < _APART and new_log_p >= log_p - _LEVEL:
            y, log_p = new, new_log_p
    return float(log_p), y, _falls(f, y, limits)


def _falls(f: LogAndGradient, y: np.ndarray, limits: np.ndarray) -> bool:
    """Whether p falls along every axis, as at the tip of a kernel, where no gradient is flat."""
    steps = _APART * np.concatenate([np.eye(y.shape[0]), -np.eye(y.shape[0])])
    log_p = f(np.clip(y + np.concatenate([np.zeros((1, y.shape[0])), steps]), *limits.T))[0]
    return bool(np.all(log_p[1:] <= log_p[0]))


def _from_kink_to_kink(p: Square, y: np.ndarray, every: bool) -> Found:
    """Along a feature, between kinks, p is convex: its maxima have their coordinates among those of
    the support points and the boundary.

    Features are searched in turn: for the largest maximum the whole axis, for a local one a small
    step to either side, which if it leads up leads up to the next kink. A kink that is best along
    every axis is a maximum: p is differentiable in each of the cells around it.
    """
    ends = np.stack(p.measure.boundaries(p.n_features))
    axes = [
        np.unique(np.clip(np.r_[x, end[np.isfinite(end)]], *end))
        for x, end in zip(p.support_points.T, ends.T, strict=True)
    ]
    y = np.array([axis[np.argmin(np.abs(axis - at))] for axis, at in zip(axes, y, strict=True)])
    for _ in range(_SWEEPS):
        before = y.copy()
        for k, axis in enumerate(axes):
            at = int(np.searchsorted(axis, y[k]))
            kinks = axis[max(at - 1, 0) : at + 2] if every else axis
            rows = np.tile(y, (kinks.shape[0], 1))
            rows[:, k] = y[k] + _TINY * (kinks - y[k]) if every else kinks
            log_p = p.logpdf(rows)
            if log_p.max() > log_p[kinks == y[k]][0] + _LEVEL:
                y[k] = kinks[np.argmax(log_p)]
        if np.array_equal(before, y):
            break
    return float(p.logpdf(y[None, :])[0]), y, True
