"""The indicator of a box: its expectation is a probability."""

from __future__ import annotations

from typing import Any

import numpy as np

from ksos.integrals import closed_form
from ksos.integrals.erf import log_gauss_mass
from ksos.integrals.gaussian import GaussianNormal
from ksos.kernels import Kernel
from ksos.measures import Box, Discrete, Measure
from ksos.observables.base import Observable, ObservableMatrix
from ksos.observables.nodes import sum_over_nodes

__all__ = ["BoxIndicator"]


class BoxIndicator(Observable):
    r"""f(x) = 1 where low ≤ x ≤ high in every feature, else 0; sides may be infinite. E_p f is the probability of the box.

    Parameters
    ----------
    low, high : array of d floats

    Examples
    --------
    >>> BoxIndicator([0.0, -np.inf], [1.0, 0.0])([[0.5, -3.0], [0.5, 3.0]])
    array([1., 0.])
    """

    bounded = True

    def __init__(self, low: Any, high: Any) -> None:
        self.box = Box(low, high)
        self.n_features = self.box.n_features

    def __call__(self, X: Any) -> np.ndarray:
        return self.box.contains(self._points(X)).astype(np.float64)

    def _matrix(self, kernel: Kernel, X: np.ndarray, measure: Measure, log_unit: float, T: np.ndarray | None) -> ObservableMatrix:
        m, d = X.shape
        if isinstance(measure, Discrete):
            inside = self.box.contains(measure.points)
            log_weights = np.log(measure.weights[inside])
            return ObservableMatrix(sum_over_nodes(kernel, X, measure.points[inside], log_weights, np.ones(inside.sum()), log_unit, T))
        integrals = closed_form(kernel, measure, d)
        if isinstance(integrals, GaussianNormal):
            return ObservableMatrix(np.exp(self._log_gram_normal(integrals, X) - log_unit)).transformed(T)
        walls = [measure.walls(k) for k in range(d)]
        low = np.maximum(self.box.low, [wall[0] for wall in walls])
        high = np.minimum(self.box.high, [wall[1] for wall in walls])
        if np.any(low >= high):
            return ObservableMatrix(np.zeros((m, m))).transformed(T)
        return ObservableMatrix(np.exp(closed_form(kernel, Box(low, high), d).log_gram(X, X) - log_unit)).transformed(T)

    def _log_gram_normal(self, integrals: GaussianNormal, X: np.ndarray) -> np.ndarray:
        """The integral on R^d times, per feature, the mass between the walls of the normal law that k_i k_j ρ is proportional to."""
        out = integrals.log_gram(X, X)
        product = integrals._product(integrals.kernel, integrals.kernel)
        assert integrals.centre is not None
        for k in range(X.shape[1]):
            width, own, common = product.width[k], product.weight(0)[k], product.weight(2)[k]
            ends = []
            for wall in self.box.walls(k):
                away = own * ((wall - X[:, k]) / width)
                ends.append(away[:, None] + away[None, :] + common * ((wall - integrals.centre[k]) / width))
            out += log_gauss_mass(ends[0], ends[1])
        return out

    def __repr__(self) -> str:
        return f"BoxIndicator({self.box.low.tolist()}, {self.box.high.tolist()})"
