"""Drafts while a slider moves: each begins where the one before ended, on its support points."""

from __future__ import annotations

from typing import Any

import numpy as np

from ksos.estimators import OBJECTIVES
from ksos.functionals import Trace
from ksos.solvers import LBFGS, Solution, minimize
from ksos.space.embedding import MeanEmbedding
from ksos.space.space import SoSSpace

__all__ = ["follow"]

_COLUMNS, _NEW = 8, 4  # of the factor that a draft begins with, and those added to it at first
_RESOLVED = 1e-6  # of the largest singular value: a start needs no more


def follow(
    before: Solution,
    parameters: dict[str, Any],
    X: np.ndarray,
    weights: np.ndarray | None,
    watch: Any,
) -> Solution:
    """The fit with the ``parameters`` of an estimator, begun at the solution ``before`` and with
    the support points of that one.
    """
    old = before.space
    kernel = old.kernel.with_sigma(parameters["bandwidth"])
    embedding = old.embedding_kernel.with_sigma(parameters["embedding_bandwidth"])
    same = np.array_equal(kernel.sigma, old.kernel.sigma) and np.array_equal(
        embedding.sigma, old.embedding_kernel.sigma
    )
    space = (
        old
        if same
        else SoSSpace(kernel, old.support_points, old.measure, embedding, constant=old.constant)
    )
    data = MeanEmbedding(X, None if weights is None else weights / weights.sum(), kernel=embedding)
    functional = OBJECTIVES[parameters["objective"]](data) + parameters[
        "relative_regularization"
    ] * Trace(relative=True)
    start = before.parameter_factor if same else _carried(before, space)
    if start is not None:
        start = _leading(start)
    return minimize(
        functional,
        space,
        solver=LBFGS(columns=_NEW),
        tol=parameters["tol"],
        callback=watch,
        start=start,
    )


def _carried(before: Solution, space: SoSSpace) -> np.ndarray | None:
    """The factor G in the new space, whose functions Gᵀψ agree best with the old ones at the
    support points.
    """
    old = before.space
    if space.constant:
        return None
    X = space.support_points
    values = old.kernel(X, X) @ (old.T @ before.parameter_factor)
    return np.asarray(np.linalg.lstsq(space.kernel(X, X) @ space.T, values, rcond=_RESOLVED)[0])


def _leading(G: np.ndarray) -> np.ndarray:
    """The leading part of GGᵀ, as a factor with few columns."""
    if G.shape[1] <= _COLUMNS:
        return G
    U, sizes, _ = np.linalg.svd(G, full_matrices=False)
    return np.asarray(U[:, :_COLUMNS] * sizes[:_COLUMNS])
