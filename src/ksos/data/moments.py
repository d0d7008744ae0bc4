"""Mean and covariance of samples that come in chunks."""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np

__all__ = ["Moments"]


@dataclass(frozen=True, eq=False)
class Moments:
    """Σ a_i, the mean x̄, and Σ a_i (x_i − x̄)(x_i − x̄)ᵀ: a value that grows by chunks and merges
    without cancellation [Chan1983].

    >>> X = np.array([[0.0], [1.0], [5.0]])
    >>> both = Moments.nothing(1).update(X[:1], np.ones(1)).merge(Moments.nothing(1).update(X[1:], np.ones(2)))
    >>> both.mean.tolist(), both.covariance.round(12).tolist()
    ([2.0], [[4.666666666667]])
    """

    mass: float
    mean: np.ndarray
    scatter: np.ndarray

    @classmethod
    def nothing(cls, n_features: int) -> Moments:
        """Of no samples."""
        return cls(0.0, np.zeros(n_features), np.zeros((n_features, n_features)))

    def update(self, X: np.ndarray, masses: np.ndarray) -> Moments:
        """These and more samples (n, d)."""
        mass = float(masses.sum())
        if not mass > 0.0:
            return self
        first = X[0]
        mean = first + (masses / mass) @ (X - first)
        Y = X - mean
        return self.merge(Moments(mass, mean, (Y * masses[:, None]).T @ Y))

    def merge(self, other: Moments) -> Moments:
        """Of both sets of samples."""
        if not self.mass > 0.0 or not other.mass > 0.0:
            return self if self.mass > 0.0 else other
        mass, apart = self.mass + other.mass, other.mean - self.mean
        between = self.mass * (other.mass / mass) * np.outer(apart, apart)
        return Moments(
            mass, self.mean + (other.mass / mass) * apart, self.scatter + other.scatter + between
        )

    @property
    def covariance(self) -> np.ndarray:
        """Around the mean, divided by the mass."""
        return self.scatter / self.mass

    @property
    def rounded(self) -> Moments:
        """The same to 40 bits of each feature's spread, of mass one: what order and chunks change
        does not show.
        """
        bits = [math.frexp(v)[1] for v in np.sqrt(np.diagonal(self.covariance))]
        unit = np.ldexp(1.0, np.array(bits) - 40)
        products = unit[:, None] * np.ldexp(1.0, bits)
        return Moments(
            1.0, np.round(self.mean / unit) * unit, np.round(self.covariance / products) * products
        )
