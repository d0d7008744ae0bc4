"""Rules for many features: scrambled Sobol' points of a mixture of product distributions, weighted
by its density.
"""

from __future__ import annotations

import math
from collections.abc import Iterator

import numpy as np
from scipy.special import log_ndtr, logsumexp, ndtri_exp

from ksos.ground import row_blocks

_SCRAMBLINGS = 8  # independent: a standard error from eight is right to 1/√(2·7), a quarter
_BLOCK_ELEMENTS = 1 << 20  # coordinates relative to centers at a time: 8 MB


def sobol(n: int, d: int, rng: np.random.Generator) -> np.ndarray:
    """``n`` scrambled Sobol' points of the unit cube [Owen1995], shape (n, d)."""
    # heavy to import, and needed only here
    from scipy.stats import qmc

    return np.asarray(qmc.Sobol(d, rng=rng).random_base2(max(1, math.ceil(math.log2(n))))[:n])


class MixtureRule:
    """Per center (m, d) a product of normal distributions, or else of Laplace distributions, of one
    ``scale`` (d,), cut off at ``low`` and ``high`` (d,).

    Integrands that are at most a multiple of the mixture have bounded weights, so that means over
    the points have a finite variance.
    """

    def __init__(
        self,
        centers: np.ndarray,
        scale: np.ndarray,
        low: np.ndarray,
        high: np.ndarray,
        *,
        normal: bool,
    ) -> None:
        self.centers, self.scale, self.low, self.high, self.normal = (
            centers,
            scale,
            low,
            high,
            normal,
        )

    def rules(self, max_nodes: int, seed: int) -> Iterator[tuple[np.ndarray, np.ndarray]]:
        """(nodes, log weights) against Lebesgue measure, once for each of eight independent
        scramblings.
        """
        m, d = self.centers.shape
        n = 1 << max(5, int(math.log2(max(max_nodes // _SCRAMBLINGS, 1))))
        for child in np.random.SeedSequence(seed).spawn(_SCRAMBLINGS):
            unit = sobol(n, d + 1, np.random.default_rng(child))
            component = np.minimum((m * unit[:, 0]).astype(int), m - 1)
            tiny = 0.5 / n / 2**20
            nodes = self._draw(component, np.clip(unit[:, 1:], tiny, 1.0 - tiny))
            yield nodes, -self.log_density(nodes) - math.log(n)

    # Per center and feature: the boundary in units of the scale, and whether it is mirrored so that
    # the mass lies below 0.
    def _ends(self) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
        a, b = (self.low - self.centers) / self.scale, (self.high - self.centers) / self.scale
        flip = a > 0.0
        return np.where(flip, -b, a), np.where(flip, -a, b), flip

    def _log_cdf(self, t: np.ndarray) -> np.ndarray:
        if self.normal:
            return np.asarray(log_ndtr(t))
        with np.errstate(divide="ignore"):
            return np.where(
                t < 0.0, t - math.log(2.0), np.log1p(-0.5 * np.exp(-np.maximum(t, 0.0)))
            )

    def _quantile(self, log_p: np.ndarray) -> np.ndarray:
        if self.normal:
            return np.asarray(ndtri_exp(log_p))
        below = log_p + math.log(2.0)
        with np.errstate(divide="ignore"):
            return np.where(
                below < 0.0, below, -np.log(-2.0 * np.expm1(np.minimum(log_p, -1e-300)))
            )

    # The points of the given components at these levels of their distribution functions.
    def _draw(self, component: np.ndarray, unit: np.ndarray) -> np.ndarray:
        a, b, flip = (part[component] for part in self._ends())
        log_a, log_b = self._log_cdf(a), self._log_cdf(b)
        with np.errstate(divide="ignore"):
            log_p = np.logaddexp(np.log(unit) + log_b, np.log1p(-unit) + log_a)
        t = np.clip(self._quantile(np.minimum(log_p, 0.0)), a, b)
        return np.clip(
            self.centers[component] + self.scale * np.where(flip, -t, t), self.low, self.high
        )

    def log_density(self, nodes: np.ndarray) -> np.ndarray:
        """log of the mixture's density with respect to Lebesgue measure."""
        a, b, _ = self._ends()
        log_a, log_b = self._log_cdf(a), self._log_cdf(b)
        with np.errstate(divide="ignore"):
            log_mass = np.sum(log_b + np.log1p(-np.exp(np.minimum(log_a - log_b, 0.0))), axis=1)
        peak = 0.5 * math.log(2.0 * math.pi) if self.normal else math.log(2.0)
        constant = -float(np.sum(np.log(self.scale) + peak))
        out = np.empty(nodes.shape[0])
        for rows in row_blocks(nodes.shape[0], self.centers.size, _BLOCK_ELEMENTS):
            away = (nodes[rows, None, :] - self.centers) / self.scale
            log = -0.5 * np.sum(away**2, axis=2) if self.normal else -np.sum(np.abs(away), axis=2)
            out[rows] = logsumexp(log - log_mass, axis=1)
        return out + constant - math.log(self.centers.shape[0])
