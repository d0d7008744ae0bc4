"""Regularisation paths: one problem for many strengths of its penalty, each solved from the solution of the one before."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from ksos._validation import as_nonnegative
from ksos.functionals.base import Functional, Given
from ksos.solvers.minimize import minimize
from ksos.solvers.solution import Solution
from ksos.space import SoSSpace

__all__ = ["regularization_path"]


def regularization_path(
    functional: Functional, penalty: Functional, strengths: Sequence[float], space: SoSSpace, constraints: Any = (), **options: Any
) -> list[Solution]:
    """min F + λ·P for every λ in ``strengths``: one :class:`Solution` for each, in the order given.

    The mass matrix, its whitening, the tensor and the sums over the data are formed once. Problems are solved from the largest λ down, each
    started at the solution before it: ranks grow as λ falls, and there is little left to do. ``options`` are those of
    :func:`ksos.minimize`; a ``start`` among them is that of the first problem.

    Examples
    --------
    >>> import numpy as np
    >>> from ksos.kernels import Gaussian
    >>> from ksos.functionals import SquaredMMD, Trace
    >>> X = np.linspace(-1.0, 1.0, 5)[:, None]
    >>> path = regularization_path(SquaredMMD(X), Trace(), [1e-3, 1e-2, 1e-1], SoSSpace(Gaussian(1.0), X))
    >>> [solution.status for solution in path], path[0].objective < path[2].objective
    (['solved', 'solved', 'solved'], True)
    """
    values = [as_nonnegative(strength, "every strength of the penalty") for strength in strengths]
    fixed, weighted = (Given(term.bind(space), term) for term in (functional, penalty))
    found: dict[int, Solution] = {}
    for i in sorted(range(len(values)), key=lambda i: -values[i]):
        total = fixed + values[i] * weighted if values[i] > 0.0 else fixed
        found[i] = minimize(total, space, constraints, **options)
        options["start"] = found[i].parameter
    return [found[i] for i in range(len(values))]
