"""Exact sampling by inversion on a GPU: the conditional laws of inversion.py, evaluated on all
panels at once by large matrix products.

A tree of panels takes fewer operations, but its branches part the samples; a GPU is faster with one
product for all of them.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from ksos.density.sampling.inversion import NODES_PER_PANEL, Axis, conditional_laws
from ksos.density.standard import standardize
from ksos.ground.arrays import Array, like, namespace, to_numpy, uniforms, zeros
from ksos.ground.memory import row_blocks
from ksos.quadrature import positions

if TYPE_CHECKING:
    from ksos.density.square import Square

__all__ = ["draw_on_device"]

_CHUNK_ELEMENTS, _PRODUCT_ELEMENTS = 1 << 28, 1 << 27  # 2 GB and 1 GB


@np.errstate(under="ignore")
def draw_on_device(density: Square, size: int, rng: np.random.Generator) -> Array:
    """``size`` independent samples, shape (size, d), where the arrays of ``density`` lie; the laws
    themselves are made on the host.
    """
    host, reference = density.moved(to_numpy), density.support_points
    if host.kernel.full:  # as on the host: conditional laws go to conditional laws
        standard = standardize(host, shorten=False)
        return like(
            standard.points(to_numpy(_inverted(standard.square, size, rng, reference))), reference
        )
    return _inverted(host, size, rng, reference)


def _inverted(host: Square, size: int, rng: np.random.Generator, reference: Array) -> Array:
    xp = namespace(reference)
    features = [
        _Feature(axis, L, reference) for axis, L in zip(*conditional_laws(host), strict=True)
    ]
    out = uniforms(
        rng, (size, len(features)), reference
    )  # all at once: the result does not depend on the chunks
    for rows in row_blocks(size, features[0].centres.shape[0], _CHUNK_ELEMENTS):
        log_delta = zeros(
            (1, features[0].centres.shape[0]), reference
        )  # nothing to condition on: one law for all samples
        for k, feature in enumerate(features):
            x = feature.draw(log_delta, out[rows, k])
            out[rows, k] = x
            if k + 1 < len(features):
                log_delta = log_delta + feature.log_factor(x)
                log_delta = log_delta - xp.max(log_delta, axis=1)[:, None]
    return out


class _Feature:
    """The law of a feature given the earlier ones, as arrays of the device: ‖A_t δ̂‖² at every node
    t, A_t being L times k̂(t).
    """

    def __init__(self, axis: Axis, L: np.ndarray, reference: Array) -> None:
        self.axis, self.rank = axis, L.shape[0]
        panels = axis.panels
        self.values, self.L = (
            like(axis.values.reshape(-1, L.shape[1]), reference),
            like(L, reference),
        )
        self.weights = like(panels.weights.ravel(), reference)
        self.centres, self.log_norm = like(axis.centres, reference), like(axis.log_norm, reference)
        self.low, self.high = (None if np.isinf(end) else float(end) for end in axis.boundary)

    def log_factor(self, x: Array) -> Array:
        """log k̂(x, x̃_i) up to a constant, shape (n, m)."""
        return self.axis.kernel.log(x[:, None], self.centres) - self.log_norm

    def densities(self, delta: Array) -> Array:
        """Those at all nodes, shape (n, panels × nodes), for the rows of δ̂."""
        xp, n = namespace(delta), delta.shape[0]
        out = zeros((n, self.values.shape[0]), delta)
        for nodes in row_blocks(
            self.values.shape[0], max(n, delta.shape[1]) * self.rank, _PRODUCT_ELEMENTS
        ):
            A = xp.reshape(self.values[nodes, None, :] * self.L[None, :, :], (-1, delta.shape[1]))
            terms = xp.reshape(delta @ A.T, (n, -1, self.rank))
            out[:, nodes] = xp.sum(terms * terms, axis=2)
        return out

    def draw(self, log_delta: Array, u: Array) -> Array:
        """The x with F(x) = u, sample by sample, for the laws in the rows of ``log_delta``, or for
        its only row.
        """
        xp, n, order = namespace(u), u.shape[0], NODES_PER_PANEL
        panel, values = xp.zeros((n,), dtype=xp.int64, device=u.device), zeros((n, order), u)
        target, total = zeros((n,), u), zeros((n,), u)
        one = self.densities(xp.exp(log_delta)) if log_delta.shape[0] == 1 else None
        for rows in row_blocks(
            n, self.values.shape[0] * (self.rank if one is None else 1), _PRODUCT_ELEMENTS
        ):
            density = (
                self.densities(xp.exp(log_delta[rows, :]))
                if one is None
                else xp.broadcast_to(one, (rows.stop - rows.start, one.shape[1]))
            )
            masses = xp.sum(
                xp.reshape(density * self.weights, (density.shape[0], -1, order)), axis=2
            )
            below = xp.cumulative_sum(xp.clip(masses, 0.0, None), axis=1)
            total[rows] = below[:, -1]
            wanted = u[rows] * below[:, -1]
            found = xp.clip(
                xp.sum(xp.astype(below < wanted[:, None], xp.int64), axis=1),
                None,
                below.shape[1] - 1,
            )
            before = xp.take_along_axis(
                xp.concat([zeros((below.shape[0], 1), u), below], axis=1), found[:, None], axis=1
            )[:, 0]
            at = found[:, None] * order + xp.arange(order, device=u.device)[None, :]
            panel[rows], target[rows] = found, wanted - before
            values[rows, :] = xp.take_along_axis(density, at, axis=1)
        t = positions(self.axis.panels, panel, values, target, total)
        return xp.clip(self.axis.origin + self.axis.unit * t, self.low, self.high)
