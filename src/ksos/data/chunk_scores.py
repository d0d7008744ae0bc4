"""Log-densities of samples that come in chunks: one chunk after the other, in a file, or only their
mean.
"""

from __future__ import annotations

import io
import os
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
from numpy.lib import format as npy

from ksos.data.passes import Checks
from ksos.data.sources import Chunk
from ksos.density import SoSDensity
from ksos.ground import replace_whole, to_numpy


@dataclass(frozen=True)
class LogDensity:
    """The map of a chunk to the log-densities of its rows, shape (n,); it can be pickled."""

    checks: Checks
    density: SoSDensity

    def __call__(self, chunk: Chunk) -> np.ndarray:
        return self.weighted(chunk)[0]

    def weighted(self, chunk: Chunk) -> tuple[np.ndarray, np.ndarray]:
        """The log-densities, and the masses of the rows."""
        rows, _ = self.checks.rows(chunk)
        scores = self.density.logpdf(rows.points) if rows.points.shape[0] else np.empty(0)
        return to_numpy(scores), to_numpy(rows.masses)


@dataclass(frozen=True)
class MeanScore:
    """Σ_i a_i log p(x_i) and Σ_i a_i of the chunks so far; a row of weight zero does not count,
    even where its density is zero.
    """

    of: LogDensity
    total: float = 0.0
    mass: float = 0.0

    def update(self, chunk: Chunk) -> MeanScore:
        scores, masses = self.of.weighted(chunk)
        # 0 · −∞ is not a number
        counted = masses > 0.0
        return replace(
            self,
            total=self.total + float(masses[counted] @ scores[counted]),
            mass=self.mass + float(masses.sum()),
        )

    def merge(self, other: MeanScore) -> MeanScore:
        return replace(self, total=self.total + other.total, mass=self.mass + other.mass)

    @property
    def value(self) -> float:
        """The mean."""
        if not self.mass > 0.0:
            raise ValueError("the source has no samples of positive weight; there is no mean score")
        return self.total / self.mass


def written(
    chunks: Iterable[Any], path: str | os.PathLike[str], row: tuple[int, ...] = ()
) -> np.ndarray:
    """The numbers of all chunks in an NPY file, written whole or not at all, and mapped to memory
    to be read. ``row`` is the shape of what belongs to a sample, such as () for scores.
    """
    count = 0

    def head() -> bytes:
        """The header for as many rows; NumPy leaves space in it for a number that grows."""
        buffer, dtype = io.BytesIO(), npy.dtype_to_descr(np.dtype(np.float64))
        layout = {"descr": dtype, "fortran_order": False, "shape": (count, *row)}
        npy.write_array_header_1_0(buffer, layout)
        return buffer.getvalue()

    def parts() -> Iterator[bytes | memoryview]:
        nonlocal count
        # written again when the count is known, over the same bytes
        yield head()
        for chunk in chunks:
            count += chunk.shape[0]
            yield np.ascontiguousarray(chunk).data

    replace_whole(path, parts(), head)
    return np.load(path, mmap_mode="r")
