"""Embeddings seen through landmarks and along witnesses: few directions, each of them the one in which an answer was seen too short.

Landmarks are points, and in many features no manageable number of them sees every embedding. But only the answer's embedding must be seen
exactly: projecting on span{k(·, z_1), …, k(·, z_ℓ), w_p − w_μ̂} makes the projected MMD of that p its exact one, and whatever is added, the
projected ball still holds the exact one, so that dual values stay bounds.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Any

import numpy as np

from ksos._array import Array, to_numpy
from ksos.density import SoSDensity
from ksos.embedding import MeanEmbedding, as_target, exact_inner
from ksos.embedding_map import CompressedMap, EmbeddingMap
from ksos.observables import KernelFunction, Observable
from ksos.robust.witness import Witness
from ksos.space import SoSSpace

__all__ = ["ExtendedSpace", "dual_function", "seeing"]

_ROUNDING = 1e-8  # of a squared distance


@dataclass(frozen=True)
class Direction:
    """h = (f − Σ_k c_k e_k)/length for a witness f, the e_k being the directions before it: of length one, orthogonal to them."""

    witness: Witness
    along: np.ndarray
    """c."""
    length: float
    row: np.ndarray
    """∫ h ψψᵀ dρ, shape (r, r)."""
    of_the_data: float
    """⟨h, w_μ̂⟩."""


class ExtendedSpace(SoSSpace):
    """A space with more coordinates: those of its landmarks, then those along the directions."""

    def __init__(self, base: SoSSpace, directions: list[Direction]) -> None:
        self.__dict__.update({name: value for name, value in vars(base).items() if name not in ("map", "compressed_map")})
        self.base, self.directions = base, directions
        rows = np.stack([direction.row for direction in directions])
        self._map = CompressedMap(np.concatenate([to_numpy(base.compressed_map.tensor), rows]))

    @property
    def embedding_rank(self) -> int:
        """q: landmarks' coordinates and directions together."""
        return self.base.embedding_rank + len(self.directions)

    @property
    def map(self) -> EmbeddingMap:
        """A."""
        return self._map

    @property
    def compressed_map(self) -> CompressedMap:
        """The same."""
        return self._map

    def coordinates(self, target: Any) -> Array:
        """z: of samples, an embedding or a density."""
        target = as_target(target, self.embedding_kernel)
        z = to_numpy(self.base.coordinates(target))
        for direction in self.directions:
            known = direction.of_the_data if target is direction.witness.data else None
            z = np.append(z, known if known is not None else (_product(direction.witness, target) - direction.along @ z) / direction.length)
        return z


def seeing(space: SoSSpace, C: np.ndarray, witness: Witness, distance: float) -> ExtendedSpace | None:
    """The space that also sees the direction in which the density of C, at an exact ``distance`` from the data, is away from them.

    None where nothing but rounding is left of it.
    """
    base, directions = (space.base, space.directions) if isinstance(space, ExtendedSpace) else (space, [])
    z = to_numpy(space.coordinates(witness.data))
    along = to_numpy(space.compressed_map.apply(C)) - z
    square = distance**2 - float(along @ along)
    if square <= _ROUNDING * max(distance**2, 1e-6):
        return None
    length = math.sqrt(square)
    M = witness.matrix(space.kernel, to_numpy(space.support_points), space.measure, space.log_unit, to_numpy(space.T)).values
    row = (M - to_numpy(space.compressed_map.adjoint(along))) / length
    of_the_data = (_product(witness, witness.data) - float(along @ z)) / length
    return ExtendedSpace(base, [*directions, Direction(witness, along, length, row, of_the_data)])


def _product(witness: Witness, target: MeanEmbedding | SoSDensity) -> float:
    """⟨w_target, w_p − w_μ̂⟩."""
    if isinstance(target, MeanEmbedding):
        return float(to_numpy(target.weights) @ witness(to_numpy(target.points)))
    kernel = witness.data.kernel
    return exact_inner(target, witness.p, kernel) - exact_inner(target, witness.data, kernel)


def dual_function(space: SoSSpace, y: np.ndarray) -> tuple[Observable, KernelFunction, float]:
    """g with coordinates y; the part of it in the span of the landmarks; the norm of that part."""
    directions = space.directions if isinstance(space, ExtendedSpace) else []
    S, q = to_numpy(space.projection.S), y.shape[0] - len(directions)
    landmarks, kernel = to_numpy(space.landmarks), space.embedding_kernel
    near = KernelFunction(landmarks, S.T @ y[:q], kernel=kernel)
    rest, scales = y.copy(), []
    for j in range(len(directions) - 1, -1, -1):  # from the last direction on, which no other one looks at
        scale = rest[q + j] / directions[j].length
        rest[: q + j] -= scale * directions[j].along
        scales.append((scale, directions[j].witness))
    g: Observable = KernelFunction(landmarks, S.T @ rest[:q], kernel=kernel)
    for scale, witness in scales:
        g = g + scale * witness
    return g, near, float(np.linalg.norm(y[:q]))
