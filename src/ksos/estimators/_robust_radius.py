"""Choose the radius of a robust estimator by cross-validation: the largest that does no harm."""

from __future__ import annotations

from itertools import takewhile
from typing import Any

import numpy as np

from ksos.estimators._robust_family import Densities, EstimatorFamily
from ksos.ground.run import Run
from ksos.ground.threads import one_blas_thread
from ksos.robust.ball import resampled_radius
from ksos.robust.exact_ball import nearest_exactly
from ksos.robust.problem import Goal, Problem, Saddle, solve

__all__ = ["radius_of"]

# Five folds as in scikit-learn, of at least two distinct samples each.
_FOLDS, _FEWEST = 5, 10
# Halves of the bootstrap radius. A smaller ball than an eighth changes hardly any prediction.
_FRACTIONS = (1.0, 0.5, 0.25, 0.125)
# How much the held-out loss may grow: 0.5% in all folds together, and 3% in each fold or in all
# folds with one standard error more, so that a few samples of high leverage do not decide. Chosen
# on simulated tables, and measured on real ones by benchmarks/no_harm.py.
_HARMLESS, _AT_MOST = 0.005, 0.03
# Further losses that count as none, relative to those of θ = 0. Numbers: rounding, if the model is
# exact. Labels: losses of separable classes are tiny, and so are their differences.
_NUMBER_SLACK, _LABEL_SLACK = 1e-4, 1e-2
# A ball reaches beyond the nearest density by a fifth, or it holds little else.
_FEASIBLE = 1.2
# Folds are compared to within percents, so their fits have a relative gap of 1%.
_ROUGH = Goal(rtol=1e-2)
# Enough resamples for the first digit of a 95% quantile, which is halved anyway.
_RESAMPLES = 200


class _Fold:
    """The fit to four fifths of the samples, and its losses at the others."""

    def __init__(self, family: EstimatorFamily, held_out: np.ndarray) -> None:
        self.family = family.on(np.delete(np.arange(family.masses.shape[0]), held_out))
        self.rows, self.weights = family.samples[held_out], family.masses[held_out]
        self.start: Saddle | None = None
        self.plain = self.losses(self.family.empirical()[0])
        zero = np.zeros_like(self.family.alpha)  # the fold has its own centers
        self.slack = abs(float(self.weights @ self.losses(zero))) * (
            _LABEL_SLACK if family.model.n_labels else _NUMBER_SLACK
        )

    def losses(self, theta: np.ndarray) -> np.ndarray:
        """The held-out losses of a parameter."""
        return self.family.model.losses(theta, self.rows)

    def excess(self, radius: float) -> np.ndarray | None:
        """The held-out losses above those of the plain fit. None if they are harmful or unknown."""
        self.start = solve(self.family.problem, radius, _ROUGH, self.start)
        if self.start.empty or Run.current().over:
            return None
        excess = self.losses(self.start.theta) - self.plain
        most = _AT_MOST * float(self.weights @ self.plain) + self.slack
        return excess if self.weights @ excess <= most else None


@one_blas_thread(0)
def radius_of(
    family: EstimatorFamily, radius: Any, random_state: Any, problem: Problem
) -> tuple[float, Problem]:
    """The radius as a number: as given, by the bootstrap, or chosen by cross-validation.

    If no radius is harmless, or the time is over, it is 0. The problem comes back with the
    directions that it took to see the nearest density. Resamples have as many samples as there are
    distinct ones, so that weights count like repetitions.
    """
    if not isinstance(radius, str):
        return float(radius), problem
    ball, n = family.ball, family.samples.shape[0]
    if radius == "bootstrap":
        return resampled_radius(ball, n, rng=random_state), problem
    if n < _FEWEST or ball.points.shape[0] < 2:
        return 0.0, problem
    widest = resampled_radius(ball, n, n_resamples=_RESAMPLES, rng=random_state)
    distance, problem = nearest_exactly(problem)
    least = _FEASIBLE * distance
    widest = max(widest, least) if isinstance(family, Densities) else widest
    order = np.random.default_rng(random_state).permutation(n)
    folds = [_Fold(family, order[k::_FOLDS]) for k in range(_FOLDS)]
    weights = np.concatenate([fold.weights for fold in folds])
    plain = float(weights @ np.concatenate([fold.plain for fold in folds]))
    slack = sum(fold.slack for fold in folds)
    for candidate in (widest * fraction for fraction in _FRACTIONS if widest * fraction >= least):
        Run.current().tell(f"held-out losses with radius {candidate:.3g}", 0.0, np.inf)
        parts = (fold.excess(candidate) for fold in folds)
        known: list[Any] = list(takewhile(lambda part: part is not None, parts))
        if len(known) == _FOLDS:
            excess = np.concatenate(known)
            total = float(weights @ excess)
            error = float(np.linalg.norm(weights * (excess - total / weights.sum())))
            if total <= _HARMLESS * plain + slack and total + error <= _AT_MOST * plain + slack:
                return candidate, problem
    return 0.0, problem
