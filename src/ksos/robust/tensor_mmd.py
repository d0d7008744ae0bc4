"""The exact MMD of a density in up to three features: a tensor rule, whose sums are taken one feature at a time."""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np

from ksos._array import to_numpy
from ksos._memory import FLOAT_BYTES, require_memory
from ksos.density import SoSDensity
from ksos.embedding import MeanEmbedding
from ksos.kernels import Kernel
from ksos.measures import Box, Discrete, Measure, Normal

__all__ = ["MOST_NODES", "TensorRule", "rule_sizes", "tensor_mmd"]

MOST_NODES = 400_000
_NODES_PER_BANDWIDTH, _LEAST_NODES = 8, 16
_TAIL = 6.5  # bandwidths beyond the support points at which the density is cut: exp(−2·6.5²) is below rounding
_BLOCK_ROWS = 20_000


def rule_sizes(model: Kernel, X: np.ndarray, measure: Measure, kernel: Kernel) -> tuple[Box, list[int]]:
    """The box that holds the mass of the densities on X, and how many nodes per feature integrate them and the kernel to rounding."""
    d = X.shape[1]
    eta, sigma = model.sigma_vector(d), kernel.sigma_vector(d)
    walls = np.array([measure.walls(k) for k in range(d)])
    low = np.maximum(walls[:, 0], np.clip(X.min(axis=0), None, walls[:, 1]) - _TAIL * eta)
    high = np.minimum(walls[:, 1], np.clip(X.max(axis=0), walls[:, 0], None) + _TAIL * eta)
    finest = np.minimum(eta, sigma)
    if isinstance(measure, Normal):
        finest = np.minimum(finest, math.sqrt(2.0) * measure.vectors(d)[1])
    counts = np.ceil(_LEAST_NODES + _NODES_PER_BANDWIDTH * np.minimum((high - low) / finest, 1e6)).astype(int)
    return Box(low, high), counts.tolist()


@dataclass(frozen=True)
class TensorRule:
    """A Gauss–Legendre rule for Gaussian kernels, with so many nodes per bandwidth that it is exact to rounding.

    Since the kernel is a product over the features, its N × N matrix is applied as one small matrix per feature.
    """

    kernel: Kernel
    """That of the MMD."""
    axes: list[np.ndarray]
    nodes: np.ndarray
    """(N, d)."""
    log_weights: np.ndarray
    """Those of the rule with respect to ρ, (N,)."""

    @classmethod
    def of(cls, model: Kernel, X: np.ndarray, measure: Measure, kernel: Kernel) -> TensorRule:
        """The rule for the densities of a model."""
        box, counts = rule_sizes(model, X, measure, kernel)
        d, total = X.shape[1], math.prod(counts)
        require_memory(FLOAT_BYTES * total * (d + 4), f"a rule with {total} nodes", "take larger bandwidths")
        rules = [Discrete.quadrature(box.restrict([k]), counts[k]) for k in range(d)]
        weights = np.zeros(())
        for rule in rules:
            weights = np.add.outer(weights, np.log(rule.weights))
        nodes = np.stack([axis.ravel() for axis in np.meshgrid(*(rule.points[:, 0] for rule in rules), indexing="ij")], axis=1)
        return cls(kernel, [rule.points[:, 0] for rule in rules], nodes, weights.ravel() + measure.log_density(nodes))

    @property
    def shape(self) -> tuple[int, ...]:
        """Nodes per feature."""
        return tuple(axis.shape[0] for axis in self.axes)

    def masses(self, p: SoSDensity) -> np.ndarray:
        """What p puts on the nodes, shaped as the tensor that they are. None is negative: nothing cancels."""
        blocks = (slice(start, start + _BLOCK_ROWS) for start in range(0, self.nodes.shape[0], _BLOCK_ROWS))
        with np.errstate(under="ignore"):
            found = np.concatenate([np.exp(to_numpy(p.logpdf(self.nodes[rows])) + self.log_weights[rows]) for rows in blocks])
        return found.reshape(self.shape)

    def smoothed(self, masses: np.ndarray) -> np.ndarray:
        """Σ_n m_n k(x, x_n) at the nodes."""
        for k, axis in enumerate(self.axes):
            masses = np.moveaxis(np.tensordot(self.kernel.restrict([k])(axis[:, None]), masses, axes=(1, k)), 0, k)
        return masses

    def _factors(self, points: np.ndarray) -> list[np.ndarray]:
        return [self.kernel.restrict([k])(axis[:, None], points[:, k : k + 1]) for k, axis in enumerate(self.axes)]

    def seen_from(self, points: np.ndarray, masses: np.ndarray) -> np.ndarray:
        """Σ_n m_n k(z, x_n) at other points z."""
        factors = self._factors(points)
        seen = np.moveaxis(np.tensordot(factors[0], masses, axes=(0, 0)), 0, -1)  # (…, points): one feature after the other is summed
        for factor in factors[1:]:
            seen = np.einsum("a...i,ai->...i", seen, factor)
        return seen

    def atoms_at_nodes(self, points: np.ndarray, weights: np.ndarray) -> np.ndarray:
        """Σ_i a_i k(x, z_i) at the nodes x, shaped as they are."""
        factors = self._factors(points)
        rest = factors[-1].T  # (points, nodes of the last feature)
        for factor in factors[-2:0:-1]:
            rest = np.einsum("ai,i...->ia...", factor, rest).reshape(points.shape[0], -1)
        last = (factors[0] * weights) @ rest if len(factors) > 1 else factors[0] @ weights
        return last.reshape(self.shape)


def tensor_mmd(p: SoSDensity, data: MeanEmbedding) -> float:
    """MMD(p, data) for Gaussian kernels: ‖w_p‖² − 2⟨w_p, w⟩ + ‖w‖², where p stands at the nodes of a rule."""
    rule = TensorRule.of(p.kernel, to_numpy(p.support_points), p.measure, data.kernel)
    masses = rule.masses(p)
    points, a = to_numpy(data.points), to_numpy(data.weights)
    seen = float(rule.seen_from(points, masses) @ a)
    square = float(np.vdot(masses, rule.smoothed(masses))) - 2.0 * seen + float(a @ data.kernel(points) @ a)
    return math.sqrt(max(square, 0.0))
