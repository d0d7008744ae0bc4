"""The law of scale·x + shift, feature by feature."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np

from ksos._validation import as_vector
from ksos.density._assemble import assemble
from ksos.measures import Box, Discrete, Lebesgue, Measure, Normal

if TYPE_CHECKING:
    from ksos.density.sos import SoSDensity

__all__ = ["affine"]


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
    points = _image(density.support_points, scale, shift)
    return assemble(density, kernel, points, _image_measure(density.measure, scale, shift), density.unit_factor)


def _image(points: np.ndarray, scale: np.ndarray, shift: np.ndarray) -> np.ndarray:
    with np.errstate(over="ignore"):
        out = scale * points + shift
    if not np.all(np.isfinite(out)):
        raise ValueError("scale and shift must leave the points within the range of floating-point numbers; use smaller ones")
    return out


def _image_measure(measure: Measure, scale: np.ndarray, shift: np.ndarray) -> Measure:
    """Where the density lives after the change of variables: Lebesgue measure stays itself, a probability measure is moved."""
    if isinstance(measure, Lebesgue):
        return measure
    if isinstance(measure, Box):
        walls = [scale * wall + shift for wall in (measure.low, measure.high)]
        return Box(np.minimum(*walls), np.maximum(*walls))
    if isinstance(measure, Normal):
        mean, deviation = measure.vectors(scale.shape[0])
        return Normal(_image(mean[None, :], scale, shift)[0], np.abs(scale) * deviation)
    if isinstance(measure, Discrete):
        return Discrete(_image(measure.points, scale, shift), measure.weights)
    raise TypeError(f"no rule says what an affine map makes of {measure!r}; the measures of ksos.measures have one")
