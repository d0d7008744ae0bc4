"""Embeddings of samples that come in chunks: their kernel sums at landmarks, or the samples
themselves if they are few.
"""

from __future__ import annotations

from dataclasses import dataclass, replace

import numpy as np

from ksos.data.kernel_sums import KernelSums
from ksos.data.sources import Chunk, Chunks
from ksos.ground.arrays import Array, to_numpy
from ksos.ground.names import order_of
from ksos.ground.validation import as_points, as_vector
from ksos.kernels import Kernel

__all__ = ["MOST_IN_MEMORY", "few_samples", "sums_at"]

MOST_IN_MEMORY = 20_000
"""So many samples are gathered where every pair of them counts."""


@dataclass(frozen=True, eq=False)
class _Sums:
    """Kernel sums that grow by chunks, their columns in the order of ``names``."""

    sums: KernelSums
    names: tuple[str, ...] | None

    def update(self, chunk: Chunk) -> _Sums:
        X, a = _rows(chunk, self.names)
        return replace(self, sums=self.sums.update(X, a)) if X.shape[0] else self

    def merge(self, other: _Sums) -> _Sums:
        return replace(self, sums=self.sums.merge(other.sums))


@dataclass(frozen=True, eq=False)
class _Few:
    """All samples and their weights as long as there are at most ``MOST_IN_MEMORY``, and then only
    how many.
    """

    names: tuple[str, ...] | None
    count: int = 0
    rows: tuple[tuple[np.ndarray, np.ndarray], ...] = ()

    def update(self, chunk: Chunk) -> _Few:
        X, a = _rows(chunk, self.names)
        return self.merge(_Few(self.names, X.shape[0], ((X, a),) if X.shape[0] else ()))

    def merge(self, other: _Few) -> _Few:
        count = self.count + other.count
        return _Few(self.names, count, () if count > MOST_IN_MEMORY else (*self.rows, *other.rows))


def sums_at(
    source: Chunks, kernel: Kernel, landmarks: Array, names: tuple[str, ...] | None
) -> KernelSums:
    """Σ_i a_i k(x_i, z_j) over all samples, in one pass."""
    return source.gather(_Sums(KernelSums(kernel, landmarks), names)).sums


def few_samples(
    source: Chunks, names: tuple[str, ...] | None, what: str
) -> tuple[np.ndarray, np.ndarray]:
    """All samples with their shares of the mass; an error if they are too many for a sum over all
    pairs.
    """
    found = source.gather(_Few(names))
    if not found.count:
        raise ValueError(
            f"{what}, {source!r}, is empty: no chunk has rows; at least one sample is needed"
        )
    if found.count > MOST_IN_MEMORY:
        raise ValueError(
            f"{what}, {source!r}, has {found.count} samples, and the exact MMD takes all pairs of"
            " them; pass landmarks=, an array of points on which both are projected, or at most"
            f" {MOST_IN_MEMORY} samples"
        )
    points, weights = (np.concatenate(parts) for parts in zip(*found.rows, strict=True))
    return points, weights / weights.sum()


def _rows(chunk: Chunk, names: tuple[str, ...] | None) -> tuple[np.ndarray, np.ndarray]:
    """The samples of a chunk and their weights; an error names the chunk."""
    X = to_numpy(as_points(chunk.data, chunk.name, allow_empty=True))
    order = None if chunk.names is None else order_of(chunk.names, names, chunk.name)
    a = (
        np.ones(X.shape[0])
        if chunk.weights is None
        else as_vector(chunk.weights, f"{chunk.name}: weights", length=X.shape[0])
    )
    return X if order is None else X[:, order], a
