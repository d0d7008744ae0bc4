"""Fits that start from another fit: along a path of strengths of the penalty, and a likelihood fit
from a quick fit in MMD."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from ksos.functionals import SquaredMMD, Trace
from ksos.functionals.base import Bound, Functional
from ksos.ground.arrays import Array, like, namespace, to_numpy
from ksos.ground.deadline import Deadline
from ksos.ground.validation import as_nonnegative
from ksos.solvers.minimize import minimize
from ksos.solvers.solution import Solution
from ksos.space.embedding import MeanEmbedding
from ksos.space.space import SoSSpace
from ksos.space.support import pivoted_cholesky

__all__ = ["quick_mmd_fit", "regularization_path"]

_POINTS, _TOLERANCE, _REGULARIZATION = 40, 1e-3, 1e-3

_PER_STRENGTH = ("tol", "rtol", "max_iter")


def regularization_path(
    functional: Functional,
    penalty: Functional,
    strengths: Sequence[float],
    space: SoSSpace,
    constraints: Any = (),
    **options: Any,
) -> list[Solution]:
    """min F + λ·P for every λ in ``strengths``: one :class:`Solution` for each, in the order given.

    The mass matrix, its whitening, the tensor and the sums over the data are formed once; a
    :class:`~ksos.functionals.Bound` functional or penalty is used as it is. Problems are solved
    from the largest λ down, each started at the factor found before it: ranks grow as λ falls, and
    there is little left to do. ``options`` are those of :func:`ksos.minimize`; ``tol``, ``rtol``
    and ``max_iter`` may be sequences, one entry per strength; a ``start`` is that of the first
    problem; a ``time_limit`` is that of the whole path.

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
    each = {
        name: options.pop(name)
        for name in _PER_STRENGTH
        if isinstance(options.get(name), (Sequence, np.ndarray))
    }
    for name, given in each.items():
        if len(given) != len(values):
            raise ValueError(
                f"{name} must be one number or one per strength; got {len(given)} for {len(values)}"
                " strengths"
            )
    fixed, weighted = (
        part if isinstance(part, Bound) else Bound(part.bind(space), repr(part))
        for part in (functional, penalty)
    )
    found: dict[int, Solution] = {}
    for i in sorted(range(len(values)), key=lambda i: -values[i]):
        total = fixed + values[i] * weighted if values[i] > 0.0 else fixed
        own = {name: given[i] for name, given in each.items()}
        found[i] = minimize(total, space, constraints, time_limit=deadline, **options, **own)
        if found[i].keyboard_interrupt and len(found) < len(values):
            raise KeyboardInterrupt(
                f"interrupted at strength {values[i]:g}; {len(found) - 1} of {len(values)} problems"
                " came before it"
            )
        G = found[i].parameter_factor
        options["start"] = G if G.shape[1] < space.rank else found[i].parameter
    return [found[i] for i in range(len(values))]


def quick_mmd_fit(space: SoSSpace, data: MeanEmbedding, deadline: Deadline) -> Array:
    """Where a likelihood fit begins: C of the density that fits ``data`` in MMD on at most 40 of
    the support points. It takes 0.02 s, whatever the size of the space.
    """
    integrals, support = space.integrals, to_numpy(space.support_points)
    chosen = pivoted_cholesky(support, min(_POINTS, support.shape[0]), integrals, space.tol_model)
    small = SoSSpace(space.kernel, support[chosen], space.measure, space.embedding_kernel)
    functional = SquaredMMD(data) + _REGULARIZATION * Trace(relative=True)
    found = minimize(functional, small, tol=_TOLERANCE, time_limit=deadline)
    if found.keyboard_interrupt:
        raise KeyboardInterrupt(found.message)
    p = found.distribution
    log_W = integrals.log_gram(space.support_points, like(p.support_points, space.T))
    W = namespace(space.T).exp(log_W - space.log_unit)
    G = space.T.T @ (W @ like(p.unit_factor * np.exp(0.5 * (space.log_unit - p.log_unit)), space.T))
    return G @ G.T
