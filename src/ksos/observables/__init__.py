"""Functions f of x and their matrices ∫ f k_i k_j dρ: losses, moments, probabilities of boxes,
elements of an RKHS, code.
"""

from __future__ import annotations

from typing import Any

from ksos.observables.base import (
    Observable,
    ObservableMatrix,
    SumObservable as SumObservable,
    sum_over_nodes,
)
from ksos.observables.functions import BoxIndicator, KernelFunction, NumericFunction
from ksos.observables.maximum import Event as Event, Maximum as Maximum
from ksos.observables.polynomial import Polynomial, as_polynomial, coordinate
from ksos.observables.supremum import (
    Supremum as Supremum,
    climbed as climbed,
    enclosure as enclosure,
    proven_supremum as proven_supremum,
    searched_supremum as searched_supremum,
)

__all__ = [
    "BoxIndicator",
    "Event",
    "KernelFunction",
    "Maximum",
    "NumericFunction",
    "Observable",
    "ObservableMatrix",
    "Polynomial",
    "as_observable",
    "coordinate",
    "sum_over_nodes",
]


def as_observable(f: Any, name: str = "f") -> Observable:
    """An :class:`Observable` as it is, a number as a constant, a function of arrays (n, d) as a
    :class:`NumericFunction`.

    >>> as_observable(2.0)
    Polynomial(2)
    """
    f = as_polynomial(f)
    if isinstance(f, Observable):
        return f
    if not callable(f):
        raise TypeError(
            f"{name} must be a function of an array (n, d) that returns n numbers, or a Polynomial,"
            f" KernelFunction, BoxIndicator; got {f!r}"
        )
    return NumericFunction(f)
