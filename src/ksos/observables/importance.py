"""Rules for many features: scrambled Sobol' points of the mixture of the laws around the support points, weighted by its density."""

from __future__ import annotations

import math
from collections.abc import Iterator

import numpy as np
from scipy.special import log_ndtr, logsumexp, ndtri_exp

from ksos._memory import row_blocks
from ksos.integrals import Integrals
from ksos.integrals.gaussian import GaussianLebesgue
from ksos.kernels import Gaussian

__all__ = ["importance_rules"]

_SCRAMBLINGS = 8
_BLOCK_ELEMENTS = 1 << 20


def importance_rules(integrals: Integrals, X: np.ndarray, max_nodes: int, seed: int) -> Iterator[tuple[np.ndarray, np.ndarray]]:
    """(nodes, log weights) against the measure, once per scrambling.

    The mixture Σ_i q_i/m, q_i ∝ k(x, x̃_i)²ρ or a law with heavier tails, has at least the mass of every product k_i k_j ρ up to a
    constant, so that the weights are bounded.
    """
    from scipy.stats import qmc  # heavy to import, and needed only here

    m, d = X.shape
    law = _Law(integrals, X)
    n = 1 << max(5, int(math.log2(max(max_nodes // _SCRAMBLINGS, 1))))
    for child in np.random.SeedSequence(seed).spawn(_SCRAMBLINGS):
        unit = qmc.Sobol(d + 1, rng=np.random.default_rng(child)).random(n)
        component = np.minimum((m * unit[:, 0]).astype(int), m - 1)
        tiny = 0.5 / n / 2**20
        nodes = law.draw(component, np.clip(unit[:, 1:], tiny, 1.0 - tiny))
        yield nodes, integrals.measure.log_density(nodes) - law.log_density(nodes) - math.log(n)


class _Law:
    """Per support point a product of normal laws (Gaussian kernel) or Laplace laws (the others), cut at the walls of the measure."""

    def __init__(self, integrals: Integrals, X: np.ndarray) -> None:
        d = X.shape[1]
        sigma = integrals.kernel.sigma_vector(d)
        self.normal = isinstance(integrals.kernel, Gaussian)
        self.centres, self.scale = X, 0.5 * sigma if self.normal else sigma
        if isinstance(integrals, GaussianLebesgue) and integrals.centre is not None:
            product = integrals._product(integrals.kernel, integrals.kernel)
            self.centres = 2.0 * product.weight(0) * X + product.weight(2) * integrals.centre
            self.scale = product.width / math.sqrt(2.0)
        walls = [integrals.measure.walls(k) for k in range(d)]
        self.low, self.high = np.array([wall[0] for wall in walls]), np.array([wall[1] for wall in walls])

    def _ends(self) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
        """Per support point and feature: the walls in units of the law, and whether the law is mirrored so that the mass lies below 0."""
        a, b = (self.low - self.centres) / self.scale, (self.high - self.centres) / self.scale
        flip = a > 0.0
        return np.where(flip, -b, a), np.where(flip, -a, b), flip

    def _log_cdf(self, t: np.ndarray) -> np.ndarray:
        if self.normal:
            return np.asarray(log_ndtr(t))
        with np.errstate(divide="ignore"):
            return np.where(t < 0.0, t - math.log(2.0), np.log1p(-0.5 * np.exp(-np.maximum(t, 0.0))))

    def _quantile(self, log_p: np.ndarray) -> np.ndarray:
        if self.normal:
            return np.asarray(ndtri_exp(log_p))
        below = log_p + math.log(2.0)
        with np.errstate(divide="ignore"):
            return np.where(below < 0.0, below, -np.log(-2.0 * np.expm1(np.minimum(log_p, -1e-300))))

    def draw(self, component: np.ndarray, unit: np.ndarray) -> np.ndarray:
        """The points of the given components at the given levels of their distribution functions."""
        a, b, flip = (part[component] for part in self._ends())
        log_a, log_b = self._log_cdf(a), self._log_cdf(b)
        with np.errstate(divide="ignore"):
            log_p = np.logaddexp(np.log(unit) + log_b, np.log1p(-unit) + log_a)
        t = np.clip(self._quantile(np.minimum(log_p, 0.0)), a, b)
        return np.clip(self.centres[component] + self.scale * np.where(flip, -t, t), self.low, self.high)

    def log_density(self, nodes: np.ndarray) -> np.ndarray:
        """log of the mixture's density with respect to Lebesgue measure."""
        a, b, _ = self._ends()
        log_a, log_b = self._log_cdf(a), self._log_cdf(b)
        with np.errstate(divide="ignore"):
            log_mass = np.sum(log_b + np.log1p(-np.exp(np.minimum(log_a - log_b, 0.0))), axis=1)
        peak = 0.5 * math.log(2.0 * math.pi) if self.normal else math.log(2.0)
        constant = -float(np.sum(np.log(self.scale) + peak))
        out = np.empty(nodes.shape[0])
        for rows in row_blocks(nodes.shape[0], self.centres.size, _BLOCK_ELEMENTS):
            away = (nodes[rows, None, :] - self.centres) / self.scale
            log = -0.5 * np.sum(away**2, axis=2) if self.normal else -np.sum(np.abs(away), axis=2)
            out[rows] = logsumexp(log - log_mass, axis=1)
        return out + constant - math.log(self.centres.shape[0])
