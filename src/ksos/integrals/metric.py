"""Gaussian kernels whose metric correlates the features, and mixtures of normal distributions with
covariances: Gaussian integrals in the axes of the kernels.

A change of coordinates y = Vx makes a product over features of one kernel, and of two at once: VSVᵀ
= I and VS'Vᵀ diagonal. There the formulas of :mod:`ksos.integrals.gaussian` serve.
"""

from __future__ import annotations

import functools
import math
from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np

from ksos.ground.arrays import Array, like, namespace, quiet, zeros
from ksos.ground.memory import CACHE_ELEMENTS, row_blocks
from ksos.integrals.base import Factor, Integrals
from ksos.integrals.gaussian import GaussianLebesgue, GaussianProduct
from ksos.kernels import Gaussian, Kernel
from ksos.kernels.distances import central_point, squared_distances
from ksos.measures import Lebesgue, Measure


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

    def _moved(self, *factors: Factor) -> tuple[Axes, GaussianLebesgue, list[Factor]]:
        axes, _, moved = in_axes(*factors)
        return axes, GaussianLebesgue(moved[0][0], Lebesgue(), self.n_features), moved

    def log_product(self, *factors: Factor) -> Array:
        axes, plain, moved = self._moved(*factors)
        return plain.log_product(*moved) + axes.log_volume

    def log_pairwise(
        self, X: Array, Z: Array, embedding_kernel: Kernel
    ) -> tuple[float, Array, Array]:
        axes, plain, moved = self._moved((self.kernel, X), (embedding_kernel, Z))
        (_, x), (embedding, z) = moved
        log_c, log_G, log_H = plain.log_pairwise(x, z, embedding)
        return log_c + axes.log_volume, log_G, log_H

    def pair_kernels(self, embedding_kernel: Kernel) -> tuple[float, Kernel, Kernel] | None:
        axes = axes_of(self.kernel, self.n_features, embedding_kernel)
        product = GaussianProduct([axes.bandwidths[i] for i in (0, 0, 1)])
        of_G, of_H = (Gaussian(axes.metric(product.pair_bandwidth(0, other))) for other in (1, 2))
        return product.log_volume + axes.log_volume, of_G, of_H

    def pair_metric(self) -> np.ndarray:
        return 0.5 * self.kernel.matrix(self.n_features)


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


def _sums_of_rows(X: Array, Y: Array) -> Array:
    """X_i + Y_j in one list."""
    return namespace(X).reshape(X[:, None, :] + Y[None, :, :], (-1, X.shape[1]))
