"""Exact sampling by inversion, feature by feature: x_k solves F(x_k | x_1 … x_{k−1}) = u_k
[Rosenblatt1952].

Integrating the later features out of p_B is a Hadamard product with their Gram matrices, B ∘
W_{k+1} ∘ … ∘ W_d, which stays positive semi-definite. Conditioning on the earlier features is a
diagonal scaling. With kernels k̂ of norm one, the density of x_k given the earlier features is
‖L_k(δ̂ ∘ k̂(t))‖², a smooth function of one variable between the kernel's kinks. There are two ways
to find the panel that holds a sample. A scan evaluates the density at the nodes of all panels, on
the host or on a GPU. A tree is prepared for many samples on the host: the mass of any interval is
‖A δ̂‖² with a matrix A that does not depend on the sample: log₂(panels) products are enough. On
its panel the density is a polynomial, whose distribution function is inverted by Newton's method.

Only RᵀR matters of a matrix R, so that its rows are replaced by fewer ones. The mass dropped,
integrated over the distribution of the earlier features, is below :data:`LOST_MASS`.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import TYPE_CHECKING

import numpy as np

from ksos.density.factor import fewer_rows, hadamard_rows
from ksos.density.standard import standardize
from ksos.ground import (
    Array,
    Run,
    is_numpy,
    like,
    namespace,
    on_accelerator,
    one_blas_thread,
    quiet,
    require_memory,
    row_blocks,
    row_squares,
    to_numpy,
    uniforms,
    zeros,
)
from ksos.integrals import closed_form, intervals, kinks
from ksos.quadrature import PanelDistribution, Panels, cut, positions

if TYPE_CHECKING:
    from ksos.density.square import Square


LOST_MASS = 1e-18  # 1e9 samples would notice a mass of 1e-9: even square roots of it are below
NODES_PER_PANEL = 12  # on half the kernel's smooth length: the density to 1e-12
_PANEL_LENGTH = 0.5  # of the kernel's smooth length: 12 nodes give the density to 1e-12 there
_LOG_LEVEL = -32.0  # of k: its square is below rounding, even beside large signed weights
_HOST_BLOCK = 1 << 19  # entries at a time: 4 MB, near the size of a core's cache
_DEVICE_BLOCK = 1 << 27  # 1 GB on a GPU, which is fastest on few large products
_CHUNK = 16  # blocks that share their trees: log δ̂ of them all is kept meanwhile
TREE_ROWS = 4  # trees pay from so many samples per support point (benchmarks/sampling.py)


def draw_by_inversion(
    density: Square, size: int, rng: np.random.Generator, *, tree: bool | None = None
) -> Array:
    """``size`` independent samples of ``density``, shape (size, d), where its arrays lie. Factors
    are made on the host.

    ``tree`` says whether to prepare trees. Default: on the host, if that is predicted to be faster.
    """
    reference, host = density.support_points, density.moved(to_numpy)
    # y_k is an increasing function of x_k given the earlier features, so that conditional
    # distributions in standard coordinates are those in x
    standard = standardize(host, on_nodes=False) if host.kernel.full else None
    # all uniform numbers at once: samples do not depend on the blocks
    x = uniforms(rng, (size, host.n_features), reference)
    with one_blas_thread(host.support_points.shape[0]), quiet():
        _solve(host if standard is None else standard.square, x, tree)
    return x if standard is None else like(standard.points(to_numpy(x)), reference)


def _solve(p: Square, x: Array, tree: bool | None) -> None:
    """Replace uniform numbers by samples."""
    (axes, factors), xp, size = _conditionals(p), namespace(x), x.shape[0]
    m = axes[0].centers.shape[0]
    # the first feature has nothing to be conditioned on: one distribution for all samples
    ones = zeros((1, m), x) + 1.0
    density = densities(axes[0].values, factors[0], ones)
    alone = PanelDistribution(axes[0].panels, xp.reshape(density, (1, *axes[0].panels.nodes.shape)))
    x[:, 0] = axes[0].points(alone.ppf(x[None, :, 0])[0, :])
    most = _DEVICE_BLOCK if on_accelerator(x) else _HOST_BLOCK
    for chunk in row_blocks(size, m, _CHUNK * most):
        Run.current().tell_rows(chunk.start, size)
        drawn = x[chunk, :]  # a view: what is written there stays
        n = drawn.shape[0]
        grown = is_numpy(x) and n > TREE_ROWS * m if tree is None else tree
        log_delta = zeros((n, m), x)  # log Π_{j<k} k̂_j(x_j, x̃_ij)
        for k in range(1, len(axes)):
            before, axis, L = axes[k - 1], axes[k], factors[k]
            centers, log_norm = like(before.centers, x), like(before.log_norm, x)
            find = _tree(axis, L) if grown else None
            for rows in row_blocks(n, m, most):
                z = drawn[rows, k - 1, None]
                log_delta[rows, :] += before.kernel.log(z, centers) - log_norm
                peak = xp.max(log_delta[rows, :], axis=1)
                delta, u = xp.exp(log_delta[rows, :] - peak[:, None]), drawn[rows, k]
                found = _look_up(axis, L, delta, u) if find is None else find(delta, u)
                drawn[rows, k] = axis.points(found)


def without_silent_points(density: Square) -> tuple[Square, np.ndarray]:
    """The density without the points that carry no mass, with a central one in front, and its
    factor for kernels of norm one, (m, rank).
    """

    def factor(p: Square) -> np.ndarray:
        log_norms = 0.5 * (p.integrals.log_diagonal(p.support_points) - p.log_unit)
        return np.asarray(p.unit_factor * np.exp(log_norms)[:, None])

    with quiet():
        loud = np.any(factor(density) != 0.0, axis=1)
        X, F = density.support_points[loud], density.unit_factor[loud]
        kept = replace(density, support_points=X, unit_factor=F).central_point_first()
        return kept, factor(kept)


def _conditionals(density: Square) -> tuple[list[Axis], list[np.ndarray]]:
    """Per feature its axis and L_k with L_kᵀL_k = B ∘ W_{k+1} ∘ … ∘ W_d: the marginal distribution
    of the features 1 … k.
    """
    density, factor = without_silent_points(density)
    m, d = density.support_points.shape
    lost = LOST_MASS / m  # E‖δ̂‖²/p = m: each k̂ has norm one
    axes = [Axis(density, k) for k in range(d)]
    factors = [fewer_rows(factor.T, lost)]
    for k in range(d - 1, 0, -1):
        L = factors[-1]
        others = fewer_rows(axes[k].gram_rows, lost / float(np.sum(L * L)))
        factors.append(hadamard_rows(L, others, lost))
        require_memory(
            (k - 1) * factors[-1].nbytes,
            f"the distribution of {d} features at {m} support points",
            "compress the density first (p.compress), or draw by rejection",
        )
    return axes, factors[::-1]


# One feature given the earlier ones


class Axis:
    """Feature k on panels, with ``values`` k̂(t, x̃_i) = k(t, x̃_i)·√ρ(t)/‖k(·, x̃_i)‖ at their
    nodes, (panels · nodes, m).

    Lengths are in units of the kernel's width. Each k̂(·, x̃_i) has norm one in L²(dt), whatever
    the kernel's width, the measure and the point.
    """

    def __init__(
        self,
        density: Square,
        k: int,
        nodes_per_panel: int = NODES_PER_PANEL,
        panel_length: float = _PANEL_LENGTH,
    ) -> None:
        x, source = density.support_points[:, [k]], [(density.integrals, density.support_points)]
        # positions are kept relative to the first point: exact for data far from zero
        self.origin, self.centers = float(x[0, 0]), x
        low, high, self.unit = intervals(source, k, _LOG_LEVEL)
        ends = cut(low / self.unit, high / self.unit, panel_length, kinks(source, k) / self.unit)
        self.panels = Panels(*ends, nodes_per_panel)
        self.kernel, measure = density.kernel.restrict([k]), density.measure.restrict([k])
        self.low, self.high = (
            None if np.isinf(end) else float(end) for end in density.measure.boundary(k)
        )
        self.log_norm = 0.5 * closed_form(self.kernel, measure, 1).log_diagonal(x)
        nodes = self.unit * self.panels.nodes.reshape(-1, 1)
        log_values = self.kernel.log(nodes, x - self.origin) - self.log_norm
        log_root = 0.5 * (np.log(self.unit) + measure.log_density(nodes + self.origin))
        self.values = np.exp(log_values + log_root[:, None])
        self.root_weights = np.sqrt(self.panels.weights).reshape(-1, 1)
        # RᵀR = ∫k̂k̂ᵀ dt, the Gram matrix of the feature with ones on its diagonal
        self.gram_rows = self.root_weights * self.values

    def points(self, t: Array) -> Array:
        """x of positions on the panels. Rounding must not carry a sample out of its box."""
        return namespace(t).clip(self.origin + self.unit * t, self.low, self.high)


def densities(values: np.ndarray, L: np.ndarray, delta: Array) -> Array:
    """‖L(δ̂ ∘ k̂(t))‖² at the nodes t in the rows of ``values``, for every row of ``delta``."""
    xp, (n, m), rank = namespace(delta), delta.shape, L.shape[0]
    values, L, out = like(values, delta), like(L, delta), zeros((n, values.shape[0]), delta)
    if not rank:
        return out
    most = _DEVICE_BLOCK if on_accelerator(delta) else _HOST_BLOCK
    for nodes in row_blocks(values.shape[0], max(n, m) * rank, most):
        A = xp.reshape(values[nodes, None, :] * L[None, :, :], (-1, m))
        terms = xp.reshape(delta @ A.T, (n, -1, rank))
        out[:, nodes] = row_squares(terms)
    return out


def _look_up(axis: Axis, L: np.ndarray, delta: Array, u: Array) -> Array:
    """Positions that invert the distributions of the rows of ``delta`` at u, from the density at
    the nodes of all panels: the panel by the masses of all, and the position there.
    """
    xp, n, order = namespace(u), u.shape[0], NODES_PER_PANEL
    weights = like(axis.panels.weights.ravel(), u)
    panel, values = xp.zeros((n,), dtype=xp.int64, device=u.device), zeros((n, order), u)
    target, total = zeros((n,), u), zeros((n,), u)
    most = _DEVICE_BLOCK if on_accelerator(u) else _HOST_BLOCK
    for rows in row_blocks(n, axis.values.shape[0], most):
        density = densities(axis.values, L, delta[rows, :])
        masses = xp.sum(xp.reshape(density * weights, (density.shape[0], -1, order)), axis=2)
        below = xp.cumulative_sum(xp.clip(masses, 0.0, None), axis=1)
        wanted = u[rows] * below[:, -1]
        lower = xp.astype(below < wanted[:, None], xp.int64)
        found = xp.clip(xp.sum(lower, axis=1), None, below.shape[1] - 1)
        before = xp.concat([zeros((below.shape[0], 1), u), below], axis=1)
        panel[rows], total[rows] = found, below[:, -1]
        target[rows] = wanted - xp.take_along_axis(before, found[:, None], axis=1)[:, 0]
        at = found[:, None] * order + xp.arange(order, device=u.device)[None, :]
        values[rows, :] = xp.take_along_axis(density, at, axis=1)
    return positions(axis.panels, panel, values, target, total)


def _tree(axis: Axis, L: np.ndarray) -> Callable[[np.ndarray, np.ndarray], np.ndarray]:
    """What inverts the distributions of the rows of ``delta`` at ``u``: for each node of a binary
    tree of panels there are few rows A with ‖A δ̂‖² = the mass on its interval.
    """
    m, panels, left_rows = L.shape[1], axis.panels, dict[tuple[int, int], np.ndarray]()

    def build(first: int, last: int) -> np.ndarray:
        if last - first == 1:
            R = axis.gram_rows[first * NODES_PER_PANEL : last * NODES_PER_PANEL]
            return fewer_rows((R[:, None, :] * L).reshape(-1, m), LOST_MASS / m)
        middle = (first + last) // 2
        left_rows[first, last] = build(first, middle)
        both = np.concatenate([left_rows[first, last], build(middle, last)])
        return fewer_rows(both, LOST_MASS / m)

    root = build(0, len(panels))

    def find(delta: np.ndarray, u: np.ndarray) -> np.ndarray:
        total = row_squares(delta @ root.T)
        panel, values = np.zeros(u.shape, dtype=int), np.zeros((u.shape[0], NODES_PER_PANEL))
        target = u * total

        def descend(first: int, last: int, samples: np.ndarray, block: np.ndarray) -> None:
            if last - first == 1:
                nodes = slice(first * NODES_PER_PANEL, last * NODES_PER_PANEL)
                panel[samples], values[samples] = first, densities(axis.values[nodes], L, block)
                return
            mass, middle = row_squares(block @ left_rows[first, last].T), (first + last) // 2
            right = target[samples] >= mass
            target[samples[right]] -= mass[right]
            for start, stop, side in ((first, middle, ~right), (middle, last, right)):
                if np.any(side):
                    descend(start, stop, samples[side], block[side])

        descend(0, len(panels), np.arange(u.shape[0]), delta)
        return np.asarray(positions(panels, panel, values, target, total))

    return find
