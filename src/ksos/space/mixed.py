"""MixedSpace: the densities of a mixed table over given support points, whitened; rows with missing
cells in it.
"""

from __future__ import annotations

from dataclasses import replace

import numpy as np

from ksos.density import Correction, MixedReference, MixedTerms
from ksos.ground.memory import row_blocks
from ksos.space.space import whiten_beside_constant

_LEFT_OUT = 1e-12  # of tr M(o): what its factor drops changes a log-likelihood by no more
_UNSEEN = -25.0  # of a component: 1e-11 of what is known of a row
_BLOCK_ELEMENTS = 1 << 22  # entries of matrices M(o) that are held at a time: 32 MB


class MixedSpace:
    r"""The densities ρ(u, c)·ψᵀCψ of a mixed table, for C ⪰ 0 with tr C = 1 and ψ = Tᵀ(1, φ), which
    is orthonormal in L²(ρ).

    A row with the cells o has the density ρ(o)·tr(C M̃(o)) with M̃(o) = TᵀM(o)T. Of a complete row
    that is ψψᵀ, of the others a matrix of low rank: sums of squares over a few rows of a factor.

    Parameters
    ----------
    reference : MixedReference
        ρ.
    metric, thetas : arrays (d, d) and (q,)
        Of the product kernel.
    points, codes : arrays (m, d) and (m, q)
        The support points.
    tol_model : float
        As of a space over one measure.
    """

    def __init__(
        self,
        reference: MixedReference,
        metric: np.ndarray,
        thetas: np.ndarray,
        points: np.ndarray,
        codes: np.ndarray,
        tol_model: float = 1e-10,
    ) -> None:
        m, (d, q) = points.shape[0], reference.shape
        self.correction = Correction(metric, thetas, points, codes, np.zeros((m, 1)), np.ones(1))
        self.reference = reference
        self.terms = MixedTerms.of(reference, self.correction)
        # what solvers look at: there are no embeddings
        self.constant, self.log_unit, self.tensor_size = True, 0.0, 0
        nothing = np.full((1, d), np.nan), np.full((1, q), -1)
        W = self.terms.matrices(*nothing)[0]
        self.mean_square = float(np.mean(np.diagonal(W)[1:]))
        # relative to the constant, the largest of all
        tol = tol_model / float(np.diagonal(W)[1:].max())
        self.T = whiten_beside_constant(W[1:, 1:], W[0, 1:], 1.0, tol).T
        self.rank = int(self.T.shape[1])

    @property
    def trace_matrix(self) -> np.ndarray:
        """The constant costs nothing."""
        one = self.correction
        K, T = one.features(one.points, one.codes), self.T[1:]
        N = T.T @ K @ T
        return np.asarray(0.5 * (N + N.T))

    def factors(
        self, u: np.ndarray, c: np.ndarray, unseen: float = _UNSEEN
    ) -> tuple[np.ndarray, np.ndarray]:
        """Ψ (N, r), and where the rows of every M̃(o_i) = Σ ψψᵀ begin in it, (n,).

        Components whose share in a row is by the logarithm ``unseen`` smaller are dropped.
        """
        missing = np.isnan(u).any(axis=1) | (c < 0).any(axis=1)
        complete, others = np.flatnonzero(~missing), np.flatnonzero(missing)
        phi = self.correction.features(u[complete], c[complete])
        found = [np.column_stack([np.ones(complete.size), phi]) @ self.T]
        owners = [complete]
        # rows with the same cells missing come together
        order = others[np.lexsort([*np.isnan(u[others]).T, *(c[others] < 0).T, others])]
        for rows in row_blocks(order.size, self.T.shape[0] ** 2, _BLOCK_ELEMENTS):
            M = self.terms.matrices(u[order[rows]], c[order[rows]], unseen)
            psi, which = low_rank_factors(self.T.T @ M @ self.T)
            found.append(psi)
            owners.append(order[rows][which])
        owner = np.concatenate(owners)
        by_row = np.argsort(owner, kind="stable")
        starts = np.searchsorted(owner[by_row], np.arange(u.shape[0]))
        return np.concatenate(found)[by_row], starts

    def density(self, factor: np.ndarray) -> MixedTerms:
        """The density of C = GGᵀ for a factor G, scaled to mass one."""
        rows = self.T @ factor
        correction = replace(self.correction, factor=rows[1:], constant=rows[0])
        return MixedTerms.of(self.reference, correction)

    def __repr__(self) -> str:
        d, q = self.reference.shape
        return f"MixedSpace({d} numeric and {q} categorical columns, rank={self.rank})"


def low_rank_factors(M: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """(ψ, which): rows with Σ ψψᵀ = M_i over those of which = i, for positive semidefinite matrices
    (n, r, r), by Cholesky's method with pivots, all matrices at once.
    """
    n, r, _ = M.shape
    left, active = np.array(np.diagonal(M, axis1=1, axis2=2)), np.arange(n)
    enough = _LEFT_OUT * left.sum(axis=1)
    columns, which = np.zeros((n, 0, r)), []
    found = []
    for _ in range(r):
        active = active[left[active].sum(axis=1) > enough[active]]
        if not active.size:
            break
        pivot = left[active].argmax(axis=1)
        before = columns[active]
        at = before[np.arange(active.size), :, pivot]
        new = M[active, pivot] - np.einsum("ns,nsr->nr", at, before)
        new /= np.sqrt(left[active, pivot])[:, None]
        left[active] = np.maximum(left[active] - new**2, 0.0)
        # a pivot is done: rounding does not choose it again
        left[active, pivot] = 0.0
        every = np.zeros((n, 1, r))
        every[active, 0] = new
        columns = np.concatenate([columns, every], axis=1)
        found.append(new)
        which.append(active)
    return np.concatenate([np.zeros((0, r)), *found]), np.concatenate([np.zeros(0, int), *which])
