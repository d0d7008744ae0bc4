"""The spectraplex {C ⪰ 0, tr C = 1}: projection (the note's Algorithm 1), centre, factors."""

from __future__ import annotations

import numpy as np

__all__ = ["centre", "factor", "project", "project_simplex"]


def centre(r: int) -> np.ndarray:
    """I/r."""
    return np.eye(r) / r


def project(M: np.ndarray) -> np.ndarray:
    """Algorithm 1: the nearest point of the spectraplex, by projecting the eigenvalues of ``M`` on the simplex."""
    values, U = np.linalg.eigh(M)
    values = project_simplex(values)
    keep = values > 0.0
    G = U[:, keep] * np.sqrt(values[keep])
    return G @ G.T


def project_simplex(values: np.ndarray) -> np.ndarray:
    """The nearest point of {x ≥ 0, Σx = 1} to ``values``, by sorting.

    >>> project_simplex(np.array([0.5, 0.1, 1.1])).round(6).tolist()
    [0.2, 0.0, 0.8]
    """
    values = values - values.max()  # a common shift changes nothing, and 1 must not vanish beside large numbers
    descending = np.sort(values)[::-1]
    thresholds = (np.cumsum(descending) - 1.0) / np.arange(1, values.shape[0] + 1)
    last = np.nonzero(descending > thresholds)[0][-1]
    return np.maximum(values - thresholds[last], 0.0)


def factor(C: np.ndarray) -> np.ndarray:
    """G with C = GGᵀ and ‖G‖² = 1, one column per eigenvalue that is not rounding."""
    values, U = np.linalg.eigh(C)
    keep = values > 1e-14 * values[-1]
    G = U[:, keep] * np.sqrt(values[keep])
    return np.asarray(G / np.linalg.norm(G))
