"""Gaussian mixtures with everything in closed form: density, samples, embedding. Truths and peers
alike are written as one.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from scipy.spatial.distance import cdist

__all__ = ["GaussianMixtureLaw", "equal_kernels"]

_BLOCK = 1 << 20


@dataclass(frozen=True)
class GaussianMixtureLaw:
    """Σ_a w_a N(μ_a, Σ_a); ``covariances`` has shape (c, d, d), or (1, d, d) when all components
    share one.
    """

    weights: np.ndarray
    means: np.ndarray
    covariances: np.ndarray

    @property
    def n_features(self) -> int:
        return int(self.means.shape[1])

    def logpdf(self, X: np.ndarray) -> np.ndarray:
        return self._log_smoothed(X, np.zeros(self.n_features))

    def sample(self, n: int, rng: np.random.Generator) -> np.ndarray:
        chosen = rng.choice(self.weights.shape[0], size=n, p=self.weights)
        roots = np.linalg.cholesky(self.covariances)[
            np.minimum(chosen, self.covariances.shape[0] - 1)
        ]
        return self.means[chosen] + np.einsum(
            "nij,nj->ni", roots, rng.normal(size=(n, self.n_features))
        )

    def embedding(self, Z: np.ndarray, sigma: np.ndarray) -> np.ndarray:
        """∫ k(z, x) p(x) dx for the Gaussian kernel exp(−‖(x − z)/σ‖²), which is (πσ²)^{d/2} times
        a normal density of variance σ²/2.
        """
        return np.exp(self._log_smoothed(Z, 0.5 * sigma**2) + _log_kernel_mass(sigma))

    def self_inner(self, sigma: np.ndarray) -> float:
        """∬ k(x, y) p(x) p(y) dx dy: components of like covariance are taken together."""
        total = 0.0
        shared = self.covariances.shape[0] == 1
        for a in range(self.covariances.shape[0]):
            members = slice(None) if shared else slice(a, a + 1)
            values = self._log_smoothed(
                self.means[members], 0.5 * sigma**2, extra=self.covariances[a]
            )
            total += float(self.weights[members] @ np.exp(values + _log_kernel_mass(sigma)))
        return total

    def _log_smoothed(
        self, X: np.ndarray, variance: np.ndarray, extra: np.ndarray | None = None
    ) -> np.ndarray:
        """log of the density of the mixture plus independent normal noise."""
        covariances = self.covariances + np.diag(variance) + (0.0 if extra is None else extra)
        out = np.empty(X.shape[0])
        step = max(1, _BLOCK // (self.means.shape[0] * self.n_features))
        roots = np.linalg.inv(np.linalg.cholesky(covariances))
        log_det = np.log(np.diagonal(roots, axis1=1, axis2=2)).sum(
            axis=1
        ) - 0.5 * self.n_features * np.log(2.0 * np.pi)
        with np.errstate(divide="ignore"):
            log_weights = np.log(self.weights)
        for start in range(0, X.shape[0], step):
            part = X[start : start + step]
            if covariances.shape[0] == 1:  # whiten the points once instead of every difference
                x, center = part @ roots[0].T, self.means @ roots[0].T
                squares = cdist(x, center, "sqeuclidean")
            else:
                differences = part[:, None, :] - self.means[None, :, :]
                squares = np.sum(np.einsum("cij,ncj->nci", roots, differences) ** 2, axis=2)
            exponents = log_weights + log_det - 0.5 * squares
            peak = exponents.max(axis=1)
            out[start : start + step] = peak + np.log(np.exp(exponents - peak[:, None]).sum(axis=1))
        return out


def equal_kernels(points: np.ndarray, covariance: np.ndarray) -> GaussianMixtureLaw:
    """A kernel density estimate."""
    n = points.shape[0]
    return GaussianMixtureLaw(np.full(n, 1.0 / n), points, covariance[None])


def _log_kernel_mass(sigma: np.ndarray) -> float:
    return float(np.sum(0.5 * np.log(np.pi) + np.log(sigma)))
