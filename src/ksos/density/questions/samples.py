"""Exact samples of a sum of terms."""

from __future__ import annotations

import math

import numpy as np

from ksos.density.corrected import Corrected
from ksos.density.sampling import draw, draw_by_inversion
from ksos.density.square import Square
from ksos.density.terms import Term, Terms
from ksos.ground.arrays import Array, on_accelerator
from ksos.ground.progress import tell_rows

__all__ = ["draw_corrected", "draw_terms"]

# of proposals: fewer would take hours
_LEAST_ACCEPTANCE = 1e-6
# proposals at a time
_PROPOSALS = 1 << 16


def draw_terms(p: Terms, size: int, rng: np.random.Generator, method: str) -> Array:
    """Samples of p, shape (size, d): the number from each term is multinomial."""
    if (own := p.square or p.own) is not None and isinstance(own, Square):
        ways = method in ("auto", "inversion") and p.measure.atoms is None
        if ways and on_accelerator(p.home) and p.on_host.square is not None:
            return draw_by_inversion(own, size, rng)
    host = p.on_host
    if host.square is not None:
        return draw(host.square, size, rng, method)
    weights = np.array([w for w, _ in host.parts])
    counts = rng.multinomial(size, weights / weights.sum())
    samples = [
        _draw(term, int(count), rng, method)
        for count, (_, term) in zip(counts, host.parts, strict=True)
        if count
    ]
    rows = np.concatenate([np.empty((0, p.n_features)), *samples])
    return rows[rng.permutation(size)]


def _draw(term: Term, size: int, rng: np.random.Generator, method: str) -> np.ndarray:
    if isinstance(term, Corrected):
        return draw_corrected(term, size, rng)
    if term.is_normal_sum and term.support_points.shape[0] == 1:
        L = np.linalg.cholesky(0.25 * term.kernel.matrix(term.n_features))
        return term.support_points[0] + rng.standard_normal((size, term.n_features)) @ L.T
    return draw(term, size, rng, method)


def draw_corrected(p: Corrected, size: int, rng: np.random.Generator) -> np.ndarray:
    """Samples of the reference, each kept with probability f(x)/sup f."""
    acceptance = 1.0 / p.bound()
    if acceptance < _LEAST_ACCEPTANCE:
        raise ValueError(
            f"sampling would accept one proposal in {1.0 / acceptance:.3g}: the correction changes"
            " its reference too much; fit with a larger regularization, or without a reference"
        )
    out, filled, log_bound = np.empty((size, p.n_features)), 0, -math.log(acceptance)
    while filled < size:
        tell_rows(filled, size)
        n = min(_PROPOSALS, int(1.1 * (size - filled) / acceptance) + 32)
        X = p.draw_reference(n, rng)
        keep = X[np.log(rng.random(n)) + log_bound <= p.joint.logpdf(X)][: size - filled, p.shown]
        out[filled : filled + keep.shape[0]] = keep
        filled += keep.shape[0]
    return out
