"""Regularisation paths: one problem for many strengths of its penalty, each solved from the solution of the one before."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from ksos._deadline import Deadline
from ksos._validation import as_nonnegative
from ksos.functionals.base import Bound, Functional
from ksos.solvers.minimize import minimize
from ksos.solvers.solution import Solution
from ksos.space import SoSSpace

__all__ = ["regularization_path"]

_PER_STRENGTH = ("tol", "rtol", "max_iter")


def regularization_path(
    functional: Functional, penalty: Functional, strengths: Sequence[float], space: SoSSpace, constraints: Any = (), **options: Any
) -> list[Solution]:
    """min F + λ·P for every λ in ``strengths``: one :class:`Solution` for each, in the order given.

    The mass matrix, its whitening, the tensor and the sums over the data are formed once; a :class:`~ksos.functionals.Bound` functional or
    penalty is used as it is. Problems are solved from the largest λ down, each started at the factor found before it: ranks grow as λ
    falls, and there is little left to do. ``options`` are those of :func:`ksos.minimize`; ``tol``, ``rtol`` and ``max_iter`` may be
    sequences, one entry per strength; a ``start`` is that of the first problem; a ``time_limit`` is that of the whole path.

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
    deadline = Deadline.of(options.pop("time_limit", None))
    values = [as_nonnegative(strength, "every strength of the penalty") for strength in strengths]
    each = {name: options.pop(name) for name in _PER_STRENGTH if isinstance(options.get(name), (Sequence, np.ndarray))}
    for name, given in each.items():
        if len(given) != len(values):
            raise ValueError(f"{name} must be one number or one per strength; got {len(given)} for {len(values)} strengths")
    fixed, weighted = (part if isinstance(part, Bound) else Bound(part.bind(space), repr(part)) for part in (functional, penalty))
    found: dict[int, Solution] = {}
    for i in sorted(range(len(values)), key=lambda i: -values[i]):
        total = fixed + values[i] * weighted if values[i] > 0.0 else fixed
        own = {name: given[i] for name, given in each.items()}
        found[i] = minimize(total, space, constraints, time_limit=deadline, **options, **own)
        if found[i].keyboard_interrupt and len(found) < len(values):
            raise KeyboardInterrupt(f"interrupted at strength {values[i]:g}; {len(found) - 1} of {len(values)} problems came before it")
        G = found[i].parameter_factor
        options["start"] = G if G.shape[1] < space.rank else found[i].parameter
    return [found[i] for i in range(len(values))]
