"""The held-out scores over bandwidths and λ: where the grids begin, how they grow when the winner lies on an edge, and who wins."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field

import numpy as np

from ksos._deadline import Deadline
from ksos.bandwidth import widest_good
from ksos.estimators._held_out import BandwidthScores, Problem
from ksos.estimators._stacking import stack, stacked_logs

__all__ = ["FEW_MULTIPLES", "MULTIPLES", "REGULARIZATIONS", "Surface", "grow", "results_table"]

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
_WITHIN = 1.0  # standard errors

Evaluate = Callable[[Sequence[float], Sequence[float]], Iterator[BandwidthScores]]
"""Scores for some bandwidths (multiples of the rule) and some λ, as they come; fewer than asked for if the time is up."""


@dataclass
class Surface:
    """All that has been found out: per bandwidth its scores along the path of λ."""

    problem: Problem
    stacking: bool
    regularizations: list[float]
    """λ in units of w₀, descending."""
    multiples: list[float] = field(default_factory=list)
    """Bandwidths as multiples of the rule's, ascending."""
    found: list[BandwidthScores] = field(default_factory=list)
    """One entry for each of them."""

    @property
    def fold_scores(self) -> np.ndarray:
        """(bandwidths, λ, folds)."""
        return np.stack([scores.scores.T for scores in self.found])

    @property
    def scores(self) -> np.ndarray:
        """(bandwidths, λ): means over the folds, weighted by what they hold out."""
        return np.stack([self.problem.mean(found.scores) for found in self.found])

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
        i = widest_good(self._stacked_logs(), self.problem.held_out_weights, _WITHIN) if self.stacking else self.best_bandwidth
        return i, int(np.argmax(self.scores[i]))

    @property
    def best_bandwidth(self) -> int:
        """The one of highest score, which decides whether a grid has to grow."""
        return int(np.argmax(self.bandwidth_scores))


def grow(surface: Surface, evaluate: Evaluate, deadline: Deadline, *, wider: bool, narrower: bool, regularizations: bool) -> None:
    """Add a value beyond each edge that the best touches, four times at most per edge; λ = 0 has nothing beyond it."""
    left = dict.fromkeys(("wider", "narrower", "stronger", "weaker"), _MOST_EXTENSIONS)
    while not deadline.passed:
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
    for scores in evaluate([multiple], surface.regularizations):
        surface.found.insert(position, scores)
        surface.multiples.insert(position, multiple)


def _add_regularization(surface: Surface, evaluate: Evaluate, regularization: float, position: int) -> None:
    found = list(evaluate(surface.multiples, [regularization]))
    if len(found) < len(surface.found):  # the time is up: a column is complete or left out
        return
    for i, (old, new) in enumerate(zip(surface.found, found, strict=True)):
        held_out = old.held_out
        if held_out.size:
            held_out = np.insert(held_out, position, new.held_out[:, 0], axis=1)
        surface.found[i] = BandwidthScores(np.insert(old.scores, position, new.scores[:, 0], axis=1), held_out)
    surface.regularizations.insert(position, regularization)


def results_table(
    multiples: np.ndarray, regularizations: np.ndarray, scores: np.ndarray, folds: np.ndarray, sigma: np.ndarray
) -> dict[str, np.ndarray]:
    """Scores (bandwidths, λ), and of the folds (bandwidths, λ, folds), with one row per pair; ``sigma`` is the rule's bandwidth."""
    multiple, regularization = (grid.ravel() for grid in np.meshgrid(multiples, regularizations, indexing="ij"))
    flat = folds.reshape(scores.size, folds.shape[2])
    finite = np.all(np.isfinite(flat), axis=1) & (folds.shape[2] > 0)
    deviation = np.full(flat.shape[0], np.nan)
    scale = np.maximum(np.abs(flat[finite]).max(axis=1, initial=0.0), 1.0)  # scores of −1e300, of samples unseen, have squares too
    if finite.any():
        deviation[finite] = (flat[finite] / scale[:, None]).std(axis=1) * scale
    return {
        "bandwidth_multiple": multiple,
        "bandwidth": multiple[:, None] * sigma,
        "relative_regularization": regularization,
        "mean_test_score": scores.ravel(),
        "std_test_score": deviation,
        "rank_test_score": 1 + np.argsort(np.argsort(-scores.ravel(), kind="stable"), kind="stable"),
        **{f"split{k}_test_score": flat[:, k] for k in range(flat.shape[1])},
    }
