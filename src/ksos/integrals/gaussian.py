"""Gaussian kernel × {Lebesgue, Normal, Box}: one formula gives every Gaussian integral, and a
boundary cuts it feature by feature.
"""

from __future__ import annotations

import math
from collections.abc import Sequence

import numpy as np

from ksos.ground.arrays import Array, like, zeros
from ksos.integrals.base import Integrals
from ksos.integrals.erf import log_gauss_mass, truncated_moments
from ksos.kernels import Gaussian, Kernel
from ksos.kernels.distances import squared_distances
from ksos.measures import Box, Normal

__all__ = ["GaussianBox", "GaussianLebesgue", "GaussianNormal", "GaussianProduct"]


class GaussianProduct:
    r"""Constants of ∫ Π_i exp(−‖(x−x_i)/σ_i‖²) dx = Π_k √(π/A_k) · exp(−Σ_{i<j} Σ_k (x_ik−x_jk)²
    α_ik α_jk / A_k).

    Here α_i = 1/σ_i² and A = Σ_i α_i, per feature k. Only ratios of bandwidths are formed, so that
    bandwidths of 1e±150 are safe.
    """

    def __init__(self, bandwidths: Sequence[np.ndarray]) -> None:
        self.bandwidths = [np.asarray(b, dtype=np.float64) for b in bandwidths]
        first = self.bandwidths[0]
        self.width = first / np.sqrt(sum((first / b) ** 2 for b in self.bandwidths))
        """A^{−1/2} per feature."""
        self.log_volume = float(np.sum(0.5 * np.log(np.pi) + np.log(self.width)))
        """log Π_k √(π/A_k)."""

    def pair_bandwidth(self, i: int, j: int) -> np.ndarray:
        """√(A/(α_i α_j)): factors i and j contribute exp(−‖(x_i − x_j)/this‖²)."""
        return self.bandwidths[i] * (self.bandwidths[j] / self.width)

    def weight(self, i: int) -> np.ndarray:
        """α_i/A: the product is centred at x̄ = Σ_i (α_i/A) x_i."""
        return np.asarray((self.width / self.bandwidths[i]) ** 2)


class _Gaussian(Integrals):
    """What the Gaussian kernel has on every measure; the measure itself may be one more Gaussian
    factor.
    """

    centre: np.ndarray | None = None
    spread: np.ndarray | None = None
    log_constant = 0.0

    def product(self, *kernels: Kernel) -> GaussianProduct:
        """The product of these kernels and the measure's factor."""
        factors = [kernel.sigma_vector(self.n_features) for kernel in kernels]
        return GaussianProduct(factors if self.spread is None else [*factors, self.spread])

    def log_to_centre(self, product: GaussianProduct, i: int, X: Array) -> Array:
        """−‖(X − centre)/…‖²: what the pairs (factor i, measure) contribute."""
        if self.centre is None:
            return zeros((X.shape[0],), X)
        last = len(product.bandwidths) - 1
        return -squared_distances(
            X, like(self.centre[None, :], X), product.pair_bandwidth(i, last)
        )[:, 0]

    def pair_normals(
        self, X: np.ndarray, origin: np.ndarray | float = 0.0
    ) -> tuple[np.ndarray, np.ndarray]:
        product = self.product(self.kernel, self.kernel)
        xi = 2.0 * product.weight(0) * (X - origin)
        return (
            xi if self.centre is None else xi + product.weight(2) * (self.centre - origin)
        ), product.width

    def log_mean(self, X: Array) -> Array:
        product = self.product(self.kernel)
        return self.log_to_centre(product, 0, X) + (product.log_volume + self.log_constant)

    def log_gram(self, X: Array, Y: Array) -> Array:
        product = self.product(self.kernel, self.kernel)
        out = -squared_distances(X, Y, product.pair_bandwidth(0, 1)) + (
            product.log_volume + self.log_constant
        )
        if self.centre is not None:
            out += self.log_to_centre(product, 0, X)[:, None] + self.log_to_centre(product, 1, Y)
        return out

    def log_cross(self, X: Array, Z: Array, embedding_kernel: Kernel) -> Array:
        product = self.product(self.kernel, embedding_kernel)
        out = -squared_distances(X, Z, product.pair_bandwidth(0, 1)) + (
            product.log_volume + self.log_constant
        )
        if self.centre is not None:
            out += self.log_to_centre(product, 0, X)[:, None] + self.log_to_centre(product, 1, Z)
        return out

    def _log_pairwise(
        self, X: Array, Z: Array, embedding_kernel: Kernel
    ) -> tuple[float, Array, Array]:
        """The factors of the triple integral on all of R^d."""
        product = self.product(self.kernel, self.kernel, embedding_kernel)
        log_G = -squared_distances(X, X, product.pair_bandwidth(0, 1))
        log_H = -squared_distances(X, Z, product.pair_bandwidth(0, 2))
        if self.centre is not None:
            # the landmark's own term belongs to one factor of the three: half of it goes to each of
            # the two H's
            log_H += self.log_to_centre(product, 0, X)[:, None] + 0.5 * self.log_to_centre(
                product, 2, Z
            )
        return product.log_volume + self.log_constant, log_G, log_H

    def log_triple(self, X: Array, Z: Array, embedding_kernel: Kernel) -> Array:
        log_c, log_G, log_H = self._log_pairwise(X, Z, embedding_kernel)
        return log_c + log_G[:, :, None] + log_H[:, None, :] + log_H[None, :, :]


class GaussianLebesgue(_Gaussian):
    """The note's appendix B, in pair distances and with model and embedding bandwidths of their
    own.
    """

    pairwise = True
    log_pairwise = _Gaussian._log_pairwise

    def log_diagonal(self, X: Array) -> Array:
        product = self.product(self.kernel, self.kernel)
        return 2.0 * self.log_to_centre(product, 0, X) + (product.log_volume + self.log_constant)

    def pair_kernels(self, embedding_kernel: Kernel) -> tuple[float, Kernel, Kernel] | None:
        if self.centre is not None:
            return None
        product = self.product(self.kernel, self.kernel, embedding_kernel)
        return (
            product.log_volume,
            Gaussian(product.pair_bandwidth(0, 1)),
            Gaussian(product.pair_bandwidth(0, 2)),
        )

    def moments(self, X: np.ndarray, feature: int) -> tuple[np.ndarray, np.ndarray]:
        xi, width = self.pair_normals(X, X[0])
        mean = 0.5 * (xi[:, feature][:, None] + xi[:, feature])
        return mean, mean**2 + 0.5 * width[feature] ** 2


class GaussianNormal(GaussianLebesgue):
    """ρ = N(μ, s²) is one more factor exp(−‖x − μ‖²/(2s²)), times (2πs²)^{−1/2} per feature."""

    measure: Normal

    def __init__(self, kernel: Kernel, measure: Normal, n_features: int) -> None:
        super().__init__(kernel, measure, n_features)
        self.centre, scale = measure.normal_factor(n_features)
        self.spread = math.sqrt(2.0) * scale
        self.log_constant = -float(np.sum(0.5 * math.log(2.0 * math.pi) + np.log(scale)))

    def windows(
        self, X: np.ndarray, feature: int, log_level: float
    ) -> tuple[np.ndarray, np.ndarray, float]:
        """Around the weighted mean of x̃ and μ, which is where k²ρ lives; its width is less than
        that of either factor.
        """
        product = self.product(self.kernel, self.kernel)
        centre = np.diagonal(self.moments(X, feature)[0])
        width = float(product.width[feature])
        reach = math.sqrt(2.0) * self.kernel.reach(log_level) * width  # without ρ the width is σ/√2
        return centre - reach, centre + reach, math.sqrt(2.0) * width


class GaussianBox(_Gaussian):
    """∫_box Π_i k_i = ∫_{R^d} Π_i k_i · Π_k ½[erf(√A(high−x̄)) − erf(√A(low−x̄))], with x̄ the
    centre of the product.
    """

    measure: Box

    def _ends(self, k: int, width: float, *centres: tuple[float, Array]) -> tuple[Array, Array]:
        """√A(low − x̄) and √A(high − x̄) of feature k, with x̄ = Σ weight·centre.

        The weights sum to one, so low − x̄ is the weighted sum of low − centre: differences that
        lose nothing far from the origin.
        """
        low, high = self.measure.boundary(k)
        width, centres = float(width), [(float(weight), centre) for weight, centre in centres]  # type: ignore[assignment]
        at_low, at_high = (
            sum(weight * ((end - centre) / width) for weight, centre in centres)
            for end in (low, high)
        )
        return at_low, at_high

    def log_mean(self, X: Array) -> Array:
        out, width = super().log_mean(X), self.product(self.kernel).width
        for k in range(self.n_features):
            out += log_gauss_mass(*self._ends(k, width[k], (1.0, X[:, k])))
        return out

    def log_gram(self, X: Array, Y: Array) -> Array:
        out, width = super().log_gram(X, Y), self.product(self.kernel, self.kernel).width
        for k in range(self.n_features):
            out += log_gauss_mass(
                *self._ends(k, width[k], (0.5, X[:, k][:, None]), (0.5, Y[:, k][None, :]))
            )
        return out

    def log_cross(self, X: Array, Z: Array, embedding_kernel: Kernel) -> Array:
        out, product = (
            super().log_cross(X, Z, embedding_kernel),
            self.product(self.kernel, embedding_kernel),
        )
        for k in range(self.n_features):
            centres = (
                (product.weight(0)[k], X[:, k][:, None]),
                (product.weight(1)[k], Z[:, k][None, :]),
            )
            out += log_gauss_mass(*self._ends(k, product.width[k], *centres))
        return out

    def log_triple(self, X: Array, Z: Array, embedding_kernel: Kernel) -> Array:
        out, product = (
            super().log_triple(X, Z, embedding_kernel),
            self.product(self.kernel, self.kernel, embedding_kernel),
        )
        for k in range(self.n_features):
            x, z, a, b = X[:, k], Z[:, k], product.weight(0)[k], product.weight(2)[k]
            centres = (a, x[:, None, None]), (a, x[None, :, None]), (b, z[None, None, :])
            out += log_gauss_mass(*self._ends(k, product.width[k], *centres))
        return out

    def moments(self, X: np.ndarray, feature: int) -> tuple[np.ndarray, np.ndarray]:
        width = self.product(self.kernel, self.kernel).width[feature]
        x = X[:, feature]
        first, second = truncated_moments(
            *self._ends(feature, width, (0.5, x[:, None]), (0.5, x[None, :]))
        )
        centre = 0.5 * ((x - x[0])[:, None] + (x - x[0])[None, :])
        return centre + width * first, centre**2 + 2.0 * centre * width * first + width**2 * second
