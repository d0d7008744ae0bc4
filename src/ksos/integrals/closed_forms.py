"""The table of closed forms: which integrals a (kernel, measure) pair has.

To add a pair: one subclass of :class:`Integrals` and its line in :data:`CLOSED_FORMS`. A pair that
is not listed is an error which names the measure to use instead; quadrature is never silent.
"""

from __future__ import annotations

from typing import cast

from ksos.exceptions import IntegralNotAvailableError
from ksos.integrals.base import AnyDiscrete, Integrals
from ksos.integrals.exponential import ExponentialBox, ExponentialLebesgue
from ksos.integrals.gaussian import (
    GaussianBox,
    GaussianLebesgue,
    GaussianMetric,
    GaussianNormal,
    GaussianNormals,
)
from ksos.kernels import Gaussian, Kernel, Laplace, Matern
from ksos.measures import Box, Discrete, GaussianMixture, Lebesgue, Measure, Normal

CLOSED_FORMS: dict[tuple[type[Kernel], type[Measure]], type[Integrals]] = {
    (Gaussian, Lebesgue): GaussianLebesgue,
    (Gaussian, Normal): GaussianNormal,
    (Gaussian, GaussianMixture): GaussianNormals,
    (Gaussian, Box): GaussianBox,
    (Laplace, Lebesgue): ExponentialLebesgue,
    (Laplace, Box): ExponentialBox,
    (Matern, Lebesgue): ExponentialLebesgue,
    (Matern, Box): ExponentialBox,
    (Kernel, Discrete): AnyDiscrete,
}
"""Every pair with a closed form; the entry for :class:`Kernel` stands for all kernels."""

_CORRELATED: dict[type[Integrals], type[Integrals]] = {
    GaussianLebesgue: GaussianMetric,
    GaussianNormal: GaussianNormals,
}
"""What takes their place if a metric or a covariance correlates the features."""


def closed_form(
    kernel: Kernel, measure: Measure, n_features: int, embedding_kernel: Kernel | None = None
) -> Integrals:
    """The integrals of ``kernel`` against ``measure``; with ``embedding_kernel``, those of both
    kernels together.
    """
    kernels = [kernel] if embedding_kernel is None else [kernel, embedding_kernel]
    for k in kernels:
        if not isinstance(k, Kernel):
            raise TypeError(
                f"a kernel object such as ksos.kernels.Gaussian(1.0) is needed; got {k!r}"
            )
        k.check_features(n_features)
    if not isinstance(measure, Measure):
        raise TypeError(
            f"a measure such as ksos.measures.Box(low, high) is needed; got {measure!r}"
        )
    measure.check_features(n_features)
    forms = [
        CLOSED_FORMS.get((type(k), type(measure))) or CLOSED_FORMS.get((Kernel, type(measure)))
        for k in kernels
    ]
    for k, form in zip(kernels, forms, strict=True):
        if form is None:
            why = "has no closed-form integrals there;"
        elif form is not forms[0]:
            why = f"and {kernel!r} have no closed-form integrals together;"
        elif k.full and form is GaussianBox:
            why = "has no closed-form integrals there; give one bandwidth per feature, or"
        elif issubclass(form, ExponentialLebesgue) and getattr(k, "polynomial", None) is None:
            why = "has closed-form integrals for half-integer nu only;"
        elif not k.full and form is not AnyDiscrete and not k.separable(n_features):
            why = "is not a product over the features; pass product=True, or"
        else:
            continue
        fix = "Discrete.quadrature(box, …)" if n_features <= 3 else "Discrete.qmc(box, …)"
        raise IntegralNotAvailableError(
            f"{k!r} on {measure!r} {why} integrate against a discrete measure instead:"
            f" measure={fix} with a box around the data"
        )
    found = cast("type[Integrals]", forms[0])
    if measure.by_components or any(k.full for k in kernels):
        found = _CORRELATED.get(found, found)
    return found(kernel, measure, n_features)
