"""What a (kernel, measure) pair answers. All integrands are positive, so that every answer is a
logarithm: nothing over- or underflows.
"""

from __future__ import annotations

import math
from abc import ABC, abstractmethod

import numpy as np

from ksos.ground import Array, like, namespace, quiet, row_blocks, zeros
from ksos.kernels import Kernel
from ksos.measures import Discrete, Measure

Factor = tuple[Kernel, Array]
"""A kernel k and points X: the functions k(·, X_i)."""

_DIAGONAL_BLOCK = 64  # rows of a Gram matrix, for its diagonal: they pay for the overhead of a call
_BLOCK_ELEMENTS = 1 << 18  # kernel values at a time: 2 MB stay in the cache


class Integrals(ABC):
    """Integrals of products of a kernel against a measure, for points with ``n_features`` features.

    A closed form writes one formula, :meth:`log_product`.
    """

    pairwise = False
    """Whether ∫kkk factorizes over pairs, u_ijr = c·G_ij·H_ir·H_jr, so that it is applied without
    ever being formed.
    """

    def __init__(self, kernel: Kernel, measure: Measure, n_features: int) -> None:
        self.kernel, self.measure, self.n_features = kernel, measure, n_features

    @abstractmethod
    def log_product(self, *factors: Factor) -> Array:
        """log ∫ Π_f k_f(x, X_f) dρ(x) for up to three factors, with one axis for each.

        The last one may have a kernel of its own. Of three, the first two are the same.
        """

    def log_mean(self, X: Array) -> Array:
        """log ∫ k(x, X_i) dρ(x), shape (n,)."""
        return self.log_product((self.kernel, X))

    def log_gram(self, X: Array, Y: Array) -> Array:
        """log ∫ k(x, X_i) k(x, Y_j) dρ(x), shape (n, m): the paper's W for X = Y = X̃."""
        return self.log_product((self.kernel, X), (self.kernel, Y))

    def log_triple(self, X: Array, Z: Array, embedding_kernel: Kernel) -> Array:
        """log ∫ k(x, X_i) k(x, X_j) k_σ(x, Z_r) dρ(x), shape (m, m, ℓ): the paper's u_ijr. Callers
        pass Z in blocks.
        """
        return self.log_product((self.kernel, X), (self.kernel, X), (embedding_kernel, Z))

    def log_diagonal(self, X: Array) -> Array:
        """log ∫ k(x, X_i)² dρ(x), shape (n,)."""
        if (square := self.kernel.squared()) is not None:
            return self.log_product((square, X))
        blocks = (X[rows, :] for rows in row_blocks(X.shape[0], 1, _DIAGONAL_BLOCK))
        found = [namespace(X).linalg.diagonal(self.log_gram(block, block)) for block in blocks]
        return namespace(X).concat(found)

    def feature_moments(
        self, X: np.ndarray, feature: int, order: int, center: float
    ) -> list[np.ndarray]:
        """E[(x_k − center)^n] for n = 0 … order and k = ``feature``, under the distributions
        ∝ k(x, X_i) k(x, X_j) dρ, each of shape (m, m).

        Under these distributions the features are independent: kernel and measure are products
        over them.
        """
        raise NotImplementedError(
            f"the components of {type(self).__name__} are not products over the features"
        )

    def moments(self, X: np.ndarray, feature: int) -> tuple[np.ndarray, np.ndarray]:
        """E[x_k − X_0k] and E[(x_k − X_0k)²], k = ``feature``: see :meth:`feature_moments`."""
        _, first, second = self.feature_moments(X, feature, 2, float(X[0, feature]))
        return first, second

    def pair_normals(
        self, X: np.ndarray, origin: np.ndarray | float = 0.0
    ) -> tuple[np.ndarray, np.ndarray] | None:
        """(ξ, w) with k(x, X_i) k(x, X_j) dρ ∝ N(½(ξ_i + ξ_j), ½ diag(w²)) within the boundary, ξ
        (m, d) relative to ``origin``; with a metric w is a root (d, d), and the covariance ½wwᵀ.

        None for kernels that are not Gaussian, and for a metric over normal distributions.
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
        d, length = self.n_features, self.measure.smooth_length(self.n_features)[feature]
        low, high = (end - X[0, feature] for end in self.measure.boundary(feature))
        x = np.clip(X[:, feature] - X[0, feature], low, high)
        if self.kernel.full:
            # along x_k, k is at most exp(−(x_k − x̃_k)²/S_kk), and with the other features held it
            # is as smooth as (S⁻¹)_kk says
            S = self.kernel.matrix(d)
            sigma, smooth = np.sqrt([S[feature, feature], 1.0 / np.linalg.inv(S)[feature, feature]])
        else:
            sigma = smooth = self.kernel.sigma_vector(d)[feature]
        reach = self.kernel.reach(log_level) * float(sigma)
        return np.maximum(x - reach, low), np.minimum(x + reach, high), float(min(smooth, length))

    def pair_kernels(self, embedding_kernel: Kernel) -> tuple[float, Kernel, Kernel] | None:
        """(log c, k_G, k_H) if the factors of :meth:`log_pairwise` are kernel matrices, G = k_G(X,
        X) and H = k_H(X, Z); else None.
        """
        return None

    def log_pairwise(
        self, X: Array, Z: Array, embedding_kernel: Kernel
    ) -> tuple[float, Array, Array]:
        """(log c, log G, log H) with u_ijr = c·G_ij·H_ir·H_jr, if :attr:`pairwise` is true."""
        if (kernels := self.pair_kernels(embedding_kernel)) is None:
            raise NotImplementedError(f"{type(self).__name__} does not factorize over pairs")
        log_c, of_G, of_H = kernels
        return log_c, of_G.log(X, X), of_H.log(X, Z)


class PairFactors:
    """u_ijr = c·G_ij·H_ir·H_jr in units of exp(log_unit), with G, H and c of moderate size."""

    def __init__(
        self, integrals: Integrals, X: Array, Z: Array, embedding_kernel: Kernel, log_unit: float
    ) -> None:
        log_c, log_G, log_H = integrals.log_pairwise(X, Z, embedding_kernel)
        xp = namespace(log_H)
        peak = float(xp.max(log_H))
        self.G, self.H = xp.exp(log_G), xp.exp(log_H - peak)
        self.c = math.exp(log_c + 2.0 * peak - log_unit)


class AnyDiscrete(Integrals):
    """Any kernel on a discrete measure: ∫ f dρ = Σ_j w_j f(x_j)."""

    measure: Discrete

    def log_product(self, *factors: Factor) -> Array:
        first = factors[0][1]
        out = zeros(tuple(X.shape[0] for _, X in factors), first)
        points, weights = like(self.measure.points, first), like(self.measure.weights, first)
        for nodes in row_blocks(points.shape[0], sum(out.shape), _BLOCK_ELEMENTS):
            values: list[Array] = []
            for i, (kernel, X) in enumerate(factors):
                again = i and X is factors[i - 1][1] and kernel is factors[i - 1][0]
                values.append(values[-1] if again else kernel(points[nodes, :], X))
            out += _sums(weights[nodes], values)
        with quiet():
            return namespace(out).log(out)


# Σ_n w_n Π_f values_f[n, ·], with one axis for each factor.
def _sums(weights: Array, values: list[Array]) -> Array:
    if len(values) == 1:
        return weights @ values[0]
    if len(values) == 2:
        return (weights[:, None] * values[0]).T @ values[1]
    *others, last = values
    each = [_sums(weights * last[:, r], others) for r in range(last.shape[1])]
    return namespace(weights).stack(each, axis=-1)


def index_along(n: int, *axes: int) -> tuple[slice | None, ...]:
    """The index that places the axes of an array among ``n`` axes.

    >>> np.ones((4, 5))[index_along(3, 0, 2)].shape
    (4, 1, 5)
    """
    return tuple(slice(None) if axis in axes else None for axis in range(n))
