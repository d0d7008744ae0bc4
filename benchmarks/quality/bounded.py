"""Densities with a boundary: a beta distribution, a truncated normal, and a copula with bounded
marginals.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

import numpy as np
from scipy.stats import beta, truncnorm

__all__ = ["ClaytonCopula", "Marginal", "beta_1_3", "half_normal_like"]


@dataclass(frozen=True)
class Marginal:
    """A one-dimensional law of SciPy as a law on points (n, 1)."""

    law: Any

    def sample(self, n: int, rng: np.random.Generator) -> np.ndarray:
        return np.asarray(self.law.ppf(rng.random(n)))[:, None]

    def logpdf(self, X: np.ndarray) -> np.ndarray:
        return np.asarray(self.law.logpdf(X[:, 0]))


def beta_1_3() -> Marginal:
    """3(1 − x)² on [0, 1]: highest at the wall."""
    return Marginal(beta(1.0, 3.0))


def half_normal_like() -> Marginal:
    """The standard normal law on [−0.5, ∞)."""
    return Marginal(truncnorm(-0.5, np.inf))


@dataclass(frozen=True)
class ClaytonCopula:
    """Beta marginals tied by Clayton's copula, C(u, v) = (u^{−θ} + v^{−θ} − 1)^{−1/θ}: on [0, 1]²,
    with a tail that clings to a corner.
    """

    theta: float = 2.0
    marginals: tuple[Any, Any] = field(default=(beta(1.2, 2.0), beta(2.0, 1.1)))

    def sample(self, n: int, rng: np.random.Generator) -> np.ndarray:
        u, w = rng.random(n), rng.random(n)
        v = (u**-self.theta * (w ** (-self.theta / (1.0 + self.theta)) - 1.0) + 1.0) ** (
            -1.0 / self.theta
        )
        return np.stack([self.marginals[0].ppf(u), self.marginals[1].ppf(v)], axis=1)

    def logpdf(self, X: np.ndarray) -> np.ndarray:
        t, (f, g) = self.theta, self.marginals
        inside = np.all((X > 0.0) & (X < 1.0), axis=1)
        out = np.full(X.shape[0], -np.inf)
        x = X[inside]
        log_u, log_v = f.logcdf(x[:, 0]), g.logcdf(x[:, 1])
        log_sum = np.log(np.exp(-t * log_u) + np.exp(-t * log_v) - 1.0)
        copula = np.log1p(t) - (1.0 + t) * (log_u + log_v) - (2.0 + 1.0 / t) * log_sum
        out[inside] = copula + f.logpdf(x[:, 0]) + g.logpdf(x[:, 1])
        return out
