"""Product Laplace and half-integer Matérn kernels × {Lebesgue, Box}: per feature, exponentials times polynomials between the centres."""

from __future__ import annotations

from typing import cast

import numpy as np

from ksos._array import on_host
from ksos._memory import row_blocks
from ksos.integrals._piecewise import LineIntegral
from ksos.integrals.base import Integrals
from ksos.kernels import Kernel, Laplace, Matern

__all__ = ["ExponentialBox", "ExponentialLebesgue"]

_BLOCK_ELEMENTS = 1 << 14  # a LineIntegral holds some thirty arrays of this size at a time: they stay in the cache


class ExponentialLebesgue(Integrals):
    r"""∫ Π_i k_i dx = Π_k ∫_ℝ Π_i κ_i(|x − c_ik|/σ_ik) dx, one line integral per feature k (:class:`LineIntegral`).

    The factors may have different bandwidths and different polynomials (Laplace has the constant 1).

    >>> from ksos.measures import Lebesgue
    >>> W = np.exp(ExponentialLebesgue(Laplace(1.0), Lebesgue(), 1).log_gram(np.zeros((1, 1)), np.ones((1, 1))))
    >>> bool(np.isclose(W[0, 0], 2 * np.exp(-1)))  # ∫ e^{−|x|−|x−1|} dx = (1 + 1) e^{−1}
    True
    """

    def _line(self, feature: int, *kernels: Kernel) -> LineIntegral:
        factors = []
        for kernel in kernels:
            coefficients = cast("Laplace | Matern", kernel).polynomial
            factors.append((kernel.sigma_vector(self.n_features)[feature], cast("np.ndarray", coefficients)))
        return LineIntegral(factors, *self.measure.walls(feature))

    @on_host
    def log_mean(self, X: np.ndarray) -> np.ndarray:
        out = np.zeros(X.shape[0])
        for k in range(self.n_features):
            out += self._line(k, self.kernel).log(X[:, k])
        return out

    @on_host
    def log_gram(self, X: np.ndarray, Y: np.ndarray) -> np.ndarray:
        lines = [self._line(k, self.kernel, self.kernel) for k in range(self.n_features)]
        out = np.zeros((X.shape[0], Y.shape[0]))
        for rows in row_blocks(X.shape[0], Y.shape[0], _BLOCK_ELEMENTS):
            for k, line in enumerate(lines):
                out[rows] += line.log(*_ordered(X[rows, k][:, None], Y[:, k][None, :]))
        return out

    @on_host
    def log_triple(self, X: np.ndarray, Z: np.ndarray, embedding_kernel: Kernel) -> np.ndarray:
        lines = [self._line(k, self.kernel, self.kernel, embedding_kernel) for k in range(self.n_features)]
        m, n_landmarks = X.shape[0], Z.shape[0]
        out = np.empty((m, m, n_landmarks))
        first, second = np.triu_indices(m)  # u_ijr = u_jir: one half is computed
        for pairs in row_blocks(first.shape[0], n_landmarks, _BLOCK_ELEMENTS):
            i, j = first[pairs], second[pairs]
            block = np.zeros((i.shape[0], n_landmarks))
            for k, line in enumerate(lines):
                block += line.log(*_ordered(X[i, k][:, None], X[j, k][:, None]), Z[:, k][None, :])
            out[i, j] = block
            out[j, i] = block
        return out

    def moments(self, X: np.ndarray, feature: int) -> tuple[np.ndarray, np.ndarray]:
        line, x = self._line(feature, self.kernel, self.kernel), X[:, feature]
        first, second = np.empty((x.shape[0], x.shape[0])), np.empty((x.shape[0], x.shape[0]))
        for rows in row_blocks(x.shape[0], x.shape[0], _BLOCK_ELEMENTS):
            first[rows], second[rows] = line.moments(*_ordered(x[rows, None], x[None, :]), origin=float(x[0]))
        return first, second


class ExponentialBox(ExponentialLebesgue):
    """The same on Π_k [low_k, high_k], sides possibly infinite: centres beyond a wall break the line at the wall."""


def _ordered(x: np.ndarray, y: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """The smaller and the larger: the two centres of one kernel are interchangeable, and so the answers are symmetric to the last bit."""
    return np.minimum(x, y), np.maximum(x, y)
