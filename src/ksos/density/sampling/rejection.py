"""Exact sampling by rejection: draw from a mixture that dominates the density, keep each draw with the ratio of the two."""

from __future__ import annotations

import numpy as np

from ksos._memory import row_blocks
from ksos.density.sampling.envelopes import Envelope

__all__ = ["draw_by_rejection"]

_PROPOSALS = 1 << 14
_CACHE_ELEMENTS = 1 << 18
_LEAST_ACCEPTANCE = 1e-6


def draw_by_rejection(envelope: Envelope, size: int, rng: np.random.Generator) -> np.ndarray:
    """``size`` independent samples of the envelope's density, shape (size, d)."""
    if envelope.acceptance < _LEAST_ACCEPTANCE:
        raise ValueError(
            f"method='rejection' would accept one proposal in {1.0 / max(envelope.acceptance, 1e-300):.3g}: "
            "the negative weights of this density are too large for it; use method='inversion'"
        )
    density, centres = envelope.density, envelope.centres
    out, filled = np.empty((size, density.n_features)), 0
    while filled < size:
        n = min(_PROPOSALS, int(1.1 * (size - filled) / envelope.acceptance) + 32)
        proposals, uniforms = envelope.propose(n, rng), rng.random(n)
        keep = np.empty(n, dtype=bool)
        for rows in row_blocks(n, centres.shape[0], _CACHE_ELEMENTS):
            keep[rows] = envelope.accepted(proposals[rows], uniforms[rows])
        samples = density.support_points[0] + proposals[keep]
        samples = samples[density.measure.contains(samples)][: size - filled]
        out[filled : filled + samples.shape[0]] = samples
        filled += samples.shape[0]
    return out
