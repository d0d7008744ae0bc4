"""−‖(x − z)R‖² for many x on a GPU, as one matrix product, in double precision or in single with a
bound on what that costs.
"""

from __future__ import annotations

import math
from collections.abc import Iterator

import numpy as np

from ksos.ground.arrays import Array, like, namespace
from ksos.ground.memory import row_blocks

__all__ = ["Products"]

_DOUBLE, _SINGLE = 2.0**-53, 2.0**-24
_PREPARED = 1 << 26  # entries of the other factor: half a gigabyte
_DOUBLE_ERROR, _SINGLE_ERROR = 1e-12, 1e-2  # of the squared distance: beyond, there is no answer


class Products:
    """X ↦ −‖(X_i − Z_j)R‖² = 2⟨x, z⟩ − ‖x‖² − ‖z‖², the norms as two more columns of the product.

    Coordinates are taken around the mean of Z, in double precision. Each term of an inner product
    of n terms is then rounded at most n + 2 times: the answer is off by at most γ(‖x‖ + ‖z‖)² with
    γ = (n + 2)u/(1 − (n + 2)u) and the unit u of the precision [Higham2002].
    """

    def __init__(self, Z: Array, root: np.ndarray, *, single: bool = False) -> None:
        xp, self.root, self.single = namespace(Z), like(root, Z), single
        self.centre = xp.mean(Z, axis=0)
        at_Z = (Z - self.centre) @ self.root
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
        at_X = (X - self.centre) @ self.root
        x2 = xp.sum(at_X * at_X, axis=1)[:, None]
        rounded = (X.shape[1] + 4) * (_SINGLE if self.single else _DOUBLE)
        error = rounded / (1.0 - rounded) * (math.sqrt(float(xp.max(x2))) + self.farthest) ** 2
        if not error <= (_SINGLE_ERROR if self.single else _DOUBLE_ERROR):
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
        processor between them; where some rows of these are too far away, block by block.
        """
        for part in row_blocks(X.shape[0], X.shape[1] + 2, _PREPARED):
            found = self._left(X[part, :])
            for rows in row_blocks(part.stop - part.start, self.right.shape[1], elements):
                here = slice(part.start + rows.start, part.start + rows.stop)
                if found is not None:
                    yield here, found[0][rows, :] @ self.right, found[1]
                else:
                    yield here, *(self(X[here, :]) or (None, 0.0))
