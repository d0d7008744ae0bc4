"""The witness of an MMD: the function w_p − w_μ̂ of the RKHS, whose norm is the MMD between a density and the data."""

from __future__ import annotations

import math
from functools import cached_property
from typing import Any

import numpy as np

from ksos._array import to_numpy
from ksos._memory import row_blocks
from ksos.density import SoSDensity
from ksos.embedding import MOST_NODES, TENSOR_FEATURES, MeanEmbedding, TensorRule, evaluate, rule_sizes
from ksos.exceptions import IntegralNotAvailableError
from ksos.integrals.quadruple import density_inner_matrix
from ksos.kernels import Gaussian, Kernel
from ksos.measures import Box, Discrete, Measure
from ksos.observables import KernelFunction
from ksos.observables.base import Observable, ObservableMatrix, sum_over_nodes

__all__ = ["Witness"]

_BLOCK_ELEMENTS = 1 << 22


class Witness(Observable):
    r"""f(x) = ∫ k(x, y) p(y) dρ(y) − Σ_i a_i k(x, x_i).

    E_q f = ⟨w_q, w_p − w_μ̂⟩ for any density q: the coordinate of q along the direction in which p is away from the data.
    """

    bounded = True

    def __init__(self, p: SoSDensity, data: MeanEmbedding) -> None:
        self.p, self.data, self.n_features = p, data, data.n_features

    def __call__(self, X: Any) -> np.ndarray:
        X, kernel = self._points(X), self.data.kernel
        if isinstance(self.p.measure, Discrete):
            nodes = self.p.measure.points
            smoothed = KernelFunction(nodes, self.p.measure.weights * to_numpy(self.p.pdf(nodes)), kernel=kernel)(X)
        elif (own := self._own) is not None:
            rule, masses = own
            smoothed = np.concatenate([rule.seen_from(X[rows], masses) for rows in row_blocks(X.shape[0], masses[0].size, _BLOCK_ELEMENTS)])
        else:
            smoothed = to_numpy(evaluate(self.p, kernel, X))
        return np.asarray(smoothed - to_numpy(self.data(X)))

    @cached_property
    def _own(self) -> tuple[TensorRule, np.ndarray] | None:
        """The rule of p with its masses, where there is one: no large weights, none of them negative."""
        model, X, measure = self.p.kernel, to_numpy(self.p.support_points), self.p.measure
        if not self._has_rule(model, X, measure):
            return None
        rule = TensorRule.of(model, X, measure, self.data.kernel)
        return rule, rule.masses(self.p)

    def _matrix(self, kernel: Kernel, X: np.ndarray, measure: Measure, log_unit: float, T: np.ndarray | None) -> ObservableMatrix:
        if isinstance(measure, Discrete):
            nodes = measure.points
            return ObservableMatrix(sum_over_nodes(kernel, X, nodes, np.log(measure.weights), self(nodes), log_unit, T))
        if self._has_rule(kernel, X, measure):
            same = kernel == self.p.kernel and measure == self.p.measure and np.array_equal(X, to_numpy(self.p.support_points))
            if same and self._own is not None:
                rule, masses = self._own
                f = rule.smoothed(masses) - rule.atoms_at_nodes(to_numpy(self.data.points), to_numpy(self.data.weights))
            else:
                rule = TensorRule.of(kernel, X, measure, self.data.kernel)
                f = self(rule.nodes)
            return ObservableMatrix(sum_over_nodes(kernel, X, rule.nodes, rule.log_weights, f.ravel(), log_unit, T))
        if isinstance(measure, Box):
            raise IntegralNotAvailableError(f"the integrals of {self!r} on {measure!r} would need too many nodes; take larger bandwidths")
        V = density_inner_matrix(self.p.on_host(), self.data.kernel, kernel, measure, X, log_unit)
        atoms = KernelFunction(to_numpy(self.data.points), to_numpy(self.data.weights), kernel=self.data.kernel)
        return ObservableMatrix(V - atoms.matrix(kernel, X, measure, log_unit).values).transformed(T)

    def _has_rule(self, kernel: Kernel, X: np.ndarray, measure: Measure) -> bool:
        if X.shape[1] > TENSOR_FEATURES or not (isinstance(kernel, Gaussian) and isinstance(self.data.kernel, Gaussian)):
            return False
        return math.prod(rule_sizes(kernel, X, measure, self.data.kernel)[1]) <= MOST_NODES

    def __repr__(self) -> str:
        return f"Witness({self.p!r}, {self.data!r})"
