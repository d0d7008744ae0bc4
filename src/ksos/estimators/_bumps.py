"""The kernel density estimate of a space: p = Σ_i a_i k(·,x_i)²/∫k(x,x_i)²dρ, the sum of squares whose B is diagonal."""

from __future__ import annotations

import numpy as np
from scipy.special import logsumexp

from ksos._memory import row_blocks
from ksos.density import SoSDensity
from ksos.integrals import closed_form
from ksos.kernels import Kernel
from ksos.measures import Measure

__all__ = ["bump_density", "bump_logpdf"]

_BLOCK_ELEMENTS = 1 << 20


def bump_density(kernel: Kernel, measure: Measure, points: np.ndarray, weights: np.ndarray) -> SoSDensity:
    """The estimate as a density of the class; with a Gaussian kernel of bandwidth η its bumps are Gaussians of deviation η/2."""
    log_diagonal = closed_form(kernel, measure, points.shape[1]).log_diagonal(points)
    log_unit = float(log_diagonal.max())
    return SoSDensity.from_units(kernel, points, np.diag(np.sqrt(weights) * np.exp(0.5 * (log_unit - log_diagonal))), log_unit, measure)


def bump_logpdf(kernel: Kernel, measure: Measure, points: np.ndarray, weights: np.ndarray, X: np.ndarray) -> np.ndarray:
    """Its log-density at the rows of ``X``, without any matrix of the size of B."""
    log_masses = closed_form(kernel, measure, points.shape[1]).log_diagonal(points)
    heights = np.where(np.isfinite(log_masses), np.log(weights) - log_masses, -np.inf)  # a discrete measure may not see a narrow bump
    out = np.empty(X.shape[0])
    for rows in row_blocks(X.shape[0], points.shape[0], _BLOCK_ELEMENTS):
        out[rows] = logsumexp(2.0 * kernel.log(X[rows], points) + heights, axis=1)
    return out
