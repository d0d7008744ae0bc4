"""A mixture of normal laws as reference measure: what is known already, and what the squares correct."""

from __future__ import annotations

from collections.abc import Callable
from functools import cached_property
from typing import TYPE_CHECKING, Any, Self

import numpy as np

from ksos._array import Array, is_numpy, like, namespace, quiet, zeros
from ksos._memory import CACHE_ELEMENTS, row_blocks
from ksos._validation import as_metrics, as_points, as_weights
from ksos.measures.base import Measure, Normals

if TYPE_CHECKING:
    from sklearn.mixture import GaussianMixture as FittedMixture

__all__ = ["GaussianMixture"]

_ROUNDING = 1e-14
_TOGETHER = 4  # features
_DEVICE_ELEMENTS = 1 << 22


def _log_laws(X: Array, means: Array, roots: Array) -> Array:
    """−½‖R_c(x_n − μ_c)‖², shape (n, c): in few features all laws at once, with triangular roots; else one law after the other."""
    xp, d = namespace(X), X.shape[1]
    if d > _TOGETHER:
        away = [(X - means[c, :]) @ roots[c, :, :].T for c in range(means.shape[0])]
        return -0.5 * xp.stack([xp.vecdot(y, y) for y in away], axis=1)
    away, total = [X[:, k, None] - means[None, :, k] for k in range(d)], 0.0
    for k in range(d):
        y = sum((away[j] * roots[:, k, j] for j in range(1, k + 1)), away[0] * roots[:, k, 0])
        total = total + y * y
    return -0.5 * total


class GaussianMixture(Measure):
    """The probability measure Σ_c w_c N(μ_c, Σ_c): p = 1, relative to it, is the mixture itself.

    Parameters
    ----------
    weights : array of c floats
        Non-negative, scaled to sum one; components of weight 0 are left out.
    means : array (c, d)
    covariances : array (c, d, d), or (c, d)
        Covariance matrices, or the variances of independent features.

    >>> GaussianMixture([1, 1], [[0.0], [4.0]], [[1.0], [1.0]]).log_density(np.array([[0.0], [2.0]])).round(6)
    array([-1.61175 , -2.918939])
    """

    name = "gaussian_mixture"

    def __init__(self, weights: Any, means: Any, covariances: Any) -> None:
        means = np.array(as_points(means, "means"))
        shares = as_weights(weights, means.shape[0], "weights")
        given_sum = float(np.sum(np.asarray(weights, dtype=np.float64)))
        if abs(given_sum - 1.0) <= _ROUNDING:  # scaled already: another division would change the last bits, and a file must not
            shares = np.array(weights, dtype=np.float64)
        given = np.asarray(covariances, dtype=np.float64)
        (count, d), used = means.shape, shares > 0.0
        if given.shape not in ((count, d), (count, d, d)):
            raise ValueError(f"covariances must have shape {(count, d, d)}, or {(count, d)} for variances; got {given.shape}")
        full = given if given.ndim == 3 else np.stack([np.diag(row) for row in given])
        self.weights, self.means, self.covariances = shares[used], means[used], as_metrics(full, "covariances", used)
        for part in (self.weights, self.means, self.covariances):
            part.setflags(write=False)
        self.n_features = d

    @classmethod
    def from_sklearn(cls, fitted: FittedMixture) -> Self:
        """The law of a fitted :class:`sklearn.mixture.GaussianMixture`, whatever its covariance type."""
        from sklearn.utils.validation import check_is_fitted  # scikit-learn is needed only here

        check_is_fitted(fitted, "covariances_")
        (count, d), given = fitted.means_.shape, np.asarray(fitted.covariances_)
        full = {
            "full": lambda: given,
            "tied": lambda: np.broadcast_to(given, (count, d, d)),
            "diag": lambda: given,
            "spherical": lambda: np.broadcast_to(given[:, None], (count, d)),
        }[fitted.covariance_type]()
        return cls(fitted.weights_, fitted.means_, full)

    @property
    def by_components(self) -> bool:
        return True

    def normals(self, d: int) -> Normals:
        self.check_features(d)
        return Normals(self.weights, self.means, self.covariances)

    def log_mass(self, d: int) -> float:
        return 0.0

    def normal_factor(self, d: int) -> tuple[np.ndarray, np.ndarray]:
        raise ValueError(f"a normal law with one deviation per feature is needed here, not a mixture of them; got {self!r}")

    def smooth_length(self, d: int) -> np.ndarray:
        """That of the narrowest component."""
        return np.sqrt(2.0 / np.diagonal(np.linalg.inv(self.covariances), axis1=1, axis2=2).max(axis=0))

    def log_density(self, X: Array) -> Array:
        xp, out = namespace(X), zeros((X.shape[0],), X)
        roots, constants = self._whitening
        with quiet():
            for rows in row_blocks(X.shape[0], self.means.shape[0], CACHE_ELEMENTS if is_numpy(X) else _DEVICE_ELEMENTS):
                logs = _log_laws(X[rows, :], like(self.means, X), like(roots, X)) + like(constants, X)
                peak = xp.max(logs, axis=1)
                shift = xp.where(xp.isfinite(peak), peak, 0.0)
                out[rows] = shift + xp.log(xp.sum(xp.exp(logs - shift[:, None]), axis=1))
        return out

    @cached_property
    def _whitening(self) -> tuple[np.ndarray, np.ndarray]:
        """R_c with R_cΣ_cR_cᵀ = 1, shape (c, d, d), and log w_c N_c(μ_c), shape (c,)."""
        roots = np.linalg.inv(np.linalg.cholesky(self.covariances))
        log_dets = np.log(np.diagonal(roots, axis1=1, axis2=2)).sum(axis=1)
        return roots, np.log(self.weights) + log_dets - 0.5 * self.means.shape[1] * np.log(2.0 * np.pi)

    def restrict(self, features: Any) -> Self:
        index = np.asarray(features)
        return type(self)(self.weights, self.means[:, index], self.covariances[:, index[:, None], index])

    def image(self, transform: Callable[[np.ndarray], np.ndarray], scale: np.ndarray) -> Measure:
        return type(self)(self.weights, transform(self.means), self.covariances * scale[:, None] * scale)

    def linear_image(self, A: np.ndarray, b: np.ndarray) -> Measure:
        return type(self)(self.weights, self.means @ A.T + b, A @ self.covariances @ A.T)

    def parameters(self) -> dict[str, Any]:
        return {"weights": self.weights, "means": self.means, "covariances": self.covariances}

    def __repr__(self) -> str:
        return f"GaussianMixture({self.weights.shape[0]} components in {self.n_features} features)"
