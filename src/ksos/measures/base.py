"""What ρ is: the reference measure that a density is a density of."""

from __future__ import annotations

from abc import ABC, abstractmethod
from typing import Any, ClassVar, Self

import numpy as np

from ksos._array import Array, namespace, zeros

__all__ = ["Measure", "everywhere"]


def everywhere(X: Array) -> Array:
    """True for each row of ``X``."""
    xp = namespace(X)
    return xp.ones((X.shape[0],), dtype=xp.bool, device=X.device)


class Measure(ABC):
    """A reference measure ρ on R^d; :attr:`n_features` is d, or None where any d will do."""

    name: ClassVar[str]
    n_features: int | None = None

    @abstractmethod
    def contains(self, X: Array) -> Array:
        """Whether each row of ``X`` lies in the support of ρ; a density is 0 elsewhere."""

    def walls(self, feature: int) -> tuple[float, float]:
        """The interval of a feature that the measure lives on."""
        return -np.inf, np.inf

    def log_density(self, X: Array) -> Array:
        """log dρ/dx at the rows of ``X``, for a measure with a density with respect to Lebesgue measure."""
        xp = namespace(X)
        zero = zeros((X.shape[0],), X)
        return xp.where(self.contains(X), zero, zero - np.inf)

    @abstractmethod
    def restrict(self, features: Any) -> Self:
        """The measure of some of the features."""

    @abstractmethod
    def parameters(self) -> dict[str, Any]:
        """The constructor arguments, as numbers and arrays."""

    def check_features(self, d: int) -> None:
        """Raise when points with ``d`` features cannot live here."""
        if self.n_features is not None and self.n_features != d:
            raise ValueError(
                f"{type(self).__name__} measure has {self.n_features} features, but the points have {d}; give it one entry per feature"
            )

    def __eq__(self, other: object) -> bool:
        if type(self) is not type(other):
            return False
        mine, theirs = self.parameters(), other.parameters()
        return all(np.array_equal(mine[key], theirs[key]) for key in mine)

    def __hash__(self) -> int:
        return hash((type(self), *(np.asarray(value).tobytes() for value in self.parameters().values())))

    def __repr__(self) -> str:
        listed = (f"{key}={np.asarray(value).tolist()}" for key, value in self.parameters().items())
        return f"{type(self).__name__}({', '.join(listed)})"
