"""What is left of a corrected normal law where features are integrated out: the square's expectation given those that are shown."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np

from ksos.density._assemble import hadamard_factor, unit_rows
from ksos.kernels.distances import squared_distances

if TYPE_CHECKING:
    from ksos.density.corrected import Corrected

__all__ = ["ExpectedSquare"]


@dataclass(frozen=True)
class ExpectedSquare:
    """E_c[‖c + Fᵀk(x)‖² | x_S] of one reference law, for x = (x_S, x_R) with x_S shown; without hidden features, the square itself.

    Given x_S the hidden features are normal with covariance V, and k_i = k^S_i · exp(−(x_R − r_i)ᵀP(x_R − r_i)) with r_i affine in x_S.
    Let t_i(x_S) = r_i − E[x_R|x_S] = start_i − slope·x_S.
    """

    points: np.ndarray
    inverse: np.ndarray
    """Of the metric of k^S."""
    start: np.ndarray
    slope: np.ndarray
    once: np.ndarray
    """(P⁻¹ + 2V)⁻¹, of E[k_i|x_S]."""
    twice: np.ndarray
    """(P⁻¹/2 + 2V)⁻¹, of E[k_i k_j|x_S]."""
    log_once: float
    log_twice: float
    factor: np.ndarray
    root: np.ndarray
    """L with LLᵀ = B ∘ exp(−(t_i−t_j)ᵀ(P/2 − twice/4)(t_i−t_j))."""
    constant: np.ndarray

    @classmethod
    def of(cls, p: Corrected, c: int) -> ExpectedSquare:
        S, R, X, F = p.shown, p.hidden, p.joint.support_points, p.joint.unit_factor
        _, means, covariances = p.all_normals
        mean, covariance, metric = means[c], covariances[c], p.metric
        inner = np.linalg.inv(metric[np.ix_(S, S)])
        used = np.any(F != 0.0, axis=1)
        X, F = X[used], F[used]
        if not R:
            nothing = np.zeros((0, 0))
            return cls(X[:, S], inner, np.zeros((X.shape[0], 0)), np.zeros((0, len(S))), nothing, nothing, 0.0, 0.0, F, F, p.constant)
        precision = np.linalg.inv(metric)
        P = precision[np.ix_(R, R)]
        of_kernel = np.linalg.solve(P, precision[np.ix_(R, S)])
        of_law = np.linalg.solve(covariance[np.ix_(S, S)], covariance[np.ix_(S, R)]).T
        V = covariance[np.ix_(R, R)] - of_law @ covariance[np.ix_(S, R)]
        start = (X[:, R] - mean[R]) + (X[:, S] - mean[S]) @ of_kernel.T + mean[S] @ (of_kernel + of_law).T
        widths = np.linalg.inv(P)
        once, twice = np.linalg.inv(widths + 2.0 * V), np.linalg.inv(0.5 * widths + 2.0 * V)
        log_once, log_twice = (-0.5 * float(np.linalg.slogdet(np.eye(len(R)) + 2.0 * q * V @ P)[1]) for q in (1, 2))
        values, axes = np.linalg.eigh(0.5 * P - 0.25 * twice)
        at = start @ (axes * np.sqrt(np.maximum(values, 0.0)))
        correlations = np.exp(-squared_distances(at, at, np.ones(len(R))))
        rows, log_lengths = unit_rows(F)
        root = hadamard_factor(rows, correlations) * np.exp(log_lengths)[:, None] if X.shape[0] else F
        return cls(X[:, S], inner, start, of_kernel + of_law, once, twice, log_once, log_twice, F, root, p.constant)

    def values(self, X: np.ndarray, *, slopes: bool) -> tuple[np.ndarray, np.ndarray]:
        """E_c[…|x_S] at the rows of X in natural units, and the gradient of its logarithm."""
        c, F, L = self.constant, self.factor, self.root
        if not F.shape[0]:
            return np.full(X.shape[0], float(c @ c)), np.zeros(X.shape)
        near, hidden = _squares(X - self.points[:1], self.points - self.points[:1], self.inverse), X @ self.slope.T
        with np.errstate(under="ignore"):
            h = np.exp(self.log_once - near - _squares(hidden, self.start, self.once))
            b = np.exp(0.5 * self.log_twice - near - 0.5 * _squares(hidden, self.start, self.twice)) if self.start.shape[1] else h
        linear, squares, least = h @ (F @ c), b @ L, c + h @ F
        value = float(c @ c) + 2.0 * linear + np.einsum("nr,nr->n", squares, squares)
        value = np.maximum(value, np.einsum("nr,nr->n", least, least))
        if not slopes:
            return value, value
        common = -2.0 * (X[:, None, :] - self.points) @ self.inverse
        t = self.start - hidden[:, None, :]
        of_h, of_b = common + 2.0 * (t @ self.once) @ self.slope, common + (t @ self.twice) @ self.slope
        gradient = 2.0 * np.einsum("nm,nmd->nd", h * (F @ c), of_h) + 2.0 * np.einsum("nm,nmd->nd", b * (squares @ L.T), of_b)
        return value, gradient / np.where(value > 0.0, value, 1.0)[:, None]


def _squares(X: np.ndarray, Y: np.ndarray, Q: np.ndarray) -> np.ndarray:
    """(X_n − Y_m)ᵀQ(X_n − Y_m), shape (n, m)."""
    if Q.shape[0] == 0 or Y.shape[0] == 0:
        return np.zeros((X.shape[0], Y.shape[0]))
    root = np.linalg.cholesky(Q)
    return np.asarray(squared_distances(X @ root, Y @ root, np.ones(Q.shape[0])))
