"""Exact sampling by rejection: draw from a mixture that dominates the density, keep each draw with
the ratio of the two.

With kernels k̂ of norm one on R^d (in L²(ρ) for a normal measure), p = k̂ᵀB̂k̂. Kernels are
positive, so that g = k̂ᵀB̂⁺k̂ with the positive entries of B̂ dominates p. For Gaussian kernels the
components k̂_i k̂_j are normal distributions. For products of κ = e^{−r} Σ_k c_k r^k, which
integrate to no such thing, k̂_i k̂_j ≤ ½(k̂_i² + k̂_j²) gives g = Σ_i (Σ_j B̂⁺_ij) k̂_i², and r
follows a mixture of gamma distributions.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import TYPE_CHECKING, cast

import numpy as np

from ksos.ground import FLOAT_BYTES, Run, row_blocks
from ksos.integrals import closed_form
from ksos.kernels import Laplace, Matern

if TYPE_CHECKING:
    from ksos.density.square import Square


_LARGEST_LOG = 300.0  # e³⁰⁰ squared is still a number
_PROPOSALS = 1 << 14  # at a time: their components and noise take few megabytes
_BLOCK = 1 << 18  # kernel values at a time: 2 MB, which fits into a core's cache


class Envelope:
    """g ≥ p on all of R^d, a mixture that is easy to draw from, and the probability 1/∫g of
    ``acceptance``. What falls outside of a box is rejected.
    """

    def __init__(self, density: Square) -> None:
        self.density = density = density.central_point_first()
        X = density.support_points
        everywhere = closed_form(density.kernel, density.measure.without_boundary, X.shape[1])
        # positions are relative to the first point: exact for data far from zero
        self.centers = self.means = X - X[0]
        self.log_norm = 0.5 * everywhere.log_diagonal(X)
        log_scale = self.log_norm - 0.5 * density.log_unit
        # far outside their box, points have next to no mass in it and an envelope without end: what
        # follows then has acceptance 0
        self.factor = density.unit_factor * np.exp(np.minimum(log_scale, _LARGEST_LOG))[:, None]
        positive = np.maximum(self.factor @ self.factor.T, 0.0)
        self.root: np.ndarray | None = None
        if isinstance(density.kernel, (Laplace, Matern)):
            self.weights = masses = positive.sum(axis=1)
        else:
            pairs = cast("tuple[np.ndarray, np.ndarray]", everywhere.pair_normals(X, X[0]))
            self.means, self.root = pairs[0], math.sqrt(0.5) * pairs[1]
            overlap = np.exp(everywhere.log_gram(X, X) - self.log_norm[:, None] - self.log_norm)
            self.weights, masses = positive, (positive * overlap).ravel()
        self.cumulative = np.cumsum(masses)
        known = log_scale.max() < _LARGEST_LOG and self.cumulative[-1] > 0.0
        self.acceptance = min(1.0, 1.0 / float(self.cumulative[-1])) if known else 0.0

    def propose(self, n: int, rng: np.random.Generator) -> np.ndarray:
        """``n`` draws from g/∫g, relative to the first support point, shape (n, d)."""
        component, (m, d) = _draw_index(self.cumulative, rng.random(n)), self.centers.shape
        if self.root is not None:
            noise, (i, j) = rng.standard_normal((n, d)), np.divmod(component, m)
            noise = self.root * noise if self.root.ndim == 1 else noise @ self.root.T
            return np.asarray(0.5 * (self.means[i] + self.means[j]) + noise)
        kernel = cast("Laplace | Matern", self.density.kernel)
        # κ² = e^{−2r} Σ_k squared_k r^k, and ∫ r^k e^{−2r} dr = k!/2^{k+1}
        squared = np.convolve(polynomial := np.asarray(kernel.polynomial), polynomial)
        gammas = [e * math.factorial(k) / 2.0 ** (k + 1) for k, e in enumerate(squared)]
        shape = 1.0 + _draw_index(np.cumsum(gammas), rng.random((n, d)))
        distance = 0.5 * rng.standard_gamma(shape) * kernel.sigma_vector(d)
        signs = np.where(rng.random((n, d)) < 0.5, -1.0, 1.0)
        return np.asarray(self.centers[component] + signs * distance)

    def bound(self, values: np.ndarray) -> np.ndarray:
        """g from the kernel values k̂, shape (n, m)."""
        if self.weights.ndim == 1:
            return np.asarray((values * values) @ self.weights)
        return np.einsum("ij,ij->i", values @ self.weights, values)

    def accepted(self, proposals: np.ndarray, uniforms: np.ndarray) -> np.ndarray:
        """Which proposals to keep: those with uniform·g ≤ p. Both are quadratic in k̂, so each row
        may have a scale of its own.
        """
        log_values = self.density.kernel.log(proposals, self.centers) - self.log_norm
        values = np.exp(log_values - log_values.max(axis=1, keepdims=True))
        squares = values @ self.factor
        return uniforms * self.bound(values) <= np.einsum("ij,ij->i", squares, squares)


def envelope(density: Square) -> Envelope | None:
    """The envelope of ``density``; None if there is none, as on a discrete measure."""
    integrals, measure = density.integrals, density.measure
    known = measure.by_volume and isinstance(density.kernel, (Laplace, Matern))
    known = known or integrals.pair_normals(density.support_points[:1]) is not None
    return Envelope(density) if known and measure.atoms is None else None


def envelope_bytes(m: int) -> float:
    """The memory that making an envelope for ``m`` support points takes: a few matrices of weights
    of all pairs.
    """
    return 6.0 * m * m * FLOAT_BYTES


def draw_by_rejection(envelope: Envelope, size: int, rng: np.random.Generator) -> np.ndarray:
    """``size`` independent samples of the envelope's density, shape (size, d)."""
    density = envelope.density

    def accepted(n: int) -> np.ndarray:
        proposals, uniforms = envelope.propose(n, rng), rng.random(n)
        blocks = row_blocks(n, envelope.centers.shape[0], _BLOCK)
        keep = np.concatenate(
            [envelope.accepted(proposals[rows], uniforms[rows]) for rows in blocks]
        )
        samples = density.support_points[0] + proposals[keep]
        return samples[density.measure.contains(samples)]

    return gathered(accepted, size, density.n_features, 1.1 / envelope.acceptance, _PROPOSALS)


def gathered(
    accepted: Callable[[int], np.ndarray], size: int, d: int, proposals: float, most: int
) -> np.ndarray:
    """``size`` of the rows that are ``accepted`` of n proposals, shape (size, d), with about so
    many ``proposals`` for each, at ``most`` so many at a time.
    """
    out, filled = np.empty((size, d)), 0
    while filled < size:
        Run.current().tell_rows(filled, size)
        kept = accepted(min(most, int(proposals * (size - filled)) + 32))[: size - filled]
        out[filled : filled + kept.shape[0]] = kept
        filled += kept.shape[0]
    return out


def _draw_index(cumulative: np.ndarray, uniforms: np.ndarray) -> np.ndarray:
    """Indices with probabilities proportional to the steps of ``cumulative``; a step of zero is
    never drawn.
    """
    index = np.searchsorted(cumulative, uniforms * cumulative[-1], side="right")
    return np.minimum(index, int(np.searchsorted(cumulative, cumulative[-1], side="left")))
