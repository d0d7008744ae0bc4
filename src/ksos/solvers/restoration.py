"""Back to the constraints from a point that nearly meets them: Newton's method on the factor, with the least change."""

from __future__ import annotations

import numpy as np

from ksos._array import Array, flat, inner, namespace, norm
from ksos.solvers.constrained_problem import ConstrainedProblem

__all__ = ["restored"]

_STEPS, _LONGEST = 25, 0.5
_NEGLIGIBLE = 1e-15  # eigenvalues of the constraints' Gram matrix below it belong to constraints that repeat each other
_MET = 1e-12
_INSIDE = 1e-13  # inequalities are aimed at a little inside, so that rounding does not carry the point out again


def restored(problem: ConstrainedProblem, F: Array) -> Array | None:
    """A factor near F with tr FFᵀ = 1 that meets the constraints to 1e-12 of their sizes; None where Newton's method finds none.

    C = FFᵀ stays positive semi-definite whatever the step. Each step is the shortest E with ⟨2∇g_i F, E⟩ = −g_i for the constraints that
    are, or have been, violated, and ⟨F, E⟩ = 0.
    """
    bounds = problem.bounds
    held: set[int] = {i for i, bound in enumerate(bounds) if bound.equality}
    for _ in range(_STEPS):
        F = F / norm(F)
        point = problem.point(F @ F.T)
        values = problem.excesses(point)
        violated = [bound.excess(value) for bound, value in zip(bounds, values, strict=True)]
        if max(violated) <= _MET:
            return F
        held |= {i for i, amount in enumerate(violated) if amount > 0.0}
        rows, goals = [flat(F)], [0.0]
        for i in sorted(held):
            rows.append(flat(problem.slope(i, point) @ F) * (2.0 / bounds[i].size))
            goals.append(-values[i] / bounds[i].size - (0.0 if bounds[i].equality else _INSIDE))
        gram = np.array([[inner(one, other) for other in rows] for one in rows])
        step = sum(weight * row for weight, row in zip(np.linalg.lstsq(gram, goals, rcond=_NEGLIGIBLE)[0].tolist(), rows, strict=True))
        if not norm(step) <= _LONGEST:
            return None
        F = F + namespace(F).reshape(step, F.shape)
    return None
