"""Scaled squared distances that keep their digits: for data far from the origin, tiny bandwidths
and far-away queries.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator

import numpy as np

from ksos.ground.arrays import Array, is_numpy, like, namespace, quiet
from ksos.ground.memory import CACHE_ELEMENTS, row_blocks

__all__ = ["central_point", "feature_squares", "product_form", "squared_distances"]

_DIRECT_FEATURES = 8
_DEVICE_ELEMENTS = 1 << 26  # a GPU wants few large operations instead
_PRODUCT_ERROR = 1e-12
_LOOKED_AT = 64


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
    for k in range(X.shape[1]):
        scaled = _differences(X[:, k], Y[:, k]) * (
            1.0 / sigma[k]
        )  # one division in all: a division per entry would cost the most here
        scaled *= scaled
        yield scaled


def _differences(x: Array, y: Array) -> Array:
    """x_i − y_j as the matrix product [x 1]·[1; −y]: one rounding per entry, as in the subtraction
    itself, in a third of its time.
    """
    xp = namespace(x, y)
    return xp.stack([x, xp.ones_like(x)], axis=1) @ xp.stack([xp.ones_like(y), -y])


def squared_distances(X: Array, Y: Array, sigma: Array) -> Array:
    """D_ij = Σ_k ((X_ik − Y_jk)/σ_k)², shape (n, m).

    Few features are subtracted one by one, which loses nothing. Many features go through one matrix
    product, with the error of that form, ε·(‖x‖² + ‖y‖²) around a common centre, checked first.
    """
    xp = namespace(X, Y)
    n, d = X.shape
    sigma = like(sigma, X)
    with quiet():
        if d > _DIRECT_FEATURES:
            centre = xp.mean(Y, axis=0)
            Xs, Ys = (X - centre) / sigma, (Y - centre) / sigma
            x2, y2 = xp.sum(Xs * Xs, axis=1), xp.sum(Ys * Ys, axis=1)
            if n and float(xp.max(x2) + xp.max(y2)) * 2.3e-16 <= _PRODUCT_ERROR:
                left = xp.concat(
                    [Xs, x2[:, None], xp.ones_like(x2)[:, None]], axis=1
                )  # the norms as two more columns of the product
                right = xp.concat([-2.0 * Ys, xp.ones_like(y2)[:, None], y2[:, None]], axis=1)
                D = left @ right.T
                # to look is cheaper than to write
                return D if float(xp.min(D)) >= 0.0 else xp.clip(D, 0.0, None)
        blocks = list(
            row_blocks(n, Y.shape[0], CACHE_ELEMENTS if is_numpy(X) else _DEVICE_ELEMENTS)
        )
        if len(blocks) <= 1:
            return _sum_of_squares(X, Y, sigma)
        D = xp.empty((n, Y.shape[0]), dtype=xp.float64, device=X.device)
        for rows in blocks:
            D[rows, :] = _sum_of_squares(X[rows, :], Y, sigma)
        return D


def product_form(
    Z: np.ndarray, root: np.ndarray
) -> Callable[[np.ndarray], np.ndarray | None] | None:
    """The map X ↦ −‖(X_i − Z_j)R‖² for many features as one matrix product, for X one after the
    other; None for few features.

    It gives None for an X so far away that this form loses digits.
    """
    if Z.shape[1] <= _DIRECT_FEATURES:
        return None
    centre = np.mean(Z, axis=0)
    at_Z = (Z - centre) @ root
    z2 = np.sum(at_Z * at_Z, axis=1)
    right = np.concatenate(
        [2.0 * (root @ at_Z.T), -np.ones((1, Z.shape[0])), -z2[None, :]]
    )  # R goes to Z: X is then only shifted
    metric, farthest = root @ root.T, float(np.max(z2))

    def at(X: np.ndarray) -> np.ndarray | None:
        left = np.empty((X.shape[0], X.shape[1] + 2))
        shifted = np.subtract(X, centre, out=left[:, :-2])
        x2 = np.einsum("ij,ij->i", shifted @ metric, shifted, out=left[:, -2])
        left[:, -1] = 1.0
        return left @ right if (float(np.max(x2)) + farthest) * 2.3e-16 <= _PRODUCT_ERROR else None

    return at


def _sum_of_squares(X: Array, Y: Array, sigma: Array) -> Array:
    squares = feature_squares(X, Y, sigma)
    total = next(squares)
    for more in squares:
        total += more
    return total
