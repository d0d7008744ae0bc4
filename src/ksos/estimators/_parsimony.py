"""The mixture of normal laws that BIC chooses, and its share beside a stack.

Shares of dozens of densities cost about a nat each, over all samples together, whatever the truth is. Where the truth is a mixture of few
normal laws, one mixture with the right number of them costs nothing but its parameters. How much of the answer it is, held-out samples say.
"""

from __future__ import annotations

import numpy as np

from ksos.estimators._mixture_stack import MixtureStack

__all__ = ["chosen_by_bic", "held_out_of", "posterior_share"]

_TIED = 4.0  # of BIC: mixtures with one covariance are twice as many chances to be misled
_MOST = 12  # components
_GRID = np.linspace(0.0, 1.0, 101)


def chosen_by_bic(mixtures: MixtureStack) -> np.ndarray | None:
    """Which mixture each weighting of the samples chooses, by −2nℓ + p log n [Schwarz1978]; None where there is nothing to choose among.

    n = 1/Σa² is the number of samples, p that of free parameters: those of one covariance where it is tied.
    """
    labels, d = mixtures.labels, mixtures.points.shape[1]
    among = [j for j, label in enumerate(labels) if label.floor == mixtures.smallest_floor and label.components <= _MOST]
    if not mixtures.parameters_count or len(among) < 2:
        return None
    c, tied = np.array([labels[j].components for j in among]), np.array([labels[j].tied for j in among])
    parameters = c - 1 + c * d + np.where(tied, 1, c) * (d * (d + 1) // 2)
    n = 1.0 / np.sum(mixtures.masses**2, axis=1)
    fit = np.stack([mixtures.likelihoods[j] for j in among], axis=1)
    bic = -2.0 * n[:, None] * fit + parameters * np.log(n)[:, None] + _TIED * tied
    return np.array(among)[np.argmin(bic, axis=1)]


def held_out_of(mixtures: MixtureStack, choice: np.ndarray) -> np.ndarray:
    """Log-densities of what the folds chose, at the samples that they have not seen."""
    parts = [mixtures.held_out[rows, j] for rows, j in zip(mixtures.rows, choice, strict=False)]
    return np.concatenate(parts)


def posterior_share(one: np.ndarray, other: np.ndarray, weights: np.ndarray) -> float:
    """E[β] of p = β·p_one + (1 − β)·p_other given log-densities at samples of weights a: β = 1 with chance ½, else uniform, beforehand.

    >>> round(posterior_share(np.zeros(4), np.full(4, -9.0), np.full(4, 0.25)), 2)
    0.97
    """
    n = 1.0 / float(weights @ weights)
    with np.errstate(divide="ignore"):
        logs = np.logaddexp(np.log(_GRID)[:, None] + one, np.log1p(-_GRID)[:, None] + other) @ weights
    posterior = np.exp(n * (logs - logs.max()))
    posterior[-1] *= _GRID.size
    return float(posterior @ _GRID / posterior.sum())
