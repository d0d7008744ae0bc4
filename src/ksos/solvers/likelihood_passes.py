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
from dataclasses import dataclass, replace
from functools import partial
from typing import NamedTuple

import numpy as np

from ksos.data.passes import Checks, Passes, Tally, naming
from ksos.data.sources import Chunk
from ksos.data.survey import Part, row_hashes
from ksos.functionals import (
    Basis,
    Bound,
    BoundLinear,
    Functional,
    NegativeLogLikelihood,
    Objective,
    from_values,
    likelihood_term,
)
from ksos.ground.arrays import Array, inner, like, norm, to_numpy
from ksos.ground.run import Run
from ksos.solvers import Progress, Solution
from ksos.solvers.certificate import lowest_bound
from ksos.space.space import SoSSpace

__all__ = ["fit_to_all"]

_LOUDEST = 1024  # samples that are kept: few beside a part of thousands, and they matter most
_MOST_PASSES = 12  # each makes the gap several times smaller, so that more never helped
_INNER = 0.25  # of the tolerance, for the fits to the part
_UNIT = 2.0**-52  # the rounding unit of doubles
_BITS = 40  # of 53, kept of a slope: the order of the samples shows in the last ones only
_SOLVED = ("solved", "solved_inaccurate")


class _Kept(NamedTuple):
    """Samples that stand for all: some with their own masses, the others scaled to the rest of the
    mass.
    """

    points: np.ndarray
    masses: np.ndarray
    own: np.ndarray
    """Which of them count for themselves alone."""

    def weights(self, mass: float) -> np.ndarray:
        """The weights, which sum to one, of which those of ``mass`` are for all samples."""
        rest = mass - float(self.masses[self.own].sum())
        scale = max(rest, 0.0) / max(float(self.masses[~self.own].sum()), 1e-300)
        found = np.where(self.own, self.masses, scale * self.masses)
        return found / found.sum()

    def joined(self, points: np.ndarray, masses: np.ndarray) -> _Kept:
        """These, and samples that count for themselves; a sample that is given twice once."""
        hashes, new = row_hashes(self.points), row_hashes(points)
        known, first, which = np.unique(new, return_index=True, return_inverse=True)
        stay = ~np.isin(hashes, known)
        own = np.concatenate([self.own[stay], np.ones(known.shape[0], dtype=bool)])
        all_masses = np.concatenate([self.masses[stay], np.bincount(which, weights=masses)])
        return _Kept(np.concatenate([self.points[stay], points[first]]), all_masses, own)


@dataclass(frozen=True, eq=False)
class LikelihoodSums:
    """−Σ_i a_i log p(x_i) and its gradient −Σ_i a_i ψ_iψ_iᵀ/p(x_i), with those samples whose share
    in the gradient is largest.
    """

    checks: Checks
    basis: Basis
    log_unit: float
    factor: np.ndarray
    """G with C = GGᵀ."""
    total: float
    """The mass of all samples, those to come included."""
    value: float
    gradient: np.ndarray
    """Without the samples that are kept."""
    points: np.ndarray
    masses: np.ndarray
    psi: np.ndarray
    """The basis at the samples that are kept."""
    slopes: np.ndarray
    """−a_i/p(x_i) of these."""
    tally: Tally

    @classmethod
    def nothing(
        cls, checks: Checks, space: SoSSpace, factor: np.ndarray, total: float
    ) -> LikelihoodSums:
        """No samples yet, of ``total`` mass to come, at the point C = GGᵀ of a space."""
        basis, none, r = Basis.of(space), np.empty(0), space.rank
        known = basis, float(space.log_unit), to_numpy(factor), total
        return cls(
            checks,
            *known,
            0.0,
            np.zeros((r, r)),
            np.empty((0, space.n_features)),
            none,
            np.empty((0, r)),
            none,
            Tally(),
        )

    def update(self, chunk: Chunk) -> LikelihoodSums:
        """This and one more chunk."""
        rows, checks = self.checks.rows(chunk)
        points, masses = to_numpy(rows.points), to_numpy(rows.masses)
        counted = masses > 0.0
        with naming(chunk):
            out = replace(self, checks=checks).add(points[counted], masses[counted])
        return replace(out, tally=self.tally.merge(Tally.of(rows)))

    @np.errstate(under="ignore")
    def add(self, X: np.ndarray, a: np.ndarray) -> LikelihoodSums:
        """This and more samples of positive masses."""
        out = self
        for rows, psi in self.basis.blocks(X):
            term, p = (
                likelihood_term(psi, a[rows], self.log_unit, X[rows], self.total),
                np.sum((psi @ self.factor) ** 2, axis=1),
            )
            known = {"points": X[rows], "masses": a[rows], "psi": psi, "slopes": term.slopes(p)[0]}
            nothing = np.zeros_like(self.gradient)
            out = out.merge(
                replace(self, value=term.value_at(p), gradient=nothing, tally=Tally(), **known)
            )
        return out

    def merge(self, other: LikelihoodSums) -> LikelihoodSums:
        """The sums over both sets of samples. Only samples that are no longer kept enter the
        gradient, which is then free of huge terms.
        """
        names = ("points", "masses", "psi", "slopes")
        points, masses, psi, slopes = (
            np.concatenate([vars(self)[name], vars(other)[name]]) for name in names
        )
        order = np.argsort(slopes * np.sum(psi * psi, axis=1), kind="stable")
        loud, rest = order[:_LOUDEST], order[_LOUDEST:]
        gradient = self.gradient + other.gradient + from_values(psi[rest], slopes[rest])
        return replace(
            self,
            checks=self.checks.merge(other.checks),
            value=self.value + other.value,
            gradient=gradient,
            points=points[loud],
            masses=masses[loud],
            psi=psi[loud],
            slopes=slopes[loud],
            tally=self.tally.merge(other.tally),
        )

    @property
    def whole_gradient(self) -> np.ndarray:
        """That of all samples."""
        return np.asarray(self.gradient + from_values(self.psi, self.slopes))


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

    ``solve`` minimises a functional. The solution has objective and gap of all samples.
    """
    mass, nothing = (
        passes.mass,
        partial(LikelihoodSums.nothing, passes.known_checks, space, total=passes.mass),
    )
    kept = _Kept(part.points, part.weights, np.zeros(part.points.shape[0], dtype=bool))
    functional: Functional = NegativeLogLikelihood(part.points, part.weights)
    best, bound = None, -math.inf
    for _ in range(_MOST_PASSES):
        found = solve(
            functional if penalty is None else functional + penalty, start=start, tol=_INNER * tol
        )
        start, G = found.parameter, to_numpy(found.parameter_factor)
        try:
            all_of = passes.again(nothing(factor=G))
        except KeyboardInterrupt:
            Run.current().interrupt()
            best = replace(found, gap=None, objective=math.nan) if best is None else best
            found = replace(found, status="interrupted")
            break
        objective, gap = _certificate(
            all_of.value / mass, all_of.whole_gradient / mass, space, penalty, start
        )
        bound = max(bound, objective - gap)
        if best is None or objective < best.objective:
            best = replace(
                found,
                objective=objective,
                history=[*found.history, Progress(found.n_iter, objective, gap, found.time)],
            )
        if (
            best.objective - bound <= tol
            or objective > best.objective + tol
            or found.status not in _SOLVED
        ):
            break
        kept = kept.joined(all_of.points, all_of.masses)
        weights = kept.weights(mass)
        others = (weights > 0.0) & ~np.isin(
            row_hashes(kept.points), row_hashes(all_of.points)
        )  # the loudest count the same on both sides
        here = nothing(factor=G).add(kept.points[others], mass * weights[others])
        unit = 2.0 ** (math.frexp(float(np.abs(all_of.gradient).max() / mass))[1] - _BITS)
        # so that the order of the samples does not show
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


def _certificate(
    value: float, slope: np.ndarray, space: SoSSpace, penalty: Functional | None, C: Array
) -> tuple[float, float]:
    """f(C) and the gap ⟨∇f, C⟩ − λ_min(∇f), with what rounding may hide in it."""
    G = like(slope, C)
    if penalty is not None:
        objective = Objective.of(penalty, space)
        point = objective.point(C)
        value, G = value + objective.value(point), G + objective.gradient(point)
    gap = inner(G, C) - lowest_bound(G, 1e-10)
    return value, max(gap, 0.0) + _UNIT * (2.0 * norm(G) + abs(value))
