"""What a model of y given x must know for :class:`~ksos.KernelSoSConditional`, for many rows x at once."""

from __future__ import annotations

import os
from abc import ABC, abstractmethod
from typing import Any

import numpy as np

from ksos.density import SoSDensity
from ksos.density.mixture import SoSMixture

__all__ = ["ConditionalLaws"]


class ConditionalLaws(ABC):
    """The laws of k outputs y given rows x. Input has been checked; outputs are columns, also where there is one only."""

    n_outputs: int

    @abstractmethod
    def logpdf(self, X: Any, targets: np.ndarray) -> np.ndarray:
        """log p(y_i | x_i), shape (n,)."""

    @abstractmethod
    def grid_logpdf(self, X: Any, targets: np.ndarray) -> np.ndarray:
        """log p(y_j | x_i), shape (n, number of targets)."""

    @abstractmethod
    def moments(self, X: Any) -> tuple[np.ndarray, np.ndarray]:
        """Means and standard deviations, each (n, k)."""

    @abstractmethod
    def cdf(self, X: Any, targets: np.ndarray) -> np.ndarray:
        """P(y_k ≤ targets_ik | x_i), output by output, shape (n, k)."""

    @abstractmethod
    def grid_cdf(self, X: Any, values: np.ndarray) -> np.ndarray:
        """P(y ≤ values_j | x_i) of the only output, shape (n, number of values)."""

    @abstractmethod
    def quantile(self, X: Any, levels: np.ndarray) -> np.ndarray:
        """y_k with P(y_k' ≤ y_k | x_i) = level, shape (n, levels, k); not decreasing in the level."""

    @abstractmethod
    def sample(self, X: Any, count: int, rng: np.random.Generator) -> np.ndarray:
        """Independent draws for every row, (n, count, k)."""

    @abstractmethod
    def at(self, X: Any) -> SoSDensity | SoSMixture:
        """The law at the only row of ``X``."""

    @abstractmethod
    def save(self, path: str | os.PathLike[str]) -> None:
        """Write the density that the laws are made of."""
