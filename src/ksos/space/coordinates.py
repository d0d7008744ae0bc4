"""What a space sees of an embedding: its projection on the landmarks, and its coordinates along
directions that were added later.

Landmarks are points, and with many features no manageable number of them sees every embedding. But
only one embedding must be seen exactly, that of the answer p: projecting on span{k(·, z_1), …, k(·,
z_ℓ), w_p − w_μ̂} makes the projected MMD of this p its exact one. Whatever is added, the projected
ball still contains the exact one, so that dual values stay bounds.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from ksos.data.kernel_sums import KernelSums
from ksos.density import SoSDensity
from ksos.ground.arrays import Array, to_numpy
from ksos.observables import KernelFunction, Observable
from ksos.space.embedding import MeanEmbedding, Projection, as_target
from ksos.space.embedding_map import blocks_of
from ksos.space.labelled import LabelledDensity, LabelledEmbedding

__all__ = ["Coordinates", "Direction"]


@dataclass(frozen=True)
class Direction:
    """h = (f − Σ_k along_k e_k)/length for a function f of the RKHS, the e_k being the directions
    before it: a unit vector orthogonal to them.
    """

    function: Observable
    """f."""
    along: np.ndarray
    length: float
    row: np.ndarray
    """∫ h ψψᵀ dρ, shape (r, r)."""
    data: MeanEmbedding
    """An embedding whose coordinate is known already: it is :attr:`of_data`."""
    of_data: float

    def coordinate(self, target: MeanEmbedding | SoSDensity, z: np.ndarray) -> float:
        """⟨h, w_target⟩, z being the coordinates of the target before this one."""
        return (
            self.of_data
            if target is self.data
            else (_expected(self.function, target) - float(self.along @ z)) / self.length
        )


class Coordinates:
    """Orthonormal coordinates of embeddings: those of a projection on landmarks, then one for each
    direction; with labels, one label after the other.
    """

    def __init__(
        self,
        projection: Projection,
        directions: Sequence[Direction] = (),
        labels: np.ndarray | None = None,
    ) -> None:
        self.projection, self.directions, self.labels = projection, tuple(directions), labels

    @property
    def rank(self) -> int:
        """q: how many there are."""
        return self._blocks()[-1].stop

    def _blocks(self) -> list[slice]:
        return blocks_of(
            self.projection.rank + len(self.directions),
            1 if self.labels is None else self.labels.shape[0],
        )

    def __call__(self, target: Any) -> Array:
        """z of samples, an embedding or a density, shape (q,); with labels, of a labelled embedding
        or a labelled density.
        """
        if self.labels is None:
            return self._plain(target)
        if isinstance(target, LabelledDensity):
            parts: list[tuple[float, Any]] = [
                (float(share), p)
                for share, p in zip(target.probabilities, target.densities, strict=True)
            ]
        elif isinstance(target, LabelledEmbedding):
            parts = [(1.0, part) for part in target.parts]
        else:
            raise TypeError(
                "a space with labels needs a LabelledEmbedding or a LabelledDensity; got"
                f" {target!r}"
            )
        nothing = np.zeros(self._blocks()[0].stop)
        return np.concatenate(
            [
                nothing if part is None else share * to_numpy(self._plain(part))
                for share, part in parts
            ]
        )

    def _plain(self, target: Any) -> Array:
        if (
            not isinstance(target, KernelSums) or self.directions
        ):  # along directions that are no landmarks the samples are needed
            target = as_target(target, self.projection.kernel)
        z = self.projection.coordinates(target)
        if self.directions:
            z = to_numpy(z)
            for direction in self.directions:
                z = np.append(z, direction.coordinate(target, z))
        return z

    def direction(
        self, f: Observable, along: np.ndarray, length: float, row: np.ndarray, data: MeanEmbedding
    ) -> Direction:
        """The next direction: that of f, whose coordinates are ``along`` and whose distance to what
        is seen already is ``length``.
        """
        of_data = (_expected(f, data) - float(along @ to_numpy(self._plain(data)))) / length
        return Direction(f, along, length, row, data, of_data)

    def functions(self, y: np.ndarray) -> tuple[list[Observable], list[KernelFunction], float]:
        """The g with coordinates y, one per label (without labels, one); their parts in the span of
        the landmarks; the norm of those.
        """
        found = [self._function(y[block]) for block in self._blocks()]
        return (
            [g for g, _, _ in found],
            [near for _, near, _ in found],
            float(np.linalg.norm([size for _, _, size in found])),
        )

    def _function(self, y: np.ndarray) -> tuple[Observable, KernelFunction, float]:
        S, q = to_numpy(self.projection.S), self.projection.rank
        landmarks, kernel = to_numpy(self.projection.landmarks), self.projection.kernel
        near = KernelFunction(landmarks, S.T @ y[:q], kernel=kernel)
        rest, parts = y.copy(), []
        for j in range(
            len(self.directions) - 1, -1, -1
        ):  # from the last direction on: no other one depends on it
            direction = self.directions[j]
            scale = rest[q + j] / direction.length
            rest[: q + j] -= scale * direction.along
            parts.append(scale * direction.function)
        g: Observable = KernelFunction(landmarks, S.T @ rest[:q], kernel=kernel)
        return sum(parts, g), near, float(np.linalg.norm(y[:q]))


def _expected(f: Observable, target: MeanEmbedding | SoSDensity) -> float:
    """⟨f, w_target⟩ = ∫ f dtarget."""
    if isinstance(target, MeanEmbedding):
        return float(to_numpy(target.weights) @ f(to_numpy(target.points)))
    if (p := target.terms.on_host.square) is None:
        return float(target.expectation(f))
    M = f.matrix(p.kernel, p.support_points, p.measure, p.log_unit, p.unit_factor)
    return float(np.trace(M.values))
