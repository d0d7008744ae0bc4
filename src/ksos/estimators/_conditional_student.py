"""What residuals follow when little is known of them: a Student law, which is a normal law where rows are many and tails are thin."""

from __future__ import annotations

from typing import Any

import numpy as np
from scipy.special import gammaln
from scipy.stats import chi2

from ksos.density.mixture import SoSMixture, reference_density
from ksos.measures import GaussianMixture, Lebesgue

__all__ = ["student_law"]

_FREEDOM = (3.0, 5.0, 10.0)
_EARNED = 3.0  # nats that tails must earn
_ROUNDS, _LEAST = 30, 0.01
_NEARLY_NORMAL = 100.0
_PARTS, _ENDS = 15, 5e-4


def student_law(U: np.ndarray, masses: np.ndarray) -> SoSMixture:
    """The law of one more residual beside those of the rows ``U`` (n, k), as a mixture of normal laws of one shape.

    For normal residuals of unknown mean and covariance it is Student's, with n − k degrees of freedom and the sample's covariance times
    (n + 1)/(n − k): wider than a normal law by a seventh for fifteen rows, by nothing for a thousand. Fewer degrees of freedom, with the
    covariance at the largest likelihood [Lange1989], if they earn three nats. Its mean is that of the residuals.
    """
    k, weights = U.shape[1], masses / masses.sum()
    n, mean = 1.0 / float(np.sum(weights**2)), weights @ U
    V = U - mean
    covariance = _covariance(V, weights, 1e-12)
    freedom, best = max(n - k, _FREEDOM[0]), n * _log_likelihood(V, weights, covariance, np.inf) + _EARNED
    stretch, chosen = (n + 1.0) / max(n - k, 1.0), covariance
    least = _LEAST * np.diagonal(covariance)  # where most residuals are equal, the likelihood has no bound
    for nu in _FREEDOM:
        S = covariance
        for _ in range(_ROUNDS):
            S = _covariance(V, weights * (nu + k) / (nu + _squared(V, S)), least)
        value = n * _log_likelihood(V, weights, S, nu)
        if nu < freedom and value > best:
            chosen, freedom, best = S, nu, value
    shares, widths = _scales(freedom)
    measure = GaussianMixture(shares, np.tile(mean, (widths.size, 1)), widths[:, None, None] ** 2 * stretch * chosen)
    return SoSMixture([reference_density(measure)], measure=Lebesgue())


def _covariance(V: np.ndarray, weights: np.ndarray, least: Any) -> np.ndarray:
    """Σ_i a_i v_i v_iᵀ; of several outputs, slightly drawn towards independence."""
    covariance = V.T @ (weights[:, None] * V)
    own = np.diag(np.maximum(np.diagonal(covariance), least))
    return 0.98 * covariance + 0.02 * own if V.shape[1] > 1 else own


def _squared(V: np.ndarray, covariance: np.ndarray) -> np.ndarray:
    return np.asarray(np.einsum("ij,ji->i", V, np.linalg.solve(covariance, V.T)))


def _log_likelihood(V: np.ndarray, weights: np.ndarray, covariance: np.ndarray, nu: float) -> float:
    """Σ a_i log p(v_i) around zero."""
    k, squared = V.shape[1], _squared(V, covariance)
    constant = -0.5 * float(np.linalg.slogdet(np.pi * covariance)[1])
    if np.isinf(nu):
        return constant - 0.5 * k * np.log(2.0) - 0.5 * float(weights @ squared)
    constant += float(gammaln(0.5 * (nu + k)) - gammaln(0.5 * nu) - 0.5 * k * np.log(nu))
    return constant - 0.5 * (nu + k) * float(weights @ np.log1p(squared / nu))


def _scales(freedom: float) -> tuple[np.ndarray, np.ndarray]:
    """Shares and widths of normal laws that make a Student law: the widths √(ν/χ²_ν), from many to few degrees of freedom."""
    if freedom > _NEARLY_NORMAL:
        return np.ones(1), np.full(1, np.sqrt(freedom / (freedom - 2.0)))
    ends = np.log(chi2.ppf([_ENDS, 1.0 - _ENDS], freedom))
    edges = np.linspace(ends[0], ends[1], _PARTS + 1)
    middles = 0.5 * (edges[1:] + edges[:-1])
    shares = np.diff(np.r_[0.0, chi2.cdf(np.exp(edges[1:-1]), freedom), 1.0])
    return shares, np.sqrt(freedom * np.exp(-middles))
