"""What ∫k dρ, ∫kk dρ and ∫kkk dρ are, per (kernel, measure) pair.

To add a pair: one subclass of :class:`Integrals` and its line in :data:`CLOSED_FORMS`. A pair that
is not listed is an error which names the measure to use instead; quadrature is never silent.
"""

from __future__ import annotations

from ksos.exceptions import IntegralNotAvailableError
from ksos.integrals.base import Integrals
from ksos.integrals.discrete import AnyDiscrete
from ksos.integrals.exponential import ExponentialBox, ExponentialLebesgue
from ksos.integrals.gaussian import GaussianBox, GaussianLebesgue, GaussianNormal
from ksos.integrals.metric import GaussianMetric, GaussianNormals
from ksos.kernels import Gaussian, Kernel, Laplace, Matern
from ksos.measures import Box, Discrete, GaussianMixture, Lebesgue, Measure, Normal

__all__ = ["CLOSED_FORMS", "Integrals", "closed_form"]

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

TIED: dict[type[Integrals], type[Integrals]] = {
    GaussianLebesgue: GaussianMetric,
    GaussianNormal: GaussianNormals,
}
"""What takes their place where a metric or a covariance ties the features."""


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
    found = {
        CLOSED_FORMS.get((type(k), type(measure))) or CLOSED_FORMS.get((Kernel, type(measure)))
        for k in kernels
    }
    if None in found:
        raise _missing(kernel, measure, n_features, "has no closed-form integrals there;")
    if len(found) > 1:
        raise _missing(
            kernel,
            measure,
            n_features,
            f"and {embedding_kernel!r} have no closed-form integrals together;",
        )
    form = found.pop()
    assert form is not None
    if measure.by_components or any(k.full for k in kernels):
        form = TIED.get(form, form)
    for k in kernels:
        if k.full and form is GaussianBox:
            raise _missing(
                k,
                measure,
                n_features,
                "has no closed-form integrals there; give one bandwidth per feature, or",
            )
        if issubclass(form, ExponentialLebesgue) and k.polynomial is None:  # type: ignore[attr-defined]
            raise _missing(
                k, measure, n_features, "has closed-form integrals for half-integer nu only;"
            )
        if not k.full and form is not AnyDiscrete and not k.separable(n_features):
            raise _missing(
                k, measure, n_features, "is not a product over the features; pass product=True, or"
            )
    return form(kernel, measure, n_features)


def _missing(
    kernel: Kernel, measure: Measure, n_features: int, why: str
) -> IntegralNotAvailableError:
    remedy = "Discrete.quadrature(box, …)" if n_features <= 3 else "Discrete.qmc(box, …)"
    return IntegralNotAvailableError(
        f"{kernel!r} on {measure!r} {why} integrate against a discrete measure instead:"
        f" measure={remedy} with a box around the data"
    )
