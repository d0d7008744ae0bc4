"""The order-3 integrals applied to a matrix: U(B)_r = Σ_ij B_ij ∫ k(x,X_i) k(x,X_j) k_σ(x,Z_r) dρ,
never stored as m × m × ℓ.

Over a mixture of normal distributions they are products over pairs of points, one component after
the other, with the constant function or without it. With √(k_σ(·, z_r) N_c) as a factor of each,
the functions k(·, x̃_i) are Gaussian functions of one width whose distances do not depend on the
landmark z_r. So their Gram matrix has entries in [0, 1], times an amplitude for each function and
landmark.
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np

from ksos.ground import (
    FLOAT_BYTES,
    Array,
    flat,
    is_numpy,
    like,
    namespace,
    require_memory,
    row_blocks,
    to_numpy,
    zeros,
)
from ksos.integrals.base import Factor, Integrals, PairFactors
from ksos.integrals.box_pairs import BoxPairs
from ksos.integrals.gaussian import GaussianBox, GaussianNormals, axes_of
from ksos.kernels import Kernel, thin_root
from ksos.kernels.base import central_point, squared_distances
from ksos.measures import Measure

_BLOCK_ELEMENTS = 8_000_000  # 64 MB for a block of the triple integral
_TEMPORARIES = 8  # arrays of the size of a block that a closed form holds at a time, at most


class WithConstant(Integrals):
    """Integrals of ``own``, whose triple integral has a first row, and a first column, for the
    constant function.
    """

    def __init__(self, own: Integrals) -> None:
        super().__init__(own.kernel, own.measure, own.n_features)
        self.own = own

    def log_product(self, *factors: Factor) -> Array:
        xp, (first, _, last) = namespace(factors[0][1]), factors
        alone, cross = self.own.log_product(last), self.own.log_product(first, last)
        row = xp.concat([alone[None, None, :], cross[None, :, :]], axis=1)
        rest = xp.concat([cross[:, None, :], self.own.log_product(*factors)], axis=1)
        return xp.concat([row, rest], axis=0)


@dataclass(frozen=True)
class ThinPairs:
    """Pair factors of many points: G = QQᵀ and H = left·rightᵀ, with as many columns as the kernels
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
    if integrals.pairwise and not constant:
        for rows in row_blocks(Z.shape[0], X.shape[0], _BLOCK_ELEMENTS):
            part = PairFactors(integrals, X, Z[rows, :], embedding_kernel, log_unit)
            out[rows] = part.c * xp.sum(part.H * ((B * part.G) @ part.H), axis=0)
        return out
    basis = WithConstant(integrals) if constant else integrals
    for rows, block in triple_blocks(basis, X, Z, embedding_kernel, log_unit):
        out[rows] = flat(B) @ xp.reshape(block, (-1, block.shape[2]))
    return out


def triple_blocks(
    integrals: Integrals, X: Array, Z: Array, embedding_kernel: Kernel, log_unit: float
) -> Iterator[tuple[slice, Array]]:
    """The tensor u_ijr in units of exp(log_unit), streamed over blocks of landmarks r, each of
    shape (m, m, block).
    """
    xp, m = namespace(X), X.shape[0]
    require_memory(
        FLOAT_BYTES * m * m * _TEMPORARIES,
        f"one slice of the triple integral with m = {m} support points",
        "use fewer support points (n_support)",
        beside=X,
    )
    if isinstance(integrals, GaussianBox) and is_numpy(X) and not embedding_kernel.full:
        pairs = BoxPairs(integrals, X)
        masses = pairs.log_masses[:, None] - log_unit
        for rows in row_blocks(Z.shape[0], m * m + _TEMPORARIES * masses.size, _BLOCK_ELEMENTS):
            yield rows, pairs.matrix(np.exp(pairs.log_seen(Z[rows], embedding_kernel) + masses))
        return
    if integrals.measure.normals(X.shape[1]) is not None and not integrals.pairwise:
        yield from _component_blocks(integrals, X, Z, embedding_kernel, log_unit)
        return
    for rows in row_blocks(Z.shape[0], m * m * _TEMPORARIES, _BLOCK_ELEMENTS):
        yield rows, xp.exp(integrals.log_triple(X, Z[rows, :], embedding_kernel) - log_unit)


# The same over a mixture of normal distributions, whose integrals are products over pairs.
def _component_blocks(
    integrals: Integrals, X: Array, Z: Array, embedding_kernel: Kernel, log_unit: float
) -> Iterator[tuple[slice, Array]]:
    first, host = int(isinstance(integrals, WithConstant)), (to_numpy(X), to_numpy(Z))
    pairs = component_pairs(integrals.kernel, integrals.measure, *host, embedding_kernel, log_unit)
    parts, m = list(pairs), first + X.shape[0]
    for rows in row_blocks(Z.shape[0], m * m, _BLOCK_ELEMENTS):
        block = np.zeros((rows.stop - rows.start, m, m))
        for part in parts:
            H = np.sqrt(part.c) * part.H[:, rows].T
            block[:, first:, first:] += part.G * H[:, :, None] * H[:, None, :]
            if first:
                block[:, 0, 0] += part.masses[rows]
                block[:, 0, 1:] += part.cross[:, rows].T
        if first:
            block[:, 1:, 0] = block[:, 0, 1:]
        yield rows, like(np.moveaxis(block, 0, -1), X)


@dataclass(frozen=True)
class ComponentPairs:
    """One component w·N(μ, Σ): ∫ k_i k_j k_σ(·, z_r) w dN = c·G_ij·H_ir·H_jr, in units of
    exp(log_unit).
    """

    c: float
    G: np.ndarray  # (m, m), at most 1
    H: np.ndarray  # (m, ℓ), at most 1
    cross: np.ndarray  # (m, ℓ): ∫ k_i k_σ(·, z_r) w dN
    masses: np.ndarray  # (ℓ,): ∫ k_σ(·, z_r) w dN


def component_pairs(
    kernel: Kernel,
    measure: Measure,
    X: np.ndarray,
    Z: np.ndarray,
    embedding_kernel: Kernel,
    log_unit: float,
) -> Iterator[ComponentPairs]:
    """The pairs of every component of a mixture of normal distributions."""
    d, last = X.shape[1], (embedding_kernel, Z)
    integrals, axes = GaussianNormals(kernel, measure, d), axes_of(kernel, d, embedding_kernel)
    y = axes.coordinates(X, central_point(X))
    # u_iir = c·H_ir², as G_ii = 1, so that H is known from the integrals with k_i² as one factor
    squares, crosses, masses = (
        itertools.chain.from_iterable(integrals.log_parts(*factors))
        for factors in (((kernel.scaled(math.sqrt(0.5)), X), last), ((kernel, X), last), (last,))
    )
    for log_square, log_cross, log_mass, covariance in zip(
        squares, crosses, masses, integrals.normals.covariances, strict=True
    ):
        peak = float(log_square.max())
        # in the axes of the kernels k²k_σN is exp(−yᵀAy), G_ij = exp(−(y_i − y_j)ᵀA⁻¹(y_i − y_j))
        A = np.diag(2.0 + axes.bandwidths[1] ** -2.0)
        A += 0.5 * np.linalg.inv(axes.V @ covariance @ axes.V.T)
        moved = np.linalg.solve(np.linalg.cholesky(0.5 * (A + A.T)), y.T).T
        with np.errstate(under="ignore"):
            yield ComponentPairs(
                math.exp(peak - log_unit),
                np.exp(-squared_distances(moved, moved, np.ones(d))),
                np.exp(0.5 * (log_square - peak)),
                np.exp(log_cross - log_unit),
                np.exp(log_mass - log_unit),
            )
