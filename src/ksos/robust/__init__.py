"""Distributions as adversaries: the worst case in an MMD ball, with the density that attains it,
and decisions made against it.
"""

from __future__ import annotations

from ksos.robust.ball import Ball, adversary_in
from ksos.robust.barrier import JointBarrier
from ksos.robust.bounds import AtomicBall, WorstAtoms, supremum_on, worst_atoms
from ksos.robust.decisions import Atoms, Decision, decide
from ksos.robust.learning import RobustSolution, robust_minimize, robust_path
from ksos.robust.losses import (
    AbsoluteLoss,
    AbsoluteRisk,
    HingeLoss,
    HuberLoss,
    LogisticLoss,
    LogisticScores,
    NodeRisk,
    QuantileLoss,
    ResidualLoss,
    Residuals,
    SquareLoss,
    UserLoss,
)
from ksos.robust.mode import ModePath, Player, RobustMode, robust_mode
from ksos.robust.parametric import FixedRisk, SquareRisk, affine_moments, kernel_moments
from ksos.robust.problem import Goal, Problem, Saddle, solve
from ksos.robust.worst_case import AGREEMENT, WorstCase, worst_case
from ksos.space import LabeledDensity, LabeledEmbedding

__all__ = [
    "AbsoluteLoss",
    "AtomicBall",
    "Atoms",
    "Ball",
    "Decision",
    "HingeLoss",
    "HuberLoss",
    "LabeledDensity",
    "LabeledEmbedding",
    "LogisticLoss",
    "ModePath",
    "QuantileLoss",
    "ResidualLoss",
    "RobustMode",
    "RobustSolution",
    "SquareLoss",
    "WorstAtoms",
    "WorstCase",
    "decide",
    "robust_minimize",
    "robust_mode",
    "robust_path",
    "worst_case",
]
# what the tests and the benchmarks use besides
__all__ += [
    "AGREEMENT",
    "AbsoluteRisk",
    "FixedRisk",
    "Goal",
    "JointBarrier",
    "LogisticScores",
    "NodeRisk",
    "Player",
    "Problem",
    "Residuals",
    "Saddle",
    "SquareRisk",
    "UserLoss",
    "adversary_in",
    "affine_moments",
    "kernel_moments",
    "solve",
    "supremum_on",
    "worst_atoms",
]
