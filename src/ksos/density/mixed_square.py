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

from collections.abc import Iterator
from dataclasses import dataclass
from functools import cached_property

import numpy as np

from ksos.density.mixed_reference import MixedReference
from ksos.integrals.normal_boxes import box_masses
from ksos.kernels.base import squared_distances

_NEAR = 500.0  # the largest ‖x‖² + ‖y‖² for ‖x − y‖² from products: an error of 1e-13

Sides = dict[int, tuple[float, float]]
"""Numeric columns that are known to lie between two sides."""


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

    def same(self, c: np.ndarray, columns: np.ndarray) -> np.ndarray:
        """Π_j κ_j(c_j, c̃_ij) over some columns, (n, m)."""
        out = np.ones((c.shape[0], self.codes.shape[0]))
        for j in columns:
            out *= np.where(c[:, j, None] == self.codes[:, j], 1.0, self.thetas[j])
        return out

    def features(self, u: np.ndarray, c: np.ndarray) -> np.ndarray:
        """φ at complete rows, (n, m)."""
        root = np.linalg.cholesky(self.precision)
        away = _distances(u @ root, self.points @ root)
        return np.exp(-away) * self.same(c, np.arange(self.codes.shape[1]))

    def values(self, u: np.ndarray, c: np.ndarray) -> np.ndarray:
        """‖a + Fᵀφ‖² at complete rows."""
        psi = self.constant + self.features(u, c) @ self.factor
        return np.einsum("nr,nr->n", psi, psi)

    def bound(self) -> float:
        """What the values never exceed, for φᵀK⁻¹φ ≤ 1 with the kernel matrix K."""
        K = self.features(self.points, self.codes)
        largest = float(np.linalg.eigvalsh(self.factor.T @ K @ self.factor)[-1])
        return float((np.linalg.norm(self.constant) + np.sqrt(max(largest, 0.0))) ** 2)

    @cached_property
    def equal(self) -> list[np.ndarray]:
        """(1 − θ)² where two support points have the same level, of every categorical column."""
        same = [z[:, None] == z for z in self.codes.T]
        return [(1.0 - t) ** 2 * one for t, one in zip(self.thetas, same, strict=True)]

    def levels(self, reference: MixedReference, k: int, missing: np.ndarray) -> np.ndarray:
        """(1, τ; τ, T) of component k for the ``missing`` categorical columns, (1 + m, 1 + m)."""
        m = self.codes.shape[0]
        out = np.ones((1 + m, 1 + m))
        for j in missing:
            z, theta, chances = self.codes[:, j], self.thetas[j], reference.chances[j][k]
            p, total = chances[z], float(chances.sum())
            T, crossed = self.equal[j] * p, theta * (1.0 - theta) * p
            T += (theta**2 * total + crossed)[:, None]
            T += crossed
            out[0, 1:] *= theta * total + (1.0 - theta) * p
            out[1:, 1:] *= T
        out[1:, 0] = out[0, 1:]
        return out


class Expected:
    """Expectations of φ in every component, for rows of which the same cells are observed.

    ``seen`` and ``known`` are masks of the numeric and the categorical cells, ``within`` are
    intervals of numeric cells that are not seen.
    """

    def __init__(
        self,
        reference: MixedReference,
        correction: Correction,
        seen: np.ndarray,
        known: np.ndarray,
        within: Sides,
    ) -> None:
        self.reference, self.correction, self.hidden = reference, correction, reference.hidden(seen)
        self.known, self.missing = np.flatnonzero(known), np.flatnonzero(~known)
        S, R = np.flatnonzero(seen), np.flatnonzero(~seen)
        P, X = correction.precision, correction.points
        self.P = P[np.ix_(R, R)]
        self.widths = np.linalg.inv(self.P)
        self.slope = self.widths @ P[np.ix_(R, S)]
        self.root = np.linalg.cholesky(np.linalg.inv(correction.metric[np.ix_(S, S)]))
        self.at, self.start = X[:, S] @ self.root, X[:, R] + X[:, S] @ self.slope.T
        self.seen = S
        # of all components: of one kernel and of two
        V, d = self.hidden.covariances, R.size
        self.once = np.linalg.inv(self.widths + 2.0 * V)
        self.twice = np.linalg.inv(0.5 * self.widths + 2.0 * V)
        self.roots = _root(self.once), _root(0.5 * self.twice)
        self.logs = [
            -0.5 / q * np.linalg.slogdet(np.eye(d) + 2.0 * q * V @ self.P)[1] for q in (1, 2)
        ]
        self.apart = _root(0.5 * self.P - 0.25 * self.twice)
        # positions of the intervals among the hidden cells
        self.inside = [int(np.flatnonzero(feature == R)[0]) for feature in within]
        self.sides = np.array(list(within.values())).reshape(-1, 2).T

    def near(self, u: np.ndarray, c: np.ndarray) -> np.ndarray:
        """The part of φ that is observed, (n, m)."""
        away = _distances(u[:, self.seen] @ self.root, self.at)
        return np.exp(-away) * self.correction.same(c, self.known)

    def component(self, k: int) -> ExpectedOfOne:
        """Those of one component."""
        return ExpectedOfOne(self, k)


class ExpectedOfOne:
    """E_k[φ] and E_k[φφᵀ] given the observed cells, and moments of the hidden ones under them."""

    def __init__(self, all_of: Expected, k: int) -> None:
        self.all_of, self.k, hidden = all_of, k, all_of.hidden
        self.V, C = hidden.covariances[k], all_of.start @ all_of.apart[k]
        self.levels = all_of.correction.levels(all_of.reference, k, all_of.missing)
        self.tau = self.levels[0, 1:]
        self.apart = np.exp(-_distances(C, C))
        self.pairs = self.apart * self.levels[1:, 1:]
        F, a = all_of.correction.factor, all_of.correction.constant
        self.linear, self.own = self.tau * (F @ a), float(a @ a)

    @cached_property
    def product(self) -> np.ndarray:
        """(F Fᵀ) ∘ C ∘ T."""
        F = self.all_of.correction.factor
        return np.asarray((F @ F.T) * self.pairs)

    def parts(self, x: np.ndarray, near: np.ndarray) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
        """h and b, (n, m), and y with t_i = start_i − y, (n, hidden)."""
        all_of = self.all_of
        y = all_of.hidden.means(self.k, x) + x @ all_of.slope.T
        found = []
        for roots, logs in zip(all_of.roots, all_of.logs, strict=True):
            root = roots[self.k]
            away = _distances(y @ root, all_of.start @ root)
            found.append(near * np.exp(logs[self.k] - away))
        return found[0], found[1], y

    def values(self, x: np.ndarray, near: np.ndarray) -> np.ndarray:
        """E_k[‖a + Fᵀφ‖² | observed], within the intervals if there are any, (n,)."""
        if self.all_of.inside:
            return self._values_inside(x, near)
        h, b, _ = self.parts(x, near)
        value = self.own + 2.0 * (h @ self.linear) + np.einsum("nm,nm->n", b, b @ self.product)
        # Jensen's inequality: rounding does not take the value below
        F, a = self.all_of.correction.factor, self.all_of.correction.constant
        least = a + (h * self.tau) @ F
        return np.maximum(value, np.einsum("nr,nr->n", least, least))

    def matrices(self, x: np.ndarray, near: np.ndarray, weights: np.ndarray) -> np.ndarray:
        """weights·E_k[(1, φ)(1, φ)ᵀ | observed], (n, 1 + m, 1 + m)."""
        h, b, _ = self.parts(x, near)
        out = np.empty((x.shape[0], 1 + h.shape[1], 1 + h.shape[1]))
        out[:, 0, 0] = weights
        out[:, 0, 1:] = out[:, 1:, 0] = weights[:, None] * h * self.tau
        b = np.sqrt(weights)[:, None] * b
        np.multiply(b[:, :, None] * b[:, None, :], self.pairs, out=out[:, 1:, 1:])
        return out

    def moments(
        self, x: np.ndarray, near: np.ndarray, m: np.ndarray, *, squares: bool
    ) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
        """E_k[f], E_k[f·u] and E_k[f·u²] of f = ‖a + Fᵀφ‖² and the hidden cells u, given the
        observed ones; ``m`` (n, hidden) are the means of u, about any origin.
        Without ``squares``, the last one is left at zero.

        Of a product of q kernels, the hidden cells have the mean m + W_q t̄ and the covariance V −
        W_q V, with W_q = V(V + P⁻¹/2q)⁻¹ and the mean t̄ of t over the kernels.
        """
        V, start = self.V, self.all_of.start
        h, b, y = self.parts(x, near)
        pulled = b @ self.product
        first, second = 2.0 * h * self.linear, b * pulled
        of_first, of_second = first.sum(axis=1), second.sum(axis=1)
        total = self.own + of_first + of_second
        W1, W2 = (V @ np.linalg.inv(V + self.all_of.widths / (2.0 * q)) for q in (1, 2))
        shift = np.zeros(m.shape)
        square = self.own * np.diagonal(V) + np.zeros(m.shape)
        variances = [np.diagonal(V - W @ V) for W in (W1, W2)]
        for a in range(m.shape[1]):
            g1 = (start @ W1.T)[:, a] - (y @ W1.T)[:, a, None]
            g2 = (start @ W2.T)[:, a] - (y @ W2.T)[:, a, None]
            shift[:, a] = np.sum(first * g1 + second * g2, axis=1)
            if not squares:
                continue
            crossed = np.einsum("nm,nm->n", (b * g2) @ self.product, b * g2)
            square[:, a] += np.sum(first * g1**2 + 0.5 * second * g2**2, axis=1) + 0.5 * crossed
            square[:, a] += of_first * variances[0][a] + of_second * variances[1][a]
        mean = total[:, None] * m + shift
        return total, mean, square + m * (2.0 * shift + total[:, None] * m)

    def normals(
        self, x: np.ndarray, near: np.ndarray
    ) -> Iterator[tuple[np.ndarray, np.ndarray, np.ndarray, tuple[np.ndarray, np.ndarray]]]:
        """f·N of one row as a signed sum of normal densities of the hidden cells, with no kernel,
        one and two: weights, means, a covariance, and which kernels; ``levels`` of these are not
        among the weights.
        """
        all_of, V, (h, b, y) = self.all_of, self.V, self.parts(x, near)
        F, a = all_of.correction.factor, all_of.correction.constant
        mean, t, m = all_of.hidden.means(self.k, x)[0], all_of.start - y[0], h.shape[1]
        yield np.array([self.own]), mean[None], V, (np.zeros(1, int), np.zeros(1, int))
        if all_of.correction.is_silent:
            return
        W1, W2 = (V @ np.linalg.inv(V + all_of.widths / (2.0 * q)) for q in (1, 2))
        once = np.zeros(m, int), 1 + np.arange(m)
        yield 2.0 * h[0] * (F @ a), mean + t @ W1.T, V - W1 @ V, once
        i, j = np.triu_indices(m)
        weights = np.where(i == j, 1.0, 2.0) * (F @ F.T * self.apart)[i, j] * b[0, i] * b[0, j]
        yield weights, mean + 0.5 * (t[i] + t[j]) @ W2.T, V - W2 @ V, (1 + i, 1 + j)

    def _values_inside(self, x: np.ndarray, near: np.ndarray) -> np.ndarray:
        """The same where hidden cells lie in intervals."""
        out = np.zeros(x.shape[0])
        for row in range(x.shape[0]):
            for weights, means, covariance, which in self.normals(x[[row]], near[[row]]):
                out[row] += weights * self.levels[which] @ self._masses(means, covariance)
        return np.maximum(out, 0.0)

    def _masses(self, means: np.ndarray, covariance: np.ndarray) -> np.ndarray:
        """What normal distributions of the hidden cells have in the intervals."""
        inside, (low, high) = self.all_of.inside, self.all_of.sides
        at = means[:, inside]
        found = box_masses(low - at, high - at, covariance[np.ix_(inside, inside)])
        return np.asarray(found.mean(axis=0))


def _root(Q: np.ndarray) -> np.ndarray:
    """L with LLᵀ = Q, which may be singular; of every matrix of a stack."""
    values, axes = np.linalg.eigh(0.5 * (Q + Q.swapaxes(-1, -2)))
    return np.asarray(axes * np.sqrt(np.maximum(values, 0.0))[..., None, :])


def _distances(X: np.ndarray, Y: np.ndarray) -> np.ndarray:
    """‖x_i − y_j‖², zero without coordinates; near each other as one product."""
    if not X.shape[1]:
        return np.zeros((X.shape[0], Y.shape[0]))
    center = Y.mean(axis=0)
    X, Y = X - center, Y - center
    x, y = np.einsum("ni,ni->n", X, X), np.einsum("ni,ni->n", Y, Y)
    if x.max(initial=0.0) + y.max(initial=0.0) > _NEAR:
        return np.asarray(squared_distances(X, Y, np.ones(X.shape[1])))
    out = X @ (-2.0 * Y.T)
    out += x[:, None]
    out += y
    return np.maximum(out, 0.0, out=out)
