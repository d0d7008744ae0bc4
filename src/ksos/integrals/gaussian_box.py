"""Gaussian kernel × Box: the integrals on R^d times, per feature, the mass of their Gaussian between the walls."""

from __future__ import annotations

import numpy as np

from ksos.integrals._erf import log_gauss_mass, truncated_moments
from ksos.integrals._gaussian_product import GaussianProduct
from ksos.integrals.base import Integrals
from ksos.kernels import Kernel
from ksos.kernels._distances import squared_distances
from ksos.measures import Box

__all__ = ["GaussianBox"]


class GaussianBox(Integrals):
    """∫_box Π_i k_i = ∫_{R^d} Π_i k_i · Π_k ½[erf(√A(high−x̄)) − erf(√A(low−x̄))], with x̄ the centre of the product."""

    measure: Box

    def _product(self, *kernels: Kernel) -> GaussianProduct:
        return GaussianProduct([kernel.sigma_vector(self.n_features) for kernel in kernels])

    def _walls(self, centre: np.ndarray, k: int, width: float, origin: float) -> tuple[np.ndarray, np.ndarray]:
        """√A(low − x̄) and √A(high − x̄) of feature k, with x̄ = origin + centre."""
        return ((self.measure.low[k] - origin) - centre) / width, ((self.measure.high[k] - origin) - centre) / width

    def log_mean(self, X: np.ndarray) -> np.ndarray:
        product = self._product(self.kernel)
        out = np.full(X.shape[0], product.log_volume)
        for k in range(self.n_features):
            out += log_gauss_mass(*self._walls(X[:, k] - X[0, k], k, product.width[k], X[0, k]))
        return out

    def log_gram(self, X: np.ndarray, Y: np.ndarray) -> np.ndarray:
        product = self._product(self.kernel, self.kernel)
        out = product.log_volume - squared_distances(X, Y, product.pair_bandwidth(0, 1))
        for k in range(self.n_features):
            origin = X[0, k]
            centre = 0.5 * ((X[:, k] - origin)[:, None] + (Y[:, k] - origin)[None, :])
            out += log_gauss_mass(*self._walls(centre, k, product.width[k], origin))
        return out

    def log_triple(self, X: np.ndarray, Z: np.ndarray, embedding_kernel: Kernel) -> np.ndarray:
        product = self._product(self.kernel, self.kernel, embedding_kernel)
        log_G = -squared_distances(X, X, product.pair_bandwidth(0, 1))
        log_H = -squared_distances(X, Z, product.pair_bandwidth(0, 2))
        out = product.log_volume + log_G[:, :, None] + log_H[:, None, :] + log_H[None, :, :]
        for k in range(self.n_features):
            origin = X[0, k]
            x, z = product.weight(0)[k] * (X[:, k] - origin), product.weight(2)[k] * (Z[:, k] - origin)
            centre = x[:, None, None] + x[None, :, None] + z[None, None, :]
            out += log_gauss_mass(*self._walls(centre, k, product.width[k], origin))
        return out

    def moments(self, X: np.ndarray, feature: int) -> tuple[np.ndarray, np.ndarray]:
        product = self._product(self.kernel, self.kernel)
        origin, width = X[0, feature], product.width[feature]
        x = X[:, feature] - origin
        centre = 0.5 * (x[:, None] + x[None, :])
        first, second = truncated_moments(*self._walls(centre, feature, width, origin))
        return centre + width * first, centre**2 + 2.0 * centre * width * first + width**2 * second
