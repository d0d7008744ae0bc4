"""What ρ is. To add a measure: one subclass of :class:`Measure`, and its line in :data:`MEASURES`.

>>> MEASURES["box"]([0.0], [1.0])
Box(low=[0.0], high=[1.0])
"""

from __future__ import annotations

from ksos.measures.base import Atoms, Box, Lebesgue, Measure, Normals
from ksos.measures.discrete import Discrete
from ksos.measures.normal import (
    GaussianMixture,
    Normal,
    merged_cells as merged_cells,
)

__all__ = [
    "MEASURES",
    "Atoms",
    "Box",
    "Discrete",
    "GaussianMixture",
    "Lebesgue",
    "Measure",
    "Normal",
    "Normals",
]

MEASURES: dict[str, type[Measure]] = {
    measure.name: measure for measure in (Lebesgue, Box, Normal, GaussianMixture, Discrete)
}
"""Every measure by the name that the model file uses."""
