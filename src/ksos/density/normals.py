"""Signed sums of normal densities, Σ_a v_a N(m_a, V), in groups that share a covariance.

What is linear in a density is a sum over them: moments, embeddings, inner products.
"""

from __future__ import annotations

import math
from collections.abc import Iterable
from typing import NamedTuple

import numpy as np

from ksos.ground.memory import row_blocks
from ksos.integrals.erf import gauss_mass, log_gauss_mass, truncated_moments
from ksos.kernels.base import squared_distances
from ksos.measures import GaussianMixture, Normals
from ksos.observables.over_normals import End, Powers, stein

_BLOCK_ELEMENTS = 1 << 20  # numbers held at a time
_NOTHING = 1e-17  # terms that are this much smaller than the sum of all terms do not change it


class Interval(NamedTuple):
    """A feature of a joint distribution, and the bounds between which it lies."""

    feature: int
    low: float
    high: float

    def scaled(self, mean: np.ndarray, variance: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        """The bounds in standard deviations from the mean."""
        deviation = np.sqrt(variance)
        return (self.low - mean) / deviation, (self.high - mean) / deviation


class Group(NamedTuple):
    """Σ_a weights_a N(means_a, covariance): weights (n,) of any sign, means (n, d), one covariance
    (d, d).
    """

    weights: np.ndarray
    means: np.ndarray
    covariance: np.ndarray

    def restrict(self, features: list[int]) -> Group:
        """The marginal of some features."""
        return Group(
            self.weights, self.means[:, features], self.covariance[np.ix_(features, features)]
        )

    def seen(self) -> Group:
        """The same without terms below the rounding of the sum."""
        size = np.abs(self.weights)
        order = np.argsort(size)
        kept = np.sort(order[np.cumsum(size[order]) > _NOTHING * size.sum()])
        if kept.size in (0, size.size):
            return self
        return self._replace(weights=self.weights[kept], means=self.means[kept])


def mean_and_covariance(
    groups: Iterable[Group], interval: Interval | None = None
) -> tuple[np.ndarray, np.ndarray]:
    """E[x] and Cov[x] of a sum of mass one, the moments taken about the first mean; given the
    interval, in which the last feature lies.
    """
    origin, total, sums = np.zeros(0), 0.0, [np.zeros(()), np.zeros(())]
    for weights, means, covariance in groups:
        origin = origin if origin.size else means[0]
        away = means - origin
        if interval is None:
            mass, first = weights, weights @ away
            second = (weights[:, None] * away).T @ away + float(weights.sum()) * covariance
        else:  # t = mean + √(2V_tt)·u, the others given t are normal around a line
            scale = np.sqrt(2.0 * covariance[-1, -1])
            a, b = interval.scaled(means[:, -1], 2.0 * covariance[-1, -1])
            mass = weights * np.exp(log_gauss_mass(a, b))
            line = covariance[:, -1] / covariance[-1, -1] * scale
            u, square = truncated_moments(a, b)
            along, both = np.outer(line, line), np.outer((mass * u) @ away, line)
            first = mass @ away + float(mass @ u) * line
            second = (mass[:, None] * away).T @ away + both + both.T + float(mass @ square) * along
            second += float(mass.sum()) * (covariance - along / 2.0)
        total, sums = total + float(mass.sum()), [sums[0] + first, sums[1] + second]
    away, second = sums[0] / total, sums[1] / total
    mean, spread = origin + away, 0.5 * (second + second.T) - np.outer(away, away)
    return (mean, spread) if interval is None else (mean[:-1], spread[:-1, :-1])


def moment(
    groups: Iterable[Group],
    powers: tuple[int, ...],
    about: np.ndarray,
    interval: Interval | None = None,
) -> float:
    """E[Π_k (x_k − about_k)^{powers_k}].

    Over an interval of t, the last feature, it is E[y^a; t ∈ I]/P(t ∈ I): in the recursion of Stein
    V_kt(φ(low) E[y^a | t = low] − φ(high) E[y^a | t = high]) is added.
    """
    d, total, whole = len(powers), 0.0, 0.0
    monomial = tuple((k, power) for k, power in enumerate(powers) if power)
    for weights, means, V in groups:
        at, ends = means[:, :d] - about, list[End]()
        known: Powers = {(): np.ones(weights.shape)}
        if interval is not None:
            t, variance, across = means[:, -1], V[-1, -1], V[:d, -1]
            known[()] = np.exp(log_gauss_mass(*interval.scaled(t, 2.0 * variance)))
            whole += float(weights @ known[()])
            given = V[:d, :d] - np.outer(across, across) / variance
            for sign, end in ((1.0, interval.low), (-1.0, interval.high)):
                if np.isfinite(end):
                    height = sign / np.sqrt(2.0 * np.pi * variance)
                    density = height * np.exp(-0.5 * (end - t) ** 2 / variance)
                    there = at + np.outer(end - t, across / variance)
                    ends.append((np.outer(across, density), there, given, {(): np.ones(t.shape)}))
        total += float(weights @ stein(monomial, at, V[:d, :d], known, ends))
    return total if interval is None else total / whole


def embedded(
    groups: Iterable[Group], metric: np.ndarray, Z: np.ndarray, interval: Interval | None = None
) -> np.ndarray:
    """∫ k(x, z_r) of the sum at the rows of Z, for k(x, z) = exp(−(x−z)ᵀS⁻¹(x−z)): Σ v
    |S|^{1/2}|S+2V|^{−1/2} exp(−(m−z)ᵀ(S+2V)⁻¹(m−z)).

    With an interval of the last feature t, each term times P(t ∈ I) of the normal density that k(·,
    z)N(m, V) has for t.
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
                near *= gauss_mass(
                    *interval.scaled(t, 2.0 * (covariance[d, d] - covariance[d, :d] @ pull[:, 0]))
                )
            out += weights[rows] @ near
    return out


def inner_product(a: Iterable[Group], b: list[Group], metric: np.ndarray | None = None) -> float:
    """∫∫ k(x, y) da db for the kernel of ``metric``, or ∫ a b dx without one."""
    total = 0.0
    for weights, means, covariance in a:
        for other in b:
            both = 2.0 * (covariance + other.covariance)
            root, log_scale = _whitened(both if metric is None else metric + both, metric)
            at_a, at_b = (means - means[0]) @ root, (other.means - means[0]) @ root
            for rows in row_blocks(means.shape[0], other.means.shape[0], _BLOCK_ELEMENTS):
                near = np.exp(
                    log_scale - squared_distances(at_a[rows], at_b, np.ones(means.shape[1]))
                )
                total += float(weights[rows] @ near @ other.weights)
    return total


def _whitened(Q: np.ndarray, metric: np.ndarray | None) -> tuple[np.ndarray, float]:
    """R with ‖xᵀR‖² = xᵀQ⁻¹x, and log |metric|^{1/2}|Q|^{−1/2}, or log |πQ|^{−1/2} without a
    metric.
    """
    L = np.linalg.cholesky(Q)
    log_det = float(np.sum(np.log(np.diagonal(L))))
    unit = (
        -0.5 * Q.shape[0] * np.log(np.pi) if metric is None else 0.5 * np.linalg.slogdet(metric)[1]
    )
    return np.linalg.inv(L).T, float(unit) - log_det


def times_normal(
    normals: Normals, mean: np.ndarray, precision: np.ndarray
) -> tuple[float, GaussianMixture]:
    """(log mass, what is left) of Σ_c w_c N_c(x) exp(−½(x−mean)ᵀ precision (x−mean)); the precision
    may be singular.
    """
    weights, means, covariances = normals
    mixed = np.eye(mean.shape[0]) + covariances @ precision
    narrowed = _symmetric(np.linalg.solve(mixed, covariances))
    away = mean - means
    pulled = away @ precision
    exponents = np.sum(away * pulled, axis=1) - np.einsum("ci,cij,cj->c", pulled, narrowed, pulled)
    logs = np.log(weights) - 0.5 * np.linalg.slogdet(mixed)[1] - 0.5 * exponents
    peak, moved = float(logs.max()), means + np.einsum("cij,cj->ci", narrowed, pulled)
    shares = np.exp(logs - peak)
    return peak + math.log(float(shares.sum())), GaussianMixture(shares, moved, narrowed)


def _symmetric(A: np.ndarray) -> np.ndarray:
    return np.asarray(0.5 * (A + np.swapaxes(A, -1, -2)))
