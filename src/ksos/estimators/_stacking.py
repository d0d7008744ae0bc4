"""Stacking: the weights with which densities, together, predict held-out samples best."""

from __future__ import annotations

import numpy as np

__all__ = ["stack", "stacked_logs"]

_ITERATIONS = 60


def stack(log_densities: np.ndarray, weights: np.ndarray, iterations: int = _ITERATIONS) -> np.ndarray:
    """Shares w ≥ 0, Σw = 1, that (nearly) maximise Σ_i a_i log Σ_j w_j p_j(x_i), from held-out log-densities of shape (n, models).

    The expectation–maximisation iteration w_j ← Σ_i a_i w_j p_j(x_i)/p(x_i), which never decreases the likelihood, stopped after 60 rounds
    from equal shares: models that predict alike keep alike shares, and noise in their scores decides nothing.

    >>> held_out = np.log([[0.2, 0.1], [0.4, 0.1], [0.1, 0.2]])
    >>> stack(held_out, np.ones(3) / 3).round(2).tolist()
    [1.0, 0.0]
    """
    P = _relative(log_densities)[0]
    w = np.full(P.shape[1], 1.0 / P.shape[1])
    for _ in range(iterations):
        w = w * (weights @ (P / np.maximum(P @ w, 1e-300)[:, None]))
        w /= w.sum()
    return w


def stacked_logs(log_densities: np.ndarray, shares: np.ndarray) -> np.ndarray:
    """log Σ_j w_j p_j(x_i), shape (n,)."""
    P, peak = _relative(log_densities)
    with np.errstate(divide="ignore"):
        return np.asarray(np.log(P @ shares) + peak)


def _relative(log_densities: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Densities in units of the largest of each sample; a sample that no model can see says nothing about them."""
    peak = log_densities.max(axis=1)
    seen = np.isfinite(peak)
    P = np.exp(np.where(seen[:, None], log_densities - np.where(seen, peak, 0.0)[:, None], 0.0))
    return P, np.where(seen, peak, -1e300)
