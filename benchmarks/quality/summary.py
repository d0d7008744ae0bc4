"""Averages over seeds with standard errors, paired differences, and shares of cells."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from quality.datasets import DATASETS
from quality.records import Record

__all__ = ["Cell", "Estimate", "Share", "best_of", "cells", "share_ahead"]


@dataclass(frozen=True)
class Estimate:
    """A mean over seeds and its standard error."""

    mean: float
    error: float
    count: int


@dataclass(frozen=True)
class Cell:
    """All records of one data set at one size."""

    data: Any
    """A data set: its ``name`` and ``sizes``."""
    n: int
    records: dict[str, dict[int, Record]]
    """Contestant → seed → record."""

    @property
    def label(self) -> str:
        sizes = {
            record["n_train"] for by_seed in self.records.values() for record in by_seed.values()
        }
        return f"{self.data.name}, n = {'/'.join(map(str, sorted(sizes)))}"

    @property
    def n_train(self) -> int:
        """Of the smallest sample."""
        return min(
            record["n_train"] for by_seed in self.records.values() for record in by_seed.values()
        )

    def values(self, contestant: str, field: str) -> dict[int, float]:
        """Seed → value, where it was measured."""
        found = self.records.get(contestant, {})
        return {
            seed: record[field]
            for seed, record in found.items()
            if field in record and not math.isnan(record[field])
        }

    def estimate(self, contestant: str, field: str) -> Estimate | None:
        return _estimate(list(self.values(contestant, field).values()))

    def difference(
        self, contestant: str, other: str, field: str = "log_likelihood"
    ) -> Estimate | None:
        """Mean of contestant − other over the seeds that both have: the samples are the same, so
        most of their noise cancels.
        """
        mine, theirs = self.values(contestant, field), self.values(other, field)
        return _estimate(
            [mine[seed] - theirs[seed] for seed in sorted(mine.keys() & theirs.keys())]
        )

    def errors(self) -> list[str]:
        return [
            f"{self.label}, seed {seed}, {name}: {record['error']}"
            for name, by_seed in self.records.items()
            for seed, record in by_seed.items()
            if "error" in record
        ]


def _estimate(values: Sequence[float]) -> Estimate | None:
    if not values:
        return None
    x = np.array(values)
    if not np.all(np.isfinite(x)):
        return Estimate(float(x.sum()), math.nan, x.size)
    return Estimate(
        float(x.mean()),
        float(x.std(ddof=1) / math.sqrt(x.size)) if x.size > 1 else math.nan,
        x.size,
    )


def cells(records: Sequence[Record], datasets: Mapping[str, Any] = DATASETS) -> list[Cell]:
    """The records by data set and size, in the order of the table of data sets."""
    gathered: dict[tuple[str, int], dict[str, dict[int, Record]]] = {}
    for record in records:
        gathered.setdefault((record["dataset"], record["n"]), {}).setdefault(
            record["contestant"], {}
        )[record["seed"]] = record
    return [
        Cell(data, n, gathered[data.name, n])
        for data in datasets.values()
        for n in data.sizes
        if (data.name, n) in gathered
    ]


def best_of(cell: Cell, names: Sequence[str]) -> str | None:
    """Whoever of these predicts best in this cell; None where one of them was not measured."""
    means = {
        name: found.mean
        for name in names
        if (found := cell.estimate(name, "log_likelihood")) is not None
    }
    return max(means, key=lambda name: means[name]) if len(means) == len(names) else None


@dataclass(frozen=True)
class Share:
    """In how many of the cells the difference is positive, and where it is not."""

    ahead: int
    total: int
    behind: list[tuple[Cell, Estimate]]
    """Worst first."""

    @property
    def worst(self) -> float:
        return self.behind[0][1].mean if self.behind else 0.0

    @property
    def clearly(self) -> int:
        """Behind by more than two standard errors."""
        return sum(not -found.mean <= 2.0 * found.error for _, found in self.behind)

    def __str__(self) -> str:
        return f"{self.ahead} of {self.total}" if self.total else "not measured"


def share_ahead(
    among: Sequence[Cell], contestant: str, other: Callable[[Cell], str | None]
) -> Share:
    """The share of cells in which ``contestant`` has the higher held-out log-likelihood, by the
    mean paired difference.
    """
    differences = [
        (cell, found)
        for cell in among
        if (name := other(cell)) is not None
        and (found := cell.difference(contestant, name)) is not None
    ]
    behind = sorted(
        ((cell, found) for cell, found in differences if not found.mean > 0.0),
        key=lambda pair: pair[1].mean,
    )
    return Share(len(differences) - len(behind), len(differences), behind)
