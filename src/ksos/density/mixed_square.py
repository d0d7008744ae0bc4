r"""What the correction of a mixed table is expected to be, given the cells that are observed.

The density is ρ(u, c)·‖a + Fᵀφ(u, c)‖² with φ_i = k(u, ũ_i) Π_j κ_j(c_j, c̃_ij), k Gaussian and
κ_j(a, b) = 1 if a = b, else θ_j. In a component of ρ all cells are normal or independent levels, so

    E_k[φ_i | o] = h_i τ_i,    E_k[φ_i φ_l | o] = b_i b_l C_il T_il,

where h and b are Gaussians in the numeric cells that are observed, as for the marginal of a
corrected normal density, times κ of the observed levels. Of the missing ones, with the
probabilities π of their levels,

    τ_i = Π_j [θ + (1−θ) π(c̃_i)],
    T_il = Π_j [θ² + θ(1−θ)(π(c̃_i) + π(c̃_l)) + (1−θ)² 1{c̃_i = c̃_l} π(c̃_i)].

C and T do not depend on what is observed, only on which cells are: rows with the same cells missing
share them.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from functools import cached_property
from typing import Any

import numpy as np

from ksos.density.factor import hadamard_factor, unit_rows
from ksos.density.mixed_reference import MixedReference
from ksos.ground.arrays import Array, like, namespace, row_products, row_squares, to_numpy
from ksos.ground.memory import row_blocks
from ksos.kernels.base import squared_distances

_BLOCK_ELEMENTS = 1 << 17  # numbers held at a time: 1 MB, which a core's cache holds
_ROUNDING = 2.3e-16  # the rounding of one operation in float64
_SEVERAL = 8  # groups of components that are kept beside single ones
_TOLERANCE = 1e-12  # of the value: where rounding may be more, the product is factored


@dataclass(frozen=True)
class Correction:
    """a (r,) and F (m, r), the support points ũ (m, d) and c̃ (m, q), the metric S (d, d) of
    k(u, u') = exp(−(u−u')ᵀS⁻¹(u−u')), and θ (q,).
    """

    metric: np.ndarray
    thetas: np.ndarray
    points: np.ndarray
    codes: np.ndarray
    factor: np.ndarray
    constant: np.ndarray

    @cached_property
    def precision(self) -> np.ndarray:
        """S⁻¹."""
        return np.linalg.inv(self.metric)

    @property
    def is_silent(self) -> bool:
        """Whether nothing is corrected: the density is the reference."""
        return not np.any(self.factor)

    def kappa(self, j: int, levels: Any) -> np.ndarray:
        """κ_j(level, c̃_ij) of some levels of column j, (levels, m)."""
        return np.where(np.reshape(levels, (-1, 1)) == self.codes[:, j], 1.0, self.thetas[j])

    def features(self, u: Array, c: np.ndarray) -> Array:
        """φ at complete rows, (n, m)."""
        root = like(np.linalg.cholesky(self.precision), u)
        at = like(self.points, u) @ root
        away = squared_distances(u @ root, at, np.ones(at.shape[1]), 1)
        return namespace(u).exp(-away) * self.kappas(c, range(c.shape[1]), u)

    def kappas(self, c: np.ndarray, known: Iterable[int], home: Array) -> Array:
        """Π_j κ_j of the ``known`` cells of rows, (n, m), or (n, 1) if there are none."""
        out = like(np.ones((c.shape[0], 1)), home)
        for j in known:
            levels, which = np.unique(c[:, j], return_inverse=True)
            out = out * like(self.kappa(j, levels)[which], home)
        return out

    def values(self, u: np.ndarray, c: np.ndarray) -> np.ndarray:
        """‖a + Fᵀφ‖² at complete rows."""
        out = np.empty(u.shape[0])
        for rows in row_blocks(u.shape[0], self.points.shape[0], _BLOCK_ELEMENTS):
            out[rows] = row_squares(self.constant + self.features(u[rows], c[rows]) @ self.factor)
        return out

    @cached_property
    def bound(self) -> float:
        """What the values never exceed, for φᵀK⁻¹φ ≤ 1 with the kernel matrix K."""
        K = self.features(self.points, self.codes)
        largest = float(np.linalg.eigvalsh(self.factor.T @ K @ self.factor)[-1])
        return float((np.linalg.norm(self.constant) + np.sqrt(max(largest, 0.0))) ** 2)

    def levels(self, reference: MixedReference, which: Any, missing: Iterable[int]) -> np.ndarray:
        """(1, τ; τ, T) of some components for the ``missing`` categorical columns, (k, 1 + m,
        1 + m).
        """
        m = self.codes.shape[0]
        out = np.ones((len(which), 1 + m, 1 + m))
        for j in missing:
            z, theta, chances = self.codes[:, j], self.thetas[j], reference.chances[j][which]
            p, same = chances[:, z], (1.0 - theta) ** 2 * (z[:, None] == z)
            T, crossed = same * p[:, None], theta * (1.0 - theta) * p
            T += (theta**2 + crossed)[..., None]
            T += crossed[:, None]
            out[:, 0, 1:] *= theta + (1.0 - theta) * p
            out[:, 1:, 1:] *= T
        out[:, 1:, 0] = out[:, 0, 1:]
        return out


class Expected:
    """Expectations of φ in every component, for rows of which the same cells are observed.

    ``seen`` and ``known`` are masks of the numeric and the categorical cells.
    """

    def __init__(
        self,
        reference: MixedReference,
        correction: Correction,
        seen: np.ndarray,
        known: np.ndarray,
    ) -> None:
        self.reference, self.correction, self.hidden = reference, correction, reference.hidden(seen)
        self.known, self.missing = np.flatnonzero(known), np.flatnonzero(~known)
        S, R = np.flatnonzero(seen), np.flatnonzero(~seen)
        P, X = correction.precision, correction.points
        self.seen, self.is_whole = S, not (R.size or self.missing.size)
        self.P = P[np.ix_(R, R)]
        self.widths = np.linalg.inv(self.P)
        slope = self.widths @ P[np.ix_(R, S)]
        # t_i = start_i − y, where y = E[x_R | x_S] + slope·x_S about the means of a component
        away = X - reference.means[:, None]
        self.start, self.pull = away[..., R] + away[..., S] @ slope.T, self.hidden.pull + slope
        # of all components: of one kernel and of two
        V, d = self.hidden.covariances, R.size
        once, twice = (np.linalg.inv(self.widths / q + 2.0 * V) for q in (1, 2))
        # k_i of the seen cells and the rest are one Gaussian: coordinates of x_S, and its centers
        own = np.linalg.cholesky(np.linalg.inv(correction.metric[np.ix_(S, S)]))
        roots = np.linalg.cholesky(once), np.linalg.cholesky(0.5 * twice)
        every = np.broadcast_to(own, (V.shape[0], *own.shape))
        self.axes = [np.concatenate([self.pull.mT @ root, every], axis=-1) for root in roots]
        self.at = [np.concatenate([self.start @ root, away[..., S] @ own], -1) for root in roots]
        self.logs = [
            -0.5 / q * np.linalg.slogdet(np.eye(d) + 2.0 * q * V @ self.P)[1] for q in (1, 2)
        ]
        self.apart = _root(0.5 * self.P - 0.25 * twice)
        self._more = dict[int, Expected]()
        self._made = dict[Any, ExpectedOf]()

    def near(self, c: np.ndarray, home: Array) -> Array:
        """The factors of φ of the categorical cells that are known, (n, m) or (n, 1)."""
        return self.correction.kappas(c, self.known, home)

    def and_seen(self, feature: int) -> Expected:
        """The same where one more numeric cell is seen."""
        if feature not in self._more:
            seen = np.isin(np.arange(self.reference.shape[0]), [*self.seen, feature])
            known = np.isin(np.arange(self.reference.shape[1]), self.known)
            self._more[feature] = Expected(self.reference, self.correction, seen, known)
        return self._more[feature]

    def of(self, which: np.ndarray, home: Array) -> ExpectedOf:
        """Those of some components, where the array ``home`` lies."""
        key = which.tobytes(), type(home), home.device
        if len(self._made) > self.reference.weights.size + _SEVERAL:
            self._made.clear()
        if key not in self._made:
            self._made[key] = ExpectedOf(self, which, home)
        return self._made[key]


class ExpectedOf:
    """E_k[φ] and E_k[φφᵀ] given the observed cells in some components k, and means of the hidden
    ones under them.

    Rows ``x`` of the numeric cells that are seen are (n, seen), or others for every component,
    (k, n, seen). ``near`` are the factors of φ of categorical cells.
    """

    def __init__(self, all_of: Expected, which: np.ndarray, home: Array) -> None:
        self.all_of, self.which, one = all_of, which, all_of.correction
        self.levels = like(one.levels(all_of.reference, which, all_of.missing), home)
        self.tau, self.start = self.levels[:, 0, 1:], like(all_of.start[which], home)
        self.F, self.a = like(one.factor, home), like(one.constant, home)
        self.lengths = like(np.linalg.norm(one.factor, axis=1), home)
        self.linear, self.own = self.tau * (self.F @ self.a), float(one.constant @ one.constant)

    @cached_property
    def apart(self) -> Array:
        """C, (k, m, m)."""
        at = self.start @ like(self.all_of.apart[self.which], self.start)
        return namespace(at).exp(-squared_distances(at, at, np.ones(at.shape[-1])))

    @cached_property
    def pairs(self) -> Array:
        """C ∘ T, (k, m, m)."""
        return self.apart * self.levels[:, 1:, 1:]

    @cached_property
    def product(self) -> Array:
        """(F Fᵀ) ∘ C ∘ T."""
        return (self.F @ self.F.T) * self.pairs

    def parts(self, x: Array, near: Array) -> tuple[Array, Array]:
        """h and b, (k, n, m)."""
        all_of, found = self.all_of, []
        away = x - like(all_of.hidden.seen_center[self.which], x)[:, None]
        for axes, at, logs in zip(all_of.axes, all_of.at, all_of.logs, strict=True):
            V, centers, log = (like(one[self.which], x) for one in (axes, at, logs))
            squares = squared_distances(away @ V, centers, np.ones(V.shape[-1]), 1)
            found.append(near * namespace(x).exp(log[:, None, None] - squares))
        return found[0], found[1]

    def values(self, x: Array, near: Array) -> Array:
        """E_k[‖a + Fᵀφ‖² | observed], (k, n)."""
        h, b = self.parts(x, near)
        if self.all_of.is_whole:
            return row_squares(self.a + h @ self.F)
        xp = namespace(x)
        squares = row_products(b @ self.product, b)
        value = self.own + 2.0 * (h @ self.linear[..., None])[..., 0]
        # Jensen's inequality: rounding does not take the value below
        least = row_squares(self.a + h @ (self.tau[..., None] * self.F))
        terms = (b @ self.lengths) ** 2
        rough = _ROUNDING * terms > _TOLERANCE * xp.maximum(value + squares, least)
        for k in np.flatnonzero(to_numpy(xp.any(rough, axis=1))).tolist():
            exact = row_squares(b[k] @ like(self.root(k), x))
            squares[k] = xp.where(rough[k], exact, squares[k])
        return xp.maximum(value + squares, least)

    def root(self, k: int) -> np.ndarray:
        """L with LLᵀ = (F Fᵀ) ∘ C ∘ T, whose squares lose no digits."""
        rows, log_lengths = unit_rows(self.all_of.correction.factor)
        L = hadamard_factor(rows, to_numpy(self.pairs[k]))
        return np.asarray(L * np.exp(log_lengths)[:, None])

    def matrices(self, x: np.ndarray, near: np.ndarray, weights: np.ndarray) -> np.ndarray:
        """Σ_k weights_kn·E_k[(1, φ)(1, φ)ᵀ | observed], (n, 1 + m, 1 + m)."""
        h, b = self.parts(x, near)
        n, m = h.shape[1:]
        out = np.empty((n, 1 + m, 1 + m))
        out[:, 0, 0] = weights.sum(axis=0)
        out[:, 0, 1:] = out[:, 1:, 0] = np.sum(weights[..., None] * h * self.tau[:, None], axis=0)
        inner = np.zeros((n, m, m))
        for one, pairs in zip(np.sqrt(weights)[..., None] * b, self.pairs, strict=True):
            inner += one[:, :, None] * one[:, None, :] * pairs
        out[:, 1:, 1:] = inner
        return out

    def means(self, x: np.ndarray, near: np.ndarray, m: np.ndarray) -> tuple[Any, np.ndarray]:
        """E_k[f], (k, n), and E_k[f·u], (k, n, hidden), of f = ‖a + Fᵀφ‖² and the hidden cells u,
        given the observed ones; ``m`` are the means of u, about any origin.

        Of a product of q kernels, the hidden cells have the mean m + W_q t̄, with W_q = V(V +
        P⁻¹/2q)⁻¹ and the mean t̄ of t over the kernels.
        """
        if self.all_of.correction.is_silent:
            return self.own, self.own * m
        h, b = self.parts(x, near)
        y = (x - self.all_of.hidden.seen_center[self.which][:, None]) @ self.all_of.pull[
            self.which
        ].mT
        total: Any = self.own
        shift = np.zeros(m.shape)
        for W, of in zip(
            self.pulls, (2.0 * h * self.linear[:, None], b * (b @ self.product)), strict=True
        ):
            sums = of.sum(axis=-1)
            total = total + sums
            shift += (of @ self.start - sums[..., None] * y) @ W.mT
        return total, total[..., None] * m + shift

    @cached_property
    def pulls(self) -> list[np.ndarray]:
        """W_q for one kernel and two, (k, hidden, hidden)."""
        V, widths = self.all_of.hidden.covariances[self.which], self.all_of.widths
        return [V @ np.linalg.inv(V + widths / (2.0 * q)) for q in (1, 2)]


def _root(Q: np.ndarray) -> np.ndarray:
    """L with LLᵀ = Q, which may be singular; of every matrix of a stack."""
    values, axes = np.linalg.eigh(0.5 * (Q + Q.swapaxes(-1, -2)))
    return np.asarray(axes * np.sqrt(np.maximum(values, 0.0))[..., None, :])
