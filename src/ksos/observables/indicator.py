"""The indicator of a box: its expectation is a probability."""

from __future__ import annotations

from typing import Any

import numpy as np

from ksos.exceptions import IntegralNotAvailableError
from ksos.integrals import Integrals, closed_form
from ksos.integrals.erf import log_gauss_mass
from ksos.kernels import Kernel
from ksos.measures import Box, Measure
from ksos.observables.base import Observable, ObservableMatrix
from ksos.observables.over_normals import are_normal, box_matrices

__all__ = ["BoxIndicator"]


class BoxIndicator(Observable):
    r"""f(x) = 1 where low ≤ x ≤ high (arrays of d floats) in every feature, else 0; sides may be
    infinite. E_p f is the box's probability.

    >>> BoxIndicator([0.0, -np.inf], [1.0, 0.0])([[0.5, -3.0], [0.5, 3.0]])
    array([1., 0.])
    """

    bounded = takes_constant = True

    def __init__(self, low: Any, high: Any) -> None:
        self.box = Box(low, high)
        self.n_features = self.box.n_features

    def __call__(self, X: Any) -> np.ndarray:
        return self.box.contains(self._points(X)).astype(np.float64)

    def _matrix(
        self, kernel: Kernel, X: np.ndarray, measure: Measure, log_unit: float, T: np.ndarray | None
    ) -> ObservableMatrix:
        constant = T is not None and T.shape[0] > X.shape[0]
        if not are_normal(kernel, measure, X.shape[1], constant=constant):
            M = np.exp(self.log_gram(kernel, X, measure) - log_unit)
            return ObservableMatrix(M).transformed(T)
        sides = self.box.low, self.box.high
        estimates = box_matrices(*sides, kernel, X, measure, log_unit, constant=constant)
        s, mean = estimates.shape[0], estimates.mean(axis=0)
        if s == 1:
            return ObservableMatrix(mean).transformed(T)
        # the standard error of the mean of s independent estimates
        return ObservableMatrix(mean, (estimates - mean) / np.sqrt(s * (s - 1.0))).transformed(T)

    def log_gram(self, kernel: Kernel, X: np.ndarray, measure: Measure) -> np.ndarray:
        """log ∫_box k(x, X_i) k(x, X_j) dρ(x), shape (m, m), for a kernel that is a product over
        the features; −inf outside.
        """
        (m, d), (low, high) = X.shape, measure.boundaries(X.shape[1])
        if not measure.by_volume:
            return self._log_gram_normal(closed_form(kernel, measure, d), X)
        low, high = np.maximum(self.box.low, low), np.minimum(self.box.high, high)
        return (
            np.full((m, m), -np.inf)
            if np.any(low >= high)
            else closed_form(kernel, Box(low, high), d).log_gram(X, X)
        )

    def _log_gram_normal(self, integrals: Integrals, X: np.ndarray) -> np.ndarray:
        """The integral on R^d times, per feature, the mass between the sides of the normal
        distribution that k_i k_j ρ is proportional to.
        """
        out, ends = integrals.log_gram(X, X), []
        for side in (self.box.low, self.box.high):
            normals = integrals.pair_normals(X, side)
            if normals is None:
                raise IntegralNotAvailableError(
                    f"the integrals of {integrals.kernel!r} on {integrals.measure!r} over a box"
                    " have no closed form"
                )
            ends.append(-0.5 * normals[0] / normals[1])
        for low, high in zip(ends[0].T, ends[1].T, strict=True):
            out += log_gauss_mass(low[:, None] + low, high[:, None] + high)
        return out

    def __repr__(self) -> str:
        return f"BoxIndicator({self.box.low.tolist()}, {self.box.high.tolist()})"
