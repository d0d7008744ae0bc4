"""Errors and warnings of ksos: each one's message names what came, what was expected, and the remedy."""

from __future__ import annotations

__all__ = ["BandwidthWarning", "ConvexityError", "FunctionalError", "IntegralNotAvailableError"]
__all__ += ["InternalError", "KsosError", "ModelFormatError"]


class KsosError(Exception):
    """Base class of the errors that only ksos raises."""


class IntegralNotAvailableError(KsosError, ValueError):
    """No closed form is known for this kernel and measure; the message names the measure to use instead."""


class FunctionalError(KsosError, ValueError):
    """A user's functional that raised, or returned something other than a finite value and gradients of the right shapes."""


class ConvexityError(FunctionalError):
    """A functional declared convex that is not: two of its own points prove it, and nothing may be certified with it."""


class ModelFormatError(KsosError, ValueError):
    """A model file that is not what ``SoSDensity.save`` writes: damaged, forged, newer, or something else altogether."""


class InternalError(KsosError, RuntimeError):
    """Two answers of ksos contradict each other: a mistake of the library, which is never returned as a result."""


class BandwidthWarning(UserWarning):
    """The bandwidth leaves the model nearly without structure: the kernel matrix is close to I or to 11ᵀ."""
