"""The gradient of the log-density, and where a density is largest: climbs along gradients or, for
kernels with a tip, from kink to kink.
"""

from __future__ import annotations

import itertools
from typing import TYPE_CHECKING

import numpy as np
from scipy.optimize import minimize

from ksos.density.standard import standardize
from ksos.ground.memory import row_blocks
from ksos.integrals.metric import axes_of
from ksos.integrals.regions import cells
from ksos.kernels import Gaussian, Kernel
from ksos.kernels.distances import feature_squares, squared_distances

if TYPE_CHECKING:
    from ksos.density.sos import SoSDensity

__all__ = ["log_and_gradient", "modes"]

_GRID_FEATURES, _GRID_CELLS, _GRID_LENGTH = 2, 40_000, 0.5
_NEWTON_FEATURES, _NEWTON_STEPS = 30, 8
_DIFFERENCE = 1e-5
_APART = 1e-3  # bandwidths: maxima closer than this are one
_FLAT = 1e-4
_SWEEPS, _KINK_WORK = 100, 4000
_TINY = 1e-7


def log_and_gradient(p: SoSDensity, X: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """log p, shape (n,), and ∇ log p = 2 Σ_i (Fψ)_i k_i ∇log k_i / ‖ψ‖² with ψ = Fᵀk(x), shape (n,
    d); 0 where the density vanishes.

    The largest term of each sum Σ_i F_i k(x, x̃_i) is taken out first: it cancels, and nothing
    underflows far away.
    """
    points, kernel, inside, axes = p.support_points, p.kernel, p.measure.contains(X), None
    if kernel.full:  # in the axes of the metric, and back by the chain rule
        axes, kernel = axes_of(kernel, X.shape[1]), Gaussian(1.0)
        X, points = axes.coordinates(X, points[:1]), axes.coordinates(points, points[:1])
    F, bumps, log_lengths = p.unit_columns
    n, d = X.shape
    sigma = kernel.sigma_vector(d)
    log_p, gradient = np.full(n, -np.inf), np.zeros((n, d))
    with np.errstate(over="ignore", under="ignore", invalid="ignore", divide="ignore"):
        for rows in row_blocks(n, max(points.shape[0], F.shape[1])):
            x = X[rows]
            log_terms = kernel.log(x, points) + log_lengths
            peak = log_terms.max(axis=1)
            peak = np.where(np.isfinite(peak), peak, 0.0)
            k = np.exp(log_terms - peak[:, None])
            psi = k @ F
            square = np.einsum("ij,ij->i", psi, psi) + (k * k) @ bumps
            weight = k * (psi @ F.T + k * bumps)
            whole = (
                None
                if kernel.product or d == 1
                else kernel.slope(squared_distances(x, points, sigma))
            )
            seen = inside[rows] & (square > 0.0)
            log_p[rows] = np.where(seen, np.log(square) + 2.0 * peak - p.log_unit, -np.inf)
            for j, squares in enumerate(feature_squares(x, points, sigma)):
                slope = kernel.slope(squares) if whole is None else whole
                # ∂_j log k = 2·slope·(x_j − x̃_ij)/σ_j²; a weight of 0 silences distances whose
                # square is infinite
                away = (x[:, j][:, None] - points[:, j]) / sigma[j]
                total = np.sum(np.where(weight != 0.0, weight * slope * away, 0.0), axis=1)
                gradient[rows, j] = np.where(seen, 4.0 * (total / square) / sigma[j], 0.0)
    return log_p, gradient if axes is None else gradient @ axes.V


def modes(p: SoSDensity, n_starts: int, *, every: bool) -> np.ndarray:
    """The largest maximum of p, shape (1, d), or ``every`` local one that was found, the largest
    first.
    """
    if (atoms := p.measure.atoms) is not None:
        if every:
            raise ValueError(
                "a discrete measure has no neighbourhoods, hence no local modes; call mode() for"
                " the best of its nodes"
            )
        return atoms.points[[int(np.argmax(p.logpdf(atoms.points)))]]
    standard = standardize(p)
    density = standard.density
    limits = np.stack(density.measure.boundaries(density.n_features), axis=1)
    if _has_tip(density.kernel):
        most = min(n_starts, max(2, _KINK_WORK // density.n_features))
        found = [
            _from_kink_to_kink(density, y, limits, every) for y in _starts(density, most, limits)
        ]
    else:
        found = [_climb(density, y, limits) for y in _starts(density, n_starts, limits)]
        best = max(log_p for log_p, _, _ in found)
        chosen = found if every else [one for one in found if one[0] >= best - _FLAT]
        ends: list[np.ndarray] = []
        for _, y, _ in sorted(
            chosen, key=lambda one: -one[0]
        ):  # climbs that end in one place are polished once
            if all(np.abs(y - other).max() > _APART for other in ends):
                ends.append(y)
        found = [_polish(density, y, limits) for y in ends]
    found.sort(key=lambda one: -one[0])
    kept = [found[0][1]]
    for _, y, is_maximum in found[1:] if every else []:
        if is_maximum and all(np.abs(y - other).max() > _APART for other in kept):
            kept.append(y)
    back = standard.points(np.stack(kept))
    return np.clip(back, *p.measure.boundaries(p.n_features))


Found = tuple[float, np.ndarray, bool]
"""(log p, y, whether p falls in every direction)."""


def _has_tip(kernel: Kernel) -> bool:
    """Whether k has a kink at its centre so sharp that maxima sit there: log κ falls like √t
    instead of t.
    """
    return float(kernel.log_profile(np.array([1e-12]))[0]) < -1e-8


def _starts(p: SoSDensity, most: int, limits: np.ndarray) -> np.ndarray:
    """The support points of largest density, and in few features the maxima on a grid."""
    X = np.unique(np.clip(p.support_points, limits[:, 0], limits[:, 1]), axis=0)
    if p.n_features <= _GRID_FEATURES:
        found = cells(p.integrals, p.support_points, _GRID_LENGTH, _GRID_CELLS, split_kinks=False)
        if found is not None:
            X = np.concatenate([X, _grid_maxima(p, 0.5 * (found[0] + found[1]))])
    return X[np.argsort(-p.logpdf(X), kind="stable")[:most]]


def _grid_maxima(p: SoSDensity, middle: np.ndarray) -> np.ndarray:
    """The nodes of a grid that no neighbour on it surpasses."""
    log_p = p.logpdf(middle)
    place = np.stack(
        [np.unique(column, return_inverse=True)[1].ravel() for column in middle.T], axis=1
    )
    lattice = np.full(place.max(axis=0) + 3, -np.inf)
    lattice[tuple((place + 1).T)] = log_p
    highest = np.ones(log_p.shape[0], dtype=bool)
    for step in itertools.product((-1, 0, 1), repeat=middle.shape[1]):
        highest &= log_p >= lattice[tuple((place + 1 + np.array(step)).T)]
    return middle[highest & np.isfinite(log_p)]


def _climb(p: SoSDensity, y: np.ndarray, limits: np.ndarray) -> Found:
    def downhill(x: np.ndarray) -> tuple[float, np.ndarray]:
        log_p, gradient = log_and_gradient(p, np.clip(x, limits[:, 0], limits[:, 1])[None, :])
        return (-float(log_p[0]) if np.isfinite(log_p[0]) else 1e300), -gradient[0]

    found = minimize(
        downhill,
        y,
        jac=True,
        method="L-BFGS-B",
        bounds=limits,
        options={"ftol": 1e-14, "gtol": 1e-8, "maxiter": 500},
    )
    return -float(found.fun), np.clip(found.x, limits[:, 0], limits[:, 1]), True


def _polish(p: SoSDensity, y: np.ndarray, limits: np.ndarray) -> Found:
    """Newton's method on the coordinates that no boundary holds, its Hessian from differences of
    gradients.
    """
    if y.shape[0] > _NEWTON_FEATURES:
        return float(log_and_gradient(p, y[None, :])[0][0]), y, True
    is_maximum = False
    for _ in range(_NEWTON_STEPS):
        (log_p,), (gradient,) = log_and_gradient(p, y[None, :])
        held = ((y <= limits[:, 0]) & (gradient < 0.0)) | ((y >= limits[:, 1]) & (gradient > 0.0))
        free = np.flatnonzero(~held)
        if free.size == 0:
            return float(log_p), y, True
        values, vectors = np.linalg.eigh(_hessian(p, y, free, limits))
        is_maximum = bool(values[-1] < _FLAT) and bool(np.abs(gradient[free]).max() < _FLAT)
        step = vectors @ ((vectors.T @ gradient[free]) / np.maximum(np.abs(values), 1e-8))
        new = y.copy()
        new[free] = np.clip(y[free] + step, limits[free, 0], limits[free, 1])
        if (
            float(log_and_gradient(p, new[None, :])[0][0]) < log_p - 1e-13
            or np.abs(new - y).max() < 1e-15
        ):
            break
        y = new
    return float(log_and_gradient(p, y[None, :])[0][0]), y, is_maximum


def _hessian(p: SoSDensity, y: np.ndarray, free: np.ndarray, limits: np.ndarray) -> np.ndarray:
    n = free.shape[0]
    moved = np.tile(y, (2 * n, 1))
    moved[np.arange(n), free] += _DIFFERENCE
    moved[n + np.arange(n), free] -= _DIFFERENCE
    moved = np.clip(moved, limits[:, 0], limits[:, 1])
    _, gradients = log_and_gradient(p, moved)
    way = moved[np.arange(n), free] - moved[n + np.arange(n), free]
    H = (gradients[:n, free] - gradients[n:, free]) / way[:, None]
    return 0.5 * (H + H.T)


def _from_kink_to_kink(p: SoSDensity, y: np.ndarray, limits: np.ndarray, every: bool) -> Found:
    """Along a feature, between kinks, p is convex: its maxima have their coordinates among those of
    the support points and the boundary.

    Features are searched in turn: for the largest maximum the whole axis, for a local one a small
    step to either side, which if it leads up leads up to the next kink. A kink that is best along
    every axis is a maximum: p is differentiable in each of the cells around it.
    """
    X, F = p.support_points, p.unit_factor
    axes = [
        np.unique(np.clip(np.r_[X[:, k], limits[k][np.isfinite(limits[k])]], *limits[k]))
        for k in range(y.shape[0])
    ]
    y = np.array(
        [axis[np.argmin(np.abs(axis - value))] for axis, value in zip(axes, y, strict=True)]
    )

    def log_factor(k: int, values: np.ndarray) -> np.ndarray:
        return np.asarray(p.kernel.restrict([k]).log(values[:, None], X[:, [k]]))

    parts = [log_factor(k, y[[k]])[0] for k in range(y.shape[0])]
    for _ in range(_SWEEPS):
        before = y.copy()
        for k, axis in enumerate(axes):
            at = int(np.searchsorted(axis, y[k]))
            near = axis[max(at - 1, 0) : at + 2]
            candidates = y[k] + _TINY * (near - y[k]) if every else axis
            rows = log_factor(k, candidates)
            log_k = sum(part for j, part in enumerate(parts) if j != k) + rows
            psi = np.exp(log_k - log_k.max()) @ F
            square = np.einsum("ij,ij->i", psi, psi)
            here, best = int(np.argmin(np.abs(candidates - y[k]))), int(np.argmax(square))
            if square[best] > square[here] * (1.0 + 1e-14):
                y[k] = near[best] if every else axis[best]
                parts[k] = log_factor(k, y[[k]])[0]
        if np.array_equal(before, y):
            break
    return float(p.logpdf(y[None, :])[0]), y, True
