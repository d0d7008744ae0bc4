"""What is left of a corrected normal law where features are integrated out: the square's expectation given those that are shown."""

from __future__ import annotations

from functools import cached_property
from typing import TYPE_CHECKING

import numpy as np

from ksos.density._assemble import hadamard_factor, unit_rows
from ksos.kernels.distances import squared_distances

if TYPE_CHECKING:
    from ksos.density.corrected import Corrected

__all__ = ["ExpectedSquare", "HiddenKernels"]

_ROUNDING = 2.3e-16
_TOLERANCE = 1e-12  # of the value: more rounding than this, and the factor of the product takes its place


class HiddenKernels:
    """The kernels as functions of the features that are hidden, given those that are shown: the same for every reference law."""

    def __init__(self, p: Corrected) -> None:
        self.shown, self.hidden, self.constant, self.normals = p.shown, p.hidden, p.constant, p.all_normals
        used = np.any(p.joint.unit_factor != 0.0, axis=1)
        self.points, self.factor = p.joint.support_points[used], p.joint.unit_factor[used]
        self.inverse = np.linalg.inv(p.metric[np.ix_(self.shown, self.shown)])
        precision = np.linalg.inv(p.metric)
        self.precision = precision[np.ix_(self.hidden, self.hidden)]
        self.widths = np.linalg.inv(self.precision)
        self.slope = self.widths @ precision[np.ix_(self.hidden, self.shown)]
        self.products = self.factor @ self.factor.T
        self.lengths = np.sqrt(np.diagonal(self.products))
        self.linear = self.factor @ self.constant


class ExpectedSquare:
    """E_c[‖c + Fᵀk(x)‖² | x_S] of one reference law, for x = (x_S, x_R) with x_S shown.

    Given x_S the hidden features are normal with covariance V, and k_i = k^S_i · exp(−(x_R − r_i)ᵀP(x_R − r_i)) with r_i affine
    in x_S. With t_i(x_S) = r_i − E[x_R|x_S],

        E[k_i|x_S] = h_i = |1+2VP|^{−1/2} k^S_i exp(−t_iᵀ(P⁻¹ + 2V)⁻¹t_i),    E[k_i k_j|x_S] = b_i b_j C_ij,
        b_i = |1+4VP|^{−1/4} k^S_i exp(−½t_iᵀQt_i),    C_ij = exp(−(t_i−t_j)ᵀ(P/2 − Q/4)(t_i−t_j)),    Q = (P⁻¹/2 + 2V)⁻¹,

    where h_i and b_i are Gaussians in x_S, and C does not depend on x_S.
    """

    def __init__(self, kernels: HiddenKernels, law: int) -> None:
        self.kernels, (S, R), P = kernels, (kernels.shown, kernels.hidden), kernels.precision
        mean, covariance = kernels.normals.means[law], kernels.normals.covariances[law]
        of_law = np.linalg.solve(covariance[np.ix_(S, S)], covariance[np.ix_(S, R)]).T
        V = covariance[np.ix_(R, R)] - of_law @ covariance[np.ix_(S, R)]
        self.mean, points = mean[S], kernels.points[:, S] - mean[S]
        self._start = (kernels.points[:, R] - mean[R]) + points @ kernels.slope.T  # t_i at the mean
        slope, log_dets = kernels.slope + of_law, [np.linalg.slogdet(np.eye(len(R)) + 2.0 * q * V @ P)[1] for q in (1, 2)]
        once, self._twice = np.linalg.inv(kernels.widths + 2.0 * V), np.linalg.inv(0.5 * kernels.widths + 2.0 * V)
        self.once = _Gaussians(kernels.inverse, points, once, self._start, slope, -0.5 * log_dets[0])
        self.twice = _Gaussians(kernels.inverse, points, 0.5 * self._twice, self._start, slope, -0.25 * log_dets[1])

    @cached_property
    def _correlations(self) -> np.ndarray:
        """C."""
        values, axes = np.linalg.eigh(0.5 * self.kernels.precision - 0.25 * self._twice)
        at = self._start @ (axes * np.sqrt(np.maximum(values, 0.0)))
        return np.exp(-squared_distances(at, at, np.ones(at.shape[1])))

    @cached_property
    def _product(self) -> np.ndarray:
        """(FFᵀ) ∘ C."""
        return self.kernels.products * self._correlations

    @cached_property
    def _root(self) -> np.ndarray:
        """L with LLᵀ = (FFᵀ) ∘ C, whose squares lose no digits."""
        rows, log_lengths = unit_rows(self.kernels.factor)
        return np.asarray(hadamard_factor(rows, self._correlations) * np.exp(log_lengths)[:, None])

    def values(self, X: np.ndarray, *, slopes: bool) -> tuple[np.ndarray, np.ndarray]:
        """E_c[…|x_S] at the rows of X in natural units, and the gradient of its logarithm."""
        c, F, X = self.kernels.constant, self.kernels.factor, X - self.mean
        if not F.shape[0]:
            return np.full(X.shape[0], float(c @ c)), np.zeros(X.shape)
        with np.errstate(under="ignore"):
            h, b = self.once(X), self.twice(X)
            pulled = b @ self._product
            least, squares = c + h @ F, np.einsum("nm,nm->n", b, pulled)
            value, lower = float(c @ c) + 2.0 * (h @ self.kernels.linear), np.einsum("nr,nr->n", least, least)
            rough = _ROUNDING * (b @ self.kernels.lengths) ** 2 > _TOLERANCE * np.maximum(value + squares, lower)
            if rough.any():
                V = b[rough] @ self._root
                squares[rough], pulled[rough] = np.einsum("nr,nr->n", V, V), V @ self._root.T
            value = np.maximum(value + squares, lower)
            if not slopes:
                return value, value
            gradient = 2.0 * self.once.pull(X, h * self.kernels.linear) + 2.0 * self.twice.pull(X, b * pulled)
        return value, gradient / np.where(value > 0.0, value, 1.0)[:, None]


class _Gaussians:
    """The functions exp(log_scale − (x − p_i)ᵀA(x − p_i) − t_iᵀQt_i) with t_i = s_i − slope·x, as Gaussians in x around centres of their own."""

    def __init__(
        self, A: np.ndarray, points: np.ndarray, Q: np.ndarray, start: np.ndarray, slope: np.ndarray, log_scale: float
    ) -> None:  # fmt: skip
        self.precision = A + slope.T @ Q @ slope
        self.centres = np.linalg.solve(self.precision, A @ points.T + slope.T @ Q @ start.T).T
        away, t = self.centres - points, start - self.centres @ slope.T
        self.tops = log_scale - np.einsum("mi,mi->m", away @ A, away) - np.einsum("mi,mi->m", t @ Q, t)
        self.root = np.linalg.cholesky(0.5 * (self.precision + self.precision.T))
        self.at = self.centres @ self.root

    def __call__(self, X: np.ndarray) -> np.ndarray:
        """Values, shape (n, m)."""
        out = squared_distances(X @ self.root, self.at, np.ones(X.shape[1]))
        np.subtract(self.tops, out, out=out)
        return np.exp(out, out=out)

    def pull(self, X: np.ndarray, weights: np.ndarray) -> np.ndarray:
        """Σ_i weights_ni ∇log of the functions, shape (n, d)."""
        return np.asarray(2.0 * (weights @ self.centres - weights.sum(axis=1, keepdims=True) * X) @ self.precision)
