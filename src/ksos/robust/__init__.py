"""Distributions as adversaries: the worst case in an MMD ball, with the density that attains it, and decisions made against it."""

from __future__ import annotations

from ksos.robust.labelled import LabelledDensity, LabelledSpace
from ksos.robust.learning import RobustSolution, robust_minimize, robust_path
from ksos.robust.mode import ModePath, RobustMode, robust_mode
from ksos.robust.result import WorstCase
from ksos.robust.worst_case import worst_case

__all__ = [
    "LabelledDensity",
    "LabelledSpace",
    "ModePath",
    "RobustMode",
    "RobustSolution",
    "WorstCase",
    "robust_minimize",
    "robust_mode",
    "robust_path",
    "worst_case",
]
