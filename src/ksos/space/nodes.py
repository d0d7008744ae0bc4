"""A space at nodes: a quadrature rule fine enough for its densities, and the masses that they put
on its nodes.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from functools import cached_property

import numpy as np

from ksos.ground.arrays import to_numpy
from ksos.ground.run import Run
from ksos.integrals import Integrals, closed_form
from ksos.integrals.regions import Rule, importance_rules, panel_rules
from ksos.space.embedding_map import blocks_of
from ksos.space.space import SoSSpace

__all__ = ["Nodes", "finer_nodes", "nodes_of"]

Loss = Callable[[np.ndarray], np.ndarray]

_TENSOR_FEATURES = 3
_BUDGETS, _MOST = (1 << 8, 1 << 10, 1 << 12, 1 << 14, 1 << 16, 1 << 18), 1 << 16
_AGREE = 1e-8
_SCATTERED = 1 << 16


@dataclass(frozen=True)
class Nodes:
    """Points x_n, and ψ(x_n)√w_n in natural units: the masses of C are the squared rows seen
    through C.

    With ``labels`` the space has one block of directions per label, and the nodes repeat for each
    of them.
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
        return np.concatenate(
            [
                np.einsum("nr,nr->n", self.psi @ C[block, block], self.psi)
                for _, block in self._blocks()
            ]
        )

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


def nodes_of(space: SoSSpace, losses: Sequence[Loss] = (), tol: float = math.inf) -> Nodes:
    """The coarsest rule on whose Σ w_nψψᵀ the next one agrees to 1e-8, and to ``tol`` on Σ f_n w_n
    ψψᵀ for all ``losses``.

    These take points to values for every label. Where no rule is that good, or the time for the
    set-up is over, it is the finest so far. Up to three features: Gauss–Legendre panels. Beyond:
    scrambled Sobol' points.
    """
    previous: Nodes | None = None
    matrices: list[np.ndarray] = []
    for points, log_weights in _rules(space):
        if previous is not None and (
            points.shape[0] > _MOST or Run.current().setup_is_over(1.0, cuts=False)
        ):
            break
        nodes, before = _at(space, points, log_weights), matrices
        matrices = [nodes.matrix(loss(points)) for loss in losses]
        settled = previous is not None and float(np.abs(nodes.mass - previous.mass).max()) <= _AGREE
        if settled and all(
            np.linalg.norm(new - old, 2) <= tol for new, old in zip(matrices, before, strict=True)
        ):
            break
        previous = nodes
    assert previous is not None
    return previous


def finer_nodes(space: SoSSpace, nodes: Nodes) -> Nodes:
    """A rule that tells what ``nodes`` miss, peaks between them included: the next of 32 768 nodes
    or more, on a line of 65 536, if there is one.

    Of scattered nodes it is others; themselves if they are exact.
    """
    latest, enough = (
        None,
        max(nodes.points.shape[0], _MOST if space.n_features == 1 else _MOST // 2),
    )
    for points, log_weights in _rules(space):
        if points.shape[0] != nodes.points.shape[0]:
            latest = points, log_weights
        if points.shape[0] > enough:
            break
    if latest is not None:  # if there is no finer one: what a coarser one misses is more
        return _at(space, *latest)
    if space.measure.atoms is not None or space.n_features <= _TENSOR_FEATURES:
        return nodes
    return _at(
        space,
        *next(importance_rules(_integrals(space), to_numpy(space.support_points), _SCATTERED, 1)),
    )


def _rules(space: SoSSpace) -> Iterator[Rule]:
    """Rules of ever more nodes; one alone if the measure has nodes of its own, or where they are
    scattered.
    """
    X = to_numpy(space.support_points)
    if (atoms := space.measure.atoms) is not None:
        yield atoms.points, np.log(atoms.weights)
        return
    most = 0
    for budget in _BUDGETS if X.shape[1] <= _TENSOR_FEATURES else ():
        for points, log_weights in panel_rules([(_integrals(space), X)], budget):
            if points.shape[0] > most:
                most = points.shape[0]
                yield points, log_weights
    if most == 0:
        yield from importance_rules(_integrals(space), X, _SCATTERED, 0)


def _integrals(space: SoSSpace) -> Integrals:
    return closed_form(space.kernel, space.measure, space.n_features)


def _at(space: SoSSpace, points: np.ndarray, log_weights: np.ndarray) -> Nodes:
    half = 0.5 * (log_weights - space.log_unit)
    with np.errstate(under="ignore"):
        psi = np.exp(
            space.kernel.log(points, to_numpy(space.support_points)) + half[:, None]
        ) @ to_numpy(space.with_labels(None).T)
    return Nodes(points, psi, space.n_blocks)
