"""SoSDensity and what one does with it."""

from __future__ import annotations

from ksos.density.compress import Compression
from ksos.density.expectation import Estimate
from ksos.density.mixture import SoSMixture, mixture
from ksos.density.sos import SoSDensity

__all__ = ["Compression", "Estimate", "SoSDensity", "SoSMixture", "mixture"]
