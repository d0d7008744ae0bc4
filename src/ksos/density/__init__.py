"""SoSDensity and what one does with it."""

from __future__ import annotations

from ksos.density.compress import Compression
from ksos.density.conditional_line import ConditionalLine
from ksos.density.density import SoSDensity, from_terms, square_of
from ksos.density.estimate import Estimate
from ksos.density.far import FeatureRange
from ksos.density.io import load, read_header, save
from ksos.density.mixture import mixture, reference_density, to_sklearn
from ksos.density.square import Square
from ksos.density.terms import Terms

__all__ = [
    "Compression",
    "ConditionalLine",
    "Estimate",
    "FeatureRange",
    "SoSDensity",
    "Square",
    "Terms",
    "from_terms",
    "load",
    "mixture",
    "read_header",
    "reference_density",
    "save",
    "square_of",
    "to_sklearn",
]
