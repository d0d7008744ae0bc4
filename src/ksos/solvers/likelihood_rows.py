"""The likelihood of a table of which cells are missing, −Σ_i a_i log tr(C M_i): a problem like that
of complete rows, with matrices of low rank in the place of ψ_iψ_iᵀ.
"""

from __future__ import annotations

from typing import cast

import numpy as np

from ksos.functionals import (
    Bound,
    BoundLikelihood,
    Functional,
    Pair,
    Trace,
    density_values,
    from_values,
)
from ksos.ground.arrays import Array
from ksos.solvers.lbfgs import LBFGS
from ksos.solvers.loop import Solution
from ksos.solvers.minimize import minimize
from ksos.space import MixedSpace, SoSSpace

_FLOOR = 1e-8  # of a row's least value at an optimum: below, a parabola continues the logarithm


class RowLikelihood(BoundLikelihood):
    """−Σ_i a_i log tr(C M_i) for rows of which cells may be missing: M_i is the sum of ψψᵀ over the
    rows of ``psi`` from ``starts``_i to the next start.

    Every M_i is positive semidefinite, so it is as convex as for complete rows.
    """

    twice_differentiable = False

    def __init__(self, psi: np.ndarray, starts: np.ndarray, a: np.ndarray) -> None:
        self.starts, self.counts = starts, np.diff(np.r_[starts, psi.shape[0]])
        reach = np.add.reduceat(np.einsum("nr,nr->n", psi, psi), starts)
        super().__init__(psi, a, _FLOOR * a * reach, 0.0)

    def value(self, a: Array | None, C: Array) -> float:
        return self.value_at(self._sums(density_values(self.psi, C)))

    def gradient(self, a: Array | None, C: Array) -> Pair:
        slopes = self.slopes(self._sums(density_values(self.psi, C)))[0]
        return None, from_values(self.psi, np.repeat(slopes, self.counts))

    def factor_gradient(
        self, a: Array | None, F: Array
    ) -> tuple[float, Array | None, Array | None]:
        V = self.psi @ F
        p = self._sums(np.einsum("nr,nr->n", V, V))
        slopes = np.repeat(self.slopes(p)[0], self.counts)
        return self.value_at(p), None, self.psi.T @ (slopes[:, None] * V)

    def _sums(self, values: np.ndarray) -> np.ndarray:
        """One value for every row of the table."""
        return np.asarray(np.add.reduceat(values, self.starts))


def fit_to_cells(
    space: MixedSpace,
    u: np.ndarray,
    c: np.ndarray,
    weights: np.ndarray,
    strength: float,
    tol: float | None,
) -> Solution:
    """The certified minimum of −Σ a_i log p(o_i) + λ tr A over the rows with numeric cells ``u``
    and codes ``c``, relative to the reference; λ, the ``strength``, is in natural units, and ∞
    leaves the constant alone.
    """
    functional: Functional = Bound(
        RowLikelihood(*space.factors(u, c), weights), f"NegativeLogLikelihood({u.shape[0]} rows)"
    )
    if 0.0 < strength < np.inf:
        functional = functional + strength * Trace(relative=True)
    # far below what rows can tell, as for complete ones
    one = cast("SoSSpace", space)  # of which the solver needs no embedding
    return minimize(functional, one, tol=1e-5 if tol is None else tol, solver=LBFGS())
