"""The order-3 integrals applied to a matrix: U(B)_r = Σ_ij B_ij ∫ k(x,X_i) k(x,X_j) k_σ(x,Z_r) dρ, never stored as m × m × ℓ."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np

from ksos._memory import FLOAT_BYTES, require_memory
from ksos.integrals.base import Integrals
from ksos.kernels import Kernel

__all__ = ["PairFactors", "apply_triple", "triple_blocks"]

_BLOCK_BYTES = 64e6
_TEMPORARIES = 8


class PairFactors:
    """u_ijr = c·G_ij·H_ir·H_jr in units of exp(log_unit), with G, H and c of moderate size."""

    def __init__(self, integrals: Integrals, X: np.ndarray, Z: np.ndarray, embedding_kernel: Kernel, log_unit: float) -> None:
        log_c, log_G, log_H = integrals.log_pairwise(X, Z, embedding_kernel)
        peak = float(log_H.max())
        self.G, self.H = np.exp(log_G), np.exp(log_H - peak)
        self.c = float(np.exp(log_c + 2.0 * peak - log_unit))


def apply_triple(
    integrals: Integrals, X: np.ndarray, B: np.ndarray, log_unit: float, Z: np.ndarray, embedding_kernel: Kernel
) -> np.ndarray:
    """U(B) at the points Z, for a matrix B in units of exp(−log_unit): the embedding of p_B, evaluated at Z."""
    out = np.empty(Z.shape[0])
    if integrals.pairwise:
        step = max(1, int(_BLOCK_BYTES / (FLOAT_BYTES * X.shape[0])))
        for start in range(0, Z.shape[0], step):
            rows = slice(start, start + step)
            pairs = PairFactors(integrals, X, Z[rows], embedding_kernel, log_unit)
            out[rows] = pairs.c * np.sum(pairs.H * ((B * pairs.G) @ pairs.H), axis=0)
        return out
    for rows, block in triple_blocks(integrals, X, Z, embedding_kernel, log_unit):
        out[rows] = np.tensordot(B, block, axes=([0, 1], [0, 1]))
    return out


def triple_blocks(
    integrals: Integrals, X: np.ndarray, Z: np.ndarray, embedding_kernel: Kernel, log_unit: float
) -> Iterator[tuple[slice, np.ndarray]]:
    """The tensor u_ijr in units of exp(log_unit), streamed over blocks of landmarks r, each of shape (m, m, block)."""
    m = X.shape[0]
    per_landmark = FLOAT_BYTES * m * m * _TEMPORARIES
    require_memory(per_landmark, f"one slice of the triple integral with m = {m} support points", "use fewer support points (n_support)")
    step = max(1, int(_BLOCK_BYTES / per_landmark))
    for start in range(0, Z.shape[0], step):
        rows = slice(start, min(start + step, Z.shape[0]))
        yield rows, np.exp(integrals.log_triple(X, Z[rows], embedding_kernel) - log_unit)
