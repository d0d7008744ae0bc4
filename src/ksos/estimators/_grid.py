"""The search over bandwidths and λ: where the grids begin, how they grow when the winner lies on an edge, and who wins."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

import numpy as np

from ksos.bandwidth import widest_good
from ksos.estimators._bumps import bump_logpdf
from ksos.estimators._folds import random_folds
from ksos.estimators._stacking import stack, stacked_logs
from ksos.estimators._surface import BandwidthScores, Problem

__all__ = ["FEW_MULTIPLES", "MULTIPLES", "REGULARIZATIONS", "Surface", "best_kernel_density_multiple", "grow"]

MULTIPLES = (1.0, 1.25, 1.6, 2.0, 2.5)
"""Bandwidths, as multiples of the one that suits the kernel density estimate: a sum of squares is sharper, and takes wider kernels."""
FEW_MULTIPLES = (1.0, 1.4, 2.0)
"""Those of more than 1000 samples, whose likelihood has a wider top."""
REGULARIZATIONS = {
    "likelihood": tuple(10.0 ** (1.0 - 0.5 * k) for k in range(11)),
    "squared_mmd": tuple(10.0 ** (-1.0 - 0.5 * k) for k in range(9)),
}
"""λ, in units of w₀."""
_MOST_EXTENSIONS = 4
_SCAN_POINTS, _SCAN_FOLDS = 1600, 10
_WITHIN_FIT, _WITHIN_SCAN = 1.0, 0.2
_COARSE, _FINE = 2.0**0.5, 2.0**0.125

Evaluate = Callable[[Sequence[float], Sequence[float]], list[BandwidthScores]]
"""Scores for some bandwidths (multiples of the rule) and some λ."""


@dataclass
class Surface:
    """All that has been found out: per bandwidth its scores along the path of λ."""

    problem: Problem
    multiples: list[float]
    regularizations: list[float]
    found: list[BandwidthScores]
    stacking: bool

    @property
    def fold_scores(self) -> np.ndarray:
        """(bandwidths, λ, folds)."""
        return np.stack([scores.scores.T for scores in self.found])

    @property
    def scores(self) -> np.ndarray:
        """(bandwidths, λ): means over the folds, weighted by what they hold out."""
        masses = np.array([fold.mass for fold in self.problem.folds])
        with np.errstate(invalid="ignore"):
            return np.asarray(self.fold_scores @ (masses / masses.sum()))

    def shares(self, i: int) -> np.ndarray:
        """The stacking weights of bandwidth i: of the fits along the path, and last of the kernel density estimate."""
        return stack(self.found[i].held_out, self.problem.held_out_weights)

    def _stacked_logs(self) -> np.ndarray:
        return np.stack([stacked_logs(found.held_out, self.shares(i)) for i, found in enumerate(self.found)])

    @property
    def bandwidth_scores(self) -> np.ndarray:
        """What each bandwidth is worth: that of its stack, or of its best λ."""
        if not self.stacking:
            return np.asarray(self.scores.max(axis=1))
        return np.asarray(self._stacked_logs() @ self.problem.held_out_weights)

    @property
    def winner(self) -> tuple[int, int]:
        """The best bandwidth (of a stack: the widest that is within one standard error of it), and its best λ."""
        i = widest_good(self._stacked_logs(), self.problem.held_out_weights, _WITHIN_FIT) if self.stacking else self.best_bandwidth
        return i, int(np.argmax(self.scores[i]))

    @property
    def best_bandwidth(self) -> int:
        """The one of highest score, which decides whether a grid has to grow."""
        return int(np.argmax(self.bandwidth_scores))


def grow(surface: Surface, evaluate: Evaluate, *, wider: bool, narrower: bool, regularizations: bool) -> None:
    """Add a value beyond each edge that the best touches, four times at most per edge; λ = 0 has nothing beyond it."""
    left = {"wider": _MOST_EXTENSIONS, "narrower": _MOST_EXTENSIONS, "stronger": _MOST_EXTENSIONS, "weaker": _MOST_EXTENSIONS}
    while True:
        i, j = surface.best_bandwidth, surface.winner[1]
        m, r = surface.multiples, surface.regularizations
        if wider and len(m) > 1 and i == len(m) - 1 and left["wider"]:
            left["wider"] -= 1
            _add_bandwidth(surface, evaluate, m[-1] * m[-1] / m[-2], len(m))
        elif narrower and len(m) > 1 and i == 0 and left["narrower"]:
            left["narrower"] -= 1
            _add_bandwidth(surface, evaluate, m[0] * m[0] / m[1], 0)
        elif regularizations and len(r) > 1 and j == 0 and left["stronger"] and r[1] > 0.0:
            left["stronger"] -= 1
            _add_regularization(surface, evaluate, r[0] * r[0] / r[1], 0)
        elif regularizations and len(r) > 1 and j == len(r) - 1 and left["weaker"] and r[-1] > 0.0:
            left["weaker"] -= 1
            _add_regularization(surface, evaluate, r[-1] * r[-1] / r[-2], len(r))
        else:
            return


def _add_bandwidth(surface: Surface, evaluate: Evaluate, multiple: float, position: int) -> None:
    surface.found.insert(position, evaluate([multiple], surface.regularizations)[0])
    surface.multiples.insert(position, multiple)


def _add_regularization(surface: Surface, evaluate: Evaluate, regularization: float, position: int) -> None:
    for i, (old, new) in enumerate(zip(surface.found, evaluate(surface.multiples, [regularization]), strict=True)):
        held_out = old.held_out
        if held_out.size:
            held_out = np.insert(held_out, position, new.held_out[:, 0], axis=1)
        surface.found[i] = BandwidthScores(np.insert(old.scores, position, new.scores[:, 0], axis=1), held_out, old.rank)
    surface.regularizations.insert(position, regularization)


def best_kernel_density_multiple(problem: Problem, sigma: np.ndarray, rng: np.random.Generator) -> float:
    """The multiple of the rule's bandwidth with which the kernel density estimate predicts held-out samples best.

    A coarse scan over five orders of two and a fine one around its winner; beyond 1600 samples on a random subset, corrected for its size.
    """
    points, weights, correction = problem.points, problem.weights, 1.0
    if points.shape[0] > _SCAN_POINTS:
        chosen = np.sort(rng.choice(points.shape[0], _SCAN_POINTS, replace=False))
        correction = (_SCAN_POINTS / points.shape[0]) ** (1.0 / (points.shape[1] + 4.0))
        points, weights = points[chosen], weights[chosen] / weights[chosen].sum()
    folds = random_folds(weights, min(_SCAN_FOLDS, points.shape[0]), rng)

    def logs(multiple: float) -> np.ndarray:
        kernel, out = problem.make_kernel(multiple * sigma), np.empty(points.shape[0])
        for fold in folds:
            out[fold.test] = bump_logpdf(kernel, problem.measure, points[fold.train], fold.train_weights, points[fold.test])
        return np.maximum(out, -1e300)

    known = {multiple: logs(multiple) for multiple in (_COARSE**k for k in range(-4, 3))}
    while True:
        best = max(known, key=lambda multiple: float(weights @ known[multiple]))
        if best == min(known) and best > 2.0**-6:
            known[best / _COARSE] = logs(best / _COARSE)
        elif best == max(known) and best < 2.0**3:
            known[best * _COARSE] = logs(best * _COARSE)
        else:
            break
    for k in range(-2, 5):
        known[best * _FINE**k] = logs(best * _FINE**k)
    multiples = sorted(known)
    return multiples[widest_good(np.stack([known[multiple] for multiple in multiples]), weights, _WITHIN_SCAN)] * correction
