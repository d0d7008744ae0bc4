"""Exact sampling of p = Σ_r f_r² for smooth kernels: one f_r² is drawn, then its features
one after the other.

A single square has few degrees of freedom. With orthonormal functions u_a of each feature, f_r is a
tensor train [Oseledets2011],

    f_r(x) ≈ A_1(x_1) A_2(x_2) … A_d(x_d),    A_k(x_k) = Σ_a u_a(x_k) A_ka,

whose cores to the right of any feature are orthonormal: integrating the later features out leaves
‖v A_k(x_k)‖², where the row v stands for the features drawn already [CuiDolgov2022]. Its
distribution function is inverted on panels. The functions and the ranges of the cores are found
from random sums of slices of f_r [Halko2011].

The train is only a proposal, and one that need not be accurate. With h = Σ_i k̂_i²/m, proposals
follow g = f̃² + β‖f‖²h, and are kept with probability f²/(M g): this is exact wherever f² ≤ M g.
Elsewhere e = f − f̃ has c e² ≥ f² ≥ Mβ‖f‖²h with c = (1 − M^{−1/2})⁻², so that the mass lost is at
most

    c ∫ e² (c e²/(Mβ‖f‖²h))² = c³/(Mβ‖f‖²)² E_h[(e²/h)³],

which is measured on points of h. It falls with the sixth power of the train's error.
"""

from __future__ import annotations

import math
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np
from scipy.linalg import solve_triangular

from ksos.density.factor import split_columns
from ksos.density.sampling.inversion import NODES_PER_PANEL, Axis, without_silent_points
from ksos.density.sampling.rejection import gathered
from ksos.density.standard import standardize
from ksos.ground import Run, one_blas_thread, row_blocks
from ksos.integrals.erf import normal_between
from ksos.quadrature import Panels, from_nodes, position_on_panel, positions

if TYPE_CHECKING:
    from ksos.density.square import Square


_ERROR = 1.3e-4  # of f_r in L², at first: below it, the mass that is lost is rounding
_LEAST_ERROR = 1e-5  # at last: the Gram matrices of slices have no more digits
_TIGHTER = 3.0  # in one step: the mass that is lost falls by 3⁶
_LOST = 1e-10  # mass that samples may miss, and of a square that counts: 1e9 would not show it
_CHECKED = 512  # points on which it is measured: one block of kernel values
_SMALL_SHARE = 1e-6  # a smaller square is approximated no better than one of this mass
_CANCELLED = 1e-5  # bound on rounding in the masses of squares: in truth 20 to 1000 times smaller
_FIRST_SLICES = 48  # random sums: a block of BLAS, and as many as most ranks need
_MOST_SLICES = 768  # more than any rank found
_ROWS = 2048  # proposals at a time
_BLOCK = 1 << 17  # kernel values at a time: 1 MB, which stays in a core's cache
_ROUNDING = 1e-9  # of a position on a panel, for data 1e7 bandwidths from zero
_SEED = 0  # of trains, which are the same for every generator that draws


class Core(NamedTuple):
    """A feature of the train of a square: ``weights`` A_ka, (ρ_{k−1}, n, ρ_k), and the functions
    u_a ``at_nodes`` of the panels, (panels, nodes, n).

    ``masses`` holds ∫ u_a u_b from the left end to the end of every panel, (n·n, panels).
    """

    weights: np.ndarray
    at_nodes: np.ndarray
    masses: np.ndarray


def squares_of(density: Square) -> Squares | None:
    """The sampler of a density. None if its kernel is not smooth, or its weights of both signs are
    so large that the masses of its squares are rounding.
    """
    if not density.kernel.smooth or density.measure.atoms is not None or density.n_features < 2:
        return None
    with one_blas_thread(density.support_points.shape[0]):
        found = Squares(density)
    return found if found.rounding <= _CANCELLED else None


class Squares:
    """p = Σ_i b_i k̂_i² + Σ_r f_r² with kernels k̂ of norm one. The b are those columns of the
    factor that hold one point each, as in a kernel density estimate.
    """

    # M(1 + β) = 1.65 proposals per sample: fewer need trains of higher rank, which take longer
    M, BETA = 1.5, 0.1

    def __init__(self, density: Square) -> None:
        self.standard = standardize(density, on_nodes=False) if density.kernel.full else None
        self.density, factor = without_silent_points(
            density if self.standard is None else self.standard.square
        )
        X = self.density.support_points
        self.axes = [Axis(self.density, k) for k in range(density.n_features)]
        self.log_norms = np.stack([axis.log_norm for axis in self.axes])
        self.log_volume = 0.5 * sum(math.log(axis.unit) for axis in self.axes)
        F, self.single = split_columns(factor)
        log_norm = self.log_norms.sum(axis=0)
        with np.errstate(under="ignore"):
            gram = np.exp(self.density.integrals.log_gram(X, X) - log_norm[:, None] - log_norm)
        # of the shares, at most
        self.rounding = float(np.sum(np.abs(F) * (gram @ np.abs(F)))) * np.finfo(float).eps
        # squares that are orthogonal in L² are as few as possible
        shares, V = np.linalg.eigh(F.T @ (gram @ F))
        kept = np.flatnonzero(shares > _LOST)[::-1]
        self.F, self.shares = F @ V[:, kept], shares[kept]
        self._places = self._draw_components(np.arange(X.shape[0]), np.random.default_rng(_SEED))
        self._mixed: dict[tuple[tuple[int, ...], int], np.ndarray] = {}
        self._trains: dict[int, list[Core]] = {}
        # points of h, on which the errors of trains are measured
        rng, m = np.random.default_rng([_SEED, 1]), X.shape[0]
        self._checks = self._draw_components(rng.permutation(max(m, _CHECKED))[:_CHECKED] % m, rng)
        self._checked = self.squares_and_components(self._checks, self.F)

    def draw(self, size: int, rng: np.random.Generator) -> np.ndarray:
        """``size`` independent samples, shape (size, d)."""
        m = self.F.shape[0]
        masses = np.r_[self.single, self.shares]
        counts = rng.multinomial(size, masses / masses.sum())
        parts = [self._draw_components(np.repeat(np.arange(m), counts[:m]), rng)]
        with one_blas_thread(m):
            for r in np.flatnonzero(counts[m:]):
                Run.current().tell_rows(sum(part.shape[0] for part in parts), size)
                parts.append(self._draw_square(int(r), int(counts[m + r]), rng))
        x = np.concatenate(parts)[rng.permutation(size)]
        return x if self.standard is None else self.standard.points(x)

    def _draw_components(self, points: np.ndarray, rng: np.random.Generator) -> np.ndarray:
        """Samples of the densities k̂_i², normal distributions between the boundaries."""
        X, boundaries = self.density.support_points, self.density.measure.boundaries(len(self.axes))
        centers, width = self.density.integrals.pair_normals(X, X[0])  # type: ignore[misc]
        means, deviation = centers[points], math.sqrt(0.5) * width
        low, high = ((end - X[0] - means) / deviation for end in boundaries)
        z, _ = normal_between(low, high, rng.random(means.shape))
        return np.clip(X[0] + (means + deviation * z), *boundaries)

    def _draw_square(self, r: int, size: int, rng: np.random.Generator) -> np.ndarray:
        train, wide = self.train(r), self.BETA * float(self.shares[r])
        mass = np.sum(train[0].weights ** 2)

        def accepted(n: int) -> np.ndarray:
            near = rng.binomial(n, mass / (mass + wide))
            wider = self._draw_components(rng.integers(self.F.shape[0], size=n - near), rng)
            proposals = self.follow(train, near, rng), self.follow(train, wider)
            x, values = (np.concatenate(parts) for parts in zip(*proposals, strict=True))
            exact, h = self.squares_and_components(x, self.F[:, [r]])
            keep = rng.random(n) * self.M * (values**2 + wide * h) <= exact[:, 0] ** 2
            # in random order: the two kinds of proposals come one after the other
            return x[rng.permutation(np.flatnonzero(keep))]

        proposals = 1.1 * self.M * (1.0 + self.BETA)
        return gathered(accepted, size, len(self.axes), proposals, _ROWS)

    def squares_and_components(
        self, x: np.ndarray, weights: np.ndarray
    ) -> tuple[np.ndarray, np.ndarray]:
        """Σ_i weights_i k̂_i(x), (n, columns), and h(x), where a measure that is not volume counts
        by its density.
        """
        out, h = np.empty((x.shape[0], weights.shape[1])), np.empty(x.shape[0])
        log_norm = self.log_norms.sum(axis=0) - self.log_volume
        for rows in row_blocks(x.shape[0], weights.shape[0], _BLOCK):
            log_root = 0.5 * self.density.measure.log_density(x[rows])[:, None]
            log_k = self.density.kernel.log(x[rows], self.density.support_points) - log_norm
            with np.errstate(under="ignore"):
                k = np.exp(log_k + log_root)
                out[rows], h[rows] = k @ weights, np.einsum("ij,ij->i", k, k) / weights.shape[0]
        return out, h

    def follow(
        self, train: list[Core], x: np.ndarray | int, rng: np.random.Generator | None = None
    ) -> tuple[np.ndarray, np.ndarray]:
        """Rows x and f̃ there. With a generator, x is how many samples of f̃² to draw."""
        rows = np.empty((x, len(self.axes))) if isinstance(x, int) else x
        v = np.ones((1 if rng is not None else rows.shape[0], 1))
        for k, (axis, core) in enumerate(zip(self.axes, train, strict=True)):
            left, count, right = core.weights.shape
            values = (v @ core.weights.reshape(left, -1)).reshape(-1, count, right)
            if rng is not None:
                t = _invert(axis.panels, core, values, rng.random(rows.shape[0]))
                rows[:, k] = axis.points(t)
            j, s = position_on_panel(axis.panels, (rows[:, k] - axis.origin) / axis.unit)
            inside = np.abs(s) <= 1.0 + _ROUNDING  # f̃ is 0 beyond the panels
            u = from_nodes(NODES_PER_PANEL, np.clip(s, -1.0, 1.0)) * inside[:, None]
            u = np.matmul(u[:, None, :], core.at_nodes[j])
            v = np.matmul(u, values)[:, 0, :]
        return rows, v[:, 0]

    def train(self, r: int) -> list[Core]:
        """The train of f_r, accurate enough that next to nothing is lost."""
        (exact, h), share, error = self._checked, float(self.shares[r]), _ERROR
        while r not in self._trains:
            train = self._train(r, error * math.sqrt(max(share, _SMALL_SHARE)))
            e = exact[:, r] - self.follow(train, self._checks)[1]
            lost = (
                (1.0 - self.M**-0.5) ** -6
                * np.mean((e**2 / h) ** 3)
                / (self.M * self.BETA * share) ** 2
            )
            if lost <= _LOST or error <= _LEAST_ERROR:
                self._trains[r] = train
            error /= _TIGHTER
        return self._trains[r]

    def _train(self, r: int, error: float) -> list[Core]:
        """From the last feature to the first: ``right`` holds ∫ of the later cores times k̂_i."""
        a, right, train = self.F[:, r], np.ones((1, self.F.shape[0])), list[Core]()
        for k in range(len(self.axes) - 1, -1, -1):
            axis, others = self.axes[k], tuple(j for j in range(len(self.axes)) if j != k)
            Q = self._range(axis.gram_rows, others, a, 0.5 * error)
            shape = (len(axis.panels), NODES_PER_PANEL, Q.shape[1])
            by_panel, V = Q.reshape(shape), Q.T @ axis.gram_rows
            masses = np.cumsum(np.matmul(by_panel.transpose(0, 2, 1), by_panel), axis=0)
            products = (V[:, None, :] * right[None, :, :]).reshape(-1, V.shape[1])
            if k:
                core = self._range(products, tuple(range(k)), a, error).T
                right = core @ products
            else:
                core = (products @ a)[None, :]
            core = core.reshape(-1, V.shape[0], products.shape[0] // V.shape[0])
            masses = np.ascontiguousarray(masses.reshape(shape[0], -1).T)
            train.append(Core(core, (Q / axis.root_weights).reshape(shape), masses))
        return train[::-1]

    def _range(
        self, rows: np.ndarray, features: tuple[int, ...], weights: np.ndarray, error: float
    ) -> np.ndarray:
        """Orthonormal columns that span, up to the error in L², what these features leave of Σ_i
        weights_i k̂_i in these ``rows``.
        """
        n = _FIRST_SLICES * (2 if 1 < len(features) < len(self.axes) - 1 else 1)
        while True:
            columns = rows @ (weights[:, None] * self._slices(features, n))
            # errors are at least 1e-5 of the columns, which leaves their Gram matrix the digits
            values, V = np.linalg.eigh(columns.T @ columns)
            kept = max(1, int(np.sum(np.cumsum(np.maximum(values, 0.0)) > error**2)))
            if kept < 0.8 * n or n >= min(_MOST_SLICES, 2 * min(rows.shape)):
                break
            n *= 2
        Q = columns @ (V[:, -kept:] / np.sqrt(values[-kept:]))
        # once more: the columns of the least eigenvalues are orthonormal only to 1e-6
        return np.asarray(solve_triangular(np.linalg.cholesky(Q.T @ Q), Q.T, lower=True).T)

    def _slices(self, features: tuple[int, ...], n: int) -> np.ndarray:
        """n random sums of slices Π_j k̂_ij(z_j)/√g(z) over these features, (m, n), for z of the
        density g = Σ_i Π_j k̂_ij²/m: the mean of their squares is an integral.
        """
        if (features, n) not in self._mixed:
            some, X = list(features), self.density.support_points
            log_k = self.density.kernel.restrict(some).log(self._places[:, some], X[:, some])
            log_k -= self.log_norms[some].sum(axis=0)
            with np.errstate(under="ignore"):
                values = np.exp(log_k - log_k.max(axis=1, keepdims=True))
            values /= np.sqrt(np.mean(values * values, axis=1, keepdims=True))
            # by the features, not by the order of calls
            rng = np.random.default_rng([_SEED, *features, n])
            signs = rng.standard_normal((values.shape[0], n))
            self._mixed[features, n] = values.T @ signs / math.sqrt(n * values.shape[0])
        return self._mixed[features, n]


def _invert(panels: Panels, core: Core, values: np.ndarray, uniforms: Any) -> np.ndarray:
    """t with density ‖u(t)·values‖², for values (n, count, right) or (1, count, right)."""
    n = uniforms.shape[0]
    gram = np.matmul(values, values.transpose(0, 2, 1))  # of one distribution for all, or of n
    mass = np.maximum(gram.reshape(gram.shape[0], -1) @ core.masses, 0.0)
    below = np.broadcast_to(np.maximum.accumulate(mass, axis=1), (n, len(panels)))
    target = uniforms * below[:, -1]
    panel = np.minimum(np.sum(below < target[:, None], axis=1), len(panels) - 1)
    before = np.where(panel > 0, below[np.arange(n), panel - 1], 0.0)
    at_nodes = np.matmul(core.at_nodes[panel], values)
    density = np.einsum("njr,njr->nj", at_nodes, at_nodes)
    return np.asarray(positions(panels, panel, density, target - before, below[:, -1]))
