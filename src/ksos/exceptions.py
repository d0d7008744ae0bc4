"""Errors and warnings of ksos: each one's message names what came, what was expected, and the
fix.
"""

from __future__ import annotations

__all__ = ["BandwidthWarning", "ConvexityError", "FunctionalError", "IntegralNotAvailableError"]
__all__ += ["InternalError", "KsosError", "ModelFormatError"]


class KsosError(Exception):
    """Base class of the errors that only ksos raises.

    >>> import ksos
    >>> issubclass(ksos.ModelFormatError, ksos.KsosError)
    True
    """


class IntegralNotAvailableError(KsosError, ValueError):
    """No closed form is known for this kernel and measure; the message names the measure to use
    instead.

    >>> import ksos
    >>> ksos.SoSSpace(ksos.kernels.Matern(nu=0.7), [[0.0], [1.0]])  # doctest: +ELLIPSIS
    Traceback (most recent call last):
        ...
    ksos.exceptions.IntegralNotAvailableError: ...
    """


class FunctionalError(KsosError, ValueError):
    """A user's functional that raised, or returned something other than a finite value and
    gradients of the right shapes.

    >>> import ksos
    >>> space = ksos.SoSSpace(ksos.kernels.Gaussian(1.0), [[0.0], [1.0]])
    >>> wrong = ksos.functionals.CustomFunctional(lambda p: (float("nan"), p), points=[[0.5]])
    >>> ksos.minimize(wrong, space)  # doctest: +ELLIPSIS
    Traceback (most recent call last):
        ...
    ksos.exceptions.FunctionalError: ...
    """


class ConvexityError(FunctionalError):
    """A functional declared convex that is not: two of its own points prove it, and nothing may be
    certified with it.

    >>> issubclass(ConvexityError, FunctionalError)
    True
    """


class ModelFormatError(KsosError, ValueError):
    """A model file that is not what ``SoSDensity.save`` writes: damaged, forged, newer, or
    something else altogether.

    >>> import tempfile
    >>> import ksos
    >>> with tempfile.NamedTemporaryFile() as empty:
    ...     ksos.load(empty.name)  # doctest: +ELLIPSIS
    Traceback (most recent call last):
        ...
    ksos.exceptions.ModelFormatError: ...
    """


class InternalError(KsosError, RuntimeError):
    """Two answers of ksos contradict each other: a mistake of the library, which is never returned
    as a result.
    """


class BandwidthWarning(UserWarning):
    """The bandwidth leaves the model nearly without structure: the kernel matrix is close to I or
    to 11ᵀ.

    >>> import warnings
    >>> import ksos
    >>> with warnings.catch_warnings(record=True) as caught:
    ...     warnings.simplefilter("always")
    ...     fitted = ksos.KernelSoSDensity(bandwidth=1e-6).fit([[0.0], [1.0], [2.0]])
    >>> any(warning.category is BandwidthWarning for warning in caught)
    True
    """
