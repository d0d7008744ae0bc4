"""Distributions as adversaries: the worst case in an MMD ball, with the density that attains it,
and decisions made against it.
"""

from __future__ import annotations

from ksos.robust.atoms import AtomicBall
from ksos.robust.ball import Ball
from ksos.robust.learning import RobustSolution, robust_minimize, robust_path
from ksos.robust.losses import AbsoluteLoss, HuberLoss, LogisticLoss, ResidualLoss, SquareLoss
from ksos.robust.mode import ModePath, RobustMode, robust_mode
from ksos.robust.worst_case import WorstCase, worst_case
from ksos.space.labelled import LabelledDensity, LabelledEmbedding

__all__ = [
    "AbsoluteLoss",
    "AtomicBall",
    "Ball",
    "HuberLoss",
    "LabelledDensity",
    "LabelledEmbedding",
    "LogisticLoss",
    "ModePath",
    "ResidualLoss",
    "RobustMode",
]
__all__ += [
    "RobustSolution",
    "SquareLoss",
    "WorstCase",
    "robust_minimize",
    "robust_mode",
    "robust_path",
    "worst_case",
]
