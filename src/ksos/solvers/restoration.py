"""Back to the constraints from a point that nearly meets them: Newton's method on the factor, with the least change."""

from __future__ import annotations

from collections.abc import Collection

import numpy as np

from ksos._array import Array, flat, inner, namespace, norm
from ksos.functionals.mmd import BoundBall
from ksos.solvers.augmented import Bound
from ksos.solvers.constrained_problem import ConstrainedProblem

__all__ = ["restored"]

_STEPS, _LONGEST = 25, 0.5
_NEGLIGIBLE = 1e-15  # eigenvalues of the constraints' Gram matrix below it belong to constraints that repeat each other
_MET = 1e-12
_INSIDE = 1e-13  # inequalities are aimed at a little inside, so that rounding does not carry the point out again
_BALL_INSIDE = 1e-15  # the same for MMD balls, in units of distances, which are known to rounding: the prices of small balls are high


def restored(problem: ConstrainedProblem, F: Array, active: Collection[int] = ()) -> Array | None:
    """A factor near F with tr FFᵀ = 1 that meets the constraints to 1e-12 of their sizes; None where Newton's method finds none.

    C = FFᵀ stays positive semi-definite whatever the step. Each step is the shortest E with ⟨2∇g_i F, E⟩ = −g_i for the constraints that
    are, or have been, violated, and ⟨F, E⟩ = 0. Inequalities that are ``active`` are brought to their rim from inside too: near an optimum
    that gains what they cost, since ∇f·F and −Σ w_i ∇g_i·F are then the same but for a multiple of F.
    """
    bounds = problem.bounds
    held: set[int] = {i for i, bound in enumerate(bounds) if bound.equality} | set(active)
    best: tuple[float, Array] | None = None
    for _ in range(_STEPS):
        F = F / norm(F)
        point = problem.point(F @ F.T)
        values = problem.excesses(point)
        violated = [bound.excess(value) for bound, value in zip(bounds, values, strict=True)]
        if max(violated) <= _MET:
            off = max([abs(values[i]) / bounds[i].size for i in active], default=0.0)
            if best is not None and off > 0.5 * best[0]:
                return best[1]
            best = (off, F)
            if off == 0.0:
                return F
        elif best is not None:
            return best[1]
        held |= {i for i, amount in enumerate(violated) if amount > 0.0}
        rows, goals = [flat(F)], [0.0]
        for i in sorted(held):
            rows.append(flat(problem.slope(i, point) @ F) * (2.0 / bounds[i].size))
            goals.append(-values[i] / bounds[i].size - _margin(bounds[i]))
        gram = np.array([[inner(one, other) for other in rows] for one in rows])
        step = sum(weight * row for weight, row in zip(np.linalg.lstsq(gram, goals, rcond=_NEGLIGIBLE)[0].tolist(), rows, strict=True))
        if not norm(step) <= _LONGEST:
            break
        F = F + namespace(F).reshape(step, F.shape)
    return None if best is None else best[1]


def _margin(bound: Bound) -> float:
    """How far inside to aim, in units of the constraint's size."""
    if bound.equality:
        return 0.0
    return min(_INSIDE, _BALL_INSIDE / bound.size) if isinstance(bound.term, BoundBall) else _INSIDE
