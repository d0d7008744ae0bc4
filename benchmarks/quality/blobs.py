"""Gaussian mixtures in more than two dimensions: five elongated components, always the same."""

from __future__ import annotations

import numpy as np

from quality.gaussian_mixture import GaussianMixtureLaw

__all__ = ["blobs"]

_COMPONENTS = 5


def blobs(d: int) -> GaussianMixtureLaw:
    """Means of spread 2 per feature; covariances turned at random, with standard deviations from
    0.3 to 1.2.
    """
    rng = np.random.default_rng([20_210_609, d])
    means = rng.normal(scale=2.0, size=(_COMPONENTS, d))
    deviations = np.geomspace(0.3, 1.2, d)
    turns = np.linalg.qr(rng.normal(size=(_COMPONENTS, d, d)))[0]
    covariances = np.einsum("cij,j,ckj->cik", turns, deviations**2, turns)
    weights = np.linspace(1.0, 2.0, _COMPONENTS)
    return GaussianMixtureLaw(weights / weights.sum(), means, covariances)
