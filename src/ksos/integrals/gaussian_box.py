"""Gaussian kernel × Box: the integrals on R^d times, per feature, the mass of their Gaussian between the walls."""

from __future__ import annotations

import numpy as np

from ksos._array import Array, zeros
from ksos.integrals._gaussian_product import GaussianProduct
from ksos.integrals.base import Integrals
from ksos.integrals.erf import log_gauss_mass, truncated_moments
from ksos.kernels import Kernel
from ksos.kernels.distances import squared_distances
from ksos.measures import Box

__all__ = ["GaussianBox"]


class GaussianBox(Integrals):
    """∫_box Π_i k_i = ∫_{R^d} Π_i k_i · Π_k ½[erf(√A(high−x̄)) − erf(√A(low−x̄))], with x̄ the centre of the product."""

    measure: Box

    def _product(self, *kernels: Kernel) -> GaussianProduct:
        return GaussianProduct([kernel.sigma_vector(self.n_features) for kernel in kernels])

    def _walls(self, k: int, width: float, *centres: tuple[float, Array]) -> tuple[Array, Array]:
        """√A(low − x̄) and √A(high − x̄) of feature k, with x̄ = Σ weight·centre.

        The weights sum to one, so low − x̄ is the weighted sum of low − centre: differences that lose nothing far from the origin.
        """
        low, high = self.measure.walls(k)
        width, centres = float(width), [(float(weight), centre) for weight, centre in centres]  # type: ignore[assignment]
        at_low, at_high = (sum(weight * ((wall - centre) / width) for weight, centre in centres) for wall in (low, high))
        return at_low, at_high

    def log_mean(self, X: Array) -> Array:
        product = self._product(self.kernel)
        out = zeros((X.shape[0],), X) + product.log_volume
        for k in range(self.n_features):
            out += log_gauss_mass(*self._walls(k, product.width[k], (1.0, X[:, k])))
        return out

    def log_gram(self, X: Array, Y: Array) -> Array:
        product = self._product(self.kernel, self.kernel)
        out = product.log_volume - squared_distances(X, Y, product.pair_bandwidth(0, 1))
        for k in range(self.n_features):
            out += log_gauss_mass(*self._walls(k, product.width[k], (0.5, X[:, k][:, None]), (0.5, Y[:, k][None, :])))
        return out

    def log_triple(self, X: Array, Z: Array, embedding_kernel: Kernel) -> Array:
        product = self._product(self.kernel, self.kernel, embedding_kernel)
        log_G = -squared_distances(X, X, product.pair_bandwidth(0, 1))
        log_H = -squared_distances(X, Z, product.pair_bandwidth(0, 2))
        out = product.log_volume + log_G[:, :, None] + log_H[:, None, :] + log_H[None, :, :]
        for k in range(self.n_features):
            x, z = (product.weight(0)[k], X[:, k]), (product.weight(2)[k], Z[:, k])
            first, second, third = (x[0], x[1][:, None, None]), (x[0], x[1][None, :, None]), (z[0], z[1][None, None, :])
            out += log_gauss_mass(*self._walls(k, product.width[k], first, second, third))
        return out

    def moments(self, X: np.ndarray, feature: int) -> tuple[np.ndarray, np.ndarray]:
        width = self._product(self.kernel, self.kernel).width[feature]
        x = X[:, feature]
        first, second = truncated_moments(*self._walls(feature, width, (0.5, x[:, None]), (0.5, x[None, :])))
        centre = 0.5 * ((x - x[0])[:, None] + (x - x[0])[None, :])
        return centre + width * first, centre**2 + 2.0 * centre * width * first + width**2 * second
