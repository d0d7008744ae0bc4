"""A thin factor of a Hadamard product of two positive semi-definite matrices (positive semi-definite by Schur's theorem)."""

from __future__ import annotations

import numpy as np

from ksos._memory import FLOAT_BYTES, require_memory
from ksos._threads import one_blas_thread

__all__ = ["hadamard_factor"]

_DROP = 1e-15


def hadamard_factor(F: np.ndarray, R: np.ndarray) -> np.ndarray:
    """L with LLᵀ = (FFᵀ) ∘ R and as few columns as rounding allows.

    With R = VΛVᵀ the columns f_a ∘ √λ_b v_b are such a factor. They are never squared: L keeps the digits that the entries of
    (FFᵀ) ∘ R have lost where they cancel. Rows of F of length one and a unit diagonal of R make the error relative to each row.
    """
    m = F.shape[0]
    require_memory(12 * m * m * FLOAT_BYTES, f"integrating features out of a density with {m} support points", "compress it first")
    with one_blas_thread(m):
        values, V = np.linalg.eigh(R)
    keep = values > _DROP * values[-1]
    roots = V[:, keep] * np.sqrt(values[keep])
    at_once = max(1, 4 * m // roots.shape[1])
    columns = np.zeros((m, 0))
    for start in range(0, F.shape[1], at_once):
        products = F[:, start : start + at_once, None] * roots[:, None, :]
        columns = np.concatenate([columns, products.reshape(m, -1)], axis=1)
        if columns.shape[1] > m and start + at_once < F.shape[1]:
            columns = np.asarray(np.linalg.qr(columns.T, mode="r")).T
    return _thin(columns)


def _thin(columns: np.ndarray) -> np.ndarray:
    """L with LLᵀ = columns·columnsᵀ to rounding, and as few columns as its rank."""
    if columns.shape[1] > columns.shape[0]:
        columns = np.asarray(np.linalg.qr(columns.T, mode="r")).T
    U, s, _ = np.linalg.svd(columns, full_matrices=False)
    keep = s > _DROP * s[0]
    return np.asarray(U[:, keep] * s[keep])
