"""What ρ is: the reference measure that a density is a density of, and the questions that the rest
of the library asks it. Volume, on R^d or on a box, is the plainest one.
"""

from __future__ import annotations

import copy
from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping
from typing import Any, ClassVar, NamedTuple, Self

import numpy as np

from ksos.ground import Array, like, namespace, six_digits, zeros


class Atoms(NamedTuple):
    """The points (N, d) of a discrete measure and their weights (N,).

    >>> from ksos.measures import Discrete
    >>> isinstance(Discrete([[0.0], [1.0]], [0.5, 0.5]).atoms, Atoms)
    True
    """

    points: np.ndarray
    weights: np.ndarray


class Normals(NamedTuple):
    """The components of a Gaussian mixture: weights (c,) that sum to 1, means (c, d) and
    covariances (c, d, d).

    >>> from ksos.measures import Normal
    >>> found = Normal([1.0, 2.0], 0.5).normals(2)
    >>> isinstance(found, Normals), found.means.tolist(), found.covariances[0].tolist()
    (True, [[1.0, 2.0]], [[0.25, 0.0], [0.0, 0.25]])
    """

    weights: np.ndarray
    means: np.ndarray
    covariances: np.ndarray


class Measure(ABC):
    """A reference measure ρ on R^d; :attr:`n_features` is d, or None if any d will do.

    The rest of the library never asks which class a measure is of: a new measure answers these
    questions in one file.

    >>> from ksos.measures import Box
    >>> ask: Measure = Box([0.0], [2.0])
    >>> ask.bounded, ask.boundary(0), ask.contains(np.array([[1.0], [3.0]])).tolist()
    (True, (0.0, 2.0), [True, False])
    """

    name: ClassVar[str]
    n_features: int | None = None
    by_volume: ClassVar[bool] = False
    """Whether ρ is volume, on all of R^d or a part of it. If not, a change of coordinates carries ρ
    along, and densities stay.
    """

    @property
    def atoms(self) -> Atoms | None:
        """The points of a discrete measure, over which integrals are sums; None if ρ has a
        density.
        """
        return None

    @property
    def region(self) -> Box | None:
        """The bounded box that ρ fills; None if ρ is unbounded or discrete."""
        return None

    @property
    def by_components(self) -> bool:
        """Whether ρ is a mixture of normal distributions that are no products over the features:
        its densities answer component by component.
        """
        return False

    def normals(self, d: int) -> Normals | None:
        """The normal distributions whose mixture ρ is; None if it is no such mixture."""
        return None

    def log_mass(self, d: int) -> float:
        """log ρ(R^d), infinite for volume without a boundary."""
        return np.inf

    @property
    def bounded(self) -> bool:
        """Whether ρ lives on a bounded set."""
        return self.atoms is not None or self.region is not None

    @property
    def without_boundary(self) -> Measure:
        """The measure on all of R^d of which this one is the part within the boundary."""
        return self

    def boundary(self, feature: int) -> tuple[float, float]:
        """The interval of a feature that ρ lives on; its ends may be infinite."""
        return -np.inf, np.inf

    def boundaries(self, d: int) -> tuple[np.ndarray, np.ndarray]:
        """The lower and the upper ends of :meth:`boundary`, each of shape (d,)."""
        low, high = np.array([self.boundary(k) for k in range(d)]).T
        return low, high

    def normal_factor(self, d: int) -> tuple[np.ndarray, np.ndarray] | None:
        """Mean and standard deviation, per feature, of the normal density that ρ multiplies volume
        with; None if there is no such factor.
        """
        return None

    def smooth_length(self, d: int) -> np.ndarray:
        """Per feature the length on which dρ/dx is smooth, in the sense of a kernel's bandwidth;
        infinite if it is constant.
        """
        return np.full(d, np.inf)

    def contains(self, X: Array) -> Array:
        """Whether a density may be positive at each row of ``X``: true everywhere, unless ρ has a
        boundary.

        Off its nodes, a density on a discrete measure is read as the function that it is.
        """
        xp = namespace(X)
        return xp.ones((X.shape[0],), dtype=xp.bool, device=X.device)

    def require_inside(self, X: np.ndarray, masses: np.ndarray, names: Any = None) -> None:
        """Raise when a sample that counts lies where no density can be; ``names`` are those of the
        features.
        """
        self.check_features(X.shape[1])
        rows = np.flatnonzero(~self.contains(X) & (masses > 0.0))
        if rows.size:
            row = X[rows[0]].tolist()
            shown = row if names is None else dict(zip(names, row, strict=True))
            raise ValueError(
                f"{rows.size} of {X.shape[0]} samples lie outside {self!r}; the first is row"
                f" {rows[0]}: {shown}; widen it or leave them out"
            )

    def log_density(self, X: Array) -> Array:
        """log dρ/dx at the rows of ``X``, for a measure with a density with respect to Lebesgue
        measure.
        """
        xp = namespace(X)
        zero = zeros((X.shape[0],), X)
        return xp.where(self.contains(X), zero, zero - np.inf)

    @abstractmethod
    def restrict(self, features: Any) -> Self:
        """The measure of some of the features."""

    def image(self, transform: Callable[[np.ndarray], np.ndarray], scale: np.ndarray) -> Measure:
        """Where densities live after a change of coordinates: volume stays volume, every other
        measure is carried along.

        ``transform`` maps points (n, d) feature by feature, with slope ``scale`` (d,).
        """
        return self

    def linear_image(self, A: np.ndarray, b: np.ndarray) -> Measure:
        """The same for x ↦ Ax + b with any invertible matrix A (d, d)."""
        if np.array_equal(A, np.diag(np.diagonal(A))):
            return self.image(lambda X: X * np.diagonal(A) + b, np.diagonal(A))
        raise ValueError(
            f"the image of {self!r} under a matrix that mixes features is no such measure; scale"
            " feature by feature instead"
        )

    def for_features(self, d: int) -> Measure:
        """The same measure with one entry of each parameter per feature, so that equal measures of
        ``d`` features compare equal.
        """
        return self

    @abstractmethod
    def parameters(self) -> dict[str, Any]:
        """The constructor arguments, as numbers and arrays."""

    def check_features(self, d: int) -> None:
        """Raise an error if points with ``d`` features cannot live here."""
        if self.n_features is not None and self.n_features != d:
            raise ValueError(
                f"{type(self).__name__} measure has {self.n_features} features, but the points have"
                f" {d}; give it one entry per feature"
            )

    def __eq__(self, other: object) -> bool:
        if type(self) is not type(other):
            return False
        mine, theirs = self.parameters(), other.parameters()
        return all(np.array_equal(mine[key], theirs[key]) for key in mine)

    def __hash__(self) -> int:
        return hash(
            (type(self), *(np.asarray(value).tobytes() for value in self.parameters().values()))
        )

    def __repr__(self) -> str:
        listed = (f"{key}={six_digits(value)}" for key, value in self.parameters().items())
        return f"{type(self).__name__}({', '.join(listed)})"


class Lebesgue(Measure):
    """Lebesgue measure on all of R^d: densities in the usual sense.

    >>> Lebesgue().log_density(np.array([[3.0, 4.0]])).tolist(), Lebesgue().bounded
    ([0.0], False)
    """

    name = "lebesgue"
    by_volume = True

    def restrict(self, features: Any) -> Self:
        return self

    def linear_image(self, A: np.ndarray, b: np.ndarray) -> Measure:
        return self

    def parameters(self) -> dict[str, Any]:
        return {}


class Box(Measure):
    """Lebesgue measure on Π_k [low_k, high_k]; sides may be infinite.

    >>> Box([0, 0], [1, 2]).contains(np.array([[0.5, 1.5], [0.5, 3.0]]))
    array([ True, False])
    """

    name = "box"
    by_volume = True

    def __init__(self, low: Any, high: Any) -> None:
        low, high = (np.atleast_1d(np.array(side, dtype=np.float64)) for side in (low, high))
        if low.ndim != 1 or low.shape != high.shape or low.size == 0:
            raise ValueError(
                f"low and high must be vectors of one length; got shapes {low.shape} and"
                f" {high.shape}"
            )
        if not np.all(low < high):
            raise ValueError(
                f"low must be less than high in every feature; got low={low.tolist()},"
                f" high={high.tolist()}"
            )
        self.low, self.high = low, high
        self.n_features = low.shape[0]

    @property
    def region(self) -> Box | None:
        return self if np.all(np.isfinite([self.low, self.high])) else None

    def log_mass(self, d: int) -> float:
        return float(np.sum(np.log(self.high - self.low)))

    @property
    def without_boundary(self) -> Measure:
        return Lebesgue()

    def contains(self, X: Array) -> Array:
        return namespace(X).all((like(self.low, X) <= X) & (like(self.high, X) >= X), axis=1)

    def boundary(self, feature: int) -> tuple[float, float]:
        return float(self.low[feature]), float(self.high[feature])

    def restrict(self, features: Any) -> Self:
        index = np.asarray(features)
        return type(self)(self.low[index], self.high[index])

    def image(self, transform: Callable[[np.ndarray], np.ndarray], scale: np.ndarray) -> Measure:
        a, b = transform(np.stack([self.low, self.high]))
        return type(self)(np.minimum(a, b), np.maximum(a, b))

    def slice(self, values: Mapping[int, float]) -> Box:
        """Where some features have these values: a box without volume.

        >>> Box([0.0, 0.0], [1.0, 2.0]).slice({1: 0.5})
        Box(low=[0.0, 0.5], high=[1.0, 0.5])
        """
        found = copy.copy(self)
        found.low, found.high = self.low.copy(), self.high.copy()
        for feature, value in values.items():
            found.low[feature] = found.high[feature] = value
        return found

    def parameters(self) -> dict[str, Any]:
        return {"low": self.low, "high": self.high}
