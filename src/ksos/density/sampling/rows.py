"""Matrices known by their rows through RᵀR: fewer rows for the same quadratic form, as far as any sample can tell."""

from __future__ import annotations

import numpy as np
from scipy.linalg import qr

__all__ = ["fewer_rows", "hadamard_rows", "row_sums_of_squares"]

_BLOCK_ROWS = 4  # rows are reduced when there are this many times as many as columns


def fewer_rows(rows: np.ndarray, lost: float) -> np.ndarray:
    """R with few rows and RᵀR = rowsᵀ·rows up to a positive semi-definite part of trace at most ``lost``; at least one row.

    Householder reflections, not a Gram matrix: small rows that matter after cancellation keep their digits.
    """
    n, m = rows.shape
    if n > _BLOCK_ROWS * m:
        rows = np.asarray(np.linalg.qr(rows, mode="r"))
    R, order = qr(rows, mode="r", pivoting=True, check_finite=False)
    R = R[: min(R.shape)]
    trailing = np.cumsum(np.einsum("ij,ij->i", R, R)[::-1])[::-1]
    kept = max(1, int(np.sum(trailing > lost)))
    out = np.empty((kept, m))
    out[:, order] = R[:kept]
    return out


def hadamard_rows(first: np.ndarray, second: np.ndarray, lost: float) -> np.ndarray:
    """Few rows for (firstᵀ·first) ∘ (secondᵀ·second), neither of which is formed: the rows are all products first_a ∘ second_b."""
    m = first.shape[1]
    out = np.zeros((0, m))
    step = max(1, _BLOCK_ROWS * m // second.shape[0])
    for start in range(0, first.shape[0], step):
        products = (first[start : start + step, None, :] * second[None, :, :]).reshape(-1, m)
        out = np.concatenate([out, products])
        if start + step < first.shape[0]:
            out = np.asarray(np.linalg.qr(out, mode="r"))
    return fewer_rows(out, lost)


def row_sums_of_squares(values: np.ndarray) -> np.ndarray:
    """Σ_j values_ij², per row."""
    return np.einsum("ij,ij->i", values, values)
