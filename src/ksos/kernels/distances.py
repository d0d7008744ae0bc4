"""Scaled squared distances that keep their digits: for data far from the origin, tiny bandwidths
and far-away queries.
"""

from __future__ import annotations

import functools
import math
import operator
from collections.abc import Iterator

import numpy as np

from ksos.ground.arrays import Array, is_numpy, like, namespace, quiet
from ksos.ground.memory import CACHE_ELEMENTS, row_blocks

DIRECT_FEATURES = 8
"""Up to so many features subtracting one by one, which loses nothing, is as fast as a product."""

# half a gigabyte: a GPU wants few large operations
_DEVICE_ELEMENTS = 1 << 26
# of a squared distance, hence of log k: above it, features are subtracted one by one
_PRODUCT_ERROR = 1e-12
# the median of this many rows lies in the bulk of the data
_LOOKED_AT = 64
# bounds on the error of a squared distance from a product: in double precision the error itself is
# far below its bound, in single precision the bound is part of the answer and 1% is too much
_MOST_ERROR = 1e-11
# see above
_MOST_SINGLE_ERROR = 1e-2
# unit of rounding in double precision
_DOUBLE = 2.0**-53
# and in single precision
_SINGLE = 2.0**-24


def central_point(X: Array) -> Array:
    """An origin among the rows of ``X``, feature by feature the median of at most 64 of them, shape
    (1, d).

    Coordinates around it keep their digits for data far from 0, and for data with outliers.
    """
    some = X[:: -(-X.shape[0] // _LOOKED_AT), :]
    return namespace(X).sort(some, axis=0)[some.shape[0] // 2, :][None, :]


def feature_squares(X: Array, Y: Array, sigma: Array) -> Iterator[Array]:
    """Per feature k, the matrix ((X_ik − Y_jk)/σ_k)². Subtracting first makes it exact under a
    common shift.
    """
    xp = namespace(X, Y)
    one_x, one_y = xp.ones_like(X[..., 0]), xp.ones_like(Y[..., 0])
    for k in range(X.shape[-1]):
        # x_i − y_j as the matrix product [x 1]·[1; −y]: one rounding per entry, as in the
        # subtraction itself, in a third of its time
        scaled = xp.stack([X[..., k], one_x], axis=-1) @ xp.stack([one_y, -Y[..., k]], axis=-2)
        # a division per entry would cost the most here
        scaled *= 1.0 / sigma[k]
        scaled *= scaled
        yield scaled


def squared_distances(X: Array, Y: Array, sigma: Array) -> Array:
    """D_ij = Σ_k ((X_ik − Y_jk)/σ_k)², shape (…, n, m), for points (…, n, d) and (…, m, d).

    Few features are subtracted one by one, which loses nothing. Many features go through one matrix
    product, with the error of that form, ε·(‖x‖² + ‖y‖²) around a common center, checked first.
    """
    xp = namespace(X, Y)
    n, d = X.shape[-2:]
    sigma = like(sigma, X)
    with quiet():
        if d > DIRECT_FEATURES:
            center = xp.mean(Y, axis=-2, keepdims=True)
            Xs, Ys = (X - center) / sigma, (Y - center) / sigma
            x2, y2 = (xp.sum(Z * Z, axis=-1, keepdims=True) for Z in (Xs, Ys))
            if n and float(xp.max(x2) + xp.max(y2)) * 2.0 * _DOUBLE <= _PRODUCT_ERROR:
                # the norms as two more columns of the product
                left = xp.concat([Xs, x2, xp.ones_like(x2)], axis=-1)
                D = left @ xp.concat([-2.0 * Ys, xp.ones_like(y2), y2], axis=-1).mT
                # to look is cheaper than to write
                return D if float(xp.min(D)) >= 0.0 else xp.clip(D, 0.0, None)
        elements = CACHE_ELEMENTS if is_numpy(X) else _DEVICE_ELEMENTS
        blocks = list(row_blocks(n, Y.shape[-2], elements))
        if len(blocks) <= 1:
            return _sum_of_squares(X, Y, sigma)
        D = xp.empty((*X.shape[:-1], Y.shape[-2]), dtype=xp.float64, device=X.device)
        for rows in blocks:
            D[..., rows, :] = _sum_of_squares(X[..., rows, :], Y, sigma)
        return D


def _sum_of_squares(X: Array, Y: Array, sigma: Array) -> Array:
    return functools.reduce(operator.iadd, feature_squares(X, Y, sigma))


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

    def _left(self, X: Array) -> tuple[Array, float] | None:
        """The other factor of the product, and a bound on the error; None for X so far away that
        the form loses the digits.
        """
        xp = namespace(X)
        at_X = (X - self.center) @ self.root
        with quiet():  # squares of rows that are far away may overflow: then there is no form
            x2 = xp.sum(at_X * at_X, axis=1)[:, None]
        rounded = (X.shape[1] + 4) * (_SINGLE if self.single else _DOUBLE)
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
        for part in row_blocks(X.shape[0], X.shape[1] + 2, _DEVICE_ELEMENTS):
            found = self._left(X[part, :])
            for rows in row_blocks(part.stop - part.start, self.right.shape[1], elements):
                here = slice(part.start + rows.start, part.start + rows.stop)
                if found is not None:
                    yield here, found[0][rows, :] @ self.right, found[1]
                else:
                    yield here, *(self(X[here, :]) or (None, 0.0))
