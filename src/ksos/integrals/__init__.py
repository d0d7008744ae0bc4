"""What ∫k dρ, ∫kk dρ and ∫kkk dρ are, per (kernel, measure) pair, and what follows from them:
sums over pairs of points, rules where a basis lives, masses of boxes.
"""

from __future__ import annotations

from ksos.integrals.base import AnyDiscrete, Integrals, PairFactors
from ksos.integrals.closed_forms import CLOSED_FORMS, closed_form
from ksos.integrals.erf import gauss_mass, log_gauss_mass, normal_between, truncated_moments
from ksos.integrals.exact_rule import basis_at, exact_rule
from ksos.integrals.exponential import ExponentialBox, ExponentialLebesgue, LineIntegral
from ksos.integrals.gaussian import (
    Axes,
    GaussianBox,
    GaussianLebesgue,
    GaussianMetric,
    GaussianNormal,
    GaussianNormals,
    axes_of,
    in_axes,
)
from ksos.integrals.normal_boxes import box_masses, closed, mixture_box_masses, sampled_mass
from ksos.integrals.quadruple import (
    ProductIntegral,
    SquareIntegral,
    density_inner,
    density_inner_matrix,
)
from ksos.integrals.regions import (
    Rule,
    Source,
    cells,
    importance_rules,
    intervals,
    kinks,
    panel_rules,
    smooth_rules,
)
from ksos.integrals.triple import (
    ThinPairs,
    WithConstant,
    apply_triple,
    thin_pairs,
    triple_blocks,
)

__all__ = [
    "CLOSED_FORMS",
    "AnyDiscrete",
    "Axes",
    "ExponentialBox",
    "ExponentialLebesgue",
    "GaussianBox",
    "GaussianLebesgue",
    "GaussianMetric",
    "GaussianNormal",
    "GaussianNormals",
    "Integrals",
    "LineIntegral",
    "PairFactors",
    "ProductIntegral",
    "Rule",
    "Source",
    "SquareIntegral",
    "ThinPairs",
    "WithConstant",
    "apply_triple",
    "axes_of",
    "basis_at",
    "box_masses",
    "cells",
    "closed",
    "closed_form",
    "density_inner",
    "density_inner_matrix",
    "exact_rule",
    "gauss_mass",
    "importance_rules",
    "in_axes",
    "intervals",
    "kinks",
    "log_gauss_mass",
    "mixture_box_masses",
    "normal_between",
    "panel_rules",
    "sampled_mass",
    "smooth_rules",
    "thin_pairs",
    "triple_blocks",
    "truncated_moments",
]
