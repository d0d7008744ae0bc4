"""Small densities that the tests of the pictures share, and the promise that a picture changes
nothing global.
"""

from __future__ import annotations

from collections.abc import Iterator

import matplotlib as mpl
import matplotlib.pyplot as plt
import numpy as np
import pytest
from densities import random_density

import ksos
from ksos.kernels import Gaussian


@pytest.fixture(autouse=True)
def nothing_global_changes() -> Iterator[None]:
    """Every test here leaves matplotlib's settings and NumPy's error state as they were; its
    figures are closed.
    """
    before, errors = dict(mpl.rcParams), np.geterr()
    yield
    plt.close("all")
    assert dict(mpl.rcParams) == before and np.geterr() == errors


@pytest.fixture
def line() -> ksos.SoSDensity:
    return random_density(Gaussian(0.8), None, 1, m=6)


@pytest.fixture
def plane() -> ksos.SoSDensity:
    return random_density(Gaussian([0.8, 0.5]), None, 2, m=6)


@pytest.fixture
def four() -> ksos.SoSDensity:
    return random_density(Gaussian(1.0), None, 4, m=6)
