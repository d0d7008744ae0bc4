"""The densities that tests are made with, defined once."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
from tables import PairCase, points

from ksos import SoSDensity
from ksos.density import Square, Terms, from_terms
from ksos.kernels import Gaussian, Kernel
from ksos.measures import Lebesgue, Measure

__all__ = ["from_square", "make_density", "normal", "random_density", "stacked"]


def random_density(
    kernel: Kernel,
    measure: Measure | None = None,
    d: int = 1,
    m: int = 5,
    rank: int = 2,
    seed: int = 0,
) -> SoSDensity:
    """Support points in a small cloud and a random factor, with weights of both signs."""
    factor = np.random.default_rng(seed + 2).normal(size=(m, rank))
    return SoSDensity(kernel, points(m, d, seed), factor, measure, normalize=True)


def make_density(pair: PairCase, m: int = 5, rank: int = 2, seed: int = 0) -> SoSDensity:
    """A random density of a pair of kernel and measure."""
    return random_density(pair.kernel, pair.measure, pair.d, m, rank, seed)


def normal(
    mean: Sequence[float] = (0.0,), deviation: float = 1.0, measure: Measure | None = None
) -> SoSDensity:
    """A normal density with one deviation for all features."""
    return SoSDensity(Gaussian(2.0 * deviation), [list(mean)], [[1.0]], measure, normalize=True)


def stacked(
    densities: Sequence[SoSDensity],
    weights: Sequence[float] | None = None,
    measure: Measure | None = None,
) -> SoSDensity:
    """A sum of the terms of these densities, also where one term could hold all of them."""
    shares = np.ones(len(densities)) if weights is None else np.asarray(weights, dtype=float)
    parts = [
        (w * v, term)
        for p, w in zip(densities, shares / shares.sum(), strict=True)
        for v, term in p.terms.parts
    ]
    same = all(p.measure == densities[0].measure for p in densities)
    common = densities[0].measure if same else Lebesgue()
    relative = common if measure is None else measure
    # squares relative to normal densities go by volume, as in ksos.mixture
    return from_terms(Terms(Terms(parts, relative).parts, relative, check=True))


def from_square(*arguments: Any) -> SoSDensity:
    """The density of a square with these fields, as they are."""
    return from_terms(Square(*arguments))
