"""Regression tables: Friedman's three functions with five kinds of noise, and two small tables of
scikit-learn.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass

import numpy as np

__all__ = ["DATASETS", "NOISES", "SIZES", "DataSet", "Split"]

SIZES = (300, 1000, 10_000)
TEST_ROWS = 4000
NOISE_TO_SIGNAL = 0.35


@dataclass(frozen=True)
class Split:
    """Rows to fit and rows to judge by; ``y`` has one column per target, and each is a problem of
    its own.
    """

    X: np.ndarray
    y: np.ndarray
    X_test: np.ndarray
    y_test: np.ndarray


@dataclass(frozen=True)
class DataSet:
    name: str
    sizes: tuple[int, ...]
    split: Callable[[int, int], Split]


def _normal(rng: np.random.Generator, x: np.ndarray) -> np.ndarray:
    return rng.normal(size=x.shape[0])


def _heteroscedastic(rng: np.random.Generator, x: np.ndarray) -> np.ndarray:
    """A spread from 0.2 to 1.8 along the first feature, which also moves the mean."""
    return (0.2 + 1.6 * x[:, 0]) * rng.normal(size=x.shape[0])


def _skewed(rng: np.random.Generator, x: np.ndarray) -> np.ndarray:
    return rng.exponential(size=x.shape[0]) - 1.0


def _bimodal(rng: np.random.Generator, x: np.ndarray) -> np.ndarray:
    return 0.95 * rng.choice([-1.0, 1.0], size=x.shape[0]) + math.sqrt(1.0 - 0.95**2) * rng.normal(
        size=x.shape[0]
    )


def _heavy_tailed(rng: np.random.Generator, x: np.ndarray) -> np.ndarray:
    """Student's t with three degrees of freedom, variance one."""
    return rng.standard_t(3, size=x.shape[0]) / math.sqrt(3.0)


NOISES = {
    "constant": _normal,
    "heteroscedastic": _heteroscedastic,
    "skewed": _skewed,
    "bimodal": _bimodal,
    "heavy_tailed": _heavy_tailed,
}


def _friedman1(x: np.ndarray) -> np.ndarray:
    return (
        10.0 * np.sin(np.pi * x[:, 0] * x[:, 1])
        + 20.0 * (x[:, 2] - 0.5) ** 2
        + 10.0 * x[:, 3]
        + 5.0 * x[:, 4]
    )


def _circuit(x: np.ndarray) -> np.ndarray:
    """Friedman's four ranges of an alternating-current circuit from the unit cube."""
    low, high = np.array([0.0, 40.0 * np.pi, 0.0, 1.0]), np.array([100.0, 560.0 * np.pi, 1.0, 11.0])
    return low + (high - low) * x[:, :4]


def _reactance(z: np.ndarray) -> np.ndarray:
    return z[:, 1] * z[:, 2] - 1.0 / (z[:, 1] * z[:, 3])


def _friedman2(x: np.ndarray) -> np.ndarray:
    z = _circuit(x)
    return np.hypot(z[:, 0], _reactance(z))


def _friedman3(x: np.ndarray) -> np.ndarray:
    z = _circuit(x)
    return np.arctan2(_reactance(z), z[:, 0])


_FUNCTIONS = {
    "friedman1": (_friedman1, 10),
    "friedman2": (_friedman2, 4),
    "friedman3": (_friedman3, 4),
}


def _friedman(
    function: Callable[[np.ndarray], np.ndarray], d: int, noise: Callable[..., np.ndarray]
) -> Callable[[int, int], Split]:
    spread = NOISE_TO_SIGNAL * float(function(np.random.default_rng(0).random((100_000, d))).std())

    def split(n: int, seed: int) -> Split:
        rng = np.random.default_rng([seed, n])
        x = rng.random((n + TEST_ROWS, d))
        y = (function(x) + spread * noise(rng, x))[:, None]
        return Split(x[:n], y[:n], x[n:], y[n:])

    return split


def _table(name: str) -> Callable[[int, int], Split]:
    def split(n: int, seed: int) -> Split:
        from sklearn import datasets

        X, y = getattr(datasets, f"load_{name}")(return_X_y=True)
        order = np.random.default_rng([seed, n]).permutation(X.shape[0])
        X, y = X[order], y.reshape(X.shape[0], -1)[order]
        return Split(X[:n], y[:n], X[n:], y[n:])

    return split


DATASETS = {
    data.name: data
    for data in [
        *(
            DataSet(f"{name}_{kind}", SIZES, _friedman(function, d, noise))
            for name, (function, d) in _FUNCTIONS.items()
            for kind, noise in NOISES.items()
        ),
        DataSet("diabetes", (300,), _table("diabetes")),
        DataSet("linnerud", (15,), _table("linnerud")),
    ]
}
