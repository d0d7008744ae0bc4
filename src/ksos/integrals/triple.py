"""The order-3 integrals applied to a matrix: U(B)_r = Σ_ij B_ij ∫ k(x,X_i) k(x,X_j) k_σ(x,Z_r) dρ,
never stored as m × m × ℓ.
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np

from ksos.ground.arrays import Array, flat, is_numpy, like, namespace, to_numpy, zeros
from ksos.ground.memory import FLOAT_BYTES, require_memory, row_blocks
from ksos.ground.pivoted_cholesky import thin_root
from ksos.integrals.base import Integrals
from ksos.integrals.components import component_pairs
from ksos.integrals.constant import WithConstant
from ksos.kernels import Kernel

__all__ = ["PairFactors", "ThinPairs", "apply_triple", "thin_pairs", "triple_blocks"]

_BLOCK_ELEMENTS, _TEMPORARIES = 8_000_000, 8


class PairFactors:
    """u_ijr = c·G_ij·H_ir·H_jr in units of exp(log_unit), with G, H and c of moderate size."""

    def __init__(
        self, integrals: Integrals, X: Array, Z: Array, embedding_kernel: Kernel, log_unit: float
    ) -> None:
        log_c, log_G, log_H = integrals.log_pairwise(X, Z, embedding_kernel)
        xp = namespace(log_H)
        peak = float(xp.max(log_H))
        self.G, self.H = xp.exp(log_G), xp.exp(log_H - peak)
        self.c = math.exp(log_c + 2.0 * peak - log_unit)


@dataclass(frozen=True)
class ThinPairs:
    """The same for many points: G = QQᵀ and H = left·rightᵀ, with as many columns as the kernels
    can tell apart.
    """

    c: float
    Q: np.ndarray
    left: np.ndarray
    right: np.ndarray


def thin_pairs(
    integrals: Integrals, X: Array, Z: Array, embedding_kernel: Kernel, log_unit: float
) -> ThinPairs | None:
    """:class:`ThinPairs` if there are many points on the host and the factors are kernel matrices
    of low rank; else None.
    """
    if not is_numpy(X) or (kernels := integrals.pair_kernels(embedding_kernel)) is None:
        return None
    (log_c, of_G, of_H), m = kernels, X.shape[0]
    Q = _kernel_root(of_G, X)
    H = None if Q is None else _kernel_root(of_H, X if Z is X else np.concatenate([X, Z]))
    return (
        None
        if Q is None or H is None
        else ThinPairs(math.exp(log_c - log_unit), Q, H[:m], H if Z is X else H[m:])
    )


def _kernel_root(kernel: Kernel, points: np.ndarray) -> np.ndarray | None:
    return thin_root(lambda i: kernel(points[i : i + 1], points)[0], np.ones(points.shape[0]))


def apply_triple(
    integrals: Integrals, X: Array, B: Array, log_unit: float, Z: Array, embedding_kernel: Kernel
) -> Array:
    """U(B) at the points Z, for a matrix B in units of exp(−log_unit): the embedding of p_B,
    evaluated at Z.

    B may have one row more than X, its first, which is then that of the constant function.
    """
    xp, out, constant = namespace(X, Z), zeros((Z.shape[0],), X), B.shape[0] > X.shape[0]
    if (constant or not integrals.pairwise) and integrals.measure.normals(X.shape[1]) is not None:
        inner = B[1:, 1:] if constant else B
        for rows in row_blocks(Z.shape[0], X.shape[0], _BLOCK_ELEMENTS):
            at, args = to_numpy(Z[rows, :]), (embedding_kernel, log_unit)
            for part in component_pairs(
                integrals.kernel, integrals.measure, to_numpy(X), at, *args
            ):
                H = like(part.H, X)
                out[rows] += part.c * xp.sum(H * ((inner * like(part.G, X)) @ H), axis=0)
                if constant:
                    out[rows] += 2.0 * (B[0, 1:] @ like(part.cross, X)) + B[0, 0] * like(
                        part.masses, X
                    )
        return out
    if constant:
        integrals = WithConstant(integrals)
    if integrals.pairwise:
        for rows in row_blocks(Z.shape[0], X.shape[0], _BLOCK_ELEMENTS):
            pairs = PairFactors(integrals, X, Z[rows, :], embedding_kernel, log_unit)
            out[rows] = pairs.c * xp.sum(pairs.H * ((B * pairs.G) @ pairs.H), axis=0)
        return out
    for rows, block in triple_blocks(integrals, X, Z, embedding_kernel, log_unit):
        out[rows] = flat(B) @ xp.reshape(block, (-1, block.shape[2]))
    return out


def triple_blocks(
    integrals: Integrals, X: Array, Z: Array, embedding_kernel: Kernel, log_unit: float
) -> Iterator[tuple[slice, Array]]:
    """The tensor u_ijr in units of exp(log_unit), streamed over blocks of landmarks r, each of
    shape (m, m, block).
    """
    xp, m = namespace(X), X.shape[0]
    what, remedy = (
        f"one slice of the triple integral with m = {m} support points",
        "use fewer support points (n_support)",
    )
    require_memory(FLOAT_BYTES * m * m * _TEMPORARIES, what, remedy, beside=X)
    for rows in row_blocks(Z.shape[0], m * m * _TEMPORARIES, _BLOCK_ELEMENTS):
        yield rows, xp.exp(integrals.log_triple(X, Z[rows, :], embedding_kernel) - log_unit)
