"""The largest radius that sampling error explains and that does no harm: held-out losses stay near those of radius 0."""

from __future__ import annotations

from typing import Any, Protocol, Self

import numpy as np

from ksos._deadline import Deadline
from ksos._progress import tell
from ksos._threads import one_blas_thread
from ksos.robust.exact_ball import nearest_exactly
from ksos.robust.problem import Goal, Problem, Saddle
from ksos.robust.search import solve

__all__ = ["harmless_radius"]

_FRACTIONS = (1.0, 0.5, 0.25, 0.125)
_FOLDS, _FEWEST = 5, 10
_HARMLESS, _AT_MOST = 0.005, 0.03  # of the plain loss: the excess in all folds, and in one, or in all with a standard error more
_ERRORS = 1.0  # standard errors: where a few samples of high leverage decide, held-out losses say less than their mean
_FEASIBLE = 1.2
_ROUGH = Goal(rtol=1e-2)


class _Family(Protocol):
    """What is asked of a family here."""

    rows: tuple[np.ndarray, np.ndarray, np.ndarray]
    alpha: np.ndarray
    slack: float
    """Of the loss of the parameter 0, what is allowed besides: what is below it is no loss at all."""

    @property
    def problem(self) -> Problem: ...

    def on(self, rows: np.ndarray) -> Self: ...

    def empirical(self) -> tuple[np.ndarray, float]: ...

    def losses_of(self, theta: np.ndarray, X: np.ndarray, y: np.ndarray) -> np.ndarray: ...


class _Fold:
    """The model of four fifths of the samples, and its loss on the others."""

    def __init__(self, family: _Family, held_out: np.ndarray) -> None:
        rows = np.setdiff1d(np.arange(family.rows[0].shape[0]), held_out)
        self.family, self.held_out = family.on(rows), tuple(part[held_out] for part in family.rows)
        self.start: Saddle | None = None

    def losses(self, theta: np.ndarray) -> np.ndarray:
        """At the held-out samples."""
        X, y, _ = self.held_out
        return np.asarray(self.family.losses_of(theta, X, y))

    @property
    def weights(self) -> np.ndarray:
        """Of the held-out samples."""
        return self.held_out[2]

    def theta(self, radius: float, deadline: Deadline) -> np.ndarray | None:
        """The robust parameter, in the ball that the landmarks see; None where there is none."""
        self.start = solve(self.family.problem, radius, _ROUGH, deadline, self.start)
        return None if self.start.empty else self.start.theta


@one_blas_thread(0)
def harmless_radius(family: _Family, problem: Problem, most: float, random_state: Any, deadline: Deadline) -> tuple[float, Problem]:
    """The largest of ``most``·(1, ½, ¼, ⅛) whose loss on five held-out folds is at most ½ % above that of radius 0, at most 3 % in each of
    them, and at most 3 % with one standard error more; else 0.

    So it is for fewer than ten distinct samples, which cannot tell, and when the time is over. The problem comes back with the directions
    that it took to see the nearest density.
    """
    n = family.rows[0].shape[0]
    if n < _FEWEST or most == 0.0:
        return 0.0, problem
    distance, problem = nearest_exactly(problem, deadline)
    order = np.random.default_rng(random_state).permutation(n)
    folds = [_Fold(family, order[k::_FOLDS]) for k in range(_FOLDS)]
    plain = [fold.losses(fold.family.empirical()[0]) for fold in folds]
    slack = [family.slack * abs(float(fold.weights @ fold.losses(np.zeros_like(family.alpha)))) for fold in folds]
    for radius in (most * fraction for fraction in _FRACTIONS):
        if radius < _FEASIBLE * distance:
            break
        tell(f"held-out losses with radius {radius:.3g}", 0.0, np.inf)
        if _is_harmless(folds, plain, slack, radius, deadline):
            return radius, problem
    return 0.0, problem


def _is_harmless(folds: list[_Fold], plain: list[np.ndarray], slack: list[float], radius: float, deadline: Deadline) -> bool:
    """Whether the losses on the folds, one after the other, stay near the plain ones; not if the time is over before this is known."""
    more: list[np.ndarray] = []
    for fold, usual, extra in zip(folds, plain, slack, strict=True):
        theta = fold.theta(radius, deadline)
        if theta is None or deadline.passed:
            return False
        more.append(fold.losses(theta) - usual)
        if fold.weights @ more[-1] > _AT_MOST * float(fold.weights @ usual) + extra:
            return False
    excess, losses, weights = np.concatenate(more), np.concatenate(plain), np.concatenate([fold.weights for fold in folds])
    total, whole = float(weights @ excess), float(weights @ losses)
    error = float(np.sqrt(np.sum((weights * (excess - total / weights.sum())) ** 2)))
    return total <= _HARMLESS * whole + sum(slack) and total + _ERRORS * error <= _AT_MOST * whole + sum(slack)
