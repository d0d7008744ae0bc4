"""A space at nodes: a quadrature rule fine enough for its densities, and the masses that they put on its nodes."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from functools import cached_property

import numpy as np

from ksos._array import to_numpy
from ksos.embedding_map import blocks_of
from ksos.integrals import closed_form
from ksos.integrals.regions import importance_rules, panel_rules
from ksos.space import SoSSpace

__all__ = ["Nodes", "nodes_of"]

_TENSOR_FEATURES = 3
_BUDGETS = (1 << 8, 1 << 10, 1 << 12, 1 << 14, 1 << 16)
_AGREE = 1e-8
_SCATTERED = 1 << 16


@dataclass(frozen=True)
class Nodes:
    """Points x_n, and ψ(x_n)√w_n in natural units: the masses of C are the squared rows seen through C.

    With ``labels`` the space has one block of directions per label, and the nodes repeat for each of them.
    """

    points: np.ndarray
    psi: np.ndarray
    labels: int = 1

    @cached_property
    def mass(self) -> np.ndarray:
        """Σ w_n ψψᵀ: the identity for an exact rule."""
        return self.psi.T @ self.psi

    def _blocks(self) -> Iterator[tuple[slice, slice]]:
        return zip(*(blocks_of(size, self.labels) for size in self.psi.shape), strict=True)

    def masses(self, C: np.ndarray) -> np.ndarray:
        """w_n ψ_nᵀCψ_n, shape (labels·N,)."""
        return np.concatenate([np.einsum("nr,nr->n", self.psi @ C[block, block], self.psi) for _, block in self._blocks()])

    def matrix(self, f: np.ndarray) -> np.ndarray:
        """Σ_n f_n w_n ψ_nψ_nᵀ."""
        r = self.labels * self.psi.shape[1]
        out = np.zeros((r, r))
        for rows, block in self._blocks():
            M = self.psi.T @ (f[rows, None] * self.psi)
            out[block, block] = 0.5 * (M + M.T)
        return out

    def products(self, g: np.ndarray, F: np.ndarray) -> np.ndarray:
        """Σ_n g_nj w_n ψ_nψ_nᵀF, shape (p, r, k)."""
        out = np.empty((g.shape[1], *F.shape))
        for rows, block in self._blocks():
            image = self.psi @ F[block]
            for j in range(g.shape[1]):
                out[j, block] = self.psi.T @ (g[rows, j, None] * image)
        return out


def nodes_of(space: SoSSpace, finer: bool = False) -> Nodes:
    """The coarsest rule on whose Σ w_nψψᵀ the next one agrees to 1e-8; with ``finer``, that next one.

    Up to three features: Gauss–Legendre panels. Beyond: scrambled Sobol' points, of which ``finer`` takes another scrambling.
    """
    measure, X = space.measure, to_numpy(space.support_points)
    if (atoms := measure.atoms) is not None:
        return _at(space, atoms.points, np.log(atoms.weights))
    integrals = closed_form(space.kernel, measure, X.shape[1])
    previous: Nodes | None = None
    if X.shape[1] <= _TENSOR_FEATURES:
        for budget in _BUDGETS:
            for points, log_weights in panel_rules([(integrals, X)], budget):
                if previous is not None and points.shape[0] <= previous.points.shape[0]:
                    continue
                nodes = _at(space, points, log_weights)
                if previous is not None and np.abs(nodes.mass - previous.mass).max() <= _AGREE:
                    return nodes if finer else previous
                previous = nodes
    if previous is not None:
        return previous
    return _at(space, *next(importance_rules(integrals, X, _SCATTERED, 1 if finer else 0)))


def _at(space: SoSSpace, points: np.ndarray, log_weights: np.ndarray) -> Nodes:
    half = 0.5 * (log_weights - space.log_unit)
    with np.errstate(under="ignore"):
        psi = np.exp(space.kernel.log(points, to_numpy(space.support_points)) + half[:, None]) @ to_numpy(space.with_labels(None).T)
    return Nodes(points, psi, space.n_blocks)
