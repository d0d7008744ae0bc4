"""Who takes part. A contestant turns samples into a :class:`Fitted`; whatever it chooses, it
chooses from these samples.
"""

from __future__ import annotations

import warnings
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from quality import mixture_grid
from quality.gaussian_mixture import GaussianMixtureLaw, equal_kernels

__all__ = [
    "CONTESTANTS",
    "Contestant",
    "Fitted",
    "GaussianFit",
    "SoSFit",
    "off_diagonal",
    "sample_inner",
    "standardized",
]

_DRAWS = 6000


class Fitted:
    """A fitted density as the referee sees it."""

    chosen: dict[str, Any]

    def logpdf(self, X: np.ndarray) -> np.ndarray:
        raise NotImplementedError

    def squared_mmd(self, test: np.ndarray, sigma: np.ndarray) -> float:
        """‖w_p − w_test‖² in the Gaussian kernel with bandwidths σ: exact, or an estimate without
        bias.
        """
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
        return (
            self.law.self_inner(s)
            - 2.0 * float(self.law.embedding(Z, s).mean())
            + sample_inner(Z, s)
        )


@dataclass
class SoSFit(Fitted):
    """A fitted ksos estimator: whatever its distribution is, it scores samples and draws them."""

    estimator: Any
    chosen: dict[str, Any] = field(default_factory=dict)

    def logpdf(self, X: np.ndarray) -> np.ndarray:
        return np.asarray(self.estimator.score_samples(X))

    def squared_mmd(self, test: np.ndarray, sigma: np.ndarray) -> float:
        """By draws, without bias: pairs of different draws stand for ∬ k p p."""
        draws = self.estimator.sample(_DRAWS, random_state=0)
        return (
            off_diagonal(sample_inner(draws, sigma), _DRAWS)
            - 2.0 * sample_inner(draws, sigma, test)
            + sample_inner(test, sigma)
        )


def sample_inner(Z: np.ndarray, sigma: np.ndarray, other: np.ndarray | None = None) -> float:
    """The mean of k(z_i, y_j) over all pairs; y = z by default."""
    from ksos.kernels import Gaussian

    kernel, Y = Gaussian(sigma), Z if other is None else other
    return sum(
        float(kernel(Z[start : start + 500], Y).sum()) for start in range(0, Z.shape[0], 500)
    ) / (Z.shape[0] * Y.shape[0])


def off_diagonal(pairs: float, n: int) -> float:
    """The mean of k over pairs i ≠ j, from that over all pairs: k(z, z) = 1."""
    return (n * pairs - 1.0) / (n - 1.0)


def standardized(X: np.ndarray) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    scale = X.std(axis=0)
    scale = np.where(scale > 0.0, scale, 1.0)
    return (X - X.mean(axis=0)) / scale, X.mean(axis=0), scale


def kde(X: np.ndarray, box: Any) -> Fitted:
    """scikit-learn's KernelDensity on standardized data, the bandwidth by 5-fold cross-validation
    over 40 values.
    """
    from sklearn.model_selection import GridSearchCV, KFold
    from sklearn.neighbors import KernelDensity

    U, shift, scale = standardized(X)
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
    return GaussianFit(
        equal_kernels(X, np.atleast_2d(fitted.covariance)), *unit, {"factor": float(fitted.factor)}
    )


def mixture(X: np.ndarray, box: Any) -> Fitted:
    """scikit-learn's GaussianMixture, full covariances, 1 to 12 components by BIC, three starts
    each.
    """
    from sklearn.exceptions import ConvergenceWarning
    from sklearn.mixture import GaussianMixture

    U, shift, scale = standardized(X)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", ConvergenceWarning)
        fits = [
            GaussianMixture(k, n_init=3, random_state=0).fit(U)
            for k in range(1, min(12, X.shape[0]) + 1)
        ]
    best = min(fits, key=lambda fit: fit.bic(U))
    law = GaussianMixtureLaw(best.weights_, best.means_, best.covariances_)
    return GaussianFit(law, shift, scale, {"components": int(best.n_components)})


def mixture_cv(X: np.ndarray, box: Any) -> Fitted:
    """The best of a grid of scikit-learn's GaussianMixture by 5-fold held-out likelihood."""
    U, shift, scale = standardized(X)
    law, chosen = mixture_grid.best(U)
    return GaussianFit(law, shift, scale, chosen)


def mixture_stack(X: np.ndarray, box: Any) -> Fitted:
    """All of that grid, with shares by 5-fold held-out likelihood."""
    U, shift, scale = standardized(X)
    law, shares = mixture_grid.stack(U)
    return GaussianFit(
        law, shift, scale, {"shares": [entry for entry in shares if entry[-1] > 1e-3]}
    )


def _ours(**options: Any) -> Callable[[np.ndarray, Any], Fitted]:
    def fit(X: np.ndarray, box: Any) -> Fitted:
        import ksos

        with_box = {"measure": ksos.measures.Box(*box)} if options.get("walls") else {}
        given = {key: value for key, value in options.items() if key not in ("walls", "plain")}
        kind = ksos.KernelSoSDensity if options.get("plain") else ksos.KernelSoSDensityCV
        estimator = kind(**given, **with_box).fit(X)
        return SoSFit(estimator, {"distribution": repr(estimator.distribution_)[:300]})

    return fit


@dataclass(frozen=True)
class Contestant:
    """A name for tables, and how to fit; ``walls``: takes part only where a box is known, and is
    told it.
    """

    title: str
    fit: Callable[[np.ndarray, Any], Fitted]
    walls: bool = False
    seconds: float = 5.0
    """A guess of what n = 1600 in ten features takes, to begin with the longest pieces."""


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
    "scipy_kde": Contestant("SciPy KDE", scipy_kde, seconds=0.1),
    "gmm": Contestant("GMM, BIC", mixture, seconds=2.0),
    "gmm_cv": Contestant("GMM, CV", mixture_cv, seconds=8.0),
    "gmm_stack": Contestant("GMM stack", mixture_stack, seconds=10.0),
    "ksos_plain": Contestant("ksos, no CV", _ours(plain=True)),
    "ksos_search": Contestant("ksos, search", _ours(), seconds=30.0),
    "ksos_mmd": Contestant("ksos, MMD", _ours(**_MMD), seconds=60.0),
    "ksos_search_box": Contestant("ksos, search, box", _ours(walls=True), walls=True, seconds=50.0),
    "ksos_mmd_box": Contestant(
        "ksos, MMD, box", _ours(walls=True, **_MMD), walls=True, seconds=400.0
    ),
}
"""Everyone by name."""
