"""Products of two Gaussian kernels on a box, one by one: each is a distribution ∝ e^{−t²} between
two ends in every feature. Of narrow kernels hardly any two overlap, so that there are few products.
"""

from __future__ import annotations

import numpy as np

from ksos.ground import row_blocks
from ksos.integrals.base import Integrals
from ksos.integrals.gaussian import GaussianBox, bell_nodes
from ksos.kernels import Gaussian, Kernel
from ksos.measures import Box

_NOTHING = -45.0  # log of a product beside both kernels' own: e^−45 is rounding, terms may cancel
_BLOCK_ELEMENTS = 1 << 18  # kernel values at a time: 2 MB stay in the cache


class BoxPairs:
    """The products k(·, x_i)k(·, x_j) against a measure that are more than rounding, i ≤ j.

    The product number n is exp(log_masses_n) times a distribution, whose feature k is origin_k +
    mean_nk + width_k·t with t ∝ e^{−t²} inside the box.
    """

    def __init__(self, integrals: Integrals, X: np.ndarray) -> None:
        log_W = integrals.log_gram(X, X)
        half = 0.5 * np.diagonal(log_W)
        self.i, self.j = np.nonzero(np.triu(log_W - half[:, None] - half > _NOTHING))
        self.integrals, self.size, self.log_masses = integrals, X.shape[0], log_W[self.i, self.j]
        self.origin, normals = X[0], integrals.pair_normals(X, X[0])
        assert normals is not None  # of Gaussian kernels
        xi, self.width = normals
        self.means = 0.5 * (xi[self.i] + xi[self.j])

    def matrix(self, values: np.ndarray) -> np.ndarray:
        """What is known of the products, shape (pairs, n), as a symmetric array (m, m, n)."""
        out = np.zeros((self.size, self.size, values.shape[1]))
        out[self.i, self.j] = out[self.j, self.i] = values
        return out

    def log_along(self, feature: int, x: np.ndarray, kernel: Kernel) -> np.ndarray:
        """log E k(x, ·) along a feature, shape (pairs, n), of an embedding kernel, for x relative
        to the origin.
        """
        bell, along = Gaussian(float(self.width[feature])), kernel.restrict([feature])
        integrals = GaussianBox(bell, Box(*self._ends(feature)), 1)
        means = (bell, self.means[:, feature, None])
        return (
            integrals.log_product(means, (along, x[:, None]))
            - integrals.log_product(means)[:, None]
        )

    def log_seen(self, Z: np.ndarray, kernel: Kernel) -> np.ndarray:
        """log E k(z, ·) at points Z (n, d), shape (pairs, n)."""
        along = enumerate((Z - self.origin).T)
        return np.asarray(sum(self.log_along(k, z, kernel) for k, z in along))

    def _ends(self, feature: int) -> list[np.ndarray]:
        ends = self.integrals.measure.boundary(feature)
        return [np.array([end - self.origin[feature]]) for end in ends]

    def inner(self, other: BoxPairs, kernel: Kernel) -> np.ndarray:
        """The inner products of the embeddings of all distributions with all others: in each
        feature a Gauss–Legendre rule for these, over the closed form of those.
        """
        out = np.ones((self.means.shape[0], other.means.shape[0]))
        for k, width in enumerate(self.width):
            t, weights = bell_nodes(*((end - self.means[:, k]) / width for end in self._ends(k)))
            x = self.means[:, k, None] + width * t + (self.origin - other.origin)[k]
            for rows in row_blocks(out.shape[0], t.shape[1] * out.shape[1], _BLOCK_ELEMENTS):
                seen = np.exp(other.log_along(k, x[rows].ravel(), kernel))
                seen = seen.reshape(out.shape[1], -1, t.shape[1])
                out[rows] *= np.einsum("nq,mnq->nm", weights[rows], seen)
        return out
