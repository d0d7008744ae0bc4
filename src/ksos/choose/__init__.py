"""What decides by held-out samples: references, bandwidths and λ, all by one rule."""

from ksos.choose.held_out import (
    CRITERIA,
    Problem,
    held_out_scores,
    projected_embedding,
    regularization_unit,
    simplest_good,
)
from ksos.choose.kernel_density import bandwidth_unit, whitened
from ksos.choose.mixtures import MOST_FULL, Mixtures, Samples, mixture_path, seeds, student
from ksos.choose.path import fit_path
from ksos.choose.stack import FLOORS, SIZES, Stack, certified_weights
from ksos.choose.units import Units, warn_if_flat

__all__ = [
    "CRITERIA",
    "FLOORS",
    "MOST_FULL",
    "SIZES",
    "Mixtures",
    "Problem",
    "Samples",
    "Stack",
    "Units",
    "bandwidth_unit",
    "certified_weights",
    "fit_path",
    "held_out_scores",
    "mixture_path",
    "projected_embedding",
    "regularization_unit",
    "seeds",
    "simplest_good",
    "student",
    "warn_if_flat",
    "whitened",
]
