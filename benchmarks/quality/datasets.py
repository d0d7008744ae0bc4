"""Every data set by name, with its truth where it is known."""

from __future__ import annotations

import zlib
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, Protocol

import numpy as np

from quality import real
from quality.blobs import blobs
from quality.bounded import ClaytonCopula, beta_1_3, half_normal_like
from quality.marron_wand import MARRON_WAND
from quality.other import OTHER
from quality.planar import Pinwheel, Rings, spirals, two_moons

__all__ = ["CONTEST", "DATASETS", "SIZES", "DataSet", "Law", "Split"]

SIZES = (100, 400, 1600)
CONTEST = ("Marron–Wand", "plane", "blobs", "real")
"""The groups whose cells count."""
N_TEST = 4000


class Law(Protocol):
    """A distribution with a known density."""

    def sample(self, n: int, rng: np.random.Generator) -> np.ndarray: ...

    def logpdf(self, X: np.ndarray) -> np.ndarray: ...


@dataclass(frozen=True)
class Split:
    """What is fitted and what is predicted."""

    train: np.ndarray
    test: np.ndarray


@dataclass(frozen=True)
class DataSet:
    """A source of samples; ``law`` is None for real data, ``box`` is what may be told to estimators
    that know walls.
    """

    name: str
    group: str
    d: int
    sizes: tuple[int, ...]
    law: Law | None = None
    mixture: bool = False
    """Whether the truth is a Gaussian mixture: the home ground of one contestant."""
    box: tuple[list[float], list[float]] | None = None
    sampler: Callable[[int, np.random.Generator], np.ndarray] | None = None
    """Of a law whose density is not known in closed form."""

    def split(self, n: int, seed: int) -> Split:
        """The samples of one run: a function of the name, n and the seed, the same on every
        machine.
        """
        rng = np.random.default_rng([zlib.crc32(self.name.encode()), n, seed])
        sample = self.sampler if self.law is None else self.law.sample
        if sample is None:
            return Split(*real.split(self.name, rng))
        train = sample(n, rng)
        return Split(train, sample(N_TEST, rng))

    def window(self) -> tuple[np.ndarray, np.ndarray]:
        """A box around the truth, for quadrature; d ≤ 2."""
        if self.law is None or self.d > 2:
            raise ValueError(
                f"{self.name} has no window: quadrature is for known densities in one or two"
                " dimensions"
            )
        points = self.law.sample(4000, np.random.default_rng(0))
        low, high = points.min(axis=0), points.max(axis=0)
        return low - 0.35 * (high - low), high + 0.35 * (high - low)


def _table() -> dict[str, DataSet]:
    sets = [
        DataSet(name, "Marron–Wand", 1, SIZES, law, mixture=True)
        for name, law in MARRON_WAND.items()
    ]
    shapes: dict[str, Any] = {
        "two_moons": two_moons(),
        "rings": Rings(),
        "pinwheel": Pinwheel(),
        "spirals": spirals(),
    }
    sets += [DataSet(name, "plane", 2, SIZES, law) for name, law in shapes.items()]
    sets += [
        DataSet("clayton_beta", "plane", 2, SIZES, ClaytonCopula(), box=([0.0, 0.0], [1.0, 1.0]))
    ]
    sets += [DataSet(f"blobs_d{d}", "blobs", d, SIZES, blobs(d), mixture=True) for d in (3, 5, 10)]
    sets += [DataSet(name, "real", d, (0,)) for name, (_, d, _) in real.REAL.items()]
    sets += [DataSet("beta_1_3", "walls", 1, (400,), beta_1_3(), box=([0.0], [1.0]))]
    sets += [
        DataSet("truncated_normal", "walls", 1, (400,), half_normal_like(), box=([-0.5], [np.inf]))
    ]
    sets += [
        DataSet(name, "other", d, (200, 1000), sampler=sampler)
        for name, (sampler, d) in OTHER.items()
    ]
    sets += [DataSet(name, "other", d, (0,)) for name, (_, d, _) in real.FURTHER.items()]
    return {entry.name: entry for entry in sets}


DATASETS: dict[str, DataSet] = _table()
"""Every data set by name. Size 0 means: all there is (two thirds of a real data set)."""
