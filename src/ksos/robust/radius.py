"""The radius of a ball from the data themselves: how far samples of this size wander, by the bootstrap."""

from __future__ import annotations

from typing import Any

import numpy as np

from ksos._memory import row_blocks
from ksos._validation import as_count
from ksos.kernels import Kernel
from ksos.robust.reference import Reference

__all__ = ["bootstrap_radius"]

_BLOCK_ELEMENTS = 1 << 22


def bootstrap_radius(reference: Reference, kernel: Kernel, *, confidence: float = 0.95, n_resamples: int = 1000, rng: Any = None) -> float:
    r"""The ``confidence``-quantile of MMD(μ̂*, μ̂) over resamples μ̂* of μ̂, of as many points as μ̂ was made of.

    MMD(μ̂, μ) of a sample to its population has the same limit law, so the ball of this radius holds the population with about this
    probability. ``rng`` is a seed or a Generator.

    >>> from ksos.kernels import Gaussian
    >>> from ksos.robust.reference import as_reference
    >>> X = np.random.default_rng(0).normal(size=(50, 1))
    >>> round(bootstrap_radius(as_reference(X), Gaussian(1.0), rng=0), 2)
    0.17
    """
    if isinstance(confidence, bool) or not isinstance(confidence, (int, float, np.floating)) or not 0.0 < confidence < 1.0:
        raise ValueError(f"confidence must lie strictly between 0 and 1; got {confidence!r}")
    n_resamples = as_count(n_resamples, "n_resamples", minimum=10)
    if not reference.is_distribution:
        raise ValueError('radius="bootstrap" resamples the data, whose weights must not be negative and must sum to 1; pass a number')
    if reference.points.shape[0] < 2:
        raise ValueError('radius="bootstrap" needs at least two distinct samples: resamples of one do not differ; pass a number')
    X, a, n = reference.points, reference.weights, reference.n_samples
    generator = np.random.default_rng(rng)
    probabilities = a / a.sum()
    D = generator.multinomial(n, probabilities, size=n_resamples) / n - probabilities
    squares = np.zeros(n_resamples)
    for rows in row_blocks(X.shape[0], X.shape[0], _BLOCK_ELEMENTS):
        squares += np.einsum("bi,bi->b", D[:, rows], D @ kernel(X[rows], X).T)
    return float(np.quantile(np.sqrt(np.maximum(squares, 0.0)), confidence, method="higher"))
