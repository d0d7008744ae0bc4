"""Factors of positive semidefinite matrices, row by row: lengths apart; sums in logarithms."""

from __future__ import annotations

import numpy as np
from scipy.linalg import qr

from ksos.ground import (
    FLOAT_BYTES,
    Array,
    namespace,
    one_blas_thread,
    quiet,
    require_memory,
    row_squares,
)

_EPSILON = float(np.finfo(np.float64).eps)
_DROP = 1e-15  # relative to the largest: eigenvalues below it are rounding
_TALL = 4  # rows per column from which a first QR without pivoting, twice as fast, pays
_MANY_COLUMNS = 4  # per support point: more are worth a try of Cholesky, which costs one such QR
_SAFE = 1e-6  # relative error bound for Cholesky with a diagonal: it is pessimistic by many orders
_SAFER = 1e-10  # the same from the least eigenvalue alone, which itself carries rounding


def unit_rows(factor: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """The rows of ``factor`` scaled to length one, and the logarithms of their lengths; rows of
    zeros stay, with length −inf.
    """
    largest = np.abs(factor).max(axis=1)
    scale = np.where(largest > 0.0, largest, 1.0)
    rows = factor / scale[:, None]
    lengths = np.sqrt(np.einsum("ij,ij->i", rows, rows))
    with np.errstate(divide="ignore"):
        log_lengths = np.log(lengths) + np.log(scale)
    return rows / np.where(lengths > 0.0, lengths, 1.0)[:, None], log_lengths


def log_squares(log_terms: Array, rows: Array) -> Array:
    """log ‖Σ_i e^{log_terms_ni} rows_i‖², shape (n,), with the largest term of each sum taken out
    before it can underflow.
    """
    xp = namespace(log_terms)
    peak = xp.max(log_terms, axis=1)
    shift = xp.where(xp.isfinite(peak), peak, 0.0)
    with quiet():
        values = xp.exp(log_terms - shift[:, None]) @ rows
        return xp.log(row_squares(values)) + 2.0 * shift


def log_sum(logs: Array) -> tuple[Array, Array]:
    """log Σ_c e^{logs_cn}, shape (n,), and the share of every term in its sum; where all of them
    vanish −∞ and zeros.
    """
    xp = namespace(logs)
    peak = xp.max(logs, axis=0)
    shift = xp.where(xp.isfinite(peak), peak, 0.0)
    with quiet():
        shares = xp.exp(logs - shift)
        total = xp.sum(shares, axis=0)
        return shift + xp.log(total), shares / xp.where(total > 0.0, total, 1.0)


def split_columns(factor: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """M, the columns that mix support points, and the summed squares of those that hold one point
    each: FFᵀ = MMᵀ + diag(single).

    A kernel density estimate is nothing but such columns, and a matrix product with all of them
    would be mostly zeros.
    """
    single = np.count_nonzero(factor, axis=0) <= 1
    return np.ascontiguousarray(factor[:, ~single]), np.sum(factor[:, single] ** 2, axis=1)


def merge_points(points: np.ndarray, factor: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Equal points become one, in the order of their first appearance, and their rows of the factor
    are added.
    """
    distinct, first, inverse = np.unique(
        points + 0.0, axis=0, return_index=True, return_inverse=True
    )
    if distinct.shape[0] == points.shape[0]:
        return points, factor
    order = np.argsort(first)
    place = np.argsort(order)[inverse.ravel()]
    merged = np.zeros((distinct.shape[0], factor.shape[1]))
    np.add.at(merged, place, factor)
    return points[first[order]], merged


def hadamard_factor(F: np.ndarray, R: np.ndarray) -> np.ndarray:
    """L with LLᵀ = (FFᵀ) ∘ R, positive semi-definite by Schur's theorem, and as few columns as
    rounding allows.

    With R = VΛVᵀ the columns f_a ∘ √λ_b v_b are such a factor. They are never squared: L keeps the
    digits that the entries of (FFᵀ) ∘ R have lost where they cancel. Rows of F of length one and a
    unit diagonal of R make the error relative to each row.

    Where these would be many columns, and every point has a kernel b_i k_i² of its own beside them,
    L is Cholesky's factor: the density is at least Σ b_i k_i², so that rounding changes it by no
    more than ε Σ 1/b_i of itself anywhere, and far less where nothing cancels. The same holds with
    the least eigenvalue of (FFᵀ) ∘ R in the place of every b_i.
    """
    m = F.shape[0]
    require_memory(
        12 * m * m * FLOAT_BYTES,
        f"integrating features out of a density with {m} support points",
        "compress it first",
    )
    with one_blas_thread(m):
        values, V = np.linalg.eigh(R)
    keep = values > _DROP * values[-1]
    roots = V[:, keep] * np.sqrt(values[keep])
    F, single = split_columns(F)
    single = single * np.diagonal(R)
    if F.shape[1] * roots.shape[1] > _MANY_COLUMNS * m:
        product = (F @ F.T) * R + np.diag(single)
        if np.all(single > 0.0) and _EPSILON * np.sum(1.0 / single) < _SAFE:
            return np.linalg.cholesky(product)
        if (least := float(np.linalg.eigvalsh(product)[0])) > 0.0 and m * _EPSILON < _SAFER * least:
            return np.linalg.cholesky(product)
    alone = np.diag(np.sqrt(single))[:, single > 0.0]
    if not F.shape[1]:
        return alone
    with one_blas_thread(m):
        columns = hadamard_rows(F.T, roots.T, _DROP**2 * float(np.sum(F * F)))
    return np.concatenate([columns.T, alone], axis=1)


def fewer_rows(rows: np.ndarray, lost: float) -> np.ndarray:
    """R with few rows and RᵀR = rowsᵀ·rows up to a positive semi-definite part of trace at most
    ``lost``; at least one row.

    Householder reflections, not a Gram matrix: small rows that matter after cancellation keep their
    digits.
    """
    n, m = rows.shape
    if n > _TALL * m:
        rows = np.asarray(np.linalg.qr(rows, mode="r"))
    R, order = qr(rows, mode="r", pivoting=True, check_finite=False)
    R = R[: min(R.shape)]
    trailing = np.cumsum(np.einsum("ij,ij->i", R, R)[::-1])[::-1]
    kept = max(1, int(np.sum(trailing > lost)))
    out = np.empty((kept, m))
    out[:, order] = R[:kept]
    return out


def hadamard_rows(first: np.ndarray, second: np.ndarray, lost: float) -> np.ndarray:
    """Few rows for (firstᵀ·first) ∘ (secondᵀ·second), neither of which is formed: the rows are all
    products first_a ∘ second_b.
    """
    m = first.shape[1]
    out = np.zeros((0, m))
    step = max(1, _TALL * m // second.shape[0])
    for start in range(0, first.shape[0], step):
        products = (first[start : start + step, None, :] * second[None, :, :]).reshape(-1, m)
        out = np.concatenate([out, products])
        if start + step < first.shape[0]:
            out = np.asarray(np.linalg.qr(out, mode="r"))
    return fewer_rows(out, lost)
