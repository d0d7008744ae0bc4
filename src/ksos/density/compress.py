"""Fewer squares, or fewer support points: a smaller density close to a given one, and how close."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np
from scipy.linalg import solve_triangular

from ksos.density._assemble import assemble
from ksos.ground.memory import FLOAT_BYTES, require_memory, row_blocks
from ksos.ground.validation import as_count
from ksos.integrals import Integrals

if TYPE_CHECKING:
    from ksos.density.sos import SoSDensity

__all__ = ["Compression", "compress"]

_BLOCK_ELEMENTS = 1 << 18
# a point whose function is this close to those chosen (squared, relative) brings rounding, not
# shape
_RESOLVED = 1e-10


class Compression(NamedTuple):
    """What :meth:`SoSDensity.compress` returns.

    >>> import ksos
    >>> p = ksos.SoSDensity(ksos.kernels.Gaussian(1.0), [[0.0], [0.1], [2.0]], np.eye(3), normalize=True)
    >>> small = p.compress(m=2)  # a Compression, which unpacks as density, mmd
    >>> small.density.support_points.shape, small.mmd < 0.05
    ((2, 1), True)
    """

    density: SoSDensity
    """The smaller density, of mass one."""
    mmd: float
    """Its maximum mean discrepancy to the original (the root, not the square): exact, or projected
    if landmarks were given.
    """


def compress(
    density: SoSDensity,
    rank: int | None = None,
    m: int | None = None,
    kernel: Any = None,
    landmarks: Any = None,
) -> Compression:
    """At most ``rank`` columns or ``m`` support points, and the MMD to ``density``."""
    if (rank is None) == (m is None):
        raise ValueError(
            "give either rank, the number of columns, or m, the number of support points; got"
            f" rank={rank!r}, m={m!r}"
        )
    if rank is not None:
        rank = as_count(rank, "rank")
        small = density if rank >= density.rank else _fewer_columns(density, rank)
    else:
        m = as_count(m, "m")
        small = density if m >= density.support_points.shape[0] else _fewer_points(density, m)
    from ksos.space.embedding import mmd  # which is built on densities

    return Compression(
        small, 0.0 if small is density else mmd(small, density, kernel=kernel, landmarks=landmarks)
    )


def _fewer_columns(density: SoSDensity, rank: int) -> SoSDensity:
    """p = Σ_k λ_k ψ_k² with orthonormal ψ_k, cut after the ``rank`` largest λ: no other choice of
    columns keeps more of the mass.

    The L¹-distance to p is at most twice the mass that is lost.
    """
    F = density.unit_factor
    G = F.T @ _times_gram(density, F)  # FᵀWF: its eigenvectors make the columns orthogonal in L²(ρ)
    _, V = np.linalg.eigh(0.5 * (G + G.T))
    return assemble(
        density, density.kernel, density.support_points, density.measure, F @ V[:, ::-1][:, :rank]
    )


def _fewer_points(density: SoSDensity, m: int) -> SoSDensity:
    """Every column function ψ_k projected in L²(ρ) on the span of k(·, x̃_i) of the points chosen."""
    F, integrals = density.unit_factor, density.integrals
    chosen, L, Y = _pursue(
        density.support_points, _times_gram(density, F), integrals, density.log_unit, m
    )
    factor = solve_triangular(L, Y, lower=True, trans="T")
    return assemble(
        density, density.kernel, density.support_points[chosen], density.measure, factor
    )


def _pursue(
    points: np.ndarray, WF: np.ndarray, integrals: Integrals, log_unit: float, m: int
) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Orthogonal matching pursuit [Pati1993]: take the point that brings the projection of all ψ_k
    closest, ``m`` times.

    This is the Cholesky factorisation of W whose pivot maximises Σ_k ⟨e_j, ψ_k⟩²/‖e_j‖², where e_j
    is what k(·, x̃_j) adds to the functions already chosen. Returns the points, L with LLᵀ = W
    among them, and the coordinates Y = L⁻¹WF of the ψ_k.
    """
    n = points.shape[0]
    require_memory(
        2 * n * m * FLOAT_BYTES,
        f"choosing {m} of {n} support points",
        "choose fewer, or compress the rank",
    )
    residual = np.exp(integrals.log_diagonal(points) - log_unit)
    smallest = _RESOLVED * residual
    inner = WF.copy()
    L, Y = np.zeros((n, m)), np.zeros((m, WF.shape[1]))
    chosen: list[int] = []
    for k in range(m):
        possible = residual > smallest
        if not np.any(possible):
            break
        gains = np.zeros(n)
        gains[possible] = (
            np.einsum("ij,ij->i", inner[possible], inner[possible]) / residual[possible]
        )
        pivot = int(np.argmax(gains))
        if not gains[pivot] > 0.0:
            break
        column = (
            np.exp(integrals.log_gram(points, points[pivot : pivot + 1])[:, 0] - log_unit)
            - L[:, :k] @ L[pivot, :k]
        )
        root = np.sqrt(residual[pivot])
        L[:, k], Y[k] = column / root, inner[pivot] / root
        L[pivot, k] = root
        inner -= np.outer(L[:, k], Y[k])
        residual = np.maximum(residual - L[:, k] ** 2, 0.0)
        residual[pivot], inner[pivot] = 0.0, 0.0
        chosen.append(pivot)
    k = len(chosen)
    return np.array(chosen), np.tril(L[chosen, :k]), Y[:k]


def _times_gram(density: SoSDensity, F: np.ndarray) -> np.ndarray:
    """WF in natural units, in blocks of rows of W."""
    X, integrals = density.support_points, density.integrals
    blocks = row_blocks(X.shape[0], X.shape[0], _BLOCK_ELEMENTS)
    return np.concatenate(
        [np.exp(integrals.log_gram(X[rows], X) - density.log_unit) @ F for rows in blocks]
    )
