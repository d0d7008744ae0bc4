"""Densities made from one density: the law of scale·x + shift, and the product with a Gaussian (Bayes' rule)."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np

from ksos._validation import as_scales, as_vector
from ksos.density._assemble import assemble
from ksos.exceptions import IntegralNotAvailableError
from ksos.kernels import Gaussian
from ksos.measures import Discrete

if TYPE_CHECKING:
    from ksos.density.sos import SoSDensity

__all__ = ["affine", "times_gaussian"]


def affine(density: SoSDensity, scale: Any = 1.0, shift: Any = 0.0) -> SoSDensity:
    r"""The density of y = scale·x + shift: kernels of bandwidth |scale|·σ at the images of the points, relative to the image of ρ."""
    d = density.n_features
    scale, shift = as_vector(scale, "scale", length=d), as_vector(shift, "shift", length=d)
    if np.any(scale == 0.0):
        k = int(np.argmax(scale == 0.0))
        raise ValueError(
            f"scale must not be zero: that of feature {k} is, and would leave no density; use p.marginal(…) without the feature"
        )
    sigma = density.kernel.sigma
    one = sigma.ndim == 0 and bool(np.all(np.abs(scale) == np.abs(scale[0])))
    kernel = density.kernel.with_sigma(np.abs(scale[0]) * sigma if one else np.abs(scale) * density.kernel.sigma_vector(d))

    def image(points: np.ndarray) -> np.ndarray:
        with np.errstate(over="ignore"):
            out = scale * points + shift
        if not np.all(np.isfinite(points) <= np.isfinite(out)):
            raise ValueError("scale and shift must leave the points within the range of floating-point numbers; use smaller ones")
        return out

    return assemble(density, kernel, image(density.support_points), density.measure.image(image, scale), density.unit_factor)


def times_gaussian(density: SoSDensity, mean: Any, scale: Any) -> SoSDensity:
    r"""p(x)·Π_k exp(−(x_k − mean_k)²/(2 scale_k²)), scaled to mass one; an infinite scale says nothing about its feature.

    Each squared function is multiplied by the root of the Gaussian, of bandwidth τ = 2·scale. Two Gaussians of bandwidths σ and τ make one
    at x̃ + (mean − x̃)·σ²/(σ² + τ²), of bandwidth σ/√(1 + σ²/τ²), times exp(−(x̃ − mean)²/(σ² + τ²)).
    """
    d = density.n_features
    mean, scale = as_vector(mean, "mean", length=d), as_scales(scale, d)
    if not isinstance(density.kernel, Gaussian):
        return _on_atoms(density, mean, scale)
    X, sigma, tau = density.support_points, density.kernel.sigma_vector(d), 2.0 * scale
    with np.errstate(over="ignore", under="ignore"):
        ratio = sigma / tau
        stretch = np.hypot(1.0, ratio)
        near, far = (ratio / stretch) ** 2, stretch**-2.0  # the weights of mean and x̃, which add up to one
        moved = np.where(ratio < 1.0, X + near * (mean - X), mean + far * (X - mean))
        width = np.hypot(sigma, tau)
        nearest = X[int(np.argmin(np.sum(((X - mean) / width) ** 2, axis=1)))]
        # the squares themselves would lose the digits of their differences when the mean is far away
        steps, sums = (X - nearest) / width, ((X - mean) + (nearest - mean)) / width
        log_rows = -np.sum(steps * np.where(steps == 0.0, 0.0, sums), axis=1)
    narrowed = sigma / stretch
    kernel = density.kernel.with_sigma(narrowed[0] if density.kernel.sigma.ndim == 0 and np.all(narrowed == narrowed[0]) else narrowed)
    nothing_left = f"the density vanishes where the Gaussian with mean {mean.tolist()} and scale {scale.tolist()} does not"
    return assemble(density, kernel, moved, density.measure, density.unit_factor, log_rows, nothing_left=nothing_left)


def _on_atoms(density: SoSDensity, mean: np.ndarray, scale: np.ndarray) -> SoSDensity:
    """Any kernel on a discrete measure: the Gaussian goes into the weights of the atoms."""
    measure = density.measure
    if (atoms := measure.atoms) is None:
        raise IntegralNotAvailableError(
            f"the product of a density with {density.kernel!r} and a Gaussian has no closed form on {measure!r}; use the Gaussian kernel, "
            "or a discrete measure such as Discrete.quadrature(box, …)"
        )
    with np.errstate(over="ignore", under="ignore"):
        log_likelihood = -0.5 * np.sum(((atoms.points - mean) / scale) ** 2, axis=1)
        log_mass = log_likelihood + density.logpdf(atoms.points)
        if not np.any(np.isfinite(log_mass)):
            raise ValueError(f"the density vanishes where the Gaussian with mean {mean.tolist()} and scale {scale.tolist()} does not")
        log_peak = log_likelihood[int(np.argmax(log_mass))]  # at the heaviest atom the weight stays
        # beyond e^600 times that weight there are only atoms at which the density itself has underflown
        weights = atoms.weights * np.exp(np.minimum(log_likelihood - log_peak, 600.0))
    alive = weights > 0.0
    return assemble(density, density.kernel, density.support_points, Discrete(atoms.points[alive], weights[alive]), density.unit_factor)
