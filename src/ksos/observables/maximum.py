"""Functions of x with kinks and jumps: the maximum of quadratic functions, and the event that such
a function is positive. Their suprema, minus a kernel function, are enclosed piece by piece.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from ksos.ground import as_vector
from ksos.kernels import Kernel
from ksos.measures import Measure
from ksos.observables.base import Observable, ObservableMatrix
from ksos.observables.functions import NumericFunction


class _ByQuadrature(Observable):
    """A function whose integrals are found by quadrature."""

    def _matrix(
        self, kernel: Kernel, X: np.ndarray, measure: Measure, log_unit: float, T: np.ndarray | None
    ) -> ObservableMatrix:
        return NumericFunction(self)._matrix(kernel, X, measure, log_unit, T)


class Maximum(_ByQuadrature):
    r"""f(x) = max_k c_k + b_kᵀ(x − o) + (x − o)ᵀA_k(x − o), the maximum of K affine or quadratic
    functions.

    Parameters
    ----------
    constants : array of K floats
        The c_k.
    slopes : array (K, d)
        The b_k.
    curves : array (K, d, d), optional
        The A_k. Default: 0, affine pieces.
    origin : array of d floats, optional
        o. Default: 0.

    >>> hinge = Maximum([0.0, 1.0], [[0.0], [-1.0]])  # max(0, 1 − x)
    >>> hinge([[0.25], [3.0]]).tolist(), hinge.bounded
    ([0.75, 0.0], False)
    """

    takes_constant = True

    def __init__(self, constants: Any, slopes: Any, curves: Any = None, origin: Any = None) -> None:
        self.constants = as_vector(constants, "constants")
        self.slopes, k = np.asarray(slopes, dtype=np.float64), self.constants.shape[0]
        if self.slopes.ndim != 2 or self.slopes.shape[0] != k:
            raise ValueError(
                f"slopes must have shape ({k}, d), one row per constant; got {self.slopes.shape}"
            )
        d = self.n_features = int(self.slopes.shape[1])
        self.curves = np.zeros((k, d, d)) if curves is None else np.asarray(curves, np.float64)
        if self.curves.shape != (k, d, d):
            raise ValueError(f"curves must have shape {(k, d, d)}; got {self.curves.shape}")
        self.curves = 0.5 * (self.curves + self.curves.transpose(0, 2, 1))
        self.origin = np.zeros(d) if origin is None else as_vector(origin, "origin", length=d)
        # pieces may cancel only if they are the same, which is of no use
        self.bounded = not (np.any(self.slopes) or np.any(self.curves))

    def __call__(self, X: Any) -> np.ndarray:
        X = self._points(X) - self.origin
        found = self.constants + X @ self.slopes.T
        for k in np.flatnonzero(np.any(self.curves, axis=(1, 2))):
            found[:, k] += np.sum((X @ self.curves[k]) * X, axis=1)
        return np.asarray(found.max(axis=1))

    def __repr__(self) -> str:
        return f"Maximum({self.constants.shape[0]} pieces in {self.n_features} features)"


class Event(_ByQuadrature):
    """f(x) = 1 where a maximum of quadratic functions is positive, else 0: its expectation is a
    probability.

    >>> Event(Maximum([1.0], [[-1.0]]))([[0.5], [1.5]]).tolist()  # 1 − x > 0
    [1.0, 0.0]
    """

    bounded = takes_constant = True

    def __init__(self, function: Maximum) -> None:
        self.function, self.n_features = function, function.n_features

    def __call__(self, X: Any) -> np.ndarray:
        return (self.function(X) > 0.0).astype(np.float64)

    def __repr__(self) -> str:
        return f"Event({self.function!r} > 0)"
