"""Penalised likelihood fits along a path of λ on one space: what cross-validation does hundreds of times, as accurately as it needs."""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence

import numpy as np

from ksos.solvers.lbfgs import descend_until
from ksos.space import SoSSpace

__all__ = ["COLUMNS", "LikelihoodPath"]

COLUMNS = 10
"""How many squares a fit has: optima have fewer."""
_STEPS = 80
_TOLERANCE = 2e-5
_REVIVED = 0.1
_TINY = 1e-290
_LARGE = 1e5  # entries of ψ: from here on, single precision saves more than half the time, and errs far less than the tolerance


class LikelihoodPath:
    """min −Σ a_i log p(x_i) + λ⟨N, C⟩ over C = FFᵀ, for one λ after the other, each fit starting at the one before.

    All in the eigenbasis of N, whose eigenvalues ν make the penalty λ Σ_k ν_k ‖F_k‖²: scaling row k by (1 + λν_k)^{−1/2} conditions it for
    every λ at once, and a step of L-BFGS costs two products with the (n, r) matrix of ψ(x_i). The first fit starts at the leading squares
    of the kernel density estimate over the samples.
    """

    def __init__(self, space: SoSSpace, points: np.ndarray, weights: np.ndarray, columns: int = COLUMNS) -> None:
        self.weights = weights
        self.nu, Q = np.linalg.eigh(space.trace_matrix)
        self.basis = space.T @ Q
        self.psi = space.kernel(points, space.support_points) @ self.basis
        integrals = space._integrals
        log_masses = integrals.log_diagonal(points)  # −inf where a discrete measure does not see the bump
        scale = np.exp(0.5 * np.where(np.isfinite(log_masses), space.log_unit - log_masses, -np.inf)) * np.sqrt(weights)
        bumps = scale[:, None] * (np.exp(integrals.log_gram(points, space.support_points) - space.log_unit) @ self.basis)
        self.start = _leading_columns(bumps, min(columns, space.rank))

    def fits(self, regularizations: Sequence[float], steps: int = _STEPS, tol: float = _TOLERANCE) -> Iterator[np.ndarray]:
        """Per λ (in units of w₀, best given in descending order) the rows of T·F, shape (m, columns), with ‖F‖ = 1."""
        F = self.start
        for regularization in regularizations:
            # directions that a strong λ has put out are stationary points of the factor; a weaker λ may need them again
            F = self._fit(regularization, F + _REVIVED * self.start, steps, tol)
            yield self.basis @ F

    def _fit(self, regularization: float, F: np.ndarray, steps: int, tol: float) -> np.ndarray:
        """L-BFGS until the objective has changed by less than ``tol`` over the last four steps."""
        penalty = regularization * self.nu
        s = 1.0 / np.sqrt(1.0 + penalty)
        precision = np.float32 if self.psi.size > _LARGE and tol >= _TOLERANCE else np.float64
        A, mass, cost, a = (self.psi * s).astype(precision), (s * s)[:, None], (penalty * s * s)[:, None], self.weights

        def function(Y: np.ndarray) -> tuple[float, np.ndarray]:
            V = A @ Y.astype(precision)
            p = np.maximum(np.einsum("ij,ij->i", V, V), tiny).astype(np.float64)
            MY, PY = mass * Y, cost * Y
            total, penalised = float(np.vdot(Y, MY)), float(np.vdot(Y, PY))
            V *= (a / p)[:, None].astype(precision)
            gradient = -2.0 * (A.T @ V).astype(np.float64)
            gradient += (2.0 / total - 2.0 * penalised / total**2) * MY
            gradient += (2.0 / total) * PY
            return float(-(a @ np.log(p))) + math.log(total) + penalised / total, gradient

        tiny = _TINY if precision is np.float64 else 1e-30
        F = descend_until(function, F / s[:, None], steps, tol) * s[:, None]
        return np.asarray(F / np.linalg.norm(F))


def _leading_columns(bumps: np.ndarray, columns: int) -> np.ndarray:
    """The leading left singular vectors of bumpsᵀ times their singular values, by one pass over random combinations of the rows."""
    if bumps.shape[0] > 3 * columns + 10:
        rng = np.random.default_rng(0)  # fixed: a fit must not depend on the state of a global generator
        bumps = (rng.standard_normal((2 * columns + 10, bumps.shape[0])) @ bumps) / math.sqrt(2 * columns + 10)
    U, s, _ = np.linalg.svd(bumps.T, full_matrices=False)
    F = U[:, :columns] * s[:columns]
    return np.asarray(F / np.linalg.norm(F))
