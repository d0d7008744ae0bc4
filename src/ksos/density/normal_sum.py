"""Signed sums of normal laws, Σ_a v_a N(m_a, V), in groups that share a covariance: what is linear in a density is a sum over them."""

from __future__ import annotations

from collections.abc import Iterable
from typing import NamedTuple

import numpy as np

from ksos._memory import row_blocks
from ksos.kernels.distances import squared_distances

__all__ = ["Group", "embedded", "inner_product", "mean_and_covariance", "moment", "pairs_of"]

_BLOCK_ELEMENTS = 1 << 20


class Group(NamedTuple):
    """Σ_a weights_a N(means_a, covariance): weights (n,) of any sign, means (n, d), one covariance (d, d)."""

    weights: np.ndarray
    means: np.ndarray
    covariance: np.ndarray

    def restrict(self, features: list[int]) -> Group:
        """The marginal of some features."""
        return Group(self.weights, self.means[:, features], self.covariance[np.ix_(features, features)])


def pairs_of(B: np.ndarray, log_W: np.ndarray, centres: np.ndarray, covariance: np.ndarray) -> Group:
    """Σ_ij B_ij e^{log_W_ij} N((centres_i + centres_j)/2, covariance), every pair once."""
    i, j = np.triu_indices(B.shape[0])
    weights = np.where(i == j, 1.0, 2.0) * B[i, j] * np.exp(log_W[i, j])
    return Group(weights, 0.5 * (centres[i] + centres[j]), covariance)


def mean_and_covariance(groups: Iterable[Group]) -> tuple[np.ndarray, np.ndarray]:
    """E[x] and Cov[x] of a sum of mass one, the moments taken about the first mean."""
    origin, total, sums = np.zeros(0), 0.0, [np.zeros(()), np.zeros(())]
    for weights, means, covariance in groups:
        origin = origin if origin.size else means[0]
        away, mass = means - origin, float(weights.sum())
        total += mass
        sums = [sums[0] + weights @ away, sums[1] + (weights[:, None] * away).T @ away + mass * covariance]
    mean, second = sums[0] / total, sums[1] / total
    return origin + mean, 0.5 * (second + second.T) - np.outer(mean, mean)


def moment(groups: Iterable[Group], powers: tuple[int, ...], about: np.ndarray) -> float:
    """E[Π_k (x_k − about_k)^{powers_k}] by Stein's recursion E[y_k y^a] = m_k E[y^a] + Σ_l a_l V_kl E[y^{a − e_l}]."""
    used = [k for k, power in enumerate(powers) if power]
    exponents, total = tuple(powers[k] for k in used), 0.0
    for group in groups:
        weights, means, covariance = group.restrict(used)
        known: dict[tuple[int, ...], np.ndarray] = {(0,) * len(used): np.ones(means.shape[0])}
        total += float(weights @ _power(exponents, means - about[used], covariance, known))
    return total


def _power(a: tuple[int, ...], means: np.ndarray, V: np.ndarray, known: dict[tuple[int, ...], np.ndarray]) -> np.ndarray:
    if a not in known:
        k = next(k for k, power in enumerate(a) if power)
        less = _lower(a, k)
        value = means[:, k] * _power(less, means, V, known)
        for other, power in enumerate(less):
            if power and V[k, other] != 0.0:
                value = value + power * V[k, other] * _power(_lower(less, other), means, V, known)
        known[a] = value
    return known[a]


def _lower(a: tuple[int, ...], k: int) -> tuple[int, ...]:
    return (*a[:k], a[k] - 1, *a[k + 1 :])


def embedded(groups: Iterable[Group], metric: np.ndarray, Z: np.ndarray) -> np.ndarray:
    """∫ k(x, z_r) of the sum at the rows of Z, for k(x, z) = exp(−(x−z)ᵀS⁻¹(x−z)): Σ v |S|^{1/2}|S+2V|^{−1/2} exp(−(m−z)ᵀ(S+2V)⁻¹(m−z))."""
    out = np.zeros(Z.shape[0])
    for weights, means, covariance in groups:
        root, log_scale = _whitened(metric + 2.0 * covariance, metric)
        at_Z, at_means = (Z - means[0]) @ root, (means - means[0]) @ root
        for rows in row_blocks(means.shape[0], Z.shape[0], _BLOCK_ELEMENTS):
            out += weights[rows] @ np.exp(log_scale - squared_distances(at_means[rows], at_Z, np.ones(Z.shape[1])))
    return out


def inner_product(a: Iterable[Group], b: list[Group], metric: np.ndarray | None = None) -> float:
    """∫∫ k(x, y) da db for the kernel of ``metric``, or ∫ a b dx without one."""
    total = 0.0
    for weights, means, covariance in a:
        for other in b:
            both = covariance + other.covariance
            if metric is None:
                root, log_scale = _whitened(2.0 * both, None)
            else:
                root, log_scale = _whitened(metric + 2.0 * both, metric)
            at_a, at_b = (means - means[0]) @ root, (other.means - means[0]) @ root
            for rows in row_blocks(means.shape[0], other.means.shape[0], _BLOCK_ELEMENTS):
                near = np.exp(log_scale - squared_distances(at_a[rows], at_b, np.ones(means.shape[1])))
                total += float(weights[rows] @ near @ other.weights)
    return total


def _whitened(Q: np.ndarray, metric: np.ndarray | None) -> tuple[np.ndarray, float]:
    """R with ‖xᵀR‖² = xᵀQ⁻¹x, and log |metric|^{1/2}|Q|^{−1/2}, or log |πQ|^{−1/2} without a metric."""
    L = np.linalg.cholesky(Q)
    log_det = float(np.sum(np.log(np.diagonal(L))))
    unit = -0.5 * Q.shape[0] * np.log(np.pi) if metric is None else 0.5 * np.linalg.slogdet(metric)[1]
    return np.linalg.inv(L).T, float(unit) - log_det
