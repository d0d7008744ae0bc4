"""The exact MMD of a density in up to three features: a tensor rule, whose sums are taken one feature at a time."""

from __future__ import annotations

import math

import numpy as np

from ksos._array import to_numpy
from ksos._memory import FLOAT_BYTES, require_memory
from ksos.density import SoSDensity
from ksos.embedding import MeanEmbedding
from ksos.measures import Box, Discrete, Normal

__all__ = ["MOST_NODES", "rule_sizes", "tensor_mmd"]

MOST_NODES = 400_000
_NODES_PER_BANDWIDTH, _LEAST_NODES = 8, 16
_TAIL = 6.5  # bandwidths beyond the support points at which the density is cut: exp(−2·6.5²) is below rounding
_BLOCK_ROWS = 20_000


def rule_sizes(p: SoSDensity, data: MeanEmbedding) -> tuple[Box, list[int]]:
    """The box that holds the mass of p, and how many nodes per feature integrate p and the kernel to rounding."""
    d = p.n_features
    X = to_numpy(p.support_points)
    eta, sigma = p.kernel.sigma_vector(d), data.kernel.sigma_vector(d)
    walls = np.array([p.measure.walls(k) for k in range(d)])
    low = np.maximum(walls[:, 0], np.clip(X.min(axis=0), None, walls[:, 1]) - _TAIL * eta)
    high = np.minimum(walls[:, 1], np.clip(X.max(axis=0), walls[:, 0], None) + _TAIL * eta)
    finest = np.minimum(eta, sigma)
    if isinstance(p.measure, Normal):
        finest = np.minimum(finest, math.sqrt(2.0) * p.measure.vectors(d)[1])
    counts = np.ceil(_LEAST_NODES + _NODES_PER_BANDWIDTH * np.minimum((high - low) / finest, 1e6)).astype(int)
    return Box(low, high), counts.tolist()


def tensor_mmd(p: SoSDensity, data: MeanEmbedding) -> float:
    """MMD(p, data) for Gaussian kernels: ‖w_p‖² − 2⟨w_p, w⟩ + ‖w‖², where p stands at the nodes of a Gauss–Legendre rule.

    The rule has so many nodes per bandwidth that it is exact to rounding, and since the kernel is a product over the features, its N × N
    matrix is applied as one small matrix per feature. No term is negative but those of the data: nothing cancels.
    """
    d, kernel = p.n_features, data.kernel
    box, counts = rule_sizes(p, data)
    total = math.prod(counts)
    require_memory(FLOAT_BYTES * total * (d + 4), f"a rule with {total} nodes", "take larger bandwidths")
    rules = [Discrete.quadrature(box.restrict([k]), counts[k]) for k in range(d)]
    axes = [rule.points[:, 0] for rule in rules]
    mass = np.ones(())
    for rule in rules:
        mass = np.multiply.outer(mass, rule.weights)
    nodes = np.stack([axis.ravel() for axis in np.meshgrid(*axes, indexing="ij")], axis=1)
    blocks = (nodes[start : start + _BLOCK_ROWS] for start in range(0, total, _BLOCK_ROWS))
    with np.errstate(under="ignore"):
        density = np.concatenate([np.exp(to_numpy(p.logpdf(block)) + p.measure.log_density(block)) for block in blocks])
    mass = mass * density.reshape(mass.shape)
    points, a = to_numpy(data.points), to_numpy(data.weights)
    smoothed = mass
    for k in range(d):
        smoothed = np.moveaxis(np.tensordot(kernel.restrict([k])(axes[k][:, None]), smoothed, axes=(1, k)), 0, k)
    factors = [kernel.restrict([k])(axes[k][:, None], points[:, k : k + 1]) for k in range(d)]
    seen = np.moveaxis(np.tensordot(factors[0], mass, axes=(0, 0)), 0, -1)  # (…, n): one feature after the other is summed
    for factor in factors[1:]:
        seen = np.einsum("a...i,ai->...i", seen, factor)
    square = float(np.vdot(mass, smoothed)) - 2.0 * float(seen @ a) + float(a @ kernel(points) @ a)
    return math.sqrt(max(square, 0.0))
