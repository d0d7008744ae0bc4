"""Densities made from one density: the law of scale·x + shift, and the product with a Gaussian
(Bayes' rule).
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

import numpy as np

from ksos.density._assemble import assemble
from ksos.density.standard import kernel_image
from ksos.exceptions import IntegralNotAvailableError
from ksos.ground.names import said
from ksos.ground.validation import as_invertible, as_metric, as_scales, as_vector
from ksos.kernels import Gaussian, Kernel
from ksos.measures import Discrete

if TYPE_CHECKING:
    from ksos.density.sos import SoSDensity

__all__ = ["affine", "times_gaussian"]


def affine(
    density: SoSDensity, scale: Any = 1.0, shift: Any = 0.0, names: Sequence[str] | None = None
) -> SoSDensity:
    r"""The density of y = scale·x + shift: kernels of bandwidth |scale|·σ at the images of the
    points, relative to the image of ρ.

    A matrix A mixes the features: then y = Ax + shift, and the kernel has the metric ASAᵀ.
    """
    d = density.n_features
    if np.ndim(scale) == 2:
        return _linear(
            density, as_invertible(scale, "scale", d), as_vector(shift, "shift", length=d)
        )
    scale, shift = as_vector(scale, "scale", length=d), as_vector(shift, "shift", length=d)
    if np.any(scale == 0.0):
        k = int(np.argmax(scale == 0.0))
        raise ValueError(
            f"scale must not be zero: that of {said(k, names)} is, and would leave no density; use"
            " p.marginal(…) without the feature"
        )
    sigma = density.kernel.sigma
    one = sigma.ndim == 0 and bool(np.all(np.abs(scale) == np.abs(scale[0])))
    if density.kernel.full:
        kernel: Kernel = kernel_image(density.kernel, np.diag(scale))
    else:
        kernel = density.kernel.with_sigma(
            np.abs(scale[0]) * sigma if one else np.abs(scale) * density.kernel.sigma_vector(d)
        )

    def image(points: np.ndarray) -> np.ndarray:
        with np.errstate(over="ignore"):
            return _in_range(points, scale * points + shift)

    return assemble(
        density,
        kernel,
        image(density.support_points),
        density.measure.image(image, scale),
        density.unit_factor,
    )


def _in_range(points: np.ndarray, image: np.ndarray) -> np.ndarray:
    if not np.all(np.isfinite(points) <= np.isfinite(image)):
        raise ValueError(
            "scale and shift must leave the points within the range of floating-point numbers; use"
            " smaller ones"
        )
    return image


def _linear(density: SoSDensity, A: np.ndarray, shift: np.ndarray) -> SoSDensity:
    if np.array_equal(A, np.diag(np.diagonal(A))):
        return affine(density, np.diagonal(A), shift)
    with np.errstate(over="ignore", invalid="ignore"):
        points = _in_range(density.support_points, density.support_points @ A.T + shift)
    return assemble(
        density,
        kernel_image(density.kernel, A),
        points,
        density.measure.linear_image(A, shift),
        density.unit_factor,
    )


def times_gaussian(density: SoSDensity, mean: Any, scale: Any) -> SoSDensity:
    r"""p(x)·Π_k exp(−(x_k − mean_k)²/(2 scale_k²)), scaled to mass one; an infinite scale says
    nothing about its feature.

    Each squared function is multiplied by the root of the Gaussian, of bandwidth τ = 2·scale. Two
    Gaussians of bandwidths σ and τ make one at x̃ + (mean − x̃)·σ²/(σ² + τ²), of bandwidth σ/√(1 +
    σ²/τ²), times exp(−(x̃ − mean)²/(σ² + τ²)).
    """
    d = density.n_features
    mean, covariance = as_vector(mean, "mean", length=d), as_metric(scale, "scale")
    if covariance is None:
        scale = as_scales(scale, d)
        root = np.diag(1.0 / scale)
    elif covariance.shape[0] != d:
        raise ValueError(
            f"scale must have, as a covariance matrix, shape {(d, d)}; got {covariance.shape}"
        )
    else:
        scale, root = covariance, np.linalg.inv(np.linalg.cholesky(covariance))
    if not isinstance(density.kernel, Gaussian):
        return _on_atoms(density, mean, scale, root)
    if density.kernel.full or covariance is not None:
        return _times_tied(density, mean, scale, 0.5 * root)
    X, sigma, tau = density.support_points, density.kernel.sigma_vector(d), 2.0 * scale
    with np.errstate(over="ignore", under="ignore"):
        ratio = sigma / tau
        stretch = np.hypot(1.0, ratio)
        near, far = (
            (ratio / stretch) ** 2,
            stretch**-2.0,
        )  # the weights of mean and x̃, which add up to one
        moved = np.where(ratio < 1.0, X + near * (mean - X), mean + far * (X - mean))
        width = np.hypot(sigma, tau)
        nearest = X[int(np.argmin(np.sum(((X - mean) / width) ** 2, axis=1)))]
        # the squares themselves would lose the digits of their differences when the mean is far
        # away
        steps, sums = (X - nearest) / width, ((X - mean) + (nearest - mean)) / width
        log_rows = -np.sum(steps * np.where(steps == 0.0, 0.0, sums), axis=1)
    narrowed = sigma / stretch
    kernel = density.kernel.with_sigma(
        narrowed[0]
        if density.kernel.sigma.ndim == 0 and np.all(narrowed == narrowed[0])
        else narrowed
    )
    nothing_left = (
        f"the density vanishes where the Gaussian with mean {mean.tolist()} and scale"
        f" {scale.tolist()} does not"
    )
    return assemble(
        density,
        kernel,
        moved,
        density.measure,
        density.unit_factor,
        log_rows,
        nothing_left=nothing_left,
    )


def _times_tied(
    density: SoSDensity, mean: np.ndarray, scale: np.ndarray, R: np.ndarray
) -> SoSDensity:
    r"""The same where a metric S = LLᵀ or a covariance ties the features; each function is
    multiplied by exp(−‖R(x − mean)‖²).

    With LᵀRᵀRL = QEQᵀ the product is a kernel of metric LQ(I + E)⁻¹QᵀLᵀ at x̃ − LQ·E(I +
    E)⁻¹·QᵀL⁻¹(x̃ − mean), times e^{−‖v‖²} with v = (E/(I + E))^{1/2} QᵀL⁻¹(x̃ − mean).
    """
    X, L = density.support_points, np.linalg.cholesky(density.kernel.matrix(density.n_features))
    E, Q = np.linalg.eigh((R @ L).T @ (R @ L))
    E = np.maximum(E, 0.0)
    LQ, near = L @ Q, E / (1.0 + E)
    u = np.linalg.solve(LQ, (X - mean).T).T
    v = np.sqrt(near) * u
    nearest = v[int(np.argmin(np.einsum("ij,ij->i", v, v)))]
    log_rows = -np.einsum("ij,ij->i", v - nearest, v + nearest)
    kernel = kernel_image(Gaussian(1.0 / np.sqrt(1.0 + E)), LQ)
    nothing_left = (
        f"the density vanishes where the Gaussian with mean {mean.tolist()} and scale"
        f" {scale.tolist()} does not"
    )
    moved = X - (near * u) @ LQ.T
    return assemble(
        density,
        kernel,
        moved,
        density.measure,
        density.unit_factor,
        log_rows,
        nothing_left=nothing_left,
    )


def _on_atoms(
    density: SoSDensity, mean: np.ndarray, scale: np.ndarray, root: np.ndarray
) -> SoSDensity:
    """Any kernel on a discrete measure: the Gaussian goes into the weights of the atoms."""
    measure = density.measure
    if (atoms := measure.atoms) is None:
        raise IntegralNotAvailableError(
            f"the product of a density with {density.kernel!r} and a Gaussian has no closed form on"
            f" {measure!r}; use the Gaussian kernel, or a discrete measure such as"
            " Discrete.quadrature(box, …)"
        )
    with np.errstate(over="ignore", under="ignore"):
        steps = (atoms.points - mean) / scale if scale.ndim == 1 else (atoms.points - mean) @ root.T
        log_likelihood = -0.5 * np.sum(steps**2, axis=1)
        log_mass = log_likelihood + density.logpdf(atoms.points)
        if not np.any(np.isfinite(log_mass)):
            raise ValueError(
                f"the density vanishes where the Gaussian with mean {mean.tolist()} and scale"
                f" {scale.tolist()} does not"
            )
        log_peak = log_likelihood[int(np.argmax(log_mass))]  # at the heaviest atom the weight stays
        # beyond e^600 times that weight there are only atoms at which the density itself has
        # underflown
        weights = atoms.weights * np.exp(np.minimum(log_likelihood - log_peak, 600.0))
    alive = weights > 0.0
    return assemble(
        density,
        density.kernel,
        density.support_points,
        Discrete(atoms.points[alive], weights[alive]),
        density.unit_factor,
    )
