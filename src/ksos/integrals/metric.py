"""Gaussian kernels whose metric ties the features, and normal laws with covariances: Gaussian
integrals in the axes of the kernels.

A change of coordinates y = Vx makes a product over features of one kernel, and of two at once: VSVᵀ
= I and VS'Vᵀ diagonal. There the formulas of :mod:`ksos.integrals.gaussian` serve.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from ksos.ground.arrays import Array, is_numpy, like, namespace, quiet, to_numpy
from ksos.ground.memory import CACHE_ELEMENTS, row_blocks
from ksos.integrals.base import Integrals
from ksos.integrals.gaussian import GaussianLebesgue, GaussianProduct
from ksos.kernels import Gaussian, Kernel
from ksos.kernels.distances import central_point, squared_distances
from ksos.measures import Lebesgue, Measure

__all__ = ["Axes", "GaussianMetric", "GaussianNormals", "axes_of"]

_DIRECT, _PRODUCT_ERROR = 8, 1e-12
"""Features that are subtracted one by one. More go through a matrix product, where its rounding is
smaller than this, as in ``ksos.kernels.distances``."""


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


class GaussianMetric(Integrals):
    """A Gaussian kernel with any metric on Lebesgue measure: a change of coordinates, and its
    volume.
    """

    pairwise = True

    def _plain(
        self, embedding_kernel: Kernel | None = None
    ) -> tuple[Axes, GaussianLebesgue, Gaussian]:
        axes = axes_of(self.kernel, self.n_features, embedding_kernel)
        return (
            axes,
            GaussianLebesgue(Gaussian(1.0), Lebesgue(), self.n_features),
            Gaussian(axes.bandwidths[1]),
        )

    def log_mean(self, X: Array) -> Array:
        axes, plain, _ = self._plain()
        return plain.log_mean(axes.coordinates(X, central_point(X))) + axes.log_volume

    def log_gram(self, X: Array, Y: Array) -> Array:
        (axes, plain, _), origin = self._plain(), central_point(X)
        at_X = axes.coordinates(X, origin)
        return (
            plain.log_gram(at_X, at_X if Y is X else axes.coordinates(Y, origin)) + axes.log_volume
        )

    def log_diagonal(self, X: Array) -> Array:
        axes, plain, _ = self._plain()
        return plain.log_diagonal(X) + axes.log_volume  # the same at every point

    def log_pairwise(
        self, X: Array, Z: Array, embedding_kernel: Kernel
    ) -> tuple[float, Array, Array]:
        (axes, plain, embedding), origin = self._plain(embedding_kernel), central_point(X)
        at_X = axes.coordinates(X, origin)
        log_c, log_G, log_H = plain.log_pairwise(
            at_X, at_X if Z is X else axes.coordinates(Z, origin), embedding
        )
        return log_c + axes.log_volume, log_G, log_H

    def log_triple(self, X: Array, Z: Array, embedding_kernel: Kernel) -> Array:
        log_c, log_G, log_H = self.log_pairwise(X, Z, embedding_kernel)
        return log_c + log_G[:, :, None] + log_H[:, None, :] + log_H[None, :, :]

    def pair_kernels(self, embedding_kernel: Kernel) -> tuple[float, Kernel, Kernel] | None:
        axes, plain, embedding = self._plain(embedding_kernel)
        product = plain.product(plain.kernel, plain.kernel, embedding)
        of_G, of_H = (Gaussian(axes.metric(product.pair_bandwidth(0, other))) for other in (1, 2))
        return product.log_volume + axes.log_volume, of_G, of_H

    def pair_metric(self) -> np.ndarray:
        return 0.5 * self.kernel.matrix(self.n_features)

    def windows(
        self, X: np.ndarray, feature: int, log_level: float
    ) -> tuple[np.ndarray, np.ndarray, float]:
        """Along x_k, k is at most exp(−(x_k − x̃_k)²/S_kk), and with the other features held it is
        as smooth as (S⁻¹)_kk says.
        """
        S = self.kernel.matrix(self.n_features)
        x, reach = (
            X[:, feature] - X[0, feature],
            self.kernel.reach(log_level) * float(np.sqrt(S[feature, feature])),
        )
        return x - reach, x + reach, float(1.0 / np.sqrt(np.linalg.inv(S)[feature, feature]))


class GaussianNormals(Integrals):
    r"""A Gaussian kernel with any metric on a mixture of normal laws, Σ_c w_c N(μ_c, Σ_c).

    The kernels' product is e^{−s}·exp(−‖(y − z̄)/w‖²) in the axes of the kernels, with z̄ the
    weighted mean of their points, w the width and s the spread of the points around z̄. So ∫ Πk
    dN(μ, Σ) = e^{−s}·π^{d/2}Πw·N(z̄; μ, Σ + ½diag(w²)).
    """

    def __init__(self, kernel: Kernel, measure: Measure, n_features: int) -> None:
        super().__init__(kernel, measure, n_features)
        normals = measure.normals(n_features)
        assert normals is not None
        self.normals = normals

    def components(
        self, axes: Axes, product: GaussianProduct, origin: np.ndarray
    ) -> list[tuple[float, np.ndarray, np.ndarray]]:
        """(log of the constant, R, R·V(μ_c − origin)) of each component, with ‖R(z̄ − Vμ)‖² the
        exponent of N(z̄; …).
        """
        weights, means, covariances = self.normals
        L = np.linalg.cholesky(axes.V @ covariances @ axes.V.T + 0.5 * np.diag(product.width**2))
        log_normals = -np.log(np.diagonal(L, axis1=1, axis2=2)).sum(
            axis=1
        ) - 0.5 * self.n_features * np.log(2.0 * np.pi)
        R = np.sqrt(0.5) * np.linalg.inv(L)
        centres = (R @ (axes.V @ (means - origin)[:, :, None]))[:, :, 0]
        return list(
            zip(
                (np.log(weights) + product.log_volume + log_normals).tolist(),
                R,
                centres,
                strict=True,
            )
        )

    def windows(
        self, X: np.ndarray, feature: int, log_level: float
    ) -> tuple[np.ndarray, np.ndarray, float]:
        """Those of the kernel, which ρ only narrows; smooth where both are."""
        S = self.kernel.matrix(self.n_features)
        x, reach = (
            X[:, feature] - X[0, feature],
            self.kernel.reach(log_level) * float(np.sqrt(S[feature, feature])),
        )
        length = min(
            1.0 / np.sqrt(np.linalg.inv(S)[feature, feature]),
            self.measure.smooth_length(self.n_features)[feature],
        )
        return x - reach, x + reach, float(length)

    def log_mean(self, X: Array) -> Array:
        return self._log_power(X, 1)

    def log_diagonal(self, X: Array) -> Array:
        return self._log_power(X, 2)

    def _log_power(self, X: Array, q: int) -> Array:
        """log ∫ k(x, X_i)^q dρ: no spread."""
        axes, origin = axes_of(self.kernel, self.n_features), central_point(X)
        product, Y = GaussianProduct([axes.bandwidths[0]] * q), axes.coordinates(X, origin)
        parts = []
        for log_c, R, centre in self.components(axes, product, to_numpy(origin)[0]):
            away = Y @ like(R.T, X) - like(centre, X)
            parts.append(log_c - namespace(X).vecdot(away, away))
        return _log_sum(parts)

    def log_gram(self, X: Array, Y: Array) -> Array:
        axes, origin = axes_of(self.kernel, self.n_features), central_point(X)
        product = GaussianProduct([axes.bandwidths[0]] * 2)
        at_X, at_Y = axes.coordinates(X, origin), axes.coordinates(Y, origin)
        spread = squared_distances(at_X, at_Y, product.pair_bandwidth(0, 1))
        components = self.components(axes, product, to_numpy(origin)[0])
        if is_numpy(X):
            return _log_sum_together(components, at_X, at_Y) - spread
        parts = []
        for log_c, R, centre in components:
            x, y = (0.5 * (at @ like(R.T, X) - like(centre, X)) for at in (at_X, at_Y))
            parts.append(log_c - squared_distances(x, -y, np.ones(self.n_features)))
        return _log_sum(parts) - spread

    def log_triple(self, X: Array, Z: Array, embedding_kernel: Kernel) -> Array:
        axes, origin = axes_of(self.kernel, self.n_features, embedding_kernel), central_point(X)
        product = GaussianProduct([axes.bandwidths[0], axes.bandwidths[0], axes.bandwidths[1]])
        at_X, at_Z = axes.coordinates(X, origin), axes.coordinates(Z, origin)
        log_G = -squared_distances(at_X, at_X, product.pair_bandwidth(0, 1))
        log_H = -squared_distances(at_X, at_Z, product.pair_bandwidth(0, 2))
        a, b = (like(product.weight(i), X) for i in (0, 2))
        parts = []
        for log_c, R, centre in self.components(axes, product, to_numpy(origin)[0]):
            x, z = (a * at_X) @ like(R.T, X) - 0.5 * like(centre, X), (b * at_Z) @ like(R.T, X)
            pairs = x[:, None, :] + x[None, :, :]
            away = squared_distances(
                namespace(X).reshape(pairs, (-1, self.n_features)), -z, np.ones(self.n_features)
            )
            parts.append(log_c - namespace(X).reshape(away, (X.shape[0], X.shape[0], Z.shape[0])))
        return _log_sum(parts) + log_G[:, :, None] + log_H[:, None, :] + log_H[None, :, :]


def _log_sum(parts: list[Array]) -> Array:
    """log Σ_c e^{parts_c}, without a stack of all of them."""
    xp, peak = namespace(parts[0]), parts[0]
    for part in parts[1:]:
        peak = xp.maximum(peak, part)
    total = xp.zeros_like(peak)
    for part in parts:
        total += xp.exp(part - peak)
    return peak + xp.log(total)


def _log_sum_together(
    components: list[tuple[float, np.ndarray, np.ndarray]], X: np.ndarray, Y: np.ndarray
) -> np.ndarray:
    """log Σ_c exp(log_c − ‖½R_c(x_i + y_j) − centre_c‖²), several components at a time."""
    peak, total = np.full((X.shape[0], Y.shape[0]), -np.inf), np.zeros((X.shape[0], Y.shape[0]))
    for rows in row_blocks(len(components), X.shape[0] * Y.shape[0], CACHE_ELEMENTS):
        log_c, R, centres = (np.stack(part) for part in zip(*components[rows], strict=True))
        x, y = (0.5 * (at @ R.transpose(0, 2, 1) - centres[:, None, :]) for at in (X, Y))
        logs = np.broadcast_to(log_c[:, None, None], (log_c.size, *peak.shape)).copy()
        exact = np.arange(log_c.size)
        if X.shape[1] > _DIRECT:
            x2, y2 = np.sum(x * x, axis=2), np.sum(y * y, axis=2)
            near = (x2.max(axis=1) + y2.max(axis=1)) * np.finfo(float).eps <= _PRODUCT_ERROR
            products = x[near] @ y[near].transpose(0, 2, 1)
            logs[near] -= np.maximum(
                x2[near][:, :, None] + y2[near][:, None, :] + 2.0 * products, 0.0
            )
            exact = np.flatnonzero(~near)
        for k in range(X.shape[1] if exact.size else 0):
            logs[exact] -= (x[exact, :, None, k] + y[exact, None, :, k]) ** 2
        highest = np.maximum(peak, logs.max(axis=0))
        logs -= highest
        with quiet():
            total = total * np.exp(peak - highest) + np.exp(logs, out=logs).sum(axis=0)
        peak = highest
    return np.asarray(peak + np.log(total))
