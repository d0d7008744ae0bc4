"""What is left of a corrected normal density where features are hidden: the expectation of the
square, or the probability of an interval, given the features that are shown.
"""

from __future__ import annotations

from functools import cached_property
from typing import TYPE_CHECKING

import numpy as np

from ksos.density.factor import hadamard_factor, unit_rows
from ksos.density.normals import Interval
from ksos.integrals.erf import log_gauss_mass
from ksos.kernels.base import squared_distances
from ksos.measures import Normals

if TYPE_CHECKING:
    from ksos.density.corrected import Corrected


_ROUNDING = 2.3e-16  # the rounding of one operation in float64
_NEAR = 500.0  # the largest ‖x‖² for ‖x − y‖² from products: an error of so many roundings
_TOLERANCE = 1e-12  # of the value: where rounding may be more, the product is factored


class ExpectedSquare:
    """E_c[‖c + Fᵀk(x)‖² | x_S] of one normal density, for x = (x_S, x_R) with x_S shown.

    Given x_S the hidden features are normal with covariance V, and
    k_i = k^S_i · exp(−(x_R − r_i)ᵀP(x_R − r_i)) with r_i affine in x_S. Let
    t_i(x_S) = r_i − E[x_R|x_S] and Q = (P⁻¹/2 + 2V)⁻¹. Then

        E[k_i|x_S] = h_i = |1+2VP|^{−1/2} k^S_i exp(−t_iᵀ(P⁻¹ + 2V)⁻¹t_i),
        E[k_i k_j|x_S] = b_i b_j C_ij,    b_i = |1+4VP|^{−1/4} k^S_i exp(−½t_iᵀQt_i),
        C_ij = exp(−(t_i−t_j)ᵀ(P/2 − Q/4)(t_i−t_j)),

    where h_i and b_i are Gaussians in x_S, and C does not depend on x_S.
    """

    def __init__(self, p: Corrected, number: int) -> None:
        (S, R), inverse = (p.shown, p.hidden), np.linalg.inv(p.metric)
        (X, self.F), self.constant = p.correction, p.constant
        self.lengths, self.linear = np.linalg.norm(self.F, axis=1), self.F @ p.constant
        self.P = inverse[np.ix_(R, R)]
        widths = np.linalg.inv(self.P)
        slope = widths @ inverse[np.ix_(R, S)]
        mean, covariance = p.all_normals.means[number], p.all_normals.covariances[number]
        pull = np.linalg.solve(covariance[np.ix_(S, S)], covariance[np.ix_(S, R)]).T
        V = covariance[np.ix_(R, R)] - pull @ covariance[np.ix_(S, R)]
        self.mean, points = mean[S], X[:, S] - mean[S]
        self._start = (X[:, R] - mean[R]) + points @ slope.T  # t_i at the mean
        log_dets = [np.linalg.slogdet(np.eye(len(R)) + 2.0 * q * V @ self.P)[1] for q in (1, 2)]
        self._twice = np.linalg.inv(0.5 * widths + 2.0 * V)
        known, once = (
            (p.precision, points, self._start, slope + pull),
            np.linalg.inv(widths + 2.0 * V),
        )
        self.once = _Gaussians(*known, once, -0.5 * float(log_dets[0]))
        self.twice = _Gaussians(*known, 0.5 * self._twice, -0.25 * float(log_dets[1]))

    @cached_property
    def _correlations(self) -> np.ndarray:
        """C."""
        values, axes = np.linalg.eigh(0.5 * self.P - 0.25 * self._twice)
        at = self._start @ (axes * np.sqrt(np.maximum(values, 0.0)))
        return np.exp(-squared_distances(at, at, np.ones(at.shape[1])))

    @cached_property
    def _product(self) -> np.ndarray:
        """(FFᵀ) ∘ C."""
        return (self.F @ self.F.T) * self._correlations

    @cached_property
    def _root(self) -> np.ndarray:
        """L with LLᵀ = (FFᵀ) ∘ C, whose squares lose no digits."""
        rows, log_lengths = unit_rows(self.F)
        return np.asarray(hadamard_factor(rows, self._correlations) * np.exp(log_lengths)[:, None])

    def values(self, X: np.ndarray) -> np.ndarray:
        """E_c[…|x_S] at the rows of X, in natural units."""
        c, F, X = self.constant, self.F, X - self.mean
        if not F.shape[0]:
            return np.full(X.shape[0], float(c @ c))
        with np.errstate(under="ignore"):
            h, b = self.once(X), self.twice(X)
            least, squares = c + h @ F, np.einsum("nm,nm->n", b, b @ self._product)
            value = float(c @ c) + 2.0 * (h @ self.linear)
            lower, terms = np.einsum("nr,nr->n", least, least), (b @ self.lengths) ** 2
            rough = _ROUNDING * terms > _TOLERANCE * np.maximum(value + squares, lower)
            if rough.any():
                squares[rough] = np.sum((b[rough] @ self._root) ** 2, axis=1)
            return np.maximum(value + squares, lower)


class _Gaussians:
    """The functions exp(log_scale − (x − p_i)ᵀA(x − p_i) − t_iᵀQt_i), t_i = start_i − slope·x."""

    def __init__(
        self,
        A: np.ndarray,
        points: np.ndarray,
        start: np.ndarray,
        slope: np.ndarray,
        Q: np.ndarray,
        log_scale: float,
    ) -> None:
        precision = A + slope.T @ Q @ slope
        centers = np.linalg.solve(precision, A @ points.T + slope.T @ Q @ start.T).T
        away, t = centers - points, start - centers @ slope.T
        self.tops = log_scale - np.sum(away @ A * away, axis=1) - np.sum(t @ Q * t, axis=1)
        self.root = np.linalg.cholesky(0.5 * (precision + precision.T))
        self.at = centers @ self.root
        tops = self.tops - np.einsum("mi,mi->m", self.at, self.at)
        self.columns = np.concatenate([2.0 * self.at.T, np.ones((1, tops.shape[0])), tops[None, :]])

    def __call__(self, X: np.ndarray) -> np.ndarray:
        """Values, shape (n, m); near the mean, exponents are one matrix product."""
        Y = X @ self.root
        squares = np.einsum("ni,ni->n", Y, Y)
        if squares.max(initial=0.0) > _NEAR:
            out = self.tops - squared_distances(Y, self.at, np.ones(X.shape[1]))
        else:
            out = np.column_stack([Y, -squares, np.ones(squares.shape)]) @ self.columns
        return np.exp(out, out=out)


class Inside:
    """P_c(t ∈ I | x_S) of each of the normal densities."""

    def __init__(self, normals: Normals, shown: list[int], interval: Interval) -> None:
        _, means, covariances = normals
        S, T = np.array(shown), interval.feature
        across = covariances[:, S, T]
        self.slopes = np.linalg.solve(covariances[:, S[:, None], S], across[..., None])[..., 0]
        rest = covariances[:, T, T] - np.sum(self.slopes * across, axis=1)
        start = means[:, T] - np.sum(self.slopes * means[:, S], axis=1)
        self.interval, self.start, self.variances = interval, start[:, None], 2.0 * rest[:, None]

    def logs(self, X: np.ndarray) -> np.ndarray:
        """Their logarithms at the rows of X, shape (c, n)."""
        return log_gauss_mass(*self.interval.scaled(self.start + self.slopes @ X.T, self.variances))
