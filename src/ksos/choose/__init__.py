"""What decides by held-out samples: references, bandwidths and λ, all by one rule."""

from __future__ import annotations

from typing import TYPE_CHECKING

from ksos.choose.bandwidth import Units, bandwidth_unit, correction_bandwidth
from ksos.choose.held_out import (
    CRITERIA,
    fit_path,
    held_out_scores,
    projected_embedding,
    regularization_unit,
    simplest_good,
)
from ksos.choose.mixed_search import MixedSearch
from ksos.choose.mixtures import (
    MOST_FULL,
    Mixtures,
    Samples,
    mixture_path,
    seeds,
    student_scales,
)
from ksos.choose.reference import (
    FLOORS,
    SIZES,
    Stack,
    as_reference,
    certified_weights,
    require_reference,
)
from ksos.choose.search import SUPPORT, Search
from ksos.ground.lazy import later as _later

if TYPE_CHECKING:  # imported on first use, for it imports scipy.stats
    from ksos.choose.location import SplitConformal

__all__ = [
    "CRITERIA",
    "FLOORS",
    "MOST_FULL",
    "SIZES",
    "SUPPORT",
    "MixedSearch",
    "Mixtures",
    "Samples",
    "Search",
    "SplitConformal",
    "Stack",
    "Units",
    "as_reference",
    "bandwidth_unit",
    "certified_weights",
    "correction_bandwidth",
    "fit_path",
    "held_out_scores",
    "mixture_path",
    "projected_embedding",
    "regularization_unit",
    "require_reference",
    "seeds",
    "simplest_good",
    "student_scales",
]

__getattr__, __dir__ = _later(globals(), {"SplitConformal": "ksos.choose.location"})
