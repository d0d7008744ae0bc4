"""Squared-MMD fits along a path of λ on one space: what cross-validation does hundreds of times, as accurately as it needs."""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence

import numpy as np

from ksos.embedding import MeanEmbedding
from ksos.estimators._factor_maps import cheapest_map
from ksos.solvers.eigenvalues import lowest_eigenpairs
from ksos.solvers.lbfgs import descend_until
from ksos.space import SoSSpace

__all__ = ["MMDPath"]

_FIRST_COLUMNS = 4
_STEPS = 300
_TOLERANCE = 1e-9
_GAP, _ROUNDS, _NEW_COLUMNS = 3e-7, 6, 3
_SCALE = 1e-2  # of the second derivatives that are not the penalty's: what the residual of a fit, times its kernel, amounts to
_DEAD = 1e-9


class MMDPath:
    """min ‖A(C) − z‖² + λ⟨N, C⟩ over C = FFᵀ, ‖F‖ = 1, for one λ after the other, each fit starting at the one before.

    L-BFGS in the eigenbasis of N, rows scaled by (λν_k + c)^{−1/2}. A step costs one application of A and one of its adjoint; Newton's
    method, which certified fits use, takes fewer of them at a price that cross-validation need not pay. Where it stops, the lowest
    eigenvectors of ∇f say whether columns are missing: the gap ⟨∇f, C⟩ − λ_min(∇f) bounds what more columns would gain, and below 3e-7
    nothing is added any more.
    """

    def __init__(self, space: SoSSpace, points: np.ndarray, weights: np.ndarray) -> None:
        self.space, self.map = space, cheapest_map(space)
        self.z = space.coordinates(MeanEmbedding(points, weights, kernel=space.embedding_kernel))
        self.nu, self.Q = np.linalg.eigh(space.trace_matrix)

    def fits(self, regularizations: Sequence[float], tol: float = _TOLERANCE) -> Iterator[np.ndarray]:
        """Per λ (in units of w₀, best given in descending order) the rows of T·F, shape (m, columns), with ‖F‖ = 1."""
        F = None
        for regularization in regularizations:
            penalty = regularization * self.nu
            F = self._fit(penalty, self._first_columns(penalty) if F is None else F, tol)
            yield self.space.T @ (self.Q @ F)

    def _fit(self, penalty: np.ndarray, F: np.ndarray, tol: float) -> np.ndarray:
        for _ in range(_ROUNDS):
            F = self._descend(penalty, F, tol)
            wider = self._with_missing_columns(penalty, F)
            if wider is None:
                break
            F = wider
        return F

    def _first_columns(self, penalty: np.ndarray) -> np.ndarray:
        """The lowest eigenvectors of the part of f that is linear, λN − 2A*(z)."""
        _, V = lowest_eigenpairs(self._gradient(penalty, -self.z), min(_FIRST_COLUMNS, penalty.shape[0]))
        return np.asarray(V) / math.sqrt(V.shape[1])

    def _gradient(self, penalty: np.ndarray, residual: np.ndarray) -> np.ndarray:
        G = self.Q.T @ self.map.adjoint(2.0 * residual) @ self.Q
        G[np.diag_indices_from(G)] += penalty
        return np.asarray(G)

    def _descend(self, penalty: np.ndarray, F: np.ndarray, tol: float) -> np.ndarray:
        """L-BFGS on F = SY/‖SY‖ until the objective has changed by less than ``tol`` over the last four steps."""
        s = (1.0 / np.sqrt(penalty + _SCALE))[:, None]

        def function(Y: np.ndarray) -> tuple[float, np.ndarray]:
            F = s * Y
            size = np.linalg.norm(F)
            F /= size
            value, slope = self.map.squared_distance(self.Q @ F, self.z)
            GF = self.Q.T @ slope
            PF = penalty[:, None] * F
            GF += PF
            GF -= float(np.vdot(GF, F)) * F
            return value + float(np.vdot(F, PF)), (2.0 / size) * (s * GF)

        F = s * descend_until(function, F / s, _STEPS, tol)
        return np.asarray(F / np.linalg.norm(F))

    def _with_missing_columns(self, penalty: np.ndarray, F: np.ndarray) -> np.ndarray | None:
        """C ← (1−t)C + t·VVᵀ with the best t, V the lowest eigenvectors of ∇f; None where the gap is small enough."""
        residual = self.map.embed(self.Q @ F) - self.z
        G = self._gradient(penalty, residual)
        level = float(np.vdot(F, G @ F))
        values, V = lowest_eigenpairs(G, min(_NEW_COLUMNS, G.shape[0]))
        below = np.maximum(level - np.asarray(values), 0.0)
        if below[0] <= _GAP:
            return None
        share = below / below.sum()
        V = V * np.sqrt(share)
        toward = self.map.embed(self.Q @ V) - self.z - residual
        t = min(1.0, 0.5 * float(share @ below) / max(float(toward @ toward), 1e-300))
        U, s, _ = np.linalg.svd(np.concatenate([math.sqrt(1.0 - t) * F, math.sqrt(t) * V], axis=1), full_matrices=False)
        kept = s**2 > _DEAD
        return np.asarray(U[:, kept] * s[kept])
