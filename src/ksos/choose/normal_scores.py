"""Which columns of a table are put on the scale of their normal scores.

A column whose own mixture of normal densities predicts held-out rows better than the joint mixture
does needs more components than the joint mixture has. On the scale of normal scores the joint
mixture need not describe the column at all.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence

import numpy as np

from ksos.choose.bandwidth import Units
from ksos.choose.held_out import simplest_good
from ksos.choose.mixed_reference import MixedStack
from ksos.choose.reference import FLOORS, Stack, Step
from ksos.data import Fold, held_out_weights
from ksos.density import NormalScores
from ksos.ground import Run

_SIZES = (1, 3, 10, 32)  # components: those of a search are no better on development columns


class _LineStack(Stack):
    """The stack of one column, from k-means at the smallest floor."""

    @property
    def plan(self) -> list[Step]:
        return [Step(size, 0, FLOORS[-1:]) for size in _SIZES if size <= max(self.sizes)]


def _column(
    x: np.ndarray, weights: np.ndarray, folds: Sequence[Fold]
) -> tuple[NormalScores, np.ndarray]:
    """The normal scores of a column, and the log-densities of all held-out cells, fold by fold;
    of a missing one, which is NaN in ``x``, 0.
    """
    seen = ~np.isnan(x)
    points = np.where(seen, x, x[seen][0])[:, None]

    def observed(rows: np.ndarray, masses: np.ndarray) -> np.ndarray:
        masses = masses * seen[rows]
        return masses / masses.sum()

    own = [
        fold._replace(
            train_weights=observed(fold.train, fold.train_weights),
            test_weights=observed(fold.test, fold.test_weights),
        )
        for fold in folds
    ]
    weights = observed(np.arange(x.size), weights)
    stack = _LineStack(points, weights, own, Units.of(points, weights, np.random.default_rng(0)))
    stack.fit()
    stack.solve()
    held_out = [
        np.where(seen[fold.test], stack.of_fold(k).log_density(points[fold.test]), 0.0)
        for k, fold in enumerate(folds)
    ]
    shares, means, covariances = stack.whole.normals(1)
    found = NormalScores(
        tuple((shares / shares.sum()).tolist()),
        tuple(means[:, 0].tolist()),
        tuple(np.sqrt(covariances[:, 0, 0]).tolist()),
        (float(x[seen].min()), float(x[seen].max())),
    )
    return found, np.concatenate(held_out)


# normal scores by the column, all numbers with these columns on their scale, the stack of the
# reference that has been fitted to them, and by how much log-densities of the held-out rows of
# every fold are larger in the units before
Rescaled = tuple[dict[int, NormalScores], np.ndarray, MixedStack, list[np.ndarray]]


def rescaled(
    first: MixedStack, columns: Sequence[int], again: Callable[[np.ndarray], MixedStack]
) -> Rescaled | None:
    """Some of the ``columns`` on the scale of their normal scores; None if the stack that ``again``
    makes for them does not predict held-out rows better than the ``first`` one, which is fitted.
    """
    folds, u, codes, scores = first.folds, first.u.copy(), first.codes, dict[int, NormalScores]()
    weights, rows = held_out_weights(folds), np.concatenate([fold.test for fold in folds])
    more = np.zeros(rows.size)
    first.solve()
    for k in columns:
        seen = ~np.isnan(u[:, k])
        parts = [part for fold in folds for part in (fold.train, fold.test)]
        several = np.unique(u[seen, k]).size > 1 and all(seen[part].any() for part in parts)
        if Run.current().over or not several:
            continue
        found, own = _column(u[:, k], first.masses[-1], folds)
        alone = np.where(np.arange(u.shape[1]) == k, first.u, np.nan)
        joint = _held_out(first, alone, np.full(codes.shape, -1))
        if simplest_good(np.stack([joint, own], axis=1), weights):
            scores[k], u[:, k] = found, found.of(u[:, k])[0]
            more += own + np.nan_to_num(0.5 * (u[rows, k] ** 2 + math.log(2.0 * math.pi)))
    if not scores:
        return None
    second = again(u)
    second.fit()
    second.solve()
    both = _held_out(first, first.u, codes), _held_out(second, u, codes) + more
    if not simplest_good(np.stack(both, axis=1), weights):
        return None
    return scores, u, second, [more[part] for part in first.rows]


# The log-densities of all held-out rows, fold by fold.
def _held_out(stack: MixedStack, u: np.ndarray, c: np.ndarray) -> np.ndarray:
    logs = [stack.of_fold(k).log_density(u[f.test], c[f.test]) for k, f in enumerate(stack.folds)]
    return np.concatenate(logs)
