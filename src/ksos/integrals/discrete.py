"""Any kernel × Discrete: sums over the nodes."""

from __future__ import annotations

from ksos.ground.arrays import Array, like, namespace, quiet, zeros
from ksos.ground.memory import row_blocks
from ksos.integrals.base import Integrals
from ksos.kernels import Kernel
from ksos.measures import Discrete

__all__ = ["AnyDiscrete"]

_BLOCK_ELEMENTS = 1 << 18


class AnyDiscrete(Integrals):
    """∫ f dρ = Σ_j w_j f(x_j), with Φ = k(nodes, X): W = Φᵀ diag(w) Φ."""

    measure: Discrete

    def log_mean(self, X: Array) -> Array:
        points, weights = like(self.measure.points, X), like(self.measure.weights, X)
        return _log(weights @ self.kernel(points, X))

    def log_gram(self, X: Array, Y: Array) -> Array:
        W = zeros((X.shape[0], Y.shape[0]), X)
        all_points, all_weights = like(self.measure.points, X), like(self.measure.weights, X)
        for nodes in row_blocks(all_points.shape[0], max(W.shape), _BLOCK_ELEMENTS):
            points, weights = all_points[nodes, :], all_weights[nodes]
            values = self.kernel(points, X)
            W += (weights[:, None] * values).T @ (values if Y is X else self.kernel(points, Y))
        return _log(W)

    def log_cross(self, X: Array, Z: Array, embedding_kernel: Kernel) -> Array:
        out = zeros((X.shape[0], Z.shape[0]), X)
        all_points, all_weights = like(self.measure.points, X), like(self.measure.weights, X)
        for nodes in row_blocks(all_points.shape[0], X.shape[0] + Z.shape[0], _BLOCK_ELEMENTS):
            points = all_points[nodes, :]
            out += (all_weights[nodes][:, None] * self.kernel(points, X)).T @ embedding_kernel(
                points, Z
            )
        return _log(out)

    def log_triple(self, X: Array, Z: Array, embedding_kernel: Kernel) -> Array:
        out = zeros((X.shape[0], X.shape[0], Z.shape[0]), X)
        all_points, all_weights = like(self.measure.points, X), like(self.measure.weights, X)
        for nodes in row_blocks(all_points.shape[0], X.shape[0] + Z.shape[0], _BLOCK_ELEMENTS):
            points, weights = all_points[nodes, :], all_weights[nodes]
            values, embedded = (
                self.kernel(points, X),
                weights[:, None] * embedding_kernel(points, Z),
            )
            for r in range(Z.shape[0]):
                out[:, :, r] += (values * embedded[:, r][:, None]).T @ values
        return _log(out)


def _log(values: Array) -> Array:
    with quiet():
        return namespace(values).log(values)
