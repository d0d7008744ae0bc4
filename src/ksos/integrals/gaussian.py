"""Gaussian kernel × {Lebesgue, Normal, GaussianMixture, Box}: one formula gives every Gaussian
integral, and a boundary cuts it feature by feature.

A metric or a covariance correlates the features. A change of coordinates y = Vx makes a product
over features of one kernel, and of two at once: VSVᵀ = I and VS'Vᵀ diagonal. There the formula
serves again.
"""

from __future__ import annotations

import functools
import itertools
import math
import operator
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

import numpy as np

from ksos.ground import CACHE_ELEMENTS, Array, like, namespace, quiet, row_blocks, zeros
from ksos.integrals.base import Factor, Integrals, index_along
from ksos.integrals.erf import log_gauss_mass, truncated_moments
from ksos.kernels import Gaussian, Kernel
from ksos.kernels.base import central_point, squared_distances
from ksos.measures import Box, Lebesgue, Measure, Normal
from ksos.quadrature import legendre

BELL_NODES = 48  # for e^{−t²} over ten of its lengths, to rounding
_GONE = 45.0  # e^{−45} is below rounding beside 1; powers of t add to what must have vanished
_BLOCK_ELEMENTS = 1 << 19  # nodes of pairs at a time: 4 MB


def bell_nodes(
    low: np.ndarray, high: np.ndarray, more: float = 0.0
) -> tuple[np.ndarray, np.ndarray]:
    """Nodes t, one axis more, and weights of sum 1 for the distributions ∝ e^{−t²} on [low, high].

    The rule reaches from the highest point to where e^{−t²} has fallen by e^{−45 − more}.
    """
    peak = np.clip(0.0, low, high)
    reach = np.sqrt(peak**2 + _GONE + more) - np.abs(peak)
    low, high = np.maximum(peak - reach, low)[..., None], np.minimum(peak + reach, high)[..., None]
    nodes, weights = legendre(BELL_NODES)
    t = low + (high - low) * (0.5 * (1.0 + nodes))
    weights = weights * np.exp(peak[..., None] ** 2 - t**2)
    return t, weights / weights.sum(axis=-1, keepdims=True)


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

    def log_pair(self, i: int, X: Array, j: int, Y: Array) -> Array:
        """The logarithm of what factor i at X and factor j at Y contribute."""
        out = squared_distances(X, Y, self.pair_bandwidth(i, j))
        out *= -1.0
        return out

    def log_pairs(self, points: Sequence[Array]) -> Array:
        """The sum of these over all pairs, with one axis for the points of each factor."""
        n = len(points)
        pairs = [
            self.log_pair(i, points[i], j, points[j])[index_along(n, i, j)]
            for i, j in itertools.combinations(range(n), 2)
        ]
        return (
            functools.reduce(operator.add, pairs)
            if pairs
            else zeros(points[0].shape[:1], points[0])
        )

    def weight(self, i: int) -> np.ndarray:
        """α_i/A: the product is centered at x̄ = Σ_i (α_i/A) x_i."""
        return np.asarray((self.width / self.bandwidths[i]) ** 2)


class GaussianIntegrals(Integrals):
    """What the Gaussian kernel has on every measure, which may be one more Gaussian factor."""

    center: np.ndarray | None = None
    """(1, d): where the factor of the measure lies."""
    spread: np.ndarray | None = None
    """Its bandwidths."""
    log_constant = 0.0

    def product(self, *kernels: Kernel) -> GaussianProduct:
        """The product of these kernels and the measure's factor."""
        factors = [kernel.sigma_vector(self.n_features) for kernel in kernels]
        return GaussianProduct(factors if self.spread is None else [*factors, self.spread])

    def log_to_center(self, product: GaussianProduct, i: int, X: Array) -> Array:
        """What factor i of a product and the measure's factor contribute, shape (n,)."""
        if self.center is None:
            return zeros((X.shape[0],), X)
        return product.log_pair(i, X, -1, like(self.center, X))[:, 0]

    def log_product(self, *factors: Factor) -> Array:
        product, points = self.product(*(k for k, _ in factors)), [X for _, X in factors]
        out = product.log_pairs(points)
        n = len(points)
        # all that concerns single points is summed first: the answer is symmetric to the last bit
        away = (self.log_to_center(product, i, X)[index_along(n, i)] for i, X in enumerate(points))
        out += sum(away) + (product.log_volume + self.log_constant)
        return out

    def pair_normals(
        self, X: np.ndarray, origin: np.ndarray | float = 0.0
    ) -> tuple[np.ndarray, np.ndarray]:
        product = self.product(self.kernel, self.kernel)
        xi = 2.0 * product.weight(0) * (X - origin)
        if self.center is not None:
            xi += product.weight(2) * (self.center - origin)
        return xi, product.width


class GaussianLebesgue(GaussianIntegrals):
    """The paper's appendix B, in pair distances and with model and embedding bandwidths of their
    own.
    """

    pairwise = True

    def pair_kernels(self, embedding_kernel: Kernel) -> tuple[float, Kernel, Kernel] | None:
        product = self.product(self.kernel, self.kernel, embedding_kernel)
        of_G, of_H = (Gaussian(product.pair_bandwidth(0, other)) for other in (1, 2))
        return product.log_volume, of_G, of_H

    def feature_moments(
        self, X: np.ndarray, feature: int, order: int, center: float
    ) -> list[np.ndarray]:
        xi, width = self.pair_normals(X, np.full(X.shape[1], center))
        mean = 0.5 * (xi[:, feature][:, None] + xi[:, feature])
        # E[x^{n+1}] = E[x]·E[x^n] + n·Var·E[x^{n−1}]: all of them have the same variance
        out = [np.ones_like(mean), mean]
        for n in range(1, order):
            out.append(mean * out[n])
            out[-1] += n * (0.5 * width[feature] ** 2) * (out[n - 1] if n > 1 else 1.0)
        return out[: order + 1]


class GaussianNormal(GaussianLebesgue):
    """ρ = N(μ, s²) is one more factor exp(−‖x − μ‖²/(2s²)), times (2πs²)^{−1/2} per feature."""

    measure: Normal

    def __init__(self, kernel: Kernel, measure: Normal, n_features: int) -> None:
        super().__init__(kernel, measure, n_features)
        mean, scale = measure.normal_factor(n_features)
        self.center, self.spread = mean[None, :], math.sqrt(2.0) * scale
        self.log_constant = -float(np.sum(0.5 * math.log(2.0 * math.pi) + np.log(scale)))

    def pair_kernels(self, embedding_kernel: Kernel) -> tuple[float, Kernel, Kernel] | None:
        return None  # what concerns single points is no kernel matrix

    def log_pairwise(
        self, X: Array, Z: Array, embedding_kernel: Kernel
    ) -> tuple[float, Array, Array]:
        product = self.product(self.kernel, self.kernel, embedding_kernel)
        log_G, log_H = product.log_pair(0, X, 1, X), product.log_pair(0, X, 2, Z)
        # the landmark's own term belongs to one factor of the three: half of it goes to each of the
        # two H's
        log_H += self.log_to_center(product, 0, X)[:, None]
        log_H += 0.5 * self.log_to_center(product, 2, Z)
        return product.log_volume + self.log_constant, log_G, log_H

    def windows(
        self, X: np.ndarray, feature: int, log_level: float
    ) -> tuple[np.ndarray, np.ndarray, float]:
        """Around the weighted mean of x̃ and μ, which is where k²ρ lives; its width is less than
        that of either factor.
        """
        xi, widths = self.pair_normals(X, X[0])
        center, width = xi[:, feature], float(widths[feature])
        # without ρ the width is σ/√2
        reach = math.sqrt(2.0) * self.kernel.reach(log_level) * width
        return center - reach, center + reach, math.sqrt(2.0) * width


class GaussianBox(GaussianIntegrals):
    """∫_box Π_i k_i = ∫_{R^d} Π_i k_i · Π_k ½[erf(√A(high−x̄)) − erf(√A(low−x̄))], with x̄ the
    center of the product.
    """

    measure: Box

    def log_product(self, *factors: Factor) -> Array:
        out, product = super().log_product(*factors), self.product(*(k for k, _ in factors))
        for k in range(self.n_features):
            # √A(end − x̄) with x̄ = Σ_i weight_i·x_i: as the weights sum to one, it is a sum of
            # differences, which lose nothing far from the origin
            low, high = (
                sum(
                    float(product.weight(i)[k])
                    * ((end - X[:, k]) / float(product.width[k]))[index_along(len(factors), i)]
                    for i, (_, X) in enumerate(factors)
                )
                for end in self.measure.boundary(k)
            )
            out += log_gauss_mass(low, high)
        return out

    def feature_moments(
        self, X: np.ndarray, feature: int, order: int, center: float
    ) -> list[np.ndarray]:
        xi, widths = self.pair_normals(X, np.full(X.shape[1], center))
        middle, width = 0.5 * (xi[:, feature][:, None] + xi[:, feature]), float(widths[feature])
        low, high = ((end - center - middle) / width for end in self.measure.boundary(feature))
        if order <= 2:
            first, second = truncated_moments(low, high)
            shift = width * first
            square = middle**2 + 2.0 * middle * shift + width**2 * second
            return [np.ones_like(middle), middle + shift, square][: order + 1]
        out = [np.empty_like(middle) for _ in range(order + 1)]
        for rows in row_blocks(X.shape[0], X.shape[0], _BLOCK_ELEMENTS // BELL_NODES):
            t, weight = bell_nodes(low[rows], high[rows], 4.0 * order)
            for moment in out:
                moment[rows] = weight.sum(axis=2)
                weight *= middle[rows, :, None] + width * t
        return out


@dataclass(frozen=True)
class Axes:
    """Coordinates y = V(x − origin) in which the kernels are products over the features."""

    V: np.ndarray
    bandwidths: tuple[np.ndarray, ...]
    """Per kernel, one bandwidth per feature of y."""

    @property
    def log_volume(self) -> float:
        """log |det V⁻¹|: what a unit of volume in y is in x."""
        return -float(np.linalg.slogdet(self.V)[1])

    def coordinates(self, X: Array, origin: Array) -> Array:
        """y of the rows of ``X``."""
        return (X - origin) @ like(self.V.T, X)

    def metric(self, bandwidth: np.ndarray) -> np.ndarray:
        """The matrix in x of a kernel with these bandwidths in y."""
        back = np.linalg.inv(self.V) * bandwidth
        return np.asarray(back @ back.T)


def axes_of(kernel: Kernel, d: int, other: Kernel | None = None) -> Axes:
    """The axes of one kernel, or of two."""
    L = np.linalg.cholesky(kernel.matrix(d))
    V = np.linalg.inv(L)
    if other is None or other == kernel:
        return Axes(V, (np.ones(d), np.ones(d)))
    squares, Q = np.linalg.eigh(V @ other.matrix(d) @ V.T)
    return Axes(Q.T @ V, (np.ones(d), np.sqrt(squares)))


def in_axes(*factors: Factor) -> tuple[Axes, Array, list[Factor]]:
    """The axes, their origin, and the factors there: all but the last have the same kernel."""
    (kernel, X), (last, _) = factors[0], factors[-1]
    axes, origin = axes_of(kernel, X.shape[1], last), central_point(X)
    kernels = [axes.bandwidths[0]] * (len(factors) - 1) + [axes.bandwidths[1]]
    moved = [axes.coordinates(Y, origin) for _, Y in factors]
    return axes, origin, list(zip(map(Gaussian, kernels), moved, strict=True))


class GaussianMetric(Integrals):
    """A Gaussian kernel with any metric on Lebesgue measure: a change of coordinates, and its
    volume.
    """

    pairwise = True

    def log_product(self, *factors: Factor) -> Array:
        axes, _, moved = in_axes(*factors)
        plain = GaussianLebesgue(moved[0][0], Lebesgue(), self.n_features)
        return plain.log_product(*moved) + axes.log_volume

    def pair_kernels(self, embedding_kernel: Kernel) -> tuple[float, Kernel, Kernel] | None:
        axes = axes_of(self.kernel, self.n_features, embedding_kernel)
        product = GaussianProduct([axes.bandwidths[i] for i in (0, 0, 1)])
        of_G, of_H = (Gaussian(axes.metric(product.pair_bandwidth(0, other))) for other in (1, 2))
        return product.log_volume + axes.log_volume, of_G, of_H

    def pair_normals(
        self, X: np.ndarray, origin: np.ndarray | float = 0.0
    ) -> tuple[np.ndarray, np.ndarray]:
        return X - origin, np.linalg.cholesky(0.5 * self.kernel.matrix(self.n_features))


class GaussianNormals(Integrals):
    r"""A Gaussian kernel with any metric on a mixture of normal distributions, Σ_c w_c N(μ_c, Σ_c).

    The kernels' product is e^{−s}·exp(−‖(y − z̄)/w‖²) in the axes of the kernels, with z̄ the
    weighted mean of their points, w the width and s the spread of the points around z̄. So ∫ Πk
    dN(μ, Σ) = e^{−s}·π^{d/2}Πw·N(z̄; μ, Σ + ½diag(w²)).
    """

    def __init__(self, kernel: Kernel, measure: Measure, n_features: int) -> None:
        super().__init__(kernel, measure, n_features)
        normals = measure.normals(n_features)
        assert normals is not None
        self.normals = normals

    def log_parts(self, *factors: Factor) -> Iterator[Array]:
        """:meth:`log_product` for each component, as many at a time as a block of memory holds."""
        axes, origin, moved = in_axes(*factors)
        points, d = [Y for _, Y in moved], self.n_features
        product = GaussianProduct([kernel.sigma for kernel, _ in moved])
        log_pairs = product.log_pairs(points)
        *others, last = (like(product.weight(i), Y) * Y for i, Y in enumerate(points))
        # z̄ is a sum of weighted points: those of all factors but the last in one long list
        left = functools.reduce(_sums_of_rows, others, zeros((1, d), last))
        weights, means, covariances = self.normals
        L = np.linalg.cholesky(axes.V @ covariances @ axes.V.T + 0.5 * np.diag(product.width**2))
        log_c = np.log(weights) - np.log(np.diagonal(L, axis1=1, axis2=2)).sum(axis=1)
        log_c = like(log_c + (product.log_volume - 0.5 * d * np.log(2.0 * np.pi)), last)
        R = like(np.sqrt(0.5) * np.linalg.inv(L).transpose(0, 2, 1), last)
        # half of a mean for each side: the answers are symmetric to the last bit
        half = 0.5 * axes.coordinates(like(means, last), origin)[:, None, :] @ R
        for block in row_blocks(weights.shape[0], math.prod(log_pairs.shape), CACHE_ELEMENTS):
            x, y = left @ R[block, ...] - half[block, ...], half[block, ...] - last @ R[block, ...]
            logs = squared_distances(x, y, np.ones(d))
            logs *= -1.0
            logs += log_c[block, None, None]
            logs = namespace(last).reshape(logs, (-1, *log_pairs.shape))
            logs += log_pairs
            yield logs

    def log_product(self, *factors: Factor) -> Array:
        xp, first = namespace(factors[0][1]), factors[0][1]
        total = zeros(tuple(X.shape[0] for _, X in factors), first)
        peak = total - np.inf
        with quiet():
            for logs in self.log_parts(*factors):
                highest = xp.maximum(peak, xp.max(logs, axis=0))
                logs -= highest
                # in place: fresh memory for every component takes as long as the arithmetic
                peak -= highest
                total *= xp.exp(peak)
                total += xp.sum(xp.exp(logs), axis=0)
                peak = highest
            return peak + xp.log(total)


# X_i + Y_j in one list.
def _sums_of_rows(X: Array, Y: Array) -> Array:
    return namespace(X).reshape(X[:, None, :] + Y[None, :, :], (-1, X.shape[1]))
