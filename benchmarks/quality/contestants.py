"""Who takes part. A contestant turns samples into a :class:`Fitted`; whatever it chooses, it chooses from these samples."""

from __future__ import annotations

import warnings
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from quality.gaussian_mixture import GaussianMixtureLaw, equal_kernels

__all__ = ["CONTESTANTS", "Contestant", "Fitted", "GaussianFit", "SoSFit"]


class Fitted:
    """A fitted density as the referee sees it."""

    chosen: dict[str, Any]

    def logpdf(self, X: np.ndarray) -> np.ndarray:
        raise NotImplementedError

    def squared_mmd(self, test: np.ndarray, sigma: np.ndarray) -> float:
        """‖w_p − w_test‖², exactly, in the Gaussian kernel with bandwidths σ; NaN where rounding would spoil it."""
        raise NotImplementedError


@dataclass
class GaussianFit(Fitted):
    """A mixture of Gaussians, as all the peers are; in coordinates (x − shift)/scale."""

    law: GaussianMixtureLaw
    shift: np.ndarray
    scale: np.ndarray
    chosen: dict[str, Any] = field(default_factory=dict)

    def logpdf(self, X: np.ndarray) -> np.ndarray:
        return self.law.logpdf((X - self.shift) / self.scale) - float(np.log(self.scale).sum())

    def squared_mmd(self, test: np.ndarray, sigma: np.ndarray) -> float:
        Z, s = (test - self.shift) / self.scale, sigma / self.scale
        return self.law.self_inner(s) - 2.0 * float(self.law.embedding(Z, s).mean()) + sample_inner(Z, s)


@dataclass
class SoSFit(Fitted):
    """A fitted ksos estimator."""

    estimator: Any
    chosen: dict[str, Any] = field(default_factory=dict)

    def logpdf(self, X: np.ndarray) -> np.ndarray:
        return np.asarray(self.estimator.score_samples(X))

    def squared_mmd(self, test: np.ndarray, sigma: np.ndarray) -> float:
        import ksos

        with warnings.catch_warnings():
            warnings.filterwarnings("error", "the weights of this density cancel", RuntimeWarning)
            try:
                return ksos.mmd(test, self.estimator.distribution_, ksos.kernels.Gaussian(sigma), max_operations=1e11) ** 2
            except (RuntimeWarning, ValueError):  # signed weights that cancel, or a four-fold sum that would take minutes
                return float("nan")


def sample_inner(Z: np.ndarray, sigma: np.ndarray) -> float:
    """The mean of k(z_i, z_j) over all pairs."""
    from ksos.kernels import Gaussian

    kernel = Gaussian(sigma)
    return float(np.mean([kernel(Z[start : start + 500], Z).mean() for start in range(0, Z.shape[0], 500)]))


def standardised(X: np.ndarray) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    scale = X.std(axis=0)
    scale = np.where(scale > 0.0, scale, 1.0)
    return (X - X.mean(axis=0)) / scale, X.mean(axis=0), scale


def kde(X: np.ndarray, box: Any) -> Fitted:
    """scikit-learn's KernelDensity on standardised data, the bandwidth by 5-fold cross-validation over 40 values."""
    from sklearn.model_selection import GridSearchCV, KFold
    from sklearn.neighbors import KernelDensity

    U, shift, scale = standardised(X)
    grid = {"bandwidth": np.geomspace(0.01, 2.0, 40)}
    folds = KFold(5, shuffle=True, random_state=0)
    bandwidth = GridSearchCV(KernelDensity(), grid, cv=folds).fit(U).best_params_["bandwidth"]
    law = equal_kernels(U, bandwidth**2 * np.eye(X.shape[1]))
    return GaussianFit(law, shift, scale, {"bandwidth": float(bandwidth)})


def scipy_kde(X: np.ndarray, box: Any) -> Fitted:
    """SciPy's gaussian_kde as it comes: Scott's rule times the full covariance."""
    from scipy.stats import gaussian_kde

    fitted = gaussian_kde(X.T)
    unit = np.zeros(X.shape[1]), np.ones(X.shape[1])
    return GaussianFit(equal_kernels(X, np.atleast_2d(fitted.covariance)), *unit, {"factor": float(fitted.factor)})


def mixture(X: np.ndarray, box: Any) -> Fitted:
    """scikit-learn's GaussianMixture, full covariances, 1 to 12 components by BIC, three starts each."""
    from sklearn.exceptions import ConvergenceWarning
    from sklearn.mixture import GaussianMixture

    U, shift, scale = standardised(X)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", ConvergenceWarning)
        fits = [GaussianMixture(k, n_init=3, random_state=0).fit(U) for k in range(1, min(12, X.shape[0]) + 1)]
    best = min(fits, key=lambda fit: fit.bic(U))
    law = GaussianMixtureLaw(best.weights_, best.means_, best.covariances_)
    return GaussianFit(law, shift, scale, {"components": int(best.n_components)})


def _ours(**options: Any) -> Callable[[np.ndarray, Any], Fitted]:
    def fit(X: np.ndarray, box: Any) -> Fitted:
        import ksos

        with_box = {"measure": ksos.measures.Box(*box)} if options.get("walls") else {}
        given = {key: value for key, value in options.items() if key not in ("walls", "plain")}
        kind = ksos.KernelSoSDensity if options.get("plain") else ksos.KernelSoSDensityCV
        estimator = kind(**given, **with_box).fit(X)
        p = estimator.distribution_
        chosen = {
            "bandwidth": np.asarray(estimator.bandwidth_).tolist(),
            "regularization": float(estimator.regularization_),
            "support": int(p.support_points.shape[0]),
            "rank": int(p.rank),
        }
        return SoSFit(estimator, chosen)

    return fit


@dataclass(frozen=True)
class Contestant:
    """A name for tables, and how to fit; ``walls``: takes part only where a box is known, and is told it."""

    title: str
    fit: Callable[[np.ndarray, Any], Fitted]
    walls: bool = False


_MMD: dict[str, Any] = {
    "objective": "squared_mmd",
    "bandwidths": (0.3, 0.45, 0.7, 1.0),
    "relative_regularizations": (1e-2, 1e-3, 1e-4),
    "cv": 3,
    "n_support": 200,
}
"""A small grid: with its own, the search in MMD takes minutes at n = 400."""

CONTESTANTS: dict[str, Contestant] = {
    "kde": Contestant("KDE, CV", kde),
    "scipy_kde": Contestant("SciPy KDE", scipy_kde),
    "gmm": Contestant("GMM, BIC", mixture),
    "ksos_plain": Contestant("ksos, no CV", _ours(plain=True)),
    "ksos_mmd": Contestant("ksos, MMD", _ours(**_MMD)),
    "ksos_likelihood": Contestant("ksos, likelihood", _ours()),
    "ksos_mmd_box": Contestant("ksos, MMD, box", _ours(walls=True, **_MMD), walls=True),
    "ksos_likelihood_box": Contestant("ksos, likelihood, box", _ours(walls=True), walls=True),
}
"""Everyone by name."""
