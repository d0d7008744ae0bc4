"""Exact sampling by rejection: draw from a mixture that dominates the density, keep each draw with
the ratio of the two.

The mixture drops the negative weights of p = Σ_ij B_ij k_i k_j, whose kernels are positive.
"""

from __future__ import annotations

import math
from abc import ABC, abstractmethod
from typing import TYPE_CHECKING, cast

import numpy as np

from ksos.ground.memory import FLOAT_BYTES, row_blocks
from ksos.ground.progress import tell_rows
from ksos.integrals import closed_form
from ksos.kernels import Laplace, Matern

if TYPE_CHECKING:
    from ksos.density.square import Square

__all__ = [
    "Envelope",
    "PairEnvelope",
    "PointEnvelope",
    "draw_by_rejection",
    "envelope",
    "envelope_bytes",
]

_LARGEST_LOG = 300.0  # e³⁰⁰ squared is still a number
_PROPOSALS, _CACHE_ELEMENTS = 1 << 14, 1 << 18


def draw_by_rejection(envelope: Envelope, size: int, rng: np.random.Generator) -> np.ndarray:
    """``size`` independent samples of the envelope's density, shape (size, d)."""
    density, filled = envelope.density, 0
    out = np.empty((size, density.n_features))
    while filled < size:
        tell_rows(filled, size)
        n = min(_PROPOSALS, int(1.1 * (size - filled) / envelope.acceptance) + 32)
        proposals, uniforms = envelope.propose(n, rng), rng.random(n)
        blocks = row_blocks(n, envelope.centres.shape[0], _CACHE_ELEMENTS)
        keep = np.concatenate(
            [envelope.accepted(proposals[rows], uniforms[rows]) for rows in blocks]
        )
        samples = density.support_points[0] + proposals[keep]
        samples = samples[density.measure.contains(samples)][: size - filled]
        out[filled : filled + samples.shape[0]] = samples
        filled += samples.shape[0]
    return out


class Envelope(ABC):
    """g ≥ p on all of R^d, a mixture that is easy to draw from; a box is taken care of by rejecting
    what falls outside.

    With kernels k̂ of norm one on R^d (in L²(ρ) for a normal measure), p = k̂ᵀB̂k̂ and B̂⁺ holds
    the positive entries of B̂.
    """

    acceptance: float
    """The probability 1/∫g that a proposal is accepted."""

    def __init__(self, density: Square) -> None:
        self.density = density = density.central_point_first()
        X = density.support_points
        self.integrals = closed_form(density.kernel, density.measure.without_boundary, X.shape[1])
        # positions are relative to the first point: exact for data far from zero
        self.centres = X - X[0]
        self.log_norm = 0.5 * self.integrals.log_diagonal(X)
        log_scale = self.log_norm - 0.5 * density.log_unit
        # far outside their box, points have next to no mass in it and an envelope without end: what
        # follows then has acceptance 0
        self.factor = density.unit_factor * np.exp(np.minimum(log_scale, _LARGEST_LOG))[:, None]
        self.positive = np.maximum(self.factor @ self.factor.T, 0.0)
        mass = self._prepare() if log_scale.max() < _LARGEST_LOG else math.inf
        self.acceptance = min(1.0, 1.0 / mass) if mass > 0.0 else 0.0

    @abstractmethod
    def _prepare(self) -> float:
        """Get ready to draw; returns ∫g."""

    @abstractmethod
    def propose(self, n: int, rng: np.random.Generator) -> np.ndarray:
        """``n`` draws from g/∫g, relative to the first support point, shape (n, d)."""

    @abstractmethod
    def bound(self, values: np.ndarray) -> np.ndarray:
        """g from the kernel values k̂, shape (n, m)."""

    def accepted(self, proposals: np.ndarray, uniforms: np.ndarray) -> np.ndarray:
        """Which proposals to keep: those with uniform·g ≤ p. Both are quadratic in k̂, so each row
        may have a scale of its own.
        """
        log_values = self.density.kernel.log(proposals, self.centres) - self.log_norm
        values = np.exp(log_values - log_values.max(axis=1, keepdims=True))
        squares = values @ self.factor
        return uniforms * self.bound(values) <= np.einsum("ij,ij->i", squares, squares)


class PairEnvelope(Envelope):
    """g = k̂ᵀB̂⁺k̂ for the Gaussian kernel: the components k̂_i k̂_j are normal distributions, on
    R^d as with a normal measure.
    """

    def _prepare(self) -> float:
        X = self.density.support_points
        if (metric := self.integrals.pair_metric()) is not None:
            self.xi, self.root = X - X[0], np.linalg.cholesky(0.5 * metric)
        else:
            self.xi, width = cast(
                "tuple[np.ndarray, np.ndarray]", self.integrals.pair_normals(X, X[0])
            )
            self.root = math.sqrt(0.5) * width
        overlap = np.exp(self.integrals.log_gram(X, X) - self.log_norm[:, None] - self.log_norm)
        self.cumulative = np.cumsum((self.positive * overlap).ravel())
        return float(self.cumulative[-1])

    def propose(self, n: int, rng: np.random.Generator) -> np.ndarray:
        component = _draw_index(self.cumulative, rng.random(n))
        i, j = np.divmod(component, self.centres.shape[0])
        mean = 0.5 * (self.xi[i] + self.xi[j])
        normal = rng.standard_normal(mean.shape)
        return np.asarray(
            mean + (self.root * normal if self.root.ndim == 1 else normal @ self.root.T)
        )

    def bound(self, values: np.ndarray) -> np.ndarray:
        return np.einsum("ij,ij->i", values @ self.positive, values)


class PointEnvelope(Envelope):
    """g = Σ_i (Σ_j B̂⁺_ij) k̂_i², from k̂_i k̂_j ≤ ½(k̂_i² + k̂_j²), for products of κ = e^{−r} Σ_k
    c_k r^k: r follows a mixture of gammas.
    """

    def _prepare(self) -> float:
        self.totals = self.positive.sum(axis=1)
        self.cumulative = np.cumsum(self.totals)
        c = cast("np.ndarray", cast("Laplace | Matern", self.density.kernel).polynomial)
        squared = np.convolve(
            c, c
        )  # κ² = e^{−2r} Σ_k squared_k r^k, and ∫ r^k e^{−2r} dr = k!/2^{k+1}
        self.shapes = np.cumsum(
            [e * math.factorial(k) / 2.0 ** (k + 1) for k, e in enumerate(squared)]
        )
        return float(self.cumulative[-1])

    def propose(self, n: int, rng: np.random.Generator) -> np.ndarray:
        i, d = _draw_index(self.cumulative, rng.random(n)), self.density.n_features
        shape = 1.0 + _draw_index(self.shapes, rng.random((n, d)))
        distance = 0.5 * rng.standard_gamma(shape) * self.density.kernel.sigma_vector(d)
        return np.asarray(self.centres[i] + np.where(rng.random((n, d)) < 0.5, -distance, distance))

    def bound(self, values: np.ndarray) -> np.ndarray:
        return (values * values) @ self.totals


def envelope(density: Square) -> Envelope | None:
    """The envelope of ``density``; None if there is none, as on a discrete measure."""
    integrals, normals = (
        density.integrals,
        density.integrals.pair_normals(density.support_points[:1]),
    )
    if density.measure.atoms is None and (
        normals is not None or integrals.pair_metric() is not None
    ):
        return PairEnvelope(density)
    if density.measure.by_volume and isinstance(density.kernel, (Laplace, Matern)):
        return PointEnvelope(density)
    return None


def envelope_bytes(m: int) -> float:
    """The memory that making an envelope for ``m`` support points takes: a few matrices of weights
    of all pairs.
    """
    return 6.0 * m * m * FLOAT_BYTES


def _draw_index(cumulative: np.ndarray, uniforms: np.ndarray) -> np.ndarray:
    """Indices with probabilities proportional to the steps of ``cumulative``; a step of zero is
    never drawn.
    """
    index = np.searchsorted(cumulative, uniforms * cumulative[-1], side="right")
    return np.minimum(index, int(np.searchsorted(cumulative, cumulative[-1], side="left")))
