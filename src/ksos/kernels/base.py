"""What k is: a positive, translation-invariant kernel with k(x, x) = 1, written as one formula of
the scaled distance.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Iterator
from typing import Any, ClassVar, Self

import numpy as np

from ksos.ground.arrays import Array, is_numpy, like, namespace, quiet, six_digits, zeros
from ksos.ground.memory import row_blocks
from ksos.ground.names import column_names
from ksos.ground.validation import as_bandwidth, as_points, as_vector
from ksos.kernels.distances import feature_squares, squared_distances

# in a repr, which should fit on one line
_SHOWN_BANDWIDTHS = 6


class Kernel(ABC):
    r"""A kernel k(x, y) = κ(t) of the squared scaled distance t = ‖(x − y)/σ‖².

    A subclass writes one formula, :meth:`log_profile`, the logarithm of κ. With ``product=True``
    the kernel is the product over features Π_k κ(((x_k − y_k)/σ_k)²) instead; for the Gaussian
    kernel both are the same.

    Parameters
    ----------
    sigma : float or array of d floats
        Bandwidth, one for all features or one per feature.
    product : bool
        Product over features instead of a function of the Euclidean distance.

    >>> from ksos.kernels import Matern
    >>> k: Kernel = Matern(sigma=2.0, nu=1.5)
    >>> k(np.array([[0.0], [1.0]])).round(3).tolist()
    [[1.0, 0.91], [0.91, 1.0]]
    """

    name: ClassVar[str]
    product: bool
    smooth: ClassVar[bool] = False
    """Whether κ(s²) is analytic in s; if not, it has a kink at s = 0."""

    def __init__(self, sigma: Any = 1.0, *, product: bool = False) -> None:
        self.sigma = as_bandwidth(sigma, "sigma")
        self.product = bool(product)

    @abstractmethod
    def log_profile(self, t: Array) -> Array:
        """log κ at the squared scaled distances t."""

    @abstractmethod
    def reach(self, log_level: float) -> float:
        """The scaled distance beyond which log κ ≤ ``log_level`` (a negative number)."""

    def slope(self, t: np.ndarray) -> np.ndarray:
        """d log κ/dt at the squared scaled distances t; 0 at the tip of a kernel with a kink, where
        the two one-sided slopes cancel.
        """
        raise TypeError(
            f"gradients need the derivative of the kernel's formula, which {self!r} does not have;"
            " add it as the method slope"
        )

    @np.errstate(under="ignore")
    def __call__(self, X: Array, Y: Array | None = None) -> Array:
        """The matrix k(X_i, Y_j); ``Y=None`` means ``Y = X``."""
        log_k = self.log(X, Y)
        return np.exp(log_k, out=log_k) if is_numpy(log_k) else namespace(X).exp(log_k)

    def against(self, Z: Array) -> Callable[[Array], Array]:
        """The map X ↦ k(X_i, Z_j) for many X, one after the other: what depends on Z alone may be
        computed once.
        """
        return lambda X: self(X, Z)

    def blocks(self, X: Array, Z: Array, elements: int) -> Iterator[tuple[slice, Array]]:
        """k(X_i, Z_j) for slices of the rows of X, about ``elements`` entries at a time."""
        at = self.against(Z)
        for rows in row_blocks(X.shape[0], Z.shape[0], elements):
            yield rows, at(X[rows, :])

    def blocks_in_single(
        self, X: Array, Z: Array, elements: int
    ) -> Iterator[tuple[slice, Array, float]]:
        """The same in single precision, with a bound on the relative error of all entries; in
        double precision if there is none.
        """
        for rows, K in self.blocks(X, Z, elements):
            yield rows, K, 0.0

    def log(self, X: Array, Y: Array | None = None) -> Array:
        """The matrix log k(X_i, Y_j): finite where k itself underflows."""
        Y = X if Y is None else Y
        sigma = like(self.sigma_vector(X.shape[1]), X)
        if not self.product or X.shape[1] == 1:
            return self.log_profile(squared_distances(X, Y, sigma))
        out = zeros((X.shape[0], Y.shape[0]), X)
        with quiet():
            for rows in row_blocks(X.shape[0], Y.shape[0]):
                block = out[rows, :]
                for squares in feature_squares(X[rows, :], Y, sigma):
                    block += self.log_profile(squares)
                out[rows, :] = block
        return out

    def log_at_widths(self, X: Array, Y: Array) -> Callable[[float], Array]:
        """The map c ↦ log k(X_i, Y_j) of the kernel that is wider by the factor c: what does not
        depend on c may be computed once.
        """
        return lambda multiple: self.scaled(multiple).log(X, Y)

    @property
    def full(self) -> bool:
        """Whether a metric correlates the features: then the matrix S takes the place of a
        bandwidth per feature.
        """
        return False

    def check_features(self, d: int) -> None:
        """Raise an error if points with ``d`` features cannot be compared."""
        if self.sigma.ndim and self.sigma.shape[0] != d:
            raise ValueError(
                f"the kernel has {self.sigma.shape[0]} bandwidths but the points have {d} features"
            )

    def sigma_vector(self, d: int) -> np.ndarray:
        """The bandwidth of each of ``d`` features."""
        self.check_features(d)
        if self.full:
            raise ValueError(
                "one bandwidth per feature is needed here, not a metric that correlates features;"
                f" got {self!r}; use the roots of its diagonal, or change the coordinates of the"
                " data"
            )
        return np.full(d, float(self.sigma)) if self.sigma.ndim == 0 else self.sigma

    def matrix(self, d: int) -> np.ndarray:
        """S = diag(σ²): the square of the scaled distance is (x − y)ᵀS⁻¹(x − y)."""
        return np.diag(self.sigma_vector(d) ** 2)

    def separable(self, d: int) -> bool:
        """Whether k is a product over the ``d`` features, which closed-form integrals, marginals
        and sampling need.
        """
        return self.product or d == 1

    def restrict(self, features: Any) -> Self:
        """The kernel on some of the features (of a separable kernel: its factor there)."""
        return self if self.sigma.ndim == 0 else self.with_sigma(self.sigma[np.asarray(features)])

    def scaled(self, factor: float) -> Self:
        """The same kernel, wider by a factor in every direction."""
        return self.with_sigma(factor * self.sigma)

    def squared(self) -> Self | None:
        """k², if it is a kernel of the same kind."""
        return None

    def with_sigma(self, sigma: Any) -> Self:
        """The same kernel with another bandwidth."""
        return type(self)(sigma, product=self.product)

    def parameters(self) -> dict[str, Any]:
        """The constructor arguments, as plain numbers and lists."""
        return {"sigma": self.sigma.tolist(), "product": self.product}

    def __eq__(self, other: object) -> bool:
        return type(self) is type(other) and self.parameters() == other.parameters()

    def __hash__(self) -> int:
        return hash((type(self), repr(self.parameters())))

    def __repr__(self) -> str:
        listed = {
            key: repr(value) for key, value in self.parameters().items() if value is not False
        }
        sigma = six_digits(self.sigma)
        if self.sigma.size > _SHOWN_BANDWIDTHS:
            ends = np.ravel(sigma)[[0, -1]].tolist()
            kind = ", correlated" if self.full else ""
            sigma = f"[{ends[0]}, …, {ends[1]}] ({self.sigma.shape[0]} features{kind})"
        listed["sigma"] = str(sigma)
        # (x − x')ᵀS⁻¹(x − x') is no list of widths
        names = {"sigma": "metric"} if self.full else {}
        inside = ", ".join(f"{names.get(key, key)}={value}" for key, value in listed.items())
        return f"{type(self).__name__}({inside})"


class KernelSum:
    """Σ_i w_i k(·, x_i): ``points`` (n, d), ``weights`` of any sign, by default 1/n each, and the
    ``kernel``.
    """

    def __init__(self, points: Any, weights: Any = None, *, kernel: Kernel) -> None:
        self.points = as_points(points, "points", copy=True)
        self.feature_names = column_names(points, "points")
        n, self.n_features = self.points.shape
        self.weights = like(
            np.full(n, 1.0 / n) if weights is None else as_vector(weights, "weights", length=n),
            self.points,
        )
        if not isinstance(kernel, Kernel):
            raise TypeError(
                f"kernel must be a kernel object such as ksos.kernels.Gaussian(1.0); got {kernel!r}"
            )
        kernel.check_features(self.n_features)
        self.kernel = kernel
