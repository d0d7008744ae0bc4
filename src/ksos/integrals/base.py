"""What a (kernel, measure) pair must answer. All integrands are positive, so every answer is a
logarithm: nothing over- or underflows.
"""

from __future__ import annotations

from abc import ABC, abstractmethod

import numpy as np

from ksos.exceptions import IntegralNotAvailableError
from ksos.ground.arrays import Array, namespace
from ksos.kernels import Kernel
from ksos.measures import Measure

__all__ = ["Integrals"]

_DIAGONAL_BLOCK = 64


class Integrals(ABC):
    """Integrals of products of a kernel against a measure, for points with ``n_features`` features."""

    pairwise = False
    """Whether ∫kkk factorises over pairs, u_ijr = c·G_ij·H_ir·H_jr, so that it is applied without
    ever being formed.
    """

    def __init__(self, kernel: Kernel, measure: Measure, n_features: int) -> None:
        self.kernel, self.measure, self.n_features = kernel, measure, n_features

    @abstractmethod
    def log_mean(self, X: Array) -> Array:
        """log ∫ k(x, X_i) dρ(x), shape (n,)."""

    @abstractmethod
    def log_gram(self, X: Array, Y: Array) -> Array:
        """log ∫ k(x, X_i) k(x, Y_j) dρ(x), shape (n, m): the note's W for X = Y = X̃."""

    @abstractmethod
    def log_triple(self, X: Array, Z: Array, embedding_kernel: Kernel) -> Array:
        """log ∫ k(x, X_i) k(x, X_j) k_σ(x, Z_r) dρ(x), shape (m, m, ℓ): the note's u_ijr. Callers
        pass Z in blocks.
        """

    def log_cross(self, X: Array, Z: Array, embedding_kernel: Kernel) -> Array:
        """log ∫ k(x, X_i) k_σ(x, Z_r) dρ(x), shape (m, ℓ)."""
        if embedding_kernel == self.kernel:
            return self.log_gram(X, Z)
        raise IntegralNotAvailableError(
            f"{self.kernel!r} and {embedding_kernel!r} on {self.measure!r} have no closed-form"
            " integrals together; measure MMD in the kernel of the model"
        )

    def moments(self, X: np.ndarray, feature: int) -> tuple[np.ndarray, np.ndarray]:
        """E[x_k − X_0k] and E[(x_k − X_0k)²], k = ``feature``, under the law ∝ k(x, X_i) k(x, X_j)
        dρ, each of shape (m, m).

        Under that law the features are independent: kernel and measure are products over them.
        """
        raise NotImplementedError(
            f"the components of {type(self).__name__} are not products over the features"
        )

    def pair_normals(
        self, X: np.ndarray, origin: np.ndarray | float = 0.0
    ) -> tuple[np.ndarray, np.ndarray] | None:
        """(ξ, w) with k(x, X_i) k(x, X_j) dρ ∝ N(½(ξ_i + ξ_j), ½ diag(w²)) within the boundary, ξ
        (m, d) relative to ``origin``.

        None for kernels that are not Gaussian.
        """
        return None

    def pair_metric(self) -> np.ndarray | None:
        """A⁻¹ (d, d) with k(x, X_i) k(x, X_j) dρ ∝ N(½(X_i + X_j), ½A⁻¹), for a Gaussian kernel
        with a metric on volume; else None.
        """
        return None

    def windows(
        self, X: np.ndarray, feature: int, log_level: float
    ) -> tuple[np.ndarray, np.ndarray, float]:
        """Per support point the interval of the feature outside of which k(x, X_i)²ρ is negligible,
        and a length on which it is smooth.

        ``log_level`` is the logarithm of what counts as negligible for k; ends are relative to
        X_0k. A point beyond the boundary counts from the boundary: inside, k² falls faster still.
        """
        low, high = (end - X[0, feature] for end in self.measure.boundary(feature))
        x = np.clip(X[:, feature] - X[0, feature], low, high)
        sigma = float(self.kernel.sigma_vector(self.n_features)[feature])
        reach = self.kernel.reach(log_level) * sigma
        return np.maximum(x - reach, low), np.minimum(x + reach, high), sigma

    def log_diagonal(self, X: Array) -> Array:
        """log ∫ k(x, X_i)² dρ(x), shape (n,)."""
        xp = namespace(X)
        blocks = (
            X[start : min(start + _DIAGONAL_BLOCK, X.shape[0]), :]
            for start in range(0, X.shape[0], _DIAGONAL_BLOCK)
        )
        return xp.concat([xp.linalg.diagonal(self.log_gram(block, block)) for block in blocks])

    def pair_kernels(self, embedding_kernel: Kernel) -> tuple[float, Kernel, Kernel] | None:
        """(log c, k_G, k_H) if the factors of :meth:`log_pairwise` are kernel matrices, G = k_G(X,
        X) and H = k_H(X, Z); else None.
        """
        return None

    def log_pairwise(
        self, X: Array, Z: Array, embedding_kernel: Kernel
    ) -> tuple[float, Array, Array]:
        """(log c, log G, log H) with u_ijr = c·G_ij·H_ir·H_jr; only where :attr:`pairwise` is true."""
        raise NotImplementedError(f"{type(self).__name__} does not factorise over pairs")
