"""SoSDensity and what one does with it."""

from __future__ import annotations

from ksos.density.compress import Compression
from ksos.density.conditional_line import ConditionalLine
from ksos.density.corrected import Corrected
from ksos.density.density import SoSDensity, from_terms, square_of
from ksos.density.estimate import Estimate
from ksos.density.io import load, read_header, save
from ksos.density.kinds import DTYPES, Column, Columns, restored
from ksos.density.mixed import MixedTerms
from ksos.density.mixed_reference import MixedReference
from ksos.density.mixed_square import Correction
from ksos.density.mixture import mixture, reference_density
from ksos.density.normal_scores import NormalScores
from ksos.density.normals import Group, inner_product
from ksos.density.questions.divergence import between_squares, normal_groups
from ksos.density.questions.expectation import embedded, term_clouds
from ksos.density.questions.line import mean_difference
from ksos.density.square import NoMass, Square, feature_scales
from ksos.density.standard import standardize
from ksos.density.table import TableDensity, with_gaps
from ksos.density.terms import Terms

__all__ = [
    "DTYPES",
    "Column",
    "Columns",
    "Compression",
    "ConditionalLine",
    "Corrected",
    "Correction",
    "Estimate",
    "Group",
    "MixedReference",
    "MixedTerms",
    "NoMass",
    "NormalScores",
    "SoSDensity",
    "Square",
    "TableDensity",
    "Terms",
    "between_squares",
    "embedded",
    "feature_scales",
    "from_terms",
    "inner_product",
    "load",
    "mean_difference",
    "mixture",
    "normal_groups",
    "read_header",
    "reference_density",
    "restored",
    "save",
    "square_of",
    "standardize",
    "term_clouds",
    "with_gaps",
]
