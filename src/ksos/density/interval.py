"""Normal laws of which one feature t, integrated out, lies in an interval I: N(x_S | t ∈ I) =
N(x_S)·P(t ∈ I | x_S)/P(t ∈ I).
"""

from __future__ import annotations

import math
from typing import NamedTuple

import numpy as np

from ksos.integrals.erf import log_gauss_mass, normal_between
from ksos.measures import Normals

__all__ = ["Inside", "Interval"]


class Interval(NamedTuple):
    """A feature of a joint law, and the bounds between which it lies."""

    feature: int
    low: float
    high: float

    def scaled(self, mean: np.ndarray, variance: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        """The bounds in deviations from the mean."""
        deviation = np.sqrt(variance)
        return (self.low - mean) / deviation, (self.high - mean) / deviation

    def log_masses(self, normals: Normals) -> np.ndarray:
        """log P_c(t ∈ I), shape (c,)."""
        a, b = self.scaled(
            normals.means[:, self.feature], 2.0 * normals.covariances[:, self.feature, self.feature]
        )
        return log_gauss_mass(a, b)

    def draw(self, normals: Normals, size: int, rng: np.random.Generator) -> np.ndarray:
        """Samples of Σ_c w_c N_c given t ∈ I: a law, then t, then the other features given t."""
        weights, means, covariances = normals
        T, logs = self.feature, np.log(weights) + self.log_masses(normals)
        shares = np.exp(logs - logs.max())
        which = rng.choice(weights.shape[0], size=size, p=shares / shares.sum())
        variance = covariances[:, T, T]
        a, b = self.scaled(means[:, T], variance)
        z, _ = normal_between(a[which], b[which], rng.random(size))
        pull = covariances[:, :, T] / np.sqrt(variance)[:, None]
        rest = np.delete(np.arange(means.shape[1]), T)
        roots = np.linalg.cholesky(
            (covariances - pull[:, :, None] * pull[:, None, :])[:, rest[:, None], rest]
        )
        out = means[which] + pull[which] * z[:, None]
        out[:, rest] += np.einsum(
            "nij,nj->ni", roots[which], rng.standard_normal((size, rest.shape[0]))
        )
        return out


class Inside:
    """P_c(t ∈ I | x_S) of each of the laws."""

    def __init__(self, normals: Normals, shown: list[int], interval: Interval) -> None:
        _, means, covariances = normals
        S, T = np.array(shown), interval.feature
        across = covariances[:, S, T]
        self.slopes = np.linalg.solve(covariances[:, S[:, None], S], across[..., None])[..., 0]
        rest = covariances[:, T, T] - np.sum(self.slopes * across, axis=1)
        start = means[:, T] - np.sum(self.slopes * means[:, S], axis=1)
        self.interval, self.start, self.variances = interval, start[:, None], 2.0 * rest[:, None]

    def logs(self, X: np.ndarray) -> np.ndarray:
        """Their logarithms at the rows of X, shape (c, n)."""
        return log_gauss_mass(*self.interval.scaled(self.start + self.slopes @ X.T, self.variances))

    def gradients(self, X: np.ndarray, logs: np.ndarray) -> np.ndarray:
        """∇ log P_c(t ∈ I | x_S), shape (c, n, d), for the logarithms that :meth:`logs` has found."""
        a, b = self.interval.scaled(self.start + self.slopes @ X.T, self.variances)
        with np.errstate(under="ignore", over="ignore", invalid="ignore"):
            step = (np.exp(-a * a - logs) - np.exp(-b * b - logs)) / np.sqrt(
                math.pi * self.variances
            )
        return np.where(np.isfinite(step), step, 0.0)[:, :, None] * self.slopes[:, None, :]
