"""Functions of an RKHS with finitely many centres: their integrals are the order-3 integrals of the embedding."""

from __future__ import annotations

from typing import Any

import numpy as np

from ksos._memory import row_blocks
from ksos.exceptions import IntegralNotAvailableError
from ksos.integrals import closed_form
from ksos.integrals.triple import PairFactors, triple_blocks
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

    bounded = True

    def __call__(self, X: Any) -> np.ndarray:
        X = self._points(X)
        blocks = row_blocks(X.shape[0], self.points.shape[0], _BLOCK_ELEMENTS)
        return np.concatenate([np.empty(0), *(self.kernel(X[rows], self.points) @ self.weights for rows in blocks)])

    def _matrix(self, kernel: Kernel, X: np.ndarray, measure: Measure, log_unit: float, T: np.ndarray | None) -> ObservableMatrix:
        try:
            integrals = closed_form(kernel, measure, self.points.shape[1], self.kernel)
        except IntegralNotAvailableError as error:
            remedy = f"or wrap the function, as NumericFunction({self!r}), to have it integrated by quadrature"
            raise IntegralNotAvailableError(f"{error}; {remedy}") from None
        if integrals.pairwise:
            pairs = PairFactors(integrals, X, self.points, self.kernel, log_unit)
            M = pairs.c * (pairs.G * ((pairs.H * self.weights) @ pairs.H.T))
        else:
            M = np.zeros((X.shape[0], X.shape[0]))
            for rows, block in triple_blocks(integrals, X, self.points, self.kernel, log_unit):
                M += block @ self.weights[rows]
        return ObservableMatrix(0.5 * (M + M.T)).transformed(T)

    def __repr__(self) -> str:
        return f"KernelFunction({self.points.shape[0]} centres in {self.n_features} features, kernel={self.kernel!r})"
