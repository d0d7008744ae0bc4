"""The certificate of optimality: gap(C) = ⟨∇f(C), C⟩ − λ_min(∇f(C)) ≥ f(C) − f*, valid for any feasible C and any convex f."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from ksos.functionals.objective import Objective, Point

__all__ = ["Certificate", "certify"]


@dataclass(frozen=True)
class Certificate:
    """What is known of a feasible point, whatever produced it."""

    objective: float
    gap: float

    @property
    def gap_relative(self) -> float:
        """The gap in units of |f|."""
        return self.gap / abs(self.objective) if self.objective != 0.0 else (0.0 if self.gap == 0.0 else float("inf"))


def certify(objective: Objective, point: Point) -> Certificate:
    """Objective and gap at a feasible point: one gradient, one extreme eigenvalue."""
    G = objective.gradient(point)
    gap = float(np.vdot(G, point.C)) - float(np.linalg.eigvalsh(G)[0])
    return Certificate(objective.value(point), max(gap, 0.0))  # below 0 it is rounding: the true gap is not negative
