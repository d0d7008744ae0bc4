"""The lowest eigenvalue of a symmetric matrix: with its vector, for directions; and as a proven lower bound, for certificates."""

from __future__ import annotations

import numpy as np
from scipy.linalg import eigh
from scipy.sparse.linalg import ArpackNoConvergence, eigsh

__all__ = ["DENSE", "lowest_bound", "lowest_eigenpairs"]

DENSE = 400
"""Up to this size, dense eigenvalues: accurate to rounding, hence a bound by themselves."""


def lowest_eigenpairs(G: np.ndarray, n: int) -> tuple[np.ndarray, np.ndarray]:
    """The ``n`` lowest eigenvalues, ascending, and their vectors as columns: by Lanczos iterations when the matrix is large."""
    r = G.shape[0]
    if r > DENSE:
        try:
            start = np.random.default_rng(0).standard_normal(r)
            values, vectors = eigsh(G, k=n, which="SA", v0=start, tol=1e-9, maxiter=20 * r, ncv=min(r, 4 * n + 40))
            order = np.argsort(values)
            return values[order], vectors[:, order]
        except ArpackNoConvergence:  # clustered eigenvalues: the dense route always works
            pass
    values, vectors = eigh(G, subset_by_index=[0, n - 1], check_finite=False)
    return values, vectors


def lowest_bound(G: np.ndarray, slack: float) -> float:
    """A lower bound of λ_min(G), proven in floating point.

    Small matrices: the dense eigenvalue, whose rounding is of order ε‖G‖. Large ones: a Lanczos value θ only bounds λ_min from above; but
    if G − (θ − δ)I has a Cholesky factor then λ_min ≥ θ − δ up to the rounding of that factor, r·ε·‖G‖, which is subtracted too. δ starts
    at ``slack`` and grows until the factor exists.
    """
    r = G.shape[0]
    if r <= DENSE:
        return float(np.linalg.eigvalsh(G)[0])
    theta = float(lowest_eigenpairs(G, 1)[0][0])
    size = float(np.abs(G).sum(axis=1).max())
    rounding = 2.0 * r * np.finfo(np.float64).eps * size
    delta = max(slack, rounding)
    while delta < size:
        try:
            np.linalg.cholesky(G - (theta - delta) * np.eye(r))
            return theta - delta - rounding
        except np.linalg.LinAlgError:
            delta *= 10.0
    return float(np.linalg.eigvalsh(G)[0])
