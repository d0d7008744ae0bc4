"""Functions of an RKHS with finitely many centres: their integrals are the order-3 integrals of the
embedding.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from ksos.exceptions import IntegralNotAvailableError
from ksos.ground.memory import row_blocks
from ksos.integrals import closed_form
from ksos.integrals.triple import PairFactors, component_pairs, triple_blocks
from ksos.kernels import Kernel
from ksos.kernels.base import KernelSum
from ksos.measures import Measure
from ksos.observables.base import Observable, ObservableMatrix

__all__ = ["KernelFunction"]

_BLOCK_ELEMENTS = 1 << 20


class KernelFunction(KernelSum, Observable):
    r"""f(x) = Σ_r w_r k(x, z_r), an element of the RKHS of ``kernel``.

    Parameters
    ----------
    points : array (ℓ, d)
        The centres z_r.
    weights : array of ℓ floats, optional
        They may be negative; default 1/ℓ each.
    kernel : Kernel
        Its own, which need not be that of the density.

    >>> from ksos.kernels import Gaussian
    >>> KernelFunction([[0.0], [1.0]], [1.0, -1.0], kernel=Gaussian(1.0))([[0.0]]).round(6)
    array([0.632121])
    """

    bounded = takes_constant = True

    def __call__(self, X: Any) -> np.ndarray:
        X = self._points(X)
        blocks = row_blocks(X.shape[0], self.points.shape[0], _BLOCK_ELEMENTS)
        return np.concatenate(
            [np.empty(0), *(self.kernel(X[rows], self.points) @ self.weights for rows in blocks)]
        )

    def _matrix(
        self, kernel: Kernel, X: np.ndarray, measure: Measure, log_unit: float, T: np.ndarray | None
    ) -> ObservableMatrix:
        try:
            integrals = closed_form(kernel, measure, self.points.shape[1], self.kernel)
        except IntegralNotAvailableError as error:
            remedy = (
                f"or wrap the function, as NumericFunction({self!r}), to have it integrated by"
                " quadrature"
            )
            raise IntegralNotAvailableError(f"{error}; {remedy}") from None
        m, constant = X.shape[0], T is not None and T.shape[0] > X.shape[0]
        if (constant or not integrals.pairwise) and measure.normals(X.shape[1]) is not None:
            M = self._over_normals(kernel, X, measure, log_unit, int(constant))
        elif integrals.pairwise:
            pairs = PairFactors(integrals, X, self.points, self.kernel, log_unit)
            M = pairs.c * (pairs.G * ((pairs.H * self.weights) @ pairs.H.T))
        else:
            M = np.zeros((m, m))
            for rows, block in triple_blocks(integrals, X, self.points, self.kernel, log_unit):
                M += block @ self.weights[rows]
        return ObservableMatrix(0.5 * (M + M.T)).transformed(T)

    def _over_normals(
        self, kernel: Kernel, X: np.ndarray, measure: Measure, log_unit: float, first: int
    ) -> np.ndarray:
        """Component by component; with ``first`` = 1, after a row of the constant function."""
        M = np.zeros((first + X.shape[0], first + X.shape[0]))
        for rows in row_blocks(self.points.shape[0], X.shape[0], _BLOCK_ELEMENTS):
            for pairs in component_pairs(
                kernel, measure, X, self.points[rows], self.kernel, log_unit
            ):
                M[first:, first:] += pairs.c * (
                    pairs.G * ((pairs.H * self.weights[rows]) @ pairs.H.T)
                )
                if first:
                    row = pairs.cross @ self.weights[rows]
                    M[0, 1:] += row
                    M[1:, 0] += row
                    M[0, 0] += pairs.masses @ self.weights[rows]
        return M

    def __repr__(self) -> str:
        return (
            f"KernelFunction({self.points.shape[0]} centres in {self.n_features} features,"
            f" kernel={self.kernel!r})"
        )
