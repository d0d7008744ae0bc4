"""Exact sampling by inversion, feature by feature: x_k solves F(x_k | x_1 … x_{k−1}) = u_k [Rosenblatt1952].

Integrating the later features out of p_B is a Hadamard product with their Gram matrices, B ∘ W_{k+1} ∘ … ∘ W_d, which stays positive
semi-definite; conditioning on the earlier ones is a diagonal scaling. With kernels k̂ of norm one, the law of x_k given the earlier features
has the density ‖L_k(δ̂ ∘ k̂(t))‖², a smooth function of one variable between the kernel's kinks, and the mass of any interval is ‖A δ̂‖² with
a matrix A that does not depend on the sample. A binary tree of such matrices finds the panel that holds a sample in log₂(panels) products;
on it the density is a polynomial, whose distribution function is inverted by Newton's method.

What is dropped from L_k and A has, integrated over the law of the earlier features, a mass below :data:`LOST_MASS`.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from ksos._memory import FLOAT_BYTES, require_memory, row_blocks
from ksos._threads import one_blas_thread
from ksos.density.moments import central_point_first
from ksos.density.sampling.feature_law import (
    Axis,
    MassTree,
    fewer_rows,
    hadamard_rows,
    row_sums_of_squares,
    scan,
    scan_flops,
    tree_flops,
)
from ksos.quadrature import PiecewiseLaw

if TYPE_CHECKING:
    from ksos.density.sos import SoSDensity

__all__ = ["LOST_MASS", "conditional_laws", "draw_by_inversion", "without_silent_points"]

LOST_MASS = 1e-18
_CHUNK_BYTES = 64e6
_CACHE_ELEMENTS = 1 << 19


def draw_by_inversion(density: SoSDensity, size: int, rng: np.random.Generator, *, tree: bool | None = None) -> np.ndarray:
    """``size`` independent samples of ``density``, shape (size, d); ``tree`` says whether to build a tree, if not by predicted cost."""
    out = rng.random((size, density.n_features))  # all at once: the result does not depend on the chunks
    with one_blas_thread(density.support_points.shape[0]):
        _invert(density, out, tree)
    return out


def _invert(density: SoSDensity, out: np.ndarray, tree: bool | None) -> None:
    """Replace uniform numbers by samples."""
    size, axes, factors = out.shape[0], *conditional_laws(density)
    m = axes[0].centres.shape[0]
    for rows in row_blocks(size, m, int(_CHUNK_BYTES / FLOAT_BYTES)):
        log_delta = np.zeros((rows.stop - rows.start, m))  # log Π_{j<k} k̂_j(x_j, x̃_ij), per sample and support point
        for k, (axis, L) in enumerate(zip(axes, factors, strict=True)):
            out[rows, k] = _first_feature(axis, L, out[rows, k]) if k == 0 else _later_feature(axis, L, log_delta, out[rows, k], tree)
            if k + 1 < len(axes):
                _condition(log_delta, axis, out[rows, k])


def without_silent_points(density: SoSDensity) -> tuple[SoSDensity, np.ndarray]:
    """The density without the points that carry no mass, with a central one in front, and its factor for kernels of norm one, (m, rank)."""
    with np.errstate(under="ignore"):
        norms = np.exp(0.5 * (density.integrals.log_diagonal(density.support_points) - density.log_unit))
        loud = np.any(density.unit_factor * norms[:, None] != 0.0, axis=1)
    density = central_point_first(
        density.from_units(density.kernel, density.support_points[loud], density.unit_factor[loud], density.log_unit, density.measure)
    )
    log_norms = 0.5 * (density.integrals.log_diagonal(density.support_points) - density.log_unit)
    with np.errstate(under="ignore"):
        return density, density.unit_factor * np.exp(log_norms)[:, None]


def conditional_laws(density: SoSDensity) -> tuple[list[Axis], list[np.ndarray]]:
    """Per feature its axis and L_k with L_kᵀL_k = B ∘ W_{k+1} ∘ … ∘ W_d: the marginal law of the features 1 … k."""
    density, factor = without_silent_points(density)
    m, d = density.support_points.shape
    lost = LOST_MASS / m  # E‖δ̂‖²/p = m: each k̂ has norm one
    axes = [Axis(density, k) for k in range(d)]
    L = fewer_rows(factor.T, lost)
    factors = [L]
    for k in range(d - 1, 0, -1):
        L = hadamard_rows(L, fewer_rows(axes[k].gram_rows, lost / float(np.sum(L * L))), lost)
        factors.append(L)
        require_memory(
            (k - 1) * L.nbytes,
            f"the law of {d} features at {m} support points",
            "compress the density first (p.compress), or draw by rejection",
        )
    return axes, factors[::-1]


def _condition(log_delta: np.ndarray, axis: Axis, x: np.ndarray) -> None:
    """Multiply δ̂ by k̂(x, x̃_i) of a feature that has been drawn, in place."""
    for rows in row_blocks(log_delta.shape[0], log_delta.shape[1], _CACHE_ELEMENTS):
        log_delta[rows] += axis.log_factor(x[rows])


def _first_feature(axis: Axis, L: np.ndarray, uniforms: np.ndarray) -> np.ndarray:
    """There is nothing to condition on: one law serves all samples."""
    values = row_sums_of_squares(axis.values.reshape(-1, L.shape[1]) @ L.T).reshape(1, *axis.panels.nodes.shape)
    return axis.points(PiecewiseLaw(axis.panels, values).ppf(uniforms[None, :])[0])


def _later_feature(axis: Axis, L: np.ndarray, log_delta: np.ndarray, uniforms: np.ndarray, tree: bool | None) -> np.ndarray:
    """Each sample has a law of its own, given by its row of ``log_delta``."""
    out, sizes = np.empty(uniforms.shape), (uniforms.shape[0], len(axis), *L.shape)
    grown = MassTree(axis, L, LOST_MASS / L.shape[1]) if (tree_flops(*sizes) < scan_flops(*sizes) if tree is None else tree) else None
    for rows in row_blocks(uniforms.shape[0], L.shape[1], _CACHE_ELEMENTS):
        delta = np.exp(log_delta[rows] - log_delta[rows].max(axis=1, keepdims=True))
        out[rows] = scan(axis, L, delta, uniforms[rows]) if grown is None else grown.draw(delta, uniforms[rows])
    return out
