"""Exact sampling by inversion, feature by feature: x_k solves F(x_k | x_1 … x_{k−1}) = u_k
[Rosenblatt1952].

Integrating the later features out of p_B is a Hadamard product with their Gram matrices, B ∘
W_{k+1} ∘ … ∘ W_d, which stays positive semi-definite; conditioning on the earlier ones is a
diagonal scaling. With kernels k̂ of norm one, the law of x_k given the earlier features has the
density ‖L_k(δ̂ ∘ k̂(t))‖², a smooth function of one variable between the kernel's kinks, and the
mass of any interval is ‖A δ̂‖² with a matrix A that does not depend on the sample. A binary tree of
such matrices finds the panel that holds a sample in log₂(panels) products; on it the density is a
polynomial, whose distribution function is inverted by Newton's method.

What is dropped from L_k and A has, integrated over the law of the earlier features, a mass below
:data:`LOST_MASS`.

Only RᵀR matters of a matrix R, so that its rows are replaced by fewer ones as far as samples cannot
show the difference.
"""

from __future__ import annotations

import math
from dataclasses import replace
from typing import TYPE_CHECKING

import numpy as np
from scipy.linalg import qr

from ksos.density.standard import standardize
from ksos.ground.memory import FLOAT_BYTES, require_memory, row_blocks
from ksos.ground.progress import tell_rows
from ksos.ground.threads import one_blas_thread
from ksos.integrals import closed_form
from ksos.integrals.regions import intervals, kinks
from ksos.quadrature import PanelDistribution, Panels, cut, positions

if TYPE_CHECKING:
    from ksos.density.square import Square

__all__ = [
    "LOST_MASS",
    "NODES_PER_PANEL",
    "Axis",
    "MassTree",
    "axis_panels",
    "conditional_laws",
    "draw_by_inversion",
    "fewer_rows",
]
__all__ += ["hadamard_rows", "scan", "scan_flops", "tree_flops", "without_silent_points"]

LOST_MASS = 1e-18
NODES_PER_PANEL = 12
# where kernel values are negligible; squared, and with room for large signed weights
_LOG_LEVEL = -32.0
_PANEL_LENGTH = 0.5  # in units of the kernel's width
_CACHE_ELEMENTS, _DELTA_ELEMENTS = 1 << 18, 1 << 19
_CHUNK_BYTES = 64e6
_CALL = 4e5  # a handful of calls on small arrays takes as long as this many flops
_PIVOTING = 8.0  # a flop of a pivoted QR factorisation costs this many of a matrix product
# an interval's mass takes about this many times as many rows as the density at a point
_RANK_GROWTH = 16
_BLOCK_ROWS = 4  # rows are reduced when there are this many times as many as columns


def draw_by_inversion(
    density: Square, size: int, rng: np.random.Generator, *, tree: bool | None = None
) -> np.ndarray:
    """``size`` independent samples of ``density``, shape (size, d); ``tree`` says whether to build
    a tree, if not by predicted cost.
    """
    # y_k is an increasing function of x_k, given the earlier features: conditional laws go to
    # conditional laws
    if density.kernel.full:
        standard = standardize(density, shorten=False)
        return standard.points(draw_by_inversion(standard.square, size, rng, tree=tree))
    out = rng.random(
        (size, density.n_features)
    )  # all at once: the result does not depend on the chunks
    with one_blas_thread(density.support_points.shape[0]):
        _invert(density, out, tree)
    return out


def _invert(density: Square, out: np.ndarray, tree: bool | None) -> None:
    """Replace uniform numbers by samples."""
    size, axes, factors = out.shape[0], *conditional_laws(density)
    m = axes[0].centres.shape[0]
    for rows in row_blocks(size, m, int(_CHUNK_BYTES / FLOAT_BYTES)):
        tell_rows(rows.start, size)
        log_delta = np.zeros(
            (rows.stop - rows.start, m)
        )  # log Π_{j<k} k̂_j(x_j, x̃_ij), per sample and support point
        for k, (axis, L) in enumerate(zip(axes, factors, strict=True)):
            out[rows, k] = (
                _first_feature(axis, L, out[rows, k])
                if k == 0
                else _later_feature(axis, L, log_delta, out[rows, k], tree)
            )
            if k + 1 < len(axes):
                _condition(log_delta, axis, out[rows, k])


def without_silent_points(density: Square) -> tuple[Square, np.ndarray]:
    """The density without the points that carry no mass, with a central one in front, and its
    factor for kernels of norm one, (m, rank).
    """
    with np.errstate(under="ignore"):
        norms = np.exp(
            0.5 * (density.integrals.log_diagonal(density.support_points) - density.log_unit)
        )
        loud = np.any(density.unit_factor * norms[:, None] != 0.0, axis=1)
    some = replace(
        density,
        support_points=density.support_points[loud],
        unit_factor=density.unit_factor[loud],
    )
    density = some.central_point_first()
    log_norms = 0.5 * (density.integrals.log_diagonal(density.support_points) - density.log_unit)
    with np.errstate(under="ignore"):
        return density, density.unit_factor * np.exp(log_norms)[:, None]


def conditional_laws(density: Square) -> tuple[list[Axis], list[np.ndarray]]:
    """Per feature its axis and L_k with L_kᵀL_k = B ∘ W_{k+1} ∘ … ∘ W_d: the marginal law of the
    features 1 … k.
    """
    density, factor = without_silent_points(density)
    m, d = density.support_points.shape
    lost = LOST_MASS / m  # E‖δ̂‖²/p = m: each k̂ has norm one
    axes = [Axis(density, k) for k in range(d)]
    L = fewer_rows(factor.T, lost)
    factors = [L]
    for k in range(d - 1, 0, -1):
        L = hadamard_rows(L, fewer_rows(axes[k].gram_rows, lost / float(np.sum(L * L))), lost)
        factors.append(L)
        what, remedy = (
            f"the law of {d} features at {m} support points",
            "compress the density first (p.compress), or draw by rejection",
        )
        require_memory((k - 1) * L.nbytes, what, remedy)
    return axes, factors[::-1]


def _condition(log_delta: np.ndarray, axis: Axis, x: np.ndarray) -> None:
    """Multiply δ̂ by k̂(x, x̃_i) of a feature that has been drawn, in place."""
    for rows in row_blocks(log_delta.shape[0], log_delta.shape[1], _DELTA_ELEMENTS):
        log_delta[rows] += axis.log_factor(x[rows])


def _first_feature(axis: Axis, L: np.ndarray, uniforms: np.ndarray) -> np.ndarray:
    """There is nothing to condition on: one law serves all samples."""
    values = _squares(axis.values.reshape(-1, L.shape[1]) @ L.T).reshape(
        1, *axis.panels.nodes.shape
    )
    return axis.points(PanelDistribution(axis.panels, values).ppf(uniforms[None, :])[0])


def _later_feature(
    axis: Axis, L: np.ndarray, log_delta: np.ndarray, uniforms: np.ndarray, tree: bool | None
) -> np.ndarray:
    """Each sample has a law of its own, given by its row of ``log_delta``."""
    out, sizes = np.empty(uniforms.shape), (uniforms.shape[0], len(axis), *L.shape)
    grown = (
        MassTree(axis, L, LOST_MASS / L.shape[1])
        if (tree_flops(*sizes) < scan_flops(*sizes) if tree is None else tree)
        else None
    )
    for rows in row_blocks(uniforms.shape[0], L.shape[1], _DELTA_ELEMENTS):
        delta = np.exp(log_delta[rows] - log_delta[rows].max(axis=1, keepdims=True))
        out[rows] = (
            scan(axis, L, delta, uniforms[rows])
            if grown is None
            else grown.draw(delta, uniforms[rows])
        )
    return out


# --- the law of one feature given the earlier ones: which panel holds a sample, by a scan of all
# panels or by descent in a tree ---


def axis_panels(density: Square, k: int) -> tuple[Panels, float]:
    """Panels that hold all the mass of feature k and end at kinks, in units of the width around the
    first support point; the width.
    """
    source = [(density.integrals, density.support_points)]
    low, high, unit = intervals(source, k, _LOG_LEVEL)
    return (
        Panels(
            *cut(low / unit, high / unit, _PANEL_LENGTH, kinks(source, k) / unit), NODES_PER_PANEL
        ),
        unit,
    )


class Axis:
    """Feature k on panels, with k̂(t, x̃_i) = k(t, x̃_i)·√ρ(t)/‖k(·, x̃_i)‖ at their nodes; lengths
    are in units of the kernel's width.

    Each k̂(·, x̃_i) has norm one in L²(dt), whatever the kernel's width, the measure and the point.
    """

    def __init__(self, density: Square, k: int) -> None:
        x = density.support_points[:, [k]]
        self.origin = float(
            x[0, 0]
        )  # positions are kept relative to it: exact for data far from zero
        self.panels, self.unit = axis_panels(density, k)
        self.boundary = density.measure.boundary(k)
        self.kernel, self.centres = density.kernel.restrict([k]), x
        measure = density.measure.restrict([k])
        self.log_norm = 0.5 * closed_form(self.kernel, measure, 1).log_diagonal(x)
        nodes = self.unit * self.panels.nodes.reshape(-1, 1)
        log_values = (
            self.kernel.log(nodes, x - self.origin) - self.log_norm + 0.5 * np.log(self.unit)
        )
        log_values += 0.5 * measure.log_density(nodes + self.origin)[:, None]
        self.values = np.exp(log_values).reshape(-1, NODES_PER_PANEL, x.shape[0])
        self.root_weights = np.sqrt(self.panels.weights)

    def __len__(self) -> int:
        return len(self.panels)

    def rows(self, panel: int, L: np.ndarray) -> np.ndarray:
        """Rows whose squared products with δ̂ sum to the density at each of the panel's nodes:
        shape (nodes × rank, m), nodes first.
        """
        return np.asarray((self.values[panel][:, None, :] * L[None, :, :]).reshape(-1, L.shape[1]))

    @property
    def gram_rows(self) -> np.ndarray:
        """R with RᵀR = ∫k̂k̂ᵀ dt, the Gram matrix of the feature with ones on its diagonal."""
        return np.asarray(
            (self.root_weights[:, :, None] * self.values).reshape(-1, self.values.shape[2])
        )

    def points(self, t: np.ndarray) -> np.ndarray:
        """x of positions on the panels; rounding must not carry a sample out of its box."""
        return np.clip(self.origin + self.unit * t, *self.boundary)

    def log_factor(self, x: np.ndarray) -> np.ndarray:
        """log k̂(x, x̃_i) up to a constant per row: what the feature, once drawn, contributes to
        the laws of the later ones.
        """
        return np.asarray(self.kernel.log(x[:, None], self.centres) - self.log_norm)


def scan(axis: Axis, L: np.ndarray, delta: np.ndarray, uniforms: np.ndarray) -> np.ndarray:
    """Samples from the density at the nodes of every panel: nothing to prepare, so it is the way
    for few samples.
    """
    out = np.empty(delta.shape[0])
    for rows in row_blocks(delta.shape[0], len(axis) * NODES_PER_PANEL, _CACHE_ELEMENTS):
        everywhere = np.stack(
            [node_values(axis.rows(p, L), delta[rows]) for p in range(len(axis))], axis=1
        )
        out[rows] = PanelDistribution(axis.panels, everywhere).ppf(uniforms[rows, None])[:, 0]
    return axis.points(out)


class MassTree:
    """For each node of a binary tree of panels, few rows A with ‖A δ̂‖² = the mass on its interval."""

    def __init__(self, axis: Axis, L: np.ndarray, lost: float) -> None:
        self.axis, self.L, self.lost = axis, L, lost
        self.left: dict[tuple[int, int], np.ndarray] = {}
        self.root = self._build(0, len(axis))

    def _build(self, first: int, last: int) -> np.ndarray:
        if last - first == 1:
            roots = np.repeat(self.axis.root_weights[first], self.L.shape[0])
            return fewer_rows(self.axis.rows(first, self.L) * roots[:, None], self.lost)
        middle = (first + last) // 2
        left, right = self._build(first, middle), self._build(middle, last)
        self.left[first, last] = left
        return fewer_rows(np.concatenate([left, right]), self.lost)

    def draw(self, delta: np.ndarray, uniforms: np.ndarray) -> np.ndarray:
        """Samples, by going down from the root: left if the mass of the left half reaches the
        target, right with what remains otherwise.
        """
        n = delta.shape[0]
        total = _squares(delta @ self.root.T)
        panel, values, target = (
            np.empty(n, dtype=int),
            np.empty((n, NODES_PER_PANEL)),
            uniforms * total,
        )
        pending = [(0, len(self.axis), np.arange(n), delta)]
        while pending:
            first, last, samples, block = pending.pop()
            if last - first == 1:
                panel[samples] = first
                values[samples] = node_values(self.axis.rows(first, self.L), block)
                continue
            mass = _squares(block @ self.left[first, last].T)
            right = target[samples] >= mass
            target[samples[right]] -= mass[right]
            middle = (first + last) // 2
            for half, side in (((first, middle), ~right), ((middle, last), right)):
                if np.all(side):
                    pending.append((*half, samples, block))
                elif np.any(side):
                    pending.append((*half, samples[side], block[side]))
        return self.axis.points(positions(self.axis.panels, panel, values, target, total))


def node_values(rows: np.ndarray, delta: np.ndarray) -> np.ndarray:
    """The density at the nodes of one panel, (n, nodes), from the panel's rows."""
    out = np.empty((delta.shape[0], NODES_PER_PANEL))
    for block in row_blocks(delta.shape[0], rows.shape[0], _CACHE_ELEMENTS):
        terms = (delta[block] @ rows.T).reshape(
            -1, NODES_PER_PANEL, rows.shape[0] // NODES_PER_PANEL
        )
        out[block] = np.einsum("ijk,ijk->ij", terms, terms)
    return out


def scan_flops(n: int, panels: int, rank: int, m: int) -> float:
    """The work of :func:`scan` for ``n`` samples."""
    return panels * (_CALL + n * 2.0 * m * rank * NODES_PER_PANEL)


def tree_flops(n: int, panels: int, rank: int, m: int) -> float:
    """The work of a :class:`MassTree` for ``n`` samples: a factorisation per panel and one per
    inner node, then the descents.
    """
    leaf, interval = rank * NODES_PER_PANEL, min(m, _RANK_GROWTH * rank)
    setup = panels * (6.0 * _CALL + _PIVOTING * 2.0 * m * (leaf * min(m, leaf) + 2.0 * interval**2))
    return setup + n * 2.0 * m * (leaf + interval * (math.log2(panels) + 2.0))


def fewer_rows(rows: np.ndarray, lost: float) -> np.ndarray:
    """R with few rows and RᵀR = rowsᵀ·rows up to a positive semi-definite part of trace at most
    ``lost``; at least one row.

    Householder reflections, not a Gram matrix: small rows that matter after cancellation keep their
    digits.
    """
    n, m = rows.shape
    if n > _BLOCK_ROWS * m:
        rows = np.asarray(np.linalg.qr(rows, mode="r"))
    R, order = qr(rows, mode="r", pivoting=True, check_finite=False)
    R = R[: min(R.shape)]
    trailing = np.cumsum(np.einsum("ij,ij->i", R, R)[::-1])[::-1]
    kept = max(1, int(np.sum(trailing > lost)))
    out = np.empty((kept, m))
    out[:, order] = R[:kept]
    return out


def hadamard_rows(first: np.ndarray, second: np.ndarray, lost: float) -> np.ndarray:
    """Few rows for (firstᵀ·first) ∘ (secondᵀ·second), neither of which is formed: the rows are all
    products first_a ∘ second_b.
    """
    m = first.shape[1]
    out = np.zeros((0, m))
    step = max(1, _BLOCK_ROWS * m // second.shape[0])
    for start in range(0, first.shape[0], step):
        products = (first[start : start + step, None, :] * second[None, :, :]).reshape(-1, m)
        out = np.concatenate([out, products])
        if start + step < first.shape[0]:
            out = np.asarray(np.linalg.qr(out, mode="r"))
    return fewer_rows(out, lost)


def _squares(values: np.ndarray) -> np.ndarray:
    """Σ_j values_ij², per row."""
    return np.einsum("ij,ij->i", values, values)
