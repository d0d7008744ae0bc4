"""Exact sampling of p = Σ_r f_r² for smooth kernels: one of the squares is drawn, then its features one after the other.

A single square has few degrees of freedom. With orthonormal functions u_a of each feature, f_r is a tensor train [Oseledets2011],

    f_r(x) ≈ A_1(x_1) A_2(x_2) … A_d(x_d),    A_k(x_k) = Σ_a u_a(x_k) A_ka,

whose cores to the right of any feature are orthonormal: integrating the later features out leaves ‖v A_k(x_k)‖², where the row v stands
for the features drawn already [CuiDolgov2022]. Its distribution function is inverted on panels. The ranges of the trains are found from
random sums of slices of f_r [Halko2011].

The train f̃ is only a proposal. It is kept with probability f²/(M f̃²), which corrects it wherever f² ≤ M f̃²; elsewhere |f − f̃| is at least
(1 − M^{−1/2})|f|, and what is lost there has a mass of at most ‖f − f̃‖²/(1 − M^{−1/2})².
"""

from __future__ import annotations

import math
from typing import TYPE_CHECKING, NamedTuple

import numpy as np

from ksos._memory import row_blocks
from ksos._threads import one_blas_thread
from ksos.density.sampling.inversion import NODES_PER_PANEL, Axis, without_silent_points
from ksos.density.standard import standardize
from ksos.integrals.erf import normal_between
from ksos.quadrature import from_nodes

if TYPE_CHECKING:
    from ksos.density.sos import SoSDensity

__all__ = ["Squares", "squares_of"]

_EXCESS = 1.25  # M
_ERROR = 3e-7  # of every f_r in L², where p has mass one
_CANCELLED, _ROUNDED, _FLAT = 1e-7, 1e-9, 1e-14
_LEAST_SHARE, _FEWER, _EPSILON = 1e-13, 0.5, float(np.finfo(np.float64).eps)
_FIRST_SLICES, _MOST_SLICES = 48, 768
_ROWS, _SEED = 2048, 0


class Basis(NamedTuple):
    """Orthonormal functions u_a of one feature, on its panels."""

    at_nodes: np.ndarray
    """(panels, nodes, n)."""
    masses: np.ndarray
    """∫ u_a u_b from the left end to the end of every panel, (n·n, panels)."""
    of_points: np.ndarray
    """∫ u_a k̂_i, (n, m)."""


def squares_of(density: SoSDensity) -> Squares | None:
    """The sampler of a density; None if its kernel is not smooth, or its weights of both signs are so large that values are rounding."""
    if not density.kernel.smooth or density.measure.atoms is not None or density.n_features < 2:
        return None
    with one_blas_thread(density.support_points.shape[0]):
        found = Squares(density)
    return found if _EPSILON * np.abs(found.F).sum(axis=0).max(initial=0.0) <= _ROUNDED else None


class Squares:
    """p = Σ_i b k̂_i² + Σ_r f_r² with kernels k̂ of norm one: b is the least eigenvalue of B̂, which kernel density estimates contribute."""

    def __init__(self, density: SoSDensity) -> None:
        self.standard = standardize(density, shorten=False) if density.kernel.full else None
        self.density, factor = without_silent_points(density if self.standard is None else self.standard.density)
        d, m = density.n_features, factor.shape[0]
        self.axes = [Axis(self.density, k) for k in range(d)]
        self.log_norms = sum(axis.log_norm for axis in self.axes)
        self.log_volume = 0.5 * sum(math.log(axis.unit) for axis in self.axes)
        self.floor, F = _without_floor(factor)
        X = self.density.support_points
        log_gram = self.density.integrals.log_gram(X, X) - self.log_norms[:, None] - self.log_norms
        with np.errstate(under="ignore"):
            gram = np.exp(log_gram, out=log_gram)
        shares, V = np.linalg.eigh(F.T @ (gram @ F)) if F.shape[1] else (np.zeros(0), np.zeros((0, 0)))
        rounded = _EPSILON * float(np.sum(np.abs(F) * (gram @ np.abs(F))))  # at most, of the shares: thousands of times too large
        kept = np.flatnonzero(shares > (_LEAST_SHARE if rounded <= _CANCELLED else -np.inf))[::-1]
        self.F, self.shares = F @ V[:, kept], shares[kept]
        self._places = self._draw_bumps(np.arange(m), np.random.default_rng(_SEED))
        self._mixed: dict[tuple[int, int], np.ndarray] = {}
        self._trains: dict[int, list[np.ndarray]] = {}
        self.bases = [self._basis(k) for k in range(d)]
        if rounded > _CANCELLED:  # the shares are lost, but not the squares
            self.shares = np.array([float(np.sum(self.train(r)[0] ** 2)) for r in range(kept.size)])

    def draw(self, size: int, rng: np.random.Generator) -> np.ndarray:
        """``size`` independent samples, shape (size, d)."""
        m = self.F.shape[0]
        masses = np.r_[self.floor * m, self.shares]
        counts = rng.multinomial(size, masses / masses.sum())
        parts = [self._draw_bumps(rng.integers(m, size=counts[0]), rng)]
        with one_blas_thread(m):
            parts += [self._draw_square(r, int(count), rng) for r, count in enumerate(counts[1:]) if count]
        x = np.concatenate(parts)[rng.permutation(size)]
        return x if self.standard is None else self.standard.points(x)

    def _draw_bumps(self, points: np.ndarray, rng: np.random.Generator) -> np.ndarray:
        """Samples of the laws k̂_i², a normal law between the boundaries."""
        X, d = self.density.support_points, self.density.n_features
        centres, width = self.density.integrals.pair_normals(X, X[0])  # type: ignore[misc]
        low, high = (end - X[0] for end in self.density.measure.boundaries(d))
        away, deviation = centres[points], math.sqrt(0.5) * width
        z, _ = normal_between((low - away) / deviation, (high - away) / deviation, rng.random(away.shape))
        return np.clip(X[0] + (away + deviation * z), *self.density.measure.boundaries(d))

    def _draw_square(self, r: int, size: int, rng: np.random.Generator) -> np.ndarray:
        out, filled = np.empty((size, self.density.n_features)), 0
        while filled < size:
            x, proposed = self._propose(r, min(_ROWS, int(1.3 * (size - filled)) + 8), rng)
            exact = self._values(x, self.F[:, r])
            ratio = np.divide(exact**2, proposed**2, out=np.zeros_like(exact), where=proposed != 0.0)
            kept = x[rng.random(ratio.shape[0]) * _EXCESS <= ratio][: size - filled]
            out[filled : filled + kept.shape[0]] = kept
            filled += kept.shape[0]
        return out

    def _values(self, x: np.ndarray, weights: np.ndarray) -> np.ndarray:
        """Σ_i weights_i k̂_i(x), where a measure that is not volume counts by the root of its density."""
        out = np.empty(x.shape[0])
        for rows in row_blocks(x.shape[0], weights.shape[0], 1 << 17):
            log_k = self.density.kernel.log(x[rows], self.density.support_points) - (self.log_norms - self.log_volume)
            with np.errstate(under="ignore"):
                out[rows] = (np.exp(log_k, out=log_k) @ weights) * np.exp(0.5 * self.density.measure.log_density(x[rows]))
        return out

    def _propose(self, r: int, n: int, rng: np.random.Generator) -> tuple[np.ndarray, np.ndarray]:
        """``n`` samples of f̃_r², and f̃_r there."""
        cores = self.train(r)
        x, v = np.empty((n, len(cores))), np.ones((1, 1))
        for k, (axis, basis, core) in enumerate(zip(self.axes, self.bases, cores, strict=True)):
            left, count, right = core.shape
            values = (v @ core.reshape(left, -1)).reshape(-1, count, right)
            t, u = _invert(axis, basis, values, rng.random(n))
            x[:, k] = axis.points(t)
            v = np.matmul(u[:, None, :], values)[:, 0, :]
        return x, v[:, 0]

    # --- trains ---

    def train(self, r: int) -> list[np.ndarray]:
        """The cores (ρ_{k−1}, n_k, ρ_k) of f_r, from the last feature to the first."""
        if r not in self._trains:
            a, right, cores = self.F[:, r], np.ones((1, self.F.shape[0])), list[np.ndarray]()
            for k in range(len(self.bases) - 1, 0, -1):
                V = self.bases[k].of_points
                products = (V[:, None, :] * right[None, :, :]).reshape(-1, V.shape[1])
                Q = self._range(products, k, a)
                cores.append(Q.T.reshape(Q.shape[1], V.shape[0], right.shape[0]))
                right = Q.T @ products
            cores.append(((self.bases[0].of_points * a) @ right.T)[None])
            self._trains[r] = cores[::-1]
        return self._trains[r]

    def _range(self, rows: np.ndarray, k: int, weights: np.ndarray) -> np.ndarray:
        """Orthonormal columns that span, up to the error in L², what the first k features leave of Σ_i weights_i k̂_i in these ``rows``."""
        n = _FIRST_SLICES
        while True:
            columns, found = _span(rows @ (weights[:, None] * self._slices(k, n)))
            if found < 0.8 * n or n >= min(_MOST_SLICES, 2 * min(rows.shape)):
                return columns
            n *= 2

    def _slices(self, k: int, n: int) -> np.ndarray:
        """n random sums of slices: the weights of the points given the first k features, (m, n)."""
        if (k, n) not in self._mixed:
            values = self._left_values(self._places, list(range(k)))
            signs = np.random.default_rng([_SEED, k, n]).standard_normal((values.shape[0], n))  # not by the order of calls
            self._mixed[k, n] = values.T @ signs / math.sqrt(n * values.shape[0])
        return self._mixed[k, n]

    def _left_values(self, z: np.ndarray, features: list[int]) -> np.ndarray:
        """Slices Π_j k̂_ij(z_j)/√g(z) over some features, (n, m), for z of the density g = Σ_i Π_j k̂_ij²/m: their mean is an integral."""
        kernel, measure = self.density.kernel.restrict(features), self.density.measure.restrict(features)
        log_k = kernel.log(z[:, features], self.density.support_points[:, features])
        log_k = log_k - sum(self.axes[j].log_norm for j in features) + 0.5 * measure.log_density(z[:, features])[:, None]
        log_k -= log_k.max(axis=1, keepdims=True)
        with np.errstate(under="ignore"):
            values = np.exp(log_k)
        return values / np.sqrt(np.mean(values * values, axis=1, keepdims=True))

    def _basis(self, k: int) -> Basis:
        """Functions of one feature that span it for all squares, from slices of random sums of them."""
        axis, rows, n = self.axes[k], self.axes[k].gram_rows, 2 * _FIRST_SLICES
        values = self._left_values(self._places, [j for j in range(len(self.axes)) if j != k])
        rng = np.random.default_rng([_SEED, k])
        slices = (self.F @ rng.standard_normal((self.F.shape[1], values.shape[0]))) * values.T / math.sqrt(values.shape[0])
        while True:
            Q, kept = _span(rows @ (slices @ rng.standard_normal((values.shape[0], n)) / math.sqrt(n)))
            if kept < 0.8 * n or n >= _MOST_SLICES:
                break
            n *= 2
        at_nodes = (Q / axis.root_weights.reshape(-1, 1)).reshape(len(axis), NODES_PER_PANEL, kept)
        by_panel = Q.reshape(len(axis), NODES_PER_PANEL, kept)
        masses = np.cumsum(np.matmul(by_panel.transpose(0, 2, 1), by_panel), axis=0)
        return Basis(at_nodes, masses.reshape(len(axis), -1).T.copy(), Q.T @ rows)


def _span(columns: np.ndarray) -> tuple[np.ndarray, int]:
    """Orthonormal columns that span these up to the error, and how many."""
    Q, R = np.linalg.qr(columns)
    U, s, _ = np.linalg.svd(R)
    kept = max(1, int(np.sum(np.cumsum(s[::-1] ** 2)[::-1] > _ERROR**2)))
    return np.asarray(Q @ U[:, :kept]), kept


def _without_floor(factor: np.ndarray) -> tuple[float, np.ndarray]:
    """(b, F) with B̂ = b·1 + FFᵀ and few columns; b = 0 if there are few already."""
    if factor.shape[1] < _FEWER * factor.shape[0]:
        return 0.0, factor
    values, U = np.linalg.eigh(factor @ factor.T)
    if _EPSILON * values[-1] * values.shape[0] > _CANCELLED:  # squares have lost the digits
        U, roots, _ = np.linalg.svd(factor)
        values = np.r_[roots, np.zeros(U.shape[1] - roots.shape[0])][::-1] ** 2
        U = U[:, ::-1]
    floor = max(float(values[0]), 0.0)
    kept = values - floor > _FLAT * values[-1]
    return floor, U[:, kept] * np.sqrt(values[kept] - floor)


def _invert(axis: Axis, basis: Basis, values: np.ndarray, uniforms: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """t with density ‖u(t)·values‖², for values (n, count, right) or (1, count, right), and u(t)."""
    gram = np.matmul(values, values.transpose(0, 2, 1))  # of one law for all, or of n
    below = np.maximum.accumulate(np.maximum(gram.reshape(gram.shape[0], -1) @ basis.masses, 0.0), axis=1)
    total = np.broadcast_to(below[:, -1], uniforms.shape)
    target = uniforms * total
    panel = np.minimum(np.sum(below < target[:, None], axis=1), below.shape[1] - 1)
    below = np.broadcast_to(below, (uniforms.shape[0], below.shape[1]))
    before = np.where(panel > 0, below[np.arange(uniforms.shape[0]), panel - 1], 0.0)
    nodes = basis.at_nodes[panel]
    density = np.einsum("nja,nja->nj", np.matmul(nodes, gram), nodes)
    t = axis.panels.positions(panel, np.maximum(density, 0.0), target - before, total)
    s = (t - axis.panels.start[panel]) / axis.panels.half[panel] - 1.0
    return t, np.matmul(from_nodes(NODES_PER_PANEL, s)[:, None, :], nodes)[:, 0, :]
