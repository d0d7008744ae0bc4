"""The Gaussian kernel, with one bandwidth, one per feature, or a metric that correlates them."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator
from typing import Any, Self, cast

import numpy as np

from ksos.ground import Array, as_metric, exp_in_place, is_numpy, like, namespace, quiet, row_blocks
from ksos.kernels.base import (
    DIRECT_FEATURES,
    DISTANCES_ON_DEVICE,
    ROUNDING,
    Kernel,
    central_point,
    squared_distances,
)

# relative error of an exponential in single precision: at most a few units in the last place
_EXPONENTIAL = 4.0 * 2.0**-23
_MOST_ERROR = 1e-11  # bound for a squared distance by a product: the error itself is far below it
_MOST_SINGLE_ERROR = 1e-2  # the same in single precision, where it is in the answer: 1% is too much
_SINGLE = 2.0**-24  # unit of rounding in single precision


class Gaussian(Kernel):
    r"""k(x, y) = exp(−‖(x − y)/σ‖²), the first of the paper's examples; with a matrix S, k(x, y) =
    exp(−(x − y)ᵀS⁻¹(x − y)).

    Parameters
    ----------
    sigma : float, array of d floats, or symmetric positive definite matrix (d, d)
        Bandwidth σ, one for all features or one per feature; or the metric S, which is diag(σ²)
        if it does not correlate the features (a diagonal matrix is kept as its bandwidths).

    >>> import numpy as np
    >>> Gaussian(2.0)(np.array([[0.0]]), np.array([[2.0]])).round(6)
    array([[0.367879]])
    >>> Gaussian([[4.0, 1.0], [1.0, 1.0]])(np.array([[0.0, 0.0]]), np.array([[2.0, 0.5]])).round(6)
    array([[0.367879]])
    """

    name = "gaussian"
    smooth = True

    def __init__(self, sigma: Any = 1.0) -> None:
        metric = as_metric(sigma, "sigma")
        if metric is None:
            super().__init__(sigma)
        elif np.array_equal(metric, np.diag(np.diagonal(metric))):
            super().__init__(np.sqrt(np.diagonal(metric)))
        else:
            self.sigma, self.product = metric, False

    @property
    def full(self) -> bool:
        return bool(self.sigma.ndim == 2)

    def matrix(self, d: int) -> np.ndarray:
        if self.full:
            self.check_features(d)
            return self.sigma
        return np.diag(self.sigma_vector(d) ** 2)

    def log(self, X: Array, Y: Array | None = None) -> Array:
        Y = X if Y is None else Y
        if not self.full:
            return super().log(X, Y)
        self.check_features(X.shape[1])
        # an origin among the points: coordinates of data far from 0 would lose their digits
        root, origin = like(self._root(X), X), central_point(Y)
        at_X = (X - origin) @ root
        return self.log_profile(
            squared_distances(at_X, at_X if Y is X else (Y - origin) @ root, np.ones(X.shape[1]))
        )

    def log_at_widths(self, X: Array, Y: Array) -> Callable[[float], Array]:
        log_k = self.log(X, Y)

        def at(multiple: float) -> Array:
            with quiet():
                return log_k / multiple**2

        return at

    def against(self, Z: Array) -> Callable[[Array], Array]:
        if not is_numpy(Z) or Z.shape[1] <= DIRECT_FEATURES:
            return super().against(Z)
        products = Products(Z, self._root(Z))

        def at(X: Array) -> Array:
            found = products(X)
            return self(X, Z) if found is None else np.exp(found[0], out=found[0])

        return at

    def blocks(
        self, X: Array, Z: Array, elements: int, *, single: bool = False
    ) -> Iterator[tuple[slice, Array, float]]:
        if is_numpy(Z) and not single:
            yield from super().blocks(X, Z, elements)
            return
        for rows, log_k, error in Products(Z, self._root(Z), single=single).blocks(X, elements):
            if log_k is None:
                yield rows, self(X[rows, :], Z), 0.0
            else:
                yield rows, exp_in_place(log_k), math.expm1(error) + _EXPONENTIAL

    # R with k(x, z) = exp(−‖(x − z)R‖²).
    def _root(self, Z: Array) -> np.ndarray:
        return (
            np.linalg.inv(np.linalg.cholesky(self.sigma)).T
            if self.full
            else np.diag(1.0 / self.sigma_vector(Z.shape[1]))
        )

    def log_profile(self, t: Array) -> Array:
        return -t

    def reach(self, log_level: float) -> float:
        return math.sqrt(-log_level)

    def separable(self, d: int) -> bool:
        return not self.full

    def restrict(self, features: Any) -> Self:
        """The kernel with the metric S_RR: what is left of k on the features R when the others are
        integrated out.
        """
        index = np.asarray(features)
        return (
            type(self)(self.sigma[np.ix_(index, index)])
            if self.full
            else super().restrict(features)
        )

    def scaled(self, factor: float) -> Self:
        return cast("Self", Gaussian((factor * factor if self.full else factor) * self.sigma))

    def squared(self) -> Self:
        return self.scaled(math.sqrt(0.5))

    def with_sigma(self, sigma: Any) -> Self:
        return type(self)(sigma)

    def parameters(self) -> dict[str, Any]:
        return {"sigma": self.sigma.tolist()}


class Products:
    """X ↦ −‖(X_i − Z_j)R‖² = 2⟨x, z⟩ − ‖x‖² − ‖z‖² for many X, as one matrix product with the norms
    as two more columns.

    Coordinates are taken around the mean of Z, in double precision. Each term of an inner product
    of n terms is then rounded at most n + 2 times: the answer is off by at most γ(‖x‖ + ‖z‖)² with
    γ = (n + 2)u/(1 − (n + 2)u) and the unit u of the precision [Higham2002].
    """

    def __init__(self, Z: Array, root: np.ndarray, *, single: bool = False) -> None:
        xp, self.root, self.single = namespace(Z), like(root, Z), single
        self.center = xp.mean(Z, axis=0)
        at_Z = (Z - self.center) @ self.root
        z2 = xp.sum(at_Z * at_Z, axis=1)
        self.farthest = math.sqrt(float(xp.max(z2)))
        self.right = self._rounded(xp.concat([2.0 * at_Z.T, 0.0 * z2[None, :] - 1.0, -z2[None, :]]))

    def _rounded(self, A: Array) -> Array:
        xp = namespace(A)
        return xp.astype(A, xp.float32) if self.single else A

    # The other factor of the product, and a bound on the error; None for X so far away that the
    # form loses the digits.
    def _left(self, X: Array) -> tuple[Array, float] | None:
        xp = namespace(X)
        at_X = (X - self.center) @ self.root
        with quiet():  # squares of rows that are far away may overflow: then there is no form
            x2 = xp.sum(at_X * at_X, axis=1)[:, None]
        rounded = (X.shape[1] + 4) * (_SINGLE if self.single else ROUNDING)
        error = rounded / (1.0 - rounded) * (math.sqrt(float(xp.max(x2))) + self.farthest) ** 2
        if not error <= (_MOST_SINGLE_ERROR if self.single else _MOST_ERROR):
            return None
        return self._rounded(xp.concat([at_X, x2, 0.0 * x2 + 1.0], axis=1)), error

    def __call__(self, X: Array) -> tuple[Array, float] | None:
        """The matrix and a bound on its error; None for X so far away that the form loses the
        digits.
        """
        found = self._left(X)
        return None if found is None else (found[0] @ self.right, found[1])

    def blocks(self, X: Array, elements: int) -> Iterator[tuple[slice, Array | None, float]]:
        """Slices of the rows of X, about ``elements`` entries each, with the matrix, or None, and
        the bound.

        The other factor is made for many blocks at once, so that a GPU does not wait for the
        processor between them. If some of these rows are too far away, it is made block by block.
        """
        for part in row_blocks(X.shape[0], X.shape[1] + 2, DISTANCES_ON_DEVICE):
            found = self._left(X[part, :])
            for rows in row_blocks(part.stop - part.start, self.right.shape[1], elements):
                here = slice(part.start + rows.start, part.start + rows.stop)
                if found is not None:
                    yield here, found[0][rows, :] @ self.right, found[1]
                else:
                    yield here, *(self(X[here, :]) or (None, 0.0))
