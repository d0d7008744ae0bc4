"""Signed sums of normal laws, Σ_a v_a N(m_a, V), in groups that share a covariance: what is linear in a density is a sum over them."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import NamedTuple

import numpy as np

from ksos._memory import row_blocks
from ksos.density.interval import Interval
from ksos.integrals.erf import gauss_mass, log_gauss_mass, truncated_moments
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


def mean_and_covariance(groups: Iterable[Group], interval: Interval | None = None) -> tuple[np.ndarray, np.ndarray]:
    """E[x] and Cov[x] of a sum of mass one, the moments taken about the first mean; given the interval, in which the last feature lies."""
    origin, total, sums = np.zeros(0), 0.0, [np.zeros(()), np.zeros(())]
    for weights, means, covariance in groups:
        origin = origin if origin.size else means[0]
        away = means - origin
        if interval is None:
            mass, first, second = weights, weights @ away, (weights[:, None] * away).T @ away + float(weights.sum()) * covariance
        else:  # t = mean + √(2V_tt)·u, the others given t are normal around a line
            scale = np.sqrt(2.0 * covariance[-1, -1])
            a, b = interval.scaled(means[:, -1], 2.0 * covariance[-1, -1])
            mass, line = weights * np.exp(log_gauss_mass(a, b)), covariance[:, -1] / covariance[-1, -1] * scale
            u, square = truncated_moments(a, b)
            across = (mass * u) @ away
            first = mass @ away + float(mass @ u) * line
            rest = covariance - np.outer(line, line) / 2.0
            second = (mass[:, None] * away).T @ away + np.outer(across, line) + np.outer(line, across)
            second += float(mass @ square) * np.outer(line, line) + float(mass.sum()) * rest
        total, sums = total + float(mass.sum()), [sums[0] + first, sums[1] + second]
    away, second = sums[0] / total, sums[1] / total
    mean, spread = origin + away, 0.5 * (second + second.T) - np.outer(away, away)
    return (mean, spread) if interval is None else (mean[:-1], spread[:-1, :-1])


def moment(groups: Iterable[Group], powers: tuple[int, ...], about: np.ndarray, interval: Interval | None = None) -> float:
    """E[Π_k (x_k − about_k)^{powers_k}] by Stein's recursion E[y_k y^a] = m_k E[y^a] + Σ_l a_l V_kl E[y^{a − e_l}].

    Over an interval of t it is that of E[y^a; t ∈ I], and V_kt(φ(low) E[y^a | t = low] − φ(high) E[y^a | t = high]) is added.
    """
    used, total, whole = [k for k, power in enumerate(powers) if power], 0.0, 0.0
    exponents, start = tuple(powers[k] for k in used), (0,) * len(used)
    for group in groups:
        weights, means, covariance = group.restrict(used)
        known, ends = {start: np.ones(means.shape[0])}, []
        if interval is not None:
            t, V = group.means[:, -1], group.covariance[-1, -1]
            known[start] = np.exp(log_gauss_mass(*interval.scaled(t, 2.0 * V)))
            whole += float(weights @ known[start])
            across = group.covariance[used, -1]
            for sign, end in ((1.0, interval.low), (-1.0, interval.high)):
                if np.isfinite(end):
                    density = np.exp(-0.5 * (end - t) ** 2 / V) / np.sqrt(2.0 * np.pi * V)
                    at = means - about[used] + np.outer(end - t, across / V), covariance - np.outer(across, across) / V
                    ends.append((sign * np.outer(across, density), *at, {start: np.ones(t.shape[0])}))
        total += float(weights @ _power(exponents, means - about[used], covariance, known, ends))
    return total if interval is None else total / whole


Powers = dict[tuple[int, ...], np.ndarray]
End = tuple[np.ndarray, np.ndarray, np.ndarray, Powers]
"""V_kt φ(end) with its sign, (k, n); means and covariance given t = end; the powers known there."""


def _power(a: tuple[int, ...], means: np.ndarray, V: np.ndarray, known: Powers, ends: Sequence[End] = ()) -> np.ndarray:
    if a not in known:
        k = next(k for k, power in enumerate(a) if power)
        less = _lower(a, k)
        value = means[:, k] * _power(less, means, V, known, ends)
        for other, power in enumerate(less):
            if power and V[k, other] != 0.0:
                value = value + power * V[k, other] * _power(_lower(less, other), means, V, known, ends)
        for densities, at, rest, there in ends:
            value = value + densities[k] * _power(less, at, rest, there)
        known[a] = value
    return known[a]


def _lower(a: tuple[int, ...], k: int) -> tuple[int, ...]:
    return (*a[:k], a[k] - 1, *a[k + 1 :])


def embedded(groups: Iterable[Group], metric: np.ndarray, Z: np.ndarray, interval: Interval | None = None) -> np.ndarray:
    """∫ k(x, z_r) of the sum at the rows of Z, for k(x, z) = exp(−(x−z)ᵀS⁻¹(x−z)): Σ v |S|^{1/2}|S+2V|^{−1/2} exp(−(m−z)ᵀ(S+2V)⁻¹(m−z)).

    With an interval of the last feature t, each term times P(t ∈ I) of the normal law that k(·, z)N(m, V) has for t.
    """
    out, d = np.zeros(Z.shape[0]), Z.shape[1]
    for weights, means, covariance in groups:
        Q = metric + 2.0 * covariance[:d, :d]
        root, log_scale = _whitened(Q, metric)
        at_Z, at_means = (Z - means[0, :d]) @ root, (means[:, :d] - means[0, :d]) @ root
        pull = 2.0 * np.linalg.solve(Q, covariance[:d, d:])
        for rows in row_blocks(means.shape[0], Z.shape[0], _BLOCK_ELEMENTS):
            near = np.exp(log_scale - squared_distances(at_means[rows], at_Z, np.ones(d)))
            if interval is not None:
                t = (means[rows, d] - means[rows, :d] @ pull[:, 0])[:, None] + Z @ pull[:, 0]
                near *= gauss_mass(*interval.scaled(t, 2.0 * (covariance[d, d] - covariance[d, :d] @ pull[:, 0])))
            out += weights[rows] @ near
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
