"""Any kernel × Discrete: sums over the nodes."""

from __future__ import annotations

import numpy as np

from ksos.integrals.base import Integrals
from ksos.kernels import Kernel
from ksos.kernels._distances import row_blocks
from ksos.measures import Discrete

__all__ = ["AnyDiscrete"]

_BLOCK_ELEMENTS = 1 << 18


class AnyDiscrete(Integrals):
    """∫ f dρ = Σ_j w_j f(x_j), with Φ = k(nodes, X): W = Φᵀ diag(w) Φ."""

    measure: Discrete

    def log_mean(self, X: np.ndarray) -> np.ndarray:
        return _log(self.measure.weights @ self.kernel(self.measure.points, X))

    def log_gram(self, X: np.ndarray, Y: np.ndarray) -> np.ndarray:
        W = np.zeros((X.shape[0], Y.shape[0]))
        for nodes in row_blocks(self.measure.points.shape[0], max(W.shape), _BLOCK_ELEMENTS):
            points, weights = self.measure.points[nodes], self.measure.weights[nodes]
            values = self.kernel(points, X)
            W += (weights[:, None] * values).T @ (values if Y is X else self.kernel(points, Y))
        return _log(W)

    def log_triple(self, X: np.ndarray, Z: np.ndarray, embedding_kernel: Kernel) -> np.ndarray:
        out = np.zeros((X.shape[0], X.shape[0], Z.shape[0]))
        for nodes in row_blocks(self.measure.points.shape[0], X.shape[0] + Z.shape[0], _BLOCK_ELEMENTS):
            points, weights = self.measure.points[nodes], self.measure.weights[nodes]
            values, embedded = self.kernel(points, X), weights[:, None] * embedding_kernel(points, Z)
            for r in range(Z.shape[0]):
                out[:, :, r] += (values * embedded[:, r, None]).T @ values
        return _log(out)


def _log(values: np.ndarray) -> np.ndarray:
    with np.errstate(divide="ignore"):
        return np.log(values)
