"""Distributions as adversaries: the worst case in an MMD ball, with the density that attains it,
and decisions made against it.
"""

from __future__ import annotations

from ksos.robust.atoms import AtomicBall, WorstAtoms, worst_atoms
from ksos.robust.ball import Ball, adversary_in
from ksos.robust.learning import RobustSolution, robust_minimize, robust_path
from ksos.robust.losses import AbsoluteLoss, HuberLoss, LogisticLoss, ResidualLoss, SquareLoss
from ksos.robust.mode import ModePath, Player, RobustMode, robust_mode
from ksos.robust.worst_case import AGREEMENT, WorstCase, worst_case
from ksos.space.labelled import LabelledDensity, LabelledEmbedding

__all__ = [
    "AGREEMENT",
    "AbsoluteLoss",
    "AtomicBall",
    "Ball",
    "HuberLoss",
    "LabelledDensity",
    "LabelledEmbedding",
    "LogisticLoss",
    "ModePath",
    "Player",
    "ResidualLoss",
    "RobustMode",
    "RobustSolution",
    "SquareLoss",
    "WorstAtoms",
    "WorstCase",
    "adversary_in",
    "robust_minimize",
    "robust_mode",
    "robust_path",
    "worst_atoms",
    "worst_case",
]
