"""Fewer columns, or fewer support points: a smaller density close to a given one, and how close."""

from __future__ import annotations

import math
from dataclasses import replace
from typing import Any, NamedTuple

import numpy as np

from ksos.density.corrected import Corrected
from ksos.density.mixed import MixedTerms
from ksos.density.square import assemble
from ksos.density.terms import Term
from ksos.ground import FLOAT_BYTES, as_count, require_memory

_RESOLVED = 1e-10  # squared, relative distance to the chosen functions: closer ones add rounding


class Compression(NamedTuple):
    """What :meth:`SoSDensity.compress` returns.

    Attributes
    ----------
    density : SoSDensity or TableDensity
        The smaller density, of mass one.
    mmd : float
        Its maximum mean discrepancy to the original (the root, not the square): exact, or projected
        if landmarks were given. Of a :class:`TableDensity`, a bound on ∫|p − q|, and so on the MMD
        of every kernel with values up to one.

    Examples
    --------
    >>> import ksos
    >>> kernel, points = ksos.kernels.Gaussian(1.0), [[0.0], [0.1], [2.0]]
    >>> p = ksos.SoSDensity(kernel, points, np.eye(3), normalize=True)
    >>> small = p.compress(m=2)  # a Compression, which unpacks as density, mmd
    >>> small.density.support_points.shape, small.mmd < 0.05
    ((2, 1), True)
    """

    density: Any
    mmd: float


def compressed(term: Term, rank: int | None, m: int | None) -> Term:
    """A term with at most ``rank`` columns or ``m`` support points.

    Columns: p = Σ_k λ_k ψ_k² with orthonormal ψ_k, cut after the largest λ: no other choice keeps
    more of the mass, and the L¹-distance to p is at most twice the mass that is lost. Points: every
    column function is projected in L²(ρ) on the constant, if there is one, and on the kernels of
    the points chosen.
    """
    square = term.joint
    X, F, c = square.support_points, square.unit_factor, square.unit_constant
    n = X.shape[0]
    if (rank is not None and rank >= square.rank) or (m is not None and m >= n):
        return term
    what = f"compressing a density with {n} support points"
    require_memory(3 * n * n * FLOAT_BYTES, what, "fit with fewer support points")
    # normal densities have mass one, in which the constant has the length one
    unit = square.log_unit if c is None else 0.0
    W, means = np.exp(square.integrals.log_gram(X, X) - unit), np.zeros(n)
    if c is not None:
        means = np.exp(square.integrals.log_mean(X))
    points, factor, constant = _fewer(W, means, F, c, rank, m)
    small = replace(square, support_points=X[points], unit_factor=factor, unit_constant=constant)
    if isinstance(term, Corrected):
        return replace(term, joint=small.scaled_to_one())
    return assemble(small.kernel, small.support_points, small.measure, small.unit_factor)[1]


def _fewer(
    W: np.ndarray, means: np.ndarray, F: np.ndarray, c: Any, rank: int | None, m: int | None
) -> tuple[Any, np.ndarray, Any]:
    """Which points are left, F and c: W and ``means`` are the second and first moments of the
    kernels under ρ.
    """
    if rank is not None:
        G = F.T @ W @ F
        if c is not None:
            cross = np.outer(F.T @ means, c)
            G += cross + cross.T + np.outer(c, c)
        V = np.linalg.eigh(0.5 * (G + G.T))[1][:, ::-1][:, :rank]
        return slice(None), F @ V, None if c is None else c @ V
    W = W - np.outer(means, means)
    if not (chosen := _pursue(W, W @ F, m or 0)):
        return slice(None), F, c
    factor = np.linalg.lstsq(W[np.ix_(chosen, chosen)], W[chosen] @ F, rcond=None)[0]
    return chosen, factor, None if c is None else c + means @ F - means[chosen] @ factor


def compressed_cells(
    terms: MixedTerms, rank: int | None, m: int | None
) -> tuple[MixedTerms, float]:
    """The same of a density of cells, and ∫|p − q|, at most: p − q = ρ·ψᵀDψ for orthonormal ψ
    integrates to at most the sum of the absolute eigenvalues of D.
    """
    if terms.within:
        raise ValueError("compress the density first, and condition it on an interval afterwards")
    one, (n, r) = terms.correction, terms.correction.factor.shape
    if (rank is not None and rank >= r) or (m is not None and m >= n):
        return terms, 0.0
    u, c = np.full((1, terms.n_numeric), np.nan), np.full((1, len(terms.levels)), -1)
    M = terms.matrices(u, c)[0]
    points, factor, constant = _fewer(M[1:, 1:], M[0, 1:], one.factor, one.constant, rank, m)
    small = replace(
        one, points=one.points[points], codes=one.codes[points], factor=factor, constant=constant
    )
    _, found = replace(terms, correction=small).to_mass_one()
    values, axes = np.linalg.eigh(M)
    root = axes * np.sqrt(np.maximum(values, 0.0))
    before, after = np.zeros((2, 1 + n, r))
    before[0], before[1:] = one.constant, one.factor
    own = found.correction
    after[0, : own.constant.size] = own.constant
    after[1:][points, : own.constant.size] = own.factor
    D = root.T @ (before @ before.T - after @ after.T) @ root
    return found, float(np.abs(np.linalg.eigvalsh(0.5 * (D + D.T))).sum())


def as_sizes(rank: int | None, m: int | None) -> tuple[int | None, int | None]:
    """The one of both that is given, checked."""
    if (rank is None) == (m is None):
        raise ValueError(
            "give either rank, the number of columns, or m, the number of support points; got"
            f" rank={rank!r}, m={m!r}"
        )
    return None if rank is None else as_count(rank, "rank"), None if m is None else as_count(m, "m")


def _pursue(W: np.ndarray, inner: np.ndarray, m: int) -> list[int]:
    """Orthogonal matching pursuit [Pati1993]: the point that brings the projection of all ψ_k
    closest, ``m`` times.

    This is the Cholesky factorization of W whose pivot maximizes Σ_k ⟨e_j, ψ_k⟩²/‖e_j‖², where e_j
    is what k(·, x̃_j) adds to the functions already chosen.
    """
    residual, chosen = np.diagonal(W).copy(), list[int]()
    smallest, L = _RESOLVED * residual, np.zeros((W.shape[0], m))
    for k in range(m):
        possible = residual > smallest
        lengths = np.einsum("ij,ij->i", inner, inner)
        gains = np.where(possible, lengths / np.where(possible, residual, 1.0), 0.0)
        pivot = int(np.argmax(gains))
        if not gains[pivot] > 0.0:
            break
        L[:, k] = (W[:, pivot] - L[:, :k] @ L[pivot, :k]) / math.sqrt(residual[pivot])
        inner = inner - np.outer(L[:, k], inner[pivot] / L[pivot, k])
        residual = np.maximum(residual - L[:, k] ** 2, 0.0)
        residual[pivot] = 0.0
        chosen.append(pivot)
    return chosen
