"""Gaussian kernel × {Lebesgue, Normal}: closed forms that factorise over pairs of points."""

from __future__ import annotations

import math

import numpy as np

from ksos._array import Array, like, zeros
from ksos.integrals._gaussian_product import GaussianProduct
from ksos.integrals.base import Integrals
from ksos.kernels import Gaussian, Kernel
from ksos.kernels.distances import squared_distances
from ksos.measures import Normal

__all__ = ["GaussianLebesgue", "GaussianNormal"]


class GaussianLebesgue(Integrals):
    """The note's appendix B, in pair distances and with model and embedding bandwidths of their own.

    A subclass may add one more Gaussian factor, the measure's own (:attr:`centre`, :attr:`spread`, :attr:`log_constant`).
    """

    pairwise = True
    centre: np.ndarray | None = None
    spread: np.ndarray | None = None
    log_constant = 0.0

    def _product(self, *kernels: Kernel) -> GaussianProduct:
        factors = [kernel.sigma_vector(self.n_features) for kernel in kernels]
        return GaussianProduct(factors if self.spread is None else [*factors, self.spread])

    def _log_to_centre(self, product: GaussianProduct, i: int, X: Array) -> Array:
        """−‖(X − centre)/…‖²: what the pairs (factor i, measure) contribute."""
        if self.centre is None:
            return zeros((X.shape[0],), X)
        last = len(product.bandwidths) - 1
        return -squared_distances(X, like(self.centre[None, :], X), product.pair_bandwidth(i, last))[:, 0]

    def log_diagonal(self, X: Array) -> Array:
        product = self._product(self.kernel, self.kernel)
        return 2.0 * self._log_to_centre(product, 0, X) + (product.log_volume + self.log_constant)

    def log_mean(self, X: Array) -> Array:
        product = self._product(self.kernel)
        return self._log_to_centre(product, 0, X) + (product.log_volume + self.log_constant)

    def log_gram(self, X: Array, Y: Array) -> Array:
        product = self._product(self.kernel, self.kernel)
        out = -squared_distances(X, Y, product.pair_bandwidth(0, 1)) + (product.log_volume + self.log_constant)
        if self.centre is not None:
            out += self._log_to_centre(product, 0, X)[:, None] + self._log_to_centre(product, 1, Y)
        return out

    def pair_kernels(self, embedding_kernel: Kernel) -> tuple[float, Kernel, Kernel] | None:
        if self.centre is not None:
            return None
        product = self._product(self.kernel, self.kernel, embedding_kernel)
        return product.log_volume, Gaussian(product.pair_bandwidth(0, 1)), Gaussian(product.pair_bandwidth(0, 2))

    def log_pairwise(self, X: Array, Z: Array, embedding_kernel: Kernel) -> tuple[float, Array, Array]:
        product = self._product(self.kernel, self.kernel, embedding_kernel)
        log_G = -squared_distances(X, X, product.pair_bandwidth(0, 1))
        log_H = -squared_distances(X, Z, product.pair_bandwidth(0, 2))
        if self.centre is not None:
            # the landmark's own term belongs to one factor of the three: half of it goes to each of the two H's
            log_H += self._log_to_centre(product, 0, X)[:, None] + 0.5 * self._log_to_centre(product, 2, Z)
        return product.log_volume + self.log_constant, log_G, log_H

    def log_triple(self, X: Array, Z: Array, embedding_kernel: Kernel) -> Array:
        log_c, log_G, log_H = self.log_pairwise(X, Z, embedding_kernel)
        return log_c + log_G[:, :, None] + log_H[:, None, :] + log_H[None, :, :]

    def moments(self, X: np.ndarray, feature: int) -> tuple[np.ndarray, np.ndarray]:
        product = self._product(self.kernel, self.kernel)
        x = X[:, feature] - X[0, feature]
        mean = product.weight(0)[feature] * (x[:, None] + x[None, :])
        if self.centre is not None:
            mean += product.weight(2)[feature] * (self.centre[feature] - X[0, feature])
        return mean, mean**2 + 0.5 * product.width[feature] ** 2


class GaussianNormal(GaussianLebesgue):
    """ρ = N(μ, s²) is one more factor exp(−‖x − μ‖²/(2s²)), times (2πs²)^{−1/2} per feature."""

    measure: Normal

    def __init__(self, kernel: Kernel, measure: Normal, n_features: int) -> None:
        super().__init__(kernel, measure, n_features)
        self.centre, scale = measure.vectors(n_features)
        self.spread = math.sqrt(2.0) * scale
        self.log_constant = -float(np.sum(0.5 * math.log(2.0 * math.pi) + np.log(scale)))

    def windows(self, X: np.ndarray, feature: int, log_level: float) -> tuple[np.ndarray, np.ndarray, float]:
        """Around the weighted mean of x̃ and μ, which is where k²ρ lives; its width is less than that of either factor."""
        product = self._product(self.kernel, self.kernel)
        centre = np.diagonal(self.moments(X, feature)[0])
        width = float(product.width[feature])
        reach = math.sqrt(2.0) * self.kernel.reach(log_level) * width  # without ρ the width is σ/√2
        return centre - reach, centre + reach, math.sqrt(2.0) * width
