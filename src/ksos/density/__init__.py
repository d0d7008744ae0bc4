"""SoSDensity and what one does with it."""

from __future__ import annotations

from ksos.density.sos import SoSDensity

__all__ = ["SoSDensity"]
