"""Order-3 integrals over a mixture of normal laws, one law after the other: products over pairs of
points, with the constant function or without it.

With √(k_σ(·, z_r) N_c) as a factor of each, the functions k(·, x̃_i) are bumps of one width whose
distances do not depend on the landmark z_r, and the constant function is a wider bump. So every
Gram matrix of these functions has entries in [0, 1], times an amplitude for each function and
landmark.
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np

from ksos.integrals.gaussian import GaussianProduct
from ksos.integrals.metric import Axes, GaussianNormals, axes_of
from ksos.kernels import Kernel
from ksos.kernels.distances import central_point, squared_distances
from ksos.measures import Measure

__all__ = ["ComponentPairs", "component_pairs"]


@dataclass(frozen=True)
class ComponentPairs:
    """One component w·N(μ, Σ): ∫ k_i k_j k_σ(·, z_r) w dN = c·G_ij·H_ir·H_jr, in units of
    exp(log_unit).
    """

    c: float
    G: np.ndarray
    """(m, m): the bumps' inner products, at most 1."""
    H: np.ndarray
    """(m, ℓ): their amplitudes, at most 1."""
    masses: np.ndarray
    """(ℓ,): ∫ k_σ(·, z_r) w dN."""
    bumps: np.ndarray
    """(m, d): where the bumps of the kernels lie."""
    wide: np.ndarray
    """(ℓ, d): where those of the constant function lie, one for each landmark."""
    precision: np.ndarray
    wide_precision: np.ndarray

    @property
    def across(self) -> np.ndarray:
        """(m, ℓ): the inner products between unit bumps of kernels and of the constant function."""
        P, P0 = self.precision, self.wide_precision
        logs = [float(np.linalg.slogdet(M)[1]) for M in (P, P0, P + P0)]
        log_c = 0.5 * P.shape[0] * math.log(2.0) + 0.25 * (logs[0] + logs[1]) - 0.5 * logs[2]
        return np.asarray(
            np.exp(log_c - _distances(self.bumps, self.wide, P @ np.linalg.solve(P + P0, P0)))
        )

    @property
    def cross(self) -> np.ndarray:
        """(m, ℓ): ∫ k_i k_σ(·, z_r) w dN."""
        return np.asarray(self.H * self.across * np.sqrt(self.c * self.masses))


def component_pairs(
    kernel: Kernel,
    measure: Measure,
    X: np.ndarray,
    Z: np.ndarray,
    embedding_kernel: Kernel,
    log_unit: float,
) -> Iterator[ComponentPairs]:
    """The pairs of every component of a mixture of normal laws."""
    d = X.shape[1]
    axes, origin = axes_of(kernel, d, embedding_kernel), central_point(X)
    own, other = axes.bandwidths
    integrals = GaussianNormals(kernel, measure, d)
    product, single = GaussianProduct([own, own, other]), GaussianProduct([other])
    y, z = axes.coordinates(X, origin), axes.coordinates(Z, origin)
    log_near = -squared_distances(y, z, product.pair_bandwidth(0, 2))
    laws = (integrals.components(axes, p, origin[0]) for p in (product, single))
    ones = np.ones(d)
    for (log_c, R, centre), (log_e, R0, centre0), mean, covariance in zip(
        *laws, *integrals.normals[1:], strict=True
    ):
        at_x, at_z = 2.0 * product.weight(0) * y @ R.T - centre, product.weight(2) * z @ R.T
        H = np.exp(log_near - 0.5 * squared_distances(at_x, -at_z, ones))
        masses = np.exp(log_e - log_unit - np.sum((z @ R0.T - centre0) ** 2, axis=1))
        bumps, wide, P, P0 = _bumps(axes, y, z, axes.V @ (mean - origin[0]), covariance)
        G = np.exp(-_distances(bumps, bumps, 0.5 * P))
        yield ComponentPairs(math.exp(log_c - log_unit), G, H, masses, bumps, wide, P, P0)


def _bumps(
    axes: Axes, y: np.ndarray, z: np.ndarray, centre: np.ndarray, covariance: np.ndarray
) -> tuple[np.ndarray, np.ndarray, np.ndarray, np.ndarray]:
    r"""Where the bumps lie, relative to A⁻¹Ez_r, and their precisions P = ½A and P₀ = ½A₀.

    With exp(−yᵀDy), exp(−zᵀEz) and exp(−yᵀQy) for kernel, embedding kernel and law in coordinates
    around μ, A = 2D + E + Q and A₀ = E + Q: √(k_σ N)·k_i is centred at A⁻¹(2Dy_i + Ez_r), and √(k_σ
    N) at A₀⁻¹Ez_r.
    """
    D, E = (np.diag(1.0 / b**2) for b in axes.bandwidths)
    Q = 0.5 * np.linalg.inv(axes.V @ covariance @ axes.V.T)
    A0 = E + 0.5 * (Q + Q.T)
    A = 2.0 * D + A0
    at_z = (z - centre) @ E
    bumps = np.linalg.solve(A, 2.0 * D @ (y - centre).T).T
    wide = np.linalg.solve(A0, 2.0 * D @ np.linalg.solve(A, at_z.T)).T  # A₀⁻¹ − A⁻¹ = A₀⁻¹·2D·A⁻¹
    return bumps, wide, 0.5 * A, 0.5 * A0


def _distances(X: np.ndarray, Y: np.ndarray, M: np.ndarray) -> np.ndarray:
    """(x − y)ᵀM(x − y) for a positive definite M."""
    root = np.linalg.cholesky(0.5 * (M + M.T))
    return np.asarray(squared_distances(X @ root, Y @ root, np.ones(X.shape[1])))
