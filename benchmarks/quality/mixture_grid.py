"""Two peers made of many Gaussian mixtures: the one that predicts best, and all of them stacked,
both judged on held-out samples.
"""

from __future__ import annotations

import warnings
from collections.abc import Sequence
from typing import NamedTuple

import numpy as np

from quality.gaussian_mixture import GaussianMixtureLaw

__all__ = ["FLOORS", "SIZES", "Candidate", "best", "held_out", "shares_by_em", "stack"]

SIZES = (1, 2, 3, 5, 8, 12, 20, 32)
"""Components."""

FLOORS = (1e-6, 3e-3, 3e-2)
"""What is added to the variances of standardized data: scikit-learn's ``reg_covar``."""

_GAP = 1e-6
_MOST_STEPS = 100_000
_DEAD = 1e-100


class Candidate(NamedTuple):
    """One entry of the grid."""

    components: int
    floor: float


def best(
    U: np.ndarray, *, sizes: Sequence[int] = SIZES
) -> tuple[GaussianMixtureLaw, dict[str, float]]:
    """The candidate of the highest held-out likelihood, fitted again to all samples; one that fails
    there gives way to the next.
    """
    candidates, logs = held_out(U, sizes=sizes)
    for c in np.argsort(-logs.mean(axis=0), kind="stable"):
        law = _fit(U, candidates[c])
        if law is not None:
            return law, candidates[c]._asdict()
    raise ValueError("no Gaussian mixture of the grid could be fitted")


def stack(
    U: np.ndarray, *, sizes: Sequence[int] = SIZES
) -> tuple[GaussianMixtureLaw, list[list[float]]]:
    """Σ_c w_c p_c, the shares w by likelihood on held-out samples, every p_c fitted again to all
    samples; and (components, floor, w_c).
    """
    candidates, logs = held_out(U, sizes=sizes)
    fits = [
        (candidate, share, _fit(U, candidate))
        for candidate, share in zip(candidates, shares_by_em(logs), strict=True)
    ]
    laws = [(candidate, share, law) for candidate, share, law in fits if law is not None]
    if not laws:
        raise ValueError("no Gaussian mixture of the grid could be fitted")
    total = sum(share for _, share, _ in laws)
    together = GaussianMixtureLaw(
        np.concatenate([share / total * law.weights for _, share, law in laws]),
        np.concatenate([law.means for _, _, law in laws]),
        np.concatenate([law.covariances for _, _, law in laws]),
    )
    return together, [
        [candidate.components, candidate.floor, share / total] for candidate, share, _ in laws
    ]


def held_out(
    U: np.ndarray, *, sizes: Sequence[int] = SIZES, floors: Sequence[float] = FLOORS
) -> tuple[list[Candidate], np.ndarray]:
    """The log-densities (n, candidates) at each sample, by fits that have not seen its fold.

    Candidates with more components than a fold leaves samples, and those that fail in a fold, are
    left out.
    """
    from sklearn.model_selection import KFold

    folds = list(KFold(5, shuffle=True, random_state=0).split(U))
    least = min(seen.size for seen, _ in folds)
    candidates, columns = [], []
    for candidate in [Candidate(k, floor) for k in sizes if k <= least for floor in floors]:
        column = np.empty(U.shape[0])
        for seen, unseen in folds:
            law = _fit(U[seen], candidate)
            if law is None:
                break
            column[unseen] = law.logpdf(U[unseen])
        else:
            candidates.append(candidate)
            columns.append(column)
    return candidates, np.stack(columns, axis=1) if columns else np.empty((U.shape[0], 0))


def shares_by_em(logs: np.ndarray) -> np.ndarray:
    """The shares w on the simplex that maximize mean_i log Σ_c w_c p_c(x_i), given log p_c(x_i).

    With g_c = mean_i p_c(x_i)/Σ_a w_a p_a(x_i), a step of EM is w_c ← w_c g_c; concavity bounds
    what is left to gain by max_c log g_c. The steps end when that is a millionth of a nat; after
    10⁵ of them at most log(candidates)/10⁵ is left.
    """
    densities = np.exp(logs - logs.max(axis=1, keepdims=True))
    w = np.full(logs.shape[1], 1.0 / logs.shape[1])
    for _ in range(_MOST_STEPS):
        g = (1.0 / (densities @ w)) @ densities / logs.shape[0]
        w = np.where(w < _DEAD, 0.0, w * g)  # subnormal numbers are slow on some processors
        if g.max() <= 1.0 + _GAP:
            break
    return w / w.sum()


def _fit(U: np.ndarray, candidate: Candidate) -> GaussianMixtureLaw | None:
    """scikit-learn's GaussianMixture with its own number of starts, steps and tolerance; None where
    it fails.
    """
    from sklearn.exceptions import ConvergenceWarning
    from sklearn.mixture import GaussianMixture

    with warnings.catch_warnings():
        warnings.simplefilter("ignore", ConvergenceWarning)
        try:
            fit = GaussianMixture(
                candidate.components, reg_covar=candidate.floor, random_state=0
            ).fit(U)
        except ValueError:  # a covariance that is not positive definite
            return None
    return GaussianMixtureLaw(fit.weights_, fit.means_, fit.covariances_)
