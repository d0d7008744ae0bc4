"""Stand-ins for a Ray data set and a Spark data frame: as much of them as docs/large-data.md
uses, pickles in between included.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

import cloudpickle  # Dask brings it
import numpy as np
import pyarrow

SAMPLES = np.random.default_rng(1).normal(size=(5_000, 2))
TABLE = pyarrow.table({"id": np.arange(len(SAMPLES)), "v": SAMPLES[:, 1], "u": SAMPLES[:, 0]})


def elsewhere(function: Callable[..., Any]) -> Callable[..., Any]:
    """The function as a worker receives it."""
    return cloudpickle.loads(cloudpickle.dumps(function))


class Dataset:
    """``ray.data.Dataset``: functions of batches, and rows."""

    def __init__(self, blocks: list[Any]) -> None:
        self.blocks = blocks

    def map_batches(
        self, fn: Callable[[Any], Any], *, batch_format: str, batch_size: int
    ) -> Dataset:
        assert batch_format == "pyarrow" and batch_size > 0
        return Dataset([elsewhere(fn)(block) for block in self.blocks])

    def iter_rows(self) -> Iterator[dict[str, Any]]:
        for block in self.blocks:
            yield from block.to_pylist()


class Frame:
    """``pyspark.sql.DataFrame``: functions of the record batches of a partition; collected binary
    cells are bytearrays.
    """

    def __init__(self, partitions: list[list[Any]]) -> None:
        self.partitions = partitions

    def mapInArrow(self, func: Callable[[Iterator[Any]], Iterator[Any]], schema: str) -> Frame:
        names = [field.split()[0] for field in schema.split(",")]
        found = [list(elsewhere(func)(iter(batches))) for batches in self.partitions]
        assert all(batch.schema.names == names for batches in found for batch in batches)
        return Frame(found)

    def collect(self) -> list[dict[str, Any]]:
        rows = [
            row for batches in self.partitions for batch in batches for row in batch.to_pylist()
        ]
        return [
            {
                name: bytearray(cell) if isinstance(cell, bytes) else cell
                for name, cell in row.items()
            }
            for row in rows
        ]


dataset = Dataset([TABLE.slice(0, 2_000), TABLE.slice(2_000)])
frame = Frame([TABLE.slice(0, 4_000).to_batches(1_500), TABLE.slice(4_000).to_batches(700), []])
