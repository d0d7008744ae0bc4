r"""The likelihood of more samples than memory holds: fits to some of them, corrected by passes over
all of them.

The likelihood has no sums that do not depend on the density. But at a point C₀ one pass gives f(C₀)
and ∇f(C₀) over all samples, and with them the certificate. The fit to a part of the samples, f̂,
corrected to have the same slope there,

    f̂(C) + ⟨∇f(C₀) − ∇f̂(C₀), C⟩,

has its minimum where f has it, up to what the curvature of f̂ differs from that of f [Jordan2019]:
every pass makes the gap several times smaller. A straight line is a poor stand-in for −log where
the density is far too low: samples with the largest a_i‖ψ_i‖²/p(x_i) join the part with their own
weights.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import replace
from functools import partial
from typing import NamedTuple

import numpy as np

from ksos.data import Part, row_hashes
from ksos.data.passes import Passes
from ksos.functionals import (
    Bound,
    BoundLinear,
    Functional,
    LikelihoodSums,
    NegativeLogLikelihood,
    Objective,
)
from ksos.ground import Array, Run, inner, like, norm, to_numpy
from ksos.solvers import Progress, Solution
from ksos.solvers.spectraplex import lowest_bound
from ksos.space.space import SoSSpace

_MOST_PASSES = 12  # each makes the gap several times smaller, so that more never helped
_SOLVED = ("solved", "solved_inaccurate")


class _Kept(NamedTuple):
    """Samples that stand for all: some with their own masses, the others scaled to the rest of the
    mass.
    """

    points: np.ndarray
    masses: np.ndarray
    own: np.ndarray  # which of them count for themselves alone

    # the weights, which sum to one, of which those of ``mass`` are for all samples
    def weights(self, mass: float) -> np.ndarray:
        rest = mass - float(self.masses[self.own].sum())
        scale = max(rest, 0.0) / max(float(self.masses[~self.own].sum()), 1e-300)
        found = np.where(self.own, self.masses, scale * self.masses)
        return found / found.sum()

    # these, and samples that count for themselves; a sample that is given twice once
    def joined(self, points: np.ndarray, masses: np.ndarray) -> _Kept:
        hashes, new = row_hashes(self.points), row_hashes(points)
        known, first, which = np.unique(new, return_index=True, return_inverse=True)
        stay = ~np.isin(hashes, known)
        own = np.concatenate([self.own[stay], np.ones(known.shape[0], dtype=bool)])
        all_masses = np.concatenate([self.masses[stay], np.bincount(which, weights=masses)])
        return _Kept(np.concatenate([self.points[stay], points[first]]), all_masses, own)


def fit_to_all(
    passes: Passes,
    solve: Callable[..., Solution],
    space: SoSSpace,
    part: Part,
    penalty: Functional | None,
    start: Array | None,
    tol: float,
) -> Solution:
    """The minimum of −Σ a_i log p(x_i) plus ``penalty`` over all samples, which ``passes`` sum over
    and of which ``part`` is known.

    ``solve`` minimizes a functional. The solution has objective and gap of all samples.
    """
    mass = passes.mass
    nothing = partial(LikelihoodSums.nothing, passes.known_checks, space, total=mass)
    kept = _Kept(part.points, part.weights, np.zeros(part.points.shape[0], dtype=bool))
    functional: Functional = NegativeLogLikelihood(part.points, part.weights)
    best, bound = None, -math.inf
    for _ in range(_MOST_PASSES):
        total = functional if penalty is None else functional + penalty
        found = solve(total, start=start, tol=0.25 * tol)  # most of tol is left to the correction
        start, G = found.parameter, to_numpy(found.parameter_factor)
        try:
            all_of = passes.again(nothing(factor=G))
        except KeyboardInterrupt:
            Run.current().interrupt()
            best = best or replace(found, gap=None, objective=math.nan)
            found = replace(found, status="interrupted")
            break
        value, slope = all_of.value / mass, all_of.whole_gradient / mass
        objective, gap = _certificate(value, slope, space, penalty, start)
        bound = max(bound, objective - gap)
        if best is None or objective < best.objective:
            last = Progress(found.n_iter, objective, gap, found.time)
            best = replace(found, objective=objective, history=[*found.history, last])
        far = objective > best.objective + tol
        if best.objective - bound <= tol or far or found.status not in _SOLVED:
            break
        kept = kept.joined(all_of.points, all_of.masses)
        weights = kept.weights(mass)
        # the loudest count the same on both sides
        loud = np.isin(row_hashes(kept.points), row_hashes(all_of.points))
        others = (weights > 0.0) & ~loud
        here = nothing(factor=G).add(kept.points[others], mass * weights[others])
        # rounded to 40 of 53 bits, so that the order of the samples does not show
        unit = 2.0 ** (math.frexp(float(np.abs(all_of.gradient).max() / mass))[1] - 40)
        slope = np.round((all_of.gradient - here.whole_gradient) / mass / unit) * unit
        correction = BoundLinear(like(slope, space.T), curved=False)
        functional = NegativeLogLikelihood(kept.points, weights) + Bound(correction, "correction")
    assert best is not None
    note = f"objective and gap are those of all samples, of which {len(kept.points)} were kept"
    if math.isinf(bound):  # stopped in the first pass
        return replace(best, status=found.status, keyboard_interrupt=True)
    gap = max(best.objective - bound, 0.0)
    status = (
        "solved" if gap <= tol else "solved_inaccurate" if found.status in _SOLVED else found.status
    )
    interrupted = Run.current().interrupted
    return replace(best, gap=gap, status=status, note=note, keyboard_interrupt=interrupted)


# f(C) and the gap ⟨∇f, C⟩ − λ_min(∇f), with what rounding may hide in it
def _certificate(
    value: float, slope: np.ndarray, space: SoSSpace, penalty: Functional | None, C: Array
) -> tuple[float, float]:
    G = like(slope, C)
    if penalty is not None:
        objective = Objective.of(penalty, space)
        point = objective.point(C)
        value, G = value + objective.value(point), G + objective.gradient(point)
    gap = inner(G, C) - lowest_bound(G, 1e-10)
    unit = float(np.finfo(np.float64).eps)
    return value, max(gap, 0.0) + unit * (2.0 * norm(G) + abs(value))
