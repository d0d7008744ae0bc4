"""Exact sampling of p = Σ_r f_r² for smooth kernels: one of the squares is drawn, then its features
one after the other.

A single square has few degrees of freedom. With orthonormal functions u_a of each feature, f_r is a
tensor train [Oseledets2011],

    f_r(x) ≈ A_1(x_1) A_2(x_2) … A_d(x_d),    A_k(x_k) = Σ_a u_a(x_k) A_ka,

whose cores to the right of any feature are orthonormal: integrating the later features out leaves
‖v A_k(x_k)‖², where the row v stands for the features drawn already [CuiDolgov2022]. Its
distribution function is inverted on panels. The ranges of the trains are found from random sums of
slices of f_r [Halko2011].

The train is only a proposal, and one that need not be accurate. With h = Σ_i k̂_i²/m, the mean of
the bumps, proposals follow g = f̃² + β‖f‖²h, and are kept with probability f²/(M g): this is exact
wherever f² ≤ M g. Elsewhere e = f − f̃ has c e² ≥ f² ≥ Mβ‖f‖²h with c = (1 − M^{−1/2})⁻², so that
the mass lost is at most

    c ∫ e² (c e²/(Mβ‖f‖²h))² = c³/(Mβ‖f‖²)² E_h[(e²/h)³],

which is measured on points of h. It falls with the sixth power of the train's error.
"""

from __future__ import annotations

import math
from functools import cached_property
from typing import TYPE_CHECKING, NamedTuple

import numpy as np
from scipy.linalg import solve_triangular

from ksos.density.factor import split_columns
from ksos.density.sampling.inversion import NODES_PER_PANEL, Axis, without_silent_points
from ksos.density.standard import standardize
from ksos.ground.memory import row_blocks
from ksos.ground.progress import tell_rows
from ksos.ground.threads import one_blas_thread
from ksos.integrals.erf import normal_between
from ksos.quadrature import Panels, from_nodes, position_on_panel, positions

if TYPE_CHECKING:
    from ksos.density.square import Square

__all__ = ["Squares", "squares_of"]

_BOUNDS = ((1.1, 0.02), (1.25, 0.05), (1.5, 0.1), (2.0, 0.2))  # (M, β)
_ERROR, _BASIS_ERROR, _LEAST_ERROR, _TIGHTER = (
    4e-4,
    1e-4,
    3e-7,
    3.0,
)  # of every f_r in L², beside its own norm
_LOST, _SMALL_SHARE, _CHECKED = 1e-10, 1e-6, 512
_CANCELLED, _ROUNDED, _FLAT = 1e-7, 1e-9, 1e-14
_GRAM_DIGITS = 1e-11
_LEAST_SHARE, _FEWER, _EPSILON = 1e-13, 0.5, float(np.finfo(np.float64).eps)
_FIRST_SLICES, _MOST_SLICES = 48, 768
_ROWS, _KEPT_ELEMENTS, _SEED = 2048, 1 << 23, 0


class Basis(NamedTuple):
    """Orthonormal functions u_a of one feature, on its panels."""

    at_nodes: np.ndarray
    """(panels, nodes, n)."""
    masses: np.ndarray
    """∫ u_a u_b from the left end to the end of every panel, (n·n, panels)."""
    of_points: np.ndarray
    """∫ u_a k̂_i, (n, m)."""


class Train(NamedTuple):
    """f̃ of one square, and the proposals made of it."""

    cores: list[np.ndarray]
    """(ρ_{k−1}, n_k, ρ_k) per feature."""
    bases: list[Basis]
    """Functions of the features for this square alone."""
    turns: list[np.ndarray]
    """Which sums of the functions for all squares they are."""
    bound: tuple[float, float]
    """(M, β)."""

    @property
    def mass(self) -> float:
        """∫ f̃²."""
        return float(np.sum(self.cores[0] ** 2))

    def values(self, at: list[np.ndarray]) -> np.ndarray:
        """f̃ where the functions of the features are these, each (n, n_k)."""
        v = np.ones((at[0].shape[0], 1))
        for u, core in zip(at, self.cores, strict=True):
            left, count, right = core.shape
            v = np.matmul(u[:, None, :], (v @ core.reshape(left, -1)).reshape(-1, count, right))[
                :, 0, :
            ]
        return v[:, 0]


def squares_of(density: Square) -> Squares | None:
    """The sampler of a density; None if its kernel is not smooth, or its weights of both signs are
    so large that values are rounding.
    """
    if not density.kernel.smooth or density.measure.atoms is not None or density.n_features < 2:
        return None
    with one_blas_thread(density.support_points.shape[0]):
        found = Squares(density)
    return found if _EPSILON * np.abs(found.F).sum(axis=0).max(initial=0.0) <= _ROUNDED else None


class Squares:
    """p = Σ_i b_i k̂_i² + Σ_r f_r² with kernels k̂ of norm one: kernel density estimates contribute
    the bumps b.
    """

    def __init__(self, density: Square) -> None:
        self.standard = standardize(density, shorten=False) if density.kernel.full else None
        self.density, factor = without_silent_points(
            density if self.standard is None else self.standard.square
        )
        d, m = density.n_features, factor.shape[0]
        self.axes = [Axis(self.density, k) for k in range(d)]
        self.log_norms = sum(axis.log_norm for axis in self.axes)
        self.log_volume = 0.5 * sum(math.log(axis.unit) for axis in self.axes)
        self.bumps, F = _without_bumps(factor)
        X = self.density.support_points
        log_gram = self.density.integrals.log_gram(X, X) - self.log_norms[:, None] - self.log_norms
        with np.errstate(under="ignore"):
            gram = np.exp(log_gram, out=log_gram)
        shares, V = (
            np.linalg.eigh(F.T @ (gram @ F)) if F.shape[1] else (np.zeros(0), np.zeros((0, 0)))
        )
        rounded = _EPSILON * float(
            np.sum(np.abs(F) * (gram @ np.abs(F)))
        )  # at most, of the shares: thousands of times too large
        kept = np.flatnonzero(shares > (_LEAST_SHARE if rounded <= _CANCELLED else -np.inf))[::-1]
        self.F, self.shares = F @ V[:, kept], shares[kept]
        self._places = self._draw_bumps(np.arange(m), np.random.default_rng(_SEED))
        self._mixed: dict[tuple[tuple[int, ...], int], np.ndarray] = {}
        self._trains: dict[int, Train] = {}
        self.known = rounded <= _CANCELLED
        self._lengths = (
            np.sqrt(np.maximum(self.shares, _SMALL_SHARE)) if self.known else np.ones(kept.size)
        )
        self.bases = [self._basis(k, self.F / self._lengths) for k in range(d)]
        if not self.known:  # the shares are lost, but not the squares
            self.shares = np.array([self.train(r).mass for r in range(kept.size)])

    def draw(self, size: int, rng: np.random.Generator) -> np.ndarray:
        """``size`` independent samples, shape (size, d)."""
        m = self.F.shape[0]
        masses = np.r_[self.bumps.sum(), self.shares]
        counts = rng.multinomial(size, masses / masses.sum())
        parts = [
            self._draw_bumps(
                rng.choice(m, size=counts[0], p=self.bumps / masses[0] if masses[0] else None), rng
            )
        ]
        with one_blas_thread(m):
            for r in np.flatnonzero(counts[1:]):
                tell_rows(sum(part.shape[0] for part in parts), size)
                parts.append(self._draw_square(int(r), int(counts[1 + r]), rng))
        x = np.concatenate(parts)[rng.permutation(size)]
        return x if self.standard is None else self.standard.points(x)

    def _draw_bumps(self, points: np.ndarray, rng: np.random.Generator) -> np.ndarray:
        """Samples of the laws k̂_i², a normal law between the boundaries."""
        X, d = self.density.support_points, self.density.n_features
        centres, width = self.density.integrals.pair_normals(X, X[0])  # type: ignore[misc]
        low, high = (end - X[0] for end in self.density.measure.boundaries(d))
        away, deviation = centres[points], math.sqrt(0.5) * width
        z, _ = normal_between(
            (low - away) / deviation, (high - away) / deviation, rng.random(away.shape)
        )
        return np.clip(X[0] + (away + deviation * z), *self.density.measure.boundaries(d))

    def _draw_square(self, r: int, size: int, rng: np.random.Generator) -> np.ndarray:
        train, share = self.train(r), float(self.shares[r])
        M, beta = train.bound
        out, filled, of_train = (
            np.empty((size, self.density.n_features)),
            0,
            train.mass / (train.mass + beta * share),
        )
        while filled < size:
            n = min(_ROWS, int(1.1 * M * (1.0 + beta) * (size - filled)) + 8)
            x, values, near = np.empty((n, out.shape[1])), np.empty(n), rng.random(n) < of_train
            x[near], values[near] = self._propose(train, int(near.sum()), rng)
            x[~near] = self._draw_bumps(
                rng.integers(self.F.shape[0], size=n - int(near.sum())), rng
            )
            values[~near] = train.values(self.at(x[~near], train.bases))
            exact, bumps = self._values(x, self.F[:, [r]])
            kept = x[rng.random(n) * M * (values**2 + beta * share * bumps) <= exact[:, 0] ** 2][
                : size - filled
            ]
            out[filled : filled + kept.shape[0]] = kept
            filled += kept.shape[0]
        return out

    def _lost(self, train: Train, r: int) -> list[float]:
        """Estimates of the mass of square r that samples miss, from points of h, by the (M, β) of
        their proposals.
        """
        at, exact, bumps = self._checks
        error = exact[:, r] - train.values(
            [u @ turn for u, turn in zip(at, train.turns, strict=True)]
        )
        third = float(np.mean((error**2 / bumps) ** 3))
        return [
            (1.0 - M**-0.5) ** -6 * third / (M * beta * float(self.shares[r])) ** 2
            for M, beta in _BOUNDS
        ]

    @cached_property
    def _checks(self) -> tuple[list[np.ndarray], np.ndarray, np.ndarray]:
        """At points of h: the functions of all features, all f_r, and h."""
        rng = np.random.default_rng([_SEED, 1])
        x = self._draw_bumps(
            rng.permutation(-(-_CHECKED // self.F.shape[0]) * self.F.shape[0])[:_CHECKED]
            % self.F.shape[0],
            rng,
        )
        return self.at(x, self.bases), *self._values(x, self.F)

    def _values(self, x: np.ndarray, weights: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        """Σ_i weights_i k̂_i(x), (n, columns), and h(x), where a measure that is not volume counts
        by its density.
        """
        out, bumps = np.empty((x.shape[0], weights.shape[1])), np.empty(x.shape[0])
        for rows in row_blocks(x.shape[0], weights.shape[0], 1 << 17):
            log_k = self.density.kernel.log(x[rows], self.density.support_points) - (
                self.log_norms - self.log_volume
            )
            log_density = self.density.measure.log_density(x[rows])
            with np.errstate(under="ignore"):
                k = np.exp(log_k, out=log_k)
                out[rows] = (k @ weights) * np.exp(0.5 * log_density)[:, None]
                bumps[rows] = np.einsum("ij,ij->i", k, k) * np.exp(log_density) / weights.shape[0]
        return out, bumps

    def _propose(
        self, train: Train, n: int, rng: np.random.Generator
    ) -> tuple[np.ndarray, np.ndarray]:
        """``n`` samples of f̃², and f̃ there."""
        x, v = np.empty((n, len(self.axes))), np.ones((1, 1))
        for k, (axis, basis, core) in enumerate(
            zip(self.axes, train.bases, train.cores, strict=True)
        ):
            left, count, right = core.shape
            values = (v @ core.reshape(left, -1)).reshape(-1, count, right)
            t, u = _invert(axis, basis, values, rng.random(n))
            x[:, k] = axis.points(t)
            v = np.matmul(u[:, None, :], values)[:, 0, :]
        return x, v[:, 0]

    def at(self, x: np.ndarray, bases: list[Basis]) -> list[np.ndarray]:
        """The functions of every feature at the rows of x, each (n, n_k); 0 beyond the panels."""
        return [
            _functions(axis, basis, x[:, k])
            for k, (axis, basis) in enumerate(zip(self.axes, bases, strict=True))
        ]

    # --- trains ---

    def train(self, r: int) -> Train:
        """The train of f_r, accurate enough that next to nothing is lost."""
        if r not in self._trains:
            error = _ERROR if self.known else _LEAST_ERROR
            while True:
                train = self._train(r, error)
                lost = self._lost(train, r) if self.known else [math.inf]
                if error <= _LEAST_ERROR or lost[-1] <= _LOST:
                    break
                error /= _TIGHTER
            enough = [bound for bound, mass in zip(_BOUNDS, lost, strict=False) if mass <= _LOST]
            self._trains[r] = train._replace(bound=(enough or _BOUNDS[-1:])[0])
        return self._trains[r]

    def _train(self, r: int, error: float) -> Train:
        """From the last feature to the first."""
        a, d, right, error = (
            self.F[:, r],
            len(self.bases),
            np.ones((1, self.F.shape[0])),
            error * float(self._lengths[r]),
        )
        turns = [
            self._range(basis.of_points, _others(k, d), a, 0.5 * error)
            for k, basis in enumerate(self.bases)
        ]
        bases, cores = [self._turned(k, turn) for k, turn in enumerate(turns)], list[np.ndarray]()
        for k in range(d - 1, 0, -1):
            V = bases[k].of_points
            products = (V[:, None, :] * right[None, :, :]).reshape(-1, V.shape[1])
            Q = self._range(products, tuple(range(k)), a, error)
            cores.append(Q.T.reshape(Q.shape[1], V.shape[0], right.shape[0]))
            right = Q.T @ products
        cores.append(((bases[0].of_points * a) @ right.T)[None])
        return Train(cores[::-1], bases, turns, _BOUNDS[-1])

    def _turned(self, k: int, turn: np.ndarray) -> Basis:
        """Sums of the functions of a feature."""
        at_nodes = self.bases[k].at_nodes @ turn
        return Basis(
            at_nodes, _masses(self.axes[k].panels, at_nodes), turn.T @ self.bases[k].of_points
        )

    def _range(
        self, rows: np.ndarray, features: tuple[int, ...], weights: np.ndarray, error: float
    ) -> np.ndarray:
        """Orthonormal columns that span, up to the error in L², what these features leave of Σ_i
        weights_i k̂_i in these ``rows``.
        """
        n = _FIRST_SLICES * (2 if 1 < len(features) < len(self.axes) - 1 else 1)
        while True:
            columns, found = _span(rows @ (weights[:, None] * self._slices(features, n)), error)
            if found < 0.8 * n or n >= min(_MOST_SLICES, 2 * min(rows.shape)):
                return columns
            n *= 2

    def _slices(self, features: tuple[int, ...], n: int) -> np.ndarray:
        """n random sums of slices: the weights of the points given these features, (m, n)."""
        if (features, n) not in self._mixed:
            values = self._left_values(features)
            signs = np.random.default_rng([_SEED, *features, n]).standard_normal(
                (values.shape[0], n)
            )  # not by the order of calls
            self._mixed[features, n] = values.T @ signs / math.sqrt(n * values.shape[0])
        return self._mixed[features, n]

    def _left_values(self, features: tuple[int, ...]) -> np.ndarray:
        """Slices Π_j k̂_ij(z_j)/√g(z) over some features, (n, m), for z of the density g = Σ_i Π_j
        k̂_ij²/m: their mean is an integral.
        """
        log_k = np.zeros((self._places.shape[0], self.F.shape[0]))
        for j in features:
            log_k += self._log_kept[j] if self._log_kept else self._log_values(j)
        log_k -= log_k.max(axis=1, keepdims=True)
        with np.errstate(under="ignore"):
            values = np.exp(log_k)
        return values / np.sqrt(np.mean(values * values, axis=1, keepdims=True))

    @cached_property
    def _log_kept(self) -> list[np.ndarray]:
        """log k̂_ij(z_j) of every feature, if that is not too much to keep."""
        d, few = len(self.axes), len(self.axes) * self.F.shape[0] ** 2 <= _KEPT_ELEMENTS
        return [self._log_values(j) for j in range(d)] if few else []

    def _log_values(self, j: int) -> np.ndarray:
        z, measure = self._places[:, [j]], self.density.measure.restrict([j])
        log_k = self.density.kernel.restrict([j]).log(z, self.density.support_points[:, [j]])
        return np.asarray(log_k - self.axes[j].log_norm + 0.5 * measure.log_density(z)[:, None])

    def _basis(self, k: int, F: np.ndarray) -> Basis:
        """Functions of one feature that span it for all squares, the columns of F, from slices of
        random sums of them.
        """
        axis, rows, others, n = (
            self.axes[k],
            self.axes[k].gram_rows,
            _others(k, len(self.axes)),
            _FIRST_SLICES,
        )
        values = self._left_values(others)
        rng = np.random.default_rng([_SEED, k])
        self._mixed[others, n] = (
            values.T @ rng.standard_normal((values.shape[0], n)) / math.sqrt(n * values.shape[0])
        )
        slices = (
            (F @ rng.standard_normal((F.shape[1], values.shape[0])))
            * values.T
            / math.sqrt(values.shape[0])
        )
        error = _BASIS_ERROR if self.known else _LEAST_ERROR
        while True:
            Q, kept = _span(
                rows @ (slices @ rng.standard_normal((values.shape[0], n)) / math.sqrt(n)), error
            )
            if kept < 0.8 * n or n >= _MOST_SLICES:
                break
            n *= 2
        at_nodes = (Q / axis.root_weights.reshape(-1, 1)).reshape(len(axis), NODES_PER_PANEL, kept)
        return Basis(at_nodes, _masses(axis.panels, at_nodes), Q.T @ rows)


def _others(k: int, d: int) -> tuple[int, ...]:
    """All features but k."""
    return tuple(j for j in range(d) if j != k)


def _masses(panels: Panels, at_nodes: np.ndarray) -> np.ndarray:
    """∫ u_a u_b from the left end to the end of every panel."""
    weighted = at_nodes * np.sqrt(panels.weights)[:, :, None]
    return (
        np.cumsum(np.matmul(weighted.transpose(0, 2, 1), weighted), axis=0)
        .reshape(len(panels), -1)
        .T.copy()
    )


def _span(columns: np.ndarray, error: float) -> tuple[np.ndarray, int]:
    """Orthonormal columns that span these up to the error, and how many; from their Gram matrix if
    it has the digits.
    """
    values, V = np.linalg.eigh(columns.T @ columns)
    if error**2 > _GRAM_DIGITS * values[-1]:
        kept = max(1, int(np.sum(np.cumsum(np.maximum(values, 0.0)) > error**2)))
        Q = columns @ (V[:, -kept:] / np.sqrt(values[-kept:]))
        return np.asarray(solve_triangular(np.linalg.cholesky(Q.T @ Q), Q.T, lower=True).T), kept
    Q, R = np.linalg.qr(columns)
    U, s, _ = np.linalg.svd(R)
    kept = max(1, int(np.sum(np.cumsum(s[::-1] ** 2)[::-1] > error**2)))
    return np.asarray(Q @ U[:, :kept]), kept


def _without_bumps(factor: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """(b, F) with B̂ = diag(b) + FFᵀ and few columns: columns of one point each, or else the least
    eigenvalue of B̂.
    """
    mixed, bumps = split_columns(factor)
    if mixed.shape[1] < _FEWER * factor.shape[0]:
        return bumps, mixed
    values, U = np.linalg.eigh(factor @ factor.T)
    if _EPSILON * values[-1] * values.shape[0] > _CANCELLED:  # squares have lost the digits
        U, roots, _ = np.linalg.svd(factor)
        values = np.r_[roots, np.zeros(U.shape[1] - roots.shape[0])][::-1] ** 2
        U = U[:, ::-1]
    floor = max(float(values[0]), 0.0)
    kept = values - floor > _FLAT * values[-1]
    return np.full(values.shape, floor), U[:, kept] * np.sqrt(values[kept] - floor)


def _functions(axis: Axis, basis: Basis, x: np.ndarray) -> np.ndarray:
    """u_a(x), shape (n, count)."""
    j, s = position_on_panel(axis.panels, (x - axis.origin) / axis.unit)
    u = np.matmul(
        from_nodes(NODES_PER_PANEL, np.clip(s, -1.0, 1.0))[:, None, :], basis.at_nodes[j]
    )[:, 0, :]
    return np.where(np.abs(s[:, None]) <= 1.0, u, 0.0)


def _invert(
    axis: Axis, basis: Basis, values: np.ndarray, uniforms: np.ndarray
) -> tuple[np.ndarray, np.ndarray]:
    """t with density ‖u(t)·values‖², for values (n, count, right) or (1, count, right), and u(t)."""
    gram = np.matmul(values, values.transpose(0, 2, 1))  # of one law for all, or of n
    below = np.maximum.accumulate(
        np.maximum(gram.reshape(gram.shape[0], -1) @ basis.masses, 0.0), axis=1
    )
    total = np.broadcast_to(below[:, -1], uniforms.shape)
    target = uniforms * total
    panel = np.minimum(np.sum(below < target[:, None], axis=1), below.shape[1] - 1)
    below = np.broadcast_to(below, (uniforms.shape[0], below.shape[1]))
    before = np.where(panel > 0, below[np.arange(uniforms.shape[0]), panel - 1], 0.0)
    nodes = basis.at_nodes[panel]
    density = np.einsum("nja,nja->nj", np.matmul(nodes, gram), nodes)
    density = np.maximum(density, 0.0)
    t = positions(axis.panels, panel, density, target - before, total)
    s = (t - axis.panels.start[panel]) / axis.panels.half[panel] - 1.0
    return t, np.matmul(from_nodes(NODES_PER_PANEL, s)[:, None, :], nodes)[:, 0, :]
