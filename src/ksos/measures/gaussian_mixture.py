"""A mixture of normal laws as reference measure: what is known already, and what the squares correct."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any, Self

import numpy as np

from ksos._array import Array, namespace
from ksos._validation import as_metrics, as_points, as_weights
from ksos.measures.base import Measure, Normals
from ksos.measures.normal import log_normal

if TYPE_CHECKING:
    from sklearn.mixture import GaussianMixture as FittedMixture

__all__ = ["GaussianMixture"]

_ROUNDING = 1e-14


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
        xp, parts = namespace(X), zip(self.weights, self.means, self.covariances, strict=True)
        logs = xp.stack([log_normal(X, mean, covariance) + float(np.log(weight)) for weight, mean, covariance in parts])
        peak = xp.max(logs, axis=0)
        return peak + xp.log(xp.sum(xp.exp(logs - peak), axis=0))

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
