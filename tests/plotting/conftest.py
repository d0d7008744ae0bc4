"""Small densities that the tests of the pictures share, and the promise that a picture changes nothing global."""

from __future__ import annotations

from collections.abc import Iterator

import matplotlib as mpl
import matplotlib.pyplot as plt
import numpy as np
import pytest
from tables import points

import ksos
from ksos.kernels import Gaussian, Kernel
from ksos.measures import Measure


def density(kernel: Kernel, measure: Measure | None, d: int, m: int = 6, rank: int = 2, seed: int = 0) -> ksos.SoSDensity:
    """A density with support points in a small cloud and a random factor."""
    factor = np.random.default_rng(seed + 1).normal(size=(m, rank))
    return ksos.SoSDensity(kernel, points(m, d, seed), factor, measure, normalize=True)


@pytest.fixture(autouse=True)
def nothing_global_changes() -> Iterator[None]:
    """Every test here leaves matplotlib's settings and NumPy's error state as they were; its figures are closed."""
    before, errors = dict(mpl.rcParams), np.geterr()
    yield
    plt.close("all")
    assert dict(mpl.rcParams) == before and np.geterr() == errors


@pytest.fixture
def line() -> ksos.SoSDensity:
    return density(Gaussian(0.8), None, 1)


@pytest.fixture
def plane() -> ksos.SoSDensity:
    return density(Gaussian([0.8, 0.5]), None, 2)


@pytest.fixture
def four() -> ksos.SoSDensity:
    return density(Gaussian(1.0), None, 4)
