"""The density fits of the paper's second figure: two moons, Gaussian kernel, support points drawn from the sample."""

from __future__ import annotations

from dataclasses import asdict, dataclass
from functools import cache
from typing import Any

import numpy as np

from ksos.embedding import mmd
from ksos.estimators import KernelSoSDensity
from ksos.solvers import Solution

__all__ = ["MIDDLE", "MoonsFit", "Setting", "fit", "sample"]

N_SAMPLES, NOISE, SEED = 100, 0.05, 0
TOL = 1e-8


@dataclass(frozen=True)
class Setting:
    """One panel: min ‖P(v − w_p)‖² + λ tr A over the densities on m of the samples, with one Gaussian kernel of bandwidth σ."""

    m: int = 50
    sigma: float = 1.0
    lam: float = 1e-3


MIDDLE = Setting()
"""The panel that the three rows of the figure share."""


@dataclass(frozen=True)
class MoonsFit:
    """A fitted panel: the density, its certificate, and its distance to the data measured in two ways."""

    setting: Setting
    solution: Solution
    mmd_exact: float
    mmd_projected: float

    def line(self) -> str:
        """The certificate as one line for people."""
        setting, solution = self.setting, self.solution
        bound = solution.projected_mmd_bound
        return (
            f"two moons, m={setting.m}, σ={setting.sigma:g}, λ={setting.lam:g}: {solution.status}, objective {solution.objective:.6e}, "
            f"gap {solution.gap:.1e}, within √gap = {bound:.1e} of the optimum in projected MMD; "
            f"MMD to the data: exact {self.mmd_exact:.5f}, projected {self.mmd_projected:.5f}; rank {solution.rank}"
        )

    def row(self) -> dict[str, Any]:
        """Everything known about the fit, for the table of numbers."""
        solution, space = self.solution, self.solution.space
        return {
            "n": N_SAMPLES,
            "noise": NOISE,
            "seed": SEED,
            **asdict(self.setting),
            **solution.summary(),
            "mmd_exact": self.mmd_exact,
            "mmd_projected": self.mmd_projected,
            "rank": solution.rank,
            "space_rank": space.rank,
            "embedding_rank": space.embedding_rank,
            "tol": TOL,
            "tol_model": space.tol_model,
            "tol_embedding": space.tol_embedding,
        }


def sample() -> np.ndarray:
    """The n = 100 points, noise 0.05, seed 0."""
    from sklearn.datasets import make_moons  # heavy to import, and needed only here

    X, _ = make_moons(N_SAMPLES, noise=NOISE, random_state=SEED)
    return np.asarray(X)


def support(m: int) -> np.ndarray:
    """m random points of the sample; a smaller choice is part of a larger one."""
    X = sample()
    return X[np.random.default_rng(SEED).permutation(X.shape[0])[:m]]


@cache
def fit(setting: Setting = MIDDLE) -> MoonsFit:
    """Fit one panel; as in the paper, the landmarks of the projection are the support points."""
    X = sample()
    estimator = KernelSoSDensity(bandwidth=setting.sigma, regularization=setting.lam, support=support(setting.m), tol=TOL).fit(X)
    p, kernel = estimator.distribution_, estimator.distribution_.kernel
    return MoonsFit(setting, estimator.solution_, mmd(X, p, kernel), mmd(X, p, kernel, landmarks=estimator.landmarks_))
