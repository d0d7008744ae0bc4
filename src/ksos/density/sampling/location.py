"""Which panel holds a sample, and the density at its nodes: by a scan of all panels, or by descent in a tree of interval masses."""

from __future__ import annotations

import math
from typing import NamedTuple

import numpy as np

from ksos._memory import row_blocks
from ksos.density.sampling.panels import NODES_PER_PANEL, Panels
from ksos.density.sampling.rows import fewer_rows, row_sums_of_squares

__all__ = ["Location", "MassTree", "scan", "scan_flops", "tree_flops", "tree_pays"]

_CACHE_ELEMENTS = 1 << 18
_CALL = 4e5  # a handful of calls on small arrays takes as long as this many flops
_PIVOTING = 8.0  # a flop of a pivoted QR factorisation costs this many of a matrix product
_RANK_GROWTH = 16  # an interval's mass takes about this many times as many rows as the density at a point


class Location(NamedTuple):
    """Per sample: its panel, the density at the panel's nodes (n, nodes), the mass to go from the panel's start, and the whole mass."""

    panel: np.ndarray
    values: np.ndarray
    target: np.ndarray
    total: np.ndarray


def scan(axis: Panels, L: np.ndarray, delta: np.ndarray, uniforms: np.ndarray) -> Location:
    """The density at the nodes of every panel: nothing to prepare, so it is the way for few samples."""
    n = delta.shape[0]
    panel, values, target, total = np.empty(n, dtype=int), np.empty((n, NODES_PER_PANEL)), np.empty(n), np.empty(n)
    for rows in row_blocks(n, len(axis) * NODES_PER_PANEL, _CACHE_ELEMENTS):
        everywhere = np.stack([node_values(axis.rows(p, L), delta[rows]) for p in range(len(axis))], axis=1)
        cumulative = np.cumsum(axis.masses(everywhere), axis=1)
        total[rows] = cumulative[:, -1]
        goal = uniforms[rows] * total[rows]
        panel[rows] = np.minimum(np.sum(cumulative < goal[:, None], axis=1), len(axis) - 1)
        here = np.arange(goal.shape[0])
        target[rows] = goal - np.where(panel[rows] > 0, cumulative[here, panel[rows] - 1], 0.0)
        values[rows] = everywhere[here, panel[rows]]
    return Location(panel, values, target, total)


class MassTree:
    """For each node of a binary tree of panels, few rows A with ‖A δ̂‖² = the mass on its interval."""

    def __init__(self, axis: Panels, L: np.ndarray, lost: float) -> None:
        self.axis, self.L, self.lost = axis, L, lost
        self.left: dict[tuple[int, int], np.ndarray] = {}
        self.root = self._build(0, len(axis))

    def _build(self, first: int, last: int) -> np.ndarray:
        if last - first == 1:
            return fewer_rows(self.axis.mass_rows(first, self.L), self.lost)
        middle = (first + last) // 2
        left, right = self._build(first, middle), self._build(middle, last)
        self.left[first, last] = left
        return fewer_rows(np.concatenate([left, right]), self.lost)

    def locate(self, delta: np.ndarray, uniforms: np.ndarray) -> Location:
        """Go down from the root: left where the mass of the left half reaches the target, right with what remains otherwise."""
        n = delta.shape[0]
        total = row_sums_of_squares(delta @ self.root.T)
        panel, values, target = np.empty(n, dtype=int), np.empty((n, NODES_PER_PANEL)), uniforms * total
        pending = [(0, len(self.axis), np.arange(n), delta)]
        while pending:
            first, last, samples, block = pending.pop()
            if last - first == 1:
                panel[samples] = first
                values[samples] = node_values(self.axis.rows(first, self.L), block)
                continue
            mass = row_sums_of_squares(block @ self.left[first, last].T)
            right = target[samples] >= mass
            target[samples[right]] -= mass[right]
            middle = (first + last) // 2
            for half, side in (((first, middle), ~right), ((middle, last), right)):
                if np.all(side):
                    pending.append((*half, samples, block))
                elif np.any(side):
                    pending.append((*half, samples[side], block[side]))
        return Location(panel, values, target, total)


def node_values(rows: np.ndarray, delta: np.ndarray) -> np.ndarray:
    """The density at the nodes of one panel, (n, nodes), from the panel's rows."""
    out = np.empty((delta.shape[0], NODES_PER_PANEL))
    for block in row_blocks(delta.shape[0], rows.shape[0], _CACHE_ELEMENTS):
        terms = (delta[block] @ rows.T).reshape(-1, NODES_PER_PANEL, rows.shape[0] // NODES_PER_PANEL)
        out[block] = np.einsum("ijk,ijk->ij", terms, terms)
    return out


def scan_flops(n: int, panels: int, rank: int, m: int) -> float:
    """The work of :func:`scan` for ``n`` samples."""
    return panels * (_CALL + n * 2.0 * m * rank * NODES_PER_PANEL)


def tree_flops(n: int, panels: int, rank: int, m: int) -> float:
    """The work of a :class:`MassTree` for ``n`` samples: a factorisation per panel and one per inner node, then the descents."""
    leaf, interval = rank * NODES_PER_PANEL, min(m, _RANK_GROWTH * rank)
    setup = panels * (6.0 * _CALL + _PIVOTING * 2.0 * m * (leaf * min(m, leaf) + 2.0 * interval**2))
    return setup + n * 2.0 * m * (leaf + interval * (math.log2(panels) + 2.0))


def tree_pays(n: int, panels: int, rank: int, m: int) -> bool:
    """Whether ``n`` samples are worth a tree."""
    return tree_flops(n, panels, rank, m) < scan_flops(n, panels, rank, m)
