"""The constant function as one more basis function: integrals of (1, k_1, …, k_m) from those of the
kernel.
"""

from __future__ import annotations

from ksos.ground.arrays import Array, namespace, zeros
from ksos.integrals.base import Integrals
from ksos.kernels import Kernel

__all__ = ["WithConstant"]


class WithConstant(Integrals):
    """Integrals of ``own``, with a first row, and a first column, for the constant function."""

    def __init__(self, own: Integrals) -> None:
        super().__init__(own.kernel, own.measure, own.n_features)
        self.own = own

    def log_mean(self, X: Array) -> Array:
        return namespace(X).concat(
            [zeros((1,), X) + self.measure.log_mass(self.n_features), self.own.log_mean(X)]
        )

    def log_gram(self, X: Array, Y: Array) -> Array:
        xp, first = namespace(X), self.log_mean(Y)[None, :]
        return xp.concat(
            [first, xp.concat([self.own.log_mean(X)[:, None], self.own.log_gram(X, Y)], axis=1)],
            axis=0,
        )

    def log_triple(self, X: Array, Z: Array, embedding_kernel: Kernel) -> Array:
        xp, cross = namespace(X), self.own.log_cross(X, Z, embedding_kernel)
        alone = type(self.own)(embedding_kernel, self.measure, self.n_features).log_mean(Z)
        first = xp.concat([alone[None, None, :], cross[None, :, :]], axis=1)
        return xp.concat(
            [
                first,
                xp.concat([cross[:, None, :], self.own.log_triple(X, Z, embedding_kernel)], axis=1),
            ],
            axis=0,
        )
