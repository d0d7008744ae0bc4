"""Tables as they come, on which nothing was tuned: features tied by laws of nature, long tails,
mixed scales, thin manifolds.
"""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
from scipy.special import expit

__all__ = ["OTHER"]

Sampler = Callable[[int, np.random.Generator], np.ndarray]


def _shells(n: int, rng: np.random.Generator) -> np.ndarray:
    """Six measures of an animal: lengths in proportion, weights with the third power of length,
    thickness of its own.
    """
    length = 0.7 * rng.beta(6.0, 2.5, n)
    width = 0.8 * length * np.exp(0.04 * rng.normal(size=n))
    height = 0.27 * length * np.exp(0.12 * rng.normal(size=n))
    whole = 9.0 * length * width * height * np.exp(0.1 * rng.normal(size=n))
    meat = whole * expit(-0.3 + 0.2 * rng.normal(size=n))
    shell = (whole - meat) * expit(0.8 + 0.15 * rng.normal(size=n))
    return np.stack([length, width, height, whole, meat, shell], axis=1)


def _plant(n: int, rng: np.random.Generator) -> np.ndarray:
    """A power plant: seasons in temperature, vacuum and humidity that follow it, an output that
    falls with both.
    """
    warm = rng.random(n) < 0.45
    temperature = np.where(warm, rng.normal(26.0, 4.0, n), rng.normal(12.0, 4.5, n))
    vacuum = (
        np.where(warm, 65.0, 43.0)
        + 0.35 * temperature
        + rng.normal(size=n) * np.where(warm, 5.0, 2.0)
    )
    pressure = 1014.0 - 0.25 * (temperature - 19.0) + rng.normal(0.0, 5.0, n)
    humidity = 100.0 * expit(1.6 - 0.05 * (temperature - 19.0) + 0.6 * rng.normal(size=n))
    output = (
        499.0
        - 1.9 * temperature
        - 0.2 * (vacuum - 50.0)
        - 0.1 * (humidity - 70.0)
        + rng.normal(0.0, 3.5, n)
    )
    return np.stack([temperature, vacuum, pressure, humidity, output], axis=1)


def _households(n: int, rng: np.random.Generator) -> np.ndarray:
    """Age, schooling, hours and the logarithms of income, rent and savings: three kinds of
    households, noise that grows with income.
    """
    kind = rng.choice(3, n, p=[0.5, 0.3, 0.2])
    age = np.array([42.0, 27.0, 69.0])[kind] + np.array([9.0, 4.0, 7.0])[kind] * rng.normal(size=n)
    school = np.array([13.0, 15.5, 10.5])[kind] + 1.8 * rng.normal(size=n)
    hours = np.array([39.0, 24.0, 4.0])[kind] + np.array([3.0, 9.0, 2.0])[kind] * rng.normal(size=n)
    income = 8.6 + 0.09 * school + 0.012 * hours + 0.25 * rng.standard_t(5.0, n)
    rent = -1.3 + 0.72 * income + 0.15 * rng.normal(size=n)
    savings = 0.7 * income + 0.03 * age + (0.3 + 0.3 * np.abs(income - 10.0)) * rng.normal(size=n)
    return np.stack([age, school, hours, income, rent, savings], axis=1)


def _long_tails(n: int, rng: np.random.Generator) -> np.ndarray:
    """A Student law with four degrees of freedom in five features tied by one factor."""
    loadings = np.array([1.0, 0.9, 0.7, -0.8, 0.3])
    normal = rng.normal(size=(n, 1)) * loadings + 0.4 * rng.normal(size=(n, 5))
    return normal * np.sqrt(4.0 / rng.chisquare(4.0, (n, 1)))


def _roll(n: int, rng: np.random.Generator) -> np.ndarray:
    """A sheet rolled up in space, thin against its width."""
    angle = 1.5 * np.pi * (1.0 + 2.0 * rng.random(n))
    sheet = np.stack([angle * np.cos(angle), 21.0 * rng.random(n), angle * np.sin(angle)], axis=1)
    return sheet + 0.4 * rng.normal(size=(n, 3))


def _response(n: int, rng: np.random.Generator) -> np.ndarray:
    """Four uniform inputs and a smooth response of all of them, with little noise: a density on a
    curved surface inside a box.
    """
    X = rng.random((n, 4))
    y = (
        10.0 * np.sin(np.pi * X[:, 0] * X[:, 1])
        + 20.0 * (X[:, 2] - 0.5) ** 2
        + 10.0 * X[:, 3]
        + rng.normal(size=n)
    )
    return np.column_stack([X, y])


OTHER: dict[str, tuple[Sampler, int]] = {
    "shells": (_shells, 6),
    "plant": (_plant, 5),
    "households": (_households, 6),
    "long_tails": (_long_tails, 5),
    "roll": (_roll, 3),
    "response": (_response, 5),
}
"""Name: sampler, number of features."""
